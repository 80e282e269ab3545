//! Arguments of the VM door.

use super::{Json, RegistryAt};
use crate::output::parse_bytes;
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

/// `baltra vfun`
#[derive(Debug, ClapArgs)]
pub struct Vfun {
    /// Directory of the functions, one subdirectory each
    #[arg(long, value_name = "DIR")]
    pub functions: PathBuf,
    /// Directory of the VMs' state [default: as the other daemons]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// A Device Manager for functions on accelerators; may be repeated. None: software only
    #[arg(long, value_name = "ENDPOINT")]
    pub endpoint: Vec<baltra_session::Endpoint>,
    #[command(flatten)]
    pub at: RegistryAt,
    /// Do not drop the workers' privileges (for debugging)
    #[arg(long)]
    pub no_sandbox: bool,
}

/// `baltra vm`
#[derive(Debug, Subcommand)]
pub enum Vm {
    /// Create a VM's region and print the options for QEMU and libvirt
    #[command(after_help = "Examples:
  baltra vm attach web --functions fibonacci,factorial
  baltra vm attach web --functions sobel --memory 64M --parts 4 --call-ms 2000
  baltra vm attach web --opencl --tenant red --memory 256M --parts 4")]
    Attach(Box<Attach>),
    /// List the VMs
    #[command(after_help = "Example:\n  baltra vm ls --json")]
    Ls(Json),
    /// Remove a VM's region and end its calls
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
    /// Size of its region, a power of two
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "16M")]
    pub memory: u64,
    /// Concurrent applications, which share the region equally
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub parts: u32,
    /// Functions that an application may hold concurrently
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub handles: u32,
    /// Concurrent calls of all applications
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub calls: u32,
    /// Time limit of a call, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    pub call_ms: u64,
    /// Memory of a call in addition to the region
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "256M")]
    pub call_memory: u64,
    /// The tenant to which its calls on devices are charged
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub tenant: String,
    /// The user, by number, that QEMU runs as, if not root or the daemon's own
    #[arg(long, value_name = "UID")]
    pub user: Option<u32>,
    /// Allow OpenCL sessions, as the tenant. Each session's memory is one of the region's parts:
    /// use tens of MiB per part
    #[arg(long)]
    pub opencl: bool,
    /// Accept its programs by TCP at this address, for a VM without the device; port 0: a free one.
    /// The address is not authenticated: only the VM may reach it
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub tcp: Option<std::net::SocketAddr>,
    /// For ivshmem-plain: a path instead of a socket
    #[arg(long)]
    pub plain: bool,
    #[command(flatten)]
    pub json: Json,
}
