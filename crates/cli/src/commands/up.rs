//! `baltra up` and `baltra down`: start and stop all daemons of this host.

use crate::args::Up;
use crate::configuration::{self, quoted, DaemonConfiguration};
use crate::control::{self, Control};
use crate::daemons::{Daemon, Running, Tie};
use crate::output;
use anyhow::{bail, Result};
use baltra_api::control as proto;
use baltra_manager::options::PathOptions;
use baltra_registry::options::Role;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Longest time for the node to join the registry of this host.
const JOIN_PATIENCE: Duration = Duration::from_secs(10);

/// `baltra up`
pub fn up(args: &Up, runtime_dir: Option<&PathBuf>) -> Result<ExitCode> {
    let configuration = configuration::daemon_configuration(&args.config, runtime_dir)?;
    if args.dump_config {
        print!("{}", configuration.dump()?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut arguments: Vec<String> = Vec::new();
    if let Some(path) = &args.config.config {
        let path = std::path::absolute(path)?;
        arguments.extend(["--config".into(), path.to_string_lossy().into_owned()]);
    }
    for assignment in &args.config.set {
        arguments.extend(["--set".into(), assignment.clone()]);
    }
    let paths = configuration.manager.paths.clone();
    let tie = if args.foreground {
        Tie::Attached
    } else {
        Tie::Loose
    };
    let started = start(&configuration, &arguments, tie)?;
    if args.foreground {
        return stay(started, &paths);
    }
    announce(&paths)?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the daemons that are not running, one after the other. If one fails, those started before
/// it are stopped.
pub fn start(
    configuration: &DaemonConfiguration,
    arguments: &[String],
    tie: Tie,
) -> Result<Vec<Running>> {
    let paths = &configuration.manager.paths;
    let mut started: Vec<Running> = Vec::new();
    for daemon in Daemon::ALL {
        let wanted = match daemon {
            Daemon::Registry => configuration.registry.is_some(),
            Daemon::Manager => true,
            Daemon::Gateway => configuration.gateway.is_some(),
        };
        if !wanted {
            continue;
        }
        if let Some(pid) = daemon.holder(paths) {
            if tie == Tie::Attached {
                started.iter_mut().rev().for_each(Running::stop);
                bail!(
                    "the {} is already running (process {pid}): `baltra down` stops it",
                    daemon.name()
                );
            }
            match daemon {
                Daemon::Manager => println!("already running (process {pid})"),
                _ => println!("the {} is already running (process {pid})", daemon.name()),
            }
            continue;
        }
        let patience = (daemon == Daemon::Manager).then(|| {
            Duration::from_millis(configuration.manager.executors.start_timeout_ms + 5_000)
        });
        let environment = follows(daemon, configuration);
        let up = Running::start(daemon, paths, arguments, &environment, tie)
            .and_then(|running| running.wait_ready(patience, true));
        match up {
            Ok(running) => started.push(running),
            Err(error) => {
                started.iter_mut().rev().for_each(Running::stop);
                return Err(error);
            }
        }
    }
    if configuration.registry.is_some() && !started.is_empty() {
        wait_joined(paths)?;
    }
    Ok(started)
}

/// Waits up to a limit until the node has joined its pool, so that the next request for a device
/// succeeds. A registry that refuses the node does not make the start fail.
fn wait_joined(paths: &PathOptions) -> Result<()> {
    let mut control = Control::connect(paths)?;
    let deadline = Instant::now() + JOIN_PATIENCE;
    loop {
        let status =
            control.call(|mut c| async move { c.status(proto::StatusRequest {}).await })?;
        if status.registry.is_empty() || status.registry_trouble.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            eprintln!(
                "the node has not joined the pool of {} yet: {}",
                status.registry, status.registry_trouble
            );
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Defaults of a daemon's configuration that connect it to the other daemons of this host.
fn follows(daemon: Daemon, configuration: &DaemonConfiguration) -> Vec<(&'static str, String)> {
    let paths = &configuration.manager.paths;
    let own = configuration.registry.as_ref().and_then(|options| {
        let announcement = Daemon::Registry.announcement(paths)?;
        Some((announcement.url, options))
    });
    let mut variables = Vec::new();
    match daemon {
        Daemon::Registry => {}
        Daemon::Manager => {
            let node = &configuration.manager.node;
            if let Some((url, options)) = own.filter(|_| node.registry.is_empty()) {
                let token = options.token_of(Role::Node);
                variables.push(("BALTRA_NODE__REGISTRY", quoted(&url)));
                if node.registry_token.is_empty() && !token.is_empty() {
                    variables.push(("BALTRA_NODE__REGISTRY_TOKEN", quoted(token)));
                }
            }
        }
        Daemon::Gateway => {
            let Some(gateway) = &configuration.gateway else {
                return variables;
            };
            let engine = &gateway.engine;
            if !engine.registry.is_empty() || !engine.endpoints.is_empty() {
                return variables;
            }
            let node = &configuration.manager.node;
            let joined = match node.registry.as_str() {
                "" => own.map(|(url, options)| {
                    let token = options.token_of(Role::Application);
                    (url, token.to_owned())
                }),
                url => Some((url.to_owned(), node.registry_token.clone())),
            };
            let Some((url, token)) = joined else {
                let socket = format!("unix:{}", paths.session_socket().display());
                let endpoints = format!("[{}]", quoted(&socket));
                variables.push(("BALTRA_GATEWAY__ENGINE__ENDPOINTS", endpoints));
                return variables;
            };
            variables.push(("BALTRA_GATEWAY__ENGINE__REGISTRY", quoted(&url)));
            if engine.registry_token.is_empty() && !token.is_empty() {
                variables.push(("BALTRA_GATEWAY__ENGINE__REGISTRY_TOKEN", quoted(&token)));
            }
            if let (None, Some(ca)) = (&engine.registry_ca, &node.registry_ca) {
                let ca = quoted(&ca.to_string_lossy());
                variables.push(("BALTRA_GATEWAY__ENGINE__REGISTRY_CA", ca));
            }
        }
    }
    variables
}

/// Stays in the foreground until a signal, or until one daemon exits; then all are stopped.
fn stay(mut started: Vec<Running>, paths: &PathOptions) -> Result<ExitCode> {
    announce(paths)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let mut announcement = std::pin::pin!(super::daemon::end_requested());
        let mut look = tokio::time::interval(Duration::from_millis(200));
        loop {
            tokio::select! {
                announcement = &mut announcement => return announcement.map(|()| None),
                _ = look.tick() => {
                    for running in &mut started {
                        if let Some(status) = running.ended() {
                            return Ok(Some((running.daemon, status)));
                        }
                    }
                }
            }
        }
    });
    started.iter_mut().rev().for_each(Running::stop);
    match ended? {
        None => Ok(ExitCode::SUCCESS),
        Some((daemon, status)) => bail!("the {} ended ({status})", daemon.name()),
    }
}

/// Prints the served devices, and their use.
fn announce(paths: &PathOptions) -> Result<()> {
    let mut control = Control::connect(paths)?;
    let status = control.call(|mut c| async move { c.status(proto::StatusRequest {}).await })?;
    let devices = control.call(|mut c| async move { c.devices(proto::DevicesRequest {}).await })?;
    let colors = std::io::stdout().is_terminal();
    println!("node {} serves", output::paint(colors, "1", &status.node));
    for d in &devices.devices {
        match d.state.as_str() {
            "ready" => println!(
                "  {}  {} ({} units, {}; {}, {})",
                output::paint(colors, "32", &d.name),
                d.model,
                d.compute_units,
                output::bytes(d.memory_bytes),
                d.policy,
                d.isolation
            ),
            state => println!(
                "  {}  {state}: {}",
                output::paint(colors, "31", &d.name),
                d.reason
            ),
        }
    }
    for endpoint in &status.endpoints {
        println!("at {endpoint}");
    }
    if !status.metrics.is_empty() {
        println!("metrics {}", status.metrics);
    }
    if let Some(announcement) = Daemon::Registry.announcement(paths) {
        println!("registry {}", announcement.url);
    }
    let gateway = Daemon::Gateway.announcement(paths);
    if let Some(announcement) = &gateway {
        println!(
            "functions {}/function/NAME, console {}/ui/",
            announcement.url, announcement.url
        );
    }
    let dir = if *paths == control::paths(None) {
        String::new()
    } else {
        format!(" --runtime-dir {}", paths.runtime.display())
    };
    println!("try: baltra run{dir} -- clinfo -l");
    if gateway.is_some() {
        println!("     baltra function{dir} deploy apps/functions");
    }
    Ok(())
}

/// `baltra down`
pub fn down(paths: &PathOptions, drain_ms: Option<u64>) -> Result<()> {
    let mut any = false;
    let mut failed = None;
    for daemon in Daemon::ALL.into_iter().rev() {
        let Some(pid) = daemon.holder(paths) else {
            continue;
        };
        any = true;
        // A daemon that does not exit does not keep the others running.
        if let Err(error) = end(daemon, pid, paths, drain_ms) {
            failed.get_or_insert(error);
        }
    }
    match failed {
        Some(error) => Err(error),
        None if any => {
            println!("down");
            Ok(())
        }
        None => {
            println!("nothing is running in {}", paths.runtime.display());
            Ok(())
        }
    }
}

fn end(daemon: Daemon, pid: u32, paths: &PathOptions, drain_ms: Option<u64>) -> Result<()> {
    let mut waiting = format!("waiting for the {}", daemon.name());
    match daemon {
        Daemon::Manager => {
            let mut control = Control::connect(paths)?;
            let request = proto::ShutdownRequest { drain_ms };
            let reply = control.call(|mut c| async move { c.shutdown(request).await })?;
            if reply.sessions > 0 {
                waiting = format!("waiting for sessions to end: {}", reply.sessions);
            }
        }
        _ => daemon.terminate(pid)?,
    }
    // Progress is for people only.
    let mut is_announced = !std::io::stderr().is_terminal();
    let started = Instant::now();
    daemon.wait_end(paths, pid, || {
        if !is_announced && started.elapsed() > Duration::from_secs(1) {
            eprintln!("{waiting}");
            is_announced = true;
        }
    })
}
