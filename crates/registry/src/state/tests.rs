//! The allocator's view is updated change by change; it must equal the view that a fresh start
//! computes from the same store.

use super::*;
use crate::records::{AcceleratorRecord, AssignmentRecord, PoolRecord, StoredQuery};
use proptest::prelude::*;

fn fresh(image: Image) -> State {
    let second = Duration::from_secs(1);
    let terms = Terms {
        policy: Policy::default(),
        locality: Locality::Any,
        lease: second,
        grace: second,
        forget: 100 * second,
        move_policy: Default::default(),
    };
    State::new(image, LeaseClock::new(Duration::ZERO, second), terms)
}

fn node(n: u8, devices: u8, marks: u8) -> NodeRecord {
    let device = |d: u8| DeviceRecord {
        name: format!("d{d}"),
        vendor: if d.is_multiple_of(2) {
            "A".into()
        } else {
            "B".into()
        },
        exclusive: d.is_multiple_of(2),
        regions: 2,
        cordoned: marks & 1 > 0,
        draining: marks & 2 > 0,
        pending: (marks & 4 > 0)
            .then(|| {
                (
                    1,
                    AcceleratorRecord {
                        name: "x".into(),
                        ..Default::default()
                    },
                )
            })
            .into_iter()
            .collect(),
        ..DeviceRecord::default()
    };
    NodeRecord {
        name: format!("n{n}"),
        devices: (0..devices).map(|d| (format!("d{d}"), device(d))).collect(),
        ..NodeRecord::default()
    }
}

fn instance(i: u8, places: Vec<(u8, u8)>, lease_s: u32) -> InstanceRecord {
    let assignment = |(n, d): (u8, u8)| AssignmentRecord {
        node: format!("n{n}"),
        device: format!("d{d}"),
        region: 0,
        live: false,
    };
    InstanceRecord {
        name: format!("i{i}"),
        query: StoredQuery::read("accelerator=x".into()),
        lease_s,
        devices: places.into_iter().map(assignment).collect(),
        ..InstanceRecord::default()
    }
}

fn change() -> impl Strategy<Value = Change> {
    let place = (0u8..4, 0u8..3);
    let places = proptest::collection::vec(place, 0..3);
    prop_oneof![
        (0u8..4, 0u8..4, 0u8..8).prop_map(|(n, d, m)| Change::PutNode(node(n, d, m))),
        (0u8..4).prop_map(|n| Change::RemoveNode(format!("n{n}"))),
        (0u8..6, places, 0u32..3).prop_map(|(i, p, l)| Change::PutInstance(instance(i, p, l))),
        (0u8..6).prop_map(|i| Change::RemoveInstance(format!("i{i}"))),
        (
            0u8..2,
            prop_oneof![Just("vendor=A"), Just("vendor=B"), Just("")]
        )
            .prop_map(|(p, q)| {
                Change::PutPool(PoolRecord {
                    name: format!("p{p}"),
                    query: StoredQuery::read(q.into()),
                })
            }),
        (0u8..2).prop_map(|p| Change::RemovePool(format!("p{p}"))),
    ]
}

/// Sends heartbeats of all nodes, with 10 % load.
fn heartbeat(state: &mut State) {
    let nodes: Vec<NodeRecord> = state.image().nodes.values().cloned().collect();
    for node in nodes {
        state.registered(&node.name);
        let load = |name: &String| DeviceLoad {
            name: name.clone(),
            utilization: Some(10.0),
            ..DeviceLoad::default()
        };
        state.record_heartbeat(&node.name, node.devices.keys().map(load).collect());
    }
}

proptest! {
    #[test]
    fn step_by_step_is_the_same_as_from_the_start(
        rounds in proptest::collection::vec((proptest::collection::vec(change(), 1..4), any::<bool>()), 1..24)
    ) {
        let mut state = fresh(Image::default());
        for (changes, alive) in rounds {
            state.apply(changes);
            if alive {
                heartbeat(&mut state);
            }
        }
        let mut again = fresh(state.image().clone());
        heartbeat(&mut state);
        heartbeat(&mut again);
        prop_assert_eq!(state.index().snapshot(), again.index().snapshot());
        let of = |s: &State| s.leases.keys().cloned().collect::<Vec<_>>();
        prop_assert_eq!(of(&state), of(&again));
        let names = |s: &State| s.live.keys().cloned().collect::<Vec<_>>();
        prop_assert_eq!(names(&state), names(&again));
    }
}

#[test]
fn a_lease_ends_after_its_time_and_not_before() {
    let mut state = fresh(Image::default());
    state.apply(vec![
        Change::PutNode(node(0, 1, 0)),
        Change::PutInstance(instance(0, vec![(0, 0)], 2)),
    ]);
    heartbeat(&mut state);
    let half = Duration::from_millis(500);
    let swept: Vec<Swept> = (1..=5).map(|n| state.sweep(n * half)).collect();
    assert_eq!(swept[0], Swept::default());
    assert_eq!(swept[1], Swept::default());
    assert_eq!(swept[2].silent, ["n0"]);
    assert!(swept[3].silent.is_empty() && swept[3].expired.is_empty());
    assert_eq!(swept[4].expired, ["i0"]);
}

#[test]
fn a_stored_query_that_does_not_parse_fits_no_device() {
    let query = StoredQuery::read("country=ch".into());
    let mut unreadable = instance(0, vec![(0, 0)], 0);
    unreadable.query = query.clone();
    let mut state = fresh(Image::default());
    state.apply(vec![
        Change::PutNode(node(0, 2, 0)),
        Change::PutInstance(unreadable.clone()),
        Change::PutPool(PoolRecord {
            name: "p".into(),
            query,
        }),
    ]);
    heartbeat(&mut state);
    for state in [&state, &fresh(state.image().clone())] {
        let demand = state.demand(&unreadable);
        let devices = &state.index().snapshot().devices;
        assert_eq!(devices.len(), 2);
        for device in devices.values() {
            assert!(demand.query.unmet(device).is_some());
            assert!(!device.exclusive || !device.has_loaded(&demand.query));
            assert_eq!(device.pool, "");
        }
        let request = crate::allocate::Request::of(&demand.query);
        assert!(state.index().allocate(&request).is_err());
        // It keeps its allocation.
        assert_eq!(state.holders("n0/d0").collect::<Vec<_>>(), ["i0"]);
    }
}

/// An order to end a task is for a reported task of a node that responds, is given once, and is
/// repeated to the node until the task is no longer reported.
#[test]
fn an_order_to_end_a_task_is_repeated_until_it_has_ended() {
    let mut state = fresh(Image::default());
    state.apply(vec![Change::PutNode(node(1, 2, 0))]);
    let report = |state: &mut State, running: &[u64]| {
        let task = |lease: &u64| baltra_api::registry::RunningTask {
            lease: *lease,
            started_ns: 7,
            ..Default::default()
        };
        let load = DeviceLoad {
            name: "d1".into(),
            running: running.iter().map(task).collect(),
            ..DeviceLoad::default()
        };
        state.record_heartbeat("n1", vec![load]);
    };
    let order = |lease, started_ns| TaskEnd {
        device: "d1".into(),
        lease,
        started_ns,
    };
    let pending = |state: &State| state.node("n1").unwrap().1.ends.clone();
    report(&mut state, &[3, 4]);
    assert!(!state.end_task("n1", order(3, 8)), "another task");
    assert!(!state.end_task("n2", order(3, 7)), "another node");
    assert!(state.end_task("n1", order(3, 7)));
    assert!(state.end_task("n1", order(3, 7)));
    assert_eq!(pending(&state), [order(3, 7)]);
    report(&mut state, &[3, 4]);
    assert_eq!(pending(&state), [order(3, 7)], "it still runs");
    report(&mut state, &[4]);
    assert_eq!(pending(&state), []);
    state.gone("n1");
    assert!(
        !state.end_task("n1", order(4, 7)),
        "the node does not respond"
    );
}
