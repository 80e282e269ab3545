//! OpenCL's constants, for crates that load no driver.
//!
//! The names are the specification's, without `CL_`. `baltra-opencl` has all of them, with the
//! types of a driver's interface.
//!
//! `scripts/reference.py` writes the comments of errors with a remedy into
//! `docs/reference/errors.md`: those that Baltra returns itself.

/// `CL_PLATFORM_NAME`
pub const PLATFORM_NAME: u32 = 0x0902;
/// `CL_DEVICE_TYPE`
pub const DEVICE_TYPE: u32 = 0x1000;
/// `CL_DEVICE_MAX_COMPUTE_UNITS`
pub const DEVICE_MAX_COMPUTE_UNITS: u32 = 0x1002;
/// `CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS`
pub const DEVICE_MAX_WORK_ITEM_DIMENSIONS: u32 = 0x1003;
/// `CL_DEVICE_MAX_WORK_GROUP_SIZE`
pub const DEVICE_MAX_WORK_GROUP_SIZE: u32 = 0x1004;
/// `CL_DEVICE_MAX_WORK_ITEM_SIZES`
pub const DEVICE_MAX_WORK_ITEM_SIZES: u32 = 0x1005;
/// `CL_DEVICE_ADDRESS_BITS`
pub const DEVICE_ADDRESS_BITS: u32 = 0x100D;
/// `CL_DEVICE_MAX_READ_IMAGE_ARGS`
pub const DEVICE_MAX_READ_IMAGE_ARGS: u32 = 0x100E;
/// `CL_DEVICE_MAX_MEM_ALLOC_SIZE`
pub const DEVICE_MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
/// `CL_DEVICE_IMAGE2D_MAX_WIDTH`
pub const DEVICE_IMAGE2D_MAX_WIDTH: u32 = 0x1011;
/// `CL_DEVICE_IMAGE2D_MAX_HEIGHT`
pub const DEVICE_IMAGE2D_MAX_HEIGHT: u32 = 0x1012;
/// `CL_DEVICE_IMAGE3D_MAX_WIDTH`
pub const DEVICE_IMAGE3D_MAX_WIDTH: u32 = 0x1013;
/// `CL_DEVICE_IMAGE_SUPPORT`
pub const DEVICE_IMAGE_SUPPORT: u32 = 0x1016;
/// `CL_DEVICE_MAX_PARAMETER_SIZE`
pub const DEVICE_MAX_PARAMETER_SIZE: u32 = 0x1017;
/// `CL_DEVICE_MAX_SAMPLERS`
pub const DEVICE_MAX_SAMPLERS: u32 = 0x1018;
/// `CL_DEVICE_MEM_BASE_ADDR_ALIGN`
pub const DEVICE_MEM_BASE_ADDR_ALIGN: u32 = 0x1019;
/// `CL_DEVICE_SINGLE_FP_CONFIG`
pub const DEVICE_SINGLE_FP_CONFIG: u32 = 0x101B;
/// `CL_DEVICE_GLOBAL_MEM_SIZE`
pub const DEVICE_GLOBAL_MEM_SIZE: u32 = 0x101F;
/// `CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE`
pub const DEVICE_MAX_CONSTANT_BUFFER_SIZE: u32 = 0x1020;
/// `CL_DEVICE_LOCAL_MEM_TYPE`
pub const DEVICE_LOCAL_MEM_TYPE: u32 = 0x1022;
/// `CL_DEVICE_LOCAL_MEM_SIZE`
pub const DEVICE_LOCAL_MEM_SIZE: u32 = 0x1023;
/// `CL_DEVICE_PROFILING_TIMER_RESOLUTION`
pub const DEVICE_PROFILING_TIMER_RESOLUTION: u32 = 0x1025;
/// `CL_DEVICE_ENDIAN_LITTLE`
pub const DEVICE_ENDIAN_LITTLE: u32 = 0x1026;
/// `CL_DEVICE_COMPILER_AVAILABLE`
pub const DEVICE_COMPILER_AVAILABLE: u32 = 0x1028;
/// `CL_DEVICE_QUEUE_PROPERTIES`
pub const DEVICE_QUEUE_PROPERTIES: u32 = 0x102A;
/// `CL_DEVICE_NAME`
pub const DEVICE_NAME: u32 = 0x102B;
/// `CL_DEVICE_VENDOR`
pub const DEVICE_VENDOR: u32 = 0x102C;
/// `CL_DRIVER_VERSION`
pub const DRIVER_VERSION: u32 = 0x102D;
/// `CL_DEVICE_PROFILE`
pub const DEVICE_PROFILE: u32 = 0x102E;
/// `CL_DEVICE_VERSION`
pub const DEVICE_VERSION: u32 = 0x102F;
/// `CL_DEVICE_EXTENSIONS`
pub const DEVICE_EXTENSIONS: u32 = 0x1030;
/// `CL_DEVICE_DOUBLE_FP_CONFIG`
pub const DEVICE_DOUBLE_FP_CONFIG: u32 = 0x1032;
/// `CL_DEVICE_HOST_UNIFIED_MEMORY`
pub const DEVICE_HOST_UNIFIED_MEMORY: u32 = 0x1035;
/// `CL_DEVICE_OPENCL_C_VERSION`
pub const DEVICE_OPENCL_C_VERSION: u32 = 0x103D;
/// `CL_MEM_SIZE`
pub const MEM_SIZE: u32 = 0x1102;
/// `CL_PROGRAM_BINARIES`
pub const PROGRAM_BINARIES: u32 = 0x1166;
/// `CL_PROGRAM_BUILD_LOG`
pub const PROGRAM_BUILD_LOG: u32 = 0x1183;

/// `CL_DEVICE_TYPE_CPU`
pub const DEVICE_TYPE_CPU: u64 = 1 << 1;
/// `CL_DEVICE_TYPE_GPU`
pub const DEVICE_TYPE_GPU: u64 = 1 << 2;
/// `CL_MEM_READ_WRITE`
pub const MEM_READ_WRITE: u64 = 1 << 0;
/// `CL_MEM_READ_ONLY`
pub const MEM_READ_ONLY: u64 = 1 << 2;
/// `CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE`
pub const QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE: u64 = 1 << 0;
/// `CL_QUEUE_PROFILING_ENABLE`
pub const QUEUE_PROFILING_ENABLE: u64 = 1 << 1;

/// `CL_SUCCESS`
pub const SUCCESS: i32 = 0;
/// `CL_DEVICE_NOT_FOUND`
pub const DEVICE_NOT_FOUND: i32 = -1;
/// `CL_DEVICE_NOT_AVAILABLE`: The program's executor or connection has ended: a crash of the
/// driver, a lost context, a task beyond its time limit, an operator's order, a lost node. Remedy:
/// create a new context; `baltra devices --local --json` lists the cause (`faults`).
pub const DEVICE_NOT_AVAILABLE: i32 = -2;
/// `CL_COMPILER_NOT_AVAILABLE`: A source is built for a board whose node lacks the compiler. Remedy:
/// `baltra doctor` on the node, or a program from a binary.
pub const COMPILER_NOT_AVAILABLE: i32 = -3;
/// `CL_MEM_OBJECT_ALLOCATION_FAILURE`: The tenant's quota or the device's memory is exhausted.
/// Remedy: release buffers; `baltra top` shows the memory of each tenant, `baltra tenant` sets
/// quotas, `device.memory_overcommit` swaps.
pub const MEM_OBJECT_ALLOCATION_FAILURE: i32 = -4;
/// `CL_OUT_OF_RESOURCES`: The session has too many objects, queues or commands (`limits.objects`);
/// or a kernel on a board or emulated accelerator accessed memory outside of its buffers, failed or
/// was stopped. Remedy: release objects; the manager's log has the kernel, the argument and the
/// offset.
pub const OUT_OF_RESOURCES: i32 = -5;
/// `CL_OUT_OF_HOST_MEMORY`: A command or a program's headers exceed what a message can carry, or a
/// shared mapping failed. Remedy: smaller arguments and sources; `baltra doctor` reports limits of
/// memory.
pub const OUT_OF_HOST_MEMORY: i32 = -6;
/// `CL_BUILD_PROGRAM_FAILURE`: Kernels cannot be compiled, on boards and emulated accelerators also
/// because a construct has no circuit. Remedy: `CL_PROGRAM_BUILD_LOG` has the line and the reason.
pub const BUILD_PROGRAM_FAILURE: i32 = -11;
/// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST`: A command that this one waits for has failed.
/// Remedy: query the execution status of the events.
pub const EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: i32 = -14;
/// `CL_INVALID_VALUE`
pub const INVALID_VALUE: i32 = -30;
/// `CL_INVALID_MEM_OBJECT`
pub const INVALID_MEM_OBJECT: i32 = -38;
/// `CL_INVALID_BINARY`: The image or binary is of another device, shell or region, or the node's
/// store lacks the accelerator. Remedy: the build log or the manager's log has the reason; `baltra
/// accelerator` lists the store.
pub const INVALID_BINARY: i32 = -42;
/// `CL_INVALID_BUILD_OPTIONS`
pub const INVALID_BUILD_OPTIONS: i32 = -43;
/// `CL_INVALID_PROGRAM_EXECUTABLE`
pub const INVALID_PROGRAM_EXECUTABLE: i32 = -45;
/// `CL_INVALID_KERNEL_NAME`
pub const INVALID_KERNEL_NAME: i32 = -46;
/// `CL_INVALID_ARG_INDEX`
pub const INVALID_ARG_INDEX: i32 = -49;
/// `CL_INVALID_ARG_VALUE`
pub const INVALID_ARG_VALUE: i32 = -50;
/// `CL_INVALID_ARG_SIZE`
pub const INVALID_ARG_SIZE: i32 = -51;
/// `CL_INVALID_KERNEL_ARGS`
pub const INVALID_KERNEL_ARGS: i32 = -52;
/// `CL_INVALID_WORK_DIMENSION`
pub const INVALID_WORK_DIMENSION: i32 = -53;
/// `CL_INVALID_WORK_GROUP_SIZE`
pub const INVALID_WORK_GROUP_SIZE: i32 = -54;
/// `CL_INVALID_WORK_ITEM_SIZE`
pub const INVALID_WORK_ITEM_SIZE: i32 = -55;
/// `CL_INVALID_OPERATION`: The device's driver lacks the function. Remedy: `clinfo` lists the
/// device's version and extensions.
pub const INVALID_OPERATION: i32 = -59;
/// `CL_INVALID_BUFFER_SIZE`
pub const INVALID_BUFFER_SIZE: i32 = -61;
/// `CL_INVALID_GLOBAL_WORK_SIZE`
pub const INVALID_GLOBAL_WORK_SIZE: i32 = -63;

/// An error as text: its name in the specification, and its number.
pub fn text_of(code: i32) -> String {
    let name = match code {
        DEVICE_NOT_FOUND => "CL_DEVICE_NOT_FOUND",
        DEVICE_NOT_AVAILABLE => "CL_DEVICE_NOT_AVAILABLE",
        COMPILER_NOT_AVAILABLE => "CL_COMPILER_NOT_AVAILABLE",
        MEM_OBJECT_ALLOCATION_FAILURE => "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        OUT_OF_RESOURCES => "CL_OUT_OF_RESOURCES",
        OUT_OF_HOST_MEMORY => "CL_OUT_OF_HOST_MEMORY",
        BUILD_PROGRAM_FAILURE => "CL_BUILD_PROGRAM_FAILURE",
        EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST => "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
        INVALID_VALUE => "CL_INVALID_VALUE",
        INVALID_MEM_OBJECT => "CL_INVALID_MEM_OBJECT",
        INVALID_BINARY => "CL_INVALID_BINARY",
        INVALID_BUILD_OPTIONS => "CL_INVALID_BUILD_OPTIONS",
        INVALID_PROGRAM_EXECUTABLE => "CL_INVALID_PROGRAM_EXECUTABLE",
        INVALID_KERNEL_NAME => "CL_INVALID_KERNEL_NAME",
        INVALID_ARG_INDEX => "CL_INVALID_ARG_INDEX",
        INVALID_ARG_VALUE => "CL_INVALID_ARG_VALUE",
        INVALID_ARG_SIZE => "CL_INVALID_ARG_SIZE",
        INVALID_KERNEL_ARGS => "CL_INVALID_KERNEL_ARGS",
        INVALID_WORK_DIMENSION => "CL_INVALID_WORK_DIMENSION",
        INVALID_WORK_GROUP_SIZE => "CL_INVALID_WORK_GROUP_SIZE",
        INVALID_WORK_ITEM_SIZE => "CL_INVALID_WORK_ITEM_SIZE",
        INVALID_OPERATION => "CL_INVALID_OPERATION",
        INVALID_BUFFER_SIZE => "CL_INVALID_BUFFER_SIZE",
        INVALID_GLOBAL_WORK_SIZE => "CL_INVALID_GLOBAL_WORK_SIZE",
        _ => return format!("OpenCL error {code}"),
    };
    format!("{name} ({code})")
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! same {
        ($($ours:ident = $theirs:ident),* $(,)?) => {
            $(assert_eq!($ours, baltra_opencl::$theirs as u32);)*
        };
    }

    #[test]
    fn parameters_are_those_of_the_headers() {
        same! {
            PLATFORM_NAME = CL_PLATFORM_NAME,
            DEVICE_TYPE = CL_DEVICE_TYPE,
            DEVICE_MAX_COMPUTE_UNITS = CL_DEVICE_MAX_COMPUTE_UNITS,
            DEVICE_MAX_WORK_ITEM_DIMENSIONS = CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS,
            DEVICE_MAX_WORK_GROUP_SIZE = CL_DEVICE_MAX_WORK_GROUP_SIZE,
            DEVICE_MAX_WORK_ITEM_SIZES = CL_DEVICE_MAX_WORK_ITEM_SIZES,
            DEVICE_ADDRESS_BITS = CL_DEVICE_ADDRESS_BITS,
            DEVICE_MAX_READ_IMAGE_ARGS = CL_DEVICE_MAX_READ_IMAGE_ARGS,
            DEVICE_MAX_MEM_ALLOC_SIZE = CL_DEVICE_MAX_MEM_ALLOC_SIZE,
            DEVICE_IMAGE2D_MAX_WIDTH = CL_DEVICE_IMAGE2D_MAX_WIDTH,
            DEVICE_IMAGE2D_MAX_HEIGHT = CL_DEVICE_IMAGE2D_MAX_HEIGHT,
            DEVICE_IMAGE3D_MAX_WIDTH = CL_DEVICE_IMAGE3D_MAX_WIDTH,
            DEVICE_IMAGE_SUPPORT = CL_DEVICE_IMAGE_SUPPORT,
            DEVICE_MAX_PARAMETER_SIZE = CL_DEVICE_MAX_PARAMETER_SIZE,
            DEVICE_MAX_SAMPLERS = CL_DEVICE_MAX_SAMPLERS,
            DEVICE_MEM_BASE_ADDR_ALIGN = CL_DEVICE_MEM_BASE_ADDR_ALIGN,
            DEVICE_SINGLE_FP_CONFIG = CL_DEVICE_SINGLE_FP_CONFIG,
            DEVICE_GLOBAL_MEM_SIZE = CL_DEVICE_GLOBAL_MEM_SIZE,
            DEVICE_MAX_CONSTANT_BUFFER_SIZE = CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE,
            DEVICE_LOCAL_MEM_TYPE = CL_DEVICE_LOCAL_MEM_TYPE,
            DEVICE_LOCAL_MEM_SIZE = CL_DEVICE_LOCAL_MEM_SIZE,
            DEVICE_PROFILING_TIMER_RESOLUTION = CL_DEVICE_PROFILING_TIMER_RESOLUTION,
            DEVICE_ENDIAN_LITTLE = CL_DEVICE_ENDIAN_LITTLE,
            DEVICE_COMPILER_AVAILABLE = CL_DEVICE_COMPILER_AVAILABLE,
            DEVICE_QUEUE_PROPERTIES = CL_DEVICE_QUEUE_PROPERTIES,
            DEVICE_NAME = CL_DEVICE_NAME,
            DEVICE_VENDOR = CL_DEVICE_VENDOR,
            DRIVER_VERSION = CL_DRIVER_VERSION,
            DEVICE_PROFILE = CL_DEVICE_PROFILE,
            DEVICE_VERSION = CL_DEVICE_VERSION,
            DEVICE_EXTENSIONS = CL_DEVICE_EXTENSIONS,
            DEVICE_DOUBLE_FP_CONFIG = CL_DEVICE_DOUBLE_FP_CONFIG,
            DEVICE_HOST_UNIFIED_MEMORY = CL_DEVICE_HOST_UNIFIED_MEMORY,
            DEVICE_OPENCL_C_VERSION = CL_DEVICE_OPENCL_C_VERSION,
            MEM_SIZE = CL_MEM_SIZE,
            PROGRAM_BINARIES = CL_PROGRAM_BINARIES,
            PROGRAM_BUILD_LOG = CL_PROGRAM_BUILD_LOG,
        }
    }

    #[test]
    fn bits_are_those_of_the_headers() {
        let bits = [
            (DEVICE_TYPE_CPU, baltra_opencl::CL_DEVICE_TYPE_CPU),
            (DEVICE_TYPE_GPU, baltra_opencl::CL_DEVICE_TYPE_GPU),
            (MEM_READ_WRITE, baltra_opencl::CL_MEM_READ_WRITE),
            (MEM_READ_ONLY, baltra_opencl::CL_MEM_READ_ONLY),
            (
                QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
                baltra_opencl::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
            ),
            (
                QUEUE_PROFILING_ENABLE,
                baltra_opencl::CL_QUEUE_PROFILING_ENABLE,
            ),
        ];
        for (ours, theirs) in bits {
            assert_eq!(ours, theirs as u64);
        }
    }

    #[test]
    fn errors_are_those_of_the_headers() {
        let errors = [
            (SUCCESS, baltra_opencl::CL_SUCCESS),
            (DEVICE_NOT_FOUND, baltra_opencl::CL_DEVICE_NOT_FOUND),
            (DEVICE_NOT_AVAILABLE, baltra_opencl::CL_DEVICE_NOT_AVAILABLE),
            (
                COMPILER_NOT_AVAILABLE,
                baltra_opencl::CL_COMPILER_NOT_AVAILABLE,
            ),
            (
                MEM_OBJECT_ALLOCATION_FAILURE,
                baltra_opencl::CL_MEM_OBJECT_ALLOCATION_FAILURE,
            ),
            (OUT_OF_RESOURCES, baltra_opencl::CL_OUT_OF_RESOURCES),
            (OUT_OF_HOST_MEMORY, baltra_opencl::CL_OUT_OF_HOST_MEMORY),
            (
                BUILD_PROGRAM_FAILURE,
                baltra_opencl::CL_BUILD_PROGRAM_FAILURE,
            ),
            (
                EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
                baltra_opencl::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
            ),
            (INVALID_VALUE, baltra_opencl::CL_INVALID_VALUE),
            (INVALID_MEM_OBJECT, baltra_opencl::CL_INVALID_MEM_OBJECT),
            (INVALID_BINARY, baltra_opencl::CL_INVALID_BINARY),
            (
                INVALID_BUILD_OPTIONS,
                baltra_opencl::CL_INVALID_BUILD_OPTIONS,
            ),
            (
                INVALID_PROGRAM_EXECUTABLE,
                baltra_opencl::CL_INVALID_PROGRAM_EXECUTABLE,
            ),
            (INVALID_KERNEL_NAME, baltra_opencl::CL_INVALID_KERNEL_NAME),
            (INVALID_ARG_INDEX, baltra_opencl::CL_INVALID_ARG_INDEX),
            (INVALID_ARG_VALUE, baltra_opencl::CL_INVALID_ARG_VALUE),
            (INVALID_ARG_SIZE, baltra_opencl::CL_INVALID_ARG_SIZE),
            (INVALID_KERNEL_ARGS, baltra_opencl::CL_INVALID_KERNEL_ARGS),
            (
                INVALID_WORK_DIMENSION,
                baltra_opencl::CL_INVALID_WORK_DIMENSION,
            ),
            (
                INVALID_WORK_GROUP_SIZE,
                baltra_opencl::CL_INVALID_WORK_GROUP_SIZE,
            ),
            (
                INVALID_WORK_ITEM_SIZE,
                baltra_opencl::CL_INVALID_WORK_ITEM_SIZE,
            ),
            (INVALID_OPERATION, baltra_opencl::CL_INVALID_OPERATION),
            (INVALID_BUFFER_SIZE, baltra_opencl::CL_INVALID_BUFFER_SIZE),
            (
                INVALID_GLOBAL_WORK_SIZE,
                baltra_opencl::CL_INVALID_GLOBAL_WORK_SIZE,
            ),
        ];
        for (ours, theirs) in errors {
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn errors_are_named_where_they_have_a_name() {
        assert_eq!(text_of(-54), "CL_INVALID_WORK_GROUP_SIZE (-54)");
        assert_eq!(text_of(-9999), "OpenCL error -9999");
    }
}
