use super::super::*;
use super::generate::*;
use crate::model::Snapshot;
use proptest::prelude::*;

/// A change of a registry.
#[derive(Clone, Debug)]
enum Change {
    Put(usize, Box<Device>),
    Remove(usize),
    Metrics(usize, f64),
    State(usize, DeviceState),
    Load(usize, &'static str),
    Use(usize, Value),
    Allocate(Demand),
    Leave(usize),
    Policy(Policy),
}

fn any_change() -> impl Strategy<Value = Change> {
    let at = 0usize..9;
    let states = vec![DeviceState::Ready, DeviceState::Draining];
    prop_oneof![
        2 => (at.clone(), any_device()).prop_map(|(n, d)| Change::Put(n, Box::new(d))),
        1 => at.clone().prop_map(Change::Remove),
        3 => (at.clone(), 0.0..110.0f64).prop_map(|(n, u)| Change::Metrics(n, u)),
        1 => (at.clone(), prop::sample::select(states)).prop_map(|(n, s)| Change::State(n, s)),
        1 => (at.clone(), prop::sample::select(vec!["x", "y"])).prop_map(|(n, a)| Change::Load(n, a)),
        3 => (at.clone(), value()).prop_map(|(n, v)| Change::Use(n, v)),
        4 => any_demand().prop_map(Change::Allocate),
        1 => (0usize..30).prop_map(Change::Leave),
        1 => any_policy().prop_map(Change::Policy),
    ]
}

fn apply(index: &mut Index, change: Change, step: usize) {
    let id = |n: usize| format!("d{n}");
    match change {
        Change::Put(n, device) => index.put_device(Device {
            id: id(n),
            ..*device
        }),
        Change::Remove(n) => _ = index.remove_device(&id(n)),
        Change::Metrics(n, utilization) => {
            index.update_device(&id(n), |d| {
                d.metrics.insert(UTILIZATION.to_owned(), utilization)
            });
        }
        Change::State(n, state) => _ = index.update_device(&id(n), |d| d.state = state),
        Change::Load(n, name) => {
            index.update_device(&id(n), |d| {
                for region in &mut d.regions {
                    region.planned = None;
                    region.accelerator = Some(accelerator(name));
                }
            });
        }
        Change::Use(n, value) => {
            index.update_device(&id(n), |d| {
                if let Some(region) = d.regions.first_mut() {
                    region.value = value;
                }
            });
        }
        Change::Allocate(demand) => {
            if let Some(decision) = index.choose(&demand.request()) {
                let function = Function {
                    id: format!("g{step}"),
                    tenant: String::new(),
                    query: demand.query.clone(),
                    devices: demand.devices,
                    pooled: demand.pooled,
                    locality: demand.locality,
                    memory_bytes: demand.memory_bytes,
                    accelerator: None,
                    preemptible: false,
                };
                let instance = Instance {
                    id: format!("j{step}"),
                    function: function.id.clone(),
                    ..Instance::default()
                };
                index.put_function(function);
                index.commit(instance, &decision);
            }
        }
        Change::Leave(n) => _ = index.remove_instance(&format!("j{n}")),
        Change::Policy(policy) => index.set_policy(policy),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn index_and_scan_agree(
        snapshot in any_snapshot(), policy in any_policy(),
        changes in prop::collection::vec(any_change(), 0..20),
        demands in prop::collection::vec(any_demand(), 4),
    ) {
        let mut index = Index::new(snapshot, policy);
        for (step, change) in changes.into_iter().enumerate() {
            apply(&mut index, change, step);
        }
        for demand in &demands {
            let scan = allocate(index.snapshot(), &demand.request(), index.policy());
            prop_assert_eq!(index.allocate(&demand.request()), scan);
        }
    }

    #[test]
    fn an_index_kept_is_one_made_anew(
        snapshot in any_snapshot(), policy in any_policy(),
        changes in prop::collection::vec(any_change(), 0..20),
        demand in any_demand(),
    ) {
        let mut index = Index::new(snapshot, policy);
        for (step, change) in changes.into_iter().enumerate() {
            apply(&mut index, change, step);
        }
        let anew = Index::new(index.snapshot().clone(), index.policy().clone());
        prop_assert_eq!(anew.snapshot(), index.snapshot());
        prop_assert_eq!(anew.choose(&demand.request()), index.choose(&demand.request()));
    }

    #[test]
    fn devices_list_their_instances(
        snapshot in any_snapshot(), changes in prop::collection::vec(any_change(), 0..20),
    ) {
        let mut index = Index::new(snapshot, Policy::default());
        for (step, change) in changes.into_iter().enumerate() {
            apply(&mut index, change, step);
        }
        let Snapshot { devices, instances, .. } = index.snapshot();
        for device in devices.values() {
            let has = |i: &&Instance| i.devices.contains(&device.id);
            let expected: Vec<&String> = instances.values().filter(has).map(|i| &i.id).collect();
            prop_assert_eq!(device.instances.iter().collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn what_came_since_the_last_heartbeat_counts() {
    let mut index = Index::new(Snapshot::default(), Policy::default());
    for (id, utilization, instances) in [("a", 30.0, 3), ("b", 20.0, 2), ("c", 0.0, 0)] {
        index.put_device(Device {
            exclusive: false,
            ..device(id, "n", None, utilization)
        });
        for n in 0..instances {
            index.put_instance(Instance {
                id: format!("{id}{n}"),
                devices: vec![id.to_owned()],
                ..Instance::default()
            });
        }
        // These instances existed when the load was reported.
        index.update_device(id, |d| d.foreseen = 0.0);
    }
    let query = Query::any();
    let place = |name: &str, index: &mut Index| {
        let decision = index.choose(&Request::of(&query)).unwrap();
        let instance = Instance {
            id: name.to_owned(),
            ..Instance::default()
        };
        index.commit(instance, &decision);
        decision.devices[0].device.clone()
    };
    let placed: Vec<String> = (0..4)
        .map(|n| place(&format!("x{n}"), &mut index))
        .collect();
    // Of the 50 percent load of five instances, each new instance is expected to add a fifth, a
    // sixth, a seventh.
    assert_eq!(placed, ["c", "c", "c", "b"]);
    index.update_device("c", |d| d.foreseen = 0.0);
    assert_eq!(place("y", &mut index), "c");
}
