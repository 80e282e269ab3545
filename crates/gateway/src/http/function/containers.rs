//! Functions in containers: calls are forwarded to ready replicas in the registry's list, and wait
//! if there are none.
//!
//! A gateway reports its calls to the registry and receives the endpoints for them. A waiting call
//! makes the registry's controller start a replica. An endpoint is valid for [`VALID`] only; the
//! controller that stops a container relies on that.

use crate::http::admission::keys::{Keys, TenantIndex};
use crate::http::failure::Failure;
use crate::http::problem::Problem;
use crate::http::telemetry::meters::{Meter, Meters};
use arc_swap::ArcSwap;
use baltra_api::registry::{self as proto, CallCount};
use http::header::RETRY_AFTER;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{watch, Notify};

/// Validity of the registry's endpoints, from the time of the request.
const VALID: Duration = Duration::from_secs(3);
/// Time for which a function is kept after the registry stops listing it.
const GRACE: Duration = Duration::from_secs(30);
/// Timeout of connecting to a container.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Pause between attempts to find a replica that responds.
const PAUSE: Duration = Duration::from_millis(50);

/// All container functions.
#[derive(Debug, Default)]
pub(crate) struct Containers {
    by_name: ArcSwap<HashMap<String, Arc<Container>>>,
    /// Number of calls that wait for a replica.
    held: AtomicUsize,
    /// Signaled when a call begins to wait.
    waits: Notify,
}

/// A container function.
#[derive(Debug)]
pub(crate) struct Container {
    /// The function's name: `NAME.NAMESPACE`.
    pub name: String,
    /// Number of calls in progress (waiting or running), and of all calls begun.
    calls: AtomicU32,
    begun: AtomicU64,
    /// Number of waiting calls.
    held: AtomicUsize,
    /// Round-robin counter.
    turn: AtomicUsize,
    state: watch::Sender<PublishedState>,
    /// Meters by tenant, created at a tenant's first call.
    meters: Box<[OnceLock<Arc<Meter>>]>,
}

/// A container's endpoints, from the registry.
#[derive(Clone, Debug)]
struct PublishedState {
    endpoints: Arc<[SocketAddr]>,
    timeout: Duration,
    until: Instant,
    /// When the registry last listed it.
    named: Instant,
}

/// A call in progress, until the last byte of its response.
pub(crate) struct InFlight(Arc<Container>);

impl InFlight {
    /// The call is counted before its endpoint is chosen, so a report without calls proves that no
    /// call is about to begin.
    pub fn begin(container: &Arc<Container>) -> InFlight {
        container.calls.fetch_add(1, SeqCst);
        container.begun.fetch_add(1, SeqCst);
        InFlight(container.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, SeqCst);
    }
}

/// A call that waits for a replica.
struct Held<'a>(&'a Containers, &'a Container);

impl<'a> Held<'a> {
    fn begin(
        all: &'a Containers,
        container: &'a Container,
        most: usize,
    ) -> Result<Held<'a>, Problem> {
        let held = Held(all, container);
        container.held.fetch_add(1, SeqCst);
        if all.held.fetch_add(1, SeqCst) >= most {
            return Err(Problem::overload(
                format!(
                    "'{}' is starting, and too many calls wait for it ('gateway.limits.held_max')",
                    container.name
                ),
                Duration::from_secs(1),
            ));
        }
        all.waits.notify_one();
        Ok(held)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, SeqCst);
        self.1.held.fetch_sub(1, SeqCst);
    }
}

impl Containers {
    /// Number of container functions.
    pub fn count(&self) -> usize {
        self.by_name.load().len()
    }

    /// Finds a function by the name in the path.
    pub fn find(&self, name: &str) -> Option<Arc<Container>> {
        self.by_name.load().get(name).cloned()
    }

    /// All functions, by name.
    pub fn list(&self) -> Vec<Arc<Container>> {
        let mut all: Vec<_> = self.by_name.load().values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Applies the registry's reply to a request sent at `asked`.
    pub fn learn(&self, published: Vec<proto::Container>, forwarded: Instant, tenants: usize) {
        let before = self.by_name.load_full();
        let mut next = HashMap::with_capacity(published.len());
        for published in published {
            let state = PublishedState {
                endpoints: published
                    .endpoints
                    .iter()
                    .filter_map(|e| endpoint(e))
                    .collect(),
                timeout: Duration::from_millis(published.timeout_ms),
                until: forwarded + VALID,
                named: forwarded,
            };
            let container = before.get(&published.name).cloned();
            let container =
                container.unwrap_or_else(|| Arc::new(Container::new(&published.name, tenants)));
            container.state.send_replace(state);
            next.insert(published.name, container);
        }
        // A registry that has lost its state receives the functions again.
        for (name, container) in before.iter() {
            let named = container.state.borrow().named;
            if named.elapsed() < GRACE {
                next.entry(name.clone())
                    .or_insert_with(|| container.clone());
            }
        }
        self.by_name.store(Arc::new(next));
    }

    /// Number of calls that wait for a replica.
    pub fn held(&self) -> usize {
        self.held.load(SeqCst)
    }

    /// Waits until a call begins to wait.
    pub async fn wait(&self) {
        self.waits.notified().await;
    }

    /// The report to the registry.
    pub fn counts(&self) -> Vec<CallCount> {
        let count = |container: &Arc<Container>| CallCount {
            name: container.name.clone(),
            calls: container.calls.load(SeqCst),
            begun: container.begun.load(SeqCst),
        };
        self.by_name.load().values().map(count).collect()
    }
}

/// Parses an endpoint, which must be an address of the cluster's network, not one of this host.
fn endpoint(text: &str) -> Option<SocketAddr> {
    let at: SocketAddr = text.parse().ok()?;
    let local = match at.ip() {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let ip = at.ip();
    let other = ip.is_loopback() || ip.is_unspecified() || ip.is_multicast();
    (!local && !other && at.port() != 0).then_some(at)
}

impl Container {
    fn new(name: &str, tenants: usize) -> Container {
        let now = Instant::now();
        let state = PublishedState {
            endpoints: Arc::new([]),
            timeout: Duration::ZERO,
            until: now,
            named: now,
        };
        Container {
            name: name.to_owned(),
            calls: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            state: watch::Sender::new(state),
            meters: (0..tenants).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Number of calls that wait for a replica.
    pub fn held(&self) -> usize {
        self.held.load(SeqCst)
    }

    /// Number of calls begun.
    pub fn begun(&self) -> u64 {
        self.begun.load(SeqCst)
    }

    /// Time limit of a call.
    pub fn timeout(&self) -> Duration {
        self.state.borrow().timeout
    }

    /// Number of ready replicas.
    pub fn endpoints(&self) -> usize {
        self.state.borrow().endpoints.len()
    }

    pub fn meter(&self, caller: TenantIndex, keys: &Keys, meters: &Meters) -> &Arc<Meter> {
        self.meters[caller.0].get_or_init(|| meters.meter(keys.name(caller), &self.name))
    }

    /// The next replica's endpoint, round-robin.
    fn endpoint(&self) -> Option<SocketAddr> {
        let state = self.state.borrow();
        let valid = state.until > Instant::now() && !state.endpoints.is_empty();
        valid.then(|| {
            let turn = self.turn.fetch_add(1, SeqCst);
            state.endpoints[turn % state.endpoints.len()]
        })
    }

    /// Connects to a replica; waits for one until `deadline`.
    pub async fn connect(
        &self,
        all: &Containers,
        held_max: usize,
        deadline: Instant,
    ) -> Result<(TcpStream, SocketAddr, Duration), Problem> {
        if let Some(at) = self.endpoint() {
            if let Ok(stream) = reach(at).await {
                return Ok((stream, at, Duration::ZERO));
            }
        }
        let began = Instant::now();
        let _held = Held::begin(all, self, held_max)?;
        let mut news = self.state.subscribe();
        let found = async {
            loop {
                if let Some(at) = self.endpoint() {
                    if let Ok(stream) = reach(at).await {
                        return (stream, at);
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                // This container owns the sender, so the channel cannot close.
                let _ = news.changed().await;
            }
        };
        let found = tokio::time::timeout_at(deadline.into(), found).await;
        match found {
            Ok((stream, at)) => Ok((stream, at, began.elapsed())),
            Err(_) => Err(Problem::new(
                Failure::Timeout,
                format!("no replica of '{}' was ready in time", self.name),
            )
            .with(RETRY_AFTER, "5")),
        }
    }
}

async fn reach(at: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(at)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(endpoints: &[&str]) -> Vec<proto::Container> {
        vec![proto::Container {
            name: "edges.red".into(),
            endpoints: endpoints.iter().map(|e| (*e).to_owned()).collect(),
            idle_ms: 1,
            timeout_ms: 60_000,
        }]
    }

    #[test]
    fn addresses_of_this_host_alone_are_no_endpoints() {
        assert!(endpoint("10.0.0.1:80").is_some());
        assert!(endpoint("[fd00::1]:80").is_some());
        for text in [
            "127.0.0.1:80",
            "[::1]:80",
            "169.254.169.254:80",
            "0.0.0.0:80",
            "10.0.0.1:0",
            "host:80",
            "",
        ] {
            assert!(endpoint(text).is_none(), "{text}");
        }
    }

    #[test]
    fn what_the_registry_said_long_ago_does_not_count() {
        let all = Containers::default();
        let now = Instant::now();
        all.learn(published(&["10.0.0.1:80", "10.0.0.2:80"]), now, 1);
        let container = all.find("edges.red").unwrap();
        let (one, other) = (container.endpoint(), container.endpoint());
        assert!(one.is_some() && other.is_some() && one != other);
        let long_ago = now.checked_sub(VALID).unwrap();
        all.learn(published(&["10.0.0.1:80"]), long_ago, 1);
        assert!(container.endpoint().is_none());
        // A function that the registry no longer lists is removed after the grace period.
        all.learn(Vec::new(), now, 1);
        assert!(all.find("edges.red").is_some());
        all.learn(published(&[]), now.checked_sub(GRACE).unwrap(), 1);
        all.learn(Vec::new(), now, 1);
        assert!(all.find("edges.red").is_none());
    }

    #[tokio::test]
    async fn calls_wait_up_to_a_number_and_a_time() {
        let all = Containers::default();
        all.learn(published(&[]), Instant::now(), 1);
        let container = all.find("edges.red").unwrap();
        let in_flight = InFlight::begin(&container);
        let refused = container.connect(&all, 0, Instant::now()).await;
        assert_eq!(refused.unwrap_err().status, 503);
        let soon = Instant::now() + Duration::from_millis(20);
        let late = container.connect(&all, 1, soon).await;
        assert_eq!(late.unwrap_err().status, 504);
        assert_eq!((container.held(), all.counts()[0].calls), (0, 1));
        drop(in_flight);
        assert_eq!((container.begun(), all.counts()[0].calls), (1, 0));
    }
}
