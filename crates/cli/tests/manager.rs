//! Tests of the manager's sockets: malformed input, failures, and cleanup.

use anyhow::Result;
use baltra_session::handshake;
use baltra_testkit::{hello, until, Daemon, Options};
use baltra_wire::{Refusal, Version, VERSION};
use std::io::{Read, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

const BALTRA: &str = env!("CARGO_BIN_EXE_baltra");

fn daemon() -> Daemon {
    Daemon::start(BALTRA).unwrap()
}

fn refused(daemon: &Daemon, bytes: &[u8]) -> Result<Refusal> {
    let mut stream = daemon.connect()?;
    stream.write_all(bytes)?;
    // Unread data in the manager's socket makes its close an error.
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut answer = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut answer)?;
    let answer: Result<baltra_wire::Welcome, Refusal> = baltra_wire::decode(&answer)?;
    Ok(answer.expect_err("such a hello must be refused"))
}

#[test]
fn bad_hellos_are_answered_and_disturb_nobody() {
    let daemon = daemon();
    let open = daemon.connect().unwrap();
    let (welcome, segment) = handshake::hello(&open, &hello("device0")).unwrap();
    assert!(welcome.is_ok() && segment.is_some());

    let mut garbage = 32u32.to_le_bytes().to_vec();
    garbage.extend([0xff; 32]);
    let refusal = refused(&daemon, &garbage).unwrap();
    assert!(matches!(refusal, Refusal::Malformed(_)), "{refusal}");

    let oversized = (1u32 << 30).to_le_bytes();
    let refusal = refused(&daemon, &oversized).unwrap();
    assert!(matches!(refusal, Refusal::Malformed(_)), "{refusal}");

    let mut newer = hello("device0");
    newer.version = Version {
        major: VERSION.major + 1,
        minor: 0,
    };
    let mut frame = handshake::frame(&newer).unwrap();
    frame.extend([0x55; 40]);
    let refusal = refused(&daemon, &frame).unwrap();
    assert!(matches!(refusal, Refusal::Version { .. }), "{refusal}");
    assert!(refusal.to_string().contains("same release"), "{refusal}");

    let (nowhere, _) = handshake::hello(&daemon.connect().unwrap(), &hello("nowhere")).unwrap();
    let refusal = nowhere.unwrap_err().to_string();
    assert!(refusal.contains("device0"), "says what there is: {refusal}");

    let mut liar = hello("device0");
    liar.token = "baltra_0123".into();
    let (denied, _) = handshake::hello(&daemon.connect().unwrap(), &liar).unwrap();
    assert!(matches!(denied, Err(Refusal::NotAllowed(_))));

    let mut named = hello("device0");
    named.tenant = "../../etc".into();
    let (denied, _) = handshake::hello(&daemon.connect().unwrap(), &named).unwrap();
    assert!(matches!(denied, Err(Refusal::NotAllowed(_))));

    let sessions = daemon.text(&["sessions", "--json"]).unwrap();
    assert_eq!(sessions.matches("\"tenant\"").count(), 1, "{sessions}");
}

#[test]
fn a_truncated_or_silent_hello_ends_with_its_time() {
    let daemon = Daemon::start_with(
        BALTRA,
        &Options {
            set: vec![
                "listen.hello_timeout_ms=100".into(),
                "listen.pending_max=2".into(),
            ],
            ..Options::default()
        },
    )
    .unwrap();
    let mut held = Vec::new();
    for part in [&b""[..], &[9, 0], &[9, 0, 0, 0, 1, 2]] {
        let mut stream = daemon.connect().unwrap();
        stream.write_all(part).unwrap();
        held.push(stream);
    }
    for mut stream in held {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    }
    let (welcome, _) = handshake::hello(&daemon.connect().unwrap(), &hello("")).unwrap();
    assert_eq!(welcome.unwrap().devices.len(), 1);
}

#[test]
fn many_connections_and_sessions_leave_nothing_behind() {
    let daemon = daemon();
    let session = || {
        let stream = daemon.connect().unwrap();
        let (welcome, _) = handshake::hello(&stream, &hello("device0")).unwrap();
        welcome.unwrap();
    };
    let none_open = || daemon.text(&["sessions", "--json"]).unwrap().trim() == "[]";
    session();
    until("the first session is over", none_open).unwrap();
    until("the pool is full again", || daemon.children().len() >= 3).unwrap();
    let (files, children) = (daemon.open_files(), daemon.children().len());
    for i in 0..200 {
        let stream = daemon.connect().unwrap();
        match i % 4 {
            0 => drop(stream),
            1 => (&stream).write_all(&[1, 2, 3]).unwrap(),
            _ => {
                drop(stream);
                session();
            }
        }
    }
    until("all sessions are over", none_open).unwrap();
    until("no descriptor is left", || daemon.open_files() <= files).unwrap();
    assert_eq!(daemon.children().len(), children);
    let usage = daemon.text(&["tenant", "usage", "--json"]).unwrap();
    assert!(usage.contains("\"sessions\": 101"), "{usage}");
}

#[test]
fn a_second_manager_on_the_same_directory_is_refused() {
    let daemon = daemon();
    let run = daemon.runtime_dir();
    let output = std::process::Command::new(BALTRA)
        .args(["manager", "--runtime-dir"])
        .arg(&run)
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        message.contains(&daemon.pid().to_string()) && message.contains("baltra down"),
        "{message}"
    );
    daemon.text(&["status"]).unwrap();
}

#[test]
fn down_ends_sessions_and_leaves_nothing() {
    let mut daemon = daemon();
    let mut stream = daemon.connect().unwrap();
    let (welcome, _) = handshake::hello(&stream, &hello("device0")).unwrap();
    welcome.unwrap();
    let children = daemon.children();
    assert!(!children.is_empty());
    // A terminal would show after a second that the command waits.
    let down = daemon.baltra(&["down", "--drain-ms", "1500"]).unwrap();
    assert!(down.status.success());
    let output = [down.stdout, down.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output, ["down\n", ""]);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    for pid in children {
        let there = std::path::Path::new("/proc").join(pid.to_string()).exists();
        assert!(!there, "process {pid} is left");
    }
    assert!(!daemon.socket().exists());
    let left = std::fs::read_dir(daemon.state_dir().join("executors")).unwrap();
    assert_eq!(left.count(), 0, "executors' directories");
    let message = daemon.baltra(&["status"]).unwrap();
    let message = String::from_utf8_lossy(&message.stderr).into_owned();
    assert!(message.contains("baltra up"), "{message}");
    let _ = daemon.kill();
}

#[test]
fn a_killed_executor_is_noticed_and_replaced() {
    let daemon = daemon();
    let mut stream = daemon.connect().unwrap();
    let (welcome, _) = handshake::hello(&stream, &hello("device0")).unwrap();
    welcome.unwrap();
    for pid in daemon.children() {
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    until("the session is gone", || {
        daemon.text(&["sessions", "--json"]).unwrap().trim() == "[]"
    })
    .unwrap();
    let (welcome, _) = handshake::hello(&daemon.connect().unwrap(), &hello("device0")).unwrap();
    welcome.unwrap();
    let devices = daemon.text(&["devices", "--json"]).unwrap();
    assert!(!devices.contains("\"executor_deaths\": 0"), "{devices}");
}

#[test]
fn tenants_tokens_and_usage_survive_a_restart() {
    let daemon = daemon();
    daemon
        .text(&["tenant", "add", "red", "--weight", "3", "--sessions", "1"])
        .unwrap();
    let token = daemon.text(&["tenant", "token", "red"]).unwrap();
    let mut as_red = hello("device0");
    as_red.token = token.trim().to_owned();
    let open = daemon.connect().unwrap();
    let (welcome, _) = handshake::hello(&open, &as_red).unwrap();
    assert_eq!(welcome.unwrap().tenant, "red");
    let (second, _) = handshake::hello(&daemon.connect().unwrap(), &as_red).unwrap();
    let refusal = second.unwrap_err().to_string();
    assert!(refusal.contains("tenant quota red"), "{refusal}");
    drop(open);

    let daemon = daemon.restart(&Options::default()).unwrap();
    let tenants = daemon.text(&["tenant", "ls", "--json"]).unwrap();
    assert!(tenants.contains("\"weight\": 3"), "{tenants}");
    let usage = daemon.text(&["tenant", "usage", "red", "--json"]).unwrap();
    assert!(usage.contains("\"sessions\": 1"), "{usage}");
    let (welcome, _) = handshake::hello(&daemon.connect().unwrap(), &as_red).unwrap();
    assert_eq!(welcome.unwrap().tenant, "red");
    daemon.text(&["tenant", "rm", "red"]).unwrap();
    let (denied, _) = handshake::hello(&daemon.connect().unwrap(), &as_red).unwrap();
    assert!(matches!(denied, Err(Refusal::NotAllowed(_))));
}

#[test]
fn an_image_that_the_driver_refuses_is_not_loaded() {
    let config = "[[device]]\nname = 'fpga0'\nimage = 'exclusive'\n";
    let options = Options {
        config: config.into(),
        ..Options::default()
    };
    let daemon = Daemon::start_with(BALTRA, &options).unwrap();
    let image = daemon.state_dir().join("sobel.bit");
    std::fs::write(&image, vec![7; 3 << 20]).unwrap();
    let load = ["accelerator", "load", "sobel", "--device", "fpga0"];
    assert!(daemon.text(&load).is_err());
    let path = image.to_str().unwrap();
    daemon
        .text(&["accelerator", "push", path, "--name", "sobel"])
        .unwrap();
    let refused = daemon.text(&load).unwrap_err().to_string();
    assert!(
        refused.contains("the driver refused the image: CL_INVALID"),
        "{refused}"
    );
    let devices = daemon.text(&["devices", "--json"]).unwrap();
    assert!(devices.contains("\"reconfigurations\": 0"), "{devices}");
    assert!(!devices.contains("sobel"), "{devices}");
    // The device does not hold it, so it may go.
    daemon.text(&["accelerator", "rm", "sobel"]).unwrap();
}

#[test]
fn a_driver_that_cannot_be_loaded_is_said() {
    let options = Options {
        set: vec!["device.driver=libnothing-of-the-kind.so".into()],
        ..Options::default()
    };
    let daemon = Daemon::start_with(BALTRA, &options).unwrap();
    let devices = daemon.text(&["devices", "--json"]).unwrap();
    assert!(devices.contains("\"state\": \"failed\""), "{devices}");
    let (refused, _) = handshake::hello(&daemon.connect().unwrap(), &hello("device0")).unwrap();
    let refusal = refused.unwrap_err().to_string();
    assert!(refusal.contains("libnothing-of-the-kind"), "{refusal}");
}

#[test]
fn sessions_outlive_their_manager_and_are_adopted() {
    let mut daemon = daemon();
    let stream = daemon.connect().unwrap();
    let mut own = hello("device0");
    own.instance = "web-1 (restarts)".into();
    let (welcome, _) = handshake::hello(&stream, &own).unwrap();
    welcome.unwrap();
    daemon.kill().unwrap();
    let daemon = daemon.restart(&Options::default()).unwrap();
    until("the executor says whose session it has", || {
        let sessions = daemon.text(&["sessions", "--json"]).unwrap();
        sessions.contains("web-1 (restarts)")
    })
    .unwrap();
    // A new session of the tenant goes to the same executor.
    let second = daemon.connect().unwrap();
    let (welcome, _) = handshake::hello(&second, &hello("device0")).unwrap();
    welcome.unwrap();
    let sessions = daemon.text(&["sessions"]).unwrap();
    let executors: std::collections::HashSet<&str> = sessions
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().rev().nth(1))
        .collect();
    assert_eq!(executors.len(), 1, "{sessions}");
    drop(stream);
    until("the adopted session ends as others do", || {
        let sessions = daemon.text(&["sessions", "--json"]).unwrap();
        !sessions.contains("web-1")
    })
    .unwrap();
}

#[test]
fn daemons_report_to_systemd_when_they_can_be_used() {
    for (name, more) in [
        ("manager", &["--set", "metrics.address="][..]),
        ("registry", &["--set", "registry.address=127.0.0.1:0"]),
        ("gateway", &["--set", "gateway.address=127.0.0.1:0"]),
    ] {
        let home = tempfile::tempdir().unwrap();
        let notify = home.path().join("notify");
        let socket = UnixDatagram::bind(&notify).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let (run, config) = (home.path().join("run"), home.path().join("config.toml"));
        std::fs::write(&config, "").unwrap();
        let mut daemon = Command::new(BALTRA)
            .args([name, "--config"])
            .arg(&config)
            .arg("--state-dir")
            .arg(home.path().join("state"))
            .arg("--runtime-dir")
            .arg(&run)
            .args(more)
            .env("NOTIFY_SOCKET", &notify)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut text = [0; 256];
        let mut len = 0;
        until("the daemon reports", || {
            len = socket.recv(&mut text).unwrap_or(0);
            len > 0 || daemon.try_wait().unwrap().is_some()
        })
        .unwrap();
        let ask = Command::new(BALTRA)
            .args(["status", "--json", "--runtime-dir"])
            .arg(&run)
            .output()
            .unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        let text = String::from_utf8_lossy(&text[..len]);
        assert!(text.starts_with("READY=1\n"), "{name}: '{text}'");
        if name == "manager" {
            assert!(text.contains(" devices can be used"), "{text}");
            let status = String::from_utf8_lossy(&ask.stdout);
            assert!(status.contains("\"ready\": true"), "{status}");
        }
    }
}
