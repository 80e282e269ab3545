//! New devices for instances that a device can no longer serve.
//!
//! Reconfiguring a region removes its accelerator from the instances that use it; draining removes
//! the device from all its instances. Each such instance moves to the first device in order that
//! holds the requested accelerator. Moves do not reconfigure devices, because one move could then
//! cause the next. The algorithm's check counts only total load; here each instance is placed with
//! its load (an equal part of its device's utilization), so that a hundred instances do not all
//! move to the same idle device.

use super::{Index, Placement, Request};
use crate::model::{
    Accelerator, Device, DeviceId, Function, Instance, InstanceId, Locality, UTILIZATION,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The move of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The instance.
    pub instance: InstanceId,
    /// The device that it loses.
    pub from: DeviceId,
    /// Its new device; `None` if it keeps the other devices of its pool.
    pub to: Option<Placement>,
}

/// An instance that no other device can serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stranded {
    /// The instance.
    pub instance: InstanceId,
    /// The reason, for the operator.
    pub reason: String,
}

/// New devices for a device's instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Instances that move.
    pub moves: Vec<Move>,
    /// Instances that cannot move.
    pub stranded: Vec<Stranded>,
}

impl Plan {
    /// Whether every instance keeps or gets a device.
    pub fn is_complete(&self) -> bool {
        self.stranded.is_empty()
    }
}

/// Plans the moves when a region gets another accelerator. Instances that match the device's future
/// state stay, and so do preemptible ones, which wait for their next turn. The plan is empty if the
/// device or region does not exist.
pub fn plan(index: &Index, device: &str, region: usize, accelerator: &Accelerator) -> Plan {
    let Some(device) = index.snapshot().devices.get(device) else {
        return Plan::default();
    };
    let mut changed = device.clone();
    if let Some(region) = changed.regions.get_mut(region) {
        region.planned = None;
        region.accelerator = Some(accelerator.clone());
    }
    leave(index, device, |function| {
        function.preemptible || changed.has_loaded(&function.query)
    })
}

/// As [`evacuate`]; the instances `near` get another device of the device's node, if one fits them.
pub fn evacuate_near(index: &Index, device: &str, near: impl Fn(&InstanceId) -> bool) -> Plan {
    match index.snapshot().devices.get(device) {
        Some(device) => leave_near(index, device, |_| false, near),
        None => Plan::default(),
    }
}

/// Plans the moves when all instances must leave a device.
pub fn evacuate(index: &Index, device: &str) -> Plan {
    match index.snapshot().devices.get(device) {
        Some(device) => leave(index, device, |_| false),
        None => Plan::default(),
    }
}

fn leave(index: &Index, device: &Device, stays: impl Fn(&Function) -> bool) -> Plan {
    leave_near(index, device, stays, |_| false)
}

fn leave_near(
    index: &Index,
    device: &Device,
    stays: impl Fn(&Function) -> bool,
    near: impl Fn(&InstanceId) -> bool,
) -> Plan {
    let snapshot = index.snapshot();
    let mut plan = Plan::default();
    let mut moved = Moved {
        index,
        share: device.utilization() / (device.instances.len().max(1) as f64),
        touched: BTreeMap::new(),
    };
    for id in &device.instances {
        let Some(instance) = snapshot.instances.get(id) else {
            continue;
        };
        let stranded = |reason: String| Stranded {
            instance: id.clone(),
            reason,
        };
        let Some(function) = snapshot.functions.get(&instance.function) else {
            let reason = format!("unknown function '{}'", instance.function);
            plan.stranded.push(stranded(reason));
            continue;
        };
        if stays(function) {
            continue;
        }
        let node = near(id).then_some(device.node.as_str());
        let to = moved.place(function, instance, node);
        if to.is_none() && !(function.pooled && instance.devices.len() > 1) {
            let query = &function.query;
            let mut reason = format!(
                "no other device that accepts instances holds an accelerator for '{query}'"
            );
            if function.memory_bytes > 0 {
                let bytes = function.memory_bytes;
                reason.push_str(&format!(" and has {bytes} bytes of unallocated memory"));
            }
            plan.stranded.push(stranded(reason));
            continue;
        }
        plan.moves.push(Move {
            instance: id.clone(),
            from: device.id.clone(),
            to,
        });
    }
    plan
}

/// The future state of devices, including the instances moved there.
struct Moved<'a> {
    index: &'a Index,
    /// Load of each moving instance, percent.
    share: f64,
    touched: BTreeMap<DeviceId, Device>,
}

impl Moved<'_> {
    /// A device for an instance, on `node` if one of that node fits.
    fn place(
        &mut self,
        function: &Function,
        instance: &Instance,
        node: Option<&str>,
    ) -> Option<Placement> {
        let policy = self.index.policy();
        let mut request = Request::instance(function, instance);
        if node.is_some() && request.locality != Locality::Require {
            (request.node, request.locality) = (node, Locality::Prefer);
        }
        let (own, near) = (request.node, request.locality == Locality::Prefer);
        // Exclude the devices that it already has.
        request.except = &instance.devices;
        let on_node = own.filter(|_| request.locality == Locality::Require);
        let requirement = request.requirement(on_node, &[]);
        let mut skip: Vec<DeviceId> = instance.devices.clone();
        skip.extend(self.touched.keys().cloned());
        let skipping = Request {
            except: &skip,
            ..request
        };
        let untouched = self.index.first_loaded(&skipping.requirement(on_node, &[]));
        // Instances that moved earlier are among a changed device's instances.
        let snapshot = self.index.snapshot();
        let fits = |d: &&Device| {
            requirement.unfit(snapshot, d).is_none()
                && policy.admits(d)
                && d.has_loaded(&function.query)
        };
        let candidates = self.touched.values().filter(fits).chain(untouched);
        let key = |d: &Device| {
            let far = near && own.is_some_and(|node| node != d.node);
            (far, policy.rank(d), d.id.clone())
        };
        let best = candidates.min_by_key(|d| key(d))?;
        let placement = Placement {
            device: best.id.clone(),
            node: best.node.clone(),
            region: best.region_for(&function.query),
            reconfigures: None,
        };
        let mut busier = best.clone();
        let utilization = best.utilization() + self.share;
        busier.metrics.insert(UTILIZATION.to_owned(), utilization);
        busier.instances.insert(instance.id.clone());
        self.touched.insert(busier.id.clone(), busier);
        Some(placement)
    }
}
