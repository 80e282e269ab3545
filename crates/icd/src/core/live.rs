//! The set of live handles of memory objects and samplers.
//!
//! Only used where a kernel's argument may be a handle or a number, because the driver does not
//! report its kind: a number must not be dereferenced as a pointer.

use std::collections::BTreeSet;
use std::sync::RwLock;

/// Handles of one kind.
#[derive(Default)]
pub struct Handles(RwLock<BTreeSet<usize>>);

impl Handles {
    /// A handle that is given to the application.
    pub fn add(&self, handle: usize) {
        self.0.write().expect("no panic under it").insert(handle);
    }

    /// Removes the handle of an object that is being freed.
    pub fn remove(&self, handle: usize) {
        self.0.write().expect("no panic under it").remove(&handle);
    }

    /// Whether it is one.
    pub fn has(&self, handle: usize) -> bool {
        self.0.read().expect("no panic under it").contains(&handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_live_handles_are_known() {
        let handles = Handles::default();
        handles.add(0x7000);
        assert!(handles.has(0x7000) && !handles.has(0x7008));
        handles.remove(0x7000);
        assert!(!handles.has(0x7000));
    }
}
