//! Memory that the client shares.
//!
//! On a GPU an arena is pinned ([`crate::driver::Pinned`]) when the first transfer from or to it
//! comes, a large one when the second does: pinning costs about what it saves on one transfer of
//! the whole, and blocks that are used once are the large ones.

use crate::account::Charge;
use crate::driver::{Code, Pinned};
use crate::Shared;
use baltra_opencl::CL_INVALID_VALUE;
use baltra_ring::{Memory, Range};
use baltra_wire::Payload;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

/// Arenas up to so many bytes are pinned at the first transfer: 1.5 ms.
const AT_ONCE_BYTES: u64 = 16 << 20;

/// One arena.
pub struct Arena {
    /// Let go of before the memory.
    pin: OnceLock<Option<Pinned>>,
    used: AtomicBool,
    memory: Memory,
    /// For mapping it a second time, at an address ([`super::svm`]).
    pub fd: OwnedFd,
    /// Where it begins in there.
    pub offset: u64,
    _charge: Charge,
}

impl Arena {
    /// Mapped, not pinned.
    pub fn new(memory: Memory, fd: OwnedFd, offset: u64, charge: Charge) -> Arena {
        Arena {
            pin: OnceLock::new(),
            used: false.into(),
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

    /// Whether the device reaches it by itself; pins it when it is time to. Asked once a
    /// transfer, which may wait for another thread's pinning.
    pub fn is_pinned(&self, shared: &Shared) -> bool {
        let Some(queue) = &shared.pinning else {
            return false;
        };
        if let Some(pin) = self.pin.get() {
            return pin.is_some();
        }
        if self.len() > AT_ONCE_BYTES && !self.used.swap(true, Ordering::Relaxed) {
            return false;
        }
        let pin = || {
            let all = self.memory.slice(0, self.memory.len())?;
            Pinned::new(&shared.context, queue, all).ok()
        };
        self.pin.get_or_init(pin).is_some()
    }
}
