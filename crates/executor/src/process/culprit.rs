//! Finds the session whose commands block a device.

use std::time::Duration;

/// The state of a command that the driver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its session is open.
    Open,
    /// Its session is open. Its client reports that it is past its time limit, and holds an older
    /// command of another queue responsible, which may be in another executor.
    Late {
        /// The time limit, nanoseconds.
        allowed_ns: u64,
    },
    /// Its session has ended, and so has the grace period of its commands.
    Overdue,
}

/// The running command of a queue.
#[derive(Clone, Debug)]
pub struct Running {
    /// The queue's session.
    pub session: u64,
    /// Start of the command, or of its wait behind others.
    pub since_ns: u64,
    /// Whether it is to end, or waits.
    pub standing: Standing,
}

impl Running {
    /// Whether it began before `other`, beyond doubt.
    fn is_older(&self, other: &Running) -> bool {
        self.since_ns.saturating_add(TOGETHER_NS) < other.since_ns
    }
}

/// Commands that began within this time of each other may have reached the device in any order.
const TOGETHER_NS: u64 = 1_000_000_000;

/// A late command without another one that may block it.
#[derive(Clone, Copy, Debug)]
struct Alone {
    session: u64,
    since_ns: u64,
    /// Time at which that was first seen.
    seen_ns: u64,
}

/// Finds the session whose commands block a device.
#[derive(Debug, Default)]
pub struct Culprits {
    alone: Option<Alone>,
}

impl Culprits {
    /// The session whose commands block the device, if it is certain: past their grace period or, if
    /// they are a call's, past its time limit. Where the others may wait for a command of an open
    /// session, it is that session, once they have waited for `contended_max`; `None`: never.
    pub fn find(
        &mut self,
        running: &[Running],
        contended_max: Option<Duration>,
        now_ns: u64,
    ) -> Option<u64> {
        let has_waited = |since_ns: u64| {
            contended_max
                .is_some_and(|max| u128::from(now_ns.saturating_sub(since_ns)) >= max.as_nanos())
        };
        let ended = blocks_ended(running, has_waited);
        ended.or_else(|| self.blocks_late(running, has_waited, now_ns))
    }

    /// The session that blocks calls past their time limits.
    fn blocks_late(
        &mut self,
        running: &[Running],
        has_waited: impl Fn(u64) -> bool,
        now_ns: u64,
    ) -> Option<u64> {
        let before = self.alone.take();
        let late = running.iter().filter_map(|r| match r.standing {
            Standing::Late { allowed_ns } => Some((r, allowed_ns)),
            _ => None,
        });
        let (first, allowed_ns) = late.min_by_key(|(r, _)| r.since_ns)?;
        // Its client has seen that the other one began first, even if they arrived here together.
        let open = running.iter().filter(|r| r.standing == Standing::Open);
        let others = open.filter(|r| !first.is_older(r));
        if let Some(oldest) = others.min_by_key(|r| r.since_ns) {
            return has_waited(first.since_ns).then_some(oldest.session);
        }
        // Nothing of this process blocks it, so that it has the device: its limit applies from now
        // on, because the command before it may just have ended.
        let is_same = |a: &Alone| (a.session, a.since_ns) == (first.session, first.since_ns);
        let alone = before.filter(is_same).unwrap_or(Alone {
            session: first.session,
            since_ns: first.since_ns,
            seen_ns: now_ns,
        });
        self.alone = Some(alone);
        (now_ns.saturating_sub(alone.seen_ns) >= allowed_ns).then_some(first.session)
    }
}

/// The session that blocks commands of ended sessions.
fn blocks_ended(running: &[Running], has_waited: impl Fn(u64) -> bool) -> Option<u64> {
    let (overdue, open): (Vec<_>, Vec<_>) = running
        .iter()
        .partition(|r| r.standing == Standing::Overdue);
    let first = overdue.iter().min_by_key(|r| r.since_ns)?;
    let older = open.iter().filter(|r| r.is_older(first));
    match older.min_by_key(|r| r.since_ns) {
        None => Some(first.session),
        Some(oldest) => has_waited(first.since_ns).then_some(oldest.session),
    }
}

#[cfg(test)]
mod tests {
    use super::Standing::{Late, Open, Overdue};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn running(session: u64, since_s: u64, standing: Standing) -> Running {
        Running {
            session,
            since_ns: since_s * SECOND,
            standing,
        }
    }

    fn find(all: &[Running], contended_s: Option<u64>, now_s: u64) -> Option<u64> {
        let contended_max = contended_s.map(Duration::from_secs);
        Culprits::default().find(all, contended_max, now_s * SECOND)
    }

    #[test]
    fn who_waits_behind_a_living_sessions_command_is_not_to_blame() {
        let certain = |all: &[Running]| find(all, None, 100);
        assert_eq!(certain(&[]), None);
        let all = [running(1, 1, Open), running(2, 3, Overdue)];
        assert_eq!(certain(&all), None);
        assert_eq!(certain(&all[1..]), Some(2));
        let all = [
            running(1, 4, Open),
            running(2, 2, Overdue),
            running(3, 1, Overdue),
        ];
        assert_eq!(certain(&all), Some(3));
        let all = [running(1, 4, Open), running(2, 5, Overdue)];
        assert_eq!(certain(&all), Some(2));
    }

    #[test]
    fn an_open_sessions_command_blocks_ended_sessions_for_a_limited_time() {
        let all = [
            running(1, 5, Open),
            running(2, 1, Open),
            running(3, 9, Overdue),
        ];
        assert_eq!(find(&all, None, 100), None);
        assert_eq!(find(&all, Some(2), 10), None);
        assert_eq!(find(&all, Some(2), 11), Some(2));
    }

    #[test]
    fn calls_past_their_limits_wait_for_a_limited_time_and_are_not_to_blame() {
        let late = Late {
            allowed_ns: 2 * SECOND,
        };
        let all = [
            running(1, 1, Open),
            running(2, 9, late),
            running(2, 12, late),
            running(3, 8, Open),
        ];
        assert_eq!(find(&all, None, 1000), None);
        assert_eq!(find(&all, Some(4), 12), None);
        assert_eq!(find(&all, Some(4), 13), Some(1));
        // Its client has seen the order, although both arrived here together.
        let all = [running(1, 9, Open), running(2, 9, late)];
        assert_eq!(find(&all, Some(4), 13), Some(1));
        // One queue's command blocks another queue of its session.
        let all = [running(2, 1, Open), running(2, 9, late)];
        assert_eq!(find(&all, Some(4), 13), Some(2));
    }

    #[test]
    fn a_call_that_nothing_here_blocks_has_its_time_limit_from_then_on() {
        let late = Late {
            allowed_ns: 2 * SECOND,
        };
        let mut culprits = Culprits::default();
        let mut at = |all: &[Running], now_s: u64| culprits.find(all, None, now_s * SECOND);
        let both = [running(1, 1, Open), running(2, 9, late)];
        assert_eq!(at(&both, 100), None);
        // A younger command does not block it.
        let own = [running(1, 80, Open), running(2, 9, late)];
        assert_eq!(at(&own, 101), None);
        assert_eq!(at(&own, 102), None);
        assert_eq!(at(&both, 102), None);
        assert_eq!(at(&own, 103), None);
        assert_eq!(at(&own, 104), None);
        assert_eq!(at(&own, 105), Some(2));
        // Progress makes it another command.
        let next = [running(2, 105, late)];
        assert_eq!(at(&next, 106), None);
    }
}
