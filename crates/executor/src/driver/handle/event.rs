//! Events.

use super::Event;
use crate::driver::{call, Code, Result};
use baltra_opencl::*;
use std::ffi::c_void;

impl Event {
    /// `CL_EVENT_COMMAND_EXECUTION_STATUS`.
    pub fn status(&self) -> Code {
        let mut status: cl_int = 0;
        // SAFETY: room for one cl_int.
        let queried = unsafe {
            call!(
                self.driver,
                clGetEventInfo(
                    self.raw,
                    CL_EVENT_COMMAND_EXECUTION_STATUS as u32,
                    size_of::<cl_int>(),
                    (&raw mut status).cast(),
                    std::ptr::null_mut()
                )
            )
        };
        queried.map_or_else(|code| code, |()| status)
    }

    /// Blocks until the command is complete or failed; then as [`Event::status`].
    pub fn wait(&self) -> Code {
        // SAFETY: one live event.
        let waited = unsafe { call!(self.driver, clWaitForEvents(1, &self.raw)) };
        match waited {
            Ok(()) => CL_COMPLETE,
            Err(code) => match self.status() {
                status if status < 0 => status,
                _ => code,
            },
        }
    }

    /// Queued, submitted, started, ended: device nanoseconds; zeros if the driver does not report
    /// them.
    pub fn times(&self) -> [u64; 4] {
        let params = [
            CL_PROFILING_COMMAND_QUEUED,
            CL_PROFILING_COMMAND_SUBMIT,
            CL_PROFILING_COMMAND_START,
            CL_PROFILING_COMMAND_END,
        ];
        params.map(|param| {
            let mut ns = 0u64;
            // SAFETY: room for one cl_ulong.
            let queried = unsafe {
                call!(
                    self.driver,
                    clGetEventProfilingInfo(
                        self.raw,
                        param as u32,
                        8,
                        (&raw mut ns).cast(),
                        std::ptr::null_mut()
                    )
                )
            };
            queried.map_or(0, |()| ns)
        })
    }

    /// Calls `then` with the final status, once, on a thread of the driver's.
    pub fn on_complete(&self, then: Box<dyn FnOnce(Code) + Send>) -> Result<()> {
        unsafe extern "C" fn complete(_: cl_event, status: cl_int, user: *mut c_void) {
            // SAFETY: the box made below; the driver calls back once.
            let then = unsafe { Box::from_raw(user.cast::<Box<dyn FnOnce(Code) + Send>>()) };
            then(status);
        }
        let user = Box::into_raw(Box::new(then));
        // SAFETY: `user` stays valid until the one call.
        let set = unsafe {
            call!(
                self.driver,
                clSetEventCallback(self.raw, CL_COMPLETE, Some(complete), user.cast())
            )
        };
        if set.is_err() {
            // SAFETY: the driver refused the callback, so the box has no other owner.
            drop(unsafe { Box::from_raw(user) });
        }
        set
    }
}
