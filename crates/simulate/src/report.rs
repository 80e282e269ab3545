//! The report of a run, as text and as JSON.

use crate::histogram::Histogram;
use crate::world::Outcome;
use serde::Serialize;
use std::fmt::Write;

/// Most devices of a function that are listed.
pub(crate) const PLACES_MAX: usize = 4;
/// Most devices with a line in the table.
const DEVICES_SHOWN_MAX: usize = 16;

/// A distribution of times, milliseconds, with an error of at most 0.8 %; `None` if there were
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Maximum.
    pub max: Option<f64>,
}

impl Spread {
    fn of(times: &Histogram) -> Spread {
        Spread {
            mean: times.mean_ms(),
            p50: times.quantile_ms(0.5),
            p95: times.quantile_ms(0.95),
            p99: times.quantile_ms(0.99),
            max: times.max_ms(),
        }
    }
}

/// Results of the functions of one entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionReport {
    /// The entry's name; `all` for the sum over all entries.
    pub name: String,
    /// Number of instances at the end.
    pub instances: usize,
    /// Maximum number of instances.
    pub instances_max: usize,
    /// Devices of the first few instances.
    pub devices: Vec<String>,
    /// Instances that were not allocated.
    pub instances_refused: u64,
    /// Reason of the first refusal.
    pub refusal: Option<String>,
    /// Instances moved to another device.
    pub migrations: u64,
    /// Requests due per second.
    pub offered_per_s: f64,
    /// Requests answered per second.
    pub processed_per_s: f64,
    /// Requests answered.
    pub processed: u64,
    /// Requests due that were not sent because all connections were busy.
    pub unsent: u64,
    /// Rejected requests.
    pub refused: u64,
    /// Requests that were answered after their deadline, or dropped at it.
    pub late: u64,
    /// Requests that were sent and not answered before the end.
    pub unfinished: u64,
    /// Time from sending to the response, milliseconds.
    pub latency_ms: Spread,
    /// Waiting time of tasks for the device, milliseconds.
    pub wait_ms: Spread,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceReport {
    /// Node and number.
    pub id: String,
    /// Accelerators in its regions at the end.
    pub accelerators: Vec<String>,
    /// Utilization, percent.
    pub utilization: f64,
    /// Number of loaded accelerators, including the warm-up.
    pub reconfigurations: u64,
    /// Of those, replacements of another accelerator.
    pub replaced: u64,
    /// Share of the time that loads took, percent.
    pub loading: f64,
    /// The longest wait of an image for its turn, without loads, milliseconds.
    pub turn_wait_max_ms: f64,
}

/// Results of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub name: String,
    /// The seed, which replays the run.
    pub seed: u64,
    /// Measured time, seconds.
    pub seconds: f64,
    /// Number of simulated events.
    pub events: u64,
    /// Results of all functions together.
    pub total: FunctionReport,
    /// Results by entry.
    pub functions: Vec<FunctionReport>,
    /// Sum of the devices' utilizations, percent of one device.
    pub utilization_sum: f64,
    /// Results by device.
    pub devices: Vec<DeviceReport>,
}

pub(crate) fn of(outcome: &Outcome<'_>, seed: u64) -> Report {
    let mut all = crate::statistics::Counts::default();
    for counts in outcome.counts {
        all.add(counts);
    }
    let entries = outcome.scenario.functions.iter().zip(outcome.counts);
    let functions = entries
        .zip(&outcome.instances)
        .map(|((spec, counts), (instances, places))| {
            function(
                &spec.name,
                counts,
                *instances,
                places.clone(),
                outcome.seconds,
            )
        });
    let instances = outcome.instances.iter().map(|(n, _)| n).sum();
    let devices = outcome
        .boards
        .iter()
        .map(|(id, held, percent, counts)| DeviceReport {
            id: id.clone(),
            accelerators: held.clone(),
            utilization: *percent,
            reconfigurations: counts.reconfigurations,
            replaced: counts.replaced,
            loading: counts.loading_ns as f64 / 1e7 / outcome.seconds,
            turn_wait_max_ms: counts.turn_wait_max_ns as f64 / 1e6,
        });
    let devices: Vec<DeviceReport> = devices.collect();
    Report {
        name: outcome.scenario.name.clone(),
        seed,
        seconds: outcome.seconds,
        events: outcome.played,
        total: function("all", &all, instances, Vec::new(), outcome.seconds),
        functions: functions.collect(),
        utilization_sum: devices.iter().map(|d| d.utilization).sum(),
        devices,
    }
}

fn function(
    name: &str,
    counts: &crate::statistics::Counts,
    instances: usize,
    devices: Vec<String>,
    seconds: f64,
) -> FunctionReport {
    FunctionReport {
        name: name.to_owned(),
        instances,
        instances_max: counts.instances_max,
        devices,
        instances_refused: counts.instances_refused,
        refusal: counts.refusal.clone(),
        migrations: counts.migrations,
        offered_per_s: counts.offered as f64 / seconds,
        processed_per_s: counts.processed as f64 / seconds,
        processed: counts.processed,
        unsent: counts.unsent,
        refused: counts.refused,
        late: counts.late,
        unfinished: counts.unfinished,
        latency_ms: Spread::of(&counts.latency),
        wait_ms: Spread::of(&counts.wait),
    }
}

fn ms(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"))
}

impl Report {
    /// The report as text tables.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let name = match self.name.as_str() {
            "" => "scenario",
            name => name,
        };
        let _ = writeln!(out, "{name}: {:.1} s, seed {}", self.seconds, self.seed);
        self.function_table(&mut out);
        self.device_table(&mut out);
        for function in &self.functions {
            if let Some(reason) = &function.refusal {
                let (name, n) = (&function.name, function.instances_refused);
                let _ = writeln!(out, "{name}: {n} instances refused; the first: {reason}");
            }
        }
        out
    }

    fn function_table(&self, out: &mut String) {
        let head = [
            "function", "inst.", "sent/s", "done/s", "mean ms", "p50", "p95", "p99", "max",
            "wait p95", "late", "refused", "unsent", "open", "on",
        ];
        let line = |f: &FunctionReport| {
            let more = if f.instances > f.devices.len() && !f.devices.is_empty() {
                " …"
            } else {
                ""
            };
            [
                f.name.clone(),
                f.instances.to_string(),
                format!("{:.1}", f.offered_per_s),
                format!("{:.1}", f.processed_per_s),
                ms(f.latency_ms.mean),
                ms(f.latency_ms.p50),
                ms(f.latency_ms.p95),
                ms(f.latency_ms.p99),
                ms(f.latency_ms.max),
                ms(f.wait_ms.p95),
                f.late.to_string(),
                f.refused.to_string(),
                f.unsent.to_string(),
                f.unfinished.to_string(),
                format!("{}{more}", f.devices.join(" ")),
            ]
        };
        let mut lines: Vec<_> = self.functions.iter().map(line).collect();
        if lines.len() > 1 {
            lines.push(line(&self.total));
        }
        table(out, &head.map(str::to_owned), &lines);
    }

    fn device_table(&self, out: &mut String) {
        let loads: u64 = self.devices.iter().map(|d| d.reconfigurations).sum();
        let replaced: u64 = self.devices.iter().map(|d| d.replaced).sum();
        let mut sorted: Vec<f64> = self.devices.iter().map(|d| d.utilization).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| sorted[((sorted.len() - 1) as f64 * part).round() as usize];
        let mean = self.utilization_sum / sorted.len() as f64;
        let _ = writeln!(
            out,
            "{} devices: utilization {:.2} % in all, mean {mean:.2} %, p5 {:.2}, p50 {:.2}, p95 {:.2}, max {:.2}; {loads} accelerators loaded, {replaced} in place of another; {} instances moved",
            sorted.len(),
            self.utilization_sum,
            at(0.05),
            at(0.5),
            at(0.95),
            at(1.0),
            self.total.migrations,
        );
        if self.devices.len() > DEVICES_SHOWN_MAX {
            return;
        }
        let head = [
            "device",
            "holds",
            "utilization %",
            "loaded",
            "loading %",
            "longest turn wait ms",
        ]
        .map(str::to_owned);
        let line = |d: &DeviceReport| {
            [
                d.id.clone(),
                d.accelerators.join(" "),
                format!("{:.2}", d.utilization),
                d.reconfigurations.to_string(),
                format!("{:.2}", d.loading),
                format!("{:.0}", d.turn_wait_max_ms),
            ]
        };
        let lines: Vec<_> = self.devices.iter().map(line).collect();
        table(out, &head, &lines);
    }
}

/// Columns as wide as their widest cell: names left-aligned, numbers right-aligned.
fn table<const N: usize>(out: &mut String, head: &[String; N], lines: &[[String; N]]) {
    let all = || std::iter::once(head).chain(lines);
    let widths: Vec<usize> = (0..N)
        .map(|n| all().map(|l| l[n].chars().count()).max().unwrap_or(0))
        .collect();
    let is_number = |n: usize| {
        let plain = |c: &String| c == "-" || c.parse::<f64>().is_ok();
        !lines.is_empty() && lines.iter().all(|l| plain(&l[n]))
    };
    let right: Vec<bool> = (0..N).map(is_number).collect();
    for line in all() {
        let mut text = String::new();
        for (n, cell) in line.iter().enumerate() {
            let width = widths[n];
            let _ = if right[n] {
                write!(text, "{cell:>width$}  ")
            } else {
                write!(text, "{cell:<width$}  ")
            };
        }
        let _ = writeln!(out, "  {}", text.trim_end());
    }
}
