//! The console's model, as its sources provide it: counters, not rates.
//!
//! The pool's and the functions' owners implement [`Source`]. Counters only ever grow; the
//! console makes rates, utilization and percentiles of them ([`super::history`]), so a source
//! keeps no windows. A counter that went back is taken for a restart.

use serde::Serialize;
use std::collections::HashMap;

/// Where the console's state comes from.
pub trait Source: Send + Sync + 'static {
    /// The current state. Called once a second on a thread of the runtime: it must not block, so a
    /// source that polls others returns their last replies.
    fn state(&self) -> State;
}

/// Everything at one moment.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// The registry that the gateway routes by; none: it serves without one.
    pub registry: Option<Registry>,
    /// Hosts with a Device Manager.
    pub nodes: Vec<Node>,
    /// Their devices.
    pub devices: Vec<Device>,
    /// Owners of sessions and functions.
    pub tenants: Vec<Tenant>,
    /// What can be called.
    pub functions: Vec<Function>,
}

impl State {
    /// Adds functions to the devices where programs run side by side: only the loading gateway has
    /// this information.
    pub fn show_loaded(&mut self) {
        let mut by_device: HashMap<(&str, &str), Vec<&str>> = HashMap::new();
        for function in &self.functions {
            for place in function.placements.iter().filter(|p| p.loaded) {
                let functions = by_device.entry((&place.node, &place.device)).or_default();
                functions.push(&function.name);
            }
        }
        for device in self.devices.iter_mut().filter(|d| !d.exclusive) {
            let functions = by_device.get(&(device.node.as_str(), device.name.as_str()));
            let Some(region) = device.regions.first_mut() else {
                continue;
            };
            for name in functions.into_iter().flatten() {
                if !region.loaded.iter().any(|a| a.name == *name) {
                    region.loaded.push(Accelerator {
                        name: (*name).to_owned(),
                        digest: String::new(),
                    });
                }
            }
        }
    }
}

/// The registry as the gateway sees it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Registry {
    /// Where it is.
    pub address: String,
    /// Whether it responded to the last request.
    pub reachable: bool,
    /// Why it did not.
    pub reason: String,
    /// For how long that has been so, seconds.
    pub since_s: u64,
}

/// How a node or a device is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Not yet serving.
    Starting,
    /// Serving.
    #[default]
    Ready,
    /// Serves its instances and accepts no new ones.
    Cordoned,
    /// Its instances are being moved away.
    Draining,
    /// Its driver does not answer.
    Failed,
    /// Its node has sent no heartbeat for longer than its lease.
    Lost,
}

/// A host with a Device Manager.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Node {
    /// Its name in the pool.
    pub name: String,
    /// Where its manager is.
    pub address: String,
    /// The manager's version.
    pub version: String,
    /// Its health.
    pub state: Health,
    /// Why it is not ready.
    pub reason: String,
    /// Since its last heartbeat, milliseconds.
    pub heard_ms: u64, // text-ok
    /// Since its manager started, seconds, where that is known.
    pub uptime_s: Option<u64>,
    /// Open sessions.
    pub sessions: u32,
    /// Executor processes, where they are known.
    pub executors: Option<u32>,
}

/// A device of a node.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Device {
    /// Its node's name.
    pub node: String,
    /// Its name on that node.
    pub name: String,
    /// The driver's name for it.
    pub model: String,
    /// The vendor.
    pub vendor: String,
    /// The driver's platform.
    pub platform: String,
    /// Its health.
    pub state: Health,
    /// Why it is not ready.
    pub reason: String,
    /// How many executors may use it at once: what a full utilization is.
    pub slots: u32,
    /// A region of it holds one accelerator; otherwise programs live side by side.
    pub exclusive: bool,
    /// Its regions; an OpenCL device has one.
    pub regions: Vec<Region>,
    /// Utilization, 0 to 1, if the source provides it; NaN if the source has no value. If `None`,
    /// it is computed from the next two fields.
    #[serde(skip)]
    pub utilization: Option<f64>,
    /// Device time used so far, all tenants, nanoseconds.
    #[serde(skip)]
    pub busy_ns: u64,
    /// The clock that `busy_ns` was read at, nanoseconds since any moment.
    #[serde(skip)]
    pub at_ns: u64,
    /// Tasks so far.
    pub tasks: u64,
    /// Its memory, bytes.
    pub memory_bytes: u64,
    /// What sessions hold of it, bytes.
    pub memory_used_bytes: u64,
    /// Commands or tasks that wait for it.
    pub queued: u64,
    /// Open sessions.
    pub sessions: u32,
    /// Executor processes, where they are known.
    pub executors: Option<u32>,
    /// Executors that died unasked, so far, where they are known.
    pub deaths: Option<u64>,
    /// Times that an image was changed, so far, where they are known.
    pub reconfigurations: Option<u64>,
}

/// A slot of a device that holds one accelerator at a time.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Region {
    /// Loaded accelerators; several if programs coexist; empty: blank.
    pub loaded: Vec<Accelerator>,
    /// An image is being loaded.
    pub loading: bool,
}

/// An accelerator where it is loaded.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Accelerator {
    /// Its name.
    pub name: String,
    /// sha256 of its image, hexadecimal.
    pub digest: String,
}

/// Owners of sessions and functions.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its share against others', where that is known.
    pub weight: Option<u32>,
    /// Device time used so far, all devices, nanoseconds.
    #[serde(skip)]
    pub busy_ns: u64,
    /// Calls or tasks so far.
    pub calls: u64,
    /// Open sessions.
    pub sessions: u32,
    /// Its waiting calls.
    pub queued: u64,
}

/// Something that can be called.
#[derive(Debug, Clone, Default)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// The owning tenant.
    pub tenant: String,
    /// Its implementations, the preferred first: `opencl`, `native`, `board`.
    pub implementations: Vec<String>,
    /// The inputs and outputs of a call.
    pub contract: Contract,
    /// Copies that serve it.
    pub replicas: u32,
    /// Its replicas' devices.
    pub placements: Vec<Placement>,
    /// Calls ended so far, failed ones too.
    pub calls: u64,
    /// Calls that ended with a status of 500 or more, so far.
    pub errors: u64,
    /// Calls that run.
    pub running: u64,
    /// Calls that wait.
    pub queued: u64,
    /// Of every ended call, from its last header to its answer's first byte.
    pub latency: Histogram,
    /// Cold starts so far.
    pub cold_starts: u64,
    /// The last of them, the newest last; a source keeps at most sixteen.
    pub cold_recent: Vec<ColdStart>,
    /// Why it cannot be called, if so.
    pub reason: String,
}

/// Where a function is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// The node.
    pub node: String,
    /// Its device; empty: native code.
    pub device: String,
    /// Whether a call needs no cold start there.
    pub loaded: bool,
}

/// How a function is called, for a form.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Contract {
    /// Methods, the preferred first.
    pub methods: Vec<String>,
    /// Inputs of a call.
    pub inputs: Vec<Field>,
    /// Outputs of a call.
    pub outputs: Vec<Field>,
    /// The longest body, bytes.
    pub body_bytes_max: u64,
}

/// An input or an output.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// `body`, `query`, `header`, `path`, `method` or `constant`; empty for outputs.
    pub from: String,
    /// The header's name.
    pub header: String,
    /// Its element type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its shape, as the manifest writes it; empty: one number.
    pub shape: String,
    /// `raw`, `json`, `npy`, `png`, `jpeg`, the preferred first.
    pub codecs: Vec<String>,
    /// The value where the request has none.
    pub default: Option<f64>,
}

/// A cold start and where its time went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ColdStart {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The node.
    pub node: String,
    /// The device.
    pub device: String,
    /// Its steps in order and how long each took, nanoseconds: they add up to the whole.
    pub parts: Vec<(String, u64)>,
}

/// Counts by duration. `bounds_ns[i]` is the longest that `counts[i]` counts; what is longer than
/// every bound is in one more, last count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Rising upper bounds, nanoseconds.
    pub bounds_ns: Vec<u64>,
    /// One more than bounds.
    pub counts: Vec<u64>,
}
