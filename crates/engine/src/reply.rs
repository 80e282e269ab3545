//! The outcome of a call.

use bytes::Bytes;
use std::time::{Duration, Instant};

/// A call's W3C trace context, which travels with it to logs and to nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// `trace-id`; zeros: none.
    pub id: [u8; 16],
    /// `parent-id`: the ID of the gateway's own span.
    pub span: [u8; 8],
    /// The ID of the caller's span; zeros if it sent none.
    pub parent: [u8; 8],
    /// The `sampled` flag.
    pub sampled: bool,
    /// The ID of the span of the request to a device or a container; `None` if the trace is not
    /// exported.
    pub asked: Option<[u8; 8]>,
}

/// Where a call's time went, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From the call to the device's queue: bounded queues, batching, copies in.
    pub queue_ns: u64,
    /// Time spent on loading the function; 0 if it was loaded.
    pub cold_ns: u64,
    /// From the device's queue to the last output's end.
    pub device_ns: u64,
    /// When it entered the device's queue, if it did.
    pub pushed: Option<Instant>,
}

/// A successful call.
#[derive(Clone, Debug)]
pub struct Reply {
    /// In the manifest's order.
    pub outputs: Vec<Bytes>,
    /// Which kind of implementation ran: `opencl` or `native`.
    pub implementation: &'static str,
    /// The node that it ran on.
    pub node: String,
    /// The device that it ran on; empty for native code.
    pub device: String,
    /// Requests that ran together with this one, itself included.
    pub batch: u32,
    /// Where the time went.
    pub timing: Timing,
}

/// A call that was not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The queues are full: nothing was started.
    #[error("too many calls are waiting; try again in {} s", retry_after.as_secs().max(1))]
    Overload {
        /// When it may work.
        retry_after: Duration,
    },
    /// The deadline came first. The function may have run.
    #[error("the function did not respond in time")]
    Deadline,
    /// The function's last calls ran past their deadlines on a device and had to be ended there.
    #[error("the function's calls ran past their deadlines: calls are refused for {} s more", retry_after.as_secs().max(1))]
    HeldOff {
        /// When it may work.
        retry_after: Duration,
    },
    /// Nothing can run it now: no device that suits, no node that answers.
    #[error("{0}")]
    Unavailable(String),
    /// The function failed: the kernel's or the library's own error.
    #[error("{0}")]
    Failed(String),
}
