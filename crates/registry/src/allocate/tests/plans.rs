use super::super::*;
use super::generate::*;
use super::snapshot;
use crate::model::InstanceId;
use crate::model::Snapshot;
use proptest::prelude::*;

fn with_instances(mut snapshot: Snapshot, on: &str, query: &str, count: usize) -> Snapshot {
    for n in 0..count {
        let function = Function {
            id: format!("f{n}"),
            tenant: String::new(),
            query: query.parse().unwrap(),
            devices: 1,
            pooled: false,
            locality: Locality::Any,
            memory_bytes: 0,
            accelerator: None,
            preemptible: false,
        };
        let instance = Instance {
            id: format!("i{n}"),
            function: function.id.clone(),
            devices: vec![on.to_owned()],
            ..Instance::default()
        };
        snapshot.functions.insert(function.id.clone(), function);
        snapshot.instances.insert(instance.id.clone(), instance);
    }
    snapshot
}

#[test]
fn instances_take_their_load_with_them() {
    let devices = snapshot(vec![
        device("d0", "n0", Some("mm"), 80.0),
        device("d1", "n1", Some("mm"), 0.0),
        device("d2", "n2", Some("mm"), 10.0),
        device("d3", "n2", Some("aes"), 0.0),
    ]);
    let index = Index::new(
        with_instances(devices, "d0", "accelerator=mm", 4),
        Policy::default(),
    );
    let plan = plan(&index, "d0", 0, &accelerator("sobel"));
    assert!(plan.is_complete());
    let to: Vec<&str> = plan
        .moves
        .iter()
        .map(|m| m.to.as_ref().unwrap().device.as_str())
        .collect();
    // Each moving instance brings 20 %: d1 has 20, d2 30, d1 40 in turn.
    assert_eq!(to, ["d1", "d2", "d1", "d2"]);
}

#[test]
fn whoever_fits_the_new_accelerator_stays_and_whoever_fits_nothing_is_named() {
    let devices = snapshot(vec![device("d0", "n0", Some("mm"), 10.0)]);
    let index = Index::new(
        with_instances(devices, "d0", "accelerator=mm", 1),
        Policy::default(),
    );
    assert_eq!(plan(&index, "d0", 0, &accelerator("mm")), Plan::default());
    let lost = plan(&index, "d0", 0, &accelerator("sobel"));
    assert_eq!(lost.stranded[0].instance, "i0");
    assert!(lost.stranded[0].reason.contains("accelerator=mm"));
    assert!(!lost.is_complete());
    assert_eq!(plan(&index, "gone", 0, &accelerator("mm")), Plan::default());
}

#[test]
fn nobody_moves_where_its_memory_is_promised_to_another() {
    let device = |id, memory_bytes| Device {
        memory_bytes,
        ..device(id, "n0", Some("mm"), 0.0)
    };
    let devices = snapshot(vec![device("d0", 8), device("d1", 3), device("d2", 1)]);
    let mut world = with_instances(devices, "d0", "accelerator=mm", 3);
    for (n, memory_bytes) in [(0, 2), (1, 2), (2, 1)] {
        let function = world.functions.get_mut(&format!("f{n}")).unwrap();
        function.memory_bytes = memory_bytes;
    }
    let plan = evacuate(&Index::new(world, Policy::default()), "d0");
    let to = plan.moves.iter().map(|m| {
        let to = m.to.as_ref().unwrap();
        (m.instance.as_str(), to.device.as_str())
    });
    assert_eq!(to.collect::<Vec<_>>(), [("i0", "d1"), ("i2", "d2")]);
    let reason = &plan.stranded[0].reason;
    assert!(reason.contains("2 bytes of unallocated memory"), "{reason}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_instance_stays_moves_or_is_named(
        snapshot in any_snapshot(), policy in any_policy(), region in 0usize..3, drains: bool,
    ) {
        let index = Index::new(snapshot, policy);
        let new = accelerator("x");
        for device in index.snapshot().devices.values() {
            let plan = if drains { evacuate(&index, &device.id) } else { plan(&index, &device.id, region, &new) };
            let mut planned: Vec<&InstanceId> = plan.moves.iter().map(|m| &m.instance).collect();
            planned.extend(plan.stranded.iter().map(|s| &s.instance));
            let count = planned.len();
            planned.sort();
            planned.dedup();
            prop_assert_eq!(planned.len(), count);
            let mut changed = device.clone();
            if let Some(region) = changed.regions.get_mut(region) {
                region.planned = Some(new.clone());
            }
            for id in &device.instances {
                let instance = &index.snapshot().instances[id];
                let query = &index.snapshot().functions[&instance.function].query;
                let stays = !drains && changed.has_loaded(query);
                prop_assert_eq!(!stays, planned.contains(&id));
            }
        }
    }

    #[test]
    fn moves_go_where_the_instance_is_served_without_reconfiguration(
        snapshot in any_snapshot(), policy in any_policy(),
    ) {
        let index = Index::new(snapshot, policy);
        let Snapshot { devices, functions, instances, .. } = index.snapshot();
        for device in devices.values() {
            let plan = evacuate(&index, &device.id);
            for step in &plan.moves {
                let query = &functions[&instances[&step.instance].function].query;
                let to = &devices[&step.to.as_ref().unwrap().device];
                prop_assert_ne!(&to.id, &device.id);
                prop_assert!(index.policy().admits(to));
                prop_assert!(query.unmet(to).is_none() && to.has_loaded(query));
            }
            // If there is a move, the first instance was placed on the best device.
            let Some(first) = plan.moves.first() else { continue };
            if plan.stranded.iter().any(|s| s.instance < first.instance) {
                continue;
            }
            let function = &functions[&instances[&first.instance].function];
            let except = std::slice::from_ref(&device.id);
            let request = Request {
                except,
                memory_bytes: function.memory_bytes,
                instance: Some(&first.instance),
                ..Request::of(&function.query)
            };
            let best = allocate(index.snapshot(), &request, index.policy()).unwrap();
            prop_assert_eq!(&best.devices[0], first.to.as_ref().unwrap());
        }
    }
}
