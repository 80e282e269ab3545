//! The registry's model: devices, accelerators, functions, instances.
//!
//! Plain values without I/O. The fields are those of section 4.4 of BlastFunction's thesis,
//! extended with regions, pools and device states.

pub use baltra_api::query::Accelerator;

use baltra_api::query::{self, Field, Query};
use baltra_eviction::Value;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The id of a device, unique in the system.
pub type DeviceId = String;
/// The id of a deployment, unique in the system.
pub type FunctionId = String;
/// The id of an instance, unique in the system.
pub type InstanceId = String;

/// The metric of a device's utilization, percent: 0 to 100.
pub const UTILIZATION: &str = "utilization";
/// The metric of the number of connected instances. Counted by the registry, never reported.
pub const OCCUPATION: &str = "occupation";

/// A slot of a device that holds one accelerator at a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// The loaded accelerator; `None`: blank.
    pub accelerator: Option<Accelerator>,
    /// The accelerator that an allocation decided to load, until the device reports it. The region
    /// counts as holding it.
    #[serde(default)]
    pub planned: Option<Accelerator>,
    /// Utilization of this region, percent, if the device reports it per region; otherwise the
    /// device's utilization counts for each region.
    #[serde(default)]
    pub utilization: Option<f64>,
    /// The value of keeping the loaded accelerator, as reported.
    #[serde(default)]
    pub value: Value,
}

impl Region {
    /// The loaded or planned accelerator.
    pub fn holds(&self) -> Option<&Accelerator> {
        self.planned.as_ref().or(self.accelerator.as_ref())
    }

    /// The value of keeping what the region holds: `None`, less than any other, if it is blank.
    pub fn keeping(&self) -> Option<Value> {
        match (&self.planned, &self.accelerator) {
            (Some(_), _) => Some(Value::PLANNED),
            (None, Some(_)) => Some(self.value),
            (None, None) => None,
        }
    }
}

/// Whether a device accepts instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceState {
    /// It accepts instances.
    #[default]
    Ready,
    /// It keeps its instances and accepts no new ones.
    Cordoned,
    /// It accepts no new instances, and its instances are moved away.
    Draining,
    /// Its manager is silent.
    Lost,
}

/// One accelerator card, GPU or CPU that a Device Manager owns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its id, unique in the system.
    pub id: DeviceId,
    /// Its name on its node.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Endpoints of its Device Manager, the best first.
    pub endpoints: Vec<String>,
    /// The board's vendor.
    pub vendor: String,
    /// The OpenCL platform.
    pub platform: String,
    /// The OpenCL profile.
    pub profile: String,
    /// The board's model.
    pub model: String,
    /// Number of its regions, as text for queries.
    #[serde(default)]
    pub region_count: String,
    /// Its pool; empty: none.
    #[serde(default)]
    pub pool: String,
    /// Labels from the operator.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Whether each region holds one image at a time, as on an FPGA. Otherwise (CPU, GPU), programs
    /// of many tenants coexist and every accelerator fits.
    pub exclusive: bool,
    /// Its regions, at least one if `exclusive`.
    pub regions: Vec<Region>,
    /// Its memory, bytes; 0: not reported, so that no reservation fits.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Whether it accepts instances.
    pub state: DeviceState,
    /// Its metrics, by name. Values that are not finite count as not reported.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
    /// Expected load, percent, of instances placed since the utilization was last reported.
    /// [`crate::allocate::Index`] adds to it; a report of the utilization resets it to 0.
    #[serde(default)]
    pub foreseen: f64,
    /// The connected instances. [`crate::allocate::Index`] keeps this consistent with the
    /// instances.
    #[serde(default)]
    pub instances: BTreeSet<InstanceId>,
}

impl Device {
    /// A metric's value; `None` if it was not reported. Utilization is limited to 0–100, and
    /// occupation is counted.
    pub fn metric(&self, name: &str) -> Option<f64> {
        if name == OCCUPATION {
            return Some(self.instances.len() as f64);
        }
        let value = self.metrics.get(name).copied().filter(|v| v.is_finite())?;
        // Adding zero turns -0.0 into 0.0, which would be ordered differently.
        Some(match name {
            UTILIZATION => value.clamp(0.0, 100.0) + 0.0,
            _ => value + 0.0,
        })
    }

    /// The device's utilization, percent; 0 if not reported.
    pub fn utilization(&self) -> f64 {
        self.metric(UTILIZATION).unwrap_or(0.0)
    }

    /// Utilization of a region, percent: its own or the device's.
    pub fn region_utilization(&self, region: usize) -> f64 {
        let own = self.regions.get(region).and_then(|r| r.utilization);
        match own.filter(|v| v.is_finite()) {
            Some(value) => value.clamp(0.0, 100.0) + 0.0,
            None => self.utilization(),
        }
    }

    /// The region that holds an accelerator with this [`Accelerator::key`].
    pub fn region_of(&self, key: &str) -> Option<usize> {
        let holds = |r: &Region| r.holds().is_some_and(|a| a.key() == key);
        self.regions.iter().position(holds)
    }
}

impl Device {
    /// Whether a query needs no reconfiguration: its accelerator is loaded or needs no region. Does
    /// not check [`Query::unmet`], nor whether the device runs the accelerator.
    pub fn has_loaded(&self, query: &Query) -> bool {
        !self.exclusive
            || query.term(Field::Accelerator).is_none()
            || self
                .regions
                .iter()
                .any(|r| r.holds().is_some_and(|a| query.accepts_accelerator(a)))
    }

    /// The first region with the requested accelerator; `None` also if none is requested or the
    /// device holds programs of many tenants.
    pub fn region_for(&self, query: &Query) -> Option<usize> {
        query.term(Field::Accelerator).filter(|_| self.exclusive)?;
        let wanted = |r: &Region| r.holds().is_some_and(|a| query.accepts_accelerator(a));
        self.regions.iter().position(wanted)
    }
}

impl query::Device for Device {
    fn field(&self, field: Field) -> Option<&str> {
        Some(match field {
            Field::Id => &self.id,
            Field::Name => &self.name,
            Field::Node => &self.node,
            Field::Pool => &self.pool,
            Field::Vendor => &self.vendor,
            Field::Platform => &self.platform,
            Field::Profile => &self.profile,
            Field::Model => &self.model,
            Field::Regions => &self.region_count,
            Field::Accelerator => return None,
        })
    }

    fn label(&self, key: &str) -> &str {
        self.labels.get(key).map_or("", String::as_str)
    }
}

/// Policy for the programs of an instance that has to leave a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MovePolicy {
    /// Their sessions move while they run. If one cannot, they are started again.
    #[default]
    Live,
    /// They are started again on another device.
    Restart,
}

/// The places where an instance's devices may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Locality {
    /// Anywhere: the thesis's algorithm, in which a node pinned before allocation determines where
    /// the instance runs, but not its devices.
    #[default]
    Any,
    /// On the instance's node if a device there matches the accelerator as well as any other,
    /// otherwise anywhere.
    Prefer,
    /// All on the instance's node.
    Require,
}

/// A deployment: the common specification of its instances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// Its id, unique in the system.
    pub id: FunctionId,
    /// The tenant that deployed it.
    #[serde(default)]
    pub tenant: String,
    /// Conditions on its devices.
    pub query: Query,
    /// Number of devices of each instance; at least 1.
    #[serde(default = "one")]
    pub devices: u32,
    /// Whether the devices are presented as one: they must be alike, and may be fewer than
    /// `devices`.
    #[serde(default)]
    pub pooled: bool,
    /// Restriction of the devices' nodes.
    #[serde(default)]
    pub locality: Locality,
    /// Memory reserved for each instance on each of its devices, bytes; 0: none.
    #[serde(default)]
    pub memory_bytes: u64,
    /// The accelerator that its instances load on a device that lacks it. Without it, a
    /// reconfigured device is identified only by the query's accelerator.
    #[serde(default)]
    pub accelerator: Option<Accelerator>,
    /// Whether other accelerators may use the devices of its instances in turns: a reconfiguration
    /// does not take a device from them.
    #[serde(default)]
    pub preemptible: bool,
}

fn one() -> u32 {
    1
}

/// One running copy of a function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// Its id, unique in the system.
    pub id: InstanceId,
    /// Its function.
    pub function: FunctionId,
    /// The container's or the host's name.
    #[serde(default)]
    pub hostname: String,
    /// The node that it runs on; empty: not decided.
    #[serde(default)]
    pub node: String,
    /// Its allocated devices.
    #[serde(default)]
    pub devices: Vec<DeviceId>,
}

/// An accelerator in the store of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stored {
    /// The accelerator.
    pub accelerator: Accelerator,
    /// The devices for which it is built: a pattern of their model or name; empty: unknown.
    pub target: String,
}

impl Stored {
    /// Whether it is built for a device; `None`: unknown.
    pub fn is_for(&self, device: &Device) -> Option<bool> {
        query::is_target(&self.target, &device.model, &device.name)
    }
}

/// The input of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Devices by id.
    pub devices: BTreeMap<DeviceId, Device>,
    /// Functions by id.
    pub functions: BTreeMap<FunctionId, Function>,
    /// Instances by id.
    pub instances: BTreeMap<InstanceId, Instance>,
    /// The accelerators in the stores of all nodes.
    #[serde(default)]
    pub stored: BTreeSet<Stored>,
}

impl Snapshot {
    /// Number of accelerators that a device's instances need, which take turns on it if it holds
    /// one image at a time.
    pub fn images(&self, device: &Device) -> usize {
        let instances = device.instances.iter();
        let functions =
            instances.filter_map(|i| self.functions.get(&self.instances.get(i)?.function));
        let image = |f: &Function| match &f.accelerator {
            Some(accelerator) => Some(accelerator.key()),
            None => f
                .query
                .term(Field::Accelerator)
                .map(|term| term.to_string()),
        };
        functions.filter_map(image).collect::<BTreeSet<_>>().len()
    }

    /// A device's memory that is not reserved by instances other than `own`.
    pub fn memory_free(&self, device: &Device, own: Option<&str>) -> u64 {
        let others = device.instances.iter().filter(|i| Some(i.as_str()) != own);
        let expected = others.filter_map(|i| self.functions.get(&self.instances.get(i)?.function));
        let promised = expected.fold(0, |sum: u64, f| sum.saturating_add(f.memory_bytes));
        device.memory_bytes.saturating_sub(promised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreported_and_absurd_metrics_count_as_not_reported() {
        let mut device = Device::default();
        assert_eq!(device.metric(UTILIZATION), None);
        for (reported, expected) in [
            (f64::NAN, None),
            (f64::INFINITY, None),
            (-3.0, Some(0.0)),
            (250.0, Some(100.0)),
            (42.5, Some(42.5)),
        ] {
            device.metrics.insert(UTILIZATION.to_owned(), reported);
            assert_eq!(device.metric(UTILIZATION), expected, "reported {reported}");
        }
    }

    #[test]
    fn a_planned_accelerator_counts_as_held() {
        let named = |name: &str| Accelerator {
            name: name.to_owned(),
            digest: String::new(),
        };
        let region = Region {
            accelerator: Some(named("old")),
            planned: Some(named("new")),
            ..Region::default()
        };
        assert_eq!(region.holds(), Some(&named("new")));
        assert_eq!(region.keeping(), Some(Value::PLANNED));
        assert!(Region::default().keeping() < Some(Value::NONE));
    }

    #[test]
    fn accelerators_are_the_same_by_digest_then_by_name() {
        let accelerator = |name: &str, digest: &str| Accelerator {
            name: name.to_owned(),
            digest: digest.to_owned(),
        };
        assert_eq!(accelerator("a", "ff").key(), accelerator("b", "ff").key());
        assert_ne!(accelerator("a", "ff").key(), accelerator("a", "").key());
        assert_eq!(accelerator("a", "").key(), accelerator("a", "").key());
    }

    #[test]
    fn what_is_asked_for_is_loaded_or_needs_no_place() {
        let device = Device {
            exclusive: true,
            regions: vec![Region {
                accelerator: Some(Accelerator {
                    name: "sobel".to_owned(),
                    digest: "ab12cd".to_owned(),
                }),
                ..Region::default()
            }],
            ..Device::default()
        };
        let shared = Device {
            exclusive: false,
            ..device.clone()
        };
        for (text, loaded, region) in [
            ("accelerator=sobel", true, Some(0)),
            ("accelerator=sha256:AB12*", true, Some(0)),
            ("accelerator=mm", false, None),
            ("vendor=Intel*", true, None),
        ] {
            let query = text.parse().unwrap();
            assert_eq!(device.has_loaded(&query), loaded, "{text}");
            assert_eq!(device.region_for(&query), region, "{text}");
            assert!(shared.has_loaded(&query), "{text}");
            assert_eq!(shared.region_for(&query), None, "{text}");
        }
        assert!(!device.has_loaded(&Query::none()));
    }

    #[test]
    fn a_snapshot_survives_json() {
        let device = Device {
            id: "n1/0".to_owned(),
            exclusive: true,
            regions: vec![Region::default()],
            metrics: BTreeMap::from([("utilization".to_owned(), 12.5)]),
            ..Device::default()
        };
        let function = Function {
            id: "sobel".to_owned(),
            tenant: String::new(),
            query: "vendor=Intel*,accelerator=sobel".parse().unwrap(),
            devices: 2,
            pooled: false,
            locality: Locality::Prefer,
            memory_bytes: 0,
            accelerator: None,
            preemptible: false,
        };
        let snapshot = Snapshot {
            devices: BTreeMap::from([(device.id.clone(), device)]),
            functions: BTreeMap::from([(function.id.clone(), function)]),
            instances: BTreeMap::new(),
            stored: BTreeSet::from([Stored {
                accelerator: Accelerator::default(),
                target: "A10*".to_owned(),
            }]),
        };
        let text = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(
            serde_json::from_str::<Snapshot>(&text).unwrap(),
            snapshot,
            "{text}"
        );
    }
}
