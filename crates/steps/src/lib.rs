//! Steps: a command's part on the host, which follows its part on the device.
//!
//! A command with a step has an event, and the event owns the command's slot. The step list, the
//! call that enqueued the command and the application each hold the event: a slot is freed only
//! once none of them can read it. A thread that is about to report a command as complete first runs
//! its step, or finds that it has been run.

#![forbid(unsafe_code)]

#[cfg(loom)]
use loom::sync::{
    atomic::{AtomicUsize, Ordering},
    Mutex,
};
use std::collections::VecDeque;
#[cfg(not(loom))]
use std::sync::{
    atomic::{AtomicUsize, Ordering},
    Mutex,
};

/// Enqueueing checks for finished steps once this many are kept.
const STEPS_MANY: usize = 64;

/// A command's part on the host; the argument is whether the device's part succeeded.
pub type Step = Box<dyn FnOnce(bool) + Send>;

/// A command's part on the device, which keeps its slot.
pub trait DevicePart: Clone {
    /// The status: `CL_QUEUED` … `CL_COMPLETE`, or an error.
    fn status(&self) -> i32;
    /// Blocks until the part is complete or has failed; returns its status. Must not wait for a
    /// thread that runs steps.
    fn wait(&self) -> i32;
}

struct Kept<C> {
    number: u64,
    command: C,
    run: Step,
}

/// The steps of one queue, by their commands' numbers.
pub struct Steps<C> {
    in_order: bool,
    list: Mutex<VecDeque<Kept<C>>>,
    count: AtomicUsize,
}

impl<C: DevicePart> Steps<C> {
    /// The steps of an in-order or an out-of-order queue.
    pub fn new(in_order: bool) -> Steps<C> {
        Steps {
            in_order,
            list: Mutex::new(VecDeque::new()),
            count: AtomicUsize::new(0),
        }
    }

    /// Whether all steps have been run.
    pub fn is_empty(&self) -> bool {
        // SYNC POINT: steps (pairs with `run`)
        self.count.load(Ordering::Acquire) == 0
    }

    /// Stores a command's step. Threads that enqueue concurrently may call it in another order than
    /// that of their commands.
    pub fn keep(&self, number: u64, command: C, run: Step) {
        let mut list = self.list.lock().expect("no step panics");
        let at = list.iter().rposition(|kept| kept.number < number);
        let kept = Kept {
            number,
            command,
            run,
        };
        list.insert(at.map_or(0, |at| at + 1), kept);
        self.count.store(list.len(), Ordering::Release);
        let many = list.len() >= STEPS_MANY;
        drop(list);
        if many {
            self.run(0);
        }
    }

    /// Number of the first command with a step.
    pub fn first(&self) -> Option<u64> {
        let list = self.list.lock().expect("no step panics");
        list.front().map(|kept| kept.number)
    }

    /// Runs the steps whose commands are complete on the device, and, in an in-order queue, those
    /// up to `number`, which the caller has found to be complete. Steps run under the lock: a step
    /// that is no longer in the list has been run.
    pub fn run(&self, number: u64) {
        if self.is_empty() {
            return;
        }
        // Commands are dropped outside the lock: the last reference to one may also be the queue's
        // last.
        let mut ended = Vec::new();
        let mut list = self.list.lock().expect("no step panics");
        let mut at = 0;
        while at < list.len() {
            let status = list[at].command.status();
            if status > 0 && self.in_order && list[at].number <= number {
                let late = list[at].command.clone();
                drop(list);
                late.wait();
                ended.push(late);
                list = self.list.lock().expect("no step panics");
                at = 0;
                continue;
            }
            if status > 0 {
                if self.in_order {
                    break;
                }
                at += 1;
                continue;
            }
            if let Some(kept) = list.remove(at) {
                (kept.run)(status == 0);
                ended.push(kept.command);
            }
            // SYNC POINT: steps (pairs with `is_empty`)
            self.count.store(list.len(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
