//! Sessions that have to leave a device. A session may be ended when it has no running work, or
//! when its program is restarted by its supervisor; a busy one of another program is never ended.

use super::Ending;
use crate::node::{Device, Node};
use crate::options::ImageKind;
use baltra_ring::LeaseState;
use baltra_wire::executor::ToExecutor;
use std::time::{Duration, Instant};

/// A session counts as idle after this time without activity.
const QUIET: Duration = Duration::from_millis(100);
/// Interval at which a load in progress is checked.
const LOADING: Duration = Duration::from_millis(2);
/// Time limit for an executor to end a session.
const LEAVE_MAX: Duration = Duration::from_secs(10);

/// A session's activity on a device: its tenant's calls so far, and whether work or the load of an
/// image is in progress.
fn activity(node: &Node, device: &Device, session: u64) -> Option<(u64, bool)> {
    let (executor, tenant) = {
        let sessions = node.sessions();
        let record = sessions.get(&session)?;
        (record.executor, record.tenant.clone())
    };
    let metered = device
        .pool
        .with(executor, |e| e.leases.get(&tenant).cloned())??;
    let usage = metered.lease.granter.usage();
    let still = matches!(
        metered.lease.granter.state(),
        LeaseState::Free | LeaseState::Idle
    );
    let loads = device.configuration.loads_for(session);
    Some((usage.calls, loads || !still || usage.queued > 0))
}

/// When a session may be ended; `None`: it has ended.
pub(crate) fn ending(node: &Node, session: u64) -> Option<Ending> {
    let open = node.sessions();
    open.get(&session).map(|s| Ending::of(&s.instance))
}

/// Counts the use of a device so far for the image that it holds.
pub(super) fn count_use(node: &Node, device: &Device) {
    if device.options.image != ImageKind::Exclusive {
        return;
    }
    for metered in device.pool.leases() {
        node.accounts.read(&metered);
    }
    let (tasks, busy_ns) = node.accounts.tasks(device.name());
    let time = Duration::from_nanos(busy_ns);
    device.configuration.count_use(tasks, time);
}

/// Whether the turn of a device's image is over: none of these sessions, its users, has work, or
/// only preemptible ones have, and the image has had its time by the policy
/// ([`baltra_eviction::Images::turn`]): several turns if the ends of earlier ones have interrupted
/// the same work. Waits for [`QUIET`] at most.
pub(crate) fn turn_is_over(node: &Node, device: &Device, sessions: &[(u64, String)]) -> bool {
    let ids = sessions.iter().map(|(id, _)| *id);
    let ids: Vec<u64> = ids
        .filter(|id| ending(node, *id) == Some(Ending::Turn))
        .collect();
    if ids.iter().any(|id| device.configuration.loads_for(*id)) {
        // Its driver may be programming the device; `device.load_ms` limits that.
        std::thread::sleep(LOADING);
        return false;
    }
    let turns = {
        let open = node.sessions();
        let turns = ids.iter().filter_map(|id| open.get(id));
        turns.map(|s| super::turns(&s.instance)).max().unwrap_or(1)
    };
    count_use(node, device);
    let options = device.options.turns();
    let Some(present) = device
        .configuration
        .turn(&options)
        .filter(|_| !ids.is_empty())
    else {
        return true;
    };
    let (held, turn) = (present.held, present.turn);
    let length = turn.length.saturating_mul(turns).min(present.most);
    if held >= length {
        return true;
    }
    let left = length - held;
    let least = options.turn_min.saturating_sub(held).max(turn.rest);
    if !least.is_zero() {
        std::thread::sleep(least.min(left).min(QUIET));
        return false;
    }
    let before: Vec<_> = ids.iter().map(|id| activity(node, device, *id)).collect();
    std::thread::sleep(left.min(QUIET));
    let stirred = |(id, before): (&u64, &Option<(u64, bool)>)| {
        let after = activity(node, device, *id);
        after.is_some_and(|(_, busy)| busy || after != *before)
    };
    left >= QUIET && !ids.iter().zip(&before).any(stirred)
}

/// Those of these sessions, with their tenants, that may not be ended now. A program that is not an
/// instance cannot be restarted or moved, so its sessions stay.
pub(crate) fn busy(node: &Node, device: &Device, sessions: &[(u64, String)]) -> Vec<(u64, String)> {
    let (mut fixed, mut quiet) = (Vec::new(), Vec::new());
    for session in sessions {
        match ending(node, session.0) {
            // Its driver may be programming the device.
            Some(_) if device.configuration.loads_for(session.0) => fixed.push(session.clone()),
            // Ended by now, or its program continues with another session.
            None | Some(Ending::Moved | Ending::Turn) => {}
            Some(Ending::Never) => fixed.push(session.clone()),
            Some(Ending::Idle) => quiet.push((session, activity(node, device, session.0))),
        }
    }
    if !fixed.is_empty() || quiet.is_empty() {
        return fixed;
    }
    std::thread::sleep(QUIET);
    let stirred = |(session, before): &(&(u64, String), Option<(u64, bool)>)| {
        let after = activity(node, device, session.0);
        after.is_some_and(|(_, going_on)| going_on || after != *before)
    };
    let stirred = quiet.into_iter().filter(stirred);
    stirred.map(|(session, _)| session.clone()).collect()
}

/// Ends sessions; their clients receive the reason.
pub(crate) fn dismiss(node: &Node, device: &Device, sessions: &[u64], reason: &str) {
    for session in sessions {
        let executor = node.sessions().get(session).map(|s| s.executor);
        let process =
            executor.and_then(|executor| device.pool.with(executor, |e| e.process.clone()));
        if let Some(process) = process {
            tracing::info!(session, device = device.name(), reason, "session dismissed");
            let end = ToExecutor::End {
                session: *session,
                reason: reason.to_owned(),
            };
            // An executor that cannot receive the message has lost its sessions anyway.
            let _ = process.send(&end, &[]);
        }
    }
}

/// Waits until sessions have ended; false: some have not.
pub(crate) fn left(node: &Node, sessions: &[u64]) -> bool {
    let deadline = Instant::now() + LEAVE_MAX;
    loop {
        if !sessions.iter().any(|s| node.sessions().contains_key(s)) {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sessions of an instance on a device, with their tenants.
pub(crate) fn sessions_of(node: &Node, device: &str, instance: &str) -> Vec<(u64, String)> {
    let open = node.sessions();
    let own = open
        .iter()
        .filter(|(_, s)| s.is_on(device) && super::instance(&s.instance) == Some(instance));
    own.map(|(id, s)| (*id, s.tenant.clone())).collect()
}
