//! Locks under which nothing panics.

use std::sync::{LockResult, Mutex, MutexGuard};

/// Takes a lock under which nothing panics, so that no thread leaves the value half-changed.
pub trait Locked<T: ?Sized> {
    /// Waits for the lock.
    fn locked(&self) -> MutexGuard<'_, T>;
}

impl<T: ?Sized> Locked<T> for Mutex<T> {
    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().unpoisoned()
    }
}

/// The result of a lock under which nothing panics: of a reader, of a writer, after a wait.
pub trait Unpoisoned<T> {
    /// The guard.
    fn unpoisoned(self) -> T;
}

impl<T> Unpoisoned<T> for LockResult<T> {
    fn unpoisoned(self) -> T {
        self.expect("no panic under this lock")
    }
}
