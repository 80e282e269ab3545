//! The lock of a store's directory, for one registry at a time.

use rustix::fs::{flock, FlockOperation};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Why a store's directory cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another registry uses it.
    #[error("another registry (process {pid}) serves the store in {}: stop it, or set another 'registry.state'", path.display())]
    Taken {
        /// The directory.
        path: PathBuf,
        /// The process that holds the lock.
        pid: String,
    },
    /// The directory cannot be created or written.
    #[error("cannot use the directory {} ('registry.state')", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
}

/// The lock, held while the registry runs; the kernel releases it at any end of the process.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code)] File);

impl Lock {
    /// Creates and locks the directory.
    pub fn take(directory: &Path) -> Result<Lock, Error> {
        let io = |source| Error::Io {
            path: directory.to_owned(),
            source,
        };
        std::fs::create_dir_all(directory).map_err(io)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join("registry.lock"))
            .map_err(io)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            return Err(Error::Taken {
                path: directory.to_owned(),
                pid: pid.trim().to_owned(),
            });
        }
        // Writing the process id is optional: a full disk must not prevent the start.
        let _ = file.set_len(0).and_then(|()| file.rewind());
        let _ = writeln!(file, "{}", std::process::id());
        Ok(Lock(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_registry_gets_the_first_ones_process_id() {
        let dir = tempfile::tempdir().unwrap();
        let first = Lock::take(&dir.path().join("registry")).unwrap();
        let error = Lock::take(&dir.path().join("registry")).unwrap_err();
        assert!(matches!(error, Error::Taken { .. }));
        assert!(error.to_string().contains(&std::process::id().to_string()));
        drop(first);
        Lock::take(&dir.path().join("registry")).unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let error = Lock::take(Path::new("/proc/nowhere")).unwrap_err();
        assert!(error.to_string().contains("/proc/nowhere"), "{error}");
    }
}
