//! OpenCL C to hardware: each kernel of a program becomes a SystemVerilog module with the ports of
//! `hdl/kernels/rtl/kernel_ports.svh`.
//!
//! clang compiles the program for `spir64`, OpenCL's own target: types have OpenCL's sizes, address
//! spaces stay distinct, and vectors and structures are not changed by a calling convention. The
//! built-in functions are a library in C (`crates/hls/opencl`). All further steps are those of C
//! ([`crate::synthesis`]), after the kernel has become a function that executes all work-items
//! ([`crate::passes::work_items`]).

mod channels;
mod clang;
pub mod compilers;
pub mod device;
mod estimate;
mod inputs;
mod library;
mod manifest;
mod metadata;
mod module_name;
mod objects;
mod prepared;

use crate::emit::Interface;
use crate::error::{Error, ErrorKind};
use crate::ir::Module;
use crate::memory::{self, Memories};
use crate::passes::pipes::Pipes;
use crate::passes::work_items::Groups;
use crate::{parse, passes, synthesis};
use clang::Loops;
pub use library::build_library;
pub use manifest::{
    AccessReport, AddressSpace, AreaReport, Argument, ChannelUse, KernelInfo, LoopReport, Manifest,
    MemoryKind, MemoryReport, Report, StageReport,
};
pub use module_name::module_name;
pub use objects::{compile_linked, compile_object, link_objects};
pub use prepared::Prepared;
use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The kernel ended with this status because the group size is not supported.
pub const STATUS_GROUP_SIZE: u64 = passes::work_items::STATUS_GROUP_SIZE;
/// An argument in local memory is too large.
pub const STATUS_LOCAL_BYTES: u64 = passes::work_items::STATUS_LOCAL_BYTES;
/// Work-items of a group reached different barriers.
pub const STATUS_BARRIER: u64 = passes::work_items::STATUS_BARRIER;

/// LUTs of the largest kernel whose work-items execute in parts: a quarter of the largest part of the
/// family.
const PARTS_LUTS_MAX: u64 = 20_000;

/// Kernels of a program: each takes a second of the compilers or more, of the 300 s that a build
/// has.
const KERNELS_MAX: usize = 128;

/// The options with which a program is compiled.
#[derive(Clone, Debug)]
pub struct Options {
    /// OpenCL's build options, already split.
    pub defines_and_flags: Vec<String>,
    /// Bytes of each argument in local memory.
    pub local_argument_bytes: u64,
    /// Work-items of the largest group of a kernel with barriers that requires no size.
    pub work_group_size_max: u32,
    /// Work-items of the largest group that a kernel may require.
    pub required_group_size_max: u32,
    /// Executes work-items in parts wherever that is possible, and not only where it is faster: for
    /// tests.
    pub parts: bool,
    /// The parts that are compiled once for all programs; without them, the library of built-in
    /// functions is compiled with the program.
    pub prepared: Option<Arc<Prepared>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            defines_and_flags: Vec::new(),
            local_argument_bytes: 32 << 10,
            work_group_size_max: 256,
            required_group_size_max: 1024,
            parts: false,
            prepared: None,
        }
    }
}

impl Options {
    /// The folder of the library of built-in functions and its precompiled headers.
    fn built_ins(&self) -> Option<&Path> {
        self.prepared.as_deref().and_then(Prepared::built_ins)
    }
}

/// A compiled program.
#[derive(Clone, Debug)]
pub struct Accelerator {
    /// Its kernels.
    pub manifest: Manifest,
    /// Names and contents of the SystemVerilog files, one for each kernel.
    pub files: Vec<(String, String)>,
    /// Warnings of the compiler.
    pub log: String,
}

/// The reason why a program does not compile: clang's messages, or those of the synthesis, with
/// positions in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    /// The build log.
    pub log: String,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.log.trim_end())
    }
}

impl std::error::Error for BuildError {}

impl From<Error> for BuildError {
    fn from(error: Error) -> BuildError {
        BuildError {
            log: format!("{error}\n"),
        }
    }
}

/// Compiles a program; `work`: a folder for intermediate files.
///
/// # Errors
///
/// The program is not correct, or uses more than what can be synthesized.
pub fn compile(source: &str, options: &Options, work: &Path) -> Result<Accelerator, BuildError> {
    let compiled = |loops| clang::ir(source, options, loops, work);
    synthesize_all(&compiled, options)
}

/// Synthesizes the kernels of a program; `compiled` returns its IR and the compiler's messages.
fn synthesize_all(
    compiled: &dyn Fn(Loops) -> Result<(String, String), BuildError>,
    options: &Options,
) -> Result<Accelerator, BuildError> {
    let (ir, mut log) = compiled(Loops::Kept)?;
    let module = parse::module(&ir)?;
    let ordered = passes::channels::ordered(&module);
    let mut kernels = metadata::kernels(&ir);
    if kernels.is_empty() {
        log.push_str("warning: the program has no kernel\n");
    }
    check_count(&module, &kernels)?;
    let mut files = Vec::new();
    let mut unrolled = None;
    for kernel in &mut kernels {
        let declared = kernel.clone();
        let first = synthesize(kernel, module.clone(), options, (false, &ordered))?;
        let mut text = first.text.clone();
        if (!first.pipelined || options.parts) && unrolled.is_none() {
            unrolled = Some(parse::module(&compiled(Loops::Unrolled)?.0)?);
        }
        let forms = if options.parts && first.barriers == 0 {
            &[(true, true), (false, true)][..]
        } else {
            other_forms(&first)
        };
        for &(is_unrolled, together) in forms {
            let form = unrolled.as_ref().filter(|_| is_unrolled);
            let module = form.unwrap_or(&module).clone();
            let mut other = declared.clone();
            let result = synthesize(&mut other, module, options, (together, &ordered));
            let Ok(found) = result else { continue };
            let useful = if found.parts {
                options.parts || (found.pipelined && other.report.luts <= PARTS_LUTS_MAX)
            } else {
                found.pipelined
            };
            if useful {
                (text, *kernel) = (found.text, other);
                break;
            }
        }
        files.push((format!("{}.sv", module_name(&kernel.name)), text));
    }
    channels::check(&kernels)?;
    channels::warn(&kernels, &mut log);
    Ok(Accelerator {
        manifest: Manifest { kernels },
        files,
        log,
    })
}

/// Refuses a program whose kernels take longer to compile than a build may take.
fn check_count(module: &Module, kernels: &[KernelInfo]) -> Result<(), Error> {
    let Some(first) = kernels.get(KERNELS_MAX) else {
        return Ok(());
    };
    let function = module.functions.iter().find(|f| f.name == first.name);
    let position = function.map(|f| f.position.clone()).unwrap_or_default();
    Err(Error::too_large(format!(
        "the program has {} kernels, at most {KERNELS_MAX} are supported",
        kernels.len()
    ))
    .remedy("divide it into several programs")
    .at(&position))
}

/// The forms to try if the first one, with its loops and each work-item alone, is not a pipeline:
/// whether loops are unrolled, and whether work-items execute each iteration together. Without loops
/// in its code, or if its loops are around it, a loop over work-items may be a pipeline.
fn other_forms(first: &Synthesized) -> &'static [(bool, bool)] {
    match (first.pipelined, first.barriers) {
        (true, _) => &[],
        // In parts, each loop takes the time of its latency once more for each part.
        (false, 0) if first.waits => &[(true, false), (true, true), (false, true)],
        (false, 0) => &[(true, false)],
        (false, _) => &[(true, false), (false, true), (true, true)],
    }
}

/// The form in which all work-items of a group execute a loop, and the channels with an order
/// ([`lower`]).
type Form<'a> = (bool, &'a HashSet<String>);

/// A kernel's hardware.
struct Synthesized {
    text: String,
    /// Whether all loops over work-items are pipelines.
    pipelined: bool,
    /// See [`synthesis::Hardware::waits`].
    waits: bool,
    /// See [`Module::parts`].
    parts: bool,
    /// Barriers, including those in and after loops.
    barriers: usize,
}

/// Synthesizes a kernel, and completes its description.
fn synthesize(
    kernel: &mut KernelInfo,
    mut module: Module,
    options: &Options,
    form: Form<'_>,
) -> Result<Synthesized, Error> {
    let (items, memories) = lower(kernel, &mut module, options, form)?;
    let name = module_name(&kernel.name);
    let interface = Interface::Accelerator;
    let hardware = synthesis::hardware(&module, &memories, &name, clang::SOURCE, interface)?;
    let prefix = format!("{}.", kernel.name);
    let own = |name: &str| name.starts_with(&prefix);
    let local_objects = module.globals.iter().filter(|g| g.local && own(&g.name));
    let all_local: u64 = local_objects.map(|g| g.bytes.len() as u64).sum();
    kernel.local_bytes = all_local;
    kernel.private_bytes = items.private_bytes;
    kernel.report = estimate::report(&module, &memories, &hardware);
    let position = module.functions.first().map(|f| f.position.clone());
    estimate::check(&kernel.report).map_err(|error| error.at(&position.unwrap_or_default()))?;
    let of_items: Vec<_> = hardware.pipelines.iter().filter(|p| p.items).collect();
    let pipelines = of_items.len();
    if let ([all], 0, false) = (of_items.as_slice(), items.barriers, module.parts) {
        kernel.report.item_cycles_min = u64::from(all.interval);
    }
    Ok(Synthesized {
        text: hardware.text,
        pipelined: pipelines > items.barriers,
        waits: hardware.waits,
        parts: module.parts,
        barriers: items.barriers,
    })
}

/// Replaces a module by the instructions that a kernel's hardware has; `together`: all work-items of
/// a group execute an iteration of a loop before the next one; `ordered`: channels whose readers use
/// fences.
fn lower(
    kernel: &mut KernelInfo,
    module: &mut Module,
    options: &Options,
    (together, ordered): Form<'_>,
) -> Result<(passes::work_items::Items, Memories), Error> {
    let function = module.functions.iter().find(|f| f.name == kernel.name);
    let position = function.map(|f| f.position.clone()).unwrap_or_default();
    let is_image = |a: &&Argument| a.access != "none" && !a.is_pipe();
    if let Some(image) = kernel.arguments.iter().find(is_image) {
        return Err(Error::unsupported(format!(
            "argument '{}' is an image: images are not supported",
            image.name
        ))
        .remedy("use a buffer")
        .at(&position));
    }
    let required = kernel.required_work_group_size;
    let product = |size: [u32; 3]| size.iter().map(|n| u64::from(*n)).product::<u64>();
    let items_max = match required {
        Some(size) if product(size) > u64::from(options.required_group_size_max) => {
            return Err(Error::too_large(format!(
                "kernel '{}' requires work-groups of {}x{}x{} work-items, at most {} are supported",
                kernel.name, size[0], size[1], size[2], options.required_group_size_max
            ))
            .at(&position))
        }
        Some(size) => product(size) as u32,
        None => options.work_group_size_max,
    };
    let groups = Groups {
        required,
        items_max,
        together,
    };
    let local = options.local_argument_bytes;
    let arguments = kernel.arguments.iter().enumerate();
    let written = arguments.filter(|(_, a)| a.is_pipe() && a.access == "write_only");
    let mut pipes = Pipes {
        written: written.map(|(at, _)| at).collect(),
        packets: Vec::new(),
    };
    let name = &kernel.name;
    let (items, binding) = passes::run_kernel(module, name, &groups, local, ordered, &mut pipes)
        .map_err(|error| error.at(&position))?;
    for (at, bytes) in pipes.packets {
        kernel.arguments[at].packet_bytes = bytes;
    }
    for (argument, passing) in kernel.arguments.iter_mut().zip(binding.sizes) {
        (argument.bytes, argument.words) = passing;
    }
    let mut memories = memory::analyze(module, 0).map_err(|error| {
        let error = match error.kind {
            ErrorKind::TooLarge => {
                error.remedy("use fewer or smaller arrays in local and private memory")
            }
            _ => error,
        };
        error.at(&position)
    })?;
    memory::divide(module, &mut memories);
    passes::readers::assign(module, &memories, items.barriers > 0);
    kernel.work_group_size_max = items.group_items_max;
    kernel.local_argument_bytes_max = local;
    kernel.channels = channels::uses(&module.channels);
    Ok((items, memories))
}

/// A program's only kernel as the instructions that its hardware has.
#[cfg(test)]
pub(crate) fn instructions(
    source: &str,
    unrolled: bool,
    together: bool,
    work: &Path,
) -> Result<(Module, Memories), BuildError> {
    let loops = if unrolled {
        Loops::Unrolled
    } else {
        Loops::Kept
    };
    let (ir, _) = clang::ir(source, &Options::default(), loops, work)?;
    let mut module = parse::module(&ir)?;
    let mut kernels = metadata::kernels(&ir);
    let options = Options::default();
    let (_, memories) = lower(
        &mut kernels[0],
        &mut module,
        &options,
        (together, &HashSet::new()),
    )?;
    Ok((module, memories))
}
