//! Devices that the executor drives itself, without a vendor's library: what boards and emulated
//! accelerators have in common.
//!
//! A driver implements [`Builtin`] and adds its programs, kernels and launches to the dispatch table
//! that [`table`] begins. The table has the functions that the executor calls; the others are
//! absent, as in a driver that lacks them.
//!
//! Commands run when they are enqueued, in order, and only block the calling thread: each is complete
//! when its call returns, except for kernels with channels in out-of-order queues, which end later.
//! The executor passes no wait list with a command that has not ended.
//!
//! | module | content |
//! |---|---|
//! | this one | platform, device, queries |
//! | [`memory`] | device memory and its allocation |
//! | [`objects`] | contexts, queues, buffers, pipes, events |
//! | [`transfer`] | commands on buffers |

pub mod memory;
pub mod objects;
pub mod transfer;

use super::{Driver, LoadError};
use baltra_board::accelerator::manifest::POINTERS_MAX;
use baltra_opencl::*;
use baltra_ring::lease::monotonic_ns;
use memory::DeviceMemory;
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

/// Least time between two log lines about failures that tenants cause.
const LOG_INTERVAL_NS: u64 = 100_000_000;

/// Open reservations of a pipe that every program may have.
const RESERVATIONS: u32 = 1 << 16;

/// "BL"
pub const VENDOR_ID: u32 = 0x424C;

/// A kind of device that the executor drives itself.
pub trait Builtin: Send + Sync + Sized + 'static {
    /// `CL_PLATFORM_NAME`
    const PLATFORM: &'static str;
    /// `CL_DEVICE_QUEUE_PROPERTIES`
    const QUEUE_PROPERTIES: u64;

    /// A device parameter's value; `None`: the device does not have the parameter.
    fn info(&self, param: i32) -> Option<Vec<u8>>;
}

/// A device with its memory; platform and device share its address as their handle.
pub struct Device<T> {
    /// The memory that buffers lie in.
    pub memory: DeviceMemory,
    /// The driver's own state.
    pub own: T,
}

/// Registers a device, which lives as long as the process.
pub fn register<T: Builtin>(
    device: Device<T>,
    api: cl_icd_dispatch,
) -> (&'static Device<T>, &'static Driver) {
    let device: &'static Device<T> = Box::leak(Box::new(device));
    let driver = Driver {
        api,
        platform: std::ptr::from_ref(device).cast_mut().cast(),
        forgets_flushed: false,
        is_own: true,
    };
    (device, Box::leak(Box::new(driver)))
}

/// A dispatch table with everything but programs, kernels and launches.
pub fn table<T: Builtin>() -> cl_icd_dispatch {
    // SAFETY: all-zero is `None` for every entry.
    let mut api: cl_icd_dispatch = unsafe { std::mem::zeroed() };
    api.clGetPlatformInfo = Some(platform_info::<T>);
    api.clGetDeviceIDs = Some(device_ids);
    api.clGetDeviceInfo = Some(device_info::<T>);
    api.clGetDeviceAndHostTimer = Some(timers);
    objects::fill::<T>(&mut api);
    transfer::fill(&mut api);
    api
}

/// An error of loading a device.
pub fn load_error(library: String, error: &dyn std::error::Error) -> LoadError {
    LoadError::Library {
        library,
        text: chain(error),
    }
}

/// An error and its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    let texts: Vec<_> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

/// Whether a failure of a tenant's may be logged: a tenant can cause any number of them.
pub fn may_log() -> bool {
    static FAILURES: LogLimit = LogLimit::new();
    FAILURES.allows()
}

/// The rate limit of one kind of log line.
pub struct LogLimit {
    logged_ns: AtomicU64,
}

impl LogLimit {
    /// Nothing logged yet.
    pub const fn new() -> LogLimit {
        LogLimit {
            logged_ns: AtomicU64::new(0),
        }
    }

    /// Whether a line may be written now.
    pub fn allows(&self) -> bool {
        let now = monotonic_ns();
        let logged = self.logged_ns.load(Ordering::Relaxed);
        if logged != 0 && now.saturating_sub(logged) < LOG_INTERVAL_NS {
            return false;
        }
        self.logged_ns.store(now, Ordering::Relaxed);
        true
    }
}

thread_local! {
    /// Why this thread's last image was refused, which OpenCL's codes do not contain.
    static REFUSAL: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Notes why an image is refused.
pub fn refuse_image(reason: &str) {
    if may_log() {
        tracing::warn!(reason, "an image was refused");
    }
    REFUSAL.with(|refusal| *refusal.borrow_mut() = Some(reason.to_owned()));
}

/// Takes the reason for which this thread's last image was refused.
pub fn take_refusal() -> Option<String> {
    REFUSAL.with(RefCell::take)
}

/// The object behind a handle of ours.
///
/// # Safety
/// `handle` is a pointer to a live `T`, for as long as the result is used.
pub unsafe fn object<'a, T, H>(handle: *mut H) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*handle.cast::<T>() }
}

/// Answers a query.
///
/// # Safety
/// `value` is null or has `size` bytes; `needed` is null or writable.
pub unsafe fn give(answer: &[u8], size: usize, value: *mut c_void, needed: *mut usize) -> cl_int {
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

/// Text as OpenCL returns it.
pub fn zero_terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

/// A query whose answer may be missing.
///
/// # Safety
/// As [`give`].
pub unsafe fn give_or_refuse(
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

/// Parameters with the same value on every device that the executor drives itself.
pub fn common_info(param: i32) -> Option<Vec<u8>> {
    let int = |value: u32| Some(value.to_ne_bytes().to_vec());
    let long = |value: u64| Some(value.to_ne_bytes().to_vec());
    let size = |value: usize| Some(value.to_ne_bytes().to_vec());
    let text = |text: &str| Some(zero_terminated(text));
    match param {
        CL_DEVICE_TYPE => long(CL_DEVICE_TYPE_ACCELERATOR as u64),
        CL_DEVICE_VENDOR_ID => int(VENDOR_ID),
        CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS => int(3),
        CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR..=CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR..=CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT => int(1),
        CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF => int(0),
        CL_DEVICE_ADDRESS_BITS => int(64),
        CL_DEVICE_MEM_BASE_ADDR_ALIGN => int(8 * memory::ALIGNMENT as u32),
        CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE => int(memory::ALIGNMENT as u32),
        CL_DEVICE_PROFILING_TIMER_RESOLUTION => size(1),
        CL_DEVICE_ENDIAN_LITTLE | CL_DEVICE_AVAILABLE => int(1),
        CL_DEVICE_EXECUTION_CAPABILITIES => long(CL_EXEC_KERNEL as u64),
        CL_DEVICE_VENDOR => text("Baltra"),
        CL_DRIVER_VERSION => text(env!("CARGO_PKG_VERSION")),
        CL_DEVICE_PROFILE => text(PROFILE),
        CL_DEVICE_OPENCL_C_VERSION => text("OpenCL C 1.2 Baltra"),
        CL_DEVICE_EXTENSIONS | CL_DEVICE_BUILT_IN_KERNELS => text(""),
        CL_DEVICE_PARTITION_PROPERTIES => size(0),
        CL_DEVICE_PREFERRED_INTEROP_USER_SYNC | CL_DEVICE_PIPE_SUPPORT => int(1),
        CL_DEVICE_MAX_PIPE_ARGS => int(POINTERS_MAX as u32),
        // A pipe counts them; each has a packet at least.
        CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS => int(RESERVATIONS),
        CL_DEVICE_PIPE_MAX_PACKET_SIZE => int(objects::PACKET_BYTES_MAX),
        // Features that these devices lack: images, samplers, caches, doubles, shared
        // virtual memory, sub-devices.
        CL_DEVICE_IMAGE_SUPPORT
        | CL_DEVICE_MAX_READ_IMAGE_ARGS
        | CL_DEVICE_MAX_WRITE_IMAGE_ARGS
        | CL_DEVICE_MAX_SAMPLERS
        | CL_DEVICE_GLOBAL_MEM_CACHE_TYPE
        | CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE
        | CL_DEVICE_ERROR_CORRECTION_SUPPORT
        | CL_DEVICE_HOST_UNIFIED_MEMORY
        | CL_DEVICE_PARTITION_MAX_SUB_DEVICES => int(0),
        CL_DEVICE_DOUBLE_FP_CONFIG
        | CL_DEVICE_GLOBAL_MEM_CACHE_SIZE
        | CL_DEVICE_SVM_CAPABILITIES
        | CL_DEVICE_PARTITION_AFFINITY_DOMAIN => long(0),
        CL_DEVICE_IMAGE2D_MAX_WIDTH
        | CL_DEVICE_IMAGE2D_MAX_HEIGHT
        | CL_DEVICE_IMAGE3D_MAX_WIDTH
        | CL_DEVICE_IMAGE3D_MAX_HEIGHT
        | CL_DEVICE_IMAGE3D_MAX_DEPTH
        | CL_DEVICE_IMAGE_MAX_BUFFER_SIZE
        | CL_DEVICE_IMAGE_MAX_ARRAY_SIZE => size(0),
        CL_DEVICE_PARTITION_TYPE => Some(Vec::new()),
        _ => None,
    }
}

/// No device has all that OpenCL's full profile requires.
const PROFILE: &str = "EMBEDDED_PROFILE";

unsafe extern "C" fn platform_info<T: Builtin>(
    _: cl_platform_id,
    param: cl_platform_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    let text = match param as i32 {
        CL_PLATFORM_PROFILE => PROFILE,
        CL_PLATFORM_VERSION => "OpenCL 1.2 Baltra",
        CL_PLATFORM_NAME => T::PLATFORM,
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

unsafe extern "C" fn device_info<T: Builtin>(
    device: cl_device_id,
    param: cl_device_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: the device is the registered one, which is leaked; the rest is OpenCL's promise.
    unsafe {
        let device: &Device<T> = object(device);
        let answer = device
            .own
            .info(param as i32)
            .or_else(|| common_info(param as i32));
        give_or_refuse(answer, size, value, needed)
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
