//! Simulates a pool of devices: the real registry's allocator and the real manager's gate, with a
//! modeled cluster and load.
//!
//! A [`Scenario`] (YAML) describes nodes and devices, the times of tasks, and the load of requests.
//! [`run`] simulates it event by event in simulated time and returns a [`Report`]: utilization,
//! latencies, refused and late requests, reconfigurations. The same scenario and seed give the same
//! report on every machine.
//!
//! Real components: [`baltra_registry::allocate`] (placement, reconfiguration, migration),
//! [`baltra_registry::signals`] (autoscaling), [`baltra_gate::Scheduler`] with its policies.
//! `docs/simulate.md` describes the modeled parts.
#![forbid(unsafe_code)]

mod command;
mod device;
mod histogram;
mod load;
mod random;
mod report;
pub mod scenario;
mod statistics;
#[cfg(test)]
mod tests;
mod world;

pub use command::{command, Args};
pub use load::{Arrivals, Load};
pub use random::Times;
pub use report::{DeviceReport, FunctionReport, Report, Spread};
pub use scenario::{Scenario, ScenarioError};
pub use world::run;
