//! Output that kernels print, on its way to the client.

use baltra_ring::{Locked, Progress, Range, RingError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread::ThreadId;

/// Output printed by kernels arrives as notices before the command's completion, but over another
/// path: after its wait, a thread waits for the announced notices.
pub(super) struct Printing {
    /// In the notice ring's header: number of notices of printed text.
    pub announced: Progress,
    /// Number of these notices that have been handled.
    handled: AtomicU64,
    /// The thread that handles notices.
    pub thread: Mutex<Option<ThreadId>>,
    pub changed: Condvar,
}

impl Printing {
    /// For the notice ring.
    pub fn new(ring: &Range) -> Result<Printing, RingError> {
        Ok(Printing {
            announced: Progress::new(ring)?,
            handled: AtomicU64::new(0),
            thread: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Whether some of the announced notices have not been handled.
    pub fn is_behind(&self, announced: u64) -> bool {
        self.handled.load(Ordering::Acquire) < announced
    }

    /// One more has been handled.
    pub fn count(&self) {
        let thread = self.thread.locked();
        self.handled.fetch_add(1, Ordering::Release);
        drop(thread);
        self.changed.notify_all();
    }
}
