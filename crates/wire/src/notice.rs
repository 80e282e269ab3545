//! What the executor says.

use crate::{Call, Event, Id};
use serde::{Deserialize, Serialize};

/// One kernel argument, as `clGetKernelArgInfo` tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelArg {
    /// `cl_kernel_arg_address_qualifier`; 0: the driver does not say.
    pub address: u32,
    /// `cl_kernel_arg_access_qualifier`
    pub access: u32,
    /// `cl_kernel_arg_type_qualifier`
    pub qualifier: u64,
    /// The type's name.
    pub type_name: String,
    /// The argument's name.
    pub name: String,
    /// Bytes that `clSetKernelArg` takes; 0: not known, or local memory.
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
    /// Whether the driver knows the arguments' information (`clGetKernelArgInfo`).
    pub arg_info: bool,
    /// `clGetKernelWorkGroupInfo` on the session's device: (parameter, bytes).
    pub work_group: Vec<(u32, Vec<u8>)>,
}

/// The answer to a [`crate::Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
    /// Raw bytes of a query.
    Bytes(Vec<u8>),
    /// How many sub-devices there are now.
    Count(u32),
    /// A program was built, compiled or linked. `code` is what the driver's call returned;
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
}

/// A completed event, as a relay or a watcher is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// Which.
    pub event: Event,
    /// `CL_COMPLETE` or an error.
    pub status: i32,
    /// Queued, submitted, started, ended: the device's nanoseconds.
    pub times_ns: [u64; 4],
}

/// How a [`Notice::Fatal`]'s reason begins where another session's work is to blame: the device
/// and its node are well, and a new session works.
pub const EXECUTOR_ENDED: &str = "the executor ended: ";

/// How it begins where this session's own work ended the executor.
pub const WORK_FAULTED: &str = "this session's work ended the executor: ";

/// One message from the executor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice<'a> {
    /// Answers [`crate::Control::Call`].
    Reply {
        /// Its number.
        call: Call,
        /// The answer.
        reply: Reply,
    },
    /// A watched event is complete (its slot says so already).
    Completed(Completion),
    /// A queue got on (mirroring sessions).
    Progress {
        /// The queue.
        queue: Id,
        /// Commands complete.
        completed: u64,
        /// The newest command that failed without an event to say so, counted from 1, and its
        /// error; (0, 0): none.
        failed: (u64, i32),
    },
    /// The driver let go of an object: its memory may be used again.
    Freed(Id),
    /// What a kernel printed.
    Printed(#[serde(borrow)] &'a [u8]),
    /// `clCreateContext`'s callback: something is wrong in the context.
    Context {
        /// The context.
        context: Id,
        /// What.
        #[serde(borrow)]
        text: &'a str,
    },
    /// The session is over: an OpenCL error for what is left, and the reason.
    Fatal {
        /// The error.
        code: i32,
        /// The reason.
        #[serde(borrow)]
        text: &'a str,
    },
}
