//! Spans of calls, told to whoever collects them: OTLP over HTTP, as OpenTelemetry's environment variables say.
//!
//! Whoever has done something makes a [`Span`] of it when it is over and gives it to [`Spans`], which never waits: a
//! queue of a bounded length, which a task of the daemon's own empties. What does not fit, or is not taken by the
//! collector, is dropped and counted. Without a collector there is no queue and nothing is made.
#![forbid(unsafe_code)]

mod context;
mod export;
mod options;

pub use context::{span_id, trace_id, Context};
pub use options::Invalid;

use crossbeam_queue::ArrayQueue;
use options::{Options, Sampler};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{watch, Notify};

/// Spans in one message.
const BATCH_MAX: usize = 512;

/// Something that was done, when it is over.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// Of which trace.
    pub trace: [u8; 16],
    /// Its own name there.
    pub id: [u8; 8],
    /// What it is a part of; zeros: of nothing.
    pub parent: [u8; 8],
    /// What was done.
    pub name: String,
    /// On whose behalf.
    pub kind: Kind,
    /// When.
    pub time: Time,
    /// More of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed; `None`: it did not.
    pub error: Option<String>,
}

/// What a span is to its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A part of it.
    #[default]
    Internal,
    /// What another process asked for.
    Server,
    /// Asking another process.
    Client,
}

/// An attribute's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Number(number)
    }
}

/// From when to when, nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// From.
    pub began_ns: u64,
    /// To.
    pub ended_ns: u64,
}

/// Turns times of the monotonic clock into those of the calendar.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    at: Instant,
    unix_ns: u64,
}

impl Clock {
    /// As the clocks stand now.
    pub fn now() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            at: Instant::now(),
            unix_ns: nanoseconds(since.unwrap_or_default()),
        }
    }

    /// An instant.
    pub fn at(&self, instant: Instant) -> u64 {
        match instant.checked_duration_since(self.at) {
            Some(later) => self.unix_ns.saturating_add(nanoseconds(later)),
            None => self.ago(nanoseconds(self.at - instant)),
        }
    }

    /// So many nanoseconds ago.
    pub fn ago(&self, ns: u64) -> u64 {
        self.unix_ns.saturating_sub(ns)
    }

    /// From one instant to another.
    pub fn time(&self, began: Instant, ended: Instant) -> Time {
        Time {
            began_ns: self.at(began),
            ended_ns: self.at(ended),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// What became of spans, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The collector took them.
    pub told: u64,
    /// There was no room for them, or the collector did not take them.
    pub dropped: u64,
}

/// Where spans go. Clones are handles of the same queue; the default tells nobody.
#[derive(Clone, Debug, Default)]
pub struct Spans(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    sampler: Sampler,
    queue: ArrayQueue<Span>,
    told: AtomicU64,
    dropped: AtomicU64,
    /// A message's worth waits.
    many: Notify,
    /// True: no more spans come.
    closing: watch::Sender<bool>,
    /// True: all were told.
    closed: watch::Sender<bool>,
}

impl Spans {
    /// As the environment says, for a service that is called so unless it says otherwise; `more` is told of the
    /// service, too. To be called within a Tokio runtime, which tells them.
    ///
    /// # Errors
    /// A variable that makes no sense.
    pub fn from_environment(service: &str, more: &[(&str, &str)]) -> Result<Spans, Invalid> {
        let options = Options::read(service, |name| std::env::var(name).ok())?;
        Ok(options.map_or_else(Spans::default, |mut options| {
            let more = more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            options.resource.extend(more);
            Spans::start(options)
        }))
    }

    fn start(options: Options) -> Spans {
        tracing::info!(endpoint = %options.endpoint, "spans are told");
        let inner = Arc::new(Inner {
            sampler: options.sampler,
            queue: ArrayQueue::new(options.queue_max),
            told: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            many: Notify::new(),
            closing: watch::Sender::new(false),
            closed: watch::Sender::new(false),
        });
        tokio::spawn(export::run(inner.clone(), options));
        Spans(Some(inner))
    }

    /// Whether anybody is told.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a trace's spans are to be made; `parent`: its `sampled` flag, where it goes on from elsewhere.
    pub fn takes(&self, trace: &[u8; 16], parent: Option<bool>) -> bool {
        let inner = self.0.as_ref();
        inner.is_some_and(|inner| inner.sampler.takes(trace, parent))
    }

    /// Tells a span, soon. Never waits.
    pub fn tell(&self, span: Span) {
        let Some(inner) = &self.0 else {
            return;
        };
        if inner.queue.push(span).is_err() {
            inner.dropped.fetch_add(1, Relaxed);
        } else if inner.queue.len() >= BATCH_MAX.min(inner.queue.capacity()) {
            inner.many.notify_one();
        }
    }

    /// Counts spans that were lost before they came here.
    pub fn lost(&self, count: u64) {
        if let Some(inner) = &self.0 {
            inner.dropped.fetch_add(count, Relaxed);
        }
    }

    /// What became of them; `None`: nobody is told.
    pub fn counts(&self) -> Option<Counts> {
        self.0.as_ref().map(|inner| Counts {
            told: inner.told.load(Relaxed),
            dropped: inner.dropped.load(Relaxed),
        })
    }

    /// Tells what waits, within so long.
    pub async fn close(&self, patience: Duration) {
        if let Some(inner) = &self.0 {
            inner.closing.send_replace(true);
            let mut closed = inner.closed.subscribe();
            let _ = tokio::time::timeout(patience, closed.wait_for(|closed| *closed)).await;
        }
    }
}

#[cfg(test)]
mod tests;
