//! The daemon: its ports, periodic work and shutdown.

use crate::clock::{Clock, SystemClock};
use crate::grpc::Doors;
use crate::incoming::Incoming;
use crate::metrics;
use crate::options::Options;
use crate::prometheus::Prometheus;
use crate::registry::Registry;
use crate::relocate;
use anyhow::{Context, Result};
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::{Identity, Server, ServerTlsConfig};

/// Time for requests in progress at shutdown.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);
/// Timeout of a request: long enough for 16 MiB over a slow connection.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(300);

/// A registry that owns its store and ports and does not serve yet.
#[derive(Debug)]
pub struct Service {
    registry: Arc<Registry>,
    grpc: TcpListener,
    metrics: Option<TcpListener>,
    tls: Option<Identity>,
}

/// A running registry. Dropping it stops it at once.
#[derive(Debug)]
pub struct Handle {
    address: SocketAddr,
    metrics: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    registry: Arc<Registry>,
}

impl Service {
    /// Checks the options, opens the store and binds the ports.
    ///
    /// # Errors
    /// The options are invalid, or the store or a port cannot be used.
    pub fn new(options: Options) -> Result<Service> {
        Service::with_clock(options, Arc::new(SystemClock::default()))
    }

    /// Like [`Service::new`], with another clock.
    ///
    /// # Errors
    /// As for [`Service::new`].
    pub fn with_clock(options: Options, clock: Arc<dyn Clock>) -> Result<Service> {
        let options = options.validate().context("in the configuration")?;
        let tls = identity(&options)?;
        let metrics = options.metrics_address().ok().flatten();
        let address = options.address;
        let registry = Registry::open(options, clock)?;
        let grpc = TcpListener::bind(address).with_context(|| {
            format!("cannot listen on {address} ('registry.address'): is another registry running?")
        })?;
        grpc.set_nonblocking(true)?;
        Ok(Service {
            registry: Arc::new(registry),
            grpc,
            metrics: metrics.map(metrics::bind).transpose()?,
            tls,
        })
    }

    /// The address that it will serve on, with the actual port if the configured one is 0.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.grpc.local_addr()?)
    }

    /// Serves on the current runtime.
    ///
    /// # Errors
    /// A port cannot be used.
    pub async fn start(options: Options) -> Result<Handle> {
        Service::new(options)?.serve().await
    }

    /// Serves on the current runtime.
    ///
    /// # Errors
    /// A port or the certificate cannot be used.
    pub async fn serve(self) -> Result<Handle> {
        self.serving().await
    }

    /// A trait object, so that the server is compiled here and not in each crate that awaits it,
    /// which dominated those crates' compile time.
    fn serving(self) -> Pin<Box<dyn Future<Output = Result<Handle>> + Send>> {
        Box::pin(self.open())
    }

    async fn open(self) -> Result<Handle> {
        let (stop, stopped) = watch::channel(false);
        let address = self.grpc.local_addr()?;
        let limits = &self.registry.options.limits;
        let mut server = Server::builder()
            .timeout(REQUEST_TIME_MAX)
            .concurrency_limit_per_connection(256)
            .max_concurrent_streams(256)
            .http2_keepalive_interval(Some(Duration::from_secs(20)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)))
            .http2_max_header_list_size(16 << 10);
        if let Some(identity) = self.tls {
            let tls = ServerTlsConfig::new().identity(identity);
            server = server
                .tls_config(tls)
                .context("cannot use 'registry.tls_cert' and 'registry.tls_key'")?;
        }
        let listener = tokio::net::TcpListener::from_std(self.grpc)?;
        let incoming = Incoming::new(listener, limits.connections);
        let router = Doors::new(self.registry.clone()).open(server).await?;
        let mut tasks = Vec::new();
        tasks.push(tokio::spawn({
            let end = ended(stopped.clone());
            async move {
                if let Err(error) = router.serve_with_incoming_shutdown(incoming, end).await {
                    tracing::error!(%error, "stopped serving gRPC");
                }
            }
        }));
        let metrics = self.metrics.map(|l| l.local_addr().map(|a| (l, a)));
        let metrics = metrics.transpose()?;
        let metrics_address = metrics.as_ref().map(|(_, a)| *a);
        if let Some((listener, _)) = metrics {
            let end = ended(stopped.clone());
            tasks.push(tokio::spawn(metrics::serve(
                self.registry.clone(),
                listener,
                end,
            )));
        }
        tasks.push(tokio::spawn(rounds(self.registry.clone(), stopped.clone())));
        if !self.registry.options.prometheus.is_empty() {
            tasks.push(tokio::spawn(measure(self.registry.clone(), stopped)));
        }
        let generation = self.registry.state().image().generation;
        tracing::info!(%address, metrics = ?metrics_address, generation, "serving");
        Ok(Handle {
            address,
            metrics: metrics_address,
            stop,
            tasks,
            registry: self.registry,
        })
    }

    /// Serves until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// It cannot start to serve.
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("registry")
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            // A write beyond a file size limit must fail without ending the process.
            let file_too_long = rustix::process::Signal::XFSZ.as_raw();
            let _caught = signal(SignalKind::from_raw(file_too_long))?;
            let handle = self.serve().await?;
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            handle.stop().await;
            anyhow::Ok(())
        })?;
        runtime.shutdown_timeout(Duration::from_millis(500));
        Ok(())
    }
}

impl Handle {
    /// The address of gRPC.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for [`baltra_api::client::Client`].
    pub fn url(&self) -> String {
        if self.registry.options.tls_cert.is_some() {
            format!("https://{}", self.address)
        } else {
            format!("http://{}", self.address)
        }
    }

    /// The address of metrics, if enabled.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Stops: rejects new requests, waits for those in progress, and releases the store.
    pub async fn stop(mut self) {
        let _ = self.stop.send(true);
        let tasks = std::mem::take(&mut self.tasks);
        let kill: Vec<_> = tasks.iter().map(JoinHandle::abort_handle).collect();
        let all = async {
            for task in tasks {
                let _ = task.await;
            }
        };
        if tokio::time::timeout(STOP_TIME_MAX, all).await.is_err() {
            for task in kill {
                task.abort();
            }
        }
        // An idle connection may keep the registry running, but must not keep the store locked.
        let registry = self.registry.clone();
        let _ = tokio::task::spawn_blocking(move || registry.close()).await;
        tracing::info!("stopped");
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        for task in &self.tasks {
            task.abort();
        }
        self.registry.close();
    }
}

fn identity(options: &Options) -> Result<Option<Identity>> {
    let (Some(cert), Some(key)) = (&options.tls_cert, &options.tls_key) else {
        return Ok(None);
    };
    let read = |path: &std::path::Path, key: &str| {
        std::fs::read(path)
            .with_context(|| format!("cannot read {} ('registry.{key}')", path.display()))
    };
    let identity = Identity::from_pem(read(cert, "tls_cert")?, read(key, "tls_key")?);
    Ok(Some(identity))
}

async fn ended(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Removes expired leases and continues live moves, periodically.
async fn rounds(registry: Arc<Registry>, stopped: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(registry.options.heartbeat());
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let end = ended(stopped);
    tokio::pin!(end);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = &mut end => return,
        }
        let registry = registry.clone();
        let _ = tokio::task::spawn_blocking(move || {
            registry.sweep();
            relocate::step(&registry);
        })
        .await;
    }
}

/// Queries a Prometheus server for devices' metrics.
async fn measure(registry: Arc<Registry>, stopped: watch::Receiver<bool>) {
    let options = &registry.options;
    let prometheus = Prometheus::new(&options.prometheus);
    let mut tick = tokio::time::interval(Duration::from_secs_f64(options.prometheus_interval_s));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let end = ended(stopped);
    tokio::pin!(end);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = &mut end => return,
        }
        let mut failure = String::new();
        for (metric, query) in &options.queries {
            let named = registry.state().named();
            let values = tokio::select! {
                values = prometheus.values(query, &named) => values,
                () = &mut end => return,
            };
            match values {
                Ok(values) => registry.live().measured(metric, values),
                Err(error) => {
                    registry.counters.metrics_failures.inc();
                    failure = error.to_string();
                }
            }
        }
        let mut failures = registry.failures();
        if failures.metrics.is_empty() && !failure.is_empty() {
            tracing::warn!(
                failure,
                "metrics query failed: using the load in heartbeats meanwhile"
            );
        }
        failures.metrics = failure;
    }
}
