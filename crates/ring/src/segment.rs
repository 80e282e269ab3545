//! The initial memory of a session: a memfd, or the beginning of a part of a larger memfd with all
//! of the session's memory (a VM's region).
//!
//! | offset | content |
//! |---|---|
//! | 0 | header: magic, layout version, the events' bell and sleepers |
//! | 4,096 | control ring, client → executor |
//! | 4,096 + 512 + 64 Ki (to a page) | notice ring, executor → client |
//! | … + 512 + 256 Ki (to a page) | the first event slots |

use crate::events::{EVENT_SLOTS_FIRST, EVENT_SLOT_BYTES};
use crate::memory::{create_sealed, Memory, Range};
use crate::ring::{ring_bytes, RingError};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

const MAGIC: u32 = 0x4241_4c54;
const LAYOUT: u32 = 1;
const PAGE: usize = 4096;
const CONTROL_OFFSET: usize = PAGE;
const CONTROL_BYTES: usize = ring_bytes(64 << 10);
const NOTICE_OFFSET: usize = CONTROL_OFFSET + CONTROL_BYTES.next_multiple_of(PAGE);
const NOTICE_BYTES: usize = ring_bytes(256 << 10);
const EVENTS_OFFSET: usize = NOTICE_OFFSET + NOTICE_BYTES.next_multiple_of(PAGE);
const EVENTS_BYTES: usize = EVENT_SLOTS_FIRST as usize * EVENT_SLOT_BYTES;

/// Size of a session segment.
pub const SEGMENT_BYTES: u64 = (EVENTS_OFFSET + EVENTS_BYTES) as u64;

/// The shared words of the segment's first page.
#[repr(C)]
pub(crate) struct Header {
    magic: AtomicU32,
    layout: AtomicU32,
    _0: [u32; 14],
    pub(crate) event_bell: AtomicU32,
    _1: [u32; 15],
    pub(crate) event_sleepers: AtomicU32,
}

/// The mapped initial memory of a session.
#[derive(Clone)]
pub struct Segment {
    range: Range,
}

impl Segment {
    /// Creates a segment (in the manager) and the memfd to pass to both ends.
    pub fn create() -> io::Result<(Segment, OwnedFd)> {
        let fd = create_sealed("baltra-session", SEGMENT_BYTES)?;
        let memory = Memory::map(&fd, SEGMENT_BYTES)?;
        let range = memory.slice(0, SEGMENT_BYTES);
        let segment = Segment {
            range: range.expect("just as long"),
        };
        segment.write_header();
        Ok((segment, fd))
    }

    /// Creates a segment at the start of an unused range; `None`: the range is too short or not
    /// page-aligned.
    pub fn clear(range: &Range) -> Option<Segment> {
        let segment = Segment::within(range)?;
        segment.range.zero();
        segment.write_header();
        Some(segment)
    }

    fn within(range: &Range) -> Option<Segment> {
        let range = range.slice(0, SEGMENT_BYTES)?;
        let aligned = (range.ptr() as usize).is_multiple_of(PAGE);
        aligned.then_some(Segment { range })
    }

    fn write_header(&self) {
        let header = self.header();
        header.layout.store(LAYOUT, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
    }

    /// Maps a received segment.
    pub fn map(fd: &OwnedFd) -> io::Result<Segment> {
        let memory = Memory::map(fd, SEGMENT_BYTES)?;
        Segment::read(&memory.slice(0, memory.len()).expect("all of it"))
    }

    /// Opens the segment that the peer has created at a range's start.
    pub fn read(range: &Range) -> io::Result<Segment> {
        let segment = Segment::within(range).ok_or(io::ErrorKind::InvalidInput)?;
        let header = segment.header();
        let magic = header.magic.load(Ordering::Acquire);
        let layout = header.layout.load(Ordering::Relaxed);
        if (magic, layout) != (MAGIC, LAYOUT) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("session memory of layout {layout}, expected {LAYOUT}: install the same release of Baltra on both sides"),
            ));
        }
        Ok(segment)
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the range is longer than the header and page-aligned (`within`, `create`);
        // atomics are valid for any bytes.
        unsafe { &*self.range.ptr().cast() }
    }

    fn part(&self, offset: usize, len: usize) -> Range {
        self.range
            .slice(offset as u64, len as u64)
            .expect("the segment's parts lie in the segment")
    }

    /// The control ring's memory.
    pub fn control(&self) -> Range {
        self.part(CONTROL_OFFSET, CONTROL_BYTES)
    }

    /// The notice ring's memory.
    pub fn notices(&self) -> Range {
        self.part(NOTICE_OFFSET, NOTICE_BYTES)
    }

    /// The first event slots.
    pub fn events(&self) -> Range {
        self.part(EVENTS_OFFSET, EVENTS_BYTES)
    }
}

/// Checks the layouts of the rings at compile time.
const _: () = assert!(
    CONTROL_OFFSET.is_multiple_of(64)
        && NOTICE_OFFSET.is_multiple_of(64)
        && EVENTS_OFFSET.is_multiple_of(64)
);

/// A ring in a segment always has a valid layout.
impl From<RingError> for io::Error {
    fn from(e: RingError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, e)
    }
}
