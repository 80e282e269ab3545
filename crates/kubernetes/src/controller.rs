//! The controller, which synchronizes the cluster's objects and the registry in both directions.
//!
//! | module | content |
//! |---|---|
//! | [`plan`] | the next steps for a Pod and its instance, as pure functions |
//! | [`pods`] | executes these steps; Pods that have to move are replaced first |
//! | [`mirror`] | devices and accelerators as objects; operators' settings of Device objects |
//! | [`functions`] | copies Function objects to the registry |
//! | [`containers`] | starts container functions when they are called, and stops them when they are idle |
//!
//! One replica leads. Each round reconciles the whole state, so a replica may fail after any step.

mod containers;
mod functions;
mod mirror;
pub mod plan;
mod pods;

use crate::events::Events;
use crate::health::{self, Counters};
use crate::options::Common;
use crate::registry::Registry;
use crate::resources::{Accelerator, Device, Function};
use crate::{lease, watch, INSTANCE};
use anyhow::{Context, Result};
use baltra_api::registry::{DevicesRequest, InstancesRequest};
use clap::Args;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Options of `baltra kubernetes controller`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Options of all daemons.
    #[command(flatten)]
    pub common: Common,
    /// The Lease for leader election among replicas
    #[arg(long, default_value = "baltra-controller")]
    pub lease: String,
    /// This replica's name
    #[arg(long, env = "HOSTNAME", default_value = "controller")]
    pub identity: String,
    /// Manage Functions that are containers: read EndpointSlices, scale Deployments
    #[arg(long)]
    pub containers: bool,
}

/// Interval of reconciliations without changes.
const ROUND: Duration = Duration::from_secs(1);
/// Changes are gathered for this time before a reconciliation.
const GATHER: Duration = Duration::from_millis(50);

pub(crate) const KEPT: usize = 0;
pub(crate) const PLACED: usize = 1;
pub(crate) const MOVED: usize = 2;
pub(crate) const RELEASED: usize = 3;
pub(crate) const ADOPTED: usize = 4;
pub(crate) const FAILURES: usize = 5;
pub(crate) const CONTAINERS_STARTED: usize = 6;
pub(crate) const CONTAINERS_STOPPED: usize = 7;
const COUNTERS: [(&str, &str); 8] = [
    (
        "instances_kept",
        "Leases of instances renewed because their Pod exists",
    ),
    ("pods_placed", "Waiting Pods that a device was allocated to"),
    (
        "pods_moved",
        "Pods replaced because their instance moved to another device",
    ),
    (
        "instances_released",
        "Instances released because their Pod is gone",
    ),
    (
        "instances_adopted",
        "Instances restored in a registry that had lost them",
    ),
    ("round_failures", "Failed reconciliations"),
    (
        "containers_started",
        "Deployments scaled from zero to one for a waiting call",
    ),
    (
        "containers_stopped",
        "Deployments scaled to zero because they were idle",
    ),
];

/// The state of a reconciliation.
pub(crate) struct Controller {
    pub client: Client,
    pub registry: Registry,
    pub events: Events,
    pub counters: Arc<Counters<8>>,
    pub pods: Store<Pod>,
    /// Instances whose Pods were deleted recently, for rounds that never saw these Pods.
    pub gone: Arc<pods::Gone>,
    pub nodes: Store<Node>,
    pub namespaces: Store<Namespace>,
    pub devices: Store<Device>,
    pub accelerators: Store<Accelerator>,
    pub functions: Store<Function>,
    /// EndpointSlices with the ready Pods of Services; `None`: containers are not managed.
    pub slices: Option<Store<EndpointSlice>>,
    pub containers: containers::Containers,
    /// The last event about each waiting Pod, to publish it only once.
    pub noted: std::sync::Mutex<HashMap<String, String>>,
    /// Instances whose Pods' eviction was accepted, until the cache shows it.
    pub evicted: std::sync::Mutex<HashSet<String>>,
}

/// Runs until it fails.
///
/// # Errors
/// It cannot start, or it fails.
pub async fn run(options: Options) -> Result<()> {
    let client = Client::try_default()
        .await
        .context("no cluster configuration: run in a Pod, or set KUBECONFIG")?;
    let registry = Registry::new(&options.common.registry)?;
    let counters = Counters::new(COUNTERS);
    let counted = counters.clone();
    let metrics = health::serve(options.common.metrics, move || counted.text()).await?;
    let mut leads = lease::lead(
        client.clone(),
        &options.common.namespace,
        &options.lease,
        &options.identity,
    );
    let news = Arc::new(Notify::new());
    let ours = watcher::Config::default().labels(INSTANCE);
    let all = watcher::Config::default;
    let gone = Arc::new(pods::Gone::default());
    let noted = gone.clone();
    let slices = if options.containers {
        Some(watched(Api::all(client.clone()), all(), &news, |_| ()).await?)
    } else {
        None
    };
    let pods = watched(Api::all(client.clone()), ours, &news, move |pod| {
        noted.note(pod)
    });
    let controller = Controller {
        events: Events::new(client.clone(), "controller"),
        pods: pods.await?,
        gone,
        nodes: watched(Api::all(client.clone()), all(), &news, |_| ()).await?,
        namespaces: watched(Api::all(client.clone()), all(), &news, |_| ()).await?,
        devices: watched(Api::all(client.clone()), all(), &news, |_| ()).await?,
        accelerators: watched(Api::all(client.clone()), all(), &news, |_| ()).await?,
        functions: watched(Api::all(client.clone()), all(), &news, |_| ()).await?,
        slices,
        containers: containers::Containers::default(),
        noted: std::sync::Mutex::default(),
        evicted: std::sync::Mutex::default(),
        registry,
        client,
        counters,
    };
    tracing::info!(%metrics, identity = options.identity, "serving");
    loop {
        if leads.wait_for(|leads| *leads).await.is_err() {
            anyhow::bail!("the task that renews the lease has ended");
        }
        // A replica that loses leadership stops at once, at any point.
        let stopped = async {
            let _ = leads.clone().wait_for(|leads| !*leads).await;
        };
        tokio::select! {
            () = stopped => {}
            () = rounds(&controller, &news) => {}
            () = containers::follow(&controller) => {}
        }
    }
}

async fn rounds(controller: &Controller, news: &Notify) {
    loop {
        if let Err(error) = controller.round().await {
            controller.counters.count(FAILURES);
            tracing::warn!(error = %format!("{error:#}"), "reconciliation failed");
        }
        tokio::select! {
            () = news.notified() => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(ROUND) => {}
        }
    }
}

impl Controller {
    /// Reconciles the whole state.
    async fn round(&self) -> Result<()> {
        self.put_functions().await?;
        self.follow_cordons().await?;
        let mut operators = self.registry.operators.clone();
        let request = DevicesRequest {
            silent: true,
            ..DevicesRequest::default()
        };
        let devices = operators.devices(request).await?.into_inner().devices;
        let instances = operators.instances(InstancesRequest::default()).await?;
        let instances = instances.into_inner().instances;
        self.follow_pods(&devices, instances).await?;
        self.mirror_devices(&devices).await?;
        self.mirror_accelerators().await?;
        self.mirror_functions().await
    }
}

/// A cache with a notification of changes; `goes` is called for each deleted object, which the
/// cache may have held only briefly.
async fn watched<K>(
    api: Api<K>,
    config: watcher::Config,
    news: &Arc<Notify>,
    goes: impl Fn(&K) + Send + 'static,
) -> Result<Store<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let news = news.clone();
    watch::cache(api, config, move |event| {
        if let watcher::Event::Delete(object) = event {
            goes(object);
        }
        news.notify_one();
    })
    .await
}
