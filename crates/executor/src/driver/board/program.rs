//! Programs and kernels: images of regions, and OpenCL C (as on emulated accelerators).

use super::board_program::BoardProgram;
use super::device::{Board, BoardDevice};
use crate::driver::builtin::objects::{made, release, Context};
use crate::driver::builtin::{self, chain, give, give_or_refuse, object, zero_terminated};
use crate::driver::emulate::device::WORK_GROUP_ITEMS;
use crate::driver::emulate::library::in_memory;
use crate::driver::emulate::program::{Circuits, Input};
use crate::driver::emulate::{compiler, kernel as compiled, program as source};
use baltra_board::accelerator::object::MAGIC as OBJECT_MAGIC;
use baltra_board::image::Description;
use baltra_board::{port, Image};
use baltra_opencl::*;
use baltra_ring::Locked;
use std::borrow::Cow;
use std::ffi::{c_char, c_void, CStr};
use std::sync::{Arc, Mutex};

/// Buffers and image argument, in that order; then scalars.
pub const BUFFER_ARGS: usize = 2;

/// An image in board memory, under this process's number.
struct Loaded {
    board: &'static BoardDevice,
    number: u32,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Fails only if the board has disconnected, which unloads the program too.
        let _ = self.board.own.port.unload(self.number);
    }
}

/// A program.
pub enum Program {
    /// An image of a region.
    Image(Arc<ImageProgram>),
    /// OpenCL C, or an image of it.
    Compiled(Box<source::Program>),
    /// OpenCL C that this installation cannot compile.
    Source,
}

/// A program that is an image of a region.
pub struct ImageProgram {
    board: &'static BoardDevice,
    /// The image as passed.
    file: Vec<u8>,
    description: Description,
    loaded: Mutex<Option<Loaded>>,
    log: Mutex<String>,
}

impl ImageProgram {
    /// Brings the image into board memory, if it is not there.
    fn build(&self) -> cl_int {
        let mut loaded = self.loaded.locked();
        if loaded.is_some() {
            return CL_SUCCESS;
        }
        let (number, code) = match self.bring() {
            Ok(number) => (number, CL_SUCCESS),
            Err(error) => {
                *self.log.locked() = chain(&error);
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
        let piece = self
            .board
            .memory
            .take(bytes)
            .ok_or(port::Error::Window(bytes))?;
        let number = self.board.own.port.load(&image, piece.offset)?;
        let digest = crate::images::digest(&self.file);
        self.board.own.note_loaded(&image, digest);
        Ok(number)
    }

    fn is_built(&self) -> bool {
        let loaded = self.loaded.locked();
        loaded.is_some()
    }

    /// The board's number for it.
    pub fn number(&self) -> Option<u32> {
        let loaded = self.loaded.locked();
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

/// A kernel.
pub enum Kernel {
    /// That of an image.
    Image(ImageKernel),
    /// One of OpenCL C.
    Compiled(compiled::Kernel),
}

/// The kernel of an image.
pub struct ImageKernel {
    pub program: Arc<ImageProgram>,
    pub args: Mutex<Vec<Arg>>,
}

/// Adds this module's functions to a dispatch table.
pub fn fill(api: &mut cl_icd_dispatch) {
    api.clCreateProgramWithSource = Some(program_with_source);
    api.clCreateProgramWithBinary = Some(program_with_binary);
    api.clBuildProgram = Some(build_program);
    api.clCompileProgram = Some(compile_program);
    api.clLinkProgram = Some(link_program);
    api.clGetProgramInfo = Some(program_info);
    api.clGetProgramBuildInfo = Some(program_build_info);
    api.clReleaseProgram = Some(release::<Program, _>);
    api.clCreateKernel = Some(create_kernel);
    api.clSetKernelArg = Some(set_kernel_arg);
    api.clGetKernelInfo = Some(kernel_info);
    api.clGetKernelArgInfo = Some(kernel_arg_info);
    api.clGetKernelWorkGroupInfo = Some(work_group_info);
    api.clReleaseKernel = Some(release::<Kernel, _>);
}

/// A program with OpenCL C; `None`: there is no compiler.
fn compiled_program(board: &'static BoardDevice, input: Input) -> Option<Program> {
    let tools = board.own.tools.as_ref()?;
    let load: source::Load = Box::new(move |library, manifest| {
        let file = in_memory(library).map_err(|error| error.to_string())?;
        Ok(Circuits::Board(BoardProgram::new(board, file, manifest)?))
    });
    let program = source::Program::new(tools, load, input);
    Some(Program::Compiled(Box::new(program)))
}

unsafe extern "C" fn program_with_source(
    context: cl_context,
    count: cl_uint,
    strings: *mut *const c_char,
    lengths: *const usize,
    code: *mut cl_int,
) -> cl_program {
    // SAFETY: a live context; the rest is OpenCL's promise.
    unsafe {
        let context: &Context<Board> = object(context);
        let input = Input::Source(source::joined(count, strings, lengths));
        let program = compiled_program(context.device, input);
        made(Ok(program.unwrap_or(Program::Source)), code)
    }
}

/// The program of an image: of a region, or of an accelerator that this device's compiler has made.
/// The live model runs an accelerator's library as it is, so that it must not come from elsewhere.
fn binary(board: &'static BoardDevice, file: &[u8]) -> Result<Program, Cow<'static, str>> {
    if file.starts_with(OBJECT_MAGIC) {
        let input = Input::of_binary(file)?;
        let program = compiled_program(board, input);
        return program.ok_or_else(|| "there is no compiler".into());
    }
    if file.starts_with(b"BLAC") {
        if !compiler::is_kept(file) {
            return Err("it was not compiled by this device: use the source".into());
        }
        let program = compiled_program(board, Input::Image(file.to_vec()));
        return program.ok_or_else(|| "there is no compiler".into());
    }
    let about = &board.own.port.about;
    let image = Image::parse(file).map_err(|error| chain(&error))?;
    image
        .suits(about.shell, about.regions)
        .map_err(|error| chain(&error))?;
    let description = image
        .description
        .ok_or("it does not name its kernel (create it with image.py --name)")?;
    Ok(Program::Image(Arc::new(ImageProgram {
        board,
        file: file.to_vec(),
        description,
        loaded: Mutex::default(),
        log: Mutex::default(),
    })))
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
        let context: &Context<Board> = object(context);
        let file = std::slice::from_raw_parts(*binaries, *lengths);
        let result = binary(context.device, file).map_err(|error| {
            builtin::refuse_image(&error);
            CL_INVALID_BINARY
        });
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
    options: *const c_char,
    _: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
    _: *mut c_void,
) -> cl_int {
    // SAFETY: a live program; `options` is null or a C string.
    unsafe {
        match object(program) {
            Program::Image(program) => program.build(),
            Program::Compiled(program) => program.build(&source::text(options)),
            Program::Source => CL_COMPILER_NOT_AVAILABLE,
        }
    }
}

unsafe extern "C" fn compile_program(
    program: cl_program,
    _: cl_uint,
    _: *const cl_device_id,
    options: *const c_char,
    count: cl_uint,
    headers: *const cl_program,
    names: *mut *const c_char,
    _: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
    _: *mut c_void,
) -> cl_int {
    // SAFETY: live programs; the lists have `count` entries; `options` is null or a C string.
    unsafe {
        let program = match of_source(program) {
            Ok(program) => program,
            Err(code) => return code,
        };
        let mut included = Vec::new();
        for at in 0..count as usize {
            match of_source(*headers.add(at)) {
                Ok(header) => included.push((source::text(*names.add(at)), header)),
                Err(code) => return code,
            }
        }
        program.compile(&source::text(options), &included)
    }
}

/// A program of OpenCL C.
///
/// # Safety
/// A live program.
unsafe fn of_source<'a>(program: cl_program) -> Result<&'a source::Program, cl_int> {
    // SAFETY: the caller's promise.
    match unsafe { object(program) } {
        Program::Compiled(program) => Ok(program),
        Program::Image(_) => Err(CL_INVALID_OPERATION),
        Program::Source => Err(CL_COMPILER_NOT_AVAILABLE),
    }
}

unsafe extern "C" fn link_program(
    context: cl_context,
    _: cl_uint,
    _: *const cl_device_id,
    options: *const c_char,
    count: cl_uint,
    inputs: *const cl_program,
    _: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
    _: *mut c_void,
    code: *mut cl_int,
) -> cl_program {
    // SAFETY: a live context and `count` live programs; `options` is null or a C string.
    unsafe {
        let context: &Context<Board> = object(context);
        let inputs = (0..count as usize).map(|at| of_source(*inputs.add(at)));
        let linked = inputs.collect::<Result<Vec<_>, _>>().and_then(|inputs| {
            let program = compiled_program(context.device, Input::Linked);
            let program = program.ok_or(CL_LINKER_NOT_AVAILABLE)?;
            let linked = match &program {
                Program::Compiled(program) => program.link(&source::text(options), &inputs),
                _ => CL_INVALID_OPERATION,
            };
            Ok((program, linked))
        });
        match linked {
            Ok((program, linked)) => source::give_linked(program, linked, code),
            Err(error) => made(Err::<Program, _>(error), code),
        }
    }
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
        let program = match object(program) {
            Program::Image(program) => program,
            Program::Compiled(program) => return source::info(program, param, size, value, needed),
            Program::Source => return CL_INVALID_VALUE,
        };
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
        let program = match object(program) {
            Program::Image(program) => program,
            Program::Compiled(program) => {
                return source::build_info(program, param, size, value, needed)
            }
            Program::Source => return unbuilt_info(param, size, value, needed),
        };
        let log = program.log.locked();
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

/// `clGetProgramBuildInfo` of a program that cannot be built.
///
/// # Safety
/// As [`give`].
unsafe fn unbuilt_info(
    param: cl_program_build_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    let answer = match param as i32 {
        CL_PROGRAM_BUILD_STATUS => CL_BUILD_NONE.to_ne_bytes().to_vec(),
        CL_PROGRAM_BINARY_TYPE => CL_PROGRAM_BINARY_TYPE_NONE.to_ne_bytes().to_vec(),
        CL_PROGRAM_BUILD_LOG | CL_PROGRAM_BUILD_OPTIONS => zero_terminated(""),
        _ => return CL_INVALID_VALUE,
    };
    // SAFETY: the caller's promise.
    unsafe { give(&answer, size, value, needed) }
}

unsafe extern "C" fn create_kernel(
    program: cl_program,
    name: *const c_char,
    code: *mut cl_int,
) -> cl_kernel {
    // SAFETY: a live program and a C string.
    unsafe {
        let name = CStr::from_ptr(name);
        let program = match object(program) {
            Program::Image(program) => program.clone(),
            Program::Compiled(program) => {
                let kernel = compiled::Kernel::new(program, name);
                return made(kernel.map(Kernel::Compiled), code);
            }
            Program::Source => return made(Err::<Kernel, _>(CL_INVALID_PROGRAM_EXECUTABLE), code),
        };
        let known = name.to_bytes() == program.description.name.as_bytes();
        let count = BUFFER_ARGS + program.description.scalars.len();
        let result = match (program.is_built(), known) {
            (false, _) => Err(CL_INVALID_PROGRAM_EXECUTABLE),
            (true, false) => Err(CL_INVALID_KERNEL_NAME),
            (true, true) => Ok(Kernel::Image(ImageKernel {
                program,
                args: Mutex::new(vec![Arg::Nothing; count]),
            })),
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
        let kernel = match object(kernel) {
            Kernel::Image(kernel) => kernel,
            Kernel::Compiled(kernel) => {
                let set = kernel.set(at as usize, size, value);
                return set.err().unwrap_or(CL_SUCCESS);
            }
        };
        let mut args = kernel.args.locked();
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
        let kernel = match object(kernel) {
            Kernel::Image(kernel) => kernel,
            Kernel::Compiled(kernel) => return compiled::info(kernel, param, size, value, needed),
        };
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
        let kernel = match object(kernel) {
            Kernel::Image(kernel) => kernel,
            Kernel::Compiled(kernel) => {
                return compiled::arg_info(kernel, at, param, size, value, needed)
            }
        };
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
    kernel: cl_kernel,
    _: cl_device_id,
    param: cl_kernel_work_group_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: a live kernel; the rest is OpenCL's promise.
    if let Kernel::Compiled(kernel) = unsafe { object(kernel) } {
        // SAFETY: as above.
        return unsafe { compiled::group_info(kernel, param, size, value, needed) };
    }
    let answer = match param as i32 {
        CL_KERNEL_WORK_GROUP_SIZE => WORK_GROUP_ITEMS.to_ne_bytes().to_vec(),
        CL_KERNEL_COMPILE_WORK_GROUP_SIZE => vec![0; 3 * size_of::<usize>()],
        CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE => 1usize.to_ne_bytes().to_vec(),
        CL_KERNEL_LOCAL_MEM_SIZE | CL_KERNEL_PRIVATE_MEM_SIZE => vec![0; 8],
        _ => return CL_INVALID_VALUE,
    };
    // SAFETY: OpenCL's promise.
    unsafe { give(&answer, size, value, needed) }
}
