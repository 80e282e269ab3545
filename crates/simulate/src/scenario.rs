//! The scenario: a cluster, its functions and their load, as YAML.

use crate::load::{parse_trace, Arrivals, Load};
use crate::random::Times;
use baltra_api::query::Query;
use baltra_eviction::Options;
use baltra_gate::PolicyKind;
use baltra_registry::allocate::Policy;
use baltra_registry::model::Locality;
use baltra_registry::signals::Targets;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Why a file is not a valid scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: String,
        /// The reason.
        source: std::io::Error,
    },
    /// It is not YAML of the expected form.
    #[error("{0}")]
    Syntax(String),
    /// An invalid value.
    #[error("{at}: {reason}")]
    Wrong {
        /// The place of the value.
        at: String,
        /// The reason.
        reason: String,
    },
}

fn wrong(at: impl Into<String>, reason: impl Into<String>) -> ScenarioError {
    ScenarioError::Wrong {
        at: at.into(),
        reason: reason.into(),
    }
}

/// A cluster, its functions and their load.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// A description.
    #[serde(default)]
    pub name: String,
    /// Time during which requests arrive, simulated seconds.
    pub duration_s: f64,
    /// Initial time that is not measured, seconds.
    #[serde(default)]
    pub warmup_s: f64,
    /// Seed of the random numbers; by default one is drawn and printed.
    #[serde(default)]
    pub seed: Option<u64>,
    /// The rules of allocation.
    #[serde(default)]
    pub allocation: Policy,
    /// Interval of the devices' reports of utilization to the registry, seconds.
    #[serde(default = "heartbeat")]
    pub heartbeat_s: f64,
    /// Interval of autoscaling, seconds.
    #[serde(default = "scale_every")]
    pub scale_s: f64,
    /// Downtime of an instance that moves to another device, milliseconds.
    #[serde(default = "migration")]
    pub migration_ms: f64,
    /// Turns of images on devices that hold one image at a time; `None`: functions without a device
    /// are refused.
    #[serde(default)]
    pub turns: Option<Turns>,
    /// Default gate of the devices.
    #[serde(default)]
    pub gate: Gate,
    /// The nodes and their devices.
    pub nodes: Vec<Node>,
    /// The functions, in the order of their deployment.
    pub functions: Vec<Function>,
    /// Runs with other rates: by name, requests per second of each function. Functions that a case
    /// omits are not deployed in it. Empty: one run with the functions' own rates.
    #[serde(default)]
    pub cases: BTreeMap<String, BTreeMap<String, f64>>,
    /// A file of arrivals, with lines `seconds,function`, for functions whose arrivals are `trace`;
    /// relative to the scenario's own file.
    #[serde(default)]
    pub trace: Option<String>,
    /// The trace's arrivals by function, nanoseconds.
    #[serde(skip)]
    pub arrivals: BTreeMap<String, Vec<u64>>,
}

fn heartbeat() -> f64 {
    5.0
}

fn scale_every() -> f64 {
    15.0
}

fn migration() -> f64 {
    1000.0
}

/// Turns of images: the Device Manager's options.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Turns {
    /// Length of every turn, milliseconds; 0: automatic.
    pub turn_ms: f64,
    /// Least time for which an image keeps its device, milliseconds.
    pub turn_min_ms: f64,
    /// Longest wait for a turn, milliseconds; 0: no limit.
    pub turn_wait_ms: f64,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            turn_ms: 0.0,
            turn_min_ms: 0.0,
            turn_wait_ms: 20_000.0,
        }
    }
}

impl Turns {
    /// The policy's options.
    pub fn options(&self) -> Options {
        let set = |ms: f64| (ms > 0.0).then(|| Duration::from_secs_f64(ms / 1e3));
        Options {
            turn: set(self.turn_ms),
            turn_min: set(self.turn_min_ms).unwrap_or_default(),
            wait: set(self.turn_wait_ms),
        }
    }

    fn check(&self) -> Result<(), ScenarioError> {
        let times = [self.turn_ms, self.turn_min_ms, self.turn_wait_ms];
        if times.iter().any(|t| !(0.0..=1e7).contains(t)) {
            let reason = "turn_ms, turn_min_ms and turn_wait_ms must lie between 0 and 1e7";
            return Err(wrong("turns", reason));
        }
        Ok(())
    }
}

/// The way in which a device is shared: `baltra_gate`'s options.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gate {
    /// The order of grants.
    pub policy: PolicyKind,
    /// Quantum: time for which a holder may continue while another waits, milliseconds.
    pub quantum_ms: f64,
    /// Time for which an idle holder keeps the device while another waits, microseconds.
    pub linger_us: f64,
    /// Concurrent holders; 0: the number of regions.
    pub slots: usize,
    /// Cost of switching to another holder, microseconds.
    pub switch_us: f64,
    /// The holders of devices.
    pub isolation: Isolation,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            policy: PolicyKind::default(),
            quantum_ms: 10.0,
            linger_us: 100.0,
            slots: 0,
            switch_us: 0.0,
            isolation: Isolation::default(),
        }
    }
}

/// The holder of a device: the executor of a tenant, or of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// A tenant's instances share one lease: they run one task at a time.
    #[default]
    Tenant,
    /// Each instance is a holder.
    Session,
}

/// A group of equal nodes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The node's name; numbered from 0 if there are several.
    pub name: String,
    /// Number of nodes.
    #[serde(default = "one")]
    pub count: usize,
    /// Devices of each node.
    pub devices: Vec<Device>,
}

fn one() -> usize {
    1
}

/// A group of equal devices.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Device {
    /// Number of devices.
    pub count: usize,
    /// The device's name, for queries.
    pub name: String,
    /// The vendor, for queries.
    pub vendor: String,
    /// The platform, for queries.
    pub platform: String,
    /// The profile, for queries.
    pub profile: String,
    /// The model, for queries.
    pub model: String,
    /// The device's pool.
    pub pool: String,
    /// Labels, for queries with `label.KEY`.
    pub labels: BTreeMap<String, String>,
    /// Whether a region holds one image at a time.
    pub exclusive: bool,
    /// Number of regions.
    pub regions: usize,
    /// Initial accelerators of the regions, in order; the other regions are blank.
    pub accelerators: Vec<String>,
    /// Time to load an accelerator, milliseconds.
    pub reconfigure_ms: f64,
    /// Speed factor, by which a task's service time is divided.
    pub speed: f64,
    /// Options of its gate; default: the scenario's gate.
    pub gate: Option<Gate>,
}

impl Default for Device {
    fn default() -> Device {
        Device {
            count: 1,
            name: String::new(),
            vendor: String::new(),
            platform: String::new(),
            profile: String::new(),
            model: String::new(),
            pool: String::new(),
            labels: BTreeMap::new(),
            exclusive: true,
            regions: 1,
            accelerators: Vec::new(),
            reconfigure_ms: 1000.0,
            speed: 1.0,
            gate: None,
        }
    }
}

/// A group of equal functions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// The function's name; numbered from 0 if there are several.
    pub name: String,
    /// Number of functions.
    #[serde(default = "one")]
    pub count: usize,
    /// Conditions on the devices. `{n}` in an accelerator's name is replaced with the function's
    /// number.
    #[serde(default)]
    pub query: String,
    /// Devices for each instance.
    #[serde(default = "one_device")]
    pub devices: u32,
    /// Whether the devices are presented as one.
    #[serde(default)]
    pub pooled: bool,
    /// Restriction of the devices' nodes.
    #[serde(default)]
    pub locality: Locality,
    /// The node of its instances; empty: their first device's node.
    #[serde(default)]
    pub node: String,
    /// Number of instances.
    #[serde(default = "one")]
    pub replicas: usize,
    /// Its tenant; empty: its own tenant.
    #[serde(default)]
    pub tenant: String,
    /// The tenant's weight under `fair`.
    #[serde(default = "one_device")]
    pub weight: u32,
    /// The tenant's priority under `priority`.
    #[serde(default)]
    pub priority: i32,
    /// Time of its deployment, seconds.
    #[serde(default)]
    pub start_s: f64,
    /// Interval between the deployments of two instances, seconds.
    #[serde(default)]
    pub every_s: f64,
    /// A task's time on a device of speed 1, milliseconds.
    pub service_ms: Times,
    /// Additional time of a request, milliseconds, in which the instance is busy but the device is
    /// not.
    #[serde(default = "no_time")]
    pub host_ms: Times,
    /// Its load.
    pub load: Load,
    /// Concurrent requests of an instance.
    #[serde(default = "one")]
    pub concurrency: usize,
    /// Most waiting requests of an instance; more are rejected.
    #[serde(default = "queue")]
    pub queue: usize,
    /// Deadline of a request, milliseconds: a later response counts as late, and a request that has
    /// not started is dropped; 0: no deadline.
    #[serde(default)]
    pub deadline_ms: f64,
    /// Targets of autoscaling; `None`: no autoscaling.
    #[serde(default)]
    pub scale: Option<Targets>,
}

fn one_device() -> u32 {
    1
}

fn no_time() -> Times {
    Times::NONE
}

fn queue() -> usize {
    1000
}

/// Limits that prevent a wrong file from exhausting memory.
const DEVICES_MAX: usize = 1_000_000;
const INSTANCES_MAX: usize = 10_000_000;
const TRACE_BYTES_MAX: u64 = 1 << 31;
const FILE_BYTES_MAX: u64 = 1 << 24;

impl Scenario {
    /// Loads a file and its trace.
    ///
    /// # Errors
    /// The file cannot be read or is not a valid scenario.
    pub fn load(path: &Path) -> Result<Scenario, ScenarioError> {
        let mut scenario = Scenario::parse(&read(path, FILE_BYTES_MAX)?)?;
        if let Some(trace) = &scenario.trace {
            let path = path.parent().unwrap_or(Path::new("")).join(trace);
            let text = read(&path, TRACE_BYTES_MAX)?;
            scenario.arrivals =
                parse_trace(&text).map_err(|e| wrong(path.display().to_string(), e))?;
            scenario.check()?;
        }
        Ok(scenario)
    }

    /// Parses a text. The caller loads the trace.
    ///
    /// # Errors
    /// The text is not a valid scenario.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        let scenario: Scenario =
            serde_saphyr::from_str(text).map_err(|e| ScenarioError::Syntax(e.to_string()))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// The runs: each case with its functions and rates, or the scenario itself.
    pub fn runs(&self) -> Vec<(String, Scenario)> {
        if self.cases.is_empty() {
            return vec![(self.name.clone(), self.clone())];
        }
        let run = |(name, rates): (&String, &BTreeMap<String, f64>)| {
            let mut one = self.clone();
            one.cases.clear();
            one.functions.retain(|f| rates.contains_key(&f.name));
            for function in &mut one.functions {
                function.load.rate = rates[&function.name];
            }
            one.name = match self.name.as_str() {
                "" => name.clone(),
                own => format!("{own}: {name}"),
            };
            (name.clone(), one)
        };
        self.cases.iter().map(run).collect()
    }

    /// Checks conditions beyond the types.
    fn check(&self) -> Result<(), ScenarioError> {
        let time = |at: &str, value: f64, least: f64| {
            let fine = (least..=1e7).contains(&value);
            let reason = || format!("is {value}, must lie between {least} and 1e7");
            fine.then_some(()).ok_or_else(|| wrong(at, reason()))
        };
        time("duration_s", self.duration_s, 0.001)?;
        time("warmup_s", self.warmup_s, 0.0)?;
        time("heartbeat_s", self.heartbeat_s, 0.001)?;
        time("scale_s", self.scale_s, 0.001)?;
        time("migration_ms", self.migration_ms, 0.0)?;
        if self.warmup_s >= self.duration_s {
            return Err(wrong("warmup_s", "must be shorter than duration_s"));
        }
        self.allocation
            .check()
            .map_err(|e| wrong("allocation", e))?;
        self.gate.check("gate")?;
        self.turns.map_or(Ok(()), |turns| turns.check())?;
        self.check_nodes()?;
        self.check_functions()?;
        let names: BTreeSet<&String> = self.functions.iter().map(|f| &f.name).collect();
        for (case, rates) in &self.cases {
            for (function, rate) in rates {
                let at = || format!("cases.{case}.{function}");
                if !names.contains(function) {
                    return Err(wrong(at(), "unknown function"));
                }
                let load = Load {
                    rate: *rate,
                    ..self.functions[0].load.clone()
                };
                load.check().map_err(|e| wrong(at(), e))?;
            }
        }
        for function in self.arrivals.keys() {
            let traced = |f: &Function| f.name == *function && f.load.arrivals == Arrivals::Trace;
            if !self.functions.iter().any(traced) {
                let reason = format!(
                    "the trace has '{function}', but no function of that name has 'arrivals: trace'"
                );
                return Err(wrong("trace", reason));
            }
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), ScenarioError> {
        let mut names = BTreeSet::new();
        let mut total = 0usize;
        for (n, node) in self.nodes.iter().enumerate() {
            let at = format!("nodes[{n}]");
            if node.name.is_empty() || !names.insert(&node.name) {
                return Err(wrong(at, "the name is empty or a duplicate"));
            }
            for (m, device) in node.devices.iter().enumerate() {
                let at = format!("{at}.devices[{m}]");
                total = total.saturating_add(device.count.saturating_mul(node.count));
                if device.regions == 0 || device.regions > 256 {
                    return Err(wrong(at, "regions must lie between 1 and 256"));
                }
                if device.accelerators.len() > device.regions {
                    return Err(wrong(at, "more accelerators than regions"));
                }
                if !(0.0..=1e7).contains(&device.reconfigure_ms) {
                    return Err(wrong(at, "reconfigure_ms must lie between 0 and 1e7"));
                }
                if !(1e-3..=1e6).contains(&device.speed) {
                    return Err(wrong(at, "speed must lie between 0.001 and 1e6"));
                }
                if let Some(gate) = &device.gate {
                    gate.check(&format!("{at}.gate"))?;
                }
            }
        }
        if total == 0 || total > DEVICES_MAX {
            let reason = format!("{total} devices, must lie between 1 and {DEVICES_MAX}");
            return Err(wrong("nodes", reason));
        }
        Ok(())
    }

    fn check_functions(&self) -> Result<(), ScenarioError> {
        let mut names = BTreeSet::new();
        let mut total = 0usize;
        for (n, function) in self.functions.iter().enumerate() {
            let at = format!("functions[{n}]");
            if function.name.is_empty() || !names.insert(&function.name) {
                return Err(wrong(at, "the name is empty or a duplicate"));
            }
            let at = format!("functions[{n}] ({})", function.name);
            total = total.saturating_add(function.count.saturating_mul(function.replicas));
            let bad = |what: &str, reason: String| wrong(format!("{at}.{what}"), reason);
            let said = [
                ("query", function.parsed(0).map(drop)),
                ("service_ms", function.service_ms.check()),
                ("host_ms", function.host_ms.check()),
                ("load", function.load.check()),
            ];
            for (what, fine) in said {
                fine.map_err(|reason| bad(what, reason))?;
            }
            if let Some(targets) = &function.scale {
                targets.check().map_err(|reason| bad("scale", reason))?;
            }
            let times = [function.start_s, function.every_s, function.deadline_ms];
            if times.iter().any(|t| !(0.0..=1e7).contains(t)) {
                let reason = "start_s, every_s and deadline_ms must lie between 0 and 1e7";
                return Err(bad("times", reason.to_owned()));
            }
            let traced = function.load.arrivals == Arrivals::Trace;
            if traced && (self.trace.is_none() || function.count != 1) {
                let reason = "arrivals: trace requires the scenario's 'trace' and a count of 1";
                return Err(bad("load", reason.to_owned()));
            }
            if function.concurrency == 0 || function.devices == 0 || function.weight == 0 {
                let reason = "concurrency, devices and weight must be at least 1";
                return Err(bad("concurrency", reason.to_owned()));
            }
        }
        if total > INSTANCES_MAX {
            let reason = format!("{total} instances, at most {INSTANCES_MAX}");
            return Err(wrong("functions", reason));
        }
        Ok(())
    }
}

impl Function {
    /// The query of the function with this number.
    pub fn parsed(&self, number: usize) -> Result<Query, String> {
        let text = self.query.replace("{n}", &number.to_string());
        text.parse::<Query>().map_err(|e| e.to_string())
    }
}

impl Gate {
    fn check(&self, at: &str) -> Result<(), ScenarioError> {
        let times = [self.quantum_ms, self.linger_us, self.switch_us];
        if times.iter().any(|t| !(0.0..=1e6).contains(t)) {
            let reason = "quantum_ms, linger_us and switch_us must lie between 0 and 1e6";
            return Err(wrong(at, reason));
        }
        Ok(())
    }
}

fn read(path: &Path, bytes_max: u64) -> Result<String, ScenarioError> {
    use std::io::Read;
    let failed = |source| ScenarioError::Read {
        path: path.display().to_string(),
        source,
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(bytes_max + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > bytes_max {
        let reason = format!("longer than {bytes_max} bytes");
        return Err(wrong(path.display().to_string(), reason));
    }
    Ok(text)
}
