//! Counts calls by tenant and function. Each thread writes its own shard; readers add up the
//! shards.
//!
//! The same numbers are metrics (since the start) and usage (since the tenant's first call of the
//! function, across restarts).

use crate::http::problem::{Problem, Shed};
use crate::http::task::now_ms;
use crate::http::telemetry::usage::{Usage, UsageLine};
use baltra_engine::{Account, Timing};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Latency buckets: bucket `i` counts calls of less than 2^i microseconds, the last one the rest.
pub const BUCKETS: usize = 26;

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// 2xx.
    Done,
    /// 4xx: the caller's fault.
    Refused,
    /// 500: a fault of the function or the gateway.
    Failed,
    /// Status 503.
    Overload,
    /// Status 504.
    Deadline,
    /// The caller disconnected before the response.
    Abandoned,
}

impl Ending {
    /// All outcomes, in the order of their numbers.
    pub const ALL: [Ending; 6] = [
        Ending::Done,
        Ending::Refused,
        Ending::Failed,
        Ending::Overload,
        Ending::Deadline,
        Ending::Abandoned,
    ];

    /// The outcome as a metric's label.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Done => "done",
            Ending::Refused => "refused",
            Ending::Failed => "failed",
            Ending::Overload => "overload",
            Ending::Deadline => "deadline",
            Ending::Abandoned => "abandoned",
        }
    }

    /// The outcome for a status.
    pub fn of(status: http::StatusCode) -> Ending {
        match status.as_u16() {
            503 => Ending::Overload,
            504 => Ending::Deadline,
            500.. => Ending::Failed,
            400.. => Ending::Refused,
            _ => Ending::Done,
        }
    }
}

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(0) };
}

/// Selects this thread's shard; shard 0 is shared.
pub(crate) fn use_shard(index: usize) {
    SHARD.with(|shard| shard.set(index));
}

/// Counters of one thread, on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    endings: [AtomicU64; Ending::ALL.len()],
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
    failed_ns: AtomicU64,
    last_ms: AtomicU64,
    queue_ns: AtomicU64,
    cold_ns: AtomicU64,
    device_ns: AtomicU64,
    cold_starts: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    begun: AtomicU64,
    shed: [AtomicU64; Shed::ALL.len()],
    places: AtomicUsize,
}

/// An ended call.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its outcome.
    pub ending: Ending,
    /// Time from its last header to its response, nanoseconds.
    pub ns: u64,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the response's body.
    pub bytes_out: u64,
    /// Durations of its phases; zero for phases that did not take place.
    pub timing: Timing,
}

/// Counters of one tenant and function.
#[derive(Debug)]
pub struct Meter {
    shards: Box<[Shard]>,
    inferences: AtomicUsize,
}

impl Meter {
    fn new(shards: usize) -> Meter {
        Meter {
            shards: (0..shards.max(1)).map(|_| Shard::default()).collect(),
            inferences: AtomicUsize::new(0),
        }
    }

    fn shard(&self) -> &Shard {
        let index = SHARD.with(Cell::get);
        self.shards.get(index).unwrap_or(&self.shards[0])
    }

    /// Number of calls that hold a place of this thread.
    pub(crate) fn places(&self) -> &AtomicUsize {
        &self.shard().places
    }

    /// Number of inferences in progress.
    pub(crate) fn inferences(&self) -> &AtomicUsize {
        &self.inferences
    }

    /// Counts a call that was refused under load.
    pub fn shed(&self, reason: Shed) {
        self.shard().shed[reason as usize].fetch_add(1, Relaxed);
    }

    /// Counts a problem if it is a refusal under load.
    pub(crate) fn note(&self, problem: &Problem) {
        if let Some(reason) = problem.shed {
            self.shed(reason);
        }
    }

    /// Counts the beginning of a call, which must end with [`Meter::end`].
    pub fn begin(&self) {
        self.shard().begun.fetch_add(1, Relaxed);
    }

    /// Counts the end of a call.
    pub fn end(&self, ended: &Ended) {
        let shard = self.shard();
        shard.endings[ended.ending as usize].fetch_add(1, Relaxed);
        shard.buckets[bucket(ended.ns)].fetch_add(1, Relaxed);
        let add = |to: &AtomicU64, n: u64| {
            if n != 0 {
                to.fetch_add(n, Relaxed);
            }
        };
        add(&shard.sum_ns, ended.ns);
        if ended.ending != Ending::Done {
            add(&shard.failed_ns, ended.ns);
        }
        shard.last_ms.store(now_ms(), Relaxed);
        add(&shard.queue_ns, ended.timing.queue_ns);
        add(&shard.device_ns, ended.timing.device_ns);
        add(&shard.bytes_in, ended.bytes_in);
        add(&shard.bytes_out, ended.bytes_out);
        if ended.timing.cold_ns != 0 {
            add(&shard.cold_ns, ended.timing.cold_ns);
            add(&shard.cold_starts, 1);
        }
    }

    /// The sums over all threads.
    pub fn read(&self) -> Counts {
        let mut counts = Counts::default();
        let mut begun = 0;
        for shard in &self.shards {
            for (to, from) in counts.endings.iter_mut().zip(&shard.endings) {
                *to += from.load(Relaxed);
            }
            for (to, from) in counts.buckets.iter_mut().zip(&shard.buckets) {
                *to += from.load(Relaxed);
            }
            for (to, from) in counts.shed.iter_mut().zip(&shard.shed) {
                *to += from.load(Relaxed);
            }
            counts.sum_ns += shard.sum_ns.load(Relaxed);
            counts.failed_ns += shard.failed_ns.load(Relaxed);
            counts.last_ms = counts.last_ms.max(shard.last_ms.load(Relaxed));
            counts.queue_ns += shard.queue_ns.load(Relaxed);
            counts.cold_ns += shard.cold_ns.load(Relaxed);
            counts.device_ns += shard.device_ns.load(Relaxed);
            counts.cold_starts += shard.cold_starts.load(Relaxed);
            counts.bytes_in += shard.bytes_in.load(Relaxed);
            counts.bytes_out += shard.bytes_out.load(Relaxed);
            begun += shard.begun.load(Relaxed);
        }
        counts.running = begun.saturating_sub(counts.endings.iter().sum());
        counts
    }
}

impl Account for Meter {
    fn charge(&self, device_ns: u64) {
        self.shard().device_ns.fetch_add(device_ns, Relaxed);
    }
}

fn bucket(ns: u64) -> usize {
    let us = ns / 1000;
    ((u64::BITS - us.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// The upper bound of a bucket, nanoseconds; the last has none.
pub fn bound_ns(bucket: usize) -> u64 {
    1000 << bucket
}

/// A meter's sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By [`Ending`].
    pub endings: [u64; Ending::ALL.len()],
    /// See [`BUCKETS`].
    pub buckets: [u64; BUCKETS],
    /// Total time of all calls, nanoseconds.
    pub sum_ns: u64,
    /// Total time of all calls that were not [`Ending::Done`], nanoseconds.
    pub failed_ns: u64,
    /// End of the last call, milliseconds since 1970; 0: no call has ended.
    pub last_ms: u64,
    /// Time before the device, nanoseconds.
    pub queue_ns: u64,
    /// Loading time, nanoseconds.
    pub cold_ns: u64,
    /// Device time, nanoseconds.
    pub device_ns: u64,
    /// Calls that waited for loading.
    pub cold_starts: u64,
    /// Bytes of requests' bodies.
    pub bytes_in: u64,
    /// Bytes of responses' bodies.
    pub bytes_out: u64,
    /// Calls in progress.
    pub running: u64,
    /// Calls refused under load, by [`Shed`].
    pub shed: [u64; Shed::ALL.len()],
}

impl Counts {
    /// Number of ended calls.
    pub fn ended(&self) -> u64 {
        self.endings.iter().sum()
    }

    /// Number of calls with this outcome.
    pub fn of(&self, ending: Ending) -> u64 {
        self.endings[ending as usize]
    }
}

type Key = (String, String);

#[derive(Debug, Default)]
struct Books {
    meters: BTreeMap<Key, Arc<Meter>>,
    before: BTreeMap<Key, Usage>,
}

/// All meters, by tenant and function.
#[derive(Debug)]
pub struct Meters {
    shards: usize,
    books: Mutex<Books>,
}

impl Meters {
    /// Meters with one shard for each of `workers` threads.
    pub fn new(workers: usize) -> Meters {
        Meters {
            shards: workers + 1,
            books: Mutex::default(),
        }
    }

    /// Loads earlier usage from a file of [`Meters::save`].
    pub fn load(&self, path: &Path) -> std::io::Result<()> {
        let text = match std::fs::read(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            result => result?,
        };
        let lines: Vec<UsageLine> = serde_json::from_slice(&text)?;
        let keyed = lines.into_iter().map(|l| ((l.tenant, l.function), l.usage));
        self.locked(|books| books.before = keyed.collect());
        Ok(())
    }

    /// Writes usage atomically.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        let text = serde_json::to_vec(&self.usage())?;
        crate::http::disk::write_atomically(path, &text)
    }

    /// Returns the meter of a tenant and function, creating it once.
    pub fn meter(&self, tenant: &str, function: &str) -> Arc<Meter> {
        let key = (tenant.to_owned(), function.to_owned());
        let new = || Arc::new(Meter::new(self.shards));
        self.locked(|books| books.meters.entry(key).or_insert_with(new).clone())
    }

    /// Reads all meters: tenant, function, sums.
    pub fn read(&self) -> Vec<(String, String, Counts)> {
        self.locked(|books| {
            let lines = books.meters.iter();
            lines
                .map(|((t, f), m)| (t.clone(), f.clone(), m.read()))
                .collect()
        })
    }

    /// A function's sums over its tenants.
    pub fn read_function(&self, function: &str) -> Counts {
        let mut all = Counts::default();
        let lines = self.read();
        for (_, _, counts) in lines.iter().filter(|(_, name, _)| name == function) {
            let add = |to: &mut [u64], from: &[u64]| {
                to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
            };
            add(&mut all.endings, &counts.endings);
            add(&mut all.buckets, &counts.buckets);
            add(&mut all.shed, &counts.shed);
            all.sum_ns += counts.sum_ns;
            all.failed_ns += counts.failed_ns;
            all.last_ms = all.last_ms.max(counts.last_ms);
            all.queue_ns += counts.queue_ns;
            all.cold_ns += counts.cold_ns;
            all.device_ns += counts.device_ns;
            all.cold_starts += counts.cold_starts;
            all.bytes_in += counts.bytes_in;
            all.bytes_out += counts.bytes_out;
            all.running += counts.running;
        }
        all
    }

    /// Usage by tenant and function, including earlier runs.
    pub fn usage(&self) -> Vec<UsageLine> {
        self.locked(|books| {
            let mut all = books.before.clone();
            for (key, meter) in &books.meters {
                let usage = all.entry(key.clone()).or_default();
                *usage = usage.plus(&meter.read());
            }
            let lines = all.into_iter();
            lines
                .map(|((tenant, function), usage)| UsageLine {
                    tenant,
                    function,
                    usage,
                })
                .collect()
        })
    }

    fn locked<T>(&self, f: impl FnOnce(&mut Books) -> T) -> T {
        f(&mut self.books.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Usage {
    /// Adds the counts since the start.
    pub fn plus(self, counts: &Counts) -> Usage {
        let done = counts.of(Ending::Done);
        Usage {
            calls: self.calls + done,
            failed: self.failed + counts.ended() - done,
            device_ns: self.device_ns + counts.device_ns,
            bytes_in: self.bytes_in + counts.bytes_in,
            bytes_out: self.bytes_out + counts.bytes_out,
            cold_starts: self.cold_starts + counts.cold_starts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(ending: Ending, us: u64) -> Ended {
        Ended {
            ending,
            ns: us * 1000,
            bytes_in: 3,
            bytes_out: 5,
            timing: Timing {
                queue_ns: 1,
                cold_ns: 0,
                device_ns: 7,
                pushed: None,
            },
        }
    }

    #[test]
    fn threads_count_together() {
        let meters = Meters::new(2);
        let meter = meters.meter("red", "f");
        std::thread::scope(|scope| {
            for shard in 0..4 {
                let meter = &meter;
                scope.spawn(move || {
                    use_shard(shard);
                    for _ in 0..1000 {
                        meter.begin();
                        meter.end(&ended(Ending::Done, 3));
                    }
                });
            }
        });
        meter.begin();
        let counts = meter.read();
        assert_eq!(counts.of(Ending::Done), 4000);
        assert_eq!(counts.buckets[2], 4000); // 3 µs: less than 4
        assert_eq!(counts.running, 1);
        assert_eq!(counts.bytes_out, 20_000);
        assert!(Arc::ptr_eq(&meter, &meters.meter("red", "f")));
    }

    #[test]
    fn buckets_hold_what_their_bound_says() {
        for (ns, index) in [(0, 0), (999, 0), (1000, 1), (1999, 1), (2000, 2), (4000, 3)] {
            assert_eq!(bucket(ns), index, "{ns}");
            assert!(ns < bound_ns(index));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn usage_outlives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("usage.json");
        for calls in 1..=3 {
            let meters = Meters::new(1);
            meters.load(&path).unwrap();
            let meter = meters.meter("red", "f");
            meter.begin();
            meter.end(&ended(Ending::Done, 1));
            meters.save(&path).unwrap();
            let usage = meters.usage();
            assert_eq!(usage.len(), 1);
            assert_eq!(usage[0].usage.calls, calls);
            assert_eq!(usage[0].usage.device_ns, 7 * calls);
            assert!(
                crate::http::telemetry::usage::csv(&usage).ends_with(&format!(
                    "red,f,{calls},0,{},{},{},0\n",
                    7 * calls,
                    3 * calls,
                    5 * calls
                ))
            );
        }
    }
}
