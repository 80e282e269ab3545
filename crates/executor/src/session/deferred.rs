//! Releases that have to wait until the queues have got past the commands that came before.

use super::queue::QueueHandle;
use super::Arena;
use baltra_wire::Id;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What is to be released.
pub enum What {
    /// An object, and whether to say when the driver has let go of it.
    Object(Id, bool),
    /// An arena, which no later command finds.
    Arena(Arc<Arena>),
    /// Shared virtual memory.
    Svm(u64),
}

/// How far the queues have to be.
pub enum After {
    /// So many commands handed to the driver: it keeps what its commands use.
    Submitted(Vec<(Arc<QueueHandle>, u64)>),
    /// So many commands complete: the memory itself is given up.
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
    waiting: Mutex<Vec<(What, After)>>,
    count: AtomicUsize,
}

impl Deferred {
    /// Defers a release. The caller asks for what is [`Deferred::due`] afterwards: the queues may
    /// have got there already.
    pub fn add(&self, what: What, after: After) {
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        waiting.push((what, after));
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    /// What waits for nothing any more; cheap where nothing waits. A queue thread asks after
    /// each batch and before it sleeps, so that no release is left behind.
    pub fn due(&self) -> Vec<What> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
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
