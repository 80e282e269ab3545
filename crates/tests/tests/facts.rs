//! Facts about devices: a session moves between devices that differ in facts which its program has
//! not read, and is refused once it has read them, wherever the session is by then.

use baltra_testkit::{until, Daemon, Options};
use baltra_tests::{
    baltra, by_variables, compile, compile_driver, free_port, json, nothing_panicked, once_built,
    session_count, tenants, through_with, Running,
};
use std::path::PathBuf;
use std::process::{Command, Output};

/// The fact by which the devices differ.
const FACT: &str = "driver version";

/// A device of PoCL, and one of another driver version.
fn options(listen: &str) -> Options {
    let driver = compile_driver("other_driver");
    Options {
        config: format!(
            "{listen}\n[[device]]\nname = 'a'\nselect = '0'\nhost_memory = false\n\
             [[device]]\nname = 'b'\nselect = '1'\nhost_memory = false\ndriver = '{}'\n",
            driver.display()
        ),
        ..Options::default()
    }
}

fn start(options: &Options) -> Daemon {
    let daemon = Daemon::start_with(baltra(), options).expect("a daemon starts");
    tenants(&daemon, &["red"]);
    daemon
}

/// `programs/facts.c`, which reads the fact when the file exists.
struct Reader {
    program: Running,
    file: PathBuf,
}

impl Reader {
    fn start(mut command: Command, daemon: &Daemon, name: &str) -> Reader {
        let file = daemon.state_dir().join(name);
        command.arg(&file);
        let mut program = Running::start(command);
        program.wait_line("round");
        Reader { program, file }
    }

    fn on_a(daemon: &Daemon, name: &str) -> Reader {
        let options = ["--tenant", "red", "--device", "a"];
        let command = through_with(daemon, &options, compile("facts"));
        Reader::start(command, daemon, name)
    }

    /// Has it read the fact. Commands are carried out after the report, which is sent before them.
    fn read(&mut self) {
        std::fs::write(&self.file, "").expect("a file is created");
        self.program.wait_line("read");
        self.program.wait_progress();
    }
}

/// The number and the device of the session that is not a gateway's.
fn only(daemon: &Daemon) -> (String, String) {
    let sessions = json(daemon, &["session", "ls"]);
    let sessions = sessions.as_array().expect("a list");
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    let device = sessions[0]["device"].as_str().expect("a name");
    (sessions[0]["id"].to_string(), device.into())
}

fn session(daemon: &Daemon, what: &str, number: &str, more: &[&str]) -> Output {
    let mut arguments = vec!["session", what, number];
    arguments.extend(more);
    once_built(|| daemon.baltra(&arguments).expect("the tool runs"))
}

fn must(output: &Output, daemon: &Daemon) {
    assert!(output.status.success(), "{output:?}\n{}", daemon.log());
}

/// The command is refused for the fact that was read, and for no other one.
fn must_refuse(output: &Output) {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "it is not refused");
    assert!(error.contains(FACT), "{error}");
    assert!(
        !error.contains(';') || error.contains("; `--force`"),
        "{error}"
    );
}

/// Moves the session there and back, then has the program read the fact.
fn moves_until_it_reads(daemon: &Daemon, mut reader: Reader) {
    let (number, _) = only(daemon);
    for device in ["b", "a", "b", "a"] {
        must(&session(daemon, "move", &number, &["--to", device]), daemon);
        reader.program.wait_progress();
    }
    reader.read();
    must_refuse(&session(daemon, "move", &number, &["--to", "b"]));
    assert_eq!(only(daemon), (number.clone(), "a".into()));
    let forced = ["--to", "b", "--force"];
    must(&session(daemon, "move", &number, &forced), daemon);
    // The fact moves along.
    must_refuse(&session(daemon, "move", &number, &["--to", "a"]));
    reader.program.wait_progress();
    drop(reader);
    until("no session is left", || session_count(daemon) == 0).unwrap();
    nothing_panicked(daemon);
}

#[test]
fn a_fact_that_the_program_has_not_read_does_not_stop_a_move() {
    let daemon = start(&options(""));
    let reader = Reader::on_a(&daemon, "reads");
    moves_until_it_reads(&daemon, reader);
}

#[test]
fn a_fact_counts_that_was_read_before_the_session_opened() {
    let daemon = start(&options(""));
    let options = ["--tenant", "red", "--device", "a"];
    let mut command = through_with(&daemon, &options, compile("facts"));
    command.args(["early"]);
    let mut program = Running::start(command);
    program.wait_line("round");
    let (number, _) = only(&daemon);
    must_refuse(&session(&daemon, "move", &number, &["--to", "b"]));
    program.wait_progress();
}

#[test]
fn a_program_over_tcp_reports_what_it_reads() {
    let port = free_port();
    let daemon = start(&options(&format!("[listen]\ntcp = '127.0.0.1:{port}'\n")));
    let token = daemon.text(&["tenant", "token", "red"]).unwrap();
    let mut command = by_variables(&format!("tcp://127.0.0.1:{port}"), compile("facts"));
    command
        .env("BALTRA_TOKEN", token.trim())
        .env("BALTRA_DEVICE", "a");
    let reader = Reader::start(command, &daemon, "reads");
    moves_until_it_reads(&daemon, reader);
}

#[test]
fn a_suspended_session_and_an_adopted_one_keep_the_facts() {
    let options = options("");
    let mut daemon = start(&options);
    let mut reader = Reader::on_a(&daemon, "reads");
    let (number, _) = only(&daemon);
    must(&session(&daemon, "suspend", &number, &[]), &daemon);
    must(
        &session(&daemon, "resume", &number, &["--to", "b"]),
        &daemon,
    );
    must(&session(&daemon, "move", &number, &["--to", "a"]), &daemon);
    reader.read();
    must(&session(&daemon, "suspend", &number, &[]), &daemon);
    must_refuse(&session(&daemon, "resume", &number, &["--to", "b"]));
    daemon.kill().expect("the manager ends");
    let mut daemon = daemon.restart(&options).expect("a manager starts");
    until("the keeper is adopted", || session_count(&daemon) == 1).unwrap();
    // Devices have descriptions once they have an executor.
    until("the session is resumed", || {
        session(&daemon, "resume", &number, &["--to", "a"])
            .status
            .success()
    })
    .unwrap();
    reader.program.wait_progress();
    daemon.kill().expect("the manager ends");
    let daemon = daemon.restart(&options).expect("a manager starts");
    until("the executor is adopted", || session_count(&daemon) == 1).unwrap();
    until("the devices are described", || {
        let moved = session(&daemon, "move", &number, &["--to", "b"]);
        assert!(!moved.status.success(), "it is not refused");
        String::from_utf8_lossy(&moved.stderr).contains(FACT)
    })
    .unwrap();
    reader.program.wait_progress();
    drop(reader);
    until("no session is left", || session_count(&daemon) == 0).unwrap();
}

#[test]
fn a_session_on_another_node_keeps_the_facts() {
    let near = start(&options(""));
    let port = free_port();
    let far = start(&options(&format!("[listen]\ntcp = '127.0.0.1:{port}'\n")));
    let token = far.text(&["tenant", "token", "red"]).unwrap();
    let mut reader = Reader::on_a(&near, "reads");
    let (number, _) = only(&near);
    let send = |device: &str, more: &[&str]| {
        let mut command = Command::new(baltra());
        command
            .args(["session", "move", &number, "--to"])
            .arg(format!("tcp://127.0.0.1:{port}/{device}"))
            .args(more)
            .env("BALTRA_RUNTIME_DIR", near.runtime_dir())
            .env("BALTRA_TOKEN", token.trim());
        once_built(|| command.output().expect("the tool runs"))
    };
    // The device there is described once it has an executor.
    let mut there = Reader::on_a(&far, "warm");
    there.program.wait_progress();
    let (warm, _) = only(&far);
    must(&session(&far, "move", &warm, &["--to", "b"]), &far);
    drop(there);
    until("the first session ends", || session_count(&far) == 0).unwrap();
    must(&send("b", &[]), &near);
    reader.read();
    // Both nodes have the report.
    must_refuse(&session(&near, "move", &number, &["--to", "a"]));
    let (on_far, _) = only(&far);
    must_refuse(&session(&far, "move", &on_far, &["--to", "a"]));
    must(
        &session(&near, "move", &number, &["--to", "a", "--force"]),
        &near,
    );
    must_refuse(&send("b", &[]));
    reader.program.wait_progress();
    nothing_panicked(&near);
    nothing_panicked(&far);
}
