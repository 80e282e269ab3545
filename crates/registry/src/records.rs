//! The store's records: state that must survive a restart, without what heartbeats report.

use baltra_api::query::{Query, QueryError};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// A query as the store keeps it, with the text that was stored.
///
/// Queries are checked before they are stored. A text that does not parse, because a later release
/// stored it, is the query that fits no device; the text stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredQuery {
    text: String,
    query: Query,
    error: Option<QueryError>,
}

impl StoredQuery {
    /// From a text of the store.
    pub fn read(text: String) -> StoredQuery {
        let (query, error) = match text.parse() {
            Ok(query) => (query, None),
            Err(error) => (Query::none(), Some(error)),
        };
        StoredQuery { text, query, error }
    }

    /// The query.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// The text that was stored.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The reason why the text is not a query.
    pub fn error(&self) -> Option<&QueryError> {
        self.error.as_ref()
    }
}

impl From<Query> for StoredQuery {
    fn from(query: Query) -> StoredQuery {
        StoredQuery {
            text: query.to_string(),
            query,
            error: None,
        }
    }
}

impl Serialize for StoredQuery {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for StoredQuery {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StoredQuery, D::Error> {
        String::deserialize(deserializer).map(StoredQuery::read)
    }
}

/// A node that registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeRecord {
    /// Its name in the pool.
    pub name: String,
    /// SHA-256 of the node's secret id, hexadecimal.
    pub id_sha256: String,
    /// Where sessions are opened, best first.
    pub endpoints: Vec<String>,
    /// The manager's version.
    pub version: String,
    /// Where the manager serves metrics; empty: nowhere.
    pub metrics: String,
    /// By name.
    pub devices: BTreeMap<String, DeviceRecord>,
}

/// A device of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceRecord {
    /// Its name on its node.
    pub name: String,
    /// The vendor.
    pub vendor: String,
    /// The OpenCL platform.
    pub platform: String,
    /// The OpenCL profile.
    pub profile: String,
    /// The driver's name for it.
    pub model: String,
    /// From the driver.
    pub device_version: String,
    /// From the driver.
    pub driver_version: String,
    /// Device memory.
    pub memory_bytes: u64,
    /// From the driver.
    pub compute_units: u32,
    /// Executors that may use it at once.
    pub slots: u32,
    /// Slots for accelerators, at least 1.
    pub regions: u32,
    /// A region holds one accelerator at a time.
    pub exclusive: bool,
    /// The operator's.
    pub labels: BTreeMap<String, String>,
    /// Takes no new instances.
    pub cordoned: bool,
    /// Its instances are to go elsewhere.
    pub draining: bool,
    /// By region: what instances that it is allocated to will load.
    pub pending: BTreeMap<u32, AcceleratorRecord>,
}

/// An accelerator.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct AcceleratorRecord {
    /// sha256, hexadecimal; empty: only the name is known.
    pub digest: String,
    /// Empty: it has none.
    pub name: String,
}

/// An instance and its allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstanceRecord {
    /// Its name in the pool.
    pub name: String,
    /// The owning tenant.
    pub tenant: String,
    /// The function that it is a copy of; empty: none.
    pub function: String,
    /// Which devices it can use, its pool's terms included.
    pub query: StoredQuery,
    /// The accelerator that it loads on a device that lacks it: sha256, hexadecimal; empty: the
    /// query's accelerator.
    pub accelerator: String,
    /// How many it needs; 0 in a pool: all members.
    pub count: u32,
    /// The pool that it was given; empty: none.
    pub pool: String,
    /// Where it runs.
    pub node: String,
    /// Where it runs.
    pub hostname: String,
    /// 0: until it is released.
    pub lease_s: u32,
    /// Counts changes of its devices.
    pub revision: u64,
    /// Seconds since 1970, for display.
    pub created_at_s: u64,
    /// Its devices may be on several nodes whatever the locality is.
    pub apart: bool,
    /// Memory that it is promised, of each of its devices; 0: none.
    pub memory_bytes: u64,
    /// In the allocator's order.
    pub devices: Vec<AssignmentRecord>,
    /// Why it has no devices at the moment.
    pub pending: String,
}

/// A device that an instance may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AssignmentRecord {
    /// The node.
    pub node: String,
    /// The device on it.
    pub device: String,
    /// Where on the device its accelerator is, or will be.
    pub region: u32,
}

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionRecord {
    /// Its name.
    pub name: String,
    /// The owning tenant.
    pub tenant: String,
    /// Which devices its instances can use.
    pub query: StoredQuery,
    /// Devices an instance, at least 1.
    pub count: u32,
    /// sha256, hexadecimal; empty: none yet.
    pub accelerator: String,
    /// For the autoscaling signal.
    pub replicas_min: u32,
    /// For the autoscaling signal; 0: no bound.
    pub replicas_max: u32,
    /// SHA-256 of the content, hexadecimal.
    pub digest: String,
    /// The content's length.
    pub content_bytes: u64,
    /// Counts changes.
    pub revision: u64,
    /// The operator's.
    pub labels: BTreeMap<String, String>,
}

/// A pool: one virtual device over several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolRecord {
    /// Its name.
    pub name: String,
    /// Its members: every device that fits.
    pub query: StoredQuery,
}

/// Everything in the store but the functions' contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Counts transactions.
    pub revision: u64,
    /// Counts starts.
    pub generation: u64,
    /// By name.
    pub nodes: BTreeMap<String, NodeRecord>,
    /// By name.
    pub instances: BTreeMap<String, InstanceRecord>,
    /// By name.
    pub functions: BTreeMap<String, FunctionRecord>,
    /// By name.
    pub pools: BTreeMap<String, PoolRecord>,
}

/// A row to write or to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes a node.
    PutNode(NodeRecord),
    /// Removes a node.
    RemoveNode(String),
    /// Writes an instance.
    PutInstance(InstanceRecord),
    /// Removes an instance.
    RemoveInstance(String),
    /// Writes a function and its content.
    PutFunction(FunctionRecord, Vec<u8>),
    /// Removes a function and its content.
    RemoveFunction(String),
    /// Writes a pool.
    PutPool(PoolRecord),
    /// Removes a pool.
    RemovePool(String),
}

impl Image {
    /// Does in memory what [`crate::store::Store::commit`] does on the disk.
    pub fn apply(&mut self, changes: Vec<Change>) {
        self.revision += 1;
        for change in changes {
            match change {
                Change::PutNode(r) => drop(self.nodes.insert(r.name.clone(), r)),
                Change::RemoveNode(name) => drop(self.nodes.remove(&name)),
                Change::PutInstance(r) => drop(self.instances.insert(r.name.clone(), r)),
                Change::RemoveInstance(name) => drop(self.instances.remove(&name)),
                Change::PutFunction(r, _) => drop(self.functions.insert(r.name.clone(), r)),
                Change::RemoveFunction(name) => drop(self.functions.remove(&name)),
                Change::PutPool(r) => drop(self.pools.insert(r.name.clone(), r)),
                Change::RemovePool(name) => drop(self.pools.remove(&name)),
            }
        }
    }
}
