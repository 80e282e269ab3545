//! Listeners: binding, accepting, and distribution of connections.
//!
//! One task per listener accepts connections and distributes them to the workers. A worker is a
//! thread with its own runtime: a connection stays with its worker, and only the engine shares
//! state between threads during a call.

use crate::http::call::dispatch::Worker;
use crate::http::gateway::Gateway;
use crate::http::inference::guard::{self, Sent};
use crate::http::telemetry::meters;
use crate::http::transport::connection::{Clock, Patience, Watch, Watched, TICK};
use crate::http::transport::linger::Linger;
use crate::http::transport::scan::Scanner;
use crate::http::transport::wakes::Wakes;
use anyhow::{Context, Result};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 4096;
/// Calls at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Threads of a worker for long computations.
const BLOCKING_THREADS_MAX: usize = 16;

/// Number of connections of each of the first workers from which on all workers get connections.
/// Up to then the other processors are for the threads that run calls: an empty function called over
/// 64 connections on 16 cores, the callers' included, ran 299 thousand times a second with 16 workers
/// and 380 with 10; the 99th percentile was 3.5 and 1.2 ms.
const FEW_CONNECTIONS: usize = 8;

/// Response to a connection beyond the limit.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n\
    retry-after: 1\r\ncontent-length: 86\r\nconnection: close\r\n\r\n\
    {\"title\":\"Service Unavailable\",\"status\":503,\"detail\":\"too many connections are open\"}\n";

/// The protocol of a listener.
#[derive(Clone)]
pub(crate) enum Protocol {
    /// HTTP/1.1: calls and everything else.
    Http,
    /// HTTP/2: the inference service.
    Grpc(tonic::service::Routes),
}

/// A bound listener that does not accept yet.
pub(crate) struct Door {
    pub listener: TcpListener,
    pub protocol: Protocol,
    pub tls: Option<Arc<ServerConfig>>,
}

/// Binds the address of a configuration key.
pub(crate) fn bind(address: SocketAddr, key: &str) -> Result<TcpListener> {
    let bound = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    bound().with_context(|| format!("cannot listen on {address} ('gateway.{key}')"))
}

/// An accepted connection, sent to a worker.
struct Arrival {
    stream: std::net::TcpStream,
    protocol: Protocol,
    tls: Option<TlsAcceptor>,
    counted: Counted,
    load: Load,
}

/// A connection of a worker, counted until dropped.
struct Load(Arc<AtomicUsize>);

impl Load {
    fn new(connections: &Arc<AtomicUsize>) -> Load {
        connections.fetch_add(1, Relaxed);
        Load(connections.clone())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// An open connection, counted until dropped.
struct Counted(Arc<Gateway>);

impl Counted {
    /// Returns `None` if the limit is reached.
    fn new(gateway: &Arc<Gateway>) -> Option<Counted> {
        let before = gateway.connections.fetch_add(1, Relaxed);
        let counted = Counted(gateway.clone());
        (before < gateway.options.limits.connections_max).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// A worker, for the acceptors.
#[derive(Clone)]
struct Entrance {
    arrivals: mpsc::UnboundedSender<Arrival>,
    /// Number of its connections.
    connections: Arc<AtomicUsize>,
}

/// The workers, for the acceptors.
#[derive(Clone)]
pub(crate) struct Workers {
    entrances: Vec<Entrance>,
    /// [`FEW_CONNECTIONS`], or a worker's limit of calls.
    few: usize,
}

/// The index of the worker for a new connection, by the numbers of the workers' connections: the one
/// with the fewest, among the first five eighths of the workers while these have fewer than `few`.
fn choose(connections: impl ExactSizeIterator<Item = usize> + Clone, few: usize) -> usize {
    let first = (connections.len() * 5).div_ceil(8);
    let least = |workers: usize| {
        let counted = connections.clone().take(workers).enumerate();
        counted.min_by_key(|(_, count)| *count).unwrap_or_default()
    };
    match least(first) {
        (index, count) if count < few => index,
        _ => least(usize::MAX).0,
    }
}

/// Starts the workers' threads; they end after `stop` has changed, when their connections are
/// idle or the grace period is over.
pub(crate) fn start_workers(
    gateway: &Arc<Gateway>,
    router: &axum::Router,
    stop: &watch::Receiver<bool>,
) -> Result<(Workers, Vec<std::thread::JoinHandle<()>>)> {
    let count = gateway.options.worker_count();
    let calls_max = gateway.options.limits.calls_max.div_ceil(count);
    let (mut entrances, mut threads) = (Vec::new(), Vec::new());
    let lingers = Arc::new(AtomicBool::new(false));
    for index in 0..count {
        // The limit on connections bounds the channel.
        let (sender, arrivals) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .build()?;
        let worker = Arc::new(Worker {
            gateway: gateway.clone(),
            router: router.clone(),
            calls: 0.into(),
            calls_max,
            linger: Linger::new(&lingers),
        });
        let stop = stop.clone();
        let thread = std::thread::Builder::new().name(format!("http-{index}"));
        threads.push(thread.spawn(move || {
            // Shard 0 is shared.
            meters::use_shard(index + 1);
            runtime.block_on(work(worker, arrivals, stop));
            runtime.shutdown_timeout(Duration::from_millis(100));
        })?);
        entrances.push(Entrance {
            arrivals: sender,
            connections: Arc::default(),
        });
    }
    let few = FEW_CONNECTIONS.min(calls_max);
    Ok((Workers { entrances, few }, threads))
}

/// Accepts until `stop` changes.
pub(crate) async fn accept(
    gateway: Arc<Gateway>,
    door: Door,
    workers: Workers,
    mut stop: watch::Receiver<bool>,
) {
    let tls = door.tls.map(TlsAcceptor::from);
    loop {
        let accepted = tokio::select! {
            accepted = door.listener.accept() => accepted,
            _ = stop.changed() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // The process is probably out of descriptors; other connections have to end first.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(counted) = Counted::new(&gateway) else {
            let _ = stream.try_write(FULL);
            continue;
        };
        let _ = stream.set_nodelay(true);
        let Ok(stream) = stream.into_std() else {
            continue;
        };
        let counts = workers.entrances.iter();
        let counts = counts.map(|worker| worker.connections.load(Relaxed));
        let worker = &workers.entrances[choose(counts, workers.few)];
        let _ = worker.arrivals.send(Arrival {
            stream,
            protocol: door.protocol.clone(),
            tls: tls.clone(),
            counted,
            load: Load::new(&worker.connections),
        });
    }
}

/// A worker: serves connections, and checks their time limits once per tick.
async fn work(
    worker: Arc<Worker>,
    mut arrivals: mpsc::UnboundedReceiver<Arrival>,
    mut stop: watch::Receiver<bool>,
) {
    let clock = Clock::new();
    let limits = &worker.gateway.options.limits;
    let patience = Patience::new(limits);
    let mut open: Vec<(Arc<Watch>, AbortHandle)> = Vec::new();
    let wakes = Arc::new(Wakes::default());
    wakes.own();
    let forwarded = wakes.clone();
    tokio::spawn(async move { forwarded.forward().await });
    let lingering = worker.clone();
    tokio::spawn(async move { lingering.linger.run().await });
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut until: Option<Instant> = None;
    loop {
        tokio::select! {
            arrival = arrivals.recv(), if until.is_none() => {
                let Some(arrival) = arrival else {
                    until.get_or_insert(Instant::now() + limits.drain());
                    continue;
                };
                let watch = Arc::new(Watch::new(clock.clone()));
                let served = serve(worker.clone(), arrival, watch.clone());
                let served = wakes.clone().run(served);
                open.push((watch, tokio::spawn(served).abort_handle()));
            }
            _ = tick.tick() => {
                clock.advance();
                let stopping = until.is_some();
                open.retain(|(watch, task)| {
                    let overdue = watch.overdue(&patience);
                    if overdue.is_some() || stopping && watch.is_idle() {
                        task.abort();
                    }
                    !task.is_finished()
                });
            }
            _ = stop.changed(), if until.is_none() => {
                until = Some(Instant::now() + limits.drain());
            }
        }
        if until.is_some_and(|until| open.is_empty() || Instant::now() >= until) {
            return;
        }
    }
}

async fn serve(worker: Arc<Worker>, arrival: Arrival, watch: Arc<Watch>) {
    let _counted = (arrival.counted, arrival.load);
    let Ok(stream) = TcpStream::from_std(arrival.stream) else {
        return;
    };
    let Some(acceptor) = arrival.tls else {
        watch.greeted.store(true, Relaxed);
        return speak(worker, stream, arrival.protocol, watch).await;
    };
    // The worker enforces the time limit.
    if let Ok(stream) = acceptor.accept(stream).await {
        watch.greeted.store(true, Relaxed);
        speak(worker, stream, arrival.protocol, watch).await;
    }
}

async fn speak<S>(worker: Arc<Worker>, stream: S, protocol: Protocol, watch: Arc<Watch>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match protocol {
        Protocol::Http => speak_http(worker, stream, watch).await,
        Protocol::Grpc(routes) => speak_grpc(&worker.gateway, stream, routes, watch).await,
    }
}

async fn speak_http<S>(worker: Arc<Worker>, stream: S, watch: Arc<Watch>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let scanner = Scanner::new(worker.gateway.options.limits.head_bytes_max);
    let stream = Watched::new(stream, watch.clone(), Some(scanner));
    let service = service_fn(move |request| {
        let (worker, watch) = (worker.clone(), watch.clone());
        async move { Ok::<_, std::convert::Infallible>(worker.answer(request, &watch).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.pipeline_flush(true);
    // Errors are the peer's: it disconnected or was rejected.
    let _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn speak_grpc<S>(
    gateway: &Arc<Gateway>,
    stream: S,
    routes: tonic::service::Routes,
    watch: Arc<Watch>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = Watched::new(stream, watch.clone(), None);
    let limits = &gateway.options.limits;
    let gateway = gateway.clone();
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (gateway, mut routes) = (gateway.clone(), routes.clone());
        let (watch, busy) = (watch.clone(), Busy::new(watch.clone()));
        async move {
            let answered = match guard::admit(&gateway, request) {
                Ok((request, sent)) => {
                    let answered = routes.call(request).await;
                    answered.map(|response| sent.with(&watch, response))
                }
                Err(refusal) => Ok(Sent::refused(&watch, refusal.into_http())),
            };
            drop(busy);
            answered
        }
    });
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(limits.head_bytes_max as u32)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .keep_alive_interval(Duration::from_secs(20));
    let _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// A stream in progress, until dropped.
struct Busy(Arc<Watch>);

impl Busy {
    fn new(watch: Arc<Watch>) -> Busy {
        watch.enter();
        Busy(watch)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_spread_over_more_workers_as_they_become_many() {
        let counts = |workers: usize, connections: usize| {
            let mut counts = vec![0; workers];
            for _ in 0..connections {
                let worker = choose(counts.iter().copied(), 8);
                counts[worker] += 1;
            }
            counts
        };
        assert_eq!(counts(1, 3), [3]);
        assert_eq!(counts(2, 5), [3, 2]);
        assert_eq!(counts(16, 10), [[1; 10].as_slice(), &[0; 6]].concat());
        assert_eq!(counts(16, 80), [[8; 10].as_slice(), &[0; 6]].concat());
        assert_eq!(counts(16, 2048), [128; 16]);
        // A worker whose connections have ended gets the next ones.
        assert_eq!(choose([9, 9, 3, 9].into_iter(), 8), 2);
    }

    #[test]
    fn the_refusal_is_as_long_as_it_says() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())),
            "{}",
            body.len()
        );
    }
}
