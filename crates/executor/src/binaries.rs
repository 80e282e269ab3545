//! Program binaries of remote clients, on the node's disk: a client names a binary by its digest,
//! and sends its bytes only if they are not here.
//!
//! A tenant's executors share the binaries; other tenants cannot read them. The tenant's own kernels
//! may be able to write to the directory, so that each binary is checked against its digest. The
//! oldest binaries are removed when their total size exceeds its limit.

use sha2::{Digest, Sha256};
use std::fs::{self, DirEntry};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Maximum total size of a tenant's binaries, bytes.
const BYTES_MAX: u64 = 1 << 30;
/// Most binaries of a tenant.
const COUNT_MAX: usize = 4096;

/// The SHA-256 of a binary.
pub type Key = [u8; 32];

/// The binaries; without a directory, there are none.
#[derive(Debug, Default)]
pub struct Binaries {
    dir: OnceLock<PathBuf>,
}

impl Binaries {
    /// Keeps the binaries in a directory, which is created if missing.
    ///
    /// # Errors
    ///
    /// The directory cannot be created.
    pub fn keep_in(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        // An executor is assigned once.
        let _ = self.dir.set(dir.to_owned());
        Ok(())
    }

    /// The binary with a digest, if it has at most `bytes_max` bytes.
    pub fn get(&self, key: &Key, bytes_max: usize) -> Option<Vec<u8>> {
        let path = self.dir.get()?.join(name(key));
        let metadata = fs::symlink_metadata(&path).ok()?;
        if !metadata.is_file() || metadata.len() > bytes_max as u64 {
            return None;
        }
        // The file may grow meanwhile.
        let mut binary = Vec::new();
        let file = fs::File::open(&path).ok()?;
        file.take(metadata.len()).read_to_end(&mut binary).ok()?;
        if digest(&binary) == *key {
            return Some(binary);
        }
        let _ = fs::remove_file(&path);
        None
    }

    /// Stores a binary.
    pub fn put(&self, key: &Key, binary: &[u8]) {
        let Some(dir) = self.dir.get() else {
            return;
        };
        if let Err(error) = store(dir, &name(key), binary) {
            tracing::warn!(%error, "cannot store a program's binary");
        }
    }
}

/// The digest of a binary.
pub fn digest(binary: &[u8]) -> Key {
    Sha256::digest(binary).into()
}

fn name(key: &Key) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn store(dir: &Path, name: &str, binary: &[u8]) -> io::Result<()> {
    make_room(dir, binary.len() as u64)?;
    // Executors of the same tenant write to the directory at the same time.
    let part = dir.join(format!("{name}.{}", std::process::id()));
    let written = fs::File::create(&part).and_then(|mut file| file.write_all(binary));
    let stored = written.and_then(|()| fs::rename(&part, dir.join(name)));
    if stored.is_err() {
        let _ = fs::remove_file(&part);
    }
    stored
}

/// Removes the oldest binaries until `bytes` more fit.
fn make_room(dir: &Path, bytes: u64) -> io::Result<()> {
    let read = |entry: io::Result<DirEntry>| {
        let entry = entry?;
        let metadata = entry.metadata()?;
        Ok((metadata.modified()?, metadata.len(), entry.path()))
    };
    // Another executor may remove a file meanwhile.
    let files = fs::read_dir(dir)?.map(read).filter_map(io::Result::ok);
    let mut files: Vec<_> = files.collect();
    files.sort();
    let mut total = files.iter().map(|(_, len, _)| len).sum::<u64>();
    let mut count = files.len();
    for (_, len, path) in files {
        if total + bytes <= BYTES_MAX && count < COUNT_MAX {
            break;
        }
        let _ = fs::remove_file(path);
        total -= len;
        count -= 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_is_found_by_its_digest_and_checked() {
        let dir = tempfile::tempdir().unwrap();
        let binaries = Binaries::default();
        let (key, other) = (digest(b"abc"), digest(b"other"));
        binaries.put(&key, b"abc");
        assert_eq!(binaries.get(&key, 3), None, "there is no directory");
        binaries.keep_in(&dir.path().join("binaries")).unwrap();
        binaries.put(&key, b"abc");
        assert_eq!(binaries.get(&key, 3).unwrap(), b"abc");
        assert_eq!(binaries.get(&key, 2), None);
        assert_eq!(binaries.get(&other, 9), None);
        // A kernel of the tenant has replaced it.
        fs::write(dir.path().join("binaries").join(name(&key)), b"abd").unwrap();
        assert_eq!(binaries.get(&key, 3), None);
        assert_eq!(
            fs::read_dir(dir.path().join("binaries")).unwrap().count(),
            0
        );
    }

    #[test]
    fn the_oldest_binary_makes_room() {
        let dir = tempfile::tempdir().unwrap();
        let sparse = |name: &str, len: u64, age_s: u64| {
            let file = fs::File::create(dir.path().join(name)).unwrap();
            file.set_len(len).unwrap();
            let now = std::time::SystemTime::now();
            file.set_modified(now - std::time::Duration::from_secs(age_s))
                .unwrap();
        };
        sparse("old", 1, 20);
        sparse("new", BYTES_MAX - 3, 10);
        let binaries = Binaries::default();
        binaries.keep_in(dir.path()).unwrap();
        binaries.put(&digest(b"ab"), b"ab");
        assert!(dir.path().join("old").exists());
        binaries.put(&digest(b"abc"), b"abc");
        assert!(!dir.path().join("old").exists());
        assert!(!dir.path().join("new").exists());
        assert_eq!(binaries.get(&digest(b"ab"), 2).unwrap(), b"ab");
    }
}
