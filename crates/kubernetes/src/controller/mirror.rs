//! Devices and accelerators as objects; operators' settings of Device objects and Nodes.

use super::Controller;
use crate::resources::{
    device_name, Accelerator, AcceleratorSpec, AcceleratorStatus, Device, DeviceSpec, DeviceStatus,
};
use anyhow::Result;
use baltra_api::registry::{
    self as proto, AcceleratorsRequest, CordonRequest, DrainRequest, UncordonRequest,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;

/// Time after which the object of a missing device is deleted, seconds.
const GONE_S: i64 = 600;
/// Most devices listed for an accelerator.
const LISTED_MAX: usize = 1_000;

impl Controller {
    /// Writes the registry's devices to Device objects.
    pub(super) async fn mirror_devices(&self, devices: &[proto::Device]) -> Result<()> {
        let mut present = HashSet::new();
        for device in devices {
            let mut status = status(device);
            let name = device_name(&status.id);
            let existing = self.devices.get(&ObjectRef::new(&name));
            let before = existing.as_ref().and_then(|d| d.status.as_ref());
            status.conditions = vec![condition(
                before.map_or(&[], |s| &s.conditions[..]),
                "Ready",
                status.state == "ready",
                &status.state,
                &device.failure,
            )];
            let fresh = Device::new(&name, DeviceSpec::default());
            write(&self.client, &self.devices, fresh, before, &status).await?;
            present.insert(name);
        }
        self.keep_gone(&present).await
    }

    /// Marks devices that the registry does not have as gone. Their objects hold the operator's
    /// settings and are kept for [`GONE_S`]: a registry that has lost its state lists no devices
    /// until their nodes have joined again.
    async fn keep_gone(&self, present: &HashSet<String>) -> Result<()> {
        let gone = self.devices.state().into_iter();
        for device in gone.filter(|d| !present.contains(&d.name_any())) {
            let before = device.status.clone().unwrap_or_default();
            let reason = "its node has left the registry";
            let ready = condition(&before.conditions, "Ready", false, "gone", reason);
            let since = ready
                .last_transition_time
                .0
                .duration_until(Timestamp::now());
            if before.state == "gone" && since.as_secs() > GONE_S {
                let api: Api<Device> = Api::all(self.client.clone());
                match api
                    .delete(&device.name_any(), &DeleteParams::default())
                    .await
                {
                    Err(kube::Error::Api(gone)) if gone.code == 404 => {}
                    done => _ = done?,
                }
                continue;
            }
            let status = DeviceStatus {
                state: "gone".to_owned(),
                instances: 0,
                utilization: 0,
                conditions: vec![ready],
                ..before.clone()
            };
            let fresh = Device::new(&device.name_any(), DeviceSpec::default());
            write(&self.client, &self.devices, fresh, Some(&before), &status).await?;
        }
        Ok(())
    }

    /// Writes the accelerators' devices to Accelerator objects.
    pub(super) async fn mirror_accelerators(&self) -> Result<()> {
        let mut operators = self.registry.operators.clone();
        let reply = operators.accelerators(AcceleratorsRequest {}).await?;
        let mut present = HashSet::new();
        for accelerator in reply.into_inner().accelerators {
            let status = AcceleratorStatus {
                at: shown(&accelerator.devices),
                name: accelerator.name,
                digest: accelerator.digest,
                devices: accelerator.devices.into_iter().take(LISTED_MAX).collect(),
                instances: accelerator.instances,
            };
            let short: String = status.digest.chars().take(8).collect();
            let name = device_name(&format!("{}.{short}", status.name));
            if name.is_empty() || !present.insert(name.clone()) {
                continue;
            }
            let existing = self.accelerators.get(&ObjectRef::new(&name));
            let before = existing.as_ref().and_then(|d| d.status.as_ref());
            let fresh = Accelerator::new(&name, AcceleratorSpec::default());
            write(&self.client, &self.accelerators, fresh, before, &status).await?;
        }
        remove(&self.client, &self.accelerators, &present).await
    }

    /// Cordons devices in the registry if their Device is cordoned or drained, or their Node is
    /// cordoned. Devices that others cordoned in the registry stay cordoned.
    pub(super) async fn follow_cordons(&self) -> Result<()> {
        let mut operators = self.registry.operators.clone();
        for device in self.devices.state() {
            let Some(status) = &device.status else {
                continue;
            };
            let node = self.nodes.get(&ObjectRef::new(&status.node));
            let closed =
                node.is_some_and(|n| n.spec.as_ref().and_then(|s| s.unschedulable) == Some(true));
            let wanted = match (device.spec.drain, device.spec.cordoned || closed) {
                (true, _) => "draining",
                (false, true) => "cordoned",
                (false, false) => "",
            };
            let ours = device
                .annotations()
                .get(CORDONED)
                .map_or("", |v| v.as_str());
            let is = status.state.as_str();
            if !matches!(is, "ready" | "cordoned" | "draining") {
                // The node is silent, so an order would have no effect.
                continue;
            }
            let holds = |state: &str| is == state || is == "draining" && state == "cordoned";
            let id = status.id.clone();
            match wanted {
                "draining" if is != "draining" => {
                    let moved = operators
                        .drain(DrainRequest { device: id })
                        .await?
                        .into_inner();
                    let note = format!("{} instances are to be moved", moved.migrations.len());
                    self.mark(&device, wanted).await?;
                    self.events
                        .normal(&device.object_ref(&()), "Draining", &note)
                        .await;
                }
                "cordoned" if !holds(wanted) || ours == "draining" => {
                    if ours == "draining" {
                        operators
                            .uncordon(UncordonRequest { device: id.clone() })
                            .await?;
                    }
                    operators.cordon(CordonRequest { device: id }).await?;
                    self.mark(&device, wanted).await?;
                    let note = if closed {
                        "its node is cordoned"
                    } else {
                        "as its object says"
                    };
                    self.events
                        .normal(&device.object_ref(&()), "Cordoned", note)
                        .await;
                }
                "" if !ours.is_empty() => {
                    operators.uncordon(UncordonRequest { device: id }).await?;
                    self.mark(&device, "").await?;
                    self.events
                        .normal(
                            &device.object_ref(&()),
                            "Uncordoned",
                            "takes instances again",
                        )
                        .await;
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn mark(&self, device: &Device, state: &str) -> Result<()> {
        let value = (!state.is_empty()).then_some(state);
        let patch = json!({"metadata": {"annotations": {CORDONED: value}}});
        let api: Api<Device> = Api::all(self.client.clone());
        let params = PatchParams::default();
        api.patch(&device.name_any(), &params, &Patch::Merge(&patch))
            .await?;
        Ok(())
    }
}

/// Annotation of a Device: the state that the controller has set in the registry.
const CORDONED: &str = "baltra.io/cordoned";

fn status(device: &proto::Device) -> DeviceStatus {
    let description = device.description.clone().unwrap_or_default();
    let state = match (device.state.as_str(), device.draining, device.cordoned) {
        ("ready", true, _) => "draining",
        ("ready", _, true) => "cordoned",
        (state, ..) => state,
    };
    let held = |regions: &[proto::Region]| {
        let name = |r: &proto::Region| match r.name.as_str() {
            "" => r.digest.chars().take(12).collect(),
            name => name.to_owned(),
        };
        regions.iter().map(name).collect::<Vec<String>>().join(",")
    };
    let (holds, next) = (held(&device.regions), held(&device.pending));
    DeviceStatus {
        id: format!("{}/{}", device.node, description.name),
        node: device.node.clone(),
        state: state.to_owned(),
        vendor: description.vendor,
        platform: description.platform,
        model: description.model,
        memory_bytes: i64::try_from(description.memory_bytes).unwrap_or(i64::MAX),
        slots: description.slots,
        regions: description.regions.max(1),
        exclusive: description.exclusive,
        accelerator: if next.is_empty() {
            holds
        } else {
            format!("{holds} → {next}")
        },
        utilization: device.utilization.round().clamp(0.0, 100.0) as u32,
        instances: device.occupation,
        labels: description.labels.into_iter().collect::<BTreeMap<_, _>>(),
        conditions: Vec::new(),
    }
}

fn shown(devices: &[String]) -> String {
    match devices {
        [] => "nowhere".to_owned(),
        [one] => one.clone(),
        [one, two] => format!("{one}, {two}"),
        [one, two, more @ ..] => format!("{one}, {two} and {} more", more.len()),
    }
}

/// A condition whose transition time is kept while its status is unchanged.
pub(super) fn condition(
    before: &[Condition],
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
) -> Condition {
    let status = if holds { "True" } else { "False" };
    let same = before
        .iter()
        .find(|c| c.type_ == kind && c.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        last_transition_time: same.map_or_else(
            || Time(Timestamp::now()),
            |c| c.last_transition_time.clone(),
        ),
        reason: camel(reason),
        message: message.to_owned(),
        observed_generation: None,
    }
}

/// Converts a reason to CamelCase, as conditions require; never empty.
fn camel(reason: &str) -> String {
    let mut letters = reason.chars().filter(char::is_ascii_alphanumeric);
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => "Unknown".to_owned(),
    }
}

/// Creates an object if it is missing, and writes its status if it differs.
async fn write<K, S>(
    client: &kube::Client,
    store: &Store<K>,
    fresh: K,
    before: Option<&S>,
    status: &S,
) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    S: Serialize + PartialEq,
{
    if before == Some(status) {
        return Ok(());
    }
    let name = fresh.name_any();
    let api: Api<K> = Api::all(client.clone());
    if store.get(&ObjectRef::new(&name)).is_none() {
        match api.create(&PostParams::default(), &fresh).await {
            Ok(_) => {}
            Err(kube::Error::Api(existing)) if existing.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
    }
    let patch = json!({"status": status});
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Removes objects whose device or accelerator no longer exists.
async fn remove<K>(client: &kube::Client, store: &Store<K>, present: &HashSet<String>) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    for object in store.state() {
        let name = object.name_any();
        if !present.contains(&name) {
            match api.delete(&name, &DeleteParams::default()).await {
                Ok(_) => {}
                Err(kube::Error::Api(gone)) if gone.code == 404 => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_s_status_says_what_it_holds_and_will() {
        let region = |name: &str| proto::Region {
            name: name.into(),
            ..proto::Region::default()
        };
        let mut device = proto::Device {
            node: "n1".into(),
            state: "ready".into(),
            utilization: 41.6,
            regions: vec![region("sobel")],
            description: Some(proto::DeviceDescription {
                name: "fpga0".into(),
                ..proto::DeviceDescription::default()
            }),
            ..proto::Device::default()
        };
        let ready = status(&device);
        assert_eq!(
            (ready.id.as_str(), ready.state.as_str()),
            ("n1/fpga0", "ready")
        );
        assert_eq!(
            (ready.accelerator.as_str(), ready.utilization),
            ("sobel", 42)
        );
        device.pending = vec![region("mm")];
        device.cordoned = true;
        let next = status(&device);
        assert_eq!(
            (next.accelerator.as_str(), next.state.as_str()),
            ("sobel → mm", "cordoned")
        );
        device.state = "silent".into();
        assert_eq!(status(&device).state, "silent");
    }

    #[test]
    fn a_condition_keeps_its_time_while_it_holds() {
        let first = condition(&[], "Ready", true, "ready", "");
        let mut old = first.clone();
        old.last_transition_time = Time(Timestamp::from_second(7).unwrap());
        let same = condition(std::slice::from_ref(&old), "Ready", true, "ready", "");
        assert_eq!(same.last_transition_time, old.last_transition_time);
        let other = condition(std::slice::from_ref(&old), "Ready", false, "silent", "");
        assert_ne!(other.last_transition_time, old.last_transition_time);
        assert_eq!(
            (other.reason.as_str(), other.status.as_str()),
            ("Silent", "False")
        );
    }
}
