//! Contexts, and the objects that they create.

use super::{list_pointer, raw_devices, Context, Mem, Program, Queue, Sampler};
use crate::driver::{call, create, Code, Device, Result};
use baltra_opencl::*;
use baltra_ring::Locked;
use std::ffi::{c_char, c_void, CString};
use std::sync::{Mutex, MutexGuard};

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

    /// `clCreatePipe`.
    pub fn pipe(&self, packet_bytes: u32, packets: u32) -> Result<Mem> {
        // SAFETY: the context is live; a pipe has no properties.
        let mem = unsafe {
            create!(
                self.driver,
                clCreatePipe(self.raw, 0, packet_bytes, packets, std::ptr::null())
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
    LOCK.locked()
}
