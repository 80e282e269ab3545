//! A device of the pool that is drained: its programs continue with other devices, without a
//! restart if their sessions can move and their policy allows it.

use baltra_testkit::{until, Daemon, Options, Service};
use baltra_tests::{
    baltra, compile, compile_driver, nothing_panicked, tenants, terminate, through_with, Running,
};
use serde_json::Value;

/// A registry, and a node with two devices; `other`: keys of the second one.
fn pool(other: &str) -> (Service, Daemon) {
    let registry = Service::start(baltra(), "registry", &Options::default()).unwrap();
    let device = |name: &str, at: u32, keys: &str| {
        format!("[[device]]\nname = '{name}'\nselect = '{at}'\nhost_memory = false\n{keys}\n")
    };
    let url = registry.url();
    let node = Daemon::start_with(
        baltra(),
        &Options {
            config: device("a", 0, "") + &device("b", 1, other),
            set: vec!["node.name=near".into(), format!("node.registry={url}")],
            ..Options::default()
        },
    )
    .unwrap();
    tenants(&node, &["red"]);
    until("the node has joined", || {
        registry
            .text(&["devices"])
            .is_ok_and(|all| all.contains("near/a") && all.contains("near/b"))
    })
    .unwrap();
    (registry, node)
}

/// A program that the registry has allocated the first device.
fn program(
    registry: &Service,
    node: &Daemon,
    name: &str,
    more: &[&str],
    arguments: &[&str],
) -> Running {
    let mut options = vec!["--registry", registry.url(), "--restart", "--tenant", "red"];
    options.extend(["--instance", "app", "--device", "node=near"]);
    options.extend(more);
    registry.text(&["device", "cordon", "near/b"]).unwrap();
    let mut command = through_with(node, &options, compile(name));
    command.args(arguments);
    let mut running = Running::start(command);
    running.wait_line("round");
    registry.text(&["device", "uncordon", "near/b"]).unwrap();
    running
}

fn instance(registry: &Service) -> Value {
    let all = registry.text(&["instances", "--json"]).unwrap();
    let all: Value = serde_json::from_str(&all).unwrap();
    all[0].clone()
}

/// Whether the registry has a session of the instance in its reports.
fn reported(registry: &Service, device: &str) -> bool {
    let all = registry.text(&["devices", "--json"]).unwrap();
    let all: Value = serde_json::from_str(&all).unwrap();
    let all = all["devices"]
        .as_array()
        .or(all.as_array())
        .expect("a list");
    let is_own = |d: &&Value| d["name"] == device;
    all.iter()
        .find(is_own)
        .is_some_and(|d| d["sessions"].as_u64() > Some(0))
}

/// Drains the first device, and waits until the instance has the second one.
fn drain(registry: &Service) {
    until("the session is reported", || reported(registry, "a")).unwrap();
    let drained = registry.text(&["device", "drain", "near/a", "--wait", "0"]);
    let drained = drained.unwrap();
    assert!(drained.contains("app will move to near/b"), "{drained}");
    until("the instance has the other device", || {
        instance(registry)["devices"][0]["device"] == "b"
    })
    .unwrap();
}

/// Waits until the launcher has printed this.
fn until_printed(running: &Running, text: &str) {
    let printed = until(text, || running.error().contains(text));
    printed.unwrap_or_else(|error| panic!("{error}: {}", running.error()));
}

/// Ends the program; returns what its launcher has printed.
fn end(program: Running) -> String {
    terminate(program.pid());
    program.finish().err
}

#[test]
fn a_program_moves_without_a_restart() {
    let (registry, node) = pool("");
    let mut running = program(&registry, &node, "moving", &[], &["0", "65536", "5"]);
    drain(&registry);
    assert_eq!(instance(&registry)["devices"][0]["live"], true);
    running.wait_progress();
    until_printed(&running, "its sessions are on near/b");
    running.wait_progress();
    let printed = end(running);
    assert!(!printed.contains("restarting"), "{printed}");
    nothing_panicked(&node);
}

#[test]
fn a_program_whose_policy_is_restart_is_started_again() {
    let (registry, node) = pool("");
    let more = ["--move", "restart"];
    let mut running = program(&registry, &node, "moving", &more, &["0", "65536", "5"]);
    drain(&registry);
    assert_eq!(instance(&registry)["devices"][0]["live"], false);
    until_printed(&running, "restarting it");
    running.wait_line("round 1 ");
    end(running);
    nothing_panicked(&node);
}

#[test]
fn a_program_that_has_read_a_fact_that_differs_is_started_again() {
    let driver = compile_driver("other_driver");
    let (registry, node) = pool(&format!("driver = '{}'", driver.display()));
    let mut running = program(&registry, &node, "facts", &[], &["early"]);
    drain(&registry);
    assert_eq!(instance(&registry)["devices"][0]["live"], false);
    until_printed(&running, "restarting it");
    running.wait_progress();
    end(running);
    nothing_panicked(&node);
}
