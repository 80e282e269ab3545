//! Network namespaces of a test: one for each node, joined by a bridge.

use crate::baltra;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

fn run(program: &str, words: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{program} {}: {why}", words.join(" ")))
}

fn ip(words: &[&str]) -> Result<String, String> {
    run("ip", words)
}

/// Namespaces and the bridge between them, removed when dropped. The host's own network is
/// unchanged. The bridge is in a namespace of its own, `door`.
pub struct Network {
    made: Vec<String>,
    scripts: tempfile::TempDir,
}

impl Network {
    /// A network with these nodes and addresses; `door`: the bridge's address. `None`: the host
    /// cannot create namespaces, for the reason that was printed.
    pub fn new(door: &str, nodes: &[(&str, &str)]) -> Option<Network> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("passed over: network namespaces want root");
            return None;
        }
        match Network::make(door, nodes) {
            Ok(network) => Some(network),
            Err(why) => {
                eprintln!("passed over: no network namespaces here: {why}");
                None
            }
        }
    }

    fn make(address: &str, nodes: &[(&str, &str)]) -> Result<Network, String> {
        let scripts = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mut network = Network {
            made: Vec::new(),
            scripts,
        };
        let door = network.namespace("door")?;
        ip(&["-n", &door, "link", "add", "pool", "type", "bridge"])?;
        let address = format!("{address}/24");
        ip(&["-n", &door, "address", "add", &address, "dev", "pool"])?;
        ip(&["-n", &door, "link", "set", "pool", "up"])?;
        for (node, address) in nodes {
            let inside = network.namespace(node)?;
            let pair = ["netns", &door, "type", "veth", "peer", "name", "eth0"];
            let pair = [&["link", "add", node][..], &pair, &["netns", &inside]].concat();
            ip(&pair)?;
            ip(&["-n", &door, "link", "set", node, "master", "pool", "up"])?;
            let address = format!("{address}/24");
            ip(&["-n", &inside, "address", "add", &address, "dev", "eth0"])?;
            network.link(node, "up")?;
        }
        Ok(network)
    }

    fn name(&self, node: &str) -> String {
        // Two networks of one process differ in their scripts' directory.
        let place = self.scripts.path().file_name().unwrap_or_default();
        let place = place.to_string_lossy();
        let place = place.trim_start_matches('.');
        format!("baltra-test-{}-{place}-{node}", std::process::id())
    }

    fn namespace(&mut self, node: &str) -> Result<String, String> {
        let name = self.name(node);
        ip(&["netns", "add", &name])?;
        self.made.push(name.clone());
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
        Ok(name)
    }

    /// Sets a node's link `up` or `down`.
    pub fn link(&self, node: &str, state: &str) -> Result<(), String> {
        let inside = self.name(node);
        ip(&["-n", &inside, "link", "set", "eth0", state]).map(drop)
    }

    /// Limits what a node sends, for example to `100mbit`.
    pub fn limit(&self, node: &str, rate: &str) -> Result<(), String> {
        let inside = self.name(node);
        let queue = ["qdisc", "replace", "dev", "eth0", "root", "tbf"];
        let terms = ["rate", rate, "burst", "256kb", "latency", "50ms"];
        run("tc", &[&["-n", &inside][..], &queue, &terms].concat()).map(drop)
    }

    /// Ends a limit.
    pub fn unlimit(&self, node: &str) -> Result<(), String> {
        let inside = self.name(node);
        run(
            "tc",
            &["-n", &inside, "qdisc", "del", "dev", "eth0", "root"],
        )
        .map(drop)
    }

    /// Bytes that a node has sent.
    pub fn sent(&self, node: &str) -> Result<u64, String> {
        let inside = self.name(node);
        let text = ip(&["-n", &inside, "-s", "-j", "link", "show", "eth0"])?;
        let found: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let bytes = found[0]["stats64"]["tx"]["bytes"].as_u64();
        bytes.ok_or_else(|| format!("no count of bytes: {text}"))
    }

    /// `baltra` in a namespace. The process is replaced, so that its process id is the daemon's.
    pub fn baltra(&self, node: &str) -> PathBuf {
        let path = self.scripts.path().join(node);
        if !path.exists() {
            let (name, program) = (self.name(node), baltra());
            let text = format!(
                "#!/bin/sh\nexec ip netns exec {name} '{}' \"$@\"\n",
                program.display()
            );
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        path
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.made {
            let _ = ip(&["netns", "del", name]);
        }
    }
}
