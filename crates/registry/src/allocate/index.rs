//! A snapshot with an index: it gives the scan's results without visiting every device.

use super::scan::Scan;
use super::{
    as_loaded, assign, millionths, planned, Alike, Decision, Found, Order, Placement, Policy, Rank,
    Refusal, Request, Requirement, Source, WHOLE,
};
use crate::model::{
    Accelerator, Device, DeviceId, Function, Instance, InstanceId, Snapshot, Stored,
};
use baltra_api::query::Field;
use baltra_eviction::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The content of a device's region, as an index key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    /// No exclusive content: programs coexist, or there is no region.
    Whole,
    Blank,
    Holds(Accelerator),
}

/// The common properties of a class.
type Kind = ([String; 7], BTreeMap<String, String>, bool);

type File = BTreeSet<(Order, DeviceId)>;

/// Devices of a class with the same content of a region.
#[derive(Default)]
struct Files {
    /// For requests of what they hold.
    loaded: File,
    /// For requests of something else, by the value of what they lose.
    replaced: File,
}

/// Devices that a query can distinguish only by id, node and accelerators.
struct Class {
    /// Any device of the class.
    sample: Device,
    files: BTreeMap<Slot, Files>,
}

/// The index entries of a device.
#[derive(PartialEq)]
struct Entry {
    class: usize,
    rank: Rank,
    /// With the least value among the regions of that content.
    slots: BTreeMap<Slot, Option<Value>>,
    /// Free time by accelerator, millionths.
    free: BTreeMap<String, u64>,
}

/// An indexed [`Snapshot`] that changes and from which devices are allocated.
pub struct Index {
    policy: Policy,
    snapshot: Snapshot,
    classes: Vec<Class>,
    class_of: HashMap<Kind, usize>,
    entries: HashMap<DeviceId, Entry>,
    free: HashMap<String, u64>,
    /// Totals over all devices: working time in millionths, and number of instances.
    load: (u64, u64),
    nodes: BTreeMap<String, BTreeSet<DeviceId>>,
    /// Instances by device, including devices that do not exist (yet, or any more).
    connected: HashMap<DeviceId, BTreeSet<InstanceId>>,
}

impl Index {
    /// Indexes a snapshot. The devices of instances are taken from the instances.
    pub fn new(snapshot: Snapshot, policy: Policy) -> Index {
        let mut index = Index {
            policy,
            snapshot: Snapshot::default(),
            classes: Vec::new(),
            class_of: HashMap::new(),
            entries: HashMap::new(),
            free: HashMap::new(),
            load: (0, 0),
            nodes: BTreeMap::new(),
            connected: HashMap::new(),
        };
        index.snapshot.functions = snapshot.functions;
        index.snapshot.stored = snapshot.stored;
        for instance in snapshot.instances.into_values() {
            index.put_instance(instance);
        }
        for device in snapshot.devices.into_values() {
            index.put_device(device);
        }
        index
    }

    /// The indexed snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The policy of its order.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Sets another policy.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        let ids: Vec<DeviceId> = self.snapshot.devices.keys().cloned().collect();
        for id in ids {
            self.file(&id);
        }
    }

    /// Adds or replaces a device. The index itself tracks the connected instances.
    pub fn put_device(&mut self, mut device: Device) {
        let id = device.id.clone();
        device.instances = self.connected.get(&id).cloned().unwrap_or_default();
        self.remove_device(&id);
        let on_node = self.nodes.entry(device.node.clone()).or_default();
        on_node.insert(id.clone());
        self.snapshot.devices.insert(id.clone(), device);
        self.weigh(&id, true);
        self.file(&id);
    }

    /// Changes a device in place: its metrics, its state, the contents of its regions. Its id, node
    /// and instances must not change. `None` if it does not exist.
    pub fn update_device<T>(
        &mut self,
        id: &str,
        change: impl FnOnce(&mut Device) -> T,
    ) -> Option<T> {
        self.weigh(id, false);
        let device = self.snapshot.devices.get_mut(id)?;
        let (node, instances) = (device.node.clone(), std::mem::take(&mut device.instances));
        let changed = change(device);
        device.id = id.to_owned();
        device.node = node;
        device.instances = instances;
        self.weigh(id, true);
        self.file(id);
        Some(changed)
    }

    /// Removes a device. Instances that use it keep its id.
    pub fn remove_device(&mut self, id: &str) -> Option<Device> {
        self.weigh(id, false);
        let device = self.snapshot.devices.remove(id)?;
        self.file(id);
        if let Some(on_node) = self.nodes.get_mut(&device.node) {
            on_node.remove(id);
            if on_node.is_empty() {
                self.nodes.remove(&device.node);
            }
        }
        Some(device)
    }

    /// Sets the accelerators in the nodes' stores.
    pub fn set_stored(&mut self, stored: BTreeSet<Stored>) {
        self.snapshot.stored = stored;
    }

    /// Adds or replaces a function.
    pub fn put_function(&mut self, function: Function) {
        self.snapshot
            .functions
            .insert(function.id.clone(), function);
    }

    /// Removes a function; its instances stay until they are removed.
    pub fn remove_function(&mut self, id: &str) -> Option<Function> {
        self.snapshot.functions.remove(id)
    }

    /// Adds or replaces an instance.
    pub fn put_instance(&mut self, instance: Instance) {
        let before = self
            .snapshot
            .instances
            .insert(instance.id.clone(), instance.clone());
        let had = before.map(|b| b.devices).unwrap_or_default();
        for device in had.iter().filter(|d| !instance.devices.contains(d)) {
            self.connect(device, &instance.id, false);
        }
        for device in &instance.devices {
            self.connect(device, &instance.id, true);
        }
    }

    /// Removes an instance.
    pub fn remove_instance(&mut self, id: &str) -> Option<Instance> {
        let instance = self.snapshot.instances.remove(id)?;
        for device in &instance.devices {
            self.connect(device, id, false);
        }
        Some(instance)
    }

    /// Allocates devices without computing a refusal.
    pub fn choose(&self, request: &Request<'_>) -> Option<Decision> {
        if request.takes_turns {
            // Such requests follow a refusal, which has visited every device, too.
            return assign(&Scan::new(&self.snapshot, &self.policy), request);
        }
        assign(self, request)
    }

    /// Allocates devices.
    ///
    /// # Errors
    /// A [`Refusal`] that lists every device; computing it visits each.
    pub fn allocate(&self, request: &Request<'_>) -> Result<Decision, Box<Refusal>> {
        self.choose(request).ok_or_else(|| {
            let scan = Scan::new(&self.snapshot, &self.policy);
            Box::new(scan.refusal(request, self))
        })
    }

    /// Applies a decision: the instance has the devices, and regions to be reconfigured count as
    /// holding its function's accelerator.
    pub fn commit(&mut self, mut instance: Instance, decision: &Decision) {
        let function = self.snapshot.functions.get(&instance.function);
        let accelerator = function.map(planned);
        for placement in &decision.devices {
            let (Some(_), Some(region)) = (&placement.reconfigures, placement.region) else {
                continue;
            };
            self.update_device(&placement.device, |device| {
                if let Some(region) = device.regions.get_mut(region) {
                    region.planned.clone_from(&accelerator);
                }
            });
        }
        instance.node.clone_from(&decision.node);
        instance.devices = decision.devices.iter().map(|p| p.device.clone()).collect();
        self.put_instance(instance);
    }

    fn connect(&mut self, device: &str, instance: &str, is: bool) {
        let connected = self.connected.entry(device.to_owned()).or_default();
        if is {
            connected.insert(instance.to_owned());
        } else {
            connected.remove(instance);
        }
        if connected.is_empty() {
            self.connected.remove(device);
        }
        let each = self.each();
        self.weigh(device, false);
        if let Some(entry) = self.snapshot.devices.get_mut(device) {
            if !is {
                entry.instances.remove(instance);
            } else if entry.instances.insert(instance.to_owned()) {
                entry.foreseen += each;
            }
            self.weigh(device, true);
            self.file(device);
        }
    }

    /// Mean device time of an instance, percent; 0 without instances.
    fn each(&self) -> f64 {
        let (busy, instances) = self.load;
        busy as f64 / 1e6 / instances.max(1) as f64
    }

    /// Adds a device to the totals, or removes it; without effect if it does not exist.
    fn weigh(&mut self, id: &str, is: bool) {
        let Some(device) = self.snapshot.devices.get(id) else {
            return;
        };
        let (busy, instances) = (
            millionths(device.utilization()),
            device.instances.len() as u64,
        );
        let (all_busy, all_instances) = &mut self.load;
        if is {
            *all_busy += busy;
            *all_instances += instances;
        } else {
            *all_busy -= busy;
            *all_instances -= instances;
        }
    }

    fn class(&mut self, id: &str) -> Option<usize> {
        let device = self.snapshot.devices.get(id)?;
        let names = [
            &device.vendor,
            &device.platform,
            &device.profile,
            &device.model,
            &device.name,
            &device.pool,
            &device.region_count,
        ];
        let labels = device.labels.clone();
        let key = (names.map(String::clone), labels, device.exclusive);
        let classes = &mut self.classes;
        let class = self.class_of.entry(key).or_insert_with(|| {
            classes.push(Class {
                sample: device.clone(),
                files: BTreeMap::new(),
            });
            classes.len() - 1
        });
        Some(*class)
    }

    fn entry(&mut self, id: &str) -> Option<Entry> {
        let class = self.class(id)?;
        let device = self.snapshot.devices.get(id)?;
        if !self.policy.admits(device) {
            return None;
        }
        let mut slots: BTreeMap<Slot, Option<Value>> = BTreeMap::new();
        let mut free = BTreeMap::new();
        if device.exclusive {
            for (n, region) in device.regions.iter().enumerate() {
                let slot = match region.holds() {
                    Some(accelerator) => {
                        let room = WHOLE - millionths(device.region_utilization(n));
                        *free.entry(accelerator.key()).or_default() += room;
                        Slot::Holds(accelerator.clone())
                    }
                    None => Slot::Blank,
                };
                let least = slots.entry(slot).or_insert(region.keeping());
                *least = region.keeping().min(*least);
            }
        }
        if slots.is_empty() {
            slots.insert(Slot::Whole, None);
        }
        Some(Entry {
            class,
            rank: self.policy.rank(device),
            slots,
            free,
        })
    }

    /// Indexes a device in its current state.
    fn file(&mut self, id: &str) {
        let entry = self.entry(id);
        if self.entries.get(id) == entry.as_ref() {
            return;
        }
        if let Some(old) = self.entries.remove(id) {
            let files = &mut self.classes[old.class].files;
            for (slot, value) in old.slots {
                if let Some(of_slot) = files.get_mut(&slot) {
                    let (loaded, replaced) = places(&old.rank, value, id);
                    of_slot.loaded.remove(&loaded);
                    of_slot.replaced.remove(&replaced);
                    if of_slot.loaded.is_empty() {
                        files.remove(&slot);
                    }
                }
            }
            for (key, room) in old.free {
                if let Some(sum) = self.free.get_mut(&key) {
                    *sum -= room;
                }
            }
        }
        let Some(entry) = entry else {
            return;
        };
        for (slot, value) in &entry.slots {
            let files = self.classes[entry.class].files.entry(slot.clone());
            let files = files.or_default();
            let (loaded, replaced) = places(&entry.rank, *value, id);
            files.loaded.insert(loaded);
            files.replaced.insert(replaced);
        }
        for (key, room) in &entry.free {
            *self.free.entry(key.clone()).or_default() += room;
        }
        self.entries.insert(id.to_owned(), entry);
    }

    /// Whether the load of all places with an accelerator fits on one place fewer.
    fn is_redistributable(&self, accelerator: &Accelerator, taken: &[Placement]) -> bool {
        let key = accelerator.key();
        let lost = taken.iter().filter_map(|t| {
            let (device, region) = (self.snapshot.devices.get(&t.device)?, t.region?);
            let holds = device.regions[region]
                .holds()
                .is_some_and(|a| a.key() == key);
            (t.reconfigures.is_some() && holds)
                .then(|| WHOLE - millionths(device.region_utilization(region)))
        });
        let free = self.free.get(&key).copied().unwrap_or(0);
        free.saturating_sub(lost.sum()) >= WHOLE
    }

    /// The region whose accelerator can best be replaced.
    fn region_to_give_up(&self, device: &Device, taken: &[Placement]) -> Option<usize> {
        let can = |r: &usize| {
            let holds = device.regions[*r].holds();
            holds.is_none_or(|a| self.is_redistributable(a, taken))
        };
        let cost = |r: &usize| {
            let used = millionths(device.region_utilization(*r));
            (device.regions[*r].keeping(), used, *r)
        };
        (0..device.regions.len()).filter(can).min_by_key(cost)
    }

    /// The devices that a query or a node selects, if they are so few that visiting each is
    /// cheaper; `None`: all.
    fn named<'a>(
        &'a self,
        requirement: &Requirement<'_>,
        node: Option<&str>,
    ) -> Option<Vec<&'a Device>> {
        let exact = |field| {
            requirement
                .request
                .query
                .term(field)
                .and_then(|p| p.exact())
        };
        if let Some(id) = exact(Field::Id) {
            return Some(self.snapshot.devices.get(&id).into_iter().collect());
        }
        let of_query = exact(Field::Node);
        let node = node.or(of_query.as_deref())?;
        let ids = self.nodes.get(node).into_iter().flatten();
        Some(ids.filter_map(|id| self.snapshot.devices.get(id)).collect())
    }

    /// The first device in order among those that are loaded or, if `reconfigure`, that can be
    /// reconfigured.
    fn first(
        &self,
        requirement: &Requirement<'_>,
        like: Option<&Alike<'_>>,
        node: Option<&str>,
        reconfigure: bool,
    ) -> Option<(Order, &Device)> {
        let fits = |d: &Device| {
            requirement.unfit(&self.snapshot, d).is_none()
                && node.is_none_or(|node| node == d.node)
                && like.is_none_or(|l| l.accepts(d))
        };
        if let Some(few) = self.named(requirement, node) {
            let order = |d: &Device| {
                let rank = self.entries.get(&d.id)?.rank.clone();
                if reconfigure {
                    let region = self.region_to_give_up(d, requirement.taken)?;
                    return Some(Order::losing(d.regions[region].keeping(), rank));
                }
                let has = d.has_loaded(requirement.request.query);
                has.then(|| Order::keeping(rank))
            };
            let able = few
                .into_iter()
                .filter(|d| fits(d) && (!reconfigure || d.exclusive));
            let ordered = able.filter_map(|d| Some((order(d)?, d)));
            return ordered.min_by(|a, b| (&a.0, &a.1.id).cmp(&(&b.0, &b.1.id)));
        }
        let any = requirement.request.query.term(Field::Accelerator).is_none();
        let mut best: Option<(&Order, &Device)> = None;
        for class in self
            .classes
            .iter()
            .filter(|c| requirement.request.query.fits_kind(&c.sample))
        {
            for (slot, files) in &class.files {
                let matches = match slot {
                    Slot::Whole => !reconfigure && (any || !class.sample.exclusive),
                    Slot::Blank => reconfigure || any,
                    Slot::Holds(a) if reconfigure => self.is_redistributable(a, requirement.taken),
                    Slot::Holds(a) => any || requirement.request.query.accepts_accelerator(a),
                };
                if !matches {
                    continue;
                }
                let file = if reconfigure {
                    &files.replaced
                } else {
                    &files.loaded
                };
                for (order, id) in file {
                    if best.is_some_and(|(least, d)| (least, &d.id) <= (order, id)) {
                        break;
                    }
                    let Some(device) = self.snapshot.devices.get(id) else {
                        continue;
                    };
                    if fits(device) {
                        best = Some((order, device));
                        break;
                    }
                }
            }
        }
        best.map(|(order, device)| (order.clone(), device))
    }

    /// The first loaded device in order, for an instance that moves.
    pub(super) fn first_loaded(&self, requirement: &Requirement<'_>) -> Option<&Device> {
        let near = requirement
            .prefer
            .and_then(|n| self.first(requirement, None, Some(n), false));
        let found = near.or_else(|| self.first(requirement, None, requirement.node, false))?;
        Some(found.1)
    }
}

/// A device's places in the files of a slot.
fn places(rank: &Rank, value: Option<Value>, id: &str) -> ((Order, DeviceId), (Order, DeviceId)) {
    let place = |order| (order, id.to_owned());
    (
        place(Order::keeping(rank.clone())),
        place(Order::losing(value, rank.clone())),
    )
}

impl Source for Index {
    fn best(&self, requirement: &Requirement<'_>) -> Option<Found> {
        let like = match requirement.alike {
            Some(first) => Some(Alike::to(first, self.snapshot.devices.get(&first.device)?)?),
            None => None,
        };
        let search = |reconfigure| {
            let near = requirement
                .prefer
                .filter(|n| requirement.node.is_none_or(|only| only == *n));
            near.and_then(|node| self.first(requirement, like.as_ref(), Some(node), reconfigure))
                .or_else(|| self.first(requirement, like.as_ref(), requirement.node, reconfigure))
        };
        if let Some((order, device)) = search(false) {
            return Some(Found {
                key: (false, order, device.id.clone()),
                placement: as_loaded(requirement, device, like.as_ref()),
            });
        }
        let (order, device) = search(true)?;
        let region = self.region_to_give_up(device, requirement.taken)?;
        Some(Found {
            key: (true, order, device.id.clone()),
            placement: Placement {
                device: device.id.clone(),
                node: device.node.clone(),
                region: Some(region),
                reconfigures: Some(device.regions[region].holds().cloned()),
            },
        })
    }

    fn nodes(&self) -> Vec<&str> {
        self.nodes.keys().map(String::as_str).collect()
    }
}
