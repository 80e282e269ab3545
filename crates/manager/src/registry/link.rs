//! The node's connection to its registry: one task, and calls of other threads.

use super::orders::NodeOrders;
use super::places::PendingReports;
use super::report::{self, Meter};
use super::sessions::{self, Sessions};
use super::{identity, moving, Identity};
use crate::node::Node;
use crate::options::Options;
use anyhow::Result;
use baltra_api::client::{self, Backoff, Nodes};
use baltra_api::registry as proto;
use baltra_ring::Locked;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{watch, Notify};
use tonic::{Code, Status};

/// Timeout of the registry for callers that wait for its response.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// First and longest pause between retries.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Delay of an early heartbeat, to gather further changes.
const GATHER: Duration = Duration::from_millis(20);
/// Interval for checking whether sessions on a drained device have to be ended.
const LINGER: Duration = Duration::from_millis(500);

/// State of the node's membership.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Standing {
    /// The registry has not responded yet.
    #[default]
    Joining,
    /// The node is a member.
    Joined,
    /// The registry is unreachable or rejects the node, with the reason.
    Apart(String),
}

#[derive(Default)]
struct State {
    orders: NodeOrders,
    standing: Standing,
    /// Instances whose sessions on a drained device are to be ended: device, instance.
    leaving: Vec<(String, String)>,
}

/// The manager's connection to its registry.
pub struct Link {
    /// The registry's URL.
    pub url: String,
    identity: Identity,
    client: client::Options,
    nodes: OnceLock<Nodes>,
    runtime: OnceLock<Handle>,
    record: PathBuf,
    state: Mutex<State>,
    news: Notify,
    /// The registry's records of the sessions, and their moves.
    pub(super) sessions: Sessions,
    /// Moves of sessions that the registry has to record.
    pub(super) places: PendingReports,
    /// Number of changes that callers wait for the registry to have.
    changes: AtomicU64,
    /// Number of those that were before the last heartbeat that the registry has.
    reported: watch::Sender<u64>,
}

impl Link {
    /// A connection to the configured registry, if there is one, with its last orders.
    pub fn new(options: &Options) -> Result<Option<Link>> {
        let node = &options.node;
        if node.registry.is_empty() {
            return Ok(None);
        }
        let record = options.paths.state.join("orders.json");
        let orders = std::fs::read(&record)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        let state = State {
            orders,
            ..State::default()
        };
        Ok(Some(Link {
            url: node.registry.clone(),
            identity: Identity::load(&options.paths.identity_file())?,
            client: client::Options {
                url: node.registry.clone(),
                token: node.registry_token.clone(),
                ca: node.registry_ca.clone(),
            },
            nodes: OnceLock::new(),
            runtime: OnceLock::new(),
            record,
            state: Mutex::new(state),
            news: Notify::new(),
            sessions: Sessions::default(),
            places: PendingReports::default(),
            changes: AtomicU64::new(0),
            reported: watch::Sender::new(0),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// State of the membership as text; empty: the node is a member.
    pub fn trouble(&self) -> String {
        match &self.state().standing {
            Standing::Joining => "not reached yet".into(),
            Standing::Joined => String::new(),
            Standing::Apart(why) => why.clone(),
        }
    }

    /// The reason for which a device refuses a new session of a tenant, if it does.
    pub(crate) fn refusal(
        &self,
        device: &str,
        description: &str,
        tenant: &str,
    ) -> Option<&'static str> {
        let instance = super::instance(description);
        self.state().orders.refusal(device, instance, tenant)
    }

    /// Whether a device is allocated to a tenant's instance, according to the last orders.
    pub(crate) fn is_allocated(&self, device: &str, instance: &str, tenant: &str) -> bool {
        self.state().orders.is_allocated(device, instance, tenant)
    }

    /// Instances to which a device is allocated, according to the last orders.
    pub(crate) fn holders(&self, device: &str) -> Vec<String> {
        let state = self.state();
        let orders = state.orders.devices.get(device);
        orders.map_or(Vec::new(), |o| o.instances.iter().cloned().collect())
    }

    /// Applies migrations before the next heartbeat's answer contains them.
    pub(crate) fn moved(&self, node: &str, device: &str, migrations: &[proto::Migration]) {
        let mut state = self.state();
        let Some(orders) = state.orders.devices.get_mut(device) else {
            return;
        };
        for migration in migrations {
            let mut devices = migration.devices.iter();
            if !devices.any(|a| a.node == node && a.device == device) {
                orders.instances.remove(&migration.instance);
            }
        }
    }

    /// Whether the registry lacks a move of a session.
    pub(crate) fn has_places(&self) -> bool {
        self.places.first().is_some()
    }

    /// Triggers a heartbeat before the next one is due.
    pub(crate) fn urge(&self) {
        self.news.notify_one();
    }

    /// Triggers a heartbeat, and waits until the registry has one that began after this call. Gives up
    /// after [`ANSWER_MAX`], and at once if the node is not a member.
    pub(crate) async fn report(&self) {
        let change = self.changes.fetch_add(1, Ordering::AcqRel) + 1;
        self.urge();
        if self.state().standing != Standing::Joined {
            return;
        }
        let mut reported = self.reported.subscribe();
        let has_it = reported.wait_for(|changes| *changes >= change);
        let _ = tokio::time::timeout(ANSWER_MAX, has_it).await;
    }

    /// Calls the registry from a thread that waits for the answer, within a time limit.
    pub(crate) fn call<T, F>(&self, question: impl FnOnce(Nodes) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let (Some(runtime), Some(nodes)) = (self.runtime.get(), self.nodes.get()) else {
            return Err(Status::unavailable("the manager has just started"));
        };
        let call = question(nodes.clone());
        runtime.block_on(limited(call))
    }

    /// Sends a message without waiting for the answer.
    pub(crate) fn notify<T, F>(self: &Arc<Self>, message: impl FnOnce(Nodes) -> F)
    where
        F: Future<Output = Result<tonic::Response<T>, Status>> + Send + 'static,
        T: Send + 'static,
    {
        if let (Some(runtime), Some(nodes)) = (self.runtime.get(), self.nodes.get()) {
            let call = message(nodes.clone());
            runtime.spawn(async move {
                if let Err(error) = limited(call).await {
                    tracing::debug!(error = error.message(), "cannot notify the registry");
                }
            });
        }
    }

    /// The node's name and id.
    pub(crate) fn node_identity(&self, node: &Node) -> (String, String) {
        (node.options.node.name.clone(), self.identity.id.clone())
    }

    fn apart(&self, error: &Status) {
        let why = match error.code() {
            Code::PermissionDenied | Code::Unauthenticated | Code::InvalidArgument => {
                error.message().to_owned()
            }
            _ => format!("not reached: {}", error.message()),
        };
        let mut state = self.state();
        let news = Standing::Apart(why);
        if state.standing != news {
            let Standing::Apart(why) = &news else { return };
            tracing::warn!(
                registry = self.url,
                why,
                "this node has not joined the registry"
            );
            state.standing = news;
        }
    }

    fn joined(&self) {
        let mut state = self.state();
        if state.standing != Standing::Joined {
            tracing::info!(registry = self.url, "joined the registry");
            state.standing = Standing::Joined;
        }
    }

    /// Applies the registry's orders.
    fn apply(&self, orders: Vec<proto::DeviceOrders>) {
        let orders = NodeOrders::from(orders);
        let mut state = self.state();
        if state.orders == orders {
            return;
        }
        let moved = orders.moved(&state.orders);
        for (device, orders) in &orders.devices {
            let before = state
                .orders
                .devices
                .get(device)
                .cloned()
                .unwrap_or_default();
            if (before.cordoned, before.draining) != (orders.cordoned, orders.draining) {
                let (cordoned, draining) = (orders.cordoned, orders.draining);
                tracing::info!(
                    device,
                    cordoned,
                    draining,
                    "received orders from the registry"
                );
            }
        }
        let stays = |device: &str, instance: &str| {
            let orders = orders.devices.get(device);
            orders.is_some_and(|o| o.instances.contains(instance))
        };
        state
            .leaving
            .retain(|(device, instance)| !stays(device, instance));
        state.leaving.extend(moved);
        state.orders = orders;
        let text = serde_json::to_vec(&state.orders).expect("plain data has a JSON form");
        drop(state);
        // Only needed at the next start; a full disk has no other effect.
        if let Err(error) = identity::replace(&self.record, &text) {
            tracing::warn!(path = %self.record.display(), %error, "cannot store the registry's orders");
        }
    }

    /// Ends sessions of instances that have been moved to another device, as soon as that is
    /// allowed.
    fn carry_out(&self, node: &Node) {
        let leaving = self.state().leaving.clone();
        for (name, instance) in leaving {
            let sessions = moving::sessions_of(node, &name, &instance);
            let Some(device) = node.device(&name).filter(|_| !sessions.is_empty()) else {
                let done = (name, instance);
                self.state().leaving.retain(|l| *l != done);
                continue;
            };
            if moving::busy(node, device, &sessions).is_empty() {
                let reason = format!(
                    "device '{name}' is being drained, and instance '{instance}' was moved to another device"
                );
                let sessions: Vec<u64> = sessions.into_iter().map(|(id, _)| id).collect();
                moving::dismiss(node, device, &sessions, &reason);
            }
        }
    }
}

async fn limited<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(ANSWER_MAX, call).await {
        Ok(answer) => answer.map(tonic::Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded(format!(
            "no answer within {} s",
            ANSWER_MAX.as_secs()
        ))),
    }
}

/// Keeps the node registered until the process exits.
pub(crate) async fn run(node: Arc<Node>, link: Arc<Link>) {
    let nodes = match client::nodes(&link.client) {
        Ok(nodes) => nodes,
        Err(error) => {
            let why = format!("{error:#}");
            tracing::error!(
                registry = link.url,
                why,
                "cannot create the registry's client"
            );
            link.state().standing = Standing::Apart(why);
            return;
        }
    };
    let _ = link.runtime.set(Handle::current());
    let _ = link.nodes.set(nodes.clone());
    tokio::spawn(make_way(node.clone(), link.clone()));
    tokio::spawn(sessions::describe(node.clone(), link.clone()));
    let mut member = Member {
        node,
        link,
        nodes,
        meter: Meter::default(),
        registered: Vec::new(),
    };
    member.run().await;
}

/// Periodically ends sessions that have to leave drained devices.
async fn make_way(node: Arc<Node>, link: Arc<Link>) {
    let mut look = tokio::time::interval(LINGER);
    loop {
        look.tick().await;
        if link.state().leaving.is_empty() {
            continue;
        }
        let (node, link) = (node.clone(), link.clone());
        let _ = tokio::task::spawn_blocking(move || link.carry_out(&node)).await;
    }
}

/// The node as a member of the pool.
struct Member {
    node: Arc<Node>,
    link: Arc<Link>,
    nodes: Nodes,
    meter: Meter,
    /// The descriptions that the registry has.
    registered: Vec<proto::DeviceDescription>,
}

impl Member {
    async fn run(&mut self) {
        self.wait_ready().await;
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        loop {
            match self.register().await {
                Ok((interval, generation)) => {
                    backoff.reset();
                    self.serve(interval, generation).await;
                }
                Err(error) => {
                    self.link.apart(&error);
                    tokio::time::sleep(backoff.pause()).await;
                }
            }
        }
    }

    /// Waits for the drivers' descriptions of their devices, so that the first registration has
    /// them.
    async fn wait_ready(&self) {
        let patience = Duration::from_millis(self.node.options.executors.start_timeout_ms);
        let ready = async {
            while !self.node.is_ready() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(patience, ready).await;
    }

    /// Registers the node; returns the interval of heartbeats and the registry's generation.
    async fn register(&mut self) -> Result<(Duration, u64), Status> {
        let options = &self.node.options;
        let (name, id) = self.link.node_identity(&self.node);
        let descriptions = report::descriptions(&self.node);
        let endpoints = options.node.endpoints(&options.paths, &options.listen);
        if endpoints.is_empty() {
            tracing::warn!(
                registry = self.link.url,
                "this node advertises no address that other hosts can reach (set 'listen.tcp' or 'node.advertise')"
            );
        }
        let request = proto::RegisterRequest {
            node: Some(proto::Node {
                name,
                id,
                endpoints,
                version: env!("CARGO_PKG_VERSION").into(),
                metrics: options.metrics.address.clone(),
            }),
            devices: descriptions.clone(),
        };
        let reply = limited(self.nodes.register(request)).await?;
        self.registered = descriptions;
        self.link.joined();
        self.link.apply(reply.orders);
        Ok((interval(reply.heartbeat_ms), reply.generation))
    }

    /// Sends heartbeats until the node has to register again.
    async fn serve(&mut self, interval: Duration, generation: u64) {
        let link = self.link.clone();
        let mut backoff = Backoff::new(PAUSE_MIN, interval.max(PAUSE_MIN));
        let mut wait = Duration::ZERO;
        loop {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = link.news.notified() => tokio::time::sleep(GATHER).await,
            }
            if report::descriptions(&self.node) != self.registered {
                return;
            }
            match self.heartbeat().await {
                Ok(reply) => {
                    backoff.reset();
                    wait = self::interval(reply.heartbeat_ms);
                    self.link.joined();
                    self.link.apply(reply.orders);
                    end_tasks(&self.node, &reply.ends);
                    sessions::carry_out(&self.node, &self.link, reply.moves);
                    if reply.generation != generation {
                        return;
                    }
                }
                Err(error) if error.code() == Code::NotFound => return,
                Err(error) => {
                    self.link.apart(&error);
                    wait = backoff.pause();
                }
            }
        }
    }

    /// Reports where sessions have moved.
    async fn report_places(&mut self) {
        let places = &self.link.places;
        while let Some(report) = places.first() {
            let answer = limited(self.nodes.session_placed(report)).await;
            if !places.answered(&answer) {
                return;
            }
        }
    }

    async fn heartbeat(&mut self) -> Result<proto::HeartbeatReply, Status> {
        let changes = self.link.changes.load(Ordering::Acquire);
        self.report_places().await;
        let (node, id) = self.link.node_identity(&self.node);
        let mut devices = self.meter.loads(&self.node);
        for device in &mut devices {
            device.open = self.link.sessions.of(&self.node, &device.name);
        }
        let request = proto::HeartbeatRequest {
            node,
            id,
            devices,
            uptime_s: self.node.started.elapsed().as_secs(),
            weights: report::weights(&self.node),
            accelerators: report::accelerators(&self.node),
            moved: self.link.sessions.results(),
        };
        let reply = limited(self.nodes.heartbeat(request)).await?;
        self.link.reported.send_replace(changes);
        Ok(reply)
    }
}

/// Carries out an operator's orders to end tasks.
fn end_tasks(node: &Node, ends: &[proto::TaskEnd]) {
    for end in ends {
        if let Some(device) = node.device(&end.device) {
            tracing::info!(
                device = end.device,
                lease = end.lease,
                "received an order to end a task"
            );
            device.gate.end(end.lease, end.started_ns);
        }
    }
}

/// The registry's interval, within bounds.
fn interval(heartbeat_ms: u64) -> Duration {
    Duration::from_millis(heartbeat_ms.clamp(20, 60_000))
}

impl Link {
    /// Removes the node from the pool when the manager shuts down.
    pub(crate) fn deregister(&self, node: &Node) {
        if self.state().standing != Standing::Joined {
            return;
        }
        let (node, id) = self.node_identity(node);
        let request = proto::DeregisterRequest { node, id };
        let answer = self.call(|mut nodes| async move { nodes.deregister(request).await });
        if let Err(error) = answer {
            tracing::debug!(
                error = error.message(),
                "cannot deregister from the registry"
            );
        }
    }
}
