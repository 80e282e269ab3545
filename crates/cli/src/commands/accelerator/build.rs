//! `baltra accelerator build`: OpenCL C to an image.
//!
//! Compilers' messages go to stderr as they are, because executors use this command as their compiler
//! (`--confined`) and return them as the build log; progress is printed for people only.

use super::report;
use crate::args::AcceleratorBuild;
use crate::exit::Exit;
use anyhow::{bail, Context, Result};
use baltra_board::accelerator::manifest::Manifest;
use baltra_board::accelerator::Image;
use baltra_executor::driver::emulate::tools::{find_tree, Tools};
use baltra_hls::opencl;
use baltra_sandbox::compiler::Compilation;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Builds an image; the code is 1 if the source does not compile.
pub fn build(args: &AcceleratorBuild) -> Result<ExitCode> {
    let tree = args
        .tree
        .as_deref()
        .map_or("".into(), Path::to_string_lossy);
    let tree = find_tree(&tree)?;
    if let Some(dir) = &args.confined {
        confine(dir, &tree, args.headers.as_deref())?;
    }
    let output = match &args.output {
        Some(path) => path.clone(),
        None => args.file.with_extension("img"),
    };
    if output == args.file {
        bail!(
            "the image would replace its source {}: name another file (-o)",
            output.display()
        );
    }
    let source = std::fs::read(&args.file)
        .with_context(|| format!("cannot read {}", args.file.display()))?;
    let source = String::from_utf8_lossy(&source);
    let options = opencl::Options {
        defines_and_flags: split(&args.options)?,
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
    progress.step("compiling OpenCL C to SystemVerilog");
    let accelerator = match opencl::compile(&source, &options, work) {
        Ok(accelerator) => accelerator,
        Err(error) => {
            eprint!("{}", error.log);
            return Ok(Exit::Failure.into());
        }
    };
    eprint!("{}", accelerator.log);
    progress.step("compiling SystemVerilog for emulation");
    let library = work.join("kernels.so");
    opencl::build_library(&accelerator, &tree, work, &library)
        .context("cannot build the simulation library")?;
    let manifest = serde_json::to_string(&accelerator.manifest)?;
    let kernels = Manifest::parse(&manifest)?;
    let image = Image {
        manifest,
        files: accelerator.files,
        library: std::fs::read(&library)
            .with_context(|| format!("cannot read {}", library.display()))?,
    };
    let bytes = image.to_bytes();
    std::fs::write(&output, &bytes)
        .with_context(|| format!("cannot write {}", output.display()))?;
    if args.confined.is_none() {
        progress.step("complete");
        for kernel in &kernels.kernels {
            println!("{}", report::summary(kernel));
        }
        let size = crate::output::bytes(bytes.len() as u64);
        println!("{} ({size})", output.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn confine(dir: &Path, tree: &Path, headers: Option<&Path>) -> Result<()> {
    let tools = Tools::find(&tree.to_string_lossy())?;
    let mut readable = tools.readable();
    readable.extend(headers.map(PathBuf::from));
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
