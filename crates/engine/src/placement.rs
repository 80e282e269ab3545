//! Devices on which functions can run, from configured nodes or from a registry.

mod registry;

pub use registry::{conflict, Registry};

use baltra_api::query::{self, Field};
use baltra_functions::manifest::{DeviceQuery, Implementation};
use baltra_functions::Function;
use baltra_ring::Locked;
use baltra_session::client::Client;
use baltra_session::{default_runtime_dir, Endpoint};
use baltra_wire::opencl::{DEVICE_COMPILER_AVAILABLE, DEVICE_NAME, DEVICE_PROFILE, DEVICE_VENDOR};
use baltra_wire::{with_turns, DeviceDescription, Hello, PREEMPTIBLE, VERSION};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A connection attempt that takes longer than that is not waited for where there is an alternative,
/// and counts against the node for each call whose deadline passes meanwhile. Starting an executor
/// takes about a second on a GPU.
pub const SLOW_CONNECT: Duration = Duration::from_millis(1500);

/// A device and how to reach it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The node's name.
    pub node: String,
    /// The endpoint of its manager.
    pub endpoint: Endpoint,
    /// The token for the manager over TCP.
    pub token: String,
    /// The device.
    pub device: Arc<DeviceDescription>,
    /// Digests and names of the accelerators that are loaded on the device.
    pub loaded: Vec<String>,
    /// Whether the registry has already matched the device to the query.
    pub chosen: bool,
    /// The registry's instance to which the device is allocated, if it holds one accelerator at a
    /// time: its manager accepts an image only of that instance.
    pub instance: Option<String>,
}

impl Candidate {
    /// Whether it is the same device of the same node.
    pub fn is_same(&self, other: &Candidate) -> bool {
        self.endpoint == other.endpoint && self.device.name == other.device.name
    }

    /// The node and the device, for display.
    pub fn name(&self) -> String {
        format!("{}/{}", self.node, self.device.name)
    }

    /// Whether the device matches the query. The accelerator need not be loaded.
    pub fn suits(&self, query: &DeviceQuery) -> bool {
        if self.chosen {
            return true;
        }
        let has = |wanted: &Option<String>, text: String| match wanted {
            Some(wanted) => text.to_lowercase().contains(&wanted.to_lowercase()),
            None => true,
        };
        let named = match &query.name {
            Some(name) => {
                *name == self.device.name || has(&query.name, self.device.text(DEVICE_NAME))
            }
            None => true,
        };
        named
            && has(&query.vendor, self.device.text(DEVICE_VENDOR))
            && has(&query.platform, self.device.platform_name())
    }

    /// Whether the device has a compiler (boards have none); assumed if not reported.
    fn compiles(&self) -> bool {
        let support = self.device.device.iter();
        let mut support = support.filter(|info| info.param == DEVICE_COMPILER_AVAILABLE);
        support
            .next()
            .is_none_or(|info| info.value.iter().any(|byte| *byte != 0))
    }

    /// Whether the accelerator in the query is loaded.
    pub fn has_loaded(&self, query: &DeviceQuery) -> bool {
        let wanted = query.accelerator.as_ref();
        wanted.is_some_and(|wanted| self.loaded.contains(wanted))
    }
}

/// A device's properties, for queries. The number of regions and the labels are unknown here.
struct Described {
    id: String,
    name: String,
    node: String,
    vendor: String,
    platform: String,
    profile: String,
    model: String,
}

impl Described {
    fn new(place: &Candidate) -> Described {
        Described {
            id: place.name(),
            name: place.device.name.clone(),
            node: place.node.clone(),
            vendor: place.device.text(DEVICE_VENDOR),
            platform: place.device.platform_name(),
            profile: place.device.text(DEVICE_PROFILE),
            model: place.device.text(DEVICE_NAME),
        }
    }
}

impl query::Device for Described {
    fn field(&self, field: Field) -> Option<&str> {
        Some(match field {
            Field::Id => &self.id,
            Field::Name => &self.name,
            Field::Node => &self.node,
            Field::Vendor => &self.vendor,
            Field::Platform => &self.platform,
            Field::Profile => &self.profile,
            Field::Model => &self.model,
            Field::Pool | Field::Regions => "",
            Field::Accelerator => return None,
        })
    }

    fn label(&self, _: &str) -> &str {
        ""
    }
}

/// The conditions of an implementation.
pub fn query_of(function: &Function, implementation: usize) -> Option<&DeviceQuery> {
    function
        .manifest
        .implementations
        .get(implementation)?
        .device()
}

/// The accelerator in a node's store that an implementation runs.
fn stored_accelerator(function: &Function, implementation: usize) -> Option<&str> {
    match function.manifest.implementations.get(implementation)? {
        Implementation::Opencl(opencl) => opencl.accelerator.as_deref(),
        _ => None,
    }
}

/// Whether an implementation runs only on a device with a certain accelerator.
pub(crate) fn needs_accelerator(function: &Function, implementation: usize) -> bool {
    let query = query_of(function, implementation);
    query.is_some_and(|query| query.accelerator.is_some())
        || stored_accelerator(function, implementation).is_some()
}

/// Whether an implementation is source that the device must compile.
fn needs_compiler(function: &Function, implementation: usize) -> bool {
    let implementation = function.manifest.implementations.get(implementation);
    matches!(implementation, Some(Implementation::Opencl(opencl)) if opencl.source.is_some())
}

/// Devices, or the reason why there are none.
pub type CandidatesFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Candidate>, Unplaced>> + Send + 'a>>;

/// The end of a release.
pub type ReleaseFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Why there are no devices for a function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplaced {
    /// No source of devices responds, or its devices cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// No device of the pool fits: each with the filter that rejected it.
    #[error("{0}")]
    Refused(String),
}

impl From<String> for Unplaced {
    fn from(reason: String) -> Unplaced {
        Unplaced::Unreachable(reason)
    }
}

/// A request for devices for an implementation of a function.
#[derive(Clone, Debug)]
pub struct DeviceRequest {
    /// The function.
    pub function: Arc<Function>,
    /// The index of its implementation.
    pub implementation: usize,
    /// Number of devices. There may be fewer, and the caller can use more.
    pub count: usize,
    /// Conditions on the devices in addition to the implementation's.
    pub device: query::Query,
    /// Devices that failed recently, by [`Place::name`].
    pub except: Vec<String>,
}

/// A source of devices.
pub trait Placement: Send + Sync {
    /// Devices for a function, the best first. `Err` if no source responds (the previous devices
    /// remain valid), or if there is no device.
    fn places<'a>(&'a self, wanted: &'a DeviceRequest) -> CandidatesFuture<'a>;

    /// All devices that a tenant may use, for display.
    fn all<'a>(&'a self, tenant: &'a str) -> CandidatesFuture<'a>;

    /// Releases the devices of a function. Nothing, if nothing is allocated.
    fn release<'a>(&'a self, function: &'a Function) -> ReleaseFuture<'a> {
        let _ = function;
        Box::pin(std::future::ready(()))
    }

    /// Releases the devices of a removed function, in the background.
    fn forget(&self, function: &Function) {
        let _ = function;
    }
}

/// Time for which a reply is cached: many functions query at once.
const ANSWER_HOLDS: Duration = Duration::from_secs(1);

/// Devices of configured managers. Managers that do not respond are left out; the others do not wait
/// for them.
pub struct Local {
    endpoints: Vec<Endpoint>,
    token: String,
    /// By tenant, one for each endpoint.
    managers: Mutex<HashMap<String, Vec<Arc<Manager>>>>,
}

impl Local {
    /// The managers at these endpoints; empty: this user's manager.
    pub fn new(endpoints: Vec<Endpoint>, token: String) -> Local {
        let own = || vec![Endpoint::Unix(default_runtime_dir().join("baltra.sock"))];
        Local {
            endpoints: if endpoints.is_empty() {
                own()
            } else {
                endpoints
            },
            token,
            managers: Mutex::default(),
        }
    }

    fn managers(&self, tenant: &str) -> Vec<Arc<Manager>> {
        let mut all = self.managers.locked();
        let new = || self.endpoints.iter().map(|_| Arc::default()).collect();
        all.entry(tenant.to_owned()).or_insert_with(new).clone()
    }

    async fn query_devices(&self, tenant: &str) -> Result<Vec<Candidate>, String> {
        let managers = self.managers(tenant);
        let now = Instant::now();
        let queries: Vec<Query> = managers
            .iter()
            .zip(&self.endpoints)
            .map(|(manager, endpoint)| manager.query(now, endpoint, tenant, &self.token))
            .collect();
        let (prompt, late): (Vec<_>, Vec<_>) = queries.into_iter().partition(|q| q.is_prompt);
        let mut found = Found::default();
        for query in prompt {
            found.add(query.answer().await);
        }
        // Managers that did not respond last are waited for only if no other has devices.
        for query in late {
            if found.places.is_empty() {
                found.add(query.answer().await)
            } else {
                found.add(query.last())
            }
        }
        found.result()
    }
}

/// The results of several managers.
#[derive(Default)]
struct Found {
    places: Vec<Candidate>,
    errors: Vec<String>,
}

impl Found {
    fn add(&mut self, answer: Answer) {
        match answer {
            Ok(places) => self.places.extend(places),
            Err(error) => self.errors.push(error),
        }
    }

    fn result(self) -> Result<Vec<Candidate>, String> {
        match (self.places.is_empty(), self.errors.is_empty()) {
            (true, false) => Err(self.errors.join("; ")),
            _ => Ok(self.places),
        }
    }
}

type Answer = Result<Vec<Candidate>, String>;

/// One manager's answers to one tenant.
#[derive(Default)]
struct Manager(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    last: Option<(Instant, Answer)>,
    /// Start of the query in progress, and its answer.
    query: Option<(Instant, watch::Receiver<Option<Answer>>)>,
}

/// A query for a manager's devices, in progress or answered.
struct Query {
    last: Option<Answer>,
    receiver: Option<watch::Receiver<Option<Answer>>>,
    /// Whether an answer is expected at once.
    is_prompt: bool,
}

impl Manager {
    /// A recent answer, the query in progress, or a new one, which runs in a task of its own: it
    /// continues when its callers leave.
    fn query(
        self: &Arc<Self>,
        now: Instant,
        endpoint: &Endpoint,
        tenant: &str,
        token: &str,
    ) -> Query {
        let mut answers = self.0.locked();
        let last = answers.last.as_ref().map(|(_, answer)| answer.clone());
        let is_recent = |(at, answer): &(Instant, Answer)| {
            answer.is_ok() && now.saturating_duration_since(*at) < ANSWER_HOLDS
        };
        if answers.last.as_ref().is_some_and(is_recent) {
            return Query {
                last,
                receiver: None,
                is_prompt: true,
            };
        }
        let (begun, receiver) = match &answers.query {
            Some((begun, receiver)) => (*begun, receiver.clone()),
            None => {
                let (sender, receiver) = watch::channel(None);
                answers.query = Some((now, receiver.clone()));
                let (endpoint, manager) = (endpoint.clone(), self.clone());
                let (tenant, token) = (tenant.to_owned(), token.to_owned());
                tokio::spawn(async move {
                    let query = move || query_devices(&endpoint, &tenant, &token);
                    let answer = tokio::task::spawn_blocking(query).await;
                    let answer = answer.unwrap_or_else(|e| Err(e.to_string()));
                    let mut answers = manager.0.locked();
                    answers.last = Some((Instant::now(), answer.clone()));
                    answers.query = None;
                    drop(answers);
                    let _ = sender.send(Some(answer));
                });
                (now, receiver)
            }
        };
        let is_slow = now.saturating_duration_since(begun) >= SLOW_CONNECT;
        Query {
            is_prompt: !is_slow && !matches!(last, Some(Err(_))),
            last,
            receiver: Some(receiver),
        }
    }
}

impl Query {
    async fn answer(self) -> Answer {
        let Some(mut receiver) = self.receiver else {
            return self.last();
        };
        let answer = receiver.wait_for(Option::is_some).await;
        match answer.map(|answer| answer.clone()) {
            Ok(answer) => answer.expect("waited for"),
            Err(_) => Err("the query was aborted".into()),
        }
    }

    /// The previous answer.
    fn last(self) -> Answer {
        self.last.unwrap_or_else(|| Ok(Vec::new()))
    }
}

/// A hello for a session of functions, as the registry's instance or for the whole gateway. When
/// another image needs the device, the engine gives the session up and opens another one.
/// `turns`: the number of turns that its work needs at once.
pub fn hello(
    tenant: &str,
    token: &str,
    (device, turns): (&str, u32),
    instance: Option<&str>,
) -> Hello {
    let instance = match instance {
        Some(name) => name.to_owned(),
        None => format!("baltra gateway ({})", std::process::id()),
    };
    Hello {
        version: VERSION,
        tenant: tenant.to_owned(),
        token: token.to_owned(),
        instance: with_turns(&instance, turns) + PREEMPTIBLE,
        device: device.to_owned(),
        resume: None,
        mirror: false,
    }
}

/// The devices that a manager lets the tenant use. Blocks.
fn query_devices(endpoint: &Endpoint, tenant: &str, token: &str) -> Answer {
    let welcome =
        Client::list(endpoint, hello(tenant, token, ("", 1), None)).map_err(|e| e.to_string())?;
    let places = welcome.devices.into_iter().map(|device| Candidate {
        node: welcome.node.clone(),
        endpoint: endpoint.clone(),
        token: token.to_owned(),
        device: Arc::new(device),
        loaded: Vec::new(),
        chosen: false,
        instance: None,
    });
    Ok(places.collect())
}

impl Placement for Local {
    fn places<'a>(&'a self, wanted: &'a DeviceRequest) -> CandidatesFuture<'a> {
        Box::pin(async {
            let tenant = wanted.function.manifest.tenant.as_deref();
            let mut places = self.query_devices(tenant.unwrap_or_default()).await?;
            if let Some(query) = query_of(&wanted.function, wanted.implementation) {
                places.retain(|place| place.suits(query));
            }
            places.retain(|place| wanted.device.unmet(&Described::new(place)).is_none());
            if needs_compiler(&wanted.function, wanted.implementation) {
                places.retain(Candidate::compiles);
            }
            Ok(places)
        })
    }

    fn all<'a>(&'a self, tenant: &'a str) -> CandidatesFuture<'a> {
        Box::pin(async move { Ok(self.query_devices(tenant).await?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_wire::opencl::PLATFORM_NAME;
    use baltra_wire::Info;

    fn place(vendor: &str, platform: &str, name: &str) -> Candidate {
        let info = |param, text: &str| Info {
            param,
            value: [text.as_bytes(), &[0]].concat(),
        };
        Candidate {
            node: "n".into(),
            endpoint: "unix:/x".parse().unwrap(),
            token: String::new(),
            device: Arc::new(DeviceDescription {
                name: "d0".into(),
                platform: vec![info(PLATFORM_NAME, platform)],
                device: vec![info(DEVICE_VENDOR, vendor), info(DEVICE_NAME, name)],
                ..DeviceDescription::default()
            }),
            loaded: vec!["sobel".into()],
            chosen: false,
            instance: None,
        }
    }

    #[test]
    fn a_query_holds_for_parts_of_names() {
        let place = place("NVIDIA Corporation", "NVIDIA CUDA", "NVIDIA H200");
        let query = |vendor: &str, platform: &str, name: &str| {
            let set = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            DeviceQuery {
                vendor: set(vendor),
                platform: set(platform),
                name: set(name),
                accelerator: Some("sobel".into()),
            }
        };
        for (vendor, platform, name) in [("", "", ""), ("nvidia", "cuda", "h200"), ("", "", "d0")] {
            assert!(place.suits(&query(vendor, platform, name)));
        }
        for (vendor, platform, name) in [("intel", "", ""), ("", "pocl", ""), ("", "", "d1")] {
            assert!(!place.suits(&query(vendor, platform, name)));
        }
        assert!(place.has_loaded(&query("", "", "")));
    }
}
