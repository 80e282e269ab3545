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
    /// The executor is this tenant's from now on (`isolation = "tenant"` and `"session"`):
    /// compiled kernels are kept in `cache_dir`, which nobody else can read. Sent once, before
    /// the first session; the executor closes its sandbox over it. Not sent to an executor that
    /// tenants share (`"device"`).
    Assign {
        /// The tenant.
        tenant: String,
        /// An existing directory of the tenant's own; empty: keep nothing.
        cache_dir: String,
    },
    /// Serves a session. Four descriptors: the client's socket, the session segment, the lease
    /// page, the lease's bell (`baltra_ring::lease::create`).
    Session(SessionStart),
    /// Takes no more sessions; exits when the last one ends.
    Drain,
    /// Ends every session and exits.
    Exit,
    /// The device holds one image at a time (`image = "exclusive"`): programs ask for theirs.
    /// Said before the first session, and whenever the image changes.
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
    /// Ends one session, whose device is wanted for something else: its client is told why, and
    /// may open another one elsewhere.
    End {
        /// Which.
        session: u64,
        /// Why, for people to read.
        reason: String,
    },
    /// As [`ToExecutor::Session`], with the client's memory in the segment's place, and, if it has one,
    /// the bell that it rings as a fifth descriptor.
    Sharing(SessionStart, Share),
}

/// What comes of a program's image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The device holds it.
    Loaded,
    /// The node does not have its bytes: ask again, with them.
    Lacking,
    /// The device holds another and keeps it; why, for people to read.
    Refused(String),
}

/// A session to serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStart {
    /// Its number on this node.
    pub session: u64,
    /// Whose it is.
    pub tenant: String,
    /// What the tenant may have.
    pub limits: Limits,
    /// How the session works.
    pub flags: SessionFlags,
    /// Names the lease: sessions of equal `lease` share one lease page (of one tenant), and the
    /// executor keeps the descriptors that came with the first of them.
    pub lease: u64,
    /// What its client says it is: kept for the next manager.
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
    /// A session is over and everything of it is freed.
    SessionEnded {
        /// Which.
        session: u64,
        /// Why, for people to read.
        reason: String,
    },
    /// The driver cannot be used; the executor exits.
    Failed {
        /// What and why, for people to read.
        text: String,
    },
    /// Sent first to a manager that this executor was not started by. Two descriptors for each
    /// lease come with it, page and bell, in order.
    Adopt {
        /// The executor's process.
        pid: u32,
        /// The device as the driver describes it.
        device: Box<DeviceDescription>,
        /// The tenant it was assigned to; empty: none, or a shared executor.
        tenant: String,
        /// The sessions that live; what their clients say they are follows, [`ToManager::Named`].
        sessions: Vec<SessionStart>,
        /// Their leases: name and tenant.
        leases: Vec<(u64, String)>,
    },
    /// A session has a program whose image the device is to hold. Each session asks for one at a
    /// time. With one descriptor, a sealed memory file, come the image's bytes.
    Program {
        /// Repeated by the answer.
        call: u64,
        /// Which session.
        session: u64,
        /// The image: sha256, lower-case hexadecimal.
        digest: String,
        /// Its kernels, where they are known.
        kernels: Vec<String>,
    },
    /// A session has released its last program of an image.
    Unused {
        /// Which session.
        session: u64,
        /// The image.
        digest: String,
    },
    /// Said after [`ToManager::Adopt`], in a packet for each session, since all of them may be too
    /// long for one: what a session's client says it is.
    Named {
        /// Which session.
        session: u64,
        /// As its hello had it.
        instance: String,
    },
    /// Said after [`ToManager::Adopt`]: a session has programs of the image that the device
    /// holds.
    InUse {
        /// Which session.
        session: u64,
        /// The image.
        digest: String,
    },
    /// Commands that belong to traces are over. Said to who has started this executor with
    /// `--traces` alone.
    Traced {
        /// They are.
        tasks: Vec<TracedTask>,
        /// So many more were left out.
        dropped: u64,
    },
    /// This executor cannot go on: it takes no more sessions, ends those that it has and exits.
    Failing {
        /// Why.
        cause: Cause,
        /// Whose work caused it.
        session: u64,
        /// What happened, for people to read.
        reason: String,
    },
}

/// Why an executor cannot go on.
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

/// Commands of one session that belong to a trace, from the first one's coming to the last one's end. Times are
/// `CLOCK_MONOTONIC`'s nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedTask {
    /// Which session.
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
