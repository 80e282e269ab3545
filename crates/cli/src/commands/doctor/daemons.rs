//! The daemons: the running ones, whether the others could start, and whether the node has joined
//! its pool.

use super::Finding;
use crate::control::Control;
use crate::daemons::Daemon;
use baltra_api::control as proto;
use baltra_manager::options::PathOptions;
use std::net::{SocketAddr, TcpListener};

/// All findings about daemons.
pub fn findings(paths: &PathOptions) -> Vec<Finding> {
    let registry = baltra_registry::Options::default().address;
    let gateway = baltra_gateway::Options::default().address;
    let mut findings = vec![
        beside("registry", Daemon::Registry, registry, paths),
        manager(paths),
        beside("gateway", Daemon::Gateway, gateway, paths),
    ];
    findings.extend(pool(paths));
    findings
}

fn manager(paths: &PathOptions) -> Finding {
    let dir = paths.runtime.display();
    match Daemon::Manager.holder(paths) {
        Some(pid) => Finding::good("manager", format!("process {pid} serves {dir}")),
        None => Finding::good("manager", format!("none in {dir} (baltra up starts one)")),
    }
}

/// Checks a daemon that listens on a port, which another program may use.
fn beside(what: &'static str, daemon: Daemon, address: SocketAddr, paths: &PathOptions) -> Finding {
    let name = daemon.name();
    if let Some(pid) = daemon.holder(paths) {
        return match daemon.announcement(paths) {
            Some(announcement) => {
                Finding::good(what, format!("process {pid} serves {}", announcement.url))
            }
            None => Finding::weak(
                what,
                format!("process {pid} is not ready yet"),
                format!("see `baltra logs --daemon {name}`"),
            ),
        };
    }
    match TcpListener::bind(address) {
        Ok(_) => Finding::good(what, format!("none; {address} is free")),
        Err(error) => Finding::weak(
            what,
            format!("none, and cannot listen on {address} ({error})"),
            format!(
                "use another address (baltra up --set {name}.address=auto), or disable it (--set {name}.enabled=false)"
            ),
        ),
    }
}

/// Whether the node has joined its pool.
fn pool(paths: &PathOptions) -> Option<Finding> {
    Daemon::Manager.holder(paths)?;
    let mut control = Control::connect(paths).ok()?;
    let asked = control.call(|mut c| async move { c.status(proto::StatusRequest {}).await });
    let status = asked.ok().filter(|s| !s.registry.is_empty())?;
    Some(match status.registry_trouble.as_str() {
        "" => Finding::good("pool", format!("joined, registry {}", status.registry)),
        why => Finding::weak(
            "pool",
            format!("not joined, registry {}: {why}", status.registry),
            "running programs continue; check `node.registry` and `node.registry_token`",
        ),
    })
}
