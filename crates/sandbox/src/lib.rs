//! Restrictions of processes that run foreign code.
//!
//! | module | content |
//! |---|---|
//! | this module | [`Sandbox`]: privileges, limits, files, system calls |
//! | [`compiler`] | further restrictions of an executor's compiler of kernels |
//! | [`worker`] | further restrictions of a VM's worker, which starts no program |
//! | [`group`] | control groups (cgroup v2) of child processes |
//!
//! An executor runs a vendor's driver and its tenant's kernels, which on a CPU are native code; a
//! native function's process runs the function's library: a stray store of that code can lead to
//! any system call. Before the driver starts its first thread, the process therefore drops the
//! privileges that neither needs:
//!
//! * `no_new_privs`: no set-user-id program can restore them;
//! * seccomp, a list of denied calls (drivers run compilers, so starting programs stays allowed):
//!   other processes' memory, mounts, namespaces, kernel modules, keys, BPF, the network;
//! * landlock, if the kernel has it: only the system's files are accessible, read-only; writable
//!   are the process's own directory, the caches of compiled kernels and device nodes;
//! * limits: no core dumps (they would contain a tenant's data).
//!
//! # Isolation of the caches of compiled kernels
//!
//! Landlock applies to a thread and to threads that it starts later. The driver's own threads start
//! before the executor is assigned to a tenant, so [`Sandbox::confine`] blocks the other tenants'
//! caches for all threads except those: for the main thread and all threads of sessions, which
//! build programs and read the driver's caches. A kernel that is native code (a CPU device) runs on
//! the driver's threads: malicious code in a kernel can still read and write all caches under the
//! cache root, but nothing else of the system. If that is not acceptable, run without a cache root,
//! which disables caching. On a kernel without landlock (before 5.13) only file permissions apply.
//! A GPU's kernels make no system calls at all.

#![forbid(unsafe_code)]

pub mod compiler;
pub mod group;
pub mod worker;

use anyhow::Context;
use landlock::{
    Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, ABI,
};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use seccompiler::{
    apply_filter_all_threads, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The requested landlock version; an older kernel provides what it supports.
const LANDLOCK: ABI = ABI::V5;

/// Most descriptors: an arena and a session need three or four.
const DESCRIPTORS_MAX: u64 = 65_536;

/// Directories of drivers, their compilers and their configuration.
const SYSTEM: [&str; 14] = [
    "/usr",
    "/lib",
    "/lib64",
    "/lib32",
    "/bin",
    "/sbin",
    "/etc",
    "/opt",
    "/proc",
    "/sys",
    "/run",
    "/nix",
    "/gnu",
    "/var/lib/dpkg/alternatives",
];

/// System calls that no driver and no compiler needs.
const DENIED: [libc::c_long; 37] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_open_by_handle_at,
];

/// Socket families that reach other hosts.
const FAMILIES_DENIED: [i32; 5] = [
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_PACKET,
    libc::AF_VSOCK,
    libc::AF_ALG,
];

/// The files that a process may access in addition to the system's.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    /// The library that it loads: if the path is absolute, its directory is readable.
    pub library: PathBuf,
    /// Further readable directories.
    pub readable: Vec<PathBuf>,
    /// Its own directory, which is writable.
    pub work_dir: PathBuf,
    /// The directory of all tenants' caches, which is writable.
    pub cache_root: Option<PathBuf>,
}

impl Sandbox {
    /// Drops unneeded privileges. Must be called before the library is loaded.
    pub fn enter(&self) -> anyhow::Result<()> {
        limit().context("cannot set resource limits")?;
        rustix::thread::set_no_new_privs(true).context("cannot set no_new_privs")?;
        restrict_files(self).context("cannot restrict access to files (landlock)")?;
        deny_calls().context("cannot filter system calls (seccomp)")
    }

    /// Restricts this thread, and threads that it starts from now on, to the tenant's own cache.
    pub fn confine(&self, cache_dir: &Path) -> anyhow::Result<()> {
        let rules = allow(system_rules(self)?, cache_dir, AccessFs::from_all(LANDLOCK))?;
        rules.restrict_self()?;
        Ok(())
    }
}

fn limit() -> anyhow::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    let files = getrlimit(Resource::Nofile);
    let most = files.maximum.unwrap_or(DESCRIPTORS_MAX);
    let wanted = Rlimit {
        current: Some(most.min(DESCRIPTORS_MAX)),
        maximum: files.maximum,
    };
    setrlimit(Resource::Nofile, wanted)?;
    Ok(())
}

fn deny_calls() -> anyhow::Result<()> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        DENIED.iter().map(|call| (*call, Vec::new())).collect();
    let families = FAMILIES_DENIED.iter().map(|family| {
        let is =
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *family as u64)?;
        SeccompRule::new(vec![is])
    });
    rules.insert(libc::SYS_socket, families.collect::<Result<_, _>>()?);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: seccompiler::BpfProgram = filter.try_into()?;
    apply_filter_all_threads(&program)?;
    Ok(())
}

/// Adds a rule for a path if it exists.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: impl Into<landlock::BitFlags<AccessFs>>,
) -> anyhow::Result<RulesetCreated> {
    match PathFd::new(path) {
        Ok(fd) => Ok(rules.add_rule(PathBeneath::new(fd, access.into()))?),
        Err(_) => Ok(rules),
    }
}

fn system_rules(sandbox: &Sandbox) -> anyhow::Result<RulesetCreated> {
    let all = AccessFs::from_all(LANDLOCK);
    let read = AccessFs::from_read(LANDLOCK);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?;
    for path in SYSTEM {
        rules = allow(rules, Path::new(path), read)?;
    }
    if let Some(dir) = sandbox.library.parent() {
        if dir.is_absolute() {
            rules = allow(rules, dir, read)?;
        }
    }
    for dir in &sandbox.readable {
        rules = allow(rules, dir, read)?;
    }
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev;
    rules = allow(rules, Path::new("/dev"), device)?;
    // Drivers create locks and shared segments there.
    rules = allow(rules, Path::new("/dev/shm"), all)?;
    allow(rules, &sandbox.work_dir, all)
}

fn restrict_files(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut rules = system_rules(sandbox)?;
    if let Some(root) = &sandbox.cache_root {
        rules = allow(rules, root, AccessFs::from_all(LANDLOCK))?;
    }
    rules.restrict_self()?;
    Ok(())
}
