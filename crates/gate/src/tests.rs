use super::*;
use baltra_ring::LeaseState;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A simulated client: runs tasks of `task_ns` with pauses of `think_ns` between them.
#[derive(Clone, Debug)]
struct Load {
    weight: u32,
    priority: i32,
    task_ns: u64,
    think_ns: u64,
    floor: u32,
    ceiling: u32,
    /// On CPU devices: number of processors that a task uses.
    processors: u64,
}

#[derive(Clone, Debug)]
struct Simulated {
    load: Load,
    state: LeaseState,
    /// The end of the running task or, without one, the time of the next request.
    until_ns: u64,
    busy_ns: u64,
    tasks: u64,
    waiting_since_ns: u64,
    longest_wait_ns: u64,
}

struct World {
    scheduler: Scheduler,
    clients: BTreeMap<ClientId, Simulated>,
    now_ns: u64,
    slots: usize,
    /// Whether processor time is counted.
    counts: bool,
    /// Time during which a slot was free although a client waited.
    wasted_ns: u64,
}

const MS: u64 = 1_000_000;

fn options(policy: PolicyKind, slots: usize) -> GateOptions {
    GateOptions {
        slots,
        policy,
        quantum: Duration::from_millis(1),
        linger: Duration::from_micros(50),
    }
}

impl World {
    fn new(policy: PolicyKind, slots: usize, loads: &[Load]) -> World {
        let mut scheduler = Scheduler::new(options(policy, slots));
        let clients = loads.iter().zip(1..).map(|(load, id)| {
            let share = Share {
                tenant: format!("t{id}"),
                weight: load.weight,
                priority: load.priority,
                floor: load.floor,
                ceiling: load.ceiling,
            };
            scheduler.add(id, &share);
            let fresh = Simulated {
                load: load.clone(),
                state: LeaseState::Free,
                until_ns: 0,
                busy_ns: 0,
                tasks: 0,
                waiting_since_ns: 0,
                longest_wait_ns: 0,
            };
            (id, fresh)
        });
        let clients = clients.collect();
        World {
            scheduler,
            clients,
            now_ns: 0,
            slots,
            counts: false,
            wasted_ns: 0,
        }
    }

    /// A device that consists of this many processors.
    fn on_processors(processors: usize, slots: usize, loads: &[Load]) -> World {
        let mut world = World::new(PolicyKind::Fair, slots, loads);
        world.scheduler.set_processors(processors);
        world.counts = true;
        world
    }

    fn report(&mut self, id: ClientId) {
        let c = &self.clients[&id];
        let running = match c.state {
            LeaseState::Busy | LeaseState::Revoked => {
                c.load.task_ns - c.until_ns.saturating_sub(self.now_ns)
            }
            _ => 0,
        };
        let processor_ns = (c.busy_ns + running) * c.load.processors;
        let work = Work {
            tasks: c.tasks,
            busy_ns: c.busy_ns,
            processor_ns: self.counts.then_some(processor_ns),
        };
        self.scheduler.observe(id, c.state, work, self.now_ns);
    }

    fn step_clients(&mut self) {
        let now = self.now_ns;
        let ids: Vec<_> = self.clients.keys().copied().collect();
        for id in ids {
            let c = self.clients.get_mut(&id).unwrap();
            let before = c.state;
            if matches!(c.state, LeaseState::Busy | LeaseState::Revoked) && now >= c.until_ns {
                c.busy_ns += c.load.task_ns;
                c.tasks += 1;
                c.until_ns = now + c.load.think_ns;
                c.state = match c.state {
                    LeaseState::Busy => LeaseState::Idle,
                    _ => LeaseState::Free,
                };
            }
            if now >= c.until_ns {
                match c.state {
                    LeaseState::Idle => {
                        c.state = LeaseState::Busy;
                        c.until_ns = now + c.load.task_ns;
                    }
                    LeaseState::Free => {
                        c.state = LeaseState::Waiting;
                        c.waiting_since_ns = now;
                    }
                    _ => {}
                }
            }
            if c.state != before {
                self.report(id);
            }
        }
    }

    fn step_gate(&mut self) {
        if self.counts {
            for id in self.scheduler.holders().collect::<Vec<_>>() {
                self.report(id);
            }
        }
        loop {
            let actions = self.scheduler.decide(self.now_ns);
            if actions.is_empty() {
                break;
            }
            for action in actions {
                let (Action::Grant(id) | Action::Take(id) | Action::Revoke(id)) = action;
                let now = self.now_ns;
                let c = self.clients.get_mut(&id).unwrap();
                c.state = match (action, c.state) {
                    (Action::Grant(_), LeaseState::Waiting) => {
                        c.longest_wait_ns = c.longest_wait_ns.max(now - c.waiting_since_ns);
                        c.until_ns = now + c.load.task_ns;
                        LeaseState::Busy
                    }
                    (Action::Take(_), LeaseState::Idle) => LeaseState::Free,
                    (Action::Revoke(_), LeaseState::Busy) => LeaseState::Revoked,
                    other => panic!("an action that does not fit: {other:?}"),
                };
                self.report(id);
            }
        }
    }

    fn run(&mut self, until_ns: u64) {
        while self.now_ns < until_ns {
            self.step_clients();
            self.step_gate();
            self.step_clients();
            let held = self.scheduler.holders().count();
            assert!(held <= self.slots, "{held} holders of {} slots", self.slots);
            let events = self
                .clients
                .values()
                .filter(|c| c.state != LeaseState::Waiting);
            let next = events
                .map(|c| c.until_ns)
                .filter(|at| *at > self.now_ns)
                .chain(self.scheduler.deadline_ns(self.now_ns))
                .min()
                .unwrap_or(until_ns)
                .clamp(self.now_ns + 1, until_ns);
            let waits = self.scheduler.waiting_count() > 0;
            if waits && held < self.slots {
                self.wasted_ns += next - self.now_ns;
            }
            self.now_ns = next;
        }
    }

    fn share(&self, id: ClientId) -> f64 {
        let all: u64 = self.clients.values().map(|c| c.busy_ns).sum();
        self.clients[&id].busy_ns as f64 / all as f64
    }
}

fn load(weight: u32, priority: i32, task_us: u64, think_us: u64) -> Load {
    Load {
        weight,
        priority,
        task_ns: task_us * 1000,
        think_ns: think_us * 1000,
        floor: 0,
        ceiling: 0,
        processors: 1,
    }
}

fn bounded(floor: u32, ceiling: u32, task_us: u64, think_us: u64) -> Load {
    Load {
        floor,
        ceiling,
        ..load(1, 0, task_us, think_us)
    }
}

fn any_loads() -> impl Strategy<Value = Vec<Load>> {
    let one = (1u32..8, -2i32..3, 5u64..5_000, 0u64..3_000);
    prop::collection::vec(one.prop_map(|(w, p, t, k)| load(w, p, t, k)), 1..7)
}

fn any_policy() -> impl Strategy<Value = PolicyKind> {
    prop::sample::select(vec![
        PolicyKind::Fifo,
        PolicyKind::Fair,
        PolicyKind::Priority,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn slots_are_neither_exceeded_nor_left_free_while_somebody_waits(
        loads in any_loads(), slots in 1usize..4, policy in any_policy(),
    ) {
        let mut world = World::new(policy, slots, &loads);
        world.run(200 * MS);
        prop_assert_eq!(world.wasted_ns, 0);
    }

    #[test]
    fn nobody_starves_under_fair_and_fifo(
        loads in any_loads(), slots in 1usize..3, fair in any::<bool>(),
    ) {
        let policy = if fair { PolicyKind::Fair } else { PolicyKind::Fifo };
        let mut world = World::new(policy, slots, &loads);
        world.run(2_500 * MS);
        for (id, c) in &world.clients {
            prop_assert!(c.tasks > 0, "client {} of {:?} never ran", id, loads);
            prop_assert!(c.longest_wait_ns < 1_800 * MS, "client {} waited {} ns", id, c.longest_wait_ns);
        }
    }

    #[test]
    fn the_device_is_shared_by_weight(
        weights in prop::collection::vec((1u32..6, 10u64..3_000), 2..6),
    ) {
        let loads: Vec<_> = weights.iter().map(|(w, t)| load(*w, 0, *t, 0)).collect();
        let mut world = World::new(PolicyKind::Fair, 1, &loads);
        world.run(4_000 * MS);
        let all: u32 = weights.iter().map(|(w, _)| w).sum();
        for (i, (weight, _)) in weights.iter().enumerate() {
            let expected = f64::from(*weight) / f64::from(all);
            let share = world.share(i as ClientId + 1);
            prop_assert!((share - expected).abs() < 0.03, "{} got {:.3} of {:.3}", i, share, expected);
        }
    }
}

#[test]
fn short_tasks_beside_long_ones_get_half_and_wait_for_one_task() {
    // Blocking 26 µs tasks with pauses of 20 µs, concurrently with 95 ms tasks without pauses.
    let loads = [load(1, 0, 26, 20), load(1, 0, 95_000, 0)];
    let mut world = World::new(PolicyKind::Fair, 1, &loads);
    world.run(20_000 * MS);
    let held = world.clients[&1].tasks * 46_000;
    let part = held as f64 / world.now_ns as f64;
    assert!((0.45..0.55).contains(&part), "held {part:.2} of the time");
    assert!(world.clients[&1].longest_wait_ns <= 96 * MS);
}

#[test]
fn the_higher_priority_goes_first_at_every_task_boundary() {
    let loads = [
        load(1, 5, 26, 400),
        load(1, 0, 2_000, 0),
        load(1, 0, 2_000, 0),
    ];
    let mut world = World::new(PolicyKind::Priority, 1, &loads);
    world.run(2_000 * MS);
    assert!(world.clients[&1].longest_wait_ns <= 2 * MS + 1);
    let low = (world.clients[&2].tasks, world.clients[&3].tasks);
    assert!(low.0.abs_diff(low.1) <= 2, "equals take turns: {low:?}");
}

#[test]
fn a_sole_user_is_left_alone() {
    let mut world = World::new(PolicyKind::Fair, 1, &[load(1, 0, 30, 500)]);
    world.run(100 * MS);
    assert_eq!(world.scheduler.deadline_ns(world.now_ns), None);
    assert!(world.scheduler.decide(world.now_ns).is_empty());
    assert!(world.clients[&1].tasks > 180);
}

#[test]
fn sleep_saves_up_no_device_time() {
    let loads = [load(1, 0, 500, 0), load(1, 0, 500, 0)];
    let mut world = World::new(PolicyKind::Fair, 1, &loads);
    world.clients.get_mut(&2).unwrap().until_ns = 5_000 * MS;
    world.run(5_000 * MS);
    let before = world.clients[&1].tasks;
    world.run(6_000 * MS);
    let after = world.clients[&1].tasks - before;
    assert!(after > 500, "the one that stayed got {after} of 2000 tasks");
}

#[test]
fn tenants_that_come_back_together_do_not_keep_others_waiting() {
    let mut world = World::new(PolicyKind::Fair, 1, &vec![load(1, 0, 26, 20); 8]);
    for id in 5..=8 {
        world.clients.get_mut(&id).unwrap().until_ns = 4_000 * MS;
    }
    world.run(4_000 * MS);
    for id in 1..=4 {
        let client = world.clients.get_mut(&id).unwrap();
        (client.longest_wait_ns, client.busy_ns) = (0, 0);
    }
    world.run(8_000 * MS);
    for id in 1..=4 {
        let waited = world.clients[&id].longest_wait_ns / MS;
        assert!(waited <= 40, "client {id} waited for {waited} ms");
    }
    for id in 1..=8 {
        let share = world.share(id);
        assert!((0.95 / 8.0..1.05 / 8.0).contains(&share), "{id}: {share}");
    }
}

#[test]
fn a_client_that_vanishes_frees_its_slot() {
    let loads = [load(1, 0, 1_000_000, 0), load(1, 0, 10, 0)];
    let mut world = World::new(PolicyKind::Fair, 1, &loads);
    world.run(10 * MS);
    world.scheduler.remove(1);
    world.clients.remove(&1);
    world.run(20 * MS);
    assert!(world.clients[&2].tasks > 100);
}

#[test]
fn two_clients_of_one_tenant_take_turns_and_share_one_entitlement() {
    let mut scheduler = Scheduler::new(options(PolicyKind::Fair, 1));
    let share = |tenant: &str| Share {
        tenant: tenant.into(),
        weight: 1,
        ..Share::default()
    };
    scheduler.add(1, &share("a"));
    scheduler.add(2, &share("a"));
    scheduler.observe(1, LeaseState::Busy, Work::default(), 0);
    scheduler.observe(2, LeaseState::Waiting, Work::default(), 0);
    assert!(scheduler.decide(MS / 2).is_empty());
    assert_eq!(scheduler.decide(MS), vec![Action::Revoke(1)]);
}

#[test]
fn time_held_while_nobody_waited_is_not_charged() {
    let mut scheduler = Scheduler::new(options(PolicyKind::Fair, 1));
    for id in [1, 2] {
        let share = Share {
            tenant: format!("t{id}"),
            weight: 1,
            ..Share::default()
        };
        scheduler.add(id, &share);
    }
    let grant = |scheduler: &mut Scheduler, id, now| {
        assert_eq!(scheduler.decide(now), [Action::Grant(id)]);
        scheduler.observe(id, LeaseState::Busy, Work::default(), now);
    };
    scheduler.observe(1, LeaseState::Waiting, Work::default(), 0);
    grant(&mut scheduler, 1, 0);
    // Alone for five seconds; then the other client arrives.
    let mut now = 5_000 * MS;
    scheduler.observe(2, LeaseState::Waiting, Work::default(), now);
    now += 2 * MS;
    assert_eq!(scheduler.decide(now), [Action::Revoke(1)]);
    scheduler.observe(1, LeaseState::Free, Work::default(), now);
    scheduler.observe(1, LeaseState::Waiting, Work::default(), now);
    grant(&mut scheduler, 2, now);
    // Both are even: the first client gets the device back after about a quantum, not after five
    // seconds.
    now += 4 * MS;
    assert_eq!(scheduler.decide(now), [Action::Revoke(2)]);
}

/// One slot, two tenants: the first waits and is granted the device, the second waits.
fn contended() -> Scheduler {
    let mut scheduler = Scheduler::new(options(PolicyKind::Fair, 1));
    for id in [1, 2] {
        let share = Share {
            tenant: format!("t{id}"),
            weight: 1,
            ..Share::default()
        };
        scheduler.add(id, &share);
        scheduler.observe(id, LeaseState::Waiting, Work::default(), 0);
    }
    assert_eq!(scheduler.decide(0), [Action::Grant(1)]);
    scheduler
}

const US: u64 = 1_000;

#[test]
fn who_waited_is_left_the_device_until_it_comes_for_it_or_a_quantum_is_over() {
    let mut scheduler = contended();
    scheduler.observe(1, LeaseState::Idle, Work::default(), 0);
    let later = 900 * US;
    scheduler.observe(1, LeaseState::Idle, Work::default(), later);
    assert!(scheduler.decide(later).is_empty(), "long past the linger");
    let over = MS;
    scheduler.observe(1, LeaseState::Idle, Work::default(), over);
    assert_eq!(scheduler.decide(over), [Action::Take(1)]);
}

#[test]
fn who_comes_back_quickly_is_waited_for_longer_than_who_does_not() {
    for (gap_us, awaited) in [(10, true), (60, false)] {
        let mut scheduler = contended();
        scheduler.observe(1, LeaseState::Busy, Work::default(), 0);
        let work = Work {
            tasks: 3,
            busy_ns: 100 * US,
            ..Work::default()
        };
        let now = (100 + 3 * gap_us) * US;
        scheduler.observe(1, LeaseState::Idle, work, now);
        // The linger is 50 µs; a tenth of the quantum is 100.
        let now = now + 70 * US;
        scheduler.observe(1, LeaseState::Idle, work, now);
        assert_eq!(scheduler.decide(now).is_empty(), awaited, "{gap_us} µs");
    }
}

#[test]
fn an_idle_place_is_not_kept_from_who_waits_for_a_task_to_end() {
    let mut scheduler = Scheduler::new(options(PolicyKind::Fair, 2));
    for id in [1, 2, 3] {
        let share = Share {
            tenant: format!("t{id}"),
            weight: 1,
            ..Share::default()
        };
        scheduler.add(id, &share);
    }
    // A second-long task that has to yield, and another running task.
    scheduler.observe(1, LeaseState::Busy, Work::default(), 0);
    scheduler.observe(2, LeaseState::Busy, Work::default(), 0);
    scheduler.observe(3, LeaseState::Waiting, Work::default(), 0);
    assert_eq!(scheduler.decide(MS).len(), 1);
    scheduler.observe(1, LeaseState::Revoked, Work::default(), MS);
    assert!(scheduler.decide(MS).is_empty());
    assert_eq!(
        scheduler.deadline_ns(MS),
        None,
        "it rings at its task's end"
    );
    // The second client has no more work, and does not return.
    let work = Work {
        tasks: 1,
        busy_ns: 2 * MS,
        ..Work::default()
    };
    scheduler.observe(2, LeaseState::Idle, work, 2 * MS);
    let at = scheduler.deadline_ns(2 * MS).expect("it may linger on");
    scheduler.observe(2, LeaseState::Idle, work, at);
    assert_eq!(scheduler.decide(at), [Action::Take(2)]);
}

#[test]
fn where_processors_are_the_device_their_time_is_what_counts() {
    let mut scheduler = Scheduler::new(options(PolicyKind::Fair, 2));
    for id in [1, 2, 3] {
        let share = Share {
            tenant: format!("t{id}"),
            weight: 1,
            ..Share::default()
        };
        scheduler.add(id, &share);
    }
    let used = |ns: u64| Work {
        processor_ns: Some(ns),
        ..Work::default()
    };
    scheduler.observe(1, LeaseState::Busy, used(0), 0);
    scheduler.observe(2, LeaseState::Busy, used(0), 0);
    scheduler.observe(3, LeaseState::Waiting, used(0), 0);
    scheduler.observe(1, LeaseState::Busy, used(0), 0);
    scheduler.observe(2, LeaseState::Busy, used(0), 0);
    assert!(scheduler.decide(0).is_empty());
    // Both have held the device for the same time; the host preempted the second one for a while.
    scheduler.observe(1, LeaseState::Busy, used(9 * MS), 10 * MS);
    scheduler.observe(2, LeaseState::Busy, used(6 * MS), 10 * MS);
    assert_eq!(scheduler.decide(10 * MS), [Action::Revoke(1)]);
}

#[test]
fn a_floor_holds_whoever_else_wants_the_device() {
    for (task_us, slots) in [(300, 1), (5_000, 1), (300, 2)] {
        let mut loads = vec![bounded(30, 0, task_us, 0)];
        loads.extend((0..8).map(|n| load(1 + n, 0, 100 * u64::from(n) + 50, 0)));
        let mut world = World::new(PolicyKind::Fair, slots, &loads);
        world.run(20_000 * MS);
        let part = world.share(1);
        assert!(
            part > 0.28,
            "{part} with tasks of {task_us} us, {slots} slots"
        );
        // It gets exactly its floor: the others share the rest by weight.
        assert!(
            part < 0.34,
            "{part} with tasks of {task_us} us, {slots} slots"
        );
    }
}

#[test]
fn floors_of_several_hold_together() {
    let loads = [
        bounded(30, 0, 400, 0),
        bounded(30, 0, 1_000, 0),
        bounded(30, 0, 90, 0),
        load(5, 0, 400, 0),
    ];
    let mut world = World::new(PolicyKind::Fair, 1, &loads);
    world.run(20_000 * MS);
    for id in 1..=3 {
        let part = world.share(id);
        assert!((0.28..0.33).contains(&part), "{id}: {part}");
    }
    assert!(world.share(4) > 0.05);
}

#[test]
fn a_floor_takes_nothing_from_whom_it_serves() {
    // One of two clients has half by its weight already.
    let mut world = World::new(
        PolicyKind::Fair,
        1,
        &[bounded(30, 0, 400, 0), load(1, 0, 400, 0)],
    );
    world.run(10_000 * MS);
    assert!((0.45..0.55).contains(&world.share(1)), "{}", world.share(1));
}

#[test]
fn a_ceiling_holds_even_alone() {
    for (task_us, think_us, slots) in [
        (300, 0, 1),
        (5_000, 0, 1),
        (95_000, 0, 1),
        (300, 20, 1),
        (300, 0, 2),
    ] {
        let mut world = World::new(
            PolicyKind::Fair,
            slots,
            &[bounded(0, 30, task_us, think_us)],
        );
        world.run(60_000 * MS);
        let busy = world.clients[&1].busy_ns as f64;
        let part = busy / (60_000.0 * MS as f64 * slots as f64);
        assert!(part < 0.33, "{part}: {task_us} {think_us} {slots}");
        assert!(part > 0.25, "{part}: {task_us} {think_us} {slots}");
    }
}

#[test]
fn a_ceiling_and_a_floor_hold_among_others() {
    let mut loads = vec![bounded(30, 30, 400, 0)];
    loads.extend((0..4).map(|_| load(1, 0, 700, 0)));
    let mut world = World::new(PolicyKind::Fair, 1, &loads);
    world.run(60_000 * MS);
    let part = world.share(1);
    assert!((0.27..0.33).contains(&part), "{part}");
    // The others get the time beyond its ceiling.
    assert!(world.wasted_ns < 600 * MS, "{}", world.wasted_ns);
}

#[test]
fn where_processors_are_the_device_a_ceiling_is_of_their_time() {
    // (length of a task, number of processors that it uses, slots) for a device of two processors.
    for (task_us, processors, slots) in [
        (300, 2, 1),
        (5_000, 2, 1),
        (95_000, 2, 1),
        (300, 1, 1),
        (300, 2, 2),
        (300, 1, 2),
    ] {
        let capped = Load {
            processors,
            ..bounded(0, 30, task_us, 0)
        };
        let mut world = World::on_processors(2, slots, &[capped]);
        world.run(60_000 * MS);
        let used = (world.clients[&1].busy_ns * processors) as f64;
        let part = used / (60_000.0 * MS as f64 * 2.0);
        assert!(
            (0.27..0.33).contains(&part),
            "{part}: {task_us} {processors} {slots}"
        );
    }
}

#[test]
fn where_processors_are_the_device_what_is_used_without_holding_it_counts() {
    let mut scheduler = Scheduler::new(options(PolicyKind::Fair, 1));
    scheduler.set_processors(2);
    let share = Share {
        tenant: "a".into(),
        weight: 1,
        ceiling: 30,
        ..Share::default()
    };
    scheduler.add(1, &share);
    let used = |ns: u64| Work {
        processor_ns: Some(ns),
        ..Work::default()
    };
    scheduler.observe(1, LeaseState::Busy, used(0), 0);
    scheduler.observe(1, LeaseState::Free, used(0), MS);
    assert!(scheduler.decide(100 * MS).is_empty());
    // Its process decoded and copied in this time.
    scheduler.observe(1, LeaseState::Busy, used(50 * MS), 100 * MS);
    assert_eq!(scheduler.decide(100 * MS), [Action::Revoke(1)]);
}

#[test]
fn where_processors_are_not_counted_a_slot_is_its_part_of_them() {
    let mut world = World::on_processors(2, 1, &[bounded(0, 30, 300, 0)]);
    world.counts = false;
    world.run(60_000 * MS);
    let part = world.clients[&1].busy_ns as f64 / (60_000.0 * MS as f64);
    assert!((0.27..0.33).contains(&part), "{part}");
}

#[test]
fn where_processors_are_the_device_a_share_that_is_both_holds_among_others() {
    let two = |load: Load| Load {
        processors: 2,
        ..load
    };
    let mut loads = vec![two(bounded(30, 30, 400, 0))];
    loads.extend((0..4).map(|_| two(load(1, 0, 700, 0))));
    let mut world = World::on_processors(2, 1, &loads);
    world.run(60_000 * MS);
    let part = world.share(1);
    assert!((0.27..0.33).contains(&part), "{part}");
}
