//! Reads, writes, copies and fills of buffers.

use super::buffer::inside;
use super::Caller;
use crate::core::buffer::{self, from_to, Side};
use crate::core::event::Waits;
use crate::core::map::nothing;
use crate::core::memory::Memory;
use crate::core::object::Object;
use crate::core::pixel::{Box3, Pitch};
use crate::core::queue::Queue;
use crate::core::transfer::{reads, writes, Span, Transfer};
use baltra_opencl::*;
use baltra_wire::Operation;
use std::ffi::c_void;

/// A buffer that a command of the queue uses.
pub(super) fn buffer_of<'a>(
    caller: Caller<'a>,
    queue: &Object<Queue>,
    raw: cl_mem,
) -> Result<&'a Object<Memory>, i32> {
    let memory = caller.get::<Memory>(raw)?;
    // CL_INVALID_CONTEXT if the context associated with command_queue and buffer are not the
    // same.
    if !std::ptr::eq(&*memory.context, &*queue.context) {
        return Err(CL_INVALID_CONTEXT);
    }
    // CL_INVALID_MEM_OBJECT if buffer is not a valid buffer object.
    if memory.kind != CL_MEM_OBJECT_BUFFER {
        return Err(CL_INVALID_MEM_OBJECT);
    }
    Ok(memory)
}

/// Checks the host's access rights to the object.
pub(super) fn host_may(memory: &Memory, read: bool) -> Result<(), i32> {
    // CL_INVALID_OPERATION if clEnqueueReadBuffer is called on buffer which has been created
    // with CL_MEM_HOST_WRITE_ONLY or CL_MEM_HOST_NO_ACCESS; writes accordingly.
    let opposite = if read {
        CL_MEM_HOST_WRITE_ONLY
    } else {
        CL_MEM_HOST_READ_ONLY
    };
    match memory.flags & (opposite | CL_MEM_HOST_NO_ACCESS) as u64 {
        0 => Ok(()),
        _ => Err(CL_INVALID_OPERATION),
    }
}

#[no_mangle]
pub unsafe extern "C" fn clEnqueueReadBuffer(
    queue: cl_command_queue,
    buffer: cl_mem,
    blocking_read: cl_bool,
    offset: usize,
    size: usize,
    ptr: *mut c_void,
    num_events: cl_uint,
    wait_list: *const cl_event,
    event_ret: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        let memory = buffer_of(caller, queue, buffer)?;
        // CL_INVALID_VALUE if the region being read specified by (offset, size) is out of bounds
        // or if ptr is a NULL value.
        inside(memory.size, offset, size)?;
        if ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        let waits = caller.waits(&queue.context, num_events, wait_list)?;
        host_may(memory, true)?;
        let transfer = Transfer {
            queue,
            command: CL_COMMAND_READ_BUFFER,
            waits: &waits,
            event_ret,
            blocking: blocking_read != 0,
            uses: reads(memory),
        };
        match size {
            0 => nothing(&transfer),
            _ => buffer::read(transfer, memory, offset, Span::new(ptr, size)),
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn clEnqueueWriteBuffer(
    queue: cl_command_queue,
    buffer: cl_mem,
    blocking_write: cl_bool,
    offset: usize,
    size: usize,
    ptr: *const c_void,
    num_events: cl_uint,
    wait_list: *const cl_event,
    event_ret: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        let memory = buffer_of(caller, queue, buffer)?;
        // CL_INVALID_VALUE if the region being written specified by (offset, size) is out of
        // bounds or if ptr is a NULL value.
        inside(memory.size, offset, size)?;
        if ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        let waits = caller.waits(&queue.context, num_events, wait_list)?;
        host_may(memory, false)?;
        let transfer = Transfer {
            queue,
            command: CL_COMMAND_WRITE_BUFFER,
            waits: &waits,
            event_ret,
            blocking: blocking_write != 0,
            uses: writes(memory),
        };
        match size {
            0 => nothing(&transfer),
            _ => buffer::write(transfer, memory, offset, Span::new(ptr, size)),
        }
    })
}

/// The three pairs of arguments that describe one side of a box.
struct RawSide {
    origin: *const usize,
    row_pitch: usize,
    slice_pitch: usize,
}

fn triple(caller: Caller<'_>, pointer: *const usize) -> Result<[usize; 3], i32> {
    caller
        .value(pointer.cast::<[usize; 3]>())
        .ok_or(CL_INVALID_VALUE)
}

/// The box that a region describes.
fn box_of(caller: Caller<'_>, region: *const usize) -> Result<Box3, i32> {
    // CL_INVALID_VALUE if any region array element is 0.
    let [row, rows, slices] = triple(caller, region)?;
    if row == 0 || rows == 0 || slices == 0 {
        return Err(CL_INVALID_VALUE);
    }
    let bytes = row.checked_mul(rows).and_then(|n| n.checked_mul(slices));
    bytes.ok_or(CL_INVALID_VALUE)?;
    Ok(Box3 { row, rows, slices })
}

/// Checks one side of a box and fills in its pitches.
fn side(caller: Caller<'_>, raw: &RawSide, size: Box3) -> Result<Side, i32> {
    let origin = triple(caller, raw.origin)?;
    // CL_INVALID_VALUE if row_pitch is not 0 and is less than region[0].
    let row = match raw.row_pitch {
        0 => size.row,
        n if n >= size.row => n,
        _ => return Err(CL_INVALID_VALUE),
    };
    // CL_INVALID_VALUE if slice_pitch is not 0 and is less than region[1] * row_pitch and not a
    // multiple of row_pitch.
    let least = size.rows.checked_mul(row).ok_or(CL_INVALID_VALUE)?;
    let slice = match raw.slice_pitch {
        0 => least,
        n if n >= least && n % row == 0 => n,
        _ => return Err(CL_INVALID_VALUE),
    };
    Ok(Side {
        origin,
        pitch: Pitch { row, slice },
    })
}

/// `CL_INVALID_VALUE` unless the box lies inside `bytes` bytes.
fn box_inside(side: &Side, size: Box3, bytes: usize) -> Result<(), i32> {
    let end = || {
        let [x, y, z] = side.origin;
        let rows = y.checked_add(size.rows - 1)?.checked_mul(side.pitch.row)?;
        let slices = z
            .checked_add(size.slices - 1)?
            .checked_mul(side.pitch.slice)?;
        let last = x.checked_add(size.row)?;
        slices.checked_add(rows)?.checked_add(last)
    };
    match end() {
        Some(end) if end <= bytes => Ok(()),
        _ => Err(CL_INVALID_VALUE),
    }
}

#[no_mangle]
pub unsafe extern "C" fn clEnqueueReadBufferRect(
    queue: cl_command_queue,
    buffer: cl_mem,
    blocking_read: cl_bool,
    buffer_origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    buffer_row_pitch: usize,
    buffer_slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
    ptr: *mut c_void,
    num_events: cl_uint,
    wait_list: *const cl_event,
    event_ret: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        let memory = buffer_of(caller, queue, buffer)?;
        let size = box_of(caller, region)?;
        let inner = RawSide {
            origin: buffer_origin,
            row_pitch: buffer_row_pitch,
            slice_pitch: buffer_slice_pitch,
        };
        let inner = side(caller, &inner, size)?;
        let outer = RawSide {
            origin: host_origin,
            row_pitch: host_row_pitch,
            slice_pitch: host_slice_pitch,
        };
        let outer = side(caller, &outer, size)?;
        // CL_INVALID_VALUE if the region being read is out of bounds, or if ptr is NULL.
        box_inside(&inner, size, memory.size)?;
        if ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        let waits = caller.waits(&queue.context, num_events, wait_list)?;
        host_may(memory, true)?;
        let transfer = Transfer {
            queue,
            command: CL_COMMAND_READ_BUFFER_RECT,
            waits: &waits,
            event_ret,
            blocking: blocking_read != 0,
            uses: reads(memory),
        };
        buffer::read_rect(transfer, memory, (inner, outer), size, ptr as usize)
    })
}

#[no_mangle]
pub unsafe extern "C" fn clEnqueueWriteBufferRect(
    queue: cl_command_queue,
    buffer: cl_mem,
    blocking_write: cl_bool,
    buffer_origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    buffer_row_pitch: usize,
    buffer_slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
    ptr: *const c_void,
    num_events: cl_uint,
    wait_list: *const cl_event,
    event_ret: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        let memory = buffer_of(caller, queue, buffer)?;
        let size = box_of(caller, region)?;
        let inner = RawSide {
            origin: buffer_origin,
            row_pitch: buffer_row_pitch,
            slice_pitch: buffer_slice_pitch,
        };
        let inner = side(caller, &inner, size)?;
        let outer = RawSide {
            origin: host_origin,
            row_pitch: host_row_pitch,
            slice_pitch: host_slice_pitch,
        };
        let outer = side(caller, &outer, size)?;
        // CL_INVALID_VALUE if the region being written is out of bounds, or if ptr is NULL.
        box_inside(&inner, size, memory.size)?;
        if ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        let waits = caller.waits(&queue.context, num_events, wait_list)?;
        host_may(memory, false)?;
        let transfer = Transfer {
            queue,
            command: CL_COMMAND_WRITE_BUFFER_RECT,
            waits: &waits,
            event_ret,
            blocking: blocking_write != 0,
            uses: writes(memory),
        };
        buffer::write_rect(transfer, memory, (inner, outer), size, ptr as usize)
    })
}

/// Whether two objects' bytes are the same buffer's, and how far apart they start there.
fn same_buffer(a: &Memory, b: &Memory) -> Option<(usize, usize)> {
    let ((a, a_origin), (b, b_origin)) = (a.whole(), b.whole());
    std::ptr::eq(a, b).then_some((a_origin, b_origin))
}

#[no_mangle]
pub unsafe extern "C" fn clEnqueueCopyBuffer(
    queue: cl_command_queue,
    src_buffer: cl_mem,
    dst_buffer: cl_mem,
    src_offset: usize,
    dst_offset: usize,
    size: usize,
    num_events: cl_uint,
    wait_list: *const cl_event,
    event_ret: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        let source = buffer_of(caller, queue, src_buffer)?;
        let target = buffer_of(caller, queue, dst_buffer)?;
        // CL_INVALID_VALUE if src_offset, dst_offset, size, src_offset + size or dst_offset +
        // size require accessing elements outside the buffers.
        inside(source.size, src_offset, size)?;
        inside(target.size, dst_offset, size)?;
        // CL_MEM_COPY_OVERLAP if src_buffer and dst_buffer are the same buffer or sub-buffer
        // object and the source and destination regions overlap.
        if let Some((a, b)) = same_buffer(source, target) {
            if (a + src_offset).abs_diff(b + dst_offset) < size {
                return Err(CL_MEM_COPY_OVERLAP);
            }
        }
        let waits = caller.waits(&queue.context, num_events, wait_list)?;
        let transfer = plain(queue, CL_COMMAND_COPY_BUFFER, &waits, event_ret);
        let (source, target) = ((source, src_offset), (target, dst_offset));
        match size {
            0 => nothing(&transfer),
            _ => buffer::copy_buffer(transfer, source, target, size),
        }
    })
}

fn plain<'a>(
    queue: &'a Object<Queue>,
    command: i32,
    waits: &'a Waits<'a>,
    event_ret: *mut cl_event,
) -> Transfer<'a> {
    Transfer {
        queue,
        command,
        waits,
        event_ret,
        blocking: false,
        uses: None,
    }
}

/// Whether two boxes of the same buffer overlap, where both lie in it with the same pitches;
/// with different ones, whether their spans do.
fn overlap(a: &Side, b: &Side, size: Box3, origins: (usize, usize)) -> bool {
    let extent = [size.row, size.rows, size.slices];
    if a.pitch == b.pitch && origins.0 == origins.1 {
        let in_boxes = (0..3).all(|i| a.origin[i].abs_diff(b.origin[i]) < extent[i]);
        // A box that is wider than the rest of its row continues in the next row.
        let wraps = |s: &Side| {
            s.origin[0] + size.row > s.pitch.row
                || (s.origin[1] + size.rows) * s.pitch.row > s.pitch.slice
        };
        if !wraps(a) && !wraps(b) {
            return in_boxes;
        }
    }
    let start = (origins.0 + a.offset(), origins.1 + b.offset());
    start.0 < start.1 + size.span(b.pitch) && start.1 < start.0 + size.span(a.pitch)
}

#[no_mangle]
pub unsafe extern "C" fn clEnqueueCopyBufferRect(
    queue: cl_command_queue,
    src_buffer: cl_mem,
    dst_buffer: cl_mem,
    src_origin: *const usize,
    dst_origin: *const usize,
    region: *const usize,
    src_row_pitch: usize,
    src_slice_pitch: usize,
    dst_row_pitch: usize,
    dst_slice_pitch: usize,
    num_events: cl_uint,
    wait_list: *const cl_event,
    event_ret: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        let source = buffer_of(caller, queue, src_buffer)?;
        let target = buffer_of(caller, queue, dst_buffer)?;
        let size = box_of(caller, region)?;
        let from = RawSide {
            origin: src_origin,
            row_pitch: src_row_pitch,
            slice_pitch: src_slice_pitch,
        };
        let from = side(caller, &from, size)?;
        let to = RawSide {
            origin: dst_origin,
            row_pitch: dst_row_pitch,
            slice_pitch: dst_slice_pitch,
        };
        let to = side(caller, &to, size)?;
        // CL_INVALID_VALUE if (src_origin, region, src_row_pitch, src_slice_pitch) or the
        // destination's require accessing elements outside the buffers.
        box_inside(&from, size, source.size)?;
        box_inside(&to, size, target.size)?;
        if let Some(origins) = same_buffer(source, target) {
            // CL_INVALID_VALUE if src_buffer and dst_buffer are the same buffer object and
            // src_slice_pitch is not equal to dst_slice_pitch and src_row_pitch is not equal to
            // dst_row_pitch.
            if std::ptr::eq(source, target) && from.pitch != to.pitch {
                return Err(CL_INVALID_VALUE);
            }
            // CL_MEM_COPY_OVERLAP if the source and destination regions overlap.
            if overlap(&from, &to, size, origins) {
                return Err(CL_MEM_COPY_OVERLAP);
            }
        }
        let waits = caller.waits(&queue.context, num_events, wait_list)?;
        let operation = Operation::CopyBufferRect {
            source: source.id_in(queue.member)?,
            target: target.id_in(queue.member)?,
            source_region: from.region(size),
            target_region: to.region(size),
        };
        let command = CL_COMMAND_COPY_BUFFER_RECT;
        queue.enqueue(
            command,
            &waits,
            event_ret,
            &from_to(source, target),
            &operation,
        )
    })
}

#[no_mangle]
pub unsafe extern "C" fn clEnqueueFillBuffer(
    queue: cl_command_queue,
    buffer: cl_mem,
    pattern: *const c_void,
    pattern_size: usize,
    offset: usize,
    size: usize,
    num_events: cl_uint,
    wait_list: *const cl_event,
    event_ret: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        let memory = buffer_of(caller, queue, buffer)?;
        // CL_INVALID_VALUE if offset or offset + size require accessing elements outside the
        // buffer.
        inside(memory.size, offset, size)?;
        // CL_INVALID_VALUE if pattern is NULL or if pattern_size is 0 or if pattern_size is not
        // one of { 1, 2, 4, 8, 16, 32, 64, 128 }.
        if pattern.is_null() || !pattern_size.is_power_of_two() || pattern_size > 128 {
            return Err(CL_INVALID_VALUE);
        }
        // CL_INVALID_VALUE if offset and size are not a multiple of pattern_size.
        if (offset | size) & (pattern_size - 1) != 0 {
            return Err(CL_INVALID_VALUE);
        }
        let pattern = caller.slice(pattern_size, pattern.cast::<u8>(), CL_INVALID_VALUE)?;
        let waits = caller.waits(&queue.context, num_events, wait_list)?;
        let uses = writes(memory).into_iter().collect::<Vec<_>>();
        if size == 0 {
            return queue.enqueue_nothing(CL_COMMAND_FILL_BUFFER, &waits, event_ret, &uses);
        }
        let operation = Operation::FillBuffer {
            buffer: memory.id_in(queue.member)?,
            pattern,
            offset: offset as u64,
            len: size as u64,
        };
        queue.enqueue(CL_COMMAND_FILL_BUFFER, &waits, event_ret, &uses, &operation)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(x: usize, y: usize, row: usize, slice: usize) -> Side {
        Side {
            origin: [x, y, 0],
            pitch: Pitch { row, slice },
        }
    }

    const SMALL: Box3 = Box3 {
        row: 4,
        rows: 2,
        slices: 1,
    };

    #[test]
    fn a_box_that_ends_behind_the_buffer_is_refused() {
        assert!(box_inside(&at(0, 0, 8, 16), SMALL, 12).is_ok());
        assert!(box_inside(&at(0, 0, 8, 16), SMALL, 11).is_err());
        assert!(box_inside(&at(usize::MAX, 0, 8, 16), SMALL, 11).is_err());
    }

    #[test]
    fn boxes_side_by_side_do_not_overlap() {
        let b = |x, y| at(x, y, 16, 64);
        assert!(!overlap(&b(0, 0), &b(4, 0), SMALL, (0, 0)));
        assert!(!overlap(&b(0, 0), &b(0, 2), SMALL, (0, 0)));
        assert!(overlap(&b(0, 0), &b(3, 1), SMALL, (0, 0)));
    }
}
