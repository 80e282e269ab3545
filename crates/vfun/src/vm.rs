//! One VM: its region, its socket, its worker, managed by a thread.
//!
//! The socket is the VM's identity: a process that may connect to it acts as the VM, and gets its
//! region and no other. When the last peer disconnects (QEMU ends), the worker ends and the region
//! is dropped; the next peer gets a new one. With `plain` there are no connections, and the region
//! stays until it is detached.

use crate::broker::{Broker, Tenancy};
use crate::definition::{load_function, Definition};
use crate::ivshmem;
use crate::protocol::{receive, send, FromWorker, Start, ToWorker, Usage};
use crate::recover::{self, Holder, MEMFD_NAME};
use anyhow::{Context, Result};
use baltra_ring::memory::create_sealed;
use baltra_ring::peer::Peer as Caller;
use baltra_ring::Locked;
use baltra_session::fd::FDS_MAX;
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};
use rustix::process::{geteuid, pidfd_open, Pid, PidfdFlags};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{chown, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum number of concurrent peers of a VM: QEMU, or applications of the host.
const PEERS_MAX: usize = 16;
/// Time limit for a peer to read its welcome.
const PEER_PATIENCE: Duration = Duration::from_secs(1);
/// Pause before a worker that ended is restarted; doubles with each further restart.
const RESTART_MIN: Duration = Duration::from_millis(20);
/// Upper limit of that pause.
const RESTART_MAX: Duration = Duration::from_secs(5);
/// After a worker has run for this time, the pause starts from the minimum again.
const FORGIVEN: Duration = Duration::from_secs(10);
/// Offset of a region's epoch, which is 0 while the region is not served.
const EPOCH_OFFSET: u64 = 64;
/// Environment variables that a worker inherits.
const ENVIRONMENT: [&str; 4] = ["PATH", "LANG", "LD_LIBRARY_PATH", "RUST_LOG"];

/// State shared by all VMs of a daemon.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The program with the subcommand `vfun-worker`.
    pub program: PathBuf,
    /// Directory of functions, each a directory.
    pub functions: PathBuf,
    /// Directory of the VMs' sockets.
    pub sockets: PathBuf,
    /// Directory of the VMs' definitions.
    pub state: PathBuf,
    /// Parent of the workers' folders.
    pub work_dirs: PathBuf,
    /// Device Managers for accelerators.
    pub endpoints: Vec<String>,
    /// Allocates devices for the VMs, if there is a registry.
    pub broker: Option<Arc<Broker>>,
    /// Whether workers are sandboxed.
    pub sandbox: bool,
    /// Process ids of all VMs' workers, which are not accepted as VMs although they run as this
    /// user.
    pub workers: Workers,
}

/// Process ids.
pub type Workers = Arc<Mutex<HashSet<u32>>>;

/// The persistent record of a VM.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its permissions and limits.
    pub definition: Definition,
    /// The processes that map its region.
    #[serde(default)]
    pub holders: Vec<Holder>,
}

/// The state that the thread publishes.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Processes that map the region.
    pub peers: Vec<u32>,
    /// The worker's process.
    pub worker: Option<u32>,
    /// Workers that ended unexpectedly.
    pub restarts: u32,
    /// Its usage.
    pub usage: Usage,
    /// With `plain`: the daemon's descriptor of the region.
    pub memory: Option<i32>,
}

/// A VM's thread. Dropping it ends the worker and removes the socket.
pub struct Vm {
    /// Its permissions and limits.
    pub definition: Definition,
    /// Its socket.
    pub socket: PathBuf,
    /// Its socket for a virtio-serial port.
    pub stream: PathBuf,
    shown: Arc<Mutex<Shown>>,
    stop: Arc<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Vm {
    /// Opens the VM's socket, and recovers its region if a VM still maps it.
    pub fn start(environment: &Environment, record: Record) -> Result<Vm> {
        let mut definition = record.definition.clone();
        definition.check()?;
        let name = &definition.name;
        let socket = environment.sockets.join(format!("{name}.sock"));
        let stream = environment.sockets.join(format!("{name}.stream"));
        let mut listeners = Listeners {
            regions: listen(&socket, &definition)?,
            streams: listen(&stream, &definition)?,
            tcp: None,
        };
        if let Some(address) = definition.tcp {
            let listener = TcpListener::bind(address)
                .with_context(|| format!("cannot listen at {address}"))?;
            listener.set_nonblocking(true)?;
            // The port is the same after a restart.
            definition.tcp = Some(listener.local_addr()?);
            listeners.tcp = Some(listener);
        }
        let shown = Arc::new(Mutex::new(Shown::default()));
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let mut keeper = Keeper::new(environment.clone(), definition.clone(), shown.clone())?;
        keeper.recover(&record.holders);
        if definition.plain {
            keeper.serve();
        }
        keeper.keep()?;
        keeper.show();
        let halt = stop.clone();
        let thread = std::thread::Builder::new()
            .name(format!("vm {}", definition.name))
            .spawn(move || keeper.run(&listeners, &halt))?;
        Ok(Vm {
            definition,
            socket,
            stream,
            shown,
            stop,
            thread: Some(thread),
        })
    }

    /// Its state.
    pub fn shown(&self) -> Shown {
        self.shown.locked().clone()
    }

    /// Deletes a VM's record.
    pub fn forget(environment: &Environment, name: &str) {
        let _ = std::fs::remove_file(record_file(&environment.state, name));
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.socket);
        let _ = std::fs::remove_file(&self.stream);
    }
}

/// The sockets that a VM connects to, by kind of peer.
struct Listeners {
    regions: UnixListener,
    streams: UnixListener,
    tcp: Option<TcpListener>,
}

fn listen(path: &Path, definition: &Definition) -> Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    if let Some(user) = definition.user {
        chown(path, Some(user), None)
            .with_context(|| format!("cannot give {} to user {user}", path.display()))?;
    }
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn record_file(state: &Path, name: &str) -> PathBuf {
    state.join(format!("{name}.json"))
}

/// The records in a directory. A file that cannot be read is logged and skipped.
pub fn records(state: &Path) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for entry in std::fs::read_dir(state)? {
        let path = entry?.path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let read = std::fs::read(&path).map_err(anyhow::Error::from);
        match read.and_then(|text| Ok(serde_json::from_slice(&text)?)) {
            Ok(record) => records.push(record),
            Err(error) => {
                tracing::error!(file = %path.display(), %error, "cannot read a VM's record");
            }
        }
    }
    Ok(records)
}

/// A connection, or a process that has mapped the region since an earlier daemon.
struct Peer {
    id: u32,
    pid: u32,
    /// Becomes readable at its end.
    watched: OwnedFd,
}

struct Worker {
    child: Child,
    /// Its instances in the registry's pool.
    tenancy: Option<Tenancy>,
    socket: OwnedFd,
    started: Instant,
    ready: bool,
    work_dir: tempfile::TempDir,
    workers: Workers,
}

/// Whether a worker is at the other end of a socket.
pub fn is_worker(workers: &Workers, socket: &UnixStream) -> bool {
    // A peer that cannot be identified is refused, as workers are. Workers' process ids are
    // registered.
    Caller::of(socket).map_or(true, |peer| {
        peer.pid.is_some_and(|pid| numbers(workers).contains(&pid))
    })
}

fn numbers(workers: &Workers) -> std::sync::MutexGuard<'_, HashSet<u32>> {
    workers.locked()
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        numbers(&self.workers).remove(&self.child.id());
    }
}

struct Keeper {
    environment: Environment,
    definition: Definition,
    shown: Arc<Mutex<Shown>>,
    memory: OwnedFd,
    events: Vec<OwnedFd>,
    /// The doorbells of each peer, one for each vector.
    bells: Vec<(u32, Vec<OwnedFd>)>,
    /// The processes that map the region, connected to this daemon or to an earlier one.
    peers: Vec<Peer>,
    /// Its streams, which the worker reads and writes; this thread only observes their ends.
    streams: Vec<OwnedFd>,
    next_peer: u32,
    /// Whether the region was recovered, so that its VM's doorbells are lost.
    recovered: bool,
    worker: Option<Worker>,
    restart: Option<Instant>,
    patience: Duration,
    restarts: u32,
    epoch: u32,
    /// Usage of workers that have ended.
    used: Usage,
    /// Usage of the current worker.
    usage: Usage,
}

impl Keeper {
    fn new(
        environment: Environment,
        definition: Definition,
        shown: Arc<Mutex<Shown>>,
    ) -> Result<Keeper> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let (memory, events) = region(&definition)?;
        Ok(Keeper {
            environment,
            shown,
            memory,
            events,
            bells: Vec::new(),
            peers: Vec::new(),
            streams: Vec::new(),
            next_peer: 1,
            recovered: false,
            worker: None,
            restart: None,
            patience: RESTART_MIN,
            restarts: 0,
            // A value that differs from those of earlier daemons.
            epoch: now.as_nanos() as u32,
            used: Usage::default(),
            usage: Usage::default(),
            definition,
        })
    }

    /// Takes over a region that VMs map from an earlier daemon.
    fn recover(&mut self, holders: &[Holder]) {
        for holder in holders {
            let Some(memory) = recover::region(holder, self.definition.memory_bytes) else {
                continue;
            };
            let watched = Pid::from_raw(holder.pid as i32)
                .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            let Some(watched) = watched else {
                continue;
            };
            // All of them map the same region.
            if self.recovered && recover::inode(&memory).ok() != recover::inode(&self.memory).ok() {
                continue;
            }
            tracing::info!(
                vm = self.definition.name,
                pid = holder.pid,
                "recovered the VM's region"
            );
            self.memory = memory;
            self.recovered = true;
            self.peers.push(Peer {
                id: 0,
                pid: holder.pid,
                watched,
            });
        }
        if self.recovered {
            self.serve();
        }
    }

    fn run(mut self, listeners: &Listeners, stop: &OwnedFd) {
        loop {
            let worker = self.worker.as_ref().map(|worker| &worker.socket);
            let mut fds = vec![
                PollFd::new(stop, PollFlags::IN),
                PollFd::new(&listeners.regions, PollFlags::IN),
                PollFd::new(&listeners.streams, PollFlags::IN),
                // Without TCP, a socket that is already in the list.
                match &listeners.tcp {
                    Some(tcp) => PollFd::new(tcp, PollFlags::IN),
                    None => PollFd::new(&listeners.streams, PollFlags::IN),
                },
            ];
            fds.extend(worker.map(|socket| PollFd::new(socket, PollFlags::IN)));
            let from_worker = fds.len() - 1;
            let first_peer = fds.len();
            let peers = self.peers.iter();
            fds.extend(peers.map(|peer| PollFd::new(&peer.watched, PollFlags::IN)));
            let first_stream = fds.len();
            let streams = self.streams.iter();
            fds.extend(streams.map(|stream| PollFd::new(stream, PollFlags::RDHUP)));
            let wait = match self.restart {
                Some(at) => at.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(1),
            };
            let wait = Timespec {
                tv_sec: wait.as_secs() as i64,
                tv_nsec: wait.subsec_nanos().into(),
            };
            let polled = poll(&mut fds, Some(&wait));
            let events: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            let has_worker = worker.is_some();
            drop(fds);
            if polled.is_err() {
                continue;
            }
            if events[0] {
                return;
            }
            if has_worker && events[from_worker] {
                self.receive();
            }
            // From the last one on, so that earlier indices remain valid.
            for place in (0..events.len() - first_stream).rev() {
                if events[first_stream + place] {
                    self.drop_stream(place);
                }
            }
            for place in (0..first_stream - first_peer).rev() {
                if events[first_peer + place] {
                    self.leave(place);
                }
            }
            if events[1] {
                self.admit(&listeners.regions);
            }
            if events[2] {
                self.admit_stream(&listeners.streams);
            }
            if let (true, Some(tcp)) = (events[3], &listeners.tcp) {
                self.admit_tcp(tcp);
            }
            if self.restart.is_some_and(|at| Instant::now() >= at) {
                self.serve();
            }
            self.show();
        }
    }

    /// Accepts a connection if the peer is allowed.
    fn caller(&self, listener: &UnixListener) -> Option<(UnixStream, u32)> {
        let (socket, _) = listener.accept().ok()?;
        let vm = &self.definition.name;
        let Caller { uid, pid } = Caller::of(&socket).ok()?;
        let Some(pid) = pid else {
            tracing::warn!(
                vm,
                uid,
                "refused a connection from another PID namespace, where the end of the VM cannot be observed"
            );
            return None;
        };
        if is_worker(&self.environment.workers, &socket) {
            tracing::error!(
                vm,
                pid,
                "refused a connection: the peer is a worker of this daemon"
            );
            return None;
        }
        let allowed = uid == 0 || uid == geteuid().as_raw() || Some(uid) == self.definition.user;
        if !allowed {
            tracing::warn!(vm, uid, "refused a connection: the user is not allowed");
        }
        allowed.then_some((socket, pid))
    }

    /// A virtio-serial port connects.
    fn admit_stream(&mut self, listener: &UnixListener) {
        if let Some((socket, pid)) = self.caller(listener) {
            self.stream(socket.into(), &format_args!("process {pid}"));
        }
    }

    /// Accepts a TCP connection of the VM; the address that it was made to identifies the VM.
    fn admit_tcp(&mut self, listener: &TcpListener) {
        if let Ok((socket, from)) = listener.accept() {
            let _ = socket.set_nodelay(true);
            self.stream(socket.into(), &from);
        }
    }

    fn stream(&mut self, socket: OwnedFd, from: &dyn std::fmt::Display) {
        let vm = self.definition.name.clone();
        if self.streams.len() >= self.definition.parts as usize {
            tracing::warn!(vm, %from, streams = self.streams.len(), "refused a stream: too many are open");
            return;
        }
        tracing::info!(vm, %from, "stream connected");
        if let Some(worker) = &self.worker {
            let _ = send(&worker.socket, &ToWorker::Stream, &[socket.as_fd()]);
        }
        self.streams.push(socket);
        if self.worker.is_none() && self.restart.is_none() {
            self.serve();
        }
    }

    /// Accepts a peer.
    fn admit(&mut self, listener: &UnixListener) {
        let Some((socket, pid)) = self.caller(listener) else {
            return;
        };
        let vm = self.definition.name.clone();
        if self.peers.len() >= PEERS_MAX || self.definition.plain {
            tracing::warn!(
                vm,
                pid,
                peers = self.peers.len(),
                "refused a connection: too many peers, or a VM without ivshmem"
            );
            return;
        }
        let welcomed = self.welcome(&socket);
        let (id, bells) = match welcomed {
            Ok(peer) => peer,
            Err(error) => {
                tracing::warn!(vm, %error, "a peer disconnected during its handshake");
                return;
            }
        };
        tracing::info!(vm, pid, peer = id, "peer connected");
        if let Some(worker) = &self.worker {
            // The end of a peer is detected by its socket.
            let _ = introduce(worker, id, &bells);
        }
        self.bells.push((id, bells));
        self.peers.push(Peer {
            id,
            pid,
            watched: socket.into(),
        });
        let _ = self.keep();
        if self.worker.is_none() && self.restart.is_none() {
            self.serve();
        }
    }

    fn welcome(&mut self, socket: &UnixStream) -> Result<(u32, Vec<OwnedFd>)> {
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(PEER_PATIENCE))?;
        let id = self.next_peer;
        self.next_peer = id % 0xfffe + 1;
        let own = (0..self.definition.vectors()).map(|_| event());
        let own = own.collect::<Result<Vec<_>>>()?;
        ivshmem::welcome(socket, id, &self.memory, &self.events, &own)?;
        Ok((id, own))
    }

    /// A peer closed its socket, or sent data, which the protocol does not allow.
    fn leave(&mut self, place: usize) {
        let peer = self.peers.remove(place);
        let vm = &self.definition.name;
        tracing::info!(vm, pid = peer.pid, "peer disconnected");
        self.bells.retain(|(id, _)| *id != peer.id);
        if let Some(worker) = &self.worker {
            let _ = send(&worker.socket, &ToWorker::PeerGone(peer.id), &[]);
        }
        if self.peers.is_empty() {
            self.renew();
        }
        let _ = self.keep();
    }

    /// Closes a stream.
    fn drop_stream(&mut self, place: usize) {
        self.streams.remove(place);
        // With `plain`, only streams indicate that the VM runs.
        if self.peers.is_empty() && self.streams.is_empty() && !self.definition.plain {
            self.renew();
        }
    }

    /// Replaces the region, which is no longer mapped by any process, so that the next VM finds no
    /// data in it.
    fn renew(&mut self) {
        self.used = self.used.plus(self.usage);
        self.usage = Usage::default();
        self.used.applications = 0;
        self.worker = None;
        self.restart = None;
        self.recovered = false;
        match region(&self.definition) {
            Ok((memory, events)) => (self.memory, self.events) = (memory, events),
            Err(error) => {
                let vm = &self.definition.name;
                tracing::error!(vm, %error, "cannot allocate a new region");
            }
        }
        if !self.streams.is_empty() {
            self.serve();
        }
    }

    /// Starts the worker.
    fn serve(&mut self) {
        self.restart = None;
        if let Err(error) = self.start_worker() {
            let vm = &self.definition.name;
            tracing::error!(vm, error = format!("{error:#}"), "cannot start a worker");
            self.later();
        }
    }

    fn later(&mut self) {
        self.restart = Some(Instant::now() + self.patience);
        self.patience = (self.patience * 2).min(RESTART_MAX);
    }

    fn start_worker(&mut self) -> Result<()> {
        let work_dir = tempfile::tempdir_in(&self.environment.work_dirs)?;
        copy_functions(
            &self.environment.functions,
            &self.definition.functions,
            &work_dir.path().join("functions"),
        )?;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut command = Command::new(&self.environment.program);
        command
            .arg("vfun-worker")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .env_clear()
            .current_dir(work_dir.path());
        for name in ENVIRONMENT {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.environment.program.display()))?;
        numbers(&self.environment.workers).insert(child.id());
        let broker = self.environment.broker.as_ref();
        let tenancy = broker.map(|broker| {
            let functions = self.environment.functions.clone();
            Tenancy::new(broker, &self.definition, functions, &ours)
        });
        let worker = Worker {
            tenancy: tenancy.transpose()?,
            workers: self.environment.workers.clone(),
            child,
            socket: ours,
            started: Instant::now(),
            ready: false,
            work_dir,
        };
        self.epoch = self.epoch.wrapping_add(1).max(1);
        // The doorbells of a recovered region belong to the earlier daemon: rings would not be
        // received.
        let rings = !self.recovered && !self.definition.plain;
        let vectors = if rings { self.events.len() } else { 0 };
        let start = ToWorker::Start(Box::new(Start {
            definition: self.definition.clone(),
            epoch: self.epoch,
            vectors: vectors as u32,
            work_dir: worker.work_dir.path().to_owned(),
            endpoints: self.environment.endpoints.clone(),
            pooled: self.environment.broker.is_some(),
            sandbox: self.environment.sandbox,
        }));
        send(&worker.socket, &start, &[self.memory.as_fd()])?;
        for events in self.events[..vectors].chunks(FDS_MAX) {
            let events: Vec<_> = events.iter().map(|event| event.as_fd()).collect();
            send(&worker.socket, &ToWorker::Events, &events)?;
        }
        for (id, bells) in &self.bells {
            introduce(&worker, *id, bells)?;
        }
        for stream in &self.streams {
            send(&worker.socket, &ToWorker::Stream, &[stream.as_fd()])?;
        }
        self.worker = Some(worker);
        Ok(())
    }

    /// Handles a message of the worker, or its end.
    fn receive(&mut self) {
        let Some(worker) = &mut self.worker else {
            return;
        };
        let vm = &self.definition.name;
        match receive(&worker.socket, false) {
            Ok(Some((FromWorker::Ready, _))) => worker.ready = true,
            Ok(Some((FromWorker::Usage(usage), _))) => self.usage = usage,
            Ok(Some((request, _))) => {
                if let Some(tenancy) = &worker.tenancy {
                    tenancy.carry_out(request);
                }
            }
            ended => {
                let lived = worker.started.elapsed();
                let status = worker.child.wait();
                let error = ended.err().map(|error| format!("{error:#}"));
                tracing::warn!(vm, ?status, ?lived, error, "worker exited");
                // The epoch shows waiting applications that the region is not served.
                let none = 0u32.to_le_bytes();
                let _ = rustix::io::pwrite(&self.memory, &none, EPOCH_OFFSET);
                self.worker = None;
                self.used = self.used.plus(self.usage);
                self.usage = Usage::default();
                self.used.applications = 0;
                self.restarts += 1;
                if lived > FORGIVEN {
                    self.patience = RESTART_MIN;
                }
                self.later();
            }
        }
    }

    fn show(&self) {
        let mut shown = self.shown.locked();
        *shown = Shown {
            peers: self.peers.iter().map(|peer| peer.pid).collect(),
            worker: match &self.worker {
                Some(worker) if worker.ready => Some(worker.child.id()),
                _ => None,
            },
            restarts: self.restarts,
            usage: self.used.plus(self.usage),
            memory: self.definition.plain.then(|| self.memory.as_raw_fd()),
        };
    }

    /// Writes the record that a later daemon needs.
    fn keep(&self) -> Result<()> {
        let inode = recover::inode(&self.memory)?;
        let pids: HashSet<u32> = self.peers.iter().map(|peer| peer.pid).collect();
        let holders = pids.into_iter().filter_map(|pid| {
            Some(Holder {
                pid,
                started: recover::started(pid)?,
                inode,
            })
        });
        let record = Record {
            definition: self.definition.clone(),
            holders: holders.collect(),
        };
        let path = record_file(&self.environment.state, &self.definition.name);
        let beside = path.with_extension("new");
        let written = std::fs::write(&beside, serde_json::to_vec_pretty(&record)?)
            .and_then(|()| std::fs::rename(&beside, &path));
        if let Err(error) = &written {
            let vm = &self.definition.name;
            tracing::error!(vm, %error, "cannot write the VM's record");
        }
        Ok(written?)
    }
}

/// Announces a peer to the worker.
fn introduce(worker: &Worker, id: u32, bells: &[OwnedFd]) -> Result<()> {
    for bells in bells.chunks(FDS_MAX) {
        let bells: Vec<_> = bells.iter().map(|bell| bell.as_fd()).collect();
        send(&worker.socket, &ToWorker::Peer(id), &bells)?;
    }
    Ok(())
}

fn event() -> Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// A new region with its layout written, and the host's doorbells.
fn region(definition: &Definition) -> Result<(OwnedFd, Vec<OwnedFd>)> {
    let memory = create_sealed(MEMFD_NAME, definition.memory_bytes)?;
    rustix::io::pwrite(&memory, &definition.layout()?.bytes(), 0)?;
    let events = (0..definition.vectors()).map(|_| event());
    Ok((memory, events.collect::<Result<_>>()?))
}

/// Copies functions to a directory that the worker can read and that does not change while it runs.
fn copy_functions(from: &Path, names: &[String], to: &Path) -> Result<()> {
    for name in names {
        let function = match load_function(from, name) {
            Ok(function) => function,
            Err(error) => {
                tracing::error!(
                    function = name,
                    error = format!("{error:#}"),
                    "skipped an invalid function"
                );
                continue;
            }
        };
        let directory = to.join(name);
        std::fs::create_dir_all(&directory)?;
        std::fs::write(
            directory.join(baltra_functions::MANIFEST_FILE),
            &function.text,
        )?;
        for (file, contents) in &function.files.contents {
            let path = directory.join(file);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(path, contents)?;
        }
    }
    Ok(())
}
