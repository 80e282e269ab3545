//! The status and the limits of asynchronous calls.

use crate::http::admission::places;
use crate::http::problem::{Problem, Shed};
use crate::options::LimitOptions;
use http::header::HeaderName;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

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
    bytes: AtomicU64,
    turns: Turns,
}

impl Queue {
    pub fn new(limits: &LimitOptions) -> Queue {
        Queue {
            calls: Mutex::default(),
            bytes: AtomicU64::new(0),
            turns: Turns::new(limits.async_running_max),
        }
    }

    /// Number of calls that wait or run.
    pub fn open(&self) -> usize {
        self.turns.locked(|lines| lines.open)
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
    pub fn enter(
        &self,
        line: &Line,
        bytes: u64,
        limits: &LimitOptions,
        is_shared: bool,
    ) -> Result<(), Problem> {
        let fits = self.turns.enter(line, limits.async_max, is_shared);
        let held = self.bytes.fetch_add(bytes, Relaxed);
        if fits && held.saturating_add(bytes) <= limits.async_bytes_max {
            Ok(())
        } else {
            self.leave(line, bytes);
            Err(Problem::shed(
                    Shed::Async,
                    "too many asynchronous calls wait ('gateway.limits.async_max', 'gateway.limits.async_bytes_max')",
                    Duration::from_secs(5),
                ))
        }
    }

    /// Releases a place.
    pub fn leave(&self, line: &Line, bytes: u64) {
        self.turns.leave(line);
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Waits for the turn of a call, which lasts until the result is dropped.
    pub async fn turn(&self, line: &Line) -> Turn {
        self.turns.wait(line).await
    }
}

/// The calls of a function by one tenant, which take turns with the others.
pub(crate) type Line = (String, usize);

/// Bounds running calls. Lines take turns, so that a line's call waits for at most as many calls of
/// each other line as its own line has waiting.
#[derive(Clone, Debug)]
struct Turns(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    /// Further calls that may run.
    free: usize,
    /// Number of calls that wait or run, in all and by line.
    open: usize,
    open_by_line: HashMap<Line, usize>,
    waiting: HashMap<Line, VecDeque<oneshot::Sender<Turn>>>,
    /// Lines with waiting calls, the next one first.
    order: VecDeque<Line>,
}

/// The right of one call to run, which is passed on when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Option<Turns>);

impl Turns {
    fn new(running_max: usize) -> Turns {
        Turns(Arc::new(Mutex::new(Lines {
            free: running_max,
            ..Lines::default()
        })))
    }

    fn locked<T>(&self, f: impl FnOnce(&mut Lines) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a call; returns whether there is room for it.
    fn enter(&self, line: &Line, max: usize, is_shared: bool) -> bool {
        self.locked(|lines| {
            let room = max.saturating_sub(lines.open);
            lines.open += 1;
            let own = lines.open_by_line.entry(line.clone()).or_default();
            *own += 1;
            places::fits(room, *own - 1, is_shared)
        })
    }

    fn leave(&self, line: &Line) {
        self.locked(|lines| {
            lines.open -= 1;
            if let Some(own) = lines.open_by_line.get_mut(line) {
                *own -= 1;
                if *own == 0 {
                    lines.open_by_line.remove(line);
                }
            }
        });
    }

    async fn wait(&self, line: &Line) -> Turn {
        let waiting = self.locked(|lines| {
            if lines.free > 0 {
                lines.free -= 1;
                return None;
            }
            let (sender, receiver) = oneshot::channel();
            let own = lines.waiting.entry(line.clone()).or_default();
            if own.is_empty() {
                lines.order.push_back(line.clone());
            }
            own.push_back(sender);
            Some(receiver)
        });
        let turn = match waiting {
            Some(receiver) => receiver.await.ok(),
            None => None,
        };
        turn.unwrap_or_else(|| Turn(Some(self.clone())))
    }
}

impl Lines {
    /// The call whose turn is next.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let line = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&line)?;
        let next = waiting.pop_front();
        if waiting.is_empty() {
            _ = self.waiting.remove(&line)
        } else {
            self.order.push_back(line)
        }
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else {
            return;
        };
        loop {
            let next = turns.locked(|lines| {
                let next = lines.next();
                lines.free += usize::from(next.is_none());
                next
            });
            let Some(next) = next else {
                return;
            };
            match next.send(Turn(Some(turns.clone()))) {
                Ok(()) => return,
                // That call has ended.
                Err(mut unused) => unused.0 = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn functions_take_turns_however_many_calls_one_has() {
        let turns = Turns::new(1);
        let first = turns.wait(&("first".into(), 0)).await;
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut tasks = Vec::new();
        for (name, count) in [("a", 3), ("b", 2)] {
            for _ in 0..count {
                let (turns, sender) = (turns.clone(), sender.clone());
                tasks.push(tokio::spawn(async move {
                    let _turn = turns.wait(&(name.to_owned(), 0)).await;
                    sender.send(name).unwrap();
                }));
                tokio::task::yield_now().await;
            }
        }
        // A call that ends while it waits passes its turn on.
        tasks[0].abort();
        tokio::task::yield_now().await;
        drop(first);
        drop(sender);
        let mut names = Vec::new();
        while let Some(name) = order.recv().await {
            names.push(name);
        }
        // The aborted call was the first of its line.
        assert_eq!(names, ["b", "a", "b", "a"]);
        assert_eq!(turns.locked(|lines| lines.free), 1);
    }
}
