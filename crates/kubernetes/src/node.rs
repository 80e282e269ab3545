//! The node agent, which runs beside the Device Manager.
//!
//! | module | content |
//! |---|---|
//! | [`instances`] | a directory for each Pod and claim: token, socket, library; the manager receives its owner |
//! | [`claims`] | the driver of ResourceClaims: prepares them for the kubelet |
//! | [`authority`] | the kubelet's HTTP/2 authority in its calls to the driver |
//! | [`slices`] | the node's devices and their capacity for claims |
//! | [`published`] | keeps the Node's labels and its ResourceSlice correct |
//!
//! A token is generated here, written into a directory that one Pod mounts, and registered with the
//! local manager: the cluster's objects never hold it.

mod authority;
mod claims;
pub mod instances;
mod published;
pub mod slices;

use crate::annotations;
use crate::controller::plan::View;
use crate::events::Events;
use crate::health::{self, Counters};
use crate::options::Common;
use crate::registry::Registry;
use crate::INSTANCE;
use anyhow::{Context, Result};
use baltra_api::control::control_client::ControlClient;
use baltra_api::control::{Device, DevicesRequest};
use clap::Args;
use futures_util::StreamExt;
use instances::{Identity, Instances};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{watcher, WatchStreamExt};
use kube::{Api, Client, Resource};
use published::Published;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tonic::transport::{Channel, Endpoint};

/// Options of `baltra kubernetes node`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Options of all daemons.
    #[command(flatten)]
    pub common: Common,
    /// This node's name, in the cluster and at its manager
    #[arg(long, env = "NODE_NAME")]
    pub node: String,
    /// The manager's runtime directory
    #[arg(long, value_name = "DIR", default_value = "/run/baltra")]
    pub node_runtime_dir: PathBuf,
    /// The OpenCL library for Pods
    #[arg(
        long,
        value_name = "FILE",
        env = "BALTRA_LIBRARY",
        default_value = "/usr/lib/libbaltra_opencl.so"
    )]
    pub library: PathBuf,
    /// The kubelet's directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet: PathBuf,
    /// Directory of CDI devices for the container runtime
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    pub cdi: PathBuf,
    /// Disable the driver of claims, for clusters without DRA
    #[arg(long)]
    pub no_dra: bool,
}

/// Interval of rounds without changes.
const ROUND: Duration = Duration::from_secs(1);

pub(crate) const MADE: usize = 0;
pub(crate) const REMOVED: usize = 1;
pub(crate) const PREPARED: usize = 2;
const FAILURES: usize = 3;
const COUNTERS: [(&str, &str); 4] = [
    (
        "identities_made",
        "Pods and claims that a directory and a token were made for",
    ),
    (
        "identities_removed",
        "Pods and claims whose directory was removed",
    ),
    ("claims_prepared", "Claims prepared for the kubelet"),
    ("node_failures", "Failed reconciliations"),
];

/// A connection to the manager, established at the first request.
///
/// # Errors
/// The path cannot be converted to an address.
pub fn control(runtime_dir: &std::path::Path) -> Result<ControlClient<Channel>> {
    let path = runtime_dir.join("control.sock");
    let endpoint = Endpoint::from_shared(format!("unix:{}", path.display()))?;
    let endpoint = endpoint
        .connect_timeout(Duration::from_secs(2))
        .timeout(Duration::from_secs(10));
    Ok(ControlClient::new(endpoint.connect_lazy()))
}

/// Runs until it fails.
///
/// # Errors
/// It cannot start, or it fails.
pub async fn run(options: Options) -> Result<()> {
    let client = Client::try_default()
        .await
        .context("no cluster configuration: run in a Pod, or set KUBECONFIG")?;
    let counters = Counters::new(COUNTERS);
    let counted = counters.clone();
    let metrics = health::serve(options.common.metrics, move || counted.text()).await?;
    let registry = Registry::new(&options.common.registry)?;
    let manager = control(&options.node_runtime_dir)?;
    let instances = Instances::new(&options.node_runtime_dir, &options.library, manager.clone())?;
    let instances = Arc::new(tokio::sync::Mutex::new(instances));
    let news = Arc::new(Notify::new());
    let own = format!("metadata.name={}", options.node);
    let pods = watcher::Config::default()
        .labels(INSTANCE)
        .fields(&format!("spec.nodeName={}", options.node));
    let pods: Store<Pod> = observe(&client, pods, &news).await?;
    let nodes = observe(&client, watcher::Config::default().fields(&own), &news).await?;
    let slices = if options.no_dra {
        None
    } else {
        let own = format!("metadata.name={}", slices::slice_name(&options.node));
        Some(observe(&client, watcher::Config::default().fields(&own), &news).await?)
    };
    let mut published = Published::new(client.clone(), &options.node, nodes, slices);
    let events = Events::new(client.clone(), "node");
    if !options.no_dra {
        let driver = claims::Driver {
            options: options.clone(),
            client: client.clone(),
            registry: registry.clone(),
            instances: instances.clone(),
            events: events.clone(),
            counters: counters.clone(),
        };
        claims::serve(driver).await?;
    }
    tracing::info!(node = options.node, %metrics, "serving");
    let mut failed = BTreeSet::new();
    loop {
        let round = async {
            follow(&options, &instances, &pods, &counters).await?;
            let devices = devices(manager.clone()).await;
            report(&options.node, &devices, &mut failed, &events).await;
            let pool = if options.no_dra {
                Vec::new()
            } else {
                slices::pool(&registry, &options.node).await
            };
            published.reconcile(&devices, &pool).await
        };
        if let Err(error) = round.await {
            counters.count(FAILURES);
            tracing::warn!(error = %format!("{error:#}"), "reconciliation failed");
        }
        tokio::select! {
            () = news.notified() => {}
            () = tokio::time::sleep(ROUND) => {}
        }
    }
}

/// A cache of some of the cluster's objects; `news` is notified whenever one of them changes.
async fn observe<K>(
    client: &Client,
    config: watcher::Config,
    news: &Arc<Notify>,
) -> Result<Store<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let watched = watcher(Api::<K>::all(client.clone()), config).default_backoff();
    let mut stream = reflector::reflector(writer, watched).boxed();
    let news = news.clone();
    tokio::spawn(async move {
        while let Some(event) = stream.next().await {
            match event {
                Ok(_) => news.notify_one(),
                Err(error) => {
                    let kind = K::kind(&());
                    tracing::warn!(%kind, %error, "cannot watch objects");
                }
            }
        }
    });
    store.wait_until_ready().await?;
    Ok(store)
}

/// Ensures that Pods of this node have a directory and a token, and removes those of other Pods.
async fn follow(
    options: &Options,
    instances: &tokio::sync::Mutex<Instances>,
    pods: &Store<Pod>,
    counters: &Counters<4>,
) -> Result<()> {
    let wanted: Vec<Identity> = pods
        .state()
        .iter()
        .filter_map(|pod| identity(pod, &options.node))
        .collect();
    let mut instances = instances.lock().await;
    let (made, removed) = instances.follow(&wanted).await?;
    (0..made).for_each(|_| counters.count(MADE));
    (0..removed).for_each(|_| counters.count(REMOVED));
    Ok(())
}

/// A Pod's identity for this node's manager; `None` if the Pod has terminated or waits for a
/// device.
fn identity(pod: &Pod, node: &str) -> Option<Identity> {
    let view = View::of(pod)?;
    if view.finished || view.allocated.is_empty() {
        return None;
    }
    let own = view.allocated.iter().filter_map(|id| id.split_once('/'));
    let devices = own
        .filter(|(at, _)| *at == node)
        .map(|(_, name)| name.to_owned());
    let mut annotations_given = pod.metadata.annotations.clone().unwrap_or_default();
    annotations_given.retain(|key, _| {
        let key = key.strip_prefix(annotations::PREFIX);
        matches!(key, Some("share" | "limit" | "memory"))
    });
    let wanted = annotations::device_request(&annotations_given)
        .ok()
        .flatten();
    let wanted = wanted.unwrap_or_default();
    let devices: Vec<String> = devices.collect();
    (!devices.is_empty()).then_some(Identity {
        instance: view.instance,
        owner: view.namespace,
        devices,
        share: wanted.share,
        memory_bytes: wanted.memory_bytes,
    })
}

/// The devices of the node's manager; none if it does not respond, so that nothing new is allocated
/// on it.
async fn devices(mut manager: ControlClient<Channel>) -> Vec<Device> {
    match manager.devices(DevicesRequest {}).await {
        Ok(reply) => reply.into_inner().devices,
        Err(status) => {
            tracing::warn!(%status, "the manager does not respond");
            Vec::new()
        }
    }
}

/// Publishes events of the Node for devices that have failed or are ready again; `failed` are the
/// failed devices of the previous round.
async fn report(node: &str, devices: &[Device], failed: &mut BTreeSet<String>, events: &Events) {
    let object = ObjectReference {
        kind: Some("Node".into()),
        api_version: Some("v1".into()),
        name: Some(node.to_owned()),
        uid: Some(node.to_owned()),
        ..ObjectReference::default()
    };
    for device in devices {
        let fails = device.state == "failed";
        if fails && failed.insert(device.name.clone()) {
            let note = format!("device {}: {}", device.name, device.reason);
            events.warning(&object, "DeviceFailed", &note).await;
        } else if !fails && failed.remove(&device.name) {
            let note = format!("device {}", device.name);
            events.normal(&object, "DeviceReady", &note).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_is_known_by_the_devices_of_its_own_node() {
        let pod = |allocated: &str, phase: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "red", "labels": {INSTANCE: "red.1"},
                    "annotations": {crate::ALLOCATED: allocated, "baltra.io/share": "30", "baltra.io/memory": "1Gi", "baltra.io/device": "x"}},
                "spec": {"containers": []}, "status": {"phase": phase}}))
            .unwrap()
        };
        let known = identity(&pod("n1/a,n2/b", "Running"), "n1").unwrap();
        assert_eq!(
            (known.devices, known.share.request),
            (vec!["a".to_owned()], 30)
        );
        assert_eq!(
            (known.owner.as_str(), known.memory_bytes),
            ("red", Some(1 << 30))
        );
        assert!(identity(&pod("n2/b", "Running"), "n1").is_none());
        assert!(identity(&pod("n1/a", "Succeeded"), "n1").is_none());
        assert!(identity(&pod("", "Pending"), "n1").is_none());
    }
}
