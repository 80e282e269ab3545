//! The Accelerators Registry: the pool's devices, their accelerators, and their allocation to
//! instances.
//!
//! Managers register their node's devices and report their load; applications request devices by
//! query; operators cordon, drain and query devices. The decisions are pure functions over a
//! snapshot ([`allocate`], [`baltra_api::query`], [`signals`]); the rest of the crate maintains the
//! snapshot: persistent state in [`store`], current state in [`state`].
//!
//! [`Options`] builds a [`Service`], which runs until its handle stops it. Sessions never wait for
//! the registry.
#![forbid(unsafe_code)]

pub mod allocate;
mod check;
pub mod clock;
mod containers;
pub mod counters;
pub mod failure;
mod functions;
mod grpc;
mod incoming;
mod instances;
pub mod lock;
pub mod metrics;
pub mod model;
mod movable;
mod moves;
mod nodes;
mod operators;
pub mod options;
mod places;
pub mod prometheus;
mod reconfigure;
pub mod records;
pub mod registry;
mod relocate;
mod service;
pub mod signals;
pub mod state;
pub mod store;

pub use options::Options;
pub use service::{Handle, Service};
