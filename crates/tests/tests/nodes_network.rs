//! Sessions that move between two nodes with a network of their own, whose link also fails.
//!
//! Each node has a network namespace. The tests need root and `ip`; if namespaces cannot be
//! created, they print that and pass.

use baltra_testkit::{until, Daemon, Options};
use baltra_tests::{
    baltra, compile, json, kill, nothing_panicked, once_built, processes_with, session_count,
    tenants, through_with, Network, Running,
};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

const DOOR: &str = "10.79.0.1";
const NEAR: (&str, &str) = ("near", "10.79.0.11");
const FAR: (&str, &str) = ("far", "10.79.0.12");
const PORT: u16 = 7473;

/// Two nodes with a device each, whose programs have no buffers in their own memory.
struct Nodes {
    near: Daemon,
    far: Daemon,
    token: String,
    network: Network,
    directory: tempfile::TempDir,
}

impl Nodes {
    /// `None`: the host has no network namespaces.
    fn start() -> Option<Nodes> {
        let network = Network::new(DOOR, &[NEAR, FAR])?;
        let directory = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec![FAR.1.into()]).unwrap();
        std::fs::write(directory.path().join("cert.pem"), made.cert.pem()).unwrap();
        let key = made.signing_key.serialize_pem();
        std::fs::write(directory.path().join("key.pem"), key).unwrap();
        let at = directory.path().display();
        let listen = format!(
            "[listen]\ntcp = '{}:{PORT}'\ntls_cert = '{at}/cert.pem'\ntls_key = '{at}/key.pem'\n",
            FAR.1
        );
        let device = "[executors]\nprestart = 1\n[[device]]\nname = 'a'\nselect = '0'\n\
                      host_memory = false\n";
        let [near, far] = [(NEAR, ""), (FAR, listen.as_str())].map(|((node, _), listen)| {
            let options = Options {
                config: format!("{listen}{device}"),
                ..Options::default()
            };
            Daemon::start_with(network.baltra(node), &options).expect("a daemon starts")
        });
        tenants(&near, &["red", "green"]);
        tenants(&far, &["blue", "green"]);
        let token = far.text(&["tenant", "token", "blue"]).unwrap();
        Some(Nodes {
            near,
            far,
            token: token.trim().into(),
            network,
            directory,
        })
    }

    fn authority(&self) -> PathBuf {
        self.directory.path().join("cert.pem")
    }

    /// A program that checks all its bytes: `red` on the first node, which buffers of this size.
    fn program(&self, bytes: u64) -> Running {
        let options = ["--tenant", "red", "--device", "a"];
        let mut command = through_with(&self.near, &options, compile("moving"));
        command.args(["0", &bytes.to_string(), "2"]);
        let mut running = Running::start(command);
        running.wait_line("round");
        running
    }

    /// A program of another tenant that keeps a node's device busy.
    fn neighbor(node: &Daemon) -> Running {
        let options = ["--tenant", "green", "--device", "a"];
        let mut command = through_with(node, &options, compile("work"));
        command.arg("0");
        let mut running = Running::start(command);
        running.wait_line("round");
        running
    }

    /// The session of the tenant `red` on the first node.
    fn session(&self) -> Value {
        let sessions = json(&self.near, &["session", "ls"]);
        let mut own = sessions.as_array().expect("a list").iter();
        own.find(|s| s["tenant"] == "red").expect("one").clone()
    }

    /// Moves that session to the second node.
    fn send(&self) -> Output {
        let session = self.session()["id"].to_string();
        let to = format!("tls://{}:{PORT}/a", FAR.1);
        let mut command = Command::new(baltra());
        command
            .args(["session", "move", &session, "--to", &to, "--json"])
            .env("BALTRA_RUNTIME_DIR", self.near.runtime_dir())
            .env("BALTRA_TOKEN", &self.token)
            .env("BALTRA_TLS_CA", self.authority());
        once_built(|| command.output().expect("the tool runs"))
    }

    /// Moves that session back to the first node.
    fn back(&self) -> Output {
        let session = self.session()["id"].to_string();
        let arguments = ["session", "move", &session, "--to", "a"];
        once_built(|| self.near.baltra(&arguments).expect("the tool runs"))
    }

    fn must_send(&self) -> Value {
        let output = self.send();
        let error = String::from_utf8_lossy(&output.stderr);
        let logs = format!("near:\n{}\nfar:\n{}", self.near.log(), self.far.log());
        assert!(output.status.success(), "{error}\n{logs}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn forwarders(&self) -> usize {
        let children = self.near.children();
        let mut all = processes_with("\0forwarder\0");
        all.retain(|pid| children.contains(pid));
        all.len()
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
        until("no forwarder is left", || self.forwarders() == 0).unwrap();
    }
}

#[test]
fn a_session_moves_over_a_network_under_load() {
    let Some(nodes) = Nodes::start() else {
        return;
    };
    let mut neighbors = [&nodes.near, &nodes.far].map(Nodes::neighbor);
    for mib in [1, 8, 32] {
        let mut program = nodes.program(mib << 20);
        let moved = nodes.must_send();
        for _ in 0..3 {
            program.wait_progress();
        }
        println!(
            "{mib} MiB written all the time, TLS: stopped for {:.1} ms, {:.1} MB of {:.1} MB were \
             dirty",
            moved["stopped_us"].as_f64().expect("a number") / 1e3,
            moved["stopped_bytes"].as_f64().expect("a number") / 1e6,
            moved["bytes"].as_f64().expect("a number") / 1e6,
        );
        assert!(moved["bytes"].as_u64() >= Some(mib << 20), "{moved}");
        for neighbor in &mut neighbors {
            neighbor.wait_progress();
        }
        kill(program.pid());
        program.finish();
    }
    drop(neighbors);
    nodes.is_empty();
}

#[test]
fn a_session_stays_if_the_link_fails_during_its_move() {
    let Some(nodes) = Nodes::start() else {
        return;
    };
    // The copies take more than ten seconds.
    let bytes = 64 << 20;
    if let Err(why) = nodes.network.limit(NEAR.0, "50mbit") {
        eprintln!("passed over: no limit of a link's rate here: {why}");
        return;
    }
    let mut program = nodes.program(bytes);
    // Once with its first message in flight, once with its contents.
    for passed in [0, 4 << 20] {
        let before = nodes.network.sent(NEAR.0).unwrap();
        let output = std::thread::scope(|scope| {
            let moving = scope.spawn(|| nodes.send());
            until("bytes are in flight", || {
                nodes.network.sent(NEAR.0).unwrap() > before + passed
            })
            .unwrap();
            nodes.network.link(FAR.0, "down").unwrap();
            moving.join().expect("no panic")
        });
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "moved over a link that is down");
        println!("after {passed} bytes: {}", error.trim());
        // Before the first answer the connection itself fails.
        let reasons = ["node", "cannot connect"];
        assert!(reasons.iter().any(|r| error.contains(r)), "{error}");
        program.wait_progress();
        assert!(nodes.session()["remote"].is_null(), "{}", nodes.session());
        nodes.network.link(FAR.0, "up").unwrap();
        until("nothing of it is left there", || {
            session_count(&nodes.far) == 0 && nodes.forwarders() == 0
        })
        .unwrap();
    }
    nodes.network.unlimit(NEAR.0).unwrap();
    nodes.must_send();
    program.wait_progress();
    drop(program);
    nodes.is_empty();
}

#[test]
fn a_session_stays_on_the_other_node_if_the_link_fails_during_its_return() {
    let Some(nodes) = Nodes::start() else {
        return;
    };
    let mut program = nodes.program(64 << 20);
    nodes.must_send();
    program.wait_progress();
    if let Err(why) = nodes.network.limit(FAR.0, "50mbit") {
        eprintln!("passed over: no limit of a link's rate here: {why}");
        return;
    }
    let before = nodes.network.sent(FAR.0).unwrap();
    let output = std::thread::scope(|scope| {
        let moving = scope.spawn(|| nodes.back());
        until("bytes are in flight", || {
            nodes.network.sent(FAR.0).unwrap() > before + (4 << 20)
        })
        .unwrap();
        nodes.network.link(FAR.0, "down").unwrap();
        // Shorter than the session outlives.
        std::thread::sleep(Duration::from_secs(22));
        nodes.network.link(FAR.0, "up").unwrap();
        moving.join().expect("no panic")
    });
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{}", error.trim());
    nodes.network.unlimit(FAR.0).unwrap();
    program.wait_progress();
    assert_eq!(output.status.success(), nodes.session()["remote"].is_null());
    if !output.status.success() {
        let output = nodes.back();
        assert!(output.status.success(), "{output:?}");
        program.wait_progress();
    }
    until("nothing of it is left there", || {
        session_count(&nodes.far) == 0 && nodes.forwarders() == 0
    })
    .unwrap();
    drop(program);
    nodes.is_empty();
}

#[test]
fn a_session_that_has_moved_outlives_a_short_failure_of_the_link_only() {
    let Some(nodes) = Nodes::start() else {
        return;
    };
    let mut program = nodes.program(1 << 20);
    nodes.must_send();
    program.wait_progress();
    for _ in 0..2 {
        nodes.network.link(FAR.0, "down").unwrap();
        std::thread::sleep(Duration::from_secs(2));
        nodes.network.link(FAR.0, "up").unwrap();
        program.wait_progress();
    }
    nodes.network.link(FAR.0, "down").unwrap();
    let answer = program.finish();
    assert!(!answer.status.success(), "{answer:?}");
    // The far node ends the session by itself.
    nodes.is_empty();
}
