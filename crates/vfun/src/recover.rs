//! Finds a region that a VM still maps and an earlier daemon created.
//!
//! A sealed memfd has no name, but a process that maps it has it open, and the daemon has recorded
//! that process: its id and start time, and the region's inode. A process with the same id and
//! start time that has a sealed memfd of that inode open is the VM. Reading its descriptors
//! requires root or the same user.

use rustix::fs::{fcntl_get_seals, fstat, SealFlags};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The region's name, for display.
pub const MEMFD_NAME: &str = "baltra-vfun";

/// A process that maps a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Start time of the process, in the kernel's ticks since boot.
    pub started: u64,
    /// The region's inode.
    pub inode: u64,
}

/// Start time of a process; `None`: the process does not exist.
pub fn started(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain any character; field 22 is the 20th after the name.
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// A memfd's inode.
pub fn inode(memory: impl AsFd) -> io::Result<u64> {
    Ok(fstat(memory)?.st_ino)
}

/// The region of a holder, if it still maps it.
pub fn region(holder: &Holder, bytes: u64) -> Option<OwnedFd> {
    if started(holder.pid) != Some(holder.started) {
        return None;
    }
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", holder.pid)).ok()?;
    let found = descriptors.flatten().find_map(|entry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        let is_ours = target.to_string_lossy().contains(MEMFD_NAME);
        is_ours.then(|| open(&entry.path(), holder.inode, bytes))?
    })?;
    // The process id has not been reused meanwhile.
    (started(holder.pid) == Some(holder.started)).then_some(found)
}

fn open(path: &Path, wanted: u64, bytes: u64) -> Option<OwnedFd> {
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    let stat = fstat(&file).ok()?;
    let seals = fcntl_get_seals(&file).ok()?;
    let sealed = seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
    (stat.st_ino == wanted && stat.st_size as u64 == bytes && sealed).then(|| file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_found_at_its_holder_only() {
        let memory = baltra_ring::memory::create_sealed(MEMFD_NAME, 1 << 20).unwrap();
        let pid = std::process::id();
        let holder = Holder {
            pid,
            started: started(pid).unwrap(),
            inode: inode(&memory).unwrap(),
        };
        let found = region(&holder, 1 << 20).unwrap();
        assert_eq!(inode(&found).unwrap(), holder.inode);
        assert!(region(&holder, 2 << 20).is_none());
        let other = |change: fn(&mut Holder)| {
            let mut other = holder.clone();
            change(&mut other);
            region(&other, 1 << 20)
        };
        assert!(other(|h| h.started += 1).is_none());
        assert!(other(|h| h.inode += 1).is_none());
        assert!(other(|h| h.pid = 1).is_none());
    }
}
