//! Memory that the client shares.

use super::pinning::{Pin, PinnedMemory, Pinning};
use crate::account::Charge;
use crate::driver::Code;
use baltra_opencl::CL_INVALID_VALUE;
use baltra_ring::{Memory, Range};
use baltra_wire::Payload;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// One arena.
pub struct Arena {
    /// Let go of before the memory.
    pin: Arc<Pin>,
    memory: Memory,
    /// For mapping it a second time ([`super::svm`], [`super::moving`]); `None`: it is not the
    /// client's.
    pub fd: OwnedFd,
    /// Its offset in the arena.
    pub offset: u64,
    _charge: Charge,
}

impl Arena {
    /// Mapped, not pinned.
    pub fn new(memory: Memory, fd: OwnedFd, offset: u64, charge: Charge) -> Arena {
        Arena {
            pin: Arc::default(),
            memory,
            fd,
            offset,
            _charge: charge,
        }
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.memory.len()
    }

    /// The bytes that a payload names here.
    pub fn slice(&self, payload: Payload) -> Result<Range, Code> {
        let range = self.memory.slice(payload.offset, payload.len);
        range.ok_or(CL_INVALID_VALUE)
    }

    /// For a transfer of `bytes`: the pin, which the caller holds until the transfer is complete, if
    /// the device accesses the arena directly.
    pub fn pinned(&self, pinning: &Pinning, bytes: u64) -> Option<Arc<PinnedMemory>> {
        self.pin.hold(pinning, &self.memory, bytes)
    }
}
