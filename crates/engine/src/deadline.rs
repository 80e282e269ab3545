//! Detects and ends work on devices that is past its deadline. A caller's wait ends by itself, but
//! its work on a device ends only with the session's executor, which also costs other clients their
//! sessions. The work must therefore be attributed without doubt.
//!
//! A call may hold its device for the time that was left until its deadline when the call arrived.
//! That time begins when the call becomes the next one in its queue, and restarts while an older
//! call runs on the same device: drivers run the kernels of several queues one after another, and a
//! call that waits for another queue's kernel is not late. Its executor is notified, however, once
//! the call has waited for its time limit: an older call with a long or endless kernel would stop
//! the others for as long as its own limit permits.

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

/// Repetitions of a notification: one is void once its queue has made progress.
const NOTIFY_EVERY: Duration = Duration::from_secs(1);

/// The calls past their time limits, by their indices.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// Calls that have held the device for longer than allowed.
    pub holding: Vec<usize>,
    /// Calls that have waited behind an older call for longer than allowed, and whose executors are
    /// to be notified now.
    pub waiting: Vec<usize>,
}

#[derive(Debug)]
struct Seen {
    /// [`Running::since`], which differs between calls.
    since: Instant,
    /// The earliest time at which its time on the device began.
    began: Instant,
    /// The last notification of its executor.
    notified: Option<Instant>,
}

impl Deadlines {
    /// Updates the running calls at `now`. Returns those past their time limits.
    pub fn look(&mut self, now: Instant, running: &[Running]) -> Late {
        let mut oldest: HashMap<&str, Instant> = HashMap::new();
        for r in running {
            let first = oldest.entry(&r.place).or_insert(r.since);
            *first = r.since.min(*first);
        }
        let mut seen = HashMap::with_capacity(running.len());
        let mut late = Late::default();
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
            let mut notified = before.and_then(|seen| seen.notified);
            if now.saturating_duration_since(began) >= r.allowed {
                late.holding.push(index);
            } else if waits
                && now.saturating_duration_since(r.since) >= r.allowed
                && notified.is_none_or(|at| now >= at + NOTIFY_EVERY)
            {
                late.waiting.push(index);
                notified = Some(now);
            }
            let since = r.since;
            let state = Seen {
                since,
                began,
                notified,
            };
            seen.insert(r.lane, state);
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

    fn holding(deadlines: &mut Deadlines, now: Instant, running: &[Running]) -> Vec<usize> {
        deadlines.look(now, running).holding
    }

    #[test]
    fn a_call_past_its_time_is_late_and_not_before() {
        let start = Instant::now();
        let mut deadlines = Deadlines::default();
        let endless = [running(1, "a", start, 2)];
        assert_eq!(holding(&mut deadlines, start + SECOND, &endless), NONE);
        assert_eq!(holding(&mut deadlines, start + 2 * SECOND, &endless), [0]);
        // The queue's next call has its own time limit.
        let next = [running(1, "a", start + 2 * SECOND, 2)];
        assert_eq!(holding(&mut deadlines, start + 3 * SECOND, &next), NONE);
    }

    #[test]
    fn who_waits_behind_an_older_call_of_the_device_is_not_late() {
        let start = Instant::now();
        let mut deadlines = Deadlines::default();
        let long = running(1, "a", start, 30);
        let short = running(2, "a", start + 2 * SECOND, 2);
        let elsewhere = running(3, "b", start + 2 * SECOND, 2);
        let all = [long, short.clone(), elsewhere];
        assert_eq!(holding(&mut deadlines, start + 3 * SECOND, &all), NONE);
        assert_eq!(holding(&mut deadlines, start + 20 * SECOND, &all), [2]);
        // The long call ended at 21 s; the short call's time begins then.
        assert_eq!(
            holding(
                &mut deadlines,
                start + 21 * SECOND,
                std::slice::from_ref(&short)
            ),
            NONE
        );
        assert_eq!(holding(&mut deadlines, start + 22 * SECOND, &[short]), [0]);
    }

    #[test]
    fn two_endless_calls_are_late_one_after_the_other_or_together() {
        let start = Instant::now();
        let mut deadlines = Deadlines::default();
        let both = [running(1, "a", start, 2), running(2, "a", start, 2)];
        assert_eq!(holding(&mut deadlines, start + 2 * SECOND, &both), [0, 1]);
        let apart = [
            running(1, "a", start, 2),
            running(2, "a", start + 2 * SECOND, 2),
        ];
        let mut deadlines = Deadlines::default();
        assert_eq!(holding(&mut deadlines, start + 4 * SECOND, &apart), [0]);
        assert_eq!(
            holding(&mut deadlines, start + 5 * SECOND, &apart[1..]),
            NONE
        );
        assert_eq!(
            holding(&mut deadlines, start + 6 * SECOND, &apart[1..]),
            [0]
        );
    }

    #[test]
    fn a_call_that_waits_past_its_limit_is_reported_until_it_has_the_device() {
        let start = Instant::now();
        let mut deadlines = Deadlines::default();
        let endless = running(1, "a", start, 3600);
        let copy = running(2, "a", start + 2 * SECOND, 2);
        let both = [endless, copy.clone()];
        let mut at =
            |ms: u64, all: &[Running]| deadlines.look(start + Duration::from_millis(ms), all);
        assert_eq!(at(3900, &both), Late::default());
        for ms in [4000, 5000, 60_000] {
            let late = at(ms, &both);
            assert_eq!((late.holding, late.waiting), (vec![], vec![1]), "{ms}");
            assert_eq!(at(ms + 900, &both), Late::default());
        }
        // The endless call was ended: the other one has its own time.
        let alone = std::slice::from_ref(&copy);
        assert_eq!(at(61_000, alone), Late::default());
        let late = at(63_000, alone);
        assert_eq!((late.holding, late.waiting), (vec![0], vec![]));
    }
}
