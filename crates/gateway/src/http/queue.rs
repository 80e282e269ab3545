//! The status and the limits of asynchronous calls.

use crate::http::problem::Problem;
use crate::options::LimitOptions;
use http::header::HeaderName;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Header with the id of a call.
pub(crate) const X_CALL_ID: HeaderName = HeaderName::from_static("x-call-id");

/// Number of ended calls whose status is kept.
const ENDED_MAX: usize = 10_000;

/// State of an asynchronous call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Queued,
    Running,
    Done,
    Failed,
}

/// The status of an asynchronous call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Status {
    pub call_id: String,
    pub function: String,
    pub state: State,
    /// HTTP status of the call's response; `None` until it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Milliseconds since 1970.
    pub accepted_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// The callback's status or failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
}

#[derive(Debug, Default)]
struct Calls {
    by_id: HashMap<String, Status>,
    ended: VecDeque<String>,
}

/// All asynchronous calls.
#[derive(Debug)]
pub(crate) struct Queue {
    calls: Mutex<Calls>,
    open: AtomicUsize,
    bytes: AtomicU64,
    running: Arc<Semaphore>,
}

impl Queue {
    pub fn new(limits: &LimitOptions) -> Queue {
        Queue {
            calls: Mutex::default(),
            open: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            running: Arc::new(Semaphore::new(limits.async_running_max)),
        }
    }

    /// Number of calls that wait or run.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    pub fn status(&self, id: &str) -> Option<Status> {
        self.locked(|calls| calls.by_id.get(id).cloned())
    }

    pub fn change(&self, id: &str, change: impl FnOnce(&mut Status)) {
        self.locked(|calls| {
            if let Some(status) = calls.by_id.get_mut(id) {
                change(status);
            }
        });
    }

    pub fn insert(&self, status: Status) {
        self.locked(|calls| calls.by_id.insert(status.call_id.clone(), status));
    }

    /// Records the end of a call; drops the oldest ended ones.
    pub fn end(&self, id: &str) {
        self.locked(|calls| {
            calls.ended.push_back(id.to_owned());
            if calls.ended.len() > ENDED_MAX {
                let oldest = calls.ended.pop_front().unwrap_or_default();
                calls.by_id.remove(&oldest);
            }
        });
    }

    fn locked<T>(&self, f: impl FnOnce(&mut Calls) -> T) -> T {
        f(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a place in the queue and memory for the body; release with [`Queue::leave`].
    pub fn enter(&self, bytes: u64, limits: &LimitOptions) -> Result<(), Problem> {
        let open = self.open.fetch_add(1, Relaxed);
        let held = self.bytes.fetch_add(bytes, Relaxed);
        match open < limits.async_max && held.saturating_add(bytes) <= limits.async_bytes_max {
            true => Ok(()),
            false => {
                self.leave(bytes);
                Err(Problem::overload(
                    "too many asynchronous calls wait ('gateway.limits.async_max', 'gateway.limits.async_bytes_max')",
                    Duration::from_secs(5),
                ))
            }
        }
    }

    /// Releases a place.
    pub fn leave(&self, bytes: u64) {
        self.open.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// The semaphore that bounds running calls.
    pub fn running(&self) -> Arc<Semaphore> {
        self.running.clone()
    }
}
