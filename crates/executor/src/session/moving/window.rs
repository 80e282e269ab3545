//! The window through which contents come: memory that both executors share, and that each pins for
//! its own device if the driver profits from that. It is small whatever the session has, so that
//! populating, pinning and unmapping it costs the same for every session.

use super::super::pinning::{PinnedMemory, Pinning};
use super::super::residence::Transfers;
use crate::host::available_bytes;
use crate::shared::Shared;
use baltra_ring::{Memory, Range};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Maximum size, unless a slice of an image is larger.
const BYTES_MAX: u64 = 128 << 20;
/// Minimum size.
const BYTES_MIN: u64 = 64 << 10;
/// Parts begin at multiples of this.
const ALIGNMENT: u64 = 64;
/// The host keeps as much as this beside the window.
const SPARE_BYTES: u64 = 64 << 20;

/// Memory that two executors share during a move.
pub struct Window {
    memory: Memory,
    /// Bytes.
    pub len: u64,
    _pinned: Option<Arc<PinnedMemory>>,
}

impl Window {
    /// For a session whose contents have `contents` bytes, and the largest slice `slice`; the source
    /// makes it and sends the descriptor.
    pub fn create(
        pinning: Option<&Pinning>,
        contents: u64,
        slice: u64,
    ) -> Result<(Window, OwnedFd), String> {
        let len = window_bytes(contents, slice);
        check_host(len, available_bytes())?;
        let made = Memory::create("baltra-move", len);
        let (memory, fd) = made.map_err(|e| format!("no host memory for {len} bytes: {e}"))?;
        memory.populate();
        Ok((Window::new(pinning, memory, len), fd))
    }

    /// The source's window at the target.
    pub fn map(pinning: Option<&Pinning>, fd: &OwnedFd, len: u64) -> Result<Window, String> {
        let memory = Memory::map(fd, len).map_err(|e| format!("cannot map the window: {e}"))?;
        Ok(Window::new(pinning, memory, len))
    }

    fn new(pinning: Option<&Pinning>, memory: Memory, len: u64) -> Window {
        let pin = |all| pinning?.pin_range(all);
        let pinned = memory.slice(0, len).and_then(pin);
        Window {
            memory,
            len,
            _pinned: pinned,
        }
    }

    /// A part of it; `None`: outside.
    pub fn slice(&self, offset: u64, len: u64) -> Option<Range> {
        self.memory.slice(offset, len)
    }
}

/// Copies through a queue of their own.
pub fn transfers(shared: &Shared) -> Result<Transfers, String> {
    let queue = shared.context.queue(shared.device, 0);
    let queue = queue.map_err(|code| format!("no queue for copies (error {code})"))?;
    Ok(Transfers::new(&Arc::new(queue)))
}

fn window_bytes(contents: u64, slice: u64) -> u64 {
    let bytes = contents.clamp(BYTES_MIN, BYTES_MAX).max(slice);
    bytes.next_multiple_of(BYTES_MIN)
}

/// Refuses a window that the host has no memory for: populating it could end other processes.
fn check_host(len: u64, available: Option<u64>) -> Result<(), String> {
    match available {
        Some(bytes) if bytes < len.saturating_add(SPARE_BYTES) => Err(format!(
            "the move needs {len} bytes of host memory, and {bytes} are available, of which \
             {SPARE_BYTES} stay free (end other programs, or raise executors.memory_bytes)"
        )),
        _ => Ok(()),
    }
}

/// The bytes of a window that are in use: those between two positions that only grow.
pub struct WindowUse {
    len: u64,
    /// End of the newest part.
    head: u64,
    /// Begin of the oldest part in use.
    tail: u64,
}

impl WindowUse {
    /// Of a window without parts.
    pub fn new(len: u64) -> WindowUse {
        WindowUse {
            len,
            head: 0,
            tail: 0,
        }
    }

    /// A place for `bytes` in one piece; `None`: parts in use are in the way.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
        }
        let at = self.head % self.len;
        let skipped = if at + bytes > self.len {
            self.len - at
        } else {
            0
        };
        let end = (self.head + skipped + bytes).next_multiple_of(ALIGNMENT);
        if end - self.tail > self.len {
            return None;
        }
        let offset = (self.head + skipped) % self.len;
        self.head = end;
        Some(offset)
    }

    /// The position behind all parts.
    pub fn end(&self) -> u64 {
        self.head
    }

    /// Frees all parts before a position that [`WindowUse::end`] gave.
    pub fn free(&mut self, end: u64) {
        self.tail = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn a_window_is_small_unless_a_slice_is_large() {
        assert_eq!(window_bytes(1, 1), BYTES_MIN);
        assert_eq!(window_bytes(10 << 30, 1 << 20), BYTES_MAX);
        assert_eq!(window_bytes(10 << 30, 1 << 30), 1 << 30);
    }

    #[test]
    fn a_window_that_the_host_has_no_memory_for_is_refused() {
        assert!(check_host(BYTES_MAX, None).is_ok());
        assert!(check_host(BYTES_MAX, Some(BYTES_MAX + SPARE_BYTES)).is_ok());
        let error = check_host(BYTES_MAX, Some(BYTES_MAX)).unwrap_err();
        assert!(error.contains("134217728 bytes of host memory"), "{error}");
        assert!(check_host(u64::MAX, Some(1 << 40)).is_err());
    }

    #[test]
    fn parts_in_use_never_overlap() {
        const LEN: u64 = 4096;
        for seed in 0..100u64 {
            let mut state = seed;
            let mut below = |n: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) % n
            };
            let mut places = WindowUse::new(LEN);
            let mut used: VecDeque<(u64, u64, u64)> = VecDeque::new();
            for _ in 0..300 {
                let bytes = 1 + below(LEN);
                match places.take(bytes) {
                    Some(offset) => {
                        assert!(offset + bytes <= LEN, "seed {seed}");
                        let meets =
                            |u: &(u64, u64, u64)| offset < u.0 + u.1 && u.0 < offset + bytes;
                        assert!(!used.iter().any(meets), "seed {seed}");
                        used.push_back((offset, bytes, places.end()));
                    }
                    None => {
                        let oldest = used.pop_front();
                        let oldest = oldest.expect("an empty window has room for every part");
                        places.free(oldest.2);
                    }
                }
            }
        }
    }
}
