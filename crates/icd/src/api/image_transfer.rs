//! Reading, writing, copying, filling and mapping images.

use super::Caller;
use crate::core::image::{transfer, wide};
use crate::core::image_map::map_image;
use crate::core::layout::Layout;
use crate::core::memory::Memory;
use crate::core::object::Object;
use crate::core::pixel::copy_box;
use crate::core::queue::{Access, Queue, Use};
use crate::core::transfer::{reads, writes, Span, Transfer};
use baltra_opencl::*;
use baltra_wire::{Direction, Operation};
use std::ffi::c_void;

/// `clEnqueueReadImage`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueReadImage(
    command_queue: cl_command_queue,
    image: cl_mem,
    blocking_read: cl_bool,
    origin: *const usize,
    region: *const usize,
    row_pitch: usize,
    slice_pitch: usize,
    ptr: *mut c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(command_queue)?;
        let (image, layout) = pixels(caller, queue, image)?;
        let part = Part::new(caller, layout, origin, region)?;
        let pitch = layout.host_pitch(part.size, row_pitch, slice_pitch)?;
        // CL_INVALID_VALUE if … ptr is a NULL value.
        if ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        // CL_INVALID_OPERATION if clEnqueueReadImage is called on image which has been created
        // with CL_MEM_HOST_WRITE_ONLY or CL_MEM_HOST_NO_ACCESS.
        deny(image, CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS)?;
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        let t = Transfer {
            queue,
            command: CL_COMMAND_READ_IMAGE,
            waits: &waits,
            event_ret: event,
            blocking: blocking_read != 0,
            uses: reads(image),
        };
        let bytes = layout.bytes(part.size);
        let target = Span::new(ptr, bytes.span(pitch));
        let id = image.id_in(queue.member)?;
        let drain = move |block: &[u8]| {
            // SAFETY: the block holds the region tightly; the application guarantees that its
            // memory holds it with its pitches until the command is complete.
            unsafe {
                let to = target.start as *mut u8;
                copy_box(block.as_ptr(), bytes.tight(), to, pitch, bytes);
            }
        };
        t.read(bytes.len(), target, drain, |payload| {
            transfer(Direction::Read, id, part.origin, part.size, payload)
        })
    })
}

/// `clEnqueueWriteImage`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueWriteImage(
    command_queue: cl_command_queue,
    image: cl_mem,
    blocking_write: cl_bool,
    origin: *const usize,
    region: *const usize,
    input_row_pitch: usize,
    input_slice_pitch: usize,
    ptr: *const c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(command_queue)?;
        let (image, layout) = pixels(caller, queue, image)?;
        let part = Part::new(caller, layout, origin, region)?;
        let pitch = layout.host_pitch(part.size, input_row_pitch, input_slice_pitch)?;
        // CL_INVALID_VALUE if … ptr is a NULL value.
        if ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        // CL_INVALID_OPERATION if clEnqueueWriteImage is called on image which has been created
        // with CL_MEM_HOST_READ_ONLY or CL_MEM_HOST_NO_ACCESS.
        deny(image, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)?;
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        let t = Transfer {
            queue,
            command: CL_COMMAND_WRITE_IMAGE,
            waits: &waits,
            event_ret: event,
            blocking: blocking_write != 0,
            uses: writes(image),
        };
        let bytes = layout.bytes(part.size);
        let source = Span::new(ptr, bytes.span(pitch));
        let id = image.id_in(queue.member)?;
        let fill = move |block: &mut [u8]| {
            // SAFETY: as for a read, the other way.
            unsafe {
                let from = source.start as *const u8;
                copy_box(from, pitch, block.as_mut_ptr(), bytes.tight(), bytes);
            }
        };
        t.write(bytes.len(), source, fill, |payload| {
            transfer(Direction::Write, id, part.origin, part.size, payload)
        })
    })
}

/// `clEnqueueMapImage`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueMapImage(
    command_queue: cl_command_queue,
    image: cl_mem,
    blocking_map: cl_bool,
    map_flags: cl_map_flags,
    origin: *const usize,
    region: *const usize,
    image_row_pitch: *mut usize,
    image_slice_pitch: *mut usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
    errcode_ret: *mut cl_int,
) -> *mut c_void {
    handle!(errcode_ret, |caller| {
        let queue = caller.get::<Queue>(command_queue)?;
        let (image, layout) = pixels(caller, queue, image)?;
        let part = Part::new(caller, layout, origin, region)?;
        check_map_flags(image, map_flags)?;
        // CL_INVALID_VALUE if image_row_pitch is NULL, or if image is a 3D image, 1D or 2D image
        // array object and image_slice_pitch is NULL.
        if image_row_pitch.is_null() || (layout.is_deep() && image_slice_pitch.is_null()) {
            return Err(CL_INVALID_VALUE);
        }
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        let t = Transfer {
            queue,
            command: CL_COMMAND_MAP_IMAGE,
            waits: &waits,
            event_ret: event,
            blocking: blocking_map != 0,
            uses: reads(image),
        };
        let mapped = map_image(t, image, map_flags, part.origin, part.size)?;
        caller.set(image_row_pitch, mapped.row_pitch);
        caller.set(image_slice_pitch, mapped.slice_pitch);
        Ok(mapped.pointer as *mut c_void)
    })
}

/// `clEnqueueFillImage`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueFillImage(
    command_queue: cl_command_queue,
    image: cl_mem,
    fill_color: *const c_void,
    origin: *const usize,
    region: *const usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(command_queue)?;
        let (image, layout) = pixels(caller, queue, image)?;
        // CL_INVALID_VALUE if fill_color is NULL.
        if fill_color.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        // "The fill color is a single floating-point value if the channel order is CL_DEPTH.
        // Otherwise, the fill color is a four component RGBA … color value."
        let mut color = [0; 16];
        let given = match layout.format.order as i32 {
            CL_DEPTH => 4,
            _ => 16,
        };
        let bytes = caller.slice(given, fill_color.cast::<u8>(), CL_INVALID_VALUE)?;
        color[..given].copy_from_slice(bytes);
        let part = Part::new(caller, layout, origin, region)?;
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        let operation = Operation::FillImage {
            image: image.id_in(queue.member)?,
            color: &color,
            origin: wide(part.origin),
            size: wide(part.size),
        };
        let uses = writes(image);
        let uses = uses.as_slice();
        queue.enqueue(CL_COMMAND_FILL_IMAGE, &waits, event, uses, &operation)
    })
}

/// `clEnqueueCopyImage`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueCopyImage(
    command_queue: cl_command_queue,
    src_image: cl_mem,
    dst_image: cl_mem,
    src_origin: *const usize,
    dst_origin: *const usize,
    region: *const usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(command_queue)?;
        let (source, source_layout) = pixels(caller, queue, src_image)?;
        let (target, target_layout) = pixels(caller, queue, dst_image)?;
        // CL_IMAGE_FORMAT_MISMATCH if src_image and dst_image do not use the same image format.
        if source_layout.format != target_layout.format {
            return Err(CL_IMAGE_FORMAT_MISMATCH);
        }
        let from = Part::new(caller, source_layout, src_origin, region)?;
        let to = Part::new(caller, target_layout, dst_origin, region)?;
        // CL_MEM_COPY_OVERLAP if src_image and dst_image are the same image object and the
        // source and destination regions overlap.
        if std::ptr::eq(source, target) && from.overlaps(&to) {
            return Err(CL_MEM_COPY_OVERLAP);
        }
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        let operation = Operation::CopyImage {
            source: source.id_in(queue.member)?,
            target: target.id_in(queue.member)?,
            source_origin: wide(from.origin),
            target_origin: wide(to.origin),
            size: wide(from.size),
        };
        let uses = from_to(source, target);
        queue.enqueue(CL_COMMAND_COPY_IMAGE, &waits, event, &uses, &operation)
    })
}

/// `clEnqueueCopyImageToBuffer`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueCopyImageToBuffer(
    command_queue: cl_command_queue,
    src_image: cl_mem,
    dst_buffer: cl_mem,
    src_origin: *const usize,
    region: *const usize,
    dst_offset: usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(command_queue)?;
        let (image, layout) = pixels(caller, queue, src_image)?;
        let buffer = buffer(caller, queue, dst_buffer)?;
        let part = Part::new(caller, layout, src_origin, region)?;
        check_range(buffer, layout, &part, dst_offset)?;
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        let operation = Operation::CopyImageToBuffer {
            image: image.id_in(queue.member)?,
            buffer: buffer.id_in(queue.member)?,
            origin: wide(part.origin),
            size: wide(part.size),
            offset: dst_offset as u64,
        };
        let uses = from_to(image, buffer);
        let command = CL_COMMAND_COPY_IMAGE_TO_BUFFER;
        queue.enqueue(command, &waits, event, &uses, &operation)
    })
}

/// `clEnqueueCopyBufferToImage`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueCopyBufferToImage(
    command_queue: cl_command_queue,
    src_buffer: cl_mem,
    dst_image: cl_mem,
    src_offset: usize,
    dst_origin: *const usize,
    region: *const usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(command_queue)?;
        let buffer = buffer(caller, queue, src_buffer)?;
        let (image, layout) = pixels(caller, queue, dst_image)?;
        let part = Part::new(caller, layout, dst_origin, region)?;
        check_range(buffer, layout, &part, src_offset)?;
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        let operation = Operation::CopyBufferToImage {
            buffer: buffer.id_in(queue.member)?,
            image: image.id_in(queue.member)?,
            offset: src_offset as u64,
            origin: wide(part.origin),
            size: wide(part.size),
        };
        let uses = from_to(buffer, image);
        let command = CL_COMMAND_COPY_BUFFER_TO_IMAGE;
        queue.enqueue(command, &waits, event, &uses, &operation)
    })
}

/// A checked part of an image.
struct Part {
    origin: [usize; 3],
    size: [usize; 3],
}

impl Part {
    fn new(
        caller: Caller<'_>,
        layout: &Layout,
        origin: *const usize,
        region: *const usize,
    ) -> Result<Part, i32> {
        // CL_INVALID_VALUE if origin or region is NULL.
        let three = |pointer: *const usize| caller.value(pointer.cast::<[usize; 3]>());
        let origin = three(origin).ok_or(CL_INVALID_VALUE)?;
        let size = three(region).ok_or(CL_INVALID_VALUE)?;
        layout.check(origin, size)?;
        Ok(Part { origin, size })
    }

    fn overlaps(&self, other: &Part) -> bool {
        (0..3).all(|axis| {
            self.origin[axis] < other.origin[axis] + other.size[axis]
                && other.origin[axis] < self.origin[axis] + self.size[axis]
        })
    }
}

/// An image of the queue's context.
fn pixels<'a>(
    caller: Caller<'a>,
    queue: &Queue,
    raw: cl_mem,
) -> Result<(&'a Object<Memory>, &'a Layout), i32> {
    // CL_INVALID_MEM_OBJECT if image is not a valid image object.
    let image = caller.get::<Memory>(raw)?;
    let layout = image.pixels()?;
    check_context(queue, image)?;
    // CL_INVALID_OPERATION if the device associated with command_queue does not support images.
    if queue.device.limits.images {
        Ok((image, layout))
    } else {
        Err(CL_INVALID_OPERATION)
    }
}

/// A buffer of the queue's context.
fn buffer<'a>(caller: Caller<'a>, queue: &Queue, raw: cl_mem) -> Result<&'a Object<Memory>, i32> {
    // CL_INVALID_MEM_OBJECT if … is not a valid buffer object.
    let buffer = caller.get::<Memory>(raw)?;
    if buffer.is_image() {
        return Err(CL_INVALID_MEM_OBJECT);
    }
    check_context(queue, buffer)?;
    Ok(buffer)
}

fn check_context(queue: &Queue, memory: &Memory) -> Result<(), i32> {
    // CL_INVALID_CONTEXT if the context associated with command_queue and image are not the same.
    if std::ptr::eq(&*queue.context, &*memory.context) {
        Ok(())
    } else {
        Err(CL_INVALID_CONTEXT)
    }
}

fn check_range(buffer: &Memory, layout: &Layout, part: &Part, offset: usize) -> Result<(), i32> {
    // CL_INVALID_VALUE if … the region specified by offset and the size of the copied pixels
    // refers to a region outside the buffer.
    let end = offset.checked_add(layout.bytes(part.size).len());
    if end.is_some_and(|end| end <= buffer.size) {
        Ok(())
    } else {
        Err(CL_INVALID_VALUE)
    }
}

fn deny(image: &Memory, refused: i32) -> Result<(), i32> {
    match image.flags & refused as u64 {
        0 => Ok(()),
        _ => Err(CL_INVALID_OPERATION),
    }
}

fn check_map_flags(image: &Memory, flags: u64) -> Result<(), i32> {
    let read = CL_MAP_READ as u64;
    let write = CL_MAP_WRITE as u64;
    let invalidate = CL_MAP_WRITE_INVALIDATE_REGION as u64;
    // CL_INVALID_VALUE if values specified in map_flags are not valid: CL_MAP_READ or CL_MAP_WRITE
    // and CL_MAP_WRITE_INVALIDATE_REGION are mutually exclusive.
    let known = flags & !(read | write | invalidate) == 0;
    if !known || (flags & invalidate != 0 && flags & (read | write) != 0) {
        return Err(CL_INVALID_VALUE);
    }
    // CL_INVALID_OPERATION if image has been created with CL_MEM_HOST_WRITE_ONLY or
    // CL_MEM_HOST_NO_ACCESS and CL_MAP_READ is set in map_flags, or if image has been created
    // with CL_MEM_HOST_READ_ONLY or CL_MEM_HOST_NO_ACCESS and CL_MAP_WRITE or
    // CL_MAP_WRITE_INVALIDATE_REGION is set in map_flags.
    if flags & read != 0 {
        deny(image, CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS)?;
    }
    if flags & (write | invalidate) != 0 {
        deny(image, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)?;
    }
    Ok(())
}

fn from_to<'a>(source: &'a Object<Memory>, target: &'a Object<Memory>) -> [Use<'a>; 2] {
    let one = |memory, access| Use { memory, access };
    [one(source, Access::Read), one(target, Access::ReadWrite)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_overlap_only_where_all_directions_do() {
        let part = |origin| Part {
            origin,
            size: [4, 4, 1],
        };
        assert!(part([0, 0, 0]).overlaps(&part([3, 3, 0])));
        assert!(!part([0, 0, 0]).overlaps(&part([4, 0, 0])));
        assert!(!part([0, 0, 0]).overlaps(&part([0, 0, 1])));
    }
}
