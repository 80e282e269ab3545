//! Remote clients: TCP and TLS with a token, and broken connections.

use baltra_testkit::{until, Daemon, Options};
use baltra_tests::{
    app, baltra, by_variables, check_printed_lines, compile, free_port, kill, native,
    nothing_panicked, session_count, Cutter, Running,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

struct Remote {
    daemon: Daemon,
    port: u16,
    token: String,
}

impl Remote {
    fn start(set: &[&str]) -> Remote {
        Remote::start_with(&Options {
            set: set.iter().map(|s| s.to_string()).collect(),
            ..Options::default()
        })
    }

    fn start_with(options: &Options) -> Remote {
        let port = free_port();
        let mut options = options.clone();
        options
            .set
            .insert(0, format!("listen.tcp=127.0.0.1:{port}"));
        let daemon = Daemon::start_with(baltra(), &options).expect("a daemon starts");
        daemon.text(&["tenant", "add", "red"]).unwrap();
        let token = daemon.text(&["tenant", "token", "red"]).unwrap();
        Remote {
            daemon,
            port,
            token: token.trim().into(),
        }
    }

    /// A program that connects to `port`.
    fn client(&self, port: u16, program: impl AsRef<std::path::Path>) -> Command {
        let mut command = by_variables(&format!("tcp://127.0.0.1:{port}"), program);
        command.env("BALTRA_TOKEN", &self.token);
        command
    }
}

#[test]
fn programs_over_tcp_give_the_native_bytes() {
    let remote = Remote::start(&[]);
    let checksum = |mut command: Command| {
        command.args(["--json", "--n", "200", "--check", "--repeat", "3"]);
        let answer = Running::run(command).ok();
        let json: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
        json["checksum"].to_string()
    };
    let there = checksum(remote.client(remote.port, app("matmul")));
    assert_eq!(there, checksum(native(app("matmul"))));
    let mut command = remote.client(remote.port, app("bandwidth"));
    command.args(["--sizes", "1K,1M,33M", "--repeat", "2", "--check"]);
    Running::run(command).ok();
    let mut command = remote.client(remote.port, compile("work"));
    command.args(["200", "100000"]);
    Running::run(command).ok();
    let mut command = remote.client(remote.port, compile("prints_lines"));
    command.arg("20000");
    check_printed_lines(&Running::run(command).ok(), 20_000);
    until("all is over", || session_count(&remote.daemon) == 0).unwrap();
}

#[test]
fn without_the_right_token_there_is_no_device_and_the_reason_is_said() {
    let remote = Remote::start(&[]);
    for token in ["", "baltra_of_somebody_else"] {
        let mut command = remote.client(remote.port, compile("work"));
        command.arg("1").env("BALTRA_TOKEN", token);
        let answer = Running::run(command);
        assert!(!answer.status.success());
        assert!(answer.err.contains("not allowed"), "{answer:?}");
    }
}

#[test]
fn a_remote_client_killed_leaves_nothing() {
    let remote = Remote::start(&[]);
    let children = remote.daemon.children().len();
    for _ in 0..3 {
        let mut command = remote.client(remote.port, compile("work"));
        command.args(["0", "4000000"]);
        let mut running = Running::start(command);
        running.wait_line("round");
        running.wait_progress();
        kill(running.pid());
        running.finish();
    }
    // A relay keeps a session for a while, in case its client reconnects.
    until("the executor has no more of it", || {
        session_count(&remote.daemon) <= 3
    })
    .unwrap();
    drop(remote.daemon.text(&["tenant", "rm", "red"]).unwrap());
    until("the relays have ended", || {
        session_count(&remote.daemon) == 0 && remote.daemon.children().len() <= children + 1
    })
    .unwrap();
}

#[test]
fn tls_is_checked_against_the_authority_and_carries_the_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let certificate = directory.path().join("cert.pem");
    let key = directory.path().join("key.pem");
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let remote = Remote::start(&[
        &format!("listen.tls_cert={}", certificate.display()),
        &format!("listen.tls_key={}", key.display()),
    ]);
    let endpoint = format!("tls://localhost:{}", remote.port);
    let client = || {
        let mut command = by_variables(&endpoint, compile("work"));
        command
            .args(["50", "300000"])
            .env("BALTRA_TOKEN", &remote.token);
        command
    };
    let mut trusting = client();
    trusting.env("BALTRA_TLS_CA", &certificate);
    Running::run(trusting).ok();
    let stranger = Running::run(client());
    assert!(!stranger.status.success(), "{stranger:?}");
}

#[test]
fn random_frames_end_their_own_connection() {
    // The first round takes long enough for all processes of the daemon to have started.
    let remote = Remote::start_with(&Options {
        own_kernels: true,
        ..Options::default()
    });
    let mut command = remote.client(remote.port, compile("work"));
    command.arg("0");
    let mut neighbor = Running::start(command);
    neighbor.wait_line("round");
    let children = remote.daemon.children().len();
    let mut hello = baltra_testkit::hello("device0");
    hello.token = remote.token.clone();
    let hello = baltra_session::handshake::frame(&hello).unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..24 {
        let mut stream = TcpStream::connect(("127.0.0.1", remote.port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        if round % 2 == 0 {
            stream.write_all(&hello).unwrap();
            let mut len = [0; 4];
            stream.read_exact(&mut len).unwrap();
            let mut welcome = vec![0; u32::from_le_bytes(len) as usize];
            stream.read_exact(&mut welcome).unwrap();
        }
        let mut bytes = Vec::new();
        for at in 0..400u32 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Half of the inputs have valid frame headers: an existing kind and small numbers.
            let small = round % 4 < 2 && at % 5 < 4;
            let word = if small {
                random as u32 % 8
            } else {
                random as u32
            };
            bytes.extend(word.to_le_bytes());
        }
        // After a violation of the protocol the connection is closed.
        let _ = stream.write_all(&bytes);
    }
    neighbor.wait_progress();
    until("their sessions and relays have ended", || {
        session_count(&remote.daemon) == 1 && remote.daemon.children().len() <= children
    })
    .unwrap();
    neighbor.wait_progress();
    nothing_panicked(&remote.daemon);
}

#[test]
fn a_binary_travels_only_if_the_node_lacks_it() {
    // A store of binaries that is empty.
    let remote = Remote::start_with(&Options {
        own_kernels: true,
        ..Options::default()
    });
    let cutter = Cutter::to(remote.port);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("table.bin");
    let start = || {
        let before = cutter.bytes();
        let mut command = remote.client(cutter.port, compile("binary"));
        command.arg(&file).arg("32");
        let answer = Running::run(command).ok();
        assert!(answer.out.contains("found 13 11 7 0"), "{answer:?}");
        cutter.bytes() - before
    };
    // The program compiles its source and reads the binary.
    start();
    let size = std::fs::metadata(&file).unwrap().len();
    assert!(size > 32 << 20, "{size} bytes");
    let (first, second) = (start(), start());
    println!("binary of {size} bytes: first start {first} bytes, second {second}");
    assert!(first > size, "{first} bytes");
    assert!(second <= 64 << 10, "{second} bytes");
    // A damaged copy counts as missing.
    let stored = find(&remote.daemon.state_dir(), "binaries").expect("a store of binaries");
    for copy in std::fs::read_dir(stored).unwrap() {
        let copy = std::fs::OpenOptions::new()
            .write(true)
            .open(copy.unwrap().path());
        copy.unwrap().set_len(1000).unwrap();
    }
    assert!(start() > size);
    assert!(start() <= 64 << 10);
}

/// The folder with a name, anywhere below another.
fn find(folder: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    let folders = std::fs::read_dir(folder).ok()?;
    let mut paths = folders.map(|entry| entry.unwrap().path());
    paths.find_map(|path| {
        if path.ends_with(name) {
            Some(path)
        } else {
            find(&path, name)
        }
    })
}

#[test]
fn a_session_goes_on_after_its_connection_broke() {
    let remote = Remote::start(&[]);
    let cutter = Cutter::to(remote.port);
    let mut command = remote.client(cutter.port, compile("work"));
    command.args(["0", "500000"]);
    let mut running = Running::start(command);
    running.wait_line("round");
    for _ in 0..4 {
        running.wait_progress();
        assert!(cutter.cut() > 0, "a connection was open");
    }
    running.wait_progress();
    assert_eq!(session_count(&remote.daemon), 1, "the same session");
}

#[test]
fn large_transfers_survive_their_connection_byte_for_byte() {
    let remote = Remote::start(&[]);
    let cutter = Cutter::to(remote.port);
    let mut command = remote.client(cutter.port, app("bandwidth"));
    command.args(["--sizes", "48M,100K,33M", "--repeat", "16", "--check"]);
    let running = std::thread::spawn(move || Running::run(command));
    until("it has a session", || session_count(&remote.daemon) > 0).unwrap();
    let mut cuts = 0;
    // Limited, because a slow machine would make no progress.
    while !running.is_finished() && cuts < 12 {
        std::thread::sleep(Duration::from_millis(31));
        cuts += cutter.cut();
    }
    running.join().unwrap().ok();
    assert!(cuts > 0, "the path never broke");
}

#[test]
fn a_client_killed_in_a_large_transfer_leaves_nothing() {
    let remote = Remote::start(&[]);
    let children = remote.daemon.children().len();
    for pause_ms in [150, 250, 400] {
        let mut command = remote.client(remote.port, app("bandwidth"));
        command.args(["--sizes", "256M", "--repeat", "1000"]);
        let running = Running::start(command);
        until("it has a session", || session_count(&remote.daemon) > 0).unwrap();
        std::thread::sleep(Duration::from_millis(pause_ms));
        kill(running.pid());
        running.finish();
        until("its session is gone", || session_count(&remote.daemon) == 0).unwrap();
    }
    drop(remote.daemon.text(&["tenant", "rm", "red"]).unwrap());
    until("the relays have ended", || {
        remote.daemon.children().len() <= children + 1
    })
    .unwrap();
    nothing_panicked(&remote.daemon);
}
