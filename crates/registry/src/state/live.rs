//! The nodes' last reports.

use crate::model;
use crate::moves::Moves;
use crate::records::{AcceleratorRecord, DeviceRecord};
use baltra_api::query::{Field, Query};
use baltra_api::registry::{self as proto, DeviceLoad};
use baltra_eviction::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Whether a node is usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The node is in the store, and has sent no heartbeat since the registry started.
    Unconfirmed,
    /// Its lease is valid.
    Ready,
    /// Its lease expired, or it deregistered.
    Silent,
}

/// A node's last report.
#[derive(Clone, Debug)]
pub struct LiveNode {
    /// Its phase.
    pub phase: Phase,
    /// Time of its last heartbeat, by the lease clock.
    pub last_heartbeat: Duration,
    /// Its manager's uptime at that time, seconds.
    pub uptime_s: Option<u64>,
    /// Tenants' shares other than 1.
    pub weights: BTreeMap<String, u32>,
    /// Reports of its devices, by name.
    pub devices: BTreeMap<String, LiveDevice>,
    /// The accelerators in its store.
    pub stored: BTreeSet<model::Stored>,
    /// Operators' orders to end tasks, until the tasks are no longer reported.
    pub ends: Vec<proto::TaskEnd>,
    /// Operators' orders to move sessions, and their results.
    pub moves: Moves,
    /// Whether it left the pool at its own request.
    pub has_left: bool,
}

impl LiveNode {
    /// A node without a report.
    pub(super) fn unconfirmed(now: Duration) -> LiveNode {
        LiveNode {
            phase: Phase::Unconfirmed,
            last_heartbeat: now,
            uptime_s: None,
            weights: BTreeMap::new(),
            devices: BTreeMap::new(),
            stored: BTreeSet::new(),
            ends: Vec::new(),
            moves: Moves::default(),
            has_left: false,
        }
    }

    /// Whether the last report lists a task.
    pub fn is_running(&self, task: &proto::TaskEnd) -> bool {
        let device = self.devices.get(&task.device);
        let mut running = device.into_iter().flat_map(|d| &d.load.running);
        running.any(|r| (r.lease, r.started_ns) == (task.lease, task.started_ns))
    }

    /// Whether the last report of a device lists a session.
    pub fn has_session(&self, device: &str, session: u64) -> bool {
        let device = self.devices.get(device);
        device.is_some_and(|d| d.load.open.iter().any(|s| s.id == session))
    }

    /// Removes the orders whose tasks have ended.
    pub(super) fn forget_ended(&mut self) {
        let ends = std::mem::take(&mut self.ends);
        self.ends = ends.into_iter().filter(|e| self.is_running(e)).collect();
    }
}

/// A node's last report of a device.
#[derive(Clone, Debug, Default)]
pub struct LiveDevice {
    /// The reported load.
    pub load: DeviceLoad,
    /// Utilization, percent.
    pub utilization: f64,
    /// The values of keeping the regions' accelerators, by region.
    pub values: BTreeMap<u32, Value>,
}

impl LiveDevice {
    /// Applies a heartbeat that is received at a time of the lease clock, and computes the values
    /// that it does not report.
    pub(super) fn update(&mut self, load: DeviceLoad, slots: u32, now: Duration) {
        let before = &self.load;
        // A counter that decreased starts from its new value: the manager restarted.
        let counts =
            before.at_ns > 0 && load.at_ns > before.at_ns && load.busy_ns >= before.busy_ns;
        self.utilization = match load.utilization {
            Some(reported) if reported.is_finite() => reported.clamp(0.0, 100.0),
            _ if counts => {
                let time = (load.at_ns - before.at_ns) as f64 * f64::from(slots.max(1));
                ((load.busy_ns - before.busy_ns) as f64 * 100.0 / time).clamp(0.0, 100.0)
            }
            _ => self.utilization,
        };
        let value = |r: &proto::Region| {
            let load = Duration::try_from_secs_f64(r.load_ms / 1e3).unwrap_or_default();
            (r.index, Value::of(r.recent_uses, load, now))
        };
        self.values = load.regions.iter().map(value).collect();
        self.load = load;
    }
}

/// The allocator's model of a device's regions.
pub(super) fn regions(device: &DeviceRecord, live: Option<&LiveDevice>) -> Vec<model::Region> {
    let loaded = live.map_or(&[][..], |live| &live.load.regions);
    let accelerator = |r: &proto::Region| model::Accelerator {
        name: r.name.clone(),
        digest: r.digest.clone(),
    };
    if !device.exclusive {
        let region = |r| model::Region {
            accelerator: Some(accelerator(r)),
            ..model::Region::default()
        };
        return loaded.iter().map(region).collect();
    }
    let region = |index: u32| {
        let pending = device.pending.get(&index);
        model::Region {
            accelerator: loaded.iter().find(|r| r.index == index).map(accelerator),
            planned: pending.map(|p| model::Accelerator {
                name: p.name.clone(),
                digest: p.digest.clone(),
            }),
            utilization: None,
            value: live
                .and_then(|live| live.values.get(&index).copied())
                .unwrap_or_default(),
        }
    };
    (0..device.regions.max(1)).map(region).collect()
}

/// The regions that hold their planned accelerator.
pub fn settled(device: &DeviceRecord, load: &DeviceLoad) -> Vec<u32> {
    let holds = |index: u32, pending: &AcceleratorRecord| {
        let mut regions = load.regions.iter().filter(|r| r.index == index);
        regions.any(|r| is_same(pending, &r.name, &r.digest))
    };
    let pending = device.pending.iter();
    pending
        .filter(|(i, p)| holds(**i, p))
        .map(|(i, _)| *i)
        .collect()
}

/// Whether an accelerator is the planned one: by digest if known, otherwise by the name in the
/// query.
pub fn is_same(meant: &AcceleratorRecord, name: &str, digest: &str) -> bool {
    if !meant.digest.is_empty() {
        return meant.digest == digest;
    }
    let accelerator = model::Accelerator {
        name: name.to_owned(),
        digest: digest.to_owned(),
    };
    // The name is a pattern if the query's was one.
    let query = Query::any().with(Field::Accelerator, &meant.name);
    meant.name == name || query.is_ok_and(|q| q.accepts_accelerator(&accelerator))
}

/// The accelerator's name in a query; empty: any.
pub fn accelerator_name(query: &Query) -> String {
    let term = query.term(Field::Accelerator);
    term.map(|t| t.exact().unwrap_or_else(|| t.to_string()))
        .unwrap_or_default()
}
