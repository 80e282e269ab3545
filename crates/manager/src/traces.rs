//! Spans of commands that belong to a trace: their wait at the gate, and their time on the device.

use baltra_ring::lease::monotonic_ns;
use baltra_trace::{span_id, Clock, Kind, Span, Spans, Time};
use baltra_wire::executor::TracedTask;

/// Exports three spans: the whole command, as a child of the client's span, and its two parts. The
/// times are the executor's.
pub(crate) fn export(spans: &Spans, device: &str, tenant: &str, task: &TracedTask) {
    let (clock, now_ns) = (Clock::now(), monotonic_ns());
    let at = |ns: u64| clock.ago(now_ns.saturating_sub(ns));
    let (came, ended) = (at(task.came_ns), at(task.ended_ns.max(task.came_ns)));
    let granted = at(task.granted_ns).clamp(came, ended);
    let whole = span_id();
    let part = |name: &str, began_ns, ended_ns| Span {
        trace: task.trace,
        id: span_id(),
        parent: whole,
        name: name.into(),
        time: Time { began_ns, ended_ns },
        ..Span::default()
    };
    spans.export(Span {
        id: whole,
        parent: task.parent,
        kind: Kind::Server,
        attributes: vec![
            ("baltra.device", device.into()),
            ("baltra.tenant", tenant.into()),
        ],
        ..part("task", came, ended)
    });
    spans.export(part("gate", came, granted));
    spans.export(part("device", granted, ended));
}
