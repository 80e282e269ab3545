//! Memory that a VM's applications share with their host, as a QEMU `ivshmem` device inside a VM or
//! as a Unix socket outside of one; and streams for VMs without such memory.
//!
//! | module | what |
//! |---|---|
//! | [`region`] | the shared memory's layout, for both sides |
//! | [`message`] | the messages in the rings, for both sides |
//! | [`stream`] | the messages over a virtio-serial port or TCP, for both sides |
//! | [`wait`] | waiting for the other side, for both sides |
//! | [`device`] | finds and maps the region |
//! | [`interrupts`] | the source of the device's interrupts for applications |
//! | [`link`] | an application's part of the region, or its stream |
//!
//! Few dependencies, because it is linked statically into programs of guests.
#![forbid(unsafe_code)]

pub mod device;
mod error;
pub mod interrupts;
pub mod link;
pub mod message;
pub mod region;
pub mod stream;
pub mod wait;

pub use device::Device;
pub use error::Error;
pub use link::{session, Lent};
pub use message::{Codec, Implementation, Preference, Reason, State};
