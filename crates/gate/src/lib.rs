//! The gate: decides which executors may use a device at any time. No I/O: the Device Manager
//! connects it to lease pages and the clock, a simulator to simulated ones.
//!
//! [`scheduler`] receives the leases' states and the time, and returns actions. The order among
//! waiting clients is defined by a [`Policy`], one file each.
#![forbid(unsafe_code)]

mod ceiling;
mod fair;
mod fifo;
mod priority;
pub mod scheduler;

#[cfg(test)]
mod tests;

pub use scheduler::{Action, Scheduler, Work};

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The id of a lease at the gate; never reused.
pub type ClientId = u64;

/// A client's share of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The tenant; its clients share its entitlement.
    pub tenant: String,
    /// The weight under `fair`; at least 1.
    pub weight: u32,
    /// The priority under `priority`; higher ones go first.
    pub priority: i32,
    /// Under `fair`: minimum percentage of the device's time that the tenant gets while it demands
    /// it; 0: its part by weight.
    pub floor: u32,
    /// Maximum percentage of the device's time, even if the device is idle; 0: unlimited. On a
    /// device with several slots or processors: of all of them together.
    pub ceiling: u32,
}

/// Orders clients. All times are nanoseconds of one monotonic clock.
pub trait Policy: Send {
    /// A client is added.
    fn add(&mut self, client: ClientId, share: &Share);

    /// A client is removed, or its share changes (an [`Policy::add`] follows).
    fn remove(&mut self, client: ClientId);

    /// A client that neither held nor waited requests the device.
    fn wake(&mut self, client: ClientId, now_ns: u64);

    /// A client neither holds nor requests the device any more.
    fn sleep(&mut self, client: ClientId, now_ns: u64);

    /// A client held the device for this time while another one waited.
    fn charge(&mut self, client: ClientId, device_ns: u64);

    /// Sort key among waiting clients: the smallest goes first. Equal keys go by arrival.
    fn rank(&self, client: ClientId) -> i128;

    /// Whether `holder`, which has held the device for `held_ns`, yields to `waiting` at its next
    /// task boundary.
    fn yields(&self, holder: ClientId, waiting: ClientId, held_ns: u64, quantum_ns: u64) -> bool;
}

/// The order in which the gate grants the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyKind {
    /// In the order of requests.
    Fifo,
    /// Equal device time, by weight.
    #[default]
    Fair,
    /// The highest priority first, at every task boundary.
    Priority,
}

impl std::fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PolicyKind::Fifo => "fifo",
            PolicyKind::Fair => "fair",
            PolicyKind::Priority => "priority",
        })
    }
}

/// Creates the policy of a kind.
pub fn policy(kind: PolicyKind) -> Box<dyn Policy> {
    match kind {
        PolicyKind::Fifo => Box::new(fifo::Fifo),
        PolicyKind::Fair => Box::new(fair::Fair::default()),
        PolicyKind::Priority => Box::new(priority::Priority::default()),
    }
}

/// Options of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateOptions {
    /// Number of clients that may hold the device concurrently.
    pub slots: usize,
    /// The policy.
    pub policy: PolicyKind,
    /// Quantum: how long a holder may continue while another client waits.
    pub quantum: Duration,
    /// Time for which a holder without a task keeps the device while another client waits.
    pub linger: Duration,
}
