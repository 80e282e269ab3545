//! The manager's life cycle: locks its directories, listens, maintains executors and accounts,
//! drains.

use crate::accept::{self, Door};
use crate::accounts::Accounts;
use crate::control::{self, Stop};
use crate::executors::leftovers::SWEEP_EVERY;
use crate::images::Images;
use crate::node::{Device, Node};
use crate::options::Options;
use crate::store::Store;
use crate::tenants::Tenants;
use crate::{adoption, lock, metrics, registry, relay};
use anyhow::{Context, Result};
use baltra_trace::Spans;
use sd_notify::NotifyState;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{signal, SignalKind};

/// A Device Manager that owns its directories and does not listen yet.
pub struct Service {
    node: Arc<Node>,
    lock: lock::Lock,
    /// Runtime of the tasks that no session waits for.
    runtime: tokio::runtime::Runtime,
}

/// Maximum time until the manager reports to systemd that it serves, although a driver is still loading.
const PROBED_MAX: Duration = Duration::from_secs(60);

/// Tries the system calls without which no session is possible.
fn check_kernel() -> Result<()> {
    let remedy = "this kernel is not supported (`baltra doctor` lists what the host lacks)";
    let own = rustix::process::getpid();
    baltra_ring::memory::create_sealed("baltra-check", 1)
        .with_context(|| format!("cannot create shared memory (memfd_create): {remedy}"))?;
    rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty())
        .with_context(|| format!("cannot watch processes (pidfd_open): {remedy}"))?;
    Ok(())
}

impl Service {
    /// Checks and acquires everything that only one manager can have.
    pub fn new(options: Options) -> Result<Service> {
        check_kernel()?;
        let lock = lock::Lock::take(&options.paths)?;
        let state = &options.paths.state;
        std::fs::create_dir_all(state)
            .with_context(|| format!("cannot create the state directory {}", state.display()))?;
        let store = Arc::new(Store::open(&state.join("state.redb"))?);
        let generation = store.next_generation()?;
        let own_user = rustix::process::geteuid().as_raw();
        let tenants = Tenants::load(store.clone(), &options.tenants, own_user)?;
        let accounts = Accounts::load(store)?;
        let images = Images::open(&state.join("images"))
            .with_context(|| format!("cannot create {}", state.join("images").display()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("control")
            .enable_all()
            .build()?;
        let spans = {
            let _within = runtime.enter();
            Spans::from_environment("baltra-manager", &[("host.name", &options.node.name)])?
        };
        let node = Node::new(options, generation, tenants, accounts, images, spans)?;
        Ok(Service {
            node: Arc::new(node),
            lock,
            runtime,
        })
    }

    /// Serves until SIGTERM, SIGINT or a shutdown over the control socket; all its threads and
    /// processes have ended when it returns.
    pub fn run(self) -> Result<()> {
        let runtime = &self.runtime;
        let (stop, mut stopped) = tokio::sync::watch::channel(None);
        self.open_doors(runtime, stop)?;
        let paths = &self.node.options.paths;
        tracing::info!(
            node = self.node.options.node.name,
            devices = self.node.devices.len(),
            sessions = %paths.session_socket().display(),
            "serving"
        );
        let grace = runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let configured = Duration::from_millis(self.node.options.executors.drain_ms);
            tokio::select! {
                _ = terminate.recv() => Ok(configured),
                _ = interrupt.recv() => Ok(Duration::ZERO),
                changed = stopped.wait_for(Option::is_some) => {
                    Ok(changed.ok().and_then(|grace| *grace).unwrap_or(configured))
                }
                () = keep_books(self.node.clone()) => unreachable!("accounting never ends"),
            }
        });
        let grace = grace.map_err(|e: std::io::Error| anyhow::anyhow!(e))?;
        self.drain(grace);
        runtime.block_on(self.node.spans.close(Duration::from_secs(1)));
        self.runtime.shutdown_timeout(Duration::from_millis(200));
        Ok(())
    }

    fn open_doors(&self, runtime: &tokio::runtime::Runtime, stop: Stop) -> Result<()> {
        let node = &self.node;
        let options = &node.options;
        let metrics = options.metrics.socket().ok().flatten();
        let metrics = metrics.map(|address| metrics::bind(address).map(|l| (l, address)));
        let tcp = options.listen.tcp.map(relay::bind).transpose()?;
        let mode = options.listen.mode().unwrap_or(0o600);
        let sessions = bind(&options.paths.session_socket(), mode)?;
        let relays = bind(&options.paths.relay_socket(), 0o600)?;
        let tokens = options.listen.token_socket;
        let tokens = tokens.then(|| bind(&options.paths.token_socket(), 0o666));
        let tokens = tokens.transpose()?.map(|l| (l, Door::Token));
        let control = bind(&options.paths.control_socket(), 0o600)?;
        let adopted = adoption::bind(&options.paths.adopt_socket())?;
        match metrics {
            None => {}
            Some(Ok((listener, address))) => {
                tracing::info!(%address, "serving metrics");
                runtime.spawn(metrics::serve(node.clone(), listener));
            }
            // The port may be in use by another program; sessions matter more than metrics.
            Some(Err(error)) => tracing::error!("{error:#}"),
        }
        runtime.spawn(control::serve(node.clone(), control, stop));
        if let Some(link) = &node.registry {
            runtime.spawn(registry::run(node.clone(), link.clone()));
        }
        runtime.spawn(announce(node.clone()));
        for device in &node.devices {
            spawn(&format!("keep-{}", device.name()), {
                let (node, device) = (node.clone(), device.clone());
                move || keep(&node, &device)
            })?;
        }
        spawn("sweep", {
            let node = node.clone();
            move || loop {
                node.sweep_executor_dirs();
                std::thread::sleep(SWEEP_EVERY);
            }
        })?;
        spawn("adopt", {
            let node = node.clone();
            move || adoption::serve(&node, &adopted)
        })?;
        let doors = [(sessions, Door::Unix), (relays, Door::Relay)];
        for (listener, door) in doors.into_iter().chain(tokens) {
            let node = node.clone();
            spawn("accept", move || accept::serve(node, listener, door))?;
        }
        if let Some(listener) = tcp {
            let node = node.clone();
            spawn("accept-tcp", move || relay::serve(&node, &listener))?;
        }
        Ok(())
    }

    fn drain(&self, grace: Duration) {
        let node = &self.node;
        node.drain();
        if let Some(link) = &node.registry {
            link.deregister(node);
        }
        let open = node.sessions().len();
        tracing::info!(sessions = open, "draining");
        let deadline = Instant::now() + grace;
        // The program of a suspended session waits, and does not end it.
        let is_used = || node.sessions().values().any(|s| !s.is_suspended);
        while is_used() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        // A relay ends with its session's executor.
        let processes = || {
            let pools = node.devices.iter().map(|d| d.pool.count());
            pools.sum::<usize>() + node.relays.count()
        };
        for device in &node.devices {
            device.pool.close(true);
        }
        let deadline = Instant::now() + Duration::from_secs(1);
        while processes() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        for device in &node.devices {
            device.pool.kill_all();
        }
        node.relays.kill_all();
        let deadline = Instant::now() + Duration::from_secs(2);
        while processes() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Err(error) = node.accounts.flush(true) {
            tracing::error!(%error, "cannot record the last second's usage");
        }
        self.lock.clear_sockets();
        tracing::info!("stopped");
    }
}

/// Reports to systemd, if it started this process, that devices can be used: once each has been
/// probed or has failed, or after a minute, because one driver that hangs must not stop the others.
async fn announce(node: Arc<Node>) {
    let started = Instant::now();
    while !node.is_ready() && started.elapsed() < PROBED_MAX {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let usable = |device: &&Arc<Device>| device.description.get().is_some();
    let usable = node.devices.iter().filter(usable).count();
    let status = format!("{usable} of {} devices can be used", node.devices.len());
    let states = [NotifyState::Ready, NotifyState::Status(&status)];
    if let Err(error) = sd_notify::notify(&states) {
        tracing::warn!(%error, "cannot report to systemd");
    }
}

/// Starts executors in advance and ends idle ones, until the process exits.
fn keep(node: &Arc<Node>, device: &Arc<Device>) {
    loop {
        if !node.is_draining() {
            for _ in 0..device.pool.lacking() {
                node.start_executor(device);
            }
        }
        device.pool.reap();
        let urgent = device.pool.wait_change(Duration::from_millis(500));
        if !urgent {
            // Loading a driver would take processor time from the session that has just started.
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

async fn keep_books(node: Arc<Node>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut count = 0u32;
    let log = node.options.paths.log_file();
    loop {
        tick.tick().await;
        count += 1;
        node.read_leases();
        let node = node.clone();
        let synced = count.is_multiple_of(30);
        if synced {
            crate::logfile::bound(&log);
        }
        let flushed = tokio::task::spawn_blocking(move || node.accounts.flush(synced)).await;
        if let Ok(Err(error)) = flushed {
            tracing::error!(%error, "cannot record usage");
        }
    }
}

fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(f)?;
    Ok(())
}

/// Listens on a new socket. The lock guarantees that the creator of an old one has ended.
fn bind(path: &Path, mode: u32) -> Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(listener)
}
