//! More memory than the device has: unmodified programs whose buffers leave the device between
//! their turns have the native results.

use baltra_testkit::{until, Daemon};
use baltra_tests::{
    app, compile, compile_driver, daemon_with, get, json, native, tenants, through, Running,
};
use std::process::Command;

const MIB: u64 = 1 << 20;

/// A daemon whose device swaps. PoCL has buffers of its own without `host_memory`.
fn swapping(device_bytes: u64, more: &[&str]) -> Daemon {
    let bytes = format!("device.memory_bytes={device_bytes}");
    let mut set = vec![
        "device.isolation=device",
        "device.host_memory=false",
        "device.memory_overcommit=64",
        &bytes,
    ];
    set.extend(more);
    daemon_with(&set)
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
fn test_programs_that_swap_at_each_turn_have_the_native_results() {
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
fn test_a_device_that_fails_while_it_swaps_ends_its_sessions_and_new_ones_work() {
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
fn test_overcommitting_needs_one_executor_for_all_tenants() {
    let options = baltra_testkit::Options {
        set: vec!["device.memory_overcommit=4".into()],
        ..Default::default()
    };
    let refused = Daemon::start_with(baltra_tests::baltra(), &options).err();
    let refused = refused.expect("the configuration is refused").to_string();
    assert!(refused.contains("memory_overcommit"), "{refused}");
    assert!(refused.contains("isolation = \"device\""), "{refused}");
}
