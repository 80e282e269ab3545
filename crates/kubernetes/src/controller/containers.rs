//! Functions that run in containers: the registry receives the endpoints of their ready replicas
//! and returns the Deployments to start and to stop, because it has the gateways' reports of calls.
//!
//! A Deployment is scaled from zero to one and from any number to zero. Other scaling is left to
//! other controllers.

use super::mirror::condition;
use super::{Controller, CONTAINERS_STARTED, CONTAINERS_STOPPED, FAILURES};
use crate::resources::{function_name, Function, FunctionContainer, FunctionSpec};
use anyhow::{anyhow, bail, Result};
use baltra_api::registry::{self as proto, ContainerOrder, ContainersRequest};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::Store;
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of reports while there are such functions; it delays waiting calls. Without any, the
/// second interval.
const EVERY: Duration = Duration::from_millis(200);
const EVERY_UNUSED: Duration = Duration::from_secs(2);
/// Shortest interval of scaling a Deployment.
const AGAIN: Duration = Duration::from_secs(1);
/// The label of a slice with its Service.
const SERVICE: &str = "kubernetes.io/service-name";

/// Default idle time.
const IDLE_S: u32 = 300;
const TIMEOUT_S: u32 = 60;
/// Limits of its settings: a month, an hour.
const IDLE_S_MAX: u32 = 31 * 24 * 3600;
const TIMEOUT_S_MAX: u32 = 3600;

/// State between rounds.
#[derive(Debug, Default)]
pub(crate) struct Containers {
    /// By function: the status to write to its object.
    reported: std::sync::Mutex<HashMap<String, ReportedStatus>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ReportedStatus {
    holds: bool,
    reason: String,
    message: String,
}

/// A function's container, checked and with its defaults; `None` if it does not run in a container.
///
/// # Errors
/// The invalid field, for the user who applied the object.
pub(super) fn container(spec: &FunctionSpec) -> Result<Option<FunctionContainer>> {
    let Some(container) = &spec.container else {
        return Ok(None);
    };
    if !spec.files.is_empty() || !spec.binary_files.is_empty() {
        bail!("spec.container and spec.files must not both be set: gateways run files themselves");
    }
    if container.deployment.is_empty() {
        bail!(
            "spec.container.deployment is missing: set it to the Deployment that serves the calls"
        );
    }
    let mut container = container.clone();
    if container.service.is_empty() {
        container.service.clone_from(&container.deployment);
    }
    for (name, seconds, default, most) in [
        (
            "idleSeconds",
            &mut container.idle_seconds,
            IDLE_S,
            IDLE_S_MAX,
        ),
        (
            "timeoutSeconds",
            &mut container.timeout_seconds,
            TIMEOUT_S,
            TIMEOUT_S_MAX,
        ),
    ] {
        if *seconds > most {
            bail!("spec.container.{name} is {seconds}, must be at most {most}");
        }
        if *seconds == 0 {
            *seconds = default;
        }
    }
    Ok(Some(container))
}

/// Reconciles containers periodically; does nothing without EndpointSlices.
pub(super) async fn follow(controller: &Controller) {
    let Some(slices) = &controller.slices else {
        return std::future::pending().await;
    };
    let mut tried = HashMap::new();
    loop {
        let pause = match controller.tick(slices, &mut tried).await {
            Ok(0) => EVERY_UNUSED,
            Ok(_) => EVERY,
            Err(error) => {
                controller.counters.count(FAILURES);
                tracing::warn!(error = %format!("{error:#}"), "cannot reconcile containers");
                EVERY_UNUSED
            }
        };
        tokio::time::sleep(pause).await;
    }
}

impl Controller {
    /// Reports to the registry and executes its orders. Returns the number of functions.
    async fn tick(
        &self,
        slices: &Store<EndpointSlice>,
        tried: &mut HashMap<(String, bool), Instant>,
    ) -> Result<usize> {
        let mut functions: Vec<(Arc<Function>, FunctionContainer)> = Vec::new();
        let mut containers = Vec::new();
        for object in self.functions.state() {
            // Errors of a function appear in its condition Ready.
            let (Ok(Some(container)), Ok(wanted)) =
                (container(&object.spec), self.permitted(&object))
            else {
                continue;
            };
            let namespace = object.namespace().unwrap_or_default();
            let of = |slice: &Arc<EndpointSlice>| {
                slice.namespace().as_deref() == Some(namespace.as_str())
                    && slice.labels().get(SERVICE) == Some(&container.service)
            };
            let endpoints = slices.state().into_iter().filter(of);
            let endpoints = endpoints.flat_map(|slice| ready(&slice, &container.port));
            containers.push(proto::Container {
                name: wanted.name,
                endpoints: endpoints.collect(),
                idle_ms: u64::from(container.idle_seconds) * 1000,
                timeout_ms: u64::from(container.timeout_seconds) * 1000,
            });
            functions.push((object, container));
        }
        let request = ContainersRequest { containers };
        let mut registry = self.registry.functions.clone();
        let reply = registry.containers(request).await?.into_inner();
        tried.retain(|_, at| at.elapsed() < AGAIN);
        for ((object, container), order) in functions.iter().zip(&reply.orders) {
            let key = (order.name.clone(), order.start);
            let mut failure = None;
            if (order.start || order.stop) && !tried.contains_key(&key) {
                tried.insert(key, Instant::now());
                failure = self.scale(object, container, order).await.err();
            }
            self.note(order, failure);
        }
        let mut reported = self
            .containers
            .reported
            .lock()
            .unwrap_or_else(|e| e.into_inner());
        reported.retain(|name, _| reply.orders.iter().any(|order| order.name == *name));
        Ok(functions.len())
    }

    /// Scales from zero to one, or to zero.
    async fn scale(
        &self,
        object: &Function,
        container: &FunctionContainer,
        order: &ContainerOrder,
    ) -> Result<()> {
        let namespace = object.namespace().unwrap_or_default();
        let name = &container.deployment;
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &namespace);
        let about = object.object_ref(&());
        let scaled = async {
            let scale = api.get_scale(name).await?;
            let is = scale.spec.and_then(|s| s.replicas).unwrap_or(0);
            let replicas = i32::from(order.start);
            if (is > 0) == order.start {
                return Ok(None);
            }
            // The update fails if another client changed the object meanwhile, for example an
            // autoscaler.
            let version = scale.metadata.resource_version;
            let patch =
                json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}});
            let patch = Patch::Merge(&patch);
            api.patch_scale(name, &PatchParams::default(), &patch)
                .await?;
            Ok::<_, kube::Error>(Some(is))
        };
        match scaled.await {
            Ok(None) => Ok(()),
            Ok(Some(before)) => {
                let (counter, reason, note) = if order.start {
                    (
                        CONTAINERS_STARTED,
                        "Started",
                        format!("{} calls wait: Deployment {name} scaled to 1", order.calls),
                    )
                } else {
                    (
                        CONTAINERS_STOPPED,
                        "Stopped",
                        format!(
                            "no call for {} s: Deployment {name} scaled from {before} to 0",
                            order.idle_ms / 1000
                        ),
                    )
                };
                self.counters.count(counter);
                tracing::info!(function = order.name, note, "scaled");
                self.events.normal(&about, reason, &note).await;
                Ok(())
            }
            Err(error) => {
                // The message of Kubernetes, without the rest of its response.
                let reason = match error {
                    kube::Error::Api(status) => status.message,
                    other => other.to_string(),
                };
                let note = format!("cannot scale Deployment {name}: {reason}");
                self.events.warning(&about, "ScaleFailed", &note).await;
                Err(anyhow!(note))
            }
        }
    }

    fn note(&self, order: &ContainerOrder, failure: Option<anyhow::Error>) {
        let mut reported = self
            .containers
            .reported
            .lock()
            .unwrap_or_else(|e| e.into_inner());
        // The last failure is reported until the next attempt.
        let stands =
            |reported: &ReportedStatus| reported.reason == "failed" && (order.start || order.stop);
        if failure.is_none() && reported.get(&order.name).is_some_and(stands) {
            return;
        }
        let now = ReportedStatus {
            holds: order.state == "serving",
            reason: match failure {
                Some(_) => "failed".to_owned(),
                None => order.state.clone(),
            },
            message: failure.map(|e| e.to_string()).unwrap_or_default(),
        };
        reported.insert(order.name.clone(), now);
    }

    /// The condition of a function that is a container.
    pub(super) fn active(&self, object: &Function, before: &[Condition]) -> Option<Condition> {
        let name = function_name(&object.namespace().unwrap_or_default(), &object.name_any());
        let reported = self
            .containers
            .reported
            .lock()
            .unwrap_or_else(|e| e.into_inner());
        let reported = reported.get(&name)?;
        Some(condition(
            before,
            "Active",
            reported.holds,
            &reported.reason,
            &reported.message,
        ))
    }
}

/// The ready endpoints of a slice, at the port with a name; empty: the only port.
fn ready(slice: &EndpointSlice, port: &str) -> Vec<String> {
    let ports = slice.ports.iter().flatten();
    let mut ports = ports.filter(|p| port.is_empty() || p.name.as_deref() == Some(port));
    let (Some(found), None) = (ports.next(), ports.next()) else {
        return Vec::new();
    };
    let Some(number) = found.port else {
        return Vec::new();
    };
    let is_ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
        endpoint
            .conditions
            .as_ref()
            .is_none_or(|c| c.ready != Some(false) && c.terminating != Some(true))
    };
    let at = |address: &String| match slice.address_type.as_str() {
        "IPv4" => Some(format!("{address}:{number}")),
        "IPv6" => Some(format!("[{address}]:{number}")),
        _ => None,
    };
    let endpoints = slice.endpoints.iter().flatten().filter(is_ready);
    endpoints.filter_map(|e| at(e.addresses.first()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_checked_and_has_defaults() {
        assert!(container(&FunctionSpec::default()).unwrap().is_none());
        let spec = |text: &str| -> FunctionSpec { serde_json::from_str(text).unwrap() };
        let given = container(&spec(r#"{"container": {"deployment": "edges"}}"#));
        let given = given.unwrap().unwrap();
        assert_eq!(
            (
                given.service.as_str(),
                given.idle_seconds,
                given.timeout_seconds
            ),
            ("edges", IDLE_S, TIMEOUT_S)
        );
        for (text, word) in [
            (r#"{"container": {}}"#, "deployment"),
            (
                r#"{"container": {"deployment": "a", "timeoutSeconds": 3601}}"#,
                "timeoutSeconds",
            ),
            (
                r#"{"container": {"deployment": "a"}, "files": {"a": "b"}}"#,
                "files",
            ),
        ] {
            let error = container(&spec(text)).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn only_ready_endpoints_are_called() {
        let slice = |ports: &str| -> EndpointSlice {
            serde_json::from_str(&format!(
                r#"{{"addressType": "IPv4", "ports": {ports}, "endpoints": [
                    {{"addresses": ["10.0.0.1"], "conditions": {{"ready": true}}}},
                    {{"addresses": ["10.0.0.2"], "conditions": {{"ready": false}}}},
                    {{"addresses": ["10.0.0.3"], "conditions": {{"ready": true, "terminating": true}}}},
                    {{"addresses": ["10.0.0.4"]}}]}}"#
            ))
            .unwrap()
        };
        let one = slice(r#"[{"name": "http", "port": 80}]"#);
        assert_eq!(ready(&one, ""), ["10.0.0.1:80", "10.0.0.4:80"]);
        assert_eq!(ready(&one, "http").len(), 2);
        assert!(ready(&one, "other").is_empty());
        let two = slice(r#"[{"name": "http", "port": 80}, {"name": "metrics", "port": 81}]"#);
        assert!(ready(&two, "").is_empty(), "which one?");
        assert_eq!(ready(&two, "metrics")[0], "10.0.0.1:81");
    }
}
