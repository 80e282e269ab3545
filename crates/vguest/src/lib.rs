//! The guest's side of the VM door: an application calls the host's functions through memory shared
//! with the host, as a QEMU `ivshmem` device inside a VM or as a Unix socket outside of one.
//!
//! | module | content |
//! |---|---|
//! | [`interrupts`] | the device's interrupts through vfio, given to applications |
//! | [`client`] | the four phases: negotiate, activate, compute, release |
//! | [`ffi`] | the same for C (`include/vfun.h`) |
//!
//! The region and the messages in it are [`baltra_ivshmem`]'s. Few dependencies, because it is
//! linked statically into programs of guests.
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod client;
pub mod ffi;
pub mod interrupts;

pub use baltra_ivshmem::{Codec, Device, Error, Implementation, Preference, Reason, State};
pub use client::{Client, Function, Offer, Values};
