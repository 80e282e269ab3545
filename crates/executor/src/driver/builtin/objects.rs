//! Contexts, queues, buffers, pipes and events. A handle is a reference counted object's address; the
//! executor owns one reference of each and gives it up once.

use super::memory::{DeviceMemory, Piece, ALIGNMENT};
use super::{give, give_or_refuse, object, Builtin, Device};
use crate::driver::cancel;
use baltra_board::accelerator::PIPE_HEADER_BYTES;
use baltra_opencl::*;
use baltra_ring::{Locked, Range, Unpoisoned};
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A context of the one device.
pub struct Context<T: 'static> {
    /// The device.
    pub device: &'static Device<T>,
}

/// A command queue.
pub struct Queue<T: 'static> {
    /// The device.
    pub device: &'static Device<T>,
    /// Its commands need no order.
    pub is_unordered: bool,
}

type Destroyed = (unsafe extern "C" fn(cl_mem, *mut c_void), usize);

/// A buffer, a part of one, or a pipe.
pub struct Mem {
    /// Its memory, and that of the buffer that it is a part of.
    pub piece: Arc<Piece>,
    /// In the piece.
    pub origin: usize,
    /// Its length.
    pub bytes: usize,
    /// Kernels may only read it.
    pub is_read_only: bool,
    /// Bytes of a packet, if it is a pipe.
    pub packet_bytes: Option<u32>,
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

/// When a command was submitted, started and ended, `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// When it was submitted.
    pub submitted_ns: u64,
    /// When it started.
    pub started_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
}

/// Interval at which a thread that waits for an event looks whether its session has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

type Call = (unsafe extern "C" fn(cl_event, cl_int, *mut c_void), usize);

/// A command.
#[derive(Default)]
pub struct Event {
    state: Mutex<EventState>,
    changed: Condvar,
}

#[derive(Default)]
struct EventState {
    end: Option<Result<Times, cl_int>>,
    calls: Vec<Call>,
}

impl Event {
    /// Of a command that is complete.
    pub fn complete(times: Times) -> Event {
        let event = Event::default();
        event.state.locked().end = Some(Ok(times));
        event
    }

    /// Ends the command of an event that was made without an end.
    pub fn finish(self: &Arc<Event>, end: Result<Times, cl_int>) {
        let mut state = self.state.locked();
        state.end = Some(end);
        let calls = std::mem::take(&mut state.calls);
        drop(state);
        self.changed.notify_all();
        let handle = Arc::as_ptr(self).cast_mut().cast();
        for (call, user) in calls {
            // SAFETY: the caller of `clSetEventCallback` promised that it may be called once.
            unsafe { call(handle, status(end), user as *mut c_void) };
        }
    }

    /// `CL_EVENT_COMMAND_EXECUTION_STATUS`
    fn status(&self) -> cl_int {
        self.state.locked().end.map_or(CL_RUNNING, status)
    }

    /// Waits for the command's end, or that of the session; the status then.
    fn wait(&self) -> cl_int {
        let mut state = self.state.locked();
        loop {
            match state.end {
                Some(end) => return status(end),
                None if cancel::is_requested() => return CL_OUT_OF_RESOURCES,
                None => {}
            }
            let waited = self.changed.wait_timeout(state, LOOK_EVERY);
            state = waited.unpoisoned().0;
        }
    }
}

fn status(end: Result<Times, cl_int>) -> cl_int {
    end.err().unwrap_or(CL_COMPLETE)
}

/// Adds this module's functions to a dispatch table.
pub fn fill<T: Builtin>(api: &mut cl_icd_dispatch) {
    api.clCreateContext = Some(create_context::<T>);
    api.clReleaseContext = Some(release::<Context<T>, _>);
    api.clCreateCommandQueue = Some(create_queue::<T>);
    api.clReleaseCommandQueue = Some(release::<Queue<T>, _>);
    api.clCreateBuffer = Some(create_buffer::<T>);
    api.clCreateSubBuffer = Some(create_sub_buffer);
    api.clCreatePipe = Some(create_pipe::<T>);
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
                is_unordered: properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE as u64 != 0,
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
        let is_too_large = size as u64 > buffer_bytes_max(context);
        let piece = context.device.memory.take(size as u64);
        let result = match piece {
            // The device reaches its own memory alone.
            _ if uses_host => Err(CL_INVALID_VALUE),
            _ if is_too_large => Err(CL_INVALID_BUFFER_SIZE),
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
                    packet_bytes: None,
                    destroyed: Mutex::default(),
                })
            }
        };
        made(result, code)
    }
}

/// Bytes of the largest packet.
pub const PACKET_BYTES_MAX: u32 = 1024;

unsafe extern "C" fn create_pipe<T: Builtin>(
    context: cl_context,
    _: cl_mem_flags,
    packet_bytes: cl_uint,
    packets: cl_uint,
    _: *const cl_pipe_properties,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: a live context; `code` is null or writable.
    unsafe {
        let context: &Context<T> = object(context);
        let most = buffer_bytes_max(context);
        made(
            pipe(&context.device.memory, most, packet_bytes, packets),
            code,
        )
    }
}

/// The device's `CL_DEVICE_MAX_MEM_ALLOC_SIZE`.
fn buffer_bytes_max<T: Builtin>(context: &Context<T>) -> u64 {
    let most = context.device.own.info(CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    let most = most.and_then(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?)));
    most.unwrap_or(0)
}

/// A pipe in memory, of which a buffer has `most` bytes at most.
fn pipe(memory: &DeviceMemory, most: u64, packet_bytes: u32, packets: u32) -> Result<Mem, cl_int> {
    if packet_bytes == 0 || packet_bytes > PACKET_BYTES_MAX || packets == 0 {
        return Err(CL_INVALID_PIPE_SIZE);
    }
    let bytes = PIPE_HEADER_BYTES + u64::from(packet_bytes) * u64::from(packets);
    if bytes > most {
        return Err(CL_MEM_OBJECT_ALLOCATION_FAILURE);
    }
    let piece = memory.take(bytes).ok_or(CL_MEM_OBJECT_ALLOCATION_FAILURE)?;
    piece.range.copy_in(0, &packets.to_le_bytes());
    piece.range.copy_in(4, &packet_bytes.to_le_bytes());
    Ok(Mem {
        piece: Arc::new(piece),
        origin: 0,
        bytes: bytes as usize,
        is_read_only: false,
        packet_bytes: Some(packet_bytes),
        destroyed: Mutex::default(),
    })
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
            _ if parent.packet_bytes.is_some() => Err(CL_INVALID_MEM_OBJECT),
            None => Err(CL_INVALID_VALUE),
            Some(_) if !aligned => Err(CL_MISALIGNED_SUB_BUFFER_OFFSET),
            Some(_) => Ok(Mem {
                piece: parent.piece.clone(),
                origin: parent.origin + region.origin,
                bytes: region.size,
                is_read_only: parent.is_read_only || flags & CL_MEM_READ_ONLY as u64 != 0,
                packet_bytes: None,
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
            CL_MEM_TYPE => {
                let kind = match mem.packet_bytes {
                    Some(_) => CL_MEM_OBJECT_PIPE,
                    None => CL_MEM_OBJECT_BUFFER,
                };
                Some((kind as u32).to_ne_bytes().to_vec())
            }
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
    event: cl_event,
    param: cl_event_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: a live event; the rest is OpenCL's promise.
    unsafe {
        let event: &Event = object(event);
        let status = (param == CL_EVENT_COMMAND_EXECUTION_STATUS as u32).then(|| event.status());
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
        let Some(Ok(times)) = event.state.locked().end else {
            return CL_PROFILING_INFO_NOT_AVAILABLE;
        };
        let time = match param as i32 {
            CL_PROFILING_COMMAND_QUEUED | CL_PROFILING_COMMAND_SUBMIT => times.submitted_ns,
            CL_PROFILING_COMMAND_START => times.started_ns,
            CL_PROFILING_COMMAND_END => times.ended_ns,
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
    let Some(call) = call else {
        return CL_INVALID_VALUE;
    };
    // SAFETY: a live event.
    let own: &Event = unsafe { object(event) };
    let mut state = own.state.locked();
    match state.end {
        None => state.calls.push((call, user as usize)),
        Some(end) => {
            drop(state);
            // SAFETY: the caller promised that it may be called once; the command has ended.
            unsafe { call(event, status(end), user) };
        }
    }
    CL_SUCCESS
}

unsafe extern "C" fn wait_for_events(count: cl_uint, events: *const cl_event) -> cl_int {
    let mut failed = false;
    for at in 0..count as usize {
        // SAFETY: OpenCL's promise: that many live events.
        let event: &Event = unsafe { object(*events.add(at)) };
        failed |= event.wait() < 0;
    }
    if failed {
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
    } else {
        CL_SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_are_refused_beyond_their_limits() {
        let memory = DeviceMemory::private(1 << 20).unwrap();
        let make = |bytes, packets| pipe(&memory, 1 << 19, bytes, packets);
        for (bytes, packets) in [(0, 1), (1, 0), (PACKET_BYTES_MAX + 1, 1)] {
            assert_eq!(make(bytes, packets).err(), Some(CL_INVALID_PIPE_SIZE));
        }
        for (bytes, packets) in [(1024, 512), (1, u32::MAX), (1024, u32::MAX)] {
            let refused = make(bytes, packets).err();
            assert_eq!(refused, Some(CL_MEM_OBJECT_ALLOCATION_FAILURE));
        }
        let made = make(24, 100).unwrap();
        assert_eq!((made.bytes, made.packet_bytes), (384 + 2400, Some(24)));
        let mut header = [0; 8];
        made.piece.range.copy_out(0, &mut header);
        assert_eq!(header, [100, 0, 0, 0, 24, 0, 0, 0]);
    }
}
