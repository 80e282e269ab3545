//! Common parts of these tests.
#![allow(dead_code)]

use baltra_testkit::{Daemon, Options, Service};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};

/// The path of the binary.
pub const BALTRA: &str = env!("CARGO_BIN_EXE_baltra");

/// Output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether a process runs; a zombie does not.
pub fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|rest| !rest.starts_with(['Z', 'X']))
}

/// A registry.
pub fn registry() -> Service {
    Service::start(BALTRA, "registry", &registry_options()).unwrap()
}

/// See [`registry`].
pub fn registry_options() -> Options {
    Options {
        set: vec!["registry.lease_s=4.0".into()],
        ..Options::default()
    }
}

/// Options of a node of a pool.
pub fn node_options(name: &str, registry: &str, config: &str) -> Options {
    Options {
        set: vec![
            format!("node.name={name}"),
            format!("node.registry={registry}"),
        ],
        config: config.into(),
        ..Options::default()
    }
}

/// Starts a node and waits until it has joined the pool.
pub fn node(name: &str, registry: &Service, config: &str) -> Daemon {
    let options = node_options(name, registry.url(), config);
    let daemon = Daemon::start_with(BALTRA, &options).unwrap();
    baltra_testkit::until("the node has joined the pool", || {
        state(registry, &format!("{name}/")) == "ready"
    })
    .unwrap();
    daemon
}

/// The pool's devices.
pub fn devices(registry: &Service) -> Vec<Value> {
    let text = registry.text(&["devices", "--all", "--json"]).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The pool's device whose name starts with a text.
pub fn device(registry: &Service, name: &str) -> Option<Value> {
    let named = |d: &Value| Some(format!("{}/{}", d["node"].as_str()?, d["name"].as_str()?));
    let mut all = devices(registry).into_iter();
    all.find(|d| named(d).is_some_and(|n| n.starts_with(name)))
}

/// A device's state; empty if it does not exist.
pub fn state(registry: &Service, name: &str) -> String {
    let state = device(registry, name).map(|d| d["state"].as_str().unwrap().to_owned());
    state.unwrap_or_default()
}

/// The pool's instances.
pub fn instances(registry: &Service) -> Vec<Value> {
    let text = registry.text(&["instances", "--json"]).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// `baltra run` with a registry, for programs that do not use OpenCL: the library need only be a
/// file.
pub fn run(registry: &Service) -> Command {
    let mut command = Command::new(BALTRA);
    command
        .arg("--runtime-dir")
        .arg(registry.runtime_dir())
        .arg("run")
        .env("BALTRA_LIBRARY", BALTRA)
        .env_remove("BALTRA_ENDPOINT")
        .env_remove("BALTRA_REGISTRY")
        .stdin(std::process::Stdio::null());
    command
}

/// Runs a shell command under `baltra run --device QUERY`.
pub fn run_line(registry: &Service, query: &str, line: &str) -> Output {
    run(registry)
        .args(["--device", query, "--", "sh", "-c", line])
        .output()
        .unwrap()
}

/// The response of an HTTP server.
pub fn get(url: &str, path: &str) -> String {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
