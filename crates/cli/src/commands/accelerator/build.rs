//! `baltra accelerator build`: OpenCL C to an image.
//!
//! Compilers' messages go to stderr as they are, because executors use this command as their compiler
//! (`--confined`) and return them as the build log; progress is printed for people only.

use super::placement;
use super::report::Content;
use crate::args::{AcceleratorBuild, AcceleratorTarget};
use crate::exit::Exit;
use anyhow::{bail, ensure, Context, Result};
use baltra_board::accelerator::manifest::source_checksum;
use baltra_board::accelerator::object::{self, Object};
use baltra_board::accelerator::Image;
use baltra_executor::driver::emulate::tools::{find_tree, kept_folder, readable, shared_folder};
use baltra_hls::opencl::{self, compilers, BuildError, Prepared};
use baltra_sandbox::compiler::Compilation;
use rustix::process::{set_parent_process_death_signal, Signal};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

const NO_LIBRARY: &str = "cannot build the simulation library";
const NO_PLACE: &str = "there is no folder for Yosys and nextpnr: set HOME";

/// Fails if the hardware tree or a compiler is missing.
pub fn compilers() -> Result<()> {
    let missing = compilers::missing(&find_tree("")?);
    ensure!(
        missing.is_empty(),
        "not installed: {} (for emulated accelerators and boards: apt install {})",
        missing.join(", "),
        compilers::PACKAGES
    );
    Ok(())
}

/// Compiles what all programs share, unless it is current; is killed when its parent ends.
pub fn prepare(tree: &Path, shared: &Path) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Prepared::make(shared, tree)?;
    Ok(())
}

/// Builds an image; the code is 1 if the source does not compile.
pub fn build(args: &AcceleratorBuild) -> Result<ExitCode> {
    let tree = args
        .tree
        .as_deref()
        .map_or("".into(), Path::to_string_lossy);
    let tree = find_tree(&tree)?;
    let shared = match &args.confined {
        Some(dir) => {
            confine(dir, &tree, args)?;
            args.shared.clone()
        }
        None => shared_folder(&tree),
    };
    let shared = shared.as_deref();
    let output = output(args)?;
    let options = opencl::Options {
        defines_and_flags: split(&args.options)?,
        prepared: shared.and_then(Prepared::find).map(Arc::new),
        ..Default::default()
    };
    let own;
    let work: &Path = match &args.confined {
        Some(dir) => dir,
        None => {
            own = tempfile::Builder::new()
                .prefix("baltra-kernels-")
                .tempdir()?;
            own.path()
        }
    };
    let progress = Progress::new(args.confined.is_none());
    progress.step("compiling OpenCL C");
    let compiled = match compile(args, &options, work)? {
        Ok(compiled) => compiled,
        Err(error) => {
            eprint!("{}", error.log);
            return Ok(Exit::Failure.into());
        }
    };
    let (accelerator, checksum) = match compiled {
        Compiled::Accelerator(accelerator, checksum) => (accelerator, checksum),
        Compiled::Object(object, log) => {
            eprint!("{log}");
            std::fs::write(&output, object.to_bytes())
                .with_context(|| format!("cannot write {}", output.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    eprint!("{}", accelerator.log);
    // OpenCL allows such a program; a file is of no use.
    if accelerator.manifest.kernels.is_empty() && args.confined.is_none() {
        bail!("no file has a kernel (declare a function with 'kernel')");
    }
    let prepared = match options.prepared {
        Some(prepared) => prepared,
        None => {
            progress.step("compiling what all programs share, once");
            let kept = shared.map(|folder| Prepared::make(folder, &tree));
            let kept = kept.transpose().context(NO_LIBRARY)?.flatten();
            let own = || Prepared::make_in(work, &tree).context(NO_LIBRARY);
            Arc::new(kept.map_or_else(own, Ok)?)
        }
    };
    progress.step("compiling SystemVerilog for emulation");
    let library = work.join("kernels.so");
    opencl::build_library(&accelerator, &tree, &prepared, work, &library).context(NO_LIBRARY)?;
    let mut manifest = serde_json::to_value(&accelerator.manifest)?;
    manifest["source_sha256"] = checksum.into();
    if args.target == Some(AcceleratorTarget::Ecp5) {
        progress.step("placing and routing");
        let kept = kept_folder(&tree).context(NO_PLACE)?;
        placement::add(&mut manifest, &accelerator.files, &tree, &kept, work)?;
    }
    let image = Image {
        manifest: manifest.to_string(),
        files: accelerator.files,
        library: std::fs::read(&library)
            .with_context(|| format!("cannot read {}", library.display()))?,
    };
    let bytes = image.to_bytes();
    let content = Content::of(image)?;
    std::fs::write(&output, &bytes)
        .with_context(|| format!("cannot write {}", output.display()))?;
    if args.confined.is_none() {
        progress.step("complete");
        if args.json.json {
            content.print_json()?;
        } else {
            content.print_summary();
            let size = crate::output::bytes(bytes.len() as u64);
            println!("{} ({size})", output.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The result of a compilation.
enum Compiled {
    /// A program, and the checksum of its source if that is one file.
    Accelerator(opencl::Accelerator, String),
    /// An object or a library, and the compiler's warnings.
    Object(Object, String),
}

/// The path of the result.
fn output(args: &AcceleratorBuild) -> Result<PathBuf> {
    let ending = match (args.compile, args.create_library) {
        (true, _) => "obj",
        (_, true) => "lib",
        _ => "img",
    };
    let path = match (&args.output, args.files.first()) {
        (Some(path), _) => path.clone(),
        (None, first) => first.cloned().unwrap_or_default().with_extension(ending),
    };
    if args.files.contains(&path) {
        bail!(
            "the result would replace its source {}: name another file (-o)",
            path.display()
        );
    }
    Ok(path)
}

/// Compiles and links the files; the inner error is the build log.
fn compile(
    args: &AcceleratorBuild,
    options: &opencl::Options,
    work: &Path,
) -> Result<Result<Compiled, BuildError>> {
    let mut files = Vec::new();
    for path in &args.files {
        let file =
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let object = object::is_object(&file);
        let object = object.then(|| Object::parse(&file)).transpose();
        let object = object.with_context(|| path.display().to_string())?;
        files.push(match object {
            Some(object) => File::Object(object.bitcode),
            None => File::Source(String::from_utf8_lossy(&file).into_owned()),
        });
    }
    match (files.as_slice(), args.compile, args.create_library) {
        ([File::Source(source)], true, _) => {
            let compiled = opencl::compile_object(source, options, work);
            return Ok(compiled.map(|(bitcode, log)| {
                let kind = object::Kind::Object;
                Compiled::Object(Object { kind, bitcode }, log)
            }));
        }
        (_, true, _) => bail!("-c compiles one source"),
        ([File::Source(source)], _, false) => {
            let checksum = source_checksum(source.as_bytes());
            let compiled = opencl::compile(source, options, work);
            return Ok(compiled.map(|program| Compiled::Accelerator(program, checksum)));
        }
        _ => {}
    }
    Ok(link(files, options, args.create_library, work))
}

/// A source, or the bitcode of an object.
enum File {
    Source(String),
    Object(Vec<u8>),
}

fn link(
    files: Vec<File>,
    options: &opencl::Options,
    create_library: bool,
    work: &Path,
) -> Result<Compiled, BuildError> {
    let mut log = String::new();
    let mut objects = Vec::new();
    for file in files {
        objects.push(match file {
            File::Object(bitcode) => bitcode,
            File::Source(source) => {
                let (bitcode, warnings) = opencl::compile_object(&source, options, work)?;
                log.push_str(&warnings);
                bitcode
            }
        });
    }
    if create_library {
        let (bitcode, warnings) = opencl::link_objects(&objects, work)?;
        let kind = object::Kind::Library;
        return Ok(Compiled::Object(Object { kind, bitcode }, log + &warnings));
    }
    let mut accelerator = opencl::compile_linked(&objects, options, work)?;
    accelerator.log.insert_str(0, &log);
    Ok(Compiled::Accelerator(accelerator, String::new()))
}

fn confine(dir: &Path, tree: &Path, args: &AcceleratorBuild) -> Result<()> {
    let mut readable = readable(tree, args.shared.as_deref());
    readable.extend(args.headers.clone());
    let compilation = Compilation {
        readable,
        dir: dir.to_owned(),
    };
    compilation.enter()?;
    // For compilers that are started.
    std::env::set_var("TMPDIR", dir);
    Ok(())
}

/// Progress on a terminal: a line for each step, with the time since the start.
struct Progress {
    is_shown: bool,
    started: Instant,
}

impl Progress {
    fn new(is_wanted: bool) -> Progress {
        Progress {
            is_shown: is_wanted && std::io::stderr().is_terminal(),
            started: Instant::now(),
        }
    }

    fn step(&self, what: &str) {
        if self.is_shown {
            eprintln!("[{:5.1} s] {what}", self.started.elapsed().as_secs_f64());
        }
    }
}

/// Options as words: separated by white space, except within quotes and after backslashes.
fn split(options: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = options.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(chars.next()),
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        bail!("the options '{options}' have an unpaired {open}");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_split_like_a_shells_words() {
        let text = r#" -D A=1  -DB="two words" -D 'C=$x' -I a\ b "" "#;
        let words = ["-D", "A=1", "-DB=two words", "-D", "C=$x", "-I", "a b", ""];
        assert_eq!(split(text).unwrap(), words);
        assert!(split("-DA='x").is_err());
    }
}
