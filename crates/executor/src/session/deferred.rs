//! Releases that wait until the queues have processed earlier commands.

use super::queue::QueueHandle;
use super::Arena;
use baltra_ring::Locked;
use baltra_wire::moves::Release;
use baltra_wire::Id;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The target of a release.
pub enum ReleaseTarget {
    /// An object, and whether to notify the client once the driver has released it.
    Object(Id, bool),
    /// An arena, which no later command finds.
    Arena(Arc<Arena>),
    /// Shared virtual memory.
    Svm(u64),
}

/// The progress of queues that a release waits for.
pub enum After {
    /// Commands submitted to the driver, which retains the objects that they use.
    Submitted(Vec<(Arc<QueueHandle>, u64)>),
    /// Commands completed, because the memory itself is freed.
    Completed(Vec<(Arc<QueueHandle>, u64)>),
}

impl After {
    fn is_over(&self) -> bool {
        match self {
            After::Submitted(queues) => queues.iter().all(|(q, n)| q.submitted() >= *n),
            After::Completed(queues) => queues.iter().all(|(q, n)| q.completed() >= *n),
        }
    }
}

/// The releases that wait.
#[derive(Default)]
pub struct Deferred {
    waiting: Mutex<Vec<(ReleaseTarget, After)>>,
    count: AtomicUsize,
}

impl Deferred {
    /// Defers a release. The caller checks [`Deferred::due`] afterwards, because the queues may
    /// have reached the condition already.
    pub fn add(&self, target: ReleaseTarget, after: After) {
        let mut waiting = self.waiting.locked();
        waiting.push((target, after));
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    /// The releases of objects that wait for commands of these queues to be submitted. Arenas and
    /// shared virtual memory are not among them.
    pub fn objects(&self) -> Vec<Release> {
        let waiting = self.waiting.locked();
        let objects = waiting.iter().filter_map(|(target, after)| {
            let (ReleaseTarget::Object(id, notify), After::Submitted(after)) = (target, after)
            else {
                return None;
            };
            Some(Release {
                id: *id,
                notify: *notify,
                after: after.iter().map(|(queue, n)| (queue.id, *n)).collect(),
            })
        });
        objects.collect()
    }

    /// Releases whose condition holds; cheap if none is pending. A queue's thread checks after each
    /// batch and before it sleeps, so that no release is missed.
    pub fn due(&self) -> Vec<ReleaseTarget> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let mut waiting = self.waiting.locked();
        let mut due = Vec::new();
        let mut at = 0;
        while at < waiting.len() {
            if waiting[at].1.is_over() {
                due.push(waiting.swap_remove(at).0);
            } else {
                at += 1;
            }
        }
        self.count.store(waiting.len(), Ordering::SeqCst);
        due
    }
}
