//! Messages of a command queue's channel.

use crate::{Event, Id};
use serde::{Deserialize, Serialize};

/// One enqueued command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command<'a> {
    /// The event that the executor completes in the event table; 0: none, so that only the
    /// channel's number of complete commands counts the command.
    pub event: Event,
    /// Number of control messages sent before this command was enqueued. The executor resolves the
    /// command's ids only after it has processed that many.
    pub after_control: u64,
    /// Events that this command waits for.
    #[serde(borrow)]
    pub waits: Waits<'a>,
    /// The operation.
    #[serde(borrow)]
    pub operation: Operation<'a>,
}

/// A list of events, eight little-endian bytes each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits<'a>(#[serde(borrow)] pub &'a [u8]);

impl<'a> Waits<'a> {
    /// The events in order. An incomplete entry at the end is ignored.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Event> + 'a {
        self.0
            .chunks_exact(8)
            .map(|c| u64::from_le_bytes(c.try_into().expect("chunks of eight")))
    }

    /// Whether the list is empty.
    pub fn is_empty(self) -> bool {
        self.0.len() < 8
    }
}

/// Location of a transfer's bytes: `len` bytes of an arena, which both ends map. The client
/// reserves the range until the command is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// The arena ([`crate::Control::ArenaAdd`]).
    pub arena: u32,
    /// Offset in the arena.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// From the payload to the object.
    Write,
    /// From the object to the payload.
    Read,
}

/// A box in bytes (buffers) or pixels (images): `[x, y, z]` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// First byte or pixel, row, slice.
    pub origin: [u64; 3],
    /// Bytes (buffers: width in bytes) or pixels, rows, slices.
    pub size: [u64; 3],
    /// Bytes from row to row; 0: tight. (Buffers only; an image's payload is always tight.)
    pub row_pitch: u64,
    /// Bytes from slice to slice; 0: tight.
    pub slice_pitch: u64,
}

/// A kernel argument at the time when the launch was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Arg<'a> {
    /// The value's bytes.
    Value(#[serde(borrow)] &'a [u8]),
    /// Local memory of this size in bytes.
    Local(u64),
    /// A memory object, or 0 for NULL.
    Memory(Id),
    /// A sampler.
    Sampler(Id),
    /// A shared virtual address.
    Svm(u64),
}

/// A command's operation. Ids are resolved when the command is taken off its channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Operation<'a> {
    /// Runs a kernel. `args` holds `arg_count` postcard-encoded [`Arg`]s in sequence.
    Launch {
        /// The kernel.
        kernel: Id,
        /// Number of dimensions, 1 to 3.
        dimensions: u8,
        /// First global id.
        offset: [u64; 3],
        /// Work-items.
        global: [u64; 3],
        /// Work-items per group; `[0; 3]`: the driver chooses.
        local: [u64; 3],
        /// Number of arguments.
        arg_count: u32,
        /// The arguments.
        #[serde(borrow)]
        args: &'a [u8],
        /// Shared virtual addresses that the kernel reaches indirectly (eight bytes each).
        #[serde(borrow)]
        svm_indirect: &'a [u8],
    },
    /// Transfers bytes between a buffer and a payload.
    Buffer {
        /// Direction.
        direction: Direction,
        /// The buffer.
        buffer: Id,
        /// First byte in the buffer.
        offset: u64,
        /// The payload, whose length is that of the transfer.
        payload: Payload,
    },
    /// Transfers a box between a buffer and a payload, which holds the box without gaps.
    BufferRect {
        /// Direction.
        direction: Direction,
        /// The buffer.
        buffer: Id,
        /// Region of the buffer.
        region: Region,
        /// The payload.
        payload: Payload,
    },
    /// Transfers a box between an image and a payload, which holds the box without gaps.
    Image {
        /// Direction.
        direction: Direction,
        /// The image.
        image: Id,
        /// Region of the image.
        region: Region,
        /// The payload.
        payload: Payload,
    },
    /// Copies between buffers.
    CopyBuffer {
        /// The source.
        source: Id,
        /// The target.
        target: Id,
        /// First byte in the source.
        source_offset: u64,
        /// First byte in the target.
        target_offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Copies a box between buffers.
    CopyBufferRect {
        /// The source.
        source: Id,
        /// The target.
        target: Id,
        /// Region of the source, whose size is the copy's.
        source_region: Region,
        /// Region of the target.
        target_region: Region,
    },
    /// Copies between images.
    CopyImage {
        /// The source.
        source: Id,
        /// The target.
        target: Id,
        /// First pixel in the source.
        source_origin: [u64; 3],
        /// First pixel in the target.
        target_origin: [u64; 3],
        /// Pixels.
        size: [u64; 3],
    },
    /// Copies pixels into a buffer.
    CopyImageToBuffer {
        /// The source.
        image: Id,
        /// The target.
        buffer: Id,
        /// First pixel.
        origin: [u64; 3],
        /// Pixels.
        size: [u64; 3],
        /// First byte in the buffer.
        offset: u64,
    },
    /// Copies a buffer into pixels.
    CopyBufferToImage {
        /// The source.
        buffer: Id,
        /// The target.
        image: Id,
        /// First byte in the buffer.
        offset: u64,
        /// First pixel.
        origin: [u64; 3],
        /// Pixels.
        size: [u64; 3],
    },
    /// Fills a buffer with a pattern.
    FillBuffer {
        /// The buffer.
        buffer: Id,
        /// The pattern, 1 to 128 bytes.
        #[serde(borrow)]
        pattern: &'a [u8],
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Fills pixels with a color (16 bytes: four floats or ints).
    FillImage {
        /// The image.
        image: Id,
        /// The color.
        #[serde(borrow)]
        color: &'a [u8],
        /// First pixel.
        origin: [u64; 3],
        /// Pixels.
        size: [u64; 3],
    },
    /// Migrates objects to the device (or, with flag 1, to the host) before their use.
    Migrate {
        /// Memory objects, four little-endian bytes each.
        #[serde(borrow)]
        objects: &'a [u8],
        /// `cl_mem_migration_flags`.
        flags: u64,
    },
    /// Completes when its wait list is complete; with an empty list, when all earlier commands are
    /// complete.
    Marker,
    /// Like a marker; later commands do not start before it is complete.
    Barrier,
    /// `clEnqueueSVMMemcpy` between two addresses of the device.
    SvmCopy {
        /// The target.
        target: u64,
        /// The source.
        source: u64,
        /// Bytes.
        len: u64,
    },
    /// Transfers bytes between shared virtual memory and a payload (if the two ends do not share
    /// the pages).
    Svm {
        /// Direction.
        direction: Direction,
        /// The address.
        address: u64,
        /// The payload.
        payload: Payload,
    },
    /// `clEnqueueSVMMemFill`.
    SvmFill {
        /// The address.
        address: u64,
        /// The pattern, 1 to 128 bytes.
        #[serde(borrow)]
        pattern: &'a [u8],
        /// Bytes.
        len: u64,
    },
    /// No operation; since 1.1. Assigns the following commands to a trace (W3C trace context), if
    /// the node exports traces.
    Trace {
        /// `trace-id`
        trace: [u8; 16],
        /// `parent-id`: the span that the commands belong to.
        parent: [u8; 8],
        /// Number of following commands that belong to the span.
        commands: u32,
    },
}
