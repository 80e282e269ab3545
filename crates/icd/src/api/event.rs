//! Events.

use crate::core::callback::Opaque;
use crate::core::context::Context;
use crate::core::event::{Event, Waits};
use baltra_opencl::*;
use std::ffi::c_void;

#[no_mangle]
pub unsafe extern "C" fn clCreateUserEvent(
    context: cl_context,
    errcode_ret: *mut cl_int,
) -> cl_event {
    handle!(errcode_ret, |caller| {
        Ok(Event::user(caller.get::<Context>(context)?)?.give())
    })
}

#[no_mangle]
pub unsafe extern "C" fn clSetUserEventStatus(event: cl_event, execution_status: cl_int) -> cl_int {
    code!(|caller| {
        let event = caller.get::<Event>(event)?;
        // CL_INVALID_VALUE if the execution_status is not CL_COMPLETE or a negative integer
        // value.
        if execution_status > CL_COMPLETE {
            return Err(CL_INVALID_VALUE);
        }
        event.set_user(execution_status)
    })
}

#[no_mangle]
pub unsafe extern "C" fn clWaitForEvents(num_events: cl_uint, list: *const cl_event) -> cl_int {
    code!(|caller| {
        // CL_INVALID_VALUE if num_events is zero or event_list is NULL.
        if num_events == 0 {
            return Err(CL_INVALID_VALUE);
        }
        let list = caller.list(num_events as usize, list, CL_INVALID_VALUE)?;
        let mut waits = Waits::default();
        for &raw in list {
            waits.push(caller.get::<Event>(raw)?);
        }
        // CL_INVALID_CONTEXT if events specified in event_list do not belong to the same context.
        let first = waits.iter().next().map(|e| e.context.handle());
        if waits.iter().any(|e| Some(e.context.handle()) != first) {
            return Err(CL_INVALID_CONTEXT);
        }
        // CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST if the execution status of any of the
        // events in event_list is a negative integer value.
        waits.wait()
    })
}

#[no_mangle]
pub unsafe extern "C" fn clGetEventInfo(
    event: cl_event,
    param_name: cl_event_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let event = caller.get::<Event>(event)?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        match param_name as i32 {
            // For user event objects, the value returned is NULL.
            CL_EVENT_COMMAND_QUEUE => {
                let queue = event.queue.as_ref();
                answer.value(queue.map_or(std::ptr::null_mut(), |q| q.handle()))
            }
            CL_EVENT_CONTEXT => answer.value(event.context.handle()),
            CL_EVENT_COMMAND_TYPE => answer.value(event.command as u32),
            CL_EVENT_COMMAND_EXECUTION_STATUS => answer.value(event.observe()),
            CL_EVENT_REFERENCE_COUNT => answer.value(event.references()),
            _ => Err(CL_INVALID_VALUE),
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn clRetainEvent(event: cl_event) -> cl_int {
    code!(|caller| caller.retain::<Event>(event))
}

#[no_mangle]
pub unsafe extern "C" fn clReleaseEvent(event: cl_event) -> cl_int {
    code!(|caller| caller.release::<Event>(event))
}

#[no_mangle]
pub unsafe extern "C" fn clSetEventCallback(
    event: cl_event,
    command_exec_callback_type: cl_int,
    pfn_notify: Option<unsafe extern "C" fn(cl_event, cl_int, *mut c_void)>,
    user_data: *mut c_void,
) -> cl_int {
    code!(|caller| {
        let handle = Opaque::new(event);
        let event = caller.get::<Event>(event)?;
        // CL_INVALID_VALUE if pfn_event_notify is NULL or if command_exec_callback_type is not
        // CL_SUBMITTED, CL_RUNNING, or CL_COMPLETE.
        let notify = pfn_notify.ok_or(CL_INVALID_VALUE)?;
        if !(CL_COMPLETE..=CL_SUBMITTED).contains(&command_exec_callback_type) {
            return Err(CL_INVALID_VALUE);
        }
        let user_data = Opaque::new(user_data);
        let job = move |status| {
            // SAFETY: the application's callback with the pointer that it registered; the event is
            // kept until it has been called.
            unsafe { notify(handle.pointer(), status, user_data.pointer()) };
        };
        event.on(command_exec_callback_type, Box::new(job))
    })
}

#[no_mangle]
pub unsafe extern "C" fn clGetEventProfilingInfo(
    event: cl_event,
    param_name: cl_profiling_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let event = caller.get::<Event>(event)?;
        // CL_PROFILING_INFO_NOT_AVAILABLE if the CL_QUEUE_PROFILING_ENABLE flag is not set for
        // the command-queue, if the execution status of the command identified by event is not
        // CL_COMPLETE, or if event is a user event object.
        let profiles = event.queue.as_ref().is_some_and(|q| q.profiles());
        if !profiles || event.status_by_driver() != CL_COMPLETE {
            return Err(CL_PROFILING_INFO_NOT_AVAILABLE);
        }
        let times = event.times_ns();
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        match param_name as i32 {
            CL_PROFILING_COMMAND_QUEUED => answer.value(times[0]),
            CL_PROFILING_COMMAND_SUBMIT => answer.value(times[1]),
            CL_PROFILING_COMMAND_START => answer.value(times[2]),
            // Without commands enqueued by kernels the two are the same.
            CL_PROFILING_COMMAND_END | CL_PROFILING_COMMAND_COMPLETE => answer.value(times[3]),
            _ => Err(CL_INVALID_VALUE),
        }
    })
}
