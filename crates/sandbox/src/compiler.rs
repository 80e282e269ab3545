//! Restrictions of the compiler of a tenant's source beyond those of the executor that starts it
//! ([`Sandbox`](crate::Sandbox)): of the system it reads the programs and libraries alone, and its
//! memory, time and files are limited. A program that it starts inherits all of that.
//!
//! Source can name any file (`#include "/proc/self/environ"`), and the compiler's log shows what it
//! read. So neither `/etc` nor `/proc` of another process, nor the caches of compiled kernels are
//! accessible. (Landlock denies access to processes outside the compiler's own restrictions.)

use crate::{allow, LANDLOCK};
use anyhow::{Context, Result};
use landlock::{Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
use rustix::process::{getrlimit, set_parent_process_death_signal, setrlimit};
use rustix::process::{Resource, Rlimit, Signal};
use std::path::{Path, PathBuf};

/// Directories of compilers, and what the dynamic linker and they read.
const SYSTEM: [&str; 10] = [
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/nix",
    "/gnu",
];

/// Devices that programs need.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/urandom"];

/// Processor time of each process.
pub const PROCESSOR_S: u64 = 240;
/// Other limits of each process: address space, length of a file.
const MEMORY_BYTES: u64 = 4 << 30;
/// Between the signal for the limit of processor time and the process's end.
const PROCESSOR_GRACE_S: u64 = 5;
const FILE_BYTES: u64 = 512 << 20;

/// The files of a compilation.
#[derive(Clone, Debug, Default)]
pub struct Compilation {
    /// Directories and files that it reads beside the system's.
    pub readable: Vec<PathBuf>,
    /// The directory that it may write.
    pub dir: PathBuf,
}

impl Compilation {
    /// Gives up the rest, for this process and those that it starts. It is killed when its parent
    /// ends.
    pub fn enter(&self) -> Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))
            .context("cannot bind the compiler to its parent")?;
        for (resource, most, grace) in [
            (Resource::As, MEMORY_BYTES, 0),
            (Resource::Cpu, PROCESSOR_S, PROCESSOR_GRACE_S),
            (Resource::Fsize, FILE_BYTES, 0),
            (Resource::Core, 0, 0),
        ] {
            limit(resource, most, grace).context("cannot set the compiler's resource limits")?;
        }
        rustix::thread::set_no_new_privs(true).context("cannot set no_new_privs")?;
        self.restrict_files()
            .context("cannot restrict the compiler's access to files (landlock)")
    }

    fn restrict_files(&self) -> Result<()> {
        let all = AccessFs::from_all(LANDLOCK);
        let read = AccessFs::from_read(LANDLOCK);
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(all)?
            .create()?;
        let system = SYSTEM.iter().map(Path::new);
        for path in system.chain(self.readable.iter().map(PathBuf::as_path)) {
            let access = if path.is_dir() {
                read
            } else {
                AccessFs::ReadFile | AccessFs::Execute
            };
            rules = allow(rules, path, access)?;
        }
        for path in DEVICES {
            let access = AccessFs::ReadFile | AccessFs::WriteFile;
            rules = allow(rules, Path::new(path), access)?;
        }
        rules = allow(rules, &self.dir, all)?;
        rules.restrict_self()?;
        Ok(())
    }
}

/// Lowers a limit permanently; one that is lower already stays. `grace`: how far the limit that ends
/// the process is beyond the one that signals it.
fn limit(resource: Resource, most: u64, grace: u64) -> Result<()> {
    let old = getrlimit(resource);
    let lower = |old: Option<u64>, most: u64| Some(old.map_or(most, |old| old.min(most)));
    let wanted = Rlimit {
        current: lower(old.current, most),
        maximum: lower(old.maximum, most + grace),
    };
    setrlimit(resource, wanted)?;
    Ok(())
}
