//! `cl…Kernel…`, except launches, which are in [`super::launch`], and queries, which are in
//! [`super::kernel_info`].

use super::Caller;
use crate::core::kernel::{ArgKind, Kernel};
use crate::core::memory::Memory;
use crate::core::object::Object;
use crate::core::process;
use crate::core::program::Program;
use crate::core::sampler::Sampler;
use crate::core::svm;
use baltra_opencl::*;
use baltra_wire::Arg;
use std::ffi::{c_char, c_void};

/// `clCreateKernel`
#[no_mangle]
pub unsafe extern "C" fn clCreateKernel(
    program: cl_program,
    kernel_name: *const c_char,
    errcode_ret: *mut cl_int,
) -> cl_kernel {
    handle!(errcode_ret, |caller| {
        let program = caller.share::<Program>(program)?;
        // CL_INVALID_VALUE if kernel_name is NULL.
        let name = caller.text(kernel_name).ok_or(CL_INVALID_VALUE)?;
        // CL_INVALID_PROGRAM_EXECUTABLE if there is no successfully built executable for
        // program.
        program.kernels().ok_or(CL_INVALID_PROGRAM_EXECUTABLE)?;
        let name = name.to_str().map_err(|_| CL_INVALID_KERNEL_NAME)?;
        Ok(Kernel::new(&program, name)?.give())
    })
}

/// `clCreateKernelsInProgram`
#[no_mangle]
pub unsafe extern "C" fn clCreateKernelsInProgram(
    program: cl_program,
    num_kernels: cl_uint,
    kernels: *mut cl_kernel,
    num_kernels_ret: *mut cl_uint,
) -> cl_int {
    code!(|caller| {
        let program = caller.share::<Program>(program)?;
        // CL_INVALID_PROGRAM_EXECUTABLE if there is no successfully built executable for any
        // device in program.
        let found = program.kernels().ok_or(CL_INVALID_PROGRAM_EXECUTABLE)?;
        // CL_INVALID_VALUE if kernels is not NULL and num_kernels is less than the number of
        // kernels in program.
        if !kernels.is_null() && (num_kernels as usize) < found.len() {
            return Err(CL_INVALID_VALUE);
        }
        if !kernels.is_null() {
            let made = found
                .iter()
                .map(|k| Kernel::new(&program, &k.name))
                .collect::<Result<Vec<_>, _>>()?;
            let handles: Vec<_> = made.iter().map(Object::give).collect();
            caller.fill(kernels, handles.len(), &handles);
        }
        caller.set(num_kernels_ret, found.len() as cl_uint);
        Ok(())
    })
}

/// `clCloneKernel`
#[no_mangle]
pub unsafe extern "C" fn clCloneKernel(
    source_kernel: cl_kernel,
    errcode_ret: *mut cl_int,
) -> cl_kernel {
    handle!(errcode_ret, |caller| {
        let source = caller.get::<Kernel>(source_kernel)?;
        Ok(source.duplicate()?.give())
    })
}

/// `clRetainKernel`
#[no_mangle]
pub unsafe extern "C" fn clRetainKernel(kernel: cl_kernel) -> cl_int {
    code!(|caller| caller.retain::<Kernel>(kernel))
}

/// `clReleaseKernel`
#[no_mangle]
pub unsafe extern "C" fn clReleaseKernel(kernel: cl_kernel) -> cl_int {
    code!(|caller| caller.release::<Kernel>(kernel))
}

/// `clSetKernelArg`
#[no_mangle]
pub unsafe extern "C" fn clSetKernelArg(
    kernel: cl_kernel,
    arg_index: cl_uint,
    arg_size: usize,
    arg_value: *const c_void,
) -> cl_int {
    code!(|caller| {
        let kernel = caller.get::<Kernel>(kernel)?;
        let index = arg_index as usize;
        // CL_INVALID_ARG_INDEX if arg_index is not a valid argument index.
        let kind = *kernel.kinds.get(index).ok_or(CL_INVALID_ARG_INDEX)?;
        match kind {
            ArgKind::Buffer => {
                check_handle_size(arg_size)?;
                match handle_at::<_cl_mem>(caller, arg_value) {
                    // If the argument is a buffer object, the arg_value pointer can be NULL or
                    // point to a NULL value in which case a NULL value will be used.
                    None => kernel.set_memory(index, None),
                    Some(raw) => {
                        let memory = memory(caller, kernel, raw)?;
                        // Images and pipes are not pointers.
                        if memory.is_image() || memory.pipe.is_some() {
                            return Err(CL_INVALID_ARG_VALUE);
                        }
                        kernel.set_memory(index, Some(memory))
                    }
                }
            }
            ArgKind::Pipe(packet_bytes) => {
                check_handle_size(arg_size)?;
                let raw = handle_at::<_cl_mem>(caller, arg_value);
                let raw = raw.ok_or(absent(arg_value, CL_INVALID_MEM_OBJECT))?;
                let memory = memory(caller, kernel, raw)?;
                let shape = memory.pipe.ok_or(CL_INVALID_MEM_OBJECT)?;
                if ![0, shape.packet_bytes].contains(&packet_bytes) {
                    return Err(CL_INVALID_ARG_VALUE);
                }
                kernel.set_memory(index, Some(memory))
            }
            ArgKind::Image(access) => {
                check_handle_size(arg_size)?;
                let raw = handle_at::<_cl_mem>(caller, arg_value);
                let raw = raw.ok_or(absent(arg_value, CL_INVALID_MEM_OBJECT))?;
                let memory = memory(caller, kernel, raw)?;
                if !memory.is_image() {
                    return Err(CL_INVALID_ARG_VALUE);
                }
                check_access(memory, access)?;
                kernel.set_memory(index, Some(memory))
            }
            ArgKind::Sampler => {
                // CL_INVALID_ARG_SIZE if … the argument is a sampler object and arg_size !=
                // sizeof(cl_sampler).
                check_handle_size(arg_size)?;
                let raw = handle_at::<_cl_sampler>(caller, arg_value);
                let raw = raw.ok_or(absent(arg_value, CL_INVALID_SAMPLER))?;
                // CL_INVALID_SAMPLER for an argument declared to be of type sampler_t when the
                // specified arg_value is not a valid sampler object.
                kernel.set_sampler(index, caller.get::<Sampler>(raw)?)
            }
            ArgKind::Local => {
                // CL_INVALID_ARG_VALUE if arg_value specified is … not NULL for an argument
                // that is declared with the local qualifier.
                if !arg_value.is_null() {
                    return Err(CL_INVALID_ARG_VALUE);
                }
                // CL_INVALID_ARG_SIZE if … arg_size is zero and the argument is declared with
                // the local qualifier.
                if arg_size == 0 {
                    return Err(CL_INVALID_ARG_SIZE);
                }
                kernel.set(index, &Arg::Local(arg_size as u64));
                Ok(())
            }
            ArgKind::Value(size) => {
                // CL_INVALID_ARG_VALUE if arg_value specified is NULL for an argument that is
                // not declared with the local qualifier.
                if arg_value.is_null() {
                    return Err(CL_INVALID_ARG_VALUE);
                }
                // CL_INVALID_ARG_SIZE if arg_size does not match the size of the data type for
                // an argument that is not a memory object.
                if size != 0 && size != arg_size {
                    return Err(CL_INVALID_ARG_SIZE);
                }
                set_value(caller, kernel, index, arg_size, arg_value)
            }
            ArgKind::Unknown => set_unknown(caller, kernel, index, arg_size, arg_value),
        }
    })
}

/// Sets an argument that the driver does not describe: a handle of a live object is taken as that
/// object, a missing value as local memory, and everything else as a value.
fn set_unknown(
    caller: Caller<'_>,
    kernel: &Kernel,
    index: usize,
    size: usize,
    value: *const c_void,
) -> Result<(), i32> {
    if size == 0 {
        return Err(CL_INVALID_ARG_SIZE);
    }
    if value.is_null() {
        kernel.set(index, &Arg::Local(size as u64));
        return Ok(());
    }
    if size == size_of::<cl_mem>() {
        match handle_at::<_cl_mem>(caller, value) {
            Some(raw) if process::current().memory.has(raw as usize) => {
                let memory = memory(caller, kernel, raw)?;
                return kernel.set_memory(index, Some(memory));
            }
            Some(raw) if process::current().samplers.has(raw as usize) => {
                return kernel.set_sampler(index, caller.get::<Sampler>(raw.cast())?);
            }
            _ => {}
        }
    }
    set_value(caller, kernel, index, size, value)
}

fn set_value(
    caller: Caller<'_>,
    kernel: &Kernel,
    index: usize,
    size: usize,
    value: *const c_void,
) -> Result<(), i32> {
    // No argument is larger than all of them may be together.
    if size == 0 || size > kernel.parameter_bytes_max() {
        return Err(CL_INVALID_ARG_SIZE);
    }
    let bytes = caller.slice(size, value.cast::<u8>(), CL_INVALID_ARG_VALUE)?;
    kernel.set(index, &Arg::Value(bytes));
    Ok(())
}

fn check_handle_size(size: usize) -> Result<(), i32> {
    // CL_INVALID_ARG_SIZE if … the argument is a memory object and arg_size != sizeof(cl_mem).
    if size == size_of::<cl_mem>() {
        Ok(())
    } else {
        Err(CL_INVALID_ARG_SIZE)
    }
}

/// The handle that an argument's value points to; `None` where either is null.
fn handle_at<T>(caller: Caller<'_>, value: *const c_void) -> Option<*mut T> {
    let handle = caller.value(value.cast::<*mut T>())?;
    (!handle.is_null()).then_some(handle)
}

/// The error for a missing image or sampler: either the value is missing, or it points to an
/// invalid handle.
fn absent(value: *const c_void, invalid: i32) -> i32 {
    if value.is_null() {
        CL_INVALID_ARG_VALUE
    } else {
        invalid
    }
}

/// The memory object of an argument.
fn memory<'a>(caller: Caller<'a>, kernel: &Kernel, raw: cl_mem) -> Result<&'a Object<Memory>, i32> {
    // CL_INVALID_MEM_OBJECT for an argument declared to be a memory object when the specified
    // arg_value is not a valid memory object.
    let memory = caller.get::<Memory>(raw)?;
    if !std::ptr::eq(&*memory.context, &*kernel.program.context) {
        return Err(CL_INVALID_MEM_OBJECT);
    }
    Ok(memory)
}

fn check_access(memory: &Memory, access: u32) -> Result<(), i32> {
    // CL_INVALID_ARG_VALUE if the argument is an image declared with the read_only qualifier and
    // arg_value refers to an image object created with cl_mem_flags of CL_MEM_WRITE_ONLY, or if
    // the image argument is declared with the write_only qualifier and arg_value refers to an
    // image object created with cl_mem_flags of CL_MEM_READ_ONLY.
    let refused = match access as i32 {
        CL_KERNEL_ARG_ACCESS_READ_ONLY => CL_MEM_WRITE_ONLY,
        CL_KERNEL_ARG_ACCESS_WRITE_ONLY => CL_MEM_READ_ONLY,
        _ => return Ok(()),
    };
    match memory.flags & refused as u64 {
        0 => Ok(()),
        _ => Err(CL_INVALID_ARG_VALUE),
    }
}

/// `clSetKernelArgSVMPointer`
#[no_mangle]
pub unsafe extern "C" fn clSetKernelArgSVMPointer(
    kernel: cl_kernel,
    arg_index: cl_uint,
    arg_value: *const c_void,
) -> cl_int {
    code!(|caller| {
        let kernel = caller.get::<Kernel>(kernel)?;
        check_svm(kernel)?;
        let index = arg_index as usize;
        // CL_INVALID_ARG_INDEX if arg_index is not a valid argument index.
        let kind = *kernel.kinds.get(index).ok_or(CL_INVALID_ARG_INDEX)?;
        // CL_INVALID_ARG_VALUE if arg_value specified is not a valid value: the argument is a
        // pointer into global or constant memory, and the address one of the context's.
        if !matches!(kind, ArgKind::Buffer | ArgKind::Unknown) {
            return Err(CL_INVALID_ARG_VALUE);
        }
        let address = arg_value as usize;
        if address != 0 && !svm::has(&kernel.program.context, address) {
            return Err(CL_INVALID_ARG_VALUE);
        }
        kernel.set(index, &Arg::Svm(address as u64));
        Ok(())
    })
}

/// `clSetKernelExecInfo`
#[no_mangle]
pub unsafe extern "C" fn clSetKernelExecInfo(
    kernel: cl_kernel,
    param_name: cl_kernel_exec_info,
    param_value_size: usize,
    param_value: *const c_void,
) -> cl_int {
    code!(|caller| {
        let kernel = caller.get::<Kernel>(kernel)?;
        check_svm(kernel)?;
        // "param_value_size … can be 0 and param_value NULL" unsets the pointers set before.
        let unsets = param_value.is_null() && param_value_size == 0;
        if unsets && param_name as i32 == CL_KERNEL_EXEC_INFO_SVM_PTRS {
            kernel.set_svm_indirect(&[]);
            return Ok(());
        }
        // CL_INVALID_VALUE if param_name is not valid, if param_value is NULL or if the size
        // specified by param_value_size is not valid.
        if param_value.is_null() || param_value_size == 0 {
            return Err(CL_INVALID_VALUE);
        }
        match param_name as i32 {
            CL_KERNEL_EXEC_INFO_SVM_PTRS => {
                if !param_value_size.is_multiple_of(size_of::<usize>()) {
                    return Err(CL_INVALID_VALUE);
                }
                let count = param_value_size / size_of::<usize>();
                let addresses = caller.slice(count, param_value.cast(), CL_INVALID_VALUE)?;
                kernel.set_svm_indirect(addresses);
                Ok(())
            }
            CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM => {
                if param_value_size != size_of::<cl_bool>() {
                    return Err(CL_INVALID_VALUE);
                }
                // CL_INVALID_OPERATION if param_name is
                // CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM and param_value is CL_TRUE but no
                // devices in context associated with kernel support fine-grain system SVM.
                match caller.value(param_value.cast::<cl_bool>()) {
                    Some(0) => Ok(()),
                    _ => Err(CL_INVALID_OPERATION),
                }
            }
            _ => Err(CL_INVALID_VALUE),
        }
    })
}

fn check_svm(kernel: &Kernel) -> Result<(), i32> {
    // CL_INVALID_OPERATION if no devices in the context associated with kernel support SVM.
    let devices = &kernel.program.context.devices;
    if devices.iter().any(|d| d.limits.svm != 0) {
        Ok(())
    } else {
        Err(CL_INVALID_OPERATION)
    }
}
