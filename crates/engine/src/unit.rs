//! A deployed function: its replicas, and which of them gets a call.

use super::placement::{Candidate, DeviceRequest};
use super::replica::{Common, Replica, ReplicaStatus, Site};
use super::stats::Snapshot;
use super::Breakers;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Calls that find no replica ask for places so often at most.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// A function whose calls ran past their deadline so often in a row is held off.
const HELD_AFTER: u32 = 2;
/// A function is held off for its calls' time, doubled each time; that time counts as this at least.
const HELD_MIN: Duration = Duration::from_secs(1);
/// The longest that it is held off at once.
const HELD_MAX: Duration = Duration::from_secs(300);

/// A deployed function.
pub struct Unit {
    /// What its replicas share.
    pub common: Arc<Common>,
    /// Every place where it could run, the preferred ones first.
    replicas: ArcSwap<Vec<Arc<Replica>>>,
    desired: AtomicUsize,
    /// Whether places have ever been known.
    placed: AtomicBool,
    placing: Mutex<()>,
    /// Why there are none.
    why: Mutex<Option<String>>,
    /// When a call that found no replica last asked for places.
    last_query: Mutex<Option<Instant>>,
    /// Calls in a row that ran past their deadline on a device.
    overruns: AtomicU32,
    /// No call is let through before.
    held_until: Mutex<Option<Instant>>,
}

/// A deployed function as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// How many replicas are wanted.
    pub desired: usize,
    /// Every place where it could run, the preferred ones first.
    pub replicas: Vec<ReplicaStatus>,
    /// Its counters.
    pub stats: Snapshot,
    /// No call is let through for so long, milliseconds: its calls ran past their deadlines.
    pub held_ms: Option<u64>,
}

impl Unit {
    /// A function without a place.
    pub fn new(common: Common, desired: usize) -> Unit {
        Unit {
            common: Arc::new(common),
            replicas: ArcSwap::default(),
            desired: AtomicUsize::new(desired),
            placed: AtomicBool::new(false),
            placing: Mutex::default(),
            why: Mutex::default(),
            last_query: Mutex::default(),
            overruns: AtomicU32::new(0),
            held_until: Mutex::default(),
        }
    }

    /// A call of it held a device for longer than the `allowed` time, and others had to give their
    /// sessions up for its end. From the second in a row on it is held off for a while, which
    /// doubles: a function whose calls never end must not take the device from others for good.
    pub fn overran(&self, now: Instant, allowed: Duration) -> u32 {
        let in_a_row = self.overruns.fetch_add(1, Relaxed).saturating_add(1);
        if in_a_row >= HELD_AFTER {
            let doublings = (in_a_row - HELD_AFTER + 1).min(16);
            let pause = allowed.max(HELD_MIN).saturating_mul(1 << doublings);
            let until = now + pause.min(HELD_MAX);
            *self.held_until.lock().expect("no panic under this lock") = Some(until);
        }
        in_a_row
    }

    /// A call of it was carried out.
    pub fn worked(&self) {
        if self.overruns.load(Relaxed) > 0 {
            self.overruns.store(0, Relaxed);
            *self.held_until.lock().expect("no panic under this lock") = None;
        }
    }

    /// How long no call is let through.
    pub fn held_for(&self, now: Instant) -> Option<Duration> {
        if self.overruns.load(Relaxed) < HELD_AFTER {
            return None;
        }
        let until = *self.held_until.lock().expect("no panic under this lock");
        until
            .map(|at| at.saturating_duration_since(now))
            .filter(|left| !left.is_zero())
    }

    /// Every place where it could run.
    pub fn replicas(&self) -> Arc<Vec<Arc<Replica>>> {
        self.replicas.load_full()
    }

    /// The tenant whose sessions run it.
    pub fn tenant(&self) -> &str {
        let tenant = &self.common.function.manifest.tenant;
        tenant.as_deref().unwrap_or_default()
    }

    /// How many replicas are wanted.
    pub fn desired(&self) -> usize {
        self.desired.load(Relaxed)
    }

    /// Sets the desired number of replicas; excess ones are unloaded.
    pub fn scale(&self, desired: usize) {
        self.desired.store(desired, Relaxed);
        for replica in self.loaded().iter().skip(desired) {
            replica.unload();
        }
    }

    fn loaded(&self) -> Vec<Arc<Replica>> {
        let replicas = self.replicas.load();
        replicas.iter().filter(|r| r.is_loaded()).cloned().collect()
    }

    /// Whether places have ever been known.
    pub fn is_placed(&self) -> bool {
        self.placed.load(Relaxed)
    }

    /// Whether it needs a device at all.
    pub fn wants_devices(&self) -> bool {
        let mut implementations = self.common.function.manifest.implementations.iter();
        implementations.any(|implementation| implementation.device().is_some())
    }

    /// What is looked for: one entry for each implementation that needs a device.
    pub fn wanted(&self) -> Vec<DeviceRequest> {
        let now = Instant::now();
        let replicas = self.replicas.load();
        let sick = replicas.iter().filter(|replica| !replica.allows(now));
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
            except: except.clone(),
        });
        wanted.collect()
    }

    /// The places of each implementation are these now; of one that is not named they are what
    /// they were. Replicas that stay are kept as they are.
    pub fn place(&self, found: &HashMap<usize, Vec<Candidate>>, breakers: &Breakers) {
        let _placing = self.placing.lock().expect("no panic under this lock");
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

    /// The replica that gets a call: of the wanted ones that work, a loaded one before others,
    /// the least loaded first. Implementations come in the manifest's order: a later one only
    /// where no earlier one works. `tried` have failed this call.
    pub fn route(&self, now: Instant, tried: &[Arc<Replica>]) -> Option<Arc<Replica>> {
        let replicas = self.replicas.load();
        if let [only] = &replicas[..] {
            // Nothing else can run it: an open breaker still answers at once.
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
            .min_by_key(|r| (!r.is_loaded(), r.load_ns()))
            .cloned()
    }

    /// Wanted replicas that are not loaded.
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

    /// Whether a call that finds no replica may ask for places: not all of them at once.
    pub fn may_query(&self, now: Instant) -> bool {
        let mut last_query = self.last_query.lock().expect("no panic under this lock");
        let may = last_query.is_none_or(|at| now > at + ASK_EVERY);
        if may {
            *last_query = Some(now);
        }
        may
    }

    /// Nobody could be asked for places, or there are none.
    pub fn not_placed(&self, why: &str) {
        let mut before = self.why.lock().expect("no panic under this lock");
        if before.as_deref() != Some(why) {
            self.common.log.line("gateway", why);
            *before = Some(why.to_owned());
        }
    }

    /// Why nothing can run it now.
    pub fn why_not(&self, now: Instant) -> String {
        let replicas = self.replicas.load();
        let name = &self.common.function.manifest.name;
        if replicas.is_empty() {
            let why = self.why.lock().expect("no panic under this lock");
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

    /// Unloads what has been idle for so long.
    pub fn unload_idle(&self, limit: Duration) {
        for replica in self.replicas.load().iter() {
            if replica.idle().is_some_and(|idle| idle >= limit) {
                replica.unload();
            }
        }
    }

    /// Unloads everything.
    pub fn unload(&self) {
        self.replicas.load().iter().for_each(|r| r.unload());
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        let replicas = self.replicas.load();
        Status {
            desired: self.desired(),
            replicas: replicas.iter().map(|r| r.status()).collect(),
            stats: self.common.stats.snapshot(),
            held_ms: self
                .held_for(Instant::now())
                .map(|left| (left.as_millis() as u64).max(1)),
        }
    }
}
