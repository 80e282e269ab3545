//! Tests of the command line: configuration, errors, help.

use baltra_testkit::{hello, Daemon, Options};
use std::process::{Command, Output};

const BALTRA: &str = env!("CARGO_BIN_EXE_baltra");

fn baltra(arguments: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    Command::new(BALTRA)
        .args(arguments)
        .env("BALTRA_RUNTIME_DIR", dir.path().join("run"))
        .env_remove("BALTRA_ENDPOINT")
        .env_remove("BALTRA_REGISTRY")
        .env_remove("BALTRA_GATEWAY")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn without_a_daemon_every_command_says_how_to_start_one() {
    for arguments in [
        &["status"][..],
        &["devices"],
        &["sessions"],
        &["top", "--once"],
        &["tenant", "ls"],
        &["accelerator", "ls"],
        &["instances"],
        &["pool", "ls"],
        &["device", "cordon", "a/b"],
        &["devices", "--query", "node=a"],
        &["function", "list", "--gateway", "http://127.0.0.1:1"],
    ] {
        let output = baltra(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let message = text(&output.stderr);
        assert!(message.contains("baltra up"), "{arguments:?}: {message}");
    }
    assert_eq!(baltra(&["down"]).status.code(), Some(0));
}

#[test]
fn a_relative_runtime_directory_starts_where_it_is_given() {
    let daemon = Daemon::start(BALTRA).unwrap();
    let runtime = daemon.runtime_dir();
    let run = |set: &mut dyn FnMut(&mut Command)| {
        let mut command = Command::new(BALTRA);
        command
            .current_dir(runtime.parent().unwrap())
            .env_remove("BALTRA_ENDPOINT")
            .env_remove("BALTRA_RUNTIME_DIR");
        set(&mut command);
        let program = ["run", "--", "sh", "-c", "cd / && echo $BALTRA_ENDPOINT"];
        let output = command.args(program).output().unwrap();
        text(&output.stdout).trim().to_owned()
    };
    let flag = run(&mut |command| {
        command.args(["--runtime-dir", "run"]);
    });
    let variable = run(&mut |command| {
        command.env("BALTRA_RUNTIME_DIR", "./run");
    });
    assert_eq!([flag, variable], [daemon.endpoint(), daemon.endpoint()]);
}

#[test]
fn usage_errors_and_failures_have_different_codes() {
    assert_eq!(baltra(&["frobnicate"]).status.code(), Some(2));
    assert_eq!(baltra(&["run"]).status.code(), Some(2));
    assert_eq!(baltra(&["tenant", "add"]).status.code(), Some(2));
}

#[test]
fn every_subcommand_has_help_with_an_example() {
    for command in [
        &["up"][..],
        &["down"],
        &["status"],
        &["logs"],
        &["demo"],
        &["version"],
        &["run"],
        &["devices"],
        &["sessions"],
        &["top"],
        &["doctor"],
        &["manager"],
        &["registry"],
        &["gateway"],
        &["instances"],
        &["simulate"],
        &["device", "cordon"],
        &["device", "uncordon"],
        &["device", "drain"],
        &["pool", "add"],
        &["pool", "ls"],
        &["pool", "rm"],
        &["function", "init"],
        &["function", "deploy"],
        &["function", "list"],
        &["function", "describe"],
        &["function", "invoke"],
        &["function", "logs"],
        &["function", "remove"],
        &["function", "scale"],
        &["completion"],
        &["tenant", "add"],
        &["tenant", "ls"],
        &["tenant", "quota"],
        &["tenant", "token"],
        &["tenant", "usage"],
        &["tenant", "rm"],
        &["accelerator", "push"],
        &["accelerator", "ls"],
        &["accelerator", "rm"],
        &["accelerator", "load"],
    ] {
        let mut arguments = command.to_vec();
        arguments.push("--help");
        let help = text(&baltra(&arguments).stdout);
        assert!(help.contains("Example"), "{command:?}: {help}");
    }
}

const ONE_BOARD: &str = "\
duration_s: 1
nodes: [{name: n, devices: [{count: 1}]}]
functions: [{name: f, service_ms: {constant: 1}, load: {arrivals: constant, rate: 1}}]
";

#[test]
fn output_that_nobody_reads_ends_the_tool_in_silence() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = dir.path().join("scenario.yaml");
    std::fs::write(&scenario, ONE_BOARD).unwrap();
    let scenario = scenario.to_str().unwrap();
    // clap prints these, and treats a closed output as success.
    for (arguments, code) in [
        (&["--help"][..], 0),
        (&["completion", "bash"], 141),
        (&["up", "--dump-config"], 141),
        (&["function", "init", "--list"], 141),
        (&["simulate", scenario], 141),
        (&["simulate", scenario, "--json"], 141),
    ] {
        let (unread, pipe) = std::io::pipe().unwrap();
        drop(unread);
        let output = Command::new(BALTRA)
            .args(arguments)
            .env("BALTRA_RUNTIME_DIR", dir.path().join("run"))
            .stdout(pipe)
            .output()
            .unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert_eq!(message, "", "{arguments:?}");
    }
    // Other write errors are reported.
    let full = std::fs::File::options().write(true).open("/dev/full");
    let output = Command::new(BALTRA)
        .args(["function", "init", "--list"])
        .stdout(full.unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot write the output"));
}

#[test]
fn the_configuration_is_dumped_and_checked_before_anything_starts() {
    let output = baltra(&["up", "--dump-config", "--set", "executors.prestart=7"]);
    let dump = text(&output.stdout);
    assert!(dump.contains("prestart = 7"), "{dump}");
    let output = baltra(&["up", "--set", "device.policy=lottery"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("lottery"));
    let output = baltra(&["up", "--config", "/no/such/file.toml"]);
    assert!(text(&output.stderr).contains("/no/such/file.toml"));
}

#[test]
fn doctor_says_what_is_there_for_people_and_machines() {
    let output = baltra(&["doctor", "--json"]);
    let message = text(&output.stdout);
    for what in [
        "OpenCL driver",
        "ICD loader",
        "landlock",
        "sealed memfd",
        "registry",
        "gateway",
    ] {
        assert!(message.contains(what), "{what}: {message}");
    }
}

#[test]
fn up_and_down_print_what_they_did() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let baltra = |arguments: &[&str]| {
        let output = Command::new(BALTRA)
            .arg("--runtime-dir")
            .arg(&run)
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let state = dir.path().join("state");
    let up = [
        "up",
        "--set",
        "metrics.address=",
        "--set",
        "registry.enabled=false",
        "--set",
        "gateway.enabled=false",
        "--state-dir",
        state.to_str().unwrap(),
    ];
    let message = baltra(&up);
    assert!(
        message.contains("device0") && message.contains("baltra.sock"),
        "{message}"
    );
    assert!(baltra(&up).contains("already running"));
    assert!(baltra(&["logs"]).contains("serving"));
    assert!(baltra(&["top", "--once"]).contains("device0"));
    assert_eq!(baltra(&["down"]).trim(), "down");
}

#[test]
fn a_remote_client_needs_a_token() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let options = Options {
        set: vec![format!("listen.tcp=127.0.0.1:{port}")],
        ..Options::default()
    };
    let daemon = Daemon::start_with(BALTRA, &options).unwrap();
    daemon.text(&["tenant", "add", "red"]).unwrap();
    let token = daemon.text(&["tenant", "token", "red"]).unwrap();
    let endpoint = format!("tcp://127.0.0.1:{port}").parse().unwrap();
    let list = |token: &str| {
        let mut hello = hello("");
        hello.token = token.to_owned();
        baltra_session::client::Client::list(&endpoint, hello)
    };
    let denied = list("").unwrap_err().to_string();
    assert!(denied.contains("BALTRA_TOKEN"), "{denied}");
    let denied = list("baltra_wrong").unwrap_err().to_string();
    assert!(denied.contains("tenant token"), "{denied}");
    let welcome = list(token.trim()).unwrap();
    assert_eq!((welcome.tenant.as_str(), welcome.devices.len()), ("red", 1));
}

#[test]
fn metrics_have_the_names_that_a_dashboard_expects() {
    use std::io::{Read, Write};
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let options = Options {
        set: vec![format!("metrics.address={address}")],
        ..Options::default()
    };
    let daemon = Daemon::start_with(BALTRA, &options).unwrap();
    let stream = daemon.connect().unwrap();
    let (welcome, _) = baltra_session::handshake::hello(&stream, &hello("device0")).unwrap();
    welcome.unwrap();
    let mut http = std::net::TcpStream::connect(address).unwrap();
    http.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut page = String::new();
    http.read_to_string(&mut page).unwrap();
    for name in [
        "baltra_device_busy_seconds_total{device=\"device0\",tenant=",
        "baltra_task_latency_seconds_bucket{le=\"+Inf\"",
        "baltra_queue_depth{",
        "baltra_bytes_total{",
        "baltra_reconfigurations_total{",
        "baltra_executors{",
        "baltra_sessions{",
        "baltra_memory_bytes{",
        "baltra_executor_deaths_total{",
    ] {
        assert!(page.contains(name), "{name} is not in\n{page}");
    }
}
