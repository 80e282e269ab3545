//! Programs: source that is compiled when it is built, or an image. Boards have the same ones.

use super::compiler::{self, Compiled};
use super::device::Emulator;
use super::library::Library;
use super::tools::Tools;
use crate::driver::board::brought::Brought;
use crate::driver::builtin::objects::{made, release, Context};
use crate::driver::builtin::{self, chain, give, give_or_refuse, object, zero_terminated};
use crate::driver::cancel;
use baltra_board::accelerator::manifest::{self, Manifest};
use baltra_board::accelerator::Image;
use baltra_opencl::*;
use baltra_ring::Locked;
use std::ffi::{c_char, c_void, CStr};
use std::sync::{Arc, Mutex};

/// Where a program's circuits run.
pub enum Circuits {
    /// In this process.
    Library(Library),
    /// In regions of a board.
    Board(Brought),
}

/// Makes the circuits of a library with these kernels.
pub type Load = Box<dyn Fn(&[u8], &Manifest) -> Result<Circuits, String> + Send + Sync>;

/// A built program's kernels.
pub struct Executable {
    /// The image as a file.
    file: Vec<u8>,
    manifest: Manifest,
    /// The circuits.
    pub circuits: Circuits,
}

impl Executable {
    fn load(file: Vec<u8>, load: &Load) -> Result<Executable, String> {
        let image = Image::parse(&file).map_err(|error| chain(&error))?;
        let manifest = Manifest::parse(&image.manifest).map_err(|error| chain(&error))?;
        let circuits = load(&image.library, &manifest)?;
        Ok(Executable {
            file,
            manifest,
            circuits,
        })
    }

    /// A kernel's description.
    pub fn kernel(&self, name: &str) -> Option<&manifest::Kernel> {
        self.manifest.kernels.iter().find(|k| k.name == name)
    }
}

/// What a program is made of.
pub enum Input {
    /// OpenCL C.
    Source(Vec<u8>),
    /// An image as a file, which has been parsed.
    Image(Vec<u8>),
}

/// Result of the last build.
#[derive(Default)]
struct Build {
    /// `None`: it has not been built.
    status: Option<cl_int>,
    log: String,
    executable: Option<Arc<Executable>>,
}

/// A program.
pub struct Program {
    tools: &'static Tools,
    load: Load,
    input: Input,
    build: Mutex<Build>,
}

impl Program {
    /// A program that has not been built.
    pub fn new(tools: &'static Tools, load: Load, input: Input) -> Program {
        Program {
            tools,
            load,
            input,
            build: Mutex::default(),
        }
    }

    fn here(tools: &'static Tools, input: Input) -> Program {
        let load = |library: &[u8], _: &Manifest| {
            let library = Library::load(library).map_err(|error| chain(&error))?;
            Ok(Circuits::Library(library))
        };
        Program::new(tools, Box::new(load), input)
    }

    /// Compiles and loads it.
    pub fn build(&self, options: &str) -> cl_int {
        let compiled = match &self.input {
            Input::Image(file) => Ok(Compiled {
                image: file.clone(),
                log: String::new(),
            }),
            Input::Source(source) => {
                compiler::compile(self.tools, source, options, &cancel::is_requested)
            }
        };
        let built = compiled.and_then(|compiled| {
            let executable = Executable::load(compiled.image, &self.load)?;
            Ok((Arc::new(executable), compiled.log))
        });
        let mut build = self.build.locked();
        let (next, code) = match built {
            Ok((executable, log)) => {
                let build = Build {
                    status: Some(CL_BUILD_SUCCESS),
                    log,
                    executable: Some(executable),
                };
                (build, CL_SUCCESS)
            }
            Err(log) => {
                let build = Build {
                    status: Some(CL_BUILD_ERROR),
                    log,
                    executable: None,
                };
                (build, CL_BUILD_PROGRAM_FAILURE)
            }
        };
        *build = next;
        code
    }

    /// The kernels; `None`: it is not built.
    pub fn executable(&self) -> Option<Arc<Executable>> {
        let build = self.build.locked();
        build.executable.clone()
    }

    /// The image; empty: there is none yet.
    fn binary(&self) -> Vec<u8> {
        match (&self.input, self.executable()) {
            (Input::Image(file), _) => file.clone(),
            (Input::Source(_), Some(executable)) => executable.file.clone(),
            (Input::Source(_), None) => Vec::new(),
        }
    }
}

/// Adds this module's functions to a dispatch table.
pub fn fill(api: &mut cl_icd_dispatch) {
    api.clCreateProgramWithSource = Some(program_with_source);
    api.clCreateProgramWithBinary = Some(program_with_binary);
    api.clBuildProgram = Some(build_program);
    api.clGetProgramInfo = Some(program_info);
    api.clGetProgramBuildInfo = Some(program_build_info);
    api.clReleaseProgram = Some(release::<Program, _>);
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
        let context: &Context<Emulator> = object(context);
        let source = Input::Source(joined(count, strings, lengths));
        made(Ok(Program::here(&context.device.own.tools, source)), code)
    }
}

/// The whole source of `clCreateProgramWithSource`.
///
/// # Safety
/// The lists have `count` entries, or `lengths` is null. A length of zero means that the string ends
/// with a zero byte.
pub unsafe fn joined(
    count: cl_uint,
    strings: *mut *const c_char,
    lengths: *const usize,
) -> Vec<u8> {
    let mut source = Vec::new();
    for at in 0..count as usize {
        // SAFETY: the caller's promise.
        source.extend_from_slice(unsafe {
            let text = *strings.add(at);
            let length = if lengths.is_null() {
                0
            } else {
                *lengths.add(at)
            };
            match length {
                0 => CStr::from_ptr(text).to_bytes(),
                _ => std::slice::from_raw_parts(text.cast(), length),
            }
        });
    }
    source
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
        let context: &Context<Emulator> = object(context);
        let file = std::slice::from_raw_parts(*binaries, *lengths);
        let checked = Image::parse(file).map_err(|error| chain(&error));
        let checked = checked.and_then(|image| {
            Manifest::parse(&image.manifest).map_err(|error| chain(&error))?;
            Ok(Program::here(
                &context.device.own.tools,
                Input::Image(file.to_vec()),
            ))
        });
        let result = checked.map_err(|error| {
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
        let program: &Program = object(program);
        let options = if options.is_null() {
            "".into()
        } else {
            CStr::from_ptr(options).to_string_lossy()
        };
        program.build(&options)
    }
}

unsafe extern "C" fn program_info(
    program: cl_program,
    param: cl_program_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: a live program; the rest is OpenCL's promise.
    unsafe { info(object(program), param, size, value, needed) }
}

/// `clGetProgramInfo`.
///
/// # Safety
/// As [`give`]; for the binaries `value` is a list of one pointer to the requested number of bytes.
pub unsafe fn info(
    program: &Program,
    param: cl_program_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: the caller's promise.
    unsafe {
        let number = |n: usize| Some(n.to_ne_bytes().to_vec());
        let executable = program.executable();
        let names = executable.iter().flat_map(|e| &e.manifest.kernels);
        let names: Vec<_> = names.map(|kernel| kernel.name.as_str()).collect();
        let answer = match param as i32 {
            CL_PROGRAM_NUM_DEVICES => Some(1u32.to_ne_bytes().to_vec()),
            CL_PROGRAM_BINARY_SIZES => number(program.binary().len()),
            CL_PROGRAM_NUM_KERNELS => number(names.len()),
            CL_PROGRAM_KERNEL_NAMES => Some(zero_terminated(&names.join(";"))),
            CL_PROGRAM_SOURCE => match &program.input {
                Input::Source(source) => Some([source.as_slice(), b"\0"].concat()),
                Input::Image(_) => Some(zero_terminated("")),
            },
            CL_PROGRAM_BINARIES if !value.is_null() => {
                let place = *value.cast::<*mut u8>();
                if !place.is_null() {
                    let file = program.binary();
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
    unsafe { build_info(object(program), param, size, value, needed) }
}

/// `clGetProgramBuildInfo`.
///
/// # Safety
/// As [`give`].
pub unsafe fn build_info(
    program: &Program,
    param: cl_program_build_info,
    size: usize,
    value: *mut c_void,
    needed: *mut usize,
) -> cl_int {
    // SAFETY: the caller's promise.
    unsafe {
        let build = program.build.locked();
        let kind = match build.executable {
            Some(_) => CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
            None => CL_PROGRAM_BINARY_TYPE_NONE,
        };
        let status = build.status.unwrap_or(CL_BUILD_NONE);
        let answer = match param as i32 {
            CL_PROGRAM_BUILD_STATUS => status.to_ne_bytes().to_vec(),
            CL_PROGRAM_BINARY_TYPE => kind.to_ne_bytes().to_vec(),
            CL_PROGRAM_BUILD_LOG => zero_terminated(&build.log),
            CL_PROGRAM_BUILD_OPTIONS => zero_terminated(""),
            _ => return CL_INVALID_VALUE,
        };
        give(&answer, size, value, needed)
    }
}
