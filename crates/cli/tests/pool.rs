//! Tests of a pool of two nodes: membership, allocation, and departures.

mod common;

use baltra_session::handshake;
use baltra_testkit::{hello, until, Daemon};
use common::*;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Stdio};

/// Prints the environment of a program under `baltra run`.
const PRINT_ENVIRONMENT: &str = "echo $BALTRA_DEVICE $BALTRA_ENDPOINT $BALTRA_INSTANCE";

/// A program that prints its place and waits; it is stopped when dropped.
struct Stays(Child);

impl Stays {
    fn start(mut command: std::process::Command, file: &Path) -> Stays {
        let line = format!("{PRINT_ENVIRONMENT} >> {}; exec sleep 1000", file.display());
        let child = command
            .args(["--", "sh", "-c", &line])
            .stderr(Stdio::null());
        Stays(child.spawn().unwrap())
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        self.0.wait().unwrap();
    }
}

fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn nodes_appear_by_themselves_and_a_program_gets_a_device_by_query() {
    let registry = registry();
    let east = node("east", &registry, "[[device]]\nlabels = { zone = 'a' }\n");
    let west = node("west", &registry, "[[device]]\nlabels = { zone = 'b' }\n");
    let all = devices(&registry);
    assert_eq!(all.len(), 2, "{all:?}");
    let model = all[0]["model"].as_str().unwrap();
    assert!(!model.is_empty() && all[0]["compute_units"].as_u64().unwrap() > 0);
    assert!(
        all[0]["platform"].as_str().unwrap().contains("Portable"),
        "{all:?}"
    );
    // On a node, `devices` lists the pool, and with --local the node only.
    assert!(east.text(&["devices"]).unwrap().contains("west/device0"));
    assert!(!east.text(&["devices", "--local"]).unwrap().contains("west"));
    let status = east.text(&["status"]).unwrap();
    assert!(
        status.contains("joined") && status.contains(registry.url()),
        "{status}"
    );

    let printed = run_line(&registry, "label.zone=b", PRINT_ENVIRONMENT);
    let output = text(&printed.stdout);
    let endpoint = west.endpoint();
    assert!(
        output.starts_with(&format!("west/device0 {endpoint} i-")),
        "{output}"
    );
    let fitting = registry.text(&["devices", "--query", "node=east"]).unwrap();
    assert!(
        fitting.contains("east/") && !fitting.contains("west/"),
        "{fitting}"
    );

    // Two devices, one of each node.
    let two = run(&registry)
        .args([
            "--device",
            "platform=Portable*",
            "--count",
            "2",
            "--instance",
            "pair",
        ])
        .args(["--", "sh", "-c", PRINT_ENVIRONMENT])
        .output()
        .unwrap();
    let output = text(&two.stdout);
    for part in [
        "east/device0",
        "west/device0",
        &east.endpoint(),
        &west.endpoint(),
        " pair",
    ] {
        assert!(
            output.contains(part),
            "{part}: {output}{}",
            text(&two.stderr)
        );
    }

    // The exit code is the program's, and its devices are released.
    assert_eq!(
        run_line(&registry, "node=east", "exit 7").status.code(),
        Some(7)
    );
    assert_eq!(instances(&registry), Vec::<Value>::new());

    // A request that no device matches is refused with a reason for each device; a malformed query
    // is rejected.
    let none = run_line(&registry, "vendor=Nobody", "true");
    let output = text(&none.stderr);
    assert_eq!(none.status.code(), Some(1));
    for part in ["east/device0", "west/device0", "vendor"] {
        assert!(output.contains(part), "{part}: {output}");
    }
    let wrong = run_line(&registry, "color=red", "true");
    assert!(
        text(&wrong.stderr).contains("color"),
        "{}",
        text(&wrong.stderr)
    );
}

#[test]
fn a_registry_that_is_killed_and_comes_back_disturbs_nobody() {
    let mut registry = registry();
    let east = node("east", &registry, "");
    let out = registry.state_dir().join("out");
    let mut program = run(&registry);
    program.args(["--device", "node=east", "--instance", "steady"]);
    let _program = Stays::start(program, &out);
    until("the program runs", || lines(&out).len() == 1).unwrap();
    let stream = east.connect().unwrap();
    let (welcome, _) = handshake::hello(&stream, &hello("device0")).unwrap();
    welcome.unwrap();

    registry.kill().unwrap();
    until("the node has noticed", || {
        east.text(&["status"]).unwrap().contains("not joined")
    })
    .unwrap();
    // The node works as before: sessions continue, and new ones are accepted.
    let (welcome, _) = handshake::hello(&east.connect().unwrap(), &hello("device0")).unwrap();
    welcome.unwrap();
    let sessions = east.text(&["sessions", "--json"]).unwrap();
    assert!(sessions.contains("device0"), "{sessions}");

    let registry = registry.restart(&registry_options()).unwrap();
    until("the node is back in the pool", || {
        state(&registry, "east/") == "ready"
    })
    .unwrap();
    let all = instances(&registry);
    assert_eq!(all[0]["name"], "steady");
    assert_eq!(all[0]["devices"][0]["node"], "east");
    assert_eq!(lines(&out).len(), 1, "the program was not disturbed");
}

#[test]
fn a_node_that_falls_silent_leaves_the_pool_and_may_come_back() {
    let registry = registry();
    let mut east = node("east", &registry, "");
    let _west = node("west", &registry, "");
    east.kill().unwrap();
    until("it is out of the pool", || {
        state(&registry, "east/") == "silent"
    })
    .unwrap();
    assert!(!registry.text(&["devices"]).unwrap().contains("east/"));
    let output = text(&run_line(&registry, "platform=Portable*", PRINT_ENVIRONMENT).stdout);
    assert!(output.starts_with("west/"), "{output}");
    let options = node_options("east", registry.url(), "");
    let east = east.restart(&options).unwrap();
    until("it is back", || state(&registry, "east/") == "ready").unwrap();
    // A manager that is stopped deregisters its node.
    east.text(&["down"]).unwrap();
    until("it is out of the pool", || {
        state(&registry, "east/") == "silent"
    })
    .unwrap();
    drop(east);
}

#[test]
fn the_pool_shows_versions_uptimes_and_executors_that_died() {
    let registry = registry();
    let east = node("east", &registry, "");
    let reported = || device(&registry, "east/").unwrap();
    assert_eq!(reported()["node_version"], env!("CARGO_PKG_VERSION"));
    until("its uptime is reported", || {
        reported()["node_uptime_s"].is_u64()
    })
    .unwrap();
    assert_eq!(reported()["executor_deaths"], 0);
    let pid = rustix::process::Pid::from_raw(east.children()[0] as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("its end is reported", || reported()["executor_deaths"] == 1).unwrap();
    let status = east.text(&["status"]).unwrap();
    assert!(status.contains("1 that died"), "{status}");
}

#[test]
fn a_node_s_name_is_its_own() {
    let registry = registry();
    let _east = node("east", &registry, "");
    let options = node_options("east", registry.url(), "");
    let second = Daemon::start_with(BALTRA, &options).unwrap();
    until("the refusal of the second is reported", || {
        let status = second.text(&["status"]).unwrap();
        status.contains("is in use") && status.contains("node.name")
    })
    .unwrap();
}

#[test]
fn a_cordoned_device_takes_nobody_new_and_a_drained_one_is_left() {
    let registry = registry();
    let east = node("east", &registry, "");
    let west = node("west", &registry, "");
    let open = || {
        let stream = east.connect().unwrap();
        let (welcome, _) = handshake::hello(&stream, &hello("device0")).unwrap();
        welcome
            .map(|_| stream)
            .map_err(|refusal| refusal.to_string())
    };
    let kept = open().unwrap();
    registry
        .text(&["device", "cordon", "east/device0"])
        .unwrap();
    assert_eq!(device(&registry, "east/").unwrap()["cordoned"], true);
    let refused = run_line(&registry, "node=east", "true");
    assert!(
        text(&refused.stderr).contains("cordon"),
        "{}",
        text(&refused.stderr)
    );
    until("the node refuses new sessions", || {
        open().is_err_and(|why| why.contains("cordoned"))
    })
    .unwrap();
    assert!(east.text(&["sessions"]).unwrap().contains("device0"));
    registry
        .text(&["device", "uncordon", "east/device0"])
        .unwrap();
    until("the node takes them again", || open().is_ok()).unwrap();
    drop(kept);

    // A program under --restart moves when its device is drained.
    let out = registry.state_dir().join("out");
    let mut program = run(&registry);
    program.args([
        "--restart",
        "--device",
        "platform=Portable*",
        "--instance",
        "mover",
    ]);
    let _program = Stays::start(program, &out);
    until("the program runs", || lines(&out).len() == 1).unwrap();
    let first = lines(&out)[0].split(' ').next().unwrap().to_owned();
    let output = registry.text(&["device", "drain", &first]).unwrap();
    assert!(output.contains("mover will move to"), "{output}");
    assert!(output.contains("mover has left"), "{output}");
    assert!(output.contains("has no sessions"), "{output}");
    assert_eq!(state(&registry, &first), "ready");
    until("the program is started on the other", || {
        lines(&out).len() == 2
    })
    .unwrap();
    let second = lines(&out)[1].clone();
    assert!(!second.starts_with(&first), "{second}");
    assert!(second.ends_with("mover (restarts)"), "{second}");
    // A session of a program that is not an instance cannot be moved, and is reported.
    let other = second.split(' ').next().unwrap().to_owned();
    let node = if other.starts_with("east/") {
        &east
    } else {
        &west
    };
    let stream = node.connect().unwrap();
    let device = other.split_once('/').unwrap().1;
    let (welcome, _) = handshake::hello(&stream, &hello(device)).unwrap();
    welcome.unwrap();
    let arguments = ["device", "drain", other.as_str(), "--wait", "10"];
    let drained = registry.baltra(&arguments).unwrap();
    assert_eq!(drained.status.code(), Some(1), "{drained:?}");
    let output = text(&drained.stdout);
    assert!(
        output.contains(&format!("{other} has 1 sessions")),
        "{output}"
    );
    drop(stream);
    let unknown = registry
        .text(&["device", "drain", "east/nothing"])
        .unwrap_err();
    assert!(unknown.to_string().contains("east/nothing"), "{unknown}");
}

#[test]
fn a_device_that_is_drained_live_is_cordoned_and_takes_no_session_back() {
    let registry = registry();
    let devices = "[[device]]\nname = 'a'\nselect = '0'\n[[device]]\nname = 'b'\nselect = '1'\n";
    let east = node("east", &registry, devices);
    let stream = east.connect().unwrap();
    let (welcome, _) = handshake::hello(&stream, &hello("a")).unwrap();
    welcome.unwrap();
    let sessions = || -> Value {
        let list = east.text(&["session", "ls", "--json"]).unwrap();
        serde_json::from_str(&list).unwrap()
    };
    let number = sessions()[0]["id"].to_string();
    let drained = east.baltra(&["device", "drain", "east/a", "--live"]);
    let drained = drained.unwrap();
    assert_eq!(drained.status.code(), Some(0), "{drained:?}");
    assert_eq!(sessions()[0]["device"], "b");
    assert_eq!(device(&registry, "east/a").unwrap()["cordoned"], true);
    until("a moved session is refused", || {
        let back = east.baltra(&["session", "move", &number, "--to", "a"]);
        let error = text(&back.unwrap().stderr);
        error.contains("it is cordoned")
    })
    .unwrap();
    // So the other device keeps it.
    let kept = east.baltra(&["device", "drain", "east/b", "--live"]);
    let kept = kept.unwrap();
    assert_eq!(kept.status.code(), Some(1), "{kept:?}");
    assert!(text(&kept.stdout).contains("it is cordoned"), "{kept:?}");
    let elsewhere = east.baltra(&["device", "drain", "west/a", "--live"]);
    let error = text(&elsewhere.unwrap().stderr);
    assert!(error.contains("run the command on 'west'"), "{error}");
}

#[test]
fn pools_are_made_listed_and_removed() {
    let registry = registry();
    let _east = node("east", &registry, "");
    let made = registry
        .text(&["pool", "add", "cpus", "--query", "platform=Portable*"])
        .unwrap();
    assert!(made.contains("east/device0"), "{made}");
    assert!(registry.text(&["pool", "ls"]).unwrap().contains("cpus"));
    registry.text(&["pool", "rm", "cpus"]).unwrap();
    assert!(registry.text(&["pool", "rm", "cpus"]).is_err());
}

#[test]
fn a_registry_with_a_token_lets_in_who_has_it() {
    let mut options = registry_options();
    options.set.push("registry.token=sesame".into());
    let registry = baltra_testkit::Service::start(BALTRA, "registry", &options).unwrap();
    let denied = registry.text(&["devices"]).unwrap_err().to_string();
    assert!(denied.contains("BALTRA_REGISTRY_TOKEN"), "{denied}");
    let node = |token: &str| {
        let mut options = node_options("east", registry.url(), "");
        options.set.push(format!("node.registry_token={token}"));
        Daemon::start_with(BALTRA, &options).unwrap()
    };
    let stranger = node("wrong");
    until("it is reported", || {
        stranger.text(&["status"]).unwrap().contains("not joined")
    })
    .unwrap();
    drop(stranger);
    let friend = node("sesame");
    until("it is let in", || {
        !friend.text(&["status"]).unwrap().contains("not joined")
    })
    .unwrap();
    let list = std::process::Command::new(BALTRA)
        .args(["devices", "--registry", registry.url()])
        .env("BALTRA_REGISTRY_TOKEN", "sesame")
        .env_remove("BALTRA_ENDPOINT")
        .output()
        .unwrap();
    assert!(
        text(&list.stdout).contains("east/device0"),
        "{}",
        text(&list.stderr)
    );
}
