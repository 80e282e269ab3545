//! Queries about kernels.

use crate::core::device::Device;
use crate::core::kernel::{Kernel, Replica};
use crate::core::object::{Object, Ref};
use crate::core::pool::combine_kernel;
use baltra_opencl::*;
use baltra_wire::{Query, Reply, Request};
use std::ffi::c_void;

/// `clGetKernelInfo`
#[no_mangle]
pub unsafe extern "C" fn clGetKernelInfo(
    kernel: cl_kernel,
    param_name: cl_kernel_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let kernel = caller.get::<Kernel>(kernel)?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        match param_name as i32 {
            CL_KERNEL_FUNCTION_NAME => answer.text(&kernel.description.name),
            CL_KERNEL_NUM_ARGS => answer.value(kernel.kinds.len() as u32),
            CL_KERNEL_REFERENCE_COUNT => answer.value(kernel.references()),
            CL_KERNEL_CONTEXT => answer.value(kernel.program.context.handle()),
            CL_KERNEL_PROGRAM => answer.value(kernel.program.handle()),
            CL_KERNEL_ATTRIBUTES => answer.text(&kernel.description.attributes),
            // CL_INVALID_VALUE if param_name is not valid.
            _ => Err(CL_INVALID_VALUE),
        }
    })
}

/// `clGetKernelArgInfo`
#[no_mangle]
pub unsafe extern "C" fn clGetKernelArgInfo(
    kernel: cl_kernel,
    arg_index: cl_uint,
    param_name: cl_kernel_arg_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let kernel = caller.get::<Kernel>(kernel)?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        let description = &kernel.description;
        let arg = description.args.get(arg_index as usize);
        let known = arg.filter(|_| description.arg_info);
        let replica = kernel.first();
        let arg = match known {
            Some(arg) => arg,
            // For programs from binaries, drivers have a part of it, each with its own errors.
            None if replica.client.looks_into_binaries() => {
                let query = Query::KernelArg {
                    kernel: replica.id,
                    index: arg_index,
                    param: param_name,
                };
                return answer.bytes(&call(replica, query)?);
            }
            // CL_INVALID_ARG_INDEX if arg_index is not a valid argument index.
            None if arg.is_none() => return Err(CL_INVALID_ARG_INDEX),
            // CL_KERNEL_ARG_INFO_NOT_AVAILABLE if the argument information is not available for
            // kernel.
            None => return Err(CL_KERNEL_ARG_INFO_NOT_AVAILABLE),
        };
        match param_name as i32 {
            CL_KERNEL_ARG_ADDRESS_QUALIFIER => answer.value(arg.address),
            CL_KERNEL_ARG_ACCESS_QUALIFIER => answer.value(arg.access),
            CL_KERNEL_ARG_TYPE_QUALIFIER => answer.value(arg.qualifier),
            CL_KERNEL_ARG_TYPE_NAME => answer.text(&arg.type_name),
            CL_KERNEL_ARG_NAME => answer.text(&arg.name),
            // CL_INVALID_VALUE if param_name is not valid.
            _ => Err(CL_INVALID_VALUE),
        }
    })
}

/// `clGetKernelWorkGroupInfo`
#[no_mangle]
pub unsafe extern "C" fn clGetKernelWorkGroupInfo(
    kernel: cl_kernel,
    device: cl_device_id,
    param_name: cl_kernel_work_group_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let kernel = caller.get::<Kernel>(kernel)?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        let (device, replicas) = on_device(kernel, device)?;
        match param_name as i32 {
            // CL_INVALID_VALUE if param_name is CL_KERNEL_GLOBAL_WORK_SIZE and device is not a
            // custom device or kernel is not a built-in kernel.
            CL_KERNEL_GLOBAL_WORK_SIZE => {
                if device.number(CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CUSTOM as u64 == 0 {
                    return Err(CL_INVALID_VALUE);
                }
            }
            // "… and pointer arguments declared with the local qualifier": those are set here.
            CL_KERNEL_LOCAL_MEM_SIZE => {
                let bytes = work_group(device, &replicas, param_name)?;
                let own = <[u8; 8]>::try_from(&bytes[..]).map_or(0, u64::from_ne_bytes);
                return answer.value(own + kernel.args().local_bytes());
            }
            CL_KERNEL_WORK_GROUP_SIZE
            | CL_KERNEL_COMPILE_WORK_GROUP_SIZE
            | CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE
            | CL_KERNEL_PRIVATE_MEM_SIZE => {}
            // CL_INVALID_VALUE if param_name is not valid. (A vendor's own are the driver's.)
            _ => return answer.bytes(&query(device, replicas[0], param_name)?),
        }
        answer.bytes(&work_group(device, &replicas, param_name)?)
    })
}

/// `clGetKernelSubGroupInfo`
#[no_mangle]
pub unsafe extern "C" fn clGetKernelSubGroupInfo(
    kernel: cl_kernel,
    device: cl_device_id,
    param_name: cl_kernel_sub_group_info,
    input_value_size: usize,
    input_value: *const c_void,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let kernel = caller.get::<Kernel>(kernel)?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        let (device, replicas) = on_device(kernel, device)?;
        let replica = replicas[0];
        // CL_INVALID_OPERATION if device does not support subgroups.
        let groups = device.number(CL_DEVICE_MAX_NUM_SUB_GROUPS);
        if groups == 0 && device.limits.version < (2, 1) {
            return Err(CL_INVALID_OPERATION);
        }
        let words = match param_name as i32 {
            CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE
            | CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE
            | CL_KERNEL_MAX_NUM_SUB_GROUPS
            | CL_KERNEL_COMPILE_NUM_SUB_GROUPS => 1,
            CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT => {
                // At most three, limited by the caller's buffer.
                if param_value.is_null() {
                    3
                } else {
                    (param_value_size / size_of::<usize>()).clamp(1, 3)
                }
            }
            // CL_INVALID_VALUE if param_name is not valid.
            _ => return Err(CL_INVALID_VALUE),
        };
        let input = caller.slice(input_value_size, input_value.cast::<u8>(), CL_INVALID_VALUE)?;
        let reply = call(
            replica,
            Query::KernelSubGroup {
                kernel: replica.id,
                device: device.id,
                param: param_name,
                input,
                len_max: (words * size_of::<usize>()) as u32,
            },
        )?;
        answer.bytes(&reply)
    })
}

/// The `KHR` name of [`clGetKernelSubGroupInfo`].
#[no_mangle]
pub unsafe extern "C" fn clGetKernelSubGroupInfoKHR(
    kernel: cl_kernel,
    device: cl_device_id,
    param_name: cl_kernel_sub_group_info,
    input_value_size: usize,
    input_value: *const c_void,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    // SAFETY: the caller's promise is the same.
    unsafe {
        clGetKernelSubGroupInfo(
            kernel,
            device,
            param_name,
            input_value_size,
            input_value,
            param_value_size,
            param_value,
            param_value_size_ret,
        )
    }
}

/// The device that is meant, and the kernel in its session; a pool has several.
fn on_device(
    kernel: &Object<Kernel>,
    device: cl_device_id,
) -> Result<(&Ref<Device>, Vec<&Replica>), i32> {
    // CL_INVALID_DEVICE if device is not in the list of devices associated with kernel or if
    // device is NULL but there is more than one device associated with kernel.
    let devices = &kernel.program.devices;
    let device = match (device.is_null(), &devices[..]) {
        (true, [only]) => only,
        (true, _) => return Err(CL_INVALID_DEVICE),
        (false, _) => devices
            .iter()
            .find(|d| d.handle() == device)
            .ok_or(CL_INVALID_DEVICE)?,
    };
    let context = &kernel.program.context;
    let members = context.members_of(device).filter(|m| !context.is_gone(*m));
    let replicas: Vec<&Replica> = members.filter_map(|m| Some(kernel.replica(m)?.1)).collect();
    if replicas.is_empty() {
        return Err(CL_INVALID_DEVICE);
    }
    Ok((device, replicas))
}

/// The value that came with the build or, without one, the driver's answer.
fn work_group(device: &Device, replicas: &[&Replica], param: u32) -> Result<Vec<u8>, i32> {
    let one = |replica: &&Replica| match replica.work_group(param) {
        Some(bytes) => Ok(bytes.to_vec()),
        None => query(device, replica, param),
    };
    let all = replicas.iter().map(one).collect::<Result<Vec<_>, i32>>()?;
    combine_kernel(param, &all).ok_or(CL_INVALID_VALUE)
}

/// Asks the driver.
fn query(device: &Device, replica: &Replica, param: u32) -> Result<Vec<u8>, i32> {
    call(
        replica,
        Query::KernelWorkGroup {
            kernel: replica.id,
            device: device.id,
            param,
        },
    )
}

fn call(replica: &Replica, query: Query<'_>) -> Result<Vec<u8>, i32> {
    let reply = replica.client.call(Request::Query(query));
    match reply.map_err(crate::core::lost)? {
        Reply::Bytes(bytes) => Ok(bytes),
        Reply::Error(code) => Err(code),
        _ => Err(CL_INVALID_VALUE),
    }
}
