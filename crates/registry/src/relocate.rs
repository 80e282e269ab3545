//! Live moves of instances that have to leave a device: their sessions move to the planned device
//! while their programs run. A program is started again only if one of them cannot move.
//!
//! An instance keeps the device that it leaves until heartbeats report all of its sessions on the
//! planned one, or the move is given up. None of this is stored: after a restart, [`step`] finds
//! the instances that are still on a draining device and continues.

use crate::instances::{changed, replace};
use crate::model::{DeviceId, MovePolicy};
use crate::movable::{
    ability, is_connected, is_fixed, is_moving, leave, sessions, target, Ability, RETRY,
};
use crate::records::{AssignmentRecord, InstanceRecord, NodeRecord};
use crate::registry::{Decided, Registry};
use crate::state::{device_id, Phase, Relocation, State};
use baltra_api::registry::SessionMoved;
use std::collections::BTreeMap;
use std::time::Duration;

/// The progress of a move.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Waits,
    /// These sessions have no order yet.
    Orders(Vec<u64>),
    /// All sessions are on the planned device.
    Arrived,
    /// The instance does not have the device any more.
    Over,
    /// The planned device cannot be used any more.
    TargetLost(String),
    GivenUp(String),
}

fn progress(state: &State, own: &mut Relocation) -> Progress {
    let held = state.image().instances.get(&own.instance);
    let mut devices = held.into_iter().flat_map(|i| &i.devices);
    let keeps = devices.any(|a| device_id(&a.node, &a.device) == own.from);
    let Some((_, live, _)) = state.device(&own.from).filter(|_| keeps) else {
        return Progress::Over;
    };
    if live.phase == Phase::Silent {
        return Progress::GivenUp("its node sends no heartbeats".into());
    }
    let here = sessions(state, &own.instance, &own.from);
    let there = sessions(state, &own.instance, &own.to);
    if here.is_empty() && !is_connected(state, &own.instance, &own.from) {
        if !there.is_empty() {
            return Progress::Arrived;
        }
        // A session that moves between two devices may be missing in one heartbeat.
        let since = *own.absent.get_or_insert(live.last_heartbeat);
        if live.last_heartbeat > since {
            return Progress::GivenUp("its sessions have ended".into());
        }
        return Progress::Waits;
    }
    own.absent = None;
    if let Some(session) = here.iter().find(|s| is_fixed(s)) {
        return Progress::GivenUp(format!("session {}: {}", session.id, session.obstacle));
    }
    if state.now() > own.until {
        return Progress::GivenUp("its sessions have not moved in time".into());
    }
    if let Some(reason) = unusable(state, &own.to) {
        return Progress::TargetLost(reason);
    }
    let mut missing = Vec::new();
    for session in &here {
        let Some(order) = own.orders.get(&session.id) else {
            missing.push(session.id);
            continue;
        };
        let result = live.moves.results().iter().find(|r| r.order == *order);
        if let Some(SessionMoved { error, .. }) = result.filter(|r| !r.error.is_empty()) {
            return Progress::GivenUp(error.clone());
        }
    }
    if missing.is_empty() {
        Progress::Waits
    } else {
        Progress::Orders(missing)
    }
}

/// Why no session can move to a device.
fn unusable(state: &State, id: &str) -> Option<String> {
    let Some((_, live, device)) = state.device(id) else {
        return Some(format!("device {id} has left its node"));
    };
    if device.draining || device.cordoned {
        return Some(format!("device {id} takes no new instances"));
    }
    let trouble = state.trouble(live, &device.name);
    trouble.map(|(_, reason)| format!("device {id}: {reason}"))
}

/// Moves that have ended: those whose sessions have arrived, and those that were given up.
#[derive(Default)]
struct Ended {
    arrived: Vec<Relocation>,
    given_up: Vec<(Relocation, String)>,
}

/// Orders what can be ordered, and returns the moves that have ended.
fn advance(state: &mut State) -> Ended {
    let mut ended = Ended::default();
    let now = state.now();
    let moving = std::mem::take(&mut state.relocations_mut().moving);
    let mut kept = BTreeMap::new();
    for (name, mut own) in moving {
        let mut step = progress(state, &mut own);
        if let Progress::TargetLost(reason) = step {
            step = match target(state, &name, &own.from).filter(|to| *to != own.to) {
                Some(to) => {
                    tracing::info!(instance = name, reason, to, "its sessions move elsewhere");
                    own.to = to;
                    own.orders.clear();
                    Progress::Waits
                }
                None => Progress::GivenUp(reason),
            };
        }
        match step {
            Progress::Over => continue,
            Progress::Arrived => {
                ended.arrived.push(own);
                continue;
            }
            Progress::GivenUp(reason) | Progress::TargetLost(reason) => {
                ended.given_up.push((own, reason));
                continue;
            }
            Progress::Waits => {}
            Progress::Orders(sessions) => {
                for session in sessions {
                    order(state, &mut own, session);
                }
            }
        }
        kept.insert(name, own);
    }
    let relocations = state.relocations_mut();
    relocations.moving = kept;
    let is_recent = |at: &Duration| now.saturating_sub(*at) < RETRY;
    relocations.given_up.retain(|_, at| is_recent(at));
    for (own, _) in &ended.given_up {
        relocations.given_up.insert(own.instance.clone(), now);
    }
    ended
}

/// Orders a session's move. If the node has too many orders, or another one of this session, the
/// order is given later.
fn order(state: &mut State, own: &mut Relocation, session: u64) {
    let (from, to) = (own.from.split_once('/'), own.to.split_once('/'));
    let (Some((node, from)), Some((_, to))) = (from, to) else {
        return;
    };
    let (node, from, to) = (node.to_owned(), from.to_owned(), to.to_owned());
    if let Ok(order) = state.move_session(&node, &from, session, &to) {
        own.orders.insert(session, order);
    }
}

/// Continues all live moves: orders sessions, records the instances that have moved, and allocates
/// other devices to those that cannot. Blocks on the disk.
pub(crate) fn step(registry: &Registry) {
    resume(registry);
    let ended = advance(&mut registry.live());
    for own in ended.arrived {
        let decide = |state: &State| arrive(state, &own.instance, &own.from, &own.to);
        if let Ok(true) = registry.change(decide, |_| {}) {
            let (instance, from, to) = (&own.instance, &own.from, &own.to);
            tracing::info!(instance, from, to, "its sessions have moved");
        }
    }
    for (own, reason) in ended.given_up {
        let (instance, from, to) = (&own.instance, &own.from, &own.to);
        tracing::info!(instance, from, to, reason, "its sessions do not move");
        // If the store cannot be written, the instance's renewal does it.
        let _ = registry.change(|state| give_up(state, &own), |_| {});
    }
}

/// Records that the sessions of an instance are on another device.
fn arrive(state: &State, name: &str, from: &str, to: &str) -> Decided<bool> {
    let Some(before) = state.image().instances.get(name) else {
        return Ok((Vec::new(), false));
    };
    let is_at = |a: &AssignmentRecord, id: &str| device_id(&a.node, &a.device) == id;
    let Some((node, device)) = to.split_once('/') else {
        return Ok((Vec::new(), false));
    };
    if !before.devices.iter().any(|a| is_at(a, from)) {
        return Ok((Vec::new(), false));
    }
    let mut after = before.clone();
    after.devices.retain(|a| !is_at(a, from));
    if !after.devices.iter().any(|a| is_at(a, to)) {
        after.devices.push(AssignmentRecord {
            node: node.to_owned(),
            device: device.to_owned(),
            region: 0,
            live: true,
        });
    }
    Ok((changed(state, before, after), true))
}

/// Has the programs of an instance start again: on the planned device if some of its sessions are
/// there, otherwise on one that the allocator chooses. If none fits, the instance keeps its device.
fn give_up(state: &State, own: &Relocation) -> Decided<()> {
    let Some(before) = state.image().instances.get(&own.instance) else {
        return Ok((Vec::new(), ()));
    };
    let is_at = |a: &AssignmentRecord, id: &str| device_id(&a.node, &a.device) == id;
    if !before.devices.iter().any(|a| is_at(a, &own.from)) {
        return Ok((Vec::new(), ()));
    }
    if !before.devices.iter().any(|a| is_at(a, &own.to)) {
        return replace(state, before, std::slice::from_ref(&own.from));
    }
    let mut after = before.clone();
    after.devices.retain(|a| !is_at(a, &own.from));
    for assignment in &mut after.devices {
        assignment.live &= !is_at(assignment, &own.to);
    }
    Ok((changed(state, before, after), ()))
}

/// Continues after a restart of the registry: instances that are on draining devices, and whose
/// sessions can move, or have moved.
fn resume(registry: &Registry) {
    let mut arrived = Vec::new();
    {
        let mut state = registry.live();
        let mut begun = Vec::new();
        for from in draining(&state) {
            let instances = &state.image().instances;
            let idle = state.holders(&from).filter_map(|name| instances.get(name));
            let idle: Vec<_> = idle.filter(|i| !is_moving(&state, &i.name)).collect();
            if idle
                .iter()
                .any(|i| ability(&state, i, &from) == Ability::Can)
            {
                let (live, _) = leave(&state, &from);
                begun.extend(live.into_iter().map(|(name, to)| (name, from.clone(), to)));
            }
            for instance in idle {
                if let Some(to) = elsewhere(&state, instance, &from) {
                    arrived.push((instance.name.clone(), from.clone(), to));
                }
            }
        }
        let now = state.now();
        for (name, from, to) in begun {
            state.relocations_mut().begin(&name, &from, &to, now);
        }
    }
    for (name, from, to) in arrived {
        let moved = registry.change(|state| arrive(state, &name, &from, &to), |_| {});
        if let Ok(true) = moved {
            tracing::info!(instance = name, from, to, "its sessions have moved");
        }
    }
}

/// The devices that are being drained and allocated to instances.
fn draining(state: &State) -> Vec<DeviceId> {
    let of_node = |(node, _): (&NodeRecord, _)| {
        let devices = node.devices.values().filter(|d| d.draining);
        let ids = devices.map(|d| device_id(&node.name, &d.name));
        ids.collect::<Vec<_>>()
    };
    let all = state.nodes().flat_map(of_node);
    all.filter(|id| state.holders(id).next().is_some())
        .collect()
}

/// The device of the same node that has all sessions of an instance, which was not allocated it.
fn elsewhere(state: &State, instance: &InstanceRecord, from: &str) -> Option<DeviceId> {
    let policy = instance.move_policy.unwrap_or(state.move_policy());
    let (node, live, _) = state.device(from)?;
    let is_ready = live.phase == Phase::Ready && policy == MovePolicy::Live;
    if !is_ready || is_connected(state, &instance.name, from) {
        return None;
    }
    let has = |id: &str| {
        let mut devices = instance.devices.iter();
        devices.any(|a| device_id(&a.node, &a.device) == id)
    };
    let ids = node.devices.keys().map(|name| device_id(&node.name, name));
    let mut others = ids.filter(|id| !has(id));
    others.find(|id| !sessions(state, &instance.name, id).is_empty())
}
