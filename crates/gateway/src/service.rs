//! The lifecycle of a gateway: restores its state, binds its listeners, serves, drains.

use crate::console;
use crate::http::admission::keys::Keys;
use crate::http::gateway::Gateway;
use crate::http::inference::grpc;
use crate::http::listener::{self, Door, Protocol};
use crate::http::manage::overview::Overview;
use crate::http::manage::router;
use crate::http::pool;
use crate::http::transport::tls;
use crate::options::Options;
use anyhow::{anyhow, Context, Result};
use baltra_engine::Engine;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::watch;

/// Interval of writing usage records.
const BOOKS_EVERY: Duration = Duration::from_secs(5);

/// A running gateway. It drains and stops when it is dropped.
pub struct Service {
    address: SocketAddr,
    grpc_address: Option<SocketAddr>,
    gateway: Arc<Gateway>,
    stop: watch::Sender<bool>,
    workers: Vec<JoinHandle<()>>,
    /// Accepts connections, and runs background work.
    runtime: Option<Runtime>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Service");
        debug
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Service {
    /// Checks the options, restores the deployments, and serves. Blocks: must not be called on a
    /// thread of a Tokio runtime.
    pub fn start(options: Options) -> Result<Service> {
        let options = options.validate()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("gateway")
            .enable_all()
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let started = runtime.block_on(open(options, &stopped))?;
        let (gateway, workers, addresses) = started;
        let (address, grpc_address) = addresses;
        tracing::info!(%address, grpc = ?grpc_address, functions = gateway.table.count(), "serving");
        runtime.spawn(keep_books(gateway.clone()));
        Ok(Service {
            address,
            grpc_address,
            gateway,
            stop,
            workers,
            runtime: Some(runtime),
        })
    }

    /// The address of HTTP, with the actual port if the configured one is 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of gRPC.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.grpc_address
    }

    /// Serves until SIGTERM or SIGINT, then drains.
    pub fn run(mut self) -> Result<()> {
        let runtime = self.runtime.as_ref().ok_or_else(|| anyhow!("stopped"))?;
        runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            Ok::<_, std::io::Error>(())
        })?;
        self.drain();
        Ok(())
    }

    /// Stops accepting connections, lets running calls end (within the configured time), writes
    /// usage records, and ends all threads.
    fn drain(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        tracing::info!(
            connections = self.gateway.connections.load(Relaxed),
            "draining"
        );
        self.gateway.draining.store(true, Relaxed);
        let _ = self.stop.send(true);
        let deadline = Instant::now() + self.gateway.options.limits.drain();
        let open = || self.gateway.queue.open() + self.gateway.deliveries.open();
        while open() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a worker's thread panicked");
            }
        }
        self.gateway.save_usage();
        runtime.block_on(self.gateway.spans.close(Duration::from_secs(1)));
        runtime.shutdown_timeout(Duration::from_millis(500));
        tracing::info!("stopped");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.drain();
    }
}

type Opened = (
    Arc<Gateway>,
    Vec<JoinHandle<()>>,
    (SocketAddr, Option<SocketAddr>),
);

async fn open(options: Options, stop: &watch::Receiver<bool>) -> Result<Opened> {
    let http_tls = tls::server(&options, b"http/1.1")?;
    let grpc_tls = tls::server(&options, b"h2")?;
    let http = listener::bind(options.address, "address")?;
    let grpc_socket = options.grpc_socket()?;
    let grpc = grpc_socket.map(|at| listener::bind(at, "grpc_address"));
    let grpc = grpc.transpose()?;
    let engine_options = baltra_engine::Options {
        tenants: Keys::new(&options).tenant_count(),
        ..options.engine.clone()
    };
    let engine = Engine::new(engine_options).map_err(|error| anyhow!(error))?;
    let gateway = Arc::new(Gateway::new(options, engine)?);
    gateway.restore().await?;
    pool::follow(&gateway)?;
    let overview = Overview::start(&gateway)?;
    let router = router::router(&gateway, console::router(Arc::new(overview)));
    let (workers, threads) = listener::start_workers(&gateway, &router, stop)
        .context("cannot start the gateway's threads")?;
    let address = http.local_addr()?;
    let mut doors = vec![Door {
        listener: http,
        protocol: Protocol::Http,
        tls: http_tls,
    }];
    let mut grpc_address = None;
    if let Some(listener) = grpc {
        grpc_address = Some(listener.local_addr()?);
        doors.push(Door {
            listener,
            protocol: Protocol::Grpc(grpc::routes(&gateway)?),
            tls: grpc_tls,
        });
    }
    for door in doors {
        tokio::spawn(listener::accept(
            gateway.clone(),
            door,
            workers.clone(),
            stop.clone(),
        ));
    }
    Ok((gateway, threads, (address, grpc_address)))
}

async fn keep_books(gateway: Arc<Gateway>) {
    let mut tick = tokio::time::interval(BOOKS_EVERY);
    loop {
        tick.tick().await;
        let gateway = gateway.clone();
        let _ = tokio::task::spawn_blocking(move || gateway.save_usage()).await;
    }
}
