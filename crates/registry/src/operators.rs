//! Queries of operators.

use crate::allocate::foreign;
use crate::check;
use crate::failure::Failure;
use crate::model::UTILIZATION;
use crate::options::QUEUE_WAIT_MS;
use crate::records::{DeviceRecord, NodeRecord};
use crate::registry::Registry;
use crate::state::{device_id, LiveNode, Phase, State};
use baltra_api::query::Query;
use baltra_api::registry as proto;
use std::collections::{BTreeMap, BTreeSet};
use tonic::Status;

/// The registry's status.
pub(crate) fn status(registry: &Registry) -> proto::StatusReply {
    let state = registry.state();
    let image = state.image();
    let there = state.nodes().filter(|(_, live)| live.phase == Phase::Ready);
    let (mut nodes, mut devices) = (0, 0);
    for (node, _) in there {
        nodes += 1;
        devices += node.devices.len() as u32;
    }
    let failures = registry.failures().clone();
    proto::StatusReply {
        version: env!("CARGO_PKG_VERSION").into(),
        generation: image.generation,
        uptime_s: registry.uptime().as_secs(),
        nodes,
        devices,
        instances: image.instances.len() as u32,
        functions: image.functions.len() as u32,
        metrics_source: match registry.options.prometheus.as_str() {
            "" => "heartbeats".into(),
            url => url.into(),
        },
        store_failure: failures.store,
        metrics_failure: failures.metrics,
        lease_ms: registry.options.lease().as_millis() as u64,
    }
}

/// The devices that match a query.
pub(crate) fn devices(
    state: &State,
    request: &proto::DevicesRequest,
) -> Result<proto::DevicesReply, Status> {
    let query = check::query(&request.query)?;
    let (mut devices, mut nodes) = (Vec::new(), Vec::new());
    for (node, live) in state.nodes() {
        if live.phase == Phase::Silent && !request.silent {
            continue;
        }
        let before = devices.len();
        for device in node.devices.values() {
            if fits(state, &query, &device_id(&node.name, &device.name)) {
                devices.push(message(state, node, live, device));
            }
        }
        if devices.len() > before {
            nodes.push(proto::NodeState {
                name: node.name.clone(),
                version: node.version.clone(),
                uptime_s: live.uptime_s,
                weights: live.weights.clone().into_iter().collect(),
                silence: state.silence(live),
                moved: live.moves.results().to_vec(),
            });
        }
    }
    Ok(proto::DevicesReply { devices, nodes })
}

fn fits(state: &State, query: &Query, id: &str) -> bool {
    let snapshot = state.index().snapshot();
    let device = snapshot.devices.get(id);
    device.is_some_and(|d| {
        query.unmet(d).is_none() && d.has_loaded(query) && foreign(snapshot, query, d).is_none()
    })
}

/// One device by node/name.
pub(crate) fn device(state: &State, id: &str) -> Result<proto::Device, Status> {
    let (node, live, device) = find(state, id)?;
    Ok(message(state, node, live, device))
}

fn find<'a>(
    state: &'a State,
    id: &str,
) -> Result<(&'a NodeRecord, &'a LiveNode, &'a DeviceRecord), Status> {
    state.device(id).ok_or_else(|| {
        let shown = check::shown(id);
        Failure::NotFound.status(format!("device '{shown}' not found: write it as node/name"))
    })
}

fn message(
    state: &State,
    node: &NodeRecord,
    live: &LiveNode,
    device: &DeviceRecord,
) -> proto::Device {
    let id = device_id(&node.name, &device.name);
    let load = live.devices.get(&device.name).map(|d| d.load.clone());
    let load = load.unwrap_or_default();
    let indexed = state.index().snapshot().devices.get(&id);
    let metric = |name| indexed.and_then(|d| d.metric(name)).unwrap_or(0.0);
    let trouble = state.trouble(live, &device.name);
    let pending = device.pending.iter().map(|(index, a)| proto::Region {
        index: *index,
        digest: a.digest.clone(),
        name: a.name.clone(),
        ..proto::Region::default()
    });
    proto::Device {
        node: node.name.clone(),
        description: Some(description(device)),
        state: trouble.as_ref().map_or("ready", |(state, _)| state).into(),
        failure: trouble.map(|(_, reason)| reason).unwrap_or_default(),
        cordoned: device.cordoned,
        draining: device.draining,
        utilization: metric(UTILIZATION),
        occupation: state.holders(&id).count() as u32,
        queue_wait_ms: metric(QUEUE_WAIT_MS),
        busy_ns: load.busy_ns,
        sessions: load.sessions,
        waiting: load.waiting,
        tasks: load.tasks,
        regions: load.regions,
        pending: pending.collect(),
        instances: state.holders(&id).cloned().collect(),
        endpoints: node.endpoints.clone(),
        heard_ms: state.now().saturating_sub(live.last_heartbeat).as_millis() as u64,
        metrics: indexed
            .map(|d| d.metrics.clone().into_iter().collect())
            .unwrap_or_default(),
        memory_used_bytes: load.memory_used_bytes,
        executor_deaths: load.executor_deaths,
        connected: load.instances,
        // A node that does not report has no known tasks and sessions.
        running: match live.phase {
            Phase::Ready => load.running,
            Phase::Unconfirmed | Phase::Silent => Vec::new(),
        },
        open: match live.phase {
            Phase::Ready => load.open,
            Phase::Unconfirmed | Phase::Silent => Vec::new(),
        },
        loading: load.loading,
        waiting_images: match live.phase {
            Phase::Ready => load.waiting_images,
            Phase::Unconfirmed | Phase::Silent => Vec::new(),
        },
    }
}

/// Orders a node to end a running task.
pub(crate) fn end_task(
    registry: &Registry,
    request: proto::EndTaskRequest,
) -> Result<proto::EndTaskReply, Status> {
    let mut state = registry.live();
    let (node, device) = {
        let (node, _, device) = find(&state, &request.device)?;
        (node.name.clone(), device.name.clone())
    };
    let task = proto::TaskEnd {
        device,
        lease: request.lease,
        started_ns: request.started_ns,
    };
    if !state.end_task(&node, task) {
        return Err(Failure::NotFound.status(format!(
            "device '{}' does not run that task: it has ended, or its node does not respond",
            request.device
        )));
    }
    tracing::info!(
        device = request.device,
        lease = request.lease,
        "an operator ends a task"
    );
    Ok(proto::EndTaskReply {})
}

/// Orders a node to move a session to another of its devices.
pub(crate) fn move_session(
    registry: &Registry,
    request: proto::MoveSessionRequest,
) -> Result<proto::MoveSessionReply, Status> {
    let mut state = registry.live();
    let (node, from) = {
        let (node, _, device) = find(&state, &request.device)?;
        if !node.devices.contains_key(&request.to) {
            let shown = check::shown(&request.to);
            return Err(Failure::NotFound.status(format!(
                "node '{}' has no device '{shown}': sessions move to a device of their node",
                node.name
            )));
        }
        (node.name.clone(), device.name.clone())
    };
    let order = state.move_session(&node, &from, request.session, &request.to)?;
    tracing::info!(
        device = request.device,
        session = request.session,
        to = request.to,
        order,
        "an operator moves a session"
    );
    Ok(proto::MoveSessionReply { order })
}

fn description(device: &DeviceRecord) -> proto::DeviceDescription {
    proto::DeviceDescription {
        name: device.name.clone(),
        vendor: device.vendor.clone(),
        platform: device.platform.clone(),
        profile: device.profile.clone(),
        model: device.model.clone(),
        device_version: device.device_version.clone(),
        driver_version: device.driver_version.clone(),
        memory_bytes: device.memory_bytes,
        compute_units: device.compute_units,
        slots: device.slots,
        regions: device.regions,
        exclusive: device.exclusive,
        labels: device.labels.clone().into_iter().collect(),
    }
}

/// The places of an accelerator, and the instances that use them.
#[derive(Default)]
struct Loaded<'a> {
    devices: BTreeSet<String>,
    instances: BTreeSet<&'a String>,
}

/// The accelerators and their places.
pub(crate) fn accelerators(state: &State) -> proto::AcceleratorsReply {
    let mut found: BTreeMap<(String, String), Loaded<'_>> = BTreeMap::new();
    let there = state
        .nodes()
        .filter(|(_, live)| live.phase != Phase::Silent);
    for (node, live) in there {
        for (name, device) in &live.devices {
            let id = device_id(&node.name, name);
            // A board's region may hold an image that no node has loaded.
            for region in device.load.regions.iter().filter(|r| !r.digest.is_empty()) {
                let key = (region.digest.clone(), region.name.clone());
                let loaded = found.entry(key).or_default();
                loaded.devices.insert(id.clone());
                let uses = |holder: &&String| {
                    let instance = state.image().instances.get(*holder);
                    let mut places = instance.into_iter().flat_map(|i| &i.devices);
                    places.any(|a| {
                        a.node == node.name && a.device == *name && a.region == region.index
                    })
                };
                loaded.instances.extend(state.holders(&id).filter(uses));
            }
        }
    }
    let message = |((digest, name), loaded): ((String, String), Loaded<'_>)| proto::Accelerator {
        digest,
        name,
        devices: loaded.devices.into_iter().collect(),
        instances: loaded.instances.len() as u32,
    };
    proto::AcceleratorsReply {
        accelerators: found.into_iter().map(message).collect(),
    }
}

/// The instances that match a request.
pub(crate) fn instances(state: &State, request: &proto::InstancesRequest) -> proto::InstancesReply {
    let all = state.image().instances.values();
    let wanted = all.filter(|i| {
        let on = |id: &str| {
            let mut devices = i.devices.iter();
            devices.any(|a| device_id(&a.node, &a.device) == id)
        };
        (request.function.is_empty() || i.function == request.function)
            && (request.tenant.is_empty() || i.tenant == request.tenant)
            && (request.device.is_empty() || on(&request.device))
    });
    proto::InstancesReply {
        instances: wanted
            .map(|i| crate::instances::message(state, i))
            .collect(),
    }
}
