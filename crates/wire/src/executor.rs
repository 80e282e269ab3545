//! What the Device Manager and an executor say to each other: one message per packet of a
//! socket, descriptors beside it (`baltra-channel`).
//!
//! The executor starts with its end of the socket inherited, loads the driver and says
//! [`ToManager::Ready`]. The manager then may hand it to a tenant ([`ToExecutor::Assign`]) and
//! give it sessions ([`ToExecutor::Session`]); both carry on by themselves afterwards. When the
//! manager is gone the executor goes on serving; with a path to come back to
//! (`--adopt`) it calls on the next manager with [`ToManager::Adopt`].
//!
//! The manager is trusted by the executor. The executor is not trusted by the manager: it runs
//! a vendor's driver and a tenant's kernels. The manager bounds what it reads and takes every text
//! in here for a claim.

use crate::{DeviceDescription, Limits, SessionFlags, Share};
use serde::{Deserialize, Serialize};

/// From the manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToExecutor {
    /// Assigns the executor to a tenant (`isolation = "tenant"` and `"session"`): compiled kernels
    /// are kept in `cache_dir`, which other tenants cannot read. Sent once, before the first
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
        /// The image that it holds; `None`: not known.
        digest: Option<String>,
    },
    /// Answers [`ToManager::Program`].
    Programmed {
        /// Its number.
        call: u64,
        /// Whether the program may run.
        verdict: Verdict,
    },
    /// Ends one session, because its device is needed otherwise: its client receives the reason,
    /// and may open a session elsewhere.
    End {
        /// The session.
        session: u64,
        /// The reason, for operators and users.
        reason: String,
    },
    /// As [`ToExecutor::Session`], with the client's memory in place of the segment and, if the
    /// client has one, its doorbell as a fifth descriptor.
    Sharing(SessionStart, Share),
}

/// The result of a program's request for an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The device holds it.
    Loaded,
    /// The node does not have its bytes: repeat the request with them.
    Lacking,
    /// The device keeps another image; the reason, for operators and users.
    Refused(String),
}

/// A session to serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStart {
    /// Its number on this node.
    pub session: u64,
    /// The tenant.
    pub tenant: String,
    /// The tenant's limits.
    pub limits: Limits,
    /// Properties of the session.
    pub flags: SessionFlags,
    /// Names the lease: sessions of equal `lease` share one lease page (of one tenant), and the
    /// executor keeps the descriptors that came with the first of them.
    pub lease: u64,
    /// The client's description of itself, kept for the next manager.
    pub instance: String,
}

/// From the executor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToManager {
    /// The driver is loaded, sessions may come.
    Ready {
        /// The executor's process.
        pid: u32,
        /// The device as the driver describes it.
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
        /// The device as the driver describes it.
        device: Box<DeviceDescription>,
        /// The tenant it was assigned to; empty: none, or a shared executor.
        tenant: String,
        /// The open sessions; their clients' descriptions follow, [`ToManager::Named`].
        sessions: Vec<SessionStart>,
        /// Their leases: name and tenant.
        leases: Vec<(u64, String)>,
    },
    /// A session has a program whose image the device has to hold. Each session has at most one
    /// such request at a time. With one descriptor, a sealed memory file of the image's bytes.
    Program {
        /// Repeated by the answer.
        call: u64,
        /// The session.
        session: u64,
        /// The image: sha256, lower-case hexadecimal.
        digest: String,
        /// Its kernels, where they are known.
        kernels: Vec<String>,
    },
    /// A session has released its last program of an image.
    Unused {
        /// The session.
        session: u64,
        /// The image.
        digest: String,
    },
    /// Sent after [`ToManager::Adopt`], in a packet for each session, because all of them may not
    /// fit into one: the description of a session's client.
    Named {
        /// The session.
        session: u64,
        /// As its hello had it.
        instance: String,
    },
    /// Sent after [`ToManager::Adopt`]: a session has programs of the image that the device holds.
    InUse {
        /// The session.
        session: u64,
        /// The image.
        digest: String,
    },
    /// Commands that belong to traces are over. Said to who has started this executor with
    /// `--traces` alone.
    Traced {
        /// They are.
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
}

/// Reasons for which an executor cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cause {
    /// A command ran past its deadline: only the process's end stops it.
    Overdue,
    /// The driver's context is in error for as long as the process lives.
    ContextLost,
}

impl Cause {
    /// As metrics and logs name it.
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
    /// They came.
    pub came_ns: u64,
    /// The session held the device.
    pub granted_ns: u64,
    /// They were over.
    pub ended_ns: u64,
}
