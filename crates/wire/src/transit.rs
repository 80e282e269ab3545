//! The protocol by which a session moves to another node, on the connection that then carries its
//! messages: between its forwarder on the node where its program runs and a relay on the other node,
//! after hello ([`crate::Purpose::Arrive`]) and welcome. Each message is preceded by its length as
//! four little-endian bytes.
//!
//! | forwarder | relay |
//! |---|---|
//! | [`ToRelay::Plan`] | [`ToForwarder::Prepared`] |
//! | [`ToRelay::Ahead`]: objects with contents | [`ToForwarder::Prepared`] |
//! | [`ToRelay::Parts`], followed by their bytes | |
//! | [`ToRelay::Rest`], once the session is stopped, further [`ToRelay::Parts`], [`ToRelay::Complete`] | [`ToForwarder::Built`] |
//! | the session's messages, as those of a program over a network | |
//!
//! The session is the source's until the forwarder reports its start to it, after
//! [`ToForwarder::Built`]. Nothing of it runs on the other node before its messages come, because the
//! commands that wait are among these. If the connection ends before, the relay drops what it has;
//! afterwards it can be resumed.

use crate::moves::{Part, Plan, State};
use serde::{Deserialize, Serialize};

/// From the forwarder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToRelay {
    /// Programs, and what the session needs.
    Plan(Plan),
    /// Objects whose contents come while the session runs.
    Ahead(State),
    /// Contents come in messages of at most that many bytes.
    Window {
        /// Bytes.
        len: u64,
    },
    /// Parts of contents, whose bytes follow this message in the same order. Their offsets are void.
    Parts(Vec<Part>),
    /// Everything else of the stopped session.
    Rest(Rest),
    /// All contents were sent.
    Complete {
        /// See [`crate::moves::ToTarget::Complete`].
        bytes: (u64, u64),
    },
}

/// A stopped session, without what stays with its program: positions in its rings, its arenas, and
/// commands that it has sent and that have not begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// The state. Ring positions are zero, and payloads of queues are void.
    pub state: State,
    /// Number of parts that the program has added to its table of events.
    pub event_parts: u32,
    /// `CLOCK_MONOTONIC` of the sender when it sent this, nanoseconds.
    pub now_ns: u64,
}

/// From the relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToForwarder {
    /// The next step may come.
    Prepared,
    /// The session cannot continue here, for these reasons.
    Refused(String),
    /// Everything is built.
    Built,
}
