//! The waiting calls of a function at one place: a queue for each tenant, the tenants' turns, and
//! the time that a call will wait.
//!
//! Tenants take turns, so that a tenant's call waits for at most as many calls of each other tenant
//! as its own tenant has waiting. If several tenants exist, a tenant may have [`SHARE`] times as
//! many waiting calls as there is room left: however many calls it sends, there is room for others.
//!
//! A call is refused when it arrives if its tenant's turns, at the measured rate, come after its
//! deadline; and when its turn comes if the time left is shorter than the shortest recent call.

use crate::pending::Pending;
use crate::reply::{CallError, Shed};
use crossbeam_queue::SegQueue;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Number of waiting calls of a tenant for each place that is left, if several tenants exist.
pub const SHARE: usize = 3;
/// Shortest time over which the rate of [`CALLS_MIN`] calls or more is measured.
const WINDOW: Duration = Duration::from_millis(50);
/// The same for fewer calls, at least two.
const LONG_WINDOW: Duration = Duration::from_secs(1);
/// See [`WINDOW`].
const CALLS_MIN: u64 = 8;
/// The shortest recent time grows by a fraction of 1 / FORGET with each longer call.
const FORGET: u64 = 64;

/// The calls of one tenant.
#[derive(Default)]
struct Line {
    calls: SegQueue<Pending>,
    len: AtomicUsize,
}

/// Waiting calls; bounded.
pub struct Backlog {
    /// By the tenant's number.
    lines: Box<[Line]>,
    /// The tenant whose turn is next.
    turn: AtomicUsize,
    len: AtomicUsize,
    max: usize,
    rate: Rate,
    /// Shortest recent time of a call from its start, nanoseconds; 0: not known.
    shortest_ns: AtomicU64,
}

/// Why a call was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason.
    pub reason: Shed,
    /// Time after which to retry; `None`: the rate is not known.
    pub retry_after: Option<Duration>,
}

impl Backlog {
    /// A queue for at most `max` calls of this number of tenants.
    pub fn new(max: usize, tenants: usize) -> Backlog {
        Backlog {
            lines: (0..tenants.max(1)).map(|_| Line::default()).collect(),
            turn: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            max,
            rate: Rate::new(),
            shortest_ns: AtomicU64::new(0),
        }
    }

    fn line(&self, pending: &Pending) -> &Line {
        let last = self.lines.len() - 1;
        &self.lines[pending.waiter.tenant.min(last)]
    }

    /// Appends a call, or returns it if there is no room or no time.
    #[expect(clippy::result_large_err, reason = "the call itself is returned")]
    pub fn push(&self, pending: Pending) -> Result<(), (Pending, Refused)> {
        let line = self.line(&pending);
        let waiting = self.len.fetch_add(1, Relaxed);
        let own = line.len.fetch_add(1, Relaxed);
        let refused = self.refusal(&pending, waiting, own);
        if let Some(refused) = refused {
            self.count_off(line);
            return Err((pending, refused));
        }
        line.calls.push(pending);
        Ok(())
    }

    /// Appends a call again that has been taken.
    pub fn push_back(&self, pending: Pending) {
        let line = self.line(&pending);
        self.len.fetch_add(1, Relaxed);
        line.len.fetch_add(1, Relaxed);
        line.calls.push(pending);
    }

    fn refusal(&self, pending: &Pending, waiting: usize, own: usize) -> Option<Refused> {
        let room = self.max.saturating_sub(waiting);
        let interval = self.rate.interval();
        if room == 0 || (self.lines.len() > 1 && own >= room.saturating_mul(SHARE)) {
            return Some(Refused {
                reason: Shed::Queue,
                retry_after: interval.map(|i| i.saturating_mul(own.max(1) as u32)),
            });
        }
        let (interval, waiter) = (interval?, &pending.waiter);
        let left = waiter.deadline.saturating_duration_since(waiter.came);
        // Cheap and pessimistic first.
        if interval.saturating_mul(waiting as u32) <= left {
            return None;
        }
        let wait = interval.saturating_mul(self.ahead(own) as u32);
        (wait > left).then(|| Refused {
            reason: Shed::Deadline,
            retry_after: Some(wait - left),
        })
    }

    /// Number of waiting calls that are to run before the next one of a tenant that has `own`
    /// waiting calls.
    fn ahead(&self, own: usize) -> usize {
        let lines = self.lines.iter();
        // The call itself is counted in its own line.
        let turns = lines.map(|line| line.len.load(Relaxed).min(own + 1));
        turns.sum::<usize>().saturating_sub(1)
    }

    fn count_off(&self, line: &Line) {
        line.len.fetch_sub(1, Relaxed);
        self.len.fetch_sub(1, Relaxed);
    }

    /// The oldest call that is not abandoned, and can be run in time, of the tenant whose turn it
    /// is.
    pub fn pop(&self, now: Instant) -> Option<Pending> {
        while let Some(pending) = self.take() {
            if let Some(pending) = self.if_in_time(pending, now) {
                self.rate.served(now, self.len());
                return Some(pending);
            }
        }
        self.rate.pause();
        None
    }

    fn take(&self) -> Option<Pending> {
        let count = self.lines.len();
        let first = self.turn.load(Relaxed);
        for at in (0..count).map(|n| (first + n) % count) {
            if let Some(pending) = self.lines[at].calls.pop() {
                if count > 1 {
                    self.turn.store((at + 1) % count, Relaxed);
                }
                self.count_off(&self.lines[at]);
                return Some(pending);
            }
        }
        None
    }

    /// Drops an abandoned call, and fails one that cannot end before its deadline; otherwise
    /// returns the call. A call whose whole time limit is shorter than the shortest recent call
    /// runs.
    fn if_in_time(&self, pending: Pending, now: Instant) -> Option<Pending> {
        let pending = pending.if_wanted(now)?;
        let shortest = Duration::from_nanos(self.shortest_ns.load(Relaxed));
        let waiter = &pending.waiter;
        let left = waiter.deadline.saturating_duration_since(now);
        if left >= shortest || waiter.allowed < shortest {
            return Some(pending);
        }
        let wait = self.drain_time().unwrap_or(shortest);
        pending.waiter.fail(CallError::Overload {
            reason: Shed::Deadline,
            retry_after: wait,
        });
        None
    }

    /// Records the time of a call from its start.
    pub fn ran(&self, ns: u64) {
        let shortest = self.shortest_ns.load(Relaxed);
        let next = match shortest {
            0 => ns,
            shortest => ns.min(shortest + shortest / FORGET),
        };
        // Concurrent updates may lose one, which is harmless.
        if next != shortest {
            self.shortest_ns.store(next, Relaxed);
        }
    }

    /// Time in which the waiting calls are served at the measured rate; `None`: it is not known.
    pub fn drain_time(&self) -> Option<Duration> {
        let interval = self.rate.interval()?;
        Some(interval.saturating_mul(self.len().max(1) as u32))
    }

    /// Number of waiting calls.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Whether no call waits. Exact for calls whose `push` has returned.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.calls.is_empty())
    }

    /// Fails all waiting calls, which were not started.
    pub fn lose(&self, reason: &str) {
        while let Some(pending) = self.take() {
            pending.lose(false, reason);
        }
    }
}

/// The rate at which calls leave a queue while others wait in it.
struct Rate {
    base: Instant,
    /// Start of the current measurement, nanoseconds since `base`; 0: there is none.
    since_ns: AtomicU64,
    /// Calls since then.
    count: AtomicU64,
    /// Time per call, nanoseconds; 0: not known.
    interval_ns: AtomicU64,
}

impl Rate {
    fn new() -> Rate {
        Rate {
            base: Instant::now(),
            since_ns: AtomicU64::new(0),
            count: AtomicU64::new(0),
            interval_ns: AtomicU64::new(0),
        }
    }

    /// Counts a call that has left the queue, in which `waiting` calls remain. Concurrent updates
    /// may lose one, which is harmless.
    fn served(&self, now: Instant, waiting: usize) {
        if waiting == 0 {
            return self.pause();
        }
        let now = now.saturating_duration_since(self.base).as_nanos() as u64;
        let since = self.since_ns.load(Relaxed);
        if since == 0 {
            self.count.store(0, Relaxed);
            self.since_ns.store(now.max(1), Relaxed);
            return;
        }
        let count = self.count.fetch_add(1, Relaxed) + 1;
        let took = now.saturating_sub(since);
        let enough = match count {
            ..2 => false,
            2..CALLS_MIN => took >= LONG_WINDOW.as_nanos() as u64,
            _ => took >= WINDOW.as_nanos() as u64,
        };
        if enough {
            let interval = (took / count).max(1);
            let before = self.interval_ns.load(Relaxed);
            let next = match before {
                0 => interval,
                // A pause, such as another image's turn on the device, counts half.
                before if interval > before => before / 2 + interval / 2,
                _ => interval,
            };
            self.interval_ns.store(next, Relaxed);
            self.count.store(0, Relaxed);
            self.since_ns.store(now, Relaxed);
        }
    }

    /// Ends the measurement, because no call waits.
    fn pause(&self) {
        if self.since_ns.load(Relaxed) != 0 {
            self.since_ns.store(0, Relaxed);
        }
    }

    fn interval(&self) -> Option<Duration> {
        let ns = self.interval_ns.load(Relaxed);
        (ns > 0).then(|| Duration::from_nanos(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending::{Caller, Outcome};
    use crate::reply::Trace;
    use baltra_functions::{Body, Files, Function, Request};
    use tokio::sync::oneshot::Receiver;

    const MS: Duration = Duration::from_millis(1);
    const MANIFEST: &str = "
name: f
inputs: [{name: a, type: u8, shape: [n]}]
outputs: [{name: b, type: u8, shape: [n]}]
implementations: [{opencl: {source: f.cl, kernel: f, global: [n]}}]
";

    fn call(tenant: usize, left: Duration) -> (Pending, Receiver<Outcome>) {
        let files = Files::from_contents([("f.cl".into(), "kernel void f() {}".into())].into());
        let function = Function::from_files(MANIFEST, files).unwrap();
        let headers = http::HeaderMap::new();
        let request = Request {
            method: &http::Method::POST,
            path: "",
            query: "",
            headers: &headers,
        };
        let call = function.bind(&request, Body::from(vec![1])).unwrap();
        let caller = Caller {
            tenant,
            account: None,
        };
        let deadline = Instant::now() + left;
        Pending::new(call, (deadline, left), &Trace::default(), caller)
    }

    /// Pushes calls without a deadline; returns the number that is accepted.
    fn push(
        backlog: &Backlog,
        tenant: usize,
        count: usize,
        kept: &mut Vec<Receiver<Outcome>>,
    ) -> usize {
        let accepted = (0..count).filter(|_| {
            let (pending, outcome) = call(tenant, Duration::from_secs(3600));
            kept.push(outcome);
            backlog.push(pending).is_ok()
        });
        accepted.count()
    }

    #[test]
    fn tenants_take_turns_however_many_calls_one_has() {
        let (backlog, mut kept) = (Backlog::new(1000, 3), Vec::new());
        assert_eq!(push(&backlog, 0, 100, &mut kept), 100);
        assert_eq!(push(&backlog, 1, 3, &mut kept), 3);
        assert_eq!(push(&backlog, 2, 2, &mut kept), 2);
        let now = Instant::now();
        let order: Vec<usize> = (0..9)
            .map(|_| backlog.pop(now).unwrap().waiter.tenant)
            .collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 0]);
    }

    #[test]
    fn a_tenant_that_floods_leaves_room_for_others() {
        let (backlog, mut kept) = (Backlog::new(64, 3), Vec::new());
        assert_eq!(push(&backlog, 0, 1000, &mut kept), 48);
        let second = push(&backlog, 1, 1000, &mut kept);
        assert!((10..16).contains(&second), "{second}");
        assert!(push(&backlog, 2, 1000, &mut kept) > 1);
        // A gateway of one tenant uses the whole queue.
        let backlog = Backlog::new(64, 1);
        assert_eq!(push(&backlog, 0, 1000, &mut kept), 64);
    }

    /// A queue from which a call was taken every 20 ms while others waited.
    fn measured(tenants: usize, kept: &mut Vec<Receiver<Outcome>>) -> Backlog {
        let backlog = Backlog::new(1000, tenants);
        push(&backlog, 0, 40, kept);
        let start = Instant::now();
        for n in 0..20 {
            backlog.pop(start + 20 * n * MS).unwrap();
        }
        backlog
    }

    #[test]
    fn a_call_that_would_wait_past_its_deadline_is_refused_on_arrival() {
        let mut kept = Vec::new();
        let backlog = measured(2, &mut kept);
        let waits = backlog.drain_time().unwrap();
        assert!(waits >= 390 * MS && waits <= 410 * MS, "{waits:?}");
        let (late, _outcome) = call(0, 100 * MS);
        let (_, refused) = backlog.push(late).err().unwrap();
        assert_eq!(refused.reason, Shed::Deadline);
        let again = refused.retry_after.unwrap();
        assert!(again >= 290 * MS && again <= 330 * MS, "{again:?}");
        // A tenant without waiting calls has the next turn but one.
        let (other, _outcome) = call(1, 100 * MS);
        assert!(backlog.push(other).is_ok());
        let (patient, _outcome) = call(0, 1000 * MS);
        assert!(backlog.push(patient).is_ok());
    }

    #[test]
    fn a_call_without_enough_time_left_is_not_started() {
        let backlog = Backlog::new(10, 1);
        backlog.ran(50_000_000);
        let push = |left| {
            let (pending, outcome) = call(0, left);
            assert!(backlog.push(pending).is_ok());
            outcome
        };
        let mut late = push(200 * MS);
        let _in_time = push(1000 * MS);
        let now = Instant::now() + 170 * MS;
        assert!(backlog.pop(now).unwrap().waiter.allowed == 1000 * MS);
        let refused = late.try_recv().map(|outcome| match outcome {
            Outcome::Failed(error) => error,
            _ => panic!("it ran"),
        });
        assert!(matches!(
            refused,
            Ok(CallError::Overload {
                reason: Shed::Deadline,
                ..
            })
        ));
        // A limit that no recent call has met does not keep the function from running.
        let _short = push(40 * MS);
        assert!(backlog.pop(Instant::now()).is_some());
        // Shorter calls are noticed at once.
        backlog.ran(1_000_000);
        let _late = push(200 * MS);
        assert!(backlog.pop(Instant::now() + 170 * MS).is_some());
    }
}
