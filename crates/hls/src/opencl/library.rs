//! The simulation library of a program: Verilator makes a model of each kernel with its memory port
//! (`hdl/kernels/rtl/region_call.sv`). The C++ compiler builds the models, and once for all programs the
//! harness (`hdl/board/sim/emulate.cpp`).

use super::manifest::KernelInfo;
use super::{channels, Accelerator};
use crate::program;
use anyhow::{bail, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::SystemTime;

/// The compiler of models and the harness: the one that compiles kernels.
const COMPILER: &str = "clang++-16";
/// Its options: hidden symbols, so that each library has its own runtime.
const CXX: [&str; 8] = [
    "-std=c++17",
    "-w",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-DVL_IGNORE_UNKNOWN_ARCH",
    "-DVM_COVERAGE=0",
    "-pthread",
];
/// Sources of the harness, relative to the tree.
const HARNESS: [&str; 2] = ["board/sim", "common/sim"];
/// Verilator's runtime, which is built once.
const RUNTIME: [&str; 2] = ["verilated", "verilated_threads"];
/// Lines of a model's file; each is compiled by itself.
const SPLIT: &str = "20000";
/// Compilers that run at the same time.
const JOBS: usize = 2;

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|m| m.modified()).ok()
}

/// The folders of a build.
struct Build<'a> {
    /// The folder `hdl` of Baltra's tree.
    tree: &'a Path,
    work: &'a Path,
    /// Verilator's headers.
    include: PathBuf,
}

fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {name} ('scripts/setup.sh board' installs it)"))?;
    let text = String::from_utf8_lossy(&done.stdout);
    if !done.status.success() {
        let messages = format!("{text}{}", String::from_utf8_lossy(&done.stderr));
        bail!(
            "{}",
            program::failure(&name, done.status, &messages).trim_end()
        );
    }
    Ok(text.into_owned())
}

/// A file that another process has made since this one was confined cannot be opened.
fn can_open(object: &Path) -> bool {
    fs::File::open(object).is_ok()
}

impl Build<'_> {
    fn cxx(&self) -> Command {
        let mut command = Command::new(COMPILER);
        command.args(CXX);
        command.arg("-isystem").arg(&self.include);
        command.arg("-isystem").arg(self.include.join("vltstd"));
        command.current_dir(self.work);
        command
    }

    /// A file that is compiled once for all libraries, beside the tree if that is writable. `compiler`:
    /// without the source. `sources`: what it depends on. `is_usable`: whether one that is newer than these
    /// will do.
    fn compiled_once(
        &self,
        name: &str,
        mut compiler: Command,
        source: &Path,
        sources: &[PathBuf],
        is_usable: impl Fn(&Path) -> bool,
    ) -> Result<PathBuf> {
        let mut folder = self.tree.join("../target/emulate");
        let _ = fs::create_dir_all(&folder);
        let mut object = folder.join(name);
        let changed = sources.iter().filter_map(|s| modified(s)).max();
        if modified(&object) > changed && is_usable(&object) {
            return Ok(object);
        }
        // A confined compiler may only read the shared folder.
        let probe = folder.join(format!(".probe.{}", std::process::id()));
        let written = fs::write(&probe, "").and_then(|()| fs::remove_file(&probe));
        if written.is_err() {
            folder = self.work.to_owned();
            object = folder.join(name);
        }
        // Another process may build the same object.
        let part = folder.join(format!("{}.{name}", std::process::id()));
        run(compiler.arg(source).arg("-o").arg(&part))?;
        fs::rename(&part, &object)?;
        Ok(object)
    }

    /// Verilator's runtime as objects.
    fn runtime(&self) -> Result<Vec<PathBuf>> {
        let object = |name: &str| {
            let source = self.include.join(format!("{name}.cpp"));
            let mut compiler = self.cxx();
            compiler.args(["-O2", "-c"]);
            let sources = std::slice::from_ref(&source);
            self.compiled_once(&format!("{name}.o"), compiler, &source, sources, can_open)
        };
        RUNTIME.into_iter().map(object).collect()
    }

    /// Headers of models and the harness.
    fn headers(&self) -> Result<PathBuf> {
        let source = self.tree.join("common/sim/precompiled.hpp");
        let mut compiler = self.cxx();
        compiler.args(["-O1", "-fpch-instantiate-templates", "-x", "c++-header"]);
        // The compiler refuses them once it, or a header, has changed.
        let empty = self.work.join("empty.cc");
        fs::write(&empty, "")?;
        let is_usable = |headers: &Path| {
            let mut command = self.with_headers(headers);
            run(command.arg("-fsyntax-only").arg(&empty)).is_ok()
        };
        let sources = std::slice::from_ref(&source);
        self.compiled_once("precompiled.pch", compiler, &source, sources, is_usable)
    }

    /// The harness as an object.
    fn harness(&self, headers: &Path) -> Result<PathBuf> {
        let mut sources = Vec::new();
        for folder in HARNESS {
            for entry in fs::read_dir(self.tree.join(folder))? {
                sources.push(entry?.path());
            }
        }
        let mut compiler = self.with_headers(headers);
        compiler.arg("-c");
        let source = self.tree.join("board/sim/emulate.cpp");
        self.compiled_once("emulate.o", compiler, &source, &sources, can_open)
    }

    /// The compiler with precompiled headers.
    fn with_headers(&self, headers: &Path) -> Command {
        let mut command = self.cxx();
        command.args(["-O1", "-include-pch"]).arg(headers);
        command
    }

    /// Verilates a kernel; returns the files of the model.
    fn model(&self, number: usize, kernel: &KernelInfo) -> Result<Vec<PathBuf>> {
        let name = &kernel.name;
        let folder = self.work.join(format!("model_{number}"));
        // All files of the folder are compiled.
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let module = format!("kernel_{name}");
        run(Command::new(self.tree.join("verilator"))
            .current_dir(self.tree)
            .args(["--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast"])
            .args([
                "--noassert",
                "-Wno-lint",
                "-Wno-style",
                "--output-split",
                SPLIT,
            ])
            .arg(format!("+define+KERNEL={module}"))
            .args(["--top-module", "region_call", "--prefix"])
            .arg(format!("Vkernel_{number}"))
            .arg("--Mdir")
            .arg(&folder)
            .args(["kernels/rtl/kernel_calls_pkg.sv", "-y", "kernels/rtl"])
            .args(["-y", "messages/rtl", "-y", "hls/rtl", "-y", "common/rtl"])
            .args([
                "+incdir+kernels/rtl",
                "+incdir+messages/rtl",
                "+incdir+common/rtl",
            ])
            // Before the files with the kernel's ports, whose channels it defines.
            .arg(self.work.join(format!("{module}.sv")))
            .args(["kernels/rtl/kernel_frame.sv", "kernels/rtl/region_frame.sv"])
            .arg("kernels/rtl/region_call.sv"))?;
        let mut sources: Vec<PathBuf> = fs::read_dir(&folder)?
            .filter_map(|entry| entry.ok().map(|e| e.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "cpp"))
            .collect();
        sources.sort();
        // Small files are compiled together.
        let whole = folder.join("model.cc");
        let text = sources.iter().map(fs::read_to_string);
        let text = text.collect::<std::io::Result<Vec<_>>>()?;
        match text.iter().map(String::len).sum::<usize>() {
            0..1_000_000 => {
                fs::write(&whole, text.concat())?;
                Ok(vec![whole])
            }
            _ => Ok(sources),
        }
    }

    fn compile(&self, sources: &[PathBuf], headers: &Path) -> Result<Vec<PathBuf>> {
        let objects = sources.iter().map(|s| s.with_extension("o")).collect();
        let share = sources.len().div_ceil(JOBS).max(1);
        thread::scope(|scope| {
            let jobs = sources.chunks(share).map(|part| {
                scope.spawn(move || -> Result<()> {
                    for source in part {
                        let folder = source.parent().unwrap_or(self.work);
                        run(self
                            .with_headers(headers)
                            .arg("-c")
                            .arg("-I")
                            .arg(folder)
                            .arg("-I")
                            .arg(self.tree.join("board/sim"))
                            .arg("-I")
                            .arg(self.work)
                            .arg(source)
                            .arg("-o")
                            .arg(source.with_extension("o")))?;
                    }
                    Ok(())
                })
            });
            let jobs: Vec<_> = jobs.collect();
            for job in jobs {
                job.join()
                    .map_err(|_| anyhow::anyhow!("a compiler's thread panicked"))??;
            }
            Ok(objects)
        })
    }
}

/// Builds the library `out`, which exports `baltra_emulate` (`hdl/board/sim/emulate_abi.h`). `tree`:
/// the folder `hdl` of Baltra's tree; `work`: a folder for intermediate files.
///
/// # Errors
///
/// Verilator or the C++ compiler is missing or fails.
pub fn build_library(
    accelerator: &Accelerator,
    tree: &Path,
    work: &Path,
    out: &Path,
) -> Result<()> {
    let tree = tree
        .canonicalize()
        .with_context(|| format!("cannot open {}", tree.display()))?;
    let root = run(Command::new(tree.join("verilator")).args(["--getenv", "VERILATOR_ROOT"]))?;
    let build = Build {
        tree: &tree,
        work,
        include: Path::new(root.trim()).join("include"),
    };
    for (name, text) in &accelerator.files {
        fs::write(work.join(name), text)?;
    }
    let runtime = build.runtime()?;
    let mut sources = Vec::new();
    let (mut includes, mut list) = (String::new(), String::new());
    let all = channels::of_program(&accelerator.manifest.kernels);
    let mut ports = String::new();
    for (number, kernel) in accelerator.manifest.kernels.iter().enumerate() {
        sources.extend(build.model(number, kernel)?);
        for header in ["", "___024root"] {
            includes += &format!("#include \"model_{number}/Vkernel_{number}{header}.h\"\n");
        }
        list += &format!(" X({number}, \"{}\")", kernel.name);
        ports += &channels::ports(number, kernel, &all);
    }
    let channels = channels::list(&all);
    let header = format!("{includes}#define KERNELS{list}\n#define CHANNELS{channels}\n{ports}");
    fs::write(work.join("kernels.h"), header)?;
    let kernels = work.join("emulate_kernels.cc");
    fs::copy(tree.join("board/sim/emulate_kernels.cpp"), &kernels)?;
    sources.push(kernels);
    let headers = build.headers()?;
    let objects = build.compile(&sources, &headers)?;
    run(build
        .cxx()
        .args(["-shared", "-Wl,-Bsymbolic", "-Wl,--exclude-libs,ALL"])
        .args(objects)
        .arg(build.harness(&headers)?)
        .args(runtime)
        .arg("-latomic")
        .arg("-o")
        .arg(out))?;
    Ok(())
}
