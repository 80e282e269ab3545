//! The pool's arguments.

use super::Json;
use clap::{Args as ClapArgs, Subcommand};

/// The registry.
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
    /// The registry's token
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
    /// Stop allocating the device to new instances; its instances keep it
    #[command(after_help = "Example:\n  baltra device cordon node-1/gpu0")]
    Cordon {
        /// node/name
        device: String,
        #[command(flatten)]
        at: RegistryAt,
    },
    /// Allow new instances again
    #[command(after_help = "Example:\n  baltra device uncordon node-1/gpu0")]
    Uncordon {
        /// node/name
        device: String,
        #[command(flatten)]
        at: RegistryAt,
    },
    /// Cordon the device, move its instances to others, and wait until they have left; exit code 1
    /// if some have not
    ///
    /// With --live, its sessions move to other devices while their programs run, those of this node
    /// first; exit code 1 if some stay.
    #[command(after_help = "Examples:
  baltra device drain node-1/gpu0
  baltra device drain node-1/gpu0 --live
  BALTRA_TOKEN=... baltra device drain node-1/gpu0 --live
  baltra device drain gpu0 --live --json

With --live and node/name, sessions that no device of this node can continue move to other nodes of
the pool for which BALTRA_TOKEN is a token.")]
    Drain {
        /// node/name; with --live also a name on this node, which is then not cordoned
        device: String,
        /// Time to wait, seconds; 0: do not wait
        #[arg(
            long,
            value_name = "SECONDS",
            default_value_t = 60,
            conflicts_with = "live"
        )]
        wait: u64,
        #[command(flatten)]
        live: Live,
        #[command(flatten)]
        at: RegistryAt,
        #[command(flatten)]
        json: Json,
    },
    /// Load a device's driver anew under running programs; exit code 1 if sessions have kept the
    /// former one
    ///
    /// Suspends all sessions of a device of this node, ends its executors, and resumes the sessions
    /// in new executors, which load the driver that is installed now. If a session cannot be
    /// suspended, nothing changes.
    #[command(after_help = "Examples:
  baltra device upgrade-driver gpu0
  baltra device upgrade-driver gpu0 --force --json")]
    UpgradeDriver {
        /// The device, by name
        device: String,
        /// Continue without the sessions that cannot be suspended, which keep the former driver
        #[arg(long)]
        force: bool,
        /// Give up if a running command takes longer, milliseconds, at most 10000 [default: 2000]
        #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=10_000))]
        wait_ms: Option<u32>,
        #[command(flatten)]
        json: Json,
    },
}

/// `baltra device drain --live`
#[derive(Debug, ClapArgs)]
pub struct Live {
    /// Move the sessions of a device of this node
    #[arg(long)]
    pub live: bool,
    /// Give a session's move up if a running command takes longer, milliseconds, at most 10000
    /// [default: 2000]
    #[arg(
        long,
        value_name = "MS",
        requires = "live",
        value_parser = clap::value_parser!(u32).range(0..=10_000)
    )]
    pub wait_ms: Option<u32>,
    /// Move sessions although facts about the devices differ that programs may have read
    #[arg(long, requires = "live")]
    pub force: bool,
    /// A device of another node, NODE/NAME, tcp://HOST:PORT/NAME or tls://HOST:PORT/NAME, for
    /// sessions that no other device of this node can continue, before others of the pool;
    /// repeatable. BALTRA_TOKEN is a token there
    #[arg(long, value_name = "DEVICE", requires = "live")]
    pub to: Vec<String>,
}

/// `baltra instances`
#[derive(Debug, ClapArgs)]
pub struct Instances {
    /// Only instances of one function
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub function: String,
    /// Only one tenant's
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub tenant: String,
    /// Only instances with this device: node/name
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
    /// Create or change a pool
    #[command(after_help = "Example:\n  baltra pool add sobels --query accelerator=sobel")]
    Add {
        /// Its name
        name: String,
        /// Its members: all devices that match
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
    /// Remove a pool; its allocations stay
    #[command(after_help = "Example:\n  baltra pool rm sobels")]
    Rm {
        /// Its name
        name: String,
        #[command(flatten)]
        at: RegistryAt,
    },
}
