//! Selection of the served devices, with test drivers in addition to PoCL.

mod common;

use baltra_testkit::{Daemon, Options};
use common::{text, BALTRA};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The drivers installed on a host: one without devices, one with two GPUs, a second one for the
/// first of these GPUs, a file that is not a library, and PoCL.
struct Host {
    home: tempfile::TempDir,
}

impl Host {
    fn new() -> Host {
        let home = tempfile::tempdir().unwrap();
        let host = Host { home };
        std::fs::create_dir(host.vendors()).unwrap();
        host.announce("a-empty", &host.driver("empty", 0, 1));
        host.announce("b-gpus", &host.driver("gpus", 2, 0x17));
        host.announce("c-again", &host.driver("again", 1, 0x17));
        host.announce("d-broken", Path::new("/etc/hostname"));
        let pocl = std::fs::read_to_string("/etc/OpenCL/vendors/pocl.icd").unwrap();
        host.announce("e-pocl", Path::new(pocl.trim()));
        host
    }

    fn vendors(&self) -> PathBuf {
        self.home.path().join("vendors")
    }

    fn announce(&self, name: &str, library: &Path) {
        let file = self.vendors().join(format!("{name}.icd"));
        std::fs::write(file, format!("{}\n", library.display())).unwrap();
    }

    /// Installs a driver with `count` devices from this PCI bus on.
    fn driver(&self, name: &str, count: usize, bus: u32) -> PathBuf {
        let library = self.home.path().join(format!("lib{name}.so"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/driver.c");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-fvisibility=hidden"])
            .arg(format!("-DCOUNT={count}"))
            .arg(format!("-DBUS={bus}"))
            .arg("-o")
            .args([&library, &source])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        library
    }

    fn options(&self, config: &str) -> Options {
        Options {
            set: vec![format!("paths.vendors={}", self.vendors().display())],
            config: config.into(),
            ..Options::default()
        }
    }

    fn start(&self, config: &str) -> anyhow::Result<Daemon> {
        Daemon::start_with(BALTRA, &self.options(config))
    }

    fn gpus(&self) -> PathBuf {
        self.home.path().join("libgpus.so")
    }
}

/// Name, selector and state of each device.
fn served(daemon: &Daemon) -> Vec<(String, String, String)> {
    let devices: Value =
        serde_json::from_str(&daemon.text(&["devices", "--json"]).unwrap()).unwrap();
    let field = |d: &Value, key: &str| d[key].as_str().unwrap().to_owned();
    let devices = devices.as_array().unwrap().iter();
    devices
        .map(|d| (field(d, "name"), field(d, "select"), field(d, "state")))
        .collect()
}

const FIRST: &str = "17171717-1717-1717-1717-171717171717";
const SECOND: &str = "18181818-1818-1818-1818-181818181818";

fn expect(daemon: &Daemon, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, select)| (name.to_string(), select.to_string(), "ready".to_owned()))
        .collect();
    assert_eq!(served(daemon), expected);
}

#[test]
fn without_configuration_every_device_of_every_driver_is_served_once() {
    let host = Host::new();
    let daemon = host.start("").unwrap();
    expect(
        &daemon,
        &[("device0", FIRST), ("device1", SECOND), ("device2", "0")],
    );
    // The processor's device works.
    let stream = daemon.connect().unwrap();
    let hello = baltra_testkit::hello("device2");
    let (welcome, _) = baltra_session::handshake::hello(&stream, &hello).unwrap();
    welcome.unwrap();
}

#[test]
fn a_number_selects_by_place_and_not_by_name() {
    let host = Host::new();
    let gpus = host.gpus();
    let entry = |name: &str, driver: &str, select: &str| {
        format!("[[device]]\nname = '{name}'\ndriver = '{driver}'\nselect = '{select}'\n")
    };
    let library = gpus.to_str().unwrap();
    for (one, other) in [
        (entry("one", library, "0"), entry("other", library, "1")),
        (entry("one", "auto", "0"), entry("other", "auto", "1")),
        (
            entry("one", library, "17:00.0"),
            entry("other", "auto", SECOND),
        ),
    ] {
        let daemon = host.start(&(one + &other)).unwrap();
        expect(&daemon, &[("one", FIRST), ("other", SECOND)]);
    }
    let daemon = host.start(&entry("gpu", library, "H100")).unwrap();
    expect(&daemon, &[("gpu0", FIRST), ("gpu1", SECOND)]);
}

#[test]
fn two_entries_that_are_one_device_are_refused() {
    let host = Host::new();
    for (one, other) in [
        ("1", "1"),
        ("1", "18:00.0"),
        ("H100", SECOND),
        ("all", "all"),
    ] {
        let entry = |select: &str| {
            format!(
                "[[device]]\ndriver = '{}'\nselect = '{select}'\n",
                host.gpus().display()
            )
        };
        let error = host.start(&(entry(one) + &entry(other))).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("'device[1]' and 'device[0]' select the same device"),
            "{message}"
        );
    }
}

#[test]
fn the_doctor_says_what_is_served_and_why_not() {
    let host = Host::new();
    let vendors = host.vendors().display().to_string();
    let doctor = |runtime: &Path| {
        let output = Command::new(BALTRA)
            .arg("--runtime-dir")
            .arg(runtime)
            .args(["doctor", "--json"])
            .env("BALTRA_PATHS__VENDORS", &vendors)
            .output()
            .unwrap();
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = all.as_array().unwrap().clone();
        let of = |what: &str| {
            let own = all.iter().filter(|f| f["what"] == what);
            own.map(|f| f["found"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        (of("OpenCL driver"), of("device"))
    };
    let (drivers, devices) = doctor(&host.home.path().join("run"));
    let contains = |all: &[String], words: &[&str]| {
        let is = |line: &&String| words.iter().all(|w| line.contains(w));
        assert!(all.iter().any(|line| is(&line)), "{words:?} in {all:#?}");
    };
    contains(&drivers, &["libgpus.so"]);
    contains(&drivers, &["libempty.so", "it has no device on this host"]);
    contains(&drivers, &["/etc/hostname", "cannot load"]);
    contains(
        &devices,
        &[
            "0: Shim H100 1",
            "0000:17:00.0",
            FIRST,
            "would serve it as device0",
        ],
    );
    contains(&devices, &["1: Shim H100 1", "would serve it as device1"]);
    contains(&devices, &["2: ", "would serve it as device2"]);
    contains(
        &devices,
        &[
            "libagain.so",
            "not served: it is served through",
            "libgpus.so",
        ],
    );

    let only_second = format!(
        "[[device]]\ndriver = '{}'\nselect = '1'\n",
        host.gpus().display()
    );
    let daemon = host.start(&only_second).unwrap();
    let (_, devices) = doctor(&daemon.runtime_dir());
    contains(
        &devices,
        &["0: Shim H100 1", "not served by the running manager"],
    );
    contains(&devices, &["1: Shim H100 1", "served as device0"]);
}

#[test]
fn up_on_a_host_without_a_device_names_the_reason() {
    let host = Host::new();
    for name in ["b-gpus", "c-again", "e-pocl"] {
        std::fs::remove_file(host.vendors().join(format!("{name}.icd"))).unwrap();
    }
    let message = host.start("").unwrap_err().to_string();
    for reason in [
        "libempty.so: it has no device",
        "/etc/hostname: cannot load",
    ] {
        assert!(message.contains(reason), "{message}");
    }
}
