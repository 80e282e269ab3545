//! OpenCL programs with unusual use of the library: threads on one queue, thousands of queues,
//! forks, buffers over shared virtual memory. Each runs over shared memory and over TCP.

use baltra_testkit::{Daemon, Options};
use baltra_tests::{
    baltra, by_variables, compile, compile_driver, daemon_with, free_port, native,
    nothing_panicked, root, through, Answer, Running,
};
use std::process::Command;

/// A daemon that also listens on TCP.
struct Both {
    daemon: Daemon,
    endpoint: String,
    token: String,
}

impl Both {
    fn start() -> Both {
        let endpoint = format!("127.0.0.1:{}", free_port());
        let daemon = daemon_with(&[&format!("listen.tcp={endpoint}")]);
        daemon.text(&["tenant", "add", "red"]).unwrap();
        let token = daemon.text(&["tenant", "token", "red"]).unwrap();
        Both {
            daemon,
            endpoint: format!("tcp://{endpoint}"),
            token: token.trim().into(),
        }
    }

    /// A program's answers over shared memory and over TCP.
    fn run(&self, program: &str, arguments: &[&str]) -> [Answer; 2] {
        let program = compile(program);
        let local = through(&self.daemon, "red", &program);
        let mut remote = by_variables(&self.endpoint, &program);
        remote.env("BALTRA_TOKEN", &self.token);
        [local, remote].map(|mut command: Command| {
            command.args(arguments);
            Running::run(command).ok()
        })
    }
}

fn assert_done(answer: &Answer) {
    assert!(answer.out.ends_with("done"), "{answer:#?}");
}

#[test]
fn threads_on_one_queue_neither_hang_nor_see_old_bytes() {
    let both = Both::start();
    for threads in ["1", "2", "5"] {
        for answer in both.run("threads", &[threads, "150"]) {
            assert_done(&answer);
        }
    }
    nothing_panicked(&both.daemon);
}

#[test]
fn commands_of_an_out_of_order_queue_follow_their_wait_lists_only() {
    let both = Both::start();
    for answer in both.run("gated", &[]) {
        assert_done(&answer);
    }
    nothing_panicked(&both.daemon);
}

#[test]
fn a_command_has_times_once_a_command_that_waited_for_it_is_complete() {
    let both = Both::start();
    for answer in both.run("profiled", &[]) {
        assert_eq!(answer.number("missing"), Some(0), "{answer:#?}");
        assert_done(&answer);
    }
    nothing_panicked(&both.daemon);
}

#[test]
fn event_times_keep_to_the_host_s_clock_while_the_driver_s_drifts() {
    let driver = compile_driver("drifting_driver");
    let daemon = daemon_with(&[&format!("device.driver={}", driver.display())]);
    let clock = Running::start(through(&daemon, "", compile("clock")));
    assert_done(&clock.finish());
    nothing_panicked(&daemon);
}

#[test]
fn the_table_of_events_grows_while_several_threads_enqueue() {
    let both = Both::start();
    for answer in both.run("many_events", &["6", "6000"]) {
        assert_done(&answer);
    }
    nothing_panicked(&both.daemon);
}

#[test]
fn thousands_of_queues_are_had_and_used() {
    let both = Both::start();
    // The pause exceeds the idle timeout of a queue's thread.
    for answer in both.run("queues", &["2000", "300", "2500"]) {
        assert_eq!(answer.line("queues"), Some("2000 0"), "{answer:#?}");
        assert_done(&answer);
    }
    nothing_panicked(&both.daemon);
}

#[test]
fn one_queue_too_many_is_an_opencl_error_and_the_session_goes_on() {
    let both = Both::start();
    let limit = ["tenant", "add", "small", "--objects", "300"];
    both.daemon.text(&limit).unwrap();
    let mut command = through(&both.daemon, "small", compile("queues"));
    command.arg("1000");
    let answer = Running::run(command).ok();
    let had = answer.number("queues").expect("a count");
    assert!((250..300).contains(&had), "{answer:#?}");
    assert_eq!(answer.line("queues"), Some(&*format!("{had} -5")));
    assert_done(&answer);
    nothing_panicked(&both.daemon);
}

#[test]
fn a_forked_child_has_its_own_session_and_its_parent_goes_on() {
    let both = Both::start();
    for answer in both.run("fork", &[]) {
        for line in answer.out.lines().filter(|line| *line != "done") {
            let (what, code) = line.rsplit_once(' ').expect("a word and a number");
            let right = match what {
                "parent" => code == "1",
                // With so few descriptors, a clear error is as valid as success.
                "limited" => matches!(code, "0" | "3"),
                _ => code == "0",
            };
            assert!(right, "{line}: {answer:#?}");
        }
        assert_done(&answer);
    }
    nothing_panicked(&both.daemon);
}

#[test]
fn pythons_processes_have_sessions_of_their_own() {
    let python = root().join("target/venv/bin/python");
    assert!(python.exists(), "run scripts/setup.sh test");
    let both = Both::start();
    let local = through(&both.daemon, "red", &python);
    let mut remote = by_variables(&both.endpoint, &python);
    remote.env("BALTRA_TOKEN", &both.token);
    for mut command in [local, remote] {
        command
            .arg(root().join("crates/tests/programs/multiprocess.py"))
            .env("PYOPENCL_NO_CACHE", "1")
            .env("PYTHONUNBUFFERED", "1");
        let answer = Running::run(command).ok();
        assert!(!answer.out.contains("False"), "{answer:#?}");
        assert_done(&answer);
    }
}

#[test]
fn devices_of_one_context_see_what_others_left_in_a_buffer() {
    let endpoint = format!("127.0.0.1:{}", free_port());
    let options = Options {
        set: vec![format!("listen.tcp={endpoint}")],
        config: (0..3)
            .map(|n| format!("[[device]]\nselect = '{n}'\n"))
            .collect(),
        ..Options::default()
    };
    let daemon = Daemon::start_with(baltra(), &options).unwrap();
    daemon.text(&["tenant", "add", "red"]).unwrap();
    let token = daemon.text(&["tenant", "token", "red"]).unwrap();
    let program = compile("moves");
    let local = through(&daemon, "red", &program);
    let mut remote = by_variables(&format!("tcp://{endpoint}"), &program);
    remote.env("BALTRA_TOKEN", token.trim());
    for mut command in [local, remote] {
        // The payload of one frame, of several, and more than a queue's window.
        command.args(["1", "1000", "300000", "3000000"]);
        assert_done(&Running::run(command).ok());
    }
    nothing_panicked(&daemon);
}

#[test]
fn a_buffer_over_shared_virtual_memory_has_its_storage() {
    let both = Both::start();
    let expected = Running::run(native(compile("svm_buffer"))).ok();
    for answer in both.run("svm_buffer", &[]) {
        assert_eq!(answer.out, expected.out);
    }
    nothing_panicked(&both.daemon);
}
