//! Shared virtual memory: the addresses that a session may use.

use super::residence::Fixed;
use super::{Session, Violation};
use crate::account::Charge;
use crate::driver::{self, Code};
use baltra_opencl::*;
use baltra_ring::{Locked, Memory, Unpoisoned};
use baltra_wire::{Payload, Reply};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Owner of an allocation's memory.
enum Owner {
    /// A second mapping of an arena, at the client's address.
    Mapped(#[allow(dead_code, reason = "held for its mapping")] Memory),
    /// The driver's own.
    Driver(Arc<driver::Context>),
}

struct Allocation {
    len: u64,
    owner: Owner,
    _charge: Option<Charge>,
    /// It takes memory of the device that nothing else can have.
    _fixed: Option<Fixed>,
}

/// A session's shared virtual memory.
#[derive(Default)]
pub struct Svm {
    allocations: BTreeMap<u64, Allocation>,
}

impl Svm {
    /// Whether `len` bytes at `address` lie in one allocation.
    pub fn contains(&self, address: u64, len: u64) -> bool {
        let Some((start, allocation)) = self.allocations.range(..=address).next_back() else {
            return false;
        };
        let offset = address - start;
        offset <= allocation.len && len <= allocation.len - offset
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.allocations.is_empty()
    }

    fn free(&mut self, address: u64) {
        let Some(allocation) = self.allocations.remove(&address) else {
            return;
        };
        if let Owner::Driver(context) = &allocation.owner {
            // SAFETY: the address is this allocation's, removed above, and the caller has
            // waited for the commands that use it.
            unsafe { context.svm_free(address as *mut std::ffi::c_void) };
        }
    }

    /// Frees everything.
    pub fn clear(&mut self) {
        while let Some((address, _)) = self.allocations.first_key_value() {
            let address = *address;
            self.free(address);
        }
    }
}

impl Session {
    /// [`baltra_wire::Request::SvmMap`]
    pub(super) fn svm_map(&self, address: u64, payload: Payload) -> Result<Reply, Code> {
        let arenas = self.arenas.read().unpoisoned();
        let arena = arenas.get(&payload.arena).ok_or(CL_INVALID_VALUE)?;
        if payload.offset != 0 || payload.len > arena.len() {
            return Err(CL_INVALID_VALUE);
        }
        let fd = &arena.fd;
        let mapped = Memory::map_at(fd, arena.offset, payload.len, address as usize)
            .map_err(|_| CL_MEM_OBJECT_ALLOCATION_FAILURE)?;
        drop(arenas);
        let mut svm = self.svm.locked();
        svm.allocations.insert(
            address,
            Allocation {
                len: payload.len,
                owner: Owner::Mapped(mapped),
                _charge: None,
                _fixed: None,
            },
        );
        Ok(Reply::Done)
    }

    /// [`baltra_wire::Request::SvmAlloc`]
    pub(super) fn svm_alloc(
        &self,
        context: u32,
        flags: u64,
        len: u64,
        alignment: u32,
    ) -> Result<Reply, Code> {
        let context = self.objects.context(context)?.context.clone();
        let charge = self.account.charge(len);
        let charge = charge.ok_or(CL_MEM_OBJECT_ALLOCATION_FAILURE)?;
        let make = || context.svm_alloc(flags, len as usize, alignment);
        let address = self.allocate(make)? as u64;
        let mut svm = self.svm.locked();
        svm.allocations.insert(
            address,
            Allocation {
                len,
                owner: Owner::Driver(context),
                _charge: Some(charge),
                _fixed: self.shared.residence.as_ref().map(|r| r.fix(len)),
            },
        );
        Ok(Reply::Bytes(address.to_ne_bytes().to_vec()))
    }

    /// Frees an allocation that no command uses any more.
    pub(super) fn svm_free(&self, address: u64) {
        self.svm.locked().free(address);
    }

    /// Checks a range that a command names.
    pub(super) fn svm_range(&self, address: u64, len: u64) -> Result<*mut u8, Code> {
        let svm = self.svm.locked();
        if svm.contains(address, len) {
            Ok(address as *mut u8)
        } else {
            Err(CL_INVALID_VALUE)
        }
    }
}

/// A message that makes no sense, from its decoder.
impl From<baltra_wire::CodecError> for Violation {
    fn from(e: baltra_wire::CodecError) -> Violation {
        Violation::new(e.to_string())
    }
}

impl From<baltra_ring::RingError> for Violation {
    fn from(e: baltra_ring::RingError) -> Violation {
        Violation::new(e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_outside_the_allocations_are_refused() {
        let mut svm = Svm::default();
        let memory = Memory::anonymous(4096).unwrap();
        svm.allocations.insert(
            0x10_000,
            Allocation {
                len: 4096,
                owner: Owner::Mapped(memory),
                _charge: None,
                _fixed: None,
            },
        );
        assert!(svm.contains(0x10_000, 4096));
        assert!(svm.contains(0x10_fff, 1));
        assert!(!svm.contains(0x10_001, 4096));
        assert!(!svm.contains(0xffff, 1));
        assert!(!svm.contains(u64::MAX, u64::MAX));
        svm.free(0x10_000);
        assert!(!svm.contains(0x10_000, 1));
    }
}
