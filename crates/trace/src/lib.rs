//! Spans of calls, exported to a collector: OTLP over HTTP or gRPC, with or without TLS, configured by
//! OpenTelemetry's environment variables.
//!
//! A daemon makes a [`Span`] of each operation when it ends and passes it to [`Spans`], which never
//! blocks: a bounded queue that a background task empties. Spans that do not fit, or that the
//! collector does not accept, are dropped and counted. Without a collector there is no queue, and
//! no spans are made.
#![forbid(unsafe_code)]

mod collector;
mod context;
mod export;
mod options;

pub use context::{span_id, trace_id, Context};
pub use options::Invalid;

use collector::Collector;
use crossbeam_queue::ArrayQueue;
use options::{Options, Sampler};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{watch, Notify};

/// Most spans in one message.
const BATCH_MAX: usize = 512;

/// A finished operation.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// The trace that it belongs to.
    pub trace: [u8; 16],
    /// Its own ID within the trace.
    pub id: [u8; 8],
    /// The ID of its parent; zeros for a root span.
    pub parent: [u8; 8],
    /// The operation.
    pub name: String,
    /// Its role in a remote call.
    pub kind: Kind,
    /// When it ran.
    pub time: Time,
    /// Further attributes.
    pub attributes: Vec<(&'static str, Value)>,
    /// The reason why it failed; `None` on success.
    pub error: Option<String>,
}

/// A span's role toward its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A part of the parent's work.
    #[default]
    Internal,
    /// A request that another process sent.
    Server,
    /// A request to another process.
    Client,
}

/// An attribute's value.
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

/// A time range, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Start.
    pub began_ns: u64,
    /// End.
    pub ended_ns: u64,
}

/// Converts times of the monotonic clock to calendar time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    at: Instant,
    unix_ns: u64,
}

impl Clock {
    /// Samples both clocks.
    pub fn now() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            at: Instant::now(),
            unix_ns: nanoseconds(since.unwrap_or_default()),
        }
    }

    /// An instant, in nanoseconds since 1970.
    pub fn at(&self, instant: Instant) -> u64 {
        match instant.checked_duration_since(self.at) {
            Some(later) => self.unix_ns.saturating_add(nanoseconds(later)),
            None => self.ago(nanoseconds(self.at - instant)),
        }
    }

    /// The time `ns` nanoseconds before the sample.
    pub fn ago(&self, ns: u64) -> u64 {
        self.unix_ns.saturating_sub(ns)
    }

    /// The range between two instants.
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

/// Spans exported and dropped since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accepted by the collector.
    pub exported: u64,
    /// Lost because the queue was full, or because the collector did not accept them.
    pub dropped: u64,
}

/// The queue of spans to export. Clones are handles of the same queue; the default exports nothing.
#[derive(Clone, Debug, Default)]
pub struct Spans(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    sampler: Sampler,
    queue: ArrayQueue<Span>,
    exported: AtomicU64,
    dropped: AtomicU64,
    /// Signals that a full batch waits.
    many: Notify,
    /// True: no more spans will be queued.
    closing: watch::Sender<bool>,
    /// True: all queued spans were exported or dropped.
    closed: watch::Sender<bool>,
}

impl Spans {
    /// Reads the configuration from the environment. `service` is the default of `service.name`;
    /// `more` are further resource attributes. Must be called within a Tokio runtime, which runs
    /// the export task.
    ///
    /// # Errors
    /// A variable with an invalid value.
    pub fn from_environment(service: &str, more: &[(&str, &str)]) -> Result<Spans, Invalid> {
        let options = Options::read(service, |name| std::env::var(name).ok())?;
        let Some(mut options) = options else {
            return Ok(Spans::default());
        };
        let more = more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        options.resource.extend(more);
        Spans::start(options)
    }

    fn start(options: Options) -> Result<Spans, Invalid> {
        let collector = Collector::new(&options)?;
        tracing::info!(endpoint = %options.endpoint, protocol = ?options.protocol, "exporting spans");
        let inner = Arc::new(Inner {
            sampler: options.sampler,
            queue: ArrayQueue::new(options.queue_max),
            exported: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            many: Notify::new(),
            closing: watch::Sender::new(false),
            closed: watch::Sender::new(false),
        });
        tokio::spawn(export::run(inner.clone(), options, collector));
        Ok(Spans(Some(inner)))
    }

    /// Whether spans are exported.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether to make spans of a trace. `parent`: the `sampled` flag of its remote parent, if it
    /// has one.
    pub fn takes(&self, trace: &[u8; 16], parent: Option<bool>) -> bool {
        let inner = self.0.as_ref();
        inner.is_some_and(|inner| inner.sampler.takes(trace, parent))
    }

    /// Queues a span for export. Never blocks.
    pub fn export(&self, span: Span) {
        let Some(inner) = &self.0 else {
            return;
        };
        if inner.queue.push(span).is_err() {
            inner.dropped.fetch_add(1, Relaxed);
        } else if inner.queue.len() >= BATCH_MAX.min(inner.queue.capacity()) {
            inner.many.notify_one();
        }
    }

    /// Counts spans that were lost before they were queued.
    pub fn lost(&self, count: u64) {
        if let Some(inner) = &self.0 {
            inner.dropped.fetch_add(count, Relaxed);
        }
    }

    /// Totals since the start; `None` if spans are not exported.
    pub fn counts(&self) -> Option<Counts> {
        self.0.as_ref().map(|inner| Counts {
            exported: inner.exported.load(Relaxed),
            dropped: inner.dropped.load(Relaxed),
        })
    }

    /// Exports the queued spans, for at most `timeout`.
    pub async fn close(&self, timeout: Duration) {
        if let Some(inner) = &self.0 {
            inner.closing.send_replace(true);
            let mut closed = inner.closed.subscribe();
            let _ = tokio::time::timeout(timeout, closed.wait_for(|closed| *closed)).await;
        }
    }
}

#[cfg(test)]
mod tests;
