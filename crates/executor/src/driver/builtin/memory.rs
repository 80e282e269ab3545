//! Device memory: one mapping, and the pieces of it that buffers occupy.

use baltra_ring::{Locked, Memory, Range};
use std::io;
use std::sync::{Arc, Mutex, OnceLock};

/// Alignment of buffers: the size of the largest data type, `long16`.
pub const ALIGNMENT: u64 = 128;
/// Pieces occupy multiples of it, which a board copies at once.
pub const UNIT: u64 = 256;
/// Unit in which memory is returned to the system.
const PAGE_BYTES: usize = 4096;

/// Allocated parts of the memory, in the order of their offsets.
struct Space {
    bytes: u64,
    taken: Vec<(u64, u64)>,
}

impl Space {
    fn new(bytes: u64) -> Space {
        Space {
            bytes,
            taken: Vec::new(),
        }
    }

    /// The first gap that is large enough.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(UNIT)?;
        let mut at = 0;
        let mut place = self.taken.len();
        for (index, (start, length)) in self.taken.iter().enumerate() {
            if start - at >= bytes {
                place = index;
                break;
            }
            at = start + length;
        }
        if at.checked_add(bytes)? > self.bytes {
            return None;
        }
        self.taken.insert(place, (at, bytes));
        Some(at)
    }

    fn give_back(&mut self, at: u64) {
        if let Ok(index) = self.taken.binary_search_by_key(&at, |piece| piece.0) {
            self.taken.remove(index);
        }
    }
}

struct Shared {
    range: Range,
    /// Of this process alone: a page that is given back to the system is zero when it returns.
    is_private: bool,
    space: Mutex<Space>,
}

/// A device's memory. A clone is the same memory.
#[derive(Clone)]
pub struct DeviceMemory(Arc<Shared>);

impl DeviceMemory {
    /// Memory that another process maps, too.
    pub fn shared(range: Range) -> DeviceMemory {
        DeviceMemory::new(range, false)
    }

    /// Memory of this process. Its pages are populated on first use.
    pub fn private(bytes: u64) -> io::Result<DeviceMemory> {
        let range = Memory::anonymous(bytes)?.slice(0, bytes);
        Ok(DeviceMemory::new(
            range.expect("the mapping has that many bytes"),
            true,
        ))
    }

    fn new(range: Range, is_private: bool) -> DeviceMemory {
        let space = Mutex::new(Space::new(range.len() as u64));
        DeviceMemory(Arc::new(Shared {
            range,
            is_private,
            space,
        }))
    }

    /// A zeroed piece: what an earlier user left there is gone. `None`: no gap is large enough.
    pub fn take(&self, bytes: u64) -> Option<Piece> {
        let mut space = self.0.space.locked();
        let offset = space.take(bytes)?;
        drop(space);
        let range = self.0.range.slice(offset, bytes);
        let range = range.expect("the piece lies in the memory");
        if !self.0.is_private {
            range.zero();
        }
        Some(Piece {
            memory: self.clone(),
            offset,
            range,
            twin: OnceLock::new(),
        })
    }
}

/// A second place of a piece's bytes, which kernels use.
pub trait Twin: Send + Sync {
    /// Brings the piece's bytes up to date. `is_written`: they may change afterwards, so that the
    /// twin's are outdated. Whether it succeeded.
    fn fetch(&self, is_written: bool) -> bool;

    /// For downcasts.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// A piece of device memory, freed when it is dropped.
pub struct Piece {
    memory: DeviceMemory,
    /// Its place in the memory.
    pub offset: u64,
    /// Its bytes.
    pub range: Range,
    /// Its second place, once it has one.
    pub twin: OnceLock<Box<dyn Twin>>,
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.memory.0.is_private {
            clear(&self.range);
        }
        let mut space = self.memory.0.space.locked();
        space.give_back(self.offset);
    }
}

/// Zeros private memory: whole pages are given back to the system, the rest is written.
fn clear(range: &Range) {
    let (start, end) = (range.ptr() as usize, range.ptr() as usize + range.len());
    let (first, last) = (
        start.next_multiple_of(PAGE_BYTES),
        end / PAGE_BYTES * PAGE_BYTES,
    );
    if first >= last {
        range.zero();
        return;
    }
    // SAFETY: whole pages of the range, which is private anonymous memory and has no other user.
    let given = unsafe { libc::madvise(first as *mut _, last - first, libc::MADV_DONTNEED) };
    if given != 0 {
        range.zero();
        return;
    }
    let edge = |from: usize, to: usize| {
        let part = range.slice((from - start) as u64, (to - from) as u64);
        part.expect("an edge lies in its range").zero();
    };
    edge(start, first);
    edge(last, end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_never_overlap_and_gaps_are_used_again() {
        let mut space = Space::new(10 * UNIT);
        let places: Vec<u64> = (0..5).map(|_| space.take(2 * UNIT - 1).unwrap()).collect();
        assert_eq!(places, [0, 2, 4, 6, 8].map(|n| n * UNIT));
        assert_eq!(space.take(1), None);
        space.give_back(places[1]);
        space.give_back(places[2]);
        assert_eq!(space.take(4 * UNIT), Some(places[1]));
        space.give_back(places[0]);
        assert_eq!(space.take(3 * UNIT), None);
        assert_eq!(space.take(0), Some(0));
        assert_eq!(space.take(u64::MAX), None);
    }

    #[test]
    fn a_piece_does_not_hold_an_earlier_users_bytes() {
        let bytes = 4 * PAGE_BYTES as u64;
        let shared = Memory::anonymous(bytes).unwrap().slice(0, bytes).unwrap();
        for memory in [
            DeviceMemory::private(bytes).unwrap(),
            DeviceMemory::shared(shared),
        ] {
            // Short, unaligned to pages, several pages.
            for (before, len) in [(64, 100), (64, 5000), (100, 2 * PAGE_BYTES + 77)] {
                let place = memory.take(before).unwrap();
                let piece = memory.take(len as u64).unwrap();
                piece.range.copy_in(0, &vec![0xA5; len]);
                let offset = piece.offset;
                drop(piece);
                let next = memory.take(len as u64).unwrap();
                assert_eq!(next.offset, offset);
                let mut content = vec![1; len];
                next.range.copy_out(0, &mut content);
                assert!(content.iter().all(|byte| *byte == 0), "{len} bytes");
                drop(place);
            }
        }
    }
}
