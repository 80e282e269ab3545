//! A driver for emulated accelerators, in the executor itself: OpenCL C compiled to hardware, which
//! runs as a model compiled from its SystemVerilog.
//!
//! The device's `driver` is `emulate:`, or `emulate:PATH` with the path of the hardware tree (`hdl`).
//!
//! | OpenCL | emulated accelerator |
//! |---|---|
//! | device | one card with board memory of its own; every launch has a circuit of its own |
//! | buffer | a part of board memory |
//! | program | source, compiled by `baltra accelerator build` when it is built; or an image of it |
//! | kernel | a circuit; it reaches board memory through a guard that checks each access against its argument's buffer |
//! | profiling | the circuit's cycles at 100 MHz; the emulation itself takes longer |
//!
//! | module | content |
//! |---|---|
//! | [`compiler`] | compilation by a confined child process, and the cache of images |
//! | [`tools`] | where compiler and hardware tree are |
//! | [`library`] | a program's simulation library |
//! | [`program`] | programs |
//! | [`kernel`] | kernels and their arguments |
//! | [`launch`] | launches |

pub(in crate::driver) mod compiler;
pub(in crate::driver) mod kernel;
pub(in crate::driver) mod launch;
pub(in crate::driver) mod library;
pub(in crate::driver) mod program;
pub mod tools;

use super::builtin::memory::{DeviceMemory, ALIGNMENT};
use super::builtin::{self, zero_terminated, Builtin, Device};
use super::{Driver, LoadError};
use baltra_opencl::*;
use baltra_ring::lease::monotonic_ns;
use std::sync::atomic::{AtomicU64, Ordering};
use tools::Tools;

/// Before the hardware tree's path in a device's `driver`.
pub const SCHEME: &str = "emulate:";
/// Board memory. Its pages are populated on first use.
const MEMORY_BYTES: u64 = 1 << 30;
/// A pointer has 28 bits of offset.
pub(in crate::driver) const BUFFER_BYTES_MAX: u64 = 256 << 20;
/// Local memory of a work-group.
pub(in crate::driver) const LOCAL_BYTES: u64 = 64 << 10;
/// Work-items of a group.
pub(in crate::driver) const WORK_GROUP_ITEMS: usize = 256;
/// Clock rate of the circuits in profiling; a placed circuit's may differ.
const CLOCK_HZ: u64 = 100_000_000;
/// Least time between two log lines about failures that tenants cause.
const LOG_INTERVAL_NS: u64 = 100_000_000;
/// Pending output of `printf`, as OpenCL counts it.
const PRINT_BYTES: usize = 1 << 20;

/// What the compiler has beyond OpenCL C 1.0.
pub(in crate::driver) const EXTENSIONS: &str =
    "cl_khr_global_int32_base_atomics cl_khr_global_int32_extended_atomics \
    cl_khr_local_int32_base_atomics cl_khr_local_int32_extended_atomics \
    cl_khr_byte_addressable_store";

/// The device.
struct Emulator {
    tools: Tools,
}

/// Makes the device. `tree`: the hardware tree; empty: found beside the program.
pub(super) fn load(tree: &str) -> Result<Vec<&'static Driver>, LoadError> {
    let name = || format!("{SCHEME}{tree}");
    let tools = Tools::find(tree).map_err(|error| builtin::load_error(name(), &error))?;
    let memory =
        DeviceMemory::private(MEMORY_BYTES).map_err(|error| builtin::load_error(name(), &error))?;
    let mut api = builtin::table::<Emulator>();
    program::fill(&mut api);
    kernel::fill(&mut api);
    launch::fill(&mut api);
    let device = Device {
        memory,
        own: Emulator { tools },
    };
    let (_, driver) = builtin::register(device, api);
    Ok(vec![driver])
}

impl Builtin for Emulator {
    const PLATFORM: &'static str = "Baltra emulated accelerators";
    const QUEUE_PROPERTIES: u64 =
        CL_QUEUE_PROFILING_ENABLE as u64 | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE as u64;

    fn info(&self, param: i32) -> Option<Vec<u8>> {
        let int = |value: u32| Some(value.to_ne_bytes().to_vec());
        let long = |value: u64| Some(value.to_ne_bytes().to_vec());
        let size = |value: usize| Some(value.to_ne_bytes().to_vec());
        let text = |text: &str| Some(zero_terminated(text));
        match param {
            CL_DEVICE_MAX_COMPUTE_UNITS => int(1),
            CL_DEVICE_MAX_WORK_GROUP_SIZE => size(WORK_GROUP_ITEMS),
            CL_DEVICE_MAX_WORK_ITEM_SIZES => {
                let sides = [WORK_GROUP_ITEMS; 3];
                Some(sides.iter().flat_map(|n| n.to_ne_bytes()).collect())
            }
            CL_DEVICE_MAX_CLOCK_FREQUENCY => int((CLOCK_HZ / 1_000_000) as u32),
            CL_DEVICE_GLOBAL_MEM_SIZE => long(MEMORY_BYTES),
            CL_DEVICE_MAX_MEM_ALLOC_SIZE | CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE => {
                long(BUFFER_BYTES_MAX)
            }
            CL_DEVICE_MAX_PARAMETER_SIZE => size(1024),
            CL_DEVICE_MAX_CONSTANT_ARGS => int(8),
            CL_DEVICE_LOCAL_MEM_TYPE => int(CL_LOCAL as u32),
            CL_DEVICE_LOCAL_MEM_SIZE => long(LOCAL_BYTES),
            CL_DEVICE_QUEUE_PROPERTIES => long(Self::QUEUE_PROPERTIES),
            CL_DEVICE_NAME => text("Baltra emulated accelerator"),
            CL_DEVICE_VERSION => text("OpenCL 1.2 emulated"),
            CL_DEVICE_COMPILER_AVAILABLE => int(1),
            CL_DEVICE_EXTENSIONS => text(EXTENSIONS),
            CL_DEVICE_SINGLE_FP_CONFIG => {
                long((CL_FP_DENORM | CL_FP_INF_NAN | CL_FP_ROUND_TO_NEAREST) as u64)
            }
            CL_DEVICE_PRINTF_BUFFER_SIZE => size(PRINT_BYTES),
            _ => None,
        }
    }
}

/// Whether a failure of a tenant's may be logged: a tenant can cause any number of them.
pub(in crate::driver) fn may_log() -> bool {
    static LOGGED_NS: AtomicU64 = AtomicU64::new(0);
    let now = monotonic_ns();
    let logged = LOGGED_NS.load(Ordering::Relaxed);
    if logged != 0 && now.saturating_sub(logged) < LOG_INTERVAL_NS {
        return false;
    }
    LOGGED_NS.store(now, Ordering::Relaxed);
    true
}

const _: () = assert!(ALIGNMENT == 64 && BUFFER_BYTES_MAX <= MEMORY_BYTES);
