//! Detects and ends work on devices that is past its deadline. A caller's wait ends by itself, but
//! its work on a device ends only with the session's executor, which also costs other clients their
//! sessions. The work must therefore be attributed without doubt.
//!
//! A call may hold its device for the time that was left until its deadline when the call arrived.
//! That time begins when the call becomes the next one in its queue, and restarts while an older
//! call runs on the same device: drivers run the kernels of several queues one after another, and a
//! call that waits for another queue's kernel is not late.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Calls that began within this time of each other may have reached the device in any order.
const TOGETHER: Duration = Duration::from_secs(1);

/// The call that a queue runs, or that waits in the driver behind other queues' calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Identifies the queue in this process.
    pub lane: usize,
    /// The node and device.
    pub place: String,
    /// The time at which it became the next one in its queue.
    pub since: Instant,
    /// The time for which it may hold the device.
    pub allowed: Duration,
}

/// The state of each queue.
#[derive(Debug, Default)]
pub struct Deadlines {
    seen: HashMap<usize, Seen>,
}

#[derive(Debug)]
struct Seen {
    /// [`Running::since`], which differs between calls.
    since: Instant,
    /// The earliest time at which its time on the device began.
    began: Instant,
}

impl Deadlines {
    /// Updates the running calls at `now`. Returns the indices of those past their deadline.
    pub fn look(&mut self, now: Instant, running: &[Running]) -> Vec<usize> {
        let mut oldest: HashMap<&str, Instant> = HashMap::new();
        for r in running {
            let first = oldest.entry(&r.place).or_insert(r.since);
            *first = r.since.min(*first);
        }
        let mut seen = HashMap::with_capacity(running.len());
        let mut late = Vec::new();
        for (index, r) in running.iter().enumerate() {
            let before = self.seen.get(&r.lane).filter(|s| s.since == r.since);
            let waits = oldest
                .get(r.place.as_str())
                .is_some_and(|at| *at + TOGETHER < r.since);
            let began = match before {
                _ if waits => now,
                Some(seen) => seen.began,
                None => r.since,
            };
            if now.saturating_duration_since(began) >= r.allowed {
                late.push(index);
            }
            let since = r.since;
            seen.insert(r.lane, Seen { since, began });
        }
        self.seen = seen;
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(lane: usize, place: &str, since: Instant, allowed_s: u64) -> Running {
        Running {
            lane,
            place: place.into(),
            since,
            allowed: Duration::from_secs(allowed_s),
        }
    }

    const SECOND: Duration = Duration::from_secs(1);
    const NONE: [usize; 0] = [];

    #[test]
    fn test_a_call_past_its_time_is_late_and_not_before() {
        let start = Instant::now();
        let mut deadlines = Deadlines::default();
        let endless = [running(1, "a", start, 2)];
        assert_eq!(deadlines.look(start + SECOND, &endless), NONE);
        assert_eq!(deadlines.look(start + 2 * SECOND, &endless), [0]);
        // The queue's next call has its own time limit.
        let next = [running(1, "a", start + 2 * SECOND, 2)];
        assert_eq!(deadlines.look(start + 3 * SECOND, &next), NONE);
    }

    #[test]
    fn test_who_waits_behind_an_older_call_of_the_device_is_not_late() {
        let start = Instant::now();
        let mut deadlines = Deadlines::default();
        let long = running(1, "a", start, 30);
        let short = running(2, "a", start + 2 * SECOND, 2);
        let elsewhere = running(3, "b", start + 2 * SECOND, 2);
        let all = [long, short.clone(), elsewhere];
        assert_eq!(deadlines.look(start + 3 * SECOND, &all), NONE);
        assert_eq!(deadlines.look(start + 20 * SECOND, &all), [2]);
        // The long call ended at 21 s; the short call's time begins then.
        assert_eq!(
            deadlines.look(start + 21 * SECOND, std::slice::from_ref(&short)),
            NONE
        );
        assert_eq!(deadlines.look(start + 22 * SECOND, &[short]), [0]);
    }

    #[test]
    fn test_two_endless_calls_are_late_one_after_the_other_or_together() {
        let start = Instant::now();
        let mut deadlines = Deadlines::default();
        let both = [running(1, "a", start, 2), running(2, "a", start, 2)];
        assert_eq!(deadlines.look(start + 2 * SECOND, &both), [0, 1]);
        let apart = [
            running(1, "a", start, 2),
            running(2, "a", start + 2 * SECOND, 2),
        ];
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.look(start + 4 * SECOND, &apart), [0]);
        assert_eq!(deadlines.look(start + 5 * SECOND, &apart[1..]), NONE);
        assert_eq!(deadlines.look(start + 6 * SECOND, &apart[1..]), [0]);
    }
}
