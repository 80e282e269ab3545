//! The protocol of two executors between which a session moves: one message per packet of a socket
//! pair that the manager has made.
//!
//! | source | target |
//! |---|---|
//! | [`ToTarget::Plan`]: programs, what the session needs | builds the programs: [`ToSource::Prepared`] |
//! | [`ToTarget::Window`]: memory through which contents come | maps it |
//! | [`ToTarget::State`] without a time of the stop: objects with contents | makes them: [`ToSource::Prepared`] |
//! | [`ToTarget::Parts`]: their contents, while the session runs | writes them: [`ToSource::Taken`] for each message |
//! | stops the session: [`ToTarget::Arenas`], [`ToTarget::Pending`], [`ToTarget::State`] | makes everything else |
//! | [`ToTarget::Parts`]: what was written since, [`ToTarget::Complete`] | writes it, waits for the manager's [`crate::executor::ToExecutor::MoveGo`] |
//! | forgets the session | [`ToSource::Started`], then starts it |
//!
//! [`ToSource::Started`] decides: the source has it in its socket, or continues the session. If
//! either end closes the socket before, the target drops what it has built.
//!
//! Neither trusts the other, which runs another tenant's kernels: records are those of a client
//! and are checked as such.

use crate::{Event, Id, ImageFormat};
use serde::{Deserialize, Deserializer, Serialize};

/// From the executor that has the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToTarget {
    /// A [`Plan`] of `len` bytes in the first descriptor; the client's socket and the session's
    /// segment are the others.
    Plan {
        /// Bytes.
        len: u64,
    },
    /// Arenas, with one descriptor each.
    Arenas(Vec<ArenaState>),
    /// Descriptors of arenas that the client has sent and not announced yet.
    Pending,
    /// Memory through which the contents of objects come ([`ToTarget::Parts`]), in the descriptor;
    /// replaces an earlier one.
    Window {
        /// Bytes.
        len: u64,
    },
    /// A [`State`] of `len` bytes in the descriptor.
    State {
        /// Bytes.
        len: u64,
    },
    /// Contents that are in the window, until they are taken ([`ToSource::Taken`]).
    Parts(Vec<Part>),
    /// The last message: all contents were sent.
    Complete {
        /// Bytes of contents that were copied, and those of them that were copied while the session
        /// is stopped.
        bytes: (u64, u64),
    },
    /// The session is about to stop; answered with [`ToSource::Prepared`]. Sent to a relay only,
    /// whose program's messages stop before.
    Stopping,
}

/// A part of the contents of a memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The object.
    pub id: Id,
    /// Where it begins in the object's contents: a multiple of a slice, or of a row, of an image.
    pub start: u64,
    /// Bytes; as for `start`.
    pub len: u64,
    /// Offset of the part in the window.
    pub offset: u64,
}

/// Parts in one message.
pub const PARTS_MAX: usize = 512;

/// From the executor that gets the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSource {
    /// The programs of the plan are built, and the device has what the session needs.
    Prepared,
    /// The session cannot move, for these reasons.
    Refused(String),
    /// The session runs at the target.
    Started,
    /// The parts of one message are written; the window has room for others there.
    Taken,
}

/// Arenas or descriptors in one packet.
pub const FDS_MAX: usize = 64;

/// An arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArenaState {
    /// Id of the arena.
    pub arena: u32,
    /// Offset of the arena in the descriptor's file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A record of the control channel that made an object, or changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Number of the step in the session, in the order of the records.
    pub number: u64,
    /// The object.
    pub id: Id,
    /// The record.
    pub record: Vec<u8>,
    /// Whether the driver carried it out.
    pub succeeded: bool,
}

/// A kernel that the target must be able to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelNeed {
    /// Program of the kernel.
    pub program: Id,
    /// Name of the kernel.
    pub name: String,
    /// Work-items of the largest group that the program has launched.
    pub group: u64,
    /// The largest side of such a group in each dimension.
    pub sides: [u64; 3],
    /// The largest sum of the kernel's arguments in local memory, bytes.
    pub local_bytes: u64,
}

/// The objects that can be prepared while the session runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Contexts and programs.
    pub steps: Vec<Step>,
    /// Kernels.
    pub kernels: Vec<KernelNeed>,
    /// Formats and `cl_mem_object_type` of images in use.
    pub formats: Vec<(ImageFormat, u32)>,
    /// The client's view of [`crate::DeviceDescription::host_memory`]: buffers are in its memory.
    pub host_buffers: bool,
    /// Whether its notices are mirrored ([`crate::SessionFlags::mirror`]).
    pub mirror: bool,
    /// The facts that its program has read ([`crate::facts`]); `None`: it has not reported them, or
    /// the source is of a version before 1.9.
    #[serde(deserialize_with = "trailing")]
    pub facts: Option<u64>,
}

/// The last field of a message, which earlier versions leave out.
fn trailing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::deserialize(deserializer).unwrap_or_default())
}

/// Where one end of a ring is: bytes, messages, and the peer's bytes when last read.
pub type RingPosition = (u64, u64, u64);

/// A command that an out-of-order queue has taken and not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCommand {
    /// Event of the command, or 0.
    pub event: Event,
    /// Its record while it waits; `None`: it has ended, and earlier ones have not.
    pub record: Option<Vec<u8>>,
}

/// A command queue that is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueState {
    /// Id of the queue.
    pub id: Id,
    /// The reading end of its ring.
    pub position: RingPosition,
    /// Number of the first commands that are complete.
    pub completed: u64,
    /// The client asks for a thread when the queue needs one.
    pub parks: bool,
    /// The client has released it; whether it wants a notice of its end.
    pub released: Option<bool>,
    /// In order: a command that it has taken and not begun.
    pub held: Option<Vec<u8>>,
    /// Out of order: the commands after the first `completed`.
    pub open: Vec<OpenCommand>,
}

/// An object whose release waits until queues have submitted a number of commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// The object.
    pub id: Id,
    /// Whether the client wants a notice.
    pub notify: bool,
    /// Queues and numbers of commands.
    pub after: Vec<(Id, u64)>,
}

/// A stopped session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// When it stopped, `CLOCK_MONOTONIC` nanoseconds.
    pub stopped_ns: u64,
    /// The reading end of the control channel, and messages carried out.
    pub control: (RingPosition, u64),
    /// The writing end of the notices, and the number of notices of printed text.
    pub notices: (RingPosition, u64),
    /// Notices that were not sent.
    pub unsent: Vec<Vec<u8>>,
    /// Records that added slots to the event table.
    pub slots: Vec<Vec<u8>>,
    /// All records that are needed for its objects, in order, but for those that were sent before.
    pub steps: Vec<Step>,
    /// Ids that name objects; other objects in `steps` are parts of these.
    pub live: Vec<Id>,
    /// Ids of objects that could not be made, and the errors.
    pub failed: Vec<(Id, i32)>,
    /// Released objects whose end the client waits for.
    pub owed: Vec<Id>,
    /// The queues.
    pub queues: Vec<QueueState>,
    /// Events that have ended: slot, generation, status.
    pub events: Vec<(u32, u32, i32)>,
    /// Events of whose end the client wants a notice.
    pub watched: Vec<Event>,
    /// Releases that wait.
    pub releases: Vec<Release>,
    /// The clock of the client's event times, as nanoseconds to add to `CLOCK_MONOTONIC`.
    pub clock_offset_ns: i64,
}
