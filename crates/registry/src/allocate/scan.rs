//! The algorithm as written: it visits every device and keeps no state.

use super::Requirement;
use super::{
    as_loaded, assign, millionths, Alike, Decision, Found, Order, Placement, Policy, Reason,
    Refusal, Rejection, Request, Source, WHOLE,
};
use crate::model::{Device, DeviceState, Locality, Region, Snapshot};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Allocates an instance's devices, or returns the refusal.
///
/// # Errors
/// A [`Refusal`] that lists every device.
pub fn allocate(
    snapshot: &Snapshot,
    request: &Request<'_>,
    policy: &Policy,
) -> Result<Decision, Box<Refusal>> {
    let scan = Scan::new(snapshot, policy);
    assign(&scan, request).ok_or_else(|| Box::new(scan.refusal(request, &scan)))
}

pub(super) struct Scan<'a> {
    snapshot: &'a Snapshot,
    policy: &'a Policy,
    /// Free time by accelerator, over all eligible places.
    free: HashMap<String, u64>,
}

impl<'a> Scan<'a> {
    pub fn new(snapshot: &'a Snapshot, policy: &'a Policy) -> Scan<'a> {
        let mut free = HashMap::new();
        let counted = |d: &&Device| d.exclusive && policy.admits(d);
        for device in snapshot.devices.values().filter(counted) {
            for (n, region) in device.regions.iter().enumerate() {
                if let Some(accelerator) = region.holds() {
                    let room = WHOLE - millionths(device.region_utilization(n));
                    *free.entry(accelerator.key()).or_default() += room;
                }
            }
        }
        Scan {
            snapshot,
            policy,
            free,
        }
    }

    /// Free time of the other eligible places with an accelerator, without those that the same
    /// request is about to reconfigure.
    fn free_elsewhere(
        &self,
        key: &str,
        device: &Device,
        region: usize,
        taken: &[Placement],
    ) -> u64 {
        let all = self.free.get(key).copied().unwrap_or(0);
        let lost = taken.iter().filter_map(|t| {
            let (other, region) = (self.snapshot.devices.get(&t.device)?, t.region?);
            let holds = other.regions[region]
                .holds()
                .is_some_and(|a| a.key() == key);
            (t.reconfigures.is_some() && holds)
                .then(|| WHOLE - millionths(other.region_utilization(region)))
        });
        let own = WHOLE - millionths(device.region_utilization(region));
        all.saturating_sub(own + lost.sum::<u64>())
    }

    /// The region of a device whose accelerator can best be replaced, or why there is none.
    fn redistributable(&self, device: &Device, taken: &[Placement]) -> Result<usize, Reason> {
        let mut order: Vec<usize> = (0..device.regions.len()).collect();
        let used = |r: usize| millionths(device.region_utilization(r));
        order.sort_by_key(|r| (device.regions[*r].keeping(), used(*r), *r));
        let mut nearest: Option<(u64, Reason)> = None;
        for region in order {
            let Some(accelerator) = device.regions[region].holds() else {
                return Ok(region);
            };
            let needed = used(region);
            let free = self.free_elsewhere(&accelerator.key(), device, region, taken);
            if free >= needed {
                return Ok(region);
            }
            let lacking = needed - free;
            if nearest.as_ref().is_none_or(|(least, _)| lacking < *least) {
                let reason = Reason::Redistribution {
                    region,
                    accelerator: accelerator.clone(),
                    needed: needed as f64 / 1e6,
                    free: free as f64 / 1e6,
                };
                nearest = Some((lacking, reason));
            }
        }
        Err(nearest.map_or(Reason::NoRegion, |(_, reason)| reason))
    }

    /// The devices of a node, or of all nodes, that a request finds before it runs short.
    fn found(
        &self,
        request: &Request<'_>,
        node: Option<&str>,
        source: &impl Source,
    ) -> Vec<Placement> {
        let mut taken: Vec<Placement> = Vec::new();
        while taken.len() < request.count() {
            let Some(found) = source.best(&request.requirement(node, &taken)) else {
                break;
            };
            taken.push(found.placement);
        }
        taken
    }

    /// The reason of each device's rejection. `source` gives the same results as this scan and may
    /// be faster.
    pub fn refusal(&self, request: &Request<'_>, source: &impl Source) -> Refusal {
        let required = request.locality == Locality::Require;
        let mut short: BTreeMap<&str, Vec<Placement>> = BTreeMap::new();
        let mut taken = Vec::new();
        let found = if required && request.node.is_none() && request.devices > 1 {
            for node in self.nodes() {
                short.insert(node, self.found(request, Some(node), source));
            }
            short.values().map(Vec::len).max().unwrap_or(0) as u32
        } else {
            taken = self.found(request, request.node.filter(|_| required), source);
            taken.len() as u32
        };
        let given = |d: &&Device| !taken.iter().any(|t| t.device == d.id);
        let refused = self.snapshot.devices.values().filter(given);
        let devices = refused.map(|device| Rejection {
            device: device.id.clone(),
            reason: self.reason(request, device, &taken, &short),
        });
        Refusal {
            query: request.query.to_string(),
            requested: request.count() as u32,
            found,
            devices: devices.collect(),
        }
    }

    fn reason(
        &self,
        request: &Request<'_>,
        device: &Device,
        taken: &[Placement],
        short: &BTreeMap<&str, Vec<Placement>>,
    ) -> Reason {
        if device.state != DeviceState::Ready {
            return Reason::State(device.state);
        }
        let node = request
            .node
            .filter(|_| request.locality == Locality::Require);
        if let Some(reason) = request.requirement(node, &[]).unfit(self.snapshot, device) {
            return reason;
        }
        if let Some(reason) = self.policy.outside(device) {
            return reason;
        }
        // Devices that its node would have provided already count: load cannot move there any more.
        let taken = match short.get(device.node.as_str()) {
            Some(given) if given.iter().any(|t| t.device == device.id) => {
                return Reason::NodeShort {
                    found: given.len() as u32,
                };
            }
            Some(given) => given,
            None => taken,
        };
        match self.redistributable(device, taken) {
            Err(reason) => reason,
            Ok(_) => Reason::Unlike,
        }
    }
}

/// A device with its position in the order: whether it is far, its order, and its id.
type Candidate<'a> = (bool, Order, &'a Device, Placement);

fn first<'a>(candidates: impl Iterator<Item = Candidate<'a>>) -> Option<Candidate<'a>> {
    candidates.min_by(|a, b| (a.0, &a.1, &a.2.id).cmp(&(b.0, &b.1, &b.2.id)))
}

impl Source for Scan<'_> {
    fn best(&self, requirement: &Requirement<'_>) -> Option<Found> {
        let like = match requirement.alike {
            Some(first) => Some(Alike::to(first, self.snapshot.devices.get(&first.device)?)?),
            None => None,
        };
        // Lines 2 and 3: filter by compatibility and by metrics.
        let fits = |d: &&Device| {
            requirement.unfit(self.snapshot, d).is_none()
                && self.policy.admits(d)
                && like.as_ref().is_none_or(|l| l.accepts(d))
        };
        let far = |d: &Device| requirement.prefer.is_some_and(|node| node != d.node);
        let all = || self.snapshot.devices.values().filter(fits);
        // Line 4: order by accelerator, then by what is lost, then metrics.
        let loaded = all().filter(|d| d.has_loaded(requirement.request.query));
        let loaded = loaded.map(|d| {
            let mut order = Order::keeping(self.policy.rank(d));
            if requirement.request.takes_turns && d.exclusive {
                order.images = self.snapshot.images(d);
                order.loses = d.regions.iter().filter_map(Region::keeping).min();
            }
            (far(d), order, d, as_loaded(requirement, d, like.as_ref()))
        });
        if let Some((_, order, device, placement)) = first(loaded) {
            return Some(Found {
                key: (false, order, device.id.clone()),
                placement,
            });
        }
        // Lines 6 to 17.
        let replaced = all().filter_map(|device| {
            let region = self.redistributable(device, requirement.taken).ok()?;
            let loses = device.regions[region].keeping();
            let placement = Placement {
                device: device.id.clone(),
                node: device.node.clone(),
                region: Some(region),
                reconfigures: Some(device.regions[region].holds().cloned()),
            };
            let order = Order::losing(loses, self.policy.rank(device));
            Some((far(device), order, device, placement))
        });
        let (_, order, device, placement) = first(replaced)?;
        Some(Found {
            key: (true, order, device.id.clone()),
            placement,
        })
    }

    fn nodes(&self) -> Vec<&str> {
        let nodes = self.snapshot.devices.values().map(|d| d.node.as_str());
        let unique: BTreeSet<&str> = nodes.collect();
        unique.into_iter().collect()
    }
}
