//! The custom resources, `baltra.io/v1alpha1`.
//!
//! A [`Device`] and an [`Accelerator`] mirror what the registry knows; of a device an operator may say that it
//! is cordoned or to be drained. A [`Function`] is the user's: the controller makes it the registry's.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an operator wants of a device.
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
    /// Takes no new instances; those that it has stay.
    pub cordoned: bool,
    /// Takes no new instances, and those that it has are moved, a replacement first.
    pub drain: bool,
}

/// What the registry knows about a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceStatus {
    /// Its name in the registry: node/name.
    pub id: String,
    /// The node that it is in.
    pub node: String,
    /// ready, unconfirmed, failed or silent, and cordoned or draining.
    pub state: String,
    /// Who made it.
    pub vendor: String,
    /// The OpenCL platform.
    pub platform: String,
    /// The driver's name for it.
    pub model: String,
    /// Device memory, bytes.
    pub memory_bytes: i64,
    /// Executors that may use it at once.
    pub slots: u32,
    /// Slots for accelerators.
    pub regions: u32,
    /// Whether a region holds one accelerator at a time.
    pub exclusive: bool,
    /// What it holds, by name, with commas; `a → b`: b is to replace a.
    pub accelerator: String,
    /// Percent of its time that it works, rounded.
    pub utilization: u32,
    /// How many instances it is given to.
    pub instances: u32,
    /// What the node's operator wrote on it.
    pub labels: BTreeMap<String, String>,
    /// Ready.
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// Nothing: an accelerator is where it is loaded.
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

/// Where an accelerator is loaded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AcceleratorStatus {
    /// What people call it.
    pub name: String,
    /// sha256, hexadecimal.
    pub digest: String,
    /// node/name of the devices that hold it, at most 1,000.
    pub devices: Vec<String>,
    /// The first of them, for people.
    #[serde(rename = "where")]
    pub at: String,
    /// Instances that were given those devices.
    pub instances: u32,
}

/// A function as whoever deploys it says.
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
    /// Of the devices that its instances need: field=value,…
    pub query: String,
    /// Devices an instance; 0 means 1.
    pub count: u32,
    /// Its accelerator's sha256, hexadecimal; empty: none.
    pub accelerator: String,
    /// For the scaling signal.
    pub replicas_min: u32,
    /// For the scaling signal; 0: as many as there are devices.
    pub replicas_max: u32,
    /// What gateways serve at /function/NAME.NAMESPACE: texts by file name, function.yaml among them. Empty: nothing, the
    /// function is an application's.
    pub files: BTreeMap<String, String>,
    /// Files that are no texts, in base64.
    pub binary_files: BTreeMap<String, String>,
    /// What gateways pass calls on to instead, started when one comes and stopped when none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<FunctionContainer>,
}

/// A Deployment that answers a function's calls over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FunctionContainer {
    /// Its name, in the function's namespace.
    pub deployment: String,
    /// The Service before it; empty: of the same name.
    pub service: String,
    /// The name of the Service's port; empty: its only one.
    pub port: String,
    /// Nobody having called for so long, it is scaled to none; 0: 300.
    pub idle_seconds: u32,
    /// No call waits and runs for longer, at most 3600; 0: 60.
    pub timeout_seconds: u32,
}

/// What became of a function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FunctionStatus {
    /// Its name in the registry: name.namespace.
    pub name: String,
    /// Instances that it has.
    pub replicas: u32,
    /// Instances that it should have.
    pub desired: u32,
    /// Ready: the registry, and so every gateway, knows it as it stands here. Active: its container is ready for calls.
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// Conditions as every object has them. (The generated schema has keywords that an API server takes no
/// definition with.)
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

/// The name of a device's object: a DNS name made of `node/name`.
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
    fn test_a_device_s_object_has_a_name_that_the_cluster_takes() {
        assert_eq!(device_name("node-1/fpga0"), "node-1.fpga0");
        assert_eq!(device_name("Node_1.site/GPU 0_"), "node-1.site.gpu-0");
        assert_eq!(device_name("n/-"), "n");
    }

    #[test]
    fn test_definitions_are_structural() {
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
