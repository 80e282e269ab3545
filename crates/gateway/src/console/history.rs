//! Computes rates from counters and keeps ten minutes, an hour and a day of them.
//!
//! A [`History`] receives one [`State`] per second. Each state is a tick. A series has one point
//! per tick for the last ten minutes, or a gap if the state has no value; for longer spans it has
//! one point for several ticks ([`Span`]). Memory is bounded by [`BYTES_MAX`]: [`SERIES_MAX`]
//! devices and functions have series; the others have only current values.

use super::model::{Device, Function, Histogram, State};
use serde::Deserialize;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// Points of each span.
pub const POINTS: usize = 600;

/// Most devices, and most functions, with a series.
pub const SERIES_MAX: usize = 256;

/// Most memory of all points: those of devices (2 values), of functions (5) and of the totals (7).
pub const BYTES_MAX: usize =
    (SERIES_MAX * (2 + 5) + 7) * Span::ALL.len() * POINTS * size_of::<f32>();
// docs/console.md has this number.
const _: () = assert!(BYTES_MAX <= 13_000_000);

/// Ticks in the percentiles of a table, and in the rate of a device's tasks.
const WINDOW_SHORT: usize = 10;

/// Ticks in the histogram of a function's view.
pub const WINDOW_LONG: usize = 60;

/// A series whose subject is missing for this number of ticks is dropped.
const FORGET: u64 = POINTS as u64;

/// A time that series cover with [`POINTS`] points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Span {
    /// Ten minutes.
    Recent,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl Span {
    /// All, the shortest first.
    pub const ALL: [Span; 3] = [Span::Recent, Span::Hour, Span::Day];

    /// Ticks, which are seconds, of each point.
    pub const fn step(self) -> u64 {
        match self {
            Span::Recent => 1,
            Span::Hour => 6,
            Span::Day => 144,
        }
    }
}

/// The calculation of a point's value from its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fold {
    /// The mean of the ticks with a value.
    Mean,
    /// The largest value, so that a short peak is visible in a day.
    Max,
}

/// The last points of one span; NaN for a missing value.
#[derive(Clone, Debug, Default)]
struct Points {
    values: VecDeque<f32>,
    /// The sum, the number and the maximum of the values since the last point.
    sum: f64,
    known: u32,
    max: f64,
}

impl Points {
    fn push(&mut self, value: f64, fold: Fold, is_full: bool) {
        if value.is_finite() {
            self.max = if self.known == 0 {
                value
            } else {
                self.max.max(value)
            };
            self.sum += value;
            self.known += 1;
        }
        if !is_full {
            return;
        }
        let point = match fold {
            _ if self.known == 0 => f64::NAN,
            Fold::Mean => self.sum / f64::from(self.known),
            Fold::Max => self.max,
        };
        (self.sum, self.known) = (0.0, 0);
        if self.values.is_empty() {
            self.values.reserve_exact(POINTS);
        } else if self.values.len() == POINTS {
            self.values.pop_front();
        }
        self.values.push_back(point as f32);
    }
}

/// The points of a value, for each span.
#[derive(Clone, Debug)]
pub struct Ring {
    spans: [Points; Span::ALL.len()],
    fold: Fold,
}

impl Ring {
    fn new(fold: Fold) -> Ring {
        Ring {
            spans: Default::default(),
            fold,
        }
    }

    fn push(&mut self, tick: u64, value: f64) {
        for (span, points) in Span::ALL.into_iter().zip(&mut self.spans) {
            points.push(value, self.fold, tick.is_multiple_of(span.step()));
        }
    }

    /// Adds gaps for the ticks since the last point, at `seen`; none before the first point.
    fn skip(&mut self, seen: u64, tick: u64) {
        if seen > 0 {
            (seen + 1..tick)
                .take(POINTS)
                .for_each(|missing| self.push(missing, f64::NAN));
        }
    }

    /// The points of a span, the newest last. The newest covers the ticks up to the last multiple
    /// of the span's step.
    pub fn points(&self, span: Span) -> impl Iterator<Item = f32> + '_ {
        self.spans[span as usize].values.iter().copied()
    }

    /// Bytes of all points.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let points = self.spans.iter().map(|points| points.values.capacity());
        points.sum::<usize>() * size_of::<f32>()
    }
}

/// The growth of a counter; a counter that decreased has restarted from zero.
fn grown(new: u64, old: u64) -> u64 {
    if new >= old {
        new - old
    } else {
        new
    }
}

/// The series of a device.
#[derive(Debug, Clone)]
pub struct DeviceSeries {
    /// Utilization, 0 to 1.
    pub utilization: Ring,
    /// Tasks a second, over the last ten ticks: reports of a node may be seconds apart.
    pub tasks: Ring,
    last: Option<(u64, u64)>,
    now: f64,
    /// The number of tasks at the last tick, and their growth in the last ticks.
    last_tasks: Option<u64>,
    recent: VecDeque<u64>,
    seen: u64,
}

impl Default for DeviceSeries {
    fn default() -> DeviceSeries {
        DeviceSeries {
            utilization: Ring::new(Fold::Mean),
            tasks: Ring::new(Fold::Mean),
            last: None,
            now: f64::NAN,
            last_tasks: None,
            recent: VecDeque::new(),
            seen: 0,
        }
    }
}

impl DeviceSeries {
    /// Adds the values of a tick; returns the current ones.
    fn feed(&mut self, device: &Device, tick: u64) -> DeviceNow {
        let now = DeviceNow {
            utilization: self.used(device),
            tasks: self.started(device),
        };
        for (ring, value) in [
            (&mut self.utilization, now.utilization),
            (&mut self.tasks, now.tasks),
        ] {
            ring.skip(self.seen, tick);
            ring.push(tick, value);
        }
        self.seen = tick;
        now
    }

    /// Tasks a second.
    fn started(&mut self, device: &Device) -> f64 {
        let last = self.last_tasks.replace(device.tasks);
        let Some(last) = last else {
            return f64::NAN;
        };
        if self.recent.len() == WINDOW_SHORT {
            self.recent.pop_front();
        }
        self.recent.push_back(grown(device.tasks, last));
        self.recent.iter().sum::<u64>() as f64 / self.recent.len() as f64
    }

    /// Computes the utilization since the previous reading of the counter, which may be older than
    /// a tick.
    fn used(&mut self, device: &Device) -> f64 {
        let slots = f64::from(device.slots.max(1));
        self.now = match self.last {
            _ if device.utilization.is_some() => device.utilization.unwrap_or(f64::NAN),
            None => f64::NAN,
            // No newer report: the last value still applies.
            Some((at, _)) if device.at_ns == at => self.now,
            // The clock went back: another manager reports, and its counter cannot be compared.
            Some((at, _)) if device.at_ns < at => f64::NAN,
            Some((at, busy)) => {
                let used = grown(device.busy_ns, busy) as f64;
                (used / (device.at_ns - at) as f64 / slots).clamp(0.0, 1.0)
            }
        };
        self.last = Some((device.at_ns, device.busy_ns));
        self.now
    }
}

/// A device's current values; NaN if unknown.
#[derive(Debug, Clone, Copy)]
pub struct DeviceNow {
    /// Utilization, 0 to 1.
    pub utilization: f64,
    /// Tasks a second.
    pub tasks: f64,
}

impl Default for DeviceNow {
    fn default() -> DeviceNow {
        DeviceNow {
            utilization: f64::NAN,
            tasks: f64::NAN,
        }
    }
}

/// The nonzero counts of a histogram, by upper bound; `u64::MAX` for the last count, which has no
/// bound.
pub type Sparse = Vec<(u64, u64)>;

/// The nonzero counts of a histogram.
pub fn sparse(histogram: &Histogram) -> Sparse {
    let bounds = histogram.bounds_ns.iter().copied().chain([u64::MAX]);
    let pairs = bounds.zip(histogram.counts.iter().copied());
    pairs.filter(|(_, count)| *count > 0).collect()
}

/// Adds counts by bound.
fn merge<'a>(parts: impl IntoIterator<Item = &'a Sparse>) -> Sparse {
    let mut sum = std::collections::BTreeMap::new();
    for (bound, count) in parts.into_iter().flatten() {
        *sum.entry(*bound).or_insert(0u64) += count;
    }
    sum.into_iter().collect()
}

/// The quantile `q` of the counts, in nanoseconds: linear interpolation within the bucket that
/// contains it.
fn quantile(counts: &Sparse, bounds: &[u64], q: f64) -> f64 {
    let total: u64 = counts.iter().map(|c| c.1).sum();
    if total == 0 {
        return f64::NAN;
    }
    let wanted = q * total as f64;
    let mut below = 0.0;
    for (bound, count) in counts {
        let above = below + *count as f64;
        if above >= wanted {
            let index = bounds.partition_point(|b| b < bound);
            let low = index.checked_sub(1).map_or(0, |i| bounds[i]) as f64;
            if *bound == u64::MAX {
                return low;
            }
            return low + (*bound as f64 - low) * ((wanted - below) / *count as f64);
        }
        below = above;
    }
    bounds.last().map_or(f64::NAN, |b| *b as f64)
}

/// The series of a function.
#[derive(Debug, Clone)]
pub struct FunctionSeries {
    /// Calls a second.
    pub rate: Ring,
    /// Failed calls a second.
    pub errors: Ring,
    /// Median latency of a tick's calls, nanoseconds.
    pub p50_ns: Ring,
    /// 99th percentile of the latency of a tick's calls, nanoseconds.
    pub p99_ns: Ring,
    /// Waiting calls.
    pub queued: Ring,
    last: Option<(u64, u64, Histogram)>,
    recent: VecDeque<Sparse>,
    seen: u64,
}

impl Default for FunctionSeries {
    fn default() -> FunctionSeries {
        FunctionSeries {
            rate: Ring::new(Fold::Mean),
            errors: Ring::new(Fold::Mean),
            p50_ns: Ring::new(Fold::Mean),
            p99_ns: Ring::new(Fold::Max),
            queued: Ring::new(Fold::Max),
            last: None,
            recent: VecDeque::new(),
            seen: 0,
        }
    }
}

impl FunctionSeries {
    fn feed(&mut self, function: &Function, elapsed_s: f64, tick: u64) -> FunctionNow {
        let mut now = FunctionNow::default();
        let bounds = &function.latency.bounds_ns;
        let mut spent = Sparse::new();
        if let Some((calls, errors, latency)) = &self.last {
            now.rate = grown(function.calls, *calls) as f64 / elapsed_s;
            now.errors_rate = grown(function.errors, *errors) as f64 / elapsed_s;
            let mut difference = function.latency.clone();
            if latency.bounds_ns == *bounds {
                for (new, old) in difference.counts.iter_mut().zip(&latency.counts) {
                    *new = grown(*new, *old);
                }
            }
            spent = sparse(&difference);
        }
        now.tick_p50_ns = quantile(&spent, bounds, 0.5);
        now.tick_p99_ns = quantile(&spent, bounds, 0.99);
        for (ring, value) in [
            (&mut self.rate, now.rate),
            (&mut self.errors, now.errors_rate),
            (&mut self.p50_ns, now.tick_p50_ns),
            (&mut self.p99_ns, now.tick_p99_ns),
            (&mut self.queued, function.queued as f64),
        ] {
            ring.skip(self.seen, tick);
            ring.push(tick, value);
        }
        if self.recent.len() == WINDOW_LONG {
            self.recent.pop_front();
        }
        self.recent.push_back(spent.clone());
        let short = merge(self.recent.iter().rev().take(WINDOW_SHORT));
        now.p50_ns = quantile(&short, bounds, 0.5);
        now.p99_ns = quantile(&short, bounds, 0.99);
        now.spent = spent;
        self.last = Some((function.calls, function.errors, function.latency.clone()));
        self.seen = tick;
        now
    }

    /// The sum of the counts of the last [`WINDOW_LONG`] ticks.
    pub fn recent(&self) -> Sparse {
        merge(&self.recent)
    }
}

/// A function's current values; NaN if unknown.
#[derive(Debug, Clone)]
pub struct FunctionNow {
    /// Calls a second in the last tick.
    pub rate: f64,
    /// Failed calls a second in the last tick.
    pub errors_rate: f64,
    /// Median latency over the last ten ticks, nanoseconds.
    pub p50_ns: f64,
    /// 99th percentile of the latency over the last ten ticks, nanoseconds.
    pub p99_ns: f64,
    /// Median latency in the last tick, nanoseconds.
    pub tick_p50_ns: f64,
    /// 99th percentile of the latency in the last tick, nanoseconds.
    pub tick_p99_ns: f64,
    spent: Sparse,
}

impl Default for FunctionNow {
    fn default() -> FunctionNow {
        FunctionNow {
            rate: f64::NAN,
            errors_rate: f64::NAN,
            p50_ns: f64::NAN,
            p99_ns: f64::NAN,
            tick_p50_ns: f64::NAN,
            tick_p99_ns: f64::NAN,
            spent: Sparse::new(),
        }
    }
}

/// The series of all devices and all functions together.
#[derive(Debug, Clone)]
pub struct TotalSeries {
    /// Mean over the ready devices, 0 to 1.
    pub utilization: Ring,
    /// Calls a second.
    pub rate: Ring,
    /// Failed calls a second.
    pub errors: Ring,
    /// Median latency of a tick's calls, nanoseconds.
    pub p50_ns: Ring,
    /// 99th percentile of the latency of a tick's calls, nanoseconds.
    pub p99_ns: Ring,
    /// Calls that wait at the gateway and commands that wait at devices.
    pub queued: Ring,
    /// Cold starts a second.
    pub cold: Ring,
}

impl Default for TotalSeries {
    fn default() -> TotalSeries {
        TotalSeries {
            utilization: Ring::new(Fold::Mean),
            rate: Ring::new(Fold::Mean),
            errors: Ring::new(Fold::Mean),
            p50_ns: Ring::new(Fold::Mean),
            p99_ns: Ring::new(Fold::Max),
            queued: Ring::new(Fold::Max),
            cold: Ring::new(Fold::Mean),
        }
    }
}

/// Current values computed from a state: one entry for each entry of the state's lists.
#[derive(Debug, Clone, Default)]
pub struct Now {
    /// Current values of each device.
    pub devices: Vec<DeviceNow>,
    /// Device time of each tenant divided by elapsed time.
    pub tenants: Vec<f64>,
    /// Calls a second of each tenant.
    pub tenant_rates: Vec<f64>,
    /// Current values of each function.
    pub functions: Vec<FunctionNow>,
}

/// The last day.
#[derive(Debug, Default)]
pub struct History {
    /// Number of states received.
    pub tick: u64,
    /// Series by node and device name.
    pub devices: HashMap<(String, String), DeviceSeries>,
    /// Series by function name.
    pub functions: HashMap<String, FunctionSeries>,
    /// Series of all devices and functions together.
    pub total: TotalSeries,
    tenants: HashMap<String, (u64, u64, u64)>,
    cold: HashMap<String, (u64, u64)>,
    fed: Option<Instant>,
}

impl History {
    /// Adds the state of a tick.
    pub fn feed(&mut self, state: &State, at: Instant) -> Now {
        let elapsed_s = self
            .fed
            .map_or(1.0, |fed| at.duration_since(fed).as_secs_f64())
            .max(1e-3);
        self.fed = Some(at);
        self.tick += 1;
        let now = Now {
            devices: self.feed_devices(state),
            functions: self.feed_functions(state, elapsed_s),
            ..self.feed_tenants(state, elapsed_s)
        };
        self.feed_total(state, &now, elapsed_s);
        self.forget();
        now
    }

    fn feed_devices(&mut self, state: &State) -> Vec<DeviceNow> {
        let tick = self.tick;
        let devices = state.devices.iter().map(|device| {
            let key = (device.node.clone(), device.name.clone());
            if self.devices.len() >= SERIES_MAX && !self.devices.contains_key(&key) {
                return DeviceNow::default();
            }
            let series = self.devices.entry(key).or_default();
            series.feed(device, tick)
        });
        devices.collect()
    }

    fn feed_functions(&mut self, state: &State, elapsed_s: f64) -> Vec<FunctionNow> {
        let tick = self.tick;
        let functions = state.functions.iter().map(|function| {
            if self.functions.len() >= SERIES_MAX && !self.functions.contains_key(&function.name) {
                return FunctionNow::default();
            }
            let series = self.functions.entry(function.name.clone()).or_default();
            series.feed(function, elapsed_s, tick)
        });
        functions.collect()
    }

    fn feed_tenants(&mut self, state: &State, elapsed_s: f64) -> Now {
        let mut now = Now::default();
        for tenant in &state.tenants {
            let new = (tenant.busy_ns, tenant.calls, self.tick);
            let (busy, rate) = match self.tenants.insert(tenant.name.clone(), new) {
                Some((busy, calls, _)) => (
                    grown(tenant.busy_ns, busy) as f64 / 1e9 / elapsed_s,
                    grown(tenant.calls, calls) as f64 / elapsed_s,
                ),
                None => (f64::NAN, f64::NAN),
            };
            now.tenants.push(busy);
            now.tenant_rates.push(rate);
        }
        now
    }

    fn feed_total(&mut self, state: &State, now: &Now, elapsed_s: f64) {
        let mean = |values: &mut dyn Iterator<Item = f64>| {
            values
                .filter(|v| v.is_finite())
                .fold((0.0, 0u32), |(sum, n), v| (sum + v, n + 1))
        };
        let (busy, devices) = mean(&mut now.devices.iter().map(|d| d.utilization));
        let (rate, counted) = mean(&mut now.functions.iter().map(|f| f.rate));
        let (errors, _) = mean(&mut now.functions.iter().map(|f| f.errors_rate));
        let mut cold = 0;
        for function in &state.functions {
            let new = (function.cold_starts, self.tick);
            if let Some((old, _)) = self.cold.insert(function.name.clone(), new) {
                cold += grown(function.cold_starts, old);
            }
        }
        let spent = merge(now.functions.iter().map(|f| &f.spent));
        // Functions may have different bounds; the totals use the union of them.
        let mut bounds: Vec<u64> = state
            .functions
            .iter()
            .flat_map(|f| f.latency.bounds_ns.iter().copied())
            .collect();
        bounds.sort_unstable();
        bounds.dedup();
        let queued: u64 = state.functions.iter().map(|f| f.queued).sum::<u64>()
            + state.devices.iter().map(|d| d.queued).sum::<u64>();
        let (total, tick) = (&mut self.total, self.tick);
        total.utilization.push(
            tick,
            match devices {
                0 => f64::NAN,
                n => busy / f64::from(n),
            },
        );
        total.rate.push(
            tick,
            match counted {
                0 if !state.functions.is_empty() => f64::NAN,
                _ => rate,
            },
        );
        total.errors.push(tick, errors);
        total.p50_ns.push(tick, quantile(&spent, &bounds, 0.5));
        total.p99_ns.push(tick, quantile(&spent, &bounds, 0.99));
        total.queued.push(tick, queued as f64);
        total.cold.push(tick, cold as f64 / elapsed_s);
    }

    fn forget(&mut self) {
        let tick = self.tick;
        let recent = |seen: u64| tick - seen < FORGET;
        self.devices.retain(|_, s| recent(s.seen));
        self.functions.retain(|_, s| recent(s.seen));
        self.tenants.retain(|_, s| recent(s.2));
        self.cold.retain(|_, s| recent(s.1));
    }
}
