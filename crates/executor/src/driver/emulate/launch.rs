//! Launches.

use super::block::{local_bytes, Block, Sizes};
use super::device::{Emulator, CLOCK_HZ, LOCAL_BYTES, WORK_GROUP_ITEMS};
use super::faults::{failed, faulted};
use super::kernel::Kernel;
use super::library::State;
use super::polling::Polling;
use super::program::{Circuits, Emulated};
use super::simulation::{Circuit, End, Launch};
use crate::driver::builtin::objects::{Event, Queue};
use crate::driver::builtin::transfer::{done, times, Result};
use crate::driver::builtin::{object, LogLimit};
use crate::driver::cancel;
use crate::driver::output::{self, Output};
use baltra_board::accelerator::manifest;
use baltra_opencl::*;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::Locked;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Launches of out-of-order queues in progress; each has a thread.
static LAUNCHES: AtomicUsize = AtomicUsize::new(0);
const LAUNCHES_MAX: usize = 256;
/// Log lines about kernels that have failed because of others.
static PEERS: LogLimit = LogLimit::new();

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
    // SAFETY: live objects; the rest is OpenCL's promise.
    unsafe {
        let sizes = Sizes {
            dimensions,
            offset,
            global,
            local,
        };
        let (queue, kernel): (&Queue<Emulator>, &Kernel) = (object(queue), object(kernel));
        let about = kernel.about();
        let waits = !about.channels.is_empty() || about.has_pipes();
        if queue.is_unordered && waits && !event.is_null() {
            return begin(kernel, &sizes, event);
        }
        done(enqueue(kernel, &sizes), event)
    }
}

/// Launches a kernel with channels or pipes that others of its queue may wait for.
///
/// # Safety
/// As [`enqueue`]; `event` is writable.
unsafe fn begin(kernel: &Kernel, sizes: &Sizes, event: *mut cl_event) -> cl_int {
    // SAFETY: the caller's promise.
    let prepared = unsafe { prepare(kernel, sizes) };
    let (Circuits::Library(emulated), Ok(block)) = (&kernel.executable.circuits, prepared) else {
        // SAFETY: the caller's promise.
        return unsafe { done(enqueue(kernel, sizes), event) };
    };
    if LAUNCHES.fetch_add(1, Ordering::Relaxed) >= LAUNCHES_MAX {
        LAUNCHES.fetch_sub(1, Ordering::Relaxed);
        return CL_OUT_OF_RESOURCES;
    }
    let (emulated, about) = (emulated.clone(), kernel.about().clone());
    let (check, output) = (cancel::check(), output::of_thread());
    let own = Arc::new(Event::default());
    let ending = own.clone();
    let polling = Polling::begin(&about);
    let work = move || {
        let is_cancelled = || check.as_ref().is_some_and(|check| check());
        let ran = run_here(&emulated, &about, block, output, &is_cancelled);
        LAUNCHES.fetch_sub(1, Ordering::Relaxed);
        drop(polling);
        ending.finish(ran.map(|took| times(monotonic_ns(), took)));
    };
    let name = format!("kernel {}", kernel.name);
    if std::thread::Builder::new().name(name).spawn(work).is_err() {
        LAUNCHES.fetch_sub(1, Ordering::Relaxed);
        return CL_OUT_OF_RESOURCES;
    }
    // SAFETY: the caller's promise.
    unsafe { *event = Arc::into_raw(own).cast_mut().cast() };
    CL_SUCCESS
}

/// Launches a kernel and waits for its end.
///
/// # Safety
/// The sizes' lists and the kernel's buffers are live.
pub unsafe fn enqueue(kernel: &Kernel, sizes: &Sizes) -> Result<(u64, u64)> {
    // SAFETY: the caller's promise.
    let block = unsafe { prepare(kernel, sizes)? };
    let _polling = Polling::begin(kernel.about());
    match &kernel.executable.circuits {
        Circuits::Library(emulated) => {
            let output = output::of_thread();
            run_here(
                emulated,
                kernel.about(),
                block,
                output,
                &cancel::is_requested,
            )
        }
        Circuits::Board(brought) => brought.launch(kernel.about(), &block),
    }
}

/// The argument block of a launch.
///
/// # Safety
/// As [`enqueue`].
unsafe fn prepare(kernel: &Kernel, sizes: &Sizes) -> Result<Block> {
    let about = kernel.about();
    let required = about.required_work_group_size;
    let required = required.map(|sides| sides.map(|n| n as usize));
    // A kernel without barriers has no limit of its own.
    let items_max = WORK_GROUP_ITEMS.min(about.work_group_size_max as usize);
    // SAFETY: the caller's promise.
    let range = unsafe { sizes.range(required, items_max)? };
    let args = kernel.args.locked().clone();
    if about.local_bytes + local_bytes(&args) > LOCAL_BYTES {
        return Err(CL_OUT_OF_RESOURCES);
    }
    // SAFETY: the caller's promise.
    unsafe { Block::new(about, &args, &range) }
}

/// Runs a kernel to its end; the result is its duration at the assumed clock rate, twice.
fn run_here(
    emulated: &Emulated,
    about: &manifest::Kernel,
    block: Block,
    output: Output,
    cancelled: &dyn Fn() -> bool,
) -> Result<(u64, u64)> {
    let Emulated {
        library,
        kernels,
        simulation,
    } = emulated;
    let number = kernels.iter().position(|k| k.name == about.name);
    // The buffers' memory stays until the launch has ended.
    let block = Arc::new(block);
    let (own, circuits, name) = (block.clone(), library.clone(), about.name.clone());
    let launch = Launch {
        program: library.clone(),
        kernels: kernels.clone(),
        number: number.ok_or(CL_INVALID_KERNEL_NAME)?,
        output,
        start: Box::new(move |memory| {
            let run = circuits.start(&name, &own.words, own.in_memory(), memory)?;
            Some(Box::new(run) as Box<dyn Circuit>)
        }),
    };
    match simulation.run(launch, cancelled) {
        End::Ended(State::Done, cycles) => {
            let ns = cycles * (1_000_000_000 / CLOCK_HZ);
            return Ok((ns, ns));
        }
        End::Ended(
            State::Fault {
                argument,
                is_store,
                offset,
            },
            _,
        ) => faulted(about, &block, argument as usize, offset, is_store),
        End::Ended(State::Status(status), _) => failed(about, status),
        End::PeerFailed { channel, peer } if PEERS.allows() => tracing::warn!(
            kernel = about.name,
            channel,
            peer,
            "a kernel has failed: the kernel at the other end of its channel has failed"
        ),
        _ => {}
    }
    Err(CL_OUT_OF_RESOURCES)
}
