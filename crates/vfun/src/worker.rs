//! The process that serves one VM's region: all it has of the system is that region, its functions'
//! files and, where there are accelerators, the way to the Device Manager.
//!
//! | module | what |
//! |---|---|
//! | [`confine`] | what the process gives up |
//! | [`part`] | one application: its rings, its handles |
//! | [`functions`] | what the VM may call, loaded once |
//! | [`native`] | a call of native code |
//! | [`hardware`] | a call on an accelerator, through the gateway's engine |
//! | [`bridge`] | an OpenCL session, between the application and an executor |
//!
//! The first thread looks after the table of parts; each application that claims one gets a thread.
//! Native code runs on that thread: a library that breaks something breaks this process, which is this
//! VM's alone. A call that takes too long cannot be ended otherwise than with the process. As long as
//! other applications are served its thread is abandoned instead: it keeps its place among the calls that
//! may run, yields the processor to everybody, and touches the part no more, which is free again. When
//! nobody else is served the process ends; the daemon starts another.

mod bridge;
mod confine;
mod functions;
mod hardware;
mod native;
mod part;

use crate::definition::Definition;
use crate::protocol::{receive, send, FromWorker, Start, ToWorker, Usage};
use anyhow::{bail, ensure, Context, Result};
use baltra_executor::{sandbox, Options as ExecutorOptions};
use baltra_ring::Memory;
use baltra_vguest::device::Bell;
use baltra_vguest::region::{Part, Region};
use baltra_vguest::Reason;
use bridge::Bridge;
use functions::Functions;
use part::Session;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the table of parts is looked at, where it has a doorbell.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// And where it has none.
const LOOK_UNTOLD: Duration = Duration::from_millis(2);
/// How often the daemon hears what was used.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// Memory of the process beside its calls': libraries, threads' stacks, a compiler.
const OWN_BYTES: u64 = 1 << 30;

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
        Err(_) => bail!("the region is missing"),
    };
    let mut events = Vec::new();
    while events.len() < start.vectors as usize {
        match receive(&socket, true)? {
            Some((ToWorker::Events, fds)) if !fds.is_empty() => events.extend(fds),
            _ => bail!("the doorbells are missing"),
        }
    }
    let layout = start.definition.layout()?;
    let mapped = Memory::map(&memory, layout.region_bytes).context("mapping the region")?;
    let region = Region::new(&mapped, layout)?;
    limit_memory(&start.definition)?;
    if start.sandbox {
        let options = ExecutorOptions {
            work_dir: start.work_dir.clone(),
            ..ExecutorOptions::new("")
        };
        sandbox::enter(&options).context("entering the sandbox")?;
        confine::enter(!start.endpoints.is_empty()).context("entering the sandbox")?;
    }
    let socket = Arc::new(socket);
    let bridge = Bridge::new(memory, &start.endpoints);
    let shared = Shared::new(&start, region, bridge)?;
    let hears = shared.clone();
    let heard = socket.clone();
    std::thread::Builder::new()
        .name("daemon".into())
        .spawn(move || hear(&hears, &heard))?;
    Table::new(shared, events, &start)?.serve(&socket)
}

/// What calls and libraries take counts against the VM; more than that fails here, not elsewhere.
fn limit_memory(definition: &Definition) -> Result<()> {
    let calls = u64::from(definition.calls_max) * definition.call_bytes_max;
    let most = OWN_BYTES.saturating_add(calls);
    let limit = getrlimit(Resource::Data);
    let most = limit.maximum.map_or(most, |maximum| maximum.min(most));
    let wanted = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(Resource::Data, wanted).context("limiting memory")
}

/// Peers come and go; the daemon's end is the worker's.
fn hear(shared: &Shared, socket: &OwnedFd) {
    loop {
        match receive(socket, true) {
            Ok(Some((ToWorker::Peer(id), mut fds))) => {
                if let Some(bell) = fds.pop() {
                    shared.bells().insert(id, Arc::new(bell));
                }
            }
            Ok(Some((ToWorker::PeerGone(id), _))) => drop(shared.bells().remove(&id)),
            // Threads may be in a library's code: they end with the process.
            _ => std::process::exit(0),
        }
    }
}

/// What the threads share.
pub(crate) struct Shared {
    definition: Definition,
    region: Region,
    functions: Functions,
    bridge: Bridge,
    bells: Mutex<HashMap<u32, Arc<OwnedFd>>>,
    /// Calls that are being carried out.
    running: AtomicU32,
    calls: AtomicU64,
    refused: AtomicU64,
    broken: AtomicU64,
    busy_ns: AtomicU64,
    bytes: AtomicU64,
}

impl Shared {
    fn new(start: &Start, region: Region, bridge: Bridge) -> Result<Arc<Shared>> {
        Ok(Arc::new(Shared {
            bridge,
            functions: Functions::open(start)?,
            definition: start.definition.clone(),
            region,
            bells: Mutex::default(),
            running: 0.into(),
            calls: 0.into(),
            refused: 0.into(),
            broken: 0.into(),
            busy_ns: 0.into(),
            bytes: 0.into(),
        }))
    }

    fn bells(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<OwnedFd>>> {
        self.bells.lock().expect("no panic under this lock")
    }

    /// Room for one more call; `None`: as many run as may.
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

/// A call that is being carried out.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a part's thread and the table know of each other.
#[derive(Default)]
pub(crate) struct Link {
    /// The thread is to end.
    stop: AtomicBool,
    /// When the present call began, nanoseconds after the worker; 0: there is none; [`ABANDONED`].
    since_ns: AtomicU64,
    /// The thread, as the kernel numbers it; 0: it has not begun.
    thread: AtomicI32,
}

/// The thread is in a call that nobody waits for any more, and leaves the part alone.
const ABANDONED: u64 = u64::MAX;

impl Link {
    fn begin(&self, since_ns: u64) {
        self.since_ns.store(since_ns.max(1), Ordering::Relaxed);
    }

    /// The call has returned; false: too late.
    fn finish(&self) -> bool {
        let end = |since| (since != ABANDONED).then_some(0);
        self.since_ns
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, end)
            .is_ok()
    }

    /// Gives a call up that began so long ago, unless it has returned.
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

/// The table of parts.
struct Table {
    shared: Arc<Shared>,
    /// By part; the last is the table's own. Empty: nobody rings.
    bells: Vec<Arc<Bell>>,
    /// The same, for waking the parts' threads from here.
    events: Vec<OwnedFd>,
    parts: Vec<Part>,
    served: Vec<Option<Served>>,
    /// Threads in calls that nobody waits for.
    abandoned: Vec<JoinHandle<()>>,
    /// Claims whose applications broke the protocol: another one begins anew.
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
            "so many doorbells?"
        );
        let mut bells = Vec::new();
        for event in &events {
            bells.push(Arc::new(Bell::new(event.try_clone()?)));
        }
        Ok(Table {
            parts: (0..parts).map(|part| shared.region.part(part)).collect(),
            served: (0..parts).map(|_| None).collect(),
            abandoned: Vec::new(),
            broken: vec![0; parts as usize],
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
        let mut told = (Usage::default(), Instant::now());
        let mut pulse = 0u32;
        loop {
            pulse = pulse.wrapping_add(1);
            region.pulse().store(pulse, Ordering::Relaxed);
            // A guest that garbles these garbles them for itself, and not for long.
            region.whole().copy_in(0, &region.layout.bytes());
            region.epoch().store(self.epoch, Ordering::Release);
            let mut soon = false;
            for number in 0..self.parts.len() {
                soon |= self.look(number)?;
            }
            self.abandoned.retain(|thread| !thread.is_finished());
            if !self.abandoned.is_empty() && self.served.iter().all(Option::is_none) {
                std::process::exit(3);
            }
            if told.1.elapsed() >= TELL_EVERY {
                let applications = self.served.iter().flatten().count() as u32;
                let usage = self.shared.usage(applications);
                if usage != told.0 {
                    send(socket, &FromWorker::Usage(usage), &[])?;
                }
                told = (usage, Instant::now());
            }
            match self.bells.last() {
                _ if soon => std::thread::sleep(LOOK_UNTOLD),
                Some(bell) => bell.wait(LOOK_EVERY),
                None => std::thread::sleep(LOOK_UNTOLD),
            }
        }
    }

    /// Looks at a part; whether to look again soon.
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
                // It may be in a call, which ends first.
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
            // An executor still has it, from before this worker.
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
        let rings = self.shared.bells().get(&peer.wrapping_sub(1)).cloned();
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
                let tid = rustix::thread::gettid();
                link_of_thread
                    .thread
                    .store(tid.as_raw_nonzero().get(), Ordering::Relaxed);
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

    /// Gives up a call that takes too long, and tells its application.
    fn watch(&mut self, number: usize) {
        let Some(served) = &self.served[number] else {
            return;
        };
        let since_ns = served.link.since_ns.load(Ordering::Relaxed);
        if matches!(since_ns, 0 | ABANDONED)
            || self.began.elapsed() < Duration::from_nanos(since_ns) + self.call_max
            || !served.link.abandon(since_ns)
        {
            return;
        }
        let name = &self.shared.definition.name;
        eprintln!(
            "vfun worker of {name}: a call took longer than {:?}",
            self.call_max
        );
        let tid = served.link.thread.load(Ordering::Relaxed);
        if let Some(tid) = rustix::process::Pid::from_raw(tid) {
            // As it was, if that cannot be.
            let _ = rustix::process::setpriority_process(Some(tid), 19);
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
