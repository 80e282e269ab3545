//! A call in progress.

use super::reply::{CallError, Timing, Trace};
use baltra_functions::Call;
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A waiting call.
pub struct Pending {
    /// The call.
    pub call: Call,
    /// The waiting caller.
    pub waiter: Waiter,
}

/// The waiting caller of a call. If dropped without a reply, the caller is notified that the call
/// is lost.
pub struct Waiter {
    /// The time after which the response is useless.
    pub deadline: Instant,
    /// The time for which the call may hold a device: its whole time limit, independent of the
    /// remaining time.
    pub allowed: Duration,
    /// Arrival of the call.
    pub came: Instant,
    /// The number of the calling tenant.
    pub tenant: usize,
    /// The trace that it belongs to, if its spans are collected.
    pub traced: Option<Traced>,
    /// The account charged for device time after the caller stopped waiting.
    late: Option<Arc<dyn Account>>,
    reply: oneshot::Sender<Outcome>,
}

/// An account that calls are charged to.
pub trait Account: Send + Sync {
    /// Charges device time, nanoseconds, that becomes known after its call's end.
    fn charge(&self, device_ns: u64);
}

/// The origin of a call.
#[derive(Clone, Default)]
pub struct Caller {
    /// The number of the calling tenant, below [`crate::Options::tenants`].
    pub tenant: usize,
    /// The account charged for device time that becomes known after the call's end.
    pub account: Option<Arc<dyn Account>>,
}

/// The part of a call's trace context that a node receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// The `trace-id`.
    pub trace: [u8; 16],
    /// The span of the call on the device.
    pub parent: [u8; 8],
}

/// The outcome of a call at its runner.
pub enum Outcome {
    /// The call succeeded.
    Done {
        /// Outputs in the manifest's order.
        outputs: Vec<Bytes>,
        /// Number of requests that ran together.
        batch: u32,
        /// The times; the caller sets `cold_ns`.
        timing: Timing,
    },
    /// The function's own error, or an error that a retry would repeat.
    Failed(CallError),
    /// The runner ended.
    Lost {
        /// The call, for a retry.
        call: Box<Call>,
        /// Whether it may have started.
        started: bool,
        /// The reason.
        reason: String,
    },
}

impl Pending {
    /// A new call, and the receiver of its outcome.
    pub fn new(
        call: Call,
        (deadline, allowed): (Instant, Duration),
        trace: &Trace,
        caller: Caller,
    ) -> (Pending, oneshot::Receiver<Outcome>) {
        let (reply, outcome) = oneshot::channel();
        let waiter = Waiter {
            deadline,
            allowed,
            came: Instant::now(),
            tenant: caller.tenant,
            traced: trace.asked.map(|parent| Traced {
                trace: trace.id,
                parent,
            }),
            late: caller.account,
            reply,
        };
        (Pending { call, waiter }, outcome)
    }

    /// Fails the call because the runner ended.
    pub fn lose(self, started: bool, reason: &str) {
        self.waiter.answer(Outcome::Lost {
            call: Box::new(self.call),
            started,
            reason: reason.to_owned(),
        });
    }

    /// Drops an abandoned call and fails a late one; otherwise returns the call.
    pub fn if_wanted(self, now: Instant) -> Option<Pending> {
        if !self.waiter.is_there() {
            return None;
        }
        if now >= self.waiter.deadline {
            self.waiter.fail(CallError::Deadline);
            return None;
        }
        Some(self)
    }
}

impl Waiter {
    /// Whether the caller still waits.
    pub fn is_there(&self) -> bool {
        !self.reply.is_closed()
    }

    /// Replies to the caller. If the caller has gone, its account is charged.
    pub fn answer(self, outcome: Outcome) {
        if let Err(Outcome::Done { timing, .. }) = self.reply.send(outcome) {
            if let Some(account) = self.late {
                account.charge(timing.device_ns);
            }
        }
    }

    /// Records that the call held its device for this time and had to be ended past its deadline.
    pub fn overran(self, device_ns: u64) {
        if let Some(account) = &self.late {
            account.charge(device_ns);
        }
        self.fail(CallError::Deadline);
    }

    /// Fails the call with the function's own error.
    pub fn fail(self, error: CallError) {
        self.answer(Outcome::Failed(error));
    }

    /// Time for which the call has waited.
    pub fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.came)
    }
}
