//! Cancels work that a device of the executor's own carries out on the calling thread.
//!
//! A vendor's driver runs commands on its device, and only the end of the process stops one that
//! does not end. The executor's own devices run them on the thread that enqueues them, and check here
//! whether its session still needs the result.

use std::cell::RefCell;
use std::sync::Arc;

/// Whether the work is no longer needed.
pub type Check = Arc<dyn Fn() -> bool + Send + Sync>;

thread_local! {
    static CHECK: RefCell<Option<Check>> = const { RefCell::new(None) };
}

/// Work of this thread may be cancelled from now on.
pub fn set(check: Check) {
    CHECK.set(Some(check));
}

/// The check that cancels this thread's work, for another thread that carries it out.
pub fn check() -> Option<Check> {
    CHECK.with_borrow(Clone::clone)
}

/// Whether this thread's work is no longer needed.
pub fn is_requested() -> bool {
    check().is_some_and(|check| check())
}
