//! Sessions that move between nodes of a pool: the registry has the address, lets them go there, and
//! has their places afterwards.

use super::{forwarders, kills, only, options, refusal, APART, ENDLESS};
use baltra_testkit::{until, Daemon, Options, Service};
use baltra_tests::{
    baltra, compile, compile_driver, free_port, json, kill, nothing_panicked, once_built,
    session_count, tenants, terminate, through_with, Cutter, Random, Running,
};
use serde_json::Value;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A registry and two nodes of its pool.
struct Pool {
    registry: Service,
    near: Daemon,
    far: Daemon,
    near_options: Options,
    far_options: Options,
    /// Of a tenant of the second node.
    token: String,
}

/// A program that the registry has allocated the first node's device.
struct Instance(Running);

impl Instance {
    fn start(registry: &Service, near: &Daemon, arguments: &[&str]) -> Instance {
        let options = [
            "--registry",
            registry.url(),
            "--restart",
            "--tenant",
            "red",
            "--instance",
            "app",
            "--device",
            "name=a*",
        ];
        let mut command = through_with(near, &options, compile("moving"));
        command.args(arguments);
        let mut running = Running::start(command);
        running.wait_line("round");
        Instance(running)
    }

    fn progresses(&mut self) {
        self.0.wait_progress();
    }

    /// Ends it; returns what its launcher has printed.
    fn end(self) -> String {
        terminate(self.0.pid());
        self.0.finish().err
    }
}

impl Pool {
    /// `through`: the port at which the other nodes reach the second one; `keys` of its sections.
    fn start(arguments: &[&str], port: u16, through: u16, keys: &str) -> (Pool, Instance) {
        let registry = Service::start(baltra(), "registry", &Options::default()).unwrap();
        let mut near_options = options(APART, &["a"], "");
        near_options.set = member("near", registry.url());
        let near = Daemon::start_with(baltra(), &near_options).unwrap();
        tenants(&near, &["red"]);
        joined(&registry, "near/a");
        // The first node is the only one yet.
        let instance = Instance::start(&registry, &near, arguments);
        let listen = format!("[listen]\ntcp = '127.0.0.1:{port}'\n{keys}");
        let driver = compile_driver("other_driver");
        let mut far_options = options(APART, &["a", "b"], &listen);
        far_options.config.push_str(&format!(
            "[[device]]\nname = 'a-odd'\nselect = '0'\ndriver = '{}'\n{APART}\n",
            driver.display()
        ));
        far_options.set = member("far", registry.url());
        far_options
            .set
            .push(format!("node.advertise=[\"tcp://127.0.0.1:{through}\"]"));
        let far = Daemon::start_with(baltra(), &far_options).unwrap();
        tenants(&far, &["blue"]);
        let token = far.text(&["tenant", "token", "blue"]).unwrap();
        joined(&registry, "far/a");
        let pool = Pool {
            registry,
            near,
            far,
            near_options,
            far_options,
            token: token.trim().into(),
        };
        (pool, instance)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(baltra());
        command
            .args(arguments)
            .env("BALTRA_RUNTIME_DIR", self.near.runtime_dir())
            .env("BALTRA_TOKEN", &self.token);
        command
    }

    /// Moves the only session of the first node.
    fn send(&self, to: &str, more: &[&str]) -> Output {
        let session = only(&self.near).to_string();
        let mut arguments = vec!["session", "move", &session, "--to", to, "--json"];
        arguments.extend(more);
        once_built(|| self.command(&arguments).output().expect("the tool runs"))
    }

    fn must_send(&self, to: &str) -> Value {
        let output = self.send(to, &[]);
        let error = String::from_utf8_lossy(&output.stderr);
        let logs = format!("near:\n{}\nfar:\n{}", self.near.log(), self.far.log());
        assert!(output.status.success(), "{error}\n{logs}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The devices that the registry has for the instance.
    fn places(&self) -> Vec<String> {
        let instances = listed(&self.registry, &["instances"]);
        assert_eq!(instances[0]["name"], "app", "{instances}");
        let devices = instances[0]["devices"].as_array().expect("a list");
        let text = |value: &Value| value.as_str().expect("a name").to_owned();
        let name = |d: &Value| format!("{}/{}", text(&d["node"]), text(&d["device"]));
        devices.iter().map(name).collect()
    }

    /// The session is where it was, and nothing of it elsewhere.
    fn stays(&self, instance: &mut Instance, session: u64) {
        instance.progresses();
        assert_eq!(only(&self.near), session);
        assert_eq!(self.places(), ["near/a"]);
        until("only its executor serves it", || {
            forwarders(&self.near).is_empty()
        })
        .unwrap();
    }

    fn is_empty(&self) {
        for (name, node) in [("near", &self.near), ("far", &self.far)] {
            until(&format!("no session is left on the {name} node"), || {
                session_count(node) == 0
            })
            .unwrap();
            nothing_panicked(node);
        }
        until("no forwarder is left", || forwarders(&self.near).is_empty()).unwrap();
    }
}

fn member(name: &str, registry: &str) -> Vec<String> {
    vec![
        format!("node.name={name}"),
        format!("node.registry={registry}"),
    ]
}

fn listed(registry: &Service, arguments: &[&str]) -> Value {
    let arguments = [arguments, &["--json"]].concat();
    let text = registry.text(&arguments).expect("the registry answers");
    serde_json::from_str(&text).expect("JSON")
}

/// A device as the registry lists it.
fn device(registry: &Service, id: &str) -> Option<Value> {
    let devices = listed(registry, &["devices"]);
    let (node, name) = id.split_once('/').expect("node/name");
    let mut devices = devices.as_array().expect("a list").iter();
    let found = devices.find(|d| d["node"] == node && d["name"] == name);
    found.cloned()
}

fn joined(registry: &Service, id: &str) {
    until("the node has joined the pool", || {
        device(registry, id).is_some_and(|d| d["state"] == "ready")
    })
    .unwrap();
}

#[test]
fn the_registry_has_the_address_and_the_new_place_of_a_session() {
    let port = free_port();
    let (pool, mut instance) = Pool::start(&ENDLESS, port, port, "");
    let session = only(&pool.near);
    assert_eq!(pool.places(), ["near/a"]);

    // Refusals of the registry.
    let error = refusal(&pool.send("far/b", &[]));
    assert!(error.contains("instance 'app' (query)"), "{error}");
    let error = refusal(&pool.send("far/c", &[]));
    assert!(error.contains("'far/c' not found"), "{error}");
    // And of the comparison with its driver.
    let error = refusal(&pool.send("far/a-odd", &[]));
    assert!(error.contains("driver version"), "{error}");
    assert!(error.contains("99.0"), "{error}");
    pool.registry.text(&["device", "cordon", "far/a"]).unwrap();
    let error = refusal(&pool.send("far/a", &[]));
    assert!(error.contains("cordoned"), "{error}");
    pool.registry
        .text(&["device", "uncordon", "far/a"])
        .unwrap();
    pool.stays(&mut instance, session);

    until("the node's orders let it in", || {
        let moved = pool.send("far/a", &[]);
        moved.status.success()
    })
    .unwrap();
    instance.progresses();
    assert_eq!(pool.places(), ["far/a"]);
    until("both nodes report where it is", || {
        let sessions = |id| device(&pool.registry, id).expect("it is listed")["sessions"].clone();
        sessions("near/a") == 0 && sessions("far/a") == 1
    })
    .unwrap();
    // Moved within the other node, which the first one does not notice, and back.
    let there = only(&pool.far).to_string();
    let arguments = ["session", "move", &there, "--to", "a-odd", "--force"];
    pool.far.text(&arguments).expect("it moves there");
    instance.progresses();
    let returned = pool.must_send("near/a");
    assert_eq!(returned["to"], "a", "{returned}");
    pool.stays(&mut instance, session);

    // With another device of its own node, a name as in the pool needs no other node.
    let error = refusal(&pool.send("near/b", &[]));
    assert!(error.contains("no device 'b'"), "{error}");
    let moved = pool.must_send("far/a");
    assert_eq!(
        (&moved["from"], &moved["to"]),
        (&"a".into(), &"far/a".into())
    );
    // Its launcher follows it, and does not start the program again.
    instance.progresses();
    until("its launcher has renewed its lease", || {
        let error = instance.0.error();
        error.contains("goes on: its sessions are on far/a")
    })
    .unwrap();
    instance.progresses();
    let error = instance.end();
    assert!(!error.contains("restarting"), "{error}");
    pool.is_empty();
}

#[test]
fn a_drained_device_sends_its_sessions_to_other_nodes_of_the_pool() {
    let port = free_port();
    let (pool, mut instance) = Pool::start(&ENDLESS, port, port, "");
    // A program that is not an instance may go to any device.
    let arguments = ["--tenant", "red", "--device", "a"];
    let mut command = through_with(&pool.near, &arguments, compile("moving"));
    command.args(ENDLESS);
    let mut other = Running::start(command);
    other.wait_line("round");
    let drain = || {
        let drain = ["device", "drain", "near/a", "--live", "--force", "--json"];
        let output = pool.command(&drain).output().expect("the tool runs");
        let drained: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (output.status.success(), drained)
    };
    // Without a token of the other node, they stay, and the reasons name its devices.
    let drain_alone = ["device", "drain", "near/a", "--live", "--json"];
    let mut command = pool.command(&drain_alone);
    let output = command.env("BALTRA_TOKEN", "").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stayed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let reasons = stayed["stayed"][0]["reasons"].as_array().expect("a list");
    let names: Vec<_> = reasons.iter().map(|r| r["to"].as_str().unwrap()).collect();
    assert!(names.contains(&"far/a"), "{stayed}");
    instance.progresses();

    let (has_left, drained) = drain();
    assert!(has_left, "{drained}");
    let moved = drained["moved"].as_array().expect("a list");
    assert_eq!(moved.len(), 2, "{drained}");
    let is_far = |m: &Value| m["to"].as_str().is_some_and(|to| to.starts_with("far/"));
    assert!(moved.iter().all(is_far), "{drained}");
    assert_eq!(device(&pool.registry, "near/a").unwrap()["cordoned"], true);
    assert!(pool.places()[0].starts_with("far/a"), "{:?}", pool.places());
    instance.progresses();
    other.wait_progress();
    kill(other.pid());
    other.finish();
    instance.end();
    pool.is_empty();
}

/// A program with enough bytes that its move can be held.
const LARGE: [&str; 3] = ["0", "4194304", "5"];

/// Bytes after which its move is held.
const HELD: u64 = 1 << 20;

#[test]
fn a_session_that_is_being_moved_is_not_moved_twice() {
    let port = free_port();
    let cutter = Cutter::holding(port, HELD);
    let (pool, mut instance) = Pool::start(&LARGE, port, cutter.port, "");
    let session = only(&pool.near);
    let first = std::thread::scope(|scope| {
        let first = scope.spawn(|| pool.send("far/a", &[]));
        until("the first move is in progress", || cutter.bytes() >= HELD).unwrap();
        for to in ["far/a", "near/a"] {
            let error = refusal(&pool.send(to, &[]));
            assert!(error.contains("is being moved already"), "{error}");
        }
        instance.progresses();
        cutter.close();
        first.join().expect("no panic")
    });
    let error = refusal(&first);
    assert!(error.contains("has not moved"), "{error}");
    pool.stays(&mut instance, session);
    until("nothing of it is left there", || {
        session_count(&pool.far) == 0
    })
    .unwrap();
    instance.end();
    pool.is_empty();
}

#[test]
fn a_session_stays_if_the_other_node_vanishes() {
    let port = free_port();
    let cutter = Cutter::holding(port, HELD);
    let (mut pool, mut instance) = Pool::start(&LARGE, port, cutter.port, "");
    let session = only(&pool.near);
    let output = std::thread::scope(|scope| {
        let command = |pool: &Pool| {
            let session = session.to_string();
            pool.command(&["session", "move", &session, "--to", "far/a"])
        };
        let mut command = command(&pool);
        let moved = scope.spawn(move || command.output().expect("the tool runs"));
        until("the move is in progress", || cutter.bytes() >= HELD).unwrap();
        // The manager, and its executors and relays, which would outlive it.
        let rest = pool.far.children();
        pool.far.kill().expect("the manager ends");
        rest.into_iter().for_each(kill);
        cutter.close();
        moved.join().expect("no panic")
    });
    let error = refusal(&output);
    assert!(error.contains("has not moved"), "{error}");
    pool.stays(&mut instance, session);
    // The registry takes it for a member until its lease has expired.
    until("the registry refuses the node", || {
        let error = refusal(&pool.send("far/a", &[]));
        error.contains("sends no heartbeats")
    })
    .unwrap();
    pool.stays(&mut instance, session);
    instance.end();
    until("no session is left", || session_count(&pool.near) == 0).unwrap();
    nothing_panicked(&pool.near);
}

#[test]
fn a_registry_that_ends_during_a_move_has_its_result_afterwards() {
    let port = free_port();
    let (mut pool, mut instance) = Pool::start(&ENDLESS, port, port, "");
    let session = only(&pool.near);
    // Without the registry there is no address; a move to an address that the caller has needs none.
    pool.registry.kill().expect("the registry ends");
    let error = refusal(&pool.send("far/a", &[]));
    assert!(error.contains("cannot reach the registry"), "{error}");
    pool.must_send(&format!("tcp://127.0.0.1:{port}/a"));
    instance.progresses();
    pool = pool.restarted(Victim::Registry);
    until("the registry has the session's place", || {
        pool.places() == ["far/a"]
    })
    .unwrap();
    // Back, and the registry ends in between.
    pool.registry.kill().expect("the registry ends");
    pool.must_send("a");
    pool = pool.restarted(Victim::Registry);
    until("the registry has the session's place", || {
        pool.places() == ["near/a"]
    })
    .unwrap();
    pool.stays(&mut instance, session);
    let error = instance.end();
    assert!(!error.contains("restarting"), "{error}");
    pool.is_empty();
}

/// A daemon that ends at a random moment of a move.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Registry,
    /// The managers of both nodes.
    Near,
    Far,
}

impl Pool {
    /// Starts a daemon again that was killed.
    fn restarted(mut self, victim: Victim) -> Pool {
        match victim {
            Victim::Registry => {
                let registry = self.registry.restart(&Options::default());
                self.registry = registry.expect("a registry starts");
            }
            Victim::Near => {
                let near = self.near.restart(&self.near_options);
                self.near = near.expect("a manager starts");
            }
            Victim::Far => {
                let far = self.far.restart(&self.far_options);
                self.far = far.expect("a manager starts");
            }
        }
        self
    }

    fn kill(&mut self, victim: Victim) {
        let killed = match victim {
            Victim::Registry => self.registry.kill(),
            Victim::Near => self.near.kill(),
            Victim::Far => self.far.kill(),
        };
        killed.expect("it ends");
    }
}

/// Kills a daemon at random moments of moves. The program continues, and its session is in one place,
/// which the registry has.
fn killed(victim: Victim) {
    let port = free_port();
    let (mut pool, mut instance) = Pool::start(&LARGE, port, port, "");
    let session = only(&pool.near);
    let mut random = Random::new();
    let mut took_us = 0;
    // The driver is loaded there by the first one.
    for _ in 0..2 {
        let moved = pool.must_send("far/a");
        took_us = moved["took_us"].as_u64().expect("a number");
        pool.must_send("a");
    }
    for round in 0..kills() {
        let wait = Duration::from_micros(random.below(took_us * 5 / 4));
        let number = session.to_string();
        let mut command = pool.command(&["session", "move", &number, "--to", "far/a"]);
        let output = std::thread::scope(|scope| {
            let moved = scope.spawn(move || command.output().expect("the tool runs"));
            std::thread::sleep(wait);
            pool.kill(victim);
            moved.join().expect("no panic")
        });
        let began = Instant::now();
        instance.progresses();
        let paused = began.elapsed();
        println!(
            "{victim:?} round {round}, {wait:?}: {}, {paused:?}",
            output.status
        );
        pool = pool.restarted(victim);
        until("its session is in one place", || {
            let near = json(&pool.near, &["session", "ls"]);
            let is_away = near[0]["remote"].is_string();
            near[0]["id"] == session && session_count(&pool.far) == usize::from(is_away)
        })
        .unwrap();
        println!("settled after {:?}", began.elapsed());
        let is_away = json(&pool.near, &["session", "ls"])[0]["remote"].is_string();
        assert!(is_away || !output.status.success(), "{output:?}");
        instance.progresses();
        let place = if is_away { "far/a" } else { "near/a" };
        until("the registry has it", || {
            let places = pool.places();
            // There may be others on the former device for a manager that has adopted the session.
            places == [place] || victim == Victim::Near && is_away && places == ["near/a", place]
        })
        .unwrap();
        joined(&pool.registry, "near/a");
        joined(&pool.registry, "far/a");
        if is_away {
            until("it returns", || pool.send("a", &[]).status.success()).unwrap();
            pool.stays(&mut instance, session);
        }
    }
    instance.end();
    pool.is_empty();
}

#[test]
fn a_registry_that_is_killed_during_a_move_has_its_result_later() {
    killed(Victim::Registry);
}

#[test]
fn a_session_goes_on_if_its_manager_is_killed_during_a_move() {
    killed(Victim::Near);
}

#[test]
fn a_session_goes_on_if_the_other_manager_is_killed_during_a_move() {
    killed(Victim::Far);
}
