//! More memory than the device has: unmodified programs whose buffers leave the device between
//! their turns have the native results.

use baltra_testkit::{until, Daemon, Options};
use baltra_tests::{
    app, compile, compile_driver, daemon_with, executor_of, get, json, native, session_count,
    tenants, through, Running,
};
use rustix::process::{kill_process, Pid, Signal};
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Settings of a device that swaps. PoCL has buffers of its own without `host_memory`.
fn settings(device_bytes: u64) -> Vec<String> {
    vec![
        "device.host_memory=false".into(),
        "device.memory_overcommit=64".into(),
        format!("device.memory_bytes={device_bytes}"),
    ]
}

/// A daemon whose device swaps, with one executor for all tenants.
fn swapping(device_bytes: u64, more: &[&str]) -> Daemon {
    let mut set = settings(device_bytes);
    set.push("device.isolation=device".into());
    set.extend(more.iter().map(|s| s.to_string()));
    let set: Vec<_> = set.iter().map(String::as_str).collect();
    daemon_with(&set)
}

/// A daemon whose device swaps, with an executor for each tenant.
fn swapping_apart(device_bytes: u64) -> (Daemon, Options) {
    let options = Options {
        set: settings(device_bytes),
        ..Default::default()
    };
    let daemon = Daemon::start_with(baltra_tests::baltra(), &options).unwrap();
    (daemon, options)
}

/// Computes, with two buffers of this size each, without end.
fn work(daemon: &Daemon, tenant: &str, bytes: u64) -> Running {
    let mut command = through(daemon, tenant, compile("work"));
    command.arg("0").arg(bytes.to_string());
    let mut running = Running::start(command);
    running.wait_line("round");
    running
}

fn checksum(mut command: Command, arguments: &[&str]) -> String {
    command.args(arguments);
    let answer = Running::run(command).ok();
    let json: serde_json::Value = serde_json::from_str(answer.out.trim()).expect("JSON");
    json["checksum"].to_string()
}

/// The sum of a tenant's counters that `baltra top` shows.
fn usage(daemon: &Daemon, tenant: &str, key: &str) -> u64 {
    let usage = json(daemon, &["tenant", "usage"]);
    let lines = usage.as_array().into_iter().flatten();
    let own = lines.filter(|line| line["tenant"] == tenant);
    own.filter_map(|line| line[key].as_u64()).sum()
}

#[test]
fn programs_that_swap_at_each_turn_have_the_native_results() {
    let address = format!("127.0.0.1:{}", baltra_tests::free_port());
    let daemon = swapping(16 * MIB, &[&format!("metrics.address={address}")]);
    tenants(&daemon, &["red", "blue"]);
    let work = || {
        let mut command = through(&daemon, "red", compile("work"));
        command.arg("0").arg((6 * MIB).to_string());
        Running::start(command)
    };
    // With two buffers each they exceed the device.
    let mut beside = [work(), work()];
    let matmul = ["--n", "800", "--check", "--json"];
    let there = checksum(through(&daemon, "blue", app("matmul")), &matmul);
    assert_eq!(checksum(native(app("matmul")), &matmul), there);
    for running in &mut beside {
        running.wait_progress();
    }
    let page = get(&address, "/metrics");
    for metric in [
        "baltra_resident_memory_bytes{device=\"device0\",tenant=\"red\"}",
        "baltra_swapped_memory_bytes{device=\"device0\",tenant=\"red\"}",
        "baltra_swapped_bytes_total{device=\"device0\",tenant=\"red\",direction=\"out\"}",
    ] {
        assert!(page.contains(metric), "{metric}: {page}");
    }
    assert!(usage(&daemon, "red", "moved_bytes") > 8 * MIB);
    drop(beside);
    until("nothing is left", || {
        let left = ["resident_bytes", "swapped_bytes"];
        left.iter().all(|key| usage(&daemon, "red", key) == 0)
    })
    .unwrap();
}

#[test]
fn a_device_that_fails_while_it_swaps_ends_its_sessions_and_new_ones_work() {
    let driver = compile_driver("sticky_driver");
    let driver = format!("device.driver={}", driver.display());
    let daemon = swapping(3 * MIB, &[&driver]);
    tenants(&daemon, &["red", "blue"]);
    let work = |tenant, rounds| {
        let mut command = through(&daemon, tenant, compile("work"));
        command.arg(rounds).arg(MIB.to_string());
        Running::start(command)
    };
    let mut running = [work("red", "0"), work("blue", "0")];
    for program in &mut running {
        program.wait_line("round");
    }
    let mut fault = through(&daemon, "red", compile("harm"));
    fault.arg("fault");
    Running::run(fault).ok();
    for program in running {
        let answer = program.finish();
        assert_eq!(answer.number("error"), Some(-2), "{answer:?}");
    }
    work("blue", "5").finish().ok();
}

#[test]
fn a_device_that_fails_in_the_middle_of_a_swap_ends_one_executor_alone() {
    let driver = compile_driver("sticky_driver");
    let mut set = settings(16 * MIB);
    set.push(format!("device.driver={}", driver.display()));
    let options = Options {
        set,
        ..Default::default()
    };
    let daemon = Daemon::start_with(baltra_tests::baltra(), &options).unwrap();
    tenants(&daemon, &["red", "blue"]);
    let mut blue = work(&daemon, "blue", 6 * MIB);
    for _ in 0..2 {
        let mut red = work(&daemon, "red", 6 * MIB);
        red.wait_progress();
        let moved = usage(&daemon, "red", "moved_bytes");
        until("red swaps", || usage(&daemon, "red", "moved_bytes") > moved).unwrap();
        let pid = executor_of(&daemon, "red").to_string();
        let sent = Command::new("kill").args(["-s", "RTMIN", &pid]).status();
        assert!(sent.unwrap().success());
        let answer = red.finish();
        assert_eq!(answer.number("error"), Some(-2), "{answer:?}");
        for _ in 0..3 {
            blue.wait_progress();
        }
    }
}

/// All tenants' bytes on the device.
fn resident(daemon: &Daemon) -> u64 {
    let usage = json(daemon, &["tenant", "usage"]);
    let lines = usage.as_array().into_iter().flatten();
    lines.filter_map(|l| l["resident_bytes"].as_u64()).sum()
}

#[test]
fn executors_of_a_device_share_its_memory() {
    let (daemon, _) = swapping_apart(16 * MIB);
    tenants(&daemon, &["red", "blue", "green"]);
    let matmul = ["--n", "800", "--check", "--json"];
    let expected = checksum(native(app("matmul")), &matmul);
    let mut beside = [
        work(&daemon, "red", 6 * MIB),
        work(&daemon, "blue", 6 * MIB),
    ];
    assert_ne!(executor_of(&daemon, "red"), executor_of(&daemon, "blue"));
    let there = checksum(through(&daemon, "green", app("matmul")), &matmul);
    assert_eq!(expected, there);
    // Each is read at another moment, so that what moves between two may count in both.
    let largest = 12 * MIB;
    for _ in 0..8 {
        assert!(resident(&daemon) <= 16 * MIB + largest);
        for running in &mut beside {
            running.wait_progress();
        }
    }
    for tenant in ["red", "blue"] {
        assert!(usage(&daemon, tenant, "moved_bytes") > 24 * MIB, "{tenant}");
    }
    // Memory of an executor is free once it has ended, in the middle of a move, too.
    let [mut red, mut blue] = beside;
    for _ in 0..3 {
        let pid = Pid::from_raw(executor_of(&daemon, "red") as i32).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let answer = red.finish();
        assert_eq!(answer.number("error"), Some(-2), "{answer:?}");
        blue.wait_progress();
        red = work(&daemon, "red", 6 * MIB);
        red.wait_progress();
    }
}

#[test]
fn executors_share_memory_after_a_new_manager_has_come() {
    let (mut daemon, options) = swapping_apart(16 * MIB);
    tenants(&daemon, &["red", "blue"]);
    let mut beside = [
        work(&daemon, "red", 6 * MIB),
        work(&daemon, "blue", 6 * MIB),
    ];
    daemon.kill().unwrap();
    let daemon = daemon.restart(&options).unwrap();
    until("the executors are adopted", || session_count(&daemon) == 2).unwrap();
    // Of an executor that the new manager has started.
    let mut third = work(&daemon, "green", 6 * MIB);
    for running in &mut beside {
        running.wait_progress();
    }
    third.wait_progress();
    for _ in 0..10 {
        assert!(resident(&daemon) <= 16 * MIB + 12 * MIB);
        third.wait_progress();
    }
}

#[test]
fn idle_tenants_leave_the_device_to_the_active_one() {
    let (daemon, _) = swapping_apart(16 * MIB);
    tenants(&daemon, &["red", "blue"]);
    // Idle after its first round.
    let mut command = through(&daemon, "red", compile("work"));
    command.args(["2", &(6 * MIB).to_string(), "1000000"]);
    let mut idle = Running::start(command);
    idle.wait_line("round");
    let mut active = work(&daemon, "blue", 7 * MIB);
    for _ in 0..5 {
        active.wait_progress();
    }
    assert_eq!(usage(&daemon, "red", "swapped_bytes"), 12 * MIB);
    assert_eq!(usage(&daemon, "blue", "swapped_bytes"), 0);
    assert_eq!(usage(&daemon, "blue", "moved_bytes"), 0);
}
