//! Control groups (cgroup v2) of executors, if the manager may divide its own group: processes
//! started by a driver die with their executor, and memory and the number of processes are bounded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Prefix of the name of an executor's group, followed by its process id.
const NAME: &str = "baltra-executor-";

/// Group of the manager itself: a group whose children have limits must not contain processes.
const MANAGER: &str = "baltra-manager";

/// The manager's own group, in which executors' groups are created.
#[derive(Clone, Debug, PartialEq)]
pub struct Groups {
    dir: PathBuf,
    memory_bytes: u64,
    processes: u64,
}

impl Groups {
    /// Prepares this process's group for executors with these limits of memory and of processes and
    /// threads (0: unlimited). `None`: executors share the manager's group.
    pub fn divide(memory_bytes: u64, processes: u64) -> Option<Groups> {
        let dir = own_group()
            .inspect_err(|reason| tracing::debug!(reason, "executors run without control groups"))
            .ok()?;
        if let Err(error) = bound_children(&dir) {
            tracing::debug!(group = %dir.display(), %error, "cannot bound executors in this control group");
        }
        Some(Groups {
            dir,
            memory_bytes,
            processes,
        })
    }

    /// Moves a process that was just started into its own group.
    pub fn place(&self, pid: u32) -> io::Result<Group> {
        let dir = self.dir.join(format!("{NAME}{pid}"));
        match fs::create_dir(&dir) {
            // Left by an ended process with the same id, whose descendants may be in other groups
            // by now.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => result?,
        }
        let group = Group { dir };
        for (file, value) in [
            ("memory.max", self.memory_bytes),
            ("pids.max", self.processes),
        ] {
            if value != 0 {
                group.set(file, &value.to_string());
            }
        }
        // An executor without some of its processes is useless.
        group.set("memory.oom.group", "1");
        fs::write(group.dir.join("cgroup.procs"), pid.to_string())?;
        Ok(group)
    }
}

/// The directory of this process's group, in which groups can be created, or the reason for its
/// absence.
pub fn own_group() -> Result<PathBuf, &'static str> {
    let dir = group_of(std::process::id()).ok_or("cgroup v2 is not mounted")?;
    // A manager that has moved into its own group still divides the group above.
    let dir = if dir.file_name().is_some_and(|name| name == MANAGER) {
        dir.parent().map_or(dir.clone(), Path::to_owned)
    } else {
        dir
    };
    // Only the root group has no type. It is not used even if it is writable.
    if !dir.join("cgroup.type").exists() {
        return Err("this process is in the root group");
    }
    match rustix::fs::access(&dir, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Ok(dir),
        Err(_) => Err("this process's group belongs to another user"),
    }
}

/// Enables limits of memory and processes for a group's children, if the group has these
/// controllers and contains no process but this one.
fn bound_children(dir: &Path) -> io::Result<()> {
    let controllers = fs::read_to_string(dir.join("cgroup.controllers"))?;
    let wanted = ["memory", "pids"]
        .into_iter()
        .filter(|name| controllers.split_whitespace().any(|c| c == *name));
    let words: Vec<_> = wanted.map(|name| format!("+{name}")).collect();
    if words.is_empty() {
        return Ok(());
    }
    let own = std::process::id().to_string();
    let manager = dir.join(MANAGER);
    fs::create_dir_all(&manager)?;
    fs::write(manager.join("cgroup.procs"), &own)?;
    let result = fs::write(dir.join("cgroup.subtree_control"), words.join(" "));
    if result.is_err() {
        fs::write(dir.join("cgroup.procs"), &own)?;
        fs::remove_dir(&manager)?;
    }
    result
}

/// One executor's group.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
}

impl Group {
    /// The group of an executor that an earlier manager started, if it has one.
    pub fn find(pid: u32) -> Option<Group> {
        let dir = group_of(pid)?;
        let name = format!("{NAME}{pid}");
        dir.ends_with(name).then_some(Group { dir })
    }

    fn set(&self, file: &str, value: &str) {
        let path = self.dir.join(file);
        // If the controller is not delegated, its files are missing.
        if path.exists() {
            if let Err(error) = fs::write(&path, value) {
                tracing::warn!(path = %path.display(), %error, "cannot set an executor's limit");
            }
        }
    }

    /// Kills all processes in it.
    pub fn kill(&self) {
        let _ = fs::write(self.dir.join("cgroup.kill"), "1");
    }

    /// Kills the remaining processes and removes the group once they have ended.
    pub fn remove(&self) {
        self.kill();
        for _ in 0..50 {
            match fs::remove_dir(&self.dir) {
                Err(error) if error.raw_os_error() == Some(BUSY) => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                _ => return,
            }
        }
        tracing::warn!(group = %self.dir.display(), "a process in a control group does not exit");
    }
}

/// `EBUSY`.
const BUSY: i32 = 16;

/// The directory of a process's group.
fn group_of(pid: u32) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    directory(&mounts, &groups)
}

/// Finds the group's directory from `/proc/self/mountinfo` and `/proc/PID/cgroup`.
fn directory(mounts: &str, groups: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // Fields: id parent device root mount-point options [optional…] - type source options.
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        (right.split(' ').next() == Some("cgroup2")).then_some(left)
    })?;
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let below = Path::new(path).strip_prefix(root).ok()?;
    // `join` with an empty path would append a slash.
    let dir = if below.as_os_str().is_empty() {
        PathBuf::from(point)
    } else {
        Path::new(point).join(below)
    };
    Some(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
32 27 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
35 27 0:32 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
";

    #[test]
    fn a_group_is_found_below_its_mount() {
        let groups = "4:memory:/a\n0::/system.slice/baltra.service\n";
        let dir = directory(HYBRID, groups).unwrap();
        let expected = "/sys/fs/cgroup/unified/system.slice/baltra.service";
        assert_eq!(dir, Path::new(expected));
        let dir = directory(HYBRID, "0::/").unwrap();
        assert_eq!(dir, Path::new("/sys/fs/cgroup/unified"));
    }

    #[test]
    fn a_mount_of_a_part_shows_that_part_alone() {
        let mounts = "1 2 0:3 /pod /sys/fs/cgroup ro - cgroup2 none ro\n";
        let dir = directory(mounts, "0::/pod/a").unwrap();
        assert_eq!(dir, Path::new("/sys/fs/cgroup/a"));
        assert_eq!(directory(mounts, "0::/other"), None);
    }

    #[test]
    fn without_cgroup_v2_there_is_no_group() {
        assert_eq!(directory("1 2 0:3 / / rw - ext4 a rw\n", "0::/"), None);
        assert_eq!(directory(HYBRID, "4:memory:/a\n"), None);
    }
}
