//! The process that serves one VM's region. It can access only that region, its functions' files
//! and, if there are accelerators, the Device Manager's socket.
//!
//! | module | content |
//! |---|---|
//! | [`part`] | one application: its rings, its handles |
//! | [`functions`] | the functions that the VM may call, loaded once |
//! | [`native`] | a call of native code |
//! | [`hardware`] | a call on an accelerator, through the engine |
//! | [`pool`] | devices of a registry's pool, which the daemon allocates |
//! | [`bridge`] | an OpenCL session, between the application and an executor |
//!
//! The first thread manages the table of parts and the streams; each application that claims one
//! gets a thread. Native code runs on that thread: a fault of a library ends this process, which
//! serves one VM only. A call that exceeds its time limit can only be ended with the process. While
//! other applications are served, its thread is abandoned instead: it still counts as a running
//! call, runs at the lowest priority, and no longer accesses the part, which is free again. When no
//! other application is served, and the call's application is notified, the process exits; the daemon
//! starts another.

mod bridge;
mod functions;
mod hardware;
mod native;
mod part;
mod pool;

use crate::definition::Definition;
use crate::protocol::{receive, send, FromWorker, Start, ToWorker, Usage};
use anyhow::{bail, ensure, Context, Result};
use baltra_ivshmem::device::Bell;
use baltra_ivshmem::region::{Layout, Part, Region, REGION_BYTES_MIN};
use baltra_ivshmem::stream::Pipe;
use baltra_ivshmem::Reason;
use baltra_ring::{Locked, Memory};
use baltra_sandbox::{worker, Sandbox};
use bridge::Bridge;
use functions::Functions;
use part::Session;
use pool::Pool;
use rustix::fs::{fcntl_setfl, OFlags};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval for polling the table of parts if it has a doorbell.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Interval for polling without a doorbell.
const POLL_EVERY: Duration = Duration::from_millis(2);
/// Interval for reporting usage to the daemon.
const REPORT_EVERY: Duration = Duration::from_millis(500);
/// Time for which the process does not exit until the applications of its streams are notified: one
/// that does not read delays it no longer.
const NOTIFY_PATIENCE: Duration = Duration::from_secs(1);
/// Memory of the process in addition to its calls': libraries, threads' stacks, a compiler.
const OWN_BYTES: u64 = 1 << 30;

/// A refusal with its text.
type Refusal = (Reason, String);

/// The subcommand `vfun-worker`: its standard input is the socket to the daemon.
pub fn main() -> Result<()> {
    let socket = rustix::stdio::stdin().try_clone_to_owned()?;
    run(socket)
}

fn run(socket: OwnedFd) -> Result<()> {
    let Some((ToWorker::Start(start), fds)) = receive(&socket, true)? else {
        bail!("vfun-worker is started by `baltra vfun`, with a socket as its input");
    };
    let [memory]: [OwnedFd; 1] = match fds.try_into() {
        Ok(fds) => fds,
        Err(_) => bail!("expected one descriptor, of the region"),
    };
    let mut events = Vec::new();
    while events.len() < start.vectors as usize {
        match receive(&socket, true)? {
            Some((ToWorker::Events, fds)) if !fds.is_empty() => events.extend(fds),
            _ => bail!("expected descriptors of doorbells"),
        }
    }
    let layout = start.definition.layout()?;
    let mapped = Memory::map(&memory, layout.region_bytes).context("cannot map the region")?;
    let region = Region::new(&mapped, layout)?;
    limit_memory(&start.definition)?;
    if start.sandbox {
        let sandbox = Sandbox {
            work_dir: start.work_dir.clone(),
            ..Sandbox::default()
        };
        sandbox.enter().context("cannot enter the sandbox")?;
        worker::enter(!start.endpoints.is_empty()).context("cannot enter the sandbox")?;
    }
    let socket = Arc::new(socket);
    let pool = start.pooled.then(|| Arc::new(Pool::new(socket.clone())));
    let bridge = Bridge::new(memory, &start.endpoints, pool.clone());
    let shared = Shared::new(&start, region, (bridge, pool))?;
    let receiver = shared.clone();
    let from_daemon = socket.clone();
    std::thread::Builder::new()
        .name("daemon".into())
        .spawn(move || receive_peers(&receiver, &from_daemon))?;
    Table::new(shared, events, &start)?.serve(&socket)
}

/// Limits the process's memory to that of the VM's calls and libraries, so that allocations fail
/// here.
fn limit_memory(definition: &Definition) -> Result<()> {
    let calls = u64::from(definition.calls_max) * definition.call_bytes_max;
    // Streams have an arena each, and messages in transit.
    let streams = definition.memory_bytes.saturating_mul(8);
    let most = OWN_BYTES.saturating_add(calls).saturating_add(streams);
    worker::limit_data(most)
}

/// Receives the daemon's messages about peers; exits when the daemon closes its socket.
fn receive_peers(shared: &Shared, socket: &OwnedFd) {
    loop {
        match receive(socket, true) {
            Ok(Some((ToWorker::Peer(id), fds))) => {
                let mut bells = shared.bells();
                let bells = bells.entry(id).or_default();
                bells.extend(fds.into_iter().map(Arc::new));
            }
            Ok(Some((ToWorker::Stream, fds))) => shared.new_streams().extend(fds),
            Ok(Some((ToWorker::PeerGone(id), _))) => drop(shared.bells().remove(&id)),
            Ok(Some((answer @ (ToWorker::Placed { .. } | ToWorker::Opened { .. }), _))) => {
                if let Some(pool) = &shared.pool {
                    pool.answered(answer);
                }
            }
            // Threads may be in a library's code; they end with the process.
            _ => std::process::exit(0),
        }
    }
}

/// State shared by the threads.
pub(crate) struct Shared {
    definition: Definition,
    region: Region,
    functions: Functions,
    bridge: Bridge,
    /// The devices of a registry's pool.
    pool: Option<Arc<Pool>>,
    /// The doorbells of each peer, one for each part.
    bells: Mutex<HashMap<u32, Vec<Arc<OwnedFd>>>>,
    /// Streams that have no thread yet.
    new_streams: Mutex<Vec<OwnedFd>>,
    /// Number of running calls.
    running: AtomicU32,
    calls: AtomicU64,
    refused: AtomicU64,
    broken: AtomicU64,
    busy_ns: AtomicU64,
    bytes: AtomicU64,
}

impl Shared {
    fn new(
        start: &Start,
        region: Region,
        (bridge, pool): (Bridge, Option<Arc<Pool>>),
    ) -> Result<Arc<Shared>> {
        Ok(Arc::new(Shared {
            bridge,
            functions: Functions::open(start, pool.clone())?,
            pool,
            definition: start.definition.clone(),
            region,
            bells: Mutex::default(),
            new_streams: Mutex::default(),
            running: 0.into(),
            calls: 0.into(),
            refused: 0.into(),
            broken: 0.into(),
            busy_ns: 0.into(),
            bytes: 0.into(),
        }))
    }

    fn bells(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Vec<Arc<OwnedFd>>>> {
        self.bells.locked()
    }

    fn new_streams(&self) -> std::sync::MutexGuard<'_, Vec<OwnedFd>> {
        self.new_streams.locked()
    }

    /// Counts a further running call; `None`: the limit is reached.
    fn enter(&self) -> Option<Running<'_>> {
        let max = self.definition.calls_max;
        let entered = self
            .running
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |running| {
                (running < max).then_some(running + 1)
            });
        entered.is_ok().then_some(Running(self))
    }

    fn usage(&self, applications: u32) -> Usage {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Usage {
            applications,
            calls: of(&self.calls),
            refused: of(&self.refused),
            broken: of(&self.broken),
            busy_us: of(&self.busy_ns) / 1000,
            bytes: of(&self.bytes),
        }
    }
}

/// A running call.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// State shared by a part's thread and the table.
#[derive(Default)]
pub(crate) struct Link {
    /// Whether the thread shall end.
    stop: AtomicBool,
    /// Start of the current call, nanoseconds after the worker's start; 0: no call; [`ABANDONED`].
    since_ns: AtomicU64,
    /// For a stream: whether an application has begun.
    greeted: AtomicBool,
    /// For a stream: whether the previous application has been notified of its end.
    notified: AtomicBool,
    /// The kernel's id of the thread; 0: the thread has not started.
    thread: AtomicI32,
}

/// The call was abandoned; its thread no longer accesses the part.
const ABANDONED: u64 = u64::MAX;

impl Link {
    fn begin(&self, since_ns: u64) {
        self.since_ns.store(since_ns.max(1), Ordering::Relaxed);
    }

    /// Registers the calling thread.
    fn runs_here(&self) {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(tid, Ordering::Relaxed);
    }

    /// Ends the call; `false` if it was abandoned.
    fn finish(&self) -> bool {
        let end = |since| (since != ABANDONED).then_some(0);
        self.since_ns
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, end)
            .is_ok()
    }

    /// Abandons a call that began at this time, unless it has returned.
    fn abandon(&self, since_ns: u64) -> bool {
        self.since_ns
            .compare_exchange(since_ns, ABANDONED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn is_abandoned(&self) -> bool {
        self.since_ns.load(Ordering::Relaxed) == ABANDONED
    }
}

struct Served {
    claim: u32,
    link: Arc<Link>,
    thread: JoinHandle<()>,
}

/// A stream and its thread.
struct Streamed {
    descriptor: Arc<OwnedFd>,
    link: Arc<Link>,
    thread: JoinHandle<()>,
}

/// The table of parts.
struct Table {
    shared: Arc<Shared>,
    /// One for each part; the last is the table's own. Empty: there are no doorbells.
    bells: Vec<Arc<Bell>>,
    /// The same eventfds, for waking the parts' threads.
    events: Vec<OwnedFd>,
    parts: Vec<Part>,
    served: Vec<Option<Served>>,
    streams: Vec<Streamed>,
    /// Threads of abandoned calls.
    abandoned: Vec<JoinHandle<()>>,
    /// Claims of applications that violated the protocol; they have to claim again.
    broken: Vec<u32>,
    epoch: u32,
    began: Instant,
    call_max: Duration,
}

impl Table {
    fn new(shared: Arc<Shared>, events: Vec<OwnedFd>, start: &Start) -> Result<Table> {
        let parts = start.definition.parts;
        let vectors = start.definition.vectors() as usize;
        ensure!(
            events.is_empty() || events.len() == vectors,
            "expected {vectors} doorbells, received {}",
            events.len()
        );
        let mut bells = Vec::new();
        for event in &events {
            bells.push(Arc::new(Bell::new(event.try_clone()?)));
        }
        let parts: Vec<_> = (0..parts).map(|part| shared.region.part(part)).collect();
        // An earlier worker has reported these as broken.
        let is_broken = |part: &Part| part.trouble().load(Ordering::Acquire) != 0;
        let broken = parts.iter().map(|part| {
            if is_broken(part) {
                part.claim().load(Ordering::Acquire)
            } else {
                0
            }
        });
        Ok(Table {
            broken: broken.collect(),
            served: parts.iter().map(|_| None).collect(),
            streams: Vec::new(),
            abandoned: Vec::new(),
            parts,
            bells,
            events,
            epoch: start.epoch,
            began: Instant::now(),
            call_max: Duration::from_millis(start.definition.call_ms_max),
            shared,
        })
    }

    fn serve(mut self, socket: &OwnedFd) -> Result<()> {
        let region = self.shared.region.clone();
        region.epoch().store(self.epoch, Ordering::Release);
        send(socket, &FromWorker::Ready, &[])?;
        let mut reported = (Usage::default(), Instant::now());
        let mut pulse = 0u32;
        let mut alone_since = None;
        loop {
            pulse = pulse.wrapping_add(1);
            region.pulse().store(pulse, Ordering::Relaxed);
            // A guest that overwrites these affects only itself, and only briefly.
            region.whole().copy_in(0, &region.layout.bytes());
            region.epoch().store(self.epoch, Ordering::Release);
            let mut soon = false;
            for number in 0..self.parts.len() {
                soon |= self.look(number)?;
            }
            self.look_at_streams()?;
            self.abandoned.retain(|thread| !thread.is_finished());
            let alone = self.served.iter().all(Option::is_none) && self.applications() == 0;
            if self.abandoned.is_empty() || !alone {
                alone_since = None;
            } else {
                let since = *alone_since.get_or_insert_with(Instant::now);
                if self.has_notified() || since.elapsed() > NOTIFY_PATIENCE {
                    std::process::exit(3);
                }
            }
            if reported.1.elapsed() >= REPORT_EVERY {
                let usage = self.shared.usage(self.applications());
                if usage != reported.0 {
                    send(socket, &FromWorker::Usage(usage), &[])?;
                }
                reported = (usage, Instant::now());
            }
            match self.bells.last() {
                _ if soon => std::thread::sleep(POLL_EVERY),
                Some(bell) => bell.wait(LOOK_EVERY),
                None => std::thread::sleep(POLL_EVERY),
            }
        }
    }

    /// Checks a part; returns whether to check again soon.
    fn look(&mut self, number: usize) -> Result<bool> {
        self.watch(number);
        let part = &self.parts[number];
        let claim = part.claim().load(Ordering::Acquire);
        if let Some(served) = &self.served[number] {
            if served.claim == claim && !served.thread.is_finished() {
                return Ok(false);
            }
            served.link.stop.store(true, Ordering::Relaxed);
            if !served.thread.is_finished() {
                // The thread may be in a call, which ends first.
                if let Some(event) = self.events.get(number) {
                    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
                }
                return Ok(true);
            }
            let ended = self.served[number].take().expect("looked at above");
            if ended.thread.join().is_err() {
                bail!("a part's thread panicked");
            }
            if ended.claim == claim {
                self.broken[number] = claim;
                part.served().store(0, Ordering::Release);
            }
        }
        if claim & 1 == 0 || self.broken[number] == claim {
            return Ok(false);
        }
        if !self.shared.bridge.is_free(number as u32) {
            // An executor from before this worker still uses the part.
            return Ok(true);
        }
        self.begin(number, claim)?;
        Ok(false)
    }

    fn begin(&mut self, number: usize, claim: u32) -> Result<()> {
        let part = self.parts[number].clone();
        let link = Arc::new(Link::default());
        let bell = self.bells.get(number).cloned();
        let peer = part.peer().load(Ordering::Relaxed);
        let bells = self.shared.bells();
        let rings = bells.get(&peer.wrapping_sub(1));
        let rings = rings.and_then(|bells| bells.get(number)).cloned();
        drop(bells);
        let rung = match self.events.get(number) {
            Some(event) => Some(event.try_clone()?),
            None => None,
        };
        let session = Session::new(
            self.shared.clone(),
            (number as u32, &part),
            link.clone(),
            self.began,
            (bell, rung, rings),
        )?;
        let link_of_thread = link.clone();
        let thread = std::thread::Builder::new()
            .name(format!("part {number}"))
            .spawn(move || {
                link_of_thread.runs_here();
                session.run();
            })?;
        part.trouble().store(0, Ordering::Relaxed);
        part.served().store(claim, Ordering::Release);
        self.served[number] = Some(Served {
            claim,
            link,
            thread,
        });
        Ok(())
    }

    /// Number of served applications.
    fn applications(&self) -> u32 {
        let greeted = |stream: &&Streamed| stream.link.greeted.load(Ordering::Relaxed);
        let streams = self.streams.iter().filter(greeted).count();
        (self.served.iter().flatten().count() + streams) as u32
    }

    /// Whether the previous applications of all streams have been notified of their end.
    fn has_notified(&self) -> bool {
        let notified = |stream: &Streamed| stream.link.notified.load(Ordering::Acquire);
        self.streams.iter().all(notified)
    }

    /// Serves new streams, removes ended ones, and abandons calls that exceed their time limit.
    fn look_at_streams(&mut self) -> Result<()> {
        for descriptor in std::mem::take(&mut *self.shared.new_streams()) {
            let stream = self.streamed(Arc::new(descriptor), None)?;
            self.streams.push(stream);
        }
        let mut kept = Vec::with_capacity(self.streams.len());
        for stream in std::mem::take(&mut self.streams) {
            if stream.thread.is_finished() {
                continue;
            }
            if !self.has_abandoned(&stream.link) {
                kept.push(stream);
                continue;
            }
            // The thread no longer uses the stream; a new one reports the reason to the
            // application.
            kept.push(self.streamed(stream.descriptor, Some(Reason::TimedOut))?);
            self.abandoned.push(stream.thread);
        }
        self.streams = kept;
        Ok(())
    }

    /// Starts to serve a stream; `trouble` is the reason to report to an application that
    /// is no longer served.
    fn streamed(&self, descriptor: Arc<OwnedFd>, trouble: Option<Reason>) -> Result<Streamed> {
        let definition = &self.shared.definition;
        let bytes = definition.layout()?.arena_bytes().next_power_of_two();
        let bytes = bytes.max(REGION_BYTES_MIN);
        let memory = Memory::anonymous(bytes).context("cannot allocate memory for a stream")?;
        let part = Region::new(&memory, Layout::new(bytes, 1, 0)?)?.part(0);
        fcntl_setfl(&*descriptor, OFlags::NONBLOCK)?;
        let mut pipe = Pipe::new(descriptor.try_clone()?, part.arena.len() as u64);
        let link = Arc::new(Link::default());
        let link_of_thread = link.clone();
        let (shared, began) = (self.shared.clone(), self.began);
        let thread = std::thread::Builder::new().name("stream".into());
        let thread = thread.spawn(move || {
            link_of_thread.runs_here();
            let notified = pipe.trouble(trouble.map_or(0, |reason| reason as u8));
            link_of_thread.notified.store(true, Ordering::Release);
            if notified.is_ok() {
                Session::streamed(shared, part, link_of_thread, began, pipe).run();
            }
        })?;
        Ok(Streamed {
            descriptor,
            link,
            thread,
        })
    }

    /// Whether a call exceeds its time limit and has therefore been abandoned.
    fn has_abandoned(&self, link: &Link) -> bool {
        let since_ns = link.since_ns.load(Ordering::Relaxed);
        if matches!(since_ns, 0 | ABANDONED)
            || self.began.elapsed() < Duration::from_nanos(since_ns) + self.call_max
            || !link.abandon(since_ns)
        {
            return false;
        }
        let name = &self.shared.definition.name;
        eprintln!(
            "vfun worker of {name}: a call took longer than {:?}",
            self.call_max
        );
        let tid = link.thread.load(Ordering::Relaxed);
        if let Some(tid) = rustix::process::Pid::from_raw(tid) {
            // The priority is unchanged if this fails.
            let _ = rustix::process::setpriority_process(Some(tid), 19);
        }
        true
    }

    /// Abandons a call that exceeds its time limit, and reports that to its application.
    fn watch(&mut self, number: usize) {
        let Some(served) = &self.served[number] else {
            return;
        };
        if !self.has_abandoned(&served.link) {
            return;
        }
        let part = &self.parts[number];
        let trouble = part.trouble();
        trouble.store(Reason::TimedOut as u32, Ordering::Release);
        part.served().store(0, Ordering::Release);
        self.broken[number] = served.claim;
        self.abandoned
            .extend(self.served[number].take().map(|served| served.thread));
    }
}
