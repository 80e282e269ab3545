//! Launches: a call of an image's kernel with its body, or of a kernel of OpenCL C.

use super::device::Board;
use super::program::{Arg, ImageKernel, Kernel, BUFFER_ARGS};
use crate::driver::builtin::object;
use crate::driver::builtin::objects::{Mem, Queue};
use crate::driver::builtin::transfer::{done, Result};
use crate::driver::cancel;
use crate::driver::emulate::block::Sizes;
use crate::driver::emulate::device::WORK_GROUP_ITEMS;
use crate::driver::emulate::launch::enqueue;
use baltra_board::port::{Call, Error};
use baltra_opencl::*;
use baltra_ring::Locked;

/// Adds this module's functions to a dispatch table.
pub fn fill(api: &mut cl_icd_dispatch) {
    api.clEnqueueNDRangeKernel = Some(launch);
}

unsafe extern "C" fn launch(
    queue: cl_command_queue,
    kernel: cl_kernel,
    dimensions: cl_uint,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
    _: cl_uint,
    _: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    if !(1..=3).contains(&dimensions) {
        return CL_INVALID_WORK_DIMENSION;
    }
    // SAFETY: live objects; each list is null or has one entry per dimension.
    unsafe {
        let sizes = Sizes {
            dimensions,
            offset,
            global,
            local,
        };
        let ran = match object(kernel) {
            Kernel::Image(kernel) => run(object(queue), kernel, &sizes),
            Kernel::Compiled(kernel) => enqueue(kernel, &sizes),
        };
        done(ran, event)
    }
}

/// Calls the program: the first buffer is the body, one byte of it per work-item, and the second
/// receives the answer. A stream begins with its first byte, so that there is no offset, and groups
/// of items have no meaning.
///
/// # Safety
/// The sizes' lists and the kernel's buffers are live.
unsafe fn run(queue: &Queue<Board>, kernel: &ImageKernel, sizes: &Sizes) -> Result<(u64, u64)> {
    // SAFETY: the caller's promise.
    let range = unsafe { sizes.range(None, WORK_GROUP_ITEMS)? };
    if range.has_offset() {
        return Err(CL_INVALID_GLOBAL_OFFSET);
    }
    let items = range.items();
    let args = kernel.args.locked().clone();
    let mut params = [0; 4];
    let mut buffers = [None; BUFFER_ARGS];
    for (at, arg) in args.iter().enumerate() {
        match *arg {
            // SAFETY: the caller's promise.
            Arg::Memory(raw) if raw != 0 => buffers[at] = Some(unsafe { &*(raw as *const Mem) }),
            Arg::Scalar(value) => params[at - BUFFER_ARGS] = value,
            Arg::Memory(_) | Arg::Nothing => return Err(CL_INVALID_KERNEL_ARGS),
        }
    }
    let [Some(body), Some(answer)] = buffers else {
        return Err(CL_INVALID_KERNEL_ARGS);
    };
    // Kernels of OpenCL C may have left the latest bytes in board memory.
    body.part_to_read(0, body.bytes)
        .zip(answer.part(0, answer.bytes))
        .ok_or(CL_OUT_OF_RESOURCES)?;
    let number = kernel.program.number();
    let port = &queue.device.own.port;
    let call = Call {
        number: number.ok_or(CL_INVALID_PROGRAM_EXECUTABLE)?,
        body: (body.offset(), items.min(body.bytes) as u64),
        answer: (answer.offset(), answer.bytes as u64),
        params,
        timeout: kernel.program.timeout(),
    };
    let called = port.call(&call, &cancel::is_requested);
    let done = called.map_err(|error| {
        tracing::info!(%error, "a kernel call failed");
        match error {
            Error::Lost(_) => CL_DEVICE_NOT_AVAILABLE,
            _ => CL_OUT_OF_RESOURCES,
        }
    })?;
    let ns = |cycles: u32| u64::from(cycles) * 1_000_000 / u64::from(port.about.clock_khz.max(1));
    Ok((ns(done.cycles), ns(done.kernel_cycles)))
}
