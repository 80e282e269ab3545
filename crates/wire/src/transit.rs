//! The protocol by which a session moves to another node, on the connection that then carries its
//! messages: between its forwarder on the node where its program runs and a relay on the other node,
//! after hello ([`crate::Purpose::Arrive`]) and welcome. Each message is preceded by its length as
//! four little-endian bytes.
//!
//! | forwarder, the source | relay, the target |
//! |---|---|
//! | [`FromSource::Plan`] | [`FromTarget::Prepared`] |
//! | [`FromSource::Ahead`]: objects with contents | [`FromTarget::Prepared`] |
//! | [`FromSource::Parts`], followed by their bytes | |
//! | [`FromSource::Rest`], once the session is stopped, further [`FromSource::Parts`], [`FromSource::Complete`] | [`FromTarget::Built`] |
//! | the session's messages, as those of a program over a network | |
//!
//! The session is the source's until the forwarder reports its start to it, after
//! [`FromTarget::Built`]. Nothing of it runs on the other node before its messages come, because the
//! commands that wait are among these. If the connection ends before, the relay drops what it has;
//! afterwards it can be resumed.
//!
//! A session leaves over a further connection of the two ([`crate::Purpose::Leave`]), while the first
//! one carries its messages. The relay is the source then, and the forwarder the target:
//!
//! | relay, the source | forwarder, the target |
//! |---|---|
//! | [`FromSource::Plan`], [`FromSource::Ahead`], [`FromSource::Parts`] as above | [`FromTarget::Prepared`] |
//! | [`FromSource::Stopping`] | takes no more messages of the program: [`FromTarget::Stopped`] once no command is outstanding |
//! | [`FromSource::Frames`], [`FromSource::Rest`], further [`FromSource::Parts`], [`FromSource::Complete`] | [`FromTarget::Built`] once the session has started |
//!
//! The forwarder decides: if the connection ends before, the session continues where it is.

use crate::moves::{Part, Plan, State};
use serde::{Deserialize, Serialize};

/// From the end that has the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromSource {
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
    /// Everything but what is written from now on was sent, and the session is about to stop.
    Stopping,
    /// Number of frames that the relay has sent on the session's connection: no further ones come.
    Frames(u64),
    /// The session stays, for these reasons.
    Stays(String),
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

/// From the end that gets the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromTarget {
    /// The next step may come.
    Prepared,
    /// The session cannot continue here, for these reasons.
    Refused(String),
    /// Everything is built.
    Built,
    /// No command of the session is outstanding.
    Stopped {
        /// Number of frames that the forwarder has sent on the session's connection.
        frames: u64,
    },
}
