//! Programs and kernels: images of regions.

use super::{Board, BoardDevice};
use crate::driver::builtin::objects::{made, release, shared, Context};
use crate::driver::builtin::{chain, give, give_or_refuse, object, zero_terminated};
use baltra_board::image::Description;
use baltra_board::{port, Image};
use baltra_opencl::*;
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

pub struct Program {
    board: &'static BoardDevice,
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
                *self.log.lock().expect("no panic under this lock") = chain(&error);
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
        self.board.own.port.load(&image, piece.offset)
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

/// Adds this module's functions to a dispatch table.
pub fn fill(api: &mut cl_icd_dispatch) {
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
        let context: &Context<Board> = object(context);
        let program = Program {
            board: context.device,
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
        let context: &Context<Board> = object(context);
        let file = std::slice::from_raw_parts(*binaries, *lengths);
        let about = &context.device.own.port.about;
        let described = Image::parse(file).and_then(|image| {
            image.suits(about.shell, about.regions)?;
            Ok(image.description)
        });
        let result = match described {
            Ok(Some(description)) => Ok(Program {
                board: context.device,
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
