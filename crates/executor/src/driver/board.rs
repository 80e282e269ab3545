//! A driver for boards, in the executor itself: OpenCL's entry points over a board's host port.
//!
//! The device's `driver` is `board:PATH`, where PATH is the host port's socket. The dispatch table
//! has the functions that the executor calls; the others are absent, as in a driver that lacks
//! them.
//!
//! | OpenCL | board |
//! |---|---|
//! | device | the board; a compute unit is a region |
//! | buffer | a part of the window that is shared with the board |
//! | program | an image of a region, checked when it is created and loaded into board memory when it is built |
//! | kernel | the image's kernel: body, answer, then a `uint` for each scalar |
//! | work-items | bytes of the body, at most those of the buffer |
//! | profiling | from `START` to `END`: the kernel's cycles; from `SUBMIT`: the whole call's, at the clock rate that the board reports |
//!
//! Commands run when they are enqueued, in order, and only block the calling thread. A board has no
//! compiler: a program with source can be created, but not built.
//!
//! | module | content |
//! |---|---|
//! | [`objects`] | buffers, programs, kernels, events |
//! | [`commands`] | enqueued commands |

mod commands;
mod objects;

use super::{Driver, LoadError};
use baltra_board::Port;
use baltra_opencl::*;
use objects::Space;
use std::ffi::c_void;
use std::path::Path;
use std::sync::Mutex;

/// Before a host port's path in a device's `driver`.
pub const SCHEME: &str = "board:";
/// Device memory: the window. Its pages are populated on first use.
const WINDOW_BYTES: u64 = 128 << 20;
/// Alignment of buffers.
const ALIGNMENT: u64 = 64;
/// "BL"
const VENDOR_ID: u32 = 0x424C;

/// The board, as platform and device.
struct Board {
    port: Port,
    space: Mutex<Space>,
}

/// Connects to the board at `path`. The process exits when the connection ends: sessions then
/// receive `CL_DEVICE_NOT_AVAILABLE`, and the manager starts another executor.
pub(super) fn load(path: &str) -> Result<Vec<&'static Driver>, LoadError> {
    let port = Port::connect(Path::new(path), WINDOW_BYTES).map_err(|e| LoadError::Library {
        library: format!("{SCHEME}{path}"),
        text: chain(&e),
    })?;
    let board = Box::leak(Box::new(Board {
        port,
        space: Mutex::new(Space::new(WINDOW_BYTES)),
    }));
    let driver = Driver {
        api: table(),
        platform: std::ptr::from_ref::<Board>(board).cast_mut().cast(),
        forgets_flushed: false,
    };
    let board: &'static Board = board;
    let watch = move || {
        board.port.wait_gone();
        tracing::error!("lost the connection to the board: the executor exits");
        // SAFETY: ends the process, whose state is useless without the board.
        unsafe { libc::_exit(1) };
    };
    let watcher = std::thread::Builder::new().name("board".into());
    watcher.spawn(watch).map_err(|e| LoadError::Library {
        library: format!("{SCHEME}{path}"),
        text: e.to_string(),
    })?;
    Ok(vec![Box::leak(Box::new(driver))])
}

/// An error and its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    let texts: Vec<_> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

fn table() -> cl_icd_dispatch {
    // SAFETY: all-zero is `None` for every entry.
    let mut api: cl_icd_dispatch = unsafe { std::mem::zeroed() };
    api.clGetPlatformInfo = Some(platform_info);
    api.clGetDeviceIDs = Some(device_ids);
    api.clGetDeviceInfo = Some(device_info);
    api.clGetDeviceAndHostTimer = Some(timers);
    objects::fill(&mut api);
    commands::fill(&mut api);
    api
}

/// The object behind a handle of ours.
///
/// # Safety
/// `handle` is a pointer to a live `T`, for as long as the result is used.
unsafe fn object<'a, T, H>(handle: *mut H) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*handle.cast::<T>() }
}

/// Answers a query.
///
/// # Safety
/// `value` is null or has `size` bytes; `needed` is null or writable.
unsafe fn give(answer: &[u8], size: usize, value: *mut c_void, needed: *mut usize) -> cl_int {
    if !needed.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *needed = answer.len() };
    }
    if value.is_null() {
        return CL_SUCCESS;
    }
    if size < answer.len() {
        return CL_INVALID_VALUE;
    }
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(answer.as_ptr(), value.cast(), answer.len()) };
    CL_SUCCESS
}

fn zero_terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

/// A query whose answer may be missing.
///
/// # Safety
/// As [`give`].
unsafe fn give_or_refuse(
    answer: Option<Vec<u8>>,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    match answer {
        // SAFETY: the caller's promise.
        Some(answer) => unsafe { give(&answer, size, value, needed) },
        None => CL_INVALID_VALUE,
    }
}

unsafe extern "C" fn platform_info(
    _: cl_platform_id,
    param: cl_platform_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    let text = match param as i32 {
        CL_PLATFORM_PROFILE => "EMBEDDED_PROFILE",
        CL_PLATFORM_VERSION => "OpenCL 1.2 Baltra",
        CL_PLATFORM_NAME => "Baltra boards",
        CL_PLATFORM_VENDOR => "Baltra",
        CL_PLATFORM_EXTENSIONS => "",
        _ => return CL_INVALID_VALUE,
    };
    // SAFETY: OpenCL's promise.
    unsafe { give(&zero_terminated(text), size, value, needed) }
}

unsafe extern "C" fn device_ids(
    platform: cl_platform_id,
    _: cl_device_type,
    count: cl_uint,
    devices: *mut cl_device_id,
    have: *mut cl_uint,
) -> cl_int {
    // SAFETY: OpenCL's promise: `have` is null or writable, `devices` null or of `count`.
    unsafe {
        if !have.is_null() {
            *have = 1;
        }
        if !devices.is_null() && count > 0 {
            *devices = platform.cast();
        }
    }
    CL_SUCCESS
}

unsafe extern "C" fn device_info(
    device: cl_device_id,
    param: cl_device_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: the device is the leaked board; the rest is OpenCL's promise.
    unsafe {
        let board: &Board = object(device);
        give_or_refuse(board.info(param as i32), size, value, needed)
    }
}

unsafe extern "C" fn timers(_: cl_device_id, device: *mut cl_ulong, host: *mut cl_ulong) -> cl_int {
    let now = baltra_ring::lease::monotonic_ns();
    // SAFETY: OpenCL's promise: both are writable.
    unsafe {
        *device = now;
        *host = now;
    }
    CL_SUCCESS
}

impl Board {
    fn info(&self, param: i32) -> Option<Vec<u8>> {
        let about = &self.port.about;
        let int = |value: u32| Some(value.to_ne_bytes().to_vec());
        let long = |value: u64| Some(value.to_ne_bytes().to_vec());
        let size = |value: usize| Some(value.to_ne_bytes().to_vec());
        let text = |text: &str| Some(zero_terminated(text));
        match param {
            CL_DEVICE_TYPE => long(CL_DEVICE_TYPE_ACCELERATOR as u64),
            CL_DEVICE_VENDOR_ID => int(VENDOR_ID),
            CL_DEVICE_MAX_COMPUTE_UNITS => int(about.regions),
            CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS => int(3),
            // A kernel is a stream: groups mean nothing to it.
            CL_DEVICE_MAX_WORK_GROUP_SIZE => size(1024),
            CL_DEVICE_MAX_WORK_ITEM_SIZES => Some(
                [1024usize; 3]
                    .iter()
                    .flat_map(|n| n.to_ne_bytes())
                    .collect(),
            ),
            CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR..=CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT
            | CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR..=CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT => int(1),
            CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE
            | CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF
            | CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE
            | CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF => int(0),
            CL_DEVICE_MAX_CLOCK_FREQUENCY => int(about.clock_khz / 1000),
            CL_DEVICE_ADDRESS_BITS => int(64),
            CL_DEVICE_GLOBAL_MEM_SIZE => long(WINDOW_BYTES),
            CL_DEVICE_MAX_MEM_ALLOC_SIZE => long(WINDOW_BYTES / 4),
            CL_DEVICE_MAX_PARAMETER_SIZE => size(256),
            CL_DEVICE_MEM_BASE_ADDR_ALIGN => int(8 * ALIGNMENT as u32),
            CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE => int(ALIGNMENT as u32),
            CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE => long(WINDOW_BYTES / 4),
            CL_DEVICE_MAX_CONSTANT_ARGS => int(1),
            CL_DEVICE_LOCAL_MEM_TYPE => int(CL_GLOBAL as u32),
            CL_DEVICE_LOCAL_MEM_SIZE => long(1024),
            CL_DEVICE_PROFILING_TIMER_RESOLUTION => size(1),
            CL_DEVICE_ENDIAN_LITTLE | CL_DEVICE_AVAILABLE => int(1),
            CL_DEVICE_EXECUTION_CAPABILITIES => long(CL_EXEC_KERNEL as u64),
            CL_DEVICE_QUEUE_PROPERTIES => long(CL_QUEUE_PROFILING_ENABLE as u64),
            CL_DEVICE_NAME => text(&format!("Baltra board, {} regions", about.regions)),
            CL_DEVICE_VENDOR => text("Baltra"),
            CL_DRIVER_VERSION => text(env!("CARGO_PKG_VERSION")),
            CL_DEVICE_PROFILE => text("EMBEDDED_PROFILE"),
            CL_DEVICE_VERSION => text(&format!("OpenCL 1.2 shell {:#x}", about.shell)),
            CL_DEVICE_OPENCL_C_VERSION => text("OpenCL C 1.2"),
            CL_DEVICE_EXTENSIONS | CL_DEVICE_BUILT_IN_KERNELS => text(""),
            CL_DEVICE_PARTITION_PROPERTIES => size(0),
            CL_DEVICE_PREFERRED_INTEROP_USER_SYNC => int(1),
            // Features that boards lack: a compiler and linker, images, samplers, caches, floating
            // point, printf, shared virtual memory, sub-devices.
            CL_DEVICE_COMPILER_AVAILABLE
            | CL_DEVICE_LINKER_AVAILABLE
            | CL_DEVICE_IMAGE_SUPPORT
            | CL_DEVICE_MAX_READ_IMAGE_ARGS
            | CL_DEVICE_MAX_WRITE_IMAGE_ARGS
            | CL_DEVICE_MAX_SAMPLERS
            | CL_DEVICE_GLOBAL_MEM_CACHE_TYPE
            | CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE
            | CL_DEVICE_ERROR_CORRECTION_SUPPORT
            | CL_DEVICE_HOST_UNIFIED_MEMORY
            | CL_DEVICE_PARTITION_MAX_SUB_DEVICES => int(0),
            CL_DEVICE_SINGLE_FP_CONFIG
            | CL_DEVICE_DOUBLE_FP_CONFIG
            | CL_DEVICE_GLOBAL_MEM_CACHE_SIZE
            | CL_DEVICE_SVM_CAPABILITIES
            | CL_DEVICE_PARTITION_AFFINITY_DOMAIN => long(0),
            CL_DEVICE_IMAGE2D_MAX_WIDTH
            | CL_DEVICE_IMAGE2D_MAX_HEIGHT
            | CL_DEVICE_IMAGE3D_MAX_WIDTH
            | CL_DEVICE_IMAGE3D_MAX_HEIGHT
            | CL_DEVICE_IMAGE3D_MAX_DEPTH
            | CL_DEVICE_IMAGE_MAX_BUFFER_SIZE
            | CL_DEVICE_IMAGE_MAX_ARRAY_SIZE
            | CL_DEVICE_PRINTF_BUFFER_SIZE => size(0),
            CL_DEVICE_PARTITION_TYPE => Some(Vec::new()),
            _ => None,
        }
    }
}
