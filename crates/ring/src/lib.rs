//! Shared memory of a session: rings, events, leases.
//!
//! All `unsafe` code of the data plane is in this crate. Memory that another process can write is
//! treated as hostile: an index is read once, checked against the mapping's own length, and the
//! copy is used; a record is copied into private memory before it is examined.
//!
//! | module | content |
//! |---|---|
//! | [`memory`] | sealed memfds and their mappings |
//! | [`io`] | socket transfers from and into shared memory |
//! | [`futex`] | sleeping on a shared word |
//! | [`ring`] | single-producer single-consumer ring of messages |
//! | [`progress`] | a queue's progress, in its ring's header |
//! | [`events`] | the table of event statuses and times |
//! | [`segment`] | the memory that every session starts with |
//! | [`budget`] | the memory of a device that several executors share |
//! | [`lease`] | the gate's page between manager and executor |
//! | [`peer`] | the process at the other end of a socket |
//! | [`spin`] | adaptive spinning |
#![deny(clippy::undocumented_unsafe_blocks)]

#[cfg(not(loom))]
pub mod budget;
#[cfg(not(loom))]
pub mod events;
pub mod futex;
#[cfg(not(loom))]
pub mod io;
#[cfg(not(loom))]
pub mod lease;
mod locked;
pub mod memory;
#[cfg(not(loom))]
pub mod peer;
pub mod progress;
pub mod ring;
#[cfg(not(loom))]
pub mod segment;
pub mod spin;
mod sync;

// Under loom, only the ring's protocol is built: the rest sleeps in the kernel.

#[cfg(not(loom))]
pub use events::{EventTable, EventWriter, EVENT_SLOT_BYTES};
pub use futex::{futex_wait, futex_wake};
#[cfg(not(loom))]
pub use lease::{LeaseGranter, LeaseHolder, LeaseState, Usage};
pub use locked::{Locked, Unpoisoned};
pub use memory::{Memory, Range};
pub use progress::Progress;
pub use ring::{
    ring_bytes, Consumer, Full, Position, Producer, RingError, Waker, RING_HEADER_BYTES,
};
#[cfg(not(loom))]
pub use segment::{Segment, SEGMENT_BYTES};
pub use spin::{Spin, Waiting};
