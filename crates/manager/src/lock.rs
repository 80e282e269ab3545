//! Lock files: one manager per runtime directory, and one of each other daemon.

use crate::options::PathOptions;
use anyhow::{bail, Context, Result};
use rustix::fs::{flock, FlockOperation};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// The lock, held until the manager exits; the kernel releases it at any end of the process.
#[derive(Debug)]
pub struct Lock {
    paths: PathOptions,
    _file: File,
}

impl Lock {
    /// Creates and locks the runtime directory.
    pub fn take(paths: &PathOptions) -> Result<Lock> {
        make_directory(&paths.runtime)?;
        let file = hold(&paths.lock_file(), "manager")?;
        Ok(Lock {
            paths: paths.clone(),
            _file: file,
        })
    }

    /// Removes the sockets, to which clients could no longer connect.
    pub fn clear_sockets(&self) {
        for path in [
            self.paths.session_socket(),
            self.paths.relay_socket(),
            self.paths.token_socket(),
            self.paths.control_socket(),
            self.paths.adopt_socket(),
        ] {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Locks the lock file of a daemon (`what`) until the result is dropped. Creates the runtime
/// directory of the file.
pub fn hold(path: &Path, what: &str) -> Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut pid = String::new();
        let _ = file.read_to_string(&mut pid);
        bail!(
            "another {what} (process {}) serves {}: stop it with `baltra down`, or give this one its own --runtime-dir and --state-dir",
            pid.trim(),
            path.parent().unwrap_or(path).display()
        );
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())?;
    Ok(file)
}

/// The process of the manager that serves a runtime directory, if there is one.
pub fn holder(paths: &PathOptions) -> Option<u32> {
    holder_of(&paths.lock_file())
}

/// The process that holds a daemon's lock file, if there is one.
pub fn holder_of(path: &Path) -> Option<u32> {
    let mut file = File::open(path).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut pid = String::new();
    file.read_to_string(&mut pid).ok()?;
    pid.trim().parse().ok()
}

/// Creates the runtime directory. Its parent may be writable for others, so its owner is checked.
pub fn make_directory(path: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .with_context(|| format!("cannot create the runtime directory {}", path.display()))?;
    let found = std::fs::symlink_metadata(path)?;
    let user = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        bail!(
            "the runtime directory {} must be a directory that user {user} owns and nobody else can write: remove it, or choose another with --runtime-dir",
            path.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn paths(root: &Path) -> PathOptions {
        PathOptions {
            runtime: root.join("run"),
            state: root.join("state"),
            ..PathOptions::default()
        }
    }

    #[test]
    fn a_second_manager_is_refused_with_the_firsts_process_id() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(dir.path());
        assert_eq!(holder(&paths), None);
        let first = Lock::take(&paths).unwrap();
        let error = Lock::take(&paths).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        assert_eq!(holder(&paths), Some(std::process::id()));
        drop(first);
        assert_eq!(holder(&paths), None);
        Lock::take(&paths).unwrap();
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(dir.path());
        std::fs::create_dir(&paths.runtime).unwrap();
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&paths.runtime, open).unwrap();
        assert!(Lock::take(&paths).is_err());
    }
}
