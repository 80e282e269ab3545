//! Boards from the pool: the Accelerators Registry allocates the map file's boards, instead of
//! fixed addresses.
//!
//! A board of the pool is a device whose labels `mac` and `ip` are its addresses. A cluster uses a
//! board exclusively and returns a device that is also allocated to another instance. Leases last a
//! few seconds and are renewed: the boards of a launcher that died are free after the lease, those
//! of a launcher that exits at once.

use crate::model::{Cluster, NodeKind};
use anyhow::{bail, ensure, Context, Result};
use baltra_api::client::{self, Instances, Operators};
use baltra_api::registry::{AllocateRequest, Device, DevicesRequest, ReleaseRequest, RenewRequest};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Lease of boards without renewal, seconds.
const LEASE_S: u32 = 10;
/// Most refused devices that an error names.
const NAMED_MAX: usize = 5;

/// Boards leased to a run; dropping the value releases them.
#[derive(Debug)]
pub struct Boards {
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Drop for Boards {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// Replaces the addresses of the map file's boards with those of boards from the pool.
///
/// # Errors
///
/// There is no registry, there are not enough boards, or boards lack addresses.
pub fn take(
    cluster: &mut Cluster,
    registry: &client::Options,
    say: &mut dyn FnMut(&str),
) -> Result<Boards> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (mut instances, mut operators) = {
        let _within = runtime.enter();
        (client::instances(registry)?, client::operators(registry)?)
    };
    // Boards of one kind are allocated together.
    let mut kinds: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, node) in cluster.map.nodes.iter().enumerate() {
        if node.kind == NodeKind::Hardware {
            let model = node.board.as_ref().map(|b| format!(",model={b}"));
            let query = format!("platform=Baltra boards{}", model.unwrap_or_default());
            kinds.entry(query).or_default().push(index);
        }
    }
    ensure!(!kinds.is_empty(), "--pool: the map file has no boards");
    let name = format!("cluster-{}", &crate::job::new_key()?[..12]);
    let mut taken = Vec::new();
    let mut filled = Ok(());
    for (number, (query, nodes)) in kinds.iter().enumerate() {
        let instance = format!("{name}-{number}");
        filled = runtime.block_on(async {
            let devices = allocate(&mut instances, &instance, query, nodes.len()).await?;
            taken.push(instance);
            let list_devices = list_devices(&mut operators).await?;
            for (&node, device) in nodes.iter().zip(&devices) {
                address(cluster, node, device, list_devices.get(device))?;
                say(&format!(
                    "{}: board {device} of the pool",
                    cluster.node_name(node)
                ));
            }
            Ok(())
        });
        if filled.is_err() {
            break;
        }
    }
    let (stop, stopped) = channel();
    let keeper = std::thread::Builder::new()
        .name("pool".to_owned())
        .spawn(move || keep(&runtime, &mut instances, &taken, &stopped))?;
    let boards = Boards {
        stop: Some(stop),
        keeper: Some(keeper),
    };
    // After an error, dropping `boards` returns the allocated ones.
    filled.map(|()| boards)
}

/// Allocates devices for an instance; returns them as node/name.
async fn allocate(
    instances: &mut Instances,
    instance: &str,
    query: &str,
    count: usize,
) -> Result<Vec<String>> {
    let request = AllocateRequest {
        instance: instance.to_owned(),
        query: query.to_owned(),
        count: count as u32,
        lease_s: Some(LEASE_S),
        ..AllocateRequest::default()
    };
    let reply = (instances.allocate(request).await)
        .map_err(|status| {
            anyhow::anyhow!("the registry refused the request: {}", status.message())
        })?
        .into_inner();
    if let Some(refusal) = reply.refusal {
        let devices: Vec<String> = (refusal.devices.iter().take(NAMED_MAX))
            .map(|d| format!("{} ({})", d.device, d.reason))
            .collect();
        bail!(
            "the pool has fewer than {count} boards for '{query}': {} {}",
            refusal.reason,
            devices.join(", ")
        );
    }
    let found = reply
        .instance
        .context("the registry's response has no devices")?;
    ensure!(
        found.devices.len() == count,
        "the pool allocated {} boards instead of {count}",
        found.devices.len()
    );
    let named = |d: &baltra_api::registry::Assignment| format!("{}/{}", d.node, d.device);
    Ok(found.devices.iter().map(named).collect())
}

async fn list_devices(operators: &mut Operators) -> Result<HashMap<String, Device>> {
    let reply = (operators.devices(DevicesRequest::default()).await).map_err(|status| {
        anyhow::anyhow!("the registry refused the request: {}", status.message())
    })?;
    let devices = reply.into_inner().devices.into_iter();
    Ok(devices
        .filter_map(|d| Some((format!("{}/{}", d.node, d.description.as_ref()?.name), d)))
        .collect())
}

/// Takes a board's addresses from the labels of its device.
fn address(cluster: &mut Cluster, node: usize, name: &str, device: Option<&Device>) -> Result<()> {
    let device = device.with_context(|| format!("board {name} has left the pool"))?;
    ensure!(
        device.occupation <= 1,
        "board {name} is in use, and no other is free"
    );
    let labels = device.description.as_ref().map(|d| &d.labels);
    let label = |key: &str| labels.and_then(|l| l.get(key)).cloned();
    let ip = match label("ip") {
        Some(text) => Some(text.parse::<IpAddr>().with_context(|| {
            format!("board {name}: label ip is '{text}', must be an IP address")
        })?),
        None => None,
    };
    let mac = label("mac");
    ensure!(
        ip.is_some() || mac.is_some(),
        "board {name} has neither of the labels mac and ip: set one in its node's configuration"
    );
    let node = &mut cluster.map.nodes[node];
    node.ip = ip;
    node.mac = mac;
    Ok(())
}

/// Renews the leases until stopped, then releases the boards.
fn keep(runtime: &Runtime, instances: &mut Instances, names: &[String], stopped: &Receiver<()>) {
    let pause = Duration::from_secs(u64::from(LEASE_S) / 3);
    while matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
        for name in names {
            let request = RenewRequest {
                instance: name.clone(),
                ..RenewRequest::default()
            };
            // An unreachable registry is retried. If the leases expire and the registry allocates
            // the boards to another cluster, the boards stop responding.
            let _ = runtime.block_on(instances.renew(request));
        }
    }
    for name in names {
        let request = ReleaseRequest {
            instance: name.clone(),
        };
        let _ = runtime.block_on(instances.release(request));
    }
}
