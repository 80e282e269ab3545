//! The store's records: state that must survive a restart, without what heartbeats report.

use crate::model::MovePolicy;
use baltra_api::query::{Query, QueryError};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// A stored query with its text.
///
/// Queries are checked before they are stored. A text that cannot be parsed, because a later
/// release stored it, matches no device; the text is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredQuery {
    text: String,
    query: Query,
    error: Option<QueryError>,
}

impl StoredQuery {
    /// Reads a stored text.
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

/// A registered node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeRecord {
    /// Its name in the pool.
    pub name: String,
    /// SHA-256 of the node's secret id, hexadecimal.
    pub id_sha256: String,
    /// Endpoints for sessions, the best first.
    pub endpoints: Vec<String>,
    /// The manager's version.
    pub version: String,
    /// The address at which the manager serves metrics; empty: none.
    pub metrics: String,
    /// Its devices, by name.
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
    /// The device's version, from the driver.
    pub device_version: String,
    /// The driver's version.
    pub driver_version: String,
    /// Device memory, bytes.
    pub memory_bytes: u64,
    /// Number of compute units, from the driver.
    pub compute_units: u32,
    /// Executors that may use it concurrently.
    pub slots: u32,
    /// Slots for accelerators, at least 1.
    pub regions: u32,
    /// Whether a region holds one accelerator at a time.
    pub exclusive: bool,
    /// Labels from the operator.
    pub labels: BTreeMap<String, String>,
    /// Whether it accepts no new instances.
    pub cordoned: bool,
    /// Whether its instances are to be moved.
    pub draining: bool,
    /// Accelerators that allocated instances will load, by region.
    pub pending: BTreeMap<u32, AcceleratorRecord>,
}

/// An accelerator.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct AcceleratorRecord {
    /// sha256, hexadecimal; empty: only the name is known.
    pub digest: String,
    /// The name; empty: none.
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
    /// Its function; empty: none.
    pub function: String,
    /// Conditions on its devices, including those of its pool.
    pub query: StoredQuery,
    /// The accelerator that it loads on a device that lacks it: sha256, hexadecimal; empty: the
    /// query's accelerator.
    pub accelerator: String,
    /// Number of its devices; 0 in a pool: all members.
    pub count: u32,
    /// Its pool; empty: none.
    pub pool: String,
    /// The node on which it runs.
    pub node: String,
    /// The host on which it runs.
    pub hostname: String,
    /// Its lease, seconds; 0: until it is released.
    pub lease_s: u32,
    /// Number of changes of its devices.
    pub revision: u64,
    /// Seconds since 1970, for display.
    pub created_at_s: u64,
    /// Whether its devices may be on several nodes, independent of the locality.
    pub apart: bool,
    /// Memory reserved on each of its devices, bytes; 0: none.
    pub memory_bytes: u64,
    /// Whether other accelerators may use its devices in turns.
    pub preemptible: bool,
    /// Whether the accelerator must be in the store of its device's node.
    pub stored: bool,
    /// Policy for programs that have to leave a device; `None`: the registry's setting.
    pub move_policy: Option<MovePolicy>,
    /// Its devices in the allocator's order.
    pub devices: Vec<AssignmentRecord>,
    /// Why it currently has no devices.
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
    /// The region that holds or will hold its accelerator.
    pub region: u32,
    /// Whether a session of the instance has moved there while its program runs.
    pub live: bool,
}

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionRecord {
    /// Its name.
    pub name: String,
    /// The owning tenant.
    pub tenant: String,
    /// Conditions on the devices of its instances.
    pub query: StoredQuery,
    /// Devices per instance, at least 1.
    pub count: u32,
    /// sha256 of its accelerator, hexadecimal; empty: none yet.
    pub accelerator: String,
    /// Minimum for the autoscaling signal.
    pub replicas_min: u32,
    /// Maximum for the autoscaling signal; 0: no limit.
    pub replicas_max: u32,
    /// SHA-256 of the content, hexadecimal.
    pub digest: String,
    /// The content's length.
    pub content_bytes: u64,
    /// The revision of its last change, unique over all functions.
    pub revision: u64,
    /// Labels from the operator.
    pub labels: BTreeMap<String, String>,
}

/// A pool: a name for the devices that match a query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolRecord {
    /// Its name.
    pub name: String,
    /// Its members: all matching devices.
    pub query: StoredQuery,
}

/// The store's content without the functions' contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Number of transactions.
    pub revision: u64,
    /// Number of starts.
    pub generation: u64,
    /// Nodes by name.
    pub nodes: BTreeMap<String, NodeRecord>,
    /// Instances by name.
    pub instances: BTreeMap<String, InstanceRecord>,
    /// Functions by name.
    pub functions: BTreeMap<String, FunctionRecord>,
    /// Pools by name.
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
    /// Applies to memory what [`crate::store::Store::commit`] applies to the disk.
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
