//! A new release meets the state of the last one, and peers of another version.

use baltra_tests::{app, baltra, by_variables, daemon, root};
use baltra_wire::{Version, VERSION};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Output};

/// The daemons of one host on a state that another release has written. Dropping it stops them.
struct Host {
    home: tempfile::TempDir,
}

impl Host {
    /// Unpacks the state of `crates/tests/data` and starts the daemons on it.
    fn with_state_of(release: &str) -> Host {
        let home = tempfile::tempdir().unwrap();
        let archive = root().join(format!("crates/tests/data/state-{release}.tar.gz"));
        let unpacked = Command::new("tar")
            .args(["--extract", "--gzip", "--file"])
            .arg(archive)
            .arg("--directory")
            .arg(home.path())
            .status();
        assert!(unpacked.unwrap().success());
        let host = Host { home };
        host.up();
        host
    }

    fn up(&self) {
        let state = self.home.path().join("state");
        let state = state.to_str().unwrap();
        self.text(&[
            "up",
            "--state-dir",
            state,
            "--set",
            "node.name=isabela",
            "--set",
            "registry.address=127.0.0.1:0",
            "--set",
            "registry.metrics=",
            "--set",
            "gateway.address=127.0.0.1:0",
            "--set",
            "gateway.grpc_address=",
            "--set",
            "metrics.address=",
        ]);
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let run = self.home.path().join("run");
        let mut command = Command::new(baltra());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BALTRA_")) {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .env("BALTRA_RUNTIME_DIR", run)
            .output()
            .unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}{err}");
        out
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.text(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.run(&["down", "--drain-ms", "0"]);
    }
}

/// The entry of a list with this name.
fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let all = list.as_array().unwrap();
    let found = all.iter().find(|entry| entry["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {list}"))
}

/// Everything that the last release has stored is there, and can be used and changed.
fn opens_the_state_of(release: &str) {
    let host = Host::with_state_of(release);
    for _ in 0..2 {
        let tenants = host.json(&["tenant", "ls"]);
        assert_eq!(named(&tenants, "red")["weight"], 3, "{tenants}");
        assert_eq!(
            named(&tenants, "red")["quota"]["memory_bytes"],
            512 << 20,
            "{tenants}"
        );
        named(&tenants, "blue");
        let usage = host.text(&["tenant", "usage", "red"]);
        assert!(usage.contains("device0"), "{usage}");
        let accelerators = host.text(&["accelerator", "ls"]);
        assert!(accelerators.contains("edges"), "{accelerators}");
        let pools = host.text(&["pool", "ls"]);
        assert!(pools.contains("platform=Portable*"), "{pools}");
        let devices = host.text(&["devices", "--all"]);
        assert!(devices.contains("cordoned"), "{devices}");
        let functions = host.text(&["function", "list"]);
        assert!(functions.contains("sobel"), "{functions}");
        // The records that this release writes into it are there after the next start.
        host.text(&["down"]);
        host.up();
    }
    host.text(&["device", "uncordon", "isabela/device0"]);
    let pixels: Vec<u8> = (0..64).collect();
    let (body, edges) = (host.home.path().join("in"), host.home.path().join("out"));
    std::fs::write(&body, pixels).unwrap();
    let data = format!("@{}", body.display());
    let kind = "application/octet-stream";
    let accept = format!("Accept: {kind}");
    let call = [
        &["function", "invoke", "sobel", "--data", &data][..],
        &["--type", kind, "--header", &accept, "--output"],
        &[edges.to_str().unwrap()],
        &["--query", "width=64", "--query", "height=1"],
    ];
    // The gateway places the function once the registry offers the device again.
    let called = || host.run(&call.concat()).status.success();
    baltra_testkit::until("the function is called", called).unwrap();
    let expected = [&[4][..], &[8; 62], &[4]].concat();
    assert_eq!(std::fs::read(edges).unwrap(), expected);
}

#[test]
fn the_state_of_release_0_1_0_is_opened() {
    opens_the_state_of("0.1.0");
}

/// Forwards one connection's first message with another major version of the protocol, and the
/// answer.
fn forward(mut client: UnixStream, manager: &PathBuf, major: u8) -> std::io::Result<()> {
    let mut manager = UnixStream::connect(manager)?;
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let mut hello = vec![0; u32::from_le_bytes(length) as usize];
    client.read_exact(&mut hello)?;
    assert_eq!(u16::from(hello[0]), VERSION.major);
    hello[0] = major;
    manager.write_all(&length)?;
    manager.write_all(&hello)?;
    let mut answer = Vec::new();
    manager.read_to_end(&mut answer)?;
    client.write_all(&answer)
}

/// A program whose library has another major version than the manager gets no device, and its user
/// reads both versions and the remedy.
#[test]
fn a_program_with_another_release_s_library_is_refused_with_the_remedy() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("forwarded.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let manager = daemon.socket();
    let major = VERSION.major as u8 + 1;
    std::thread::spawn(move || {
        for client in listener.incoming() {
            // A client that has left is not an error.
            let _ = forward(client.unwrap(), &manager, major);
        }
    });
    let endpoint = format!("unix:{}", socket.display());
    let output = by_variables(&endpoint, app("devices")).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    let client = Version {
        major: major.into(),
        minor: VERSION.minor,
    };
    let wanted = format!(
        "the manager has version {VERSION} of the session protocol, the client {client}: \
         install the same release of Baltra on both"
    );
    assert!(err.contains(&wanted), "{err}");
}
