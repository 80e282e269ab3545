//! Generates small pools in which names coincide often.

use super::super::*;
use crate::model::{Region, Snapshot, Stored};
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;
use std::time::Duration;

pub fn accelerator(name: &str) -> Accelerator {
    Accelerator {
        name: name.to_owned(),
        digest: format!("{name}00"),
    }
}

pub fn device(id: &str, node: &str, holds: Option<&str>, utilization: f64) -> Device {
    Device {
        id: id.to_owned(),
        node: node.to_owned(),
        vendor: "intel".to_owned(),
        exclusive: true,
        regions: vec![Region {
            accelerator: holds.map(accelerator),
            ..Region::default()
        }],
        metrics: BTreeMap::from([(UTILIZATION.to_owned(), utilization)]),
        ..Device::default()
    }
}

fn percent() -> impl Strategy<Value = f64> {
    prop_oneof![
        select(vec![0.0, 10.0, 40.0, 50.0, 60.0, 90.0, 100.0]),
        0.0..100.0f64,
    ]
}

fn region() -> impl Strategy<Value = Region> {
    let held = || {
        let unknown = |name: &str| Accelerator {
            name: name.to_owned(),
            digest: String::new(),
        };
        let all = vec![
            accelerator("x"),
            accelerator("x"),
            accelerator("y"),
            accelerator("z"),
            unknown("x"),
        ];
        prop::option::weighted(0.8, select(all))
    };
    let planned = prop::option::weighted(0.1, held()).prop_map(Option::flatten);
    let utilization = prop::option::weighted(0.2, percent());
    (held(), planned, utilization, value()).prop_map(
        |(accelerator, planned, utilization, value)| Region {
            accelerator,
            planned,
            utilization,
            value,
        },
    )
}

/// Values that are often equal.
pub fn value() -> impl Strategy<Value = Value> {
    let uses = select(vec![0.0, 0.0, 1.0, 1.0, 8.0, 100.0]);
    uses.prop_map(|uses| Value::of(uses, Duration::from_secs(1), Duration::ZERO))
}

fn state() -> impl Strategy<Value = DeviceState> {
    prop_oneof![
        8 => Just(DeviceState::Ready),
        1 => Just(DeviceState::Cordoned),
        1 => Just(DeviceState::Draining),
        1 => Just(DeviceState::Lost),
    ]
}

/// A device without its name.
pub fn any_device() -> impl Strategy<Value = Device> {
    (
        select(vec!["n0", "n1", "n2"]),
        select(vec![("intel", "a10"), ("intel", "b10"), ("xilinx", "u280")]),
        select(vec!["", "pool"]),
        prop::bool::weighted(0.8),
        prop::collection::vec(region(), 0..3),
        state(),
        prop::option::weighted(0.9, percent()),
        prop::option::of(0.0..8.0f64),
        0u64..4,
    )
        .prop_map(
            |(node, kind, pool, exclusive, regions, state, utilization, memory, bytes)| {
                let reported = [("utilization", utilization), ("memory", memory)];
                let present = reported
                    .into_iter()
                    .filter_map(|(n, v)| Some((n.to_owned(), v?)));
                Device {
                    node: node.to_owned(),
                    vendor: kind.0.to_owned(),
                    model: kind.1.to_owned(),
                    pool: pool.to_owned(),
                    exclusive,
                    regions,
                    memory_bytes: bytes,
                    state,
                    metrics: present.collect(),
                    ..Device::default()
                }
            },
        )
}

/// Devices, and a function with instances spread over them.
pub fn any_snapshot() -> impl Strategy<Value = Snapshot> {
    let devices = prop::collection::vec(any_device(), 0..9);
    let instances = prop::collection::vec((0usize..9, any_query(), any_memory()), 0..8);
    let stored = prop::collection::btree_set(any_stored(), 0..4);
    (devices, instances, stored).prop_map(|(devices, instances, stored)| {
        let mut snapshot = Snapshot {
            stored,
            ..Snapshot::default()
        };
        for (n, device) in devices.into_iter().enumerate() {
            let id = format!("d{n}");
            let device = Device {
                id: id.clone(),
                ..device
            };
            snapshot.devices.insert(id, device);
        }
        for (n, (at, query, memory_bytes)) in instances.into_iter().enumerate() {
            let Some(device) = snapshot.devices.get_mut(&format!("d{at}")) else {
                continue;
            };
            let (id, function) = (format!("i{n}"), format!("f{n}"));
            device.instances.insert(id.clone());
            let instance = Instance {
                id: id.clone(),
                function: function.clone(),
                hostname: String::new(),
                node: device.node.clone(),
                devices: vec![device.id.clone()],
            };
            let function = Function {
                id: function,
                tenant: String::new(),
                query,
                devices: 1,
                pooled: false,
                locality: Locality::Any,
                memory_bytes,
                accelerator: None,
                preemptible: false,
            };
            snapshot.instances.insert(id, instance);
            snapshot.functions.insert(function.id.clone(), function);
        }
        snapshot
    })
}

/// An accelerator of a store: built for some model, or for an unknown one.
fn any_stored() -> impl Strategy<Value = Stored> {
    let targets = select(vec!["", "a*", "B10", "u*"]);
    (select(vec!["x", "y", "z"]), targets).prop_map(|(name, target)| Stored {
        accelerator: accelerator(name),
        target: target.to_owned(),
    })
}

/// Memory to reserve; mostly 0.
fn any_memory() -> impl Strategy<Value = u64> {
    select(vec![0, 0, 0, 1, 2])
}

pub fn any_query() -> impl Strategy<Value = Query> {
    let wanted = select(vec![
        "accelerator=x",
        "accelerator=x",
        "accelerator=y",
        "accelerator=?",
        "accelerator=sha256:x00",
        "accelerator=new",
        "vendor=intel,accelerator=x",
        "vendor=x*,accelerator=z",
        "vendor=intel",
        "pool=pool,accelerator=y",
        "node=n1,accelerator=x",
        "id=d?",
        "id=d1,accelerator=new",
        "",
    ]);
    wanted.prop_map(|text| text.parse().expect("written here"))
}

pub fn any_policy() -> impl Strategy<Value = Policy> {
    let most = Bound {
        metric: UTILIZATION.to_owned(),
        min: None,
        max: Some(90.0),
    };
    let least = Bound {
        metric: "memory".to_owned(),
        min: Some(1.0),
        max: None,
    };
    let filters = vec![vec![], vec![], vec![most.clone()], vec![most, least]];
    let orders = vec![
        vec!["utilization", "occupation"],
        vec!["utilization", "occupation"],
        vec!["-memory", "utilization"],
        vec![],
    ];
    (select(filters), select(orders)).prop_map(|(filters, order)| Policy {
        filters,
        order: order.into_iter().map(str::to_owned).collect(),
    })
}

/// A request that owns its data.
#[derive(Clone, Debug)]
pub struct Demand {
    pub query: Query,
    pub devices: u32,
    pub pooled: bool,
    pub node: Option<&'static str>,
    pub locality: Locality,
    pub except: Vec<DeviceId>,
    pub memory_bytes: u64,
    pub takes_turns: bool,
}

impl Demand {
    pub fn request(&self) -> Request<'_> {
        Request {
            query: &self.query,
            devices: self.devices,
            pooled: self.pooled,
            node: self.node,
            locality: self.locality,
            except: &self.except,
            memory_bytes: self.memory_bytes,
            instance: None,
            takes_turns: self.takes_turns,
        }
    }
}

pub fn any_demand() -> impl Strategy<Value = Demand> {
    (
        any_query(),
        1u32..4,
        prop::bool::weighted(0.3),
        prop::option::of(select(vec!["n0", "n1"])),
        select(vec![
            Locality::Any,
            Locality::Any,
            Locality::Prefer,
            Locality::Require,
        ]),
        prop::option::weighted(0.2, Just("d0".to_owned())),
        any_memory(),
    )
        .prop_map(
            |(query, devices, pooled, node, locality, except, memory_bytes)| Demand {
                query,
                devices,
                pooled,
                node,
                locality,
                except: except.into_iter().collect(),
                memory_bytes,
                takes_turns: false,
            },
        )
}

/// A request for one device, as in the thesis.
pub fn any_single() -> impl Strategy<Value = Demand> {
    any_query().prop_map(|query| Demand {
        query,
        devices: 1,
        pooled: false,
        node: None,
        locality: Locality::Any,
        except: Vec::new(),
        memory_bytes: 0,
        takes_turns: false,
    })
}
