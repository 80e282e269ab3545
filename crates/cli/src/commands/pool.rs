//! `baltra device`, `baltra instances`, `baltra pool`, and `baltra devices` for the pool.

use super::drain;
use crate::args::{Device, Devices, Instances, Pool};
use crate::exit::Exit;
use crate::output::{self, Table};
use crate::registry::Registry;
use anyhow::Result;
use baltra_api::registry as proto;
use baltra_manager::options::PathOptions;
use serde_json::{json, Value};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Digits of an accelerator's digest that are displayed.
const DIGITS: usize = 12;

/// Interval of checks of a draining device.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Implements `baltra devices` for the pool.
pub fn devices(registry: &Registry, args: &Devices) -> Result<()> {
    let request = proto::DevicesRequest {
        query: args.query.clone().unwrap_or_default(),
        silent: args.all,
    };
    let reply = registry.call(|mut s| async move { s.operators.devices(request).await })?;
    if args.json.json {
        let json = |d: &proto::Device| {
            let node = reply.nodes.iter().find(|n| n.name == d.node);
            device_json(d, &node.cloned().unwrap_or_default())
        };
        let devices: Vec<_> = reply.devices.iter().map(json).collect();
        output::json(&json!(devices));
        return Ok(());
    }
    let mut table = Table::new(&[
        "DEVICE",
        "STATE",
        "MODEL",
        ">UNITS",
        ">REGIONS",
        ">MEMORY",
        ">UTIL",
        ">WAIT",
        ">INSTANCES",
        ">SESSIONS",
        "ACCELERATOR",
    ]);
    for d in &reply.devices {
        let description = d.description.clone().unwrap_or_default();
        table.row([
            format!("{}/{}", d.node, description.name),
            state(d).to_owned(),
            description.model,
            description.compute_units.to_string(),
            description.regions.max(1).to_string(),
            output::bytes(description.memory_bytes),
            format!("{:.0} %", d.utilization),
            format!("{:.1} ms", d.queue_wait_ms),
            d.occupation.to_string(),
            d.sessions.to_string(),
            accelerators(description.exclusive, d) + &waiting(d.waiting_images.len()),
        ]);
    }
    table.print();
    for d in reply.devices.iter().filter(|d| !d.failure.is_empty()) {
        let name = d.description.as_ref().map_or("", |t| t.name.as_str());
        eprintln!("{}/{name}: {}", d.node, d.failure);
    }
    Ok(())
}

/// A device's state in one word, the most important condition first.
fn state(d: &proto::Device) -> &str {
    match (d.state.as_str(), d.draining, d.cordoned) {
        ("ready", true, _) => "draining",
        ("ready", false, true) => "cordoned",
        (state, ..) => state,
    }
}

/// The number of images that wait for their turn, after the present one.
pub fn waiting(images: usize) -> String {
    match images {
        0 => String::new(),
        1 => " (1 waits)".into(),
        n => format!(" ({n} wait)"),
    }
}

fn accelerators(exclusive: bool, device: &proto::Device) -> String {
    let (loaded, pending) = (&device.regions, &device.pending);
    if !device.loading.is_empty() {
        return format!("{:.DIGITS$} (loading)", device.loading);
    }
    let name = |r: &proto::Region| match r.name.as_str() {
        "" => r.digest.chars().take(DIGITS).collect(),
        name => name.to_owned(),
    };
    let mut all: Vec<String> = loaded.iter().map(name).collect();
    all.extend(
        pending
            .iter()
            .map(|r| format!("{} (to be loaded)", name(r))),
    );
    match (all.is_empty(), exclusive) {
        (true, true) => "blank".into(),
        (true, false) => "shared".into(),
        (false, _) => all.join(", "),
    }
}

fn region_json(r: &proto::Region) -> Value {
    json!({"index": r.index, "digest": r.digest, "name": r.name})
}

fn loaded_json(r: &proto::Region) -> Value {
    json!({
        "index": r.index, "digest": r.digest, "name": r.name,
        "recent_uses": r.recent_uses, "load_ms": r.load_ms,
    })
}

fn waiting_json(image: &proto::WaitingImage) -> Value {
    json!({
        "digest": image.digest, "name": image.name, "sessions": image.sessions,
        "waiting_ms": image.waiting_ms,
    })
}

fn device_json(d: &proto::Device, node: &proto::NodeState) -> Value {
    let description = d.description.clone().unwrap_or_default();
    json!({
        "node": d.node, "node_version": node.version, "node_uptime_s": node.uptime_s,
        "name": description.name, "state": d.state, "failure": d.failure,
        "cordoned": d.cordoned, "draining": d.draining, "vendor": description.vendor,
        "platform": description.platform, "profile": description.profile, "model": description.model,
        "device_version": description.device_version, "driver_version": description.driver_version,
        "memory_bytes": description.memory_bytes, "memory_used_bytes": d.memory_used_bytes,
        "compute_units": description.compute_units, "region_count": description.regions.max(1),
        "slots": description.slots, "exclusive": description.exclusive,
        "labels": description.labels, "utilization_percent": d.utilization, "occupation": d.occupation,
        "queue_wait_ms": d.queue_wait_ms, "busy_ns": d.busy_ns, "sessions": d.sessions,
        "waiting": d.waiting, "tasks": d.tasks, "executor_deaths": d.executor_deaths,
        "regions": d.regions.iter().map(loaded_json).collect::<Vec<_>>(),
        "pending": d.pending.iter().map(region_json).collect::<Vec<_>>(),
        "loading": d.loading, "instances": d.instances, "endpoints": d.endpoints, "heard_ms": d.heard_ms, // text-ok
        "waiting_images": d.waiting_images.iter().map(waiting_json).collect::<Vec<_>>(),
        "metrics": d.metrics,
    })
}

/// `baltra device`
pub fn device(command: Device, paths: &PathOptions) -> Result<ExitCode> {
    match command {
        Device::Cordon { device, at } => {
            let registry = Registry::connect(&at, paths)?;
            let request = proto::CordonRequest {
                device: device.clone(),
            };
            registry.call(|mut s| async move { s.operators.cordon(request).await })?;
            println!("{device} takes no new instances");
            Ok(ExitCode::SUCCESS)
        }
        Device::Uncordon { device, at } => {
            let registry = Registry::connect(&at, paths)?;
            let request = proto::UncordonRequest {
                device: device.clone(),
            };
            registry.call(|mut s| async move { s.operators.uncordon(request).await })?;
            println!("{device} takes instances");
            Ok(ExitCode::SUCCESS)
        }
        Device::UpgradeDriver {
            device,
            force,
            wait_ms,
            json,
        } => super::upgrade::driver(&device, (wait_ms, force), paths, json.json),
        Device::Drain {
            device,
            live,
            at,
            json,
            ..
        } if live.live => drain::live(&device, &live, &at, paths, json.json),
        Device::Drain {
            device,
            wait,
            at,
            json,
            ..
        } => {
            let registry = Registry::connect(&at, paths)?;
            drain(&registry, &device, Duration::from_secs(wait), json.json)
        }
    }
}

/// The remaining instances and sessions of a draining device, from its node's reports after the
/// request.
#[derive(Default)]
struct Left {
    /// Instances with an open session.
    instances: Vec<String>,
    /// Number of open sessions, including those of the instances.
    sessions: u32,
    /// The image that the driver is loading, by digest; empty: none.
    loading: String,
}

impl Left {
    fn is_empty(&self) -> bool {
        self.sessions == 0 && self.instances.is_empty() && self.loading.is_empty()
    }
}

fn drain(registry: &Registry, device: &str, wait: Duration, as_json: bool) -> Result<ExitCode> {
    let started = Instant::now();
    let request = proto::DrainRequest {
        device: device.to_owned(),
    };
    let reply = registry.call(|mut s| async move { s.operators.drain(request).await })?;
    if !as_json {
        println!("{device} takes no new instances");
        for m in &reply.migrations {
            if m.devices.is_empty() {
                println!("  {} cannot move: {}", m.instance, m.reason)
            } else {
                println!(
                    "  {} will move to {}",
                    m.instance,
                    places(&m.devices).join(", ")
                )
            }
        }
    }
    let stays = |m: &&proto::Migration| m.devices.is_empty();
    let stay = reply.migrations.iter().filter(stays).count();
    if wait.is_zero() {
        if as_json {
            print_drained(device, &reply.migrations, None);
        }
        return Ok(Exit::of(stay == 0).into());
    }
    let left = loop {
        let left = left(registry, device, started)?;
        // Instances that cannot move are not waited for.
        let going = left.as_ref().is_none_or(|left| {
            let fixed = reply.migrations.iter().filter(stays);
            let fixed = fixed.filter(|m| left.instances.contains(&m.instance));
            let is_loading = !left.loading.is_empty();
            let fixed = fixed.count();
            is_loading || left.instances.len() > fixed || left.sessions > fixed as u32
        });
        if !going || started.elapsed() >= wait {
            break left;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    if as_json {
        print_drained(device, &reply.migrations, left.as_ref());
    } else {
        print_left(device, &reply.migrations, left.as_ref(), wait);
    }
    let is_empty = left.is_some_and(|left| left.is_empty());
    Ok(Exit::of(is_empty && stay == 0).into())
}

/// The instances and sessions of a device; `None` if its node has not reported since.
fn left(registry: &Registry, device: &str, since: Instant) -> Result<Option<Left>> {
    let request = proto::DevicesRequest {
        query: String::new(),
        silent: true,
    };
    let before = since.elapsed();
    let reply = registry.call(|mut s| async move { s.operators.devices(request).await })?;
    let found = reply.devices.into_iter().find(|d| {
        let name = d.description.as_ref().map_or("", |t| t.name.as_str());
        format!("{}/{name}", d.node) == device
    });
    // A heartbeat that was in flight at the request does not reflect it.
    let fresh = found.filter(|d| u128::from(d.heard_ms) < before.as_millis());
    Ok(fresh.map(|d| Left {
        instances: d.connected,
        sessions: d.sessions,
        loading: d.loading,
    }))
}

fn print_left(device: &str, migrations: &[proto::Migration], left: Option<&Left>, wait: Duration) {
    let Some(left) = left else {
        println!(
            "its node has not responded for {} s: its sessions are unknown",
            wait.as_secs()
        );
        return;
    };
    for m in migrations.iter().filter(|m| !m.devices.is_empty()) {
        if left.instances.contains(&m.instance) {
            println!("  {} has not left after {} s", m.instance, wait.as_secs())
        } else {
            println!("  {} has left", m.instance)
        }
    }
    match left.sessions {
        0 if !left.loading.is_empty() => {
            println!("{device} is loading the image {:.DIGITS$}", left.loading);
        }
        0 => println!("{device} has no sessions"),
        n => println!("{device} has {n} sessions (`baltra sessions` on its node lists them)"),
    }
}

fn print_drained(device: &str, migrations: &[proto::Migration], left: Option<&Left>) {
    let all: Vec<_> = migrations
        .iter()
        .map(|m| {
            let there = left.map(|left| left.instances.contains(&m.instance));
            json!({
                "instance": m.instance, "devices": places(&m.devices), "reason": m.reason,
                "left": there.map(|there| !there),
            })
        })
        .collect();
    let sessions = left.map(|left| left.sessions);
    let loading = left.map(|left| left.loading.as_str());
    output::json(&json!({
        "device": device, "migrations": all, "sessions": sessions, "loading": loading,
    }));
}

fn places(devices: &[proto::Assignment]) -> Vec<String> {
    let name = |a: &proto::Assignment| format!("{}/{}", a.node, a.device);
    devices.iter().map(name).collect()
}

/// `baltra instances`
pub fn instances(args: &Instances, paths: &PathOptions) -> Result<()> {
    let registry = Registry::connect(&args.at, paths)?;
    let request = proto::InstancesRequest {
        function: args.function.clone(),
        tenant: args.tenant.clone(),
        device: args.device.clone(),
    };
    let reply = registry.call(|mut s| async move { s.operators.instances(request).await })?;
    if args.json.json {
        let all: Vec<_> = reply.instances.iter().map(instance_json).collect();
        output::json(&json!(all));
        return Ok(());
    }
    let mut table = Table::new(&["INSTANCE", "TENANT", "FUNCTION", "HOST", "DEVICES", "FOR"]);
    for i in &reply.instances {
        let devices = match i.pending.as_str() {
            "" => places(&i.devices).join(", "),
            why => format!("none: {why}"),
        };
        let wanted = match (i.query.as_str(), i.pool.as_str()) {
            ("", "") => "any device".to_owned(),
            ("", pool) => format!("pool {pool}"),
            (query, _) => query.to_owned(),
        };
        table.row([
            i.name.clone(),
            i.tenant.clone(),
            i.function.clone(),
            i.hostname.clone(),
            devices,
            wanted,
        ]);
    }
    table.print();
    Ok(())
}

fn instance_json(i: &proto::Instance) -> Value {
    let devices: Vec<_> = i
        .devices
        .iter()
        .map(|a| {
            json!({
                "node": a.node, "device": a.device, "endpoints": a.endpoints, "weight": a.weight,
                "reconfigure": a.reconfigure, "region": a.region, "silent": a.silent,
                "live": a.live,
            })
        })
        .collect();
    json!({
        "name": i.name, "tenant": i.tenant, "function": i.function, "query": i.query,
        "count": i.count, "pool": i.pool, "node": i.node, "hostname": i.hostname,
        "devices": devices, "lease_s": i.lease_s, "revision": i.revision, "pending": i.pending,
        "created_at_s": i.created_at_s,
    })
}

/// `baltra pool`
pub fn pool(command: Pool, paths: &PathOptions) -> Result<()> {
    match command {
        Pool::Add { name, query, at } => {
            let registry = Registry::connect(&at, paths)?;
            let pool = proto::Pool {
                name,
                query,
                devices: Vec::new(),
            };
            let pool = registry.call(|mut s| async move { s.operators.pool_put(pool).await })?;
            if pool.devices.is_empty() {
                println!("pool {}: no device matches yet", pool.name)
            } else {
                println!("pool {}: {}", pool.name, pool.devices.join(", "))
            }
        }
        Pool::Ls { at, json } => {
            let registry = Registry::connect(&at, paths)?;
            let request = proto::PoolsRequest {};
            let reply = registry.call(|mut s| async move { s.operators.pools(request).await })?;
            if json.json {
                let pool = |p: &proto::Pool| json!({"name": p.name, "query": p.query, "devices": p.devices});
                let all: Vec<_> = reply.pools.iter().map(pool).collect();
                output::json(&json!(all));
                return Ok(());
            }
            let mut table = Table::new(&["NAME", "QUERY", "DEVICES"]);
            for p in reply.pools {
                table.row([p.name, p.query, p.devices.join(", ")]);
            }
            table.print();
        }
        Pool::Rm { name, at } => {
            let registry = Registry::connect(&at, paths)?;
            let request = proto::PoolRemoveRequest { name: name.clone() };
            let reply =
                registry.call(|mut s| async move { s.operators.pool_remove(request).await })?;
            anyhow::ensure!(
                reply.removed,
                "pool '{name}' not found (`baltra pool ls` lists the pools)"
            );
            println!("removed");
        }
    }
    Ok(())
}
