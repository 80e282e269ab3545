//! The page's JSON: the state with rates in place of counters, and the series.
//!
//! Numbers are rounded to the precision that a page shows; unknown values are `null`; durations are
//! in microseconds. Lists are cut at [`ROWS_MAX`] rows and have the number of omitted rows.

use super::history::{
    sparse, DeviceNow, FunctionNow, FunctionSeries, History, Now, Ring, Span, Sparse,
};
use super::model::{
    Alerts, ColdStart, Contract, Device, Function, Moved, Node, Placement, Registry, Session,
    State, Tenant,
};
use serde::{Serialize, Serializer};
use std::collections::HashSet;

/// Most rows of each list in a page.
pub const ROWS_MAX: usize = 2000;

/// Cuts the lists of a state; returns the number of omitted entries.
pub fn bound(state: &mut State) -> usize {
    fn cut<T>(list: &mut Vec<T>) -> usize {
        let more = list.len().saturating_sub(ROWS_MAX);
        list.truncate(ROWS_MAX);
        more
    }
    cut(&mut state.nodes)
        + cut(&mut state.sessions)
        + cut(&mut state.moved)
        + cut(&mut state.devices)
        + cut(&mut state.tenants)
        + cut(&mut state.functions)
}

/// A number with at most four decimals; `null` for NaN.
#[derive(Debug, Clone, Copy)]
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rounded = (self.0 * 1e4).round() / 1e4;
        match rounded {
            n if !n.is_finite() => serializer.serialize_none(),
            n if n.fract() == 0.0 && n.abs() < 9e15 => serializer.serialize_i64(n as i64),
            n => serializer.serialize_f64(n),
        }
    }
}

/// Nanoseconds as microseconds.
fn micros(ns: f64) -> Number {
    Number((ns / 100.0).round() / 10.0)
}

fn points(ring: &Ring, span: Span) -> Vec<Number> {
    let points = ring.points(span);
    points.map(|p| Number(f64::from(p))).collect()
}

fn points_us(ring: &Ring, span: Span) -> Vec<Number> {
    ring.points(span).map(|p| micros(f64::from(p))).collect()
}

#[derive(Serialize)]
struct StateView<'a> {
    tick: u64,
    at_ms: u64,
    version: &'static str,
    left_out: usize,
    total: TotalView,
    registry: &'a Option<Registry>,
    nodes: &'a [Node],
    devices: Vec<DeviceView<'a>>,
    tenants: Vec<TenantView<'a>>,
    functions: Vec<FunctionView<'a>>,
    sessions: &'a [Session],
    moved: &'a [Moved],
    alerts: &'a Option<Alerts>,
}

#[derive(Serialize)]
struct TotalView {
    utilization: Option<Number>,
    rate: Option<Number>,
    errors: Option<Number>,
    p50_us: Option<Number>,
    p99_us: Option<Number>,
    queued: Option<Number>,
    cold: Option<Number>,
}

#[derive(Serialize)]
struct DeviceView<'a> {
    #[serde(flatten)]
    device: &'a Device,
    utilization: Number,
    tasks_rate: Number,
}

#[derive(Serialize)]
struct TenantView<'a> {
    #[serde(flatten)]
    tenant: &'a Tenant,
    device_s: Number,
    busy: Number,
    rate: Number,
}

#[derive(Serialize)]
struct FunctionView<'a> {
    name: &'a str,
    description: &'a str,
    tenant: &'a str,
    implementations: &'a [String],
    reason: &'a str,
    replicas: u32,
    placements: &'a [Placement],
    calls: u64,
    errors: u64,
    running: u64,
    queued: u64,
    cold_starts: u64,
    cold_last_us: Option<Number>,
    rate: Number,
    errors_rate: Number,
    p50_us: Number,
    p99_us: Number,
    tick_p50_us: Number,
    tick_p99_us: Number,
}

fn cold_us(cold: &ColdStart) -> Number {
    micros(cold.parts.iter().map(|p| p.1 as f64).sum())
}

fn function_view<'a>((function, now): (&'a Function, &FunctionNow)) -> FunctionView<'a> {
    FunctionView {
        name: &function.name,
        description: &function.description,
        tenant: &function.tenant,
        implementations: &function.implementations,
        reason: &function.reason,
        replicas: function.replicas,
        placements: &function.placements,
        calls: function.calls,
        errors: function.errors,
        running: function.running,
        queued: function.queued,
        cold_starts: function.cold_starts,
        cold_last_us: function.cold_recent.last().map(cold_us),
        rate: Number(now.rate),
        errors_rate: Number(now.errors_rate),
        p50_us: micros(now.p50_ns),
        p99_us: micros(now.p99_ns),
        tick_p50_us: micros(now.tick_p50_ns),
        tick_p99_us: micros(now.tick_p99_ns),
    }
}

/// The current state.
pub fn state_json(
    state: &State,
    left_out: usize,
    history: &History,
    now: &Now,
    at_ms: u64,
) -> String {
    let newest = |ring: &Ring| ring.points(Span::Recent).last().map(f64::from);
    let last = |ring: &Ring| newest(ring).map(Number);
    let last_us = |ring: &Ring| newest(ring).map(micros);
    let total = &history.total;
    let tenants = state
        .tenants
        .iter()
        .zip(now.tenants.iter().zip(&now.tenant_rates));
    let view = StateView {
        tick: history.tick,
        at_ms,
        version: env!("CARGO_PKG_VERSION"),
        left_out,
        total: TotalView {
            utilization: last(&total.utilization),
            rate: last(&total.rate),
            errors: last(&total.errors),
            p50_us: last_us(&total.p50_ns),
            p99_us: last_us(&total.p99_ns),
            queued: last(&total.queued),
            cold: last(&total.cold),
        },
        registry: &state.registry,
        nodes: &state.nodes,
        devices: state
            .devices
            .iter()
            .zip(&now.devices)
            .map(|(device, now): (_, &DeviceNow)| DeviceView {
                device,
                utilization: Number(now.utilization),
                tasks_rate: Number(now.tasks),
            })
            .collect(),
        tenants: tenants
            .map(|(tenant, (busy, rate))| TenantView {
                tenant,
                device_s: Number(tenant.busy_ns as f64 / 1e9),
                busy: Number(*busy),
                rate: Number(*rate),
            })
            .collect(),
        functions: state
            .functions
            .iter()
            .zip(&now.functions)
            .map(function_view)
            .collect(),
        sessions: &state.sessions,
        moved: &state.moved,
        alerts: &state.alerts,
    };
    serde_json::to_string(&view).expect("plain data")
}

#[derive(Serialize)]
struct HistoryView<'a> {
    /// The number of the newest point. In the shortest span it is the state's tick.
    tick: u64,
    /// Seconds of each point.
    step: u64,
    total: TotalPoints,
    devices: Vec<DevicePoints<'a>>,
    functions: Vec<FunctionPoints<'a>>,
}

#[derive(Serialize)]
struct TotalPoints {
    utilization: Vec<Number>,
    rate: Vec<Number>,
    errors: Vec<Number>,
    p50_us: Vec<Number>,
    p99_us: Vec<Number>,
    queued: Vec<Number>,
    cold: Vec<Number>,
}

#[derive(Serialize)]
struct DevicePoints<'a> {
    node: &'a str,
    name: &'a str,
    utilization: Vec<Number>,
    tasks: Vec<Number>,
}

#[derive(Serialize)]
struct FunctionPoints<'a> {
    name: &'a str,
    rate: Vec<Number>,
    errors: Vec<Number>,
    p50_us: Vec<Number>,
    p99_us: Vec<Number>,
    queued: Vec<Number>,
}

fn function_points<'a>(name: &'a str, series: &FunctionSeries, span: Span) -> FunctionPoints<'a> {
    FunctionPoints {
        name,
        rate: points(&series.rate, span),
        errors: points(&series.errors, span),
        p50_us: points_us(&series.p50_ns, span),
        p99_us: points_us(&series.p99_ns, span),
        queued: points(&series.queued, span),
    }
}

/// A span of the state's devices and functions.
pub fn history_json(state: &State, history: &History, span: Span) -> String {
    let devices: HashSet<(&str, &str)> = state
        .devices
        .iter()
        .map(|d| (d.node.as_str(), d.name.as_str()))
        .collect();
    let functions: HashSet<&str> = state.functions.iter().map(|f| f.name.as_str()).collect();
    let total = &history.total;
    let view = HistoryView {
        tick: history.tick / span.step(),
        step: span.step(),
        total: TotalPoints {
            utilization: points(&total.utilization, span),
            rate: points(&total.rate, span),
            errors: points(&total.errors, span),
            p50_us: points_us(&total.p50_ns, span),
            p99_us: points_us(&total.p99_ns, span),
            queued: points(&total.queued, span),
            cold: points(&total.cold, span),
        },
        devices: history
            .devices
            .iter()
            .filter(|(key, _)| devices.contains(&(key.0.as_str(), key.1.as_str())))
            .map(|(key, series)| DevicePoints {
                node: &key.0,
                name: &key.1,
                utilization: points(&series.utilization, span),
                tasks: points(&series.tasks, span),
            })
            .collect(),
        functions: history
            .functions
            .iter()
            .filter(|(name, _)| functions.contains(name.as_str()))
            .map(|(name, series)| function_points(name, series, span))
            .collect(),
    };
    serde_json::to_string(&view).expect("plain data")
}

#[derive(Serialize)]
struct Details<'a> {
    name: &'a str,
    contract: &'a Contract,
    /// Pairs of an upper bound in microseconds (`null`: none) and a count.
    latency_recent: Vec<(Number, u64)>,
    latency_all: Vec<(Number, u64)>,
    /// All bounds of the counts, microseconds.
    bounds_us: Vec<Number>,
    cold: Vec<ColdView<'a>>,
}

#[derive(Serialize)]
struct ColdView<'a> {
    at_ms: u64,
    node: &'a str,
    device: &'a str,
    total_us: Number,
    parts: Vec<(&'a str, Number)>,
}

fn counts(sparse: &Sparse) -> Vec<(Number, u64)> {
    let bound = |b: u64| match b {
        u64::MAX => Number(f64::NAN),
        b => micros(b as f64),
    };
    sparse.iter().map(|(b, n)| (bound(*b), *n)).collect()
}

/// The content of a function's view, in addition to its row of the state.
pub fn function_json(function: &Function, history: &History) -> String {
    let recent = history.functions.get(&function.name);
    let view = Details {
        name: &function.name,
        contract: &function.contract,
        latency_recent: counts(&recent.map(FunctionSeries::recent).unwrap_or_default()),
        latency_all: counts(&sparse(&function.latency)),
        bounds_us: function
            .latency
            .bounds_ns
            .iter()
            .map(|b| micros(*b as f64))
            .collect(),
        cold: function
            .cold_recent
            .iter()
            .map(|cold| ColdView {
                at_ms: cold.at_ms,
                node: &cold.node,
                device: &cold.device,
                total_us: cold_us(cold),
                parts: cold
                    .parts
                    .iter()
                    .map(|(name, ns)| (name.as_str(), micros(*ns as f64)))
                    .collect(),
            })
            .collect(),
    };
    serde_json::to_string(&view).expect("plain data")
}
