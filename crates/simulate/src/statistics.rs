//! Counters of a simulation.

use crate::histogram::Histogram;

/// Counters of the functions of one entry.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Requests that were due.
    pub offered: u64,
    /// Due and never sent, because every connection was busy.
    pub unsent: u64,
    /// Answered, late or not.
    pub processed: u64,
    /// Answered after their deadline, or given up at it.
    pub late: u64,
    /// Turned away: no instance, or too many waiting.
    pub refused: u64,
    /// Sent and not answered when the time was over.
    pub unfinished: u64,
    /// From sending to the answer.
    pub latency: Histogram,
    /// Of a task, from its being queued to its beginning.
    pub wait: Histogram,
    /// Instances that got no device.
    pub instances_refused: u64,
    /// Why the first of them got none.
    pub refusal: Option<String>,
    /// Instances that were moved to another device.
    pub migrations: u64,
    /// The most instances that there were at once.
    pub instances_max: usize,
}

/// Counters of a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceCounts {
    /// Accelerators loaded.
    pub reconfigurations: u64,
    /// Of those, replacements of another accelerator.
    pub replaced: u64,
    /// Time worked before counting began.
    pub worked_before_ns: u64,
    /// Time worked at the last heartbeat.
    pub worked_reported_ns: u64,
    /// Percent, between the last two heartbeats.
    pub utilization: f64,
}

impl Counts {
    /// Another's, added.
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
