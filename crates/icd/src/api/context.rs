//! Contexts.

use super::device::devices_of_type;
use super::Caller;
use crate::core::callback::Opaque;
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::object::{Object, Ref};
use crate::core::platform::Platform;
use baltra_opencl::*;
use std::ffi::{c_char, c_void, CString};

type Notify = Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>;

/// Checks a context's properties and keeps them with their final zero.
fn check_properties(
    caller: Caller<'_>,
    properties: *const cl_context_properties,
) -> Result<Vec<isize>, i32> {
    let Some(mut list) = caller.pairs(properties) else {
        return Ok(Vec::new());
    };
    for (i, pair) in list.chunks_exact(2).enumerate() {
        // CL_INVALID_PROPERTY if context property name in properties is not a supported property
        // name, if the value specified for a supported property name is not valid, or if the
        // same property name is specified more than once.
        if list[..2 * i].iter().step_by(2).any(|name| *name == pair[0]) {
            return Err(CL_INVALID_PROPERTY);
        }
        match pair[0] as i32 {
            // CL_INVALID_PLATFORM if platform value specified in properties is not a valid
            // platform.
            CL_CONTEXT_PLATFORM => {
                caller.get::<Platform>(pair[1] as cl_platform_id)?;
            }
            CL_CONTEXT_INTEROP_USER_SYNC if pair[1] == 0 || pair[1] == 1 => {}
            _ => return Err(CL_INVALID_PROPERTY),
        }
    }
    list.push(0);
    Ok(list)
}

fn create(
    caller: Caller<'_>,
    properties: *const cl_context_properties,
    devices: impl FnOnce() -> Result<Vec<Ref<Device>>, i32>,
    pfn_notify: Notify,
    user_data: *mut c_void,
) -> Result<cl_context, i32> {
    let properties = check_properties(caller, properties)?;
    // CL_INVALID_VALUE if pfn_notify is NULL but user_data is not NULL.
    if pfn_notify.is_none() && !user_data.is_null() {
        return Err(CL_INVALID_VALUE);
    }
    let devices = devices()?;
    let user_data = Opaque::new(user_data);
    let notify = pfn_notify.map(|notify| {
        let call = move |text: &str| {
            let text = CString::new(text.replace('\0', " ")).expect("no zero is left");
            // SAFETY: the application's callback with the pointer that it registered.
            unsafe { notify(text.as_ptr(), std::ptr::null(), 0, user_data.pointer()) };
        };
        Box::new(call) as crate::core::context::Notify
    });
    Ok(Context::create(devices, properties, notify)?.give())
}

#[no_mangle]
pub unsafe extern "C" fn clCreateContext(
    properties: *const cl_context_properties,
    num_devices: cl_uint,
    devices: *const cl_device_id,
    pfn_notify: Notify,
    user_data: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_context {
    handle!(errcode_ret, |caller| {
        // CL_INVALID_VALUE if devices is NULL, or if num_devices is equal to zero.
        if num_devices == 0 {
            return Err(CL_INVALID_VALUE);
        }
        let devices = caller.list(num_devices as usize, devices, CL_INVALID_VALUE)?;
        let find = || {
            let mut found: Vec<Ref<Device>> = Vec::new();
            for &raw in devices {
                // CL_INVALID_DEVICE if any device in devices is not a valid device.
                let device = caller.get::<Device>(raw)?;
                // Duplicate devices specified in devices are ignored.
                if !found.iter().any(|d| std::ptr::eq(&**d, device)) {
                    found.push(device.share());
                }
            }
            Ok(found)
        };
        create(caller, properties, find, pfn_notify, user_data)
    })
}

#[no_mangle]
pub unsafe extern "C" fn clCreateContextFromType(
    properties: *const cl_context_properties,
    device_type: cl_device_type,
    pfn_notify: Notify,
    user_data: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_context {
    handle!(errcode_ret, |caller| {
        let find = || devices_of_type(device_type);
        create(caller, properties, find, pfn_notify, user_data)
    })
}

#[no_mangle]
pub unsafe extern "C" fn clRetainContext(context: cl_context) -> cl_int {
    code!(|caller| caller.retain::<Context>(context))
}

#[no_mangle]
pub unsafe extern "C" fn clReleaseContext(context: cl_context) -> cl_int {
    code!(|caller| caller.release::<Context>(context))
}

#[no_mangle]
pub unsafe extern "C" fn clGetContextInfo(
    context: cl_context,
    param_name: cl_context_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let context = caller.get::<Context>(context)?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        match param_name as i32 {
            CL_CONTEXT_REFERENCE_COUNT => answer.value(context.references()),
            CL_CONTEXT_NUM_DEVICES => answer.value(context.devices.len() as u32),
            CL_CONTEXT_DEVICES => {
                let handles: Vec<_> = context.devices.iter().map(|d| d.handle()).collect();
                answer.values(&handles)
            }
            CL_CONTEXT_PROPERTIES => answer.values(&context.properties),
            _ => Err(CL_INVALID_VALUE),
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn clSetContextDestructorCallback(
    context: cl_context,
    pfn_notify: Option<unsafe extern "C" fn(cl_context, *mut c_void)>,
    user_data: *mut c_void,
) -> cl_int {
    code!(|caller| {
        let handle = Opaque::new(context);
        let context: &Object<Context> = caller.get(context)?;
        // CL_INVALID_VALUE if pfn_notify is NULL.
        let notify = pfn_notify.ok_or(CL_INVALID_VALUE)?;
        let user_data = Opaque::new(user_data);
        context.at_end(Box::new(move || {
            // SAFETY: the application's callback with the pointer that it registered.
            unsafe { notify(handle.pointer(), user_data.pointer()) };
        }));
        Ok(())
    })
}
