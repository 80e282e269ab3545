//! Finds the session whose commands block a device.

/// A session's commands in the driver.
#[derive(Clone)]
pub struct Running {
    pub session: u64,
    /// Start of its longest-running command, or of its wait behind others.
    pub since_ns: u64,
    /// The session has ended, and so has the grace period of its commands.
    pub overdue: bool,
}

/// Commands that began within this time of each other may have reached the device in any order.
const TOGETHER_NS: u64 = 1_000_000_000;

/// The session whose commands block the device past their grace period, if it is certain. Where
/// these may wait for a command of an open session, it is that session, once they have waited since
/// `waited_since_ns`.
pub fn culprit(
    running: impl Iterator<Item = Running>,
    waited_since_ns: Option<u64>,
) -> Option<u64> {
    let (overdue, open): (Vec<_>, Vec<_>) = running.partition(|r| r.overdue);
    let first = overdue.iter().min_by_key(|r| r.since_ns)?;
    let is_older = |r: &&Running| r.since_ns.saturating_add(TOGETHER_NS) < first.since_ns;
    match open.iter().filter(is_older).min_by_key(|r| r.since_ns) {
        None => Some(first.session),
        Some(oldest) => waited_since_ns
            .is_some_and(|at| first.since_ns <= at)
            .then_some(oldest.session),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(session: u64, since_ns: u64, overdue: bool) -> Running {
        Running {
            session,
            since_ns,
            overdue,
        }
    }

    #[test]
    fn test_who_waits_behind_a_living_sessions_command_is_not_to_blame() {
        const SECOND: u64 = 1_000_000_000;
        let certain = |all: &[Running]| culprit(all.iter().cloned(), None);
        assert_eq!(certain(&[]), None);
        let all = [running(1, SECOND, false), running(2, 3 * SECOND, true)];
        assert_eq!(certain(&all), None);
        assert_eq!(certain(&all[1..]), Some(2));
        let all = [
            running(1, 4 * SECOND, false),
            running(2, 2 * SECOND, true),
            running(3, SECOND, true),
        ];
        assert_eq!(certain(&all), Some(3));
        let all = [running(1, 4 * SECOND, false), running(2, 5 * SECOND, true)];
        assert_eq!(certain(&all), Some(2));
    }

    #[test]
    fn test_an_open_sessions_command_blocks_ended_sessions_for_a_limited_time() {
        const SECOND: u64 = 1_000_000_000;
        let all = [
            running(1, 5 * SECOND, false),
            running(2, SECOND, false),
            running(3, 9 * SECOND, true),
        ];
        let culprit = |waited_since_ns| culprit(all.iter().cloned(), waited_since_ns);
        assert_eq!(culprit(None), None);
        assert_eq!(culprit(Some(8 * SECOND)), None);
        assert_eq!(culprit(Some(9 * SECOND)), Some(2));
    }
}
