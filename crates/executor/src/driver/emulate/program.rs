//! Programs: source that is compiled when it is built, or an image. Boards have the same ones.

use super::compiler::{self, Compiled, Output, Work};
use super::device::Emulator;
use super::library::Library;
use super::simulation::Simulation;
use super::tools::Tools;
use crate::driver::board::board_program::BoardProgram;
use crate::driver::builtin::objects::{made, release, Context};
use crate::driver::builtin::{self, chain, give, give_or_refuse, object, zero_terminated};
use crate::driver::cancel;
use baltra_board::accelerator::manifest::{self, Manifest};
use baltra_board::accelerator::object::{is_object, Kind, Object};
use baltra_board::accelerator::Image;
use baltra_opencl::*;
use baltra_ring::Locked;
use std::ffi::{c_char, c_void, CStr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The place where a program's circuits run.
pub enum Circuits {
    /// In this process.
    Library(Emulated),
    /// In regions of a board.
    Board(BoardProgram),
}

/// Circuits in this process.
#[derive(Clone)]
pub struct Emulated {
    /// Their models.
    pub library: Arc<Library>,
    /// Their descriptions.
    pub kernels: Arc<Vec<manifest::Kernel>>,
    /// The device's kernels that run.
    pub simulation: &'static Simulation,
}

/// Programs with channels. A session's state does not include their contents.
static WITH_CHANNELS: AtomicUsize = AtomicUsize::new(0);

/// Whether programs of this process have channels.
pub fn has_channels() -> bool {
    WITH_CHANNELS.load(Ordering::Relaxed) > 0
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
        let executable = Executable {
            file,
            manifest,
            circuits,
        };
        if executable.has_channels() {
            WITH_CHANNELS.fetch_add(1, Ordering::Relaxed);
        }
        Ok(executable)
    }

    fn has_channels(&self) -> bool {
        let mut kernels = self.manifest.kernels.iter();
        kernels.any(|kernel| !kernel.channels.is_empty())
    }

    /// A kernel's description.
    pub fn kernel(&self, name: &str) -> Option<&manifest::Kernel> {
        self.manifest.kernels.iter().find(|k| k.name == name)
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        if self.has_channels() {
            WITH_CHANNELS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The parts of a program.
pub enum Input {
    /// OpenCL C.
    Source(Vec<u8>),
    /// An image as a file, which has been parsed.
    Image(Vec<u8>),
    /// An object or a library as a file, which has been parsed.
    Object(Vec<u8>),
    /// Objects and libraries, by `clLinkProgram`.
    Linked,
}

impl Input {
    /// The input that a binary is.
    pub fn of_binary(file: &[u8]) -> Result<Input, String> {
        if is_object(file) {
            Object::parse(file).map_err(|error| chain(&error))?;
            return Ok(Input::Object(file.to_vec()));
        }
        let image = Image::parse(file).map_err(|error| chain(&error))?;
        Manifest::parse(&image.manifest).map_err(|error| chain(&error))?;
        Ok(Input::Image(file.to_vec()))
    }
}

/// The result of a program's build.
#[derive(Clone, Default)]
enum Built {
    #[default]
    Nothing,
    Executable(Arc<Executable>),
    /// An object or a library as a file.
    Object(Arc<Vec<u8>>),
}

/// Result of the last build.
#[derive(Default)]
struct Build {
    /// `None`: it has not been built.
    status: Option<cl_int>,
    log: String,
    built: Built,
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

    fn here(device: &'static Emulator, input: Input) -> Program {
        let load = |library: &[u8], manifest: &Manifest| {
            let library = Library::load(library).map_err(|error| chain(&error))?;
            Ok(Circuits::Library(Emulated {
                library: Arc::new(library),
                kernels: Arc::new(manifest.kernels.clone()),
                simulation: &device.simulation,
            }))
        };
        Program::new(&device.tools, Box::new(load), input)
    }

    /// Compiles and loads it.
    pub fn build(&self, options: &str) -> cl_int {
        let compiled = match &self.input {
            Input::Image(file) => Ok(Compiled {
                image: file.clone(),
                log: String::new(),
            }),
            Input::Source(source) => self.run(&[source], &[], options, Output::Image),
            Input::Object(_) => Err("error: an object is not executable: link it\n".into()),
            Input::Linked => return CL_INVALID_OPERATION,
        };
        self.end(self.executable_of(compiled), CL_BUILD_PROGRAM_FAILURE)
    }

    /// `clCompileProgram`, with the programs that it includes by these names.
    pub fn compile(&self, options: &str, headers: &[(String, &Program)]) -> cl_int {
        let Input::Source(source) = &self.input else {
            return CL_INVALID_OPERATION;
        };
        let mut files = Vec::new();
        for (name, header) in headers {
            let Input::Source(text) = &header.input else {
                return CL_INVALID_PROGRAM;
            };
            files.push((name.clone(), text.as_slice()));
        }
        let compiled = self.run(&[source], &files, options, Output::Object);
        self.end(object_of(compiled), CL_COMPILE_PROGRAM_FAILURE)
    }

    /// `clLinkProgram`: makes this program of the objects of others.
    pub fn link(&self, options: &str, inputs: &[&Program]) -> cl_int {
        let mut output = Output::Image;
        for option in options.split_whitespace() {
            match option {
                "-create-library" => output = Output::Library,
                option if LINK_OPTIONS.contains(&option) => {}
                _ => return CL_INVALID_LINKER_OPTIONS,
            }
        }
        let objects: Option<Vec<_>> = inputs.iter().map(|program| program.object()).collect();
        let Some(objects) = objects.filter(|objects| !objects.is_empty()) else {
            return CL_INVALID_OPERATION;
        };
        let files: Vec<&[u8]> = objects.iter().map(|object| object.as_slice()).collect();
        let linked = self.run(&files, &[], "", output);
        let built = match output {
            Output::Image => self.executable_of(linked),
            _ => object_of(linked),
        };
        self.end(built, CL_LINK_PROGRAM_FAILURE)
    }

    fn run(
        &self,
        inputs: &[&[u8]],
        headers: &[(String, &[u8])],
        options: &str,
        output: Output,
    ) -> Result<Compiled, String> {
        let work = Work {
            inputs,
            headers,
            options,
            output,
        };
        compiler::compile(self.tools, &work, &cancel::is_requested)
    }

    /// Loads a compiled image; also returns the compiler's log.
    fn executable_of(&self, compiled: Result<Compiled, String>) -> Result<(Built, String), String> {
        let compiled = compiled?;
        let executable = Executable::load(compiled.image, &self.load)?;
        Ok((Built::Executable(Arc::new(executable)), compiled.log))
    }

    /// Keeps the result of a build; `failure` is the code of one that has failed.
    fn end(&self, result: Result<(Built, String), String>, failure: cl_int) -> cl_int {
        let mut build = self.build.locked();
        let (status, built, log, code) = match result {
            Ok((built, log)) => (CL_BUILD_SUCCESS, built, log, CL_SUCCESS),
            Err(log) => (CL_BUILD_ERROR, Built::Nothing, log, failure),
        };
        *build = Build {
            status: Some(status),
            log,
            built,
        };
        code
    }

    fn built(&self) -> Built {
        let build = self.build.locked();
        build.built.clone()
    }

    /// The kernels; `None`: it is not an executable.
    pub fn executable(&self) -> Option<Arc<Executable>> {
        match self.built() {
            Built::Executable(executable) => Some(executable),
            _ => None,
        }
    }

    /// The object or library as a file, if it is one.
    fn object(&self) -> Option<Arc<Vec<u8>>> {
        match (self.built(), &self.input) {
            (Built::Object(file), _) => Some(file),
            (Built::Nothing, Input::Object(file)) => Some(Arc::new(file.clone())),
            _ => None,
        }
    }

    /// The image or the object; empty: there is none yet.
    fn binary(&self) -> Vec<u8> {
        match (&self.input, self.built()) {
            (Input::Image(file) | Input::Object(file), _) => file.clone(),
            (_, Built::Executable(executable)) => executable.file.clone(),
            (_, Built::Object(file)) => file.to_vec(),
            (_, Built::Nothing) => Vec::new(),
        }
    }

    /// `CL_PROGRAM_BINARY_TYPE`
    fn binary_type(&self) -> i32 {
        if self.executable().is_some() {
            return CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
        }
        let object = self.object();
        match object.and_then(|file| Object::parse(&file).ok()) {
            Some(object) if object.kind == Kind::Library => CL_PROGRAM_BINARY_TYPE_LIBRARY,
            Some(_) => CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT,
            None => CL_PROGRAM_BINARY_TYPE_NONE,
        }
    }
}

/// Options of `clLinkProgram` that change no result, beside `-create-library`.
const LINK_OPTIONS: [&str; 6] = [
    "-enable-link-options",
    "-cl-denorms-are-zero",
    "-cl-no-signed-zeroes",
    "-cl-unsafe-math-optimizations",
    "-cl-finite-math-only",
    "-cl-fast-relaxed-math",
];

fn object_of(compiled: Result<Compiled, String>) -> Result<(Built, String), String> {
    let compiled = compiled?;
    Object::parse(&compiled.image).map_err(|error| chain(&error))?;
    Ok((Built::Object(Arc::new(compiled.image)), compiled.log))
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
        made(Ok(Program::here(&context.device.own, source)), code)
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
        let checked = Input::of_binary(file);
        let checked = checked.map(|input| Program::here(&context.device.own, input));
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
        program.build(&text(options))
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
        let program: &Program = object(program);
        let mut included: Vec<(String, &Program)> = Vec::new();
        for at in 0..count as usize {
            included.push((text(*names.add(at)), object(*headers.add(at))));
        }
        program.compile(&text(options), &included)
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
        let context: &Context<Emulator> = object(context);
        let inputs = (0..count as usize).map(|at| object::<Program, _>(*inputs.add(at)));
        let program = Program::here(&context.device.own, Input::Linked);
        let linked = program.link(&text(options), &inputs.collect::<Vec<_>>());
        give_linked(program, linked, code)
    }
}

/// A linked program's handle: there is one, with the log, if linking has begun.
///
/// # Safety
/// `code` is null or writable.
pub unsafe fn give_linked<T>(program: T, linked: cl_int, code: *mut cl_int) -> cl_program {
    let begun = matches!(linked, CL_SUCCESS | CL_LINK_PROGRAM_FAILURE);
    // SAFETY: the caller's promise.
    unsafe {
        let program = made(begun.then_some(program).ok_or(linked), code);
        if begun && !code.is_null() {
            *code = linked;
        }
        program
    }
}

/// OpenCL's options.
///
/// # Safety
/// `options` is null or a C string.
pub unsafe fn text(options: *const c_char) -> String {
    if options.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(options) }
        .to_string_lossy()
        .into_owned()
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
                _ => Some(zero_terminated("")),
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
        let kind = program.binary_type();
        let build = program.build.locked();
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
