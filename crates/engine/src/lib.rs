//! Runs calls on devices and in native functions' processes.
//!
//! | module | content |
//! |---|---|
//! | [`placement`] | devices that functions can run on |
//! | [`unit`] | a deployed function: choosing a replica for a call |
//! | [`scale`] | the number of replicas from the demand |
//! | [`replica`], [`cold_start`] | a function at one place, loaded when needed; times of loading |
//! | [`device`] | a function on an OpenCL device |
//! | [`native`] | a function in a separate process |
//! | [`pace`] | number of calls for a thread before another one is woken |
//! | [`pending`] | a call in progress |
//! | [`backlog`] | the bounded queue of a function at a place, and its tenants' turns |
//! | [`deadline`] | calls that hold a device past their deadline |
//! | [`breaker`] | circuit breakers of failing replicas |
//! | [`stats`], [`log`] | statistics of calls, logs of functions |
//! | [`reply`], [`options`] | results for callers, configuration |
//!
//! # The path of a call
//!
//! [`Engine::call`] selects a replica, loads it if necessary, and submits the call to it; the
//! caller's own thread copies the body into the session's arena and pushes the commands. The result
//! returns over a one-shot channel. A call is retried once on another replica if it was certainly
//! not started, or if running it twice is harmless. The latter holds for OpenCL kernels, which
//! access only their buffers, and those are written again; for native code only with the label
//! `retry: safe` in its manifest. `retry: never` forbids retries of kernels too. A call whose
//! executor ended because of another session is retried more often, since neither the call nor its
//! place is at fault. The result is always that of a single attempt.
//!
//! A call that holds a device past its deadline is ended with its session ([`deadline`]).
#![forbid(unsafe_code)]

pub mod backlog;
pub mod breaker;
pub mod cold_start;
mod deadline;
pub mod device;
pub mod log;
pub mod native;
pub mod options;
mod pace;
pub mod pending;
pub mod placement;
pub mod replica;
pub mod reply;
pub mod scale;
pub mod stats;
pub mod unit;

pub use options::Options;
pub use reply::{CallError, Reply, Shed, Timing, Trace};
pub use unit::Status;

use baltra_api::query::Query;
use baltra_functions::manifest::Scale;
use baltra_functions::{Call, Function};
use baltra_ring::Locked;
use breaker::Breaker;
use deadline::{Deadlines, Running};
use device::binaries::Binaries;
use device::error::StartError;
use device::session::Sessions;
use device::Blame;
use log::Log;
pub use pending::{Account, Caller};
use pending::{Outcome, Pending};
use placement::{needs_accelerator, Candidate, Local, Placement, Registry, Unplaced};
use replica::{Cold, Common, Replica};
use stats::{End, Stats};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use unit::Unit;

/// Interval of checks of places, idle functions and missing replicas.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval of queries for devices.
const PLACES_EVERY: Duration = Duration::from_secs(5);
/// Most attempts at a call, including the first.
const ATTEMPTS_MAX: u32 = 2;
/// Most attempts at a call whose executors ended because of other sessions.
const ATTEMPTS_PREEMPTED_MAX: u32 = 4;
/// Interval of comparisons of running calls with their deadlines.
const WATCH_EVERY: Duration = Duration::from_millis(100);
/// Failed replicas after which a call gives up loading.
const LOADS_MAX: usize = 8;
/// Longest `Retry-After` in a rejection.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// Runs calls. Clones are handles of the same engine, which ends with the last one.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    options: Arc<Options>,
    placement: Box<dyn Placement>,
    sessions: Arc<Sessions>,
    binaries: Arc<Binaries>,
    breakers: Breakers,
    /// Units by the address of the function, which the unit keeps alive. Calls read the map without
    /// a lock.
    units: arc_swap::ArcSwap<HashMap<usize, Arc<Unit>>>,
    changing: Mutex<()>,
    runtime: tokio::runtime::Handle,
}

/// The settings of a function's deployment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Desired number of replicas, if it does not scale; 0: its first call loads it.
    pub replicas: usize,
    /// Scaling with demand.
    pub scale: Option<Scale>,
    /// Conditions on its devices in addition to the manifest's.
    pub device: Query,
}

impl From<usize> for Settings {
    fn from(replicas: usize) -> Settings {
        Settings {
            replicas,
            ..Settings::default()
        }
    }
}

/// The breakers of all nodes.
#[derive(Debug)]
pub struct Breakers {
    failures_max: u32,
    open: Duration,
    by_node: Mutex<HashMap<String, Arc<Breaker>>>,
}

impl Breakers {
    /// The breaker of a node, by its endpoint.
    pub fn of(&self, node: &str) -> Arc<Breaker> {
        let mut by_node = self.by_node.locked();
        let new = || Arc::new(Breaker::new(self.failures_max, self.open));
        by_node.entry(node.to_owned()).or_insert_with(new).clone()
    }
}

fn key(function: &Arc<Function>) -> usize {
    Arc::as_ptr(function) as usize
}

impl Engine {
    /// An engine for the registry or the managers in the options. Must be called within a Tokio
    /// runtime.
    pub fn new(options: Options) -> Result<Engine, String> {
        if !options.registry.is_empty() {
            let registry = Registry::new(&options)?;
            return Engine::with_placement(options, Box::new(registry));
        }
        let endpoints = options.endpoints.iter().map(|text| text.parse());
        let endpoints = endpoints.collect::<Result<Vec<_>, baltra_session::EndpointError>>();
        let endpoints = endpoints.map_err(|e| format!("gateway.engine.endpoints: {e}"))?;
        let local = Local::new(endpoints, options.token.clone());
        Engine::with_placement(options, Box::new(local))
    }

    /// An engine over the devices of `placement`. Must be called within a Tokio runtime.
    pub fn with_placement(
        options: Options,
        placement: Box<dyn Placement>,
    ) -> Result<Engine, String> {
        options.check()?;
        let inner = Arc::new(Inner {
            sessions: Sessions::new(options.spare_sessions),
            binaries: Arc::default(),
            breakers: Breakers {
                failures_max: options.breaker_failures,
                open: options.breaker_open(),
                by_node: Mutex::default(),
            },
            options: Arc::new(options),
            placement,
            units: arc_swap::ArcSwap::default(),
            changing: Mutex::default(),
            runtime: tokio::runtime::Handle::current(),
        });
        tokio::spawn(look_after(Arc::downgrade(&inner)));
        tokio::spawn(watch_deadlines(Arc::downgrade(&inner)));
        Ok(Engine(inner))
    }

    fn unit(&self, function: &Arc<Function>) -> Option<Arc<Unit>> {
        self.0.units.load().get(&key(function)).cloned()
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<usize, Arc<Unit>>)) {
        let _changing = self.0.changing.locked();
        let mut units = HashMap::clone(&self.0.units.load());
        change(&mut units);
        self.0.units.store(Arc::new(units));
    }

    /// Adds a function with its settings, or with a number of replicas. Does not wait until it is
    /// loaded; [`Engine::warm`] does. A repeated call changes the number of replicas.
    ///
    /// Returns the reason for which no device of the pool runs the function's accelerator, if that
    /// is so: each device with the filter that rejected it. The function is added nevertheless.
    pub async fn deploy(
        &self,
        function: &Arc<Function>,
        settings: impl Into<Settings>,
    ) -> Option<String> {
        let settings = settings.into();
        if let Some(unit) = self.unit(function) {
            unit.scale(settings.replicas);
            return None;
        }
        let common = Common {
            function: function.clone(),
            stats: Arc::new(Stats::default()),
            log: Arc::new(Log::default()),
            options: self.0.options.clone(),
            sessions: self.0.sessions.clone(),
            binaries: self.0.binaries.clone(),
            runtime: self.0.runtime.clone(),
        };
        let unit = Arc::new(Unit::new(common, settings));
        let refused = self.0.place(&unit).await;
        for replica in unit.missing(Instant::now()) {
            load_aside(replica);
        }
        self.change(|units| {
            units.entry(key(function)).or_insert(unit);
        });
        refused
    }

    /// Removes a function. Its calls in progress continue.
    pub fn remove(&self, function: &Arc<Function>) {
        let unit = self.unit(function);
        self.change(|units| {
            units.remove(&key(function));
        });
        let Some(unit) = unit else {
            return;
        };
        unit.unload();
        let units = self.0.units.load();
        // Another deployment of the same function keeps the devices.
        let is_same = |u: &Arc<Unit>| {
            let other = &u.common.function;
            other.manifest.name == function.manifest.name && other.digest == function.digest
        };
        if !units.values().any(is_same) {
            self.0.placement.forget(function);
        }
        let tenant = unit.tenant();
        if !units.values().any(|u| u.tenant() == tenant) {
            self.0.sessions.forget(tenant);
        }
    }

    /// Sets the desired number of replicas of a deployed function.
    pub fn scale(&self, function: &Arc<Function>, replicas: usize) {
        if let Some(unit) = self.unit(function) {
            unit.scale(replicas);
        }
    }

    /// Loads a deployed function at the place of its next call, and waits until it is loaded.
    /// Returns the durations of loading, or the error.
    pub async fn warm(&self, function: &Arc<Function>) -> Result<Option<Cold>, CallError> {
        let unit = self.deployed(function)?;
        let (replica, _, _) = self.load(&unit, &mut Vec::new(), None).await?;
        Ok(replica.status().cold)
    }

    /// The status of a deployed function.
    pub fn status(&self, function: &Arc<Function>) -> Option<Status> {
        Some(self.unit(function)?.status())
    }

    /// Work that is past its deadline and has not ended.
    pub fn overdue(&self) -> Vec<Overdue> {
        let now = Instant::now();
        let mut all = Vec::new();
        for unit in self.0.units.load().values() {
            for replica in unit.replicas().iter() {
                if let (Some(since), Some(place)) = (replica.overdue_since(), replica.place()) {
                    all.push(Overdue {
                        function: unit.common.function.manifest.name.clone(),
                        tenant: unit.tenant().to_owned(),
                        place: place.name(),
                        time: now.saturating_duration_since(since),
                    });
                }
            }
        }
        all
    }

    /// Why a deployed function cannot be called now; `None`: there is no known obstacle.
    pub fn why_not_ready(&self, function: &Arc<Function>) -> Option<String> {
        let unit = self.unit(function)?;
        if let Some(left) = unit.held_for(Instant::now()) {
            let error = CallError::HeldOff { retry_after: left };
            return Some(error.to_string());
        }
        let replicas = unit.replicas();
        let places: Vec<String> = replicas
            .iter()
            .filter_map(|r| r.place().map(Candidate::name))
            .collect();
        let overdue = self.overdue();
        let blocked = |place: &String| overdue.iter().any(|o| o.place == *place);
        let all_blocked = !places.is_empty() && places.iter().all(blocked);
        let first = overdue
            .iter()
            .find(|o| places.contains(&o.place))
            .filter(|_| all_blocked)?;
        Some(format!(
            "a call of function '{}' is past its deadline on {} and has not ended",
            first.function, first.place
        ))
    }

    /// Why no replica can run a deployed function now.
    pub fn why_not(&self, function: &Arc<Function>) -> Option<String> {
        Some(self.unit(function)?.why_not(Instant::now()))
    }

    /// The log of a deployed function.
    pub fn log(&self, function: &Arc<Function>) -> Option<Arc<Log>> {
        Some(self.unit(function)?.common.log.clone())
    }

    /// All devices that a tenant may use.
    pub async fn places(&self, tenant: &str) -> Result<Vec<Candidate>, String> {
        let all = self.0.placement.all(tenant).await;
        all.map_err(|error| error.to_string())
    }

    /// Time in which the waiting calls of a function are served at the measured rate.
    pub fn drain_time(&self, function: &Arc<Function>) -> Option<Duration> {
        let unit = self.unit(function)?;
        let replicas = unit.replicas();
        let loaded = replicas.iter().filter_map(|replica| replica.loaded());
        let time = loaded.filter_map(|runner| runner.drain_time()).min()?;
        Some(time.min(RETRY_AFTER_MAX))
    }

    fn deployed(&self, function: &Arc<Function>) -> Result<Arc<Unit>, CallError> {
        self.unit(function).ok_or_else(|| {
            let name = &function.manifest.name;
            CallError::Unavailable(format!("function '{name}' is not deployed"))
        })
    }

    /// Runs a call. Dropping the future abandons the call; if it has not been started, it is not
    /// started afterwards.
    pub async fn call(
        &self,
        function: &Arc<Function>,
        call: Call,
        deadline: Instant,
        trace: &Trace,
    ) -> Result<Reply, CallError> {
        let caller = Caller::default();
        self.call_for(function, call, deadline, trace, caller).await
    }

    /// Like [`Engine::call`], for a tenant that takes turns with others.
    pub async fn call_for(
        &self,
        function: &Arc<Function>,
        call: Call,
        deadline: Instant,
        trace: &Trace,
        caller: Caller,
    ) -> Result<Reply, CallError> {
        let unit = self.deployed(function)?;
        let begun = Instant::now();
        if let Some(retry_after) = unit.held_for(begun) {
            return Err(CallError::HeldOff { retry_after });
        }
        let guard = unit.common.stats.begin(call.input_bytes());
        let run = self.run(&unit, call, deadline, (trace, caller));
        // One timer covers waiting, loading, running and retries.
        let ended = match tokio::time::timeout_at(deadline.into(), run).await {
            Ok(ended) => ended,
            Err(_) => Err(CallError::Deadline),
        };
        match &ended {
            Ok(reply) => {
                let bytes = reply.outputs.iter().map(|o| o.len() as u64).sum();
                guard.done(begun.elapsed(), reply.timing.device_ns, bytes);
            }
            Err(CallError::Overload { .. }) => guard.end(End::Overload),
            Err(CallError::Deadline) => guard.end(End::Deadline),
            Err(CallError::Unavailable(_) | CallError::HeldOff { .. }) => {
                guard.end(End::Unavailable);
            }
            Err(CallError::Failed(_)) => guard.end(End::Failed),
        }
        ended
    }

    async fn run(
        &self,
        unit: &Arc<Unit>,
        call: Call,
        deadline: Instant,
        (trace, caller): (&Trace, Caller),
    ) -> Result<Reply, CallError> {
        let mut tried = Vec::new();
        let mut call = call;
        let mut cold_ns = 0;
        let mut attempt = 1;
        let allowed = deadline.saturating_duration_since(Instant::now());
        loop {
            let (replica, runner, took) = self.load(unit, &mut tried, Some(deadline)).await?;
            cold_ns += took.as_nanos() as u64;
            let here = replica.enter();
            let watch = Watch::new(&replica, &runner, deadline);
            let (pending, outcome_receiver) =
                Pending::new(call, (deadline, allowed), trace, caller.clone());
            if let Err((_, refused)) = runner.submit(pending, here.is_alone()) {
                watch.over();
                let retry_after = refused.retry_after.unwrap_or_else(|| replica.service());
                return Err(CallError::Overload {
                    reason: refused.reason,
                    retry_after: retry_after.min(RETRY_AFTER_MAX),
                });
            }
            let outcome = outcome_receiver.await;
            watch.over();
            match outcome {
                Ok(Outcome::Done {
                    outputs,
                    batch,
                    mut timing,
                }) => {
                    replica.worked();
                    unit.worked();
                    replica.served(timing.device_ns);
                    runner.served(timing.device_ns);
                    timing.cold_ns = cold_ns;
                    return Ok(Reply {
                        outputs,
                        implementation: replica.kind(),
                        node: replica.node_name().to_owned(),
                        device: replica.device_name().to_owned(),
                        batch,
                        timing,
                    });
                }
                Ok(Outcome::Failed(error)) => {
                    if error != CallError::Deadline {
                        // The function's error, not a failure of the node.
                        replica.worked();
                    }
                    return Err(error);
                }
                Ok(Outcome::Lost {
                    call: back,
                    started,
                    reason,
                }) => {
                    let now = Instant::now();
                    let mut attempts_max = ATTEMPTS_MAX;
                    match runner.blame() {
                        Blame::Place => replica.failed(now),
                        Blame::Function => replica.breaker.failed(now),
                        Blame::Overrun => {}
                        Blame::Others => attempts_max = ATTEMPTS_PREEMPTED_MAX,
                        // The call's deadline bounds how many turns it waits for.
                        Blame::Turn => attempts_max = replica.interrupted(started),
                    }
                    let safe = !started || retry_is_safe(unit, &replica);
                    if !safe || attempt >= attempts_max {
                        return Err(lost(&replica, started, &reason));
                    }
                    tracing::debug!(
                        function = unit.common.function.manifest.name,
                        node = replica.node_name(),
                        trace = %Hex(&trace.id),
                        reason,
                        "repeating a call"
                    );
                    unit.common.stats.retry();
                    attempt += 1;
                    call = *back;
                    // Retry at another place if there is one; otherwise the same place starts
                    // again.
                    drop(here);
                    tried.push(replica);
                    if unit.route(Instant::now(), &tried).is_none() {
                        tried.clear();
                    }
                }
                Err(_) => return Err(lost(&replica, true, "its thread ended")),
            }
        }
    }

    /// A loaded replica for a call. Replicas that could not be loaded are added to `tried`.
    async fn load(
        &self,
        unit: &Arc<Unit>,
        tried: &mut Vec<Arc<Replica>>,
        deadline: Option<Instant>,
    ) -> Result<(Arc<Replica>, Arc<replica::Runner>, Duration), CallError> {
        if !unit.is_placed() {
            self.0.place_for_call(unit).await;
        }
        let mut last = None;
        let mut asked = false;
        for _ in 0..LOADS_MAX {
            let now = Instant::now();
            let Some(replica) = unit.route(now, tried) else {
                if asked || !unit.wants_devices() || !self.0.place_for_call(unit).await {
                    break;
                }
                // Other replicas may exist by now.
                asked = true;
                continue;
            };
            replica.breaker.goes(now);
            replica.node.goes(now);
            match replica.load(deadline).await {
                Ok((runner, took)) => return Ok((replica, runner, took)),
                Err(error) => {
                    last = Some(error);
                    tried.push(replica);
                }
            }
        }
        Err(match last {
            Some(StartError::Function(text)) => CallError::Failed(text),
            Some(StartError::Node(text)) => CallError::Unavailable(text),
            None => CallError::Unavailable(unit.why_not(Instant::now())),
        })
    }
}

/// Whether running the call twice is harmless.
fn retry_is_safe(unit: &Unit, replica: &Replica) -> bool {
    let label = unit.common.function.manifest.labels.get("retry");
    match (label.map(String::as_str), replica.kind()) {
        (Some("never"), _) => false,
        (Some("safe"), _) => true,
        (_, kind) => kind == "opencl",
    }
}

fn lost(replica: &Replica, started: bool, reason: &str) -> CallError {
    let place = match replica.device_name() {
        "" => replica.node_name().to_owned(),
        device => format!("{}/{device}", replica.node_name()),
    };
    if started {
        CallError::Failed(format!("{place} was lost while the call ran: {reason}"))
    } else {
        CallError::Unavailable(format!("{place} was lost: {reason}"))
    }
}

/// Watches a call at a replica: if its deadline passes, the replica counts as failed, because the
/// node may be disconnected, unless the function's own work was past its deadline.
struct Watch<'a> {
    replica: &'a Replica,
    runner: &'a replica::Runner,
    deadline: Instant,
    open: bool,
}

impl<'a> Watch<'a> {
    fn new(replica: &'a Replica, runner: &'a replica::Runner, deadline: Instant) -> Watch<'a> {
        Watch {
            replica,
            runner,
            deadline,
            open: true,
        }
    }

    fn over(mut self) {
        self.open = false;
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let was_aborted = || self.runner.on_device().is_some_and(|own| own.was_aborted());
        if self.open && now >= self.deadline && !was_aborted() {
            self.replica.breaker.failed(now);
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Inner {
    /// Places a unit, or gives its devices back if it has scaled to zero.
    async fn refresh(&self, unit: &Unit) {
        {
            let _one = unit.queries.lock().await;
            if unit.is_at_zero() {
                unit.vacate();
                return self.placement.release(&unit.common.function).await;
            }
        }
        self.place(unit).await;
        unit.unload_excess();
    }

    /// Places a unit for a call that found no replica, or waits for a query in progress. Returns
    /// false if there was a query recently, and none is in progress.
    async fn place_for_call(&self, unit: &Unit) -> bool {
        if unit.may_query(Instant::now()) {
            self.place(unit).await;
            return true;
        }
        let in_progress = unit.queries.try_lock().is_err();
        if in_progress {
            let _ended = unit.queries.lock().await;
        }
        in_progress
    }

    /// Queries devices and places the function on them. If no source responds, the previous devices
    /// are kept. Returns the last refusal if each implementation names an accelerator that no device
    /// runs.
    async fn place(&self, unit: &Unit) -> Option<String> {
        let _one = unit.queries.lock().await;
        let mut found = HashMap::new();
        let mut refused = 0;
        let mut refusal = None;
        for wanted in unit.wanted() {
            match self.placement.places(&wanted).await {
                Ok(places) => {
                    found.insert(wanted.implementation, places);
                }
                Err(error) => {
                    unit.not_placed(&error.to_string());
                    let accelerates = needs_accelerator(&wanted.function, wanted.implementation);
                    if let (Unplaced::Refused(reason), true) = (error, accelerates) {
                        refused += 1;
                        refusal = Some(reason);
                    }
                }
            }
        }
        unit.place(&found, &self.breakers);
        refusal.filter(|_| refused == unit.common.function.manifest.implementations.len())
    }
}

fn load_aside(replica: Arc<Replica>) {
    tokio::spawn(async move {
        let now = Instant::now();
        replica.breaker.goes(now);
        replica.node.goes(now);
        // The replica records its own failure.
        let _ = replica.load(None).await;
    });
}

/// Maintains the deployed functions while the engine exists.
async fn look_after(engine: Weak<Inner>) {
    let begun = Instant::now();
    let mut asked = begun;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let units: Vec<Arc<Unit>> = engine.units.load().values().cloned().collect();
        let all = asked.elapsed() >= PLACES_EVERY;
        if all {
            asked = Instant::now();
        }
        units
            .iter()
            .for_each(|unit| unit.follow_demand(begun.elapsed()));
        // A source of devices may be cut off: neither the loop nor other functions wait for it.
        for unit in units.iter().filter(|unit| unit.wants_devices()) {
            let is_due = all || unit.is_resized() || unit.is_sick(Instant::now());
            if is_due && unit.begins_query() {
                let (engine, unit) = (engine.clone(), unit.clone());
                tokio::spawn(async move {
                    engine.refresh(&unit).await;
                    unit.ends_query();
                });
            }
        }
        for unit in &units {
            let manifest = &unit.common.function.manifest;
            if manifest.idle_s > 0 {
                unit.unload_idle(Duration::from_secs(manifest.idle_s));
            }
            // A replica in use makes the engine load the other desired ones; without one, none are
            // loaded.
            let missing = unit.missing(Instant::now());
            if missing.len() < unit.desired() {
                missing.into_iter().for_each(load_aside);
            }
        }
    }
}

/// Ends work on devices that is past its deadline, while the engine exists.
async fn watch_deadlines(engine: Weak<Inner>) {
    let mut deadlines = Deadlines::default();
    loop {
        tokio::time::sleep(WATCH_EVERY).await;
        let Some(engine) = engine.upgrade() else {
            return;
        };
        engine.end_overdue(&mut deadlines);
    }
}

/// Work past its deadline that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// The function.
    pub function: String,
    /// The tenant of its session.
    pub tenant: String,
    /// The node and device.
    pub place: String,
    /// The time since its deadline.
    pub time: Duration,
}

impl Inner {
    fn end_overdue(&self, deadlines: &mut Deadlines) {
        let (mut running, mut whose) = (Vec::new(), Vec::new());
        for unit in self.units.load().values() {
            for replica in unit.replicas().iter() {
                let (Some(place), Some(runner)) = (replica.place(), replica.loaded()) else {
                    continue;
                };
                let Some(runner) = runner.on_device() else {
                    continue;
                };
                for (lane, since, allowed) in runner.running() {
                    running.push(Running {
                        lane,
                        place: place.name(),
                        since,
                        allowed,
                    });
                    whose.push((unit.clone(), replica.clone(), runner.clone()));
                }
            }
        }
        let now = Instant::now();
        let late = deadlines.look(now, &running);
        for index in late.waiting {
            let Running { lane, allowed, .. } = running[index];
            whose[index].2.report_late(lane, allowed);
        }
        for index in late.holding {
            let (unit, replica, runner) = &whose[index];
            let (name, allowed) = (&unit.common.function.manifest.name, running[index].allowed);
            let text = format!(
                "a call of function '{name}' held the device for longer than its {} ms",
                allowed.as_millis()
            );
            if runner.overdue_since().is_none() {
                unit.common.stats.overrun();
                unit.common.log.line(replica.node_name(), &text);
                let in_a_row = unit.overran(now, allowed);
                let (tenant, place) = (unit.tenant(), &running[index].place);
                tracing::warn!(function = name, tenant, place, in_a_row, "{text}");
                // Calls that timed out behind this work do not indicate failed replicas. Done once
                // only: if the work does not end, the node may be disconnected.
                for unit in self.units.load().values() {
                    let replicas = unit.replicas();
                    let here = replicas
                        .iter()
                        .filter(|r| r.place().map(Candidate::name).as_ref() == Some(place));
                    here.for_each(|r| r.worked());
                }
            }
            runner.abort(&text);
        }
    }
}

/// The program of a native function's worker process: the subcommand `native-worker` of the
/// `baltra` binary.
pub fn native_worker_main(args: &[String]) -> anyhow::Result<()> {
    baltra_native::main(args)
}
