//! The state after the death or stop of a client, an executor or the manager.

use baltra_testkit::{until, Daemon, Options};
use baltra_tests::{
    baltra, compile, daemon, descriptors, ended, executor_of, executors, free_port, get, kill,
    map_count, memory_kib, processes_with, session_count, tenants, terminate, threads, through,
    Running,
};
use std::process::Command;

/// The value of `CL_DEVICE_NOT_AVAILABLE`.
const NOT_AVAILABLE: i64 = -2;

fn working(daemon: &Daemon, tenant: &str, arguments: &[&str]) -> Running {
    let mut command = through(daemon, tenant, compile("work"));
    command.args(arguments);
    let mut running = Running::start(command);
    running.wait_line("round");
    running
}

fn works_again(daemon: &Daemon, tenant: &str) {
    let mut command = through(daemon, tenant, compile("work"));
    command.arg("5");
    Running::run(command).ok();
}

#[test]
fn a_client_killed_in_the_middle_of_transfers_leaves_nothing() {
    let daemon = daemon();
    tenants(&daemon, &["red"]);
    // Keeps the executor, whose resources are compared, alive.
    let mut sibling = working(&daemon, "red", &["0", "4096", "1"]);
    let executor = executor_of(&daemon, "red");
    let large = (64 << 20).to_string();
    let mut before = None;
    for _ in 0..6 {
        let mut victim = working(&daemon, "red", &["0", &large]);
        victim.wait_progress();
        kill(victim.pid());
        victim.finish();
        until("its session is over", || session_count(&daemon) == 1).unwrap();
        // The first client makes the driver allocate resources that it keeps permanently.
        let Some((files, maps, kib)) = before else {
            before = Some((
                descriptors(executor),
                map_count(executor, "memfd:"),
                memory_kib(executor),
            ));
            continue;
        };
        until("its descriptors are closed", || {
            descriptors(executor) <= files
        })
        .unwrap();
        until("its memory is unmapped", || {
            map_count(executor, "memfd:") <= maps
        })
        .unwrap();
        until("its memory is given back", || {
            memory_kib(executor) < kib + (48 << 10)
        })
        .unwrap();
    }
    sibling.wait_progress();
    assert_eq!(executor_of(&daemon, "red"), executor);
}

#[test]
fn a_killed_executor_ends_its_sessions_alone_and_is_replaced() {
    let daemon = daemon();
    tenants(&daemon, &["red", "blue"]);
    let victim = working(&daemon, "red", &["0"]);
    let mut neighbor = working(&daemon, "blue", &["0"]);
    kill(executor_of(&daemon, "red"));
    let victim = victim.finish();
    assert_eq!(victim.number("error"), Some(NOT_AVAILABLE), "{victim:?}");
    neighbor.wait_progress();
    until("the session is over", || session_count(&daemon) == 1).unwrap();
    works_again(&daemon, "red");
    neighbor.wait_progress();
}

#[test]
fn sessions_run_on_while_the_manager_is_killed_and_restarted() {
    let mut daemon = daemon();
    tenants(&daemon, &["red", "blue"]);
    let mut red = working(&daemon, "red", &["0"]);
    let mut blue = working(&daemon, "blue", &["0", "1000000"]);
    let mut before = executors(&daemon);
    daemon.kill().unwrap();
    red.wait_progress();
    blue.wait_progress();
    let metrics = format!("127.0.0.1:{}", free_port());
    let options = Options {
        set: vec![format!("metrics.address={metrics}")],
        ..Options::default()
    };
    let daemon = daemon.restart(&options).unwrap();
    red.wait_progress();
    blue.wait_progress();
    let mut after = Vec::new();
    until("both executors are back", || {
        after = executors(&daemon);
        after.len() == 2
    })
    .unwrap();
    before.sort();
    after.sort();
    assert_eq!(before, after, "the same tenants in the same executors");
    // Processor time of adopted executors is still counted.
    let used = || {
        let all = get(&metrics, "/metrics");
        let of_red = |line: &&str| {
            line.starts_with("baltra_device_processor_seconds_total{") && line.contains("red")
        };
        let value = all.lines().find(of_red)?.rsplit(' ').next()?;
        value.parse::<f64>().ok()
    };
    let mut once = None;
    until("its processor time is reported", || {
        once = used();
        once.is_some()
    })
    .unwrap();
    until("its processor time grows", || used() > once).unwrap();
    works_again(&daemon, "red");
    red.wait_progress();
    blue.wait_progress();
    drop(red);
    drop(blue);
    until("they end as others do", || session_count(&daemon) == 0).unwrap();
}

/// Directories of executors.
fn executor_dirs(daemon: &Daemon) -> Vec<String> {
    let Ok(entries) = daemon.state_dir().join("executors").read_dir() else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn directories_of_executors_end_with_them_although_the_manager_was_killed() {
    let mut daemon = daemon();
    tenants(&daemon, &["red"]);
    for _ in 0..3 {
        // One executor is in use, and others are started in advance.
        let mut red = working(&daemon, "red", &["0"]);
        until("others are ready", || executor_dirs(&daemon).len() >= 2).unwrap();
        let before = executor_dirs(&daemon);
        daemon.kill().unwrap();
        daemon = daemon.restart(&Options::default()).unwrap();
        red.wait_progress();
        let left = |daemon: &Daemon| {
            let now = executor_dirs(daemon);
            before.iter().filter(|name| now.contains(name)).count()
        };
        until("those of idle executors are removed", || left(&daemon) == 1).unwrap();
        until("its executor is back", || executors(&daemon).len() == 1).unwrap();
        red.wait_progress();
        kill(executor_of(&daemon, "red"));
        assert_eq!(red.finish().number("error"), Some(NOT_AVAILABLE));
        until("that of the adopted executor is removed", || {
            left(&daemon) == 0
        })
        .unwrap();
    }
}

/// `baltra up` and `baltra down` of a user.
struct Home(tempfile::TempDir);

impl Home {
    fn tool(&self, arguments: &[&str]) -> baltra_tests::Answer {
        let mut command = Command::new(baltra());
        command
            .env("BALTRA_RUNTIME_DIR", self.0.path().join("run"))
            .args(arguments);
        Running::run(command)
    }
}

#[test]
fn down_leaves_no_process() {
    let home = Home(tempfile::tempdir().unwrap());
    let state = home.0.path().join("state");
    let state = state.to_str().unwrap();
    let up = ["up", "--state-dir", state, "--set", "metrics.address="];
    home.tool(&up).ok();
    let mut command = Command::new(baltra());
    command
        .env("BALTRA_RUNTIME_DIR", home.0.path().join("run"))
        .args(["run", "--"])
        .arg(compile("work"))
        .arg("0");
    let mut client = Running::start(command);
    client.wait_line("round");
    let own = home.0.path().to_str().unwrap();
    assert!(processes_with(own).len() >= 2, "a manager and an executor");
    home.tool(&["down", "--drain-ms", "100"]).ok();
    let left = processes_with(own);
    assert!(left.is_empty(), "still there: {left:?}");
    let client = client.finish();
    assert_eq!(client.number("error"), Some(NOT_AVAILABLE), "{client:?}");
}

#[test]
fn sigterm_lets_running_sessions_finish_and_takes_no_new_ones() {
    let daemon = baltra_tests::daemon_with(&["executors.drain_ms=60000"]);
    let first = working(&daemon, "", &["150", "4096", "10"]);
    let children = daemon.children();
    terminate(daemon.pid());
    until("it says that it drains", || {
        let (answer, _) = baltra_session::handshake::hello(
            &daemon.connect().unwrap(),
            &baltra_testkit::hello("device0"),
        )
        .unwrap();
        answer.is_err_and(|refusal| refusal.to_string().contains("shutting down"))
    })
    .unwrap();
    let first = first.finish().ok();
    assert!(first.out.ends_with("done"), "{first:?}");
    until("the manager has ended", || ended(daemon.pid())).unwrap();
    until("its executors have ended", || {
        children.iter().all(|pid| ended(*pid))
    })
    .unwrap();
}

#[test]
fn a_client_that_comes_and_goes_leaves_no_threads() {
    let daemon = daemon();
    tenants(&daemon, &["red"]);
    let mut sibling = working(&daemon, "red", &["0", "4096", "5"]);
    let executor = executor_of(&daemon, "red");
    works_again(&daemon, "red");
    until("one session is left", || session_count(&daemon) == 1).unwrap();
    let (in_executor, in_manager) = (threads(executor, ""), threads(daemon.pid(), ""));
    for _ in 0..5 {
        works_again(&daemon, "red");
    }
    until("their threads have ended", || {
        threads(executor, "") <= in_executor && threads(daemon.pid(), "") <= in_manager
    })
    .unwrap();
    sibling.wait_progress();
}
