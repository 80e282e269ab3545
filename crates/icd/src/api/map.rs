//! Mapping and unmapping.

use super::buffer::inside;
use super::transfer::{buffer_of, host_may};
use crate::core::map;
use crate::core::memory::Memory;
use crate::core::queue::Queue;
use crate::core::transfer::{reads, writes, Transfer};
use baltra_opencl::*;
use std::ffi::c_void;

/// Checks `cl_map_flags` against the host's access rights to the object.
pub(super) fn check_map_flags(memory: &Memory, flags: u64) -> Result<(), i32> {
    let writing = (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) as u64;
    let invalidate = CL_MAP_WRITE_INVALIDATE_REGION as u64;
    // CL_INVALID_VALUE if values specified in map_flags are not valid; CL_MAP_READ or
    // CL_MAP_WRITE and CL_MAP_WRITE_INVALIDATE_REGION are mutually exclusive.
    if flags & !(CL_MAP_READ as u64 | writing) != 0
        || (flags & invalidate != 0 && flags != invalidate)
    {
        return Err(CL_INVALID_VALUE);
    }
    // CL_INVALID_OPERATION if buffer has been created with CL_MEM_HOST_WRITE_ONLY or
    // CL_MEM_HOST_NO_ACCESS and CL_MAP_READ is set, or with CL_MEM_HOST_READ_ONLY or
    // CL_MEM_HOST_NO_ACCESS and CL_MAP_WRITE or CL_MAP_WRITE_INVALIDATE_REGION is set.
    if flags & CL_MAP_READ as u64 != 0 {
        host_may(memory, true)?;
    }
    if flags & writing != 0 {
        host_may(memory, false)?;
    }
    Ok(())
}

#[no_mangle]
pub unsafe extern "C" fn clEnqueueMapBuffer(
    queue: cl_command_queue,
    buffer: cl_mem,
    blocking_map: cl_bool,
    map_flags: cl_map_flags,
    offset: usize,
    size: usize,
    num_events: cl_uint,
    wait_list: *const cl_event,
    event_ret: *mut cl_event,
    errcode_ret: *mut cl_int,
) -> *mut c_void {
    handle!(errcode_ret, |caller| {
        let queue = caller.get::<Queue>(queue)?;
        let memory = buffer_of(caller, queue, buffer)?;
        // CL_INVALID_VALUE if region being mapped given by (offset, size) is out of bounds or if
        // size is 0 or if values specified in map_flags are not valid.
        inside(memory.size, offset, size)?;
        if size == 0 {
            return Err(CL_INVALID_VALUE);
        }
        check_map_flags(memory, map_flags)?;
        let waits = caller.waits(&queue.context, num_events, wait_list)?;
        let transfer = Transfer {
            queue,
            command: CL_COMMAND_MAP_BUFFER,
            waits: &waits,
            event_ret,
            blocking: blocking_map != 0,
            uses: if map::wants_contents(map_flags) {
                reads(memory)
            } else {
                writes(memory)
            },
        };
        let pointer = map::map_buffer(transfer, memory, map_flags, offset, size)?;
        Ok(pointer as *mut c_void)
    })
}

#[no_mangle]
pub unsafe extern "C" fn clEnqueueUnmapMemObject(
    queue: cl_command_queue,
    memobj: cl_mem,
    mapped_ptr: *mut c_void,
    num_events: cl_uint,
    wait_list: *const cl_event,
    event_ret: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        let memory = caller.get::<Memory>(memobj)?;
        // CL_INVALID_CONTEXT if context associated with command_queue and memobj are not the
        // same.
        if !std::ptr::eq(&*memory.context, &*queue.context) {
            return Err(CL_INVALID_CONTEXT);
        }
        let waits = caller.waits(&queue.context, num_events, wait_list)?;
        map::unmap(queue, memory, mapped_ptr as usize, &waits, event_ret)
    })
}
