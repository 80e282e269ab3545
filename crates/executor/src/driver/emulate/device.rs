//! The emulated accelerator as platform and device, and its limits.

use super::simulation::Simulation;
use super::tools::Tools;
use crate::driver::builtin::memory::ALIGNMENT;
use crate::driver::builtin::{zero_terminated, Builtin};
use baltra_board::accelerator::manifest::ARGUMENT_BYTES_MAX;
use baltra_opencl::*;

/// Board memory. Its pages are populated on first use.
pub(super) const MEMORY_BYTES: u64 = 1 << 30;
/// A pointer has 28 bits of offset.
pub(in crate::driver) const BUFFER_BYTES_MAX: u64 = 256 << 20;
/// Local memory of a work-group.
pub(in crate::driver) const LOCAL_BYTES: u64 = 32 << 10;
/// Work-items of a group. A kernel with barriers that requires no size has fewer.
pub(in crate::driver) const WORK_GROUP_ITEMS: usize = 1024;
/// Clock rate of the circuits in profiling; a placed circuit's may differ.
pub(super) const CLOCK_HZ: u64 = 100_000_000;
/// Pending output of `printf`, as OpenCL counts it.
const PRINT_BYTES: usize = 1 << 20;

/// The compiler's extensions of OpenCL C 1.0.
pub(in crate::driver) const EXTENSIONS: &str =
    "cl_khr_global_int32_base_atomics cl_khr_global_int32_extended_atomics \
    cl_khr_local_int32_base_atomics cl_khr_local_int32_extended_atomics \
    cl_khr_byte_addressable_store cles_khr_int64";

/// The device.
pub(super) struct Emulator {
    /// Compiler and hardware tree.
    pub tools: Tools,
    /// The kernels that run.
    pub simulation: Simulation,
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
            CL_DEVICE_MAX_PARAMETER_SIZE => size(ARGUMENT_BYTES_MAX as usize),
            CL_DEVICE_MAX_CONSTANT_ARGS => int(8),
            CL_DEVICE_LOCAL_MEM_TYPE => int(CL_LOCAL as u32),
            CL_DEVICE_LOCAL_MEM_SIZE => long(LOCAL_BYTES),
            CL_DEVICE_QUEUE_PROPERTIES => long(Self::QUEUE_PROPERTIES),
            CL_DEVICE_NAME => text("Baltra emulated accelerator"),
            CL_DEVICE_VERSION => text("OpenCL 1.2 emulated"),
            CL_DEVICE_COMPILER_AVAILABLE | CL_DEVICE_LINKER_AVAILABLE => int(1),
            CL_DEVICE_EXTENSIONS => text(EXTENSIONS),
            CL_DEVICE_SINGLE_FP_CONFIG => {
                long((CL_FP_DENORM | CL_FP_INF_NAN | CL_FP_ROUND_TO_NEAREST) as u64)
            }
            CL_DEVICE_PRINTF_BUFFER_SIZE => size(PRINT_BYTES),
            _ => None,
        }
    }
}

const _: () = assert!(ALIGNMENT == 128 && BUFFER_BYTES_MAX <= MEMORY_BYTES);
