//! The pool's arguments.

use super::Json;
use clap::{Args as ClapArgs, Subcommand};

/// Which registry.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct RegistryAt {
    /// The registry's address, http://host:port [default: this host's, or the one that its node has joined]
    #[arg(
        long = "registry",
        env = "BALTRA_REGISTRY",
        value_name = "URL",
        hide_env_values = true
    )]
    pub registry: Option<String>,
    /// What the registry asks of its callers
    #[arg(
        long,
        env = "BALTRA_REGISTRY_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    pub registry_token: Option<String>,
}

/// `baltra device`
#[derive(Debug, Subcommand)]
pub enum Device {
    /// Give the device to no new instance; those that have it keep it
    #[command(after_help = "Example:\n  baltra device cordon node-1/gpu0")]
    Cordon {
        /// node/name
        device: String,
        #[command(flatten)]
        at: RegistryAt,
    },
    /// Let new instances come again
    #[command(after_help = "Example:\n  baltra device uncordon node-1/gpu0")]
    Uncordon {
        /// node/name
        device: String,
        #[command(flatten)]
        at: RegistryAt,
    },
    /// Cordon the device, give its instances other ones, and wait until they have left; 1 when some
    /// have not
    #[command(after_help = "Example:\n  baltra device drain node-1/gpu0")]
    Drain {
        /// node/name
        device: String,
        /// How long to wait, seconds; 0: only ask
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        wait: u64,
        #[command(flatten)]
        at: RegistryAt,
        #[command(flatten)]
        json: Json,
    },
}

/// `baltra instances`
#[derive(Debug, ClapArgs)]
pub struct Instances {
    /// Copies of one function only
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub function: String,
    /// One tenant's only
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub tenant: String,
    /// Those with this device only: node/name
    #[arg(
        long,
        value_name = "DEVICE",
        default_value = "",
        hide_default_value = true
    )]
    pub device: String,
    #[command(flatten)]
    pub at: RegistryAt,
    #[command(flatten)]
    pub json: Json,
}

/// `baltra pool`
#[derive(Debug, Subcommand)]
pub enum Pool {
    /// Make or change a pool
    #[command(after_help = "Example:\n  baltra pool add sobels --query accelerator=sobel")]
    Add {
        /// Its name
        name: String,
        /// Its members: every device that fits
        #[arg(long)]
        query: String,
        #[command(flatten)]
        at: RegistryAt,
    },
    /// List the pools
    #[command(after_help = "Example:\n  baltra pool ls --json")]
    Ls {
        #[command(flatten)]
        at: RegistryAt,
        #[command(flatten)]
        json: Json,
    },
    /// Remove a pool; what was allocated from it stays
    #[command(after_help = "Example:\n  baltra pool rm sobels")]
    Rm {
        /// Its name
        name: String,
        #[command(flatten)]
        at: RegistryAt,
    },
}
