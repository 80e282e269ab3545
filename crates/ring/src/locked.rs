//! Locks under which nothing panics.

use std::sync::{Mutex, MutexGuard};

/// Takes a lock under which nothing panics, so that no thread leaves the value half-changed.
pub trait Locked<T: ?Sized> {
    /// Waits for the lock.
    fn locked(&self) -> MutexGuard<'_, T>;
}

impl<T: ?Sized> Locked<T> for Mutex<T> {
    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().expect("no panic under this lock")
    }
}
