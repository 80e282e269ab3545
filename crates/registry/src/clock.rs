//! Clocks of the registry.
//!
//! Leases use the monotonic clock, because operators and NTP change the wall clock. They advance in
//! bounded steps ([`LeaseClock`]): if the registry itself was stopped for an hour (a paused virtual
//! machine, a debugger, a swapping host), heartbeats could not reach it, and the hour must not
//! count as its nodes' silence.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time; tests have their own.
pub trait Clock: Send + Sync + Debug {
    /// Time since a fixed start; never decreases.
    fn monotonic(&self) -> Duration;
    /// Wall-clock time for display; no decision depends on it.
    fn wall(&self) -> SystemTime;
}

/// The host's clocks.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// Seconds since 1970; 0 before.
pub fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Counts the time in which the registry could receive heartbeats.
#[derive(Debug)]
pub struct LeaseClock {
    seen: Duration,
    now: Duration,
    step_max: Duration,
}

impl LeaseClock {
    /// Starts at zero. It is advanced periodically; each step counts for at most `step_max`.
    pub fn new(monotonic: Duration, step_max: Duration) -> Self {
        LeaseClock {
            seen: monotonic,
            now: Duration::ZERO,
            step_max,
        }
    }

    /// Advances it to a time of the monotonic clock, and returns its value.
    pub fn advance(&mut self, monotonic: Duration) -> Duration {
        let step = monotonic.saturating_sub(self.seen).min(self.step_max);
        self.seen = self.seen.max(monotonic);
        self.now += step;
        self.now
    }

    /// The time of the last step.
    pub fn now(&self) -> Duration {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leap_counts_as_one_step() {
        let second = Duration::from_secs(1);
        let mut clock = LeaseClock::new(100 * second, 2 * second);
        assert_eq!(clock.advance(101 * second), second);
        assert_eq!(clock.advance(5_000 * second), 3 * second);
        assert_eq!(clock.advance(5_001 * second), 4 * second);
        assert_eq!(clock.now(), 4 * second);
    }

    #[test]
    fn it_never_goes_back() {
        let second = Duration::from_secs(1);
        let mut clock = LeaseClock::new(100 * second, 2 * second);
        clock.advance(101 * second);
        assert_eq!(clock.advance(50 * second), second);
        assert_eq!(clock.advance(101 * second), second);
    }
}
