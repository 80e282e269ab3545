//! Builds the registry's request from a Pod's device request and its namespace's policy.

use crate::annotations::DeviceRequest;
use crate::resources::function_name;
use baltra_api::query::{Field, Query};
use baltra_api::registry::{AllocateReply, AllocateRequest, Refusal};
use std::collections::BTreeMap;

/// An annotation of a Namespace: a query that each device of its Pods meets, or `none`.
pub const NAMESPACE_DEVICES: &str = "baltra.io/devices";
/// Annotation of a Namespace: the most instances that it may have.
pub const NAMESPACE_INSTANCES: &str = "baltra.io/instances-max";
/// Prefix of the hostname of a Pod's instance.
pub const POD: &str = "pod/";
/// Prefix of the hostname of a claim's instance.
pub const CLAIM: &str = "claim/";
/// Lease of an instance until its Pod appears, seconds. An API server ends a request after 34 s; a
/// Pod that does not exist by then was rejected by another webhook.
pub const LEASE_S: u32 = 40;

/// The policy of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The permitted devices; `None`: no devices.
    devices: Option<Query>,
    /// Most concurrent instances; `None`: no limit.
    pub instances_max: Option<usize>,
}

/// Why a namespace's policy rejects its Pod's request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The namespace may not use devices.
    #[error("namespace '{0}' may not use devices: an operator has to set its annotation {NAMESPACE_DEVICES}")]
    None(String),
    /// The Pod requests devices that the namespace may not use.
    #[error("namespace '{namespace}' may only use devices with {field}={allowed}, but the Pod requests {field}={requested}")]
    NotThese {
        /// The namespace.
        namespace: String,
        /// The field that differs.
        field: &'static str,
        /// The permitted value.
        allowed: String,
        /// The requested value.
        requested: String,
    },
    /// An annotation of the namespace is invalid.
    #[error("namespace '{namespace}' has the invalid annotation {name}='{value}': {reason}")]
    Policy {
        /// The namespace.
        namespace: String,
        /// The annotation.
        name: &'static str,
        /// Its value.
        value: String,
        /// The reason.
        reason: String,
    },
}

impl Policy {
    /// Reads the policy from a namespace's annotations.
    ///
    /// # Errors
    /// An annotation is invalid; the namespace's Pods then get no devices.
    pub fn of(namespace: &str, annotations: &BTreeMap<String, String>) -> Result<Policy, Error> {
        let wrong = |name, value: &str, reason: String| Error::Policy {
            namespace: namespace.to_owned(),
            name,
            value: value.chars().take(64).collect(),
            reason,
        };
        let devices = match annotations.get(NAMESPACE_DEVICES).map(|v| v.trim()) {
            Some("none") => None,
            Some(text) => Some(
                text.parse::<Query>()
                    .map_err(|e| wrong(NAMESPACE_DEVICES, text, format!("{e}")))?,
            ),
            None => Some(Query::any()),
        };
        let instances_max =
            match annotations.get(NAMESPACE_INSTANCES) {
                Some(text) => Some(text.trim().parse::<usize>().map_err(|_| {
                    wrong(NAMESPACE_INSTANCES, text, "it must be a number".to_owned())
                })?),
                None => None,
            };
        Ok(Policy {
            devices,
            instances_max,
        })
    }

    /// Combines the query of a Pod with the policy of its namespace.
    ///
    /// # Errors
    /// The query and the policy exclude each other.
    pub fn narrow(&self, namespace: &str, requested: &Query) -> Result<Query, Error> {
        let Some(allowed) = &self.devices else {
            return Err(Error::None(namespace.to_owned()));
        };
        let mut left = allowed.clone();
        for field in Field::ALL {
            let (Some(may), Some(wants)) = (allowed.term(field), requested.term(field)) else {
                continue;
            };
            let exact = wants.exact();
            let within = may == wants || exact.is_some_and(|value| allowed.accepts(field, &value));
            if !within {
                return Err(Error::NotThese {
                    namespace: namespace.to_owned(),
                    field: field.name(),
                    allowed: may.to_string(),
                    requested: wants.to_string(),
                });
            }
            left = left.without(field);
        }
        left.joined(requested).ok_or_else(|| Error::NotThese {
            namespace: namespace.to_owned(),
            field: "label",
            allowed: allowed.to_string(),
            requested: requested.to_string(),
        })
    }
}

/// The requesting Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// The instance.
    pub instance: String,
    /// The Pod's namespace: the tenant.
    pub namespace: String,
    /// The Pod's name, or its prefix.
    pub name: String,
    /// Its node; empty: any.
    pub node: String,
}

/// The allocation request of a Pod.
///
/// # Errors
/// The policy rejects the request.
pub fn request(
    asker: &Asker,
    wanted: &DeviceRequest,
    policy: &Policy,
) -> Result<AllocateRequest, Error> {
    let query = policy.narrow(&asker.namespace, &wanted.query)?;
    let function = match wanted.function.as_str() {
        "" => String::new(),
        name => function_name(&asker.namespace, name),
    };
    Ok(AllocateRequest {
        instance: asker.instance.clone(),
        tenant: asker.namespace.clone(),
        function,
        query: query.to_string(),
        count: wanted.count,
        pool: wanted.pool.clone(),
        node: asker.node.clone(),
        hostname: format!("{POD}{}/{}", asker.namespace, asker.name),
        lease_s: Some(LEASE_S),
        devices: Vec::new(),
        apart: false,
        memory_bytes: wanted.memory_bytes.unwrap_or(0),
        preemptible: false,
        stored: false,
        move_policy: wanted.move_policy.clone(),
    })
}

/// The result of a request for devices.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Allocated.
    Given {
        /// The devices, `node/device`.
        devices: Vec<String>,
        /// The node for the Pod.
        node: String,
        /// Whether a device has to be reconfigured first.
        reconfigure: bool,
    },
    /// Matching devices exist, but none is free; a retry may succeed.
    Later(String),
    /// No device matches.
    Never(String),
}

/// Converts the registry's response.
pub fn answer(reply: AllocateReply) -> Answer {
    match (reply.instance, reply.refusal) {
        (Some(instance), _) if !instance.devices.is_empty() => {
            let ids = instance.devices.iter();
            Answer::Given {
                devices: ids.map(|a| format!("{}/{}", a.node, a.device)).collect(),
                node: instance.devices[0].node.clone(),
                reconfigure: instance.devices.iter().any(|a| a.reconfigure),
            }
        }
        (Some(instance), _) => Answer::Later(instance.pending),
        (None, Some(refusal)) if is_final(&refusal) => Answer::Never(refusal.reason),
        (None, Some(refusal)) => Answer::Later(refusal.reason),
        (None, None) => Answer::Later("the registry returned no reason".to_owned()),
    }
}

/// Whether no device would match even if idle: wrong kinds of devices, or too few.
fn is_final(refusal: &Refusal) -> bool {
    let mut devices = refusal.devices.iter();
    let fixed = |filter: &str| matches!(filter, "query" | "node" | "other");
    !refusal.devices.is_empty() && refusal.more == 0 && devices.all(|d| fixed(&d.filter))
}

/// A new name for an instance: the namespace's name and a random part.
///
/// # Errors
/// The kernel provides no random bytes.
pub fn instance_name(namespace: &str) -> Result<String, getrandom::Error> {
    let mut bytes = [0u8; 5];
    getrandom::fill(&mut bytes)?;
    Ok(named(namespace, &hex(&bytes)))
}

/// An instance's name: at most 63 characters, the limit of labels' values and of tenants' names.
pub fn named(namespace: &str, unique: &str) -> String {
    let namespace: String = namespace.chars().take(40).collect();
    let unique: String = unique.chars().take(20).collect();
    format!("{}.{unique}", namespace.trim_end_matches('-'))
}

/// Formats bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_api::registry::Rejection;

    fn policy(pairs: &[(&str, &str)]) -> Result<Policy, Error> {
        let pairs = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        Policy::of("red", &pairs.collect())
    }

    fn narrowed(allowed: &str, requested: &str) -> Result<String, Error> {
        let policy = policy(&[(NAMESPACE_DEVICES, allowed)])?;
        let query = policy.narrow("red", &requested.parse().unwrap())?;
        Ok(query.to_string())
    }

    #[test]
    fn a_namespace_narrows_what_its_pods_get() {
        let query = |text: &str| text.parse::<Query>().unwrap().to_string();
        assert_eq!(
            narrowed("vendor=Intel*", "accelerator=sobel").unwrap(),
            query("vendor=Intel*,accelerator=sobel")
        );
        assert_eq!(
            narrowed("vendor=Intel*", "vendor=Intel Corp").unwrap(),
            query("vendor=Intel Corp")
        );
        assert_eq!(
            narrowed("vendor=Intel*", "vendor=Intel*").unwrap(),
            query("vendor=Intel*")
        );
        assert!(matches!(
            narrowed("vendor=Intel*", "vendor=NVIDIA"),
            Err(Error::NotThese { .. })
        ));
        // A pattern that may match more than the policy permits.
        assert!(matches!(
            narrowed("vendor=Intel*", "vendor=*"),
            Err(Error::NotThese { .. })
        ));
        assert!(matches!(narrowed("none", ""), Err(Error::None(_))));
        assert_eq!(
            narrowed("label.rack=7", "vendor=a").unwrap(),
            query("vendor=a,label.rack=7")
        );
    }

    #[test]
    fn a_namespace_whose_policy_makes_no_sense_gets_nothing() {
        assert!(policy(&[(NAMESPACE_DEVICES, "color=red")]).is_err());
        assert!(policy(&[(NAMESPACE_INSTANCES, "many")]).is_err());
        assert_eq!(
            policy(&[(NAMESPACE_INSTANCES, "3")]).unwrap().instances_max,
            Some(3)
        );
        assert_eq!(
            policy(&[]).unwrap().narrow("red", &Query::any()).unwrap(),
            Query::any()
        );
    }

    #[test]
    fn what_no_device_is_is_refused_and_what_is_busy_is_waited_for() {
        let refused = |filters: &[&str]| {
            let rejection = |f: &&str| Rejection {
                filter: f.to_string(),
                ..Rejection::default()
            };
            answer(AllocateReply {
                instance: None,
                refusal: Some(Refusal {
                    devices: filters.iter().map(rejection).collect(),
                    ..Refusal::default()
                }),
            })
        };
        assert!(matches!(refused(&["query", "query"]), Answer::Never(_)));
        // More devices than exist.
        assert!(matches!(refused(&["other", "query"]), Answer::Never(_)));
        assert!(matches!(refused(&["query", "state"]), Answer::Later(_)));
        assert!(matches!(refused(&["accelerator"]), Answer::Later(_)));
        // No node has joined yet.
        assert!(matches!(refused(&[]), Answer::Later(_)));
    }

    #[test]
    fn an_instance_s_name_is_a_label_s_value() {
        let name = instance_name(&"n".repeat(63)).unwrap();
        assert!(name.len() <= 63 && baltra_api::valid_name(&name));
        assert_ne!(name, instance_name(&"n".repeat(63)).unwrap());
        assert_eq!(named("a-", "x"), "a.x");
    }
}
