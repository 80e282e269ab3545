//! Devices allocated by a registry: each implementation of a function is an instance with a lease,
//! which the engine renews.
//!
//! The registry's last reply stays in use while it is unreachable.

use super::{
    needs_compiler, query_devices, query_of, stored_accelerator, Candidate, CandidatesFuture,
    DeviceRequest, Placement, ReleaseFuture, Unplaced,
};
use crate::options::Options;
use baltra_api::client::{self, Instances, Operators};
use baltra_api::query::{Field, Query};
use baltra_api::registry::{
    AllocateRequest, Assignment, DevicesRequest, Instance, ReleaseRequest, RenewRequest,
};
use baltra_functions::manifest::DeviceQuery;
use baltra_functions::Function;
use baltra_ring::Locked;
use baltra_session::Endpoint;
use baltra_wire::DeviceDescription;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tonic::{Code, Status};

/// Lease of an instance, seconds: the registry releases the devices of a gateway that has exited.
const LEASE_S: u32 = 60;

/// A registry's pool.
pub struct Registry {
    instances: Instances,
    operators: Operators,
    gateway: String,
    options: Options,
    /// The node behind each socket of this host.
    sockets: Mutex<HashMap<Endpoint, String>>,
    /// By function and implementation.
    allocated: Mutex<HashMap<(Identity, usize), Allocated>>,
}

/// An instance with devices.
#[derive(Clone, Debug)]
struct Allocated {
    name: String,
    /// Number of its devices.
    count: usize,
    query: String,
}

impl Registry {
    /// The registry in the options, which need not be reachable yet.
    pub fn new(options: &Options) -> Result<Registry, String> {
        Registry::for_client(options, "gateway")
    }

    /// Like [`Registry::new`]; `client` begins the names of its instances.
    pub fn for_client(options: &Options, client: &str) -> Result<Registry, String> {
        let registry = client::Options {
            url: options.registry.clone(),
            token: options.registry_token.clone(),
            ca: options.registry_ca.clone(),
        };
        let wrong = |e: client::Error| format!("gateway.engine.registry: {e}");
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        Ok(Registry {
            instances: client::instances(&registry).map_err(wrong)?,
            operators: client::operators(&registry).map_err(wrong)?,
            gateway: format!("{client}-{}-{}", plain(&host), std::process::id()),
            options: options.clone(),
            sockets: Mutex::default(),
            allocated: Mutex::default(),
        })
    }

    /// Renews or allocates the instance, with the wanted number of devices or as many as there are;
    /// returns it with its devices.
    async fn instance(&self, wanted: &DeviceRequest) -> Result<Instance, Unplaced> {
        let key = (identity(&wanted.function), wanted.implementation);
        let request = self.request(wanted);
        let cached = {
            let allocated = self.allocated.locked();
            allocated.get(&key).cloned()
        };
        let mut instance = None;
        if let Some(allocated) = cached.filter(|a| a.query == request.query) {
            match self.renew(&request.instance, wanted.except.clone()).await {
                Ok(renewed) => instance = Some((renewed, allocated.count)),
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) => return Err(reason(&status).into()),
            }
        }
        // One more device at a time: a pool may have some of the wanted ones. The registry keeps the
        // others, and takes all excess ones at once.
        loop {
            let count = instance.as_ref().map_or(0, |(_, count)| *count);
            if count == wanted.count {
                break;
            }
            let next = wanted.count.min(count + 1);
            match self.allocate(&request, next).await {
                Ok(allocated) => instance = Some((allocated, next)),
                Err(unplaced) if count == 0 => return Err(unplaced),
                Err(_) => break,
            }
        }
        let Some((instance, count)) = instance else {
            return Err("no device is wanted".to_owned().into());
        };
        let allocated = Allocated {
            name: request.instance,
            count,
            query: request.query,
        };
        let mut all = self.allocated.locked();
        all.insert(key, allocated);
        Ok(instance)
    }

    /// The request for an instance's devices.
    fn request(&self, wanted: &DeviceRequest) -> AllocateRequest {
        let manifest = &wanted.function.manifest;
        let digest = wanted.function.digest.get(..8).unwrap_or_default();
        let conditions = conditions(&wanted.function, wanted.implementation);
        let stored = stored_accelerator(&wanted.function, wanted.implementation);
        let device = wanted.device.to_string();
        let terms = [conditions, device];
        let terms = terms.iter().filter(|terms| !terms.is_empty());
        // A function of the registry belongs to its namespace, and the registry's own conditions
        // also apply.
        let (tenant, function) = match manifest.name.split_once('.') {
            Some((_, namespace)) => (namespace.to_owned(), manifest.name.clone()),
            None => (manifest.tenant.clone().unwrap_or_default(), String::new()),
        };
        AllocateRequest {
            instance: format!(
                "{}-{}-{digest}-{}",
                self.gateway, manifest.name, wanted.implementation
            ),
            tenant,
            function,
            query: terms.cloned().collect::<Vec<_>>().join(","),
            lease_s: Some(LEASE_S),
            // A replica may be on any node.
            apart: true,
            preemptible: true,
            stored: stored.is_some(),
            ..AllocateRequest::default()
        }
    }

    async fn allocate(
        &self,
        request: &AllocateRequest,
        count: usize,
    ) -> Result<Instance, Unplaced> {
        let request = AllocateRequest {
            count: count as u32,
            ..request.clone()
        };
        let mut instances = self.instances.clone();
        let answer = instances.allocate(request).await.map_err(|s| reason(&s))?;
        let answer = answer.into_inner();
        match (answer.instance, answer.refusal) {
            (Some(instance), _) => Ok(instance),
            // Its summary lists the devices, each with the filter that rejected it.
            (None, Some(refusal)) => Err(Unplaced::Refused(refusal.reason)),
            (None, None) => Err("the registry's answer is empty".to_owned().into()),
        }
    }

    /// Renews the lease. Devices of nodes that send no heartbeats are replaced if it has
    /// others: a call cannot wait for such a node.
    async fn renew(&self, instance: &str, except: Vec<String>) -> Result<Instance, Status> {
        let mut instances = self.instances.clone();
        let mut request = RenewRequest {
            instance: instance.to_owned(),
            except,
            ..RenewRequest::default()
        };
        let renewed = instances.renew(request.clone()).await?.into_inner();
        let silent = renewed.devices.iter().filter(|device| device.silent);
        let before = request.except.len();
        request
            .except
            .extend(silent.map(|device| format!("{}/{}", device.node, device.device)));
        if request.except.len() == before {
            return Ok(renewed);
        }
        Ok(instances.renew(request).await?.into_inner())
    }

    /// Forgets a function's instances; returns their names.
    fn take(&self, function: &Function) -> Vec<String> {
        let mut allocated = self.allocated.locked();
        let gone = identity(function);
        let mine = allocated.extract_if(|(cached, _), _| *cached == gone);
        mine.map(|(_, allocated)| allocated.name).collect()
    }

    async fn place(&self, instance: &str, assignment: &Assignment) -> Option<Candidate> {
        let endpoint = self
            .endpoint(&assignment.node, &assignment.endpoints)
            .await?;
        Some(Candidate {
            node: assignment.node.clone(),
            endpoint,
            token: self.options.token_of(&assignment.node).to_owned(),
            device: Arc::new(DeviceDescription {
                name: assignment.device.clone(),
                ..DeviceDescription::default()
            }),
            loaded: Vec::new(),
            chosen: true,
            instance: assignment.exclusive.then(|| instance.to_owned()),
        })
    }

    /// The best of a node's endpoints that is reachable from this host: a socket's path may belong
    /// to another process on each host.
    async fn endpoint(&self, node: &str, endpoints: &[String]) -> Option<Endpoint> {
        for text in endpoints {
            let Ok(endpoint) = text.parse::<Endpoint>() else {
                continue;
            };
            if let Endpoint::Unix(path) = &endpoint {
                if !path.exists() || !self.is_at(node, &endpoint).await {
                    continue;
                }
            }
            return Some(endpoint);
        }
        None
    }

    async fn is_at(&self, node: &str, endpoint: &Endpoint) -> bool {
        let cached = {
            let sockets = self.sockets.locked();
            sockets.get(endpoint).cloned()
        };
        if let Some(cached) = cached {
            return cached == node;
        }
        let request = endpoint.clone();
        let answer = tokio::task::spawn_blocking(move || query_devices(&request, "", "")).await;
        match answer {
            Ok(Ok(places)) => {
                let found = places.first().map(|place| place.node.clone());
                let found = found.unwrap_or_default();
                let here = found == node;
                let mut sockets = self.sockets.locked();
                sockets.insert(endpoint.clone(), found);
                here
            }
            _ => false,
        }
    }
}

impl Placement for Registry {
    fn places<'a>(&'a self, wanted: &'a DeviceRequest) -> CandidatesFuture<'a> {
        Box::pin(async move {
            let instance = self.instance(wanted).await?;
            let mut places = Vec::new();
            // Devices without the accelerator come last.
            let mut devices: Vec<&Assignment> = instance.devices.iter().collect();
            devices.sort_by_key(|device| (device.silent, device.reconfigure));
            for device in devices {
                places.extend(self.place(&instance.name, device).await);
            }
            match (places.is_empty(), instance.pending.is_empty()) {
                (true, false) => Err(instance.pending.into()),
                (true, true) => {
                    let reason = "no endpoint of the device is reachable from this host";
                    Err(reason.to_owned().into())
                }
                _ => Ok(places),
            }
        })
    }

    fn all<'a>(&'a self, _: &'a str) -> CandidatesFuture<'a> {
        Box::pin(async move {
            let mut operators = self.operators.clone();
            let request = DevicesRequest {
                query: String::new(),
                silent: false,
            };
            let answer = operators.devices(request).await.map_err(|s| reason(&s))?;
            let mut places = Vec::new();
            for device in answer.into_inner().devices {
                let description = device.description.unwrap_or_default();
                let loaded = device.regions.iter();
                let loaded = loaded.flat_map(|r| [r.digest.clone(), r.name.clone()]);
                let endpoints = device.endpoints.iter().filter_map(|text| text.parse().ok());
                let Some(endpoint) = endpoints.into_iter().next() else {
                    continue;
                };
                places.push(Candidate {
                    token: self.options.token_of(&device.node).to_owned(),
                    node: device.node,
                    endpoint,
                    device: Arc::new(DeviceDescription {
                        name: description.name,
                        ..DeviceDescription::default()
                    }),
                    loaded: loaded.filter(|text| !text.is_empty()).collect(),
                    chosen: true,
                    instance: None,
                });
            }
            Ok(places)
        })
    }

    fn release<'a>(&'a self, function: &'a Function) -> ReleaseFuture<'a> {
        Box::pin(async move {
            // Without an answer of the registry, the lease expires.
            let mut instances = self.instances.clone();
            for instance in self.take(function) {
                let _ = instances.release(ReleaseRequest { instance }).await;
            }
        })
    }

    fn forget(&self, function: &Function) {
        let names = self.take(function);
        let mut instances = self.instances.clone();
        // Without a runtime or a registry, the lease expires.
        if let Ok(handle) = tokio::runtime::Handle::try_current() {
            handle.spawn(async move {
                for instance in names {
                    let _ = instances.release(ReleaseRequest { instance }).await;
                }
            });
        }
    }
}

/// A function's name and digest: namespaces may have the same function.
type Identity = (String, String);

fn identity(function: &Function) -> Identity {
    (function.manifest.name.clone(), function.digest.clone())
}

fn reason(status: &Status) -> String {
    match status.code() {
        Code::Unavailable => format!("cannot reach the registry: {}", status.message()),
        _ => status.message().to_owned(),
    }
}

/// Replaces characters other than letters, digits and dashes with dashes; at most 32 characters.
fn plain(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    text.chars()
        .map(|c| if allowed(c) { c } else { '-' })
        .take(32)
        .collect()
}

/// A field on which the manifest has a condition, of those that `device` has one on.
pub fn conflict(function: &Function, device: &Query) -> Option<Field> {
    let both = |implementation| {
        let query: Query = conditions(function, implementation)
            .parse()
            .unwrap_or_default();
        let mut fields = Field::ALL.into_iter();
        fields.find(|f| query.term(*f).is_some() && device.term(*f).is_some())
    };
    (0..function.manifest.implementations.len()).find_map(both)
}

/// The conditions of an implementation as the registry's query.
fn conditions(function: &Function, implementation: usize) -> String {
    let mut query = query_of(function, implementation).cloned();
    if let Some(stored) = stored_accelerator(function, implementation) {
        let named = query.get_or_insert_default();
        named.accelerator = Some(stored.to_owned());
    }
    text_of(query.as_ref(), needs_compiler(function, implementation))
}

/// Converts a manifest's conditions to the registry's query: parts of names become patterns. Source
/// code requires a device of the full profile, because the embedded profile of boards has no
/// compiler.
fn text_of(query: Option<&DeviceQuery>, compiles: bool) -> String {
    let any = DeviceQuery::default();
    let query = query.unwrap_or(&any);
    let profile = compiles.then(|| "FULL_PROFILE".to_owned());
    let part = |field: &str, value: &Option<String>, pattern: bool| {
        let value = value.as_ref()?;
        let value: String = value
            .chars()
            .flat_map(|c| match c {
                '*' | '?' | '"' | '\\' => vec!['\\', c],
                c => vec![c],
            })
            .collect();
        Some(if pattern {
            format!("{field}=\"*{value}*\"")
        } else {
            format!("{field}=\"{value}\"")
        })
    };
    let parts = [
        part("vendor", &query.vendor, true),
        part("platform", &query.platform, true),
        part("name", &query.name, true),
        part("accelerator", &query.accelerator, false),
        part("profile", &profile, false),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_become_a_query_that_the_registry_reads() {
        let query = DeviceQuery {
            vendor: Some("Intel, \"Inc\"".into()),
            platform: None,
            name: Some("Xeon*".into()),
            accelerator: Some("sobel".into()),
        };
        let text = text_of(Some(&query), true);
        let parsed: Query = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        let again: Query = parsed.to_string().parse().unwrap();
        assert_eq!(parsed, again);
        assert_eq!(text_of(None, false), "");
        assert_eq!(text_of(None, true), "profile=\"FULL_PROFILE\"");
    }

    #[test]
    fn host_names_become_plain() {
        assert_eq!(plain("node_1.example"), "node-1-example");
    }
}
