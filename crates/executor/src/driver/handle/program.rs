//! Programs.

use super::{list_pointer, raw_devices, Kernel, Program};
use crate::driver::{call, create, query, Device, Result};
use baltra_opencl::*;
use std::ffi::CString;

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
            && crate::driver::number(&ask(CL_PROGRAM_NUM_KERNELS as u32)?) == 0
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
            .map(|c| vec![0; crate::driver::number(c) as usize])
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
