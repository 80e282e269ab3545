//! The layout of a VM's region. All numbers are little endian.
//!
//! | offset | content | written by |
//! |---|---|---|
//! | 0 | [`Layout`]: magic, version, sizes | host, once |
//! | 64 | epoch: changes whenever the host has dropped all state; 0: not ready | host |
//! | 68 | pulse: incremented while the host is alive | host |
//! | 4,096 + 128 i | the entry of part i: claim, peer, beat; from byte 64 on served, trouble | each its half |
//! | [`TABLE_END`] | the parts, each: request ring, response ring, states, arena | |
//!
//! A part belongs to one application at a time. The application locks the byte of the part's number
//! in the region's file (its kernel unlocks the byte when the application ends), and claims the
//! part by writing a new number to `claim`; the host clears the rings and writes the same number to
//! `served`.
//!
//! Either side may write anything anywhere at any time. The host reads only the rings (checked by
//! `baltra_ring`), the claim and the peer's number from the region, and has its own copy of
//! everything else.

use baltra_ring::{ring_bytes, Memory, Range};
use std::sync::atomic::AtomicU32;

/// `BALTRAVF`, as bytes in this order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BALTRAVF");
/// Version of the layout, which must be equal on both sides.
pub const VERSION: u32 = 1;
/// Most parts of a region.
pub const PARTS_MAX: u32 = 15;
/// Most handles of an application.
pub const HANDLES_MAX: u32 = 32;
/// Offset of the first part.
pub const TABLE_END: u64 = 8192;
const TABLE: usize = 4096;
const ENTRY_BYTES: usize = 128;
const EPOCH: usize = 64;
const PULSE: usize = 68;
const HEADER_BYTES: usize = 48;
const PAGE: u64 = 4096;
const STATES_BYTES: u64 = PAGE;
/// Data bytes of a ring.
pub const RING_BYTES: usize = 64 << 10;
/// Minimum size of a region.
pub const REGION_BYTES_MIN: u64 = 1 << 20;
/// Maximum size of a region.
pub const REGION_BYTES_MAX: u64 = 16 << 30;

/// The host listens on doorbells ([`Layout::flags`]).
pub const FLAG_DOORBELL: u32 = 1;

/// The region's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the region; a power of two, as a PCI device's memory must be.
    pub region_bytes: u64,
    /// Number of parts.
    pub parts: u32,
    /// Bits, such as [`FLAG_DOORBELL`].
    pub flags: u32,
    /// Bytes of each part.
    part_bytes: u64,
}

/// The region or its layout is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The sizes are invalid.
    #[error("invalid size of a region: expected a power of two of bytes from 1 MiB to 16 GiB, 1 to {PARTS_MAX} parts, and at least 256 KiB per part")]
    Sizes,
    /// The memory does not contain a region (yet).
    #[error(
        "the shared memory does not contain a region of the VM door (does `baltra vfun` run on the host?)"
    )]
    Magic,
    /// The host has another version of the layout.
    #[error("the host's region has layout {0}, this library supports {VERSION}: install the same release on both sides")]
    Version(u32),
}

impl Layout {
    /// The layout of a region with this size and number of parts.
    pub fn new(region_bytes: u64, parts: u32, flags: u32) -> Result<Layout, LayoutError> {
        let allowed = REGION_BYTES_MIN..=REGION_BYTES_MAX;
        if !region_bytes.is_power_of_two()
            || !allowed.contains(&region_bytes)
            || !(1..=PARTS_MAX).contains(&parts)
        {
            return Err(LayoutError::Sizes);
        }
        let part_bytes = (region_bytes - TABLE_END) / u64::from(parts) / PAGE * PAGE;
        let layout = Layout {
            region_bytes,
            parts,
            flags,
            part_bytes,
        };
        if part_bytes > Self::arena_offset() + PAGE {
            Ok(layout)
        } else {
            Err(LayoutError::Sizes)
        }
    }

    /// Bytes of a part's arena.
    pub fn arena_bytes(&self) -> u64 {
        self.part_bytes - Self::arena_offset()
    }

    fn ring_room() -> u64 {
        (ring_bytes(RING_BYTES) as u64).next_multiple_of(PAGE)
    }

    fn arena_offset() -> u64 {
        2 * Self::ring_room() + STATES_BYTES
    }

    /// The header's bytes.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.parts.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.region_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }

    /// Reads the header from the start of a mapping of `mapped_bytes`; for guests.
    pub fn read(memory: &Range, mapped_bytes: u64) -> Result<Layout, LayoutError> {
        let mut bytes = [0; HEADER_BYTES];
        memory.copy_out(0, &mut bytes);
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        if u64_at(0) != MAGIC {
            return Err(LayoutError::Magic);
        }
        if u32_at(8) != VERSION {
            return Err(LayoutError::Version(u32_at(8)));
        }
        if u64_at(16) > mapped_bytes {
            return Err(LayoutError::Sizes);
        }
        Layout::new(u64_at(16), u32_at(12), u32_at(24))
    }
}

/// A mapped region.
#[derive(Clone)]
pub struct Region {
    /// Its layout.
    pub layout: Layout,
    whole: Range,
}

impl Region {
    /// The region in a mapping that is at least as long as its layout.
    pub fn new(memory: &Memory, layout: Layout) -> Result<Region, LayoutError> {
        let whole = memory.slice(0, layout.region_bytes);
        Ok(Region {
            layout,
            whole: whole.ok_or(LayoutError::Sizes)?,
        })
    }

    /// The region as the host wrote it into a mapping.
    pub fn read(memory: &Memory) -> Result<Region, LayoutError> {
        let start = memory.slice(0, PAGE).ok_or(LayoutError::Sizes)?;
        Region::new(memory, Layout::read(&start, memory.len())?)
    }

    /// The whole region.
    pub fn whole(&self) -> &Range {
        &self.whole
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        self.whole.word(at).expect("the table lies in the region")
    }

    /// The epoch; the module's table describes it.
    pub fn epoch(&self) -> &AtomicU32 {
        self.word(EPOCH)
    }

    /// The pulse; the module's table describes it.
    pub fn pulse(&self) -> &AtomicU32 {
        self.word(PULSE)
    }

    /// The part with this number, below [`Layout::parts`].
    pub fn part(&self, number: u32) -> Part {
        assert!(number < self.layout.parts);
        let at = TABLE_END + u64::from(number) * self.layout.part_bytes;
        let slice = |at, len| {
            self.whole
                .slice(at, len)
                .expect("a part lies in the region")
        };
        let ring = ring_bytes(RING_BYTES) as u64;
        Part {
            entry: slice(
                (TABLE + number as usize * ENTRY_BYTES) as u64,
                ENTRY_BYTES as u64,
            ),
            requests: slice(at, ring),
            responses: slice(at + Layout::ring_room(), ring),
            states: slice(at + 2 * Layout::ring_room(), STATES_BYTES),
            arena_offset: at + Layout::arena_offset(),
            arena: slice(at + Layout::arena_offset(), self.layout.arena_bytes()),
        }
    }
}

/// One application's part of the region.
#[derive(Clone)]
pub struct Part {
    entry: Range,
    /// Guest to host.
    pub requests: Range,
    /// Host to guest.
    pub responses: Range,
    states: Range,
    /// Bytes of calls, both ways, or all memory of an OpenCL session. The guest assigns its space.
    pub arena: Range,
    /// Its offset in the region.
    pub arena_offset: u64,
}

impl Part {
    fn word(&self, at: usize) -> &AtomicU32 {
        self.entry.word(at).expect("an entry holds its words")
    }

    /// The application's number for its use of the part: odd; even: the part is unused.
    pub fn claim(&self) -> &AtomicU32 {
        self.word(0)
    }

    /// The application's `ivshmem` peer number plus 1; 0: it has no doorbell.
    pub fn peer(&self) -> &AtomicU32 {
        self.word(4)
    }

    /// Incremented while an application with an OpenCL session is alive.
    pub fn beat(&self) -> &AtomicU32 {
        self.word(8)
    }

    /// The claim that the host serves.
    pub fn served(&self) -> &AtomicU32 {
        self.word(64)
    }

    /// The reason for which the host stopped serving the claim: a [`crate::Reason`]'s number, or 0.
    pub fn trouble(&self) -> &AtomicU32 {
        self.word(68)
    }

    /// State of a handle's call: a [`crate::State`]'s number.
    pub fn state(&self, handle: u32) -> &AtomicU32 {
        let at = 4 * (handle % HANDLES_MAX) as usize;
        self.states.word(at).expect("a page holds all states")
    }
}

const _: () = assert!(TABLE + (PARTS_MAX as usize) * ENTRY_BYTES <= TABLE_END as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_lie_apart_and_inside() {
        let layout = Layout::new(4 << 20, 5, 0).unwrap();
        let memory = Memory::anonymous(4 << 20).unwrap();
        let region = Region::new(&memory, layout).unwrap();
        let mut ranges = Vec::new();
        for number in 0..5 {
            let part = region.part(number);
            for range in [part.requests, part.responses, part.states, part.arena] {
                ranges.push((range.ptr() as usize, range.len()));
            }
        }
        ranges.sort_unstable();
        let start = memory.base() as usize;
        assert!(ranges[0].0 >= start + TABLE_END as usize);
        assert!(ranges.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
        let last = ranges.last().unwrap();
        assert!(last.0 + last.1 <= start + (4 << 20));
    }

    #[test]
    fn a_layout_is_read_as_written() {
        let memory = Memory::anonymous(2 << 20).unwrap();
        let start = memory.slice(0, 4096).unwrap();
        assert_eq!(Layout::read(&start, 2 << 20), Err(LayoutError::Magic));
        let layout = Layout::new(2 << 20, 3, FLAG_DOORBELL).unwrap();
        start.copy_in(0, &layout.bytes());
        assert_eq!(Layout::read(&start, 2 << 20), Ok(layout));
        assert_eq!(Layout::read(&start, 1 << 20), Err(LayoutError::Sizes));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for (bytes, parts) in [
            (0, 1),
            (3 << 20, 1),
            (1 << 20, 15),
            (1 << 20, 0),
            (1 << 40, 1),
        ] {
            assert_eq!(Layout::new(bytes, parts, 0), Err(LayoutError::Sizes));
        }
        assert!(Layout::new(1 << 20, 4, 0).is_ok());
    }

    proptest! {
        #[test]
        fn any_header_makes_a_region_inside_its_mapping_or_none(
            bytes in proptest::collection::vec(any::<u8>(), 40),
            sane in any::<bool>(),
        ) {
            let memory = Memory::anonymous(1 << 20).unwrap();
            let start = memory.slice(0, 4096).unwrap();
            start.copy_in(0, &MAGIC.to_le_bytes());
            start.copy_in(8, &bytes);
            if sane {
                start.copy_in(8, &VERSION.to_le_bytes());
                start.copy_in(16, &(1u64 << 20).to_le_bytes());
            }
            if let Ok(region) = Region::read(&memory) {
                for part in 0..region.layout.parts {
                    region.part(part);
                }
            }
        }
    }
}
