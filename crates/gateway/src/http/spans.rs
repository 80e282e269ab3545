//! Spans of calls, for who collects them.
//!
//! ```text
//! call NAME           the caller's span is its parent
//! ├ load              until the function was loaded, or a container ready
//! ├ queue             until the device, or the native process, had it
//! └ device            there; a manager tells what of it was waiting at the gate. A container's: until its answer's head
//! ```

use baltra_engine::{Timing, Trace};
use baltra_trace::{span_id, Clock, Kind, Span, Spans, Value};
use std::time::{Duration, Instant};

/// A call that ended.
pub(crate) struct Called<'a> {
    pub trace: &'a Trace,
    pub function: &'a str,
    pub tenant: &'a str,
    pub began: Instant,
    pub ended: Instant,
    pub timing: Timing,
    pub status: u16,
    /// Why it failed.
    pub error: Option<&'a str>,
    /// Where it ran.
    pub place: Option<(&'a str, &'a str)>,
    /// What it asked for in its turn.
    pub asked: &'static str,
}

/// Tells a call's spans, where somebody collects them.
pub(crate) fn tell(spans: &Spans, called: &Called<'_>) {
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
            // A container's time is no device's, and is not counted as that.
            0 => called.ended,
            ns => pushed + Duration::from_nanos(ns),
        };
        if cold > 0 {
            spans.tell(part("load", span_id(), before(came, cold), came));
        }
        spans.tell(part("queue", span_id(), came, pushed));
        let mut attributes = Vec::new();
        if let Some((node, device)) = called.place {
            attributes = named(&[("baltra.node", node), ("baltra.device", device)]);
        }
        spans.tell(Span {
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
    spans.tell(Span {
        parent: called.trace.parent,
        kind: Kind::Server,
        attributes,
        // Of a server's spans those are errors that are its own.
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
