//! Changes of a Pod at admission: a pure function from object to object.

use crate::annotations::DeviceRequest;
use crate::{ALLOCATED, GATE, HOSTNAME, INSTANCE, INSTANCES_DIR, MOUNT};
use serde_json::{json, Map, Value};
use std::path::Path;

/// The volume's name in a Pod.
const VOLUME: &str = "baltra";

/// A Pod's allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Its instance.
    pub instance: String,
    /// The devices, node/device; empty: the Pod waits.
    pub devices: Vec<String>,
    /// The node; empty: not decided.
    pub node: String,
    /// Whether it waits for a device, or for a reconfiguration.
    pub gated: bool,
}

/// Why a Pod cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Its volume has a reserved name.
    #[error("the Pod's volume name '{VOLUME}' is reserved for Baltra: rename it")]
    Volume,
    /// A mount uses a reserved path.
    #[error(
        "container '{0}' has a mount at {MOUNT}, which is reserved for Baltra: mount it elsewhere"
    )]
    Mount(String),
    /// It names a container that it does not have.
    #[error("annotation baltra.io/containers lists '{0}', but the Pod has no such container")]
    NoContainer(String),
    /// It must run on another node than its device's.
    #[error("the Pod's node selector requires node '{asked}', but its device is on node '{node}'")]
    Elsewhere {
        /// The Pod's node.
        asked: String,
        /// The device's node.
        node: String,
    },
    /// It is bound to a node and therefore cannot wait.
    #[error(
        "the Pod is bound to node '{0}' and cannot wait for a device there: remove spec.nodeName"
    )]
    Bound(String),
}

/// The only node on which the Pod can run; empty: any.
pub fn node(pod: &Value) -> String {
    let spec = &pod["spec"];
    let named = spec["nodeName"].as_str();
    let selected = spec["nodeSelector"][HOSTNAME].as_str();
    // The node affinity that a DaemonSet gives its Pods.
    let terms = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    let field = &terms[0]["matchFields"][0];
    let bound = (field["key"] == "metadata.name").then(|| field["values"][0].as_str());
    let first = named.or(selected).or(bound.flatten());
    first.unwrap_or_default().to_owned()
}

/// The changed Pod.
///
/// # Errors
/// The Pod conflicts with the required changes.
pub fn changed(
    pod: &Value,
    wanted: &DeviceRequest,
    grant: &Grant,
    runtime_dir: &Path,
) -> Result<Value, Error> {
    let mut pod = pod.clone();
    let spec = &pod["spec"];
    if let Some(bound) = spec["nodeName"]
        .as_str()
        .filter(|n| !n.is_empty() && grant.gated)
    {
        return Err(Error::Bound(bound.to_owned()));
    }
    if named(&spec["volumes"], VOLUME) {
        return Err(Error::Volume);
    }
    let kinds = ["containers", "initContainers"];
    for name in &wanted.containers {
        if !kinds.iter().any(|kind| named(&spec[*kind], name)) {
            return Err(Error::NoContainer(name.clone()));
        }
    }
    object(&mut pod["metadata"]["labels"]).insert(INSTANCE.into(), json!(grant.instance));
    if !grant.devices.is_empty() {
        let devices = json!(grant.devices.join(","));
        object(&mut pod["metadata"]["annotations"]).insert(ALLOCATED.into(), devices);
    }
    let spec = &mut pod["spec"];
    if !grant.node.is_empty() && spec["nodeName"].as_str().is_none_or(str::is_empty) {
        let selector = object(&mut spec["nodeSelector"]);
        let asked = selector.insert(HOSTNAME.into(), json!(grant.node));
        if let Some(asked) = asked.filter(|asked| *asked != json!(grant.node)) {
            return Err(Error::Elsewhere {
                asked: asked.as_str().unwrap_or_default().to_owned(),
                node: grant.node.clone(),
            });
        }
    }
    if grant.gated {
        list(&mut spec["schedulingGates"]).push(json!({"name": GATE}));
    }
    // Created by the node agent for the Pods on its node.
    let directory = runtime_dir.join(INSTANCES_DIR).join(&grant.instance);
    list(&mut spec["volumes"]).push(json!({
        "name": VOLUME,
        "hostPath": {"path": directory.to_string_lossy(), "type": "Directory"},
    }));
    for kind in kinds {
        let Some(containers) = spec.get_mut(kind).and_then(Value::as_array_mut) else {
            continue;
        };
        for container in containers {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            if wanted.containers.is_empty() || wanted.containers.contains(&name) {
                inject(container, &name, &grant.instance)?;
            }
        }
    }
    Ok(pod)
}

fn inject(container: &mut Value, name: &str, instance: &str) -> Result<(), Error> {
    let mounts = list(&mut container["volumeMounts"]);
    let taken = |m: &Value| {
        let path = m["mountPath"].as_str().unwrap_or_default();
        path.trim_end_matches('/') == MOUNT || path.starts_with("/baltra/")
    };
    if mounts.iter().any(taken) {
        return Err(Error::Mount(name.to_owned()));
    }
    mounts.push(json!({"name": VOLUME, "mountPath": MOUNT, "readOnly": true}));
    let env = list(&mut container["env"]);
    for (variable, value) in environment() {
        // The image's own library path has precedence.
        if variable == "LD_LIBRARY_PATH" && named_in(env, variable) {
            continue;
        }
        put(env, variable, &value);
    }
    put(env, "BALTRA_INSTANCE", &format!("{instance} (restarts)"));
    Ok(())
}

/// Environment variables of a container; one names the file with all other values.
pub fn environment() -> [(&'static str, String); 3] {
    [
        ("BALTRA_ENVIRONMENT", format!("{MOUNT}/environment")),
        // Both common loaders read this file; in an image without a loader, the library itself is
        // the loader.
        ("OCL_ICD_VENDORS", format!("{MOUNT}/baltra.icd")),
        ("LD_LIBRARY_PATH", MOUNT.to_owned()),
    ]
}

/// Copies a workload's request into its Pod template, as in the thesis.
pub fn workload(
    object_: &Value,
    request: &[(String, String)],
    application: &str,
    registry: &str,
) -> Value {
    let mut changed = object_.clone();
    let template = &mut changed["spec"]["template"];
    let annotations = object(&mut template["metadata"]["annotations"]);
    for (key, value) in request {
        annotations
            .entry(key.clone())
            .or_insert_with(|| json!(value));
    }
    annotations.insert("baltra.io/application".into(), json!(application));
    if let Some(containers) = template["spec"]["containers"].as_array_mut() {
        for container in containers {
            let env = list(&mut container["env"]);
            put(env, "BALTRA_APPLICATION", application);
            put(env, "BALTRA_REGISTRY", registry);
        }
    }
    changed
}

fn put(env: &mut Vec<Value>, name: &str, value: &str) {
    env.retain(|e| e["name"] != name);
    env.push(json!({"name": name, "value": value}));
}

fn named(list: &Value, name: &str) -> bool {
    list.as_array().is_some_and(|l| named_in(l, name))
}

fn named_in(list: &[Value], name: &str) -> bool {
    list.iter().any(|e| e["name"] == name)
}

fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("created above")
}

fn list(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = json!([]);
    }
    value.as_array_mut().expect("created above")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> Grant {
        Grant {
            instance: "red.00ff".into(),
            devices: vec!["n1/fpga0".into()],
            node: "n1".into(),
            gated: false,
        }
    }

    fn plain() -> Value {
        json!({"metadata": {}, "spec": {"containers": [{"name": "c"}, {"name": "d", "env": [{"name": "LD_LIBRARY_PATH", "value": "/x"}]}]}})
    }

    fn change(pod: &Value, wanted: &DeviceRequest, grant: &Grant) -> Result<Value, Error> {
        changed(pod, wanted, grant, Path::new("/run/baltra"))
    }

    #[test]
    fn a_pod_gets_a_place_a_volume_and_an_environment() {
        let pod = change(&plain(), &DeviceRequest::default(), &grant()).unwrap();
        assert_eq!(pod["metadata"]["labels"][INSTANCE], "red.00ff");
        assert_eq!(pod["metadata"]["annotations"][ALLOCATED], "n1/fpga0");
        assert_eq!(pod["spec"]["nodeSelector"][HOSTNAME], "n1");
        assert_eq!(
            pod["spec"]["volumes"][0]["hostPath"]["path"],
            "/run/baltra/instances/red.00ff"
        );
        let env = |c: usize| {
            pod["spec"]["containers"][c]["env"]
                .as_array()
                .unwrap()
                .clone()
        };
        assert!(named_in(&env(0), "LD_LIBRARY_PATH") && named_in(&env(0), "BALTRA_ENVIRONMENT"));
        let own = env(1)
            .iter()
            .filter(|e| e["name"] == "LD_LIBRARY_PATH")
            .cloned()
            .collect::<Vec<_>>();
        assert_eq!(own, [json!({"name": "LD_LIBRARY_PATH", "value": "/x"})]);
        assert!(pod["spec"]["schedulingGates"].is_null());
    }

    #[test]
    fn one_that_waits_has_a_gate_and_no_node() {
        let waits = Grant {
            devices: Vec::new(),
            node: String::new(),
            gated: true,
            ..grant()
        };
        let pod = change(&plain(), &DeviceRequest::default(), &waits).unwrap();
        assert_eq!(pod["spec"]["schedulingGates"], json!([{"name": GATE}]));
        assert!(pod["spec"]["nodeSelector"].is_null());
        assert!(pod["metadata"]["annotations"].is_null());
    }

    #[test]
    fn only_named_containers_get_it() {
        let wanted = DeviceRequest {
            containers: vec!["d".into()],
            ..DeviceRequest::default()
        };
        let pod = change(&plain(), &wanted, &grant()).unwrap();
        assert!(pod["spec"]["containers"][0]["volumeMounts"].is_null());
        assert!(pod["spec"]["containers"][1]["volumeMounts"].is_array());
        let wrong = DeviceRequest {
            containers: vec!["x".into()],
            ..DeviceRequest::default()
        };
        assert_eq!(
            change(&plain(), &wrong, &grant()),
            Err(Error::NoContainer("x".into()))
        );
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let mut pod = plain();
        pod["spec"]["volumes"] = json!([{"name": "baltra"}]);
        assert_eq!(
            change(&pod, &DeviceRequest::default(), &grant()),
            Err(Error::Volume)
        );
        let mut pod = plain();
        pod["spec"]["containers"][0]["volumeMounts"] =
            json!([{"name": "x", "mountPath": "/baltra/"}]);
        assert_eq!(
            change(&pod, &DeviceRequest::default(), &grant()),
            Err(Error::Mount("c".into()))
        );
        let mut pod = plain();
        pod["spec"]["nodeSelector"] = json!({HOSTNAME: "n2"});
        assert!(matches!(
            change(&pod, &DeviceRequest::default(), &grant()),
            Err(Error::Elsewhere { .. })
        ));
        let mut pod = plain();
        pod["spec"]["nodeName"] = json!("n1");
        let waits = Grant {
            gated: true,
            ..grant()
        };
        assert_eq!(
            change(&pod, &DeviceRequest::default(), &waits),
            Err(Error::Bound("n1".into()))
        );
    }

    #[test]
    fn a_pod_s_node_is_found_wherever_it_stands() {
        for spec in [
            json!({"nodeName": "n1"}),
            json!({"nodeSelector": {HOSTNAME: "n1"}}),
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}}),
        ] {
            assert_eq!(node(&json!({"spec": spec})), "n1");
        }
        assert_eq!(node(&plain()), "");
    }

    #[test]
    fn a_workload_s_annotations_are_its_template_s() {
        let deployment = json!({"spec": {"template": {"metadata": {"annotations": {"baltra.io/vendor": "own"}},
            "spec": {"containers": [{"name": "c"}]}}}});
        let request = [
            ("baltra.io/vendor".to_owned(), "other".to_owned()),
            ("baltra.io/device".to_owned(), "x".to_owned()),
        ];
        let changed = workload(&deployment, &request, "red.app", "http://r:1");
        let template = &changed["spec"]["template"];
        assert_eq!(
            template["metadata"]["annotations"]["baltra.io/vendor"],
            "own"
        );
        assert_eq!(template["metadata"]["annotations"]["baltra.io/device"], "x");
        assert_eq!(
            template["metadata"]["annotations"]["baltra.io/application"],
            "red.app"
        );
        // A second admission changes nothing.
        assert_eq!(
            workload(&changed, &request, "red.app", "http://r:1"),
            changed
        );
    }
}
