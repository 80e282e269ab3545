//! Options of all daemons.

use crate::registry::RegistryAt;
use clap::Args;
use std::net::SocketAddr;

/// Options of all daemons.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// The registry.
    #[command(flatten)]
    pub registry: RegistryAt,
    /// Address of /metrics and /healthz over HTTP; port 0 selects a free one; the last option counts
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:0",
        overrides_with = "metrics"
    )]
    pub metrics: SocketAddr,
    /// Baltra's own namespace
    #[arg(long, env = "POD_NAMESPACE", default_value = "baltra")]
    pub namespace: String,
}
