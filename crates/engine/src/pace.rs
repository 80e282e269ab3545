//! Decides how many calls one thread receives before the next thread is used. A native function's
//! process has several threads; a function on a device has one command queue for each.
//!
//! Waking a sleeping thread costs time, and on a busy host an awake one takes time slices from the
//! threads that serve connections: an empty function on 16 threads of 16 cores had a 99th
//! percentile of 14 to 31 ms, against 2 ms on two threads. A long call needs its own thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Amount of queued work below which no further thread is woken, nanoseconds: about the cost of a
/// wake-up.
const WORTH_WAKING_NS: u64 = 20_000;
/// Decay of the longest time with each further call: it is reduced by a fraction of 1 / FORGET.
const FORGET: u64 = 16;
/// Upper limit of the number of calls.
const FILL_MAX: u64 = 64;

/// Duration of a call on a device below which the driver's work is a large part of it, nanoseconds.
const SHORT_NS: u64 = 100_000;

/// Amount of work in flight in a queue while further calls wait, nanoseconds: the device's other
/// functions wait for it.
const IN_FLIGHT_NS: u64 = 20_000_000;

/// The longest recent call of a function.
#[derive(Debug, Default)]
pub struct Pace {
    run_ns: AtomicU64,
}

impl Pace {
    /// Records the duration of a call. Concurrent updates may lose one, which is harmless.
    pub fn ran(&self, ns: u64) {
        let longest = self.run_ns.load(Ordering::Relaxed);
        let now = ns.max(longest - longest / FORGET);
        if now != longest {
            self.run_ns.store(now, Ordering::Relaxed);
        }
    }

    /// Number of calls for a thread while other threads have none.
    pub fn fill(&self) -> usize {
        match self.run_ns.load(Ordering::Relaxed) {
            // Nothing has been recorded.
            0 => 1,
            ns => (WORTH_WAKING_NS / ns).clamp(1, FILL_MAX) as usize,
        }
    }

    /// Whether the calls of a device are so short that the driver limits their rate.
    pub fn is_short(&self) -> bool {
        (1..SHORT_NS).contains(&self.run_ns.load(Ordering::Relaxed))
    }

    /// Number of calls in flight in a queue of at most `most`: at least two, so that the device does
    /// not wait for the next one.
    pub fn depth(&self, most: usize) -> usize {
        match self.run_ns.load(Ordering::Relaxed) {
            0 => most,
            ns => most.min(((IN_FLIGHT_NS / ns) as usize).max(2)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_calls_wait_for_their_turn_outside_the_device() {
        let pace = Pace::default();
        assert_eq!(pace.depth(32), 32);
        pace.ran(100_000);
        assert_eq!(pace.depth(32), 32);
        pace.ran(5_000_000);
        assert_eq!(pace.depth(32), 4);
        pace.ran(1_000_000_000);
        assert_eq!((pace.depth(32), pace.depth(1)), (2, 1));
    }

    #[test]
    fn the_driver_limits_calls_that_are_known_to_be_short() {
        let pace = Pace::default();
        assert!(!pace.is_short());
        pace.ran(30_000);
        assert!(pace.is_short());
        pace.ran(SHORT_NS);
        assert!(!pace.is_short());
    }

    #[test]
    fn short_calls_share_a_thread_and_long_ones_do_not() {
        let pace = Pace::default();
        assert_eq!(pace.fill(), 1);
        pace.ran(1_000);
        assert_eq!(pace.fill(), 20);
        pace.ran(1);
        assert_eq!(pace.fill(), 21);
        pace.ran(30_000_000);
        assert_eq!(pace.fill(), 1);
        // One long call in a hundred keeps calls on separate threads.
        (0..99).for_each(|_| pace.ran(1_000));
        assert_eq!(pace.fill(), 1);
        (0..200).for_each(|_| pace.ran(1_000));
        assert_eq!(pace.fill(), 20);
        pace.ran(u64::MAX);
        assert_eq!(pace.fill(), 1);
    }
}
