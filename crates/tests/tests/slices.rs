//! Long launches in slices: another tenant gets the device in the middle of a launch, and unmodified
//! programs have the native results.

use baltra_testkit::Daemon;
use baltra_tests::{app, compile, daemon_with, native, tenants, through, Running};

const SLICED: &[&str] = &["device.slots=1", "device.quantum_ms=1", "device.slice_ms=1"];

fn sliced(more: &[&str]) -> Daemon {
    let daemon = daemon_with(&[SLICED, more].concat());
    tenants(&daemon, &["red", "blue"]);
    daemon
}

#[test]
fn a_tenant_works_while_another_one_s_launch_runs() {
    for isolation in ["device.isolation=tenant", "device.isolation=device"] {
        let daemon = sliced(&[isolation]);
        // The first launch shows what launches take. Without slices each task would wait for one of
        // them, and they would be over long before the tasks.
        let mut command = through(&daemon, "red", compile("long_launch"));
        command.args(["12", "100000", "2000"]);
        let mut long = Running::start(command);
        long.wait_line("round 2");
        let mut command = through(&daemon, "blue", compile("work"));
        command.args(["50", "4096"]);
        Running::run(command).ok();
        assert!(!long.has_ended());
    }
}

#[test]
fn programs_in_slices_have_the_native_results() {
    let daemon = sliced(&["device.slice_ms=0.5"]);
    let mut beside = through(&daemon, "blue", compile("work"));
    beside.args(["0", "4096", "1"]);
    let mut beside = Running::start(beside);
    for (name, arguments) in [
        (
            "matmul",
            &["--n", "300", "--check", "--json", "--repeat", "3"][..],
        ),
        ("sobel", &["--json", "--repeat", "3"]),
        ("cnn", &["--json", "--repeat", "3"]),
    ] {
        let checksum = |mut command: std::process::Command| {
            command.args(arguments);
            let answer = Running::run(command).ok();
            let json: serde_json::Value = serde_json::from_str(answer.out.trim()).expect("JSON");
            json["checksum"].to_string()
        };
        let own = checksum(through(&daemon, "red", app(name)));
        assert_eq!(own, checksum(native(app(name))), "{name}");
    }
    let mut command = through(&daemon, "red", compile("long_launch"));
    command.args(["6", "20000", "300"]);
    Running::run(command).ok();
    beside.wait_progress();
}
