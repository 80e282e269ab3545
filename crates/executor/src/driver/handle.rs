//! Owned driver objects: each is released when dropped, once.

mod context;
mod event;
mod kernel;
mod mem;
mod program;

use super::{call, create, Device, Driver, Result};
use baltra_opencl::*;

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
    /// Whether its device is the executor's own.
    pub fn is_own(&self) -> bool {
        self.driver.is_own
    }

    pub(super) fn driver(&self) -> &'static Driver {
        self.driver
    }

    /// Another in-order queue of the same context and device, with times of its events.
    pub fn sibling(&self) -> Result<Queue> {
        let context: cl_context = self.handle(CL_QUEUE_CONTEXT)?;
        let device: cl_device_id = self.handle(CL_QUEUE_DEVICE)?;
        let properties = CL_QUEUE_PROFILING_ENABLE as u64;
        // SAFETY: both are live, because this queue retains them.
        let queue = unsafe {
            create!(
                self.driver,
                clCreateCommandQueue(context, device, properties)
            )?
        };
        Ok(Queue::own(self.driver, queue))
    }

    fn handle<T>(&self, param: i32) -> Result<*mut T> {
        let mut handle: *mut T = std::ptr::null_mut();
        // SAFETY: the place has the size of a handle.
        unsafe {
            call!(
                self.driver,
                clGetCommandQueueInfo(
                    self.raw,
                    param as u32,
                    size_of_val(&handle),
                    (&raw mut handle).cast(),
                    std::ptr::null_mut()
                )
            )?;
        }
        Ok(handle)
    }
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
