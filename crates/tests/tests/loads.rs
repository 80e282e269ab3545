//! Loads of images on devices that hold one image at a time, while the driver is at work: what is
//! reported, and faults in the middle of a load. The driver is PoCL, whose loads end when the test
//! allows it.

#[path = "../../cli/tests/common/program.rs"]
mod program;

use baltra_api::registry::AllocateRequest;
use baltra_testkit::{until, Daemon, Options, Service};
use baltra_tests::{baltra, compile_driver, executor_of, json, kill, session_count, tenants};
use baltra_wire::Reply;
use program::{source, Tenant};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A device that compiles, and one that holds one image at a time.
fn options(set: &[&str], device: &str) -> Options {
    let driver = compile_driver("gated_driver");
    let config = format!(
        "[[device]]\nname = 'maker'\nselect = '0'\n[[device]]\nname = 'fpga0'\nselect = '1'\n\
         image = 'exclusive'\ndriver = '{}'\n{device}\n",
        driver.display()
    );
    let set = set.iter().map(|s| s.to_string()).collect();
    Options {
        set,
        config,
        ..Options::default()
    }
}

fn start(options: &Options) -> Daemon {
    let daemon = Daemon::start_with(baltra(), options).unwrap();
    tenants(&daemon, &["red", "blue"]);
    daemon
}

/// A registry, and a node of its pool.
fn pool() -> (Service, Daemon) {
    let registry = Service::start(baltra(), "registry", &Options::default()).unwrap();
    let url = format!("node.registry={}", registry.url());
    let daemon = start(&options(&["node.name=east", &url], ""));
    until("the node has joined the pool", || {
        pooled(&registry)["state"] == "ready"
    })
    .unwrap();
    (registry, daemon)
}

fn images(daemon: &Daemon) -> [Vec<u8>; 2] {
    let maker = Tenant::new(daemon, "red", "maker");
    let images = ["one", "other"].map(|name| maker.binary(&source(name)));
    drop(maker);
    until("its session is over", || session_count(daemon) == 0).unwrap();
    images
}

/// The device in its manager's report.
fn device(daemon: &Daemon) -> Value {
    let devices = json(daemon, &["devices", "--local"]);
    let mut all = devices.as_array().unwrap().iter();
    all.find(|d| d["name"] == "fpga0").unwrap().clone()
}

/// The device in the registry's report.
fn pooled(registry: &Service) -> Value {
    let text = registry.text(&["devices", "--all", "--json"]).unwrap();
    let devices: Value = serde_json::from_str(&text).unwrap();
    let mut all = devices.as_array().unwrap().iter();
    let found = all.find(|d| d["name"] == "fpga0");
    found.cloned().unwrap_or_default()
}

/// Waits until the device's driver loads an image, and returns the image's digest.
fn loading(daemon: &Daemon) -> String {
    let mut digest = String::new();
    until("the driver loads an image", || {
        digest = device(daemon)["loading"].as_str().unwrap().to_owned();
        !digest.is_empty()
    })
    .unwrap();
    digest
}

/// Lets one load of an executor end.
fn finish_load(executor: u32) {
    let pid = rustix::process::Pid::from_raw(executor as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
}

/// A session that loads an image meanwhile; the result is whether the driver has loaded it.
fn load(tenant: Tenant, image: &[u8]) -> JoinHandle<(Tenant, bool)> {
    let image = image.to_vec();
    std::thread::spawn(move || {
        let (_, reply) = tenant.load(&image);
        (tenant, reply == Some(Reply::Binaries(vec![0])))
    })
}

fn allocate(registry: &Service, instance: &str) {
    let request = AllocateRequest {
        instance: instance.into(),
        query: "name=fpga0".into(),
        lease_s: Some(0),
        ..AllocateRequest::default()
    };
    let options = baltra_api::client::Options {
        url: registry.url().to_owned(),
        ..baltra_api::client::Options::default()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let reply = runtime.block_on(async {
        let mut instances = baltra_api::client::instances(&options).unwrap();
        instances.allocate(request).await.unwrap().into_inner()
    });
    assert!(reply.instance.is_some(), "{:?}", reply.refusal);
}

#[test]
fn an_executor_that_dies_in_a_load_leaves_the_image_unknown() {
    let (registry, daemon) = pool();
    let [one, other] = images(&daemon);
    let red = load(Tenant::new(&daemon, "red", "fpga0"), &one);
    let digest = loading(&daemon);
    // It is not reported as loaded before the driver has loaded it.
    until("the registry has the load", || {
        pooled(&registry)["loading"] == digest.as_str()
    })
    .unwrap();
    let is_blank = |device: &Value| device["image"] == "" && device["reconfigurations"] == 0;
    assert!(is_blank(&device(&daemon)), "{}", device(&daemon));
    assert_eq!(pooled(&registry)["regions"], serde_json::json!([]));

    kill(executor_of(&daemon, "red"));
    assert!(!red.join().unwrap().1);
    until("the load has ended", || device(&daemon)["loading"] == "").unwrap();
    assert!(is_blank(&device(&daemon)), "{}", device(&daemon));
    until("the registry has its end", || {
        pooled(&registry)["loading"] == ""
    })
    .unwrap();
    assert_eq!(pooled(&registry)["regions"], serde_json::json!([]));

    // Another tenant loads its image.
    let blue = load(Tenant::new(&daemon, "blue", "fpga0"), &other);
    let digest = loading(&daemon);
    finish_load(executor_of(&daemon, "blue"));
    assert!(blue.join().unwrap().1);
    until("it is loaded", || {
        device(&daemon)["image"] == digest.as_str()
    })
    .unwrap();
    assert_eq!(device(&daemon)["reconfigurations"], 1);
}

#[test]
fn a_session_s_load_that_never_ends_does_not_keep_the_device() {
    let daemon = start(&options(&[], "load_ms = 3000"));
    let [one, other] = images(&daemon);
    let (_, loaded) = load(Tenant::new(&daemon, "red", "fpga0"), &one)
        .join()
        .unwrap();
    assert!(!loaded);
    assert!(daemon.log().contains("it did not load an image in time"));
    until("its session is over", || device(&daemon)["sessions"] == 0).unwrap();
    assert_eq!(device(&daemon)["image"], "");
    let blue = load(Tenant::new(&daemon, "blue", "fpga0"), &other);
    loading(&daemon);
    finish_load(executor_of(&daemon, "blue"));
    assert!(blue.join().unwrap().1);
}

#[test]
fn a_turn_does_not_end_while_the_driver_loads_its_image() {
    let daemon = start(&options(&[], "turn_ms = 1"));
    let [one, other] = images(&daemon);
    let function = |tenant, instance| Tenant::instance(&daemon, tenant, "fpga0", Some(instance));
    let red = load(function("red", "a (preemptible)"), &one);
    let first = loading(&daemon);
    let blue = load(function("blue", "b (preemptible)"), &other);
    // Longer than a turn, and than a session must be idle at its end.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(loading(&daemon), first);
    assert!(!red.is_finished() && !blue.is_finished());
    finish_load(executor_of(&daemon, "red"));
    // Its turn is over at once, possibly before it has its answer.
    let red = red.join().unwrap();
    until("the other image has its turn", || loading(&daemon) != first).unwrap();
    finish_load(executor_of(&daemon, "blue"));
    assert!(blue.join().unwrap().1);
    assert_eq!(device(&daemon)["reconfigurations"], 2);
    drop(red);
}

#[test]
fn an_image_waits_no_longer_for_its_turn_than_the_operator_allows() {
    let turns = "turn_ms = 600000\nturn_min_ms = 600000\nturn_wait_ms = 300";
    let daemon = start(&options(&[], turns));
    let [one, other] = images(&daemon);
    let function = |tenant, instance| Tenant::instance(&daemon, tenant, "fpga0", Some(instance));
    let red = load(function("red", "a (preemptible)"), &one);
    loading(&daemon);
    finish_load(executor_of(&daemon, "red"));
    let (red, _) = red.join().unwrap();
    // Its work would keep the device for ten minutes.
    let work = red.be_busy();
    let blue = load(function("blue", "b (preemptible)"), &other);
    loading(&daemon);
    finish_load(executor_of(&daemon, "blue"));
    assert!(blue.join().unwrap().1);
    assert!(red.client.is_lost().is_some());
    drop((red, work));
}

#[test]
fn a_registry_that_dies_in_a_reconfiguration_finds_its_result() {
    let (mut registry, daemon) = pool();
    let [one, other] = images(&daemon);
    allocate(&registry, "web-1");
    until("the node has the allocation", || {
        let orders = std::fs::read_to_string(daemon.state_dir().join("orders.json"));
        orders.is_ok_and(|text| text.contains("web-1"))
    })
    .unwrap();
    let session = || Tenant::instance(&daemon, "red", "fpga0", Some("web-1"));
    let own = load(session(), &one);
    let digest = loading(&daemon);
    registry.kill().unwrap();
    finish_load(executor_of(&daemon, "red"));
    let (own, loaded) = own.join().unwrap();
    assert!(loaded, "{}", own.messages());
    let mut registry = registry.restart(&Options::default()).unwrap();
    until("the registry has the image", || {
        let device = pooled(&registry);
        device["state"] == "ready" && device["regions"][0]["digest"] == digest.as_str()
    })
    .unwrap();
    assert_eq!(pooled(&registry)["instances"], serde_json::json!(["web-1"]));
    drop(own);
    until("its session is over", || session_count(&daemon) == 0).unwrap();

    // The same with a load that fails meanwhile: its instance keeps the device.
    let own = load(session(), &other);
    loading(&daemon);
    registry.kill().unwrap();
    kill(executor_of(&daemon, "red"));
    assert!(!own.join().unwrap().1);
    let registry = registry.restart(&Options::default()).unwrap();
    until("the registry has the device", || {
        let device = pooled(&registry);
        device["state"] == "ready" && device["loading"] == ""
    })
    .unwrap();
    let device = pooled(&registry);
    assert_eq!(device["regions"], serde_json::json!([]), "{device}");
    assert_eq!(device["instances"], serde_json::json!(["web-1"]));
    let own = load(session(), &other);
    loading(&daemon);
    finish_load(executor_of(&daemon, "red"));
    assert!(own.join().unwrap().1);
}

/// The executor that loads an image for the operator.
fn operators_executor(daemon: &Daemon) -> u32 {
    let loads = |pid: &u32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter();
        tasks.flatten().flatten().any(|task| {
            let name = std::fs::read_to_string(task.path().join("comm"));
            name.is_ok_and(|name| name == "load\n")
        })
    };
    let mut found = None;
    until("an executor loads the operator's image", || {
        found = daemon.children().into_iter().find(loads);
        found.is_some()
    })
    .unwrap();
    found.unwrap()
}

#[test]
fn a_device_is_not_drained_while_its_driver_loads() {
    let (registry, daemon) = pool();
    let [one, other] = images(&daemon);
    let drain = |wait: &str| {
        let output = registry.baltra(&["device", "drain", "east/fpga0", "--wait", wait]);
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text)
    };
    let own = load(Tenant::new(&daemon, "red", "fpga0"), &one);
    loading(&daemon);
    let (code, text) = drain("2");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("has 1 sessions"), "{text}");
    finish_load(executor_of(&daemon, "red"));
    let (own, loaded) = own.join().unwrap();
    assert!(loaded, "{}", own.messages());
    drop(own);
    until("its session is over", || session_count(&daemon) == 0).unwrap();

    // The operator's load has no session.
    let file = daemon.state_dir().join("other.bit");
    std::fs::write(&file, &other).unwrap();
    let file = file.to_str().unwrap();
    daemon
        .text(&["accelerator", "push", file, "--name", "other"])
        .unwrap();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let load = ["accelerator", "load", "other", "--device", "fpga0"];
            daemon.text(&load)
        });
        loading(&daemon);
        let (code, text) = drain("2");
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("is loading the image"), "{text}");
        finish_load(operators_executor(&daemon));
        load.join().unwrap().unwrap();
    });
    let (code, text) = drain("60");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("has no sessions"), "{text}");
}

/// Deploys a function that adds `number` to each byte, with an image of its own.
fn deploy_adder(gateway: &Service, number: u8) {
    deploy_kernel(gateway, number, "add");
}

/// Like [`deploy_adder`], with a kernel of this name.
fn deploy_kernel(gateway: &Service, number: u8, kernel: &str) {
    let folder = gateway.state_dir().join("adder");
    std::fs::create_dir_all(&folder).unwrap();
    let source = format!(
        "kernel void {kernel}(global const uchar *a, global uchar *b) {{
           size_t i = get_global_id(0);
           b[i] = a[i] + {number};
         }}"
    );
    std::fs::write(folder.join("add.cl"), source).unwrap();
    let manifest = format!(
        "name: add-{number}
inputs: [{{ name: a, type: u8, shape: [n], codecs: [raw] }}]
outputs: [{{ name: b, type: u8, shape: [n], codecs: [raw] }}]
implementations: [{{ opencl: {{ source: add.cl, kernel: {kernel}, global: [n] }} }}]
limits: {{ timeout_ms: 86400000 }}
"
    );
    std::fs::write(folder.join("function.yaml"), manifest).unwrap();
    let folder = folder.to_str().unwrap();
    gateway.text(&["function", "deploy", folder]).unwrap();
}

/// A registry, a node with one device that holds one image at a time, and two gateways.
fn two_gateways(device: &str) -> (Service, Daemon, [Service; 2]) {
    let registry = Service::start(baltra(), "registry", &Options::default()).unwrap();
    let config = format!("[[device]]\nname = 'fpga0'\nimage = 'exclusive'\n{device}\n");
    let options = Options {
        set: vec![format!("node.registry={}", registry.url())],
        config,
        ..Options::default()
    };
    let daemon = Daemon::start_with(baltra(), &options).unwrap();
    until("the node has joined the pool", || {
        pooled(&registry)["state"] == "ready"
    })
    .unwrap();
    let gateway = |_| {
        let set = vec![format!("gateway.engine.registry={}", registry.url())];
        let options = Options {
            set,
            ..Options::default()
        };
        Service::start(baltra(), "gateway", &options).unwrap()
    };
    let gateways = [1, 2].map(gateway);
    (registry, daemon, gateways)
}

/// Calls the function of a gateway.
fn invoke(gateway: &Service, number: u8) {
    let name = format!("add-{number}");
    let answer = gateway.text(&["function", "invoke", &name, "--data", "ab"]);
    assert_eq!(answer.unwrap().as_bytes(), [b'a' + number, b'b' + number]);
}

#[test]
fn a_call_that_takes_several_turns_ends_while_another_image_waits() {
    let driver = compile_driver("slow_kernel_driver");
    let device = format!("driver = '{}'\nturn_ms = 100", driver.display());
    let (_registry, daemon, [long, short]) = two_gateways(&device);
    deploy_kernel(&long, 1, "slow");
    deploy_adder(&short, 2);
    invoke(&short, 2);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                invoke(&short, 2);
            }
        });
        let call = scope.spawn(|| invoke(&long, 1));
        let in_time = until("the long call ends", || call.is_finished());
        ended.store(true, Ordering::Relaxed);
        if in_time.is_err() {
            // Its call would keep the test from ending.
            std::process::abort();
        }
        others.join().unwrap();
    });
    assert!(self::device(&daemon)["reconfigurations"].as_u64() >= Some(2));
}

#[test]
fn functions_of_two_gateways_take_turns_on_one_device() {
    let (registry, daemon, gateways) = two_gateways("turn_ms = 100");
    std::thread::scope(|scope| {
        for (gateway, number) in gateways.iter().zip(1..) {
            scope.spawn(move || {
                deploy_adder(gateway, number);
                for _ in 0..8 {
                    invoke(gateway, number);
                }
            });
        }
    });
    let instances = pooled(&registry)["instances"].as_array().unwrap().len();
    assert_eq!(instances, 2, "both gateways have the device");
    assert!(device(&daemon)["reconfigurations"].as_u64() >= Some(2));
}
