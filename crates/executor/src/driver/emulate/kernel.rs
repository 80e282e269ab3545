//! Kernels and their arguments.

use super::block::{local_bytes, Arg};
use super::device::WORK_GROUP_ITEMS;
use super::program::{Executable, Program};
use crate::driver::builtin::objects::{made, release};
use crate::driver::builtin::{give_or_refuse, object, zero_terminated};
use baltra_board::accelerator::manifest::{self, Address, Argument};
use baltra_opencl::*;
use baltra_ring::Locked;
use std::ffi::{c_char, c_void, CStr};
use std::sync::{Arc, Mutex};

/// A parameter of `clGetKernelArgInfo` that only these devices have: the bytes of a packet, if the
/// argument is a pipe that the kernel uses.
pub const PACKET_BYTES: i32 = 0x424C_0001;

/// A kernel with its arguments.
pub struct Kernel {
    /// Its program's circuits.
    pub executable: Arc<Executable>,
    /// Its name, which the executable has.
    pub name: String,
    /// In the order of the source.
    pub args: Mutex<Vec<Arg>>,
}

impl Kernel {
    /// Its description.
    pub fn about(&self) -> &manifest::Kernel {
        let about = self.executable.kernel(&self.name);
        about.expect("a kernel is created by a name that its executable has")
    }

    /// The program's kernel of this name.
    pub fn new(program: &Program, name: &CStr) -> Result<Kernel, cl_int> {
        let name = name.to_string_lossy().into_owned();
        let executable = program.executable().ok_or(CL_INVALID_PROGRAM_EXECUTABLE)?;
        let about = executable.kernel(&name).ok_or(CL_INVALID_KERNEL_NAME)?;
        let args = Mutex::new(vec![Arg::Nothing; about.arguments.len()]);
        Ok(Kernel {
            executable,
            name,
            args,
        })
    }

    /// Sets an argument; `value` is null or has `size` bytes.
    pub fn set(&self, at: usize, size: usize, value: *const c_void) -> Result<(), cl_int> {
        let argument = self.about().arguments.get(at).ok_or(CL_INVALID_ARG_INDEX)?;
        let local_max = self.about().local_argument_bytes_max;
        let arg = match argument.address {
            Address::Local if !value.is_null() => return Err(CL_INVALID_ARG_VALUE),
            Address::Local if size == 0 => return Err(CL_INVALID_ARG_SIZE),
            Address::Local if size as u64 > local_max => return Err(CL_INVALID_ARG_SIZE),
            Address::Local => Arg::Local(size as u64),
            Address::Global | Address::Constant if size != size_of::<cl_mem>() => {
                return Err(CL_INVALID_ARG_SIZE)
            }
            // "If the argument is a memory object, … arg_value can be NULL".
            Address::Global | Address::Constant if value.is_null() => Arg::Memory(0),
            Address::Global | Address::Constant => {
                // SAFETY: `value` has `size` bytes, those of a handle.
                Arg::Memory(unsafe { value.cast::<usize>().read_unaligned() })
            }
            Address::Private if size as u64 != argument.bytes => return Err(CL_INVALID_ARG_SIZE),
            Address::Private if value.is_null() => return Err(CL_INVALID_ARG_VALUE),
            Address::Private => {
                // SAFETY: `value` has `size` bytes.
                let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size) };
                Arg::Value(bytes.to_vec())
            }
        };
        self.args.locked()[at] = arg;
        Ok(())
    }
}

/// Adds this module's functions to a dispatch table.
pub fn fill(api: &mut cl_icd_dispatch) {
    api.clCreateKernel = Some(create_kernel);
    api.clSetKernelArg = Some(set_kernel_arg);
    api.clGetKernelInfo = Some(kernel_info);
    api.clGetKernelArgInfo = Some(kernel_arg_info);
    api.clGetKernelWorkGroupInfo = Some(work_group_info);
    api.clReleaseKernel = Some(release::<Kernel, _>);
}

unsafe extern "C" fn create_kernel(
    program: cl_program,
    name: *const c_char,
    code: *mut cl_int,
) -> cl_kernel {
    // SAFETY: a live program and a C string.
    unsafe {
        let result = Kernel::new(object(program), CStr::from_ptr(name));
        made(result, code)
    }
}

unsafe extern "C" fn set_kernel_arg(
    kernel: cl_kernel,
    at: cl_uint,
    size: usize,
    value: *const c_void,
) -> cl_int {
    // SAFETY: a live kernel.
    let kernel: &Kernel = unsafe { object(kernel) };
    kernel
        .set(at as usize, size, value)
        .err()
        .unwrap_or(CL_SUCCESS)
}

unsafe extern "C" fn kernel_info(
    kernel: cl_kernel,
    param: cl_kernel_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: a live kernel; the rest is OpenCL's promise.
    unsafe { info(object(kernel), param, size, value, needed) }
}

/// `clGetKernelInfo`.
///
/// # Safety
/// As [`give_or_refuse`].
pub unsafe fn info(
    kernel: &Kernel,
    param: cl_kernel_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: the caller's promise.
    unsafe {
        let about = kernel.about();
        let count = about.arguments.len() as u32;
        let answer = match param as i32 {
            CL_KERNEL_NUM_ARGS => Some(count.to_ne_bytes().to_vec()),
            CL_KERNEL_FUNCTION_NAME => Some(zero_terminated(&about.name)),
            CL_KERNEL_ATTRIBUTES => Some(zero_terminated(&about.attributes)),
            _ => None,
        };
        give_or_refuse(answer, size, value, needed)
    }
}

unsafe extern "C" fn kernel_arg_info(
    kernel: cl_kernel,
    at: cl_uint,
    param: cl_kernel_arg_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: a live kernel; the rest is OpenCL's promise.
    unsafe { arg_info(object(kernel), at, param, size, value, needed) }
}

/// `clGetKernelArgInfo`.
///
/// # Safety
/// As [`give_or_refuse`].
pub unsafe fn arg_info(
    kernel: &Kernel,
    at: cl_uint,
    param: cl_kernel_arg_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(argument) = kernel.about().arguments.get(at as usize) else {
            return CL_INVALID_ARG_INDEX;
        };
        let number = |n: i32| Some((n as u32).to_ne_bytes().to_vec());
        let answer = match param as i32 {
            CL_KERNEL_ARG_ADDRESS_QUALIFIER => number(match argument.address {
                Address::Global => CL_KERNEL_ARG_ADDRESS_GLOBAL,
                Address::Constant => CL_KERNEL_ARG_ADDRESS_CONSTANT,
                Address::Local => CL_KERNEL_ARG_ADDRESS_LOCAL,
                Address::Private => CL_KERNEL_ARG_ADDRESS_PRIVATE,
            }),
            CL_KERNEL_ARG_ACCESS_QUALIFIER => number(match argument.access.as_str() {
                "read_only" => CL_KERNEL_ARG_ACCESS_READ_ONLY,
                "write_only" => CL_KERNEL_ARG_ACCESS_WRITE_ONLY,
                _ => CL_KERNEL_ARG_ACCESS_NONE,
            }),
            PACKET_BYTES => Some((argument.packet_bytes as u32).to_ne_bytes().to_vec()),
            CL_KERNEL_ARG_TYPE_QUALIFIER => Some(qualifiers(argument).to_ne_bytes().to_vec()),
            CL_KERNEL_ARG_TYPE_NAME => Some(zero_terminated(&argument.type_name)),
            CL_KERNEL_ARG_NAME => Some(zero_terminated(&argument.name)),
            _ => None,
        };
        give_or_refuse(answer, size, value, needed)
    }
}

fn qualifiers(argument: &Argument) -> u64 {
    let words = argument.qualifiers.split_whitespace();
    let flags = words.map(|word| match word {
        "const" => CL_KERNEL_ARG_TYPE_CONST,
        "restrict" => CL_KERNEL_ARG_TYPE_RESTRICT,
        "volatile" => CL_KERNEL_ARG_TYPE_VOLATILE,
        "pipe" => CL_KERNEL_ARG_TYPE_PIPE,
        _ => CL_KERNEL_ARG_TYPE_NONE,
    });
    flags.fold(0, |all, flag| all | flag as u64)
}

unsafe extern "C" fn work_group_info(
    kernel: cl_kernel,
    _: cl_device_id,
    param: cl_kernel_work_group_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: a live kernel; the rest is OpenCL's promise.
    unsafe { group_info(object(kernel), param, size, value, needed) }
}

/// `clGetKernelWorkGroupInfo`.
///
/// # Safety
/// As [`give_or_refuse`].
pub unsafe fn group_info(
    kernel: &Kernel,
    param: cl_kernel_work_group_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: the caller's promise.
    unsafe {
        let about = kernel.about();
        let long = |value: u64| Some(value.to_ne_bytes().to_vec());
        let answer = match param as i32 {
            CL_KERNEL_WORK_GROUP_SIZE => {
                // A kernel without barriers has no limit of its own.
                long(u64::from(about.work_group_size_max).min(WORK_GROUP_ITEMS as u64))
            }
            CL_KERNEL_COMPILE_WORK_GROUP_SIZE => {
                let sides = about.required_work_group_size.unwrap_or_default();
                let sides = sides.iter().map(|side| *side as usize);
                Some(sides.flat_map(usize::to_ne_bytes).collect())
            }
            CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE => long(1),
            CL_KERNEL_LOCAL_MEM_SIZE => {
                let args = kernel.args.locked();
                long(about.local_bytes + local_bytes(&args))
            }
            CL_KERNEL_PRIVATE_MEM_SIZE => long(about.private_bytes),
            _ => None,
        };
        give_or_refuse(answer, size, value, needed)
    }
}
