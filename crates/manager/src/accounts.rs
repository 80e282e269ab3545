//! Usage per tenant and device, the basis of billing.
//!
//! Executors count in their lease pages. Every second (and when a lease ends) the manager adds the
//! increments, limited to plausible values, and records the totals.

use crate::gate_thread::Lease;
use crate::store::{self, Store};
use baltra_ring::lease::{processor_ns, LATENCY_BUCKETS};
use baltra_ring::{Locked, Usage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Totals since the tenant's first use of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Used {
    /// Time during which a task ran, nanoseconds.
    pub busy_ns: u64,
    /// Time of the host's processors, nanoseconds; 0 on other devices.
    pub processor_ns: u64,
    /// Number of ended tasks.
    pub tasks: u64,
    /// Completed commands.
    pub calls: u64,
    /// Bytes written to the device.
    pub bytes_in: u64,
    /// Bytes read from the device.
    pub bytes_out: u64,
    /// Sessions opened.
    pub sessions: u64,
    /// Bytes of swapped objects brought back to the device.
    pub swapped_in: u64,
    /// Bytes of objects moved from the device to host memory.
    pub swapped_out: u64,
}

/// Task latencies since the manager started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Counts by bucket; see [`LATENCY_BUCKETS`].
    pub buckets: [u64; LATENCY_BUCKETS],
    /// Sum of the latencies, nanoseconds.
    pub sum_ns: u64,
}

#[derive(Default)]
struct Account {
    used: Used,
    latency: Latency,
    recorded: Used,
}

type Key = (String, String);

/// One account: tenant, device, totals, latencies.
pub type Line = (String, String, Used, Latency);

/// All accounts.
pub struct Accounts {
    store: Arc<Store>,
    books: Mutex<BTreeMap<Key, Account>>,
}

/// A lease and its counters at the last reading.
#[derive(Debug)]
pub struct Metered {
    /// The lease.
    pub lease: Arc<Lease>,
    device: String,
    /// The process whose processor time is counted.
    processor: Option<u32>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    usage: Usage,
    processor_ns: u64,
    at: Instant,
}

impl Seen {
    fn now(lease: &Lease, processor: Option<u32>) -> Seen {
        Seen {
            usage: lease.granter.usage(),
            processor_ns: processor.and_then(processor_ns).unwrap_or(0),
            at: Instant::now(),
        }
    }
}

impl Metered {
    /// Counts from the lease's present values on, because those of an adopted executor have been
    /// recorded. With a process in `processor`, that process's processor time is charged to the
    /// lease.
    pub fn new(lease: Arc<Lease>, device: &str, processor: Option<u32>) -> Metered {
        let seen = Mutex::new(Seen::now(&lease, processor));
        Metered {
            lease,
            device: device.to_owned(),
            processor,
            seen,
        }
    }
}

impl Accounts {
    /// Loads the recorded totals.
    pub fn load(store: Arc<Store>) -> Result<Accounts, store::Error> {
        let books = store.usage()?.into_iter().map(|(tenant, device, used)| {
            let account = Account {
                used,
                recorded: used,
                ..Account::default()
            };
            ((tenant, device), account)
        });
        Ok(Accounts {
            books: Mutex::new(books.collect()),
            store,
        })
    }

    fn with<T>(&self, tenant: &str, device: &str, f: impl FnOnce(&mut Account) -> T) -> T {
        let mut books = self.books.locked();
        f(books
            .entry((tenant.to_owned(), device.to_owned()))
            .or_default())
    }

    /// Counts an opened session.
    pub fn count_session(&self, tenant: &str, device: &str) {
        self.with(tenant, device, |a| a.used.sessions += 1);
    }

    /// Adds a lease's increments since the last call.
    pub fn read(&self, metered: &Metered) {
        let mut seen = metered.seen.locked();
        let now = Seen::now(&metered.lease, metered.processor);
        let elapsed = now.at.duration_since(seen.at).as_nanos() as u64;
        let (new, latency) = difference(&seen.usage, &now.usage, elapsed);
        // The kernel's count is 0 once the process has ended.
        let processor_ns = now.processor_ns.saturating_sub(seen.processor_ns);
        *seen = now;
        self.with(&metered.lease.tenant, &metered.device, |a| {
            a.used.busy_ns = a.used.busy_ns.saturating_add(new.busy_ns);
            a.used.processor_ns = a.used.processor_ns.saturating_add(processor_ns);
            a.used.tasks = a.used.tasks.saturating_add(new.tasks);
            a.used.calls = a.used.calls.saturating_add(new.calls);
            a.used.bytes_in = a.used.bytes_in.saturating_add(new.bytes_in);
            a.used.bytes_out = a.used.bytes_out.saturating_add(new.bytes_out);
            a.used.swapped_in = a.used.swapped_in.saturating_add(new.swapped_in);
            a.used.swapped_out = a.used.swapped_out.saturating_add(new.swapped_out);
            for (sum, more) in a.latency.buckets.iter_mut().zip(latency.buckets) {
                *sum = sum.saturating_add(more);
            }
            a.latency.sum_ns = a.latency.sum_ns.saturating_add(latency.sum_ns);
        });
    }

    /// The tasks of all tenants on a device, and the device time that they used, nanoseconds.
    pub fn tasks(&self, device: &str) -> (u64, u64) {
        let books = self.books.locked();
        let own = books.iter().filter(|((_, of), _)| of == device);
        own.fold((0, 0), |(tasks, busy_ns), (_, account)| {
            let used = &account.used;
            (
                tasks.saturating_add(used.tasks),
                busy_ns.saturating_add(used.busy_ns),
            )
        })
    }

    /// All accounts, ordered by name.
    pub fn lines(&self) -> Vec<Line> {
        let books = self.books.locked();
        let line = |((tenant, device), a): (&Key, &Account)| {
            (tenant.clone(), device.clone(), a.used, a.latency)
        };
        books.iter().map(line).collect()
    }

    /// Writes changed totals to the store.
    pub fn flush(&self, synced: bool) -> Result<(), store::Error> {
        let changed: Vec<(Key, Used)> = {
            let mut books = self.books.locked();
            books
                .iter_mut()
                .filter(|(_, a)| a.used != a.recorded || synced)
                .map(|(key, a)| {
                    a.recorded = a.used;
                    (key.clone(), a.used)
                })
                .collect()
        };
        if changed.is_empty() {
            return Ok(());
        }
        let lines = changed
            .iter()
            .map(|((t, d), u)| (t.as_str(), d.as_str(), *u));
        self.store.put_usage(lines, synced)
    }
}

/// Increments, limited to plausible values: no counter decreases, and no busy time exceeds the
/// clock's.
fn difference(old: &Usage, new: &Usage, elapsed_ns: u64) -> (Used, Latency) {
    let used = Used {
        busy_ns: new.busy_ns.saturating_sub(old.busy_ns).min(elapsed_ns),
        processor_ns: 0,
        tasks: new.tasks.saturating_sub(old.tasks),
        calls: new.calls.saturating_sub(old.calls),
        bytes_in: new.bytes_in.saturating_sub(old.bytes_in),
        bytes_out: new.bytes_out.saturating_sub(old.bytes_out),
        sessions: 0,
        swapped_in: new.swapped_in.saturating_sub(old.swapped_in),
        swapped_out: new.swapped_out.saturating_sub(old.swapped_out),
    };
    let latency = Latency {
        buckets: std::array::from_fn(|i| new.latency[i].saturating_sub(old.latency[i])),
        sum_ns: new.latency_sum_ns.saturating_sub(old.latency_sum_ns),
    };
    (used, latency)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_true_is_counted() {
        let old = Usage {
            busy_ns: 100,
            tasks: 10,
            ..Usage::default()
        };
        let lie = Usage {
            busy_ns: u64::MAX,
            tasks: 3,
            ..Usage::default()
        };
        let (used, _) = difference(&old, &lie, 50);
        assert_eq!((used.busy_ns, used.tasks), (50, 0));
    }

    #[test]
    fn totals_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        {
            let accounts = Accounts::load(Arc::new(Store::open(&path).unwrap())).unwrap();
            accounts.count_session("red", "cpu");
            accounts.flush(true).unwrap();
        }
        let accounts = Accounts::load(Arc::new(Store::open(&path).unwrap())).unwrap();
        accounts.count_session("red", "cpu");
        assert_eq!(accounts.lines()[0].2.sessions, 2);
    }
}
