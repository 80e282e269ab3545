//! The table of event statuses and times.
//!
//! The client owns the slots: it takes a free one, gives it a new generation, and frees it when the
//! application has released the event *and* the executor has completed it. The executor only
//! writes: first the four times, then generation and status in one word, so that a late write to a
//! slot of an older generation is recognized. It never reads a slot.
//!
//! Segment 0 of the table has [`EVENT_SLOTS_FIRST`] slots, segment `i > 0` has
//! `EVENT_SLOTS_FIRST << (i - 1)`: the table doubles.

use crate::futex::{futex_wake, Sleeper};
use crate::memory::Range;
use crate::segment::Segment;
use crate::spin::{Spin, Waiting};
use crate::Locked;
use std::sync::atomic::{fence, AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Bytes of a slot: a cache line.
pub const EVENT_SLOT_BYTES: usize = 64;
/// Slots of the first segment.
pub const EVENT_SLOTS_FIRST: u32 = 4096;
/// Segments: 4,096 × 2¹⁵ = at most 134 million slots.
const SEGMENTS_MAX: usize = 16;
/// `CL_QUEUED`, the status of a new event.
const QUEUED: i32 = 3;
const RECHECK: Duration = Duration::from_millis(100);

/// Slots of segment `index`, and the number of its first slot.
fn segment_slots(index: usize) -> (u32, u32) {
    match index {
        0 => (EVENT_SLOTS_FIRST, 0),
        i => {
            let slots = EVENT_SLOTS_FIRST << (i - 1);
            (slots, slots)
        }
    }
}

fn locate(slot: u32) -> (usize, usize) {
    let index = match slot / EVENT_SLOTS_FIRST {
        0 => 0,
        n => n.ilog2() as usize + 1,
    };
    (index, (slot - segment_slots(index).1) as usize)
}

#[repr(C)]
struct Slot {
    /// Generation in the high half, status in the low.
    state: AtomicU64,
    times: [AtomicU64; 4],
    _pad: [u64; 3],
}

const _: () = assert!(size_of::<Slot>() == EVENT_SLOT_BYTES);

fn pack(generation: u32, status: i32) -> u64 {
    u64::from(generation) << 32 | u64::from(status as u32)
}

/// The slots' memory.
struct Slots {
    segment: Segment,
    parts: [OnceLock<Range>; SEGMENTS_MAX],
}

impl Slots {
    fn new(segment: Segment) -> Slots {
        let slots = Slots {
            parts: Default::default(),
            segment,
        };
        slots.add(slots.segment.events());
        slots
    }

    /// Adds the memory of the next segment; `None`: the size or alignment is wrong, or the table is
    /// full.
    fn add(&self, range: Range) -> Option<u32> {
        let index = self.parts.iter().position(|p| p.get().is_none())?;
        let (slots, first) = segment_slots(index);
        let fits = range.len() == slots as usize * EVENT_SLOT_BYTES;
        if !fits || !(range.ptr() as usize).is_multiple_of(EVENT_SLOT_BYTES) {
            return None;
        }
        self.parts[index].set(range).ok()?;
        Some(first)
    }

    fn slot(&self, slot: u32) -> Option<&Slot> {
        let (index, at) = locate(slot);
        let part = self.parts.get(index)?.get()?;
        // SAFETY: `locate` gives an index below the segment's slots, which `add` has checked
        // to be the range's length; the range lives as long as `self`; all fields are atomics.
        Some(unsafe { &*part.ptr().cast::<Slot>().add(at) })
    }

    /// `CL_QUEUED` if there is no such slot, or it has another generation.
    fn status(&self, event: u64) -> i32 {
        let Some(slot) = self.slot(event as u32) else {
            return QUEUED;
        };
        // SYNC POINT: event (pairs with `EventWriter::set`)
        let state = slot.state.load(Ordering::Acquire);
        if (state >> 32) as u32 == (event >> 32) as u32 {
            state as u32 as i32
        } else {
            QUEUED
        }
    }

    fn times(&self, event: u64) -> [u64; 4] {
        match self.slot(event as u32) {
            Some(slot) => std::array::from_fn(|i| slot.times[i].load(Ordering::Relaxed)),
            None => [0; 4],
        }
    }
}

/// The executor's side.
pub struct EventWriter {
    slots: Slots,
}

impl EventWriter {
    /// A writer for the segment's first slots.
    pub fn new(segment: &Segment) -> EventWriter {
        EventWriter {
            slots: Slots::new(segment.clone()),
        }
    }

    /// Adds a segment of slots; `None` if its size is not that of the next segment.
    pub fn add(&self, range: Range) -> Option<u32> {
        self.slots.add(range)
    }

    /// Whether the slot exists.
    pub fn has(&self, event: u64) -> bool {
        self.slots.slot(event as u32).is_some()
    }

    /// The status in the table, which its owner may change: for a writer that represents the executor
    /// to a client. `CL_QUEUED`: the slot has another generation.
    pub fn status(&self, event: u64) -> i32 {
        self.slots.status(event)
    }

    /// The four times in the table, with the same caution.
    pub fn times(&self, event: u64) -> [u64; 4] {
        self.slots.times(event)
    }

    /// Writes an event's status and, when it is complete or failed (0 or negative), its four times
    /// (queued, submitted, started, ended: device nanoseconds), then wakes waiters.
    pub fn set(&self, event: u64, status: i32, times_ns: [u64; 4]) {
        let Some(slot) = self.slots.slot(event as u32) else {
            return;
        };
        if status <= 0 {
            for (word, ns) in slot.times.iter().zip(times_ns) {
                word.store(ns, Ordering::Relaxed);
            }
        }
        // SYNC POINT: event (pairs with `EventTable::status`)
        slot.state
            .store(pack((event >> 32) as u32, status), Ordering::Release);
        if status <= 0 {
            fence(Ordering::SeqCst);
            let header = self.slots.segment.header();
            if header.event_sleepers.load(Ordering::Relaxed) != 0 {
                header.event_bell.fetch_add(1, Ordering::Release);
                futex_wake(&header.event_bell, u32::MAX);
            }
        }
    }
}

struct Free {
    /// Slots and their next generations.
    slots: Vec<(u32, u32)>,
    total: u32,
}

/// The client's side.
pub struct EventTable {
    slots: Slots,
    free: Mutex<Free>,
    /// 0 while the session exists; after its loss, the error of incomplete events.
    lost: std::sync::atomic::AtomicI32,
    stop: AtomicBool,
    spin: Spin,
}

impl EventTable {
    /// A table of the segment's first slots, which are all free.
    pub fn new(segment: &Segment) -> EventTable {
        let table = EventTable {
            slots: Slots::new(segment.clone()),
            free: Mutex::new(Free {
                slots: Vec::new(),
                total: 0,
            }),
            lost: 0.into(),
            stop: false.into(),
            spin: Spin::default(),
        };
        table.add_free(EVENT_SLOTS_FIRST);
        table
    }

    fn add_free(&self, count: u32) {
        let mut free = self.free.locked();
        let first = free.total;
        free.slots
            .extend((first..first + count).rev().map(|s| (s, 1)));
        free.total += count;
    }

    /// Size of the next segment of slots, for use when [`EventTable::alloc`] has none left, and the
    /// number of its first slot; `None`: the table has its maximum size.
    pub fn next_segment(&self) -> Option<(u64, u32)> {
        let index = self.slots.parts.iter().position(|p| p.get().is_none())?;
        let (slots, first) = segment_slots(index);
        Some((u64::from(slots) * EVENT_SLOT_BYTES as u64, first))
    }

    /// Adds a zeroed segment of [`EventTable::next_segment`]'s size.
    pub fn add(&self, range: Range) -> Option<u32> {
        let count = (range.len() / EVENT_SLOT_BYTES) as u32;
        let first = self.slots.add(range)?;
        self.add_free(count);
        Some(first)
    }

    /// Whether a slot is free.
    pub fn has_free(&self) -> bool {
        !self.free.locked().slots.is_empty()
    }

    /// Takes a free slot; `None` if all are in use.
    pub fn alloc(&self) -> Option<u64> {
        let (slot, generation) = self.free.locked().slots.pop()?;
        let state = &self.slots.slot(slot)?.state;
        state.store(pack(generation, QUEUED), Ordering::Release);
        Some(u64::from(generation) << 32 | u64::from(slot))
    }

    /// Frees a slot. The event must be complete (or the session lost) and no longer referenced.
    pub fn free(&self, event: u64) {
        let next = ((event >> 32) as u32).checked_add(1).unwrap_or(1);
        let mut free = self.free.locked();
        free.slots.push((event as u32, next));
    }

    /// Whether the slot exists.
    pub fn has(&self, event: u64) -> bool {
        self.slots.slot(event as u32).is_some()
    }

    /// The status: `CL_QUEUED` … `CL_COMPLETE`, or an error.
    pub fn status(&self, event: u64) -> i32 {
        let status = self.slots.status(event);
        match self.lost.load(Ordering::Relaxed) {
            lost if lost < 0 && status > 0 => lost,
            _ => status,
        }
    }

    /// The four times of a complete event.
    pub fn times(&self, event: u64) -> [u64; 4] {
        self.slots.times(event)
    }

    /// Client-side completion of an event that the executor does not complete (user events, local
    /// transfers): writes the slot and wakes this process's waiters.
    pub fn set(&self, event: u64, status: i32, times_ns: [u64; 4]) {
        let Some(slot) = self.slots.slot(event as u32) else {
            return;
        };
        for (word, ns) in slot.times.iter().zip(times_ns) {
            word.store(ns, Ordering::Relaxed);
        }
        slot.state
            .store(pack((event >> 32) as u32, status), Ordering::Release);
        self.wake();
    }

    /// Waits until the event is complete or failed; spins for `spin`, then sleeps.
    pub fn wait(&self, event: u64, spin: Duration, waiting: &dyn Waiting) -> i32 {
        let status = self.status(event);
        if status <= 0 {
            return status;
        }
        let reached = || {
            waiting.look();
            self.status(event) <= 0
        };
        if self.spin.until(spin, reached) {
            return self.status(event);
        }
        waiting.sleeps();
        let header = self.slots.segment.header();
        header.event_sleepers.fetch_add(1, Ordering::Relaxed);
        let sleeper = Sleeper::default();
        let status = loop {
            let seen = header.event_bell.load(Ordering::Acquire);
            fence(Ordering::SeqCst);
            let status = self.status(event);
            if status <= 0 || self.stop.load(Ordering::Acquire) {
                break status;
            }
            sleeper.sleep(&header.event_bell, seen, Some(RECHECK));
        };
        header.event_sleepers.fetch_sub(1, Ordering::Relaxed);
        waiting.woke();
        status
    }

    /// Fails every incomplete event with `code` (negative), because the session was lost.
    pub fn fail_all(&self, code: i32) {
        self.lost.store(code, Ordering::Release);
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        let header = self.slots.segment.header();
        fence(Ordering::SeqCst);
        if header.event_sleepers.load(Ordering::Relaxed) != 0 {
            header.event_bell.fetch_add(1, Ordering::Release);
            futex_wake(&header.event_bell, u32::MAX);
        }
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::memory::Memory;

    fn table() -> (EventTable, EventWriter) {
        let (segment, _) = Segment::create().unwrap();
        (EventTable::new(&segment), EventWriter::new(&segment))
    }

    #[test]
    fn a_completed_event_shows_its_times() {
        let (table, writer) = table();
        let event = table.alloc().unwrap();
        assert_eq!(table.status(event), QUEUED);
        writer.set(event, 1, [0; 4]);
        assert_eq!(table.status(event), 1);
        writer.set(event, 0, [1, 2, 3, 4]);
        assert_eq!((table.status(event), table.times(event)), (0, [1, 2, 3, 4]));
    }

    #[test]
    fn a_late_write_to_an_older_generation_is_not_seen() {
        let (table, writer) = table();
        let old = table.alloc().unwrap();
        writer.set(old, 0, [0; 4]);
        table.free(old);
        let new = table.alloc().unwrap();
        assert_eq!(new as u32, old as u32);
        writer.set(old, -5, [0; 4]);
        assert_eq!(table.status(new), QUEUED);
    }

    #[test]
    fn a_waiter_is_woken_by_completion_and_by_loss() {
        let (table, writer) = table();
        let (a, b) = (table.alloc().unwrap(), table.alloc().unwrap());
        std::thread::scope(|s| {
            let first = s.spawn(|| table.wait(a, Duration::ZERO, &()));
            let second = s.spawn(|| table.wait(b, Duration::ZERO, &()));
            std::thread::sleep(Duration::from_millis(20));
            writer.set(a, 0, [0; 4]);
            assert_eq!(first.join().unwrap(), 0);
            table.fail_all(-2);
            assert_eq!(second.join().unwrap(), -2);
        });
        assert_eq!(table.status(a), 0);
    }

    #[test]
    fn the_table_doubles_when_it_is_full() {
        let (table, writer) = table();
        for _ in 0..EVENT_SLOTS_FIRST {
            table.alloc().unwrap();
        }
        assert_eq!(table.alloc(), None);
        let (bytes, first) = table.next_segment().unwrap();
        let memory = Memory::anonymous(bytes).unwrap();
        let range = memory.slice(0, bytes).unwrap();
        assert_eq!(table.add(range.clone()), Some(first));
        assert_eq!(writer.add(range), Some(first));
        let event = table.alloc().unwrap();
        assert_eq!(event as u32, EVENT_SLOTS_FIRST);
        writer.set(event, 0, [0; 4]);
        assert_eq!(table.status(event), 0);
    }

    #[test]
    fn slots_outside_the_table_are_ignored() {
        let (table, writer) = table();
        writer.set(u64::MAX, 0, [0; 4]);
        writer.set(u64::from(EVENT_SLOTS_FIRST) | 1 << 32, 0, [0; 4]);
        assert_eq!(table.status(u64::MAX), QUEUED);
        for slot in [0, 4095, 4096, 8191, 8192, 16383, 16384, u32::MAX] {
            let (index, at) = locate(slot);
            assert!(
                at < segment_slots(index.min(SEGMENTS_MAX)).0 as usize || index >= SEGMENTS_MAX
            );
        }
    }
}
