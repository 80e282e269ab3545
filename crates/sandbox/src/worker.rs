//! Restrictions of a VM's worker in addition to [`Sandbox`](crate::Sandbox): it never starts
//! another process, and without accelerators it opens no connection.
//!
//! A process that may connect to a VM's socket acts as that VM. A worker runs as the daemon's own
//! user, so malicious code in a worker must not be able to connect there. Without sockets it
//! cannot. If a worker needs sockets for a Device Manager, the daemon recognizes the worker by its
//! process id, which it cannot change because it can neither fork nor execute a program. (Landlock
//! blocks access to other processes' descriptors.)

use anyhow::{Context, Result};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use seccompiler::{
    apply_filter_all_threads, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// System calls that a worker never needs, because it starts only threads.
const NEVER: [i64; 4] = [
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
];

fn apply(rules: BTreeMap<i64, Vec<SeccompRule>>, error: i32) -> Result<()> {
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(error as u32),
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    apply_filter_all_threads(&program)?;
    Ok(())
}

/// Applies the restrictions, for all threads. `connects`: the worker is a client of a Device
/// Manager.
pub fn enter(connects: bool) -> Result<()> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        NEVER.iter().map(|call| (*call, Vec::new())).collect();
    if !connects {
        rules.insert(libc::SYS_socket, Vec::new());
        rules.insert(libc::SYS_connect, Vec::new());
    }
    let thread = libc::CLONE_THREAD as u64;
    let is_process = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::MaskedEq(thread),
        0,
    )?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![is_process])?]);
    apply(rules, libc::EPERM)?;
    // A filter cannot check the flags of clone3; the C library falls back to the older call.
    let clone3 = [(libc::SYS_clone3, Vec::new())].into();
    apply(clone3, libc::ENOSYS)
}

/// Limits the process's memory, except mapped files, to `bytes` or to its hard limit if that is
/// lower.
pub fn limit_data(bytes: u64) -> Result<()> {
    let limit = getrlimit(Resource::Data);
    let most = limit.maximum.map_or(bytes, |maximum| maximum.min(bytes));
    let wanted = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(Resource::Data, wanted).context("cannot limit memory")
}
