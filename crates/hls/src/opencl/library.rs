//! The simulation library of a program: Verilator makes a model of each kernel with its memory port
//! (`hdl/kernels/rtl/region_call.sv`). The C++ compiler builds the models, and once for all programs the
//! harness (`hdl/board/sim/emulate.cpp`).

use super::manifest::KernelInfo;
use super::prepared::Prepared;
use super::{channels, module_name, Accelerator};
use crate::program::run;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// Lines of a model's file; each is compiled by itself.
const SPLIT: &str = "20000";
/// Compilers that run at the same time.
const JOBS: usize = 2;

/// The folders of a build.
struct Build<'a> {
    /// The folder `hdl` of Baltra's tree.
    tree: &'a Path,
    work: &'a Path,
    prepared: &'a Prepared,
}

impl Build<'_> {
    /// Verilates a kernel; returns the files of the model.
    fn model(&self, number: usize, kernel: &KernelInfo) -> Result<Vec<PathBuf>> {
        let folder = self.work.join(format!("model_{number}"));
        // All files of the folder are compiled.
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let module = module_name(&kernel.name);
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

    fn compile(&self, sources: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let objects = sources.iter().map(|s| s.with_extension("o")).collect();
        let share = sources.len().div_ceil(JOBS).max(1);
        // The model names its files: the same source gives the same image in any folder.
        let mut names = OsString::from("-fmacro-prefix-map=");
        names.push(self.work.join(""));
        names.push("=");
        let names = &names;
        thread::scope(|scope| {
            let jobs = sources.chunks(share).map(|part| {
                scope.spawn(move || -> Result<()> {
                    for source in part {
                        let folder = source.parent().unwrap_or(self.work);
                        run(self
                            .prepared
                            .model_compiler()
                            .current_dir(self.work)
                            .arg("-c")
                            .arg(names)
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
    prepared: &Prepared,
    work: &Path,
    out: &Path,
) -> Result<()> {
    let tree = tree
        .canonicalize()
        .with_context(|| format!("cannot open {}", tree.display()))?;
    let build = Build {
        tree: &tree,
        work,
        prepared,
    };
    for (name, text) in &accelerator.files {
        fs::write(work.join(name), text)?;
    }
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
    prepared.link(&build.compile(&sources)?, out)
}
