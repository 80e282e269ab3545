//! Command queues.

use super::Caller;
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::queue::Queue;
use baltra_opencl::*;
use std::ffi::c_void;

const KNOWN: u64 = (CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
    | CL_QUEUE_PROFILING_ENABLE
    | CL_QUEUE_ON_DEVICE
    | CL_QUEUE_ON_DEVICE_DEFAULT) as u64;

fn create(
    caller: Caller<'_>,
    context: cl_context,
    device: cl_device_id,
    properties: u64,
    list: Vec<u64>,
) -> Result<cl_command_queue, i32> {
    let context = caller.share::<Context>(context)?;
    // CL_INVALID_DEVICE if device is not a valid device or is not associated with context.
    let device = caller.share::<Device>(device)?;
    if !context.has(&device) {
        return Err(CL_INVALID_DEVICE);
    }
    // CL_INVALID_VALUE if values specified in properties are not valid.
    if properties & !KNOWN != 0 {
        return Err(CL_INVALID_VALUE);
    }
    // CL_INVALID_QUEUE_PROPERTIES if values specified in properties are valid but are not
    // supported by the device.
    if properties & !device.limits.queue_properties != 0 {
        return Err(CL_INVALID_QUEUE_PROPERTIES);
    }
    Ok(Queue::create(context, device, properties, list)?.give())
}

#[no_mangle]
pub unsafe extern "C" fn clCreateCommandQueue(
    context: cl_context,
    device: cl_device_id,
    properties: cl_command_queue_properties,
    errcode_ret: *mut cl_int,
) -> cl_command_queue {
    handle!(errcode_ret, |caller| create(
        caller,
        context,
        device,
        properties,
        Vec::new()
    ))
}

#[no_mangle]
pub unsafe extern "C" fn clCreateCommandQueueWithProperties(
    context: cl_context,
    device: cl_device_id,
    properties: *const cl_queue_properties,
    errcode_ret: *mut cl_int,
) -> cl_command_queue {
    handle!(errcode_ret, |caller| {
        caller.get::<Context>(context)?;
        caller.get::<Device>(device)?;
        let mut list = caller.pairs(properties).unwrap_or_default();
        let (mut bits, mut sized) = (0, false);
        for pair in list.chunks_exact(2) {
            match pair[0] as i32 {
                CL_QUEUE_PROPERTIES => bits = pair[1],
                CL_QUEUE_SIZE => sized = true,
                // CL_INVALID_VALUE if values specified in properties are not valid.
                _ => return Err(CL_INVALID_VALUE),
            }
        }
        let on_device = CL_QUEUE_ON_DEVICE as u64;
        // CL_QUEUE_SIZE: can only be specified if CL_QUEUE_ON_DEVICE is set.
        if sized && bits & on_device == 0 {
            return Err(CL_INVALID_VALUE);
        }
        if bits & on_device != 0 && bits & KNOWN == bits {
            // CL_INVALID_VALUE if CL_QUEUE_ON_DEVICE is set without being out of order.
            if bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE as u64 == 0 {
                return Err(CL_INVALID_VALUE);
            }
            // No device here supports on-device queues.
            return Err(CL_INVALID_QUEUE_PROPERTIES);
        }
        if !properties.is_null() {
            list.push(0);
        }
        create(caller, context, device, bits, list)
    })
}

#[no_mangle]
pub unsafe extern "C" fn clRetainCommandQueue(queue: cl_command_queue) -> cl_int {
    code!(|caller| caller.retain::<Queue>(queue))
}

#[no_mangle]
pub unsafe extern "C" fn clReleaseCommandQueue(queue: cl_command_queue) -> cl_int {
    code!(|caller| {
        let object = caller.share::<Queue>(queue)?;
        caller.release::<Queue>(queue)?;
        // clReleaseCommandQueue performs an implicit flush to issue any previously queued OpenCL
        // commands in command_queue.
        object.channel.flush();
        if object.references() == 0 {
            Queue::abandon(object);
        }
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn clGetCommandQueueInfo(
    queue: cl_command_queue,
    param_name: cl_command_queue_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        match param_name as i32 {
            CL_QUEUE_CONTEXT => answer.value(queue.context.handle()),
            CL_QUEUE_DEVICE => answer.value(queue.device.handle()),
            CL_QUEUE_REFERENCE_COUNT => answer.value(queue.references()),
            CL_QUEUE_PROPERTIES => answer.value(queue.properties),
            CL_QUEUE_PROPERTIES_ARRAY => answer.values(&queue.property_list),
            // CL_INVALID_COMMAND_QUEUE if command_queue is not a valid command-queue for
            // param_name: only queues on the device have a size.
            CL_QUEUE_SIZE => Err(CL_INVALID_COMMAND_QUEUE),
            CL_QUEUE_DEVICE_DEFAULT => answer.value(std::ptr::null_mut::<c_void>()),
            _ => Err(CL_INVALID_VALUE),
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn clSetCommandQueueProperty(
    queue: cl_command_queue,
    _properties: cl_command_queue_properties,
    _enable: cl_bool,
    _old_properties: *mut cl_command_queue_properties,
) -> cl_int {
    // CL_INVALID_OPERATION if no devices in the context associated with command_queue support
    // modifying the properties of a command-queue.
    code!(|caller| {
        caller.get::<Queue>(queue)?;
        Err(CL_INVALID_OPERATION)
    })
}

#[no_mangle]
pub unsafe extern "C" fn clSetDefaultDeviceCommandQueue(
    context: cl_context,
    device: cl_device_id,
    _queue: cl_command_queue,
) -> cl_int {
    code!(|caller| {
        let context = caller.get::<Context>(context)?;
        if !context.has(caller.get::<Device>(device)?) {
            return Err(CL_INVALID_DEVICE);
        }
        // CL_INVALID_OPERATION if device does not support a replaceable default on-device queue.
        Err(CL_INVALID_OPERATION)
    })
}
