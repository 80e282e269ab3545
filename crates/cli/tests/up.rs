//! All daemons of a host start together or not at all, and stop together.

mod common;

use common::{get, runs, text, BALTRA};
use serde_json::Value;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A host's directories; daemons that still run are stopped when it is dropped.
struct Home {
    dir: tempfile::TempDir,
    /// PoCL's devices (`POCL_DEVICES`).
    pocl_devices: &'static str,
}

impl Home {
    fn new() -> Home {
        let dir = tempfile::Builder::new().prefix("baltra-test-").tempdir();
        Home {
            dir: dir.unwrap(),
            pocl_devices: "pthread",
        }
    }

    fn runtime(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    fn baltra(&self, arguments: &[&str]) -> Output {
        Command::new(BALTRA)
            .arg("--runtime-dir")
            .arg(self.runtime())
            .args(arguments)
            .env_remove("BALTRA_ENDPOINT")
            .env_remove("BALTRA_REGISTRY")
            .env_remove("BALTRA_GATEWAY")
            .env("POCL_DEVICES", self.pocl_devices)
            .output()
            .unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.baltra(arguments);
        let message = text(&output.stderr);
        assert!(
            output.status.success(),
            "{arguments:?}: {message}\n{}",
            self.logs()
        );
        text(&output.stdout)
    }

    /// Runs `baltra up` on free ports.
    fn up(&self, more: &[&str]) -> Output {
        let state = self.dir.path().join("state");
        let mut arguments = vec!["up", "--state-dir", state.to_str().unwrap()];
        for set in [
            "metrics.address=",
            "registry.address=auto",
            "registry.metrics=",
            "gateway.address=auto",
            "gateway.grpc_address=",
        ] {
            arguments.extend(["--set", set]);
        }
        arguments.extend(more);
        self.baltra(&arguments)
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.text(&["status", "--json"])).unwrap()
    }

    fn logs(&self) -> String {
        let log = |name: &str| {
            let path = self.runtime().join(format!("{name}.log"));
            let text = std::fs::read_to_string(path).unwrap_or_default();
            format!("--- {name}\n{text}")
        };
        ["registry", "manager", "gateway"].map(log).join("")
    }

    /// The contents of the runtime directory, except logs and locks, which remain.
    fn left(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.runtime()) else {
            return Vec::new();
        };
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        let stays = |n: &String| [".log", ".lock"].iter().any(|e| n.ends_with(e));
        names.filter(|n| !stays(n)).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}---", self.logs());
        }
        self.baltra(&["down", "--drain-ms", "0"]);
    }
}

fn pids(status: &Value) -> Vec<u64> {
    let beside = ["registry", "gateway"].map(|name| status["daemons"][name]["pid"].as_u64());
    let all = beside.into_iter().chain([status["pid"].as_u64()]);
    all.flatten().collect()
}

#[test]
fn up_starts_everything_and_down_leaves_nothing() {
    let home = Home::new();
    let up = home.up(&[]);
    let message = text(&up.stdout);
    assert!(up.status.success(), "{}\n{}", text(&up.stderr), home.logs());
    for part in [
        "device0",
        "baltra.sock",
        "registry http://127.0.0.1:",
        "/function/",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let status = home.status();
    let pids = pids(&status);
    assert_eq!(pids.len(), 3, "{status}");
    assert!(pids.iter().all(|pid| runs(*pid)), "{status}");
    let shown = home.text(&["status"]);
    assert!(
        shown.contains("registry   http") && shown.contains("gateway    http"),
        "{shown}"
    );

    // The node has joined its own pool, and the gateway has no functions yet.
    baltra_testkit::until("the node is in its pool", || {
        home.text(&["devices", "--local", "--json"])
            .contains("\"ready\"")
    })
    .unwrap();
    assert_eq!(home.text(&["function", "list", "--json"]).trim(), "[]");
    for daemon in ["registry", "manager", "gateway"] {
        let log = home.text(&["logs", "--daemon", daemon]);
        assert!(log.contains("serving"), "{daemon}: {log}");
    }

    // A function whose accelerator no device runs is refused when it is deployed.
    let functions = home.dir.path().join("functions");
    write_adder(&functions, 1);
    let manifest = functions.join("add-1/function.yaml");
    let unfit = std::fs::read_to_string(&manifest).unwrap();
    let unfit = unfit.replace("kernel: add,", "kernel: add, device: { accelerator: fft },");
    std::fs::write(&manifest, unfit).unwrap();
    let refused = home.baltra(&["function", "deploy", functions.to_str().unwrap()]);
    let refused = text(&[refused.stdout, refused.stderr].concat());
    assert!(refused.contains("/device0 (target): "), "{refused}");
    assert_eq!(home.text(&["function", "list", "--json"]).trim(), "[]");

    // A second `baltra up` starts nothing.
    let again = text(&home.up(&[]).stdout);
    assert!(again.contains("already running"), "{again}");
    assert_eq!(self::pids(&home.status()), pids);

    assert_eq!(home.text(&["down"]).trim(), "down");
    assert!(!pids.iter().any(|pid| runs(*pid)));
    assert_eq!(home.left(), Vec::<String>::new());
    assert!(home.text(&["down"]).contains("nothing is running"));
}

#[test]
fn a_daemon_that_does_not_come_up_leaves_none() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let up = home.up(&["--set", &format!("gateway.address={address}")]);
    let message = text(&up.stderr);
    assert_eq!(up.status.code(), Some(1));
    for part in ["gateway", &address, "gateway.address", "=auto"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    for daemon in ["registry", "manager", "gateway"] {
        let lock = home.runtime().join(format!("{daemon}.lock"));
        let pid = std::fs::read_to_string(lock).unwrap();
        let pid: u64 = pid.trim().parse().unwrap();
        assert!(!runs(pid), "the {daemon} runs on");
    }
    assert_eq!(home.left(), Vec::<String>::new());
}

#[test]
fn every_section_is_checked_before_anything_starts() {
    let home = Home::new();
    for (set, part) in [
        ("gateway.adress=x", "adress"),
        ("registry.lease_s=0", "lease_s"),
        ("gateway.address=0.0.0.0:1", "gateway.address"),
        ("registry.enabled=maybe", "registry.enabled"),
        ("device.policy=lottery", "lottery"),
    ] {
        let up = home.up(&["--set", set]);
        assert_eq!(up.status.code(), Some(1), "{set}");
        let message = text(&up.stderr);
        assert!(message.contains(part), "{set}: {message}");
        assert!(!home.runtime().exists(), "{set}");
    }
}

#[test]
fn who_belongs_to_the_registry_shows_its_token() {
    for tokens in [
        "registry.token=sesame",
        "registry.tokens={ operator = 'o', node = 'n', application = 'a' }",
    ] {
        let home = Home::new();
        let up = home.up(&["--set", tokens]);
        assert!(up.status.success(), "{}\n{}", text(&up.stderr), home.logs());
        let status = home.status();
        assert_eq!(status["registry_trouble"], "", "{status}");
        let gateway = status["daemons"]["gateway"]["url"].as_str().unwrap();
        baltra_testkit::until("the gateway is let in, too", || {
            get(gateway, "/ui/api/state").contains("\"reachable\":true")
        })
        .unwrap();
        let stranger = home.baltra(&["devices"]);
        assert!(text(&stranger.stderr).contains("BALTRA_REGISTRY_TOKEN"));
    }
}

#[test]
fn what_is_switched_off_is_not_started() {
    let home = Home::new();
    let up = home.up(&[
        "--set",
        "registry.enabled=false",
        "--set",
        "gateway.enabled=false",
    ]);
    assert!(up.status.success(), "{}", text(&up.stderr));
    let status = home.status();
    assert_eq!(status["daemons"], serde_json::json!({}));
    assert_eq!(status["registry"], "");
    // A missing daemon is started in addition to the running ones.
    assert!(home
        .up(&["--set", "gateway.enabled=false"])
        .status
        .success());
    let pid = home.status()["daemons"]["registry"]["pid"]
        .as_u64()
        .unwrap();
    home.text(&["down"]);
    assert!(!runs(pid));
}

#[test]
fn a_dump_of_all_sections_loads_again() {
    let home = Home::new();
    let dump = text(
        &home
            .up(&["--dump-config", "--set", "gateway.enabled=false"])
            .stdout,
    );
    for part in ["[registry]", "[gateway]", "enabled = false", "127.0.0.1:0"] {
        assert!(dump.contains(part), "{part}: {dump}");
    }
    let file = home.dir.path().join("all.toml");
    std::fs::write(&file, &dump).unwrap();
    let again = home.baltra(&["up", "--dump-config", "--config", file.to_str().unwrap()]);
    assert_eq!(text(&again.stdout), dump, "{}", text(&again.stderr));
}

#[test]
fn in_the_foreground_all_end_with_the_first_to_end() {
    let home = Home::new();
    let mut command = Command::new(BALTRA);
    command.arg("--runtime-dir").arg(home.runtime());
    command
        .args(["up", "--foreground", "--state-dir"])
        .arg(home.dir.path().join("state"));
    for set in [
        "metrics.address=",
        "registry.address=auto",
        "registry.metrics=",
        "gateway.enabled=false",
    ] {
        command.args(["--set", set]);
    }
    command.stdout(std::process::Stdio::null());
    command.stderr(std::process::Stdio::null());
    let mut up = command.spawn().unwrap();
    let mut all = Vec::new();
    baltra_testkit::until("both daemons serve", || {
        let status = home.baltra(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        all = pids(&status);
        all.len() == 2 && status["ready"] == true
    })
    .unwrap();
    let registry = rustix::process::Pid::from_raw(all[0] as i32).unwrap();
    rustix::process::kill_process(registry, rustix::process::Signal::KILL).unwrap();
    assert_eq!(up.wait().unwrap().code(), Some(1));
    assert!(!all.iter().any(|pid| runs(*pid)));
}

/// Writes a function that adds `number` to each word, with an image of its own.
fn write_adder(folder: &std::path::Path, number: u32) {
    let name = format!("add-{number}");
    let folder = folder.join(&name);
    std::fs::create_dir_all(&folder).unwrap();
    let source = format!(
        "kernel void add(global const uint *a, global uint *b) {{
           size_t i = get_global_id(0);
           b[i] = a[i] + {number};
         }}"
    );
    std::fs::write(folder.join("add.cl"), source).unwrap();
    let manifest = format!(
        "name: {name}
inputs: [{{ name: a, type: u32, shape: [n], codecs: [raw, json] }}]
outputs: [{{ name: b, type: u32, shape: [n], codecs: [raw, json] }}]
implementations: [{{ opencl: {{ source: add.cl, kernel: add, global: [n] }} }}]
limits: {{ timeout_ms: 60000 }}
"
    );
    std::fs::write(folder.join("function.yaml"), manifest).unwrap();
}

#[test]
fn functions_take_turns_on_devices_that_hold_one_image() {
    let mut home = Home::new();
    home.pocl_devices = "pthread pthread";
    let config = home.dir.path().join("config.toml");
    let devices = "[[device]]\nname = 'fpga0'\nselect = '0'\nimage = 'exclusive'\nturn_ms = 200\n\
                   [[device]]\nname = 'fpga1'\nselect = '1'\nimage = 'exclusive'\nturn_ms = 200\n";
    std::fs::write(&config, devices).unwrap();
    let up = home.up(&["--config", config.to_str().unwrap()]);
    assert!(up.status.success(), "{}\n{}", text(&up.stderr), home.logs());
    let functions = home.dir.path().join("functions");
    for number in 1..=3 {
        write_adder(&functions, number);
    }
    home.text(&["function", "deploy", functions.to_str().unwrap()]);
    let invoke = |number: u32| {
        let name = format!("add-{number}");
        let json = [
            "--type",
            "application/json",
            "--header",
            "accept: application/json",
        ];
        let call = ["function", "invoke", &name, "--data", "[1, 2, 3]"];
        let output = home.text(&[&call[..], &json].concat());
        let expected = [1 + number, 2 + number, 3 + number];
        let reply: Value = serde_json::from_str(output.trim()).unwrap();
        assert_eq!(reply["b"], serde_json::json!(expected), "{name}");
    };
    // One after another, then all at once: more images than devices, each with demand.
    for number in [1, 2, 3, 1, 2, 3] {
        invoke(number);
    }
    std::thread::scope(|scope| {
        for number in 1..=3 {
            scope.spawn(move || (0..8).for_each(|_| invoke(number)));
        }
    });
    let devices: Value =
        serde_json::from_str(&home.text(&["devices", "--local", "--json"])).unwrap();
    let reconfigurations = devices.as_array().unwrap().iter().map(|device| {
        let count = device["reconfigurations"].as_u64();
        count.unwrap()
    });
    assert!(reconfigurations.sum::<u64>() >= 4, "{devices}");
    check_stored_accelerator(&home, &functions, &invoke);
}

/// Functions that name only an accelerator: their node's store has the image, which the first call
/// loads, and of which functions of the same accelerator make use without another load.
fn check_stored_accelerator(home: &Home, functions: &std::path::Path, invoke: &dyn Fn(u32)) {
    let stored: Value = serde_json::from_str(&home.text(&["accelerator", "ls", "--json"])).unwrap();
    let digest = stored[0]["digest"].as_str().unwrap();
    let image = home.dir.path().join(format!("state/images/{digest}.image"));
    home.text(&[
        "accelerator",
        "push",
        image.to_str().unwrap(),
        "--name",
        "adder",
    ]);
    let source = "source: add.cl";
    let write = |name: &str, accelerator: &str| {
        let folder = functions.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let manifest = std::fs::read_to_string(functions.join("add-1/function.yaml")).unwrap();
        let manifest = manifest.replace("name: add-1", &format!("name: {name}"));
        let manifest = manifest.replace(source, &format!("accelerator: {accelerator}"));
        std::fs::write(folder.join("function.yaml"), manifest).unwrap();
        folder
    };
    let deploy = |folder: &std::path::Path| {
        let output = home.baltra(&["function", "deploy", folder.to_str().unwrap()]);
        text(&[output.stdout, output.stderr].concat())
    };
    let refused = deploy(&write("unfit", "fft"));
    for device in ["/fpga0 (target): ", "/fpga1 (target): "] {
        assert!(refused.contains(device), "{refused}");
    }
    assert!(refused.contains("has no image"), "{refused}");
    assert!(refused.contains("(503)"), "{refused}");
    let reconfigured = || {
        let shown = home.text(&["devices", "--local", "--json"]);
        let devices: Value = serde_json::from_str(&shown).unwrap();
        let count = |device: &Value| device["reconfigurations"].as_u64();
        let all = devices.as_array().unwrap().iter();
        all.filter_map(count).sum::<u64>()
    };
    let call = |name: &str| {
        let json = ["--type", "application/json", "--data", "[1, 2, 3]"];
        let accept = ["--header", "accept: application/json"];
        let output = home.text(&[&["function", "invoke", name][..], &json, &accept].concat());
        let reply: Value = serde_json::from_str(output.trim()).unwrap();
        reply["b"][0].as_u64().unwrap() - 1
    };
    let mut number = 0;
    for name in ["add-a", "add-b"] {
        deploy(&write(name, "adder"));
        number = call(name);
        assert!((1..=3).contains(&number), "{name} adds {number}");
    }
    // Other accelerators take both devices; the next call loads the image again.
    (1..=3).filter(|n| u64::from(*n) != number).for_each(invoke);
    assert_eq!(call("add-a"), number);
    let before = reconfigured();
    for name in ["add-b", "add-a", "add-b"] {
        assert_eq!(call(name), number);
    }
    assert_eq!(reconfigured(), before, "they share the image");
}
