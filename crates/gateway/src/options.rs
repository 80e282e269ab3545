//! The configuration of a gateway, checked before any port opens.

use crate::console::AlertWatch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The gateway's configuration: the section `[gateway]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Address of the HTTP listener.
    pub address: SocketAddr,
    /// Address of the gRPC listener (Open Inference Protocol); empty: disabled.
    pub grpc_address: String,
    /// Directory of functions, deployments and usage records; persistent.
    pub state: PathBuf,
    /// Number of threads that serve connections; 0: one per core.
    pub workers: usize,
    /// Certificate chain, PEM, for both listeners; requires `tls_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    /// Private key, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// Whether callers may name POSIX shared memory objects of this host (the Open Inference
    /// Protocol's extension): any object that the gateway's user may open.
    pub shared_memory: bool,
    /// Hosts that `X-Callback-Url` may name; `*`: any. An address of this host or link (127.0.0.1,
    /// ::1, 169.254.…) is called only if the list contains the address itself or `localhost`; a
    /// listed name that resolves to such an address is not enough. Empty: callbacks are disabled.
    pub callback_hosts: Vec<String>,
    /// A Prometheus server whose firing alerts the console shows, such as http://127.0.0.1:9090;
    /// empty: none.
    pub prometheus: String,
    /// Credentials for deploying and removing functions.
    pub admin: AdminOptions,
    /// Options of the engine.
    pub engine: baltra_engine::Options,
    /// Limits of sizes, numbers and times.
    pub limits: LimitOptions,
    /// Callers' keys. Empty: no authentication, and the listeners must be on loopback addresses.
    #[serde(rename = "key")]
    pub keys: Vec<KeyOptions>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            grpc_address: "127.0.0.1:8081".into(),
            state: PathBuf::new(),
            workers: 0,
            tls_cert: None,
            tls_key: None,
            shared_memory: true,
            callback_hosts: Vec::new(),
            prometheus: String::new(),
            admin: AdminOptions::default(),
            engine: baltra_engine::Options::default(),
            limits: LimitOptions::default(),
            keys: Vec::new(),
        }
    }
}

/// Management's password (HTTP basic authentication, as in OpenFaaS).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminOptions {
    /// The user's name.
    pub user: String,
    /// sha256 of the password, hexadecimal. Empty: no password, which requires loopback addresses.
    pub password_sha256: String,
}

impl Default for AdminOptions {
    fn default() -> Self {
        AdminOptions {
            user: "admin".into(),
            password_sha256: String::new(),
        }
    }
}

/// A caller's key (`Authorization: Bearer …` or `X-API-Key`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyOptions {
    /// The tenant of this key's calls.
    pub tenant: String,
    /// sha256 of the key, hexadecimal: `printf %s KEY | sha256sum`.
    pub sha256: String,
    /// Calls per second that the tenant may make on average; 0: unlimited. If a tenant has several
    /// keys, the first one's value applies to all.
    #[serde(default)]
    pub calls_per_s: u32,
    /// Calls that the tenant may make in a burst; 0: as many as in a second.
    #[serde(default)]
    pub burst: u32,
}

/// Limits of sizes, numbers and times, which bound the resources of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitOptions {
    /// Open connections of both listeners together.
    pub connections_max: usize,
    /// A request's line and headers, bytes.
    pub head_bytes_max: usize,
    /// A request's body, bytes; a smaller limit of the function takes precedence.
    pub body_bytes_max: u64,
    /// Memory of requests and responses, bytes; each of several tenants may use half of it. More is
    /// rejected with 503. 0: half of this host's memory.
    pub memory_bytes_max: u64,
    /// Bytes of a function's unpacked files.
    pub upload_bytes_max: u64,
    /// Concurrent calls; more are rejected with 503.
    pub calls_max: usize,
    /// Calls that wait for a container to start; more are rejected with 503.
    pub held_max: usize,
    /// Asynchronous calls that wait or run; more are rejected with 503.
    pub async_max: usize,
    /// Total bytes of the bodies of asynchronous calls that wait or run.
    pub async_bytes_max: u64,
    /// Asynchronous calls that run concurrently.
    pub async_running_max: usize,
    /// Callbacks that wait or run; each tenant may have a tenth of them for one host.
    pub callbacks_max: usize,
    /// Time from a request's first byte to the end of its headers.
    pub head_timeout_ms: u64,
    /// Time from the end of the headers to the end of the body.
    pub body_timeout_ms: u64,
    /// Time for which a peer may accept no bytes of a response.
    pub write_timeout_ms: u64,
    /// Time for which a connection may be idle.
    pub idle_timeout_ms: u64,
    /// Default time limit of a call.
    pub call_timeout_ms: u64,
    /// Time for which running calls may continue at shutdown.
    pub drain_ms: u64,
}

impl Default for LimitOptions {
    fn default() -> Self {
        LimitOptions {
            connections_max: 20_000,
            head_bytes_max: 16 << 10,
            body_bytes_max: 1 << 30,
            memory_bytes_max: 0,
            upload_bytes_max: 256 << 20,
            calls_max: 4096,
            held_max: 1024,
            async_max: 10_000,
            async_bytes_max: 1 << 30,
            async_running_max: 64,
            callbacks_max: 10_000,
            head_timeout_ms: 10_000,
            body_timeout_ms: 60_000,
            write_timeout_ms: 60_000,
            idle_timeout_ms: 75_000,
            call_timeout_ms: 60_000,
            drain_ms: 10_000,
        }
    }
}

impl LimitOptions {
    /// See [`LimitOptions::call_timeout_ms`].
    pub fn call_timeout(&self) -> Duration {
        Duration::from_millis(self.call_timeout_ms)
    }

    /// See [`LimitOptions::body_timeout_ms`].
    pub fn body_timeout(&self) -> Duration {
        Duration::from_millis(self.body_timeout_ms)
    }

    /// See [`LimitOptions::drain_ms`].
    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}

/// An invalid configuration value.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'gateway.{key}' {problem}")]
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

impl Options {
    /// The gRPC address, if any; an error if it is malformed.
    pub fn grpc_socket(&self) -> Result<Option<SocketAddr>, std::net::AddrParseError> {
        match self.grpc_address.as_str() {
            "" | "off" => Ok(None),
            text => text.parse().map(Some),
        }
    }

    /// Number of threads that serve connections.
    pub fn worker_count(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }

    /// Checks conditions beyond the types of single keys.
    pub fn validate(self) -> Result<Options, Invalid> {
        let grpc = self.grpc_socket().map_err(|error| {
            let problem = format!(
                "must be an address such as 127.0.0.1:8081, or empty to disable it: {error}"
            );
            invalid("grpc_address", problem)
        })?;
        if self.state.as_os_str().is_empty() {
            return Err(invalid(
                "state",
                "is missing: set it to the directory for functions and usage records",
            ));
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err(invalid(
                "tls_cert",
                "and 'gateway.tls_key' must be set together",
            ));
        }
        if self.workers > 1024 {
            return Err(invalid("workers", "must be at most 1024"));
        }
        if let Err(problem) = self.engine.check() {
            return Err(invalid("engine", format!("is invalid: {problem}")));
        }
        if !self.prometheus.is_empty() {
            AlertWatch::check(&self.prometheus)
                .map_err(|problem| invalid("prometheus", problem))?;
        }
        self.validate_limits()?;
        self.validate_keys()?;
        self.validate_open(grpc)?;
        Ok(self)
    }

    fn validate_limits(&self) -> Result<(), Invalid> {
        let limits = &self.limits;
        if !(8192..=1 << 20).contains(&limits.head_bytes_max) {
            return Err(invalid(
                "limits.head_bytes_max",
                "must be between 8192 and 1048576",
            ));
        }
        let positive = [
            ("connections_max", limits.connections_max as u64),
            ("body_bytes_max", limits.body_bytes_max),
            ("upload_bytes_max", limits.upload_bytes_max),
            ("calls_max", limits.calls_max as u64),
            ("async_running_max", limits.async_running_max as u64),
            ("callbacks_max", limits.callbacks_max as u64),
            ("head_timeout_ms", limits.head_timeout_ms),
            ("body_timeout_ms", limits.body_timeout_ms),
            ("write_timeout_ms", limits.write_timeout_ms),
            ("idle_timeout_ms", limits.idle_timeout_ms),
            ("call_timeout_ms", limits.call_timeout_ms),
        ];
        match positive.into_iter().find(|(_, value)| *value == 0) {
            Some((key, _)) => Err(invalid(format!("limits.{key}"), "must not be 0")),
            None => Ok(()),
        }
    }

    fn validate_keys(&self) -> Result<(), Invalid> {
        let mut hashes = BTreeSet::new();
        for (i, key) in self.keys.iter().enumerate() {
            let at = |k: &str| format!("key[{i}].{k}");
            if !valid_tenant(&key.tenant) {
                return Err(invalid(
                    at("tenant"),
                    "must be letters, digits, '-', '_' or '.', 63 at most",
                ));
            }
            if !valid_hash(&key.sha256) {
                return Err(invalid(at("sha256"), "must be 64 hexadecimal digits"));
            }
            if !hashes.insert(key.sha256.to_ascii_lowercase()) {
                return Err(invalid(
                    at("sha256"),
                    "is used by two keys: it must identify one tenant",
                ));
            }
        }
        let password = &self.admin.password_sha256;
        if !password.is_empty() && !valid_hash(password) {
            return Err(invalid(
                "admin.password_sha256",
                "must be 64 hexadecimal digits, or empty",
            ));
        }
        if self.admin.user.is_empty() || self.admin.user.contains(':') {
            return Err(invalid("admin.user", "must be a name without ':'"));
        }
        Ok(())
    }

    /// Addresses other than loopback require keys and a password.
    fn validate_open(&self, grpc: Option<SocketAddr>) -> Result<(), Invalid> {
        let doors = [("address", Some(self.address)), ("grpc_address", grpc)];
        for (key, address) in doors {
            let Some(address) = address.filter(|a| !a.ip().is_loopback()) else {
                continue;
            };
            if self.keys.is_empty() {
                let problem = format!(
                    "{address} is reachable from other hosts: add a [[gateway.key]] for each tenant, or listen on 127.0.0.1"
                );
                return Err(invalid(key, problem));
            }
            if self.admin.password_sha256.is_empty() {
                let problem = format!(
                    "{address} is reachable from other hosts: set 'gateway.admin.password_sha256', or listen on 127.0.0.1"
                );
                return Err(invalid(key, problem));
            }
        }
        Ok(())
    }
}

fn valid_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|c| c.is_ascii_hexdigit())
}

fn valid_tenant(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Options {
        Options {
            state: "state".into(),
            ..Options::default()
        }
    }

    fn key(text: &str) -> KeyOptions {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn defaults_are_loopback_and_valid() {
        let options = base().validate().unwrap();
        assert!(options.address.ip().is_loopback());
        assert!(options.grpc_socket().unwrap().unwrap().ip().is_loopback());
    }

    #[test]
    fn an_open_address_demands_keys_and_a_password() {
        let mut options = base();
        options.address = "0.0.0.0:8080".parse().unwrap();
        let error = options.clone().validate().unwrap_err();
        assert_eq!(error.key, "address");
        assert!(error.problem.contains("gateway.key"), "{error}");
        let hash = "ab".repeat(32);
        options.keys = vec![key(&format!("tenant = 'red'\nsha256 = '{hash}'"))];
        let error = options.clone().validate().unwrap_err();
        assert!(error.problem.contains("password"), "{error}");
        options.admin.password_sha256 = hash;
        options.validate().unwrap();
    }

    #[test]
    fn an_open_grpc_address_demands_keys_too() {
        let mut options = base();
        options.grpc_address = "[::]:8081".into();
        assert_eq!(options.validate().unwrap_err().key, "grpc_address");
    }

    #[test]
    fn what_is_wrong_is_named() {
        type Change = fn(&mut Options);
        let cases: [(&str, Change); 9] = [
            ("grpc_address", |o| o.grpc_address = "nowhere".into()),
            ("state", |o| o.state = PathBuf::new()),
            ("prometheus", |o| o.prometheus = "https://x".into()),
            ("prometheus", |o| o.prometheus = "prometheus:9090".into()),
            ("tls_cert", |o| o.tls_cert = Some("x.pem".into())),
            ("limits.head_bytes_max", |o| o.limits.head_bytes_max = 10),
            ("limits.calls_max", |o| o.limits.calls_max = 0),
            ("key[0].sha256", |o| {
                o.keys = vec![key("tenant = 'red'\nsha256 = '12'")]
            }),
            ("admin.user", |o| o.admin.user = "a:b".into()),
        ];
        for (name, change) in cases {
            let mut options = base();
            change(&mut options);
            assert_eq!(options.validate().unwrap_err().key, name);
        }
    }

    #[test]
    fn a_key_names_one_tenant() {
        let hash = "ab".repeat(32);
        let mut options = base();
        let one = key(&format!("tenant = 'red'\nsha256 = '{hash}'"));
        let other = key(&format!(
            "tenant = 'blue'\nsha256 = '{}'",
            hash.to_uppercase()
        ));
        options.keys = vec![one, other];
        assert_eq!(options.validate().unwrap_err().key, "key[1].sha256");
    }

    #[test]
    fn unknown_keys_are_refused() {
        assert!(toml::from_str::<Options>("adress = '127.0.0.1:1'").is_err());
    }
}
