//! Memory that the client shares.
//!
//! On a GPU an arena is pinned ([`crate::driver::Pinned`]) by its first transfer; a large one once
//! transfers have moved half its size, because pinning costs about as much as it saves on one
//! transfer of the whole.

use crate::account::Charge;
use crate::driver::{Code, Pinned};
use crate::Shared;
use baltra_opencl::CL_INVALID_VALUE;
use baltra_ring::{Locked, Memory, Range};
use baltra_wire::Payload;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

/// Arenas up to this size are pinned at the first transfer, which takes up to 1.5 ms.
const AT_ONCE_BYTES: u64 = 16 << 20;

/// Unmaps an unused arena in a separate thread. For a large one that takes tens of milliseconds,
/// too long for a command queue's thread.
pub fn let_go(arena: Arc<Arena>) {
    static GONE: LazyLock<Option<Mutex<Sender<Arc<Arena>>>>> = LazyLock::new(|| {
        let (sender, gone) = channel();
        let thread = std::thread::Builder::new().name("arenas".into());
        let started = thread.spawn(move || gone.iter().for_each(drop));
        started.is_ok().then(|| Mutex::new(sender))
    });
    if arena.len() <= AT_ONCE_BYTES {
        return;
    }
    if let Some(sender) = &*GONE {
        let sender = sender.locked();
        // The thread lives as long as the process.
        let _ = sender.send(arena);
    }
}

/// One arena.
pub struct Arena {
    /// Let go of before the memory.
    pin: OnceLock<Option<Pinned>>,
    /// Bytes moved before it was pinned.
    moved: AtomicU64,
    memory: Memory,
    /// For mapping it a second time, at an address ([`super::svm`]).
    pub fd: OwnedFd,
    /// Its offset in the arena.
    pub offset: u64,
    _charge: Charge,
}

impl Arena {
    /// Mapped, not pinned.
    pub fn new(memory: Memory, fd: OwnedFd, offset: u64, charge: Charge) -> Arena {
        Arena {
            pin: OnceLock::new(),
            moved: 0.into(),
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

    /// Whether the device accesses it directly; pins it when it is due. Called once per transfer of
    /// `bytes`; may wait for another thread's pinning.
    pub fn is_pinned(&self, shared: &Shared, bytes: u64) -> bool {
        let Some(queue) = &shared.pinning else {
            return false;
        };
        if let Some(pin) = self.pin.get() {
            return pin.is_some();
        }
        let moved = self.moved.fetch_add(bytes, Ordering::Relaxed);
        if self.len() > AT_ONCE_BYTES && moved.saturating_add(bytes) < self.len() / 2 {
            return false;
        }
        let pin = || {
            let all = self.memory.slice(0, self.memory.len())?;
            Pinned::new(&shared.context, queue, all).ok()
        };
        self.pin.get_or_init(pin).is_some()
    }
}
