//! Programs in a pool, and the devices that they see.

use baltra_testkit::{until, Daemon, Options, Service};
use baltra_tests::{app, baltra, by_variables, free_port, native, through, Answer, Running};
use std::process::Command;

const TWO: &str = "[[device]]\nname = 'a'\nselect = '0'\n[[device]]\nname = 'b'\nselect = '1'\n";

fn list(mut command: Command) -> Answer {
    command.arg("-l");
    Running::run(command)
}

/// Number of devices that `clinfo -l` shows on Baltra's platform.
fn devices(answer: &Answer) -> usize {
    let own = answer
        .out
        .split("Platform #")
        .find(|p| p.contains("Baltra"));
    own.map_or(0, |p| p.matches("Device #").count())
}

fn registry() -> Service {
    Service::start(baltra(), "registry", &Options::default()).unwrap()
}

fn node(name: &str, registry: &Service, config: &str, set: &[String]) -> Daemon {
    let mut options = Options {
        set: vec![
            format!("node.name={name}"),
            format!("node.registry={}", registry.url()),
        ],
        config: config.into(),
        ..Options::default()
    };
    options.set.extend_from_slice(set);
    let daemon = Daemon::start_with(baltra(), &options).unwrap();
    until("the node has joined the pool", || {
        let query = format!("node={name}");
        let text = registry.text(&["devices", "--query", &query, "--json"]);
        text.is_ok_and(|text| text.contains("\"ready\""))
    })
    .unwrap();
    daemon
}

/// A program under `baltra run` with a registry.
fn run(registry: &Service, arguments: &[&str]) -> Command {
    let mut command = native(baltra());
    command
        .env_remove("OCL_ICD_VENDORS")
        .env_remove("BALTRA_REGISTRY")
        .arg("--runtime-dir")
        .arg(registry.runtime_dir())
        .arg("run")
        .args(arguments)
        .args(["--", "clinfo"]);
    command
}

#[test]
fn a_program_sees_its_allocated_devices() {
    let options = Options {
        set: vec!["node.name=east".into()],
        config: TWO.into(),
        ..Options::default()
    };
    let daemon = Daemon::start_with(baltra(), &options).unwrap();
    let shown = |names: &str| {
        let mut command = by_variables(&daemon.endpoint(), "clinfo");
        command.env("BALTRA_DEVICE", names);
        list(command)
    };
    for (names, count) in [
        ("", 2),
        ("b", 1),
        ("east/a", 1),
        ("east/a, b", 2),
        ("west/a", 0),
    ] {
        let answer = shown(names);
        assert_eq!(
            devices(&answer),
            count,
            "{names}: {}{}",
            answer.out,
            answer.err
        );
    }
    let none = shown("west/a");
    assert!(none.err.contains("east/a, east/b"), "{}", none.err);
}

#[test]
fn a_query_gives_a_program_its_devices_over_any_transport() {
    let registry = registry();
    let _east = node("east", &registry, TWO, &[]);
    let port = free_port();
    let far = [
        format!("listen.tcp=127.0.0.1:{port}"),
        // A node on another host, whose Unix socket is not accessible here.
        format!("node.advertise=[\"tcp://127.0.0.1:{port}\"]"),
    ];
    let west = node("west", &registry, TWO, &far);
    let one = list(run(&registry, &["--device", "node=east,name=b"]));
    assert_eq!(devices(&one), 1, "{}{}", one.out, one.err);
    let both = list(run(&registry, &["--device", "node=east", "--count", "2"]));
    assert_eq!(devices(&both), 2, "{}{}", both.out, both.err);

    west.text(&["tenant", "add", "red"]).unwrap();
    let token = west.text(&["tenant", "token", "red"]).unwrap();
    let mut over = run(&registry, &["--device", "node=west"]);
    over.env("BALTRA_TOKEN", token.trim());
    let over = list(over);
    assert_eq!(devices(&over), 1, "{}{}", over.out, over.err);
    let more = list(run(&registry, &["--device", "node=east", "--count", "3"]));
    assert!(more.err.contains("2 of 3 devices"), "{}", more.err);
    assert_eq!(more.status.code(), Some(1));
    let left = registry.text(&["instances", "--json"]).unwrap();
    assert_eq!(left.trim(), "[]");
}

/// Buffers in one context change on two devices in turn: small ones, which move whole, and large
/// ones, which move in pieces.
#[test]
fn buffers_follow_kernels_from_device_to_device() {
    let sizes = [
        "--sizes",
        "4K,4M,9M,33M",
        "--rounds",
        "3",
        "--launches",
        "0",
    ];
    for host_memory in ["true", "false"] {
        let options = Options {
            set: vec![],
            config: TWO.replace("name", &format!("host_memory = {host_memory}\nname")),
            ..Options::default()
        };
        let daemon = Daemon::start_with(baltra(), &options).unwrap();
        let mut command = through(&daemon, "", app("devices"));
        command.args(sizes);
        let answer = Running::run(command).ok();
        assert!(answer.out.starts_with("2 devices of "), "{}", answer.out);
        assert_eq!(answer.out.matches("round").count(), 4, "{}", answer.out);
    }
}
