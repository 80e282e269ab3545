//! The guest's side of the VM door: an application calls the host's functions through memory that
//! it shares with the host, as a QEMU `ivshmem` device inside a VM or as a Unix socket outside of one.
//!
//! | module | what |
//! |---|---|
//! | [`region`] | the shared memory's layout, for both sides |
//! | [`message`] | what is said in the rings, for both sides |
//! | [`device`] | finds and maps the region |
//! | [`stream`] | the messages over a virtio-serial port or TCP, for both sides |
//! | `link` | a part of the region, or a stream |
//! | [`interrupts`] | the device's interrupts through vfio, given to applications |
//! | [`client`] | the four phases: negotiate, activate, compute, release |
//! | [`wait`] | waiting for the other side, for both sides |
//! | [`ffi`] | the same for C (`include/vfun.h`) |
//!
//! Few dependencies, because it is linked statically into programs of guests.
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod client;
pub mod device;
pub mod ffi;
pub mod interrupts;
mod link;
pub mod message;
pub mod region;
pub mod stream;
pub mod wait;

pub use client::{Client, Error, Function, Offer, Values};
pub use device::Device;
pub use link::Lent;
pub use message::{Codec, Implementation, Reason, State, Want};
