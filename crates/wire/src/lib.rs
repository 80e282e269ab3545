//! The protocols of sessions: between a client and an executor, and between the Device Manager and
//! an executor ([`executor`]).
//!
//! A session has one *control* channel (objects: created, built, released; ordered), one channel
//! per command queue ([`Command`]), and one stream of [`Notice`]s back. Every message is one
//! postcard-encoded enum, in one ring message or TCP frame (see `baltra-ring` and
//! `baltra-session`). Ids of objects are assigned by the client ([`Id`]). Only a [`Control::Call`]
//! has a reply: it carries a [`Call`] number that its [`Notice::Reply`] repeats.
//!
//! Decoding never allocates more than the input's length, and slices borrow from the input.
#![forbid(unsafe_code)]

mod command;
mod control;
mod device;
pub mod executor;
pub mod facts;
mod hello;
pub mod listing;
pub mod moves;
mod notice;
pub mod opencl;
pub mod transit;

pub use command::{Arg, Command, Direction, Operation, Payload, Region, Waits};
pub use control::{Backing, Control, ImageFormat, ImageShape, PipeShape, Query, Request};
pub use device::{DeviceDescription, Info};
pub use hello::{Hello, Limits, Purpose, Refusal, SessionFlags, Share, Welcome};
pub use notice::{
    with_turns, without_turns, Completion, KernelArg, KernelDescription, Notice, Reply,
    EXECUTOR_ENDED, PREEMPTIBLE, TURN_ENDED, WORK_FAULTED,
};

use serde::{de::Deserialize, Deserializer, Serialize};

/// The protocol version of this build. A peer with another major version is rejected with an error
/// that contains both; a peer with another minor version works (messages are only appended).
pub const VERSION: Version = Version { major: 1, minor: 9 };

/// Size limit of a message at either end, bytes (a program binary is the longest).
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// A protocol version.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Version {
    /// Peers of different `major` are incompatible.
    pub major: u16,
    /// Peers of different `minor` are compatible.
    pub minor: u16,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The id of an object, chosen by the client and never reused in its session. Zero is the null
/// handle.
pub type Id = u32;

/// Numbers a request, so that its reply can be matched. Chosen by the client.
pub type Call = u32;

/// Identifies an event: the slot in the session's event table in the low half, the slot's
/// generation (never zero) in the high half. Zero: no event.
pub type Event = u64;

/// Builds an [`Event`] from its slot and generation.
pub const fn event(slot: u32, generation: u32) -> Event {
    slot as u64 | (generation as u64) << 32
}

/// The slot of an event.
pub const fn event_slot(event: Event) -> u32 {
    event as u32
}

/// The generation of an event.
pub const fn event_generation(event: Event) -> u32 {
    (event >> 32) as u32
}

/// The end of a message, which peers of earlier releases leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Trailing<T>(pub Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Trailing<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Trailing(T::deserialize(deserializer).ok()))
    }
}

/// A message that could not be encoded or decoded.
#[derive(Debug, thiserror::Error)]
#[error("malformed {what}: {source}")]
pub struct CodecError {
    what: &'static str,
    source: postcard::Error,
}

/// Appends `message` to `buffer`.
pub fn encode<T: Serialize>(message: &T, buffer: &mut Vec<u8>) -> Result<(), CodecError> {
    let taken = std::mem::take(buffer);
    *buffer = postcard::to_extend(message, taken).map_err(|source| CodecError {
        what: "outgoing message",
        source,
    })?;
    Ok(())
}

/// Decodes one message that fills `bytes`; its borrowed parts point into `bytes`.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, CodecError> {
    postcard::from_bytes(bytes).map_err(|source| CodecError {
        what: "message from the peer",
        source,
    })
}

/// Decodes one message at the beginning of `bytes`; returns it and the remaining bytes.
pub fn decode_first<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), CodecError> {
    postcard::take_from_bytes(bytes).map_err(|source| CodecError {
        what: "message from the peer",
        source,
    })
}

#[cfg(test)]
mod tests;
