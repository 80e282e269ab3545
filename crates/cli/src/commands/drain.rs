//! `baltra device drain --live`: the sessions of a device of this node move to its other devices, or
//! to other nodes of the pool, while their programs run.

use super::session::{move_session, place};
use crate::args::{Live, RegistryAt};
use crate::control::Control;
use crate::exit::Exit;
use crate::output;
use crate::registry::Registry;
use anyhow::Result;
use baltra_api::{control as proto, registry};
use baltra_manager::options::PathOptions;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// Sessions that come while others move are looked for this often.
const PASSES_MAX: usize = 3;

/// Most devices of other nodes that a session tries.
const ELSEWHERE_MAX: usize = 8;

/// The reasons for which a session has stayed: one of the session's own (with an empty name), or one
/// for each device.
type Reasons = Vec<(String, String)>;

/// A session that has moved.
struct Moved {
    session: u64,
    reply: proto::MoveSessionReply,
}

/// A drain in progress.
struct Drain<'a> {
    control: Control,
    /// The node's name and the registry, if the device was named as in the pool.
    pool: Option<(String, Registry)>,
    device: &'a str,
    options: &'a Live,
    moved: Vec<Moved>,
    reasons: BTreeMap<u64, Reasons>,
}

/// `baltra device drain --live`
pub fn live(
    name: &str,
    options: &Live,
    at: &RegistryAt,
    paths: &PathOptions,
    as_json: bool,
) -> Result<ExitCode> {
    let mut control = Control::connect(paths)?;
    let device = match name.split_once('/') {
        None => name,
        Some((node, device)) => {
            let status =
                control.call(|mut c| async move { c.status(proto::StatusRequest {}).await })?;
            anyhow::ensure!(
                status.node == node,
                "device '{name}' is not on this node, '{}' (run the command on '{node}')",
                status.node
            );
            device
        }
    };
    let devices = control.call(|mut c| async move { c.devices(proto::DevicesRequest {}).await })?;
    anyhow::ensure!(
        devices.devices.iter().any(|d| d.name == device),
        "there is no device '{device}' (`baltra devices --local` lists them)"
    );
    let pool = match name.split_once('/') {
        None => None,
        Some((node, _)) => {
            let request = registry::CordonRequest {
                device: name.to_owned(),
            };
            let registry = Registry::connect(at, paths)?;
            registry.call(|mut s| async move { s.operators.cordon(request).await })?;
            Some((node.to_owned(), registry))
        }
    };
    let mut drain = Drain {
        control,
        pool,
        device,
        options,
        moved: Vec::new(),
        reasons: BTreeMap::new(),
    };
    let stayed = drain.run()?;
    if as_json {
        drain.print_json(&stayed);
    } else {
        drain.print(&stayed);
    }
    Ok(Exit::of(stayed.is_empty()).into())
}

impl Drain<'_> {
    /// Moves all sessions that can move; returns those that are on the device afterwards.
    fn run(&mut self) -> Result<Vec<proto::Session>> {
        for _ in 0..PASSES_MAX {
            let open = self.open()?;
            let new = open
                .into_iter()
                .filter(|s| !self.reasons.contains_key(&s.id));
            let new: Vec<_> = new.collect();
            if new.is_empty() {
                break;
            }
            for session in new {
                self.send_away(&session)?;
            }
        }
        self.open()
    }

    /// The sessions on the device.
    fn open(&mut self) -> Result<Vec<proto::Session>> {
        let request = proto::SessionsRequest { details: true };
        let reply = self
            .control
            .call(|mut c| async move { c.sessions(request).await })?;
        let own = reply.sessions.into_iter();
        Ok(own
            .filter(|s| s.device == self.device && !s.suspended && s.remote.is_empty())
            .collect())
    }

    /// The node's other devices that serve, those with the fewest sessions first, then those of other
    /// nodes: those that the caller has named, and those of the pool.
    fn targets(&mut self) -> Result<Vec<String>> {
        let reply = self
            .control
            .call(|mut c| async move { c.devices(proto::DevicesRequest {}).await })?;
        let others = reply.devices.into_iter();
        let others = others.filter(|d| d.name != self.device && d.state == "ready");
        let mut others: Vec<_> = others.map(|d| (d.sessions, d.name)).collect();
        others.sort();
        let own = others.into_iter().map(|(_, name)| name);
        let mut targets: Vec<String> = own.chain(self.options.to.iter().cloned()).collect();
        targets.extend(self.elsewhere()?);
        Ok(targets)
    }

    /// Devices of the pool's other nodes that accept sessions, those with the fewest ones first.
    fn elsewhere(&self) -> Result<Vec<String>> {
        let Some((node, registry)) = &self.pool else {
            return Ok(Vec::new());
        };
        let request = registry::DevicesRequest::default();
        let reply = registry.call(|mut s| async move { s.operators.devices(request).await })?;
        let mut devices: Vec<_> = reply
            .devices
            .into_iter()
            .filter(|d| d.node != *node && d.state == "ready" && !d.cordoned && !d.draining)
            .filter_map(|d| Some((d.sessions, d.node, d.description?)))
            .filter(|(.., description)| !description.exclusive)
            .map(|(sessions, node, description)| (sessions, format!("{node}/{}", description.name)))
            .filter(|(_, name)| !self.options.to.contains(name))
            .collect();
        devices.sort();
        let devices = devices.into_iter().take(ELSEWHERE_MAX);
        Ok(devices.map(|(_, name)| name).collect())
    }

    /// Moves a session to the first device that it can move to.
    fn send_away(&mut self, session: &proto::Session) -> Result<()> {
        let mut reasons = Reasons::new();
        if !session.obstacle.is_empty() {
            reasons.push((String::new(), session.obstacle.clone()));
        }
        let targets = if reasons.is_empty() {
            self.targets()?
        } else {
            Vec::new()
        };
        for target in targets {
            let (device, remote) = place(&target)?;
            let request = proto::MoveSessionRequest {
                session: session.id,
                device,
                wait_ms: self.options.wait_ms,
                force: self.options.force,
                remote,
            };
            match move_session(&mut self.control, request) {
                Ok(reply) => {
                    let session = session.id;
                    self.moved.push(Moved { session, reply });
                    return Ok(());
                }
                Err(error) => reasons.push((target, format!("{error:#}"))),
            }
        }
        if reasons.is_empty() {
            reasons.push((String::new(), "the node has no other device".into()));
        }
        self.reasons.insert(session.id, reasons);
        Ok(())
    }

    /// Why a session is on the device.
    fn reasons(&self, session: &proto::Session) -> Reasons {
        let came = || {
            let reason = "it came while others moved (repeat the command)";
            vec![(String::new(), reason.to_owned())]
        };
        self.reasons.get(&session.id).cloned().unwrap_or_else(came)
    }

    fn print_json(&self, stayed: &[proto::Session]) {
        let moved = self.moved.iter().map(|m| {
            json!({
                "session": m.session, "to": m.reply.to, "took_us": m.reply.took_us,
                "stopped_us": m.reply.stopped_us, "bytes": m.reply.bytes,
                "stopped_bytes": m.reply.stopped_bytes, "stopped_objects": m.reply.stopped_objects,
            })
        });
        let stayed = stayed.iter().map(|s| {
            let reasons = self.reasons(s).into_iter();
            let reasons = reasons.map(|(device, reason)| json!({"to": device, "reason": reason}));
            json!({
                "session": s.id, "tenant": s.tenant, "instance": s.instance, "pid": s.pid,
                "reasons": reasons.collect::<Vec<_>>(),
            })
        });
        output::json(&json!({
            "device": self.device,
            "moved": moved.collect::<Vec<_>>(),
            "stayed": stayed.collect::<Vec<_>>(),
        }));
    }

    fn print(&self, stayed: &[proto::Session]) {
        for Moved { session, reply } in &self.moved {
            let stopped_ms = reply.stopped_us as f64 / 1e3;
            println!(
                "session {session} moved to {}, stopped for {stopped_ms:.1} ms",
                reply.to
            );
        }
        for session in stayed {
            println!("session {} ({}) stays:", session.id, session.instance);
            let shown: BTreeSet<String> = self.reasons(session).into_iter().map(|r| r.1).collect();
            for reason in shown {
                println!("  {reason}");
            }
        }
        match stayed.len() {
            0 => println!("{} has no sessions", self.device),
            n => println!("{} has {n} sessions", self.device),
        }
    }
}
