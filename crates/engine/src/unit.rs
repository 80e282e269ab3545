//! A deployed function: its replicas, and the selection of one for a call.

use super::placement::{Candidate, DeviceRequest};
use super::replica::{Common, Replica, ReplicaStatus, Site};
use super::scale::{Measurement, Scaler};
use super::stats::Snapshot;
use super::{Breakers, Settings};
use arc_swap::ArcSwap;
use baltra_api::query::Query;
use baltra_functions::manifest::Scale;
use baltra_ring::Locked;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Least time between queries for places by calls that find no replica.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Number of consecutive calls past their deadline after which a function is held off.
const HELD_AFTER: u32 = 2;
/// Least hold-off time. A function is held off for its calls' time limit, doubled each time.
const HELD_MIN: Duration = Duration::from_secs(1);
/// Longest hold-off time.
const HELD_MAX: Duration = Duration::from_secs(300);

/// A deployed function.
pub struct Unit {
    /// The common data of its replicas.
    pub common: Arc<Common>,
    /// All places where it could run, the preferred ones first.
    replicas: ArcSwap<Vec<Arc<Replica>>>,
    desired: AtomicUsize,
    /// Sets `desired` by the demand; `None`: it is fixed.
    scaler: Option<Mutex<Scaler>>,
    /// Conditions on its devices in addition to the manifest's.
    device: Query,
    /// Whether `desired` has changed since the last query for places.
    resized: AtomicBool,
    /// Held during queries for places.
    pub queries: tokio::sync::Mutex<()>,
    /// Whether places have ever been determined.
    placed: AtomicBool,
    placing: Mutex<()>,
    /// Why there are no places.
    why: Mutex<Option<String>>,
    /// The last query for places by a call that found no replica.
    last_query: Mutex<Option<Instant>>,
    /// A periodic query for places is in progress.
    querying: AtomicBool,
    /// Number of consecutive calls that ran past their deadline on a device.
    overruns: AtomicU32,
    /// End of the hold-off time.
    held_until: Mutex<Option<Instant>>,
}

/// The status of a deployed function, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Desired number of replicas.
    pub desired: usize,
    /// Scaling of the unit with demand.
    pub scale: Option<Scale>,
    /// All places where it could run, the preferred ones first.
    pub replicas: Vec<ReplicaStatus>,
    /// Counters of the unit.
    pub stats: Snapshot,
    /// Remaining hold-off time, milliseconds, after calls ran past their deadlines.
    pub held_ms: Option<u64>,
}

impl Unit {
    /// Creates a function without places.
    pub fn new(common: Common, settings: Settings) -> Unit {
        let window = Duration::from_secs(common.options.scale_window_s);
        let idle = Duration::from_secs(common.function.manifest.idle_s);
        let scaler = settings.scale.map(|s| Scaler::new(s, window, idle));
        let desired = settings.scale.map_or(settings.replicas, |s| s.min as usize);
        Unit {
            common: Arc::new(common),
            replicas: ArcSwap::default(),
            desired: AtomicUsize::new(desired),
            scaler: scaler.map(Mutex::new),
            device: settings.device,
            resized: AtomicBool::new(false),
            queries: tokio::sync::Mutex::default(),
            placed: AtomicBool::new(false),
            placing: Mutex::default(),
            why: Mutex::default(),
            last_query: Mutex::default(),
            querying: AtomicBool::new(false),
            overruns: AtomicU32::new(0),
            held_until: Mutex::default(),
        }
    }

    /// Records a call that held a device for longer than the `allowed` time; ending it cost other
    /// clients their sessions. From the second consecutive one on, the function is held off for a
    /// time that doubles: a function whose calls never end must not occupy the device permanently.
    pub fn overran(&self, now: Instant, allowed: Duration) -> u32 {
        let in_a_row = self.overruns.fetch_add(1, Relaxed).saturating_add(1);
        if in_a_row >= HELD_AFTER {
            let doublings = (in_a_row - HELD_AFTER + 1).min(16);
            let pause = allowed.max(HELD_MIN).saturating_mul(1 << doublings);
            let until = now + pause.min(HELD_MAX);
            *self.held_until.locked() = Some(until);
        }
        in_a_row
    }

    /// Records a successful call.
    pub fn worked(&self) {
        if self.overruns.load(Relaxed) > 0 {
            self.overruns.store(0, Relaxed);
            *self.held_until.locked() = None;
        }
    }

    /// Remaining hold-off time.
    pub fn held_for(&self, now: Instant) -> Option<Duration> {
        if self.overruns.load(Relaxed) < HELD_AFTER {
            return None;
        }
        let until = *self.held_until.locked();
        until
            .map(|at| at.saturating_duration_since(now))
            .filter(|left| !left.is_zero())
    }

    /// All places where it could run.
    pub fn replicas(&self) -> Arc<Vec<Arc<Replica>>> {
        self.replicas.load_full()
    }

    /// The tenant of its sessions.
    pub fn tenant(&self) -> &str {
        let tenant = &self.common.function.manifest.tenant;
        tenant.as_deref().unwrap_or_default()
    }

    /// Desired number of replicas.
    pub fn desired(&self) -> usize {
        self.desired.load(Relaxed)
    }

    /// Sets the desired number of replicas; excess ones are unloaded.
    pub fn scale(&self, desired: usize) {
        self.resize(desired);
        self.unload_beyond(desired);
    }

    fn resize(&self, desired: usize) -> bool {
        let changes = self.desired.swap(desired, Relaxed) != desired;
        if changes {
            self.resized.store(true, Relaxed);
        }
        changes
    }

    fn unload_beyond(&self, count: usize) {
        for replica in self.loaded().iter().skip(count) {
            replica.unload();
        }
    }

    /// Unloads replicas that the demand no longer needs.
    pub fn unload_excess(&self) {
        if self.scaler.is_some() {
            self.unload_beyond(self.desired().max(1));
        }
    }

    /// Scaling of the unit with demand.
    pub fn scaling(&self) -> Option<Scale> {
        let scaler = self.scaler.as_ref()?;
        Some(scaler.locked().scale())
    }

    /// Measures the demand, and sets the desired number of replicas by it.
    pub fn follow_demand(&self, at: Duration) {
        let Some(scaler) = &self.scaler else {
            return;
        };
        let (begun, running) = self.common.stats.calls();
        let now = Measurement { at, begun, running };
        let mut scaler = scaler.locked();
        let Some(desired) = scaler.desired(now) else {
            return;
        };
        drop(scaler);
        if self.resize(desired as usize) {
            let text = format!("scaled to {desired} by demand");
            self.common.log.line("gateway", &text);
        }
    }

    /// Whether the desired number has changed since the last query for places.
    pub fn is_resized(&self) -> bool {
        self.resized.load(Relaxed)
    }

    /// Whether it has scaled to zero, and no call has begun since.
    pub fn is_at_zero(&self) -> bool {
        self.scaler.is_some() && self.desired() == 0 && self.common.stats.calls().1 == 0
    }

    /// Drops all places.
    pub fn vacate(&self) {
        let _placing = self.placing.locked();
        self.placed.store(false, Relaxed);
        self.replicas.store(Arc::default());
    }

    fn loaded(&self) -> Vec<Arc<Replica>> {
        let replicas = self.replicas.load();
        replicas.iter().filter(|r| r.is_loaded()).cloned().collect()
    }

    /// Whether places have ever been determined.
    pub fn is_placed(&self) -> bool {
        self.placed.load(Relaxed)
    }

    /// Whether it needs a device.
    pub fn wants_devices(&self) -> bool {
        self.common.function.manifest.wants_devices()
    }

    /// Requests for devices: one for each implementation that needs a device.
    pub fn wanted(&self) -> Vec<DeviceRequest> {
        let now = Instant::now();
        let replicas = self.replicas.load();
        let sick = replicas.iter().filter(|replica| replica.is_sick(now));
        let except: Vec<String> = sick
            .filter_map(|r| r.place().map(Candidate::name))
            .collect();
        let implementations = self.common.function.manifest.implementations.iter();
        let devices = implementations
            .enumerate()
            .filter(|(_, implementation)| implementation.device().is_some());
        let wanted = devices.map(|(implementation, _)| DeviceRequest {
            function: self.common.function.clone(),
            implementation,
            count: self.desired().max(1),
            device: self.device.clone(),
            except: except.clone(),
        });
        wanted.collect()
    }

    /// Sets the places of implementations; those of implementations that are not in the map are
    /// unchanged. Replicas at unchanged places are kept.
    pub fn place(&self, found: &HashMap<usize, Vec<Candidate>>, breakers: &Breakers) {
        let _placing = self.placing.locked();
        let old = self.replicas.load_full();
        let mut new: Vec<Arc<Replica>> = Vec::new();
        let implementations = &self.common.function.manifest.implementations;
        for (index, implementation) in implementations.iter().enumerate() {
            let before = old.iter().filter(|r| r.implementation == index);
            match (implementation.device(), found.get(&index)) {
                (Some(_), None) => new.extend(before.cloned()),
                (Some(query), Some(places)) => {
                    let mut places: Vec<&Candidate> = places.iter().collect();
                    places.sort_by_key(|place| !place.has_loaded(query));
                    for place in places {
                        let mut before = before.clone();
                        let same = before.find(|r| r.place().is_some_and(|p| p.is_same(place)));
                        new.push(same.cloned().unwrap_or_else(|| {
                            let breaker = breakers.of(&place.endpoint.to_string());
                            let site = Site::Device(Box::new(place.clone()));
                            Arc::new(Replica::new(&self.common, index, site, breaker))
                        }));
                    }
                }
                (None, _) => {
                    let mut before = before;
                    new.push(before.next().cloned().unwrap_or_else(|| {
                        let breaker = breakers.of("native");
                        Arc::new(Replica::new(&self.common, index, Site::Native, breaker))
                    }));
                }
            }
        }
        if !found.is_empty() || !self.wants_devices() {
            self.placed.store(true, Relaxed);
        }
        self.replicas.store(Arc::new(new));
    }

    /// Selects the replica for a call among the desired ones that work: loaded ones first, then those
    /// whose node responds, then the least loaded. Implementations are considered in the manifest's
    /// order, a later one only if no earlier one works. `tried` have failed this call.
    pub fn route(&self, now: Instant, tried: &[Arc<Replica>]) -> Option<Arc<Replica>> {
        let replicas = self.replicas.load();
        if let [only] = &replicas[..] {
            // This is the only replica, so an open breaker does not exclude it.
            let free = only.allows(now) && !tried.iter().any(|t| Arc::ptr_eq(t, only));
            return free.then(|| only.clone());
        }
        let untried = |r: &&Arc<Replica>| !tried.iter().any(|t| Arc::ptr_eq(t, r));
        let usable = |r: &&Arc<Replica>| r.allows(now) && r.refusal(now).is_none();
        let open = replicas.iter().filter(untried).filter(usable);
        let first = open.clone().map(|r| r.implementation).min()?;
        let wanted = open.filter(|r| r.implementation == first);
        let wanted = wanted.take(self.desired().max(1));
        wanted
            .min_by_key(|r| {
                if r.is_loaded() {
                    (false, false, r.load_ns())
                } else {
                    (true, r.is_slow_to_connect(now), r.load_ns())
                }
            })
            .cloned()
    }

    /// Desired replicas that are not loaded.
    pub fn missing(&self, now: Instant) -> Vec<Arc<Replica>> {
        let replicas = self.replicas.load();
        let usable = |r: &&Arc<Replica>| r.allows(now) && r.refusal(now).is_none();
        let open = replicas.iter().filter(usable);
        let Some(first) = open.clone().map(|r| r.implementation).min() else {
            return Vec::new();
        };
        let wanted = open.filter(|r| r.implementation == first);
        let wanted: Vec<_> = wanted.take(self.desired()).collect();
        wanted
            .into_iter()
            .filter(|r| !r.is_loaded())
            .cloned()
            .collect()
    }

    /// Whether a call that finds no replica may query for places; limits the rate of queries.
    pub fn may_query(&self, now: Instant) -> bool {
        let mut last_query = self.last_query.locked();
        let may = last_query.is_none_or(|at| now > at + ASK_EVERY);
        if may {
            *last_query = Some(now);
        }
        may
    }

    /// Whether one of the replicas that calls would go to has failed: other places are needed.
    pub fn is_sick(&self, now: Instant) -> bool {
        let replicas = self.replicas.load();
        let mut first = replicas.iter().take(self.desired().max(1));
        first.any(|r| r.place().is_some() && r.is_sick(now))
    }

    /// Begins a periodic query for places, unless one is in progress.
    pub fn begins_query(&self) -> bool {
        let begins = !self.querying.swap(true, Relaxed);
        if begins {
            self.resized.store(false, Relaxed);
        }
        begins
    }

    /// The periodic query has ended.
    pub fn ends_query(&self) {
        self.querying.store(false, Relaxed);
    }

    /// Records why there are no places.
    pub fn not_placed(&self, why: &str) {
        let mut before = self.why.locked();
        if before.as_deref() != Some(why) {
            self.common.log.line("gateway", why);
            *before = Some(why.to_owned());
        }
    }

    /// Why no replica can run it now.
    pub fn why_not(&self, now: Instant) -> String {
        let replicas = self.replicas.load();
        let name = &self.common.function.manifest.name;
        if replicas.is_empty() {
            let why = self.why.locked();
            return match (self.is_placed(), &*why) {
                (true, _) => {
                    format!(
                        "no device matches function '{name}' (`baltra devices` lists the devices)"
                    )
                }
                (false, Some(why)) => format!("no device for function '{name}': {why}"),
                (false, None) => format!("no device for function '{name}' has been found yet"),
            };
        }
        let reasons = replicas.iter().map(|replica| {
            let place = match &replica.site {
                Site::Device(place) => place.name(),
                Site::Native => "native".to_owned(),
            };
            match replica.refusal(now) {
                Some(error) => format!("{place}: {error}"),
                None if !replica.allows(now) => format!("{place} has failed too often recently"),
                None => format!("{place} has failed"),
            }
        });
        reasons.collect::<Vec<_>>().join("; ")
    }

    /// Unloads replicas that have been idle for this time.
    pub fn unload_idle(&self, limit: Duration) {
        for replica in self.replicas.load().iter() {
            if replica.idle().is_some_and(|idle| idle >= limit) {
                replica.unload();
            }
        }
    }

    /// Unloads all replicas.
    pub fn unload(&self) {
        self.replicas.load().iter().for_each(|r| r.unload());
    }

    /// The current status.
    pub fn status(&self) -> Status {
        let replicas = self.replicas.load();
        Status {
            desired: self.desired(),
            scale: self.scaling(),
            replicas: replicas.iter().map(|r| r.status()).collect(),
            stats: self.common.stats.snapshot(),
            held_ms: self
                .held_for(Instant::now())
                .map(|left| (left.as_millis() as u64).max(1)),
        }
    }
}
