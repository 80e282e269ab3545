//! Owned driver objects: each is released when dropped, once.

use super::{call, create, query, Code, Device, Driver, Result};
use baltra_opencl::*;
use std::ffi::{c_char, c_void, CString};
use std::sync::{Mutex, MutexGuard};

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident($raw:ty, $release:ident);)*) => {$(
        $(#[$doc])*
        pub struct $name {
            driver: &'static Driver,
            raw: $raw,
        }

        // SAFETY: OpenCL objects may be used from any thread; the one exception
        // (clSetKernelArg) takes `&mut Kernel`.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            pub(super) fn own(driver: &'static Driver, raw: $raw) -> $name {
                $name { driver, raw }
            }

            /// The driver's handle; valid while `self` lives.
            pub fn raw(&self) -> $raw {
                self.raw
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: `raw` is our one reference, given up here.
                let released = unsafe { call!(self.driver, $release(self.raw)) };
                debug_assert!(released.is_ok() || released == Err(CL_INVALID_OPERATION));
            }
        }
    )*};
}

handles! {
    /// `cl_context`
    Context(cl_context, clReleaseContext);
    /// `cl_command_queue`
    Queue(cl_command_queue, clReleaseCommandQueue);
    /// `cl_mem`
    Mem(cl_mem, clReleaseMemObject);
    /// `cl_sampler`
    Sampler(cl_sampler, clReleaseSampler);
    /// `cl_program`
    Program(cl_program, clReleaseProgram);
    /// `cl_kernel`
    Kernel(cl_kernel, clReleaseKernel);
    /// `cl_event`
    Event(cl_event, clReleaseEvent);
    /// A `cl_device_id` that `clCreateSubDevices` made.
    SubDevice(cl_device_id, clReleaseDevice);
}

impl SubDevice {
    /// The device, for calls that take any.
    pub fn device(&self) -> Device {
        Device {
            driver: self.driver,
            raw: self.raw,
        }
    }
}

impl Device {
    /// `clCreateSubDevices`, at most `count_max` of them. `properties` is zero-terminated.
    pub fn partition(&self, properties: &[isize], count_max: usize) -> Result<Vec<SubDevice>> {
        if properties.last() != Some(&0) {
            return Err(CL_INVALID_VALUE);
        }
        let mut count = 0;
        // SAFETY: the list is terminated; queries the number only.
        unsafe {
            call!(
                self.driver,
                clCreateSubDevices(
                    self.raw,
                    properties.as_ptr(),
                    0,
                    std::ptr::null_mut(),
                    &mut count
                )
            )?;
        }
        if count as usize > count_max {
            return Err(CL_OUT_OF_RESOURCES);
        }
        let mut raw = vec![std::ptr::null_mut(); count as usize];
        // SAFETY: as above, with room for `count` devices.
        unsafe {
            call!(
                self.driver,
                clCreateSubDevices(
                    self.raw,
                    properties.as_ptr(),
                    count,
                    raw.as_mut_ptr(),
                    std::ptr::null_mut()
                )
            )?;
        }
        Ok(raw
            .into_iter()
            .map(|raw| SubDevice::own(self.driver, raw))
            .collect())
    }

    /// `clGetDeviceAndHostTimer`: device, host, nanoseconds.
    pub fn timers(&self) -> Result<(u64, u64)> {
        let (mut device, mut host) = (0, 0);
        // SAFETY: both places are writable.
        unsafe {
            call!(
                self.driver,
                clGetDeviceAndHostTimer(self.raw, &mut device, &mut host)
            )?;
        }
        Ok((device, host))
    }
}

impl Queue {
    pub(super) fn driver(&self) -> &'static Driver {
        self.driver
    }
}

impl Context {
    /// `clCreateContext`.
    pub fn new(devices: &[Device]) -> Result<Context> {
        let driver = devices.first().ok_or(CL_INVALID_VALUE)?.driver;
        let raw: Vec<_> = devices.iter().map(|d| d.raw).collect();
        let properties = [CL_CONTEXT_PLATFORM as isize, driver.platform() as isize, 0];
        // SAFETY: the devices are live, the property list is terminated.
        let context = unsafe {
            create!(
                driver,
                clCreateContext(
                    properties.as_ptr(),
                    raw.len() as u32,
                    raw.as_ptr(),
                    None,
                    std::ptr::null_mut()
                )
            )?
        };
        Ok(Context::own(driver, context))
    }

    /// `clCreateCommandQueue`.
    pub fn queue(&self, device: Device, properties: u64) -> Result<Queue> {
        // SAFETY: context and device are live.
        let queue = unsafe {
            create!(
                self.driver,
                clCreateCommandQueue(self.raw, device.raw, properties)
            )?
        };
        Ok(Queue::own(self.driver, queue))
    }

    /// `clCreateBuffer`.
    ///
    /// # Safety
    /// `host` is null, or valid for `size` bytes: during the call with `CL_MEM_COPY_HOST_PTR`,
    /// until the driver has destroyed the buffer with `CL_MEM_USE_HOST_PTR`.
    pub unsafe fn buffer(&self, flags: u64, size: usize, host: *mut u8) -> Result<Mem> {
        // SAFETY: the caller's promise.
        let mem = unsafe {
            create!(
                self.driver,
                clCreateBuffer(self.raw, flags, size, host.cast())
            )?
        };
        Ok(Mem::own(self.driver, mem))
    }

    /// `clCreateImage`.
    ///
    /// # Safety
    /// `host` is null, or valid during the call for the image's tight contents, with
    /// `CL_MEM_COPY_HOST_PTR`.
    pub unsafe fn image(
        &self,
        flags: u64,
        format: &cl_image_format,
        shape: &cl_image_desc,
        host: *mut u8,
    ) -> Result<Mem> {
        // SAFETY: the caller's promise; format and shape are live.
        let mem = unsafe {
            create!(
                self.driver,
                clCreateImage(self.raw, flags, format, shape, host.cast())
            )?
        };
        Ok(Mem::own(self.driver, mem))
    }

    /// `clCreateSamplerWithProperties`, by `clCreateSampler` where the driver lacks it.
    pub fn sampler(&self, properties: &[u64]) -> Result<Sampler> {
        if properties.len().is_multiple_of(2) || properties.last() != Some(&0) {
            return Err(CL_INVALID_VALUE);
        }
        if self.driver.api().clCreateSamplerWithProperties.is_some() {
            // SAFETY: the list is terminated.
            let made = unsafe {
                create!(
                    self.driver,
                    clCreateSamplerWithProperties(self.raw, properties.as_ptr())
                )
            };
            return Ok(Sampler::own(self.driver, made?));
        }
        let value = |key: i32, or: u64| {
            let pair = properties.chunks_exact(2).find(|p| p[0] == key as u64);
            pair.map_or(or, |p| p[1]) as u32
        };
        // SAFETY: plain values.
        let made = unsafe {
            create!(
                self.driver,
                clCreateSampler(
                    self.raw,
                    value(CL_SAMPLER_NORMALIZED_COORDS, 1),
                    value(CL_SAMPLER_ADDRESSING_MODE, CL_ADDRESS_CLAMP as u64),
                    value(CL_SAMPLER_FILTER_MODE, CL_FILTER_NEAREST as u64)
                )
            )?
        };
        Ok(Sampler::own(self.driver, made))
    }

    /// `clCreateProgramWithSource`.
    pub fn program_source(&self, source: &[u8]) -> Result<Program> {
        // A length of 0 means that the string ends with a zero, which an empty slice does not.
        let mut text = if source.is_empty() {
            c"".as_ptr()
        } else {
            source.as_ptr().cast::<c_char>()
        };
        let len = source.len();
        // SAFETY: one string of `len` bytes, or an empty C string.
        let made = unsafe {
            create!(
                self.driver,
                clCreateProgramWithSource(self.raw, 1, &mut text, &len)
            )?
        };
        Ok(Program::own(self.driver, made))
    }

    /// `clCreateProgramWithBinary`: the program, or the error, and each binary's status.
    pub fn program_binary(
        &self,
        devices: &[Device],
        binaries: &[&[u8]],
    ) -> (Result<Program>, Vec<Code>) {
        let mut status = vec![CL_INVALID_VALUE; binaries.len()];
        if devices.len() != binaries.len() || binaries.iter().any(|b| b.is_empty()) {
            return (Err(CL_INVALID_VALUE), status);
        }
        let raw: Vec<_> = devices.iter().map(|d| d.raw).collect();
        let lengths: Vec<_> = binaries.iter().map(|b| b.len()).collect();
        let mut pointers: Vec<_> = binaries.iter().map(|b| b.as_ptr()).collect();
        // SAFETY: all lists have one entry a device.
        let made = unsafe {
            create!(
                self.driver,
                clCreateProgramWithBinary(
                    self.raw,
                    raw.len() as u32,
                    raw.as_ptr(),
                    lengths.as_ptr(),
                    pointers.as_mut_ptr(),
                    status.as_mut_ptr()
                )
            )
        };
        (made.map(|raw| Program::own(self.driver, raw)), status)
    }

    /// `clCreateProgramWithIL`.
    pub fn program_il(&self, il: &[u8]) -> Result<Program> {
        // SAFETY: `il` is live for its length.
        let made = unsafe {
            create!(
                self.driver,
                clCreateProgramWithIL(self.raw, il.as_ptr().cast(), il.len())
            )?
        };
        Ok(Program::own(self.driver, made))
    }

    /// `clCreateProgramWithBuiltInKernels`.
    pub fn program_built_in(&self, devices: &[Device], names: &str) -> Result<Program> {
        let names = CString::new(names).map_err(|_| CL_INVALID_VALUE)?;
        let raw: Vec<_> = devices.iter().map(|d| d.raw).collect();
        // SAFETY: a C string and a list of live devices.
        let made = unsafe {
            create!(
                self.driver,
                clCreateProgramWithBuiltInKernels(
                    self.raw,
                    raw.len() as u32,
                    raw.as_ptr(),
                    names.as_ptr()
                )
            )?
        };
        Ok(Program::own(self.driver, made))
    }

    /// `clLinkProgram`. A linked program may be returned with an error: its log has the reason.
    pub fn link(
        &self,
        devices: &[Device],
        options: &str,
        inputs: &[&Program],
    ) -> (Option<Program>, Code) {
        let Ok(options) = CString::new(options) else {
            return (None, CL_INVALID_LINKER_OPTIONS);
        };
        let Some(link) = self.driver.api().clLinkProgram else {
            return (None, CL_INVALID_OPERATION);
        };
        let (count, list) = raw_devices(devices);
        let inputs: Vec<_> = inputs.iter().map(|p| p.raw()).collect();
        let mut code = CL_SUCCESS;
        // SAFETY: live objects; a null device list if it is empty.
        let made = unsafe {
            link(
                self.raw,
                count,
                list_pointer(&list),
                options.as_ptr(),
                inputs.len() as u32,
                inputs.as_ptr(),
                None,
                std::ptr::null_mut(),
                &mut code,
            )
        };
        let program = (!made.is_null()).then(|| Program::own(self.driver, made));
        (program, code)
    }

    /// `clGetSupportedImageFormats`: eight bytes each.
    pub fn image_formats(&self, flags: u64, kind: u32) -> Result<Vec<u8>> {
        let mut count = 0;
        // SAFETY: queries the number only.
        unsafe {
            call!(
                self.driver,
                clGetSupportedImageFormats(
                    self.raw,
                    flags,
                    kind,
                    0,
                    std::ptr::null_mut(),
                    &mut count
                )
            )?;
        }
        let mut formats = vec![
            cl_image_format {
                image_channel_order: 0,
                image_channel_data_type: 0,
            };
            count.min(65_536) as usize
        ];
        if !formats.is_empty() {
            // SAFETY: the buffer has room for the number passed.
            unsafe {
                call!(
                    self.driver,
                    clGetSupportedImageFormats(
                        self.raw,
                        flags,
                        kind,
                        formats.len() as u32,
                        formats.as_mut_ptr(),
                        std::ptr::null_mut()
                    )
                )?;
            }
        }
        Ok(formats
            .iter()
            .flat_map(|f| [f.image_channel_order, f.image_channel_data_type])
            .flat_map(u32::to_ne_bytes)
            .collect())
    }

    /// `clSVMAlloc`.
    pub fn svm_alloc(&self, flags: u64, len: usize, alignment: u32) -> Result<*mut c_void> {
        let allocate = self.driver.api().clSVMAlloc.ok_or(CL_INVALID_OPERATION)?;
        let _alone = svm_lock();
        // SAFETY: plain values.
        let address = unsafe { allocate(self.raw, flags, len, alignment) };
        if address.is_null() {
            return Err(CL_MEM_OBJECT_ALLOCATION_FAILURE);
        }
        Ok(address)
    }

    /// `clSVMFree`.
    ///
    /// # Safety
    /// `address` is from [`Context::svm_alloc`], not freed yet, and no command uses it.
    pub unsafe fn svm_free(&self, address: *mut c_void) {
        if let Some(free) = self.driver.api().clSVMFree {
            let _alone = svm_lock();
            // SAFETY: the caller's promise.
            unsafe { free(self.raw, address) };
        }
    }
}

/// Serializes allocations of shared virtual memory in this process: NVIDIA's driver fails with -4
/// when several contexts allocate or free at once.
fn svm_lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().expect("no panic under this lock")
}

fn raw_devices(devices: &[Device]) -> (u32, Vec<cl_device_id>) {
    let list: Vec<_> = devices.iter().map(|d| d.raw).collect();
    (list.len() as u32, list)
}

/// OpenCL requires a null pointer for an empty list.
fn list_pointer<T>(list: &[T]) -> *const T {
    if list.is_empty() {
        std::ptr::null()
    } else {
        list.as_ptr()
    }
}

impl Program {
    /// `clBuildProgram`; all devices where the list is empty.
    pub fn build(&self, devices: &[Device], options: &str) -> Result<()> {
        let options = CString::new(options).map_err(|_| CL_INVALID_BUILD_OPTIONS)?;
        let (count, list) = raw_devices(devices);
        // SAFETY: live objects, a C string, no callback.
        unsafe {
            call!(
                self.driver,
                clBuildProgram(
                    self.raw,
                    count,
                    list_pointer(&list),
                    options.as_ptr(),
                    None,
                    std::ptr::null_mut()
                )
            )
        }
    }

    /// `clCompileProgram`.
    pub fn compile(
        &self,
        devices: &[Device],
        options: &str,
        headers: &[(&Program, &str)],
    ) -> Result<()> {
        let options = CString::new(options).map_err(|_| CL_INVALID_COMPILER_OPTIONS)?;
        let (count, list) = raw_devices(devices);
        let programs: Vec<_> = headers.iter().map(|(p, _)| p.raw()).collect();
        let names: std::result::Result<Vec<_>, _> = headers
            .iter()
            .map(|(_, name)| CString::new(*name))
            .collect();
        let names = names.map_err(|_| CL_INVALID_VALUE)?;
        let mut pointers: Vec<_> = names.iter().map(|n| n.as_ptr()).collect();
        let names = if pointers.is_empty() {
            std::ptr::null_mut()
        } else {
            pointers.as_mut_ptr()
        };
        // SAFETY: both header lists have one entry a header, or are null.
        unsafe {
            call!(
                self.driver,
                clCompileProgram(
                    self.raw,
                    count,
                    list_pointer(&list),
                    options.as_ptr(),
                    programs.len() as u32,
                    list_pointer(&programs),
                    names,
                    None,
                    std::ptr::null_mut()
                )
            )
        }
    }

    /// `clSetProgramSpecializationConstant`.
    pub fn specialization_constant(&self, id: u32, value: &[u8]) -> Result<()> {
        // SAFETY: `value` is live for its length.
        unsafe {
            call!(
                self.driver,
                clSetProgramSpecializationConstant(
                    self.raw,
                    id,
                    value.len(),
                    value.as_ptr().cast()
                )
            )
        }
    }

    /// `clGetProgramInfo`, but for `CL_PROGRAM_BINARIES`.
    pub fn info(&self, param: u32) -> Result<Vec<u8>> {
        if param == CL_PROGRAM_BINARIES as u32 {
            return Err(CL_INVALID_VALUE);
        }
        let ask = |param: u32| {
            query(|size, value, needed| {
                // SAFETY: `value` is null or has `size` bytes.
                unsafe {
                    call!(
                        self.driver,
                        clGetProgramInfo(self.raw, param, size, value, needed)
                    )
                }
            })
        };
        // NVIDIA's driver crashes on a query for the names of no kernels.
        if param == CL_PROGRAM_KERNEL_NAMES as u32
            && super::number(&ask(CL_PROGRAM_NUM_KERNELS as u32)?) == 0
        {
            return Ok(vec![0]);
        }
        ask(param)
    }

    /// The binary of each device.
    pub fn binaries(&self) -> Result<Vec<Vec<u8>>> {
        let sizes = self.info(CL_PROGRAM_BINARY_SIZES as u32)?;
        let mut binaries: Vec<Vec<u8>> = sizes
            .chunks_exact(size_of::<usize>())
            .map(|c| vec![0; super::number(c) as usize])
            .collect();
        if binaries.iter().all(Vec::is_empty) {
            // Rusticl ends the process at a query for a binary that does not exist.
            return Ok(binaries);
        }
        let mut pointers: Vec<*mut u8> = binaries.iter_mut().map(|b| b.as_mut_ptr()).collect();
        // SAFETY: one pointer per device, each to the number of bytes that the driver requested.
        unsafe {
            call!(
                self.driver,
                clGetProgramInfo(
                    self.raw,
                    CL_PROGRAM_BINARIES as u32,
                    std::mem::size_of_val(pointers.as_slice()),
                    pointers.as_mut_ptr().cast(),
                    std::ptr::null_mut()
                )
            )?;
        }
        Ok(binaries)
    }

    /// `clGetProgramBuildInfo`.
    pub fn build_info(&self, device: Device, param: u32) -> Result<Vec<u8>> {
        query(|size, value, needed| {
            // SAFETY: `value` is null or has `size` bytes.
            unsafe {
                call!(
                    self.driver,
                    clGetProgramBuildInfo(self.raw, device.raw, param, size, value, needed)
                )
            }
        })
    }

    /// `clCreateKernel`.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let name = CString::new(name).map_err(|_| CL_INVALID_KERNEL_NAME)?;
        // SAFETY: a C string.
        let kernel = unsafe { create!(self.driver, clCreateKernel(self.raw, name.as_ptr()))? };
        Ok(Kernel::own(self.driver, kernel))
    }
}

impl Kernel {
    /// `clGetKernelInfo`.
    pub fn info(&self, param: u32) -> Result<Vec<u8>> {
        query(|size, value, needed| {
            // SAFETY: `value` is null or has `size` bytes.
            unsafe {
                call!(
                    self.driver,
                    clGetKernelInfo(self.raw, param, size, value, needed)
                )
            }
        })
    }

    /// `clGetKernelArgInfo`.
    pub fn arg_info(&self, arg: u32, param: u32) -> Result<Vec<u8>> {
        query(|size, value, needed| {
            // SAFETY: `value` is null or has `size` bytes.
            unsafe {
                call!(
                    self.driver,
                    clGetKernelArgInfo(self.raw, arg, param, size, value, needed)
                )
            }
        })
    }

    /// `clGetKernelWorkGroupInfo`.
    pub fn work_group_info(&self, device: Device, param: u32) -> Result<Vec<u8>> {
        query(|size, value, needed| {
            // SAFETY: `value` is null or has `size` bytes.
            unsafe {
                call!(
                    self.driver,
                    clGetKernelWorkGroupInfo(self.raw, device.raw, param, size, value, needed)
                )
            }
        })
    }

    /// `clGetKernelSubGroupInfo`, at most `len_max` bytes of answer.
    pub fn sub_group_info(
        &self,
        device: Device,
        param: u32,
        input: &[u8],
        len_max: usize,
    ) -> Result<Vec<u8>> {
        let mut value = vec![0u8; len_max];
        let mut got = 0;
        // SAFETY: `input` and `value` are live for the lengths given.
        unsafe {
            call!(
                self.driver,
                clGetKernelSubGroupInfo(
                    self.raw,
                    device.raw,
                    param,
                    input.len(),
                    if input.is_empty() {
                        std::ptr::null()
                    } else {
                        input.as_ptr().cast()
                    },
                    len_max,
                    value.as_mut_ptr().cast(),
                    &mut got
                )
            )?;
        }
        value.truncate(got);
        Ok(value)
    }

    /// `clSetKernelArg` with a value of plain bytes.
    pub fn set_value(&mut self, arg: u32, value: &[u8]) -> Result<()> {
        // SAFETY: `value` is live for its length.
        unsafe { self.set(arg, value.len(), value.as_ptr().cast()) }
    }

    /// `clSetKernelArg` with `len` bytes of local memory.
    pub fn set_local(&mut self, arg: u32, len: usize) -> Result<()> {
        // SAFETY: a null value requests local memory.
        unsafe { self.set(arg, len, std::ptr::null()) }
    }

    /// `clSetKernelArg` with a memory object or null.
    pub fn set_memory(&mut self, arg: u32, memory: Option<&Mem>) -> Result<()> {
        let raw = memory.map_or(std::ptr::null_mut(), Mem::raw);
        // SAFETY: the value is a handle of a live object, or null.
        unsafe { self.set(arg, size_of::<cl_mem>(), (&raw const raw).cast()) }
    }

    /// `clSetKernelArg` with a sampler.
    pub fn set_sampler(&mut self, arg: u32, sampler: &Sampler) -> Result<()> {
        let raw = sampler.raw();
        // SAFETY: the value is a handle of a live object.
        unsafe { self.set(arg, size_of::<cl_sampler>(), (&raw const raw).cast()) }
    }

    /// `clSetKernelArgSVMPointer`.
    pub fn set_svm(&mut self, arg: u32, address: u64) -> Result<()> {
        // SAFETY: the address is only passed on to the kernel.
        unsafe {
            call!(
                self.driver,
                clSetKernelArgSVMPointer(self.raw, arg, address as *const c_void)
            )
        }
    }

    /// `clSetKernelExecInfo` with `CL_KERNEL_EXEC_INFO_SVM_PTRS`.
    pub fn set_svm_indirect(&mut self, addresses: &[u64]) -> Result<()> {
        // SAFETY: a list of pointers, live for its length.
        unsafe {
            call!(
                self.driver,
                clSetKernelExecInfo(
                    self.raw,
                    CL_KERNEL_EXEC_INFO_SVM_PTRS as u32,
                    size_of_val(addresses),
                    addresses.as_ptr().cast()
                )
            )
        }
    }

    /// # Safety
    /// `value` is null or valid for `len` bytes.
    unsafe fn set(&mut self, arg: u32, len: usize, value: *const c_void) -> Result<()> {
        // SAFETY: the caller's promise; `&mut self` keeps other threads off this kernel.
        unsafe { call!(self.driver, clSetKernelArg(self.raw, arg, len, value)) }
    }
}

impl Event {
    /// `CL_EVENT_COMMAND_EXECUTION_STATUS`.
    pub fn status(&self) -> Code {
        let mut status: cl_int = 0;
        // SAFETY: room for one cl_int.
        let queried = unsafe {
            call!(
                self.driver,
                clGetEventInfo(
                    self.raw,
                    CL_EVENT_COMMAND_EXECUTION_STATUS as u32,
                    size_of::<cl_int>(),
                    (&raw mut status).cast(),
                    std::ptr::null_mut()
                )
            )
        };
        queried.map_or_else(|code| code, |()| status)
    }

    /// Blocks until the command is complete or failed; then as [`Event::status`].
    pub fn wait(&self) -> Code {
        // SAFETY: one live event.
        let waited = unsafe { call!(self.driver, clWaitForEvents(1, &self.raw)) };
        match waited {
            Ok(()) => CL_COMPLETE,
            Err(code) => match self.status() {
                status if status < 0 => status,
                _ => code,
            },
        }
    }

    /// Queued, submitted, started, ended: device nanoseconds; zeros if the driver does not report
    /// them.
    pub fn times(&self) -> [u64; 4] {
        let params = [
            CL_PROFILING_COMMAND_QUEUED,
            CL_PROFILING_COMMAND_SUBMIT,
            CL_PROFILING_COMMAND_START,
            CL_PROFILING_COMMAND_END,
        ];
        params.map(|param| {
            let mut ns = 0u64;
            // SAFETY: room for one cl_ulong.
            let queried = unsafe {
                call!(
                    self.driver,
                    clGetEventProfilingInfo(
                        self.raw,
                        param as u32,
                        8,
                        (&raw mut ns).cast(),
                        std::ptr::null_mut()
                    )
                )
            };
            queried.map_or(0, |()| ns)
        })
    }

    /// Calls `then` with the final status, once, on a thread of the driver's.
    pub fn on_complete(&self, then: Box<dyn FnOnce(Code) + Send>) -> Result<()> {
        unsafe extern "C" fn complete(_: cl_event, status: cl_int, user: *mut c_void) {
            // SAFETY: the box made below; the driver calls back once.
            let then = unsafe { Box::from_raw(user.cast::<Box<dyn FnOnce(Code) + Send>>()) };
            then(status);
        }
        let user = Box::into_raw(Box::new(then));
        // SAFETY: `user` stays valid until the one call.
        let set = unsafe {
            call!(
                self.driver,
                clSetEventCallback(self.raw, CL_COMPLETE, Some(complete), user.cast())
            )
        };
        if set.is_err() {
            // SAFETY: the driver refused the callback, so the box has no other owner.
            drop(unsafe { Box::from_raw(user) });
        }
        set
    }
}

impl Mem {
    /// `clCreateSubBuffer`.
    pub fn sub_buffer(&self, flags: u64, origin: usize, size: usize) -> Result<Mem> {
        let region = cl_buffer_region { origin, size };
        // SAFETY: the region outlives the call.
        let made = unsafe {
            create!(
                self.driver,
                clCreateSubBuffer(
                    self.raw,
                    flags,
                    CL_BUFFER_CREATE_TYPE_REGION as u32,
                    (&raw const region).cast()
                )
            )?
        };
        Ok(Mem::own(self.driver, made))
    }

    /// `clGetMemObjectInfo`.
    pub fn info(&self, param: u32) -> Result<Vec<u8>> {
        query(|size, value, needed| {
            // SAFETY: `value` is null or has `size` bytes.
            unsafe {
                call!(
                    self.driver,
                    clGetMemObjectInfo(self.raw, param, size, value, needed)
                )
            }
        })
    }

    /// `clGetImageInfo`.
    pub fn image_info(&self, param: u32) -> Result<Vec<u8>> {
        query(|size, value, needed| {
            // SAFETY: `value` is null or has `size` bytes.
            unsafe {
                call!(
                    self.driver,
                    clGetImageInfo(self.raw, param, size, value, needed)
                )
            }
        })
    }

    /// Calls `then` when the driver has destroyed the object, on whatever thread.
    pub fn on_destroyed(&self, then: Box<dyn FnOnce() + Send>) -> Result<()> {
        unsafe extern "C" fn destroyed(_: cl_mem, user: *mut c_void) {
            // SAFETY: the box made below; the driver calls back once.
            let then = unsafe { Box::from_raw(user.cast::<Box<dyn FnOnce() + Send>>()) };
            then();
        }
        let user = Box::into_raw(Box::new(then));
        // SAFETY: `user` stays valid until the one call.
        let set = unsafe {
            call!(
                self.driver,
                clSetMemObjectDestructorCallback(self.raw, Some(destroyed), user.cast())
            )
        };
        if set.is_err() {
            // SAFETY: the driver refused the callback, so the box has no other owner.
            drop(unsafe { Box::from_raw(user) });
        }
        set
    }
}
