//! Messages of the executor to the client.

use crate::{Call, Event, Id};
use serde::{Deserialize, Serialize};

/// One kernel argument, as `clGetKernelArgInfo` describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelArg {
    /// `cl_kernel_arg_address_qualifier`; 0: not reported by the driver.
    pub address: u32,
    /// `cl_kernel_arg_access_qualifier`
    pub access: u32,
    /// `cl_kernel_arg_type_qualifier`
    pub qualifier: u64,
    /// The type's name.
    pub type_name: String,
    /// The argument's name.
    pub name: String,
    /// Bytes that `clSetKernelArg` takes; 0: unknown, or local memory.
    pub size: u32,
}

/// A kernel of a built program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelDescription {
    /// The function's name.
    pub name: String,
    /// `CL_KERNEL_ATTRIBUTES`
    pub attributes: String,
    /// The arguments, in order.
    pub args: Vec<KernelArg>,
    /// Whether the driver reports the arguments' information (`clGetKernelArgInfo`).
    pub arg_info: bool,
    /// `clGetKernelWorkGroupInfo` on the session's device: (parameter, bytes).
    pub work_group: Vec<(u32, Vec<u8>)>,
}

/// The reply to a [`crate::Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Success.
    Done,
    /// Raw bytes of a query.
    Bytes(Vec<u8>),
    /// The number of sub-devices created.
    Count(u32),
    /// A program was built, compiled or linked. `code` is the return code of the driver; there is
    /// one status and log for each device.
    Built {
        /// The driver's return code.
        code: i32,
        /// For each device of the program: (sub-device or 0, `cl_build_status`, options, log,
        /// `cl_program_binary_type`).
        devices: Vec<(Id, i32, String, Vec<u8>, u32)>,
        /// The program's kernels; empty unless it is an executable.
        kernels: Vec<KernelDescription>,
    },
    /// One status for each binary.
    Binaries(Vec<i32>),
    /// An OpenCL error.
    Error(i32),
    /// The node lacks a binary of [`crate::Request::ProgramDigest`]: nothing was created.
    Lacking,
}

/// A completed event, as a relay or a watcher receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// The event.
    pub event: Event,
    /// `CL_COMPLETE` or an error.
    pub status: i32,
    /// Times: queued, submitted, started, ended, in nanoseconds of the device's clock.
    pub times_ns: [u64; 4],
}

/// Prefix of a [`Notice::Fatal`]'s reason if another session's work caused the failure: device and
/// node work, and a new session may be opened.
pub const EXECUTOR_ENDED: &str = "the executor ended: ";

/// Begin of the reason of a preemptible session that ended with the turn of its device's image.
pub const TURN_ENDED: &str = "the turn has ended: ";

/// End of the description of a session ([`crate::Hello::instance`]) that the manager may end when
/// another image needs its device: the program then opens another session.
pub const PREEMPTIBLE: &str = " (preemptible)";

/// Begin of the mark `" (turns N)"` before [`PREEMPTIBLE`], see [`with_turns`].
const TURNS: &str = " (turns ";

/// A session's description with the number of turns that its work needs at once, because the ends
/// of earlier turns have interrupted it.
pub fn with_turns(description: &str, turns: u32) -> String {
    if turns > 1 {
        format!("{description}{TURNS}{turns})")
    } else {
        description.to_owned()
    }
}

/// Removes the mark of [`with_turns`]; returns the number of turns.
pub fn without_turns(description: &str) -> (&str, u32) {
    let marked = description.strip_suffix(')');
    let parts = marked.and_then(|text| text.rsplit_once(TURNS));
    match parts.and_then(|(rest, turns)| Some((rest, turns.parse().ok()?))) {
        Some((rest, turns)) => (rest, turns),
        None => (description, 1),
    }
}

/// Prefix of the reason if this session's own work ended the executor.
pub const WORK_FAULTED: &str = "this session's work ended the executor: ";

/// A message from the executor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice<'a> {
    /// Replies to [`crate::Control::Call`].
    Reply {
        /// The call's number.
        call: Call,
        /// The reply.
        reply: Reply,
    },
    /// A watched event is complete; its slot has already been written.
    Completed(Completion),
    /// Progress of a queue (mirroring sessions).
    Progress {
        /// The queue.
        queue: Id,
        /// Number of complete commands.
        completed: u64,
        /// The newest command that failed without an event, counted from 1, and its error; (0, 0):
        /// none.
        failed: (u64, i32),
    },
    /// The driver has released an object: its memory may be reused.
    Freed(Id),
    /// Output printed by a kernel.
    Printed(#[serde(borrow)] &'a [u8]),
    /// The callback of `clCreateContext`: an error in the context.
    Context {
        /// The context.
        context: Id,
        /// The error.
        #[serde(borrow)]
        text: &'a str,
    },
    /// The session has ended: the OpenCL error for outstanding calls, and the reason.
    Fatal {
        /// The error.
        code: i32,
        /// The reason.
        #[serde(borrow)]
        text: &'a str,
    },
}
