//! The engine's configuration: `[gateway.engine]`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Options of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Device Managers to use without a registry, in the format of `BALTRA_ENDPOINT`
    /// (`unix:/run/baltra/baltra.sock`, `tcp://host:port`, `tls://host:port`). Empty, and no
    /// registry: this user's manager.
    pub endpoints: Vec<String>,
    /// The token for managers over TCP.
    pub token: String,
    /// Tokens for the managers of single nodes of a registry's pool, by node name.
    pub tokens: BTreeMap<String, String>,
    /// The registry that allocates devices, `http://host:port`; empty: no registry.
    pub registry: String,
    /// The token for the registry.
    pub registry_token: String,
    /// For a registry at `https://…`: the root certificates, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry_ca: Option<PathBuf>,
    /// Command queues of a function on a device; 0: derived from the number of processors.
    pub lanes: usize,
    /// Calls in flight in one command queue.
    pub slots: usize,
    /// Bytes of inputs and outputs in flight in one command queue, in addition to one call.
    pub flying_bytes_max: u64,
    /// Waiting calls of a function in all its queues together; more are rejected.
    pub queue_calls_max: usize,
    /// Time for which a demand keeps its replicas, seconds, for functions that scale.
    pub scale_window_s: u64,
    /// Consecutive failures after which a node receives no calls for a while.
    pub breaker_failures: u32,
    /// Duration of that, milliseconds; then one probe call is let through.
    pub breaker_open_ms: u64,
    /// Spare sessions for each device and tenant in use.
    pub spare_sessions: usize,
    /// Threads of a native function's worker process; 0: derived from the number of processors.
    pub native_threads: usize,
    /// The program with the subcommand `native-worker`; empty: the running program.
    pub native_program: PathBuf,
    /// Whether native workers are sandboxed.
    pub sandbox: bool,
    /// Number of tenants that take turns; 0 means 1.
    #[serde(skip)]
    pub tenants: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            endpoints: Vec::new(),
            token: String::new(),
            tokens: BTreeMap::new(),
            registry: String::new(),
            registry_token: String::new(),
            registry_ca: None,
            lanes: 0,
            slots: 32,
            flying_bytes_max: 64 << 20,
            queue_calls_max: 8192,
            scale_window_s: 30,
            breaker_failures: 3,
            breaker_open_ms: 1000,
            spare_sessions: 1,
            native_threads: 0,
            native_program: PathBuf::new(),
            sandbox: true,
            tenants: 1,
        }
    }
}

impl Options {
    /// Rejects invalid values, with the key at fault.
    pub fn check(&self) -> Result<(), String> {
        for text in &self.endpoints {
            let parsed = text.parse::<baltra_session::Endpoint>();
            parsed.map_err(|e| format!("'gateway.engine.endpoints': '{text}': {e}"))?;
        }
        let within = |key: &str, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!(
                    "'gateway.engine.{key}' is {value}, must be {least} to {most}"
                ))
            }
        };
        within("lanes", self.lanes, 0, 64)?;
        within("slots", self.slots, 1, 256)?;
        within("queue_calls_max", self.queue_calls_max, 1, 1 << 20)?;
        within("scale_window_s", self.scale_window_s as usize, 0, 3600)?;
        within("spare_sessions", self.spare_sessions, 0, 16)?;
        within("native_threads", self.native_threads, 0, 256)?;
        Ok(())
    }

    /// The token for a node's manager over TCP.
    pub(crate) fn token_of(&self, node: &str) -> &str {
        self.tokens.get(node).unwrap_or(&self.token)
    }

    /// Number of command queues of a function on a device. A second one hides the gap between a
    /// batch's end and the next one's copies; with few processors, its threads cost more than they
    /// gain.
    pub(crate) fn lane_count(&self) -> usize {
        match self.lanes {
            0 => (processors() / 4).clamp(1, 4),
            n => n,
        }
    }

    pub(crate) fn native_thread_count(&self) -> usize {
        match self.native_threads {
            0 => processors().min(16),
            n => n,
        }
    }

    pub(crate) fn breaker_open(&self) -> Duration {
        Duration::from_millis(self.breaker_open_ms)
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_own_token_comes_first() {
        let text = "token = \"all\"\n[tokens]\nnode1 = \"one\"\n";
        let options: Options = toml::from_str(text).unwrap();
        assert_eq!(options.token_of("node1"), "one");
        assert_eq!(options.token_of("node2"), "all");
    }

    #[test]
    fn defaults_are_allowed_and_nonsense_is_not() {
        assert_eq!(Options::default().check(), Ok(()));
        let wrong = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.check().unwrap_err()
        };
        assert!(wrong(|o| o.slots = 0).contains("slots"));
        assert!(wrong(|o| o.lanes = 65).contains("lanes"));
        let text = wrong(|o| o.endpoints = vec!["carrier-pigeon".into()]);
        assert!(text.contains("carrier-pigeon"), "{text}");
    }
}
