//! One executor's process.

use super::Fault;
use baltra_channel::Channel;
use baltra_ring::Locked;
use baltra_sandbox::group::{Group, Groups};
use baltra_wire::executor::{Adoption, ToExecutor, ToManager};
use baltra_wire::{Version, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::process::{PidfdFlags, Signal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Options for starting an executor.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program; empty: the running program.
    pub program: PathBuf,
    /// The driver's library.
    pub driver: PathBuf,
    /// The selected device ([`crate::options::DeviceOptions::select`]).
    pub select: String,
    /// Whether buffers may be in the client's memory.
    pub host_memory: bool,
    /// Maximum spin of queues, microseconds.
    pub spin_us: u64,
    /// Whether it is sandboxed.
    pub sandbox: bool,
    /// Directory of the tenants' directories for compiled kernels.
    pub cache: PathBuf,
    /// Parent of the executors' private directories.
    pub work: PathBuf,
    /// Socket to which it reconnects after its manager has died.
    pub adopt: PathBuf,
    /// The device's name.
    pub device: String,
    /// Parent of its control group, if the host allows creating one.
    pub groups: Option<Groups>,
    /// Whether it reports commands that belong to traces.
    pub traces: bool,
    /// Time for which commands of an ended session may continue
    /// ([`crate::options::DeviceOptions::orphan_ms`]).
    pub orphan_ms: Option<u64>,
    /// Time for which a command of an open session may block commands of ended sessions
    /// ([`crate::options::DeviceOptions::contended_ms`]).
    pub contended_ms: u64,
    /// Limit of all memory objects together, as a multiple of the device's memory
    /// ([`crate::options::DeviceOptions::memory_overcommit`]).
    pub memory_overcommit: Option<u32>,
    /// Memory that objects may take on the device ([`crate::options::DeviceOptions::memory_bytes`]).
    pub memory_bytes: Option<u64>,
    /// Length of the slices of long launches ([`crate::options::DeviceOptions::slice_ms`]).
    pub slice: Duration,
}

impl Launch {
    /// Starts the executor. The control socket is its standard input.
    pub fn start(&self, id: u64) -> io::Result<Process> {
        let work = self.work.join(id.to_string());
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&work)?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.cache)?;
        let (ours, theirs) = Channel::pair()?;
        let mut command = crate::drivers::program(&self.program);
        command
            .arg("executor")
            .arg("--name")
            .arg(&self.device)
            .arg("--driver")
            .arg(&self.driver)
            .arg("--select")
            .arg(&self.select)
            .arg("--spin-us")
            .arg(self.spin_us.to_string())
            .arg("--cache-root")
            .arg(&self.cache)
            .arg("--work-dir")
            .arg(&work)
            .arg("--adopt")
            .arg(&self.adopt)
            .stdin(Stdio::from(theirs.into_fd()))
            .stdout(Stdio::null());
        if !self.sandbox {
            command.arg("--no-sandbox");
        }
        if !self.host_memory {
            command.arg("--no-host-memory");
        }
        if self.traces {
            command.arg("--traces");
        }
        if let Some(ms) = self.orphan_ms {
            command.arg("--orphan-ms").arg(ms.to_string());
        }
        if let Some(times) = self.memory_overcommit {
            command.arg("--memory-overcommit").arg(times.to_string());
        }
        if let Some(bytes) = self.memory_bytes {
            command.arg("--memory-bytes").arg(bytes.to_string());
        }
        if !self.slice.is_zero() {
            let us = self.slice.as_micros().to_string();
            command.arg("--slice-us").arg(us);
        }
        let contended_ms = self.contended_ms.to_string();
        command.arg("--contended-ms").arg(contended_ms);
        let child = command.spawn()?;
        let mut process = Process::new(ours, child.id(), Some(child))?;
        process.work = Some(work);
        process.group = self.groups.as_ref().and_then(|groups| {
            let pid = process.pid;
            let failed =
                |error| tracing::warn!(pid, %error, "cannot move an executor into a control group");
            groups.place(pid).map_err(failed).ok()
        });
        Ok(process)
    }

    /// Starts a keeper, for a session's state of at most `bytes_max`.
    pub fn keep(&self, bytes_max: u64) -> io::Result<Process> {
        let (ours, theirs) = Channel::pair()?;
        let mut command = crate::drivers::program(&self.program);
        command
            .arg("keeper")
            .arg("--name")
            .arg(&self.device)
            .arg("--bytes-max")
            .arg(bytes_max.to_string())
            .arg("--adopt")
            .arg(&self.adopt)
            .stdin(Stdio::from(theirs.into_fd()))
            .stdout(Stdio::null());
        if !self.sandbox {
            command.arg("--no-sandbox");
        }
        let child = command.spawn()?;
        Process::new(ours, child.id(), Some(child))
    }

    /// Starts a forwarder; `authority`: a file of certificate authorities for TLS, or empty.
    pub fn forward(&self, authority: &str) -> io::Result<Process> {
        let (ours, theirs) = Channel::pair()?;
        let mut command = crate::drivers::program(&self.program);
        command
            .arg("forwarder")
            .arg("--name")
            .arg(&self.device)
            .arg("--adopt")
            .arg(&self.adopt)
            .env_remove("BALTRA_TLS_CA")
            .stdin(Stdio::from(theirs.into_fd()))
            .stdout(Stdio::null());
        if !authority.is_empty() {
            command.env("BALTRA_TLS_CA", authority);
        }
        let child = command.spawn()?;
        Process::new(ours, child.id(), Some(child))
    }
}

/// Whether the flags of a process's `stat` (proc(5)) have Linux' `PF_EXITING`.
fn is_exiting(stat: &str) -> bool {
    const EXITING: u64 = 4;
    // The name in parentheses may contain any character; the flags are the seventh field after it.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let flags = fields.split_whitespace().nth(6);
    let flags = flags.and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & EXITING != 0)
}

/// A running executor: its control socket and a reliable way to kill it.
#[derive(Debug)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    channel: Channel,
    pidfd: OwnedFd,
    child: Mutex<Option<Child>>,
    killed: AtomicBool,
    /// The tenant for whose task it was killed, and the fault.
    ended_for: OnceLock<(String, Fault)>,
    work: Option<PathBuf>,
    group: Option<Group>,
    /// Its protocol version; `None`: earlier than 1.6.
    version: Option<Version>,
}

impl Process {
    /// A process with a connected control socket. `child`: a child of this process, to be reaped.
    pub fn new(channel: Channel, pid: u32, child: Option<Child>) -> io::Result<Process> {
        let number = rustix::process::Pid::from_raw(pid as i32)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "invalid process id"))?;
        let pidfd = rustix::process::pidfd_open(number, PidfdFlags::empty())?;
        // An executor that does not read its socket must not delay a connecting client.
        let patience = Some(Duration::from_secs(1));
        set_socket_timeout(channel.as_fd(), Timeout::Send, patience)?;
        Ok(Process {
            pid,
            channel,
            pidfd,
            child: Mutex::new(child),
            killed: AtomicBool::new(false),
            ended_for: OnceLock::new(),
            work: None,
            group: None,
            version: Some(VERSION),
        })
    }

    /// Whether this manager has started it.
    pub fn is_own(&self) -> bool {
        self.work.is_some()
    }

    /// The same process, with the control group that an earlier manager gave it.
    pub fn in_its_group(mut self) -> Process {
        self.group = Group::find(self.pid);
        self
    }

    /// Sends one message, with its descriptors.
    pub fn send(&self, message: &ToExecutor, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.channel.send(message, fds)
    }

    /// Waits for the next message; `None`: the process closed its socket.
    pub fn receive(&self) -> io::Result<Option<(ToManager, Vec<OwnedFd>)>> {
        self.channel.receive()
    }

    /// Waits for the first message of an executor of an earlier manager, and keeps its version.
    pub fn receive_adoption(&mut self) -> io::Result<Option<(ToManager, Vec<OwnedFd>)>> {
        let received = self.channel.receive::<Adoption>()?;
        Ok(received.map(|((message, version), fds)| {
            self.version = version.0;
            (message, fds)
        }))
    }

    /// Whether it is of this release or a later one, so that it supports all messages.
    pub fn is_current(&self) -> bool {
        self.version.is_some_and(|version| version >= VERSION)
    }

    /// Whether it supports moves and describes its sessions.
    pub fn supports_moves(&self) -> bool {
        self.version.is_some()
    }

    /// Reads block indefinitely from now on.
    pub fn clear_timeout(&self) -> io::Result<()> {
        set_socket_timeout(self.channel.as_fd(), Timeout::Recv, None)?;
        Ok(())
    }

    /// Kills it at once.
    pub fn kill(&self, reason: &str) {
        if !self.killed.swap(true, Ordering::Relaxed) {
            tracing::warn!(pid = self.pid, reason, "killing an executor");
        }
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        if let Some(group) = &self.group {
            group.kill();
        }
    }

    /// Kills it for a fault of a task of `tenant`.
    pub fn kill_for(&self, tenant: &str, fault: Fault, reason: &str) {
        let _ = self.ended_for.set((tenant.to_owned(), fault));
        self.kill(reason);
    }

    /// The tenant and the fault of its task, if it was killed for that.
    pub fn ended_for(&self) -> Option<(&str, Fault)> {
        self.ended_for.get().map(|(t, fault)| (t.as_str(), *fault))
    }

    /// Whether [`Process::kill`] was called.
    pub fn was_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    /// Whether the kernel is ending it, which takes long where a driver has memory on a device; its
    /// socket is closed only then. `false` if that cannot be read.
    pub fn is_exiting(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
        stat.is_ok_and(|stat| is_exiting(&stat))
    }

    /// Waits for the end of a process that has closed its socket, kills it if it does not exit, and
    /// returns how it ended.
    pub fn finish(&self) -> String {
        // Ending a driver's threads and memory takes time.
        let patience = Timespec {
            tv_sec: 2,
            tv_nsec: 0,
        };
        let mut set = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let ended = rustix::event::poll(&mut set, Some(&patience)) == Ok(1);
        if !ended {
            self.kill("it closed its socket but did not exit");
        }
        if let Some(group) = &self.group {
            group.remove();
        }
        if let Some(work) = &self.work {
            // A process that exits normally removes its directory itself.
            let _ = std::fs::remove_dir_all(work);
        }
        match self.child.locked().take() {
            Some(mut child) => match child.wait() {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            },
            None => "gone".into(),
        }
    }
}
