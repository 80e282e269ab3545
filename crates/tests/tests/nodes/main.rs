//! Sessions that move to another node: the program continues with the right bytes, and whatever ends
//! during the move leaves the session in one place. [`returns`]: the way back, and on to a third node;
//! [`pool`]: with a registry.

mod pool;
mod returns;

use baltra_testkit::{until, Daemon, Options};
use baltra_tests::{
    baltra, compile, executors, free_port, json, kill, nothing_panicked, once_built,
    processes_with, session_count, tenants, through_with, Cutter, Random, Running,
};
use baltra_wire::moves::{Part, Plan, State};
use baltra_wire::transit::{FromSource, Rest};
use baltra_wire::Purpose;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::time::Duration;

/// A node with programs and one to which their sessions move.
struct Nodes {
    near: Daemon,
    far: Daemon,
    port: u16,
    token: String,
}

/// A node with one device, and one with two, that listens.
fn near_options(keys: &str) -> Options {
    options(keys, &["a"], "")
}

fn far_options(keys: &str, port: u16, listen: &str) -> Options {
    let listen = format!("[listen]\ntcp = '127.0.0.1:{port}'\n{listen}");
    options(keys, &["a", "b"], &listen)
}

fn options(keys: &str, devices: &[&str], listen: &str) -> Options {
    let devices = devices.iter().enumerate().map(|(select, name)| {
        format!("[[device]]\nname = '{name}'\nselect = '{select}'\n{keys}\n")
    });
    Options {
        config: format!(
            "{listen}\n[executors]\nprestart = 1\n{}",
            devices.collect::<String>()
        ),
        ..Options::default()
    }
}

impl Nodes {
    fn start(keys: &str) -> Nodes {
        Nodes::start_with(keys, "")
    }

    /// `listen`: more keys of the second node's section.
    fn start_with(keys: &str, listen: &str) -> Nodes {
        Nodes::start_both(&near_options(keys), keys, listen)
    }

    /// The first node listens, too.
    fn start_listening(keys: &str, port: u16) -> Nodes {
        Nodes::start_both(&far_options(keys, port, ""), keys, "")
    }

    fn start_both(near: &Options, keys: &str, listen: &str) -> Nodes {
        let port = free_port();
        let [near, far] = [near, &far_options(keys, port, listen)]
            .map(|o| Daemon::start_with(baltra(), o).expect("a daemon starts"));
        tenants(&near, &["red"]);
        far.text(&["tenant", "add", "blue"]).unwrap();
        let token = far.text(&["tenant", "token", "blue"]).unwrap();
        Nodes {
            near,
            far,
            port,
            token: token.trim().into(),
        }
    }

    /// A program on the first node's device.
    fn program(&self, name: &str, arguments: &[&str]) -> Running {
        let options = ["--tenant", "red", "--device", "a"];
        let mut command = through_with(&self.near, &options, compile(name));
        command.args(arguments);
        let mut running = Running::start(command);
        running.wait_line("round");
        running
    }

    fn sending(&self, session: u64, to: &str, token: &str) -> Command {
        let session = session.to_string();
        let mut command = Command::new(baltra());
        command
            .args(["session", "move", &session, "--to", to, "--json"])
            .env("BALTRA_RUNTIME_DIR", self.near.runtime_dir())
            .env("BALTRA_TOKEN", token);
        command
    }

    fn send(&self, session: u64, port: u16, device: &str, token: &str) -> Output {
        let to = format!("tcp://127.0.0.1:{port}/{device}");
        let mut command = self.sending(session, &to, token);
        once_built(|| command.output().expect("the tool runs"))
    }

    /// Moves the only session of the first node to the second.
    fn must_send(&self, port: u16) -> serde_json::Value {
        let output = self.send(only(&self.near), port, "a", &self.token);
        let error = String::from_utf8_lossy(&output.stderr);
        let logs = format!("near:\n{}\nfar:\n{}", self.near.log(), self.far.log());
        assert!(output.status.success(), "{error}\n{logs}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn returning(&self, session: u64) -> Output {
        let session = session.to_string();
        let arguments = ["session", "move", &session, "--to", "a", "--json"];
        once_built(|| self.near.baltra(&arguments).expect("the tool runs"))
    }

    /// Moves a session of the first node back from the second.
    fn must_return(&self, session: u64) -> serde_json::Value {
        let output = self.returning(session);
        let error = String::from_utf8_lossy(&output.stderr);
        let logs = format!("near:\n{}\nfar:\n{}", self.near.log(), self.far.log());
        assert!(output.status.success(), "{error}\n{logs}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Nothing is left of a session that has returned: on the second node, and between both.
    fn has_left(&self) {
        until("nothing of it is left there", || {
            session_count(&self.far) == 0
                && forwarders(&self.near).is_empty()
                && processes(&self.far, "relay").len() <= RELAYS
        })
        .unwrap();
        let usage = json(&self.far, &["tenant", "usage"]);
        assert_eq!(usage[0]["memory_used_bytes"], 0, "{usage}");
    }

    /// Ends a program; then nothing is left of it.
    fn end(&self, program: Running) {
        kill(program.pid());
        program.finish();
        self.is_empty();
        until("no forwarder is left", || forwarders(&self.near).is_empty()).unwrap();
    }

    /// Nothing is left of the programs that have ended.
    fn is_empty(&self) {
        for (name, node) in [("near", &self.near), ("far", &self.far)] {
            until(&format!("no session is left on the {name} node"), || {
                session_count(node) == 0
            })
            .unwrap();
            nothing_panicked(node);
        }
    }
}

/// The number of a node's only session.
fn only(daemon: &Daemon) -> u64 {
    let sessions = json(daemon, &["session", "ls"]);
    let sessions = sessions.as_array().expect("a list");
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    sessions[0]["id"].as_u64().expect("a number")
}

fn refusal(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "the move succeeds");
    error
}

/// Relays that a manager has ready.
const RELAYS: usize = 2;

/// Devices that can be left: their programs have no buffers in their own memory.
const APART: &str = "host_memory = false";

/// Rounds of `programs/moving.c` without an end, with buffers of about 1 MB.
const ENDLESS: [&str; 3] = ["0", "1048576", "5"];

#[test]
fn a_program_goes_on_after_its_session_has_moved_to_another_node() {
    let nodes = Nodes::start(APART);
    // Larger than a piece of a transfer.
    let mut program = nodes.program("moving", &["0", "3000000", "20"]);
    let moved = nodes.must_send(nodes.port);
    let remote = format!("tcp://127.0.0.1:{}/a", nodes.port);
    assert_eq!(moved["to"], remote.as_str(), "{moved}");
    assert!(moved["bytes"].as_u64() >= Some(3_000_000), "{moved}");
    // Its kernels, at least, are made once it is stopped.
    assert!(moved["stopped_objects"].as_u64() >= Some(3), "{moved}");
    for _ in 0..5 {
        program.wait_progress();
    }
    let near = json(&nodes.near, &["session", "ls"]);
    assert_eq!(near[0]["remote"], remote.as_str(), "{near}");
    assert_eq!(near[0]["can_move"], true, "{near}");
    let far = json(&nodes.far, &["session", "ls"]);
    assert_eq!(far[0]["tenant"], "blue", "{far}");
    // The first node's device has nothing of it.
    let usage = json(&nodes.near, &["tenant", "usage"]);
    assert_eq!(usage[0]["memory_used_bytes"], 0, "{usage}");
    let session = only(&nodes.near);
    let suspend = ["session", "suspend", &session.to_string()];
    let error = refusal(&nodes.near.baltra(&suspend).unwrap());
    assert!(error.contains("on another node"), "{error}");
    // There it is a session like any other.
    let there = far[0]["id"].as_u64().unwrap().to_string();
    for device in ["b", "a"] {
        let arguments = ["session", "move", &there, "--to", device];
        nodes.far.text(&arguments).expect("it moves there");
        program.wait_progress();
    }
    nodes.end(program);
}

#[test]
fn a_drained_node_sends_its_sessions_to_another() {
    let nodes = Nodes::start(APART);
    let programs = [(); 2].map(|()| nodes.program("moving", &ENDLESS));
    let to = format!("tcp://127.0.0.1:{}/b", nodes.port);
    let drain = || {
        let mut command = Command::new(baltra());
        command
            .args(["device", "drain", "a", "--live", "--json", "--to", &to])
            .env("BALTRA_RUNTIME_DIR", nodes.near.runtime_dir())
            .env("BALTRA_TOKEN", &nodes.token);
        let output = command.output().expect("the tool runs");
        assert!(output.status.success(), "{output:?}");
        let drained: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        drained["moved"].as_array().expect("a list").len()
    };
    assert_eq!(drain(), 2);
    assert_eq!(drain(), 0, "no session is on it any more");
    let far = json(&nodes.far, &["session", "ls"]);
    assert_eq!(far[1]["device"], "b", "{far}");
    for mut program in programs {
        program.wait_progress();
    }
    nodes.is_empty();
}

#[test]
fn programs_give_the_native_answers_from_another_node() {
    let nodes = Nodes::start(APART);
    let runs: [(&str, &[&str]); 3] = [
        ("threads", &["5", "150"]),
        ("gated", &[]),
        ("transfers", &["untimed"]),
    ];
    for (at, (program, arguments)) in runs.into_iter().enumerate() {
        let options = ["--tenant", "red", "--device", "a"];
        let mut command = through_with(&nodes.near, &options, compile(program));
        command.args(arguments);
        let mut running = Running::start(command);
        // Each of them somewhere else in its work.
        std::thread::sleep(Duration::from_millis(100 * at as u64));
        let mut has_moved = false;
        while !has_moved && !running.has_ended() {
            let sessions = json(&nodes.near, &["session", "ls"]);
            let first = sessions.as_array().expect("a list").first();
            has_moved = first.is_some_and(|session| {
                let id = session["id"].as_u64().expect("a number");
                let moved = nodes.send(id, nodes.port, "a", &nodes.token);
                moved.status.success()
            });
        }
        println!("{program}: moved {has_moved}");
        let patience = Duration::from_secs(280);
        let answer = running.finish_within(patience).ok();
        assert!(answer.out.ends_with("done"), "{program}: {answer:?}");
    }
    let log = nodes.far.log();
    assert!(log.contains("session arrived from another node"), "{log}");
    nodes.is_empty();
}

#[test]
fn a_session_stays_if_it_cannot_go_on_there() {
    let nodes = Nodes::start(APART);
    let mut program = nodes.program("moving", &ENDLESS);
    let session = only(&nodes.near);
    let refused =
        |port: u16, device: &str, token: &str| refusal(&nodes.send(session, port, device, token));
    let error = refused(nodes.port, "a", "baltra_of_somebody_else");
    assert!(error.contains("not allowed"), "{error}");
    let error = refused(nodes.port, "gpu7", &nodes.token);
    assert!(
        error.contains("'gpu7'") && error.contains("a, b"),
        "{error}"
    );
    let error = refused(free_port(), "a", &nodes.token);
    assert!(error.contains("cannot connect"), "{error}");
    let mut command = nodes.sending(session, "ivshmem:/a", &nodes.token);
    let error = refusal(&command.output().unwrap());
    assert!(error.contains("this node is not in a pool"), "{error}");
    let mut command = nodes.sending(session, "tcp://127.0.0.1:1", &nodes.token);
    let error = refusal(&command.output().unwrap());
    assert!(error.contains("names no device"), "{error}");
    nodes
        .far
        .text(&["tenant", "quota", "blue", "--memory", "1K"])
        .unwrap();
    let error = refused(nodes.port, "a", &nodes.token);
    assert!(error.contains("cannot be made"), "{error}");
    program.wait_progress();
    until("nothing of it is left there", || {
        session_count(&nodes.far) == 0
    })
    .unwrap();
    until("only its executor serves it", || {
        forwarders(&nodes.near).is_empty()
    })
    .unwrap();
    drop(program);
    nodes.is_empty();
}

#[test]
fn a_program_with_buffers_in_its_own_memory_stays() {
    let nodes = Nodes::start("");
    let mut program = nodes.program("moving", &ENDLESS);
    let session = only(&nodes.near);
    let error = refusal(&nodes.send(session, nodes.port, "a", &nodes.token));
    assert!(error.contains("device.host_memory = false"), "{error}");
    program.wait_progress();
    drop(program);
    nodes.is_empty();
}

#[test]
fn a_session_moves_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let certificate = directory.path().join("cert.pem");
    let key = directory.path().join("key.pem");
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let listen = format!(
        "tls_cert = '{}'\ntls_key = '{}'",
        certificate.display(),
        key.display()
    );
    let nodes = Nodes::start_with(APART, &listen);
    let mut program = nodes.program("moving", &["0", "3000000", "5"]);
    let to = format!("tls://localhost:{}/a", nodes.port);
    let session = only(&nodes.near);
    let mut command = nodes.sending(session, &to, &nodes.token);
    let error = refusal(&command.output().unwrap());
    assert!(error.contains("certificate"), "{error}");
    program.wait_progress();
    command.env("BALTRA_TLS_CA", &certificate);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for _ in 0..3 {
        program.wait_progress();
    }
    nodes.must_return(session);
    program.wait_progress();
    drop(program);
    nodes.is_empty();
}

#[test]
fn a_session_goes_on_after_the_connection_of_the_nodes_broke() {
    let nodes = Nodes::start(APART);
    let cutter = Cutter::to(nodes.port);
    let mut program = nodes.program("moving", &ENDLESS);
    nodes.must_send(cutter.port);
    for _ in 0..5 {
        program.wait_progress();
        assert!(cutter.cut() > 0, "a connection was open");
    }
    program.wait_progress();
    drop(program);
    nodes.is_empty();
}

#[test]
fn a_session_on_another_node_outlives_both_managers() {
    let mut nodes = Nodes::start(APART);
    let mut program = nodes.program("moving", &ENDLESS);
    nodes.must_send(nodes.port);
    let session = only(&nodes.near);
    for is_near in [true, false] {
        let node = if is_near {
            &mut nodes.near
        } else {
            &mut nodes.far
        };
        node.kill().expect("the manager ends");
        program.wait_progress();
        if is_near {
            nodes.near = nodes
                .near
                .restart(&near_options(APART))
                .expect("a manager starts");
        } else {
            let listening = far_options(APART, nodes.port, "");
            nodes.far = nodes.far.restart(&listening).expect("a manager starts");
        }
        let node = if is_near { &nodes.near } else { &nodes.far };
        until("the session is adopted", || session_count(node) == 1).unwrap();
        program.wait_progress();
    }
    let near = json(&nodes.near, &["session", "ls"]);
    assert_eq!(near[0]["id"], session, "{near}");
    let remote = format!("tcp://127.0.0.1:{}/a", nodes.port);
    assert_eq!(near[0]["remote"], remote.as_str(), "{near}");
    nodes.must_return(session);
    program.wait_progress();
    nodes.has_left();
    drop(program);
    nodes.is_empty();
}

#[test]
fn a_session_that_does_not_arrive_within_the_time_limit_stays() {
    let nodes = Nodes::start_with(APART, "arrival_timeout_ms = 1500");
    let bytes = 4 << 20;
    let mut program = nodes.program("moving", &["0", &bytes.to_string(), "5"]);
    let session = only(&nodes.near);
    let source = executors(&nodes.near)[0].1;
    // The path stops in the middle of the plan, and of the contents. A busy host reaches the limit
    // earlier.
    for most in [1000, bytes / 2] {
        let cutter = Cutter::holding(nodes.port, most);
        let error = refusal(&nodes.send(session, cutter.port, "a", &nodes.token));
        let reason = "has not arrived within 1500 ms (set 'listen.arrival_timeout_ms'";
        assert!(error.contains(reason), "{error}");
        program.wait_progress();
        let near = json(&nodes.near, &["session", "ls"]);
        assert_eq!(near[0]["id"], session, "{near}");
        assert_eq!(executors(&nodes.near)[0].1, source);
        until("nothing of it is left there", || {
            session_count(&nodes.far) == 0 && forwarders(&nodes.near).is_empty()
        })
        .unwrap();
        let usage = json(&nodes.far, &["tenant", "usage"]);
        assert_eq!(usage[0]["memory_used_bytes"], 0, "{usage}");
    }
    // The next move succeeds: the program computes with the right bytes there, and to its end.
    nodes.must_send(nodes.port);
    program.wait_progress();
    drop(program);
    nodes.is_empty();
}

/// The children of a manager that run this command.
fn processes(daemon: &Daemon, command: &str) -> Vec<u32> {
    let children = daemon.children();
    let mut all = processes_with(&format!("\0{command}\0"));
    all.retain(|pid| children.contains(pid));
    all
}

fn forwarders(daemon: &Daemon) -> Vec<u32> {
    processes(daemon, "forwarder")
}

/// The number of times that each process is killed: `BALTRA_KILLS`.
fn kills() -> usize {
    let times = std::env::var("BALTRA_KILLS");
    times.map_or(2, |times| times.parse().expect("BALTRA_KILLS is a number"))
}

/// The process or connection that ends at a random moment of a move.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    /// The executor that has the session, the process that goes between it and the other node, and
    /// the program itself.
    Source,
    Forwarder,
    Client,
    /// On the other node.
    Target,
    Relays,
    /// The connection of both, permanently.
    Connection,
}

impl Victim {
    /// Kills it; `source`, `target`: the executors that have and that get the session.
    fn kill(
        self,
        nodes: &Nodes,
        program: &Running,
        source: impl Fn() -> Vec<u32>,
        target: impl Fn() -> Vec<u32>,
    ) {
        let pids = match self {
            Victim::Source => source(),
            Victim::Target => target(),
            Victim::Forwarder => forwarders(&nodes.near),
            Victim::Relays => processes(&nodes.far, "relay"),
            Victim::Client => vec![program.pid()],
            Victim::Connection => Vec::new(),
        };
        pids.into_iter().for_each(kill);
    }
}

/// Ends one of them at a random moment of a move, many times. The program continues unless what had
/// its session, or is between both nodes, was ended.
fn ended(victim: Victim) {
    let nodes = Nodes::start(APART);
    let mut random = Random::new();
    let mut took_us = 0;
    for round in 0..2 + kills() {
        let mut program = nodes.program("moving", &ENDLESS);
        if round < 2 {
            // The duration of an undisturbed move, once the driver is loaded there.
            took_us = nodes.must_send(nodes.port)["took_us"]
                .as_u64()
                .expect("a number");
            nodes.end(program);
            continue;
        }
        let session = only(&nodes.near);
        let source = executors(&nodes.near)[0].1;
        let cutter = Cutter::to(nodes.port);
        let wait = Duration::from_micros(random.below(took_us * 5 / 4));
        let output = std::thread::scope(|scope| {
            let moved = scope.spawn(|| nodes.send(session, cutter.port, "a", &nodes.token));
            std::thread::sleep(wait);
            let target = || processes(&nodes.far, "executor");
            victim.kill(&nodes, &program, || vec![source], target);
            if victim == Victim::Connection {
                cutter.close();
            }
            moved.join().expect("no panic")
        });
        let has_moved = output.status.success();
        println!("{victim:?} round {round}, {wait:?}: moved {has_moved}");
        let lives = match victim {
            Victim::Client => false,
            Victim::Source => has_moved,
            _ => !has_moved,
        };
        if lives {
            program.wait_progress();
        } else if matches!(victim, Victim::Source | Victim::Client) {
            until("the program ends", || program.has_ended()).unwrap();
        }
        // Otherwise it had moved before: it continues, ends, or waits for the connection.
        nodes.end(program);
    }
}

#[test]
fn a_session_lives_with_the_executor_that_has_it_when_it_moves_to_another_node() {
    ended(Victim::Source);
}

#[test]
fn a_session_stays_if_its_forwarder_ends_before_it_has_moved() {
    ended(Victim::Forwarder);
}

#[test]
fn nothing_is_left_of_a_client_that_dies_while_its_session_moves_to_another_node() {
    ended(Victim::Client);
}

#[test]
fn a_session_stays_if_the_other_nodes_executor_ends_before_it_has_moved() {
    ended(Victim::Target);
}

#[test]
fn a_session_stays_if_its_relay_ends_before_it_has_moved() {
    ended(Victim::Relays);
}

#[test]
fn a_session_stays_if_the_connection_breaks_before_it_has_moved() {
    ended(Victim::Connection);
}

/// Messages that no forwarder sends, after a valid beginning.
fn hostile() -> Vec<FromSource> {
    let part = |len, offset| Part {
        id: 7,
        start: 0,
        len,
        offset,
    };
    let rest = |event_parts| Rest {
        event_parts,
        state: State {
            events: vec![(u32::MAX, 7, 0), (3, 0, -5)],
            live: vec![1, 2, 3],
            watched: vec![u64::MAX],
            ..State::default()
        },
        ..Rest::default()
    };
    vec![
        FromSource::Window { len: u64::MAX },
        FromSource::Window { len: 0 },
        FromSource::Window { len: 4096 },
        FromSource::Parts(vec![part(u64::MAX, 0)]),
        FromSource::Parts(vec![part(64, 0), part(64, u64::MAX)]),
        FromSource::Parts(vec![part(1, 0); 10_000]),
        FromSource::Ahead(State::default()),
        FromSource::Rest(rest(u32::MAX)),
        FromSource::Rest(rest(2)),
        FromSource::Complete { bytes: (1, 2) },
        FromSource::Plan(Plan::default()),
    ]
}

#[test]
fn a_hostile_node_ends_its_own_connection_only() {
    let nodes = Nodes::start(APART);
    let options = ["--tenant", "green", "--device", "a"];
    tenants(&nodes.far, &["green"]);
    let mut command = through_with(&nodes.far, &options, compile("work"));
    command.arg("0");
    let mut neighbor = Running::start(command);
    neighbor.wait_line("round");
    let relays = || processes(&nodes.far, "relay").len();
    let ready = relays();
    let mut random = Random::new();
    let all = hostile();
    for round in 0..40 {
        let mut hello = baltra_testkit::hello("a");
        hello.token = nodes.token.clone();
        let hello = baltra_session::handshake::frame(&(hello, Purpose::Arrive)).unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", nodes.port)).unwrap();
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).unwrap();
        stream.write_all(&hello).unwrap();
        let mut len = [0; 4];
        stream.read_exact(&mut len).unwrap();
        let mut welcome = vec![0; u32::from_le_bytes(len) as usize];
        stream.read_exact(&mut welcome).unwrap();
        for _ in 0..1 + random.below(5) {
            let message = &all[random.below(all.len() as u64) as usize];
            let mut bytes = baltra_session::handshake::frame(message).unwrap();
            if round % 3 == 0 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            // After a violation of the protocol the connection is closed.
            let _ = stream.write_all(&bytes);
            let _ = stream.write_all(&[0; 200]);
        }
    }
    neighbor.wait_progress();
    until("their sessions and relays have ended", || {
        session_count(&nodes.far) == 1 && relays() <= ready
    })
    .unwrap();
    neighbor.wait_progress();
    drop(neighbor);
    nodes.is_empty();
}
