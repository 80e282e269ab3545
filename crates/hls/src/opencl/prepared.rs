//! The parts that are compiled once for all programs: the library of built-in functions as clang's
//! precompiled headers; of models the headers, Verilator's runtime and the harness
//! (`hdl/board/sim/emulate.cpp`).
//!
//! These files are in a folder that belongs to the hardware tree. A record names every file that they were
//! made of, with its length and time of change, and is written last: files are used only while it
//! describes them. Processes that compile the same tree take turns by a lock.

use super::clang;
use super::inputs::{make_file, part, stamp};
use crate::program::run;
use anyhow::{Context, Result};
use std::collections::hash_map::DefaultHasher;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// The compiler of models and the harness: the one that compiles kernels.
pub(super) const COMPILER: &str = "clang++-16";
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
/// Optimization of the runtime, and of all that uses the precompiled headers.
const RUNTIME_LEVEL: &str = "-O2";
const LEVEL: &str = "-O1";
/// Verilator's runtime.
const RUNTIME: [&str; 2] = ["verilated", "verilated_threads"];
const HEADERS: &str = "precompiled.pch";
const HARNESS: &str = "emulate.o";
const RECORD: &str = "record";
const LOCK: &str = "lock";

/// The files, which others do not replace while this exists.
#[derive(Debug)]
pub struct Prepared {
    folder: PathBuf,
    /// Verilator's headers.
    include: PathBuf,
    /// `None`: the folder is a compilation's own.
    lock: Option<File>,
}

impl Prepared {
    /// The files of a tree's folder, if they are current. Waits while another process makes them.
    pub fn find(folder: &Path) -> Option<Prepared> {
        let folder = folder.canonicalize().ok()?;
        let lock = File::open(folder.join(LOCK)).ok()?;
        lock.lock_shared().ok()?;
        current(folder, lock)
    }

    /// As [`find`](Prepared::find), but makes the files if they are missing, or were made of other files;
    /// `None`: this process may not write there. `tree`: the folder `hdl` of Baltra's tree.
    ///
    /// # Errors
    ///
    /// A compiler is missing or fails.
    pub fn make(folder: &Path, tree: &Path) -> Result<Option<Prepared>> {
        if let Some(prepared) = Prepared::find(folder) {
            return Ok(Some(prepared));
        }
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        let lock = fs::create_dir_all(folder).and_then(|()| options.open(folder.join(LOCK)));
        let Ok(lock) = lock else { return Ok(None) };
        lock.lock()?;
        let folder = folder.canonicalize()?;
        let prepared = match current(folder.clone(), lock.try_clone()?) {
            Some(prepared) => prepared,
            None => {
                let prepared = Prepared {
                    folder,
                    include: verilator_headers(tree)?,
                    lock: Some(lock.try_clone()?),
                };
                prepared.make_all(tree)?;
                prepared
            }
        };
        // A process that takes the lock between the two finds the files current.
        lock.lock_shared()?;
        Ok(Some(prepared))
    }

    /// Makes the files of models in a compilation's own folder.
    ///
    /// # Errors
    ///
    /// A compiler is missing or fails.
    pub fn make_in(work: &Path, tree: &Path) -> Result<Prepared> {
        let prepared = Prepared {
            folder: work.to_owned(),
            include: verilator_headers(tree)?,
            lock: None,
        };
        prepared.make_models(tree)?;
        Ok(prepared)
    }

    /// The compiler of models, with their headers.
    pub fn model_compiler(&self) -> Command {
        let mut command = self.cxx();
        command.args([LEVEL, "-include-pch"]);
        command.arg(self.folder.join(HEADERS));
        command
    }

    /// Links these objects, the harness and the runtime to a library.
    ///
    /// # Errors
    ///
    /// The linker fails.
    pub fn link(&self, objects: &[PathBuf], out: &Path) -> Result<()> {
        let runtime = RUNTIME.map(|name| self.folder.join(name).with_extension("o"));
        run(self
            .cxx()
            .args(["-shared", "-Wl,-Bsymbolic", "-Wl,--exclude-libs,ALL"])
            .args(objects)
            .arg(self.folder.join(HARNESS))
            .args(runtime)
            .arg("-latomic")
            .arg("-o")
            .arg(out))?;
        Ok(())
    }

    /// The folder of the library of built-in functions and its precompiled headers.
    pub(super) fn built_ins(&self) -> Option<&Path> {
        self.lock.is_some().then_some(&self.folder)
    }

    fn cxx(&self) -> Command {
        let mut command = Command::new(COMPILER);
        command.args(CXX);
        command.arg("-isystem").arg(&self.include);
        command.arg("-isystem").arg(self.include.join("vltstd"));
        command
    }

    /// Makes the files and the record. The lock is exclusive.
    fn make_all(&self, tree: &Path) -> Result<()> {
        // Absent the first time.
        let _ = fs::remove_file(self.folder.join(RECORD));
        self.sweep()?;
        let mut files = thread::scope(|scope| {
            let built_ins = scope.spawn(|| clang::precompile(&self.folder));
            let mut files = self.make_models(tree)?;
            let built_ins = built_ins.join().map_err(|_| panicked())?;
            files.extend(built_ins?);
            anyhow::Ok(files)
        })?;
        files.extend(clang::LIBRARY.map(|(name, _)| self.folder.join(name)));
        self.write_record(&files.into_iter().collect())
    }

    /// Makes the files that models need; returns them with those that they were made of.
    fn make_models(&self, tree: &Path) -> Result<Vec<PathBuf>> {
        let runtime = |name: &str| {
            let mut compiler = self.cxx();
            compiler.args([RUNTIME_LEVEL, "-c"]);
            compiler.arg(self.include.join(name).with_extension("cpp"));
            make_file(compiler, &self.folder, &format!("{name}.o"))
        };
        thread::scope(|scope| {
            let runtime = scope.spawn(move || RUNTIME.map(runtime));
            let mut headers = self.cxx();
            headers.args([LEVEL, "-fpch-instantiate-templates", "-x", "c++-header"]);
            headers.arg(tree.join("common/sim/precompiled.hpp"));
            let mut files = make_file(headers, &self.folder, HEADERS)?;
            let mut harness = self.model_compiler();
            harness.arg("-c").arg(tree.join("board/sim/emulate.cpp"));
            files.extend(make_file(harness, &self.folder, HARNESS)?);
            for object in runtime.join().map_err(|_| panicked())? {
                files.extend(object?);
            }
            Ok(files)
        })
    }

    /// Removes what a killed process left, whose compilers may still write to it.
    fn sweep(&self) -> Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(|name| name.starts_with(|c: char| c.is_ascii_digit())) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Writes the record: these files are current.
    fn write_record(&self, files: &BTreeSet<PathBuf>) -> Result<()> {
        let lines = files
            .iter()
            .map(|file| stamp(file).with_context(|| format!("cannot access {}", file.display())));
        let lines: Vec<_> = lines.collect::<Result<_>>()?;
        let (version, include) = (self.version(), self.include.display());
        let text = format!("{version}\n{include}\n{}\n", lines.join("\n"));
        let record = self.folder.join(RECORD);
        // In one step: a process that is killed leaves no half of a record.
        let part = part(&record)?;
        fs::write(&part, text)?;
        fs::rename(&part, &record)?;
        Ok(())
    }

    /// Changes with this crate's library and the compilers' options, and with the folder, whose path
    /// precompiled headers contain.
    fn version(&self) -> String {
        let mut hash = DefaultHasher::new();
        let compilers = (self.cxx(), RUNTIME_LEVEL, LEVEL, clang::precompilers());
        (format!("{compilers:?}"), clang::LIBRARY, &self.folder).hash(&mut hash);
        format!("{:016x}", hash.finish())
    }
}

fn verilator_headers(tree: &Path) -> Result<PathBuf> {
    let root = run(Command::new(tree.join("verilator")).args(["--getenv", "VERILATOR_ROOT"]))?;
    Ok(Path::new(root.trim()).join("include"))
}

/// The files of a folder if its record describes them. The lock is held.
fn current(folder: PathBuf, lock: File) -> Option<Prepared> {
    let record = fs::read_to_string(folder.join(RECORD)).ok()?;
    let mut lines = record.lines();
    let (version, include) = (lines.next()?, lines.next()?);
    let prepared = Prepared {
        folder,
        include: include.into(),
        lock: Some(lock),
    };
    let is_same = |line: &str| {
        let path = line.splitn(3, ' ').nth(2);
        let now = path.and_then(|path| stamp(Path::new(path)).ok());
        now.as_deref() == Some(line)
    };
    (version == prepared.version() && lines.all(is_same)).then_some(prepared)
}

fn panicked() -> anyhow::Error {
    anyhow::anyhow!("a compiler's thread panicked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_record_holds_until_a_file_or_the_version_differs() {
        let dir = tempfile::tempdir().unwrap();
        let [file, other] = ["a file", "b"].map(|name| dir.path().join(name));
        let lock = || File::create(dir.path().join(LOCK)).unwrap();
        let is_current = || current(dir.path().to_owned(), lock()).is_some();
        let prepared = Prepared {
            folder: dir.path().to_owned(),
            include: "/include".into(),
            lock: Some(lock()),
        };
        let write = || {
            fs::write(&file, "text").unwrap();
            fs::write(&other, "text").unwrap();
            let files = [file.clone(), other.clone()];
            prepared.write_record(&files.into()).unwrap();
            assert!(is_current());
        };
        assert!(!is_current());
        write();
        fs::write(&file, "longer text").unwrap();
        assert!(!is_current());
        write();
        let old = File::options().append(true).open(&other).unwrap();
        old.set_modified(UNIX_EPOCH).unwrap();
        assert!(!is_current());
        write();
        fs::remove_file(&other).unwrap();
        assert!(!is_current());
        write();
        let record = dir.path().join(RECORD);
        let text = fs::read_to_string(&record).unwrap();
        fs::write(&record, text.replacen(&prepared.version(), "0", 1)).unwrap();
        assert!(!is_current());
        write();
        let copy = tempfile::tempdir().unwrap();
        fs::copy(&record, copy.path().join(RECORD)).unwrap();
        assert!(current(copy.path().to_owned(), lock()).is_none());
        fs::write(&record, "damaged").unwrap();
        assert!(!is_current());
    }
}
