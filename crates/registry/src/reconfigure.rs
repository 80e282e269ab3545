//! Reconfiguration of a device and its effect on instances; draining, which affects all instances
//! of a device.
//!
//! The flow of BlastFunction's section 4.4.2: before a manager loads an accelerator, it requests
//! permission. The registry checks that the device is allocated to the requesting instance, moves
//! instances that no longer match to other devices, and permits the load. If the load fails, moved
//! instances stay at their new devices, and the region counts as blank. A device that is
//! reconfigured holds one image at a time, so that no session of it can move live.

use crate::allocate::{plan, Plan};
use crate::check;
use crate::counters::ReconfigurationLabels;
use crate::failure::Failure;
use crate::instances::{assignment, assignments, Nodes};
use crate::model::Accelerator;
use crate::movable;
use crate::nodes::authentic;
use crate::records::{AssignmentRecord, Change, DeviceRecord, InstanceRecord, NodeRecord};
use crate::registry::Registry;
use crate::relocate;
use crate::state::{device_id, State};
use baltra_api::query::Field;
use baltra_api::registry as proto;
use std::collections::BTreeMap;
use tonic::Status;

/// Responds to a manager that shall load an accelerator for an instance.
pub(crate) fn reconfiguration(
    registry: &Registry,
    request: proto::ReconfigurationRequest,
) -> Result<proto::ReconfigurationReply, Status> {
    check::digest_or_none("the accelerator's digest", &request.digest)?;
    check::text("the accelerator's name", &request.name)?;
    check::name_or_none("the tenant", &request.tenant)?;
    if request.digest.is_empty() {
        return Err(Failure::InvalidArgument.status("the accelerator's digest is missing"));
    }
    let reply = registry.change(|state| validate(state, &request), |_| {})?;
    let answer = match (reply.allowed, reply.unchanged) {
        (true, true) => "unchanged",
        (true, false) => "allowed",
        (false, _) => "refused",
    };
    count(registry, answer);
    registry
        .counters
        .migrations
        .inc_by(reply.migrations.len() as u64);
    tracing::info!(
        node = request.node,
        device = request.device,
        instance = request.instance,
        tenant = request.tenant,
        accelerator = request.digest,
        answer,
        reason = reply.reason,
        migrations = reply.migrations.len(),
        "reconfiguration"
    );
    Ok(reply)
}

fn count(registry: &Registry, answer: &'static str) {
    let labels = ReconfigurationLabels { answer };
    registry
        .counters
        .reconfigurations
        .get_or_create(&labels)
        .inc();
}

fn refuse(reason: String) -> Result<(Vec<Change>, proto::ReconfigurationReply), Status> {
    let reply = proto::ReconfigurationReply {
        allowed: false,
        reason,
        ..proto::ReconfigurationReply::default()
    };
    Ok((Vec::new(), reply))
}

fn allow(region: u32, unchanged: bool) -> proto::ReconfigurationReply {
    proto::ReconfigurationReply {
        allowed: true,
        unchanged,
        region,
        ..proto::ReconfigurationReply::default()
    }
}

fn validate(
    state: &State,
    request: &proto::ReconfigurationRequest,
) -> Result<(Vec<Change>, proto::ReconfigurationReply), Status> {
    let node = authentic(state, &request.node, &request.id)?;
    let device = node.devices.get(&request.device).ok_or_else(|| {
        let shown = check::shown(&request.device);
        Failure::NotFound.status(format!("node '{}' has no device '{shown}'", node.name))
    })?;
    let id = device_id(&node.name, &device.name);
    if request.instance.is_empty() {
        return operators(state, request, (node, device));
    }
    let Some(instance) = state.image().instances.get(&request.instance) else {
        return refuse(format!(
            "instance '{}' not found: allocate a device first",
            check::shown(&request.instance)
        ));
    };
    // The name of an instance does not prove its ownership.
    if !instance.tenant.is_empty() && instance.tenant != request.tenant {
        return refuse(format!(
            "instance '{}' belongs to another tenant, not to '{}'",
            instance.name,
            check::shown(&request.tenant)
        ));
    }
    let own =
        |a: &&crate::records::AssignmentRecord| a.node == node.name && a.device == device.name;
    let Some(assigned) = instance.devices.iter().find(own) else {
        let others = instance
            .devices
            .iter()
            .map(|a| device_id(&a.node, &a.device));
        let others: Vec<String> = others.collect();
        return refuse(if others.is_empty() {
            format!(
                "instance '{}' waits for a device: {}",
                instance.name, instance.pending
            )
        } else {
            format!(
                "device {id} is not allocated to instance '{}', which has {}",
                instance.name,
                others.join(", ")
            )
        });
    };
    let accelerator = Accelerator {
        name: request.name.clone(),
        digest: request.digest.clone(),
    };
    let demand = state.demand(instance);
    if !demand.query.accepts_accelerator(&accelerator) {
        let wanted = demand.query.term(Field::Accelerator);
        return refuse(format!(
            "instance '{}' requires accelerator={}, not '{}' ({})",
            instance.name,
            wanted.map(ToString::to_string).unwrap_or_default(),
            request.name,
            request.digest
        ));
    }
    if !device.exclusive {
        return Ok((Vec::new(), allow(0, false)));
    }
    let regions = device.regions.max(1);
    let region = request.region.unwrap_or(assigned.region);
    if region >= regions {
        return refuse(format!(
            "device {id} has no region {region}: it has {regions} regions"
        ));
    }
    let loaded = &state.index().snapshot().devices.get(&id);
    let holds = |r: u32| {
        let held = loaded.and_then(|d| d.regions.get(r as usize)?.accelerator.as_ref());
        held.is_some_and(|a| a.digest == request.digest)
    };
    let anywhere =
        (0..regions).find(|r| holds(*r) && request.region.is_none_or(|requested| requested == *r));
    let target = anywhere.unwrap_or(region);
    if anywhere.is_none() && device.draining {
        return refuse(format!("device {id} is draining"));
    }
    let mut reply = allow(target, anywhere.is_some());
    let moved = match anywhere {
        Some(_) => Plan::default(),
        None => plan(state.index(), &id, target as usize, &accelerator),
    };
    let mut nodes = Nodes::new(state);
    if let Some(device) = nodes
        .get(&node.name)
        .and_then(|n| n.devices.get_mut(&request.device))
    {
        note(device, target, &accelerator, anywhere.is_some());
    }
    let mut changes = carry_out(state, &moved, &id, &mut nodes, true, &mut reply.migrations);
    // The instance's accelerator is in this region from now on.
    if assigned.region != target {
        let mut here = instance.clone();
        for a in here.devices.iter_mut().filter(|a| own(&&**a)) {
            a.region = target;
        }
        here.revision += 1;
        changes.push(Change::PutInstance(here));
    }
    let nodes = nodes.changes().into_iter();
    changes.extend(nodes.filter(|c| !matches!(c, Change::PutNode(n) if n == node)));
    Ok((changes, reply))
}

/// Responds to a manager that shall load an accelerator for an operator. Instances that take turns
/// load their own image again in their next turn; other instances keep the device's image, unless
/// the accelerator is the one that they require.
fn operators(
    state: &State,
    request: &proto::ReconfigurationRequest,
    (node, device): (&NodeRecord, &DeviceRecord),
) -> Result<(Vec<Change>, proto::ReconfigurationReply), Status> {
    let id = device_id(&node.name, &device.name);
    let region = request.region.unwrap_or(0);
    let accelerator = Accelerator {
        name: request.name.clone(),
        digest: request.digest.clone(),
    };
    let keeps = |instance: &&InstanceRecord| {
        let mut own = instance.devices.iter();
        let is_here =
            own.any(|a| a.node == node.name && a.device == device.name && a.region == region);
        if !is_here || instance.preemptible {
            return false;
        }
        let query = state.demand(instance).query;
        query.term(Field::Accelerator).is_none() || !query.accepts_accelerator(&accelerator)
    };
    if let Some(instance) = state.image().instances.values().find(keeps) {
        return refuse(format!(
            "device {id} is allocated to instance '{}', which keeps its image: drain the device (`baltra device drain {id}`), or end the instance",
            instance.name
        ));
    }
    let mut nodes = Nodes::new(state);
    if let Some(device) = nodes
        .get(&node.name)
        .and_then(|n| n.devices.get_mut(&request.device))
    {
        note(device, region, &accelerator, false);
    }
    Ok((nodes.changes(), allow(region, false)))
}

/// Plans a region's accelerator, until a heartbeat reports it as loaded.
fn note(device: &mut DeviceRecord, region: u32, accelerator: &Accelerator, is_there: bool) {
    if is_there {
        _ = device.pending.remove(&region)
    } else {
        let planned = crate::records::AcceleratorRecord {
            digest: accelerator.digest.clone(),
            name: accelerator.name.clone(),
        };
        device.pending.insert(region, planned);
    }
}

/// Moves instances according to a plan. With `force`, instances that cannot move lose the device.
fn carry_out(
    state: &State,
    plan: &Plan,
    from: &str,
    nodes: &mut Nodes<'_>,
    force: bool,
    migrations: &mut Vec<proto::Migration>,
) -> Vec<Change> {
    let mut moved: BTreeMap<&str, InstanceRecord> = BTreeMap::new();
    let instances = &state.image().instances;
    for step in &plan.moves {
        let Some(before) = instances.get(&step.instance) else {
            continue;
        };
        let after = moved
            .entry(&step.instance)
            .or_insert_with(|| before.clone());
        after
            .devices
            .retain(|a| device_id(&a.node, &a.device) != step.from);
        after.devices.extend(step.to.as_ref().map(assignment));
    }
    for stranded in &plan.stranded {
        let Some(before) = instances.get(&stranded.instance) else {
            continue;
        };
        if !force {
            migrations.push(proto::Migration {
                instance: before.name.clone(),
                devices: assignments(state, &before.devices),
                reason: stranded.reason.clone(),
            });
            continue;
        }
        let after = moved
            .entry(&stranded.instance)
            .or_insert_with(|| before.clone());
        after
            .devices
            .retain(|a| device_id(&a.node, &a.device) != from);
        if after.devices.is_empty() {
            after.pending.clone_from(&stranded.reason);
        }
    }
    let leaving: Vec<String> = moved.keys().map(|n| (*n).to_owned()).collect();
    let mut changes = Vec::new();
    for (name, mut after) in moved {
        after.revision += 1;
        if !force {
            let before = &instances[name].devices;
            let left = before.iter().filter(|a| !after.devices.contains(a));
            nodes.unplan(left, &leaving);
        }
        migrations.push(proto::Migration {
            instance: name.to_owned(),
            devices: assignments(state, &after.devices),
            reason: after.pending.clone(),
        });
        changes.push(Change::PutInstance(after));
    }
    changes
}

/// Records the result of a permitted reconfiguration.
pub(crate) fn end(
    registry: &Registry,
    request: proto::ReconfigurationEndRequest,
) -> Result<proto::ReconfigurationEndReply, Status> {
    check::digest_or_none("the accelerator's digest", &request.digest)?;
    let failed = !request.error.is_empty();
    let name = registry.change(
        |state| {
            let node = authentic(state, &request.node, &request.id)?;
            let mut after = node.clone();
            let device = after.devices.get_mut(&request.device).ok_or_else(|| {
                let shown = check::shown(&request.device);
                Failure::NotFound.status(format!("node '{}' has no device '{shown}'", node.name))
            })?;
            let planned = device.pending.get(&request.region);
            let name = planned.map(|p| p.name.clone()).unwrap_or_default();
            // The plan remains after a failed load: the instance may retry.
            if !failed && planned.is_some_and(|p| p.digest == request.digest) {
                device.pending.remove(&request.region);
            }
            let changed = after != *node;
            let changes = changed.then_some(Change::PutNode(after)).into_iter();
            Ok((changes.collect(), name))
        },
        |_| {},
    )?;
    let loaded = proto::Region {
        index: request.region,
        digest: if failed {
            String::new()
        } else {
            request.digest.clone()
        },
        name: if failed { String::new() } else { name },
        ..proto::Region::default()
    };
    registry
        .live()
        .loaded(&request.node, &request.device, loaded);
    if failed {
        count(registry, "failed");
        tracing::warn!(
            node = request.node,
            device = request.device,
            error = check::shown(&request.error),
            "a reconfiguration failed"
        );
    }
    Ok(proto::ReconfigurationEndReply {})
}

/// Cordons or uncordons a device.
pub(crate) fn cordon(registry: &Registry, device: &str, on: bool) -> Result<(), Status> {
    registry.change(
        |state| {
            let (mut nodes, id) = (Nodes::new(state), find_device(state, device)?);
            let marked = nodes.get(id.0).and_then(|n| n.devices.get_mut(id.1));
            if let Some(marked) = marked {
                marked.cordoned = on;
                marked.draining &= on;
            }
            Ok((nodes.changes(), ()))
        },
        |_| {},
    )?;
    tracing::info!(device, on, "cordoned");
    Ok(())
}

/// The device to which the sessions of an instance are to move.
fn planned(state: &State, instance: &str, from: &str, to: &str) -> proto::Migration {
    let before = state.image().instances.get(instance);
    let before = before.into_iter().flat_map(|i| &i.devices);
    let mut devices: Vec<AssignmentRecord> = before
        .filter(|a| device_id(&a.node, &a.device) != from)
        .cloned()
        .collect();
    if let Some((node, device)) = to.split_once('/') {
        devices.push(AssignmentRecord {
            node: node.to_owned(),
            device: device.to_owned(),
            region: 0,
            // Its sessions have not been observed there.
            live: false,
        });
    }
    proto::Migration {
        instance: instance.to_owned(),
        devices: assignments(state, &devices),
        reason: String::new(),
    }
}

/// Cordons a device and moves its instances: by live moves of their sessions if their policy allows
/// it and they can move, otherwise at once. Those without another device keep it and retry at each
/// renewal.
pub(crate) fn drain(registry: &Registry, device: &str) -> Result<proto::DrainReply, Status> {
    let reply = registry.change(
        |state| {
            let (mut nodes, id) = (Nodes::new(state), find_device(state, device)?);
            let mut reply = proto::DrainReply::default();
            let (live, moved) = movable::leave(state, device);
            for (instance, to) in &live {
                reply.migrations.push(planned(state, instance, device, to));
            }
            let changes = carry_out(
                state,
                &moved,
                device,
                &mut nodes,
                false,
                &mut reply.migrations,
            );
            let marked = nodes.get(id.0).and_then(|n| n.devices.get_mut(id.1));
            if let Some(marked) = marked {
                marked.cordoned = true;
                marked.draining = true;
            }
            let changes = changes.into_iter().chain(nodes.changes());
            Ok((changes.collect(), (reply, live)))
        },
        |_| {},
    )?;
    let (reply, live) = reply;
    {
        let mut state = registry.live();
        let now = state.now();
        for (instance, to) in &live {
            state.relocations_mut().begin(instance, device, to, now);
        }
    }
    relocate::step(registry);
    let moved = reply.migrations.iter().filter(|m| m.reason.is_empty());
    registry.counters.migrations.inc_by(moved.count() as u64);
    tracing::info!(device, instances = reply.migrations.len(), "draining");
    Ok(reply)
}

fn find_device<'a>(state: &State, device: &'a str) -> Result<(&'a str, &'a str), Status> {
    let id = device
        .split_once('/')
        .filter(|_| state.device(device).is_some());
    id.ok_or_else(|| {
        Failure::NotFound.status(format!(
            "device '{}' not found: write it as node/name",
            check::shown(device)
        ))
    })
}
