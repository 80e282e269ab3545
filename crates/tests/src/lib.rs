//! Common parts of the integration tests: paths of built files, daemons and programs to run.
//!
//! The tests run the real `baltra` and `libbaltra_opencl.so` from the directory that they were
//! built into, PoCL as the device, and the example applications of `target/apps`. `make test`
//! builds all of that first.
#![forbid(unsafe_code)]

pub mod browser;
mod cutter;
mod mover;
mod network;
mod process;
mod program;
pub mod prometheus;
mod random;

pub use cutter::Cutter;
pub use mover::Mover;
pub use network::Network;
pub use process::{
    descriptors, ended, kill, map_count, memory_kib, processes_with, suspend, terminate, threads,
    Suspended,
};
pub use program::{check_printed_lines, compile, compile_driver, compile_static, Answer, Running};
pub use random::Random;

use baltra_testkit::{Daemon, Options};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The root of the repository.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository is there")
}

/// Path of a binary under test, in the build directory of this test.
pub fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let profile = test.parent().and_then(Path::parent);
    let path = profile.expect("target/PROFILE/deps/TEST").join(name);
    assert!(
        path.exists(),
        "{} is not there: run `make test`, or `cargo build --release` first",
        path.display()
    );
    path
}

/// The path of `baltra`.
pub fn baltra() -> PathBuf {
    built("baltra")
}

/// The path of an example application, or of `clbench`.
pub fn app(name: &str) -> PathBuf {
    let place = match name {
        "clbench" | "devices" => "target/bench",
        _ => "target/apps",
    };
    let path = root().join(place).join(name);
    assert!(path.exists(), "{}: run `make apps`", path.display());
    path
}

/// A daemon with the embedded configuration.
pub fn daemon() -> Daemon {
    Daemon::start(baltra()).expect("a daemon starts")
}

/// A daemon with some keys (`section.key=value`) changed.
pub fn daemon_with(set: &[&str]) -> Daemon {
    let options = Options {
        set: set.iter().map(|s| s.to_string()).collect(),
        ..Options::default()
    };
    Daemon::start_with(baltra(), &options).expect("a daemon starts")
}

/// Adds tenants without limits.
pub fn tenants(daemon: &Daemon, names: &[&str]) {
    for name in names {
        daemon.text(&["tenant", "add", name]).expect("a new tenant");
    }
}

fn clean(mut command: Command) -> Command {
    for variable in [
        "BALTRA_ENDPOINT",
        "BALTRA_TENANT",
        "BALTRA_TOKEN",
        "BALTRA_DEVICE",
        "BALTRA_POOL",
        "OCL_ICD_VENDORS",
        "OCL_ICD_FILENAMES",
    ] {
        command.env_remove(variable);
    }
    command
}

/// A program on the host's own driver.
pub fn native(program: impl AsRef<Path>) -> Command {
    let mut command = clean(Command::new(program.as_ref()));
    command.env("OCL_ICD_VENDORS", baltra_testkit::driver_icd());
    command
}

/// A program on a daemon's device, started by `baltra run`, which it replaces.
pub fn through(daemon: &Daemon, tenant: &str, program: impl AsRef<Path>) -> Command {
    let options: &[&str] = match tenant {
        "" => &[],
        tenant => &["--tenant", tenant],
    };
    through_with(daemon, options, program)
}

/// As [`through`], with these options of `baltra run`.
pub fn through_with(daemon: &Daemon, options: &[&str], program: impl AsRef<Path>) -> Command {
    let mut command = clean(Command::new(baltra()));
    command
        .env("BALTRA_RUNTIME_DIR", daemon.runtime_dir())
        .arg("run")
        .args(options)
        .arg("--")
        .arg(program.as_ref());
    command
}

/// A program that finds the daemon by environment variables only, with an `.icd` file for Baltra's
/// library.
pub fn by_variables(endpoint: &str, program: impl AsRef<Path>) -> Command {
    let vendors = root().join("target/tests/vendors");
    std::fs::create_dir_all(&vendors).expect("target can be written");
    let icd = vendors.join("baltra.icd");
    let library = built("libbaltra_opencl.so");
    std::fs::write(icd, format!("{}\n", library.display())).expect("target can be written");
    let mut command = clean(Command::new(program.as_ref()));
    command
        .env("OCL_ICD_VENDORS", vendors)
        .env("BALTRA_ENDPOINT", endpoint);
    command
}

/// The `--json` output of the tool.
pub fn json(daemon: &Daemon, arguments: &[&str]) -> serde_json::Value {
    let mut arguments = arguments.to_vec();
    arguments.push("--json");
    let text = daemon.text(&arguments).expect("the daemon answers");
    serde_json::from_str(&text).expect("JSON")
}

/// The executors of open sessions: tenant and process.
pub fn executors(daemon: &Daemon) -> Vec<(String, u32)> {
    let sessions = json(daemon, &["sessions"]);
    let sessions = sessions.as_array().expect("a list");
    let pair = |s: &serde_json::Value| {
        let tenant = s["tenant"].as_str().expect("a name").to_owned();
        (tenant, s["executor_pid"].as_u64().expect("a number") as u32)
    };
    sessions.iter().map(pair).collect()
}

/// The executor of a tenant's only session.
pub fn executor_of(daemon: &Daemon, tenant: &str) -> u32 {
    let all = executors(daemon);
    let own: Vec<u32> = all.iter().filter(|e| e.0 == tenant).map(|e| e.1).collect();
    assert_eq!(own.len(), 1, "sessions of {tenant}: {all:?}");
    own[0]
}

/// The output of a command that moves or suspends a session, repeated while it is refused because
/// the program builds a kernel, which takes as long as a busy host makes it.
pub fn once_built(mut run: impl FnMut() -> Output) -> Output {
    loop {
        let output = run();
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || !error.contains("a build takes longer than") {
            return output;
        }
    }
}

/// Number of open sessions.
pub fn session_count(daemon: &Daemon) -> usize {
    executors(daemon).len()
}

/// Fails the test if a process of the daemon has panicked; all of them write to the same log.
pub fn nothing_panicked(daemon: &Daemon) {
    let log = daemon.log();
    assert!(!log.contains("panicked"), "{log}");
}

/// A port of this host that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

/// A response over HTTP, head and body; the status must be 200.
pub fn get(address: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("an answer in UTF-8");
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer
}
