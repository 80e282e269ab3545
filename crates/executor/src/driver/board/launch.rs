//! Launches: a call of the program's body.

use super::program::{Arg, Kernel, BUFFER_ARGS};
use super::Board;
use crate::driver::builtin::object;
use crate::driver::builtin::objects::{Mem, Queue};
use crate::driver::builtin::transfer::{done, Result};
use baltra_board::port::{Call, Error};
use baltra_opencl::*;

/// Adds this module's functions to a dispatch table.
pub fn fill(api: &mut cl_icd_dispatch) {
    api.clEnqueueNDRangeKernel = Some(launch);
}

unsafe extern "C" fn launch(
    queue: cl_command_queue,
    kernel: cl_kernel,
    dimensions: cl_uint,
    _: *const usize,
    global: *const usize,
    _: *const usize,
    _: cl_uint,
    _: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    if !(1..=3).contains(&dimensions) {
        return CL_INVALID_WORK_DIMENSION;
    }
    // SAFETY: live objects; `global` has one entry per dimension.
    unsafe {
        let global = std::slice::from_raw_parts(global, dimensions as usize);
        done(run(object(queue), object(kernel), global), event)
    }
}

/// Calls the program: the first buffer is the body, one byte of it per work-item, and the second
/// receives the answer.
///
/// # Safety
/// The kernel's buffers are live.
unsafe fn run(queue: &Queue<Board>, kernel: &Kernel, global: &[usize]) -> Result<(u64, u64)> {
    let items = global.iter().try_fold(1usize, |all, n| all.checked_mul(*n));
    // The board is a device of OpenCL 1.2, where nothing to do is an error.
    let items = items.filter(|items| *items > 0);
    let items = items.ok_or(CL_INVALID_GLOBAL_WORK_SIZE)?;
    let args = kernel
        .args
        .lock()
        .expect("no panic under this lock")
        .clone();
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
    let number = kernel.program.number();
    let port = &queue.device.own.port;
    let called = port.call(&Call {
        number: number.ok_or(CL_INVALID_PROGRAM_EXECUTABLE)?,
        body: (body.offset(), items.min(body.bytes) as u64),
        answer: (answer.offset(), answer.bytes as u64),
        params,
        timeout: kernel.program.timeout(),
    });
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
