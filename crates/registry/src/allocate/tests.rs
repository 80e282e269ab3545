//! Tests of the algorithm's guarantees, one property each, against its description rather than its
//! code.

mod generate;
mod guarantees;
mod index;
mod plans;

use super::*;
use crate::model::{Region, Snapshot, Stored};
use generate::{accelerator, device};
use std::time::Duration;

fn snapshot(devices: Vec<Device>) -> Snapshot {
    Snapshot {
        devices: devices.into_iter().map(|d| (d.id.clone(), d)).collect(),
        ..Snapshot::default()
    }
}

fn choose(snapshot: &Snapshot, query: &str) -> Result<Decision, Box<Refusal>> {
    let query = query.parse().unwrap();
    allocate(snapshot, &Request::of(&query), &Policy::default())
}

fn given(decision: Result<Decision, Box<Refusal>>) -> String {
    decision.unwrap().devices[0].device.clone()
}

#[test]
fn the_least_used_compatible_device_is_given() {
    let devices = snapshot(vec![
        device("d0", "n0", Some("sobel"), 60.0),
        device("d1", "n1", Some("sobel"), 20.0),
        device("d2", "n2", Some("mm"), 0.0),
        device("d3", "n2", None, 0.0),
    ]);
    let decision = choose(&devices, "accelerator=sobel").unwrap();
    assert_eq!(decision.node, "n1", "an instance follows its device");
    assert_eq!(decision.devices[0].device, "d1");
    assert_eq!(decision.devices[0].reconfigures, None);
    assert_eq!(given(choose(&devices, "accelerator=mm")), "d2");
}

#[test]
fn occupation_decides_between_equal_utilizations() {
    let mut busy = device("d0", "n0", Some("sobel"), 20.0);
    busy.instances.insert("i0".to_owned());
    let devices = snapshot(vec![busy, device("d1", "n1", Some("sobel"), 20.0)]);
    assert_eq!(given(choose(&devices, "accelerator=sobel")), "d1");
}

#[test]
fn a_device_is_reconfigured_only_if_what_it_does_fits_elsewhere() {
    // Two places with mm: the free time of each, 40 and 70, is at least the load of the other.
    let two = snapshot(vec![
        device("d0", "n0", Some("mm"), 30.0),
        device("d1", "n1", Some("mm"), 60.0),
    ]);
    let decision = choose(&two, "accelerator=sobel").unwrap();
    assert_eq!(decision.devices[0].device, "d0", "the least used first");
    assert_eq!(
        decision.devices[0].reconfigures,
        Some(Some(accelerator("mm")))
    );

    // 30 % do not fit into 20 % free, and 80 % do not fit into 70 %.
    let full = snapshot(vec![
        device("d0", "n0", Some("mm"), 30.0),
        device("d1", "n1", Some("mm"), 80.0),
    ]);
    let refusal = choose(&full, "accelerator=sobel").unwrap_err();
    let text = refusal.to_string();
    assert!(
        text.contains("d0: it holds 'mm' (region 0), whose load is 30.0 % of it, and the other regions that hold it have 20.0 % free"),
        "{text}"
    );
}

#[test]
fn the_sum_may_be_exactly_enough() {
    let even = snapshot(vec![
        device("d0", "n0", Some("mm"), 40.0),
        device("d1", "n1", Some("mm"), 60.0),
    ]);
    assert_eq!(given(choose(&even, "accelerator=sobel")), "d0");
}

#[test]
fn a_refusal_says_of_each_device_what_it_failed() {
    let mut cordoned = device("d1", "n0", Some("sobel"), 0.0);
    cordoned.state = DeviceState::Cordoned;
    let mut other = device("d2", "n0", Some("sobel"), 0.0);
    other.vendor = "other".to_owned();
    let devices = snapshot(vec![
        device("d0", "n0", Some("sobel"), 95.0),
        cordoned,
        other,
    ]);
    let policy = Policy {
        filters: vec![Bound {
            metric: "utilization".to_owned(),
            min: None,
            max: Some(90.0),
        }],
        ..Policy::default()
    };
    let query = "vendor=intel,accelerator=sobel".parse().unwrap();
    let refusal = allocate(&devices, &Request::of(&query), &policy).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "no device for 'vendor=intel,accelerator=sobel': d0: utilization is 95, above the greatest \
         allowed, 90; d1: cordoned: it accepts no instances; d2: vendor is 'other', not 'intel'"
    );
    let none = choose(&Snapshot::default(), "").unwrap_err();
    assert_eq!(
        none.to_string(),
        "no device for 'any': no device is registered"
    );
}

#[test]
fn what_is_promised_of_a_device_s_memory_is_no_more_than_it_has() {
    let device = |id, memory_bytes| Device {
        memory_bytes,
        ..device(id, "n0", Some("sobel"), 0.0)
    };
    let mut index = Index::new(
        snapshot(vec![device("d0", 8), device("d1", 4), device("d2", 0)]),
        Policy::default(),
    );
    let mut choose = |id: &str, memory_bytes| {
        let function = Function {
            id: id.to_owned(),
            tenant: String::new(),
            query: Query::any(),
            devices: 1,
            pooled: false,
            locality: Locality::Any,
            memory_bytes,
            accelerator: None,
            preemptible: false,
        };
        let instance = Instance {
            id: id.to_owned(),
            function: id.to_owned(),
            ..Instance::default()
        };
        let decision = index.allocate(&Request::instance(&function, &instance));
        if let Ok(decision) = &decision {
            index.put_function(function);
            index.commit(instance, decision);
        }
        decision
    };
    assert_eq!(given(choose("a", 5)), "d0");
    assert_eq!(given(choose("b", 4)), "d1");
    let refusal = choose("c", 4).unwrap_err().to_string();
    assert_eq!(
        refusal,
        "no device for 'any': d0: 3 of its 8 bytes of memory are unallocated, fewer than 4; \
         d1: 0 of its 4 bytes of memory are unallocated, fewer than 4; \
         d2: 0 of its 0 bytes of memory are unallocated, fewer than 4"
    );
    // An instance's own reservation does not count against it.
    assert_eq!(given(choose("a", 8)), "d0");
    assert_eq!(given(choose("nothing is promised to it", 0)), "d2");
}

#[test]
fn a_planned_accelerator_is_waited_for_rather_than_loaded_twice() {
    let mut index = Index::new(
        snapshot(vec![
            device("d0", "n0", None, 0.0),
            device("d1", "n1", None, 0.0),
        ]),
        Policy::default(),
    );
    let function = Function {
        id: "f".to_owned(),
        tenant: String::new(),
        query: "accelerator=sobel".parse().unwrap(),
        devices: 1,
        pooled: false,
        locality: Locality::Any,
        memory_bytes: 0,
        accelerator: Some(accelerator("sobel")),
        preemptible: false,
    };
    index.put_function(function.clone());
    for id in ["i0", "i1"] {
        let instance = Instance {
            id: id.to_owned(),
            function: "f".to_owned(),
            ..Instance::default()
        };
        let decision = index
            .allocate(&Request::instance(&function, &instance))
            .unwrap();
        assert_eq!(decision.devices[0].device, "d0");
        assert_eq!(decision.devices[0].reconfigures.is_some(), id == "i0");
        index.commit(instance, &decision);
    }
    assert_eq!(index.snapshot().devices["d0"].instances.len(), 2);
}

/// A device with an idle accelerator that has been used.
fn used(id: &str, holds: &str, uses: f64, load_s: u64) -> Device {
    let mut device = device(id, "n0", Some(holds), 0.0);
    let load = Duration::from_secs(load_s);
    device.regions[0].value = Value::of(uses, load, Duration::ZERO);
    device
}

#[test]
fn the_accelerator_that_is_worth_least_gives_way() {
    let mut busy = used("d0", "a", 1.0, 1);
    busy.metrics.insert("utilization".to_owned(), 50.0);
    let twin = Device {
        id: "d4".to_owned(),
        ..used("d4", "a", 50.0, 1)
    };
    // Metrics decide only between equal values.
    let mut devices = vec![
        busy,
        used("d1", "b", 2.0, 1),
        used("d2", "c", 1.0, 10),
        used("d3", "d", 9.0, 1),
        twin,
    ];
    let given_of =
        |devices: &[Device]| given(choose(&snapshot(devices.to_vec()), "accelerator=new"));
    assert_eq!(given_of(&devices), "d0", "its load fits on d4");
    devices.remove(0);
    assert_eq!(given_of(&devices), "d1");
    devices.remove(0);
    assert_eq!(given_of(&devices), "d3", "nine uses and a short load");
    devices.push(used("d5", "e", 0.0, 1));
    assert_eq!(given_of(&devices), "d5", "not used at all");
    let mut planned = used("d6", "f", 0.0, 1);
    planned.regions[0].planned = Some(accelerator("g"));
    devices.push(device("d7", "n0", None, 90.0));
    devices.push(planned);
    assert_eq!(given_of(&devices), "d7", "a blank device loses nothing");
    devices.retain(|d| d.id == "d4" || d.id == "d6");
    assert_eq!(
        given_of(&devices),
        "d4",
        "what is planned was requested last"
    );
}

#[test]
fn turns_are_taken_where_the_fewest_accelerators_take_them() {
    let mut index = Index::new(
        snapshot(vec![
            used("d0", "a", 5.0, 1),
            used("d1", "b", 1.0, 1),
            used("d2", "c", 3.0, 1),
        ]),
        Policy::default(),
    );
    let mut place = |n: usize, name: &str| {
        let function = Function {
            id: format!("f{n}"),
            tenant: String::new(),
            query: format!("accelerator={name}").parse().unwrap(),
            devices: 1,
            pooled: false,
            locality: Locality::Any,
            memory_bytes: 0,
            accelerator: Some(accelerator(name)),
            preemptible: true,
        };
        let instance = Instance {
            id: format!("i{n}"),
            function: function.id.clone(),
            ..Instance::default()
        };
        let request = Request {
            query: &Query::any(),
            takes_turns: true,
            ..Request::instance(&function, &instance)
        };
        let decision = index.allocate(&request).unwrap();
        assert_eq!(decision.devices[0].reconfigures, None);
        index.put_function(function);
        let device = decision.devices[0].device.clone();
        index.commit(instance, &decision);
        device
    };
    // The least valuable first; then the devices that fewer accelerators use. Instances of one
    // accelerator count once.
    let devices: Vec<String> = (0..7)
        .zip(["p", "q", "r", "s", "s", "t", "u"])
        .map(|(n, name)| place(n, name))
        .collect();
    assert_eq!(devices, ["d1", "d2", "d0", "d1", "d2", "d0", "d1"]);
}

#[test]
fn regions_hold_several_accelerators_on_one_device() {
    let mut board = device("d0", "n0", Some("sobel"), 50.0);
    board.regions.push(Region {
        accelerator: Some(accelerator("mm")),
        utilization: Some(10.0),
        ..Region::default()
    });
    board.regions.push(Region::default());
    let devices = snapshot(vec![board]);
    for (query, region, reconfigures) in [
        ("accelerator=sobel", Some(0), None),
        ("accelerator=mm", Some(1), None),
        ("accelerator=aes", Some(2), Some(None)),
        ("", None, None),
    ] {
        let decision = choose(&devices, query).unwrap();
        let placement = &decision.devices[0];
        assert_eq!(
            (placement.region, placement.reconfigures.clone()),
            (region, reconfigures),
            "{query}"
        );
    }
}

#[test]
fn cpus_and_gpus_are_never_reconfigured() {
    let mut gpu = device("d0", "n0", None, 90.0);
    gpu.exclusive = false;
    gpu.model = "gpu".to_owned();
    gpu.regions.clear();
    let mut devices = snapshot(vec![gpu, device("d1", "n1", None, 0.0)]);
    let stored = |target: &str| Stored {
        accelerator: accelerator("sobel"),
        target: target.to_owned(),
    };
    // An accelerator without a target runs on the device that can be reconfigured for it.
    assert_eq!(given(choose(&devices, "accelerator=sobel")), "d1");
    devices.stored.insert(stored("gpu"));
    let decision = choose(&devices, "accelerator=sobel").unwrap();
    assert_eq!(decision.devices[0].device, "d0");
    assert_eq!(decision.devices[0].reconfigures, None);
}

#[test]
fn a_policy_that_means_nothing_is_refused() {
    let bound = |metric: &str, min, max| Bound {
        metric: metric.to_owned(),
        min,
        max,
    };
    let order = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
    assert_eq!(Policy::default().check(), Ok(()));
    for filters in [
        vec![bound("", None, Some(1.0))],
        vec![bound("a", None, None)],
        vec![bound("a", Some(2.0), Some(1.0))],
        vec![bound("a", Some(f64::NAN), None)],
    ] {
        let policy = Policy {
            filters,
            ..Policy::default()
        };
        assert!(policy.check().is_err(), "{policy:?}");
    }
    for names in [&["a", "-a"][..], &["-"][..]] {
        let policy = Policy {
            order: order(names),
            ..Policy::default()
        };
        assert!(policy.check().is_err(), "{policy:?}");
    }
}
