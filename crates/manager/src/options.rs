//! The configuration: a typed struct, built from layers and validated before any port opens.

mod join;
mod load;
mod paths;
mod turns;

pub use load::{default_text, Loader, SECTIONS_ELSEWHERE};

use crate::drivers::Prober;
use baltra_gate::PolicyKind;
use baltra_wire::Limits;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Name of a device: assigned by the manager. Driver of a device: the installed drivers.
pub const AUTO: &str = "auto";
/// The highest `memory_overcommit`.
const OVERCOMMIT_MAX: u32 = 64;

/// Configuration of a Device Manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The section `[node]`.
    pub node: NodeOptions,
    /// The section `[paths]`.
    pub paths: PathOptions,
    /// The section `[listen]`.
    pub listen: ListenOptions,
    /// The section `[metrics]`.
    pub metrics: MetricsOptions,
    /// The section `[executors]`.
    pub executors: ExecutorOptions,
    /// The section `[log]`.
    pub log: LogOptions,
    /// Default limits of tenants.
    pub limits: LimitOptions,
    /// The entries `[[device]]`.
    #[serde(rename = "device")]
    pub devices: Vec<DeviceOptions>,
    /// `[[tenant]]`: tenants defined in the configuration, in addition to the stored ones.
    #[serde(rename = "tenant")]
    pub tenants: Vec<TenantOptions>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            node: NodeOptions::default(),
            paths: PathOptions::default(),
            listen: ListenOptions::default(),
            metrics: MetricsOptions::default(),
            executors: ExecutorOptions::default(),
            log: LogOptions::default(),
            limits: LimitOptions::default(),
            devices: vec![DeviceOptions::default()],
            tenants: Vec::new(),
        }
    }
}

/// Identity of this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeOptions {
    /// Its name in the cluster; the host's name by default.
    pub name: String,
    /// The registry to join: `http://host:port` or `https://host:port`; empty: none.
    pub registry: String,
    /// Token required by the registry; empty: none.
    pub registry_token: String,
    /// With `https`: trusted certificates for the registry's, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry_ca: Option<PathBuf>,
    /// Addresses of this node's sessions for applications, as in `BALTRA_ENDPOINT`; empty: the Unix
    /// socket if the registry is on this host, and the address of `listen.tcp`.
    pub advertise: Vec<String>,
}

impl Default for NodeOptions {
    fn default() -> Self {
        let name = rustix::system::uname();
        NodeOptions {
            name: name.nodename().to_string_lossy().into_owned(),
            registry: String::new(),
            registry_token: String::new(),
            registry_ca: None,
            advertise: Vec::new(),
        }
    }
}

/// Directories.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PathOptions {
    /// Directory of sockets, lock and log, which are not kept.
    pub runtime: PathBuf,
    /// Directory of tenants, usage, images and compiled kernels, which are kept.
    pub state: PathBuf,
    /// Directory in which the installed drivers are registered.
    pub vendors: PathBuf,
}

impl Default for PathOptions {
    fn default() -> Self {
        PathOptions {
            runtime: baltra_session::default_runtime_dir(),
            state: paths::default_state(),
            vendors: crate::drivers::VENDORS.into(),
        }
    }
}

impl PathOptions {
    /// Socket of clients.
    pub fn session_socket(&self) -> PathBuf {
        self.runtime.join("baltra.sock")
    }

    /// Socket of operators.
    pub fn control_socket(&self) -> PathBuf {
        self.runtime.join("control.sock")
    }

    /// Socket of remote clients' relays, which are identified by token only.
    pub fn relay_socket(&self) -> PathBuf {
        self.runtime.join("relay.sock")
    }

    /// Socket of clients that are identified by token only.
    pub fn token_socket(&self) -> PathBuf {
        self.runtime.join("token.sock")
    }

    /// Socket to which executors reconnect after their manager has died.
    pub fn adopt_socket(&self) -> PathBuf {
        self.runtime.join("executors.sock")
    }

    /// Parent of the executors' private directories.
    pub fn executor_dirs(&self) -> PathBuf {
        self.state.join("executors")
    }

    /// The manager's lock file.
    pub fn lock_file(&self) -> PathBuf {
        self.runtime.join("manager.lock")
    }

    /// Log of a background daemon.
    pub fn log_file(&self) -> PathBuf {
        self.runtime.join("manager.log")
    }

    /// The node's identity for its registry.
    pub fn identity_file(&self) -> PathBuf {
        self.state.join("node.json")
    }
}

/// Sockets for clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenOptions {
    /// The session socket's permissions, octal, which bound the users that may connect.
    pub unix_mode: String,
    /// Whether there is a second socket, `token.sock`, at which clients are identified by a token
    /// only: for containers, whose user ids are meaningless on the host.
    pub token_socket: bool,
    /// The TCP address for remote clients; absent: disabled.
    pub tcp: Option<SocketAddr>,
    /// Certificate chain for TCP, PEM; with `tls_key`.
    pub tls_cert: Option<PathBuf>,
    /// Private key, PEM.
    pub tls_key: Option<PathBuf>,
    /// Time limit for a new connection's hello.
    pub hello_timeout_ms: u64,
    /// Time limit for a session that comes from another node.
    pub arrival_timeout_ms: u64,
    /// Maximum number of connections without a hello.
    pub pending_max: usize,
    /// Most open sessions on the node.
    pub sessions_max: usize,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions {
            unix_mode: "0666".into(),
            token_socket: false,
            tcp: None,
            tls_cert: None,
            tls_key: None,
            hello_timeout_ms: 2000,
            arrival_timeout_ms: 90_000,
            pending_max: 128,
            sessions_max: 4096,
        }
    }
}

impl ListenOptions {
    /// The permission bits of [`ListenOptions::unix_mode`].
    pub fn mode(&self) -> Option<u32> {
        u32::from_str_radix(self.unix_mode.trim_start_matches("0o"), 8)
            .ok()
            .filter(|mode| *mode <= 0o777)
    }

    /// Time limit for a new connection's hello.
    pub fn hello_timeout(&self) -> Duration {
        Duration::from_millis(self.hello_timeout_ms)
    }
}

/// The metrics page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsOptions {
    /// Address of `/metrics`; empty: disabled.
    pub address: String,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        MetricsOptions {
            address: "127.0.0.1:9464".into(),
        }
    }
}

impl MetricsOptions {
    /// The address, if any; `Err` if it is invalid.
    pub fn socket(&self) -> Result<Option<SocketAddr>, std::net::AddrParseError> {
        match self.address.as_str() {
            "" | "off" => Ok(None),
            text => text.parse().map(Some),
        }
    }
}

/// Options of executors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExecutorOptions {
    /// Warm executors for each device: the driver is loaded, no tenant is assigned.
    pub prestart: usize,
    /// Maximum number of executors for each device.
    pub count_max: usize,
    /// Idle timeout of an executor without sessions, seconds.
    pub idle_s: u64,
    /// Time limit for loading a driver.
    pub start_timeout_ms: u64,
    /// Time for which running sessions may continue at shutdown.
    pub drain_ms: u64,
    /// Whether executors are sandboxed (`baltra doctor` shows what this host supports).
    pub sandbox: bool,
    /// Maximum spin of a queue's thread before it sleeps, microseconds.
    pub spin_us: u64,
    /// The program for executors; empty: the running program.
    pub program: PathBuf,
    /// Memory limit of an executor, driver included, if the host has cgroup v2; 0: unlimited.
    pub memory_bytes: u64,
    /// Limit of an executor's processes and threads, if the host has cgroup v2; 0: unlimited.
    pub processes: u64,
    /// Maximum size of a suspended session's file, bytes.
    pub suspended_bytes: u64,
}

impl Default for ExecutorOptions {
    fn default() -> Self {
        ExecutorOptions {
            prestart: 2,
            count_max: 256,
            idle_s: 60,
            start_timeout_ms: 30_000,
            drain_ms: 5000,
            sandbox: true,
            spin_us: 50,
            program: PathBuf::new(),
            memory_bytes: 0,
            processes: 4096,
            suspended_bytes: 64 << 30,
        }
    }
}

impl ExecutorOptions {
    /// Options for probing drivers, the same as for executors.
    pub fn prober(&self) -> Prober {
        Prober {
            program: self.program.clone(),
            sandbox: self.sandbox,
            timeout: Duration::from_millis(self.start_timeout_ms),
        }
    }
}

/// Logging.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogOptions {
    /// A `tracing` filter: `info`, `baltra_manager=debug`, …
    pub level: String,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            level: "info".into(),
        }
    }
}

/// Limits of a tenant; absent ones come from `[limits]`, then from the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitOptions {
    /// Device memory of all sessions together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Arena memory of one session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena_bytes: Option<u64>,
    /// Live objects in a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u32>,
    /// Incomplete commands in a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_commands: Option<u32>,
    /// Time limit of a task, after which it is ended with its executor; 0: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_ms: Option<u64>,
    /// Open sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
}

impl LimitOptions {
    /// These limits, completed with those of `base`.
    pub fn or(self, base: LimitOptions) -> LimitOptions {
        LimitOptions {
            memory_bytes: self.memory_bytes.or(base.memory_bytes),
            arena_bytes: self.arena_bytes.or(base.arena_bytes),
            objects: self.objects.or(base.objects),
            queued_commands: self.queued_commands.or(base.queued_commands),
            task_ms: self.task_ms.or(base.task_ms),
            sessions: self.sessions.or(base.sessions),
        }
    }

    /// The limits in wire messages.
    pub fn wire(self) -> Limits {
        let base = Limits::default();
        Limits {
            memory_bytes: self.memory_bytes.unwrap_or(base.memory_bytes),
            arena_bytes: self.arena_bytes.unwrap_or(base.arena_bytes),
            objects: self.objects.unwrap_or(base.objects),
            queued_commands: self.queued_commands.unwrap_or(base.queued_commands),
            task_ms: self.task_ms.unwrap_or(base.task_ms),
        }
    }
}

/// Separation of a device's tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// A process for each tenant: a crash or stray store affects that tenant only.
    #[default]
    Tenant,
    /// A process for each session.
    Session,
    /// One process for all tenants: only the device separates their kernels.
    Device,
}

/// The number of images that a device holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageKind {
    /// Programs of many tenants concurrently.
    #[default]
    Shared,
    /// One image at a time, like an FPGA.
    Exclusive,
}

macro_rules! display_as_serialized {
    ($($kind:ty { $($variant:ident => $text:literal),+ })+) => {$(
        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$variant => $text),+ })
            }
        }
    )+};
}
display_as_serialized! {
    Isolation { Tenant => "tenant", Session => "session", Device => "device" }
    ImageKind { Shared => "shared", Exclusive => "exclusive" }
}

/// A device and how it is shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceOptions {
    /// Unique on the node; `auto`: `device0`, `device1`, …. An entry with several devices numbers
    /// them: `NAME0`, `NAME1`, ….
    pub name: String,
    /// The driver's library; `auto`: all installed drivers; `board:PATH`: a board's host port;
    /// `emulate:`: an emulated accelerator.
    pub driver: String,
    /// The driver's device: an ordinal, a UUID, a PCI address, or a part of the names of several;
    /// `all`: those that no other entry selects.
    #[serde(deserialize_with = "text_or_number")]
    pub select: String,
    /// Whether buffers may be in the client's memory, where the device can use it.
    pub host_memory: bool,
    /// Separation of tenants.
    pub isolation: Isolation,
    /// Executors that may use the device concurrently; 0: as many as a CPU device has cores, one on
    /// others, and unlimited if all tenants share an executor.
    pub slots: u32,
    /// The order of grants.
    pub policy: PolicyKind,
    /// Quantum: how long a holder may keep the device while another waits, milliseconds.
    pub quantum_ms: f64,
    /// Time for which an idle holder keeps the device while another waits, microseconds: a client
    /// needs some between two blocking tasks.
    pub linger_us: u64,
    /// Whether it holds one image at a time.
    pub image: ImageKind,
    /// Time for which an image of preemptible sessions keeps the device while others wait and its
    /// users have work, milliseconds. 0: automatic, at least 1 s and ten times the measured load
    /// of the image, up to four times as long for images that have done most of the recent work.
    /// Loads take at most about a tenth of the time, half on a device that is hardly used.
    pub turn_ms: u64,
    /// Least time for which such an image keeps the device while others wait, also without work,
    /// milliseconds: with a fixed `turn_ms`, it bounds the share of time that loads take.
    pub turn_min_ms: u64,
    /// Longest time for which such an image waits for its turn, beside the changes of images before
    /// it, milliseconds: the more images wait, the shorter their turns, also below `turn_min_ms`.
    /// 0: no limit.
    pub turn_wait_ms: u64,
    /// Time limit for the driver to load an image, milliseconds: nobody else can use the device
    /// meanwhile. Then the executor that loads it is ended.
    pub load_ms: u64,
    /// Overrides `[executors] prestart`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prestart: Option<usize>,
    /// Time limit without a completed command, after which a task is ended with its executor,
    /// milliseconds; 0: unlimited; absent: 30,000 on a GPU and where all tenants share an executor,
    /// otherwise unlimited. A shorter limit of the tenant takes precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_ms: Option<u64>,
    /// The same limit while others wait: commands of an ended session (a killed client, a call past
    /// its deadline) or a function's call past its time limit in the same executor, or, on a device
    /// whose tasks have no other limit, another tenant; milliseconds; 0: unlimited; absent: `task_ms`,
    /// or 30,000 without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contended_ms: Option<u64>,
    /// Time for which commands of an ended session may continue while other sessions use the
    /// executor, milliseconds; then the executor exits. Absent: 2,000 on a GPU, otherwise 5,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphan_ms: Option<u64>,
    /// Limit of the objects of all sessions together, as a multiple of the device's memory: above
    /// 1, those of idle sessions leave the device while others need its memory. 1: none leaves.
    /// Absent: 4 on a GPU with memory of its own or with `memory_bytes`, otherwise 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_overcommit: Option<u32>,
    /// Memory that objects may take on the device together, with `memory_overcommit`; absent: most
    /// of the device's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Long launches are run in slices, so that a waiting tenant waits for so long at most,
    /// milliseconds, 0 or 0.1 to 1,000. 0: launches stay whole.
    pub slice_ms: f64,
    /// Tenants that may use it; empty: all.
    pub tenants: Vec<String>,
    /// Labels that queries match as `label.KEY=VALUE`, if the node has joined a registry.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        DeviceOptions {
            name: AUTO.into(),
            driver: AUTO.into(),
            select: "all".into(),
            host_memory: true,
            isolation: Isolation::default(),
            slots: 0,
            policy: PolicyKind::default(),
            quantum_ms: 10.0,
            linger_us: 100,
            image: ImageKind::default(),
            turn_ms: 0,
            turn_min_ms: 0,
            turn_wait_ms: 20_000,
            load_ms: 60_000,
            prestart: None,
            task_ms: None,
            contended_ms: None,
            orphan_ms: None,
            memory_overcommit: None,
            memory_bytes: None,
            slice_ms: 0.0,
            tenants: Vec::new(),
            labels: BTreeMap::new(),
        }
    }
}

impl DeviceOptions {
    /// Whether it names a library, which lists its devices. A board is one device, and so is an
    /// emulated accelerator.
    pub fn is_probed(&self) -> bool {
        self.driver != AUTO && !self.is_board() && !self.is_emulated()
    }

    /// Whether it is a board.
    pub fn is_board(&self) -> bool {
        self.driver.starts_with("board:")
    }

    /// Whether it is an emulated accelerator, of which a node may have several.
    pub fn is_emulated(&self) -> bool {
        self.driver.starts_with("emulate:")
    }

    fn validate_memory(&self, key: &dyn Fn(&str) -> String) -> Result<(), Invalid> {
        let times = self.memory_overcommit;
        if times.is_some_and(|times| !(1..=OVERCOMMIT_MAX).contains(&times)) {
            return Err(invalid(
                key("memory_overcommit"),
                format!("must lie between 1 and {OVERCOMMIT_MAX}"),
            ));
        }
        if self.memory_bytes.is_some() && times == Some(1) {
            return Err(invalid(
                key("memory_bytes"),
                "requires 'memory_overcommit' above 1",
            ));
        }
        if self.memory_bytes == Some(0) {
            return Err(invalid(key("memory_bytes"), "must not be 0"));
        }
        Ok(())
    }

    /// The length of the slices of long launches; zero: launches stay whole.
    pub fn slice(&self) -> Duration {
        Duration::from_nanos((self.slice_ms * 1e6) as u64)
    }

    /// Time for which a holder may keep the device while another client waits.
    pub fn quantum(&self) -> Duration {
        Duration::from_nanos((self.quantum_ms * 1e6) as u64)
    }
}

/// A tenant of the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantOptions {
    /// Its name.
    pub name: String,
    /// Its weight under `fair`.
    #[serde(default = "one")]
    pub weight: u32,
    /// Its priority under `priority`; higher ones go first.
    #[serde(default)]
    pub priority: i32,
    /// Its limits.
    #[serde(default)]
    pub limits: LimitOptions,
    /// SHA-256 of its token, hexadecimal; empty: no token.
    #[serde(default)]
    pub token_sha256: String,
    /// User ids that may use it over the Unix socket.
    #[serde(default)]
    pub users: Vec<u32>,
}

fn one() -> u32 {
    1
}

/// Deserializes a text, or a number as text: an ordinal needs no quotes.
fn text_or_number<'de, D: serde::Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "an ordinal, a UUID, a PCI address, a part of a name or 'all'"
    )]
    enum Selector {
        Text(String),
        Ordinal(u32),
    }
    Ok(match Selector::deserialize(input)? {
        Selector::Text(text) => text,
        Selector::Ordinal(n) => n.to_string(),
    })
}

/// An invalid value of the configuration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{key}' {problem}")]
pub struct Invalid {
    /// The key.
    pub key: String,
    /// The problem.
    pub problem: String,
}

fn invalid(key: impl Into<String>, problem: impl Into<String>) -> Invalid {
    Invalid {
        key: key.into(),
        problem: problem.into(),
    }
}

/// Names of devices and tenants: valid in a file name, a metric label and a command line.
pub fn valid_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

impl Options {
    /// Checks constraints that the types of the keys do not express.
    pub fn validate(mut self) -> Result<Options, Invalid> {
        if self.node.name.is_empty() {
            self.node.name = NodeOptions::default().name;
        }
        for (key, dir) in [
            ("paths.runtime", &mut self.paths.runtime),
            ("paths.state", &mut self.paths.state),
        ] {
            // Executors and programs have other working directories.
            *dir = std::path::absolute(&dir).map_err(|e| invalid(key, e.to_string()))?;
        }
        let longest = self
            .paths
            .session_socket()
            .as_os_str()
            .len()
            .max(self.paths.adopt_socket().as_os_str().len());
        if longest > 107 {
            return Err(invalid(
                "paths.runtime",
                format!("is too long for a Unix socket ({longest} bytes with the socket's name, 107 at most)"),
            ));
        }
        if self.listen.mode().is_none() {
            return Err(invalid(
                "listen.unix_mode",
                "must be an octal mode such as 0666",
            ));
        }
        if self.listen.tls_cert.is_some() != self.listen.tls_key.is_some() {
            return Err(invalid(
                "listen.tls_cert",
                "requires 'listen.tls_key' and vice versa: set both or neither",
            ));
        }
        if self.listen.pending_max == 0 || self.listen.hello_timeout_ms == 0 {
            return Err(invalid(
                "listen",
                "pending_max and hello_timeout_ms must not be 0",
            ));
        }
        if let Err(error) = self.metrics.socket() {
            return Err(invalid(
                "metrics.address",
                format!("must be an address such as 127.0.0.1:9464, or empty to disable metrics ({error})"),
            ));
        }
        if self.executors.count_max == 0 {
            return Err(invalid("executors.count_max", "must not be 0"));
        }
        self.node.validate()?;
        self.validate_devices()?;
        self.validate_tenants()?;
        Ok(self)
    }

    fn validate_devices(&self) -> Result<(), Invalid> {
        if self.devices.is_empty() {
            return Err(invalid(
                "device",
                "is missing: a manager needs at least one device",
            ));
        }
        let mut names = BTreeSet::new();
        for (i, device) in self.devices.iter().enumerate() {
            let key = |k: &str| format!("device[{i}].{k}");
            if !valid_name(&device.name) {
                return Err(invalid(
                    key("name"),
                    "must be 1 to 63 letters, digits, '-', '_' or '.', and start with a letter or digit",
                ));
            }
            if device.name != AUTO && !names.insert(device.name.clone()) {
                return Err(invalid(
                    key("name"),
                    format!("'{}' is used twice", device.name),
                ));
            }
            if device.slice_ms != 0.0 && !(0.1..=1000.0).contains(&device.slice_ms) {
                return Err(invalid(
                    key("slice_ms"),
                    "must be 0 or lie between 0.1 and 1000",
                ));
            }
            if !device.quantum_ms.is_finite() || !(0.0..=60_000.0).contains(&device.quantum_ms) {
                return Err(invalid(key("quantum_ms"), "must lie between 0 and 60000"));
            }
            device.validate_turns(&key)?;
            device.validate_memory(&key)?;
            if !device.labels.keys().all(|name| valid_name(name)) {
                return Err(invalid(
                    key("labels"),
                    "must have names of letters, digits, '-', '_' or '.'",
                ));
            }
            if device.driver.is_empty() {
                return Err(invalid(
                    key("driver"),
                    "must be a library's path, or 'auto'",
                ));
            }
        }
        Ok(())
    }

    fn validate_tenants(&self) -> Result<(), Invalid> {
        let mut names = BTreeSet::new();
        for (i, tenant) in self.tenants.iter().enumerate() {
            let key = |k: &str| format!("tenant[{i}].{k}");
            if !valid_name(&tenant.name) {
                return Err(invalid(
                    key("name"),
                    "must be 1 to 63 letters, digits, '-', '_' or '.', and start with a letter or digit",
                ));
            }
            if !names.insert(&tenant.name) {
                return Err(invalid(
                    key("name"),
                    format!("'{}' is used twice", tenant.name),
                ));
            }
            if !(1..=10_000).contains(&tenant.weight) {
                return Err(invalid(key("weight"), "must lie between 1 and 10000"));
            }
            let hash = &tenant.token_sha256;
            if !hash.is_empty()
                && (hash.len() != 64 || !hash.chars().all(|c| c.is_ascii_hexdigit()))
            {
                return Err(invalid(
                    key("token_sha256"),
                    "must be 64 hexadecimal digits",
                ));
            }
        }
        Ok(())
    }

    /// The configuration as TOML.
    pub fn dump(&self) -> String {
        toml::to_string(self).expect("the configuration has a TOML form")
    }
}

#[cfg(test)]
mod tests;
