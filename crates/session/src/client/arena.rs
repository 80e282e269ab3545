//! The client's arenas: shared memory that both ends map, and blocks of it.
//!
//! Small blocks share arenas of [`ARENA_BYTES`]; a large block has its own arena, whose pages are
//! returned to the system when it is dropped, except for a small stock that saves later transfers
//! the page faults.

use super::{Lost, Shared};
use baltra_ring::{Locked, Memory, Range, SEGMENT_BYTES};
use baltra_wire::opencl::MEM_OBJECT_ALLOCATION_FAILURE;
use baltra_wire::{Control, Payload};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Bytes of an arena that small blocks share.
const ARENA_BYTES: u64 = 8 << 20;
/// The same in a pool, whose memory is limited.
const POOLED_ARENA_BYTES: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;
/// Blocks from this size have their own arena.
const LARGE_BYTES: u64 = 2 << 20;
/// Maximum total size of the dropped large arenas that are kept for reuse.
const STOCK_BYTES: u64 = 128 << 20;

/// The memory of all arenas of a session, after its segment.
pub(crate) struct Pool {
    range: Range,
    free: Mutex<BTreeMap<u64, u64>>,
}

impl Pool {
    /// A pool of a whole range, whose length is that of the session's share.
    pub fn new(range: Range) -> Pool {
        let start = SEGMENT_BYTES.next_multiple_of(PAGE_BYTES);
        let room = (range.len() as u64).saturating_sub(start) / PAGE_BYTES * PAGE_BYTES;
        Pool {
            free: Mutex::new(BTreeMap::from([(start, room)])),
            range,
        }
    }

    fn take(&self, len: u64) -> Option<(u64, Range)> {
        let mut free = self.free.locked();
        let at = take(&mut free, len, PAGE_BYTES)?;
        Some((at, self.range.slice(at, len).expect("taken from inside")))
    }

    fn give(&self, at: u64, len: u64) {
        let mut free = self.free.locked();
        give(&mut free, at, len);
    }
}

struct Arena {
    range: Range,
    /// Offset in the session's [`Pool`].
    at: u64,
    /// Free parts: offset → length. `None`: one block uses the whole arena.
    free: Option<BTreeMap<u64, u64>>,
}

/// All arenas of a session.
#[derive(Default)]
pub(super) struct Arenas {
    arenas: BTreeMap<u32, Arena>,
    next: u32,
    total: u64,
    /// Large arenas without a block: id and size.
    stock: Vec<(u32, u64)>,
}

/// A part of an arena, owned by this process until dropped. Must not be dropped before the executor
/// has stopped using it.
pub struct Block {
    shared: Arc<Shared>,
    arena: u32,
    offset: u64,
    len: u64,
    range: Range,
    fresh: bool,
}

impl Block {
    /// Whether its arena was created for it just now, so that none of its pages is populated.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Its location, as used in messages.
    pub fn payload(&self) -> Payload {
        Payload {
            arena: self.arena,
            offset: self.offset,
            len: self.range.len() as u64,
        }
    }

    /// The location of a part, as used in messages. Panics if the part exceeds the block.
    pub fn part(&self, offset: u64, len: u64) -> Payload {
        assert!(offset + len <= self.range.len() as u64);
        Payload {
            arena: self.arena,
            offset: self.offset + offset,
            len,
        }
    }

    /// Its first byte, valid for [`Block::len`] bytes.
    pub fn ptr(&self) -> *mut u8 {
        self.range.ptr()
    }

    /// Requested size in bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Always `false`: empty blocks do not exist.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Copies `bytes` to `offset`. Panics if they exceed the block.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.range.copy_in(offset, bytes);
    }

    /// Appends `len` bytes from `offset` on to `out`. Copies, because the executor may write there
    /// at any time, which rules out a slice. Panics if the range exceeds the block.
    pub fn read(&self, offset: usize, len: usize, out: &mut Vec<u8>) {
        self.range.append_to(offset, len, out);
    }

    /// The memory itself.
    pub fn range(&self) -> &Range {
        &self.range
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut arenas = self.shared.arenas.locked();
        arenas.put_back(&self.shared, self.arena, self.offset, self.len);
    }
}

/// Memory of this process that one command's transfer may use like an arena's.
pub struct Loan {
    shared: Arc<Shared>,
    payload: Payload,
}

impl Loan {
    pub(super) fn new(shared: &Arc<Shared>, memory: &Memory) -> Option<Loan> {
        let arena = shared.arenas.locked().name();
        shared.peer.lend(arena, memory).then(|| Loan {
            shared: shared.clone(),
            payload: Payload {
                arena,
                offset: 0,
                len: memory.len(),
            },
        })
    }

    /// Its location, as used in commands.
    pub fn payload(&self) -> Payload {
        self.payload
    }

    /// Ends the loan with the command, which has been enqueued.
    pub fn enqueued(mut self) {
        self.payload.len = 0;
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.payload.len != 0 {
            self.shared.peer.give_back(self.payload.arena);
        }
    }
}

impl Arenas {
    fn name(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// A block of `len` bytes (at least 1), aligned to `align` (a power of two up to 4,096). Its
    /// contents are undefined.
    pub(super) fn allocate(
        &mut self,
        shared: &Arc<Shared>,
        len: u64,
        align: u64,
    ) -> Result<Block, Lost> {
        let len = len.max(1);
        // Neighboring blocks never share a cache line.
        let taken = len.next_multiple_of(128);
        let align = align.clamp(128, 4096);
        let small = Self::small_bytes(shared);
        let next = self.next;
        let large = taken >= LARGE_BYTES.min(small / 2);
        let (arena, offset, taken) = if large {
            self.take_large(shared, taken)?
        } else {
            self.take_small(shared, taken, align)?
        };
        let fresh = large && self.next != next;
        let range = self.arenas[&arena]
            .range
            .slice(offset, len)
            .expect("allocated inside");
        Ok(Block {
            shared: shared.clone(),
            arena,
            offset,
            len: taken,
            range,
            fresh,
        })
    }

    /// Bytes of an arena that small blocks share.
    fn small_bytes(shared: &Shared) -> u64 {
        match shared.peer.pool() {
            None => ARENA_BYTES,
            Some(_) => POOLED_ARENA_BYTES,
        }
    }

    fn take_large(&mut self, shared: &Arc<Shared>, len: u64) -> Result<(u32, u64, u64), Lost> {
        // Whole huge pages or, in a pool, which has ordinary pages, whole pages.
        let len = len.next_multiple_of(match shared.peer.pool() {
            None => LARGE_BYTES,
            Some(_) => PAGE_BYTES,
        });
        let fitting = |&(_, l): &(u32, u64)| l >= len && l <= len + len / 4;
        if let Some(at) = self.stock.iter().position(fitting) {
            let (arena, len) = self.stock.swap_remove(at);
            return Ok((arena, 0, len));
        }
        let arena = self.add(shared, len, None)?;
        Ok((arena, 0, len))
    }

    fn take_small(
        &mut self,
        shared: &Arc<Shared>,
        len: u64,
        align: u64,
    ) -> Result<(u32, u64, u64), Lost> {
        for (&name, arena) in &mut self.arenas {
            if let Some(offset) = arena.free.as_mut().and_then(|f| take(f, len, align)) {
                return Ok((name, offset, len));
            }
        }
        let bytes = Self::small_bytes(shared);
        let free = BTreeMap::from([(0, bytes)]);
        let name = self.add(shared, bytes, Some(free))?;
        let arena = self.arenas.get_mut(&name).expect("just added");
        let free = arena.free.as_mut().expect("a shared arena");
        let offset = take(free, len, align).expect("a fresh arena has room");
        Ok((name, offset, len))
    }

    fn add(
        &mut self,
        shared: &Arc<Shared>,
        len: u64,
        free: Option<BTreeMap<u64, u64>>,
    ) -> Result<u32, Lost> {
        if self.total + len > shared.welcome.limits.arena_bytes {
            // Stocked arenas can be dropped.
            while let Some((name, _)) = self.stock.pop() {
                self.remove(shared, name);
            }
            if self.total + len > shared.welcome.limits.arena_bytes {
                return Err(Lost(MEM_OBJECT_ALLOCATION_FAILURE));
            }
        }
        let arena = self.name();
        let (at, range) = match shared.peer.pool() {
            None => (0, Self::make(shared, arena, len)?),
            Some(pool) => {
                let (offset, range) = loop {
                    if let Some(taken) = pool.take(len) {
                        break taken;
                    }
                    // Stocked arenas can be dropped.
                    let (name, _) = self
                        .stock
                        .pop()
                        .ok_or(Lost(MEM_OBJECT_ALLOCATION_FAILURE))?;
                    self.remove(shared, name);
                };
                shared.control(&Control::ArenaPart { arena, offset, len })?;
                (offset, range)
            }
        };
        self.total += len;
        self.arenas.insert(arena, Arena { range, at, free });
        Ok(arena)
    }

    /// Creates an arena with its own memfd.
    fn make(shared: &Shared, arena: u32, len: u64) -> Result<Range, Lost> {
        let made = Memory::create("baltra-arena", len);
        let (memory, fd) = made.map_err(|_| Lost(MEM_OBJECT_ALLOCATION_FAILURE))?;
        shared.add_arena(arena, len, &memory, &fd)?;
        Ok(memory.slice(0, memory.len()).expect("all of it"))
    }

    fn remove(&mut self, shared: &Shared, name: u32) {
        if let Some(arena) = self.arenas.remove(&name) {
            let len = arena.range.len() as u64;
            self.total -= len;
            // A lost session needs no notification.
            let _ = shared.control(&Control::ArenaDrop(name));
            if let Some(pool) = shared.peer.pool() {
                // The arena is unused, and this message precedes the announcement of a later arena
                // at the same place.
                pool.give(arena.at, len);
            }
        }
    }

    fn put_back(&mut self, shared: &Shared, name: u32, offset: u64, len: u64) {
        let Some(arena) = self.arenas.get_mut(&name) else {
            return;
        };
        if let Some(free) = &mut arena.free {
            give(free, offset, len);
            return;
        }
        let stocked: u64 = self.stock.iter().map(|s| s.1).sum();
        if stocked + len <= STOCK_BYTES {
            self.stock.push((name, len));
        } else {
            self.remove(shared, name);
        }
    }
}

/// First fit.
fn take(free: &mut BTreeMap<u64, u64>, len: u64, align: u64) -> Option<u64> {
    let (start, room, at) = free.iter().find_map(|(&start, &room)| {
        let at = start.next_multiple_of(align);
        (at + len <= start + room).then_some((start, room, at))
    })?;
    free.remove(&start);
    if at > start {
        free.insert(start, at - start);
    }
    if at + len < start + room {
        free.insert(at + len, start + room - at - len);
    }
    Some(at)
}

fn give(free: &mut BTreeMap<u64, u64>, mut offset: u64, mut len: u64) {
    if let Some((&before, &room)) = free.range(..offset).next_back() {
        if before + room == offset {
            free.remove(&before);
            offset = before;
            len += room;
        }
    }
    if let Some(room) = free.remove(&(offset + len)) {
        len += room;
    }
    free.insert(offset, len);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_given_back_join_their_neighbors() {
        let mut free = BTreeMap::from([(0, 1024)]);
        let parts: Vec<u64> = (0..4).map(|_| take(&mut free, 256, 128).unwrap()).collect();
        assert_eq!(parts, [0, 256, 512, 768]);
        assert_eq!(take(&mut free, 1, 1), None);
        for at in [256, 768, 0, 512] {
            give(&mut free, at, 256);
        }
        assert_eq!(free, BTreeMap::from([(0, 1024)]));
    }

    #[test]
    fn alignment_leaves_the_gap_free() {
        let mut free = BTreeMap::from([(0, 8192)]);
        assert_eq!(take(&mut free, 128, 128), Some(0));
        assert_eq!(take(&mut free, 128, 4096), Some(4096));
        assert_eq!(take(&mut free, 128, 128), Some(128));
    }
}
