//! Memory that the client shares.
//!
//! On a GPU an arena is pinned ([`super::pinning`]) by its first transfer; a large one once transfers
//! have moved half its size, because pinning costs about as much as it saves on one transfer of the
//! whole.

use super::pinning::{PinnedMemory, Pinning};
use crate::account::Charge;
use crate::driver::Code;
use baltra_opencl::CL_INVALID_VALUE;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::{Locked, Memory, Range};
use baltra_wire::Payload;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, LazyLock, Mutex};

/// Arenas up to this size are pinned at the first transfer, which takes up to 1.5 ms.
const AT_ONCE_BYTES: u64 = 16 << 20;

/// Drops what unmaps or unpins `bytes` in a separate thread if there are many of them: that takes
/// tens of milliseconds, too long for a command queue's thread.
pub fn let_go(gone: impl Send + 'static, bytes: u64) {
    type Gone = Box<dyn Send>;
    static GONE: LazyLock<Option<Mutex<Sender<Gone>>>> = LazyLock::new(|| {
        let (sender, gone) = channel::<Gone>();
        let thread = std::thread::Builder::new().name("arenas".into());
        let started = thread.spawn(move || gone.iter().for_each(drop));
        started.is_ok().then(|| Mutex::new(sender))
    });
    if bytes <= AT_ONCE_BYTES {
        return;
    }
    if let Some(sender) = &*GONE {
        let sender = sender.locked();
        // The thread lives as long as the process.
        let _ = sender.send(Box::new(gone));
    }
}

enum Pin {
    /// With the bytes that transfers have moved.
    Without(u64),
    /// With the time of the last transfer, ns.
    With(Arc<PinnedMemory>, u64),
}

/// One arena.
pub struct Arena {
    /// Let go of before the memory.
    pin: Mutex<Pin>,
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
            pin: Mutex::new(Pin::Without(0)),
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
    /// the device accesses the arena directly. Pins it when it is due; may wait for another thread's
    /// pinning.
    pub fn pinned(self: &Arc<Arena>, pinning: &Pinning, bytes: u64) -> Option<Arc<PinnedMemory>> {
        let mut pin = self.pin.locked();
        let moved = match &mut *pin {
            Pin::With(memory, used_ns) => {
                *used_ns = monotonic_ns();
                return Some(memory.clone());
            }
            Pin::Without(moved) => moved,
        };
        *moved = moved.saturating_add(bytes);
        if self.len() > AT_ONCE_BYTES && *moved < self.len() / 2 {
            return None;
        }
        let all = self.memory.slice(0, self.len())?;
        let memory = pinning.pin(all, self)?;
        *pin = Pin::With(memory.clone(), monotonic_ns());
        Some(memory)
    }

    /// Gives up the pin unless a transfer has used it since `since_ns`. Transfers in flight still
    /// hold it.
    pub fn unpin(&self, since_ns: u64) -> Option<Arc<PinnedMemory>> {
        let mut pin = self.pin.locked();
        match &*pin {
            Pin::With(_, used_ns) if *used_ns <= since_ns => {}
            _ => return None,
        }
        match std::mem::replace(&mut *pin, Pin::Without(0)) {
            Pin::With(memory, _) => Some(memory),
            Pin::Without(_) => None,
        }
    }
}
