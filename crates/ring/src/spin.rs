//! Adaptive spinning.
//!
//! A spin saves time if the peer runs on another core and replies at once. It wastes its whole
//! length if the peer waits for the spinning core (a scheduler queues a woken thread behind its
//! waker, and `sched_yield` does not help across task groups: with 50 µs of spinning on both sides
//! of a two-core host, a round trip took 67 µs instead of 14). After a spin without success, the
//! next 1, 2, 4, … 256 spins are therefore skipped; a success halves the number.

use crate::futex::pause;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const SKIP_MAX: u32 = 256;
/// An iteration takes half a microsecond; one of this length included another thread's time slice.
const CROWDED: Duration = Duration::from_micros(4);

/// Hooks of a waiter, in addition to polling its word in shared memory.
pub trait Waiting {
    /// Called repeatedly while it spins.
    fn look(&self) {}
    /// Called before it sleeps.
    fn sleeps(&self) {}
    /// Called after it has slept.
    fn woke(&self) {}
}

/// No hooks.
impl Waiting for () {}

/// The history of one waiter's spins.
#[derive(Default)]
pub struct Spin {
    skip: AtomicU32,
    penalty: AtomicU32,
}

impl Spin {
    /// Spins for up to `limit`, unless recent spins did not succeed; returns whether `done` held.
    pub fn until(&self, limit: Duration, done: impl FnMut() -> bool) -> bool {
        self.spin(limit, Duration::MAX, done)
    }

    /// Like [`Spin::until`], but stops when its core is shared with another thread, possibly the
    /// awaited one: two threads that spin alternately on one core stay there, while a sleeping one
    /// is moved to an idle core when it is woken.
    pub fn until_crowded(&self, limit: Duration, done: impl FnMut() -> bool) -> bool {
        self.spin(limit, CROWDED, done)
    }

    fn spin(&self, limit: Duration, turn_max: Duration, mut done: impl FnMut() -> bool) -> bool {
        if limit.is_zero() {
            return false;
        }
        // Threads that share this may lose a count, which is harmless.
        match self.skip.load(Ordering::Relaxed) {
            0 => {}
            n => {
                self.skip.store(n - 1, Ordering::Relaxed);
                return false;
            }
        }
        let started = Instant::now();
        let mut waited = Duration::ZERO;
        while waited < limit {
            pause();
            if done() {
                let penalty = self.penalty.load(Ordering::Relaxed);
                self.penalty.store(penalty / 2, Ordering::Relaxed);
                return true;
            }
            let before = std::mem::replace(&mut waited, started.elapsed());
            if waited - before > turn_max {
                return false;
            }
        }
        let penalty = self.penalty.load(Ordering::Relaxed);
        let penalty = (penalty * 2).clamp(1, SKIP_MAX);
        self.penalty.store(penalty, Ordering::Relaxed);
        self.skip.store(penalty, Ordering::Relaxed);
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn spinning_in_vain_grows_rare_and_recovers() {
        let spin = Spin::default();
        let mut looks = 0;
        let mut in_vain = |times: u32| {
            looks = 0;
            for _ in 0..times {
                let mut looked = false;
                spin.until(Duration::from_nanos(1), || {
                    looked = true;
                    false
                });
                looks += u32::from(looked);
            }
            looks
        };
        let first = in_vain(1000);
        assert!(first <= 11, "{first} spins in a thousand waits");
        assert_eq!(spin.penalty.load(Ordering::Relaxed), SKIP_MAX);
        spin.skip.store(0, Ordering::Relaxed);
        for _ in 0..9 {
            assert!(spin.until(Duration::from_secs(1), || true));
        }
        assert_eq!(spin.penalty.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn no_limit_means_no_spin() {
        let never = || panic!("looked");
        assert!(!Spin::default().until(Duration::ZERO, never));
    }
}
