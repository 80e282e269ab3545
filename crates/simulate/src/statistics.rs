//! Counters of a simulation.

use crate::histogram::Histogram;

/// Counters of the functions of one entry.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Requests that were due.
    pub offered: u64,
    /// Requests due that were not sent because all connections were busy.
    pub unsent: u64,
    /// Requests answered, including late ones.
    pub processed: u64,
    /// Requests answered after their deadline, or dropped at it.
    pub late: u64,
    /// Rejected requests: no instance, or too many waiting requests.
    pub refused: u64,
    /// Requests sent and not answered before the end.
    pub unfinished: u64,
    /// Time from sending to the response.
    pub latency: Histogram,
    /// Time of tasks from queueing to their start.
    pub wait: Histogram,
    /// Instances that were not allocated.
    pub instances_refused: u64,
    /// Reason of the first refusal.
    pub refusal: Option<String>,
    /// Instances moved to another device.
    pub migrations: u64,
    /// Maximum number of concurrent instances.
    pub instances_max: usize,
}

/// Counters of a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceCounts {
    /// Accelerators loaded.
    pub reconfigurations: u64,
    /// Of those, replacements of another accelerator.
    pub replaced: u64,
    /// Time that loads took, in the measurement.
    pub loading_ns: u64,
    /// The longest wait of an image for its turn, without loads.
    pub turn_wait_max_ns: u64,
    /// Busy time before the measurement.
    pub worked_before_ns: u64,
    /// Busy time at the last heartbeat.
    pub worked_reported_ns: u64,
    /// Utilization between the last two heartbeats, percent.
    pub utilization: f64,
}

impl Counts {
    /// Adds another entry's counters.
    pub fn add(&mut self, other: &Counts) {
        self.offered += other.offered;
        self.unsent += other.unsent;
        self.processed += other.processed;
        self.late += other.late;
        self.refused += other.refused;
        self.unfinished += other.unfinished;
        self.latency.merge(&other.latency);
        self.wait.merge(&other.wait);
        self.instances_refused += other.instances_refused;
        self.migrations += other.migrations;
        self.instances_max += other.instances_max;
    }
}
