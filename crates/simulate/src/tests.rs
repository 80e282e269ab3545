//! Tests against closed-form solutions, for reproducibility, and of the components' guarantees.

use crate::load::parse_trace;
use crate::{run, Report, Scenario};

mod turns;

fn one_device(service: &str, rate: f64, rest: &str) -> Scenario {
    let text = format!(
        "duration_s: 2000\nwarmup_s: 100\n\
         nodes: [{{name: n, devices: [{{exclusive: false}}]}}]\n\
         functions: [{{name: f, service_ms: {service}, concurrency: 1000000, queue: 0, \
         load: {{arrivals: poisson, rate: {rate}}}{rest}}}]\n"
    );
    Scenario::parse(&text).unwrap()
}

fn assert_near(found: f64, expected: f64, part: f64, what: &str) {
    assert!(
        (found / expected - 1.0).abs() < part,
        "{what}: {found}, not {expected} within {part}"
    );
}

/// Pollaczek and Khinchine: mean wait = ρ s (1 + c²) ÷ 2(1 − ρ), c² 0 for D and 1 for M.
#[test]
fn waiting_is_that_of_the_closed_forms() {
    for rho in [0.3, 0.6, 0.8] {
        let rate = rho * 100.0;
        for (service, c2) in [("{constant: 10}", 0.0), ("{exponential: 10}", 1.0)] {
            let report = run(&one_device(service, rate, ""), 11);
            let wait = rho * 10.0 * (1.0 + c2) / (2.0 * (1.0 - rho));
            let what = format!("{service} at {rho}");
            assert_near(report.functions[0].wait_ms.mean.unwrap(), wait, 0.05, &what);
            let latency = report.functions[0].latency_ms.mean.unwrap();
            assert_near(latency, wait + 10.0, 0.04, &what);
            assert_near(report.devices[0].utilization, rho * 100.0, 0.02, &what);
        }
    }
}

/// In M/M/1 the time in the system is exponential: quantiles are −ln(1 − p) ÷ (μ − λ).
#[test]
fn percentiles_of_an_exponential_server_are_exponential() {
    let report = run(&one_device("{exponential: 10}", 50.0, ""), 5);
    let spread = report.functions[0].latency_ms;
    for (found, part) in [(spread.p50, 0.5f64), (spread.p95, 0.95), (spread.p99, 0.99)] {
        let expected = -(1.0 - part).ln() / (100.0 - 50.0) * 1000.0;
        assert_near(found.unwrap(), expected, 0.04, &format!("p{part}"));
    }
}

#[test]
fn a_seed_replays_a_run_and_another_does_not() {
    let scenario = one_device("{exponential: 10}", 60.0, "");
    let (a, b) = (run(&scenario, 1), run(&scenario, 1));
    assert_eq!(a, b);
    assert_ne!(a.total.latency_ms, run(&scenario, 2).total.latency_ms);
}

fn report(text: &str) -> Report {
    run(&Scenario::parse(text).unwrap(), 3)
}

#[test]
fn a_trace_is_played_as_written() {
    let mut scenario = Scenario::parse(
        "duration_s: 10\ntrace: t.csv\n\
         nodes: [{name: n, devices: [{exclusive: false}]}]\n\
         functions:\n\
         - {name: a, service_ms: {constant: 100}, load: {arrivals: trace}}\n\
         - {name: b, service_ms: {constant: 300}, load: {arrivals: trace}}\n",
    )
    .unwrap();
    scenario.arrivals = parse_trace("1,a\n5,b\n5.1,a\n9.95,a\n11,a\n").unwrap();
    let report = run(&scenario, 0);
    let [a, b] = &report.functions[..] else {
        panic!("two functions")
    };
    assert_eq!((a.processed, a.unfinished, b.processed), (2, 1, 1));
    // The second request of a waits 200 ms for b's task.
    assert_eq!(a.latency_ms.max, Some(300.0));
    assert_eq!(b.latency_ms.max, Some(300.0));
    assert!((report.devices[0].utilization - 5.5).abs() < 1e-6);
}

#[test]
fn connections_bound_what_is_sent() {
    let report = report(
        "duration_s: 100\nnodes: [{name: n, devices: [{exclusive: false}]}]\n\
         functions: [{name: f, service_ms: {constant: 10}, host_ms: {constant: 15}, \
         load: {arrivals: constant, rate: 60, connections: 1}}]\n",
    );
    let f = &report.functions[0];
    assert_near(f.processed_per_s, 40.0, 0.01, "one at a time, 25 ms each");
    assert_eq!(f.latency_ms.max, Some(25.0));
    assert_near(f.unsent as f64, 2000.0, 0.02, "the rest");
    assert_near(
        report.devices[0].utilization,
        40.0,
        0.01,
        "10 of each 25 ms",
    );
}

#[test]
fn blank_devices_are_loaded_and_requests_wait_for_that() {
    let report = report(
        "duration_s: 20\nnodes: [{name: n, count: 2, devices: [{reconfigure_ms: 2000}]}]\n\
         functions:\n\
         - {name: a, query: accelerator=a, service_ms: {constant: 1}, load: {arrivals: constant, rate: 10}}\n\
         - {name: b, query: accelerator=b, service_ms: {constant: 1}, load: {arrivals: constant, rate: 10}}\n\
         - {name: c, query: accelerator=c, start_s: 1, service_ms: {constant: 1}, load: {arrivals: constant, rate: 10}}\n",
    );
    assert_eq!(
        report
            .devices
            .iter()
            .map(|d| d.reconfigurations)
            .sum::<u64>(),
        2
    );
    let held: Vec<&str> = report
        .devices
        .iter()
        .map(|d| d.accelerators[0].as_str())
        .collect();
    assert_eq!(held, ["a", "b"]);
    assert!(report.functions[0].latency_ms.max.unwrap() > 1800.0);
    let c = &report.functions[2];
    assert_eq!((c.instances, c.instances_refused, c.processed), (0, 1, 0));
    assert!(
        c.refusal
            .as_ref()
            .unwrap()
            .contains("would lose 'a' with a-1"),
        "{:?}",
        c.refusal
    );
    assert_eq!(c.refused as f64, c.offered_per_s * 20.0);
}

#[test]
fn a_device_is_given_up_when_its_instances_fit_elsewhere_and_they_go_on_there() {
    let report = report(
        "duration_s: 30\nmigration_ms: 500\nheartbeat_s: 1\n\
         nodes: [{name: n, count: 2, devices: [{accelerators: [mm], reconfigure_ms: 1000}]}]\n\
         functions:\n\
         - {name: mm, query: accelerator=mm, replicas: 2, service_ms: {constant: 10}, load: {arrivals: constant, rate: 20}}\n\
         - {name: new, query: accelerator=new, start_s: 10, service_ms: {constant: 10}, load: {arrivals: constant, rate: 20}}\n",
    );
    let mm = &report.functions[0];
    assert_eq!((mm.migrations, mm.instances, mm.refused), (1, 2, 0));
    assert!(
        (500.0..520.0).contains(&mm.latency_ms.max.unwrap()),
        "{mm:?}"
    );
    let replaced: u64 = report.devices.iter().map(|d| d.replaced).sum();
    assert_eq!(replaced, 1);
    assert_eq!(report.functions[1].instances, 1);
    assert_near(mm.processed_per_s, 20.0, 0.02, "nothing is lost");
}

#[test]
fn autoscaling_follows_the_load_up_and_to_nothing() {
    let report = report(
        "duration_s: 300\nheartbeat_s: 1\nscale_s: 5\n\
         nodes: [{name: n, count: 8, devices: [{exclusive: false}]}]\n\
         functions:\n\
         - {name: busy, service_ms: {constant: 10}, load: {arrivals: poisson, rate: 280}, scale: {}}\n\
         - {name: idle, service_ms: {constant: 10}, load: {arrivals: poisson, rate: 0}, scale: {replicas_min: 0}}\n",
    );
    let (busy, idle) = (&report.functions[0], &report.functions[1]);
    assert!(
        (4..=6).contains(&busy.instances),
        "280 % at 70 % each: {busy:?}"
    );
    assert!(busy.latency_ms.p50.unwrap() < 50.0);
    assert_eq!(idle.instances, 0);
}

#[test]
fn a_pooled_instance_spreads_its_tasks() {
    let report = report(
        "duration_s: 100\nnodes: [{name: n, count: 3, devices: [{accelerators: [a]}]}]\n\
         functions: [{name: f, query: accelerator=a, devices: 3, pooled: true, concurrency: 100, \
         service_ms: {constant: 10}, load: {arrivals: poisson, rate: 240}}]\n",
    );
    for device in &report.devices {
        assert_near(device.utilization, 80.0, 0.1, &device.id);
    }
}

#[test]
fn weights_divide_a_device_that_is_wanted_all_the_time() {
    let report = report(
        "duration_s: 100\nwarmup_s: 10\ngate: {quantum_ms: 5}\nnodes: [{name: n, devices: [{exclusive: false}]}]\n\
         functions:\n\
         - {name: a, weight: 3, concurrency: 4, service_ms: {constant: 2}, load: {arrivals: constant, rate: 1000, connections: 4}}\n\
         - {name: b, concurrency: 4, service_ms: {constant: 2}, load: {arrivals: constant, rate: 1000, connections: 4}}\n",
    );
    let part = report.functions[0].processed_per_s / report.total.processed_per_s;
    assert_near(part, 0.75, 0.03, "weight 3 of 4");
    assert!(report.utilization_sum > 99.0);
}

#[test]
fn wrong_scenarios_say_where() {
    let good = "duration_s: 10\nnodes: [{name: n, devices: [{}]}]\n\
                functions: [{name: f, service_ms: {constant: 1}, load: {arrivals: poisson, rate: 1}}]\n";
    assert!(Scenario::parse(good).is_ok());
    for (from, to, wrong) in [
        ("duration_s: 10", "duration_s: 0", "duration_s"),
        ("rate: 1", "rate: -1", "functions[0] (f).load"),
        ("constant: 1", "constant: -1", "functions[0] (f).service_ms"),
        (
            "{name: f,",
            "{name: f, query: 'speed=9',",
            "functions[0] (f).query",
        ),
        (
            "devices: [{}]",
            "devices: [{regions: 0}]",
            "nodes[0].devices[0]",
        ),
        ("devices: [{}]", "devices: [{count: 9999999}]", "nodes"),
        (
            "arrivals: poisson",
            "arrivals: trace",
            "functions[0] (f).load",
        ),
        ("duration_s: 10", "duration_s: 10\nspeed: 3", "speed"),
        (
            "duration_s: 10",
            "duration_s: 10\ncases: {low: {g: 1}}",
            "cases.low.g",
        ),
    ] {
        let text = good.replace(from, to);
        let error = Scenario::parse(&text).unwrap_err().to_string();
        assert!(error.contains(wrong), "{to}: {error}");
    }
}

#[test]
fn cases_replace_rates_and_leave_functions_out() {
    let scenario = Scenario::parse(
        "name: two\nduration_s: 10\nnodes: [{name: n, devices: [{}]}]\n\
         functions:\n\
         - {name: a, service_ms: {constant: 1}, load: {arrivals: poisson, rate: 1}}\n\
         - {name: b, service_ms: {constant: 1}, load: {arrivals: poisson, rate: 1}}\n\
         cases: {low: {a: 5}, high: {a: 50, b: 7}}\n",
    )
    .unwrap();
    let runs = scenario.runs();
    let rates = |n: usize| {
        let functions = runs[n].1.functions.iter();
        functions
            .map(|f| (f.name.as_str(), f.load.rate))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (runs[0].0.as_str(), rates(0)),
        ("high", vec![("a", 50.0), ("b", 7.0)])
    );
    assert_eq!((runs[1].0.as_str(), rates(1)), ("low", vec![("a", 5.0)]));
}

/// The examples of the source tree are valid scenarios, and short runs of them process requests.
#[test]
fn examples_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/simulate");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        let scenario = Scenario::load(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        seen += 1;
        if path.file_stem().is_some_and(|stem| stem == "large") {
            // Ten thousand devices take too long in an unoptimized build.
            continue;
        }
        for (name, mut run_of) in scenario.runs() {
            run_of.duration_s = run_of.warmup_s + 5.0;
            let report = run(&run_of, 1);
            assert!(report.total.processed > 0, "{} {name}", path.display());
            assert!(!report.text().is_empty());
        }
    }
    assert!(seen >= 8, "{seen} examples");
}
