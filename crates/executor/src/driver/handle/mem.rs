//! Memory objects.

use super::Mem;
use crate::driver::{call, create, query, Result};
use baltra_opencl::*;
use std::ffi::c_void;

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
