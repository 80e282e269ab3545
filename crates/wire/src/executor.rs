//! The protocol of the Device Manager and an executor: one message per packet of a socket, with
//! descriptors (`baltra-channel`).
//!
//! The executor inherits its end of the socket, loads the driver and sends [`ToManager::Ready`].
//! The manager may then assign it to a tenant ([`ToExecutor::Assign`]) and send it sessions
//! ([`ToExecutor::Session`]), which run without the manager. If the manager exits, the executor
//! continues to serve; with a path for reconnecting (`--adopt`), it sends [`ToManager::Adopt`] to
//! the next manager.
//!
//! The executor trusts the manager. The manager does not trust the executor, which runs a vendor's
//! driver and a tenant's kernels: it bounds all input and treats every text as a claim.

use crate::{DeviceDescription, Limits, SessionFlags, Share, Trailing, Version};
use serde::{Deserialize, Serialize};

/// Messages from the manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToExecutor {
    /// Assigns the executor to a tenant (`isolation = "tenant"` and `"session"`): compiled kernels
    /// are stored in `cache_dir`, which other tenants cannot read. Sent once, before the first
    /// session; the executor then restricts its sandbox to that directory. Not sent to an executor
    /// that tenants share (`"device"`).
    Assign {
        /// The tenant.
        tenant: String,
        /// An existing directory for this tenant alone; empty: no cache.
        cache_dir: String,
    },
    /// Serves a session. Four descriptors: the client's socket, the session segment, the lease
    /// page, the lease's bell (`baltra_ring::lease::create`).
    Session(SessionStart),
    /// Accepts no more sessions; exits when the last one ends.
    Drain,
    /// Ends every session and exits.
    Exit,
    /// The device holds one image at a time (`image = "exclusive"`): programs have to request
    /// theirs. Sent before the first session, and whenever the image changes.
    Image {
        /// The loaded image; `None`: unknown.
        digest: Option<String>,
    },
    /// Replies to [`ToManager::Program`].
    Programmed {
        /// Number of the request.
        call: u64,
        /// Whether the program may run.
        verdict: Verdict,
    },
    /// Ends one session, because its device is needed for another: its client receives the reason,
    /// and may open a session elsewhere.
    End {
        /// The session.
        session: u64,
        /// The reason, for operators and users.
        reason: String,
    },
    /// Has the driver load an image, for the operator; the executor answers with
    /// [`ToManager::LoadEnded`]. One descriptor: a file of the image's bytes.
    Load {
        /// Repeated by the answer.
        call: u64,
    },
    /// Like [`ToExecutor::Session`], with the client's memory in place of the segment and, if the
    /// client has one, its doorbell as a fifth descriptor.
    Sharing(SessionStart, Share),
    /// Answers [`ToManager::Fetch`]. With one descriptor, unless it failed: a file of the image's
    /// bytes.
    Fetched {
        /// Number of the request.
        call: u64,
        /// The reason for which there is no image, for operators and users.
        error: String,
    },
    /// Moves a session to the executor at the other end of a socket ([`crate::moves`]), which is the
    /// descriptor. The answer is [`ToManager::MoveFailed`], or comes from the other executor.
    MoveOut {
        /// The session.
        session: u64,
        /// Maximum time of commands in flight, milliseconds.
        wait_ms: u32,
        /// The largest allocation of the other device, bytes.
        allocation_bytes_max: u64,
        /// The session is suspended: a keeper at the other end writes it to a disk, which takes
        /// longer than a move.
        is_to_disk: bool,
    },
    /// Takes a session over from the executor at the other end of a socket. Three descriptors: the
    /// socket, the lease page, the lease's bell. To a keeper, which stores it: the socket, and a
    /// file. Answered with [`ToManager::MoveBuilt`].
    MoveIn(SessionStart),
    /// The session that was built starts here, unless its source has changed its mind.
    MoveGo {
        /// The session.
        session: u64,
    },
    /// The session that was built does not start here.
    MoveDrop {
        /// The session.
        session: u64,
    },
    /// Asks for [`ToManager::Described`].
    Describe {
        /// Repeated by the answer.
        call: u64,
    },
    /// To a forwarder, before [`ToExecutor::MoveIn`] (one descriptor: the socket of the source): the
    /// device of another node where the session is to continue. Answered with
    /// [`ToManager::Reached`].
    Reach {
        /// The session.
        session: u64,
        /// The destination.
        to: Remote,
    },
    /// The executor shares the device's memory with others (`memory_overcommit`). One descriptor:
    /// the budget's page (`baltra_ring::budget`). Sent before the first session.
    Budget {
        /// The executor's slot of the page.
        slot: u32,
    },
    /// Like [`ToExecutor::MoveOut`], to a relay that sends the session to another node, and is
    /// asked before the session stops ([`crate::moves::ToTarget::Stopping`]).
    Leave {
        /// The session.
        session: u64,
        /// Maximum time of commands in flight, milliseconds.
        wait_ms: u32,
    },
    /// Asks for [`ToManager::FactsRead`].
    AskFacts {
        /// Repeated by the answer.
        call: u64,
        /// The session.
        session: u64,
    },
}

/// A device of another node.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// The manager's address: `tcp://HOST:PORT` or `tls://HOST:PORT`.
    pub endpoint: String,
    /// The device's name there.
    pub device: String,
    /// The token of a tenant there.
    pub token: String,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is a secret.
        write!(f, "{}/{}", self.endpoint, self.device)
    }
}

/// The first message to a manager that did not start the executor: [`ToManager::Adopt`] and, from
/// version 1.6 on, the executor's protocol version. An earlier manager ignores the version.
pub type Adoption = (ToManager, Trailing<Version>);

/// A session, as its executor sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFacts {
    /// The session.
    pub session: u64,
    /// Bytes of its objects on the device.
    pub resident_bytes: u64,
    /// Bytes of its objects in host memory only.
    pub swapped_bytes: u64,
    /// Bytes of its objects on the disk: it is suspended.
    pub stored_bytes: u64,
    /// Number of its command queues.
    pub queues: u32,
    /// The reason for which it cannot move; empty: it can.
    pub obstacle: String,
}

/// The result of a program's request for an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The device holds the image.
    Loaded,
    /// The node does not have its bytes: repeat the request with them.
    Lacking,
    /// The device keeps another image; the reason, for operators and users.
    Refused(String),
}

/// A session to serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStart {
    /// Number of the session on this node.
    pub session: u64,
    /// The tenant.
    pub tenant: String,
    /// The tenant's limits.
    pub limits: Limits,
    /// Properties of the session.
    pub flags: SessionFlags,
    /// The id of the lease: sessions with equal `lease` share one lease page (of one tenant), and
    /// the executor keeps the descriptors that arrived with the first of them.
    pub lease: u64,
    /// The client's description of itself, kept for the next manager.
    pub instance: String,
}

/// Messages from the executor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToManager {
    /// The driver is loaded, and sessions can be sent.
    Ready {
        /// The executor's process.
        pid: u32,
        /// The device's description from the driver.
        device: Box<DeviceDescription>,
    },
    /// A session has ended and all its resources are freed.
    SessionEnded {
        /// The session.
        session: u64,
        /// The reason, for operators and users.
        reason: String,
    },
    /// The driver cannot be used; the executor exits.
    Failed {
        /// The failure and its reason, for operators.
        text: String,
    },
    /// Sent first to a manager that did not start this executor. Passes two descriptors for each
    /// lease, page and doorbell, in order.
    Adopt {
        /// The executor's process.
        pid: u32,
        /// The device's description from the driver.
        device: Box<DeviceDescription>,
        /// The tenant to which it was assigned; empty: none, or a shared executor.
        tenant: String,
        /// The open sessions; their clients' descriptions follow, [`ToManager::Named`].
        sessions: Vec<SessionStart>,
        /// Leases of the sessions: id and tenant.
        leases: Vec<(u64, String)>,
    },
    /// A session has a program whose image the device must hold. Each session has at most one such
    /// request at a time. With one descriptor: a sealed memory file of the image's bytes.
    Program {
        /// Repeated in the reply.
        call: u64,
        /// The session.
        session: u64,
        /// The image: sha256, lower-case hexadecimal.
        digest: String,
        /// Kernels of the image, if they are known.
        kernels: Vec<String>,
    },
    /// A session has released its last program of an image.
    Unused {
        /// The session.
        session: u64,
        /// The image.
        digest: String,
    },
    /// The driver refused an image after the device was to hold it for a session.
    NotLoaded {
        /// The session.
        session: u64,
        /// The image.
        digest: String,
        /// The driver's error, for operators.
        reason: String,
    },
    /// Answers [`ToExecutor::Load`].
    LoadEnded {
        /// Number of the request.
        call: u64,
        /// The driver's error, for operators; empty: the driver has loaded the image.
        error: String,
    },
    /// Sent after [`ToManager::Adopt`], in a packet for each session, because all of them may not
    /// fit into one: the description of a session's client.
    Named {
        /// The session.
        session: u64,
        /// The description in its hello.
        instance: String,
    },
    /// Sent after [`ToManager::Adopt`]: a session has programs of the image that the device holds.
    InUse {
        /// The session.
        session: u64,
        /// The image.
        digest: String,
    },
    /// Commands that belong to traces have ended. Sent only to the manager that started this
    /// executor with `--traces`.
    Traced {
        /// The tasks.
        tasks: Vec<TracedTask>,
        /// Number of tasks that were dropped.
        dropped: u64,
    },
    /// This executor cannot continue: it accepts no more sessions, ends those that it has and
    /// exits.
    Failing {
        /// The cause.
        cause: Cause,
        /// The session whose work caused it.
        session: u64,
        /// Description of the event, for operators.
        reason: String,
    },
    /// A session requests the image of an accelerator in the node's store.
    Fetch {
        /// Repeated in the reply.
        call: u64,
        /// The session.
        session: u64,
        /// The accelerator's name or digest.
        accelerator: String,
    },
    /// The images that a board's regions hold, as read from the board; empty regions are left out.
    /// Sent when they change, and when images were loaded, to the manager that started this executor.
    Regions {
        /// The images.
        held: Vec<RegionImage>,
        /// Images that this executor has loaded since its last report: the checksum and the digest
        /// (sha256, lower-case hexadecimal) of each.
        loaded: Vec<(u32, String)>,
    },
    /// Everything of a session that comes from another executor is built; it has not started.
    MoveBuilt {
        /// The session.
        session: u64,
    },
    /// A session has started here, and its former executor forgets it.
    MoveStarted {
        /// The session.
        session: u64,
        /// Time during which no command of the session ran, microseconds.
        stopped_us: u64,
        /// Bytes of its objects that were copied, and those of them that were copied while it was
        /// stopped.
        bytes: (u64, u64),
        /// Objects that were made or written here while it was stopped.
        stopped_objects: u64,
    },
    /// A session has not moved. Of the executor that has the session: it continues there.
    MoveFailed {
        /// The session.
        session: u64,
        /// The reason, for operators.
        reason: String,
    },
    /// Answers [`ToExecutor::Describe`]; several packets if there are many sessions.
    Described {
        /// Number of the request.
        call: u64,
        /// The sessions.
        sessions: Vec<SessionFacts>,
        /// Whether this is the last packet.
        is_last: bool,
    },
    /// The driver has loaded the image that the device was to hold for a session. Sent to the
    /// manager that started this executor.
    Loaded {
        /// The session.
        session: u64,
        /// The image.
        digest: String,
    },
    /// Sent first by the keeper of a suspended session to a manager that did not start it.
    AdoptKeeper {
        /// The device that the session was on.
        device: String,
        /// The session.
        session: SessionStart,
    },
    /// Answers [`ToExecutor::Reach`].
    Reached {
        /// The session.
        session: u64,
        /// The description of the other node's device, or the reason for which the session cannot go
        /// there.
        device: Result<Box<DeviceDescription>, String>,
    },
    /// Sent first by the forwarder of a session on another node to a manager that did not start it.
    AdoptForwarder {
        /// The device that the session was on.
        device: String,
        /// The session.
        session: SessionStart,
        /// The device of another node where it is, for display.
        remote: String,
    },
    /// Answers [`ToExecutor::AskFacts`].
    FactsRead {
        /// Number of the request.
        call: u64,
        /// The facts that the session's program has read ([`crate::facts`]); `None`: it has not
        /// reported them.
        facts: Option<u64>,
    },
}

/// The image that a region of a board holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionImage {
    /// The region.
    pub region: u32,
    /// The checksum of the image's header.
    pub checksum: u32,
    /// A function of the board's own table that has this image; empty: none.
    pub function: String,
}

/// Reasons for which an executor cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cause {
    /// A command ran past its deadline: only the process's end stops it.
    Overdue,
    /// The driver's context remains in error until the process ends.
    ContextLost,
}

impl Cause {
    /// The name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Overdue => "overdue",
            Cause::ContextLost => "context_lost",
        }
    }
}

/// Commands of one session that belong to a trace, from the first one's arrival to the last one's
/// end. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedTask {
    /// The session.
    pub session: u64,
    /// `trace-id`
    pub trace: [u8; 16],
    /// `parent-id`
    pub parent: [u8; 8],
    /// Arrival of the first command.
    pub came_ns: u64,
    /// Time at which the session got the device.
    pub granted_ns: u64,
    /// End of the last command.
    pub ended_ns: u64,
}
