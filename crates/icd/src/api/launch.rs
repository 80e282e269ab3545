//! `clEnqueueNDRangeKernel`, `clEnqueueTask` and `clEnqueueNativeKernel`.

use super::Caller;
use crate::core::event::Waits;
use crate::core::kernel::Kernel;
use crate::core::launch::{Bounds, Space};
use crate::core::object::Object;
use crate::core::queue::Queue;
use baltra_opencl::*;
use std::ffi::c_void;

/// `clEnqueueNDRangeKernel`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueNDRangeKernel(
    command_queue: cl_command_queue,
    kernel: cl_kernel,
    work_dim: cl_uint,
    global_work_offset: *const usize,
    global_work_size: *const usize,
    local_work_size: *const usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let (queue, kernel) = both(caller, command_queue, kernel)?;
        // CL_INVALID_WORK_DIMENSION if work_dim is not a valid value (i.e. a value between 1 and
        // CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS).
        if !(1..=3).contains(&work_dim) {
            return Err(CL_INVALID_WORK_DIMENSION);
        }
        let n = work_dim as usize;
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        // CL_INVALID_GLOBAL_WORK_SIZE if global_work_size is NULL (before OpenCL 2.1; later there
        // is nothing to run).
        if global_work_size.is_null() {
            return launch_nothing(queue, kernel, &waits, event);
        }
        let global = caller.slice(n, global_work_size, CL_INVALID_GLOBAL_WORK_SIZE)?;
        let optional = |values: *const usize| {
            if values.is_null() {
                Ok(None)
            } else {
                caller.slice(n, values, CL_INVALID_VALUE).map(Some)
            }
        };
        let bounds = bounds(queue, kernel)?;
        let space = Space::new(
            optional(global_work_offset)?,
            global,
            optional(local_work_size)?,
            &bounds,
        )?;
        kernel.launch(queue, CL_COMMAND_NDRANGE_KERNEL, &space, &waits, event)
    })
}

/// `clEnqueueTask`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueTask(
    command_queue: cl_command_queue,
    kernel: cl_kernel,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let (queue, kernel) = both(caller, command_queue, kernel)?;
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        // Equivalent to a launch with work_dim = 1, global_work_offset = NULL,
        // global_work_size[0] = 1 and local_work_size[0] = 1.
        let space = Space::new(None, &[1], Some(&[1]), &bounds(queue, kernel)?)?;
        kernel.launch(queue, CL_COMMAND_TASK, &space, &waits, event)
    })
}

/// `clEnqueueNativeKernel`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueNativeKernel(
    command_queue: cl_command_queue,
    _user_func: Option<unsafe extern "C" fn(*mut c_void)>,
    _args: *mut c_void,
    _cb_args: usize,
    _num_mem_objects: cl_uint,
    _mem_list: *const cl_mem,
    _args_mem_loc: *mut *const c_void,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        caller.get::<Queue>(command_queue)?;
        // CL_INVALID_OPERATION if the device associated with command_queue cannot execute the
        // native kernel: the application's code is not where the device is.
        Err(CL_INVALID_OPERATION)
    })
}

fn both<'a>(
    caller: Caller<'a>,
    queue: cl_command_queue,
    kernel: cl_kernel,
) -> Result<(&'a Object<Queue>, &'a Object<Kernel>), i32> {
    let queue = caller.get::<Queue>(queue)?;
    let kernel = caller.get::<Kernel>(kernel)?;
    // CL_INVALID_CONTEXT if context associated with command_queue and kernel are not the same.
    if std::ptr::eq(&*queue.context, &*kernel.program.context) {
        Ok((queue, kernel))
    } else {
        Err(CL_INVALID_CONTEXT)
    }
}

fn bounds(queue: &Queue, kernel: &Kernel) -> Result<Bounds, i32> {
    let (_, replica) = kernel.at_queue(queue)?;
    let limits = &queue.device.limits;
    Ok(Bounds {
        group_demanded: replica.group_demanded,
        group_max: replica.group_max.min(limits.max_work_group_size),
        items_max: limits.max_work_item_sizes,
        address_bits: limits.address_bits,
    })
}

/// A launch without work-items: completes when its wait list is complete.
fn launch_nothing(
    queue: &Object<Queue>,
    kernel: &Kernel,
    waits: &Waits<'_>,
    event: *mut cl_event,
) -> Result<(), i32> {
    if queue.device.limits.version < (2, 1) {
        return Err(CL_INVALID_GLOBAL_WORK_SIZE);
    }
    let (at, _) = kernel.at_queue(queue)?;
    kernel.args().encoded(at)?;
    queue.enqueue_nothing(CL_COMMAND_NDRANGE_KERNEL, waits, event, &[])
}
