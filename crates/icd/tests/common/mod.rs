//! Loads OpenCL drivers side by side, past any loader: the one under test and a native one.
#![allow(dead_code)]

use baltra_opencl::*;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError};

/// A driver's table, its first platform's first device, and a context and queue on it.
pub struct Driver {
    pub table: &'static cl_icd_dispatch,
    pub platform: cl_platform_id,
    pub device: cl_device_id,
    pub context: cl_context,
    pub queue: cl_command_queue,
    /// The recorded results, line by line.
    pub lines: Vec<String>,
}

/// Calls an entry point of a driver's table.
#[macro_export]
macro_rules! cl {
    ($d:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let entry = $d.table.$name.expect(stringify!($name));
        // SAFETY: the tests conform to the specification, or violate it where it defines the
        // result.
        #[allow(clippy::macro_metavars_in_unsafe)]
        unsafe {
            entry($($arg),*)
        }
    }};
}

/// Writes a line into the driver's transcript.
#[macro_export]
macro_rules! note {
    ($d:expr, $($arg:tt)*) => {{
        let line = format!($($arg)*);
        $d.lines.push(line);
    }};
}

impl Driver {
    /// Loads a driver library; `None`: it is not there, or has no device.
    pub fn load(path: &str) -> Option<Driver> {
        let path = CString::new(path).expect("a path");
        // SAFETY: loading a driver runs its constructors, which is intended.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            // SAFETY: dlerror has just been set.
            eprintln!("{:?}", unsafe { CStr::from_ptr(libc::dlerror()) });
            return None;
        }
        type Address = unsafe extern "C" fn(*const c_char) -> *mut c_void;
        type Platforms = unsafe extern "C" fn(cl_uint, *mut cl_platform_id, *mut cl_uint) -> c_int;
        let mut platform = null_mut();
        // SAFETY: the names and types are the ICD extension's.
        let table = unsafe {
            let symbol = libc::dlsym(library, c"clGetExtensionFunctionAddress".as_ptr());
            let address: Address = std::mem::transmute(symbol);
            let platforms = address(c"clIcdGetPlatformIDsKHR".as_ptr());
            let platforms: Platforms = std::mem::transmute(platforms);
            if platforms(1, &mut platform, null_mut()) != CL_SUCCESS || platform.is_null() {
                return None;
            }
            *platform.cast::<&'static cl_icd_dispatch>()
        };
        let mut driver = Driver {
            table,
            platform,
            device: null_mut(),
            context: null_mut(),
            queue: null_mut(),
            lines: Vec::new(),
        };
        let all = CL_DEVICE_TYPE_ALL as u32 as u64;
        let device = &mut driver.device;
        if cl!(driver, clGetDeviceIDs(platform, all, 1, device, null_mut())) != CL_SUCCESS {
            return None;
        }
        let mut code = -1;
        let devices = &driver.device;
        driver.context = cl!(
            driver,
            clCreateContext(null(), 1, devices, None, null_mut(), &mut code)
        );
        assert_eq!(code, CL_SUCCESS);
        driver.queue = cl!(
            driver,
            clCreateCommandQueue(driver.context, driver.device, 0, &mut code)
        );
        assert_eq!(code, CL_SUCCESS);
        Some(driver)
    }

    /// A program of source, built; its log goes to the transcript if that fails.
    pub fn build(&mut self, source: &str, options: &str) -> cl_program {
        let program = self.program(source);
        let options = CString::new(options).expect("options");
        let code = cl!(
            self,
            clBuildProgram(program, 0, null(), options.as_ptr(), None, null_mut())
        );
        note!(self, "build {code}");
        program
    }

    /// A program of source, not built.
    pub fn program(&mut self, source: &str) -> cl_program {
        let mut code = -1;
        let mut text = source.as_ptr().cast::<c_char>();
        let len = source.len();
        let program = cl!(
            self,
            clCreateProgramWithSource(self.context, 1, &mut text, &len, &mut code)
        );
        assert_eq!(code, CL_SUCCESS);
        program
    }

    /// A kernel, which must be there.
    pub fn kernel(&mut self, program: cl_program, name: &str) -> cl_kernel {
        let name = CString::new(name).expect("a name");
        let mut code = -1;
        let kernel = cl!(self, clCreateKernel(program, name.as_ptr(), &mut code));
        assert_eq!(code, CL_SUCCESS, "{name:?}");
        kernel
    }

    /// A buffer with contents.
    pub fn buffer<T: Copy>(&mut self, contents: &mut [T]) -> cl_mem {
        let mut code = -1;
        let flags = (CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR) as u64;
        let bytes = std::mem::size_of_val(contents);
        let pointer = contents.as_mut_ptr().cast();
        let buffer = cl!(
            self,
            clCreateBuffer(self.context, flags, bytes, pointer, &mut code)
        );
        assert_eq!(code, CL_SUCCESS);
        buffer
    }

    /// A buffer's contents.
    pub fn read<T: Copy + Default>(&mut self, buffer: cl_mem, count: usize) -> Vec<T> {
        let mut values = vec![T::default(); count];
        let bytes = count * size_of::<T>();
        let pointer = values.as_mut_ptr().cast();
        let code = cl!(
            self,
            clEnqueueReadBuffer(
                self.queue,
                buffer,
                1,
                0,
                bytes,
                pointer,
                0,
                null(),
                null_mut()
            )
        );
        assert_eq!(code, CL_SUCCESS);
        values
    }

    /// Sets an argument by value.
    pub fn set<T>(&mut self, kernel: cl_kernel, index: u32, value: &T) -> cl_int {
        let pointer = (value as *const T).cast();
        cl!(self, clSetKernelArg(kernel, index, size_of::<T>(), pointer))
    }

    /// Launches in one to three dimensions; an empty `local` leaves the groups to the driver.
    pub fn launch(&mut self, kernel: cl_kernel, global: &[usize], local: &[usize]) -> cl_int {
        let group = if local.is_empty() {
            null()
        } else {
            local.as_ptr()
        };
        cl!(
            self,
            clEnqueueNDRangeKernel(
                self.queue,
                kernel,
                global.len() as u32,
                null(),
                global.as_ptr(),
                group,
                0,
                null(),
                null_mut()
            )
        )
    }

    /// `clFinish`
    pub fn finish(&mut self) {
        let code = cl!(self, clFinish(self.queue));
        note!(self, "finish {code}");
    }
}

/// Runs a scenario on both drivers and compares their results. Without a library under test
/// (`BALTRA_TEST_LIBRARY`, with `BALTRA_ENDPOINT` for a manager) only the native one runs, to check
/// the scenario itself.
pub fn compare(scenario: impl Fn(&mut Driver)) {
    // One scenario at a time: PoCL 3.1 now and then refuses a buffer (CL_INVALID_BUFFER_SIZE) in a
    // context that is made while another thread makes the process's first one.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let native = std::env::var("BALTRA_TEST_NATIVE");
    let native = native.unwrap_or_else(|_| "libpocl.so.2".into());
    let Some(mut expected) = Driver::load(&native) else {
        eprintln!("no native driver ({native}): nothing to compare with");
        return;
    };
    scenario(&mut expected);
    let Ok(tested) = std::env::var("BALTRA_TEST_LIBRARY") else {
        eprintln!("BALTRA_TEST_LIBRARY is not set: the native driver ran alone");
        return;
    };
    let mut found = Driver::load(&tested).expect("the library under test has a device");
    scenario(&mut found);
    for (at, (want, have)) in expected.lines.iter().zip(&found.lines).enumerate() {
        assert_eq!(
            have, want,
            "line {at}: this library first, the native driver second"
        );
    }
    assert_eq!(found.lines.len(), expected.lines.len());
}
