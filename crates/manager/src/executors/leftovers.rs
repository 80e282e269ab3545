//! Directories of executors whose manager was killed.
//!
//! A manager removes an executor's directory after the executor's end. If the manager was killed,
//! the executor empties its directory when it exits, but its sandbox does not permit it to remove
//! the directory itself, because the directory's parent holds those of other tenants. The next
//! manager removes what no process uses. A process uses a directory if its arguments name it
//! (`--work-dir`): that is so from before the directory's first use to the end of the process,
//! whether the process is adopted or not, and needs no cooperation of an executor.

use crate::node::Node;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Interval at which directories are looked for: an executor may end after the manager's start.
pub const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// The part of a process's arguments that is read, bytes.
const ARGUMENTS_BYTES_MAX: u64 = 64 << 10;

/// A directory that a process names as its own.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Named {
    /// Device and inode.
    Place(u64, u64),
    /// The last part of a path that this process cannot look up, because it is relative to a
    /// directory that the other does not show.
    Name(OsString),
}

impl Node {
    /// Removes the directories of earlier managers' executors that no process uses.
    pub(crate) fn sweep_executor_dirs(&self) {
        let dirs = self.options.paths.executor_dirs();
        match sweep(&dirs, self.first) {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed directories of ended executors"),
            Err(error) => {
                let dirs = dirs.display();
                tracing::warn!(%dirs, %error, "cannot look for directories of ended executors");
            }
        }
    }
}

/// Removes the directories in `work` that earlier managers created and no process uses; returns how
/// many. Directories of this manager's own executors, whose numbers begin at `first`, are removed
/// with the executors.
fn sweep(work: &Path, first: u64) -> io::Result<usize> {
    let entries = match work.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let is_earlier = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.parse::<u64>().ok());
        number.is_some_and(|number| number < first)
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let earlier: Vec<PathBuf> = paths.filter(is_earlier).collect();
    if earlier.is_empty() {
        return Ok(0);
    }
    let used = used()?;
    let is_unused = |path: &&PathBuf| {
        let name = path.file_name().map(|name| Named::Name(name.to_owned()));
        let place = path.symlink_metadata();
        let place = place.map(|found| Named::Place(found.dev(), found.ino()));
        let is_used = |named: &Named| used.contains(named);
        place.is_ok_and(|place| !is_used(&place)) && !name.as_ref().is_some_and(is_used)
    };
    let unused = earlier.iter().filter(is_unused);
    let removed = unused.filter(|path| std::fs::remove_dir_all(path).is_ok());
    Ok(removed.count())
}

/// The directories that processes name as theirs.
fn used() -> io::Result<HashSet<Named>> {
    let mut used = HashSet::new();
    for entry in Path::new("/proc").read_dir()?.flatten() {
        let process = entry.path();
        let name = entry.file_name();
        if name.as_bytes().iter().all(u8::is_ascii_digit) {
            // A process that has ended meanwhile uses nothing.
            used.extend(named_by(&process).unwrap_or_default());
        }
    }
    Ok(used)
}

/// The directory that a process's arguments name.
fn named_by(process: &Path) -> io::Result<Option<Named>> {
    let mut arguments = Vec::new();
    let file = File::open(process.join("cmdline"))?;
    file.take(ARGUMENTS_BYTES_MAX).read_to_end(&mut arguments)?;
    let mut arguments = arguments.split(|byte| *byte == 0);
    if !arguments.any(|argument| argument == b"--work-dir") {
        return Ok(None);
    }
    let Some(path) = arguments.next() else {
        return Ok(None);
    };
    // An absolute path replaces the process's own directory.
    let path = process.join("cwd").join(OsStr::from_bytes(path));
    Ok(match path.metadata() {
        Ok(found) => Some(Named::Place(found.dev(), found.ino())),
        Err(_) => path.file_name().map(|name| Named::Name(name.to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that names `dir` and runs until it is killed.
    fn user(dir: &Path, from: &Path) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "read line", "sh", "--work-dir"]);
        command.arg(dir).current_dir(from).stdin(Stdio::piped());
        let child = command.spawn().unwrap();
        // Its arguments appear a moment after the program has been replaced.
        let process = Path::new("/proc").join(child.id().to_string());
        while named_by(&process).unwrap().is_none() {
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn only_directories_that_no_process_uses_are_removed() {
        let work = tempfile::tempdir().unwrap();
        let dir = |number: u64| work.path().join(number.to_string());
        let earlier = |number: u64| 3 << 32 | number;
        let first = 4 << 32 | 1;
        for number in [earlier(1), earlier(2), earlier(3), first, first + 7] {
            std::fs::create_dir_all(dir(number).join("own")).unwrap();
        }
        std::fs::create_dir(work.path().join("other")).unwrap();
        let relative = earlier(2).to_string();
        let mut users = [
            user(&dir(earlier(1)), work.path()),
            user(Path::new(&relative), work.path()),
        ];
        assert_eq!(sweep(work.path(), first).unwrap(), 1);
        assert!(dir(earlier(1)).exists() && dir(earlier(2)).exists());
        assert!(!dir(earlier(3)).exists());
        for user in &mut users {
            user.kill().unwrap();
            user.wait().unwrap();
        }
        assert_eq!(sweep(work.path(), first).unwrap(), 2);
        for kept in [dir(first), dir(first + 7), work.path().join("other")] {
            assert!(kept.exists(), "{}", kept.display());
        }
        assert_eq!(sweep(&work.path().join("missing"), first).unwrap(), 0);
    }
}
