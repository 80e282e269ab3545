//! Stopping a session at a task boundary, so that another executor can continue it.
//!
//! Stopped means: the control thread waits, the builder has answered every request, each queue has
//! ended the commands that it had handed to the driver and its thread has ended, and notices are
//! kept. Nothing accesses the client's memory then.

use super::queue::{QueueHandle, Worker};
use super::Session;
use baltra_ring::{Locked, Unpoisoned};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Polling interval for conditions without a notification.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// Whether a session is stopped.
#[derive(Default)]
pub struct Freeze {
    is_frozen: AtomicBool,
    /// Whether the control thread waits in [`Freeze::wait`].
    waits: Mutex<bool>,
    changed: Condvar,
}

impl Freeze {
    /// Of a session that has not started, if `is_frozen`.
    pub fn new(is_frozen: bool) -> Freeze {
        Freeze {
            is_frozen: is_frozen.into(),
            ..Freeze::default()
        }
    }

    /// Whether the session stops or is stopped.
    pub fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::SeqCst)
    }

    fn set(&self, frozen: bool) {
        self.is_frozen.store(frozen, Ordering::SeqCst);
        self.stir();
    }

    /// Has the control thread look at its condition again.
    pub fn stir(&self) {
        drop(self.waits.locked());
        self.changed.notify_all();
    }

    /// Of the control thread: waits while the session is stopped; false: it is not.
    pub fn wait(&self, stop: impl Fn() -> bool) -> bool {
        let mut waits = self.waits.locked();
        if !self.is_frozen() {
            return false;
        }
        *waits = true;
        while self.is_frozen() && !stop() {
            waits = self.changed.wait(waits).unpoisoned();
        }
        *waits = false;
        true
    }

    fn control_waits(&self) -> bool {
        *self.waits.locked()
    }
}

/// When a stop is given up.
#[derive(Clone, Copy)]
struct Limit {
    at: Instant,
    max: Duration,
}

impl Limit {
    fn passed(self, what: &str) -> String {
        let ms = self.max.as_millis();
        format!("{what} longer than the {ms} ms that a move may wait (--wait-ms)")
    }
}

/// A session that is stopped, with its queues.
pub struct Frozen {
    /// The session.
    pub session: Arc<Session>,
    /// The queues that have not ended.
    pub workers: Vec<(Arc<QueueHandle>, Worker)>,
}

impl Frozen {
    /// Stops a session; after `max` it continues, with the reason.
    pub fn stop(session: &Arc<Session>, max: Duration) -> Result<Frozen, String> {
        let mut frozen = Frozen {
            session: session.clone(),
            workers: Vec::new(),
        };
        let limit = Limit {
            at: Instant::now() + max,
            max,
        };
        match frozen.stop_all(limit) {
            Ok(()) => Ok(frozen),
            Err(reason) => {
                frozen.resume();
                Err(reason)
            }
        }
    }

    fn stop_all(&mut self, limit: Limit) -> Result<(), String> {
        let session = self.session.clone();
        // A build that runs is waited for while commands still do.
        self.until(limit, "a build takes", || session.builder.is_idle())?;
        session.freeze.set(true);
        session.control_waker.wake();
        session.board.stir();
        self.until(limit, "a request takes", || session.freeze.control_waits())?;
        let queues = session.queues.locked().clone();
        // All of them before the first is waited for: they may wait for each other's events.
        for queue in &queues {
            queue.wake();
        }
        for queue in queues {
            let worker = queue.take_worker(limit.at);
            let worker = worker.map_err(|_| limit.passed("a command runs for"))?;
            if let Some(worker) = worker {
                self.workers.push((queue, worker));
            }
        }
        self.until(limit, "a build takes", || session.builder.is_idle())?;
        session.release_due();
        session.notices.stop();
        let read = || session.notices.stopped().is_some();
        self.until(limit, "the program, which reads no notices, takes", read)?;
        self.check()
    }

    /// Waits for a condition.
    fn until(&self, limit: Limit, what: &str, condition: impl Fn() -> bool) -> Result<(), String> {
        while !condition() {
            self.check()?;
            if Instant::now() >= limit.at {
                return Err(limit.passed(what));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Whether the session is still to continue somewhere.
    pub fn check(&self) -> Result<(), String> {
        if self.session.is_closed() {
            return Err("the session has ended".into());
        }
        if self.session.shared.health.is_lost() {
            return Err("the driver's context was lost".into());
        }
        Ok(())
    }

    /// Continues here.
    pub fn resume(self) {
        let Frozen { session, workers } = self;
        session.inbox.start();
        session.freeze.set(false);
        session.notices.start();
        for (queue, worker) in workers {
            if !queue.return_worker(worker) {
                session.starve();
            }
        }
        // One whose command took longer than the stop may have parked since.
        let queues = session.queues.locked().clone();
        for queue in queues {
            if !queue.resume() {
                session.starve();
            }
        }
        // A queue may have been asked to run meanwhile.
        session.starve();
        session.control_waker.wake();
        if session.is_closed() {
            session.freeze.stir();
        }
    }

    /// Ends the session here without a trace, because it continues elsewhere.
    pub fn forget(self) {
        let Frozen { session, workers } = self;
        for (_, mut worker) in workers {
            worker.hide();
        }
        session.forget();
    }
}
