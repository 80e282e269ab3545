//! Carries out what has to happen to Pods and their instances.

use super::plan::{self, Step, View, MOVED_FROM, MOVING, TEMPLATE_HASH};
use super::{Controller, ADOPTED, KEPT, MOVED, PLACED, RELEASED};
use crate::annotations;
use crate::demand::{self, Answer, Asker, Policy, LEASE_S, POD};
use crate::{ALLOCATED, GATE, HOSTNAME, INSTANCE};
use anyhow::{anyhow, Result};
use baltra_api::registry::{
    AllocateRequest, Device, Instance, InstancesRequest, ReleaseRequest, RenewRequest,
};
use futures_util::{stream, StreamExt};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{EvictParams, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource};
use serde_json::{json, Value};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Most Pods processed concurrently.
const HANDS: usize = 16;
/// Most Pods of one ReplicaSet that are being replaced concurrently, because their replacements
/// need room.
const MOVES_MAX: usize = 25;

/// Instances whose Pods were deleted, kept for the duration of the webhook's lease: a Pod that was
/// created and deleted between two rounds is recorded nowhere else.
#[derive(Default)]
pub(crate) struct Gone(Mutex<VecDeque<(Instant, String)>>);

impl Gone {
    /// Records a deleted Pod.
    pub fn note(&self, pod: &Pod) {
        if let Some(instance) = pod.metadata.labels.as_ref().and_then(|l| l.get(INSTANCE)) {
            self.keep(instance, Instant::now());
        }
    }

    fn keep(&self, instance: &str, now: Instant) {
        let mut gone = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let lease = Duration::from_secs(LEASE_S.into());
        while gone.front().is_some_and(|(at, _)| now - *at > lease) {
            gone.pop_front();
        }
        gone.push_back((now, instance.to_owned()));
    }

    fn names(&self) -> HashSet<String> {
        let gone = self.0.lock().unwrap_or_else(|e| e.into_inner());
        gone.iter().map(|(_, instance)| instance.clone()).collect()
    }
}

struct TrackedPod {
    view: View,
    pod: Arc<Pod>,
}

impl TrackedPod {
    fn reference(&self) -> ObjectReference {
        self.pod.object_ref(&())
    }
}

impl Controller {
    /// Aligns instances with the lifetime of their Pods, and Pods with the devices of their
    /// instances.
    pub(super) async fn follow_pods(
        &self,
        devices: &[Device],
        instances: Vec<Instance>,
    ) -> Result<()> {
        let tracked = self.pods.state().into_iter().filter_map(|pod| {
            let view = View::of(&pod)?;
            Some(TrackedPod { view, pod })
        });
        let tracked: Vec<TrackedPod> = tracked.collect();
        let by_name: HashMap<&str, &Instance> =
            instances.iter().map(|i| (i.name.as_str(), i)).collect();
        let mut work = Vec::new();
        let mut moves = Vec::new();
        for pod in &tracked {
            let instance = by_name.get(pod.view.instance.as_str()).copied();
            let in_the_way = instance.and_then(|i| plan::in_the_way(i, devices));
            let blocked = pod.view.gated
                && instance.is_some_and(|i| plan::blocked(i, devices, instances.iter()));
            for step in plan::steps(&pod.view, instance, in_the_way, blocked) {
                match step {
                    Step::Move(reason) => moves.push((pod, reason)),
                    step => work.push((pod, instance, step)),
                }
            }
        }
        let present: HashSet<&str> = tracked.iter().map(|k| k.view.instance.as_str()).collect();
        // An instance with a lease belongs to a Pod that was deleted, or that no round has seen
        // yet. In the second case, its lease expires if the Pod never appears.
        let gone = self.gone.names();
        let orphans = instances.iter().filter(|i| {
            let over = i.lease_s == 0 || gone.contains(&i.name);
            i.hostname.starts_with(POD) && over && !present.contains(i.name.as_str())
        });
        let orphans: Vec<&Instance> = orphans.collect();
        stream::iter(orphans)
            .for_each_concurrent(HANDS, |instance| async move {
                self.release(&instance.name).await;
            })
            .await;
        stream::iter(work)
            .for_each_concurrent(HANDS, |(pod, instance, step)| async move {
                if let Err(error) = self.carry_out(pod, instance, &step).await {
                    let (namespace, name) = (&pod.view.namespace, &pod.view.name);
                    tracing::warn!(namespace, name, ?step, error = %format!("{error:#}"), "not done");
                }
            })
            .await;
        self.replace(&tracked, moves).await;
        let mut noted = self.noted.lock().unwrap_or_else(|e| e.into_inner());
        noted.retain(|instance, _| present.contains(instance.as_str()));
        drop(noted);
        let mut evicted = self.evicted.lock().unwrap_or_else(|e| e.into_inner());
        evicted.retain(|instance| present.contains(instance.as_str()));
        Ok(())
    }

    async fn carry_out(
        &self,
        pod: &TrackedPod,
        instance: Option<&Instance>,
        step: &Step,
    ) -> Result<()> {
        let mut instances = self.registry.instances.clone();
        let view = &pod.view;
        match step {
            Step::Keep => {
                let request = RenewRequest {
                    instance: view.instance.clone(),
                    lease_s: Some(0),
                    ..RenewRequest::default()
                };
                instances.renew(request).await?;
                self.counters.count(KEPT);
                if let Some(instance) = instance.filter(|i| !i.devices.is_empty()) {
                    self.events
                        .normal(&pod.reference(), "Allocated", &why(instance))
                        .await;
                }
            }
            Step::Release => self.release(&view.instance).await,
            Step::Adopt => {
                let request = AllocateRequest {
                    devices: view.allocated.clone(),
                    lease_s: Some(0),
                    ..self.request(pod)?
                };
                instances.allocate(request).await?;
                self.counters.count(ADOPTED);
            }
            Step::Allocate => {
                let request = self.request(pod)?;
                self.within_quota(pod, &request).await?;
                let reply = instances.allocate(request).await?.into_inner();
                match demand::answer(reply) {
                    Answer::Given {
                        devices,
                        node,
                        reconfigure,
                    } => {
                        self.place(pod, &devices, &node, !reconfigure).await?;
                    }
                    Answer::Later(reason) | Answer::Never(reason) => {
                        self.warn_once(pod, "NoDevice", &reason).await;
                    }
                }
            }
            Step::Place(devices) => {
                let node = instance
                    .and_then(|i| i.devices.first())
                    .map(|a| a.node.clone());
                self.place(pod, devices, &node.unwrap_or_default(), false)
                    .await?;
            }
            Step::Open => {
                self.open(pod, BTreeMap::new(), None).await?;
                let devices = view.allocated.join(", ");
                let note = format!("{devices} can be reconfigured");
                self.events.normal(&pod.reference(), "Ready", &note).await;
            }
            Step::Stranded(reason) => {
                self.warn_once(pod, "DeviceLost", reason).await;
                // The renewal makes the registry look for another device.
                let request = RenewRequest {
                    instance: view.instance.clone(),
                    ..RenewRequest::default()
                };
                instances.renew(request).await?;
            }
            Step::Move(_) => unreachable!("moves are executed together, by replace()"),
        }
        Ok(())
    }

    async fn release(&self, name: &str) {
        let request = ReleaseRequest {
            instance: name.to_owned(),
        };
        match self.registry.instances.clone().release(request).await {
            Ok(reply) if reply.get_ref().released => {
                self.counters.count(RELEASED);
                tracing::info!(instance = name, "released");
            }
            Ok(_) => {}
            Err(status) => tracing::warn!(instance = name, %status, "not released"),
        }
    }

    /// The allocation request of an existing Pod.
    fn request(&self, pod: &TrackedPod) -> Result<AllocateRequest> {
        let meta = &pod.pod.metadata;
        let mut noted = meta.annotations.clone().unwrap_or_default();
        for own in [ALLOCATED, MOVING, MOVED_FROM, "baltra.io/application"] {
            noted.remove(own);
        }
        let wanted = annotations::device_request(&noted)?.unwrap_or_default();
        let object = serde_json::to_value(&*pod.pod)?;
        let asker = Asker {
            instance: pod.view.instance.clone(),
            namespace: pod.view.namespace.clone(),
            name: pod.view.name.clone(),
            node: crate::webhook::pod::node(&object),
        };
        Ok(demand::request(
            &asker,
            &wanted,
            &self.policy(&pod.view.namespace)?,
        )?)
    }

    fn policy(&self, namespace: &str) -> Result<Policy> {
        let found = self.namespaces.get(&ObjectRef::new(namespace));
        let found =
            found.ok_or_else(|| anyhow!("namespace '{namespace}' is not in the cache yet"))?;
        let annotations = found.metadata.annotations.clone().unwrap_or_default();
        Ok(Policy::of(namespace, &annotations)?)
    }

    async fn within_quota(&self, pod: &TrackedPod, request: &AllocateRequest) -> Result<()> {
        let Some(most) = self.policy(&request.tenant)?.instances_max else {
            return Ok(());
        };
        let mut operators = self.registry.operators.clone();
        let request = InstancesRequest {
            tenant: request.tenant.clone(),
            ..InstancesRequest::default()
        };
        let tracked = operators.instances(request).await?.into_inner().instances;
        if tracked.len() < most {
            return Ok(());
        }
        let note = format!(
            "the namespace has {} instances, at most {most} are allowed",
            tracked.len()
        );
        self.warn_once(pod, "QuotaExceeded", &note).await;
        Err(anyhow!(note))
    }

    /// Writes the devices of a Pod that waited; `open`: also removes its gate.
    async fn place(
        &self,
        pod: &TrackedPod,
        devices: &[String],
        node: &str,
        open: bool,
    ) -> Result<()> {
        let annotations = BTreeMap::from([(ALLOCATED.to_owned(), devices.join(","))]);
        self.counters.count(PLACED);
        if open {
            self.open(pod, annotations, Some(node)).await?
        } else {
            let patch = json!({
                "metadata": {"annotations": annotations},
                "spec": {"nodeSelector": {HOSTNAME: node}},
            });
            self.patch(&pod.view, &Patch::Merge(&patch)).await?;
        }
        let note = format!("allocated {}", devices.join(", "));
        self.events
            .normal(&pod.reference(), "Allocated", &note)
            .await;
        Ok(())
    }

    async fn open(
        &self,
        pod: &TrackedPod,
        annotations: BTreeMap<String, String>,
        node: Option<&str>,
    ) -> Result<()> {
        // A strategic merge patch removes one entry of a keyed list and keeps the others.
        let mut patch = json!({
            "metadata": {"annotations": annotations},
            "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]},
        });
        if let Some(node) = node {
            patch["spec"]["nodeSelector"] = json!({HOSTNAME: node});
        }
        self.patch(&pod.view, &Patch::Strategic(&patch)).await
    }

    async fn patch(&self, view: &View, patch: &Patch<&Value>) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &view.namespace);
        pods.patch(&view.name, &PatchParams::default(), patch)
            .await?;
        Ok(())
    }

    async fn warn_once(&self, pod: &TrackedPod, reason: &str, note: &str) {
        let new = {
            let mut noted = self.noted.lock().unwrap_or_else(|e| e.into_inner());
            noted
                .insert(pod.view.instance.clone(), note.to_owned())
                .as_deref()
                != Some(note)
        };
        if new {
            self.events.warning(&pod.reference(), reason, note).await;
        }
    }

    /// Replaces Pods that have to move, replacements first. A Deployment's Pod is removed from its
    /// ReplicaSet, which creates another at once, while the old one continues to serve. It is
    /// evicted when its ReplicaSet has the desired number of ready Pods without it. Other
    /// controllers create a replacement only after the eviction. In both cases the cluster's
    /// disruption budgets apply.
    async fn replace(&self, tracked: &[TrackedPod], moves: Vec<(&TrackedPod, String)>) {
        let mut under_way: HashMap<(&str, &str), Vec<&TrackedPod>> = HashMap::new();
        for pod in tracked.iter().filter(|k| !k.view.leaving) {
            if let Some(from) = &pod.view.moved_from {
                let set = (pod.view.namespace.as_str(), from.as_str());
                under_way.entry(set).or_default().push(pod);
            }
        }
        let mut started: HashMap<(&str, &str), usize> = HashMap::new();
        let mut begin = Vec::new();
        for (pod, reason) in moves {
            if pod.view.moved_from.is_some() {
                continue;
            }
            let set = match &pod.view.controller {
                Some((kind, name)) if kind == "ReplicaSet" && pod.view.releasable => {
                    Some((pod.view.namespace.as_str(), name.as_str()))
                }
                _ => None,
            };
            if let Some(set) = set {
                let busy = under_way.get(&set).map_or(0, Vec::len);
                let new = started.entry(set).or_default();
                if busy + *new >= MOVES_MAX {
                    continue;
                }
                *new += 1;
            }
            begin.push((pod, set.map(|s| s.1), reason));
        }
        stream::iter(begin)
            .for_each_concurrent(HANDS, |(pod, set, reason)| async move {
                match set {
                    Some(set) => self.take_out(pod, set, &reason).await,
                    None if pod.view.controller.is_some() => {
                        _ = self.evict(pod, &reason).await;
                    }
                    None => {
                        let note = format!(
                            "{reason}; no controller would replace this Pod: delete and recreate it"
                        );
                        self.warn_once(pod, "CannotMove", &note).await;
                    }
                }
            })
            .await;
        for ((namespace, set), mut pods) in under_way {
            let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), namespace);
            let wanted = match sets.get_opt(set).await {
                Ok(Some(found)) => found.spec.and_then(|s| s.replicas).unwrap_or(1),
                // The ReplicaSet no longer exists, so its Pods are not needed.
                Ok(None) => 0,
                Err(error) => {
                    tracing::warn!(namespace, set, %error, "cannot read a ReplicaSet");
                    continue;
                }
            };
            pods.retain(|p| !self.is_evicted(p));
            // Counted here, because a ReplicaSet's own status lags and includes ready Pods that it
            // has already lost.
            let inside = tracked.iter().filter(|k| k.view.serves_in(namespace, set));
            let former = pods.iter().filter(|p| p.view.ready);
            let mut spare = plan::spare(wanted, inside.count() + former.count());
            // Pods that are not ready go first.
            pods.sort_by_key(|p| p.view.ready);
            for pod in pods {
                if pod.view.ready && spare == 0 {
                    break;
                }
                let gone = self.evict(pod, "its replacement is ready").await;
                spare -= usize::from(gone && pod.view.ready);
            }
        }
    }

    async fn take_out(&self, pod: &TrackedPod, set: &str, reason: &str) {
        let patch = json!({"metadata": {
            "labels": {TEMPLATE_HASH: null},
            "annotations": {MOVING: reason, MOVED_FROM: set},
        }});
        match self.patch(&pod.view, &Patch::Merge(&patch)).await {
            Ok(()) => {
                let note = format!("{reason}: it is evicted when its replacement is ready");
                self.events.normal(&pod.reference(), "Moving", &note).await;
            }
            Err(error) => {
                let (namespace, name) = (&pod.view.namespace, &pod.view.name);
                tracing::warn!(namespace, name, error = %format!("{error:#}"), "not moved");
            }
        }
    }

    /// Whether the cluster has accepted the eviction of a Pod that the cache may still list as
    /// ready.
    fn is_evicted(&self, pod: &TrackedPod) -> bool {
        let evicted = self.evicted.lock().unwrap_or_else(|e| e.into_inner());
        evicted.contains(&pod.view.instance)
    }

    fn ends(&self, pod: &TrackedPod) {
        let mut evicted = self.evicted.lock().unwrap_or_else(|e| e.into_inner());
        evicted.insert(pod.view.instance.clone());
    }

    /// Requests the eviction of a Pod; returns whether the cluster accepts it.
    async fn evict(&self, pod: &TrackedPod, reason: &str) -> bool {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.view.namespace);
        match pods.evict(&pod.view.name, &EvictParams::default()).await {
            Ok(_) => {
                self.ends(pod);
                self.counters.count(MOVED);
                self.events.normal(&pod.reference(), "Moved", reason).await;
                true
            }
            // A disruption budget prevents it; a later round retries.
            Err(kube::Error::Api(status)) if status.code == 429 => {
                self.warn_once(pod, "MoveWaits", &status.message).await;
                false
            }
            Err(kube::Error::Api(status)) if status.code == 404 => true,
            Err(error) => {
                let (namespace, name) = (&pod.view.namespace, &pod.view.name);
                tracing::warn!(namespace, name, %error, "not evicted");
                false
            }
        }
    }
}

/// An instance's devices and its query, as text.
fn why(instance: &Instance) -> String {
    let devices = plan::given(instance).join(", ");
    match instance.query.as_str() {
        "" => format!("allocated {devices}, the least used of all devices"),
        query => format!("allocated {devices}, the least used that matches '{query}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_gone_is_known_as_long_as_its_lease_runs() {
        let gone = Gone::default();
        let start = Instant::now();
        let lease = Duration::from_secs(LEASE_S.into());
        gone.keep("a", start);
        gone.keep("b", start + lease);
        assert_eq!(gone.names(), ["a".to_owned(), "b".to_owned()].into());
        gone.keep("c", start + lease + Duration::from_secs(1));
        assert_eq!(gone.names(), ["b".to_owned(), "c".to_owned()].into());
    }
}
