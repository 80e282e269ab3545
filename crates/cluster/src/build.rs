//! Compiles software kernels: each kernel's C sources, against `libhumboldt`, into a program. What is up to date is left
//! alone; the rest is compiled in parallel.

use crate::model::{Cluster, Kernel, NodeKind};
use anyhow::{bail, ensure, Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::SystemTime;

/// Where things are.
#[derive(Clone, Debug)]
pub struct Build {
    /// Where programs go.
    pub out: PathBuf,
    /// `libhumboldt`'s folder in the tree: `include`, and the library's Makefile.
    pub humboldt: PathBuf,
    /// The C compiler.
    pub compiler: String,
}

/// A compiled kernel.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Whether it had to be compiled.
    pub compiled: bool,
}

/// Refuses clusters with kernels on boards: those are not built yet.
pub fn refuse_boards(cluster: &Cluster) -> Result<()> {
    for (index, node) in cluster.map.nodes.iter().enumerate() {
        if node.kind == NodeKind::Hardware {
            bail!(
                "{}:{}: {} is a board: kernels in fabric are checked, and cannot be built or run yet (type sw makes them processes)",
                cluster.map.path.display(),
                node.line,
                cluster.node_name(index)
            );
        }
    }
    Ok(())
}

/// The C files of a kernel.
fn sources(cluster: &Cluster, kernel: &Kernel) -> Result<Vec<PathBuf>> {
    let folder = match cluster.logical.path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let names = match kernel.sources.is_empty() {
        true => vec![format!("{}.c", kernel.name)],
        false => kernel.sources.clone(),
    };
    names
        .iter()
        .map(|name| {
            let path = folder.join(name);
            ensure!(
                path.is_file(),
                "{}:{}: kernel '{}' has no source {} (name it with <source>)",
                cluster.logical.path.display(),
                kernel.line,
                kernel.name,
                path.display()
            );
            Ok(path)
        })
        .collect()
}

/// Compiles what must be; the programs by the number of their kernel's first copy. `say` gets lines of progress.
///
/// # Errors
///
/// A board, a missing source, a compiler that fails: its output is in the error.
pub fn build(
    cluster: &Cluster,
    with: &Build,
    say: &(dyn Fn(String) + Sync),
) -> Result<BTreeMap<u32, Program>> {
    refuse_boards(cluster)?;
    let library = library(with)?;
    fs::create_dir_all(&with.out).with_context(|| format!("cannot make {}", with.out.display()))?;

    // Kernels of one name and the same sources share a program.
    let mut jobs: Vec<(PathBuf, Vec<PathBuf>, Vec<&Kernel>)> = Vec::new();
    for kernel in &cluster.logical.kernels {
        let sources = sources(cluster, kernel)?;
        match jobs
            .iter_mut()
            .find(|(_, s, k)| *s == sources && k[0].name == kernel.name)
        {
            Some((_, _, kernels)) => kernels.push(kernel),
            None => {
                let taken = jobs.iter().any(|(_, _, k)| k[0].name == kernel.name);
                let name = match taken {
                    true => format!("{}-{}", kernel.name, kernel.num),
                    false => kernel.name.clone(),
                };
                jobs.push((with.out.join(name), sources, vec![kernel]));
            }
        }
    }

    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some((path, sources, kernels)) = jobs.get(index) else {
                    return;
                };
                let step = format!("[{}/{}] {}", index + 1, jobs.len(), kernels[0].name);
                let result = compile(path, sources, with, &library, &|what| {
                    say(format!("{step}: {what}"))
                });
                if let Ok(mut results) = results.lock() {
                    results.insert(index, result);
                }
            });
        }
    });
    let mut programs = BTreeMap::new();
    for (index, result) in results.into_inner().unwrap_or_default() {
        let program = result?;
        for kernel in &jobs[index].2 {
            programs.insert(kernel.num, program.clone());
        }
    }
    Ok(programs)
}

/// The library, built if it has to be.
fn library(with: &Build) -> Result<PathBuf> {
    let makefile = with.humboldt.join("Makefile");
    ensure!(
        makefile.is_file(),
        "{} is not libhumboldt's folder (--humboldt names it)",
        with.humboldt.display()
    );
    let made = Command::new("make")
        .args(["-s", "-C"])
        .arg(&with.humboldt)
        .stdin(Stdio::null())
        .output()
        .context("cannot run make")?;
    ensure!(
        made.status.success(),
        "building libhumboldt failed:\n{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let library = with.humboldt.join("../target/humboldt/libhumboldt.a");
    ensure!(library.is_file(), "{} is missing", library.display());
    Ok(library)
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|m| m.modified()).ok()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Whether a program is newer than all that it was made of, and was made by the same command.
fn up_to_date(path: &Path, library: &Path, words: &str) -> bool {
    let Some(made) = modified(path) else {
        return false;
    };
    if fs::read_to_string(with_suffix(path, ".command"))
        .ok()
        .as_deref()
        != Some(words)
    {
        return false;
    }
    // A rule of make's: the program, a colon, what it depends on.
    let Ok(rule) = fs::read_to_string(with_suffix(path, ".d")) else {
        return false;
    };
    let rule = rule.replace("\\\n", " ");
    let Some((_, needed)) = rule.split_once(": ") else {
        return false;
    };
    let mut files = needed.split_whitespace().map(Path::new).chain([library]);
    files.all(|file| modified(file).is_some_and(|m| m <= made))
}

fn compile(
    path: &Path,
    sources: &[PathBuf],
    with: &Build,
    library: &Path,
    say: &dyn Fn(&str),
) -> Result<Program> {
    let mut command = Command::new(&with.compiler);
    command
        .args([
            "-std=gnu11",
            "-O2",
            "-g",
            "-Wall",
            "-MMD",
            "-MT",
            "program",
            "-MF",
        ])
        .arg(with_suffix(path, ".d"))
        .arg("-I")
        .arg(with.humboldt.join("include"))
        .arg("-o")
        .arg(path)
        .args(sources)
        .arg(library)
        .arg("-lm");
    let words = format!("{command:?}");
    if up_to_date(path, library, &words) {
        say("up to date");
        return Ok(Program {
            path: path.to_owned(),
            compiled: false,
        });
    }
    say("compiling");
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", with.compiler))?;
    let told = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "compiling {} failed:\n{told}",
        path.display()
    );
    if !told.is_empty() {
        say(&format!("the compiler says\n{told}"));
    }
    // Last: without it the program counts as out of date.
    fs::write(with_suffix(path, ".command"), words).context("cannot write beside the program")?;
    Ok(Program {
        path: path.to_owned(),
        compiled: true,
    })
}
