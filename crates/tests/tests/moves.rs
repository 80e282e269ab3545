//! Live moves: a program continues, with the right bytes, while its session moves between devices, and
//! whatever ends during the move.

use baltra_channel::Channel;
use baltra_session::client::Client;
use baltra_testkit::{until, Daemon, Options};
use baltra_tests::{
    baltra, by_variables, compile, compile_driver, free_port, json, kill, nothing_panicked,
    once_built, session_count, suspend, tenants, threads, through_with, Mover, Random, Running,
};
use baltra_wire::executor::{SessionStart, ToExecutor, ToManager};
use baltra_wire::{Hello, Limits, SessionFlags, VERSION};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Two devices, with these keys each.
fn two(keys: &str) -> Daemon {
    two_of([keys, keys])
}

fn options(keys: [&str; 2]) -> Options {
    let config = ["a", "b"].into_iter().zip(keys).enumerate();
    let config = config.map(|(at, (name, keys))| {
        format!("[[device]]\nname = '{name}'\nselect = '{at}'\n{keys}\n")
    });
    Options {
        config: config.collect(),
        ..Options::default()
    }
}

fn two_of(keys: [&str; 2]) -> Daemon {
    start(&options(keys))
}

fn start(options: &Options) -> Daemon {
    let daemon = Daemon::start_with(baltra(), options).expect("a daemon starts");
    tenants(&daemon, &["red"]);
    daemon
}

/// `programs/moving.c` on the first device.
fn moving(daemon: &Daemon, arguments: &[&str]) -> Running {
    let program = compile("moving");
    let mut command = through_with(daemon, &["--tenant", "red", "--device", "a"], program);
    command.args(arguments);
    let mut running = Running::start(command);
    running.wait_line("round");
    running
}

/// The number and the device of the only session.
fn only(daemon: &Daemon) -> (u64, String) {
    let sessions = json(daemon, &["session", "ls"]);
    let sessions = sessions.as_array().expect("a list");
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    let device = sessions[0]["device"].as_str().expect("a name");
    (sessions[0]["id"].as_u64().expect("a number"), device.into())
}

fn move_with(daemon: &Daemon, session: u64, device: &str, more: &[&str]) -> Output {
    let number = session.to_string();
    let mut arguments = vec!["session", "move", &number, "--to", device];
    arguments.extend(more);
    once_built(|| daemon.baltra(&arguments).expect("the tool runs"))
}

fn other(device: &str) -> &'static str {
    match device {
        "a" => "b",
        _ => "a",
    }
}

/// Moves the session to the device and returns the answer.
fn must_move(daemon: &Daemon, session: u64, device: &str) -> serde_json::Value {
    let output = move_with(daemon, session, device, &["--json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}\n{}", daemon.log());
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The error of a move that must fail.
fn refusal(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "the move succeeds");
    error
}

/// A program that moves back and forth, as fast as it goes, and checks all bytes after each move.
fn back_and_forth(keys: &str, arguments: &[&str], moves: usize) {
    let daemon = two(keys);
    let mut program = moving(&daemon, arguments);
    let (session, mut device) = only(&daemon);
    for _ in 0..moves {
        device = other(&device).into();
        must_move(&daemon, session, &device);
    }
    program.wait_progress();
    assert_eq!(only(&daemon), (session, device));
    drop(program);
    until("no session is left", || session_count(&daemon) == 0).unwrap();
    nothing_panicked(&daemon);
}

#[test]
fn a_program_with_buffers_in_its_own_memory_moves() {
    back_and_forth("", &["0", "65536", "20"], 8);
}

#[test]
fn a_program_with_buffers_on_the_device_moves() {
    back_and_forth("host_memory = false", &["0", "1048576", "20"], 8);
}

#[test]
fn a_program_whose_buffers_are_swapped_moves() {
    let keys = "host_memory = false\nisolation = 'device'\nmemory_overcommit = 64\n\
                memory_bytes = 100000";
    back_and_forth(keys, &["0", "65536", "20"], 8);
}

#[test]
fn a_program_without_pauses_moves() {
    back_and_forth("host_memory = false", &["0", "16384", "0"], 16);
}

#[test]
fn a_program_whose_launches_run_in_slices_moves() {
    let daemon = two("host_memory = false\nslots = 1\nquantum_ms = 1\nslice_ms = 0.2");
    let on_a = |program: &str, arguments: &[&str]| {
        let mut command = through_with(
            &daemon,
            &["--tenant", "red", "--device", "a"],
            compile(program),
        );
        command.args(arguments);
        Running::start(command)
    };
    let mut long = on_a("long_launch", &["0", "20000", "300"]);
    long.wait_line("round 3");
    let (session, _) = only(&daemon);
    // Another session interrupts the launches.
    let mut beside = on_a("work", &["0", "4096", "1"]);
    beside.wait_progress();
    for device in ["b", "a", "b", "a"] {
        must_move(&daemon, session, device);
        long.wait_progress();
        beside.wait_progress();
    }
}

#[test]
fn a_move_reports_what_it_has_cost_and_where_the_session_is() {
    let daemon = two("host_memory = false");
    let mut program = moving(&daemon, &["0", "4194304", "1"]);
    let (session, device) = only(&daemon);
    assert_eq!(device, "a");
    let moved = must_move(&daemon, session, "b");
    let number = |key: &str| moved[key].as_u64().expect("a number");
    assert!(number("bytes") >= 4 << 20, "{moved}");
    assert!(number("stopped_us") <= number("took_us"), "{moved}");
    program.wait_progress();
    assert_eq!(only(&daemon), (session, "b".into()));
    let listed = &json(&daemon, &["session", "ls"])[0];
    assert_eq!(listed["can_move"], true, "{listed}");
    assert!(
        listed["resident_bytes"].as_u64() >= Some(4 << 20),
        "{listed}"
    );
    assert!(listed["queues"].as_u64() >= Some(2), "{listed}");
    let usage = json(&daemon, &["tenant", "usage"]);
    let used = |device: &str| {
        let lines = usage.as_array().expect("a list").iter();
        let mut own = lines.filter(|line| line["device"] == device);
        let line = own.next().expect("a line of the device");
        line["memory_used_bytes"].as_u64().expect("a number")
    };
    assert!(used("b") >= 4 << 20, "{usage}");
    assert_eq!(used("a"), 0, "{usage}");
    let again = refusal(&move_with(&daemon, session, "b", &[]));
    assert!(again.contains("it is there"), "{again}");
    drop(program);
    until("no session is left", || session_count(&daemon) == 0).unwrap();
    let ended = refusal(&move_with(&daemon, session, "a", &[]));
    assert!(ended.contains("there is no session"), "{ended}");
    nothing_panicked(&daemon);
}

/// Moves a program with `count` buffers of 1 MiB, two of which it writes all the time; returns what
/// was copied and touched while it was stopped.
fn stop_of(count: usize, keys: &str) -> (u64, u64) {
    const MIB: u64 = 1 << 20;
    let daemon = two(keys);
    let program = compile("resident");
    let mut command = through_with(&daemon, &["--tenant", "red", "--device", "a"], program);
    command.args([&count.to_string(), &MIB.to_string(), "2"]);
    let mut program = Running::start(command);
    program.wait_line("checked");
    let (session, _) = only(&daemon);
    let mut most = (0, 0);
    for device in ["b", "a"] {
        let moved = must_move(&daemon, session, device);
        let number = |key: &str| moved[key].as_u64().expect("a number");
        assert!(number("bytes") >= (count as u64 + 33) * MIB, "{moved}");
        most.0 = most.0.max(number("stopped_bytes"));
        most.1 = most.1.max(number("stopped_objects"));
        // All bytes, after the move.
        program.wait_line("checked");
        program.wait_line("checked");
    }
    nothing_panicked(&daemon);
    most
}

#[test]
fn the_work_of_a_stop_does_not_depend_on_what_the_program_does_not_write() {
    let few = stop_of(4, "host_memory = false");
    let many = stop_of(96, "host_memory = false");
    for (bytes, objects) in [few, many] {
        // Its writes, its kernel, and nothing else.
        assert!(bytes <= 2 << 20 && objects <= 3, "{few:?}, {many:?}");
    }
}

#[test]
fn idle_queues_of_a_moved_session_have_no_threads() {
    let daemon = two("host_memory = false");
    let program = compile("resident");
    let mut command = through_with(&daemon, &["--tenant", "red", "--device", "a"], program);
    command.args(["4", "65536", "2"]);
    let mut program = Running::start(command);
    program.wait_line("checked");
    let (session, _) = only(&daemon);
    must_move(&daemon, session, "b");
    let executor = executor_on(&daemon, "b").expect("the session's executor");
    assert!(threads(executor, "queue ") > 0);
    let stopped = suspend(vec![program.pid()]);
    until("no queue has a thread", || threads(executor, "queue ") == 0).unwrap();
    drop(stopped);
    program.wait_line("checked");
    program.wait_line("checked");
    nothing_panicked(&daemon);
}

#[test]
fn contents_that_are_swapped_move_in_parts() {
    let keys = "host_memory = false\nisolation = 'device'\nmemory_overcommit = 64\n\
                memory_bytes = 8000000";
    let (bytes, _) = stop_of(12, keys);
    assert!(bytes <= 2 << 20, "{bytes}");
}

#[test]
fn a_device_that_cannot_build_the_program_refuses_the_session_which_continues() {
    let driver = compile_driver("refusing_driver");
    let refusing = format!("driver = '{}'", driver.display());
    let daemon = two_of(["", &refusing]);
    let mut program = moving(&daemon, &["0", "65536", "1"]);
    let (session, _) = only(&daemon);
    for _ in 0..3 {
        let error = refusal(&move_with(&daemon, session, "b", &["--force"]));
        assert!(error.contains("cannot be built: error -11"), "{error}");
        program.wait_progress();
        assert_eq!(only(&daemon), (session, "a".into()));
    }
    nothing_panicked(&daemon);
}

#[test]
fn a_move_waits_for_a_long_kernel_or_gives_up() {
    let daemon = two("");
    let mut program = moving(&daemon, &["0", "65536", "1", "1500"]);
    let (session, _) = only(&daemon);
    let mut refused = 0;
    for _ in 0..6 {
        program.wait_line("spins");
        let (_, device) = only(&daemon);
        let output = move_with(&daemon, session, other(&device), &["--wait-ms", "50"]);
        // On a busy host the kernel may end before the move is prepared.
        if !output.status.success() {
            let error = refusal(&output);
            // The command, or the request in which the program waits for it.
            let reasons = [
                "a command runs for longer than the 50 ms",
                "a request takes longer than the 50 ms",
            ];
            assert!(reasons.iter().any(|r| error.contains(r)), "{error}");
            assert_eq!(only(&daemon), (session, device));
            refused += 1;
        }
        program.wait_line("round");
    }
    assert!(refused > 0, "no move was given up");
    program.wait_line("spins");
    let (_, device) = only(&daemon);
    let wait = ["--wait-ms", "10000", "--json"];
    let output = move_with(&daemon, session, other(&device), &wait);
    assert!(output.status.success(), "{output:?}");
    program.wait_line("round");
    program.wait_line("round");
    nothing_panicked(&daemon);
}

#[test]
fn of_two_moves_of_one_session_the_second_is_refused() {
    let daemon = two("");
    let mut program = moving(&daemon, &["0", "65536", "1", "1500"]);
    let (session, _) = only(&daemon);
    program.wait_line("spins");
    std::thread::scope(|scope| {
        let both = [(); 2]
            .map(|()| scope.spawn(|| move_with(&daemon, session, "b", &["--wait-ms", "10000"])));
        let both = both.map(|one| one.join().expect("no panic"));
        let (done, refused): (Vec<_>, Vec<_>) = both.iter().partition(|o| o.status.success());
        assert_eq!((done.len(), refused.len()), (1, 1), "{both:?}");
        let error = refusal(refused[0]);
        assert!(error.contains("is being moved already"), "{error}");
    });
    program.wait_line("round");
    nothing_panicked(&daemon);
}

#[test]
fn facts_that_differ_need_force() {
    let daemon = two_of(["", "host_memory = false"]);
    let mut program = moving(&daemon, &["0", "65536", "1"]);
    let (session, _) = only(&daemon);
    let error = refusal(&move_with(&daemon, session, "b", &["--force"]));
    assert!(error.contains("buffers in its own memory"), "{error}");
    program.wait_progress();
    assert_eq!(only(&daemon), (session, "a".into()));
}

#[test]
fn a_device_that_cannot_run_the_program_s_kernels_is_refused_with_force_too() {
    let driver = compile_driver("smaller_driver");
    let smaller = format!("host_memory = false\ndriver = '{}'", driver.display());
    let daemon = two_of(["host_memory = false", &smaller]);
    for (needs, reason) in [
        ("group", "in groups of 256 work-items"),
        ("depth", "sides of up to [1, 1, 128] work-items"),
        ("local", "bytes of local memory, and the device has 16384"),
        ("image", "no images of order"),
        ("nothing", ""),
    ] {
        let program = compile("needs");
        let mut command = through_with(&daemon, &["--tenant", "red", "--device", "a"], program);
        command.arg(needs);
        let mut program = Running::start(command);
        program.wait_line("round");
        let (session, _) = only(&daemon);
        let error = refusal(&move_with(&daemon, session, "b", &[]));
        assert!(error.contains("other work-item sizes"), "{error}");
        let forced = move_with(&daemon, session, "b", &["--force"]);
        let to = if reason.is_empty() {
            assert!(forced.status.success(), "{forced:?}");
            "b"
        } else {
            let error = refusal(&forced);
            assert!(error.contains(reason), "{needs}: {error}");
            "a"
        };
        program.wait_progress();
        assert_eq!(only(&daemon), (session, to.into()), "{needs}");
        drop(program);
        until("no session is left", || session_count(&daemon) == 0).unwrap();
    }
}

#[test]
fn shared_virtual_memory_stays() {
    let daemon = two("");
    let program = compile("svm_stays");
    let command = through_with(&daemon, &["--tenant", "red", "--device", "a"], program);
    let mut running = Running::start(command);
    running.wait_line("allocated");
    let (session, _) = only(&daemon);
    let listed = &json(&daemon, &["session", "ls"])[0];
    assert_eq!(listed["obstacle"], "it has shared virtual memory");
    assert_eq!(listed["can_move"], false);
    let error = refusal(&move_with(&daemon, session, "b", &[]));
    assert!(error.contains("shared virtual memory"), "{error}");
    assert!(!running.has_ended());
}

#[test]
fn a_program_with_variables_of_its_own_stays() {
    let driver = compile_driver("variables_driver");
    let keys = format!("driver = '{}'", driver.display());
    let daemon = two(&keys);
    let mut program = moving(&daemon, &["0", "65536", "1"]);
    let (session, _) = only(&daemon);
    let error = refusal(&move_with(&daemon, session, "b", &[]));
    assert!(error.contains("variables of its own"), "{error}");
    let listed = &json(&daemon, &["session", "ls"])[0];
    assert_eq!(listed["can_move"], false, "{listed}");
    program.wait_progress();
    assert_eq!(only(&daemon), (session, "a".into()));
}

/// `baltra device drain DEVICE --live`: the exit code and the answer.
fn drain(daemon: &Daemon, device: &str) -> (Option<i32>, serde_json::Value) {
    let output = daemon.baltra(&["device", "drain", device, "--live", "--json"]);
    let output = output.expect("the tool runs");
    let answer = serde_json::from_slice(&output.stdout);
    let answer = answer.unwrap_or_else(|_| panic!("{output:?}"));
    (output.status.code(), answer)
}

#[test]
fn a_drained_device_keeps_only_sessions_that_cannot_move_and_names_the_reason() {
    let daemon = two("");
    let mut first = moving(&daemon, &["0", "65536", "1"]);
    let mut second = moving(&daemon, &["0", "65536", "1"]);
    let stays = ["--tenant", "red", "--device", "a"];
    let mut fixed = Running::start(through_with(&daemon, &stays, compile("svm_stays")));
    fixed.wait_line("allocated");
    let (code, drained) = drain(&daemon, "a");
    assert_eq!(code, Some(1), "{drained}");
    let moved = drained["moved"].as_array().expect("a list");
    assert!(
        moved.len() == 2 && moved.iter().all(|m| m["to"] == "b"),
        "{drained}"
    );
    let stayed = drained["stayed"].as_array().expect("a list");
    assert_eq!(stayed.len(), 1, "{drained}");
    assert_eq!(stayed[0]["pid"], fixed.pid(), "{drained}");
    let reason = &stayed[0]["reasons"][0]["reason"];
    assert_eq!(*reason, "it has shared virtual memory", "{drained}");
    first.wait_progress();
    second.wait_progress();
    drop(fixed);
    until("its session ends", || session_count(&daemon) == 2).unwrap();
    // Nothing is left to move.
    let (code, drained) = drain(&daemon, "a");
    assert_eq!(code, Some(0), "{drained}");
    assert_eq!(drained["moved"], serde_json::json!([]));
    let (code, drained) = drain(&daemon, "b");
    assert_eq!(code, Some(0), "{drained}");
    first.wait_progress();
    second.wait_progress();
    let output = daemon.baltra(&["device", "drain", "c", "--live"]);
    let error = refusal(&output.expect("the tool runs"));
    assert!(error.contains("there is no device 'c'"), "{error}");
    nothing_panicked(&daemon);
}

#[test]
fn the_only_device_of_a_node_keeps_its_sessions() {
    let daemon = Daemon::start_with(baltra(), &Options::default()).expect("a daemon starts");
    tenants(&daemon, &["red"]);
    let mut command = through_with(&daemon, &["--tenant", "red"], compile("moving"));
    command.arg("0");
    let mut program = Running::start(command);
    program.wait_line("round");
    let (code, drained) = drain(&daemon, "device0");
    assert_eq!(code, Some(1), "{drained}");
    let reason = &drained["stayed"][0]["reasons"][0]["reason"];
    assert_eq!(*reason, "the node has no other device", "{drained}");
}

/// The manager of a daemon is killed at a random moment of a move, and started again.
fn manager_killed(times: usize) {
    let options = options(["host_memory = false"; 2]);
    let mut daemon = start(&options);
    let mut random = Random::new();
    let mut program = moving(&daemon, &["0", "1048576", "1"]);
    for _ in 0..times {
        let (session, from) = only(&daemon);
        let wait = Duration::from_micros(random.below(60_000));
        let (runtime_dir, number) = (daemon.runtime_dir(), session.to_string());
        let mut command = Command::new(baltra());
        command.env("BALTRA_RUNTIME_DIR", runtime_dir);
        command.args(["session", "move", &number, "--to", other(&from)]);
        let asked = Running::start(command);
        std::thread::sleep(wait);
        daemon.kill().expect("the manager ends");
        asked.finish();
        // It needs no manager, wherever it is.
        program.wait_progress();
        daemon = daemon.restart(&options).expect("a manager starts");
        until("the session is adopted", || session_count(&daemon) == 1).unwrap();
        assert_eq!(only(&daemon).0, session, "{}", daemon.log());
        program.wait_progress();
    }
    drop(program);
    until("no session is left", || session_count(&daemon) == 0).unwrap();
    nothing_panicked(&daemon);
}

#[test]
fn no_session_is_lost_or_doubled_with_a_manager_that_is_killed_during_a_move() {
    manager_killed(kills());
}

#[test]
fn a_session_over_tcp_moves() {
    let port = free_port();
    let mut options = options(["host_memory = false"; 2]);
    options.config += &format!("[listen]\ntcp = '127.0.0.1:{port}'\n");
    let daemon = start(&options);
    let token = daemon.text(&["tenant", "token", "red"]).unwrap();
    let mut command = by_variables(&format!("tcp://127.0.0.1:{port}"), compile("moving"));
    command
        .env("BALTRA_TOKEN", token.trim())
        .env("BALTRA_DEVICE", "a")
        .args(["0", "1048576", "5"]);
    let mut program = Running::start(command);
    program.wait_line("round");
    let listed = json(&daemon, &["session", "ls"]);
    let remote = |s: &&serde_json::Value| s["transport"] == "tcp" && s["device"] == "a";
    let session = listed.as_array().expect("a list").iter().find(remote);
    let session = session.unwrap_or_else(|| panic!("{listed}"))["id"].as_u64();
    for device in ["b", "a", "b", "a", "b"] {
        must_move(&daemon, session.expect("a number"), device);
        program.wait_progress();
    }
    nothing_panicked(&daemon);
}

#[test]
fn programs_give_the_native_answers_while_their_sessions_move_all_the_time() {
    let daemon = two("host_memory = false");
    let mover = Mover::start(&daemon);
    let runs: [(&str, &[&str]); 3] = [
        ("threads", &["5", "150"]),
        ("gated", &[]),
        ("transfers", &["untimed"]),
    ];
    for (program, arguments) in runs {
        let before = mover.moves();
        let mut command = through_with(&daemon, &["--tenant", "red"], compile(program));
        command.args(arguments);
        let patience = Duration::from_secs(280);
        let answer = Running::start(command).finish_within(patience).ok();
        assert!(answer.out.ends_with("done"), "{program}: {answer:?}");
        println!("{program}: {} moves", mover.moves() - before);
    }
    assert!(mover.moves() > 0, "{}", daemon.log());
    drop(mover);
    nothing_panicked(&daemon);
}

#[test]
fn first_transfers_of_several_threads_leave_no_queue_behind_that_a_move_would_run() {
    const THREADS: u64 = 6;
    let daemon = two("host_memory = false");
    let program = compile("first_transfers");
    let mut command = through_with(&daemon, &["--tenant", "red", "--device", "a"], program);
    command.args([&THREADS.to_string(), "8"]);
    let mut program = Running::start(command);
    program.wait_line("context 7");
    program.wait_progress();
    let (session, _) = only(&daemon);
    // The library has one queue for each direction.
    until("only its own queues are open", || {
        json(&daemon, &["session", "ls"])[0]["queues"] == THREADS + 2
    })
    .unwrap();
    for device in ["b", "a", "b"] {
        must_move(&daemon, session, device);
        program.wait_progress();
    }
    drop(program);
    nothing_panicked(&daemon);
}

/// The number of times that a process is killed in each test: `BALTRA_KILLS`.
fn kills() -> usize {
    let times = std::env::var("BALTRA_KILLS");
    times.map_or(4, |times| times.parse().expect("BALTRA_KILLS is a number"))
}

/// The process that is killed while a session moves.
#[derive(Clone, Copy, PartialEq)]
enum Victim {
    Source,
    Target,
    Client,
}

/// The process of the executor on a device; `None`: there is none.
fn executor_on(daemon: &Daemon, device: &str) -> Option<u32> {
    let sessions = json(daemon, &["sessions"]);
    let mut sessions = sessions.as_array().expect("a list").iter();
    let own = sessions.find(|s| s["device"] == device)?;
    own["executor_pid"].as_u64().map(|pid| pid as u32)
}

/// Whether a program's session was in this executor, which was killed.
fn is_lost_with(daemon: &Daemon, program: &mut Running, killed: u32) -> bool {
    let mut is_lost = false;
    until("the program ends, or its session is elsewhere", || {
        is_lost = program.has_ended();
        let sessions = json(daemon, &["sessions"]);
        let mut sessions = sessions.as_array().expect("a list").iter();
        let own = sessions.find(|s| s["pid"] == program.pid());
        is_lost || own.is_some_and(|own| own["executor_pid"] != killed)
    })
    .unwrap();
    is_lost
}

/// Kills one of the processes at a random moment of a move, many times. A program whose own executor
/// and which itself was not killed continues.
fn killed(victim: Victim, times: usize) {
    let daemon = two("host_memory = false");
    let mut random = Random::new();
    let mut program = moving(&daemon, &["0", "1048576", "1"]);
    // One session stays on each device, so that its executor is known.
    let place = |device: &str| {
        let command = through_with(
            &daemon,
            &["--tenant", "red", "--device", device],
            compile("work"),
        );
        let mut command = command;
        command.args(["0", "4096", "50"]);
        let mut running = Running::start(command);
        running.wait_line("round");
        running
    };
    // The session of a program, and its device.
    let own = |program: &Running| {
        let sessions = json(&daemon, &["session", "ls"]);
        let sessions = sessions.as_array().expect("a list");
        let own = sessions.iter().find(|s| s["pid"] == program.pid());
        let own = own.unwrap_or_else(|| panic!("lost: {}", daemon.log()));
        let device = own["device"].as_str().unwrap().to_owned();
        (own["id"].as_u64().unwrap(), device)
    };
    // A move's time on this host, with the start of the command; the first one starts an executor.
    let mut took = Duration::ZERO;
    for _ in 0..2 {
        let (session, from) = own(&program);
        let began = Instant::now();
        let output = move_with(&daemon, session, other(&from), &[]);
        assert!(output.status.success(), "{output:?}");
        took = began.elapsed();
    }
    for round in 0..times {
        let beside = [place("a"), place("b")];
        let (session, from) = own(&program);
        let to = other(&from);
        let pid = match victim {
            Victim::Source => executor_on(&daemon, &from).expect("an executor"),
            Victim::Target => executor_on(&daemon, to).expect("an executor"),
            Victim::Client => program.pid(),
        };
        let wait = Duration::from_micros(random.below(took.as_micros() as u64 * 5 / 4));
        let output = std::thread::scope(|scope| {
            let moved = scope.spawn(|| move_with(&daemon, session, to, &[]));
            std::thread::sleep(wait);
            kill(pid);
            moved.join().expect("no panic")
        });
        drop(beside);
        println!("round {round}, {wait:?} of {took:?}: {}", output.status);
        let was_killed = match victim {
            Victim::Client => true,
            // A session that had moved away lives.
            Victim::Source => !output.status.success(),
            // One that had arrived was killed with its executor, unless another one was chosen, because
            // that one was ending already.
            Victim::Target => output.status.success() && is_lost_with(&daemon, &mut program, pid),
        };
        if was_killed {
            until("the program ends", || program.has_ended()).unwrap();
            until("no session is left", || session_count(&daemon) == 0).unwrap();
            program = moving(&daemon, &["0", "1048576", "1"]);
        } else {
            program.wait_progress();
        }
    }
    drop(program);
    until("no session is left", || session_count(&daemon) == 0).unwrap();
    nothing_panicked(&daemon);
}

#[test]
fn no_session_is_lost_with_the_executor_that_it_moves_to() {
    killed(Victim::Target, kills());
}

#[test]
fn a_session_that_has_moved_outlives_its_former_executor() {
    killed(Victim::Source, kills());
}

#[test]
fn nothing_is_left_of_a_client_that_dies_while_its_session_moves() {
    killed(Victim::Client, kills());
}

/// The session of [`earlier_executor`].
const ADOPTED: u64 = 77;

/// Not a test: an executor of release 0.1.0 that has lost its manager and serves a session, as far
/// as the next manager sees it. It prints the messages that it receives.
#[test]
#[ignore = "started by another test"]
fn earlier_executor() {
    let Ok(runtime) = std::env::var("EARLIER_EXECUTOR_RUNTIME") else {
        return;
    };
    let endpoint = std::env::var("EARLIER_EXECUTOR_ENDPOINT").unwrap();
    let hello = Hello {
        version: VERSION,
        ..Hello::default()
    };
    let welcome = Client::list(&endpoint.parse().unwrap(), hello).unwrap();
    let device = welcome.devices.into_iter().find(|d| d.name == "a");
    let channel = Channel::connect(
        std::path::Path::new(&runtime)
            .join("executors.sock")
            .as_ref(),
    );
    let channel = channel.unwrap();
    let adopt = ToManager::Adopt {
        pid: std::process::id(),
        device: Box::new(device.unwrap()),
        tenant: "red".into(),
        sessions: vec![SessionStart {
            session: ADOPTED,
            tenant: "red".into(),
            limits: Limits::default(),
            flags: SessionFlags::default(),
            lease: 78,
            instance: "old".into(),
        }],
        leases: Vec::new(),
    };
    channel.send(&adopt, &[]).unwrap();
    while let Some((message, _)) = channel.receive::<ToExecutor>().unwrap() {
        println!("received {message:?}");
    }
}

#[test]
fn a_session_of_an_earlier_releases_executor_stays_with_the_reason() {
    let daemon = two("");
    // Both drivers are loaded.
    for device in ["a", "b"] {
        let mut command = through_with(
            &daemon,
            &["--tenant", "red", "--device", device],
            compile("work"),
        );
        command.arg("2");
        Running::run(command).ok();
    }
    let mut executor = Command::new(std::env::current_exe().unwrap())
        .args(["earlier_executor", "--exact", "--ignored", "--nocapture"])
        .env("EARLIER_EXECUTOR_RUNTIME", daemon.runtime_dir())
        .env("EARLIER_EXECUTOR_ENDPOINT", daemon.endpoint())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(executor.stdout.take().unwrap()).lines();
    let mut received = move || {
        let mut lines = lines.by_ref().map_while(Result::ok);
        lines.find(|line| line.contains("received "))
    };
    // It accepts no new sessions, which may need what it lacks.
    assert!(received().unwrap().ends_with("received Drain"));
    until("its session is the only one", || {
        session_count(&daemon) == 1
    })
    .unwrap();
    let listed = &json(&daemon, &["session", "ls"])[0];
    assert_eq!(listed["id"], ADOPTED, "{listed}");
    assert_eq!(listed["can_move"], false, "{listed}");
    assert_eq!(listed["queues"], serde_json::Value::Null, "{listed}");
    let why = "its executor is of a release that cannot move sessions";
    assert!(
        listed["obstacle"].as_str().unwrap().contains(why),
        "{listed}"
    );
    let refused = refusal(&move_with(&daemon, ADOPTED, "b", &[]));
    assert!(refused.contains(why), "{refused}");
    // Programs of its tenant get an executor of this release.
    let program = moving(&daemon, &["0", "65536", "1"]);
    let sessions = json(&daemon, &["session", "ls"]);
    let sessions = sessions.as_array().unwrap();
    let new = sessions.iter().find(|s| s["id"] != ADOPTED).unwrap();
    assert_eq!(new["can_move"], true, "{new}");
    drop(program);
    kill(executor.id());
    executor.wait().unwrap();
    assert_eq!(received(), None, "a message that it does not support");
    until("its session is over", || session_count(&daemon) == 0).unwrap();
    nothing_panicked(&daemon);
}
