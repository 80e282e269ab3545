//! Kernels.

use super::{Kernel, Mem, Sampler};
use crate::driver::{call, query, Device, Result};
use baltra_opencl::*;
use std::ffi::c_void;

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
