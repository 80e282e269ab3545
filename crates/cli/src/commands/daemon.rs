//! `baltra manager`, `baltra registry`, `baltra gateway`: the daemons in the foreground.

mod gateway;
mod registry;

pub use gateway::gateway;
pub use registry::registry;

use crate::args::{Background, Manager};
use crate::configuration;
use crate::daemons::{self, Daemon};
use anyhow::{bail, Result};
use baltra_manager::options::PathOptions;
use baltra_manager::{Options, Service};
use std::io::IsTerminal;
use std::path::PathBuf;
use tokio::signal::unix::{signal, SignalKind};

/// Configures `tracing` to stderr; `RUST_LOG` has precedence over the configuration.
pub fn log_to_stderr(level: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .or_else(|_| tracing_subscriber::EnvFilter::try_new(level))
        .unwrap_or_default();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .try_init();
}

/// `baltra manager`
pub fn manager(args: &Manager, runtime_dir: Option<&PathBuf>) -> Result<()> {
    if cfg!(target_feature = "crt-static") {
        bail!("a static program cannot load drivers: run the manager of another package");
    }
    let mut loader = configuration::layers(&args.config, runtime_dir)?;
    if let Some(registry) = &args.registry {
        loader.set("node", "registry", &configuration::quoted(registry))?;
    }
    let options: Options = loader.finish()?;
    enter(&args.background);
    log_to_stderr(&options.log.level);
    raise_descriptor_limit();
    Service::new(options)?.run()
}

/// Applies the options of a background process: a separate session, and exit with its parent.
fn enter(background: &Background) {
    if background.detach {
        let _ = rustix::process::setsid();
    }
    if background.leashed {
        daemons::leash();
    }
}

/// Each session or connection needs a few descriptors briefly, each executor some permanently.
fn raise_descriptor_limit() {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

/// Common start of all daemons but the manager: runtime directory, log, and exit on a signal.
fn prepare(daemon: Daemon, paths: &PathOptions, level: &str) -> Result<daemons::DaemonLock> {
    log_to_stderr(level);
    raise_descriptor_limit();
    let place = daemon.take(paths)?;
    daemons::bound_log(daemon, paths);
    Ok(place)
}

/// Reports to systemd, if it started this process, that the daemon listens.
fn announce(lock: &daemons::DaemonLock, url: String, more: Vec<String>) -> Result<()> {
    lock.announce(url, more)?;
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        tracing::warn!(%error, "cannot report to systemd");
    }
    Ok(())
}

/// Completes at SIGTERM or SIGINT.
pub async fn end_requested() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("received a signal to exit");
    Ok(())
}
