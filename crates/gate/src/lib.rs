//! The gate: which executors may use a device now. No I/O: the Device Manager joins it to lease pages
//! and the clock, a simulator to simulated ones.
//!
//! [`scheduler`] is told what leases look like and when, and says what to do. The order among
//! waiting clients is a [`Policy`]'s, one file each.
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

/// Names a lease at the gate; never used again.
pub type ClientId = u64;

/// What a client is entitled to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Clients of one tenant share its entitlement.
    pub tenant: String,
    /// Under `fair`; at least 1.
    pub weight: u32,
    /// Under `priority`; the higher goes first.
    pub priority: i32,
    /// Under `fair`: percent of the device's time that the tenant gets at least while it wants it;
    /// 0: its part by weight.
    pub floor: u32,
    /// Percent of the device's time that it never exceeds, whoever else wants it; 0: no bound. Of a device of several
    /// slots or processors: of all of them together.
    pub ceiling: u32,
}

/// Orders clients. All times are nanoseconds of one monotonic clock.
pub trait Policy: Send {
    /// A client came.
    fn add(&mut self, client: ClientId, share: &Share);

    /// A client went, or its share changes (an [`Policy::add`] follows).
    fn remove(&mut self, client: ClientId);

    /// A client that neither held nor waited wants the device.
    fn wake(&mut self, client: ClientId, now_ns: u64);

    /// A client neither holds nor wants the device any more.
    fn sleep(&mut self, client: ClientId);

    /// A client had so much of the device while another waited.
    fn charge(&mut self, client: ClientId, device_ns: u64);

    /// Sort key among waiting clients: the smallest goes first. Equal keys go by arrival.
    fn rank(&self, client: ClientId) -> i128;

    /// Whether `holder`, which has held for `held_ns`, makes way for `waiting` at its next task
    /// boundary.
    fn yields(&self, holder: ClientId, waiting: ClientId, held_ns: u64, quantum_ns: u64) -> bool;
}

/// In which order the gate grants the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyKind {
    /// In the order of asking.
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

/// The policy of a name.
pub fn policy(kind: PolicyKind) -> Box<dyn Policy> {
    match kind {
        PolicyKind::Fifo => Box::new(fifo::Fifo),
        PolicyKind::Fair => Box::new(fair::Fair::default()),
        PolicyKind::Priority => Box::new(priority::Priority::default()),
    }
}

/// How a gate works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateOptions {
    /// Clients that may hold the device at once.
    pub slots: usize,
    /// Which order.
    pub policy: PolicyKind,
    /// How long a holder may go on while another waits.
    pub quantum: Duration,
    /// How long a holder without a task keeps the device while another waits.
    pub linger: Duration,
}
