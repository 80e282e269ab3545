//! Counters of a function's calls, which the data path updates without a lock, and a snapshot of
//! them for metrics.
//!
//! Each thread has counters in its own cache lines: at a million calls a second, shared counters
//! would be the slowest part of a call.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Number of sets of counters; further threads share these.
const SHARDS: usize = 16;

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Relaxed) % SHARDS
    };
}

/// Upper bounds of the latency histogram's buckets, microseconds; the last bucket has none.
pub const LATENCY_BOUNDS_US: [u64; 20] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000,
    500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 60_000_000,
];
/// Upper bounds of the batch histogram's buckets, requests; the last bucket has none.
pub const BATCH_BOUNDS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Success.
    Done,
    /// The function's own error.
    Failed,
    /// Rejected because the queues were full.
    Overload,
    /// Deadline passed.
    Deadline,
    /// No replica could run it.
    Unavailable,
    /// The caller disconnected.
    Abandoned,
}

/// The counters of one function.
#[derive(Debug, Default)]
pub struct Stats {
    shards: [Shard; SHARDS],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    ends: [AtomicU64; 6],
    latency: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
    latency_ns: AtomicU64,
    device_ns: AtomicU64,
    batches: [AtomicU64; BATCH_BOUNDS.len() + 1],
    requests_ran: AtomicU64,
    cold_starts: AtomicU64,
    cold_ns: AtomicU64,
    retries: AtomicU64,
    overruns: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    begun: AtomicU64,
}

/// The values of the counters at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Successful calls.
    pub done: u64,
    /// Calls that ended with the function's own error.
    pub failed: u64,
    /// Calls rejected because the queues were full.
    pub overload: u64,
    /// Calls whose deadline passed.
    pub deadline: u64,
    /// Calls that no replica could run.
    pub unavailable: u64,
    /// Calls whose caller disconnected.
    pub abandoned: u64,
    /// Calls by latency, not cumulative: a bucket for each of [`LATENCY_BOUNDS_US`], and one more.
    pub latency: Vec<u64>,
    /// Sum of the latencies, nanoseconds.
    pub latency_ns: u64,
    /// Sum of the device times, nanoseconds.
    pub device_ns: u64,
    /// Launches by number of requests, not cumulative: a bucket for each of [`BATCH_BOUNDS`], and
    /// one more.
    pub batches: Vec<u64>,
    /// Sum of the requests in all launches.
    pub requests_ran: u64,
    /// Number of loadings.
    pub cold_starts: u64,
    /// Total loading time, nanoseconds.
    pub cold_ns: u64,
    /// Calls retried on another node.
    pub retries: u64,
    /// Calls that held a device past their deadline and were ended.
    pub overruns: u64,
    /// Bytes of bodies.
    pub bytes_in: u64,
    /// Bytes of outputs.
    pub bytes_out: u64,
    /// Calls in progress.
    pub waiting: u64,
}

fn bucket(bounds: &[u64], value: u64) -> usize {
    bounds.partition_point(|bound| *bound < value)
}

impl Stats {
    fn shard(&self) -> &Shard {
        &self.shards[SHARD.with(|shard| *shard)]
    }

    /// Records a call's start; dropping the guard records its end.
    pub fn begin(&self, bytes_in: u64) -> Guard<'_> {
        let shard = self.shard();
        shard.begun.fetch_add(1, Relaxed);
        shard.bytes_in.fetch_add(bytes_in, Relaxed);
        Guard {
            stats: self,
            end: End::Abandoned,
        }
    }

    /// Records a launch of `requests` merged requests.
    pub fn ran(&self, requests: usize) {
        let shard = self.shard();
        shard.batches[bucket(&BATCH_BOUNDS, requests as u64)].fetch_add(1, Relaxed);
        shard.requests_ran.fetch_add(requests as u64, Relaxed);
    }

    /// Records a loading.
    pub fn cold_start(&self, took: Duration) {
        let shard = self.shard();
        shard.cold_starts.fetch_add(1, Relaxed);
        shard.cold_ns.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    /// Records a retry.
    pub fn retry(&self) {
        self.shard().retries.fetch_add(1, Relaxed);
    }

    /// Records a call that held a device past its deadline and was aborted.
    pub fn overrun(&self) {
        self.shard().overruns.fetch_add(1, Relaxed);
    }

    /// Number of calls begun, and of calls in progress.
    pub fn calls(&self) -> (u64, u64) {
        let ends = |shard: &Shard| -> u64 { shard.ends.iter().map(|n| n.load(Relaxed)).sum() };
        // Ends first, as in `snapshot`.
        let ended: u64 = self.shards.iter().map(ends).sum();
        let begun: u64 = self.shards.iter().map(|s| s.begun.load(Relaxed)).sum();
        (begun, begun.saturating_sub(ended))
    }

    /// The current values.
    pub fn snapshot(&self) -> Snapshot {
        let sum = |of: &dyn Fn(&Shard) -> &AtomicU64| -> u64 {
            self.shards
                .iter()
                .map(|shard| of(shard).load(Relaxed))
                .sum()
        };
        let end = |end: End| sum(&|shard| &shard.ends[end as usize]);
        // Ends first: a call that ends during the read is counted as in progress, so that the
        // difference is never negative.
        let ended: u64 = (0..6).map(|n| sum(&|shard| &shard.ends[n])).sum();
        let begun = sum(&|shard| &shard.begun);
        let buckets = |count: usize, of: &dyn Fn(&Shard, usize) -> u64| -> Vec<u64> {
            let shards = |n| self.shards.iter().map(|shard| of(shard, n)).sum();
            (0..count).map(shards).collect()
        };
        Snapshot {
            done: end(End::Done),
            failed: end(End::Failed),
            overload: end(End::Overload),
            deadline: end(End::Deadline),
            unavailable: end(End::Unavailable),
            abandoned: end(End::Abandoned),
            latency: buckets(LATENCY_BOUNDS_US.len() + 1, &|shard, n| {
                shard.latency[n].load(Relaxed)
            }),
            latency_ns: sum(&|shard| &shard.latency_ns),
            device_ns: sum(&|shard| &shard.device_ns),
            batches: buckets(BATCH_BOUNDS.len() + 1, &|shard, n| {
                shard.batches[n].load(Relaxed)
            }),
            requests_ran: sum(&|shard| &shard.requests_ran),
            cold_starts: sum(&|shard| &shard.cold_starts),
            cold_ns: sum(&|shard| &shard.cold_ns),
            retries: sum(&|shard| &shard.retries),
            overruns: sum(&|shard| &shard.overruns),
            bytes_in: sum(&|shard| &shard.bytes_in),
            bytes_out: sum(&|shard| &shard.bytes_out),
            waiting: begun.saturating_sub(ended),
        }
    }
}

/// A call in progress. Dropped without [`Guard::end`], it counts as abandoned.
pub struct Guard<'a> {
    stats: &'a Stats,
    end: End,
}

impl Guard<'_> {
    /// Records an unsuccessful outcome.
    pub fn end(mut self, end: End) {
        self.end = end;
    }

    /// Records a success.
    pub fn done(mut self, latency: Duration, device_ns: u64, bytes_out: u64) {
        self.end = End::Done;
        let shard = self.stats.shard();
        let us = latency.as_micros() as u64;
        shard.latency[bucket(&LATENCY_BOUNDS_US, us)].fetch_add(1, Relaxed);
        shard
            .latency_ns
            .fetch_add(latency.as_nanos() as u64, Relaxed);
        shard.device_ns.fetch_add(device_ns, Relaxed);
        shard.bytes_out.fetch_add(bytes_out, Relaxed);
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.stats.shard().ends[self.end as usize].fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_ends_once() {
        let stats = Stats::default();
        stats.begin(5).done(Duration::from_micros(10), 7, 3);
        stats.begin(5).done(Duration::from_micros(11), 7, 3);
        stats.begin(0).end(End::Overload);
        drop(stats.begin(0));
        let open = stats.begin(0);
        let seen = stats.snapshot();
        assert_eq!((seen.done, seen.overload, seen.abandoned), (2, 1, 1));
        assert_eq!((seen.waiting, seen.bytes_in, seen.bytes_out), (1, 10, 6));
        assert_eq!(seen.latency[..3], [1, 1, 0]);
        drop(open);
        assert_eq!(stats.snapshot().waiting, 0);
    }

    #[test]
    fn values_beyond_all_bounds_have_a_bucket() {
        let stats = Stats::default();
        stats.ran(1);
        stats.ran(3);
        stats.ran(1_000_000);
        stats.begin(0).done(Duration::from_secs(3600), 0, 0);
        let seen = stats.snapshot();
        assert_eq!(seen.batches[0], 1);
        assert_eq!(seen.batches[2], 1);
        assert_eq!(seen.batches[BATCH_BOUNDS.len()], 1);
        assert_eq!(seen.latency[LATENCY_BOUNDS_US.len()], 1);
    }
}
