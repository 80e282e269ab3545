//! Devices and sub-devices.

use crate::core::device::Device;
use crate::core::event::monotonic_ns;
use crate::core::object::{Object, Ref};
use crate::core::platform::{platform, Platform};
use baltra_opencl::*;
use std::ffi::c_void;

/// The platform's devices of the given types.
pub(super) fn devices_of_type(device_type: u64) -> Result<Vec<Ref<Device>>, i32> {
    let known = (CL_DEVICE_TYPE_DEFAULT
        | CL_DEVICE_TYPE_CPU
        | CL_DEVICE_TYPE_GPU
        | CL_DEVICE_TYPE_ACCELERATOR
        | CL_DEVICE_TYPE_CUSTOM) as u64;
    // CL_INVALID_DEVICE_TYPE if device_type is not a valid value.
    if device_type != CL_DEVICE_TYPE_ALL as u64 && (device_type & !known != 0 || device_type == 0) {
        return Err(CL_INVALID_DEVICE_TYPE);
    }
    let mut devices = platform().devices();
    if device_type == CL_DEVICE_TYPE_DEFAULT as u64 {
        devices.truncate(1);
    } else {
        // CL_DEVICE_TYPE_ALL: all OpenCL devices available in the platform, except for
        // CL_DEVICE_TYPE_CUSTOM.
        let custom = CL_DEVICE_TYPE_CUSTOM as u64;
        let wanted = if device_type == CL_DEVICE_TYPE_ALL as u64 {
            !custom
        } else {
            device_type
        };
        let first = devices.first().cloned();
        devices.retain(|d| {
            let default = device_type & CL_DEVICE_TYPE_DEFAULT as u64 != 0;
            let is_first = first.as_ref().is_some_and(|f| std::ptr::eq(&**f, &**d));
            d.number(CL_DEVICE_TYPE) & wanted & !(CL_DEVICE_TYPE_DEFAULT as u64) != 0
                || (default && is_first)
        });
    }
    if device_type != CL_DEVICE_TYPE_ALL as u64 && device_type != CL_DEVICE_TYPE_DEFAULT as u64 {
        // The answer is a fact: the program has read the type.
        devices.iter().for_each(|d| d.note_read(CL_DEVICE_TYPE));
    }
    // CL_DEVICE_NOT_FOUND if no OpenCL devices that matched device_type were found.
    if devices.is_empty() {
        Err(CL_DEVICE_NOT_FOUND)
    } else {
        Ok(devices)
    }
}

#[no_mangle]
pub unsafe extern "C" fn clGetDeviceIDs(
    platform_id: cl_platform_id,
    device_type: cl_device_type,
    num_entries: cl_uint,
    devices: *mut cl_device_id,
    num_devices: *mut cl_uint,
) -> cl_int {
    code!(|caller| {
        // CL_INVALID_PLATFORM if platform is not a valid platform. (NULL: implementation-defined.)
        if !platform_id.is_null() {
            caller.get::<Platform>(platform_id)?;
        }
        // CL_INVALID_VALUE if num_entries is equal to zero and devices is not NULL or if both
        // num_devices and devices are NULL.
        if (num_entries == 0 && !devices.is_null()) || (devices.is_null() && num_devices.is_null())
        {
            return Err(CL_INVALID_VALUE);
        }
        let found = devices_of_type(device_type).inspect_err(|_| caller.set(num_devices, 0))?;
        let handles: Vec<_> = found.iter().map(|d| d.handle()).collect();
        caller.set(num_devices, handles.len() as u32);
        caller.fill(devices, num_entries as usize, &handles);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn clGetDeviceInfo(
    device: cl_device_id,
    param_name: cl_device_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let device = caller.get::<Device>(device)?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        if param_name as i32 == CL_DEVICE_REFERENCE_COUNT {
            // 1 for root-level devices.
            let count = device.parent().map_or(1, |_| device.references());
            return answer.value(count);
        }
        // CL_INVALID_VALUE if param_name is not one of the supported values.
        let value = device.info(param_name as i32).ok_or(CL_INVALID_VALUE)?;
        device.note_read(param_name as i32);
        answer.bytes(&value)
    })
}

#[no_mangle]
pub unsafe extern "C" fn clCreateSubDevices(
    in_device: cl_device_id,
    properties: *const cl_device_partition_property,
    num_devices: cl_uint,
    out_devices: *mut cl_device_id,
    num_devices_ret: *mut cl_uint,
) -> cl_int {
    code!(|caller| {
        let device = caller.get::<Device>(in_device)?;
        // CL_INVALID_VALUE if values specified in properties are not valid or if values
        // specified in properties are valid but not supported by the device.
        let mut list = caller.terminated(properties).ok_or(CL_INVALID_VALUE)?;
        if list.first() == Some(&(CL_DEVICE_PARTITION_BY_COUNTS as isize)) {
            // The counts end with a zero, and the list with another one.
            list.push(CL_DEVICE_PARTITION_BY_COUNTS_LIST_END as isize);
        }
        list.push(0);
        let known = device
            .info(CL_DEVICE_PARTITION_PROPERTIES)
            .unwrap_or_default();
        let mut known = known.chunks_exact(size_of::<isize>());
        if list[0] == 0 || !known.any(|k| k == list[0].to_ne_bytes()) {
            return Err(CL_INVALID_VALUE);
        }
        let units = device.number(CL_DEVICE_MAX_COMPUTE_UNITS) as u32;
        let parts = device.divide(&list, units.max(1))?;
        // CL_INVALID_VALUE if out_devices is not NULL and num_devices is less than the number of
        // sub-devices created by the partition scheme.
        if !out_devices.is_null() && (num_devices as usize) < parts.len() {
            return Err(CL_INVALID_VALUE);
        }
        caller.set(num_devices_ret, parts.len() as u32);
        if !out_devices.is_null() {
            let handles: Vec<_> = parts.iter().map(Object::give).collect();
            caller.fill(out_devices, handles.len(), &handles);
        }
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn clRetainDevice(device: cl_device_id) -> cl_int {
    code!(|caller| {
        let device = caller.get::<Device>(device)?;
        // "If device is a root-level device, the device reference count remains unchanged."
        if device.parent().is_some() {
            device.retain();
        }
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn clReleaseDevice(device: cl_device_id) -> cl_int {
    code!(|caller| {
        if caller.get::<Device>(device)?.parent().is_some() {
            caller.release::<Device>(device)
        } else {
            Ok(())
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn clGetDeviceAndHostTimer(
    device: cl_device_id,
    device_timestamp: *mut cl_ulong,
    host_timestamp: *mut cl_ulong,
) -> cl_int {
    code!(|caller| {
        let device = caller.get::<Device>(device)?;
        // CL_INVALID_VALUE if host_timestamp or device_timestamp is NULL.
        if device_timestamp.is_null() || host_timestamp.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        // The host's timer is CLOCK_MONOTONIC, and the device's is as far from it as the
        // manager has measured: the clock of the events' times.
        let host = monotonic_ns();
        let offset = device.clock_offset_ns();
        caller.set(host_timestamp, host);
        caller.set(device_timestamp, host.wrapping_add_signed(offset));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn clGetHostTimer(
    device: cl_device_id,
    host_timestamp: *mut cl_ulong,
) -> cl_int {
    code!(|caller| {
        caller.get::<Device>(device)?;
        if host_timestamp.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        caller.set(host_timestamp, monotonic_ns());
        Ok(())
    })
}
