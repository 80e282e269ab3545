//! Kernels that crash, never end, store to invalid addresses, or do not compile.

use baltra_testkit::{until, Daemon};
use baltra_tests::{
    compile, daemon, daemon_with, ended, executor_of, native, session_count, tenants, through,
    Answer, Running,
};

/// The value of `CL_DEVICE_NOT_AVAILABLE`.
const NOT_AVAILABLE: i64 = -2;

fn working(daemon: &Daemon, tenant: &str) -> Running {
    let mut command = through(daemon, tenant, compile("work"));
    command.arg("0");
    let mut running = Running::start(command);
    running.wait_line("round");
    running
}

fn harm(daemon: &Daemon, tenant: &str, arguments: &[&str]) -> Answer {
    let mut command = through(daemon, tenant, compile("harm"));
    command.args(arguments);
    Running::run(command).ok()
}

fn works_again(daemon: &Daemon, tenant: &str) {
    let mut command = through(daemon, tenant, compile("work"));
    command.arg("5");
    Running::run(command).ok();
}

/// Calls after the fault return that the device is unavailable, and none of them crashes the
/// caller.
fn is_ended(answer: &Answer) {
    assert_eq!(answer.number("finish"), Some(NOT_AVAILABLE), "{answer:?}");
    assert_eq!(answer.number("event"), Some(NOT_AVAILABLE), "{answer:?}");
    assert_eq!(answer.number("read"), Some(NOT_AVAILABLE), "{answer:?}");
}

#[test]
fn a_segfault_ends_its_tenants_sessions_alone() {
    let daemon = daemon();
    tenants(&daemon, &["red", "blue"]);
    let mut neighbor = working(&daemon, "blue");
    let sibling = working(&daemon, "red");
    is_ended(&harm(&daemon, "red", &["fault"]));
    // The same tenant's other program shared the executor.
    let sibling = sibling.finish();
    assert_eq!(sibling.number("error"), Some(NOT_AVAILABLE), "{sibling:?}");
    neighbor.wait_progress();
    works_again(&daemon, "red");
    neighbor.wait_progress();
}

#[test]
fn with_session_isolation_a_segfault_ends_one_session() {
    let daemon = daemon_with(&["device.isolation=session"]);
    tenants(&daemon, &["red"]);
    let mut sibling = working(&daemon, "red");
    is_ended(&harm(&daemon, "red", &["fault"]));
    sibling.wait_progress();
}

#[test]
fn with_device_isolation_a_segfault_ends_the_devices_sessions_and_new_ones_work() {
    let daemon = daemon_with(&["device.isolation=device"]);
    tenants(&daemon, &["red", "blue"]);
    let neighbor = working(&daemon, "blue");
    is_ended(&harm(&daemon, "red", &["fault"]));
    let neighbor = neighbor.finish();
    assert_eq!(neighbor.number("error"), Some(NOT_AVAILABLE));
    works_again(&daemon, "red");
    works_again(&daemon, "blue");
}

// PoCL compiles a kernel at its first launch, which counts as part of that task's time: the limits
// here are long enough for a busy machine.

#[test]
fn an_endless_kernel_is_killed_after_its_tenants_time() {
    let daemon = daemon();
    tenants(&daemon, &["blue"]);
    daemon
        .text(&["tenant", "add", "red", "--task-ms", "3000"])
        .unwrap();
    let mut neighbor = working(&daemon, "blue");
    let mut command = through(&daemon, "red", compile("harm"));
    command.arg("endless");
    let mut running = Running::start(command);
    running.wait_line("ready");
    neighbor.wait_progress();
    is_ended(&running.finish().ok());
    neighbor.wait_progress();
    works_again(&daemon, "red");
    assert!(daemon.log().contains("3000 ms"), "the log says why");
}

#[test]
fn an_endless_kernel_is_killed_after_the_devices_time() {
    let daemon = daemon_with(&["device.task_ms=3000"]);
    tenants(&daemon, &["red"]);
    is_ended(&harm(&daemon, "red", &["endless"]));
    works_again(&daemon, "red");
}

#[test]
fn an_endless_kernel_ends_with_its_client() {
    let daemon = daemon();
    tenants(&daemon, &["red"]);
    let mut command = through(&daemon, "red", compile("harm"));
    command.arg("endless");
    let mut running = Running::start(command);
    running.wait_line("ready");
    let executor = executor_of(&daemon, "red");
    // Time for the kernel to be launched and never end; earlier is harmless.
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(running);
    until("the session is over", || session_count(&daemon) == 0).unwrap();
    until("the device is free of it", || {
        ended(executor) || idle(executor)
    })
    .unwrap();
    works_again(&daemon, "red");
}

/// Whether a process uses no processor time for a while.
fn idle(pid: u32) -> bool {
    let used = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |s| s.1);
        let mut times = fields.split_whitespace().skip(11);
        let user: u64 = times.next().and_then(|t| t.parse().ok()).unwrap_or(0);
        user
    };
    let before = used();
    std::thread::sleep(std::time::Duration::from_millis(200));
    used() <= before + 1
}

#[test]
fn a_stray_store_leaves_the_neighbors_memory_alone() {
    let daemon = daemon();
    tenants(&daemon, &["red", "blue"]);
    let mut neighbor = working(&daemon, "blue");
    for words in ["1024", "4096", "1000000", "100000000"] {
        let answer = harm(&daemon, "red", &["stray", words]);
        let code = answer.number("finish");
        assert!(matches!(code, Some(0 | NOT_AVAILABLE)), "{answer:?}");
        neighbor.wait_progress();
    }
    works_again(&daemon, "red");
}

#[test]
fn a_failed_compilation_returns_the_drivers_log() {
    let daemon = daemon();
    let log = |answer: Answer| {
        let answer = answer.ok();
        let own: Vec<String> = answer.out.lines().map(without_path).collect();
        own.join("\n")
    };
    let here = log(Running::run(native(compile("build_log"))));
    let there = log(Running::run(through(&daemon, "", compile("build_log"))));
    assert!(here.contains("build -11") && here.contains("undeclared_name"));
    assert_eq!(there, here);
}

/// The driver's log contains a temporary file name, which varies.
fn without_path(line: &str) -> String {
    let words = line.split(' ').map(|word| match word.rsplit_once(".cl:") {
        Some((_, place)) => format!("FILE.cl:{place}"),
        None => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}
