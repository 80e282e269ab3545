//! Contexts, queues, buffers, programs, kernels and events. A handle is a reference counted object's address; the
//! executor owns one reference of each and gives it up once.

use super::{give, give_or_refuse, object, zero_terminated, Board, ALIGNMENT};
use baltra_board::image::Description;
use baltra_board::{port, Image};
use baltra_opencl::*;
use baltra_ring::Range;
use std::ffi::{c_char, c_void, CStr};
use std::sync::{Arc, Mutex};

/// Buffers and image argument, in that order; then scalars.
pub const BUFFER_ARGS: usize = 2;

/// Allocated parts of the window, in the order of their offsets.
pub struct Space {
    bytes: u64,
    taken: Vec<(u64, u64)>,
}

impl Space {
    pub fn new(bytes: u64) -> Space {
        Space {
            bytes,
            taken: Vec::new(),
        }
    }

    /// The first gap that is large enough.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let mut at = 0;
        let mut place = self.taken.len();
        for (index, (start, length)) in self.taken.iter().enumerate() {
            if start - at >= bytes {
                place = index;
                break;
            }
            at = start + length;
        }
        if at.checked_add(bytes)? > self.bytes {
            return None;
        }
        self.taken.insert(place, (at, bytes));
        Some(at)
    }

    fn give_back(&mut self, at: u64) {
        if let Ok(index) = self.taken.binary_search_by_key(&at, |piece| piece.0) {
            self.taken.remove(index);
        }
    }
}

/// A piece of the window.
pub struct Piece {
    board: &'static Board,
    pub offset: u64,
    pub range: Range,
}

impl Piece {
    fn new(board: &'static Board, bytes: u64) -> Option<Piece> {
        let mut space = board.space.lock().expect("no panic under this lock");
        let offset = space.take(bytes)?;
        let range = board.port.range(offset, bytes);
        Some(Piece {
            board,
            offset,
            range: range.expect("it lies in the window"),
        })
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut space = self.board.space.lock().expect("no panic under this lock");
        space.give_back(self.offset);
    }
}

pub struct Context {
    board: &'static Board,
}

pub struct Queue {
    pub board: &'static Board,
}

type Destroyed = (unsafe extern "C" fn(cl_mem, *mut c_void), usize);

/// A buffer, or a part of one.
pub struct Mem {
    pub piece: Arc<Piece>,
    /// In the piece.
    pub origin: usize,
    pub bytes: usize,
    destroyed: Mutex<Vec<Destroyed>>,
}

impl Mem {
    /// Its place in the window.
    pub fn offset(&self) -> u64 {
        self.piece.offset + self.origin as u64
    }

    /// Its bytes from `offset` on; `None` if they exceed it.
    pub fn part(&self, offset: usize, len: usize) -> Option<Range> {
        if offset > self.bytes || len > self.bytes - offset {
            return None;
        }
        let range = &self.piece.range;
        range.slice((self.origin + offset) as u64, len as u64)
    }
}

impl Drop for Mem {
    fn drop(&mut self) {
        let calls = std::mem::take(&mut *self.destroyed.lock().expect("no panic under this lock"));
        for (call, user) in calls.into_iter().rev() {
            // SAFETY: the caller of `clSetMemObjectDestructorCallback` promised that it may be called once.
            unsafe { call(std::ptr::from_mut(self).cast(), user as *mut c_void) };
        }
    }
}

/// An image in board memory, under this process's number.
struct Loaded {
    board: &'static Board,
    number: u32,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Fails only if the board has disconnected, which unloads the program too.
        let _ = self.board.port.unload(self.number);
    }
}

pub struct Program {
    board: &'static Board,
    /// The image as passed; empty: source, which no board can build.
    file: Vec<u8>,
    description: Description,
    loaded: Mutex<Option<Loaded>>,
    log: Mutex<String>,
}

impl Program {
    /// Brings the image into board memory, if it is not there.
    fn build(&self) -> cl_int {
        let mut loaded = self.loaded.lock().expect("no panic under this lock");
        if self.file.is_empty() {
            return CL_COMPILER_NOT_AVAILABLE;
        }
        if loaded.is_some() {
            return CL_SUCCESS;
        }
        let (number, code) = match self.bring() {
            Ok(number) => (number, CL_SUCCESS),
            Err(error) => {
                *self.log.lock().expect("no panic under this lock") = super::chain(&error);
                (0, CL_BUILD_PROGRAM_FAILURE)
            }
        };
        *loaded = (code == CL_SUCCESS).then_some(Loaded {
            board: self.board,
            number,
        });
        code
    }

    fn bring(&self) -> Result<u32, port::Error> {
        let image = Image::parse(&self.file)?;
        let bytes = image.bytes.len() as u64;
        let piece = Piece::new(self.board, bytes).ok_or(port::Error::Window(bytes))?;
        self.board.port.load(&image, piece.offset)
    }

    fn is_built(&self) -> bool {
        let loaded = self.loaded.lock().expect("no panic under this lock");
        loaded.is_some()
    }

    /// The board's number for it.
    pub fn number(&self) -> Option<u32> {
        let loaded = self.loaded.lock().expect("no panic under this lock");
        loaded.as_ref().map(|loaded| loaded.number)
    }

    /// Cycles that a call may take.
    pub fn timeout(&self) -> u32 {
        self.description.timeout
    }
}

/// The value of a kernel's argument.
#[derive(Clone, Copy)]
pub enum Arg {
    Nothing,
    /// A buffer's handle, which the launching code keeps alive.
    Memory(usize),
    Scalar(u32),
}

pub struct Kernel {
    pub program: Arc<Program>,
    pub args: Mutex<Vec<Arg>>,
}

/// A command that is complete: submitted, started, ended.
pub struct Event {
    pub submitted_ns: u64,
    pub started_ns: u64,
    pub ended_ns: u64,
}

pub fn fill(api: &mut cl_icd_dispatch) {
    api.clCreateContext = Some(create_context);
    api.clReleaseContext = Some(release::<Context, _>);
    api.clCreateCommandQueue = Some(create_queue);
    api.clReleaseCommandQueue = Some(release::<Queue, _>);
    api.clCreateBuffer = Some(create_buffer);
    api.clCreateSubBuffer = Some(create_sub_buffer);
    api.clReleaseMemObject = Some(release::<Mem, _>);
    api.clGetMemObjectInfo = Some(mem_info);
    api.clSetMemObjectDestructorCallback = Some(on_destroyed);
    api.clCreateProgramWithSource = Some(program_with_source);
    api.clCreateProgramWithBinary = Some(program_with_binary);
    api.clBuildProgram = Some(build_program);
    api.clGetProgramInfo = Some(program_info);
    api.clGetProgramBuildInfo = Some(program_build_info);
    api.clReleaseProgram = Some(release::<Program, _>);
    api.clCreateKernel = Some(create_kernel);
    api.clSetKernelArg = Some(set_kernel_arg);
    api.clGetKernelInfo = Some(kernel_info);
    api.clGetKernelArgInfo = Some(kernel_arg_info);
    api.clGetKernelWorkGroupInfo = Some(work_group_info);
    api.clReleaseKernel = Some(release::<Kernel, _>);
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
unsafe fn made<T, H>(result: Result<T, cl_int>, code: *mut cl_int) -> *mut H {
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

/// One more reference to an object.
///
/// # Safety
/// `handle` is a live `T`'s, from [`handle`].
unsafe fn shared<T, H>(handle: *mut H) -> Arc<T> {
    let raw = handle.cast::<T>().cast_const();
    // SAFETY: the caller's promise.
    unsafe {
        Arc::increment_strong_count(raw);
        Arc::from_raw(raw)
    }
}

unsafe extern "C" fn release<T, H>(handle: *mut H) -> cl_int {
    // SAFETY: the executor gives up its one reference.
    drop(unsafe { Arc::from_raw(handle.cast::<T>().cast_const()) });
    CL_SUCCESS
}

unsafe extern "C" fn create_context(
    _: *const cl_context_properties,
    count: cl_uint,
    devices: *const cl_device_id,
    _: Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>,
    _: *mut c_void,
    code: *mut cl_int,
) -> cl_context {
    // SAFETY: OpenCL's promise: `devices` has `count` entries, which are the leaked board.
    unsafe {
        let result = match count {
            0 => Err(CL_INVALID_VALUE),
            _ => Ok(Context {
                board: object(*devices),
            }),
        };
        made(result, code)
    }
}

unsafe extern "C" fn create_queue(
    context: cl_context,
    _: cl_device_id,
    properties: cl_command_queue_properties,
    code: *mut cl_int,
) -> cl_command_queue {
    // SAFETY: a live context.
    unsafe {
        let context: &Context = object(context);
        let known = CL_QUEUE_PROFILING_ENABLE as u64;
        let result = match properties & !known {
            0 => Ok(Queue {
                board: context.board,
            }),
            _ => Err(CL_INVALID_QUEUE_PROPERTIES),
        };
        made(result, code)
    }
}

unsafe extern "C" fn create_buffer(
    context: cl_context,
    flags: cl_mem_flags,
    size: usize,
    host: *mut c_void,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: a live context; `host` has `size` bytes if the flags require it.
    unsafe {
        let context: &Context = object(context);
        let uses_host = flags & CL_MEM_USE_HOST_PTR as u64 != 0;
        let piece = Piece::new(context.board, size as u64);
        let result = match piece {
            // The board reaches its window alone.
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
                    destroyed: Mutex::default(),
                })
            }
        };
        made(result, code)
    }
}

unsafe extern "C" fn create_sub_buffer(
    parent: cl_mem,
    _: cl_mem_flags,
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
    let mut calls = mem.destroyed.lock().expect("no panic under this lock");
    calls.push((call, user as usize));
    CL_SUCCESS
}

unsafe extern "C" fn program_with_source(
    context: cl_context,
    _: cl_uint,
    _: *mut *const c_char,
    _: *const usize,
    code: *mut cl_int,
) -> cl_program {
    // SAFETY: a live context.
    unsafe {
        let context: &Context = object(context);
        let program = Program {
            board: context.board,
            file: Vec::new(),
            description: Description::default(),
            loaded: Mutex::default(),
            log: Mutex::default(),
        };
        made(Ok(program), code)
    }
}

unsafe extern "C" fn program_with_binary(
    context: cl_context,
    _: cl_uint,
    _: *const cl_device_id,
    lengths: *const usize,
    binaries: *mut *const u8,
    status: *mut cl_int,
    code: *mut cl_int,
) -> cl_program {
    // SAFETY: a live context; the lists have an entry for the one device that there is.
    unsafe {
        let context: &Context = object(context);
        let file = std::slice::from_raw_parts(*binaries, *lengths);
        let about = &context.board.port.about;
        let described = Image::parse(file).and_then(|image| {
            image.suits(about.shell, about.regions)?;
            Ok(image.description)
        });
        let result = match described {
            Ok(Some(description)) => Ok(Program {
                board: context.board,
                file: file.to_vec(),
                description,
                loaded: Mutex::default(),
                log: Mutex::default(),
            }),
            Ok(None) => {
                tracing::info!(
                    "image refused: it does not name its kernel (create it with image.py --name)"
                );
                Err(CL_INVALID_BINARY)
            }
            Err(error) => {
                tracing::info!(%error, "image refused");
                Err(CL_INVALID_BINARY)
            }
        };
        if !status.is_null() {
            *status = result.as_ref().err().copied().unwrap_or(CL_SUCCESS);
        }
        made(result, code)
    }
}

unsafe extern "C" fn build_program(
    program: cl_program,
    _: cl_uint,
    _: *const cl_device_id,
    _: *const c_char,
    _: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
    _: *mut c_void,
) -> cl_int {
    // SAFETY: a live program.
    let program: &Program = unsafe { object(program) };
    program.build()
}

unsafe extern "C" fn program_info(
    program: cl_program,
    param: cl_program_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: a live program; for the binaries `value` is a list of one pointer to the requested
    // number of bytes.
    unsafe {
        let program: &Program = object(program);
        let number = |n: usize| Some(n.to_ne_bytes().to_vec());
        let name = if program.is_built() {
            program.description.name.as_str()
        } else {
            ""
        };
        let answer = match param as i32 {
            CL_PROGRAM_NUM_DEVICES => Some(1u32.to_ne_bytes().to_vec()),
            CL_PROGRAM_BINARY_SIZES => number(program.file.len()),
            CL_PROGRAM_NUM_KERNELS => number(usize::from(!name.is_empty())),
            CL_PROGRAM_KERNEL_NAMES => Some(zero_terminated(name)),
            CL_PROGRAM_BINARIES if !value.is_null() => {
                let place = *value.cast::<*mut u8>();
                if !place.is_null() {
                    let file = &program.file;
                    std::ptr::copy_nonoverlapping(file.as_ptr(), place, file.len());
                }
                return CL_SUCCESS;
            }
            _ => None,
        };
        give_or_refuse(answer, size, value, needed)
    }
}

unsafe extern "C" fn program_build_info(
    program: cl_program,
    _: cl_device_id,
    param: cl_program_build_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: a live program; the rest is OpenCL's promise.
    unsafe {
        let program: &Program = object(program);
        let log = program.log.lock().expect("no panic under this lock");
        let built = program.is_built();
        let status = match (built, log.is_empty()) {
            (true, _) => CL_BUILD_SUCCESS,
            (false, true) => CL_BUILD_NONE,
            (false, false) => CL_BUILD_ERROR,
        };
        let kind = if built {
            CL_PROGRAM_BINARY_TYPE_EXECUTABLE
        } else {
            CL_PROGRAM_BINARY_TYPE_NONE
        };
        let answer = match param as i32 {
            CL_PROGRAM_BUILD_STATUS => status.to_ne_bytes().to_vec(),
            CL_PROGRAM_BINARY_TYPE => kind.to_ne_bytes().to_vec(),
            CL_PROGRAM_BUILD_LOG => zero_terminated(&log),
            CL_PROGRAM_BUILD_OPTIONS => zero_terminated(""),
            _ => return CL_INVALID_VALUE,
        };
        give(&answer, size, value, needed)
    }
}

unsafe extern "C" fn create_kernel(
    program: cl_program,
    name: *const c_char,
    code: *mut cl_int,
) -> cl_kernel {
    // SAFETY: a live program and a C string.
    unsafe {
        let program: Arc<Program> = shared(program);
        let known = CStr::from_ptr(name).to_bytes() == program.description.name.as_bytes();
        let count = BUFFER_ARGS + program.description.scalars.len();
        let result = match (program.is_built(), known) {
            (false, _) => Err(CL_INVALID_PROGRAM_EXECUTABLE),
            (true, false) => Err(CL_INVALID_KERNEL_NAME),
            (true, true) => Ok(Kernel {
                program,
                args: Mutex::new(vec![Arg::Nothing; count]),
            }),
        };
        made(result, code)
    }
}

unsafe extern "C" fn set_kernel_arg(
    kernel: cl_kernel,
    at: cl_uint,
    size: usize,
    value: *const c_void,
) -> cl_int {
    // SAFETY: a live kernel; `value` is null or has `size` bytes.
    unsafe {
        let kernel: &Kernel = object(kernel);
        let mut args = kernel.args.lock().expect("no panic under this lock");
        let at = at as usize;
        if at >= args.len() {
            return CL_INVALID_ARG_INDEX;
        }
        let is_buffer = at < BUFFER_ARGS;
        let wanted = if is_buffer { size_of::<cl_mem>() } else { 4 };
        if size != wanted {
            return CL_INVALID_ARG_SIZE;
        }
        if value.is_null() {
            return CL_INVALID_ARG_VALUE;
        }
        args[at] = if is_buffer {
            Arg::Memory(value.cast::<usize>().read_unaligned())
        } else {
            Arg::Scalar(value.cast::<u32>().read_unaligned())
        };
        CL_SUCCESS
    }
}

unsafe extern "C" fn kernel_info(
    kernel: cl_kernel,
    param: cl_kernel_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: a live kernel; the rest is OpenCL's promise.
    unsafe {
        let kernel: &Kernel = object(kernel);
        let about = &kernel.program.description;
        let count = (BUFFER_ARGS + about.scalars.len()) as u32;
        let answer = match param as i32 {
            CL_KERNEL_NUM_ARGS => Some(count.to_ne_bytes().to_vec()),
            CL_KERNEL_FUNCTION_NAME => Some(zero_terminated(&about.name)),
            CL_KERNEL_ATTRIBUTES => Some(zero_terminated("")),
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
    unsafe {
        let kernel: &Kernel = object(kernel);
        let scalars = &kernel.program.description.scalars;
        let at = at as usize;
        let (name, kind) = match at {
            0 => ("body", "uchar*"),
            1 => ("answer", "uchar*"),
            _ => match scalars.get(at - BUFFER_ARGS) {
                Some(name) => (name.as_str(), "uint"),
                None => return CL_INVALID_ARG_INDEX,
            },
        };
        let address = if at < BUFFER_ARGS {
            CL_KERNEL_ARG_ADDRESS_GLOBAL
        } else {
            CL_KERNEL_ARG_ADDRESS_PRIVATE
        };
        let qualifier = match at {
            0 => CL_KERNEL_ARG_TYPE_CONST as u64,
            _ => CL_KERNEL_ARG_TYPE_NONE as u64,
        };
        let answer = match param as i32 {
            CL_KERNEL_ARG_ADDRESS_QUALIFIER => (address as u32).to_ne_bytes().to_vec(),
            CL_KERNEL_ARG_ACCESS_QUALIFIER => {
                (CL_KERNEL_ARG_ACCESS_NONE as u32).to_ne_bytes().to_vec()
            }
            CL_KERNEL_ARG_TYPE_QUALIFIER => qualifier.to_ne_bytes().to_vec(),
            CL_KERNEL_ARG_TYPE_NAME => zero_terminated(kind),
            CL_KERNEL_ARG_NAME => zero_terminated(name),
            _ => return CL_INVALID_VALUE,
        };
        give(&answer, size, value, needed)
    }
}

unsafe extern "C" fn work_group_info(
    _: cl_kernel,
    _: cl_device_id,
    param: cl_kernel_work_group_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    let answer = match param as i32 {
        CL_KERNEL_WORK_GROUP_SIZE => 1024usize.to_ne_bytes().to_vec(),
        CL_KERNEL_COMPILE_WORK_GROUP_SIZE => vec![0; 3 * size_of::<usize>()],
        CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE => 1usize.to_ne_bytes().to_vec(),
        CL_KERNEL_LOCAL_MEM_SIZE | CL_KERNEL_PRIVATE_MEM_SIZE => vec![0; 8],
        _ => return CL_INVALID_VALUE,
    };
    // SAFETY: OpenCL's promise.
    unsafe { give(&answer, size, value, needed) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_pieces_never_overlap_and_gaps_are_used_again() {
        let mut space = Space::new(10 * ALIGNMENT);
        let places: Vec<u64> = (0..5)
            .map(|_| space.take(2 * ALIGNMENT - 1).unwrap())
            .collect();
        assert_eq!(places, [0, 2, 4, 6, 8].map(|n| n * ALIGNMENT));
        assert_eq!(space.take(1), None);
        space.give_back(places[1]);
        space.give_back(places[2]);
        assert_eq!(space.take(4 * ALIGNMENT), Some(places[1]));
        space.give_back(places[0]);
        assert_eq!(space.take(3 * ALIGNMENT), None);
        assert_eq!(space.take(0), Some(0));
        assert_eq!(space.take(u64::MAX), None);
    }
}
