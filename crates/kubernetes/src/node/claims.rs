//! The driver of ResourceClaims: the kubelet calls it before a Pod with a claim starts and after it
//! has ended.
//!
//! A claim has the same resources as a Pod of the webhook: a directory with a token, registered
//! with the manager together with the share of time and memory that the scheduler has accounted
//! for. A CDI file makes the container runtime mount the directory and set the environment. The
//! cluster's objects contain no secret.

use super::authority::localhost;
use super::instances::{Identity, Instances};
use super::slices::{claim_name, MEMORY, SHARE};
use super::{Options, PREPARED};
use crate::annotations::{quantity, Share};
use crate::demand::{named, CLAIM};
use crate::events::Events;
use crate::health::Counters;
use crate::registry::Registry;
use crate::webhook::pod::environment;
use crate::{GROUP, MOUNT};
use anyhow::{anyhow, bail, Context, Result};
use baltra_api::control::DevicesRequest;
use baltra_api::registry::{AllocateRequest, ReleaseRequest};
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use kube::{Api, Client, Resource};
use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

mod registration {
    #![allow(missing_docs, clippy::all)]
    tonic::include_proto!("pluginregistration");
}

mod dra {
    #![allow(missing_docs, clippy::all)]
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

use dra::dra_plugin_server::{DraPlugin, DraPluginServer};
use registration::registration_server::{Registration, RegistrationServer};

/// Timeout of the registry for recording an instance; the claim is prepared without it, too.
const REGISTRY_MAX: Duration = Duration::from_secs(2);

/// The driver's state.
#[derive(Clone)]
pub(super) struct Driver {
    pub options: Options,
    pub client: Client,
    pub registry: Registry,
    pub instances: Arc<tokio::sync::Mutex<Instances>>,
    pub events: Events,
    pub counters: Arc<Counters<4>>,
}

/// A claim's opaque configuration for the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    kind: String,
    /// Limit of its device time, percent.
    #[serde(default)]
    limit: u32,
}

/// Listens for the kubelet, which finds the driver by its socket.
pub(super) async fn serve(driver: Driver) -> Result<()> {
    let plugins = driver.options.kubelet.join("plugins").join(GROUP);
    let service = plugins.join("dra.sock");
    let registry = driver.options.kubelet.join("plugins_registry");
    std::fs::create_dir_all(&plugins)
        .with_context(|| format!("cannot create {}", plugins.display()))?;
    std::fs::create_dir_all(&driver.options.cdi)
        .with_context(|| format!("cannot create {}", driver.options.cdi.display()))?;
    let calls = listen(&service)?;
    let introduction = localhost(listen(&registry.join(format!("{GROUP}-reg.sock")))?);
    let server = DraPluginServer::new(driver);
    let introduce = RegistrationServer::new(Introduction { service });
    tokio::spawn(async move {
        let served = Server::builder()
            .add_service(server)
            .serve_with_incoming(UnixListenerStream::new(calls));
        if let Err(error) = served.await {
            tracing::error!(%error, "stopped preparing claims");
        }
    });
    tokio::spawn(async move {
        let served = Server::builder()
            .add_service(introduce)
            .serve_with_incoming(introduction);
        if let Err(error) = served.await {
            tracing::error!(%error, "cannot register the driver with the kubelet");
        }
    });
    Ok(())
}

fn listen(path: &Path) -> Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    UnixListener::bind(path).with_context(|| {
        format!(
            "cannot listen on {}: is --kubelet the kubelet's directory?",
            path.display()
        )
    })
}

struct Introduction {
    service: PathBuf,
}

#[tonic::async_trait]
impl Registration for Introduction {
    async fn get_info(
        &self,
        _: Request<registration::InfoRequest>,
    ) -> Result<Response<registration::PluginInfo>, Status> {
        Ok(Response::new(registration::PluginInfo {
            r#type: "DRAPlugin".into(),
            name: GROUP.into(),
            endpoint: self.service.display().to_string(),
            supported_versions: vec!["v1.DRAPlugin".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<registration::RegistrationStatus>,
    ) -> Result<Response<registration::RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            tracing::info!("registered the driver with the kubelet")
        } else {
            tracing::error!(error = status.error, "the kubelet refused the driver")
        }
        Ok(Response::new(registration::RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl DraPlugin for Driver {
    async fn node_prepare_resources(
        &self,
        request: Request<dra::NodePrepareResourcesRequest>,
    ) -> Result<Response<dra::NodePrepareResourcesResponse>, Status> {
        let mut reply = dra::NodePrepareResourcesResponse::default();
        for claim in request.into_inner().claims {
            let answer = match self.prepare(&claim).await {
                Ok(devices) => dra::NodePrepareResourceResponse {
                    devices,
                    error: String::new(),
                },
                Err(error) => {
                    let error = format!("baltra: {error:#}");
                    tracing::warn!(
                        namespace = claim.namespace,
                        claim = claim.name,
                        error,
                        "not prepared"
                    );
                    dra::NodePrepareResourceResponse {
                        devices: Vec::new(),
                        error,
                    }
                }
            };
            reply.claims.insert(claim.uid, answer);
        }
        Ok(Response::new(reply))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<dra::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<dra::NodeUnprepareResourcesResponse>, Status> {
        let mut reply = dra::NodeUnprepareResourcesResponse::default();
        for claim in request.into_inner().claims {
            let undone = self.unprepare(&claim).await;
            let error = undone
                .err()
                .map_or(String::new(), |e| format!("baltra: {e:#}"));
            let answer = dra::NodeUnprepareResourceResponse { error };
            reply.claims.insert(claim.uid, answer);
        }
        Ok(Response::new(reply))
    }
}

impl Driver {
    async fn prepare(&self, requested: &dra::Claim) -> Result<Vec<dra::Device>> {
        check(requested)?;
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &requested.namespace);
        let claim = claims
            .get(&requested.name)
            .await
            .context("cannot read the claim")?;
        // Another claim with the same name may have been created since.
        if claim.metadata.uid.as_deref() != Some(&requested.uid) {
            bail!(
                "claim {}/{} was replaced by another of that name",
                requested.namespace,
                requested.name
            );
        }
        let results = allocated(&claim, &self.options.node);
        if results.is_empty() {
            bail!("the claim has no device of this node");
        }
        let mut manager = super::control(&self.options.node_runtime_dir)?;
        let listed = manager
            .devices(DevicesRequest {})
            .await
            .context("the manager does not respond")?;
        let listed: Vec<String> = listed
            .into_inner()
            .devices
            .into_iter()
            .map(|d| d.name)
            .collect();
        let mut devices = Vec::new();
        for result in &results {
            let name = listed.iter().find(|name| claim_name(name) == result.device);
            let name =
                name.ok_or_else(|| anyhow!("device '{}' no longer exists", result.device))?;
            devices.push(name.clone());
        }
        devices.sort();
        devices.dedup();
        let identity = Identity {
            instance: instance(requested),
            owner: requested.namespace.clone(),
            devices,
            share: Share {
                request: share(&results)?,
                limit: limit(&claim)?,
            },
            memory_bytes: memory(&results)?,
        };
        let directory = self.instances.lock().await.ensure_claim(&identity).await?;
        let cdi = cdi(&requested.uid, &identity.instance, &directory);
        let path = self.cdi_file(&requested.uid);
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, serde_json::to_vec(&cdi)?)
            .and_then(|()| std::fs::rename(&fresh, &path))
            .with_context(|| format!("cannot write {}", path.display()))?;
        self.note(requested, &identity).await;
        self.counters.count(PREPARED);
        let note = format!(
            "prepared {} on {}: {} % of its time",
            identity.devices.join(", "),
            self.options.node,
            identity.share.request
        );
        self.events
            .normal(&claim.object_ref(&()), "Prepared", &note)
            .await;
        let device = |r: &DeviceRequestAllocationResult| dra::Device {
            request_names: vec![r.request.clone()],
            pool_name: r.pool.clone(),
            device_name: r.device.clone(),
            cdi_device_ids: vec![format!("{GROUP}/device={}", requested.uid)],
            share_id: r.share_id.clone(),
        };
        Ok(results.iter().map(device).collect())
    }

    async fn unprepare(&self, requested: &dra::Claim) -> Result<()> {
        check(requested)?;
        let name = instance(requested);
        let path = self.cdi_file(&requested.uid);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
        self.instances.lock().await.remove(&name).await?;
        let request = ReleaseRequest { instance: name };
        let mut instances = self.registry.instances.clone();
        let released = tokio::time::timeout(REGISTRY_MAX, instances.release(request)).await;
        if !matches!(released, Ok(Ok(_))) {
            tracing::warn!(
                claim = requested.name,
                "cannot report the end of a claim to the registry"
            );
        }
        Ok(())
    }

    /// Reports the device's use to the registry. A failure is not fatal: the scheduler has decided
    /// already.
    async fn note(&self, requested: &dra::Claim, identity: &Identity) {
        let id = |name: &String| format!("{}/{name}", self.options.node);
        let request = AllocateRequest {
            instance: identity.instance.clone(),
            tenant: identity.owner.clone(),
            count: identity.devices.len() as u32,
            hostname: format!("{CLAIM}{}/{}", requested.namespace, requested.name),
            lease_s: Some(0),
            devices: identity.devices.iter().map(id).collect(),
            memory_bytes: identity.memory_bytes.unwrap_or(0),
            ..AllocateRequest::default()
        };
        let mut instances = self.registry.instances.clone();
        let noted = tokio::time::timeout(REGISTRY_MAX, instances.allocate(request)).await;
        if !matches!(noted, Ok(Ok(_))) {
            tracing::warn!(
                claim = requested.name,
                "cannot report the claim to the registry"
            );
        }
    }

    fn cdi_file(&self, uid: &str) -> PathBuf {
        self.options.cdi.join(format!("{GROUP}-{uid}.json"))
    }
}

/// A uid becomes a file name.
fn check(requested: &dra::Claim) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if (1..=64).contains(&requested.uid.len()) && requested.uid.chars().all(plain) {
        return Ok(());
    }
    bail!("'{}' is not a claim's uid", requested.uid.escape_debug())
}

fn instance(requested: &dra::Claim) -> String {
    named(&requested.namespace, &requested.uid.replace('-', ""))
}

/// The claim's allocated devices of this node.
fn allocated(claim: &ResourceClaim, node: &str) -> Vec<DeviceRequestAllocationResult> {
    let status = claim.status.as_ref().and_then(|s| s.allocation.as_ref());
    let devices = status.and_then(|a| a.devices.as_ref());
    let results = devices.and_then(|d| d.results.as_ref());
    let own = |r: &&DeviceRequestAllocationResult| r.driver == GROUP && r.pool == node;
    results.into_iter().flatten().filter(own).cloned().collect()
}

fn consumed(result: &DeviceRequestAllocationResult, what: &str) -> Result<Option<u64>> {
    let Some(capacity) = &result.consumed_capacity else {
        return Ok(None);
    };
    // The scheduler writes names with or without the driver's domain.
    let found = capacity
        .iter()
        .find(|(key, _)| *key == what || **key == format!("{GROUP}/{what}"));
    let whole = |text: &str| quantity(text).ok_or_else(|| anyhow!("'{text}' is not a quantity"));
    found.map(|(_, consumed)| whole(&consumed.0)).transpose()
}

/// Percent of the time of each device; for several devices, the maximum.
fn share(results: &[DeviceRequestAllocationResult]) -> Result<u32> {
    let mut most = 0;
    for result in results {
        most = most.max(consumed(result, SHARE)?.unwrap_or(0));
    }
    Ok(most.min(100) as u32)
}

fn memory(results: &[DeviceRequestAllocationResult]) -> Result<Option<u64>> {
    let mut all = None;
    for result in results {
        if let Some(bytes) = consumed(result, MEMORY)? {
            all = Some(all.unwrap_or(0) + bytes);
        }
    }
    Ok(all)
}

/// The limit in the claim's configuration; 0: no limit.
fn limit(claim: &ResourceClaim) -> Result<u32> {
    let allocation = claim.status.as_ref().and_then(|s| s.allocation.as_ref());
    let configurations = allocation
        .and_then(|a| a.devices.as_ref())
        .and_then(|d| d.config.as_ref());
    let mut limit = 0;
    for configuration in configurations.into_iter().flatten() {
        let Some(opaque) = configuration.opaque.as_ref().filter(|o| o.driver == GROUP) else {
            continue;
        };
        let parameters: Configuration = serde_json::from_value(opaque.parameters.0.clone()).context(
            "invalid configuration of the claim: expected 'kind: DeviceConfig' and 'limit: PERCENT'",
        )?;
        if parameters.kind != "DeviceConfig" || parameters.limit > 100 {
            bail!("invalid configuration of the claim: 'kind' must be DeviceConfig, 'limit' at most 100");
        }
        limit = parameters.limit;
    }
    Ok(limit)
}

/// The CDI edits for a container of a Pod with the claim.
fn cdi(uid: &str, instance: &str, directory: &Path) -> serde_json::Value {
    let mut env: Vec<String> = environment()
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    env.push(format!("BALTRA_INSTANCE={instance} (restarts)"));
    json!({
        "cdiVersion": "0.6.0",
        "kind": format!("{GROUP}/device"),
        "devices": [{
            "name": uid,
            "containerEdits": {
                "env": env,
                "mounts": [{
                    "hostPath": directory,
                    "containerPath": MOUNT,
                    "options": ["ro", "nosuid", "nodev", "bind"],
                }],
            },
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(consumed: serde_json::Value, parameters: serde_json::Value) -> ResourceClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "c"}, "spec": {},
            "status": {"allocation": {"devices": {
                "results": [
                    {"driver": GROUP, "pool": "n1", "device": "a", "request": "r", "consumedCapacity": consumed},
                    {"driver": GROUP, "pool": "n2", "device": "a", "request": "r"},
                    {"driver": "other.io", "pool": "n1", "device": "a", "request": "r"}],
                "config": [{"source": "FromClaim", "opaque": {"driver": GROUP, "parameters": parameters}}]}}}}))
        .unwrap()
    }

    fn configuration(limit: u32) -> serde_json::Value {
        json!({"apiVersion": "baltra.io/v1alpha1", "kind": "DeviceConfig", "limit": limit})
    }

    #[test]
    fn a_claim_is_worth_what_the_scheduler_counted() {
        let claim = claim(json!({"share": "30", "memory": "2Gi"}), configuration(40));
        let results = allocated(&claim, "n1");
        assert_eq!(results.len(), 1);
        assert_eq!(share(&results).unwrap(), 30);
        assert_eq!(memory(&results).unwrap(), Some(2 << 30));
        assert_eq!(limit(&claim).unwrap(), 40);
    }

    #[test]
    fn a_configuration_that_makes_no_sense_is_refused() {
        assert!(limit(&claim(json!({}), configuration(101))).is_err());
        assert!(limit(&claim(json!({}), json!({"kind": "DeviceConfig"}))).is_err());
        let typo = json!({"apiVersion": "baltra.io/v1alpha1", "kind": "DeviceConfig", "limitt": 3});
        assert!(limit(&claim(json!({}), typo)).is_err());
        assert!(share(&allocated(
            &claim(json!({"share": "x"}), configuration(0)),
            "n1"
        ))
        .is_err());
    }

    #[test]
    fn a_uid_makes_no_path() {
        let claim = |uid: &str| dra::Claim {
            uid: uid.into(),
            namespace: "red".into(),
            name: "c".into(),
        };
        check(&claim("0b0e0a0c-1111-2222-3333-444455556666")).unwrap();
        for uid in ["", "../x", "a/b", "a.b", &"x".repeat(65)] {
            assert!(check(&claim(uid)).is_err(), "{uid}");
        }
        let name = instance(&claim("0b0e0a0c-1111-2222-3333-444455556666"));
        assert_eq!(name, "red.0b0e0a0c111122223333");
    }

    #[test]
    fn a_container_gets_the_claim_s_directory_read_only() {
        let cdi = cdi("u-1", "red.1", Path::new("/run/baltra/instances/red.1"));
        assert_eq!(cdi["kind"], "baltra.io/device");
        let edits = &cdi["devices"][0]["containerEdits"];
        assert_eq!(edits["mounts"][0]["containerPath"], "/baltra");
        assert!(edits["mounts"][0]["options"]
            .as_array()
            .unwrap()
            .contains(&json!("ro")));
        let env = edits["env"].as_array().unwrap();
        assert!(env.contains(&json!("BALTRA_ENVIRONMENT=/baltra/environment")));
    }
}
