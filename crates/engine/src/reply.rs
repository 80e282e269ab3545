//! The result of a call.

use bytes::Bytes;
use std::time::{Duration, Instant};

/// A call's W3C trace context, which travels with it to logs and to nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The `trace-id`; zeros: none.
    pub id: [u8; 16],
    /// The `parent-id`: the ID of the gateway's own span.
    pub span: [u8; 8],
    /// The ID of the caller's span; zeros if it sent none.
    pub parent: [u8; 8],
    /// The `sampled` flag.
    pub sampled: bool,
    /// The ID of the span of the request to a device or a container; `None` if the trace is not
    /// exported.
    pub asked: Option<[u8; 8]>,
}

/// Durations of a call's phases, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From the call's arrival to the device's queue: bounded queues, batching, input copies.
    pub queue_ns: u64,
    /// Time spent on loading the function; 0 if it was loaded.
    pub cold_ns: u64,
    /// From the device's queue to the end of the last output.
    pub device_ns: u64,
    /// Time at which it entered the device's queue; `None` if it did not.
    pub pushed: Option<Instant>,
}

/// A successful call.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Outputs in the manifest's order.
    pub outputs: Vec<Bytes>,
    /// The kind of implementation that ran: `opencl` or `native`.
    pub implementation: &'static str,
    /// The node that it ran on.
    pub node: String,
    /// The device that it ran on; empty for native code.
    pub device: String,
    /// Number of requests that ran together, including this one.
    pub batch: u32,
    /// Durations of the phases.
    pub timing: Timing,
}

/// Why a call was not started under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shed {
    /// The function's queue, or the tenant's part of it, is full.
    #[error("too many calls are waiting")]
    Queue,
    /// At the measured rate, its turn comes too late for its deadline.
    #[error("the waiting calls leave no time for this one before its deadline")]
    Deadline,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The call was not started: the queues are full, or it would end after its deadline.
    #[error("{reason}; try again in {} s", retry_after.as_secs().max(1))]
    Overload {
        /// The reason.
        reason: Shed,
        /// Time after which to retry.
        retry_after: Duration,
    },
    /// The deadline has passed. The function may have run.
    #[error("the function did not respond in time")]
    Deadline,
    /// The function's last calls ran past their deadlines on a device and had to be ended.
    #[error("the function's calls ran past their deadlines: calls are refused for {} s more", retry_after.as_secs().max(1))]
    HeldOff {
        /// Time after which to retry.
        retry_after: Duration,
    },
    /// There is no matching device, or no node responds.
    #[error("{0}")]
    Unavailable(String),
    /// The kernel or the library reported an error.
    #[error("{0}")]
    Failed(String),
}
