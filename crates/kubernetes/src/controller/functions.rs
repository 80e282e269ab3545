//! Copies Function objects to the registry; gateways serve functions with files from there.

use super::containers;
use super::mirror::condition;
use super::Controller;
use crate::demand::Policy;
use crate::resources::{function_name, Function, FunctionSpec};
use anyhow::{anyhow, Context, Result};
use baltra_api::registry::{
    self as proto, FunctionPutRequest, FunctionRemoveRequest, FunctionsRequest, SignalsRequest,
};
use baltra_functions::Files;
use base64::prelude::{Engine as _, BASE64_STANDARD};
use bytes::Bytes;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use serde_json::{json, Value};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The file that defines a function.
const MANIFEST: &str = "function.yaml";

/// A label of the registry's functions that have an object.
const OBJECT: &str = "baltra.io/object";

impl Controller {
    /// Copies changes of Function objects to the registry.
    pub(super) async fn put_functions(&self) -> Result<()> {
        let mut functions = self.registry.functions.clone();
        let existing = functions.functions(FunctionsRequest::default()).await?;
        let existing: HashMap<String, proto::Function> = existing
            .into_inner()
            .functions
            .into_iter()
            .map(|f| (f.name.clone(), f))
            .collect();
        let mut present = HashSet::new();
        for object in self.functions.state() {
            let wanted = match self.permitted(&object) {
                Ok(wanted) => wanted,
                Err(error) => {
                    self.report(&object, false, &format!("{error:#}")).await?;
                    continue;
                }
            };
            present.insert(wanted.name.clone());
            let content = match content(&object.name_any(), &object.spec) {
                Ok(content) => content,
                // The registry keeps the earlier version.
                Err(error) => {
                    self.report(&object, false, &format!("{error:#}")).await?;
                    continue;
                }
            };
            let digest = hexadecimal(&content);
            let differs = |k: &proto::Function| !same(k, &wanted) || k.digest != digest;
            if existing.get(&wanted.name).is_none_or(differs) {
                let request = FunctionPutRequest {
                    function: Some(wanted),
                    content,
                };
                let put = functions.function_put(request).await;
                let (holds, message) = match &put {
                    Ok(_) => (true, String::new()),
                    // The registry's message; a later version may be accepted.
                    Err(status) => (false, status.message().to_owned()),
                };
                self.report(&object, holds, &message).await?;
            } else {
                self.report(&object, true, "").await?;
            }
        }
        let gone = existing
            .values()
            .filter(|f| f.labels.contains_key(OBJECT) && !present.contains(&f.name));
        for function in gone {
            let request = FunctionRemoveRequest {
                name: function.name.clone(),
            };
            functions.function_remove(request).await?;
            tracing::info!(function = function.name, "removed");
        }
        Ok(())
    }

    /// The registry's function, restricted to devices that the namespace may use.
    pub(super) fn permitted(&self, object: &Function) -> Result<proto::Function> {
        let mut wanted = registered(object);
        let namespace = self.namespaces.get(&ObjectRef::new(&wanted.tenant));
        let namespace = namespace
            .ok_or_else(|| anyhow!("namespace '{}' is not in the cache yet", wanted.tenant))?;
        let annotations = namespace.metadata.annotations.clone().unwrap_or_default();
        let policy = Policy::of(&wanted.tenant, &annotations)?;
        let query = wanted.query.parse().context("spec.query")?;
        wanted.query = policy.narrow(&wanted.tenant, &query)?.to_string();
        Ok(wanted)
    }

    /// Writes the actual and desired numbers of instances to Function objects.
    pub(super) async fn mirror_functions(&self) -> Result<()> {
        if self.functions.is_empty() {
            return Ok(());
        }
        let mut operators = self.registry.operators.clone();
        let signals = operators
            .signals(SignalsRequest {})
            .await?
            .into_inner()
            .signals;
        for object in self.functions.state() {
            let name = registered(&object).name;
            let Some(signal) = signals.iter().find(|s| s.function == name) else {
                continue;
            };
            let before = object.status.clone().unwrap_or_default();
            let (replicas, desired) = (signal.replicas, signal.desired);
            if (before.replicas, before.desired) != (replicas, desired) {
                let status = json!({"replicas": replicas, "desired": desired});
                self.write(&object, &status).await?;
            }
        }
        Ok(())
    }

    async fn report(&self, object: &Function, holds: bool, message: &str) -> Result<()> {
        let before = object.status.clone().unwrap_or_default();
        let reason = if holds { "registered" } else { "refused" };
        let name = registered(object).name;
        let ready = condition(&before.conditions, "Ready", holds, reason, message);
        let active = self.active(object, &before.conditions);
        let conditions: Vec<_> = [ready].into_iter().chain(active).collect();
        if before.name == name && before.conditions == conditions {
            Ok(())
        } else {
            let status = json!({"name": name, "conditions": conditions});
            self.write(object, &status).await
        }
    }

    /// Changes only a part of the status, because the cache may lack changes of the other part.
    async fn write(&self, object: &Function, status: &Value) -> Result<()> {
        let namespace = object.namespace().unwrap_or_default();
        let api: Api<Function> = Api::namespaced(self.client.clone(), &namespace);
        let patch = json!({"status": status});
        api.patch_status(
            &object.name_any(),
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await?;
        Ok(())
    }
}

/// The registry's function for an object.
fn registered(object: &Function) -> proto::Function {
    let namespace = object.namespace().unwrap_or_default();
    proto::Function {
        name: function_name(&namespace, &object.name_any()),
        tenant: namespace,
        query: object.spec.query.clone(),
        count: object.spec.count,
        accelerator: object.spec.accelerator.clone(),
        replicas_min: object.spec.replicas_min,
        replicas_max: object.spec.replicas_max,
        labels: HashMap::from([(OBJECT.to_owned(), "true".to_owned())]),
        ..proto::Function::default()
    }
}

/// A function's files in the registry's upload format; empty: it has no files.
///
/// # Errors
/// The invalid field, for the user who applied the object.
fn content(name: &str, spec: &FunctionSpec) -> Result<Vec<u8>> {
    if containers::container(spec)?.is_some() {
        return Ok(Vec::new());
    }
    if spec.files.is_empty() && spec.binary_files.is_empty() {
        return Ok(Vec::new());
    }
    let text = spec.files.get(MANIFEST);
    let text = text.ok_or_else(|| anyhow!("spec.files lacks '{MANIFEST}'"))?;
    let mut contents: BTreeMap<String, Bytes> = BTreeMap::new();
    let mut packed: BTreeMap<&str, Value> = BTreeMap::new();
    for (file, text) in &spec.files {
        contents.insert(file.clone(), Bytes::copy_from_slice(text.as_bytes()));
        packed.insert(file, json!(text));
    }
    for (file, encoded) in &spec.binary_files {
        let bytes = BASE64_STANDARD.decode(encoded);
        let bytes =
            bytes.with_context(|| format!("spec.binaryFiles: '{file}' is not valid base64"))?;
        contents.insert(file.clone(), bytes.into());
        packed.insert(file, json!({"base64": encoded}));
    }
    let function = baltra_functions::Function::from_files(text, Files::from_contents(contents))?;
    let own = function.manifest.name;
    if own != name {
        return Err(anyhow!(
            "{MANIFEST}: the name '{own}' must equal the object's name '{name}'"
        ));
    }
    Ok(serde_json::to_vec(&json!({"files": packed}))?)
}

fn hexadecimal(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

/// Whether the registry's function equals an object.
fn same(existing: &proto::Function, wanted: &proto::Function) -> bool {
    existing.tenant == wanted.tenant
        && existing.query == wanted.query
        && existing.count == wanted.count.max(1)
        && existing.accelerator == wanted.accelerator
        && existing.replicas_min == wanted.replicas_min
        && existing.replicas_max == wanted.replicas_max
        && existing.labels == wanted.labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::FunctionSpec;

    const KERNEL: &str = "kernel void id(global const uchar *a, global uchar *b) { b[get_global_id(0)] = a[get_global_id(0)]; }";

    fn files(name: &str) -> FunctionSpec {
        let manifest = format!(
            "name: {name}\ninputs: [{{name: a, type: u8, shape: [n]}}]\noutputs: [{{name: b, type: u8, shape: [n]}}]\n\
             implementations: [{{opencl: {{source: id.cl, kernel: id, global: [n]}}}}]\n"
        );
        FunctionSpec {
            files: [
                (MANIFEST.to_owned(), manifest),
                ("id.cl".to_owned(), KERNEL.to_owned()),
            ]
            .into(),
            ..FunctionSpec::default()
        }
    }

    #[test]
    fn files_are_packed_as_a_gateway_reads_them() {
        assert!(content("id", &FunctionSpec::default()).unwrap().is_empty());
        let mut spec = files("id");
        let packed = content("id", &spec).unwrap();
        let read: Value = serde_json::from_slice(&packed).unwrap();
        assert_eq!(read["files"]["id.cl"], KERNEL);
        // Equal objects give equal bytes.
        assert_eq!(content("id", &spec).unwrap(), packed);
        let kernel = spec.files.remove("id.cl").unwrap();
        spec.binary_files = [("id.cl".to_owned(), BASE64_STANDARD.encode(kernel))].into();
        let read: Value = serde_json::from_slice(&content("id", &spec).unwrap()).unwrap();
        assert_eq!(read["files"]["id.cl"]["base64"], spec.binary_files["id.cl"]);
    }

    #[test]
    fn what_is_wrong_with_files_is_said() {
        let said = |spec: &FunctionSpec| format!("{:#}", content("id", spec).unwrap_err());
        assert!(said(&files("other")).contains("'other'"));
        let mut spec = files("id");
        spec.files.remove("id.cl");
        assert!(said(&spec).contains("id.cl"));
        spec.files.remove(MANIFEST);
        spec.files.insert("x".into(), "y".into());
        assert!(said(&spec).contains(MANIFEST));
        let mut spec = files("id");
        spec.binary_files = [("w".to_owned(), "%".to_owned())].into();
        assert!(said(&spec).contains("base64"));
    }

    #[test]
    fn an_object_is_the_registry_s_function_of_its_namespace() {
        let mut object = Function::new("sobel", FunctionSpec::default());
        object.metadata.namespace = Some("red".into());
        let wanted = registered(&object);
        assert_eq!(
            (wanted.name.as_str(), wanted.tenant.as_str()),
            ("sobel.red", "red")
        );
        let mut existing = wanted.clone();
        existing.count = 1;
        existing.revision = 7;
        assert!(same(&existing, &wanted));
        existing.query = "vendor=x".into();
        assert!(!same(&existing, &wanted));
    }
}
