use super::*;
use proptest::prelude::*;

fn scenario(devices: usize, slots: usize, policy: &str, loads: &[(u32, f64)]) -> Scenario {
    let mut text = format!(
        "duration_s: 5\ngate: {{policy: {policy}, linger_us: 0, quantum_ms: 2, slots: {slots}}}\n\
         nodes: [{{name: n, devices: [{{count: {devices}, exclusive: false}}]}}]\nfunctions:\n"
    );
    for (n, (ms, rate)) in loads.iter().enumerate() {
        text += &format!(
            "- {{name: f{n}, replicas: {devices}, service_ms: {{exponential: {ms}}}, \
             load: {{arrivals: poisson, rate: {rate}}}}}\n"
        );
    }
    Scenario::parse(&text).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_device_is_idle_while_a_task_waits_longer_than_the_gate_lets_it(
        devices in 1usize..3,
        policy in prop::sample::select(vec!["fifo", "fair", "priority"]),
        loads in prop::collection::vec((1u32..40, 1.0..120.0f64), 1..5),
        seed: u64,
    ) {
        let scenario = scenario(devices, 1, policy, &loads);
        let mut world = World::new(&scenario, seed);
        while let Some(Reverse((at_ns, _, event))) = world.events.pop() {
            if at_ns > world.end_ns {
                break;
            }
            prop_assert!(at_ns >= world.now_ns, "time goes back");
            world.now_ns = at_ns;
            world.happen(event);
            for board in &world.boards {
                // The gate waits a tenth of the quantum for a holder whose pauses have been short.
                let soon = board.gate_at.is_some_and(|at| at <= at_ns + 200_000);
                prop_assert!(soon || !board.device.waits_for_nothing(1));
            }
        }
    }

    #[test]
    fn every_request_is_accounted_for(
        devices in 1usize..3,
        loads in prop::collection::vec((1u32..40, 1.0..120.0f64), 1..5),
        queue in 0usize..20, deadline_ms in prop::sample::select(vec![0.0, 20.0, 200.0]),
        connections in 0u32..4, seed: u64,
    ) {
        let mut scenario = scenario(devices, 1, "fair", &loads);
        for function in &mut scenario.functions {
            function.queue = queue;
            function.deadline_ms = deadline_ms;
            function.load.connections = connections;
        }
        let mut world = World::new(&scenario, seed);
        world.play();
        for (spec, counts) in world.counts.iter().enumerate() {
            let held = world.functions.iter().filter(|f| f.spec == spec && f.is_held).count();
            // Late requests are either answered or dropped; the dropped ones complete the sum.
            let known = counts.processed + counts.refused + counts.unsent + counts.unfinished + held as u64;
            prop_assert!(known <= counts.offered);
            prop_assert!(counts.offered - known <= counts.late);
            prop_assert!(deadline_ms > 0.0 || known == counts.offered);
            prop_assert_eq!(counts.latency.count(), counts.processed);
        }
        let in_use = world.requests.len() - world.free_requests.len();
        let in_flight: u32 = world.functions.iter().map(|f| f.in_flight).sum();
        prop_assert_eq!(in_use, in_flight as usize);
    }
}
