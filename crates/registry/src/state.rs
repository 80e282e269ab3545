//! Current state: the store's image, the nodes' last reports, and the running leases.
//!
//! This module does no I/O. Times are those of the lease clock ([`crate::clock::LeaseClock`]).
//! Every change also updates the allocator's [`Index`].

mod live;
mod relocations;
#[cfg(test)]
mod tests;

pub use live::{accelerator_name, is_same, settled, LiveDevice, LiveNode, Phase};
pub use relocations::{Relocation, Relocations};

use crate::allocate::{Index, Policy};
use crate::clock::LeaseClock;
use crate::failure::Failure;
use crate::model::{self, DeviceId, DeviceState, Locality, MovePolicy, UTILIZATION};
use crate::options::QUEUE_WAIT_MS;
use crate::prometheus::{Named, Values};
use crate::records::{Change, DeviceRecord, Image, InstanceRecord, NodeRecord};
use baltra_api::query::Query;
use baltra_api::registry::{DeviceLoad, SessionMoved, TaskEnd};
use baltra_eviction::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;
use tonic::Status;

/// Reason of a node that this registry has not received a heartbeat of.
const UNCONFIRMED: &str = "its node has sent no heartbeat since the registry started";

/// The registry's memory.
pub struct State {
    /// The store's content.
    image: Image,
    /// Live state by node name; the same names as in the image.
    live: BTreeMap<String, LiveNode>,
    /// Ends of instances' leases; instances without an entry are held until they are released.
    leases: BTreeMap<String, Duration>,
    /// The allocator's view.
    index: Index,
    /// Queries of pools, parsed, by name.
    pools: BTreeMap<String, Query>,
    /// By metric: the time of the query, and its values.
    external: BTreeMap<String, (Duration, Values)>,
    /// Instances whose sessions move.
    relocations: Relocations,
    clock: LeaseClock,
    terms: Terms,
}

/// The state's time limits.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The rules of allocation.
    pub policy: Policy,
    /// Restriction of devices' nodes for an instance.
    pub locality: Locality,
    /// The lease of a node.
    pub lease: Duration,
    /// Grace period for the store's nodes after a start.
    pub grace: Duration,
    /// A node without heartbeats for this long is removed.
    pub forget: Duration,
    /// Policy for the programs of instances that have to leave a device.
    pub move_policy: MovePolicy,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("nodes", &self.image.nodes.len())
            .field("instances", &self.image.instances.len())
            .finish_non_exhaustive()
    }
}

/// Changes caused by the passing of time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Nodes whose lease ended just now.
    pub silent: Vec<String>,
    /// Nodes to remove.
    pub forgotten: Vec<String>,
    /// Instances whose lease expired.
    pub expired: Vec<String>,
}

/// The id of a device, unique in the system.
pub fn device_id(node: &str, device: &str) -> DeviceId {
    format!("{node}/{device}")
}

impl State {
    /// The state after a start: all nodes of the store are unconfirmed.
    pub fn new(image: Image, clock: LeaseClock, terms: Terms) -> State {
        let mut state = State {
            image: Image::default(),
            live: BTreeMap::new(),
            leases: BTreeMap::new(),
            index: Index::new(model::Snapshot::default(), terms.policy.clone()),
            pools: BTreeMap::new(),
            external: BTreeMap::new(),
            relocations: Relocations::default(),
            clock,
            terms,
        };
        state.replace(image);
        state
    }

    /// The store's content.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The allocator's view.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Replaces the store's content, and keeps the state that is not persisted.
    pub fn replace(&mut self, image: Image) {
        let now = self.clock.now();
        self.live.retain(|name, _| image.nodes.contains_key(name));
        for name in image.nodes.keys() {
            let live = self.live.entry(name.clone());
            live.or_insert_with(|| LiveNode::unconfirmed(now));
        }
        self.leases
            .retain(|name, _| image.instances.contains_key(name));
        for instance in image.instances.values().filter(|i| i.lease_s > 0) {
            let end = now + self.terms.grace + lease(instance);
            self.leases.entry(instance.name.clone()).or_insert(end);
        }
        self.pools.clear();
        for pool in image.pools.values() {
            self.pools
                .insert(pool.name.clone(), pool.query.query().clone());
        }
        self.index = Index::new(model::Snapshot::default(), self.terms.policy.clone());
        self.index_stored();
        for instance in image.instances.values() {
            self.index.put_function(self.demand(instance));
            self.index.put_instance(placed(instance));
        }
        self.image = image;
        self.refresh_all();
    }

    /// Applies changes that the store has written.
    pub fn apply(&mut self, changes: Vec<Change>) {
        let now = self.clock.now();
        let mut nodes = Vec::new();
        let mut all = false;
        for change in &changes {
            match change {
                Change::PutNode(node) => {
                    let live = self.live.entry(node.name.clone());
                    let live = live.or_insert_with(|| LiveNode::unconfirmed(now));
                    live.devices.retain(|d, _| node.devices.contains_key(d));
                    self.drop_devices(&node.name, |d| node.devices.contains_key(d));
                    nodes.push(node.name.clone());
                }
                Change::RemoveNode(name) => {
                    self.stored(name, BTreeSet::new());
                    self.live.remove(name);
                    self.drop_devices(name, |_| false);
                }
                Change::PutInstance(instance) => {
                    let name = instance.name.clone();
                    match instance.lease_s {
                        0 => _ = self.leases.remove(&name),
                        _ => _ = self.leases.insert(name, now + lease(instance)),
                    }
                    self.index.put_function(self.demand(instance));
                    self.index.put_instance(placed(instance));
                }
                Change::RemoveInstance(name) => {
                    self.leases.remove(name);
                    self.index.remove_instance(name);
                    self.index.remove_function(name);
                }
                Change::PutPool(pool) => {
                    self.pools
                        .insert(pool.name.clone(), pool.query.query().clone());
                    all = true;
                }
                Change::RemovePool(name) => {
                    self.pools.remove(name);
                    all = true;
                }
                Change::PutFunction(..) | Change::RemoveFunction(_) => {}
            }
        }
        self.image.apply(changes);
        if all {
            return self.refresh_all();
        }
        for node in nodes {
            self.refresh(&node);
        }
    }

    fn drop_devices(&mut self, node: &str, stays: impl Fn(&str) -> bool) {
        let Some(before) = self.image.nodes.get(node) else {
            return;
        };
        for device in before.devices.keys().filter(|d| !stays(d)) {
            self.index.remove_device(&device_id(node, device));
        }
    }

    /// A node and its last report.
    pub fn node(&self, name: &str) -> Option<(&NodeRecord, &LiveNode)> {
        Some((self.image.nodes.get(name)?, self.live.get(name)?))
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeRecord, &LiveNode)> {
        let nodes = self.image.nodes.values();
        nodes.filter_map(|n| Some((n, self.live.get(&n.name)?)))
    }

    /// A device by node/name.
    pub fn device(&self, id: &str) -> Option<(&NodeRecord, &LiveNode, &DeviceRecord)> {
        let (node, device) = id.split_once('/')?;
        let (record, live) = self.node(node)?;
        Some((record, live, record.devices.get(device)?))
    }

    /// The instances that a device is allocated to.
    pub fn holders(&self, id: &str) -> impl Iterator<Item = &String> {
        let device = self.index.snapshot().devices.get(id);
        device.into_iter().flat_map(|d| &d.instances)
    }

    /// Policy for the programs of instances that have none of their own.
    pub(crate) fn move_policy(&self) -> MovePolicy {
        self.terms.move_policy
    }

    /// The instances whose sessions move.
    pub(crate) fn relocations(&self) -> &Relocations {
        &self.relocations
    }

    /// For changes, which are not stored.
    pub(crate) fn relocations_mut(&mut self) -> &mut Relocations {
        &mut self.relocations
    }

    /// Advances the lease clock.
    pub fn advance(&mut self, monotonic: Duration) {
        self.clock.advance(monotonic);
    }

    /// The lease clock's time.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Records a registration. The node's last report stays until its next heartbeat, unless it was
    /// away.
    pub fn registered(&mut self, node: &str) {
        let now = self.clock.now();
        if let Some(live) = self.live.get_mut(node) {
            if live.phase != Phase::Ready {
                live.devices.clear();
                live.uptime_s = None;
            }
            live.phase = Phase::Ready;
            live.last_heartbeat = now;
        }
        self.refresh(node);
    }

    /// Records a heartbeat. Returns true if a device now holds its planned accelerator.
    pub fn record_heartbeat(&mut self, node: &str, devices: Vec<DeviceLoad>) -> bool {
        let now = self.clock.now();
        let (Some(record), Some(live)) = (self.image.nodes.get(node), self.live.get_mut(node))
        else {
            return false;
        };
        live.phase = Phase::Ready;
        live.has_left = false;
        live.last_heartbeat = now;
        let mut settled = false;
        for load in devices {
            if let Some(device) = record.devices.get(&load.name) {
                settled |= !live::settled(device, &load).is_empty();
                let live = live.devices.entry(load.name.clone()).or_default();
                live.update(load, device.slots, now);
            }
        }
        live.forget_ended();
        let reported: Vec<DeviceId> = record
            .devices
            .keys()
            .map(|device| device_id(node, device))
            .collect();
        for id in reported {
            self.index
                .update_device(&id, |device| device.foreseen = 0.0);
        }
        self.refresh(node);
        settled
    }

    /// Records a heartbeat's part about the node's manager: its uptime, and its tenants' shares.
    pub fn up(&mut self, node: &str, uptime_s: u64, weights: BTreeMap<String, u32>) {
        if let Some(live) = self.live.get_mut(node) {
            live.uptime_s = Some(uptime_s);
            live.weights = weights;
        }
    }

    /// Orders a node to end a running task. False if the node does not report that task.
    pub fn end_task(&mut self, node: &str, task: TaskEnd) -> bool {
        let live = self.live.get_mut(node);
        let Some(live) = live.filter(|l| l.phase == Phase::Ready && l.is_running(&task)) else {
            return false;
        };
        // At most one order for each reported task.
        if !live.ends.contains(&task) {
            live.ends.push(task);
        }
        true
    }

    /// Orders a node to move a session; returns the order's id.
    pub fn move_session(
        &mut self,
        node: &str,
        from: &str,
        session: u64,
        to: &str,
    ) -> Result<String, Status> {
        let now = self.clock.now();
        let live = self.live.get_mut(node);
        let Some(live) = live.filter(|l| l.phase == Phase::Ready && l.has_session(from, session))
        else {
            return Err(Failure::NotFound.status(format!(
                "device '{node}/{from}' has no session {session}: it has ended or moved, or its node does not respond"
            )));
        };
        live.moves.order(session, (from, to), now)
    }

    /// Records the results of moves that a node reports.
    pub fn moved(&mut self, node: &str, results: Vec<SessionMoved>) {
        let now = self.clock.now();
        if let Some(live) = self.live.get_mut(node) {
            live.moves.report(results, now);
        }
    }

    /// Why no device of a node can be used; empty: they can.
    pub fn silence(&self, live: &LiveNode) -> String {
        match live.phase {
            Phase::Ready => String::new(),
            Phase::Unconfirmed => UNCONFIRMED.into(),
            Phase::Silent if live.has_left => {
                "its manager has left the pool: it was stopped in an orderly way".into()
            }
            Phase::Silent => format!(
                "its lease of {} s has expired: its manager, its host or the network between has failed",
                self.terms.lease.as_secs_f64()
            ),
        }
    }

    /// Records the accelerators in a node's store.
    pub fn stored(&mut self, node: &str, stored: BTreeSet<model::Stored>) {
        let Some(live) = self.live.get_mut(node) else {
            return;
        };
        if live.stored == stored {
            return;
        }
        live.stored = stored;
        self.index_stored();
    }

    /// Whether a node's store has an accelerator that a query selects.
    pub fn has_stored(&self, node: &str, query: &Query) -> bool {
        let live = self.live.get(node);
        live.is_some_and(|n| {
            n.stored
                .iter()
                .any(|s| query.accepts_accelerator(&s.accelerator))
        })
    }

    fn index_stored(&mut self) {
        let all = self.live.values().flat_map(|n| n.stored.iter().cloned());
        self.index.set_stored(all.collect());
    }

    /// Records a node's departure.
    pub fn gone(&mut self, node: &str) {
        if let Some(live) = self.live.get_mut(node) {
            live.phase = Phase::Silent;
            live.has_left = true;
        }
        self.refresh(node);
    }

    /// Sets a region's accelerator until the next heartbeat reports it.
    pub fn loaded(&mut self, node: &str, device: &str, region: baltra_api::registry::Region) {
        let live = self.live.get_mut(node);
        if let Some(live) = live.and_then(|n| n.devices.get_mut(device)) {
            live.load.regions.retain(|r| r.index != region.index);
            live.values.remove(&region.index);
            if !(region.digest.is_empty() && region.name.is_empty()) {
                // It has been requested, and its uses are not known before the next heartbeat.
                live.values.insert(region.index, Value::PLANNED);
                live.load.regions.push(region);
            }
        }
        self.refresh(node);
    }

    /// Records an instance's renewal.
    pub fn renewed(&mut self, instance: &str) {
        let now = self.clock.now();
        let record = self.image.instances.get(instance);
        if let (Some(record), Some(end)) = (record, self.leases.get_mut(instance)) {
            *end = now + lease(record);
        }
    }

    /// Applies the passing of time. Nodes become silent; the returned changes have to be written.
    pub fn sweep(&mut self, monotonic: Duration) -> Swept {
        let now = self.clock.advance(monotonic);
        let mut swept = Swept::default();
        for (name, live) in &mut self.live {
            let silent_for = now.saturating_sub(live.last_heartbeat);
            let allowed = match live.phase {
                Phase::Unconfirmed => self.terms.grace,
                _ => self.terms.lease,
            };
            if live.phase != Phase::Silent && silent_for > allowed {
                live.phase = Phase::Silent;
                swept.silent.push(name.clone());
            }
            if live.phase == Phase::Silent && silent_for > self.terms.forget {
                swept.forgotten.push(name.clone());
            }
        }
        for node in &swept.silent {
            self.refresh(node);
        }
        let over = self.leases.iter().filter(|(_, end)| now > **end);
        swept.expired = over.map(|(name, _)| name.clone()).collect();
        swept
    }

    /// Sets the values of a metric from an external query.
    pub fn measured(&mut self, metric: &str, values: Values) {
        let now = self.clock.now();
        self.external.insert(metric.to_owned(), (now, values));
        self.refresh_all();
    }

    /// Drops outdated values of external queries: heartbeats count again.
    pub fn forget_measured(&mut self, age_max: Duration) {
        let (now, before) = (self.clock.now(), self.external.len());
        self.external
            .retain(|_, (at, _)| now.saturating_sub(*at) <= age_max);
        if self.external.len() != before {
            self.refresh_all();
        }
    }

    /// The devices' names and labels for a Prometheus server.
    pub fn named(&self) -> Vec<Named> {
        let of_node = |node: &NodeRecord| {
            let names = node.devices.keys().map(|device| Named {
                node: node.name.clone(),
                device: device.clone(),
                metrics: node.metrics.clone(),
            });
            names.collect::<Vec<_>>()
        };
        self.image.nodes.values().flat_map(of_node).collect()
    }

    /// Why a device cannot be used: its state, and the reason as text.
    pub fn trouble(&self, live: &LiveNode, device: &str) -> Option<(&'static str, String)> {
        let failure = live.devices.get(device).map(|d| d.load.failure.as_str());
        let (state, reason) = match (live.phase, failure) {
            (Phase::Unconfirmed, _) => ("unconfirmed", UNCONFIRMED),
            (Phase::Silent, _) => ("silent", "its node sends no heartbeats"),
            (Phase::Ready, None) => ("unconfirmed", "no heartbeat has reported it yet"),
            (Phase::Ready, Some("")) => return None,
            (Phase::Ready, Some(failure)) => ("failed", failure),
        };
        Some((state, reason.to_owned()))
    }

    /// Updates all devices in the allocator's index.
    fn refresh_all(&mut self) {
        let nodes: Vec<String> = self.image.nodes.keys().cloned().collect();
        for node in nodes {
            self.refresh(&node);
        }
    }

    /// Updates a node's devices in the allocator's index.
    fn refresh(&mut self, node: &str) {
        let Some((record, live)) = self.node(node) else {
            return;
        };
        let devices = record.devices.values();
        let devices: Vec<model::Device> = devices.map(|d| self.model(record, live, d)).collect();
        for mut device in devices {
            device.pool = pool_of(&self.pools, &device).unwrap_or_default();
            let id = device.id.clone();
            let mut device = Some(device);
            let known = self.index.update_device(&id, |known| {
                if let Some(device) = device.take() {
                    let foreseen = known.foreseen;
                    *known = device;
                    known.foreseen = foreseen;
                }
            });
            if let (None, Some(device)) = (known, device) {
                self.index.put_device(device);
            }
        }
    }

    /// The allocator's model of a device, without its instances and its pool.
    fn model(&self, node: &NodeRecord, live: &LiveNode, device: &DeviceRecord) -> model::Device {
        let state = match self.trouble(live, &device.name) {
            Some(_) => DeviceState::Lost,
            None if device.draining => DeviceState::Draining,
            None if device.cordoned => DeviceState::Cordoned,
            None => DeviceState::Ready,
        };
        let last_heartbeat = live.devices.get(&device.name);
        model::Device {
            id: device_id(&node.name, &device.name),
            name: device.name.clone(),
            node: node.name.clone(),
            endpoints: node.endpoints.clone(),
            vendor: device.vendor.clone(),
            platform: device.platform.clone(),
            profile: device.profile.clone(),
            model: device.model.clone(),
            region_count: device.regions.to_string(),
            labels: device.labels.clone(),
            exclusive: device.exclusive,
            memory_bytes: device.memory_bytes,
            regions: live::regions(device, last_heartbeat),
            state,
            metrics: self.metrics(&node.name, &device.name, last_heartbeat),
            ..model::Device::default()
        }
    }

    /// A device's metrics: those of heartbeats, replaced by those of external queries.
    fn metrics(
        &self,
        node: &str,
        device: &str,
        last_heartbeat: Option<&LiveDevice>,
    ) -> BTreeMap<String, f64> {
        let mut metrics = BTreeMap::new();
        if let Some(last_heartbeat) = last_heartbeat {
            metrics.insert(UTILIZATION.to_owned(), last_heartbeat.utilization);
            metrics.insert(QUEUE_WAIT_MS.to_owned(), last_heartbeat.load.queue_wait_ms);
        }
        let key = (node.to_owned(), device.to_owned());
        for (name, (_, values)) in &self.external {
            if let Some(value) = values.get(&key) {
                metrics.insert(name.clone(), *value);
            }
        }
        metrics
    }

    /// An instance's request for the allocator.
    pub fn demand(&self, instance: &InstanceRecord) -> model::Function {
        let query = instance.query.query().clone();
        let accelerator = (!instance.accelerator.is_empty()).then(|| model::Accelerator {
            name: live::accelerator_name(&query),
            digest: instance.accelerator.clone(),
        });
        let pooled = !instance.pool.is_empty();
        model::Function {
            id: instance.name.clone(),
            tenant: instance.tenant.clone(),
            query,
            devices: match instance.count {
                0 if pooled => baltra_api::DEVICES_MAX,
                n => n.max(1),
            },
            pooled,
            locality: match self.terms.locality {
                Locality::Require if instance.apart => Locality::Prefer,
                locality => locality,
            },
            memory_bytes: instance.memory_bytes,
            accelerator,
            preemptible: instance.preemptible,
        }
    }
}

/// The first pool, by name, that a device matches.
fn pool_of(pools: &BTreeMap<String, Query>, device: &model::Device) -> Option<String> {
    let mut pools = pools.iter();
    let found = pools.find(|(_, query)| query.unmet(device).is_none());
    found.map(|(name, _)| name.clone())
}

/// The allocator's model of an instance; each has its own function there.
pub(crate) fn placed(instance: &InstanceRecord) -> model::Instance {
    let ids = instance.devices.iter();
    model::Instance {
        id: instance.name.clone(),
        function: instance.name.clone(),
        hostname: instance.hostname.clone(),
        node: instance.node.clone(),
        devices: ids.map(|a| device_id(&a.node, &a.device)).collect(),
    }
}

fn lease(instance: &InstanceRecord) -> Duration {
    Duration::from_secs(u64::from(instance.lease_s))
}
