//! Whether the sessions of an instance can move to another device, and to which one.
//!
//! Sessions move within their node only, because the registry has no tenants' tokens. Devices that
//! hold one image at a time take no part in moves, so a reconfiguration has no sessions to move.

use crate::allocate::{evacuate_near, Plan};
use crate::model::{DeviceId, MovePolicy};
use crate::records::{AssignmentRecord, InstanceRecord};
use crate::state::{device_id, Phase, State};
use baltra_api::registry::SessionLoad;
use std::time::Duration;

/// Pause before another attempt for an instance that stays, because no other device fits it.
pub(crate) const RETRY: Duration = Duration::from_secs(60);
/// Mark of the sessions of a program that its launcher starts again (`baltra run --restart`).
const RESTARTS: &str = " (restarts)";

/// Whether an instance's sessions can move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ability {
    Can,
    Cannot,
    /// The node has not reported since the registry's start.
    Unknown,
}

/// The sessions of an instance on a device, from the last heartbeat.
pub(crate) fn sessions<'a>(state: &'a State, instance: &str, device: &str) -> Vec<&'a SessionLoad> {
    let Some((_, live, record)) = state.device(device) else {
        return Vec::new();
    };
    let load = live.devices.get(&record.name).map(|d| &d.load);
    let open = load.into_iter().flat_map(|load| &load.open);
    let is_own = |s: &&SessionLoad| {
        let program = s.program.as_str();
        program.strip_suffix(RESTARTS).unwrap_or(program) == instance
    };
    open.filter(is_own).collect()
}

/// Whether a session cannot move. One that its executor has not described yet may be able to: its
/// node refuses the order if not.
pub(crate) fn is_fixed(session: &SessionLoad) -> bool {
    session.described && !session.obstacle.is_empty()
}

/// Whether a device has a session of an instance, also one that the heartbeat does not describe.
pub(crate) fn is_connected(state: &State, instance: &str, device: &str) -> bool {
    let Some((_, live, record)) = state.device(device) else {
        return false;
    };
    let load = live.devices.get(&record.name).map(|d| &d.load);
    load.is_some_and(|load| load.instances.iter().any(|name| name == instance))
}

pub(crate) fn ability(state: &State, instance: &InstanceRecord, from: &str) -> Ability {
    let Some((_, live, device)) = state.device(from) else {
        return Ability::Cannot;
    };
    let policy = instance.move_policy.unwrap_or(state.move_policy());
    if policy != MovePolicy::Live || instance.preemptible || device.exclusive {
        return Ability::Cannot;
    }
    let given_up = state.relocations().given_up.get(&instance.name);
    if given_up.is_some_and(|at| state.now().saturating_sub(*at) < RETRY) {
        return Ability::Cannot;
    }
    match live.phase {
        Phase::Unconfirmed => return Ability::Unknown,
        Phase::Silent => return Ability::Cannot,
        Phase::Ready => {}
    }
    if !live.devices.contains_key(&device.name) {
        return Ability::Unknown;
    }
    let open = sessions(state, &instance.name, from);
    if open.is_empty() || open.iter().any(|s| is_fixed(s)) {
        return Ability::Cannot;
    }
    Ability::Can
}

fn node_of(id: &str) -> &str {
    id.split_once('/').map_or(id, |(node, _)| node)
}

/// The moves of all instances that leave a device: those whose sessions move there, and the rest.
pub(crate) fn leave(state: &State, device: &str) -> (Vec<(String, DeviceId)>, Plan) {
    let instances = &state.image().instances;
    let can = |name: &String| {
        let instance = instances.get(name);
        instance.is_some_and(|i| ability(state, i, device) == Ability::Can)
    };
    let mut plan = evacuate_near(state.index(), device, can);
    let mut live = Vec::new();
    plan.moves.retain(|step| {
        let to = step.to.as_ref().map(|to| &to.device);
        let to = to.filter(|to| node_of(to) == node_of(device) && can(&step.instance));
        if let Some(to) = to {
            live.push((step.instance.clone(), to.clone()));
        }
        to.is_none()
    });
    (live, plan)
}

/// The device of the same node to which an instance's sessions can move.
pub(crate) fn target(state: &State, instance: &str, from: &str) -> Option<DeviceId> {
    let (live, _) = leave(state, from);
    let mut own = live.into_iter().filter(|(name, _)| name == instance);
    own.next().map(|(_, to)| to)
}

/// Whether an instance that renews its lease keeps a draining device because its sessions move, or
/// may do so. Begins with it if they can.
pub(crate) fn keeps(state: &mut State, name: &str) -> bool {
    if is_moving(state, name) {
        return true;
    }
    let Some(instance) = state.image().instances.get(name).cloned() else {
        return false;
    };
    let draining = instance.devices.iter().filter(|a| is_draining(state, a));
    let draining: Vec<DeviceId> = draining.map(|a| device_id(&a.node, &a.device)).collect();
    for from in draining {
        match ability(state, &instance, &from) {
            Ability::Unknown => return true,
            Ability::Cannot => {}
            Ability::Can => {
                if let Some(to) = target(state, name, &from) {
                    let now = state.now();
                    state.relocations_mut().begin(name, &from, &to, now);
                    return true;
                }
            }
        }
    }
    false
}

/// Whether an instance's sessions are being moved.
pub(crate) fn is_moving(state: &State, name: &str) -> bool {
    state.relocations().moving.contains_key(name)
}

/// Whether a device of an instance is being drained.
pub(crate) fn is_draining(state: &State, a: &AssignmentRecord) -> bool {
    let device = state.device(&device_id(&a.node, &a.device));
    device.is_some_and(|(_, _, d)| d.draining)
}
