//! Computes rates from counters and keeps their last ten minutes.
//!
//! A [`History`] receives one [`State`] per second. Each state is a tick. A series has one point
//! per tick, or a gap if the state has no value. Memory is bounded: [`SERIES_MAX`] devices and
//! functions have series; the others have only current values.

use super::model::{Device, Function, Histogram, State};
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// Points of ten minutes, at one point per second.
pub const POINTS: usize = 600;

/// Most devices, and most functions, with a series.
pub const SERIES_MAX: usize = 256;

/// Ticks in the percentiles of a table.
const WINDOW_SHORT: usize = 10;

/// Ticks in the histogram of a function's view.
pub const WINDOW_LONG: usize = 60;

/// A series whose subject is missing for this number of ticks is dropped.
const FORGET: u64 = POINTS as u64;

/// The last points of a series; NaN for a missing value.
#[derive(Debug, Clone, Default)]
pub struct Ring(VecDeque<f32>);

impl Ring {
    fn push(&mut self, value: f64) {
        if self.0.len() == POINTS {
            self.0.pop_front();
        }
        self.0.push_back(value as f32);
    }

    /// Adds gaps for the ticks since the last point, at `seen`; none before the first point.
    fn skip(&mut self, seen: u64, tick: u64) {
        if seen > 0 {
            (seen + 1..tick)
                .take(POINTS)
                .for_each(|_| self.push(f64::NAN));
        }
    }

    /// The points, the newest last.
    pub fn points(&self) -> impl Iterator<Item = f32> + '_ {
        self.0.iter().copied()
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
#[derive(Debug, Clone, Default)]
pub struct DeviceSeries {
    /// Utilization, 0 to 1.
    pub utilization: Ring,
    last: Option<(u64, u64)>,
    now: f64,
    seen: u64,
}

impl DeviceSeries {
    /// Computes the utilization since the previous reading of the counter, which may be older than
    /// a tick.
    fn feed(&mut self, device: &Device, tick: u64) -> f64 {
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
        self.utilization.skip(self.seen, tick);
        self.seen = tick;
        self.utilization.push(self.now);
        self.now
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
#[derive(Debug, Clone, Default)]
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
            ring.push(value);
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
#[derive(Debug, Clone, Default)]
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

/// Current values computed from a state: one entry for each entry of the state's lists.
#[derive(Debug, Clone, Default)]
pub struct Now {
    /// Utilization of each device.
    pub devices: Vec<f64>,
    /// Device time of each tenant divided by elapsed time.
    pub tenants: Vec<f64>,
    /// Calls a second of each tenant.
    pub tenant_rates: Vec<f64>,
    /// Current values of each function.
    pub functions: Vec<FunctionNow>,
}

/// The last ten minutes.
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

    fn feed_devices(&mut self, state: &State) -> Vec<f64> {
        let tick = self.tick;
        let devices = state.devices.iter().map(|device| {
            let key = (device.node.clone(), device.name.clone());
            if self.devices.len() >= SERIES_MAX && !self.devices.contains_key(&key) {
                return f64::NAN;
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
        let (busy, devices) = mean(&mut now.devices.iter().copied());
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
        let total = &mut self.total;
        total.utilization.push(match devices {
            0 => f64::NAN,
            n => busy / f64::from(n),
        });
        total.rate.push(match counted {
            0 if !state.functions.is_empty() => f64::NAN,
            _ => rate,
        });
        total.errors.push(errors);
        total.p50_ns.push(quantile(&spent, &bounds, 0.5));
        total.p99_ns.push(quantile(&spent, &bounds, 0.99));
        total.queued.push(queued as f64);
        total.cold.push(cold as f64 / elapsed_s);
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
