//! A node that is disconnected from the pool: its namespace's link goes down and up again.
//!
//! Each node of the pool has a network namespace. Another namespace contains the bridge, the
//! registry, the gateway and the callers. The test needs root and `ip`; if namespaces cannot be
//! created, it prints that and passes.

use baltra_testkit::{until, Daemon, Options, Service};
use baltra_tests::{native, terminate, Network, Running};
use serde_json::Value;
use std::process::Command;

const DOOR: &str = "10.78.0.1";
const NODES: [(&str, &str); 2] = [("east", "10.78.0.11"), ("west", "10.78.0.12")];
const TOKEN: &str = "known to the gateway and to both managers";
/// The output of `printf %s TOKEN | sha256sum`.
const TOKEN_SHA256: &str = "a661c85972de93cae9c2346e7dbc1920e2ff22d2c90e5ca16be387800d062ec1";

const FUNCTION: &str = "name: inverse
inputs: [{name: given, type: u8, shape: [n], codecs: [raw]}]
outputs: [{name: made, type: u8, shape: [n], codecs: [raw]}]
args: [given, made]
implementations:
  - opencl: {source: inverse.cl, kernel: inverse, global: [n]}
limits: {timeout_ms: 2000}
idle_s: 0
";
const SOURCE: &str = "kernel void inverse(global const uchar *given, global uchar *made) {
  size_t at = get_global_id(0);
  made[at] = given[at] ^ 32;
}
";

struct Pool {
    gateway: Service,
    _nodes: Vec<Daemon>,
    registry: Service,
    network: Network,
}

impl Pool {
    fn start(network: Network) -> Pool {
        let door = network.baltra("door");
        let options = |set: &[&str]| Options {
            set: set.iter().map(|text| text.to_string()).collect(),
            ..Options::default()
        };
        let address = format!("registry.address={DOOR}:7480");
        let set = [&address, "registry.open=true", "registry.lease_s=2"];
        let registry = Service::start(&door, "registry", &options(&set)).unwrap();
        let joins = format!("node.registry={}", registry.url());
        let nodes = NODES.map(|(node, address)| {
            let name = format!("node.name={node}");
            let listens = format!("listen.tcp={address}:7473");
            let options = Options {
                config: format!(
                    "[[tenant]]\nname = 'functions'\ntoken_sha256 = '{TOKEN_SHA256}'\n"
                ),
                ..options(&[&name, &joins, &listens])
            };
            Daemon::start_with(network.baltra(node), &options).unwrap()
        });
        let routed = format!("gateway.engine.registry={}", registry.url());
        let token = format!("gateway.engine.token={TOKEN}");
        let gateway = Service::start(&door, "gateway", &options(&[&routed, &token])).unwrap();
        let pool = Pool {
            gateway,
            _nodes: nodes.into(),
            registry,
            network,
        };
        until("both nodes are in the pool", || pool.ready().len() == 2).unwrap();
        pool
    }

    fn ask(&self, words: &[&str]) -> Value {
        let words = [words, &["--registry", self.registry.url(), "--json"]].concat();
        let text = self.registry.text(&words).unwrap();
        serde_json::from_str(&text).expect("JSON")
    }

    /// Nodes with allocatable devices.
    fn ready(&self) -> Vec<String> {
        let devices = self.ask(&["devices"]);
        let devices = devices.as_array().expect("a list").iter();
        let ready = devices.filter(|d| d["state"] == "ready");
        ready.map(|d| d["node"].as_str().unwrap().into()).collect()
    }

    /// Instances whose name contains `part`: name, node, whether that node is silent.
    fn instances(&self, part: &str) -> Vec<(String, String, bool)> {
        let all = self.ask(&["instances"]);
        let all = all.as_array().expect("a list").iter();
        let given = all.filter_map(|instance| {
            let (name, device) = (instance["name"].as_str()?, &instance["devices"][0]);
            let node = device["node"].as_str()?.to_owned();
            Some((name.to_owned(), node, device["silent"] == true))
        });
        given.filter(|(name, ..)| name.contains(part)).collect()
    }

    /// A program that requests a device of the node from the registry.
    fn run(&self, node: &str, program: &[&str]) -> Command {
        let mut command = native(self.network.baltra("door"));
        command
            .env_remove("OCL_ICD_VENDORS")
            .env_remove("BALTRA_REGISTRY")
            .env("BALTRA_TOKEN", TOKEN)
            .arg("--runtime-dir")
            .arg(self.registry.runtime_dir())
            .args(["run", "--registry", self.registry.url()])
            .args(["--device", &format!("node={node}"), "--"])
            .args(program);
        command
    }

    /// Calls the function; the response must be correct or an error.
    fn call(&self, text: &str) -> Option<()> {
        let words = ["function", "invoke", "inverse", "--data", text];
        let gateway = ["--gateway", self.gateway.url()];
        let answer = self.gateway.text(&[&words[..], &gateway].concat()).ok()?;
        let expected: Vec<u8> = text.bytes().map(|byte| byte ^ 32).collect();
        assert_eq!(answer.as_bytes(), expected, "a wrong answer");
        Some(())
    }
}

#[test]
fn a_node_that_is_cut_off_leaves_the_pool_and_comes_back_with_its_allocations() {
    let Some(network) = Network::new(DOOR, &NODES) else {
        return;
    };
    let pool = Pool::start(network);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("function.yaml"), FUNCTION).unwrap();
    std::fs::write(directory.path().join("inverse.cl"), SOURCE).unwrap();
    let path = directory.path().to_str().unwrap();
    let deploy = ["function", "deploy", path, "--gateway", pool.gateway.url()];
    pool.gateway.text(&deploy).unwrap();
    until("the function answers", || pool.call("before").is_some()).unwrap();
    let function = pool.instances("inverse");
    let [(_, cut, _)] = &function[..] else {
        panic!("one device for the function: {function:?}");
    };
    // Another instance was allocated the same device, and keeps it while it runs.
    let mut keeper = Running::start(pool.run(cut, &["sleep", "600"]));
    let mut kept = String::new();
    until("the other instance has its device", || {
        let others = pool.instances("");
        let mut others = others
            .into_iter()
            .filter(|(name, ..)| !name.contains("inverse"));
        kept = others.next().map_or(String::new(), |(name, ..)| name);
        !kept.is_empty()
    })
    .unwrap();

    pool.network.link(cut, "down").unwrap();
    until("the registry has withdrawn the node", || {
        pool.ready().len() == 1
    })
    .unwrap();
    assert_ne!(pool.ready(), [cut.as_str()]);
    assert_eq!(pool.instances(&kept), [(kept.clone(), cut.clone(), true)]);
    until("the function goes on at the other node", || {
        pool.call("during").is_some()
    })
    .unwrap();
    let moved = pool.instances("inverse");
    assert!(
        moved.iter().any(|(_, node, silent)| node != cut && !silent),
        "{moved:?}"
    );

    pool.network.link(cut, "up").unwrap();
    until("the node is back by itself", || pool.ready().len() == 2).unwrap();
    assert_eq!(pool.instances(&kept), [(kept.clone(), cut.clone(), false)]);
    assert!(!keeper.has_ended());
    let listed = Running::run(pool.run(cut, &["clinfo", "-l"])).ok();
    assert!(
        listed.out.contains("Device #0"),
        "{}{}",
        listed.out,
        listed.err
    );
    until("the function answers", || pool.call("after").is_some()).unwrap();
    terminate(keeper.pid());
    keeper.finish();
}
