//! Circuit breakers: after some consecutive failures, calls are blocked for a while, then one probe
//! call is let through.

use baltra_ring::Locked;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Lets all through.
    Closed,
    /// Lets none through.
    Open,
    /// One probe call may pass, or is in progress.
    HalfOpen,
}

#[derive(Debug)]
struct State {
    failures: u32,
    /// The time until which the breaker is open.
    until: Option<Instant>,
    /// The time at which the probe call began.
    probe: Option<Instant>,
}

/// The breaker of a node or a replica.
#[derive(Debug)]
pub struct Breaker {
    /// Fast path: closed, without recent failures.
    well: AtomicBool,
    state: Mutex<State>,
    failures_max: u32,
    open: Duration,
}

impl Breaker {
    /// Creates a breaker that opens for `open` after `failures_max` consecutive failures.
    pub fn new(failures_max: u32, open: Duration) -> Breaker {
        Breaker {
            well: AtomicBool::new(true),
            state: Mutex::new(State {
                failures: 0,
                until: None,
                probe: None,
            }),
            failures_max: failures_max.max(1),
            open,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Whether a call may pass at `now`; does not change the state.
    pub fn allows(&self, now: Instant) -> bool {
        if self.well.load(Ordering::Relaxed) {
            return true;
        }
        let state = self.lock();
        match state.until {
            None => true,
            Some(until) if now < until => false,
            // A probe call that never ends does not block the breaker indefinitely.
            Some(_) => state.probe.is_none_or(|at| now > at + self.open),
        }
    }

    /// Records that a call passes.
    pub fn goes(&self, now: Instant) {
        if self.well.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.lock();
        if state.until.is_some() {
            state.probe = Some(now);
        }
    }

    /// Records a success.
    pub fn worked(&self) {
        if self.well.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.lock();
        state.failures = 0;
        state.until = None;
        state.probe = None;
        self.well.store(true, Ordering::Relaxed);
    }

    /// Records a failure.
    pub fn failed(&self, now: Instant) {
        let mut state = self.lock();
        self.well.store(false, Ordering::Relaxed);
        state.failures = state.failures.saturating_add(1);
        if state.failures >= self.failures_max || state.probe.is_some() {
            state.until = Some(now + self.open);
            state.probe = None;
        }
    }

    /// The state, for display.
    pub fn position(&self, now: Instant) -> Position {
        let state = self.lock();
        match state.until {
            None => Position::Closed,
            Some(until) if now < until => Position::Open,
            Some(_) => Position::HalfOpen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Duration = Duration::from_secs(1);

    #[test]
    fn it_opens_after_failures_in_a_row_only() {
        let breaker = Breaker::new(3, OPEN);
        let now = Instant::now();
        for _ in 0..5 {
            breaker.failed(now);
            breaker.failed(now);
            assert!(breaker.allows(now));
            breaker.worked();
        }
        for _ in 0..3 {
            breaker.failed(now);
        }
        assert!(!breaker.allows(now));
        assert_eq!(breaker.position(now), Position::Open);
    }

    #[test]
    fn one_call_goes_to_see_and_decides() {
        let breaker = Breaker::new(1, OPEN);
        let now = Instant::now();
        breaker.failed(now);
        let later = now + OPEN;
        assert!(!breaker.allows(later - Duration::from_millis(1)));
        assert!(breaker.allows(later));
        breaker.goes(later);
        assert!(!breaker.allows(later), "one is on its way");
        breaker.failed(later);
        assert!(!breaker.allows(later + OPEN / 2));
        let much_later = later + OPEN;
        assert!(breaker.allows(much_later));
        breaker.goes(much_later);
        breaker.worked();
        assert!(breaker.allows(much_later));
        assert_eq!(breaker.position(much_later), Position::Closed);
    }

    #[test]
    fn a_probe_that_never_comes_back_is_followed_by_another() {
        let breaker = Breaker::new(1, OPEN);
        let now = Instant::now();
        breaker.failed(now);
        breaker.goes(now + OPEN);
        assert!(!breaker.allows(now + OPEN));
        assert!(breaker.allows(now + OPEN * 2 + Duration::from_millis(1)));
    }
}
