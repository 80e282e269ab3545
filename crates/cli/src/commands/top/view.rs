//! The values that `baltra top` shows: differences of two samples.

use crate::output::{self, Table};
use baltra_api::control as proto;
use serde_json::json;
use std::collections::HashMap;

/// One sample.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The devices.
    pub devices: proto::DevicesReply,
    /// Usage by tenant.
    pub usage: proto::UsageReply,
}

/// A device between two samples.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceRow {
    /// Its state at the second sample.
    pub device: proto::Device,
    /// Device time divided by elapsed time, summed over tenants: may exceed 1 if they run
    /// concurrently.
    pub utilization: f64,
    /// Tasks a second.
    pub tasks_per_s: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
}

/// A tenant on a device between two samples.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantRow {
    /// Its state at the second sample.
    pub usage: proto::Usage,
    /// Device time divided by elapsed time.
    pub utilization: f64,
    /// Tasks a second.
    pub tasks_per_s: f64,
}

/// All rows.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    devices: Vec<DeviceRow>,
    tenants: Vec<TenantRow>,
}

fn rate(new: u64, old: u64, elapsed_ns: u64) -> f64 {
    new.saturating_sub(old) as f64 / elapsed_ns.max(1) as f64
}

impl View {
    /// The differences between two samples.
    pub fn between(first: &Sample, second: &Sample) -> View {
        let old: HashMap<&str, &proto::Device> = first
            .devices
            .devices
            .iter()
            .map(|d| (d.name.as_str(), d))
            .collect();
        let devices = second.devices.devices.iter().map(|new| {
            let (busy, tasks, bytes, at) = match old.get(new.name.as_str()) {
                Some(o) => (o.busy_ns, o.tasks, o.bytes, o.at_ns),
                None => (new.busy_ns, new.tasks, new.bytes, 0),
            };
            let elapsed = new.at_ns.saturating_sub(at);
            DeviceRow {
                utilization: rate(new.busy_ns, busy, elapsed),
                tasks_per_s: rate(new.tasks, tasks, elapsed) * 1e9,
                bytes_per_s: rate(new.bytes, bytes, elapsed) * 1e9,
                device: new.clone(),
            }
        });
        let elapsed = second.usage.at_ns.saturating_sub(first.usage.at_ns);
        let old: HashMap<_, _> = first
            .usage
            .usage
            .iter()
            .map(|u| ((u.tenant.as_str(), u.device.as_str()), (u.busy_ns, u.tasks)))
            .collect();
        let mut tenants: Vec<TenantRow> = second
            .usage
            .usage
            .iter()
            .map(|new| {
                let key = (new.tenant.as_str(), new.device.as_str());
                let (busy, tasks) = old.get(&key).copied().unwrap_or((0, 0));
                TenantRow {
                    utilization: rate(new.busy_ns, busy, elapsed),
                    tasks_per_s: rate(new.tasks, tasks, elapsed) * 1e9,
                    usage: new.clone(),
                }
            })
            .filter(|row| row.usage.sessions_open > 0 || row.utilization > 0.0)
            .collect();
        tenants.sort_by(|a, b| b.utilization.total_cmp(&a.utilization));
        View {
            devices: devices.collect(),
            tenants,
        }
    }

    /// The devices.
    pub fn device_rows(&self) -> &[DeviceRow] {
        &self.devices
    }

    /// The devices, as a table.
    pub fn devices(&self) -> Table {
        let mut table = Table::new(&[
            "DEVICE",
            "STATE",
            ">BUSY",
            ">TASKS/S",
            ">MOVED/S",
            ">WAITING",
            ">SESSIONS",
            ">EXECUTORS",
            ">MEMORY",
            "IMAGE",
        ]);
        for row in &self.devices {
            let d = &row.device;
            table.row([
                d.name.clone(),
                d.state.clone(),
                percent(row.utilization),
                count(row.tasks_per_s),
                output::bytes(row.bytes_per_s as u64),
                d.waiting.to_string(),
                d.sessions.to_string(),
                d.executors.to_string(),
                output::bytes(d.memory_used_bytes),
                d.image.chars().take(12).collect(),
            ]);
        }
        table
    }

    /// The tenants as a table, the busiest first. The columns of swapping are there if a device
    /// swaps.
    pub fn tenants(&self) -> Table {
        let swaps = |row: &TenantRow| {
            let u = &row.usage;
            u.resident_bytes | u.swapped_bytes | u.moved_bytes > 0
        };
        let swaps = self.tenants.iter().any(swaps);
        let mut head = vec![
            "TENANT",
            "DEVICE",
            ">BUSY",
            ">TASKS/S",
            "GATE",
            ">SESSIONS",
            ">MEMORY",
        ];
        if swaps {
            head.extend([">RESIDENT", ">SWAPPED", ">SWAP TRAFFIC"]);
        }
        head.push(">DEVICE SECONDS");
        let mut table = Table::new(&head);
        for row in &self.tenants {
            let u = &row.usage;
            let mut cells = vec![
                u.tenant.clone(),
                u.device.clone(),
                percent(row.utilization),
                count(row.tasks_per_s),
                u.gate.clone(),
                u.sessions_open.to_string(),
                output::bytes(u.memory_used_bytes),
            ];
            if swaps {
                let columns = [u.resident_bytes, u.swapped_bytes, u.moved_bytes];
                cells.extend(columns.map(output::bytes));
            }
            cells.push(format!("{:.3}", u.busy_ns as f64 / 1e9));
            table.row(cells);
        }
        table
    }

    /// The view as JSON.
    pub fn json(&self) -> serde_json::Value {
        let devices = self.devices.iter().map(|row| {
            let mut device = crate::commands::devices::device_json(&row.device);
            device["utilization"] = json!(row.utilization);
            device["tasks_per_s"] = json!(row.tasks_per_s);
            device["bytes_per_s"] = json!(row.bytes_per_s);
            device
        });
        let tenants = self.tenants.iter().map(|row| {
            let mut usage = crate::commands::tenant::usage_json(&row.usage);
            usage["utilization"] = json!(row.utilization);
            usage["tasks_per_s"] = json!(row.tasks_per_s);
            usage
        });
        json!({
            "devices": devices.collect::<Vec<_>>(),
            "tenants": tenants.collect::<Vec<_>>(),
        })
    }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn count(n: f64) -> String {
    match n {
        n if n >= 10_000.0 => format!("{:.1} k", n / 1000.0),
        n => format!("{n:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ns: u64, busy_ns: u64, tasks: u64) -> Sample {
        let device = proto::Device {
            name: "cpu".into(),
            busy_ns,
            tasks,
            at_ns,
            ..Default::default()
        };
        let usage = |tenant: &str, busy_ns| proto::Usage {
            tenant: tenant.into(),
            device: "cpu".into(),
            busy_ns,
            ..Default::default()
        };
        Sample {
            devices: proto::DevicesReply {
                devices: vec![device],
            },
            usage: proto::UsageReply {
                usage: vec![usage("idle", 5), usage("red", busy_ns)],
                at_ns,
            },
        }
    }

    #[test]
    fn utilization_is_busy_time_over_time() {
        let view = View::between(&sample(0, 0, 0), &sample(1_000_000_000, 250_000_000, 40));
        assert_eq!(view.devices[0].utilization, 0.25);
        assert_eq!(view.devices[0].tasks_per_s, 40.0);
        assert_eq!(view.tenants.len(), 1, "who does nothing is not shown");
        assert_eq!(view.tenants[0].usage.tenant, "red");
    }

    #[test]
    fn two_looks_at_one_instant_divide_by_nothing() {
        let view = View::between(&sample(7, 9, 9), &sample(7, 9, 9));
        assert_eq!(view.devices[0].utilization, 0.0);
    }
}
