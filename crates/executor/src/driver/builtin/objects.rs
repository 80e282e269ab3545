//! Contexts, queues, buffers and events. A handle is a reference counted object's address; the
//! executor owns one reference of each and gives it up once.

use super::memory::{Piece, ALIGNMENT};
use super::{give, give_or_refuse, object, Builtin, Device};
use baltra_opencl::*;
use baltra_ring::{Locked, Range};
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex};

/// A context of the one device.
pub struct Context<T: 'static> {
    /// The device.
    pub device: &'static Device<T>,
}

/// A command queue.
pub struct Queue<T: 'static> {
    /// The device.
    pub device: &'static Device<T>,
}

type Destroyed = (unsafe extern "C" fn(cl_mem, *mut c_void), usize);

/// A buffer, or a part of one.
pub struct Mem {
    /// Its memory, and that of the buffer that it is a part of.
    pub piece: Arc<Piece>,
    /// In the piece.
    pub origin: usize,
    /// Its length.
    pub bytes: usize,
    /// Kernels may only read it.
    pub is_read_only: bool,
    destroyed: Mutex<Vec<Destroyed>>,
}

impl Mem {
    /// Its place in device memory.
    pub fn offset(&self) -> u64 {
        self.piece.offset + self.origin as u64
    }

    /// Its bytes from `offset` on, which the caller may change; `None` if they exceed it.
    pub fn part(&self, offset: usize, len: usize) -> Option<Range> {
        self.fetched(offset, len, true)
    }

    /// Like [`Mem::part`], only to be read.
    pub fn part_to_read(&self, offset: usize, len: usize) -> Option<Range> {
        self.fetched(offset, len, false)
    }

    fn fetched(&self, offset: usize, len: usize, is_written: bool) -> Option<Range> {
        if offset > self.bytes || len > self.bytes - offset {
            return None;
        }
        if let Some(twin) = self.piece.twin.get() {
            twin.fetch(is_written).then_some(())?;
        }
        let range = &self.piece.range;
        range.slice((self.origin + offset) as u64, len as u64)
    }
}

impl Drop for Mem {
    fn drop(&mut self) {
        let calls = std::mem::take(&mut *self.destroyed.locked());
        for (call, user) in calls.into_iter().rev() {
            // SAFETY: the caller of `clSetMemObjectDestructorCallback` promised that it may be called once.
            unsafe { call(std::ptr::from_mut(self).cast(), user as *mut c_void) };
        }
    }
}

/// A command that is complete: submitted, started, ended.
pub struct Event {
    /// When it was submitted, `CLOCK_MONOTONIC`.
    pub submitted_ns: u64,
    /// When it started.
    pub started_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
}

/// Adds this module's functions to a dispatch table.
pub fn fill<T: Builtin>(api: &mut cl_icd_dispatch) {
    api.clCreateContext = Some(create_context::<T>);
    api.clReleaseContext = Some(release::<Context<T>, _>);
    api.clCreateCommandQueue = Some(create_queue::<T>);
    api.clReleaseCommandQueue = Some(release::<Queue<T>, _>);
    api.clCreateBuffer = Some(create_buffer::<T>);
    api.clCreateSubBuffer = Some(create_sub_buffer);
    api.clReleaseMemObject = Some(release::<Mem, _>);
    api.clGetMemObjectInfo = Some(mem_info);
    api.clSetMemObjectDestructorCallback = Some(on_destroyed);
    api.clGetEventInfo = Some(event_info);
    api.clGetEventProfilingInfo = Some(event_times);
    api.clSetEventCallback = Some(on_complete);
    api.clWaitForEvents = Some(wait_for_events);
    api.clReleaseEvent = Some(release::<Event, _>);
}

/// A new object's handle.
pub fn handle<T, H>(made: T) -> *mut H {
    Arc::into_raw(Arc::new(made)).cast_mut().cast()
}

/// An object that a call makes, or its error.
///
/// # Safety
/// `code` is null or writable.
pub unsafe fn made<T, H>(result: Result<T, cl_int>, code: *mut cl_int) -> *mut H {
    let (handle, status) = match result {
        Ok(object) => (handle(object), CL_SUCCESS),
        Err(status) => (std::ptr::null_mut(), status),
    };
    if !code.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *code = status };
    }
    handle
}

/// Gives up an object.
///
/// # Safety
/// `handle` is a live `T`'s, from [`handle`], and not used afterwards.
pub unsafe extern "C" fn release<T, H>(handle: *mut H) -> cl_int {
    // SAFETY: the executor gives up its one reference.
    drop(unsafe { Arc::from_raw(handle.cast::<T>().cast_const()) });
    CL_SUCCESS
}

unsafe extern "C" fn create_context<T: Builtin>(
    _: *const cl_context_properties,
    count: cl_uint,
    devices: *const cl_device_id,
    _: Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>,
    _: *mut c_void,
    code: *mut cl_int,
) -> cl_context {
    // SAFETY: OpenCL's promise: `devices` has `count` entries, which are the registered device.
    unsafe {
        let result = match count {
            0 => Err(CL_INVALID_VALUE),
            _ => Ok(Context::<T> {
                device: object(*devices),
            }),
        };
        made(result, code)
    }
}

unsafe extern "C" fn create_queue<T: Builtin>(
    context: cl_context,
    _: cl_device_id,
    properties: cl_command_queue_properties,
    code: *mut cl_int,
) -> cl_command_queue {
    // SAFETY: a live context.
    unsafe {
        let context: &Context<T> = object(context);
        let result = match properties & !T::QUEUE_PROPERTIES {
            0 => Ok(Queue::<T> {
                device: context.device,
            }),
            _ => Err(CL_INVALID_QUEUE_PROPERTIES),
        };
        made(result, code)
    }
}

unsafe extern "C" fn create_buffer<T: Builtin>(
    context: cl_context,
    flags: cl_mem_flags,
    size: usize,
    host: *mut c_void,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: a live context; `host` has `size` bytes if the flags require it.
    unsafe {
        let context: &Context<T> = object(context);
        let uses_host = flags & CL_MEM_USE_HOST_PTR as u64 != 0;
        let piece = context.device.memory.take(size as u64);
        let result = match piece {
            // The device reaches its own memory alone.
            _ if uses_host => Err(CL_INVALID_VALUE),
            None => Err(CL_MEM_OBJECT_ALLOCATION_FAILURE),
            Some(piece) => {
                if flags & CL_MEM_COPY_HOST_PTR as u64 != 0 && !host.is_null() {
                    std::ptr::copy_nonoverlapping(host.cast(), piece.range.ptr(), size);
                }
                Ok(Mem {
                    piece: Arc::new(piece),
                    origin: 0,
                    bytes: size,
                    is_read_only: flags & CL_MEM_READ_ONLY as u64 != 0,
                    destroyed: Mutex::default(),
                })
            }
        };
        made(result, code)
    }
}

unsafe extern "C" fn create_sub_buffer(
    parent: cl_mem,
    flags: cl_mem_flags,
    kind: cl_buffer_create_type,
    about: *const c_void,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: a live buffer, and a region if the kind requires one.
    unsafe {
        let parent: &Mem = object(parent);
        let region = *about.cast::<cl_buffer_region>();
        let aligned = region.origin.is_multiple_of(ALIGNMENT as usize);
        let result = match parent.part(region.origin, region.size) {
            _ if kind != CL_BUFFER_CREATE_TYPE_REGION as u32 => Err(CL_INVALID_VALUE),
            None => Err(CL_INVALID_VALUE),
            Some(_) if !aligned => Err(CL_MISALIGNED_SUB_BUFFER_OFFSET),
            Some(_) => Ok(Mem {
                piece: parent.piece.clone(),
                origin: parent.origin + region.origin,
                bytes: region.size,
                is_read_only: parent.is_read_only || flags & CL_MEM_READ_ONLY as u64 != 0,
                destroyed: Mutex::default(),
            }),
        };
        made(result, code)
    }
}

unsafe extern "C" fn mem_info(
    mem: cl_mem,
    param: cl_mem_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: a live buffer; the rest is OpenCL's promise.
    unsafe {
        let mem: &Mem = object(mem);
        let answer = match param as i32 {
            CL_MEM_SIZE => Some(mem.bytes.to_ne_bytes().to_vec()),
            CL_MEM_OFFSET => Some(mem.origin.to_ne_bytes().to_vec()),
            CL_MEM_TYPE => Some((CL_MEM_OBJECT_BUFFER as u32).to_ne_bytes().to_vec()),
            _ => None,
        };
        give_or_refuse(answer, size, value, needed)
    }
}

unsafe extern "C" fn on_destroyed(
    mem: cl_mem,
    call: Option<unsafe extern "C" fn(cl_mem, *mut c_void)>,
    user: *mut c_void,
) -> cl_int {
    let Some(call) = call else {
        return CL_INVALID_VALUE;
    };
    // SAFETY: a live buffer.
    let mem: &Mem = unsafe { object(mem) };
    let mut calls = mem.destroyed.locked();
    calls.push((call, user as usize));
    CL_SUCCESS
}

unsafe extern "C" fn event_info(
    _: cl_event,
    param: cl_event_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    let status = (param == CL_EVENT_COMMAND_EXECUTION_STATUS as u32).then_some(CL_COMPLETE);
    // SAFETY: OpenCL's promise.
    unsafe {
        give_or_refuse(
            status.map(|s| s.to_ne_bytes().to_vec()),
            size,
            value,
            needed,
        )
    }
}

unsafe extern "C" fn event_times(
    event: cl_event,
    param: cl_profiling_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: a live event; the rest is OpenCL's promise.
    unsafe {
        let event: &Event = object(event);
        let time = match param as i32 {
            CL_PROFILING_COMMAND_QUEUED | CL_PROFILING_COMMAND_SUBMIT => event.submitted_ns,
            CL_PROFILING_COMMAND_START => event.started_ns,
            CL_PROFILING_COMMAND_END => event.ended_ns,
            _ => return CL_INVALID_VALUE,
        };
        give(&time.to_ne_bytes(), size, value, needed)
    }
}

unsafe extern "C" fn on_complete(
    event: cl_event,
    _: cl_int,
    call: Option<unsafe extern "C" fn(cl_event, cl_int, *mut c_void)>,
    user: *mut c_void,
) -> cl_int {
    if let Some(call) = call {
        // SAFETY: the caller promised that it may be called once; the command is complete.
        unsafe { call(event, CL_COMPLETE, user) };
    }
    CL_SUCCESS
}

unsafe extern "C" fn wait_for_events(_: cl_uint, _: *const cl_event) -> cl_int {
    CL_SUCCESS
}
