//! The gate between tenants that use the device concurrently.

use baltra_tests::{app, compile, compile_driver, daemon_with, json, tenants, through, Running};

/// Runs two tenants concurrently, one with repeated matrix multiplications and one with small
/// tasks; returns the number of tasks of each.
fn side_by_side(set: &[&str]) -> [u64; 2] {
    let daemon = daemon_with(set);
    tenants(&daemon, &["heavy", "light"]);
    let start = |tenant: &str, arguments: &[&str]| {
        let mut command = through(&daemon, tenant, app("clbench"));
        command.arg("loop").args(arguments);
        Running::start(command)
    };
    let heavy = start(
        "heavy",
        &["--work", "matmul", "--n", "256", "--seconds", "4"],
    );
    let light = start("light", &["--work", "task", "--seconds", "4"]);
    [heavy, light].map(|program| {
        let answer = program.finish().ok();
        let json: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
        assert_eq!(json["wrong"].as_u64(), Some(0), "{}", answer.out);
        json["count"].as_u64().unwrap()
    })
}

#[test]
fn a_tenant_with_small_tasks_and_one_with_large_both_get_on() {
    for policy in ["fair", "fifo"] {
        let policy = format!("device.policy={policy}");
        let [heavy, light] = side_by_side(&[&policy, "device.slots=1"]);
        assert!(heavy > 5, "{policy}: {heavy} multiplications");
        assert!(light > 20, "{policy}: {light} small tasks");
    }
}

#[test]
fn with_device_isolation_both_get_on() {
    let [heavy, light] = side_by_side(&["device.isolation=device"]);
    assert!(heavy > 5 && light > 20, "{heavy}, {light}");
}

#[test]
fn the_priority_policy_serves_the_higher_and_lets_the_lower_in() {
    let daemon = daemon_with(&["device.policy=priority", "device.slots=1"]);
    daemon
        .text(&["tenant", "add", "urgent", "--priority", "5"])
        .unwrap();
    tenants(&daemon, &["patient"]);
    let devices = json(&daemon, &["devices"]);
    assert_eq!(devices[0]["policy"], "priority");
    let start = |tenant: &str, arguments: &[&str]| {
        let mut command = through(&daemon, tenant, app("clbench"));
        command.arg("loop").args(arguments);
        Running::start(command)
    };
    let patient = start("patient", &["--work", "matmul", "--n", "256"]);
    let urgent = start("urgent", &["--work", "task", "--seconds", "2"]).finish();
    let urgent: serde_json::Value = serde_json::from_str(&urgent.ok().out).unwrap();
    assert!(urgent["count"].as_u64() > Some(20), "{urgent}");
    // The lower-priority tenant runs for ten seconds, of which the higher-priority one used two.
    let patient: serde_json::Value = serde_json::from_str(&patient.finish().ok().out).unwrap();
    assert!(patient["count"].as_u64() > Some(5), "{patient}");
}

#[test]
fn usage_is_booked_to_who_used_the_device() {
    let daemon = daemon_with(&[]);
    tenants(&daemon, &["busy", "quiet"]);
    let mut command = through(&daemon, "busy", app("matmul"));
    command.args(["--n", "256", "--repeat", "5"]);
    Running::run(command).ok();
    // Accounts are updated each second.
    baltra_testkit::until("the work is booked", || {
        let usage = json(&daemon, &["tenant", "usage"]);
        let booked = |name: &str| {
            let rows = usage.as_array().expect("a list").iter();
            let own = rows.filter(|row| row["tenant"] == name);
            own.filter_map(|row| row["busy_ns"].as_u64()).sum::<u64>()
        };
        booked("busy") > 0 && booked("quiet") == 0
    })
    .unwrap();
}

#[test]
fn programs_on_one_executor_allocate_shared_virtual_memory_one_at_a_time() {
    let driver = compile_driver("one_svm_driver");
    let daemon = daemon_with(&[
        &format!("device.driver={}", driver.display()),
        "device.host_memory=false",
    ]);
    let programs =
        [(); 4].map(|()| Running::start(through(&daemon, "", compile("svm_allocations"))));
    for program in programs {
        let answer = program.finish().ok();
        assert_eq!(answer.number("failures"), Some(0), "{answer:?}");
    }
}

#[test]
fn pinned_arenas_make_room_for_kernels() {
    let driver = compile_driver("pinning_driver");
    let daemon = daemon_with(&[
        &format!("device.driver={}", driver.display()),
        "device.host_memory=false",
        "device.isolation=device",
    ]);
    tenants(&daemon, &["red", "blue"]);
    let programs = ["red", "blue"].map(|tenant| {
        let mut work = through(&daemon, tenant, compile("work"));
        work.args(["40", "1048576"]);
        Running::start(work)
    });
    for program in programs {
        program.finish().ok();
    }
}
