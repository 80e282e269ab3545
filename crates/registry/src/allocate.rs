//! Allocation of devices to instances: Algorithm 1 of BlastFunction's thesis (4.4.1).
//!
//! 1. Devices that accept instances, match the query's fixed properties (vendor, platform, …), run
//!    its accelerator and have enough unreserved memory are candidates; the others are rejected with
//!    the reason. An accelerator runs on the devices for which it is built (its target in a node's
//!    store); without a target, it runs on devices that hold it and on exclusive ones.
//! 2. Candidates outside the configured metric bounds are rejected.
//! 3. The remaining candidates are ordered: first those that hold the accelerator, then by the
//!    value of keeping what they would lose ([`baltra_eviction::Value`]; a blank place has the
//!    least), then by the configured metrics (utilization, then occupation), then by id, so that
//!    the result depends only on the snapshot. An instance that was placed after its device's last
//!    report of utilization counts with the mean load of all instances.
//! 4. If the first one holds the accelerator, it is allocated. Otherwise the first device is
//!    allocated whose load can be redistributed: the other places with the accelerator that it
//!    would lose have, all together, **at least** as much free time as that accelerator uses (Σ
//!    (100 % − utilization) ≥ its utilization; the thesis prints ≤, which would evict load that
//!    fits nowhere). A blank place loses nothing.
//! 5. If there is none, a [`Refusal`] lists the reason and the margin for every device.
//!
//! A request that takes turns ([`Request::takes_turns`]) is one for which no device was left. It
//! reconfigures nothing: its accelerator shares a device in time with those that are there. The
//! devices are ordered by the number of accelerators that share them, then by the value of what
//! they hold, then by metrics and id.
//!
//! A *place* is a region of a device that holds one image at a time; a board has one or more. The
//! sum includes every place within the metric bounds on a device that accepts instances, on any
//! node: the new instance's requirements on vendor or node do not apply to the instances that move.
//! (Boards that can hold one bitstream are of one model, so for those terms the thesis's sum over
//! filtered devices is the same.)
//!
//! [`allocate`](allocate()) does this step by step over a [`Snapshot`](crate::model::Snapshot);
//! [`Index`] computes the same decisions without visiting every device. [`plan`] computes the moves
//! of a reconfigured device's instances.

mod index;
mod plan;
mod refusal;
mod scan;
#[cfg(test)]
mod tests;

pub use index::Index;
pub use plan::{evacuate, evacuate_near, plan, Move, Plan, Stranded};
pub use refusal::{Reason, Refusal, Rejection};
pub use scan::allocate;

use crate::model::{
    Accelerator, Device, DeviceId, DeviceState, Function, Instance, Locality, Region, Snapshot,
    OCCUPATION, UTILIZATION,
};
use baltra_api::query::{Field, Query};
use baltra_api::DEVICES_MAX;
use baltra_eviction::Value;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// Bounds of a metric: devices outside are not allocated. A metric that is not reported counts
/// as 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The metric's name.
    pub metric: String,
    /// The minimum allowed value.
    #[serde(default)]
    pub min: Option<f64>,
    /// The maximum allowed value.
    #[serde(default)]
    pub max: Option<f64>,
}

/// The configured rules of allocation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Filters on metrics; none by default.
    pub filters: Vec<Bound>,
    /// Metrics in order of precedence; smaller values come first, and with a `-` (such as
    /// `-free_memory`) larger ones.
    pub order: Vec<String>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            filters: Vec::new(),
            order: vec![UTILIZATION.to_owned(), OCCUPATION.to_owned()],
        }
    }
}

impl Policy {
    /// Checks the configured values.
    ///
    /// # Errors
    /// The invalid entry and the reason, for the operator.
    pub fn check(&self) -> Result<(), String> {
        for bound in &self.filters {
            let name = &bound.metric;
            if name.is_empty() {
                return Err("filters: a filter has no metric".to_owned());
            }
            let finite = |v: Option<f64>| v.is_none_or(f64::is_finite);
            if !finite(bound.min) || !finite(bound.max) {
                return Err(format!("filters: the bounds of '{name}' are not finite"));
            }
            match (bound.min, bound.max) {
                (None, None) => return Err(format!("filters: '{name}' has neither min nor max")),
                (Some(min), Some(max)) if min > max => {
                    return Err(format!("filters: '{name}' has min {min} above max {max}"))
                }
                _ => {}
            }
        }
        for (n, name) in self.order.iter().enumerate() {
            let bare = name.strip_prefix('-').unwrap_or(name);
            if bare.is_empty() {
                return Err("order: an entry has no metric".to_owned());
            }
            let same = |other: &String| other.strip_prefix('-').unwrap_or(other) == bare;
            if self.order[..n].iter().any(same) {
                return Err(format!("order: '{bare}' is named twice"));
            }
        }
        Ok(())
    }

    /// The first bound that a device is outside of.
    fn outside(&self, device: &Device) -> Option<Reason> {
        self.filters.iter().find_map(|bound| {
            let value = device.metric(&bound.metric);
            let counted = value.unwrap_or(0.0);
            let low = bound.min.filter(|min| counted < *min);
            let high = bound.max.filter(|max| counted > *max);
            (low.is_some() || high.is_some()).then(|| Reason::Metric {
                metric: bound.metric.clone(),
                value,
                min: low,
                max: high,
            })
        })
    }

    /// Whether a device accepts instances.
    fn admits(&self, device: &Device) -> bool {
        device.state == DeviceState::Ready && self.outside(device).is_none()
    }

    /// A device's sort key by metrics: smaller keys are taken first. Foreseen load counts as
    /// reported load; otherwise all requests between two heartbeats would go to the device that was
    /// least used at the first.
    fn rank(&self, device: &Device) -> Rank {
        let metric = |name: &str| {
            let reported = device.metric(name).unwrap_or(0.0);
            match name {
                UTILIZATION => reported + device.foreseen,
                _ => reported,
            }
        };
        let value = |name: &String| match name.strip_prefix('-') {
            Some(name) => Number(0.0 - metric(name)),
            None => Number(metric(name)),
        };
        self.order.iter().map(value).collect()
    }
}

/// A finite number with a total order.
#[derive(Clone, Copy, Debug)]
struct Number(f64);

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Number) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Number) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

type Rank = Vec<Number>;

/// A candidate's position in the order, before its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    /// Number of accelerators that take turns, for a request that takes turns; otherwise 0.
    images: usize,
    /// The value of what the device would lose; `None`: nothing.
    loses: Option<Value>,
    rank: Rank,
}

impl Order {
    /// Of a device that loses nothing.
    fn keeping(rank: Rank) -> Order {
        Order::losing(None, rank)
    }

    /// Of a device that loses something of a value.
    fn losing(loses: Option<Value>, rank: Rank) -> Order {
        Order {
            images: 0,
            loses,
            rank,
        }
    }
}

/// The whole time of one place, in the unit of free time: sums of integers do not depend on the
/// order, so that the index and the scan agree exactly.
const WHOLE: u64 = 100_000_000;

/// Percent converted to that unit: millionths.
fn millionths(percent: f64) -> u64 {
    (percent * 1e6).round() as u64
}

/// A request for devices.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Conditions on the devices.
    pub query: &'a Query,
    /// Number of devices; 0 counts as 1, at most [`DEVICES_MAX`].
    pub devices: u32,
    /// Whether the devices are presented as one: they must be alike, and may be fewer than
    /// requested.
    pub pooled: bool,
    /// The node that the instance runs on, if it is decided.
    pub node: Option<&'a str>,
    /// The restriction of the devices by the instance's node.
    pub locality: Locality,
    /// Devices that must not be allocated, because the instance is moved away from them.
    pub except: &'a [DeviceId],
    /// Memory that each device must have unreserved.
    pub memory_bytes: u64,
    /// The requesting instance, if it exists: its own reservation does not count against it.
    pub instance: Option<&'a str>,
    /// Whether its accelerator takes turns with those of the devices, which lose nothing. The query
    /// names no accelerator then.
    pub takes_turns: bool,
}

impl<'a> Request<'a> {
    /// A request for one device on any node.
    pub fn of(query: &'a Query) -> Request<'a> {
        Request {
            query,
            devices: 1,
            pooled: false,
            node: None,
            locality: Locality::Any,
            except: &[],
            memory_bytes: 0,
            instance: None,
            takes_turns: false,
        }
    }

    /// The request of a function's instance.
    pub fn instance(function: &'a Function, instance: &'a Instance) -> Request<'a> {
        Request {
            query: &function.query,
            devices: function.devices,
            pooled: function.pooled,
            node: Some(instance.node.as_str()).filter(|node| !node.is_empty()),
            locality: function.locality,
            except: &[],
            memory_bytes: function.memory_bytes,
            instance: Some(&instance.id),
            takes_turns: false,
        }
    }

    fn count(&self) -> usize {
        self.devices.clamp(1, DEVICES_MAX) as usize
    }

    /// The requirement for the next device after `taken`; only on `node` if there is one.
    fn requirement(&self, node: Option<&'a str>, taken: &'a [Placement]) -> Requirement<'a> {
        let near = self.node.or(taken.first().map(|t| t.node.as_str()));
        Requirement {
            request: *self,
            node,
            prefer: near.filter(|_| self.locality == Locality::Prefer),
            taken,
            alike: taken.first().filter(|_| self.pooled),
        }
    }
}

/// One allocated device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The device.
    pub device: DeviceId,
    /// Its node.
    pub node: String,
    /// The region that holds or will hold the accelerator; `None` if the device has no exclusive
    /// regions.
    pub region: Option<usize>,
    /// Set if the region must be reconfigured: the accelerator that it loses (inner `None`: it is
    /// blank).
    pub reconfigures: Option<Option<Accelerator>>,
}

/// The result of an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The instance's node: its own if it had one, otherwise its first device's.
    pub node: String,
    /// The devices, at least one, without duplicates.
    pub devices: Vec<Placement>,
}

/// A candidate's position in the order, and its use.
struct Found {
    key: (bool, Order, DeviceId),
    placement: Placement,
}

/// The requirement for one step of an allocation: the next device.
#[derive(Clone, Copy)]
struct Requirement<'a> {
    request: Request<'a>,
    /// Only devices of this node.
    node: Option<&'a str>,
    /// Preferably devices of this node.
    prefer: Option<&'a str>,
    /// Devices allocated to the same instance already.
    taken: &'a [Placement],
    /// Only loaded devices like this one.
    alike: Option<&'a Placement>,
}

impl Requirement<'_> {
    /// Why a device cannot be a candidate, independent of its load and accelerators.
    fn unfit(&self, snapshot: &Snapshot, device: &Device) -> Option<Reason> {
        if self.request.except.contains(&device.id) {
            return Some(Reason::Excepted);
        }
        if self.taken.iter().any(|t| t.device == device.id) {
            return Some(Reason::Taken);
        }
        if let Some(unmet) = self.request.query.unmet(device) {
            return Some(Reason::Query {
                field: unmet.term.to_string(),
                wanted: unmet.wanted.to_string(),
                found: unmet.found.to_owned(),
            });
        }
        if let Some(reason) = foreign(snapshot, self.request.query, device) {
            return Some(reason);
        }
        match self.node {
            Some(node) if node != device.node => Some(Reason::Node {
                wanted: node.to_owned(),
                found: device.node.clone(),
            }),
            _ => self.lacking(snapshot, device),
        }
    }

    /// Why a device lacks unreserved memory.
    fn lacking(&self, snapshot: &Snapshot, device: &Device) -> Option<Reason> {
        if self.request.memory_bytes == 0 {
            return None;
        }
        let free = snapshot.memory_free(device, self.request.instance);
        (free < self.request.memory_bytes).then_some(Reason::Memory {
            wanted: self.request.memory_bytes,
            free,
            all: device.memory_bytes,
        })
    }
}

/// Why a device does not run a query's accelerator: it is built for other hardware, or the device
/// shares and nothing indicates that its runtime accepts the accelerator.
pub(crate) fn foreign(snapshot: &Snapshot, query: &Query, device: &Device) -> Option<Reason> {
    query.term(Field::Accelerator)?;
    let holds = |r: &Region| r.holds().is_some_and(|a| query.accepts_accelerator(a));
    if device.regions.iter().any(holds) {
        return None;
    }
    let mut target = None;
    for stored in &snapshot.stored {
        if !query.accepts_accelerator(&stored.accelerator) {
            continue;
        }
        match stored.is_for(device) {
            Some(true) => return None,
            None if device.exclusive => return None,
            Some(false) => target = target.or(Some(&stored.target)),
            None => {}
        }
    }
    match target {
        Some(target) => Some(Reason::Target {
            wanted: target.clone(),
            found: device.model.clone(),
        }),
        None => (!device.exclusive).then_some(Reason::Unknown),
    }
}

/// Whether two devices can be presented as one.
fn alike(a: &Device, b: &Device) -> bool {
    a.exclusive == b.exclusive
        && a.vendor == b.vendor
        && a.platform == b.platform
        && a.profile == b.profile
        && a.model == b.model
        && a.name == b.name
}

/// The properties that all devices of a pool must share.
struct Alike<'a> {
    model: &'a Device,
    /// The key of the common accelerator; `None`: any.
    key: Option<String>,
}

impl<'a> Alike<'a> {
    /// Properties required of the devices after the first; `None` if there can be none, because no
    /// other device holds the accelerator that the first one will load.
    fn to(first: &Placement, model: &'a Device) -> Option<Alike<'a>> {
        let key = match first.region {
            Some(_) if first.reconfigures.is_some() => return None,
            Some(region) => Some(model.regions.get(region)?.holds()?.key()),
            None => None,
        };
        Some(Alike { model, key })
    }

    fn accepts(&self, device: &Device) -> bool {
        let held = |key: &String| device.region_of(key).is_some();
        alike(self.model, device) && self.key.as_ref().is_none_or(held)
    }
}

/// The placement on a device that already holds the requested accelerator.
fn as_loaded(
    requirement: &Requirement<'_>,
    device: &Device,
    like: Option<&Alike<'_>>,
) -> Placement {
    Placement {
        device: device.id.clone(),
        node: device.node.clone(),
        region: match like.and_then(|l| l.key.as_ref()) {
            Some(key) => device.region_of(key),
            None => device.region_for(requirement.request.query),
        },
        reconfigures: None,
    }
}

/// A source of candidates.
trait Source {
    /// The first device in order that satisfies [`Policy`] and `requirement`.
    fn best(&self, requirement: &Requirement<'_>) -> Option<Found>;

    /// All nodes that have devices.
    fn nodes(&self) -> Vec<&str>;
}

/// Allocates the devices of a request, or returns `None`.
fn assign(source: &impl Source, request: &Request<'_>) -> Option<Decision> {
    let required = request.locality == Locality::Require;
    let devices = match (required, request.node) {
        (true, None) if request.devices > 1 => {
            // All devices must be on one node that is not decided: the node whose first device is
            // the first in order among the nodes with enough devices.
            let of_node = |node| assign_on(source, request, Some(node));
            let all = source.nodes().into_iter().filter_map(of_node);
            all.min_by(|(a, _), (b, _)| a.cmp(b))?.1
        }
        _ => assign_on(source, request, request.node.filter(|_| required))?.1,
    };
    let node = request.node.unwrap_or(&devices[0].node).to_owned();
    Some(Decision { node, devices })
}

type Assigned = ((bool, Order, DeviceId), Vec<Placement>);

fn assign_on(source: &impl Source, request: &Request<'_>, node: Option<&str>) -> Option<Assigned> {
    let mut taken: Vec<Placement> = Vec::new();
    let mut first = None;
    while taken.len() < request.count() {
        match source.best(&request.requirement(node, &taken)) {
            Some(found) => {
                first.get_or_insert(found.key);
                taken.push(found.placement);
            }
            None if request.pooled && !taken.is_empty() => break,
            None => return None,
        }
    }
    Some((first?, taken))
}

/// The accelerator that a decision plans for a device: the function's or, without one, the query's
/// if it is exact.
fn planned(function: &Function) -> Accelerator {
    function.accelerator.clone().unwrap_or_else(|| {
        let term = function.query.term(Field::Accelerator);
        let name = term.map(|t| t.exact().unwrap_or_else(|| t.to_string()));
        Accelerator {
            name: name.unwrap_or_default(),
            digest: String::new(),
        }
    })
}
