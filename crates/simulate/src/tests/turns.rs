//! More accelerators than devices that hold one image at a time: the policy against turns of a
//! fixed length, that of the shortest automatic turn.

use crate::{run, Report, Scenario};
use proptest::prelude::*;

const ACCELERATORS: usize = 12;
const DEVICES: usize = 3;
const LOAD_MS: u64 = 100;
const WAIT_MS: f64 = 20_000.0;

/// Functions with an image each, at these rates; each task takes 5 ms.
fn scenario(turns: &str, rates: &[f64]) -> Scenario {
    let mut text = format!(
        "duration_s: 240\nwarmup_s: 60\nturns: {turns}\n\
         nodes: [{{name: n, devices: [{{count: {DEVICES}, reconfigure_ms: {LOAD_MS}}}]}}]\n\
         functions:\n"
    );
    for (n, rate) in rates.iter().enumerate() {
        text += &format!(
            "- {{name: f{n}, query: accelerator=a{n}, service_ms: {{constant: 5}}, queue: 100000, \
             concurrency: 100000, load: {{arrivals: poisson, rate: {rate}}}}}\n"
        );
    }
    Scenario::parse(&text).unwrap()
}

fn uniform(each: f64) -> Vec<f64> {
    vec![each; ACCELERATORS]
}

fn zipf(sum: f64) -> Vec<f64> {
    let weights = (1..=ACCELERATORS).map(|n| 1.0 / n as f64);
    let all: f64 = weights.clone().sum();
    weights.map(|weight| sum * weight / all).collect()
}

/// The share of time that loads take on the device on which they take the most, percent.
fn loading(report: &Report) -> f64 {
    let devices = report.devices.iter();
    devices.map(|d| d.loading).fold(0.0, f64::max)
}

fn longest_wait_ms(report: &Report) -> f64 {
    let devices = report.devices.iter();
    devices.map(|d| d.turn_wait_max_ms).fold(0.0, f64::max)
}

fn loads(report: &Report) -> u64 {
    report.devices.iter().map(|d| d.reconfigurations).sum()
}

/// The policy's and the fixed turns' results.
fn compared(rates: &[f64], seed: u64) -> [Report; 2] {
    let reports = ["{}", "{turn_ms: 1000}"].map(|turns| run(&scenario(turns, rates), seed));
    for (report, name) in reports.iter().zip(["policy", "fixed"]) {
        println!(
            "{name}: {} loads, {:.1} % of the time at most, longest wait {:.0} ms, {:.1} of {:.1} calls/s, \
             mean {:.0} ms, p99 {:.0} ms",
            loads(report),
            loading(report),
            longest_wait_ms(report),
            report.total.processed_per_s,
            report.total.offered_per_s,
            report.total.latency_ms.mean.unwrap(),
            report.total.latency_ms.p99.unwrap(),
        );
        assert_eq!(report.total.refused, 0);
    }
    reports
}

#[test]
fn loads_take_a_tenth_of_the_time_with_demand_and_half_of_it_otherwise() {
    for (name, rates, most) in [
        ("uniform, steady", uniform(20.0), 10.5),
        ("uniform, sparse", uniform(2.0), 50.5),
        ("skewed", zipf(240.0), 50.5),
        ("skewed, sparse", zipf(24.0), 50.5),
    ] {
        println!("{name}");
        for seed in [1, 2, 3] {
            let [policy, fixed] = compared(&rates, seed);
            // The measurement may begin with loads that were paid for before it.
            assert!(loading(&policy) <= most, "{name}, seed {seed}");
            // Work that has begun ends before a change.
            assert!(
                longest_wait_ms(&policy) <= WAIT_MS + 5.0,
                "{name}, seed {seed}"
            );
            let served = policy.total.processed_per_s / policy.total.offered_per_s;
            assert!(served > 0.97, "{name}, seed {seed}: {served}");
            // Calls do not wait for idle devices much longer than with turns that end at once.
            let mean = |report: &Report| report.total.latency_ms.mean.unwrap();
            assert!(mean(&policy) < 1.8 * mean(&fixed), "{name}, seed {seed}");
        }
    }
}

#[test]
fn turns_are_as_long_as_long_loads_require() {
    for seed in [1, 2, 3] {
        let served = ["{}", "{turn_ms: 1000}"].map(|turns| {
            let mut scenario = scenario(turns, &uniform(30.0));
            scenario.nodes[0].devices[0].reconfigure_ms = 1_000.0;
            let report = run(&scenario, seed);
            report.total.processed_per_s / report.total.offered_per_s
        });
        println!("served: {served:?}");
        assert!(
            served[0] > 0.95 && served[1] < 0.9,
            "seed {seed}: {served:?}"
        );
    }
}

#[test]
fn all_accelerators_take_turns_and_none_is_refused() {
    let report = run(&scenario("{}", &uniform(20.0)), 1);
    for function in &report.functions {
        assert_eq!((function.instances, function.instances_refused), (1, 0));
        assert!(function.processed > 0);
    }
    let on = |device: &str| {
        let functions = report.functions.iter();
        functions.filter(|f| f.devices[0] == device).count()
    };
    for device in &report.devices {
        assert_eq!(on(&device.id), ACCELERATORS / DEVICES, "{}", device.id);
    }
}

#[test]
fn a_lone_image_is_loaded_once() {
    let report = run(&scenario("{}", &[20.0]), 1);
    assert_eq!(loads(&report), 1);
    assert_eq!(longest_wait_ms(&report), 0.0);
}

#[test]
fn a_run_with_turns_replays() {
    let scenario = scenario("{}", &zipf(100.0));
    assert_eq!(run(&scenario, 5), run(&scenario, 5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever the demand, the loads and the operator's values are.
    #[test]
    fn no_image_waits_longer_than_the_operator_allows(
        rates in prop::collection::vec(0.1..120.0f64, 2..14), load_ms in 1u64..3_000,
        turn_ms in prop::sample::select(vec![0u64, 300, 60_000]), wait_ms in 200u64..20_000,
        seed: u64,
    ) {
        let turns = format!("{{turn_ms: {turn_ms}, turn_wait_ms: {wait_ms}}}");
        let mut scenario = scenario(&turns, &rates);
        (scenario.duration_s, scenario.warmup_s) = (60.0, 0.0);
        scenario.nodes[0].devices[0].reconfigure_ms = load_ms as f64;
        let report = run(&scenario, seed);
        prop_assert!(report.devices.iter().all(|d| d.loading <= 100.0));
        prop_assert!(longest_wait_ms(&report) <= wait_ms as f64, "{}", longest_wait_ms(&report));
    }
}
