//! The guest's side of the VM door: an application calls the host's functions through memory that
//! it shares with the host, as a QEMU `ivshmem` device inside a VM or as a Unix socket outside of one.
//!
//! | module | what |
//! |---|---|
//! | [`region`] | the shared memory's layout, for both sides |
//! | [`message`] | what is said in the rings, for both sides |
//! | [`device`] | finds and maps the region |
//! | [`client`] | the four phases: negotiate, activate, compute, release |
//! | [`wait`] | waiting for the other side, for both sides |
//! | [`ffi`] | the same for C (`include/vfun.h`) |
//!
//! Few dependencies, because it is linked statically into programs of guests.
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod client;
pub mod device;
pub mod ffi;
pub mod message;
pub mod region;
pub mod wait;

pub use client::{Client, Error, Function, Lent, Offer, Values};
pub use device::Device;
pub use message::{Codec, Implementation, Reason, State, Want};
