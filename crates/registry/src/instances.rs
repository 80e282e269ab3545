//! Allocation, renewal and release of instances.

use crate::allocate::{Placement, Reason, Refusal, Rejection, Request};
use crate::check;
use crate::counters::RefusalLabels;
use crate::failure::Failure;
use crate::model::{DeviceId, MovePolicy};
use crate::movable::{self, is_draining};
use crate::records::{AcceleratorRecord, AssignmentRecord, Change, InstanceRecord, NodeRecord};
use crate::registry::{Decided, Registry};
use crate::state::{accelerator_name, device_id, placed, State};
use baltra_api::query::{Field, Query};
use baltra_api::registry as proto;
use std::collections::{BTreeMap, BTreeSet};
use tonic::Status;

/// The filter of devices that do not run the accelerator.
const TARGET: &str = "target";
/// Most rejections listed in a response.
const REJECTIONS_MAX: usize = 1_000;
/// Most rejections in a response's summary.
const SUMMARY_MAX: usize = 5;
/// Most devices that one renewal may exclude.
const EXCEPT_MAX: usize = 256;

/// Allocates devices to an instance, or returns the refusal.
pub(crate) fn allocate(
    registry: &Registry,
    request: proto::AllocateRequest,
) -> Result<proto::AllocateReply, Status> {
    let name = match request.instance.as_str() {
        "" => made_up()?,
        name => name.to_owned(),
    };
    let lease_s = request.lease_s.unwrap_or(registry.options.instance_lease_s);
    let created_at_s = registry.wall_s();
    let mut repeated = false;
    let decided = registry.change(
        |state| {
            let wanted = checked_request(state, &request, name.clone(), lease_s, created_at_s)?;
            if let Some(before) = state.image().instances.get(&name) {
                if before.tenant != wanted.tenant {
                    return Err(Failure::AlreadyExists.status(format!(
                        "instance '{name}' belongs to another tenant: choose another name"
                    )));
                }
                if !before.devices.is_empty()
                    && is_same_demand(before, &wanted)
                    && (request.devices.is_empty() || has(before, &request.devices))
                {
                    repeated = true;
                    return Ok((Vec::new(), Ok(())));
                }
            } else if state.image().instances.len() >= registry.options.limits.instances {
                return Err(Failure::ResourceExhausted.status(format!(
                    "too many instances: 'registry.limits.instances' is {}: release some",
                    registry.options.limits.instances
                )));
            }
            match (
                request.devices.is_empty(),
                state.image().instances.get(&name),
            ) {
                (false, _) => Ok((adopt(state, wanted, &request.devices)?, Ok(()))),
                (true, Some(before)) if differs_in_count(before, &wanted) => {
                    resize(state, before, wanted)
                }
                (true, _) => place(state, wanted, &[], &[]),
            }
        },
        |state| state.renewed(&name),
    )?;
    let state = registry.state();
    match decided {
        Ok(()) => {
            registry.counters.allocations.inc_by(u64::from(!repeated));
            Ok(proto::AllocateReply {
                instance: state
                    .image()
                    .instances
                    .get(&name)
                    .map(|i| message(&state, i)),
                refusal: None,
            })
        }
        Err(refusal) => {
            let refusal = refused(&state, *refusal);
            let filter = most(&refusal);
            registry
                .counters
                .refusals
                .get_or_create(&RefusalLabels { filter })
                .inc();
            tracing::info!(instance = name, reason = refusal.reason, "refused");
            Ok(proto::AllocateReply {
                instance: None,
                refusal: Some(refusal),
            })
        }
    }
}

/// A new name from 64 random bits.
fn made_up() -> Result<String, Status> {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes)
        .map_err(|e| Failure::Internal.status(format!("cannot generate a name: {e}")))?;
    Ok(format!("i-{:016x}", u64::from_ne_bytes(bytes)))
}

/// A checked request, merged with the settings of its function and its pool.
fn checked_request(
    state: &State,
    request: &proto::AllocateRequest,
    name: String,
    lease_s: u32,
    created_at_s: u64,
) -> Result<InstanceRecord, Status> {
    check::name("the instance", &name)?;
    check::name_or_none("the tenant", &request.tenant)?;
    check::name_or_none("the node", &request.node)?;
    check::text("the hostname", &request.hostname)?;
    check::count(
        "devices",
        request.count as usize,
        baltra_api::DEVICES_MAX as usize,
    )?;
    let mut query = check::query(&request.query)?;
    let (mut count, mut accelerator) = (request.count, String::new());
    if !request.function.is_empty() {
        let function = state.image().functions.get(&request.function);
        let function = function.ok_or_else(|| {
            Failure::NotFound.status(format!(
                "function '{}' not found: deploy it first, or omit it",
                check::shown(&request.function)
            ))
        })?;
        query = query.with_terms_of(check::stored("function", &function.name, &function.query)?);
        accelerator.clone_from(&function.accelerator);
        count = if count == 0 { function.count } else { count };
    }
    if !request.pool.is_empty() {
        let pool = state.image().pools.get(&request.pool);
        let pool = pool.ok_or_else(|| {
            Failure::NotFound.status(format!(
                "pool '{}' not found: create it first",
                check::shown(&request.pool)
            ))
        })?;
        query = query.with_terms_of(check::stored("pool", &pool.name, &pool.query)?);
        if query.term(Field::Pool).is_none() {
            query = query
                .with(Field::Pool, &pool.name)
                .map_err(|e| Failure::InvalidArgument.status(e.to_string()))?;
        }
    } else {
        count = count.max(1);
    }
    Ok(InstanceRecord {
        name,
        tenant: request.tenant.clone(),
        function: request.function.clone(),
        query: query.into(),
        accelerator,
        count,
        pool: request.pool.clone(),
        node: request.node.clone(),
        hostname: request.hostname.clone(),
        lease_s,
        created_at_s,
        apart: request.apart,
        memory_bytes: request.memory_bytes,
        preemptible: request.preemptible,
        stored: request.stored,
        move_policy: move_policy(&request.move_policy)?,
        ..InstanceRecord::default()
    })
}

/// The policy in a request; `None`: the registry's.
fn move_policy(text: &str) -> Result<Option<MovePolicy>, Status> {
    match text {
        "" => Ok(None),
        "live" => Ok(Some(MovePolicy::Live)),
        "restart" => Ok(Some(MovePolicy::Restart)),
        other => Err(Failure::InvalidArgument.status(format!(
            "invalid move policy '{}': use live or restart",
            check::shown(other)
        ))),
    }
}

fn is_same_demand(a: &InstanceRecord, b: &InstanceRecord) -> bool {
    a.function == b.function
        && a.query == b.query
        && a.accelerator == b.accelerator
        && a.count == b.count
        && a.pool == b.pool
        && a.lease_s == b.lease_s
        && a.apart == b.apart
        && a.memory_bytes == b.memory_bytes
        && a.preemptible == b.preemptible
        && a.stored == b.stored
}

/// Whether an instance with devices now requests another number of them. Members of a pool are
/// chosen together.
fn differs_in_count(before: &InstanceRecord, wanted: &InstanceRecord) -> bool {
    let counted = InstanceRecord {
        count: wanted.count,
        ..before.clone()
    };
    wanted.pool.is_empty() && !before.devices.is_empty() && is_same_demand(&counted, wanted)
}

/// Gives an instance more devices, or takes the last ones. It keeps the others, except that a device
/// that is being drained is the first to go.
fn resize(state: &State, before: &InstanceRecord, mut wanted: InstanceRecord) -> Decided<Placed> {
    let mut devices = before.devices.clone();
    devices.sort_by_key(|a| is_draining(state, a));
    if devices.len() < wanted.count as usize {
        let had: Vec<DeviceId> = devices
            .iter()
            .map(|a| device_id(&a.node, &a.device))
            .collect();
        if wanted.node.is_empty() {
            wanted.node.clone_from(&before.node);
        }
        return place(state, wanted, &devices, &had);
    }
    let left = devices.split_off(wanted.count as usize);
    let mut nodes = Nodes::new(state);
    nodes.unplan(&left, std::slice::from_ref(&wanted.name));
    wanted.node.clone_from(&devices[0].node);
    wanted.devices = devices;
    wanted.revision = before.revision + 1;
    wanted.created_at_s = before.created_at_s;
    let mut changes = nodes.changes();
    changes.push(Change::PutInstance(wanted));
    Ok((changes, Ok(())))
}

/// Whether an instance has exactly these devices.
fn has(instance: &InstanceRecord, devices: &[DeviceId]) -> bool {
    let had: BTreeSet<DeviceId> = instance
        .devices
        .iter()
        .map(|a| device_id(&a.node, &a.device))
        .collect();
    had.iter().eq(devices.iter().collect::<BTreeSet<_>>())
}

/// Records the devices that an instance already uses. Fails only if a device is not registered
/// (yet).
fn adopt(
    state: &State,
    mut wanted: InstanceRecord,
    devices: &[DeviceId],
) -> Result<Vec<Change>, Status> {
    check::count("devices", devices.len(), baltra_api::DEVICES_MAX as usize)?;
    let query = state.demand(&wanted).query;
    for id in devices.iter().collect::<BTreeSet<_>>() {
        let existing = state.index().snapshot().devices.get(id);
        let existing = existing.ok_or_else(|| {
            Failure::FailedPrecondition.status(format!(
                "device '{}' is not registered: retry after its node has joined",
                check::shown(id)
            ))
        })?;
        wanted.devices.push(AssignmentRecord {
            node: existing.node.clone(),
            device: existing.name.clone(),
            region: existing.region_for(&query).unwrap_or(0) as u32,
            live: false,
        });
    }
    if let Some(before) = state.image().instances.get(&wanted.name) {
        wanted.revision = before.revision + 1;
        wanted.created_at_s = before.created_at_s;
    }
    if let Some(first) = wanted.devices.first() {
        wanted.node.clone_from(&first.node);
    }
    Ok(vec![Change::PutInstance(wanted)])
}

type Placed = Result<(), Box<Refusal>>;

/// Allocates devices for a demand in addition to those that it keeps, excluding `except`.
fn place(
    state: &State,
    mut wanted: InstanceRecord,
    keep: &[AssignmentRecord],
    except: &[DeviceId],
) -> Decided<Placed> {
    let demand = state.demand(&wanted);
    let lacking = lacking(state, &wanted, &demand.query);
    let except: Vec<DeviceId> = except.iter().chain(&lacking).cloned().collect();
    let except = &except[..];
    let model = placed(&wanted);
    let request = Request {
        devices: demand.devices.saturating_sub(keep.len() as u32).max(1),
        except,
        ..Request::instance(&demand, &model)
    };
    let decision = match state.index().allocate(&request) {
        Ok(decision) => decision,
        Err(mut refusal) => {
            for rejection in &mut refusal.devices {
                if rejection.reason == Reason::Excepted && lacking.contains(&rejection.device) {
                    rejection.reason = Reason::NotStored;
                }
            }
            // No device has its accelerator or room for it: it takes turns on one that fits
            // otherwise, and runs the accelerator.
            let query = demand.query.clone().without(Field::Accelerator);
            let foreign = refusal
                .devices
                .iter()
                .filter(|d| filter(&d.reason) == TARGET);
            let foreign = foreign.map(|d| d.device.clone());
            let except: Vec<DeviceId> = except.iter().cloned().chain(foreign).collect();
            let turns = || {
                let (query, except) = (&query, &except[..]);
                let request = Request {
                    query,
                    except,
                    takes_turns: true,
                    ..request
                };
                state.index().allocate(&request)
            };
            match demand.preemptible.then(turns) {
                Some(Ok(decision)) => decision,
                _ => return Ok((Vec::new(), Err(refusal))),
            }
        }
    };
    let given = decision.devices.iter().map(assignment);
    wanted.devices = keep.iter().cloned().chain(given).collect();
    wanted.pending.clear();
    wanted.revision += 1;
    let mut nodes = Nodes::new(state);
    if let Some(before) = state.image().instances.get(&wanted.name) {
        wanted.revision = before.revision + 1;
        wanted.created_at_s = before.created_at_s;
        let left = before
            .devices
            .iter()
            .filter(|a| !wanted.devices.contains(a));
        nodes.unplan(left, std::slice::from_ref(&wanted.name));
    }
    let accelerator = AcceleratorRecord {
        digest: wanted.accelerator.clone(),
        name: accelerator_name(&demand.query),
    };
    nodes.plan(&decision.devices, &accelerator);
    wanted.node = decision.node;
    let mut changes = nodes.changes();
    changes.push(Change::PutInstance(wanted));
    Ok((changes, Ok(())))
}

/// Devices whose nodes lack the accelerator of an instance that brings no image.
fn lacking(state: &State, wanted: &InstanceRecord, query: &Query) -> Vec<DeviceId> {
    if !wanted.stored {
        return Vec::new();
    }
    let devices = state.index().snapshot().devices.values();
    let lacking = devices.filter(|d| !state.has_stored(&d.node, query));
    lacking.map(|d| d.id.clone()).collect()
}

/// The store's record of an allocated device.
pub(crate) fn assignment(placement: &Placement) -> AssignmentRecord {
    let id = placement.device.split_once('/');
    let (node, device) = id.unwrap_or((&placement.node, &placement.device));
    AssignmentRecord {
        node: node.to_owned(),
        device: device.to_owned(),
        region: placement.region.unwrap_or(0) as u32,
        live: false,
    }
}

/// Nodes whose devices' plans change; each is written once.
pub(crate) struct Nodes<'a> {
    state: &'a State,
    changed: BTreeMap<String, NodeRecord>,
}

impl<'a> Nodes<'a> {
    pub(crate) fn new(state: &'a State) -> Self {
        Nodes {
            state,
            changed: BTreeMap::new(),
        }
    }

    /// The future record of a node.
    pub(crate) fn get(&mut self, node: &str) -> Option<&mut NodeRecord> {
        let existing = self.state.image().nodes.get(node)?;
        Some(
            self.changed
                .entry(node.to_owned())
                .or_insert_with(|| existing.clone()),
        )
    }

    /// Plans the regions that are to be reconfigured for a new instance.
    fn plan(&mut self, placements: &[Placement], accelerator: &AcceleratorRecord) {
        for placement in placements.iter().filter(|p| p.reconfigures.is_some()) {
            let a = assignment(placement);
            let device = self.get(&a.node).and_then(|n| n.devices.get_mut(&a.device));
            if let Some(device) = device {
                device.pending.insert(a.region, accelerator.clone());
            }
        }
    }

    /// Removes planned accelerators that only the instances `leaving` needed.
    pub(crate) fn unplan<'b>(
        &mut self,
        left: impl IntoIterator<Item = &'b AssignmentRecord>,
        leaving: &[String],
    ) {
        for a in left {
            let planned = |n: &NodeRecord| {
                let device = n.devices.get(&a.device);
                device.is_some_and(|d| d.pending.contains_key(&a.region))
            };
            if !self.state.image().nodes.get(&a.node).is_some_and(planned) {
                continue;
            }
            let id = device_id(&a.node, &a.device);
            let others = self.state.holders(&id).filter(|h| !leaving.contains(h));
            let instances = others.filter_map(|h| self.state.image().instances.get(h));
            if instances.flat_map(|i| &i.devices).any(|b| b == a) {
                continue;
            }
            let device = self.get(&a.node).and_then(|n| n.devices.get_mut(&a.device));
            if let Some(device) = device {
                device.pending.remove(&a.region);
            }
        }
    }

    pub(crate) fn changes(self) -> Vec<Change> {
        self.changed.into_values().map(Change::PutNode).collect()
    }
}

/// Renews the lease of an instance. One that waits for a device, or cannot use some of its devices,
/// gets others if there are any.
pub(crate) fn renew(
    registry: &Registry,
    request: proto::RenewRequest,
) -> Result<proto::Instance, Status> {
    let name = &request.instance;
    check::count("devices", request.except.len(), EXCEPT_MAX)?;
    let unknown = || {
        Failure::NotFound.status(format!(
            "instance '{}' not found: allocate it",
            check::shown(name)
        ))
    };
    let steady = {
        let mut state = registry.live();
        let instance = state.image().instances.get(name).ok_or_else(unknown)?;
        let same_lease = request.lease_s.is_none_or(|s| s == instance.lease_s);
        let needs_others = needs_other_devices(&state, instance, &request.except);
        let is_excepted = is_excepted(instance, &request.except);
        // While its sessions move, it keeps the device that they leave.
        let keeps = needs_others && !is_excepted && movable::keeps(&mut state, name);
        let steady = (!needs_others || keeps) && same_lease;
        state.renewed(name);
        steady
    };
    if !steady {
        let replaced = registry.change(
            |state| {
                let instance = state.image().instances.get(name).ok_or_else(unknown)?;
                let keeps = movable::is_moving(state, name);
                let (mut changes, ()) = if keeps && !is_excepted(instance, &request.except) {
                    (Vec::new(), ())
                } else {
                    replace(state, instance, &request.except)?
                };
                if let Some(lease_s) = request.lease_s {
                    lease(&mut changes, instance, lease_s);
                }
                Ok((changes, ()))
            },
            |_| {},
        );
        // It keeps its devices if the store cannot be written or there are no better ones.
        match replaced {
            Err(status) if status.code() == tonic::Code::NotFound => return Err(status),
            Err(status) => tracing::debug!(instance = name, %status, "not moved"),
            Ok(()) => {}
        }
    }
    let state = registry.state();
    let instance = state.image().instances.get(name).ok_or_else(unknown)?;
    Ok(message(&state, instance))
}

/// Renews an instance's lease, independent of other changes.
fn lease(changes: &mut Vec<Change>, instance: &InstanceRecord, lease_s: u32) {
    let own = changes.iter_mut().find_map(|change| match change {
        Change::PutInstance(changed) if changed.name == instance.name => Some(changed),
        _ => None,
    });
    match own {
        Some(changed) => changed.lease_s = lease_s,
        None if instance.lease_s == lease_s => {}
        None => changes.push(Change::PutInstance(InstanceRecord {
            lease_s,
            ..instance.clone()
        })),
    }
}

/// Whether an instance has a device that it cannot use.
fn is_excepted(instance: &InstanceRecord, except: &[String]) -> bool {
    let mut devices = instance.devices.iter();
    devices.any(|a| except.contains(&device_id(&a.node, &a.device)))
}

fn needs_other_devices(state: &State, instance: &InstanceRecord, except: &[String]) -> bool {
    let mut devices = instance.devices.iter();
    instance.devices.is_empty()
        || is_excepted(instance, except)
        || devices.any(|a| is_draining(state, a))
}

/// The changes of an instance that has other devices after its sessions have left some.
pub(crate) fn changed(
    state: &State,
    before: &InstanceRecord,
    mut after: InstanceRecord,
) -> Vec<Change> {
    after.revision += 1;
    after.pending.clear();
    let mut nodes = Nodes::new(state);
    let left = before.devices.iter().filter(|a| !after.devices.contains(a));
    nodes.unplan(left, std::slice::from_ref(&after.name));
    let mut changes = nodes.changes();
    changes.push(Change::PutInstance(after));
    changes
}

/// Replaces the devices that an instance cannot keep.
pub(crate) fn replace(state: &State, instance: &InstanceRecord, except: &[String]) -> Decided<()> {
    let keep = |a: &&AssignmentRecord| {
        !except.contains(&device_id(&a.node, &a.device)) && !is_draining(state, a)
    };
    let kept: Vec<AssignmentRecord> = instance.devices.iter().filter(keep).cloned().collect();
    if kept.len() == instance.devices.len() && !kept.is_empty() {
        return Ok((Vec::new(), ()));
    }
    let had = instance.devices.iter();
    let mut avoid: Vec<DeviceId> = had.map(|a| device_id(&a.node, &a.device)).collect();
    avoid.extend(except.iter().cloned());
    // If refused, it keeps its devices.
    let (changes, _) = place(state, instance.clone(), &kept, &avoid)?;
    Ok((changes, ()))
}

/// Releases an instance's devices.
pub(crate) fn release(
    registry: &Registry,
    request: proto::ReleaseRequest,
) -> Result<proto::ReleaseReply, Status> {
    let released = registry.change(
        |state| {
            let name = &request.instance;
            let existing = state.image().instances.contains_key(name);
            let changes = if existing {
                bury(state, &[], std::slice::from_ref(name))?.0
            } else {
                Vec::new()
            };
            Ok((changes, existing))
        },
        |_| {},
    )?;
    if released {
        registry.counters.releases.inc();
    }
    Ok(proto::ReleaseReply { released })
}

/// Removes nodes, and instances whose lease has expired.
pub(crate) fn bury(state: &State, nodes: &[String], instances: &[String]) -> Decided<()> {
    let mut gone = BTreeSet::new();
    for node in nodes {
        let existing = state.image().nodes.get(node).into_iter();
        gone.extend(existing.flat_map(|n| n.devices.keys().map(|d| device_id(&n.name, d))));
    }
    let gone: Vec<DeviceId> = gone.into_iter().collect();
    let mut changes = without(
        state,
        &gone,
        "its node was removed after sending no heartbeats for too long",
    );
    changes.retain(|c| !matches!(c, Change::PutInstance(i) if instances.contains(&i.name)));
    let mut left = Nodes::new(state);
    for name in instances {
        if let Some(instance) = state.image().instances.get(name) {
            left.unplan(&instance.devices, instances);
            changes.push(Change::RemoveInstance(name.clone()));
        }
    }
    changes.extend(left.changes());
    changes.extend(nodes.iter().cloned().map(Change::RemoveNode));
    Ok((changes, ()))
}

/// Changes of the instances whose devices no longer exist.
pub(crate) fn without(state: &State, devices: &[DeviceId], reason: &str) -> Vec<Change> {
    let holders = devices.iter().flat_map(|d| state.holders(d));
    let names: BTreeSet<&String> = holders.collect();
    let instances = names
        .into_iter()
        .filter_map(|n| state.image().instances.get(n));
    let changed = instances.map(|instance| {
        let mut instance = instance.clone();
        instance
            .devices
            .retain(|a| !devices.contains(&device_id(&a.node, &a.device)));
        instance.revision += 1;
        if instance.devices.is_empty() {
            instance.pending = reason.to_owned();
        }
        Change::PutInstance(instance)
    });
    changed.collect()
}

/// The message for an instance.
pub(crate) fn message(state: &State, instance: &InstanceRecord) -> proto::Instance {
    proto::Instance {
        name: instance.name.clone(),
        tenant: instance.tenant.clone(),
        function: instance.function.clone(),
        query: instance.query.text().to_owned(),
        count: instance.count,
        pool: instance.pool.clone(),
        node: instance.node.clone(),
        hostname: instance.hostname.clone(),
        devices: assignments(state, &instance.devices),
        lease_s: instance.lease_s,
        revision: instance.revision,
        pending: instance.pending.clone(),
        created_at_s: instance.created_at_s,
    }
}

/// The messages for allocated devices: their places, and weights that are proportional to their
/// free time, so that a half-free device gets half the load of an idle one.
pub(crate) fn assignments(state: &State, devices: &[AssignmentRecord]) -> Vec<proto::Assignment> {
    let existing = &state.index().snapshot().devices;
    let free = |a: &AssignmentRecord| {
        let device = existing.get(&device_id(&a.node, &a.device));
        // A fully used device counts as 1 % free, a missing one as fully used.
        device.map_or(1.0, |d| (100.0 - d.utilization()).max(1.0))
    };
    let all: f64 = devices.iter().map(free).sum();
    let message = |a: &AssignmentRecord| {
        let id = device_id(&a.node, &a.device);
        let found = state.device(&id);
        proto::Assignment {
            node: a.node.clone(),
            device: a.device.clone(),
            endpoints: found.map_or(Vec::new(), |(n, _, _)| n.endpoints.clone()),
            weight: free(a) / all,
            reconfigure: found.is_some_and(|(_, _, d)| d.pending.contains_key(&a.region)),
            region: a.region,
            silent: found.is_none_or(|(_, l, _)| l.phase == crate::state::Phase::Silent),
            exclusive: found.is_some_and(|(_, _, d)| d.exclusive),
            live: a.live,
        }
    };
    devices.iter().map(message).collect()
}

/// The message for a refusal.
fn refused(state: &State, refusal: Refusal) -> proto::Refusal {
    let more = refusal.devices.len().saturating_sub(REJECTIONS_MAX) as u32;
    let named = refusal.devices.into_iter().take(REJECTIONS_MAX);
    let devices = named.map(|rejection| proto::Rejection {
        filter: filter(&rejection.reason).to_owned(),
        reason: reason(state, &rejection),
        device: rejection.device,
    });
    let devices: Vec<proto::Rejection> = devices.collect();
    let all = devices.len() + more as usize;
    let query = match refusal.query.as_str() {
        "" => "any",
        query => query,
    };
    let mut reason = match refusal.requested {
        0 | 1 => format!("no device for '{query}'"),
        n => format!("{} of {n} devices for '{query}'", refusal.found),
    };
    if all == 0 && refusal.found == 0 {
        reason.push_str(": no device is registered");
    }
    for (n, d) in devices.iter().take(SUMMARY_MAX).enumerate() {
        let before = if n == 0 { ": " } else { "; " };
        reason.push_str(&format!(
            "{before}{} ({}): {}",
            d.device, d.filter, d.reason
        ));
    }
    if all > SUMMARY_MAX {
        reason.push_str(&format!("; and {} more", all - SUMMARY_MAX));
    }
    proto::Refusal {
        reason,
        devices,
        more,
    }
}

/// Why a device was rejected, for display.
pub(crate) fn reason(state: &State, rejection: &Rejection) -> String {
    let is_state = matches!(rejection.reason, Reason::State(_));
    let device = state.device(&rejection.device).filter(|_| is_state);
    let trouble = device.and_then(|(_, live, device)| state.trouble(live, &device.name));
    trouble.map_or_else(|| rejection.reason.to_string(), |(_, reason)| reason)
}

/// The algorithm's filter that a reason belongs to.
pub(crate) fn filter(reason: &Reason) -> &'static str {
    match reason {
        Reason::State(_) => "state",
        Reason::Metric { .. } => "metric",
        Reason::Query { .. } => "query",
        // A device never has more than its total memory.
        Reason::Memory { wanted, all, .. } if wanted > all => "query",
        Reason::Memory { .. } => "memory",
        Reason::Target { .. } | Reason::NotStored | Reason::Unknown => TARGET,
        Reason::Node { .. } | Reason::NodeShort { .. } => "node",
        Reason::Redistribution { .. } | Reason::NoRegion => "accelerator",
        Reason::Excepted | Reason::Taken | Reason::Unlike => "other",
    }
}

/// The filter that rejected most devices.
fn most(refusal: &proto::Refusal) -> &'static str {
    const FILTERS: [&str; 8] = [
        "state",
        "query",
        TARGET,
        "metric",
        "accelerator",
        "node",
        "memory",
        "other",
    ];
    let failed = |f: &&&str| refusal.devices.iter().filter(|d| d.filter == ***f).count();
    if refusal.devices.is_empty() {
        "none"
    } else {
        FILTERS
            .iter()
            .max_by_key(failed)
            .copied()
            .unwrap_or("other")
    }
}
