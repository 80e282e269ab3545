//! A command queue's progress: words in its ring's header.
//!
//! The executor publishes the number of complete commands, and `clFinish` waits for that number, so
//! a command needs no event unless the application requested one.

use crate::futex::{futex_wake, Sleeper};
use crate::memory::Range;
use crate::ring::{Base, RingError};
use crate::spin::{Spin, Waiting};
use crate::sync::fence;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// A sleeper checks again after this time, in case its waker died before waking it.
const RECHECK: Duration = Duration::from_millis(100);

/// The progress words of one ring, for either end.
#[derive(Clone)]
pub struct Progress {
    base: Base,
    spin: Arc<Spin>,
    /// The spin of waits that do not sleep.
    brief: Arc<Spin>,
}

impl Progress {
    /// The progress words of the ring in `range`.
    pub fn new(range: &Range) -> Result<Progress, RingError> {
        Ok(Progress {
            base: Base::new(range)?,
            spin: Arc::default(),
            brief: Arc::default(),
        })
    }

    /// Executor: the first `completed` commands are complete. Wakes waiters.
    pub fn publish(&self, completed: u64) {
        let header = self.base.header();
        // SYNC POINT: progress (pairs with `completed`)
        header.completed.store(completed, Ordering::Release);
        fence(Ordering::SeqCst);
        if header.progress_sleepers.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    /// Executor: command number `command` (from 1) failed and has no event. Must be called before
    /// the [`Progress::publish`] that covers it.
    pub fn fail(&self, command: u64, code: i32) {
        let header = self.base.header();
        header.failed_code.store(code, Ordering::Relaxed);
        header.failed_command.store(command, Ordering::Release);
    }

    /// Wakes all waiters, whether complete or not.
    pub fn wake(&self) {
        let header = self.base.header();
        header.progress_bell.fetch_add(1, Ordering::Release);
        futex_wake(&header.progress_bell, u32::MAX);
    }

    /// Number of complete commands.
    pub fn completed(&self) -> u64 {
        // SYNC POINT: progress (pairs with `publish`)
        self.base.header().completed.load(Ordering::Acquire)
    }

    /// The number and the error of the latest failed command.
    pub fn failure(&self) -> Option<(u64, i32)> {
        let header = self.base.header();
        let command = header.failed_command.load(Ordering::Acquire);
        let code = header.failed_code.load(Ordering::Relaxed);
        (command != 0).then_some((command, code))
    }

    /// Client: spins until `at_least` commands are complete, at most for `spin`; returns whether
    /// they are.
    pub fn wait_briefly(&self, at_least: u64, spin: Duration) -> bool {
        let reached = || self.completed() >= at_least;
        reached() || self.brief.until(spin, reached)
    }

    /// Client: waits until `at_least` commands are complete; `false` if `stop` was set first. Spins
    /// for `spin`, then sleeps.
    pub fn wait(
        &self,
        at_least: u64,
        spin: Duration,
        stop: &AtomicBool,
        waiting: &dyn Waiting,
    ) -> bool {
        if self.completed() >= at_least {
            return true;
        }
        let reached = || {
            waiting.look();
            self.completed() >= at_least
        };
        if self.spin.until(spin, reached) {
            return true;
        }
        waiting.sleeps();
        let header = self.base.header();
        header.progress_sleepers.fetch_add(1, Ordering::Relaxed);
        let sleeper = Sleeper::default();
        let reached = loop {
            let seen = header.progress_bell.load(Ordering::Acquire);
            fence(Ordering::SeqCst);
            if self.completed() >= at_least {
                break true;
            }
            if stop.load(Ordering::Acquire) {
                break false;
            }
            sleeper.sleep(&header.progress_bell, seen, Some(RECHECK));
        };
        header.progress_sleepers.fetch_sub(1, Ordering::Relaxed);
        waiting.woke();
        reached
    }
}
