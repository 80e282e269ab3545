//! Publishes the node's claimable devices and their capacity in one ResourceSlice per node.
//!
//! Any number of claims may share a device. The cluster's scheduler accounts for the capacity that
//! they consume: `share`, percent of the device's time, and `memory`. A claim that requests neither
//! gets a tenth of both.

use crate::registry::Registry;
use crate::GROUP;
use anyhow::Result;
use baltra_api::control::Device as Managed;
use baltra_api::query::{Field, Query};
use baltra_api::registry::{Device as Pooled, DevicesRequest};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceAttribute, DeviceCapacity,
    DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use std::collections::BTreeMap;
use std::time::Duration;

/// Name of a capacity: a device's time, percent.
pub const SHARE: &str = "share";
/// Name of a capacity: a device's memory, bytes.
pub const MEMORY: &str = "memory";
/// Default share of a claim, as a divisor of the capacity.
const PARTS: u64 = 10;
/// Longest string of an attribute.
const STRING_MAX: usize = 64;
/// Timeout of the registry; without its response, devices have no taints.
const REGISTRY_MAX: Duration = Duration::from_secs(2);

/// The registry's state of the node's devices; `None` if it does not respond.
pub async fn pool(registry: &Registry, node: &str) -> Vec<Pooled> {
    let Ok(query) = Query::any().with(Field::Node, node) else {
        return Vec::new();
    };
    let request = DevicesRequest {
        query: query.to_string(),
        silent: true,
    };
    let mut operators = registry.operators.clone();
    match tokio::time::timeout(REGISTRY_MAX, operators.devices(request)).await {
        Ok(Ok(reply)) => reply.into_inner().devices,
        _ => Vec::new(),
    }
}

/// The devices that can be claimed, by name.
pub fn devices(managed: &[Managed], pool: &[Pooled]) -> Vec<Device> {
    let ready = managed.iter().filter(|d| d.state == "ready");
    let mut devices: Vec<Device> = ready
        .map(|device| {
            let same = |p: &&Pooled| {
                p.description
                    .as_ref()
                    .is_some_and(|x| x.name == device.name)
            };
            one(device, pool.iter().find(same))
        })
        .collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    devices
}

/// A device's name in the slice: a DNS label.
pub fn claim_name(device: &str) -> String {
    let plain = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '-',
    };
    let name: String = device.chars().map(plain).take(63).collect();
    name.trim_matches('-').to_owned()
}

fn one(device: &Managed, pooled: Option<&Pooled>) -> Device {
    let text = |value: &str| DeviceAttribute {
        string: Some(value.chars().take(STRING_MAX).collect()),
        ..DeviceAttribute::default()
    };
    let number = |value: u64| DeviceAttribute {
        int: i64::try_from(value).ok(),
        ..DeviceAttribute::default()
    };
    let regions = pooled
        .and_then(|p| p.description.as_ref())
        .map_or(1, |d| d.regions.max(1));
    let held = pooled.and_then(|p| p.regions.first());
    let accelerator = held.map(|r| {
        if r.name.is_empty() {
            &r.digest
        } else {
            &r.name
        }
    });
    let mut attributes = BTreeMap::from([
        ("vendor".to_owned(), text(&device.vendor)),
        ("platform".to_owned(), text(&device.platform)),
        ("model".to_owned(), text(&device.model)),
        ("slots".to_owned(), number(device.slots.into())),
        ("regions".to_owned(), number(regions.into())),
        (
            "exclusive".to_owned(),
            DeviceAttribute {
                bool: Some(device.exclusive),
                ..DeviceAttribute::default()
            },
        ),
    ]);
    if let Some(name) = accelerator.filter(|_| device.exclusive) {
        attributes.insert("accelerator".to_owned(), text(name));
    }
    let memory = device.memory_bytes.max(PARTS);
    Device {
        name: claim_name(&device.name),
        allow_multiple_allocations: Some(true),
        attributes: Some(attributes),
        capacity: Some(BTreeMap::from([
            (SHARE.to_owned(), capacity(100, 1)),
            (MEMORY.to_owned(), capacity(memory, 0)),
        ])),
        taints: pooled.and_then(taint).map(|t| vec![t]),
        ..Device::default()
    }
}

fn capacity(all: u64, least: u64) -> DeviceCapacity {
    let quantity = |n: u64| Quantity(n.to_string());
    DeviceCapacity {
        value: quantity(all),
        // Without a default, the first claim would consume the whole device.
        request_policy: Some(CapacityRequestPolicy {
            default: Some(quantity((all / PARTS).max(1))),
            valid_range: Some(CapacityRequestPolicyRange {
                min: quantity(least),
                max: Some(quantity(all)),
                step: None,
            }),
            valid_values: None,
        }),
    }
}

/// The taint for a device that accepts no new instances (cordoned, or to be reconfigured), or whose
/// instances are evicted (draining).
fn taint(device: &Pooled) -> Option<DeviceTaint> {
    let (key, effect) = match (device.draining, device.cordoned, device.pending.is_empty()) {
        (true, _, _) => ("draining", "NoExecute"),
        (_, true, _) => ("cordoned", "NoSchedule"),
        (_, _, false) => ("reconfiguring", "NoSchedule"),
        _ => return None,
    };
    Some(DeviceTaint {
        key: format!("{GROUP}/{key}"),
        effect: effect.to_owned(),
        ..DeviceTaint::default()
    })
}

/// The name of a node's slice.
pub fn slice_name(node: &str) -> String {
    format!("{node}-{GROUP}")
}

/// Writes the node's slice over the existing one (`known`), and returns the API server's version.
///
/// # Errors
/// The API server rejects the write.
pub async fn publish(
    client: &Client,
    owner: &Node,
    existing: Option<&ResourceSlice>,
    devices: &[Device],
) -> Result<ResourceSlice> {
    let node = owner.name_any();
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let name = slice_name(&node);
    let generation = existing.map_or(0, |s| s.spec.pool.generation) + 1;
    let slice = ResourceSlice {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: node.clone(),
                uid: owner.meta().uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: ResourceSliceSpec {
            driver: GROUP.to_owned(),
            node_name: Some(node.clone()),
            pool: ResourcePool {
                name: node,
                generation,
                resource_slice_count: 1,
            },
            devices: Some(devices.to_vec()),
            ..ResourceSliceSpec::default()
        },
    };
    let params = PatchParams::apply("baltra-node").force();
    let written = slices.patch(&name, &params, &Patch::Apply(&slice)).await?;
    tracing::info!(devices = devices.len(), generation, "devices to claim");
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn managed(name: &str, state: &str) -> Managed {
        Managed {
            name: name.into(),
            state: state.into(),
            vendor: "v".repeat(100),
            memory_bytes: 1_000,
            slots: 2,
            ..Managed::default()
        }
    }

    #[test]
    fn only_what_can_be_used_can_be_claimed() {
        let all = devices(
            &[
                managed("b", "ready"),
                managed("a", "failed"),
                managed("A_0", "ready"),
            ],
            &[],
        );
        let names: Vec<&str> = all.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["a-0", "b"]);
        let attributes = all[0].attributes.as_ref().unwrap();
        assert_eq!(
            attributes["vendor"].string.as_ref().unwrap().len(),
            STRING_MAX
        );
    }

    #[test]
    fn a_claim_that_says_nothing_gets_a_tenth() {
        let device = &devices(&[managed("a", "ready")], &[])[0];
        let capacity = device.capacity.as_ref().unwrap();
        let default = |key: &str| {
            let policy = capacity[key].request_policy.as_ref().unwrap();
            policy.default.as_ref().unwrap().0.clone()
        };
        assert_eq!(
            (default(SHARE).as_str(), default(MEMORY).as_str()),
            ("10", "100")
        );
        assert_eq!(device.allow_multiple_allocations, Some(true));
    }

    #[test]
    fn a_device_that_changes_is_tainted() {
        let mut pooled = Pooled::default();
        assert!(taint(&pooled).is_none());
        pooled.pending.push(baltra_api::registry::Region::default());
        assert_eq!(taint(&pooled).unwrap().key, "baltra.io/reconfiguring");
        pooled.draining = true;
        assert_eq!(taint(&pooled).unwrap().effect, "NoExecute");
    }
}
