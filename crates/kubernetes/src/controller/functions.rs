//! Function objects become the registry's functions.

use super::mirror::condition;
use super::Controller;
use crate::resources::{function_name, Function, FunctionStatus};
use anyhow::Result;
use baltra_registry::proto::{
    self, FunctionPutRequest, FunctionRemoveRequest, FunctionsRequest, SignalsRequest,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::{HashMap, HashSet};

/// A label of the registry's functions that have an object.
const OBJECT: &str = "baltra.io/object";

impl Controller {
    /// What is applied, changed or deleted is so to the registry.
    pub(super) async fn put_functions(&self) -> Result<()> {
        let mut functions = self.registry.functions.clone();
        let known = functions.functions(FunctionsRequest::default()).await?;
        let known: HashMap<String, proto::Function> = known
            .into_inner()
            .functions
            .into_iter()
            .map(|f| (f.name.clone(), f))
            .collect();
        let mut present = HashSet::new();
        for object in self.functions.state() {
            let wanted = wanted(&object);
            let differs = known.get(&wanted.name).is_none_or(|k| !same(k, &wanted));
            present.insert(wanted.name.clone());
            if differs {
                let request = FunctionPutRequest {
                    function: Some(wanted),
                    content: Vec::new(),
                };
                let put = functions.function_put(request).await;
                let (holds, message) = match &put {
                    Ok(_) => (true, String::new()),
                    // The registry's own words; another may be put nevertheless.
                    Err(status) => (false, status.message().to_owned()),
                };
                self.tell(&object, holds, &message).await?;
            }
        }
        let gone = known
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

    /// Function objects say how many instances there are and should be.
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
            let name = wanted(&object).name;
            let Some(signal) = signals.iter().find(|s| s.function == name) else {
                continue;
            };
            let before = object.status.clone().unwrap_or_default();
            let status = FunctionStatus {
                name,
                replicas: signal.replicas,
                desired: signal.desired,
                conditions: vec![condition(
                    &before.conditions,
                    "Ready",
                    true,
                    "registered",
                    "",
                )],
            };
            if status != before {
                self.write(&object, &status).await?;
            }
        }
        Ok(())
    }

    async fn tell(&self, object: &Function, holds: bool, message: &str) -> Result<()> {
        let before = object.status.clone().unwrap_or_default();
        let reason = if holds { "registered" } else { "refused" };
        let status = FunctionStatus {
            name: wanted(object).name,
            conditions: vec![condition(
                &before.conditions,
                "Ready",
                holds,
                reason,
                message,
            )],
            ..before.clone()
        };
        match status == before {
            true => Ok(()),
            false => self.write(object, &status).await,
        }
    }

    async fn write(&self, object: &Function, status: &FunctionStatus) -> Result<()> {
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

/// The registry's function that an object describes.
fn wanted(object: &Function) -> proto::Function {
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

/// Whether the registry's function says what an object says.
fn same(known: &proto::Function, wanted: &proto::Function) -> bool {
    known.tenant == wanted.tenant
        && known.query == wanted.query
        && known.count == wanted.count.max(1)
        && known.accelerator == wanted.accelerator
        && known.replicas_min == wanted.replicas_min
        && known.replicas_max == wanted.replicas_max
        && known.labels == wanted.labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::FunctionSpec;

    #[test]
    fn test_an_object_is_the_registry_s_function_of_its_namespace() {
        let mut object = Function::new("sobel", FunctionSpec::default());
        object.metadata.namespace = Some("red".into());
        let wanted = wanted(&object);
        assert_eq!(
            (wanted.name.as_str(), wanted.tenant.as_str()),
            ("sobel.red", "red")
        );
        let mut known = wanted.clone();
        known.count = 1;
        known.revision = 7;
        assert!(same(&known, &wanted));
        known.query = "vendor=x".into();
        assert!(!same(&known, &wanted));
    }
}
