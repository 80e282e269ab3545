//! The Device Manager: one for each node.
//!
//! It accepts clients, reads their hello and nothing after it, and hands each session to an
//! executor; grants devices to executors ([`gate_thread`]); keeps executors warm and notices when they
//! die ([`executors`]); keeps tenants, books and images; answers operators. It never loads a
//! vendor's driver and never sees a tenant's data.
//!
//! [`options::Options`] builds a [`Service`], which runs until it is stopped.
#![forbid(unsafe_code)]

pub mod accept;
pub mod accounts;
mod adoption;
pub mod configuration;
mod control;
pub mod drivers;
pub mod executors;
pub mod gate_thread;
pub mod images;
pub mod lock;
pub mod logfile;
pub mod metrics;
pub mod node;
pub mod options;
mod programs;
pub mod registry;
pub mod relay;
mod service;
pub mod store;
pub mod tenants;
mod traces;

pub use options::Options;
pub use service::Service;
