//! Spans of calls, exported to a collector.
//!
//! ```text
//! call NAME           child of the caller's span
//! ├ load              until the function was loaded, or a container was ready
//! ├ queue             until the device, or the native process, received the call
//! └ device            device time; a manager exports the part spent waiting at the gate. In a
//!                     container: until the head of its reply
//! ```

use baltra_engine::{Timing, Trace};
use baltra_trace::{span_id, Clock, Kind, Span, Spans, Value};
use std::time::{Duration, Instant};

/// An ended call.
pub(crate) struct Called<'a> {
    pub trace: &'a Trace,
    pub function: &'a str,
    pub tenant: &'a str,
    pub began: Instant,
    pub ended: Instant,
    pub timing: Timing,
    pub status: u16,
    /// The reason of a failure.
    pub error: Option<&'a str>,
    /// Node and device that ran it.
    pub place: Option<(&'a str, &'a str)>,
    /// Name of the span for the call's downstream request.
    pub asked: &'static str,
}

/// Exports a call's spans, if its trace is sampled.
pub(crate) fn export(spans: &Spans, called: &Called<'_>) {
    let Some(asked) = called.trace.asked else {
        return;
    };
    let (clock, timing) = (Clock::now(), &called.timing);
    let part = |name: &str, id, began, ended| Span {
        trace: called.trace.id,
        id,
        parent: called.trace.span,
        name: name.into(),
        time: clock.time(began, ended),
        ..Span::default()
    };
    if let Some(pushed) = timing.pushed {
        let (queue, cold) = (timing.queue_ns, timing.cold_ns);
        let came = before(pushed, queue);
        let over = match timing.device_ns {
            // A container's time does not count as device time.
            0 => called.ended,
            ns => pushed + Duration::from_nanos(ns),
        };
        if cold > 0 {
            spans.export(part("load", span_id(), before(came, cold), came));
        }
        spans.export(part("queue", span_id(), came, pushed));
        let mut attributes = Vec::new();
        if let Some((node, device)) = called.place {
            attributes = named(&[("baltra.node", node), ("baltra.device", device)]);
        }
        spans.export(Span {
            kind: Kind::Client,
            attributes,
            ..part(called.asked, asked, pushed, over)
        });
    }
    let mut attributes = named(&[
        ("baltra.function", called.function),
        ("baltra.tenant", called.tenant),
    ]);
    attributes.push(("http.response.status_code", i64::from(called.status).into()));
    spans.export(Span {
        parent: called.trace.parent,
        kind: Kind::Server,
        attributes,
        // A server span is an error only if the server is at fault.
        error: called
            .error
            .filter(|_| called.status >= 500)
            .map(str::to_owned),
        ..part(
            &format!("call {}", called.function),
            called.trace.span,
            called.began,
            called.ended,
        )
    });
}

fn named(pairs: &[(&'static str, &str)]) -> Vec<(&'static str, Value)> {
    let known = pairs.iter().filter(|(_, value)| !value.is_empty());
    known.map(|(key, value)| (*key, (*value).into())).collect()
}

fn before(at: Instant, ns: u64) -> Instant {
    at.checked_sub(Duration::from_nanos(ns)).unwrap_or(at)
}
