//! The Device Manager: one for each node.
//!
//! The manager accepts clients, reads their hello and no later message, and passes each session to
//! an executor. It grants devices to executors ([`gate_thread`]), keeps warm executors and detects
//! their end ([`executors`]), stores tenants, usage records and images, and serves operators'
//! requests. It never loads a vendor's driver and has no access to tenants' data.
//!
//! [`options::Options`] builds a [`Service`], which runs until it is stopped.
#![forbid(unsafe_code)]

pub mod accept;
pub mod accounts;
mod adoption;
mod budget;
pub mod configuration;
mod control;
pub mod drivers;
pub mod executors;
pub mod gate_thread;
pub mod images;
mod loads;
pub mod lock;
pub mod logfile;
pub mod metrics;
pub mod moves;
pub mod node;
pub mod options;
mod programs;
pub mod regions;
pub mod registry;
pub mod relay;
mod service;
pub mod store;
pub mod tenants;
mod traces;

pub use options::Options;
pub use service::Service;
