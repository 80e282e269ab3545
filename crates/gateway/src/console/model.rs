//! The console's model, as its sources provide it: counters, not rates.
//!
//! The pool's and the functions' owners implement [`Source`]. Counters only grow; the console
//! computes rates, utilization and percentiles from them ([`super::history`]), so a source keeps no
//! windows. A counter that decreases indicates a restart.

use serde::Serialize;
use std::collections::HashMap;

/// The source of the console's state.
pub trait Source: Send + Sync + 'static {
    /// The current state. Called once a second on a thread of the runtime: it must not block, so a
    /// source that polls others returns their last replies.
    fn state(&self) -> State;

    /// The registry that carries out operators' actions, without a token.
    fn registry(&self) -> Option<baltra_api::client::Options> {
        None
    }
}

/// The state of everything at one time.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// The registry that the gateway uses for routing; `None`: no registry is configured.
    pub registry: Option<Registry>,
    /// Hosts with a Device Manager.
    pub nodes: Vec<Node>,
    /// Their devices.
    pub devices: Vec<Device>,
    /// Owners of sessions and functions.
    pub tenants: Vec<Tenant>,
    /// Functions that can be called.
    pub functions: Vec<Function>,
    /// Open sessions of the devices.
    pub sessions: Vec<Session>,
    /// The results of operators' orders to move sessions, as nodes report them.
    pub moved: Vec<Moved>,
    /// Alerts of the Prometheus server; `None`: no server is configured.
    pub alerts: Option<Alerts>,
}

impl State {
    /// Adds functions to devices that hold several programs: only the gateway that loads programs
    /// has this information.
    pub fn show_loaded(&mut self) {
        let mut by_device: HashMap<(&str, &str), Vec<&str>> = HashMap::new();
        for function in &self.functions {
            for place in function.placements.iter().filter(|p| p.loaded) {
                let functions = by_device.entry((&place.node, &place.device)).or_default();
                functions.push(&function.name);
            }
        }
        // A board reports its regions itself.
        let shared = |d: &&mut Device| !d.exclusive && d.regions.len() == 1;
        for device in self.devices.iter_mut().filter(shared) {
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
    /// Its address.
    pub address: String,
    /// Whether it responded to the last request.
    pub reachable: bool,
    /// Reason of the failure.
    pub reason: String,
    /// Duration of the current condition, seconds.
    pub since_s: u64,
}

/// Health of a node or a device.
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
    /// Its driver does not respond.
    Failed,
    /// Its node has sent no heartbeat for longer than its lease.
    Lost,
}

/// A host with a Device Manager.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Node {
    /// Its name in the pool.
    pub name: String,
    /// Address of its manager.
    pub address: String,
    /// The manager's version.
    pub version: String,
    /// Its health.
    pub state: Health,
    /// Why it is not ready.
    pub reason: String,
    /// Time since its last heartbeat, milliseconds.
    pub heard_ms: u64, // text-ok
    /// Time since its manager started, seconds; `None` if unknown.
    pub uptime_s: Option<u64>,
    /// Open sessions.
    pub sessions: u32,
    /// Number of executor processes; `None` if unknown.
    pub executors: Option<u32>,
}

/// A device of a node.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Device {
    /// Its node's name.
    pub node: String,
    /// Its name on that node.
    pub name: String,
    /// The driver's name for the device.
    pub model: String,
    /// The vendor.
    pub vendor: String,
    /// The driver's platform.
    pub platform: String,
    /// Its health.
    pub state: Health,
    /// Why it is not ready.
    pub reason: String,
    /// Number of executors that may use it at once, which corresponds to full utilization.
    pub slots: u32,
    /// Whether a region holds one accelerator; otherwise programs coexist.
    pub exclusive: bool,
    /// Number of its regions; 0: unknown.
    pub region_count: u32,
    /// The contents of its regions; if programs coexist, one list for the device.
    pub regions: Vec<Region>,
    /// Utilization, 0 to 1, if the source provides it; NaN if the source has no value. If `None`,
    /// it is computed from the next two fields.
    #[serde(skip)]
    pub utilization: Option<f64>,
    /// Device time used so far by all tenants, nanoseconds.
    #[serde(skip)]
    pub busy_ns: u64,
    /// The time at which `busy_ns` was read, in nanoseconds since an arbitrary start.
    #[serde(skip)]
    pub at_ns: u64,
    /// Tasks so far.
    pub tasks: u64,
    /// Its memory, bytes.
    pub memory_bytes: u64,
    /// Memory allocated by sessions, bytes.
    pub memory_used_bytes: u64,
    /// Commands or tasks that wait for it.
    pub queued: u64,
    /// Open sessions.
    pub sessions: u32,
    /// Number of executor processes; `None` if unknown.
    pub executors: Option<u32>,
    /// Number of executors that ended unexpectedly; `None` if unknown.
    pub deaths: Option<u64>,
    /// Number of image changes; `None` if unknown.
    pub reconfigurations: Option<u64>,
    /// Its running tasks, those without progress for the longest time first.
    pub running: Vec<RunningTask>,
    /// The images that wait for their turn, the next one first.
    pub waiting_images: Vec<WaitingImage>,
}

/// An image that waits for its turn on a device.
#[derive(Debug, Clone, Default, Serialize)]
pub struct WaitingImage {
    /// Its accelerator's name.
    pub name: String,
    /// sha256, hexadecimal.
    pub digest: String,
    /// Number of sessions that wait for it.
    pub sessions: u32,
    /// Time since its first request, milliseconds.
    pub waiting_ms: u64,
}

/// A task that an executor runs on a device.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RunningTask {
    /// Its id, for the action that ends it.
    pub id: String,
    /// Its tenant.
    pub tenant: String,
    /// The programs that may have started it.
    pub programs: Vec<String>,
    /// The executor's process.
    pub executor_pid: u32,
    /// All sessions of the executor, which end with it.
    pub sessions: u32,
    /// Time since its start, milliseconds.
    pub running_ms: u64,
    /// Time since one of its commands last completed, milliseconds.
    pub stalled_ms: u64,
    /// The time without a completed command after which the executor is ended; `None`: unlimited.
    pub limit_ms: Option<u64>,
    /// Whether the limit applies only while another tenant waits.
    pub limit_contended: bool,
}

/// An open session on a device.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Session {
    /// Its node's name.
    pub node: String,
    /// Its device's name on that node.
    pub device: String,
    /// Its number on the node. Text, because a script's numbers have 53 bits.
    pub id: String,
    /// Its tenant.
    pub tenant: String,
    /// The program, as it describes itself.
    pub program: String,
    /// The program's process; 0: it is on another host.
    pub pid: u32,
    /// Time since its start, seconds.
    pub age_s: u64,
    /// Bytes of its objects on the device; `None` if its executor has not reported them.
    pub resident_bytes: Option<u64>,
    /// Bytes of its objects in host memory only.
    pub swapped_bytes: Option<u64>,
    /// Number of its command queues.
    pub queues: Option<u32>,
    /// Whether it can move to another device; `None` if unknown.
    pub can_move: Option<bool>,
    /// Why it cannot.
    pub obstacle: String,
}

/// The result of an order to move a session.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Moved {
    /// The order's id.
    pub order: String,
    /// The node.
    pub node: String,
    /// The session.
    pub session: String,
    /// The device that it was on.
    pub from: String,
    /// The device that it was to move to.
    pub to: String,
    /// Why it has not moved; empty: it has.
    pub error: String,
    /// Time during which none of its commands ran, microseconds.
    pub stopped_us: u64,
}

/// The alerts of a Prometheus server.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Alerts {
    /// The server's address.
    pub address: String,
    /// Why the server's last response is missing; empty: there is one.
    pub reason: String,
    /// The alerts that fire, from the last response.
    pub firing: Vec<Alert>,
}

/// An alert that fires.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// Its name.
    pub name: String,
    /// Its label `severity`.
    pub severity: String,
    /// Its annotation `summary`, or else its description.
    pub summary: String,
    /// Its start as the server writes it, RFC 3339.
    pub since: String,
}

/// A slot of a device that holds one accelerator at a time.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Region {
    /// Loaded accelerators; several if programs coexist; empty: blank.
    pub loaded: Vec<Accelerator>,
    /// Whether an image is being loaded.
    pub loading: bool,
}

/// A loaded accelerator.
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
    /// Its scheduling weight relative to other tenants; `None` if unknown.
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

/// A function that can be called.
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
    /// Number of replicas.
    pub replicas: u32,
    /// Its replicas' devices.
    pub placements: Vec<Placement>,
    /// Number of calls ended, including failed ones.
    pub calls: u64,
    /// Number of calls that ended with a status of 500 or more.
    pub errors: u64,
    /// Calls in progress.
    pub running: u64,
    /// Calls that wait.
    pub queued: u64,
    /// Latency of ended calls, from the last header of the request to the first byte of the
    /// response.
    pub latency: Histogram,
    /// Cold starts so far.
    pub cold_starts: u64,
    /// The most recent cold starts, oldest first; a source keeps at most sixteen.
    pub cold_recent: Vec<ColdStart>,
    /// Why it cannot be called; empty if it can.
    pub reason: String,
}

/// A place of a function's replica.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// The node.
    pub node: String,
    /// Its device; empty: native code.
    pub device: String,
    /// Whether a call needs no cold start at this place.
    pub loaded: bool,
}

/// The interface of a function, for a form.
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
    /// Its shape, as the manifest writes it; empty: a scalar.
    pub shape: String,
    /// `raw`, `json`, `npy`, `png`, `jpeg`, the preferred first.
    pub codecs: Vec<String>,
    /// The default value.
    pub default: Option<f64>,
}

/// A cold start, with the durations of its steps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ColdStart {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The node.
    pub node: String,
    /// The device.
    pub device: String,
    /// Its steps in order, each with its duration in nanoseconds; the sum is the total.
    pub parts: Vec<(String, u64)>,
}

/// Counts by duration. `counts[i]` counts durations of at most `bounds_ns[i]`; one more, last count
/// has the longer ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Ascending upper bounds, nanoseconds.
    pub bounds_ns: Vec<u64>,
    /// One entry more than the bounds.
    pub counts: Vec<u64>,
}
