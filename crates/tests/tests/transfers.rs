//! Transfers to devices that do not work in host memory, over every path.

use baltra_tests::{
    compile, daemon_with, free_port, native, nothing_panicked, root, tenants, through, Running,
};
use std::process::Command;
use std::time::Duration;

/// The test moves a gigabyte, with few free cores.
const PATIENCE: Duration = Duration::from_secs(280);

fn passes(command: Command) {
    let answer = Running::start(command).finish_within(PATIENCE).ok();
    assert!(
        answer.out.ends_with("done"),
        "{}\n{}",
        answer.out,
        answer.err
    );
}

#[test]
fn transfers_are_right_natively() {
    passes(native(compile("transfers")));
}

#[test]
fn transfers_are_right_where_the_device_has_memory_of_its_own() {
    let daemon = daemon_with(&["device.host_memory=false"]);
    passes(through(&daemon, "", compile("transfers")));
    nothing_panicked(&daemon);
}

#[test]
fn transfers_are_right_where_it_works_in_host_memory() {
    let daemon = daemon_with(&[]);
    passes(through(&daemon, "", compile("transfers")));
    nothing_panicked(&daemon);
}

#[test]
fn transfers_are_right_over_tcp() {
    let port = free_port();
    let listen = format!("listen.tcp=127.0.0.1:{port}");
    let daemon = daemon_with(&["device.host_memory=false", &listen]);
    tenants(&daemon, &["red"]);
    let token = daemon.text(&["tenant", "token", "red"]).unwrap();
    let mut command = Command::new(baltra_tests::baltra());
    command
        .args(["run", "--connect", &format!("tcp://127.0.0.1:{port}"), "--"])
        .arg(compile("transfers"))
        .arg("untimed")
        .env("BALTRA_TOKEN", token.trim());
    passes(command);
    nothing_panicked(&daemon);
}

#[test]
fn transfers_are_right_where_memory_for_them_is_short() {
    // Memory for the largest mapped block and a few pieces, but not for the blocks that buffers
    // keep.
    let daemon = daemon_with(&["device.host_memory=false", "limits.arena_bytes=134217728"]);
    passes(through(&daemon, "", compile("transfers")));
    nothing_panicked(&daemon);
}

#[test]
fn the_script_for_gpu_hosts_compares_verdicts() {
    let kit = tempfile::tempdir().unwrap();
    let script = |mode: &str, arguments: &[&str]| {
        let mut command = Command::new(root().join("bench/opencl/gpu.sh"));
        command.arg(mode).arg(kit.path()).args(arguments);
        command.env("BALTRA_BENCH_PORT", free_port().to_string());
        Running::start(command).finish_within(PATIENCE).ok()
    };
    script("pack", &[]);
    let record = kit.path().join("record");
    let parts = ["--parts", "clinfo transfers clblast", "--sizes", "1M"];
    let place = ["--driver", "libpocl.so.2", "--label", "test"];
    let place = [&place[..], &["--out", record.to_str().unwrap()]].concat();
    let answer = script("run", &[&parts[..], &place].concat());
    assert_eq!(answer.out.matches(" same").count(), 2, "{}", answer.out);
    assert!(
        answer.out.contains("skipped: clblast did not travel"),
        "{}",
        answer.out
    );
    let written = std::fs::read_dir(&record).unwrap().next().unwrap().unwrap();
    let written = std::fs::read_to_string(written.path()).unwrap();
    assert!(written.contains("| transfers | exit 0"), "{written}");
}
