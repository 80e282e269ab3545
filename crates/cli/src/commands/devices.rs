//! `baltra status`, `baltra devices`, `baltra sessions`.

use crate::args::Devices;
use crate::control::Control;
use crate::daemons::{Announcement, Daemon};
use crate::output::{self, Table};
use crate::registry::{self, Registry};
use anyhow::Result;
use baltra_api::control as proto;
use baltra_manager::options::PathOptions;
use baltra_session::client::Client;
use baltra_session::Endpoint;
use baltra_wire::opencl::{
    DEVICE_GLOBAL_MEM_SIZE, DEVICE_MAX_COMPUTE_UNITS, DEVICE_NAME, DEVICE_VERSION,
};
use baltra_wire::{DeviceDescription, Hello, VERSION};
use serde_json::json;

/// `baltra status`
pub fn status(paths: &PathOptions, as_json: bool) -> Result<()> {
    let others = [Daemon::Registry, Daemon::Gateway];
    let others: Vec<_> = others
        .into_iter()
        .filter_map(|daemon| Some((daemon, daemon.holder(paths)?, daemon.announcement(paths))))
        .collect();
    let mut control = match Control::connect(paths) {
        Ok(control) => control,
        Err(error) if others.is_empty() => return Err(error),
        Err(_) => {
            if as_json {
                output::json(&json!({"daemons": daemons_json(&others)}));
            } else {
                println!("node       (no manager runs)");
                daemons(&others);
            }
            return Ok(());
        }
    };
    let s = control.call(|mut c| async move { c.status(proto::StatusRequest {}).await })?;
    if as_json {
        output::json(&json!({
            "node": s.node, "version": s.version, "protocol": s.protocol, "pid": s.pid,
            "uptime_s": s.uptime_s, "ready": s.ready, "draining": s.draining,
            "endpoints": s.endpoints, "metrics": s.metrics, "sessions": s.sessions,
            "executors": s.executors, "executor_deaths": s.executor_deaths,
            "runtime_dir": s.runtime_dir, "state_dir": s.state_dir,
            "registry": s.registry, "registry_trouble": s.registry_trouble,
            "daemons": daemons_json(&others),
        }));
        return Ok(());
    }
    let state = match (s.draining, s.ready) {
        (true, _) => "draining",
        (false, true) => "serving",
        (false, false) => "starting",
    };
    println!("node       {} ({state})", s.node);
    println!("version    {} (session protocol {})", s.version, s.protocol);
    println!("process    {}, up {}", s.pid, output::seconds(s.uptime_s));
    println!("sessions   {}", s.sessions);
    match s.executor_deaths {
        0 => println!("executors  {}", s.executors),
        died => println!("executors  {}, and {died} that died", s.executors),
    }
    for endpoint in s.endpoints {
        println!("endpoint   {endpoint}");
    }
    if !s.metrics.is_empty() {
        println!("metrics    {}", s.metrics);
    }
    match (s.registry.as_str(), s.registry_trouble.as_str()) {
        ("", _) => {}
        (url, "") => println!("pool       joined, registry {url}"),
        (url, why) => println!("pool       not joined, registry {url}: {why}"),
    }
    println!("runtime    {}", s.runtime_dir);
    println!("state      {}", s.state_dir);
    daemons(&others);
    Ok(())
}

/// A daemon other than the manager: its process, and its addresses.
type Beside = (Daemon, u32, Option<Announcement>);

fn daemons(all: &[Beside]) {
    for (daemon, pid, announcement) in all {
        let at = match announcement {
            Some(announcement) => announcement.url.as_str(),
            None => "starting",
        };
        println!("{:<10} {at} (process {pid})", daemon.name());
    }
}

fn daemons_json(all: &[Beside]) -> serde_json::Value {
    let one = |(daemon, pid, announcement): &Beside| {
        let url = announcement.as_ref().map(|t| t.url.clone());
        let others = announcement
            .as_ref()
            .map_or(Vec::new(), |t| t.others.clone());
        (
            daemon.name().to_owned(),
            json!({"pid": pid, "url": url, "others": others}),
        )
    };
    serde_json::Value::Object(all.iter().map(one).collect())
}

/// `baltra devices`: the pool's devices; or this node's, with operators' details if permitted.
pub fn devices(args: &Devices, paths: &PathOptions) -> Result<()> {
    let as_json = args.json.json;
    let named = std::env::var("BALTRA_ENDPOINT").unwrap_or_default();
    let wants_pool = args.query.is_some() || args.all || args.at.registry.is_some();
    if !args.local && (named.is_empty() || wants_pool) {
        let found = if wants_pool {
            Some(Registry::connect(&args.at, paths)?)
        } else {
            match registry::find(&args.at, paths) {
                Some(url) => Some(Registry::at(url, &args.at)?),
                None => None,
            }
        };
        if let Some(registry) = found {
            return super::pool::devices(&registry, args);
        }
    }
    if named.is_empty() || args.local {
        match Control::connect(paths) {
            Ok(control) => return operators(control, as_json),
            // Another user's daemon: only its public devices can be listed.
            Err(error) if !paths.session_socket().exists() => return Err(error),
            Err(_) => {
                return clients(
                    &format!("unix:{}", paths.session_socket().display()),
                    as_json,
                )
            }
        }
    }
    clients(&named, as_json)
}

fn operators(mut control: Control, as_json: bool) -> Result<()> {
    let reply = control.call(|mut c| async move { c.devices(proto::DevicesRequest {}).await })?;
    if as_json {
        let devices: Vec<_> = reply.devices.iter().map(device_json).collect();
        output::json(&json!(devices));
        return Ok(());
    }
    let mut table = Table::new(&[
        "NAME",
        "STATE",
        "MODEL",
        "OPENCL",
        ">UNITS",
        ">REGIONS",
        ">MEMORY",
        "ISOLATION",
        "POLICY",
        ">SLOTS",
        ">SESSIONS",
        "IMAGE",
    ]);
    for d in &reply.devices {
        let image = match (d.exclusive, d.image.as_str()) {
            (false, _) if !d.held.is_empty() => held(d),
            (false, _) => "shared".into(),
            (true, _) if !d.loading.is_empty() => format!("{:.12} (loading)", d.loading),
            (true, "") => "blank".into(),
            (true, digest) => digest.chars().take(12).collect(),
        };
        let slots = match d.slots {
            n if n >= 1 << 16 => "any".into(),
            n => n.to_string(),
        };
        table.row([
            d.name.clone(),
            d.state.clone(),
            d.model.clone(),
            d.device_version.clone(),
            d.compute_units.to_string(),
            d.regions.max(1).to_string(),
            output::bytes(d.memory_bytes),
            d.isolation.clone(),
            d.policy.clone(),
            slots,
            d.sessions.to_string(),
            image + &super::pool::waiting(d.waiting_images.len()),
        ]);
    }
    table.print();
    for d in reply.devices.iter().filter(|d| !d.reason.is_empty()) {
        eprintln!("{}: {}", d.name, d.reason);
    }
    Ok(())
}

/// The images of a board's regions, as `REGION:IMAGE`.
fn held(device: &proto::Device) -> String {
    let image = |i: &proto::HeldImage| match i.name.as_str() {
        "" => format!("{}:{:.12}", i.region, i.digest),
        name => format!("{}:{name}", i.region),
    };
    let held: Vec<String> = device.held.iter().map(image).collect();
    held.join(", ")
}

/// A device as JSON.
pub fn device_json(d: &proto::Device) -> serde_json::Value {
    json!({
        "name": d.name, "state": d.state, "reason": d.reason, "model": d.model,
        "vendor": d.vendor, "platform": d.platform, "device_version": d.device_version,
        "driver_version": d.driver_version, "driver": d.driver, "select": d.select,
        "isolation": d.isolation,
        "policy": d.policy, "slots": d.slots, "quantum_ms": d.quantum_ms,
        "exclusive": d.exclusive, "image": d.image, "loading": d.loading, "memory_bytes": d.memory_bytes,
        "memory_used_bytes": d.memory_used_bytes, "compute_units": d.compute_units,
        "region_count": d.regions.max(1), "host_memory": d.host_memory, "sessions": d.sessions, "executors": d.executors,
        "waiting": d.waiting, "busy_ns": d.busy_ns, "tasks": d.tasks, "bytes": d.bytes,
        "executor_deaths": d.executor_deaths, "reconfigurations": d.reconfigurations,
        "regions": d.held.iter().map(|i| json!({
            "index": i.region, "digest": i.digest, "name": i.name,
        })).collect::<Vec<_>>(),
        "waiting_images": d.waiting_images.iter().map(|i| json!({
            "digest": i.digest, "name": i.name, "sessions": i.sessions, "waiting_ms": i.waiting_ms,
        })).collect::<Vec<_>>(),
        "faults": d.faults.iter().map(|f| json!({
            "tenant": f.tenant, "cause": f.cause, "count": f.count,
        })).collect::<Vec<_>>(),
    })
}

fn clients(endpoints: &str, as_json: bool) -> Result<()> {
    let mut found: Vec<(String, DeviceDescription)> = Vec::new();
    for text in endpoints
        .split(',')
        .map(str::trim)
        .filter(|t| !t.is_empty())
    {
        let endpoint: Endpoint = text.parse()?;
        let variable = |name| std::env::var(name).unwrap_or_default();
        let hello = Hello {
            version: VERSION,
            tenant: variable("BALTRA_TENANT"),
            token: variable("BALTRA_TOKEN"),
            instance: format!("baltra devices ({})", std::process::id()),
            device: String::new(),
            resume: None,
            mirror: false,
        };
        let welcome = Client::list(&endpoint, hello)?;
        found.extend(
            welcome
                .devices
                .into_iter()
                .map(|d| (welcome.node.clone(), d)),
        );
    }
    if as_json {
        let devices: Vec<_> = found
            .iter()
            .map(|(node, d)| {
                json!({
                    "node": node, "name": d.name, "model": d.text(DEVICE_NAME),
                    "device_version": d.text(DEVICE_VERSION), "compute_units": d.number(DEVICE_MAX_COMPUTE_UNITS),
                    "memory_bytes": d.number(DEVICE_GLOBAL_MEM_SIZE), "host_memory": d.host_memory,
                })
            })
            .collect();
        output::json(&json!(devices));
        return Ok(());
    }
    let mut table = Table::new(&["NODE", "NAME", "MODEL", "OPENCL", ">UNITS", ">MEMORY"]);
    for (node, d) in found {
        table.row([
            node,
            d.name.clone(),
            d.text(DEVICE_NAME),
            d.text(DEVICE_VERSION),
            d.number(DEVICE_MAX_COMPUTE_UNITS).to_string(),
            output::bytes(d.number(DEVICE_GLOBAL_MEM_SIZE)),
        ]);
    }
    table.print();
    Ok(())
}

/// `baltra sessions`
pub fn sessions(paths: &PathOptions, as_json: bool) -> Result<()> {
    let mut control = Control::connect(paths)?;
    let request = proto::SessionsRequest { details: false };
    let reply = control.call(|mut c| async move { c.sessions(request).await })?;
    if as_json {
        let sessions: Vec<_> = reply
            .sessions
            .iter()
            .map(|s| {
                json!({
                    "id": s.id, "tenant": s.tenant, "device": s.device, "instance": s.instance,
                    "pid": s.pid, "uid": s.uid, "age_s": s.age_s,
                    "executor_pid": s.executor_pid, "transport": s.transport,
                })
            })
            .collect();
        output::json(&json!(sessions));
        return Ok(());
    }
    let mut table = Table::new(&["TENANT", "DEVICE", "INSTANCE", ">AGE", ">EXECUTOR", "OVER"]);
    for s in reply.sessions {
        table.row([
            s.tenant,
            s.device,
            s.instance,
            output::seconds(s.age_s),
            s.executor_pid.to_string(),
            s.transport,
        ]);
    }
    table.print();
    Ok(())
}
