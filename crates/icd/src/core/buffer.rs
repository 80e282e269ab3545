//! Reads, writes, copies and fills of buffers: by this library if the bytes are in place and no
//! command is outstanding, otherwise by the executor.

use crate::core::copy::copy;
use crate::core::memory::Memory;
use crate::core::object::Object;
use crate::core::pieces::MakeOperation;
use crate::core::pixel::{copy_box, Box3, Pitch};
use crate::core::queue::{Access, Use};
use crate::core::transfer::FLUSHED_BYTES;
use crate::core::transfer::{Span, Transfer};
use baltra_opencl::*;
use baltra_wire::{Direction, Id, Operation, Region};

/// A blocking transfer of more bytes waits for outstanding commands and copies in place, to avoid
/// copying twice.
const STAGE_BYTES_MAX: usize = 256 << 10;

/// The buffer's bytes in place, if this side may use them now (or, blocking, after waiting).
fn place(t: &Transfer<'_>, memory: &Object<Memory>, len: usize) -> Result<Option<*mut u8>, i32> {
    // With several sessions another one may have the current contents.
    if t.queue.context.members.len() != 1 {
        return Ok(None);
    }
    let Some(place) = memory.in_place(t.queue.member)? else {
        return Ok(None);
    };
    if t.may_be_local()? {
        return Ok(Some(place));
    }
    let reading = matches!(
        t.command,
        CL_COMMAND_READ_BUFFER | CL_COMMAND_READ_BUFFER_RECT
    );
    if t.blocking && t.queue.in_order() && (reading || len > STAGE_BYTES_MAX) {
        t.become_local()?;
        return Ok(Some(place));
    }
    Ok(None)
}

/// `clEnqueueWriteBuffer`.
pub fn write(t: Transfer<'_>, m: &Object<Memory>, offset: usize, from: Span) -> Result<(), i32> {
    let clear = t.queue.context.reads.newest(from).is_none();
    if clear {
        if let Some(place) = place(&t, m, from.len)? {
            t.on_the_spot(|| {
                // SAFETY: the entry point has checked that the range is inside the buffer.
                let target = unsafe { place.add(offset) };
                copy(from.start as *const u8, target, from.len);
            });
            return Ok(());
        }
    }
    let buffer = m.id_in(t.queue.member)?;
    t.write_linear(from, range(Direction::Write, buffer, offset))
}

/// `clEnqueueReadBuffer`.
pub fn read(t: Transfer<'_>, m: &Object<Memory>, offset: usize, to: Span) -> Result<(), i32> {
    if let Some(place) = place(&t, m, to.len)? {
        t.on_the_spot(|| {
            // SAFETY: the entry point has checked that the range is inside the buffer.
            let source = unsafe { place.add(offset) };
            copy(source, to.start as *mut u8, to.len);
        });
        return Ok(());
    }
    let buffer = m.id_in(t.queue.member)?;
    t.read_linear(to, range(Direction::Read, buffer, offset))
}

/// The commands of a transfer that begins at an offset of a buffer.
pub fn range(direction: Direction, buffer: Id, offset: usize) -> MakeOperation {
    Box::new(move |at, payload| Operation::Buffer {
        direction,
        buffer,
        offset: offset as u64 + at,
        payload,
    })
}

/// One side of a box transfer: its first byte's offset and its pitches.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Bytes in a row, rows, slices to the box's first byte.
    pub origin: [usize; 3],
    /// Bytes from row to row and from slice to slice, never 0.
    pub pitch: Pitch,
}

impl Side {
    /// Offset of the first byte.
    pub fn offset(&self) -> usize {
        self.origin[0] + self.origin[1] * self.pitch.row + self.origin[2] * self.pitch.slice
    }

    /// In the session's form.
    pub fn region(&self, size: Box3) -> Region {
        Region {
            origin: self.origin.map(|n| n as u64),
            size: [size.row as u64, size.rows as u64, size.slices as u64],
            row_pitch: self.pitch.row as u64,
            slice_pitch: self.pitch.slice as u64,
        }
    }
}

/// `clEnqueueWriteBufferRect`; `pointer`: the base of the host side's offset.
pub fn write_rect(
    t: Transfer<'_>,
    m: &Object<Memory>,
    (buffer, host): (Side, Side),
    size: Box3,
    pointer: usize,
) -> Result<(), i32> {
    let from = Span {
        start: pointer + host.offset(),
        len: size.span(host.pitch),
    };
    let start = from.start;
    if t.queue.context.reads.newest(from).is_none() {
        if let Some(place) = place(&t, m, size.len())? {
            t.on_the_spot(|| {
                // SAFETY: the entry point has checked that the box is inside the buffer; the
                // application guarantees its own side.
                unsafe {
                    let target = place.add(buffer.offset());
                    copy_box(start as *const u8, host.pitch, target, buffer.pitch, size);
                }
            });
            return Ok(());
        }
    }
    let id = m.id_in(t.queue.member)?;
    let fill = move |bytes: &mut [u8]| {
        let target = bytes.as_mut_ptr();
        // SAFETY: the block holds the box tightly; the application guarantees its own side.
        unsafe { copy_box(start as *const u8, host.pitch, target, size.tight(), size) };
    };
    t.write(size.len(), from, fill, |payload| Operation::BufferRect {
        direction: Direction::Write,
        buffer: id,
        region: buffer.region(size),
        payload,
    })
}

/// `clEnqueueReadBufferRect`; `pointer`: the base of the host side's offset.
pub fn read_rect(
    t: Transfer<'_>,
    m: &Object<Memory>,
    (buffer, host): (Side, Side),
    size: Box3,
    pointer: usize,
) -> Result<(), i32> {
    let to = Span {
        start: pointer + host.offset(),
        len: size.span(host.pitch),
    };
    let start = to.start;
    if let Some(place) = place(&t, m, size.len())? {
        t.on_the_spot(|| {
            // SAFETY: as in `write_rect`.
            unsafe {
                let source = place.add(buffer.offset());
                copy_box(source, buffer.pitch, start as *mut u8, host.pitch, size);
            }
        });
        return Ok(());
    }
    let id = m.id_in(t.queue.member)?;
    let drain = move |bytes: &[u8]| {
        // SAFETY: as in `write_rect`.
        unsafe {
            copy_box(
                bytes.as_ptr(),
                size.tight(),
                start as *mut u8,
                host.pitch,
                size,
            )
        };
    };
    t.read(size.len(), to, drain, |payload| Operation::BufferRect {
        direction: Direction::Read,
        buffer: id,
        region: buffer.region(size),
        payload,
    })
}

/// `clEnqueueCopyBuffer`.
pub fn copy_buffer(
    t: Transfer<'_>,
    (source, source_offset): (&Object<Memory>, usize),
    (target, target_offset): (&Object<Memory>, usize),
    len: usize,
) -> Result<(), i32> {
    let member = t.queue.member;
    let operation = Operation::CopyBuffer {
        source: source.id_in(member)?,
        target: target.id_in(member)?,
        source_offset: source_offset as u64,
        target_offset: target_offset as u64,
        len: len as u64,
    };
    let uses = from_to(source, target);
    t.queue
        .enqueue(t.command, t.waits, t.event_ret, &uses, &operation)?;
    if len >= FLUSHED_BYTES {
        t.queue.channel.flush();
    }
    Ok(())
}

/// A command that reads one object and changes another.
pub fn from_to<'a>(source: &'a Object<Memory>, target: &'a Object<Memory>) -> [Use<'a>; 2] {
    [
        Use {
            memory: source,
            access: Access::Read,
        },
        Use {
            memory: target,
            access: Access::ReadWrite,
        },
    ]
}
