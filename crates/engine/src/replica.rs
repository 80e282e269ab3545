//! A function at one place: loaded at its first call, unloaded when idle, and loaded again after
//! the loss of its session.

use super::backlog::{Backlog, Refused};
use super::breaker::{Breaker, Position};
use super::cold_start::ColdStart;
use super::device::binaries::Binaries;
use super::device::error::StartError;
use super::device::session::Sessions;
use super::device::{self, Blame};
use super::log::Log;
use super::native;
use super::options::Options;
use super::pending::Pending;
use super::placement::{Candidate, SLOW_CONNECT};
use super::stats::Stats;
use arc_swap::ArcSwapOption;
use baltra_functions::Function;
use baltra_ring::Locked;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The logarithm of the largest number of turns that a session requests. The node limits the time.
const TURNS_LOG_MAX: u32 = 10;
/// Time for which a fault of a function is cached, before loading is tried again.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// The common data of a function's replicas.
pub struct Common {
    /// The function.
    pub function: Arc<Function>,
    /// Counters of the function.
    pub stats: Arc<Stats>,
    /// Log of the function.
    pub log: Arc<Log>,
    /// Options of the engine.
    pub options: Arc<Options>,
    /// Sessions with devices.
    pub sessions: Arc<Sessions>,
    /// The cache of program binaries.
    pub binaries: Arc<Binaries>,
    /// The engine's runtime. A call's own may end before other calls of a function that it loaded.
    pub runtime: tokio::runtime::Handle,
}

/// The place where a replica runs.
pub enum Site {
    /// On a device.
    Device(Box<Candidate>),
    /// In a separate process.
    Native,
}

/// A loaded function.
#[derive(Clone)]
pub enum Runner {
    /// On a device.
    Device(Arc<device::Runner>),
    /// In a separate process.
    Native(Arc<native::Runner>),
}

impl Runner {
    /// Accepts a call, or returns it with the reason. `alone`: there is no other call.
    #[expect(clippy::result_large_err, reason = "the call itself is returned")]
    pub fn submit(&self, pending: Pending, alone: bool) -> Result<(), (Pending, Refused)> {
        match self {
            Runner::Device(runner) => runner.submit(pending, alone),
            Runner::Native(runner) => runner.submit(pending, alone),
        }
    }

    fn is_lost(&self) -> bool {
        match self {
            Runner::Device(runner) => runner.is_lost(),
            Runner::Native(runner) => runner.is_lost(),
        }
    }

    /// The cause of its loss.
    pub fn blame(&self) -> Blame {
        match self {
            Runner::Device(runner) => runner.blame(),
            Runner::Native(_) => Blame::Place,
        }
    }

    /// The runner, if the replica is on a device.
    pub fn on_device(&self) -> Option<&Arc<device::Runner>> {
        match self {
            Runner::Device(runner) => Some(runner),
            Runner::Native(_) => None,
        }
    }

    /// Records the time of a call on the device.
    pub fn served(&self, ns: u64) {
        self.backlog().ran(ns);
    }

    /// Time in which the waiting calls are served at the measured rate.
    pub fn drain_time(&self) -> Option<Duration> {
        self.backlog().drain_time()
    }

    fn backlog(&self) -> &Backlog {
        match self {
            Runner::Device(runner) => &runner.backlog,
            Runner::Native(runner) => &runner.backlog,
        }
    }

    fn waiting(&self) -> usize {
        self.backlog().len()
    }
}

/// Durations of the last loading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cold {
    /// Opening the session or starting the process, microseconds.
    pub session_us: u64,
    /// Building the program or loading the library, microseconds.
    pub program_us: u64,
    /// Creating command queues or shared memory, microseconds.
    pub buffers_us: u64,
    /// The first call after loading, microseconds; 0: there was none.
    pub first_call_us: u64,
}

impl Cold {
    fn new(start: &ColdStart) -> Cold {
        Cold {
            session_us: start.session.as_micros() as u64,
            program_us: start.program.as_micros() as u64,
            buffers_us: start.queues.as_micros() as u64,
            first_call_us: 0,
        }
    }
}

type Loaded = Result<Arc<Runner>, StartError>;

/// An attempt to load a function. Runs in a task of its own, which records the result even if all
/// callers have left.
struct Loading {
    begun: Instant,
    /// Whether the session with the device is open.
    connected: AtomicBool,
    outcome: watch::Receiver<Option<Loaded>>,
}

impl Loading {
    fn is_slow_to_connect(&self, now: Instant) -> bool {
        !self.connected.load(Relaxed) && now.saturating_duration_since(self.begun) >= SLOW_CONNECT
    }
}

/// A call that waits for an attempt. If the deadline passes before the node has opened a session,
/// the node counts as sick, since it may be cut off. The function's build does not count.
struct Waiting<'a> {
    replica: &'a Replica,
    loading: &'a Loading,
    deadline: Option<Instant>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        if self.deadline.is_some_and(|at| now >= at) && self.loading.is_slow_to_connect(now) {
            self.replica.failed(now);
        }
    }
}

/// A function at one place.
pub struct Replica {
    /// The index of its implementation in the manifest.
    pub implementation: usize,
    /// The place.
    pub site: Site,
    /// The breaker of this replica.
    pub breaker: Breaker,
    /// The breaker of the node, for all functions.
    pub node: Arc<Breaker>,
    common: Arc<Common>,
    ready: ArcSwapOption<Runner>,
    /// The attempt in progress, which all callers share.
    loading: Mutex<Option<Arc<Loading>>>,
    /// The last failure of loading.
    refused: Mutex<Option<(Instant, StartError)>>,
    /// Whether that was a fault of the function; every call checks this.
    was_refused: AtomicBool,
    outstanding: AtomicUsize,
    /// Smoothed time of a call, nanoseconds.
    service_ns: AtomicU64,
    /// End of the last call, milliseconds since `born`.
    used_ms: AtomicU64,
    born: Instant,
    cold: Mutex<Option<Cold>>,
    /// Whether no call has been served since loading.
    fresh: AtomicBool,
    turns: Turns,
}

/// The status of a replica, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaStatus {
    /// `opencl` or `native`.
    pub implementation: &'static str,
    /// The node.
    pub node: String,
    /// The device; empty for native code.
    pub device: String,
    /// Whether it is loaded.
    pub loaded: bool,
    /// The state of its breaker.
    pub breaker: Position,
    /// Number of calls that wait or run.
    pub outstanding: usize,
    /// Of these, calls that wait.
    pub waiting: usize,
    /// Smoothed time of a call, microseconds.
    pub service_us: u64,
    /// Durations of the last loading.
    pub cold: Option<Cold>,
    /// Why it could not be loaded recently.
    pub refused: Option<String>,
    /// Time since its work has been past its deadline, milliseconds.
    pub overdue_ms: Option<u64>,
    /// The reason of the last failure of loading, if the function was at fault.
    pub failure: Option<String>,
    /// The reason of the last failure of loading, if the node was at fault.
    pub unavailable: Option<String>,
}

/// The number of turns that its calls need at once, on a device whose images take turns: as many
/// again after each turn in which no call ended, fewer after a turn in which one did.
#[derive(Default)]
struct Turns {
    /// Whether the end of a turn has interrupted a call since the last load.
    interrupted: AtomicBool,
    /// The logarithm of the number.
    log: AtomicU32,
}

impl Turns {
    /// The number for the next load; `idle`: whether no call has ended since the last one.
    fn next(&self, idle: bool) -> u32 {
        let log = self.log.load(Relaxed);
        let next = match (self.interrupted.swap(false, Relaxed), idle) {
            (false, _) => log,
            (true, true) => (log + 1).min(TURNS_LOG_MAX),
            (true, false) => log.saturating_sub(1),
        };
        self.log.store(next, Relaxed);
        1 << next
    }
}

impl Replica {
    /// The end of a turn has interrupted a call, which `started` or not; returns how often the call
    /// may be repeated.
    pub fn interrupted(&self, started: bool) -> u32 {
        self.turns.interrupted.fetch_or(started, Relaxed);
        u32::MAX
    }

    /// Creates a replica that is not loaded.
    pub fn new(
        common: &Arc<Common>,
        implementation: usize,
        site: Site,
        node: Arc<Breaker>,
    ) -> Replica {
        let options = &common.options;
        Replica {
            implementation,
            site,
            breaker: Breaker::new(options.breaker_failures, options.breaker_open()),
            node,
            common: common.clone(),
            ready: ArcSwapOption::empty(),
            loading: Mutex::default(),
            refused: Mutex::default(),
            was_refused: AtomicBool::new(false),
            outstanding: AtomicUsize::new(0),
            service_ns: AtomicU64::new(0),
            used_ms: AtomicU64::new(0),
            born: Instant::now(),
            cold: Mutex::default(),
            fresh: AtomicBool::new(false),
            turns: Turns::default(),
        }
    }

    /// `opencl` or `native`.
    pub fn kind(&self) -> &'static str {
        match self.site {
            Site::Device(_) => "opencl",
            Site::Native => "native",
        }
    }

    /// The device of the replica.
    pub fn place(&self) -> Option<&Candidate> {
        match &self.site {
            Site::Device(place) => Some(place),
            Site::Native => None,
        }
    }

    /// The node's name.
    pub fn node_name(&self) -> &str {
        match &self.site {
            Site::Device(place) => &place.node,
            Site::Native => "gateway",
        }
    }

    /// The device's name; empty for native code.
    pub fn device_name(&self) -> &str {
        match &self.site {
            Site::Device(place) => &place.device.name,
            Site::Native => "",
        }
    }

    /// Whether calls may pass.
    pub fn allows(&self, now: Instant) -> bool {
        self.breaker.allows(now) && self.node.allows(now)
    }

    /// Whether it, or its node, has failed and has not been seen to work since.
    pub fn is_sick(&self, now: Instant) -> bool {
        let sick = |breaker: &Breaker| breaker.position(now) != Position::Closed;
        sick(&self.breaker) || sick(&self.node)
    }

    /// Records a success.
    pub fn worked(&self) {
        self.breaker.worked();
        self.node.worked();
    }

    /// Records a failure that the node may have caused.
    pub fn failed(&self, now: Instant) {
        self.breaker.failed(now);
        self.node.failed(now);
    }

    /// The loaded function; `None` if it is not loaded.
    pub fn loaded(&self) -> Option<Arc<Runner>> {
        self.ready.load_full().filter(|runner| !runner.is_lost())
    }

    /// Time since which its work has been past its deadline.
    pub fn overdue_since(&self) -> Option<Instant> {
        self.loaded()?.on_device()?.overdue_since()
    }

    /// Whether it is loaded.
    pub fn is_loaded(&self) -> bool {
        self.ready
            .load()
            .as_ref()
            .is_some_and(|runner| !runner.is_lost())
    }

    /// A recent failure of loading.
    pub fn refusal(&self, now: Instant) -> Option<StartError> {
        if !self.was_refused.load(Relaxed) {
            return None;
        }
        let refused = self.refused.locked();
        let (at, error) = refused.as_ref()?;
        (now < *at + REFUSED_FOR).then(|| error.clone())
    }

    /// The function, loaded if necessary. All callers share one attempt, which continues when they
    /// leave. Also returns how long the caller waited. A `deadline` that passes during a slow
    /// connection counts against the node.
    pub async fn load(
        self: &Arc<Self>,
        deadline: Option<Instant>,
    ) -> Result<(Arc<Runner>, Duration), StartError> {
        if let Some(runner) = self.loaded() {
            return Ok((runner, Duration::ZERO));
        }
        let begun = Instant::now();
        let loading = {
            let mut current = self.loading.locked();
            // The last attempt stores its runner before it clears `loading`.
            if let Some(runner) = self.loaded() {
                return Ok((runner, begun.elapsed()));
            }
            if let Some(error) = self.refusal(begun) {
                return Err(error);
            }
            current.get_or_insert_with(|| self.begin_loading()).clone()
        };
        let waiting = Waiting {
            replica: self,
            loading: &loading,
            deadline,
        };
        let mut outcome = loading.outcome.clone();
        let loaded = match outcome.wait_for(Option::is_some).await {
            Ok(loaded) => loaded.clone().expect("waited for"),
            Err(_) => Err(StartError::Node("loading was aborted".into())),
        };
        drop(waiting);
        loaded.map(|runner| (runner, begun.elapsed()))
    }

    /// Starts an attempt in a task of its own. Called with `loading` locked.
    fn begin_loading(self: &Arc<Self>) -> Arc<Loading> {
        self.ready.store(None);
        let (sender, outcome) = watch::channel(None);
        let loading = Arc::new(Loading {
            begun: Instant::now(),
            connected: AtomicBool::new(false),
            outcome,
        });
        let (this, attempt) = (self.clone(), loading.clone());
        self.common.runtime.spawn(async move {
            let (replica, begun) = (this.clone(), attempt.begun);
            let started = tokio::task::spawn_blocking(move || replica.start(&attempt.connected));
            let started = started
                .await
                .map_err(|e| StartError::Node(format!("loading was aborted: {e}")));
            let loaded = this.record(begun, started.and_then(|started| started));
            // The order lets `load` find either the result or the attempt.
            *this.loading.locked() = None;
            let _ = sender.send(Some(loaded));
        });
        loading
    }

    /// Records the result of an attempt, once for all its callers.
    fn record(&self, begun: Instant, started: Result<(Runner, Cold), StartError>) -> Loaded {
        match started {
            Ok((runner, cold)) => {
                *self.refused.locked() = None;
                self.was_refused.store(false, Relaxed);
                *self.cold.locked() = Some(cold);
                self.fresh.store(true, Relaxed);
                self.common.stats.cold_start(begun.elapsed());
                self.touch();
                let runner = Arc::new(runner);
                self.ready.store(Some(runner.clone()));
                Ok(runner)
            }
            Err(error) => {
                self.common.log.line(self.node_name(), &error.to_string());
                let now = Instant::now();
                let function = matches!(error, StartError::Function(_));
                let mut refused = self.refused.locked();
                *refused = Some((now, error.clone()));
                self.was_refused.store(function, Relaxed);
                drop(refused);
                if function {
                    // The node did its part.
                    self.worked();
                } else {
                    self.failed(now);
                }
                Err(error)
            }
        }
    }

    /// Whether an attempt to load it has waited for the node for a while.
    pub fn is_slow_to_connect(&self, now: Instant) -> bool {
        let loading = self.loading.locked();
        loading.as_ref().is_some_and(|l| l.is_slow_to_connect(now))
    }

    fn start(&self, connected: &AtomicBool) -> Result<(Runner, Cold), StartError> {
        let common = &self.common;
        let log = (&common.stats, &common.log);
        match &self.site {
            Site::Device(place) => {
                let turns = self.turns.next(self.fresh.load(Relaxed));
                let runner = device::Runner::start(
                    (&common.sessions, &common.binaries, connected),
                    (place, turns),
                    &common.function,
                    self.implementation,
                    &common.options,
                    log,
                )?;
                let (sessions, place) = (common.sessions.clone(), place.clone());
                let tenant = common.function.manifest.tenant.clone().unwrap_or_default();
                let (binaries, afterwards) = (common.binaries.clone(), runner.afterwards());
                let refill = move || {
                    sessions.refill(&place, &tenant);
                    afterwards(&binaries);
                };
                // A thread opens a spare session for the next function.
                let _ = std::thread::Builder::new()
                    .name("sessions".into())
                    .spawn(refill);
                let cold = Cold::new(&runner.cold_start);
                Ok((Runner::Device(Arc::new(runner)), cold))
            }
            Site::Native => {
                connected.store(true, Relaxed);
                let runner = native::Runner::start(
                    &common.function,
                    self.implementation,
                    &common.options,
                    log,
                )?;
                let cold = Cold::new(&runner.cold_start());
                Ok((Runner::Native(runner), cold))
            }
        }
    }

    /// Unloads it: its session ends with the last call that uses it.
    pub fn unload(&self) {
        self.ready.store(None);
    }

    /// Time without calls; `None` while there is a call, or if it is not loaded.
    pub fn idle(&self) -> Option<Duration> {
        if !self.is_loaded() || self.outstanding.load(Relaxed) > 0 {
            return None;
        }
        let used = Duration::from_millis(self.used_ms.load(Relaxed));
        Some(self.born.elapsed().saturating_sub(used))
    }

    fn touch(&self) {
        let now = self.born.elapsed().as_millis() as u64;
        self.used_ms.store(now, Relaxed);
    }

    /// Load of the replica: time until a further call would run, nanoseconds.
    pub fn load_ns(&self) -> u64 {
        let calls = self.outstanding.load(Relaxed) as u64;
        calls.saturating_mul(self.service_ns.load(Relaxed).max(1000))
    }

    /// Smoothed time of a call.
    pub fn service(&self) -> Duration {
        Duration::from_nanos(self.service_ns.load(Relaxed))
    }

    /// Counts a call until the guard is dropped.
    pub fn enter(&self) -> Here<'_> {
        self.outstanding.fetch_add(1, Relaxed);
        Here(self)
    }

    /// Records the time of a call on the device.
    pub fn served(&self, took_ns: u64) {
        let old = self.service_ns.load(Relaxed);
        let new = match old {
            0 => took_ns,
            // Concurrent updates may lose a sample, which is harmless.
            old => old - old / 8 + took_ns / 8,
        };
        self.service_ns.store(new, Relaxed);
        if self.fresh.load(Relaxed) && self.fresh.swap(false, Relaxed) {
            let mut cold = self.cold.locked();
            if let Some(cold) = cold.as_mut().filter(|cold| cold.first_call_us == 0) {
                cold.first_call_us = (took_ns / 1000).max(1);
            }
        }
    }

    /// The current status.
    pub fn status(&self) -> ReplicaStatus {
        let now = Instant::now();
        let worse = match self.node.position(now) {
            Position::Closed => self.breaker.position(now),
            worse => worse,
        };
        let loaded = self.loaded();
        let last = self.refused.locked();
        let (failure, unavailable) = match last.as_ref().map(|(_, error)| error) {
            Some(StartError::Function(why)) => (Some(why.clone()), None),
            Some(StartError::Node(why)) => (None, Some(why.clone())),
            None => (None, None),
        };
        drop(last);
        ReplicaStatus {
            implementation: self.kind(),
            node: self.node_name().to_owned(),
            device: self.device_name().to_owned(),
            loaded: loaded.is_some(),
            breaker: worse,
            outstanding: self.outstanding.load(Relaxed),
            waiting: loaded.map_or(0, |runner| runner.waiting()),
            service_us: self.service_ns.load(Relaxed) / 1000,
            cold: *self.cold.locked(),
            refused: self.refusal(now).map(|e| e.to_string()),
            overdue_ms: self
                .overdue_since()
                .map(|at| now.saturating_duration_since(at).as_millis() as u64),
            failure,
            unavailable,
        }
    }
}

/// A call at a replica.
pub struct Here<'a>(&'a Replica);

impl Here<'_> {
    /// Whether this is the only call.
    pub fn is_alone(&self) -> bool {
        self.0.outstanding.load(Relaxed) == 1
    }
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.outstanding.fetch_sub(1, Relaxed);
        self.0.touch();
    }
}
