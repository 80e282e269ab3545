//! The first message of each side.

use crate::{DeviceDescription, Version, VERSION};
use serde::{Deserialize, Serialize};

/// The client's first message: its identity and the session that it requests. Framed by its length
/// as four little-endian bytes, at most 64 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The client's protocol version. Always the first field, so that any version can read it.
    pub version: Version,
    /// The tenant that it claims; empty: the tenant of its user or token.
    pub tenant: String,
    /// The tenant's token (TCP); empty over a Unix socket.
    pub token: String,
    /// The instance of the application, for display: program name and process.
    pub instance: String,
    /// The requested device's name; empty: only list the devices, and close.
    pub device: String,
    /// The session to resume and its key, after a dropped connection.
    pub resume: Option<(u64, [u8; 16])>,
    /// Requests the flag of this name ([`SessionFlags`]). Set by relays only.
    pub mirror: bool,
}

/// The purpose of a hello over a network. Follows the [`Hello`] in the same frame; clients of
/// releases before 1.7 leave it out ([`crate::Trailing`]), and their managers ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// A new session.
    #[default]
    Open,
    /// A session that has begun on another node continues here ([`crate::transit`]).
    Arrive,
    /// A session that has come from another node leaves for it: [`Hello::resume`] identifies the
    /// session ([`crate::transit`]).
    Leave,
    /// A further connection of the session that [`Hello::resume`] identifies, for parts of large
    /// payloads; the number is the tag that the client has offered over the session's connection.
    /// Not sent to managers of releases before 1.9.
    Subflow(u64),
}

/// Places all of a session's memory in a part of a memfd that the client provides: the segment at
/// the start, then the arenas. Follows a [`Hello`] in the same frame, which passes the memfd and,
/// if the client rings a doorbell instead of waking sleepers itself, an eventfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Start of the part in the memfd; a multiple of a page.
    pub offset: u64,
    /// Bytes of the share.
    pub len: u64,
}

/// Properties of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFlags {
    /// Completions are also sent as [`crate::Notice::Completed`] and [`crate::Notice::Progress`],
    /// for a peer that relays them.
    pub mirror: bool,
}

/// A tenant's limits. The library checks them first, for early errors; the executor enforces them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Device memory of all sessions of the tenant together, bytes.
    pub memory_bytes: u64,
    /// Arena memory of one session, bytes.
    pub arena_bytes: u64,
    /// Live objects in a session.
    pub objects: u32,
    /// Incomplete commands in a queue.
    pub queued_commands: u32,
    /// Time limit of a task, after which it is ended with its executor, milliseconds; 0: none.
    pub task_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory_bytes: u64::MAX,
            arena_bytes: 64 << 30,
            objects: 1 << 20,
            queued_commands: 1 << 20,
            task_ms: 0,
        }
    }
}

/// The manager's answer to a hello that it accepts. Over a Unix socket it passes the session
/// segment's memfd (see `baltra-ring::segment`), unless the hello only lists devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The manager's protocol version.
    pub version: Version,
    /// The session's number on this node; 0: no session was opened.
    pub session: u64,
    /// The key for resuming the session (TCP).
    pub key: [u8; 16],
    /// The tenant that was identified.
    pub tenant: String,
    /// The node's name.
    pub node: String,
    /// The requested device, or all devices that the tenant may use.
    pub devices: Vec<DeviceDescription>,
    /// The tenant's limits.
    pub limits: Limits,
    /// Properties of the session.
    pub flags: SessionFlags,
}

impl Welcome {
    /// For a peer that has had the session's welcome before.
    pub fn again(session: u64, key: [u8; 16]) -> Welcome {
        Welcome {
            version: VERSION,
            session,
            key,
            tenant: String::new(),
            node: String::new(),
            devices: Vec::new(),
            limits: Limits::default(),
            flags: SessionFlags::default(),
        }
    }
}

/// The manager's answer to a rejected hello: the reason and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The peer has an incompatible protocol version.
    #[error("the manager has version {manager} of the session protocol, the client {client}: install the same release of Baltra on both")]
    Version {
        /// The manager's version.
        manager: Version,
        /// The client's version.
        client: Version,
    },
    /// The token is missing or wrong, or the user has no tenant.
    #[error("not allowed: {0}")]
    NotAllowed(String),
    /// There is no such device, or none is available.
    #[error("no device: {0}")]
    NoDevice(String),
    /// The manager is draining, or a limit is reached.
    #[error("not now: {0}")]
    Busy(String),
    /// The hello is malformed.
    #[error("malformed hello: {0}")]
    Malformed(String),
}
