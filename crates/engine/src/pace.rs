//! How many calls a thread that runs them is given before the next thread is: a native function's
//! process has several, and a function on a device a command queue each.
//!
//! A thread that sleeps costs a wake-up, and on a busy host one that is awake takes a core's turns
//! from those who serve connections: an empty function on 16 threads of 16 cores had a 99th
//! percentile of 14 to 31 ms where it has 2 ms on two. A call that takes long wants a thread to itself.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a thread may have before it, nanoseconds: about what waking another one takes.
const WORTH_WAKING_NS: u64 = 20_000;
/// What is remembered of a long call after each further one: this less of itself.
const FORGET: u64 = 16;
/// Calls that are ever given so.
const FILL_MAX: u64 = 64;

/// How long calls of a function take: the longest of late.
#[derive(Debug, Default)]
pub struct Pace {
    run_ns: AtomicU64,
}

impl Pace {
    /// A call took so long, on a thread that had others before it. Threads that tell at once may lose one's word: no harm.
    pub fn ran(&self, ns: u64) {
        let longest = self.run_ns.load(Ordering::Relaxed);
        let now = ns.max(longest - longest / FORGET);
        if now != longest {
            self.run_ns.store(now, Ordering::Relaxed);
        }
    }

    /// Calls that a thread is given while others have none.
    pub fn fill(&self) -> usize {
        match self.run_ns.load(Ordering::Relaxed) {
            // Nothing is known of it.
            0 => 1,
            ns => (WORTH_WAKING_NS / ns).clamp(1, FILL_MAX) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_short_calls_share_a_thread_and_long_ones_do_not() {
        let pace = Pace::default();
        assert_eq!(pace.fill(), 1);
        pace.ran(1_000);
        assert_eq!(pace.fill(), 20);
        pace.ran(1);
        assert_eq!(pace.fill(), 21);
        pace.ran(30_000_000);
        assert_eq!(pace.fill(), 1);
        // One long call in a hundred keeps them apart.
        (0..99).for_each(|_| pace.ran(1_000));
        assert_eq!(pace.fill(), 1);
        (0..200).for_each(|_| pace.ran(1_000));
        assert_eq!(pace.fill(), 20);
        pace.ran(u64::MAX);
        assert_eq!(pace.fill(), 1);
    }
}
