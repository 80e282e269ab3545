//! The vendor's OpenCL driver, loaded directly and called through its own dispatch table.
//!
//! An ICD loader is bypassed on purpose: the executor must reach the vendor's library even if
//! Baltra's own is installed as the system's loader or as an ICD. The loader's task is small:
//! `clGetExtensionFunctionAddress("clIcdGetPlatformIDsKHR")` lists the platforms, and the first
//! word of every object is the dispatch table.

mod blocking;
mod board;
mod builtin;
pub mod cancel;
mod clock;
mod describe;
pub mod emulate;
mod handle;
mod list;
pub mod output;
mod pin;
mod seats;
mod transfer;
mod turns;

pub use board::{board_regions, is_board, wait_for_load};
pub use builtin::take_refusal;
pub use clock::Clock;
pub use describe::describe;
pub use emulate::preparation::Preparation;
pub use handle::{Context, Event, Kernel, Mem, Program, Queue, Sampler, SubDevice};
pub use list::list;
pub use pin::{HostMemory, Pinned};
pub use seats::{Seat, Seats};
pub use transfer::{Enqueue, Side};
pub use turns::{Turn, Turns};

use baltra_opencl::*;
use std::ffi::{c_char, c_void, CStr, CString};

/// An OpenCL error code (negative).
pub type Code = i32;

/// Result of an OpenCL call.
pub type Result<T> = std::result::Result<T, Code>;

/// The driver cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The library is missing or does not load.
    #[error("cannot load the OpenCL driver '{library}': {text}")]
    Library {
        /// The library as configured.
        library: String,
        /// The dynamic linker's reason.
        text: String,
    },
    /// It is a library, but no installable OpenCL driver.
    #[error("'{library}' is not an OpenCL driver (it has no clIcdGetPlatformIDsKHR)")]
    NoDriver {
        /// The library as configured.
        library: String,
    },
    /// The driver works and has nothing to drive.
    #[error("the driver '{library}' has no device on this host")]
    NoDevices {
        /// The library as configured.
        library: String,
    },
    /// The driver works, the device is not there.
    #[error("the driver '{library}' has no device '{device}' (available: {have})")]
    NoDevice {
        /// The library as configured.
        library: String,
        /// The device as configured.
        device: String,
        /// The available devices.
        have: String,
    },
    /// A call of the initialization failed.
    #[error("the OpenCL driver's {call} failed with error {code}")]
    Call {
        /// The function.
        call: &'static str,
        /// Its error.
        code: Code,
    },
}

/// A loaded driver: one platform's functions.
pub struct Driver {
    api: cl_icd_dispatch,
    platform: cl_platform_id,
    /// `clFinish` waits for nothing that `clFlush` has submitted before (Mesa 22.3's rusticl).
    forgets_flushed: bool,
    /// The device is the executor's own ([`builtin`]).
    is_own: bool,
}

// SAFETY: OpenCL entry points are thread-safe (except for clSetKernelArg on one kernel object, each
// of which has one user), and the platform handle is a constant of the process.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

/// Calls a driver's function that returns an error code.
macro_rules! call {
    ($driver:expr, $name:ident ( $($arg:expr),* $(,)? )) => {
        match $driver.api().$name {
            Some(function) => crate::driver::check(function($($arg),*)),
            None => Err(baltra_opencl::CL_INVALID_OPERATION),
        }
    };
}

/// Calls a driver's function that returns an object and takes `errcode_ret` last.
macro_rules! create {
    ($driver:expr, $name:ident ( $($arg:expr),* $(,)? )) => {
        match $driver.api().$name {
            Some(function) => {
                let mut code = baltra_opencl::CL_SUCCESS;
                let made = function($($arg,)* &mut code);
                if made.is_null() && code == baltra_opencl::CL_SUCCESS {
                    code = baltra_opencl::CL_OUT_OF_HOST_MEMORY;
                }
                crate::driver::check(code).map(|()| made)
            }
            None => Err(baltra_opencl::CL_INVALID_OPERATION),
        }
    };
}
pub(crate) use {call, create};

/// Turns a returned code into a result.
pub(crate) fn check(code: Code) -> Result<()> {
    if code == CL_SUCCESS {
        Ok(())
    } else {
        Err(code)
    }
}

/// One of the driver's devices.
#[derive(Clone, Copy)]
pub struct Device {
    /// The driver.
    pub driver: &'static Driver,
    /// The device.
    pub raw: cl_device_id,
}

// SAFETY: root devices live as long as the process; sub-devices are kept by their `SubDevice`.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// `clGetDeviceInfo`.
    pub fn info(&self, param: u32) -> Result<Vec<u8>> {
        query(|size, value, needed| {
            // SAFETY: the device is live; `value` is null or has `size` bytes.
            unsafe {
                call!(
                    self.driver,
                    clGetDeviceInfo(self.raw, param, size, value, needed)
                )
            }
        })
    }

    /// Whether the device is a GPU: it reaches the host's memory over a bus.
    pub fn is_gpu(&self) -> bool {
        self.number(CL_DEVICE_TYPE as u32) & CL_DEVICE_TYPE_GPU as u64 != 0
    }

    /// A parameter that is text; empty when the driver does not answer.
    pub fn text(&self, param: u32) -> String {
        text(&self.info(param).unwrap_or_default())
    }

    /// A parameter that is a number; 0 when the driver does not answer.
    pub fn number(&self, param: u32) -> u64 {
        number(&self.info(param).unwrap_or_default())
    }
}

impl Driver {
    pub(crate) fn api(&self) -> &cl_icd_dispatch {
        &self.api
    }

    /// A function of an extension.
    fn extension(&self, name: &CStr) -> Option<std::ptr::NonNull<c_void>> {
        let find = self.api.clGetExtensionFunctionAddressForPlatform?;
        // SAFETY: the platform is live and the name is a C string.
        std::ptr::NonNull::new(unsafe { find(self.platform, name.as_ptr()) })
    }

    /// `clGetPlatformInfo`.
    pub fn platform_info(&self, param: u32) -> Result<Vec<u8>> {
        query(|size, value, needed| {
            // SAFETY: the platform is live; `value` is null or has `size` bytes.
            unsafe {
                call!(
                    self,
                    clGetPlatformInfo(self.platform, param, size, value, needed)
                )
            }
        })
    }

    /// The platform, for context properties.
    pub fn platform(&self) -> cl_platform_id {
        self.platform
    }

    fn devices(&'static self) -> Vec<Device> {
        let kinds = u64::from(u32::MAX); // CL_DEVICE_TYPE_ALL
        let mut count = 0;
        // SAFETY: queries the number only.
        let queried = unsafe {
            call!(
                self,
                clGetDeviceIDs(self.platform, kinds, 0, std::ptr::null_mut(), &mut count)
            )
        };
        if queried.is_err() || count > 4096 {
            return Vec::new();
        }
        let mut raw = vec![std::ptr::null_mut(); count as usize];
        // SAFETY: `raw` has room for `count` devices.
        let got = unsafe {
            call!(
                self,
                clGetDeviceIDs(
                    self.platform,
                    kinds,
                    count,
                    raw.as_mut_ptr(),
                    std::ptr::null_mut()
                )
            )
        };
        match got {
            Ok(()) => raw
                .into_iter()
                .map(|raw| Device { driver: self, raw })
                .collect(),
            Err(_) => Vec::new(),
        }
    }
}

/// Asks for a value's size, then for the value.
pub(crate) fn query(ask: impl Fn(usize, *mut c_void, *mut usize) -> Result<()>) -> Result<Vec<u8>> {
    let mut needed = 0;
    ask(0, std::ptr::null_mut(), &mut needed)?;
    let mut value = vec![0u8; needed];
    if needed > 0 {
        ask(needed, value.as_mut_ptr().cast(), &mut needed)?;
        value.truncate(needed);
    }
    Ok(value)
}

/// Text of a query, without its final zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\0')
        .to_owned()
}

/// A number of one to eight bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_ne_bytes(word)
}

fn linker_error() -> String {
    // SAFETY: dlerror returns null or a C string that is valid until the next dl call here.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "unknown".into();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// The file of a library that is loaded already.
fn real_path(library: &str) -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let name = CString::new(library).ok()?;
    // SAFETY: finds a library that is loaded already, by a C string.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle is live and the name is a C string.
    let address = unsafe { libc::dlsym(handle, c"clGetExtensionFunctionAddress".as_ptr()) };
    // SAFETY: all-zero is a valid value of the struct, which dladdr fills.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be queried; `info` is a local variable.
    let found = unsafe { libc::dladdr(address, &mut info) } != 0 && !info.dli_fname.is_null();
    // SAFETY: dladdr gave a C string that lives as long as the library, which is never unloaded.
    let file = found.then(|| unsafe { CStr::from_ptr(info.dli_fname) })?;
    std::fs::canonicalize(std::ffi::OsStr::from_bytes(file.to_bytes())).ok()
}

type GetAddress = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type GetPlatforms = unsafe extern "C" fn(cl_uint, *mut cl_platform_id, *mut cl_uint) -> cl_int;

/// Loads a driver, connects to a board, or makes an emulated accelerator; one entry per platform. A library stays loaded for the
/// process's life, because drivers do not unload cleanly.
fn load(library: &str) -> std::result::Result<Vec<&'static Driver>, LoadError> {
    if let Some(path) = library.strip_prefix(board::SCHEME) {
        return board::load(path);
    }
    if let Some(tree) = library.strip_prefix(emulate::SCHEME) {
        return emulate::load(tree);
    }
    let failed = |text: String| LoadError::Library {
        library: library.into(),
        text,
    };
    let no_driver = || LoadError::NoDriver {
        library: library.into(),
    };
    let path = CString::new(library).map_err(|e| failed(e.to_string()))?;
    // SAFETY: loading runs the library's constructors, which is the purpose of loading a driver.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return Err(failed(linker_error()));
    }
    // SAFETY: the handle is live and the name is a C string.
    let address = unsafe { libc::dlsym(handle, c"clGetExtensionFunctionAddress".as_ptr()) };
    if address.is_null() {
        return Err(no_driver());
    }
    // SAFETY: the function of this name has this type in every OpenCL library.
    let address: GetAddress = unsafe { std::mem::transmute(address) };
    // SAFETY: a C string.
    let platforms = unsafe { address(c"clIcdGetPlatformIDsKHR".as_ptr()) };
    if platforms.is_null() {
        return Err(no_driver());
    }
    // SAFETY: cl_khr_icd gives the function this type.
    let platforms: GetPlatforms = unsafe { std::mem::transmute(platforms) };
    let call_failed = |code| LoadError::Call {
        call: "clIcdGetPlatformIDsKHR",
        code,
    };
    let mut count = 0;
    // SAFETY: queries the number only.
    check(unsafe { platforms(0, std::ptr::null_mut(), &mut count) }).map_err(call_failed)?;
    let mut raw = vec![std::ptr::null_mut(); count.min(64) as usize];
    // SAFETY: `raw` has room for the number passed.
    check(unsafe { platforms(raw.len() as u32, raw.as_mut_ptr(), std::ptr::null_mut()) })
        .map_err(call_failed)?;
    Ok(raw
        .into_iter()
        .filter(|p| !p.is_null())
        .map(|p| &*Box::leak(Box::new(Driver::over(p))))
        .collect())
}

/// Whether the driver is one of the executor's own, whose compiler is known.
pub fn is_own(library: &str) -> bool {
    [board::SCHEME, emulate::SCHEME]
        .iter()
        .any(|scheme| library.starts_with(scheme))
}

/// For drivers with a compiler, starts the compilation of what all programs share. The sandbox would not
/// permit it.
pub fn start_preparation(library: &str) -> Option<Preparation> {
    Preparation::start(&tools(library)?)
}

/// Directories that a driver reads beside the system's and its library's.
pub fn readable(library: &str) -> Vec<std::path::PathBuf> {
    let mut directories = tools(library).map_or_else(Vec::new, |tools| tools.readable());
    directories.extend(python_packages(std::path::Path::new(library)));
    directories
}

/// The compiler of the executor's own drivers.
fn tools(library: &str) -> Option<emulate::tools::Tools> {
    // A board compiles with the tree that belongs to this program.
    let is_board = library.starts_with(board::SCHEME);
    let tree = library.strip_prefix(emulate::SCHEME);
    let tree = tree.or(is_board.then_some(""));
    // A missing tree is reported when the driver is loaded.
    tree.and_then(|tree| emulate::tools::Tools::find(tree).ok())
}

/// The directory of Python's packages that contains a library: a driver in one package may have its
/// dependencies and its built-in kernels in another.
pub fn python_packages(library: &std::path::Path) -> Option<std::path::PathBuf> {
    let mut above = library.ancestors().skip(1);
    let found = above.find(|dir| {
        let name = dir.file_name().and_then(|name| name.to_str());
        matches!(name, Some("site-packages" | "dist-packages"))
    });
    found.map(Into::into)
}

impl Driver {
    fn over(platform: cl_platform_id) -> Driver {
        // SAFETY: all-zero is `None` for every entry.
        let mut api: cl_icd_dispatch = unsafe { std::mem::zeroed() };
        // SAFETY: cl_khr_icd: an object's first word points at its driver's dispatch table,
        // which lives as long as the library.
        let table = unsafe { *platform.cast::<*const cl_icd_dispatch>() };
        // Every driver's table has the entries up to OpenCL 1.2. Later entries exist only in
        // drivers of the later version; an older driver's table ends before them.
        copy_prefix(table, &mut api, PREFIX_1_2);
        let mut driver = Driver {
            api,
            platform,
            forgets_flushed: false,
            is_own: false,
        };
        let version = text(
            &driver
                .platform_info(CL_PLATFORM_VERSION as u32)
                .unwrap_or_default(),
        );
        copy_prefix(table, &mut driver.api, prefix(&version));
        let name = driver.platform_info(CL_PLATFORM_NAME as u32);
        driver.forgets_flushed = text(&name.unwrap_or_default()) == "rusticl";
        driver
    }
}

const PREFIX_1_2: usize = std::mem::offset_of!(cl_icd_dispatch, clCreateFromGLTexture);

/// Size of the dispatch table of a driver with this `CL_PLATFORM_VERSION`.
fn prefix(version: &str) -> usize {
    use std::mem::offset_of;
    let number = version.strip_prefix("OpenCL ").unwrap_or_default();
    let number = number.split(' ').next().unwrap_or_default();
    let (major, minor) = number.split_once('.').unwrap_or(("1", "2"));
    let minor = minor.parse().unwrap_or(0);
    match (major.parse().unwrap_or(1), minor) {
        (0..=1, _) => PREFIX_1_2,
        (2, 0) => offset_of!(cl_icd_dispatch, clCloneKernel),
        (2, 1) => offset_of!(cl_icd_dispatch, clSetProgramReleaseCallback),
        (2, _) => offset_of!(cl_icd_dispatch, clCreateBufferWithProperties),
        _ => size_of::<cl_icd_dispatch>(),
    }
}

fn copy_prefix(table: *const cl_icd_dispatch, api: &mut cl_icd_dispatch, bytes: usize) {
    // SAFETY: a driver of this version has a table of at least that size; the target is the full
    // struct; entries are plain function pointers or null.
    unsafe {
        std::ptr::copy_nonoverlapping(
            table.cast::<u8>(),
            (api as *mut cl_icd_dispatch).cast::<u8>(),
            bytes,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named() {
        let error = Device::open("libno-such-driver.so.9", "")
            .err()
            .expect("there is no such library");
        assert!(error.to_string().contains("libno-such-driver.so.9"));
    }

    #[test]
    fn a_library_that_is_no_driver_is_refused() {
        let error = Device::open("libc.so.6", "").err();
        assert!(matches!(error, Some(LoadError::NoDriver { .. })));
    }

    #[test]
    fn a_driver_of_a_python_package_reads_the_other_packages() {
        let packages = "/venv/lib/python3.11/site-packages";
        assert_eq!(
            readable(&format!("{packages}/one/.libs/libone.so")),
            [std::path::PathBuf::from(packages)]
        );
        assert!(readable("/usr/lib/libpocl.so.2").is_empty());
        assert!(readable("libpocl.so.2").is_empty());
    }

    #[test]
    fn older_drivers_get_shorter_tables() {
        let old = prefix("OpenCL 1.2 Vendor");
        let middle = prefix("OpenCL 2.1 x");
        assert!(old < middle && middle < prefix("OpenCL 3.0 CUDA 12.4"));
        assert_eq!(prefix("nonsense"), old);
    }
}
