//! The custom resources, `baltra.io/v1alpha1`.
//!
//! A [`Device`] and an [`Accelerator`] mirror the registry's objects; operators mark devices as
//! cordoned or draining. Users create [`Function`] objects, which the controller copies to the
//! registry.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An operator's settings of a device.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "baltra.io",
    version = "v1alpha1",
    kind = "Device",
    shortname = "dev",
    category = "baltra",
    status = "DeviceStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Model","type":"string","jsonPath":".status.model"}"#,
    printcolumn = r#"{"name":"Accelerator","type":"string","jsonPath":".status.accelerator"}"#,
    printcolumn = r#"{"name":"Utilization","type":"integer","jsonPath":".status.utilization"}"#,
    printcolumn = r#"{"name":"Instances","type":"integer","jsonPath":".status.instances"}"#,
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".status.node","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSpec {
    /// Accepts no new instances; its instances stay.
    pub cordoned: bool,
    /// Accepts no new instances, and its instances are moved, each after its replacement is ready.
    pub drain: bool,
}

/// The registry's state of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceStatus {
    /// Its name in the registry: node/name.
    pub id: String,
    /// Its node.
    pub node: String,
    /// ready, unconfirmed, failed or silent, and cordoned or draining.
    pub state: String,
    /// The vendor.
    pub vendor: String,
    /// The OpenCL platform.
    pub platform: String,
    /// Its model, from the driver.
    pub model: String,
    /// Device memory, bytes.
    pub memory_bytes: i64,
    /// Executors that may use it concurrently.
    pub slots: u32,
    /// Slots for accelerators.
    pub regions: u32,
    /// Whether a region holds one accelerator at a time.
    pub exclusive: bool,
    /// Its accelerators, by name, separated by commas; `a → b`: b will replace a.
    pub accelerator: String,
    /// Utilization, percent, rounded.
    pub utilization: u32,
    /// Number of instances that it is allocated to.
    pub instances: u32,
    /// Labels from the node's operator.
    pub labels: BTreeMap<String, String>,
    /// Ready.
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// Empty: the status lists the devices.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "baltra.io",
    version = "v1alpha1",
    kind = "Accelerator",
    shortname = "acc",
    category = "baltra",
    status = "AcceleratorStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Accelerator","type":"string","jsonPath":".status.name"}"#,
    printcolumn = r#"{"name":"Instances","type":"integer","jsonPath":".status.instances"}"#,
    printcolumn = r#"{"name":"Devices","type":"string","jsonPath":".status.where"}"#,
    printcolumn = r#"{"name":"Digest","type":"string","jsonPath":".status.digest","priority":1}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct AcceleratorSpec {}

/// The boards on which an accelerator is loaded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AcceleratorStatus {
    /// Its name.
    pub name: String,
    /// sha256, hexadecimal.
    pub digest: String,
    /// node/name of the devices that hold it, at most 1,000.
    pub devices: Vec<String>,
    /// The first of them, for display.
    #[serde(rename = "where")]
    pub at: String,
    /// Instances that these devices are allocated to.
    pub instances: u32,
}

/// A function, as deployed.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "baltra.io",
    version = "v1alpha1",
    kind = "Function",
    shortname = "fn",
    category = "baltra",
    namespaced,
    status = "FunctionStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Query","type":"string","jsonPath":".spec.query"}"#,
    printcolumn = r#"{"name":"Replicas","type":"integer","jsonPath":".status.replicas"}"#,
    printcolumn = r#"{"name":"Desired","type":"integer","jsonPath":".status.desired"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct FunctionSpec {
    /// Query for the devices of its instances: field=value,…
    pub query: String,
    /// Devices per instance; 0 means 1.
    pub count: u32,
    /// Its accelerator's sha256, hexadecimal; empty: none.
    pub accelerator: String,
    /// Fewest replicas, for the scaling signal.
    pub replicas_min: u32,
    /// Most replicas, for the scaling signal; 0: the number of devices.
    pub replicas_max: u32,
    /// Files that gateways serve at /function/NAME.NAMESPACE: text by file name, including
    /// function.yaml. Empty: none, the function is an application's.
    pub files: BTreeMap<String, String>,
    /// Binary files, in base64.
    pub binary_files: BTreeMap<String, String>,
    /// The container that gateways forward calls to instead, started by a call and stopped when
    /// idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<FunctionContainer>,
}

/// A Deployment that serves a function's calls over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FunctionContainer {
    /// Its name, in the function's namespace.
    pub deployment: String,
    /// Its Service; empty: the one with the same name.
    pub service: String,
    /// The name of the Service's port; empty: its only one.
    pub port: String,
    /// Idle time in seconds after which it is scaled to zero; 0: 300.
    pub idle_seconds: u32,
    /// Time limit of a call, including its wait, in seconds, at most 3600; 0: 60.
    pub timeout_seconds: u32,
}

/// The status of a function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FunctionStatus {
    /// Its name in the registry: name.namespace.
    pub name: String,
    /// Number of its instances.
    pub replicas: u32,
    /// Desired number of its instances.
    pub desired: u32,
    /// Ready: the registry, and so every gateway, has this version. Active: its container is ready
    /// for calls.
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// Conditions with a schema that the API server accepts. (The generated schema has keywords that it
/// rejects in a definition.)
fn conditions(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "message": {"type": "string"},
                "observedGeneration": {"type": "integer", "format": "int64"},
                "reason": {"type": "string"},
                "status": {"type": "string"},
                "type": {"type": "string"}
            }
        }
    })
}

/// All definitions.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![Device::crd(), Accelerator::crd(), Function::crd()]
}

/// The name of a device's object: a DNS name derived from `node/name`.
pub fn device_name(id: &str) -> String {
    let plain = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        '/' | '.' => '.',
        _ => '-',
    };
    let name: String = id.chars().map(plain).collect();
    // Labels of a DNS name begin and end with a letter or a digit.
    let labels = name.split('.').map(|l| l.trim_matches('-'));
    let labels: Vec<&str> = labels.filter(|l| !l.is_empty()).collect();
    labels.join(".").chars().take(253).collect()
}

/// A function's name in the registry, as OpenFaaS writes it.
pub fn function_name(namespace: &str, name: &str) -> String {
    format!("{name}.{namespace}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_s_object_has_a_name_that_the_cluster_takes() {
        assert_eq!(device_name("node-1/fpga0"), "node-1.fpga0");
        assert_eq!(device_name("Node_1.site/GPU 0_"), "node-1.site.gpu-0");
        assert_eq!(device_name("n/-"), "n");
    }

    #[test]
    fn definitions_are_structural() {
        for crd in definitions() {
            let text = serde_json::to_string(&crd).unwrap();
            assert!(!text.contains("\"$ref\""), "{text}");
            let version = &crd.spec.versions[0];
            assert!(version.subresources.as_ref().unwrap().status.is_some());
            assert!(!version
                .additional_printer_columns
                .as_ref()
                .unwrap()
                .is_empty());
        }
    }
}
