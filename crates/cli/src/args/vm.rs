//! The VM door's arguments.

use super::Json;
use crate::output::parse_bytes;
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

/// `baltra vfun`
#[derive(Debug, ClapArgs)]
pub struct Vfun {
    /// Where the functions are, a directory each
    #[arg(long, value_name = "DIR")]
    pub functions: PathBuf,
    /// Where VMs are remembered [default: as the other daemons]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// A Device Manager for functions on accelerators; may be repeated. None: software only
    #[arg(long, value_name = "ENDPOINT")]
    pub endpoint: Vec<baltra_session::Endpoint>,
    /// Leave the workers everything that the daemon may do (for debugging)
    #[arg(long)]
    pub no_sandbox: bool,
}

/// `baltra vm`
#[derive(Debug, Subcommand)]
pub enum Vm {
    /// Give a VM its region; prints the lines for QEMU and libvirt
    #[command(after_help = "Examples:
  baltra vm attach web --functions fibonacci,factorial
  baltra vm attach web --functions sobel --memory 64M --parts 4 --call-ms 2000
  baltra vm attach web --opencl --tenant red --memory 256M --parts 4")]
    Attach(Box<Attach>),
    /// List the VMs
    #[command(after_help = "Example:\n  baltra vm ls --json")]
    Ls(Json),
    /// Take a VM's region away; its calls end
    #[command(after_help = "Example:\n  baltra vm detach web")]
    Detach {
        /// Its name
        name: String,
    },
}

/// `baltra vm attach`
#[derive(Debug, ClapArgs)]
pub struct Attach {
    /// Its name
    pub name: String,
    /// The functions that it may call, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub functions: Vec<String>,
    /// Its region, a power of two
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "16M")]
    pub memory: u64,
    /// Applications at a time; they share the region equally
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub parts: u32,
    /// Functions that an application may hold at a time
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub handles: u32,
    /// Calls at a time, all applications together
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub calls: u32,
    /// A call that takes longer is ended, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    pub call_ms: u64,
    /// Memory of a call beside the region
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "256M")]
    pub call_memory: u64,
    /// Whose account its calls on devices go to
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub tenant: String,
    /// The user, by number, that QEMU runs as, if not root or the daemon's own
    #[arg(long, value_name = "UID")]
    pub user: Option<u32>,
    /// Let its programs open OpenCL sessions, as the tenant. Each has all its memory in one of the
    /// region's parts: give it some tens of MiB
    #[arg(long)]
    pub opencl: bool,
    /// Let its programs connect here by TCP, for a VM without the device; port 0: one that is free.
    /// Whoever reaches the address is the VM: let nobody else reach it
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub tcp: Option<std::net::SocketAddr>,
    /// For ivshmem-plain: a path instead of a socket
    #[arg(long)]
    pub plain: bool,
    #[command(flatten)]
    pub json: Json,
}
