//! `[registry]`: the registry's configuration, validated before any port opens.

use crate::allocate::{Bound, Policy};
use crate::model::{Locality, MovePolicy, OCCUPATION, UTILIZATION};
use crate::signals::Targets;
use baltra_api::valid_name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The registry's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Address for gRPC. Beyond loopback, a token or `open` is required.
    pub address: SocketAddr,
    /// Allow access from other hosts without a token.
    pub open: bool,
    /// Token that callers must send (`authorization: Bearer …`); empty: none.
    pub token: String,
    /// File whose first line is the token; instead of `token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// `[registry.tokens]`: tokens for single roles, instead of `token`.
    pub tokens: TokenOptions,
    /// Certificate chain, PEM; with `tls_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    /// Private key, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// Directory of the store.
    pub state: PathBuf,
    /// Address of `/metrics` and `/healthz`; empty: disabled.
    pub metrics: String,
    /// Seconds without a heartbeat after which a node leaves the pool.
    pub lease_s: f64,
    /// Grace period for the store's nodes after a start, seconds.
    pub grace_s: f64,
    /// Seconds without a heartbeat after which a node is removed with its allocations.
    pub forget_s: f64,
    /// Default lease of instances without a renewal, seconds. 0: until they are released.
    pub instance_lease_s: u32,
    /// Bounds of metrics; devices outside are not allocated.
    pub filters: Vec<Bound>,
    /// The metrics by which candidates are ordered, in order of precedence; smaller values come
    /// first, and with a `-` before the name larger ones.
    pub order: Vec<String>,
    /// Allowed nodes for the devices of an instance with a known node: `any`, `prefer` (its own
    /// node, if that matches the accelerator as well) or `require`.
    pub locality: Locality,
    /// Policy for programs that have to leave a device: `live` (their sessions move while they run,
    /// and they are started again if one cannot), or `restart`. Instances may have their own.
    pub move_policy: MovePolicy,
    /// A Prometheus server's URL (`http://host:port`); empty: use the load in heartbeats.
    pub prometheus: String,
    /// Interval of queries to it.
    pub prometheus_interval_s: f64,
    /// A metric's name and its PromQL expression, see [`crate::prometheus`].
    pub queries: BTreeMap<String, String>,
    /// `[registry.scaling]`: targets of the autoscaling signal.
    pub scaling: Targets,
    /// `[registry.limits]`.
    pub limits: LimitOptions,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            address: SocketAddr::from(([127, 0, 0, 1], 7480)),
            open: false,
            token: String::new(),
            token_file: None,
            tokens: TokenOptions::default(),
            tls_cert: None,
            tls_key: None,
            state: default_state(),
            metrics: "127.0.0.1:9465".into(),
            lease_s: 5.0,
            grace_s: 15.0,
            forget_s: 86_400.0,
            instance_lease_s: 60,
            filters: Vec::new(),
            order: Policy::default().order,
            locality: Locality::Any,
            move_policy: MovePolicy::Live,
            prometheus: String::new(),
            prometheus_interval_s: 5.0,
            queries: default_queries(),
            scaling: Targets::default(),
            limits: LimitOptions::default(),
        }
    }
}

/// A caller's role, which decides what it may change. Reading needs no role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// People and their tools: all changes.
    Operator,
    /// Managers: registration of their nodes, and reconfigurations.
    Node,
    /// Applications and gateways: allocation of devices.
    Application,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 3] = [Role::Operator, Role::Node, Role::Application];

    /// The key of its token in `[registry.tokens]`.
    pub fn key(self) -> &'static str {
        match self {
            Role::Operator => "operator",
            Role::Node => "node",
            Role::Application => "application",
        }
    }
}

/// A token for each role; empty: `registry.token` applies. A file's first line may contain it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenOptions {
    /// Token of operators and their tools, which may make all changes.
    pub operator: String,
    /// Instead of `operator`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator_file: Option<PathBuf>,
    /// Token of managers.
    pub node: String,
    /// Instead of `node`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_file: Option<PathBuf>,
    /// Token of applications and gateways, to which devices are allocated.
    pub application: String,
    /// Instead of `application`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application_file: Option<PathBuf>,
}

/// Limits of the registry's content; more is rejected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitOptions {
    /// Nodes.
    pub nodes: usize,
    /// Devices of one node.
    pub node_devices: usize,
    /// Instances.
    pub instances: usize,
    /// Functions.
    pub functions: usize,
    /// Pools.
    pub pools: usize,
    /// Requests that may block on the disk concurrently; further ones wait.
    pub requests: usize,
    /// Concurrent connections; further ones wait.
    pub connections: usize,
}

impl Default for LimitOptions {
    fn default() -> Self {
        LimitOptions {
            nodes: 10_000,
            node_devices: 256,
            instances: 100_000,
            functions: 10_000,
            pools: 1_000,
            requests: 256,
            connections: 16_384,
        }
    }
}

/// An invalid configuration value.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("'registry.{key}' {reason}")]
pub struct Invalid {
    /// The key.
    pub key: String,
    /// The reason.
    pub reason: String,
}

fn invalid(key: &str, reason: impl Into<String>) -> Invalid {
    Invalid {
        key: key.into(),
        reason: reason.into(),
    }
}

/// Reads a token from its file, if it has one, and checks it.
fn read_token(key: &str, token: &mut String, file: &mut Option<PathBuf>) -> Result<(), Invalid> {
    if let Some(path) = file.take() {
        let key = format!("{key}_file");
        if !token.is_empty() {
            return Err(invalid(&key, "and the token itself must not both be set"));
        }
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let reason = format!("{} cannot be read ({error})", path.display());
            invalid(&key, reason)
        })?;
        *token = text.lines().next().unwrap_or_default().trim().to_owned();
        if token.is_empty() {
            let reason = format!("{} has an empty first line", path.display());
            return Err(invalid(&key, reason));
        }
    }
    if !token.bytes().all(|b| b.is_ascii_graphic()) || token.len() > 512 {
        return Err(invalid(
            key,
            "must be at most 512 visible ASCII characters without spaces",
        ));
    }
    Ok(())
}

impl Options {
    /// The token of a role; empty if no role needs one.
    pub fn token_of(&self, role: Role) -> &str {
        let own = match role {
            Role::Operator => &self.tokens.operator,
            Role::Node => &self.tokens.node,
            Role::Application => &self.tokens.application,
        };
        if own.is_empty() {
            &self.token
        } else {
            own
        }
    }

    fn validate_tokens(&mut self) -> Result<(), Invalid> {
        let own = &mut self.tokens;
        for (key, token, file) in [
            ("token", &mut self.token, &mut self.token_file),
            ("tokens.operator", &mut own.operator, &mut own.operator_file),
            ("tokens.node", &mut own.node, &mut own.node_file),
            (
                "tokens.application",
                &mut own.application,
                &mut own.application_file,
            ),
        ] {
            read_token(key, token, file)?;
        }
        let lacks = |role: &Role| self.token_of(*role).is_empty();
        let lacking = Role::ALL.into_iter().find(lacks);
        match lacking {
            // A role without a token would be open to everyone.
            Some(role) if !Role::ALL.iter().all(lacks) => Err(invalid(
                &format!("tokens.{}", role.key()),
                "is missing, but other roles have tokens: set it, or set 'registry.token' for all roles without one",
            )),
            _ => Ok(()),
        }
    }

    /// Checks everything that does not depend on the host, but reads the files of tokens.
    pub fn validate(mut self) -> Result<Options, Invalid> {
        self.validate_tokens()?;
        let closed = !self.token_of(Role::Operator).is_empty();
        if !self.address.ip().is_loopback() && !closed && !self.open {
            return Err(invalid(
                "address",
                format!(
                    "is {}, which is reachable from other hosts: set 'registry.token', or 'registry.open = true' to allow access without a token",
                    self.address
                ),
            ));
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err(invalid(
                "tls_cert",
                "and 'registry.tls_key' must be set together",
            ));
        }
        if let Err(error) = self.metrics_address() {
            return Err(invalid(
                "metrics",
                format!(
                    "must be an address such as 127.0.0.1:9465, or empty to disable it: {error}"
                ),
            ));
        }
        for (key, seconds, least) in [
            ("lease_s", self.lease_s, 0.2),
            ("grace_s", self.grace_s, self.lease_s),
            ("forget_s", self.forget_s, self.grace_s),
            ("prometheus_interval_s", self.prometheus_interval_s, 0.1),
        ] {
            if !seconds.is_finite() || seconds < least || seconds > 1e9 {
                return Err(invalid(key, format!("must be at least {least} seconds")));
            }
        }
        self.validate_metrics()?;
        Ok(self)
    }

    fn validate_metrics(&self) -> Result<(), Invalid> {
        self.policy()
            .check()
            .map_err(|reason| invalid("filters, registry.order", reason))?;
        for bound in &self.filters {
            self.known_metric("filters", &bound.metric)?;
        }
        for metric in &self.order {
            self.known_metric("order", metric.strip_prefix('-').unwrap_or(metric))?;
        }
        if !self.prometheus.is_empty() {
            crate::prometheus::check_url(&self.prometheus)
                .map_err(|reason| invalid("prometheus", reason))?;
            if self.queries.is_empty() {
                return Err(invalid(
                    "queries",
                    "is empty: add at least one query, or leave 'registry.prometheus' unset",
                ));
            }
        }
        for (name, query) in &self.queries {
            if !valid_name(name) || query.trim().is_empty() || query.len() > 8_192 {
                return Err(invalid(
                    "queries",
                    format!("'{name}' must be a name and a PromQL expression"),
                ));
            }
        }
        self.scaling
            .check()
            .map_err(|reason| invalid("scaling", reason))
    }

    /// The rules of allocation.
    pub fn policy(&self) -> Policy {
        Policy {
            filters: self.filters.clone(),
            order: self.order.clone(),
        }
    }

    fn known_metric(&self, key: &str, metric: &str) -> Result<(), Invalid> {
        let queried = !self.prometheus.is_empty() && self.queries.contains_key(metric);
        if queried || METRICS.contains(&metric) {
            return Ok(());
        }
        Err(invalid(
            key,
            format!(
                "refers to the unknown metric '{metric}': use {}, or a name of 'registry.queries' with 'registry.prometheus' set",
                METRICS.join(", ")
            ),
        ))
    }

    /// The address of metrics; `None` if disabled.
    pub fn metrics_address(&self) -> Result<Option<SocketAddr>, std::net::AddrParseError> {
        match self.metrics.as_str() {
            "" | "off" => Ok(None),
            text => text.parse().map(Some),
        }
    }

    /// The lease of a node.
    pub fn lease(&self) -> Duration {
        Duration::from_secs_f64(self.lease_s)
    }

    /// Interval of heartbeats: a lease survives the loss of four.
    pub fn heartbeat(&self) -> Duration {
        self.lease() / 5
    }
}

/// The metrics in heartbeats.
pub const METRICS: [&str; 3] = [UTILIZATION, OCCUPATION, QUEUE_WAIT_MS];

/// The metric of a task's mean wait for the device, milliseconds.
pub const QUEUE_WAIT_MS: &str = "queue_wait_ms";

/// Queries over the metrics of Device Managers.
fn default_queries() -> BTreeMap<String, String> {
    let utilization =
        "100 * sum by (node, instance, device) (rate(baltra_device_busy_seconds_total[30s]))";
    BTreeMap::from([("utilization".to_owned(), utilization.to_owned())])
}

/// `$XDG_STATE_HOME/baltra/registry`; without that variable, `/var/lib/baltra/registry` for root,
/// and a path in the home directory for others.
fn default_state() -> PathBuf {
    let absolute = |variable: &str| {
        let path = PathBuf::from(std::env::var_os(variable)?);
        path.is_absolute().then_some(path)
    };
    let base = absolute("XDG_STATE_HOME").or_else(|| {
        if rustix::process::geteuid().is_root() {
            return Some("/var/lib".into());
        }
        absolute("HOME").map(|home| home.join(".local/state"))
    });
    base.unwrap_or_else(|| "/var/tmp".into())
        .join("baltra/registry")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Options, String> {
        let options: Options = toml::from_str(text).map_err(|e| e.to_string())?;
        options.validate().map_err(|e| e.to_string())
    }

    #[test]
    fn defaults_are_loopback_and_valid() {
        let options = Options::default().validate().unwrap();
        assert!(options.address.ip().is_loopback());
        assert_eq!(parsed("").unwrap(), options);
        let text = toml::to_string(&options).unwrap();
        assert_eq!(parsed(&text).unwrap(), options);
    }

    #[test]
    fn a_wrong_configuration_names_its_key() {
        for (text, word) in [
            ("addres = '127.0.0.1:1'", "addres"),
            ("address = '0.0.0.0:7480'", "registry.token"),
            ("lease_s = 0.0", "lease_s"),
            ("forget_s = 1.0", "forget_s"),
            ("metrics = 'nowhere'", "registry.metrics"),
            ("token = 'two words'", "registry.token"),
            ("tls_cert = '/c.pem'", "tls_key"),
            ("order = ['luck']", "luck"),
            (
                "filters = [{ metric = 'utilization' }]",
                "neither min nor max",
            ),
            ("filters = [{ metric = 'heat', max = 1.0 }]", "heat"),
            ("prometheus = 'ftp://x'", "registry.prometheus"),
            ("prometheus = 'http://x:9090'\nqueries = {}", "queries"),
            ("scaling = { utilization = 700.0 }", "scaling"),
            ("token_file = '/does/not/exist'", "token_file"),
            ("tokens = { operator = 'o' }", "tokens.node"),
            ("tokens = { node = 'two words' }", "tokens.node"),
            (
                "tokens = { node_file = '/does/not/exist' }",
                "tokens.node_file",
            ),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn an_open_address_wants_a_token_or_the_word() {
        parsed("address = '0.0.0.0:7480'\ntoken = 'secret'").unwrap();
        parsed("address = '0.0.0.0:7480'\nopen = true").unwrap();
        parsed("address = '[::1]:7480'").unwrap();
    }

    #[test]
    fn the_token_may_come_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc\nrest\n").unwrap();
        let text = format!("token_file = '{}'", file.path().display());
        assert_eq!(parsed(&text).unwrap().token, "abc");
        std::fs::write(file.path(), "\n").unwrap();
        assert!(parsed(&text).is_err());
    }

    #[test]
    fn a_role_s_token_is_its_own_or_the_one_for_all() {
        let options = parsed("token = 'all'\ntokens = { operator = 'o' }").unwrap();
        let tokens = Role::ALL.map(|role| options.token_of(role));
        assert_eq!(tokens, ["o", "all", "all"]);
        let all = "tokens = { operator = 'o', node = 'n', application = 'a' }";
        parsed(&format!("address = '0.0.0.0:7480'\n{all}")).unwrap();
    }

    #[test]
    fn a_query_makes_its_metric_known() {
        let text = "prometheus = 'http://127.0.0.1:9090'\norder = ['heat']\nqueries = { heat = 'temperature' }";
        parsed(text).unwrap();
    }
}
