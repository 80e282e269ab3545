//! Which handles of memory objects and samplers are alive.
//!
//! Only asked where a kernel's argument may be a handle or a number, because the driver does not
//! say what it takes: a number must not be followed as if it were a pointer.

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

    /// A handle whose object ends.
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
    fn test_only_live_handles_are_known() {
        let handles = Handles::default();
        handles.add(0x7000);
        assert!(handles.has(0x7000) && !handles.has(0x7008));
        handles.remove(0x7000);
        assert!(!handles.has(0x7000));
    }
}
