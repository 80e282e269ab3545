//! Admission decisions on objects that refer to Baltra.

use super::pod::{self, Grant};
use super::{Options, ADMITTED, REFUSED, WAITING};
use crate::annotations::{self, DeviceRequest};
use crate::demand::{self, Answer, Asker, Policy};
use crate::health::Counters;
use crate::registry::Registry;
use crate::{watch, ALLOCATED, INSTANCE};
use anyhow::Result;
use baltra_api::registry::{InstancesRequest, ReleaseRequest};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, Operation};
use kube::core::DynamicObject;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Timeout of the registry, because the API server waits.
const REGISTRY_MAX: Duration = Duration::from_secs(5);

/// Reviews admission requests.
pub struct Reviewer {
    client: Client,
    pub(super) registry: Registry,
    registry_url: String,
    runtime_dir: PathBuf,
    /// The group of the service accounts in this namespace, which belong to Baltra.
    own_group: String,
    namespaces: Store<Namespace>,
    /// Serializes admissions in namespaces with a limit of instances.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    counters: Arc<Counters<3>>,
}

type Admission = AdmissionRequest<DynamicObject>;

/// The reason of a refusal, for the requesting user.
struct Refused(String);

impl<T: std::error::Error> From<T> for Refused {
    fn from(error: T) -> Refused {
        Refused(format!("baltra: {error}"))
    }
}

impl Reviewer {
    /// Starts watching namespaces.
    ///
    /// # Errors
    /// The namespaces cannot be listed.
    pub async fn start(
        client: Client,
        registry: Registry,
        options: &Options,
        counters: Arc<Counters<3>>,
    ) -> Result<Reviewer> {
        let all = watcher::Config::default();
        let namespaces = watch::cache(Api::all(client.clone()), all, |_| ()).await?;
        Ok(Reviewer {
            client,
            registry,
            registry_url: options.common.registry.registry.clone(),
            runtime_dir: options.node_runtime_dir.clone(),
            own_group: format!("system:serviceaccounts:{}", options.common.namespace),
            namespaces,
            turns: Mutex::default(),
            counters,
        })
    }

    /// Reviews the creation or change of a Pod or a workload.
    pub async fn mutate(&self, request: &Admission) -> AdmissionResponse {
        let answer = AdmissionResponse::from(request);
        let Some(object) = &request.object else {
            return answer;
        };
        let before = match serde_json::to_value(object) {
            Ok(value) => value,
            Err(error) => return answer.deny(format!("baltra: {error}")),
        };
        let decided = match request.kind.kind.as_str() {
            "Pod" if request.operation == Operation::Create => self.pod(request, &before).await,
            "Deployment" | "StatefulSet" => self.workload(request, &before),
            _ => Ok(None),
        };
        match decided {
            Ok(None) => answer,
            Ok(Some(after)) => {
                let patch = json_patch::diff(&before, &after);
                match answer.with_patch(patch) {
                    Ok(answer) => answer,
                    Err(error) => AdmissionResponse::from(request).deny(format!("baltra: {error}")),
                }
            }
            Err(Refused(reason)) => {
                self.counters.count(REFUSED);
                tracing::info!(
                    namespace = request.namespace,
                    name = request.name,
                    kind = request.kind.kind,
                    reason,
                    "refused"
                );
                answer.deny(reason)
            }
        }
    }

    /// Reviews a change of a Pod: its identity must not change.
    pub fn validate(&self, request: &Admission) -> AdmissionResponse {
        let answer = AdmissionResponse::from(request);
        let (Some(before), Some(after)) = (&request.old_object, &request.object) else {
            return answer;
        };
        match identity_change(before, after) {
            // The controller sets the node of a Pod that waited.
            Some(ALLOCATED)
                if request
                    .user_info
                    .groups
                    .iter()
                    .flatten()
                    .any(|g| *g == self.own_group) =>
            {
                answer
            }
            None => answer,
            Some(what) => answer.deny(format!(
                "baltra: '{what}' identifies the Pod and cannot be changed: create another Pod"
            )),
        }
    }

    fn workload(&self, request: &Admission, object: &Value) -> Result<Option<Value>, Refused> {
        let own = texts(&object["metadata"]["annotations"]);
        let template = texts(&object["spec"]["template"]["metadata"]["annotations"]);
        let mut all = annotations::request_annotations(&own);
        all.extend(annotations::request_annotations(&template));
        all.remove("baltra.io/application");
        // Invalid annotations are refused when the workload is applied, not when its Pods are
        // created.
        if annotations::device_request(&all)?.is_none() {
            return Ok(None);
        }
        let namespace = request.namespace.as_deref().unwrap_or("default");
        let application = format!("{}.{namespace}", request.name);
        let request: Vec<(String, String)> =
            annotations::request_annotations(&own).into_iter().collect();
        Ok(Some(pod::workload(
            object,
            &request,
            &application,
            &self.registry_url,
        )))
    }

    async fn pod(&self, request: &Admission, object: &Value) -> Result<Option<Value>, Refused> {
        if !object["metadata"]["labels"][INSTANCE].is_null() {
            return Err(Refused(format!(
                "baltra: label '{INSTANCE}' is reserved for Baltra: remove it"
            )));
        }
        let mut annotations_given = texts(&object["metadata"]["annotations"]);
        annotations_given.remove("baltra.io/application");
        let Some(wanted) = annotations::device_request(&annotations_given)? else {
            return Ok(None);
        };
        let namespace = request
            .namespace
            .clone()
            .unwrap_or_else(|| "default".to_owned());
        let policy = self.policy(&namespace).await?;
        let meta = &object["metadata"];
        let name = meta["name"].as_str().or(meta["generateName"].as_str());
        let asker = Asker {
            instance: demand::instance_name(&namespace)
                .map_err(|e| Refused(format!("baltra: cannot generate a name: {e}")))?,
            namespace,
            name: name.unwrap_or("pod").trim_end_matches('-').to_owned(),
            node: pod::node(object),
        };
        let grant = if request.dry_run {
            self.rehearse(&asker, &wanted, &policy)?
        } else {
            self.allocate(&asker, &wanted, &policy).await?
        };
        let gated = grant.gated;
        match pod::changed(object, &wanted, &grant, &self.runtime_dir) {
            Ok(changed) => {
                self.counters.count(if gated { WAITING } else { ADMITTED });
                Ok(Some(changed))
            }
            Err(error) => {
                self.release(&asker.instance).await;
                Err(error.into())
            }
        }
    }

    /// Checks a request without allocating.
    fn rehearse(
        &self,
        asker: &Asker,
        wanted: &DeviceRequest,
        policy: &Policy,
    ) -> Result<Grant, Refused> {
        demand::request(asker, wanted, policy)?;
        Ok(Grant {
            instance: asker.instance.clone(),
            gated: true,
            ..Grant::default()
        })
    }

    async fn allocate(
        &self,
        asker: &Asker,
        wanted: &DeviceRequest,
        policy: &Policy,
    ) -> Result<Grant, Refused> {
        let request = demand::request(asker, wanted, policy)?;
        let turn = policy.instances_max.map(|_| self.turn(&asker.namespace));
        let _turn = match &turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        if let Some(most) = policy.instances_max {
            self.count(&asker.namespace, most).await?;
        }
        let mut instances = self.registry.instances.clone();
        let reply = tokio::time::timeout(REGISTRY_MAX, instances.allocate(request)).await;
        let grant = |devices, node, gated| Grant {
            instance: asker.instance.clone(),
            devices,
            node,
            gated,
        };
        let reply = match reply {
            Ok(Ok(reply)) => reply.into_inner(),
            // The Pod waits until the registry responds: the controller retries.
            Err(_) => return Ok(grant(Vec::new(), String::new(), true)),
            Ok(Err(status)) if status.code() == tonic::Code::Unavailable => {
                return Ok(grant(Vec::new(), String::new(), true));
            }
            Ok(Err(status)) => return Err(Refused(format!("baltra: {}", status.message()))),
        };
        match demand::answer(reply) {
            Answer::Given {
                devices,
                node,
                reconfigure,
            } => Ok(grant(devices, node, reconfigure)),
            Answer::Later(reason) => {
                tracing::info!(instance = asker.instance, reason, "waits");
                Ok(grant(Vec::new(), String::new(), true))
            }
            Answer::Never(reason) if wanted.count > 1 => {
                let count = wanted.count;
                Err(Refused(format!("baltra: count={count}: {reason}")))
            }
            Answer::Never(reason) => Err(Refused(format!("baltra: {reason}"))),
        }
    }

    async fn release(&self, instance: &str) {
        let mut instances = self.registry.instances.clone();
        let request = ReleaseRequest {
            instance: instance.to_owned(),
        };
        // If there is no response, the lease expires.
        let _ = tokio::time::timeout(REGISTRY_MAX, instances.release(request)).await;
    }

    /// Rejects an instance beyond the namespace's limit.
    async fn count(&self, namespace: &str, most: usize) -> Result<(), Refused> {
        let mut operators = self.registry.operators.clone();
        let request = InstancesRequest {
            tenant: namespace.to_owned(),
            ..InstancesRequest::default()
        };
        let reply = tokio::time::timeout(REGISTRY_MAX, operators.instances(request)).await;
        let known = match reply {
            Ok(Ok(reply)) => reply.into_inner().instances.len(),
            Ok(Err(status)) => return Err(Refused(format!("baltra: {}", status.message()))),
            Err(_) => {
                return Err(Refused(
                    "baltra: the registry does not respond: retry".into(),
                ))
            }
        };
        if known < most {
            Ok(())
        } else {
            Err(Refused(format!(
                "baltra: namespace '{namespace}' has {known} instances, and its annotation {} allows {most}: delete some",
                demand::NAMESPACE_INSTANCES
            )))
        }
    }

    fn turn(&self, namespace: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(|e| e.into_inner());
        turns.entry(namespace.to_owned()).or_default().clone()
    }

    async fn policy(&self, name: &str) -> Result<Policy, Refused> {
        let known = self.namespaces.get(&ObjectRef::new(name));
        let annotations = match known {
            Some(namespace) => namespace.metadata.annotations.clone(),
            // Created a moment ago.
            None => {
                let api: Api<Namespace> = Api::all(self.client.clone());
                api.get(name).await?.metadata.annotations
            }
        };
        Ok(Policy::of(name, &annotations.unwrap_or_default())?)
    }
}

/// The difference in a Pod's identity, if any.
fn identity_change(before: &DynamicObject, after: &DynamicObject) -> Option<&'static str> {
    let label = |o: &DynamicObject| o.metadata.labels.as_ref()?.get(INSTANCE).cloned();
    let given = |o: &DynamicObject| o.metadata.annotations.as_ref()?.get(ALLOCATED).cloned();
    if label(before) != label(after) {
        return Some(INSTANCE);
    }
    (label(before).is_some() && given(before) != given(after)).then_some(ALLOCATED)
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    let pairs = value.as_object().into_iter().flatten();
    let texts = pairs.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())));
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(labels: Value, annotations: Value) -> DynamicObject {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": labels, "annotations": annotations}}))
        .unwrap()
    }

    #[test]
    fn who_a_pod_is_cannot_be_changed() {
        let own = object(json!({INSTANCE: "a.1"}), json!({ALLOCATED: "n/d"}));
        let other = object(json!({INSTANCE: "b.1"}), json!({ALLOCATED: "n/d"}));
        let bare = object(json!({}), json!({}));
        let moved = object(json!({INSTANCE: "a.1"}), json!({ALLOCATED: "m/d"}));
        let more = object(
            json!({INSTANCE: "a.1", "x": "y"}),
            json!({ALLOCATED: "n/d"}),
        );
        assert_eq!(identity_change(&own, &other), Some(INSTANCE));
        assert_eq!(identity_change(&own, &bare), Some(INSTANCE));
        assert_eq!(identity_change(&bare, &own), Some(INSTANCE));
        assert_eq!(identity_change(&own, &moved), Some(ALLOCATED));
        assert_eq!(identity_change(&own, &more), None);
    }
}
