//! Nodes: registration, heartbeats, deregistration.

use crate::check;
use crate::failure::Failure;
use crate::instances;
use crate::model::{Accelerator, Stored};
use crate::moves;
use crate::options::LimitOptions;
use crate::records::{Change, DeviceRecord, NodeRecord};
use crate::registry::{Decided, Registry};
use crate::state::{device_id, Phase, State};
use baltra_api::registry as proto;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use tonic::Status;

/// Most regions of one device in a report.
const REGIONS_MAX: usize = 64;
/// Most addresses of one node.
const ENDPOINTS_MAX: usize = 16;
/// Most instances on one device in a heartbeat.
const CONNECTED_MAX: usize = 4_096;

/// Most tenants' shares in a heartbeat.
const WEIGHTS_MAX: usize = 1_024;
/// Most running tasks of one device in a heartbeat.
const RUNNING_MAX: usize = 64;
/// Most images of a device that wait for their turn.
const WAITING_MAX: usize = 64;
/// Most programs of a running task in a heartbeat.
const PROGRAMS_MAX: usize = 8;
/// Most accelerators of a node's store in a heartbeat.
const STORED_MAX: usize = 1_024;

/// Registers a node with its devices.
pub(crate) fn register(
    registry: &Registry,
    request: proto::RegisterRequest,
) -> Result<proto::RegisterReply, Status> {
    let node = record(request, &registry.options.limits)?;
    let name = node.name.clone();
    let devices: Vec<String> = node.devices.keys().cloned().collect();
    registry.change(
        |state| admit(state, node, &registry.options.limits),
        |state| state.registered(&name),
    )?;
    registry.counters.registrations.inc();
    tracing::info!(node = name, devices = devices.len(), "registered");
    let state = registry.state();
    Ok(proto::RegisterReply {
        lease_ms: registry.options.lease().as_millis() as u64,
        heartbeat_ms: registry.options.heartbeat().as_millis() as u64,
        orders: orders(&state, &name),
        generation: state.image().generation,
    })
}

/// A checked request.
fn record(request: proto::RegisterRequest, limits: &LimitOptions) -> Result<NodeRecord, Status> {
    let node = request
        .node
        .ok_or_else(|| Failure::InvalidArgument.status("the request has no node"))?;
    check::name("the node's name", &node.name)?;
    check::count("endpoints", node.endpoints.len(), ENDPOINTS_MAX)?;
    for endpoint in &node.endpoints {
        check::text("the endpoint", endpoint)?;
    }
    check::text("the version", &node.version)?;
    check::text("the metrics address", &node.metrics)?;
    check::count("devices", request.devices.len(), limits.node_devices)?;
    let mut devices = BTreeMap::new();
    for device in request.devices {
        let device = device_record(device)?;
        if let Some(twice) = devices.insert(device.name.clone(), device) {
            return Err(
                Failure::InvalidArgument.status(format!("duplicate device '{}'", twice.name))
            );
        }
    }
    Ok(NodeRecord {
        name: node.name,
        id_sha256: hashed(&node.id)?,
        endpoints: node.endpoints,
        version: node.version,
        metrics: node.metrics,
        devices,
    })
}

fn device_record(device: proto::DeviceDescription) -> Result<DeviceRecord, Status> {
    check::name("the device's name", &device.name)?;
    for (what, text) in [
        ("the vendor", &device.vendor),
        ("the platform", &device.platform),
        ("the profile", &device.profile),
        ("the model", &device.model),
        ("the device version", &device.device_version),
        ("the driver version", &device.driver_version),
    ] {
        check::text(what, text)?;
    }
    check::count("regions", device.regions as usize, REGIONS_MAX)?;
    let labels = device.labels.into_iter().collect();
    check::labels(&labels)?;
    Ok(DeviceRecord {
        name: device.name,
        vendor: device.vendor,
        platform: device.platform,
        profile: device.profile,
        model: device.model,
        device_version: device.device_version,
        driver_version: device.driver_version,
        memory_bytes: device.memory_bytes,
        compute_units: device.compute_units,
        slots: device.slots.max(1),
        regions: device.regions.max(1),
        exclusive: device.exclusive,
        labels,
        ..DeviceRecord::default()
    })
}

/// The store contains only a hash of the secret.
fn hashed(id: &str) -> Result<String, Status> {
    if !(16..=128).contains(&id.len()) || !id.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Failure::InvalidArgument
            .status("the node's id must be 16 to 128 visible ASCII characters, not guessable"));
    }
    let digest = Sha256::digest(id.as_bytes());
    Ok(digest.iter().map(|b| format!("{b:02x}")).collect())
}

/// Keeps the settings of operators and allocations on a node's devices.
fn admit(state: &State, mut node: NodeRecord, limits: &LimitOptions) -> Decided<()> {
    let Some((before, live)) = state.node(&node.name) else {
        if state.image().nodes.len() >= limits.nodes {
            return Err(Failure::ResourceExhausted.status(format!(
                "too many nodes: 'registry.limits.nodes' is {}",
                limits.nodes
            )));
        }
        return Ok((vec![Change::PutNode(node)], ()));
    };
    if before.id_sha256 != node.id_sha256 && live.phase != Phase::Silent {
        return Err(Failure::AlreadyExists.status(format!(
            "node name '{}' is in use: set another 'node.name', or wait until the other node's lease expires",
            node.name
        )));
    }
    for (name, device) in &mut node.devices {
        let Some(existing) = before.devices.get(name) else {
            continue;
        };
        device.cordoned = existing.cordoned;
        device.draining = existing.draining;
        device.pending.clone_from(&existing.pending);
        device.pending.retain(|region, _| *region < device.regions);
    }
    if *before == node {
        return Ok((Vec::new(), ()));
    }
    let vanished = before
        .devices
        .keys()
        .filter(|d| !node.devices.contains_key(*d));
    let vanished: Vec<String> = vanished.map(|d| device_id(&node.name, d)).collect();
    let reason = "its node no longer has its device";
    let mut changes = instances::without(state, &vanished, reason);
    changes.push(Change::PutNode(node));
    Ok((changes, ()))
}

/// The registry's orders for a node's devices.
fn orders(state: &State, node: &str) -> Vec<proto::DeviceOrders> {
    let Some((record, _)) = state.node(node) else {
        return Vec::new();
    };
    let owned = |instance: &String| {
        let tenant = &state.image().instances.get(instance)?.tenant;
        (!tenant.is_empty()).then(|| (instance.clone(), tenant.clone()))
    };
    let order = |device: &DeviceRecord| {
        let id = device_id(node, &device.name);
        proto::DeviceOrders {
            device: device.name.clone(),
            cordoned: device.cordoned,
            draining: device.draining,
            instances: state.holders(&id).cloned().collect(),
            tenants: state.holders(&id).filter_map(owned).collect(),
        }
    };
    record.devices.values().map(order).collect()
}

/// Checks a node's id.
pub(crate) fn authentic<'a>(
    state: &'a State,
    node: &str,
    id: &str,
) -> Result<&'a NodeRecord, Status> {
    let Some((record, _)) = state.node(node) else {
        return Err(Failure::NotFound.status(format!(
            "node '{}' is not registered: register it",
            check::shown(node)
        )));
    };
    if record.id_sha256 != hashed(id)? {
        return Err(Failure::PermissionDenied.status(format!(
            "node name '{node}' is in use: set another 'node.name'"
        )));
    }
    Ok(record)
}

/// Records a heartbeat. Returns true if a device now holds its planned accelerator, see [`settle`].
pub(crate) fn heartbeat(
    registry: &Registry,
    request: proto::HeartbeatRequest,
) -> Result<(proto::HeartbeatReply, bool), Status> {
    check_loads(&request.devices, registry.options.limits.node_devices)?;
    check::count("weights", request.weights.len(), WEIGHTS_MAX)?;
    for tenant in request.weights.keys() {
        check::name("the tenant", tenant)?;
    }
    let stored = stored(request.accelerators)?;
    moves::check_results(&request.moved)?;
    let mut state = registry.live();
    authentic(&state, &request.node, &request.id)?;
    state.stored(&request.node, stored);
    let weights = request.weights.into_iter().collect();
    state.up(&request.node, request.uptime_s, weights);
    let settled = state.record_heartbeat(&request.node, request.devices);
    state.moved(&request.node, request.moved);
    registry.counters.heartbeats.inc();
    let reply = proto::HeartbeatReply {
        lease_ms: registry.options.lease().as_millis() as u64,
        heartbeat_ms: registry.options.heartbeat().as_millis() as u64,
        orders: orders(&state, &request.node),
        generation: state.image().generation,
        ends: state
            .node(&request.node)
            .map_or_else(Vec::new, |(_, live)| live.ends.clone()),
        moves: state
            .node(&request.node)
            .map_or_else(Vec::new, |(_, live)| live.moves.orders()),
    };
    Ok((reply, settled))
}

fn stored(reported: Vec<proto::StoredAccelerator>) -> Result<BTreeSet<Stored>, Status> {
    check::count("accelerators", reported.len(), STORED_MAX)?;
    let checked = reported.into_iter().map(|stored| {
        check::text("the accelerator's name", &stored.name)?;
        check::text("the accelerator's target", &stored.target)?;
        check::digest_or_none("the accelerator's digest", &stored.digest)?;
        Ok(Stored {
            accelerator: Accelerator {
                name: stored.name,
                digest: stored.digest,
            },
            target: stored.target,
        })
    });
    checked.collect()
}

fn check_loads(devices: &[proto::DeviceLoad], devices_max: usize) -> Result<(), Status> {
    check::count("devices", devices.len(), devices_max)?;
    for device in devices {
        check::name("the device's name", &device.name)?;
        check::count("regions", device.regions.len(), REGIONS_MAX)?;
        check::count("instances", device.instances.len(), CONNECTED_MAX)?;
        if device.failure.len() > 1_024 {
            return Err(
                Failure::InvalidArgument.status("a failure's text must have at most 1024 bytes")
            );
        }
        for region in &device.regions {
            check::text("the accelerator's name", &region.name)?;
            check::digest_or_none("the accelerator's digest", &region.digest)?;
            check::amount("the accelerator's recent uses", region.recent_uses)?;
            check::amount("the accelerator's load time", region.load_ms)?;
        }
        for instance in &device.instances {
            check::text("the instance", instance)?;
        }
        check::digest_or_none("the loading image's digest", &device.loading)?;
        check::count("waiting images", device.waiting_images.len(), WAITING_MAX)?;
        for image in &device.waiting_images {
            check::digest_or_none("the waiting image's digest", &image.digest)?;
            check::text("the waiting image's name", &image.name)?;
        }
        check::count("running tasks", device.running.len(), RUNNING_MAX)?;
        for task in &device.running {
            check::name("the tenant", &task.tenant)?;
            check::count("programs", task.programs.len(), PROGRAMS_MAX)?;
            for program in &task.programs {
                check::text("the program", program)?;
            }
        }
        moves::check_sessions(&device.open)?;
    }
    Ok(())
}

/// Removes the plans of accelerators that have been loaded. Blocks on the disk.
pub(crate) fn settle(registry: &Registry, node: &str) {
    let decide = |state: &State| {
        let Some((record, live)) = state.node(node) else {
            return Ok((Vec::new(), ()));
        };
        let mut after = record.clone();
        for (name, load) in &live.devices {
            if let Some(device) = after.devices.get_mut(name) {
                for region in crate::state::settled(device, &load.load) {
                    device.pending.remove(&region);
                }
            }
        }
        let changed = after != *record;
        Ok((
            changed
                .then_some(Change::PutNode(after))
                .into_iter()
                .collect(),
            (),
        ))
    };
    // On a full disk, the next heartbeat retries.
    let _ = registry.change(decide, |_| {});
}

/// Removes a node from the pool at its own request. Allocations stay.
pub(crate) fn deregister(
    registry: &Registry,
    request: proto::DeregisterRequest,
) -> Result<proto::DeregisterReply, Status> {
    let mut state = registry.live();
    authentic(&state, &request.node, &request.id)?;
    state.gone(&request.node);
    tracing::info!(node = request.node, "deregistered");
    Ok(proto::DeregisterReply {})
}
