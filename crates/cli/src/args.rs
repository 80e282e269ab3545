//! The command line.

mod board;
mod daemon;
mod demo;
mod function;
mod pool;
mod vm;

pub use board::{Board, BoardCommand, Network, Policy, Trace};
pub use daemon::{Background, Config, Gateway, Manager, Registry, Up};
pub use demo::{Demo, DemoProgram};
pub use function::{Door, Function, Invoke, Push};
pub use pool::{Device, Instances, Live, Pool, RegistryAt};
pub use vm::{Attach, Vfun, Vm};

use crate::daemons::Daemon;
use clap::{Args as ClapArgs, Parser, Subcommand};
use std::path::PathBuf;

/// Turns accelerators into shared services: unmodified OpenCL programs, one pool of devices
#[derive(Debug, Parser)]
#[command(name = "baltra", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Args {
    /// Directory of the daemon's sockets [default: $XDG_RUNTIME_DIR/baltra, /run/baltra or
    /// /tmp/baltra-UID]
    #[arg(
        long,
        global = true,
        env = "BALTRA_RUNTIME_DIR",
        value_name = "DIR",
        hide_env_values = true
    )]
    pub runtime_dir: Option<PathBuf>,
    /// The command to run
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  baltra demo                        share a device, compare pictures, leave nothing behind
  baltra up                          start everything on this host
  baltra run -- ./my-opencl-program  run a program on the shared device
  baltra function deploy sobel.yaml  a function that anyone can curl
  baltra top                         watch devices and tenants
  baltra down                        stop it again";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the daemons of this host and wait until they serve
    #[command(after_help = "Examples:
  baltra up
  baltra up --config baltra.toml --set executors.prestart=4
  baltra up --set device.driver=/usr/lib/x86_64-linux-gnu/libnvidia-opencl.so.1
  baltra up --dump-config > baltra.toml")]
    Up(Up),
    /// Stop the daemons: refuse new sessions, wait for the running ones, leave nothing running
    #[command(after_help = "Examples:\n  baltra down\n  baltra down --drain-ms 0")]
    Down {
        /// Time limit of running sessions, milliseconds [default: executors.drain_ms]
        #[arg(long, value_name = "MS")]
        drain_ms: Option<u64>,
    },
    /// Show the daemons' addresses and uptimes
    #[command(after_help = "Examples:\n  baltra status\n  baltra status --json")]
    Status(Json),
    /// Show a daemon's log
    #[command(
        after_help = "Examples:\n  baltra logs\n  baltra logs -f\n  baltra logs --daemon gateway -n 20"
    )]
    Logs {
        /// The daemon
        #[arg(long, value_name = "NAME", default_value = "manager")]
        daemon: Daemon,
        /// Follow the log
        #[arg(short, long)]
        follow: bool,
        /// Number of the newest lines
        #[arg(short = 'n', long, default_value_t = 200)]
        lines: usize,
    },
    /// Demonstrate Baltra on this host in a minute; starts and stops daemons of its own
    ///
    /// Runs one OpenCL program natively, through Baltra, and as four tenants at once, calls the
    /// same kernel as a function over HTTP, runs it as a circuit in simulation, and compares all
    /// results byte for byte. Needs an OpenCL driver, and for the circuit compilers (`baltra doctor`
    /// names them); leaves no process and no file behind.
    #[command(after_help = "Examples:
  baltra demo
  baltra demo --picture photo.jpg --output edges/
  baltra demo --set device.driver=/usr/lib/x86_64-linux-gnu/libpocl.so.2")]
    Demo(Demo),
    /// Run a program on the shared device
    #[command(after_help = "Examples:
  baltra run -- clinfo -l
  baltra run --tenant red -- ./sobel in.png out.png
  baltra run --standalone -- ./sobel in.png out.png
  baltra run --standalone --set device.driver=emulate: -- ./sobel in.png out.png
  baltra run --device 'vendor=Intel*,accelerator=sobel' --restart -- ./sobel in.png out.png
  baltra run --pool 2 -- ./sobel in.png out.png
  BALTRA_TOKEN=… baltra run --connect tls://node-1:7473 -- ./sobel in.png out.png")]
    Run(Run),
    /// List devices: the pool's if there is a registry, otherwise this node's
    #[command(after_help = "Examples:
  baltra devices
  baltra devices --local
  baltra devices --query 'vendor=NVIDIA*' --json
  BALTRA_ENDPOINT=tls://node-1 BALTRA_TOKEN=… baltra devices --json")]
    Devices(Devices),
    /// Cordon and drain devices of the pool
    #[command(subcommand)]
    Device(Device),
    /// Manage pools: names for the devices that match a query
    #[command(subcommand)]
    Pool(Pool),
    /// List instances and their allocated devices
    #[command(
        after_help = "Examples:\n  baltra instances\n  baltra instances --device node-1/gpu0 --json"
    )]
    Instances(Instances),
    /// Manage functions, which are called over HTTP
    #[command(subcommand)]
    Function(Function),
    /// Run the board's model: an FPGA that serves by itself, simulated from its RTL
    #[command(after_help = "Examples:
  baltra board --net user --forward 8080
  baltra board --tap tap0 --regions 2 --functions my-functions/
  baltra board --tap tap0 --functions my-functions/ --store 10.99.0.1:8000/images
  baltra board trace uppercase --body 'some words' --out request.vcd")]
    Board(Board),
    /// Open sessions
    #[command(after_help = "Examples:\n  baltra sessions\n  baltra sessions --json")]
    Sessions(Json),
    /// List sessions and move them to other devices while their programs run
    #[command(subcommand)]
    Session(Session),
    /// Watch devices and tenants: utilization, queue, memory
    #[command(after_help = "Examples:\n  baltra top\n  baltra top --once")]
    Top {
        /// Print one table and exit
        #[arg(long)]
        once: bool,
        /// Interval of updates, milliseconds
        #[arg(long, default_value_t = 1000, value_name = "MS", value_parser = clap::value_parser!(u64).range(50..))]
        interval_ms: u64,
        #[command(flatten)]
        json: Json,
    },
    /// Check this host's configuration, with remedies
    #[command(
        after_help = "Examples:\n  baltra doctor\n  baltra doctor --json\n  baltra doctor --bundle report.tar.gz"
    )]
    Doctor(Doctor),
    /// Manage tenants: shares and quotas
    #[command(subcommand)]
    Tenant(Tenant),
    /// Manage accelerators: the images of exclusive devices
    #[command(subcommand)]
    Accelerator(Accelerator),
    /// Check, build and run clusters of message-passing ranks
    #[command(subcommand)]
    Cluster(baltra_cluster::Command),
    Simulate(baltra_simulate::Args),
    #[command(subcommand)]
    #[cfg(feature = "kubernetes")]
    Kubernetes(baltra_kubernetes::Command),
    /// Run the Device Manager in the foreground (`baltra up` starts it in the background)
    #[command(after_help = "Examples:
  baltra manager --config /etc/baltra.toml
  baltra manager --registry http://registry-1:7480 --set listen.tcp=0.0.0.0:7473")]
    Manager(Manager),
    /// Run the Accelerators Registry in the foreground
    #[command(after_help = "Examples:
  baltra registry --config /etc/baltra.toml
  baltra registry --set registry.address=0.0.0.0:7480 --set registry.token_file=/etc/baltra/token")]
    Registry(Registry),
    /// Run the HTTP gateway in the foreground
    #[command(after_help = "Examples:
  baltra gateway --config /etc/baltra.toml
  baltra gateway --set gateway.registry=http://registry-1:7480 --set gateway.address=127.0.0.1:8088")]
    Gateway(Gateway),
    /// Run the VM door in the foreground: guests call functions through shared memory
    #[command(after_help = "Examples:
  baltra vfun --functions target/functions
  baltra vfun --functions /var/lib/baltra/functions --endpoint unix:/run/baltra/baltra.sock")]
    Vfun(Vfun),
    /// Manage VMs and the functions that they may call
    #[command(subcommand)]
    Vm(Vm),
    /// Show the version of Baltra and of its protocols
    #[command(after_help = "Examples:\n  baltra version\n  baltra version --json")]
    Version(Json),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  baltra completion bash > ~/.local/share/bash-completion/completions/baltra
  baltra completion fish > ~/.config/fish/completions/baltra.fish")]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the names that may be at the cursor; completion scripts call it
    #[command(hide = true)]
    Complete(Complete),
    /// Write the manual pages of all commands to a directory
    #[command(hide = true)]
    Manual {
        /// The directory
        directory: PathBuf,
    },
    /// The OpenCL program of the demonstration; `baltra demo` starts it
    #[command(hide = true)]
    DemoProgram(DemoProgram),
    /// A process that runs a native function; the gateway starts it
    #[command(hide = true)]
    NativeWorker {
        /// Arguments from the gateway
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// A process that serves one VM; `baltra vfun` starts it
    #[command(hide = true)]
    VfunWorker,
    /// A process that drives a vendor's driver; the manager starts it
    #[command(hide = true)]
    Executor(Executor),
    /// Keep a suspended session for a manager
    #[command(hide = true)]
    Keeper(Keeper),
    /// Carry the messages of a session on another node for a manager
    #[command(hide = true)]
    Forwarder(Forwarder),
    /// A process that lists the devices of one driver; the manager starts it
    #[command(hide = true)]
    Probe(Probe),
    /// A process that relays one remote client; the manager starts it
    #[command(hide = true)]
    Relay(Relay),
}

/// `baltra session`
#[derive(Debug, Subcommand)]
pub enum Session {
    /// List the open sessions with their memory, whether they can move, and which are suspended
    #[command(after_help = "Examples:\n  baltra session ls\n  baltra session ls --json")]
    Ls(Json),
    /// Move a session to another device of this node, or of another one; its program notices a pause
    #[command(after_help = "Examples:
  baltra session move 4294967297 --to gpu1
  baltra session move 4294967297 --to cpu0 --force --json
  BALTRA_TOKEN=... baltra session move 4294967297 --to node-2/gpu0
  BALTRA_TOKEN=... baltra session move 4294967297 --to tls://node-2:7473/gpu0

With NODE/NAME, the registry has the address of the node, and refuses devices that are cordoned or
that do not fit the query of the program's instance. The token is one of the other node (`baltra
tenant token` there). BALTRA_TLS_CA names a file of certificate authorities for TLS.")]
    Move {
        /// Its number (`baltra session ls`)
        session: u64,
        /// The device, by name; on another node NODE/NAME, as in the pool, or tcp://HOST:PORT/NAME
        /// or tls://HOST:PORT/NAME
        #[arg(long, value_name = "DEVICE")]
        to: String,
        /// Give the move up if a running command takes longer, milliseconds, at most 10000
        /// [default: 2000]
        #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=10_000))]
        wait_ms: Option<u32>,
        /// Move although facts about the devices differ that the program may have read
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        json: Json,
    },
    /// Write a session's state to the disk and free its device; its program waits in its next call
    #[command(after_help = "Examples:
  baltra session suspend 4294967297
  baltra session suspend 4294967297 --wait-ms 10000 --json")]
    Suspend {
        /// Its number (`baltra session ls`)
        session: u64,
        /// Give up if a running command takes longer, milliseconds, at most 10000 [default: 2000]
        #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=10_000))]
        wait_ms: Option<u32>,
        #[command(flatten)]
        json: Json,
    },
    /// Continue a suspended session
    #[command(after_help = "Examples:
  baltra session resume 4294967297
  baltra session resume 4294967297 --to gpu1")]
    Resume {
        /// Its number (`baltra session ls`)
        session: u64,
        /// Another device of this node, by name [default: the one that it was on]
        #[arg(long, value_name = "DEVICE")]
        to: Option<String>,
        /// Resume although facts about the devices differ that the program may have read
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        json: Json,
    },
}

/// `baltra complete`
#[derive(Debug, ClapArgs)]
pub struct Complete {
    /// The number of the word at the cursor, from 0
    pub index: usize,
    /// The words of the command line, from the program's name
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// `baltra probe`
#[derive(Debug, ClapArgs)]
pub struct Probe {
    /// The vendor's library
    #[arg(long)]
    pub driver: String,
    /// Its private directory
    #[arg(long)]
    pub work_dir: PathBuf,
    /// Do not drop privileges (for debugging)
    #[arg(long)]
    pub no_sandbox: bool,
}

/// `baltra relay`
#[derive(Debug, ClapArgs)]
pub struct Relay {
    /// The manager's socket for relays
    #[arg(long)]
    pub manager: PathBuf,
    /// Time limit for a session that comes from another node, milliseconds
    #[arg(long)]
    pub arrival_timeout_ms: Option<u64>,
    /// Certificate chain, PEM
    #[arg(long, requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key, PEM
    #[arg(long, requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

/// Machine-readable output.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct Json {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `baltra doctor`
#[derive(Debug, ClapArgs)]
pub struct Doctor {
    #[command(flatten)]
    pub json: Json,
    /// Write the checks, the state and the logs of the daemons to an archive, without secrets
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub bundle: Option<PathBuf>,
}

/// `baltra devices`
#[derive(Debug, ClapArgs)]
pub struct Devices {
    /// This node's devices, with operators' details
    #[arg(long, conflicts_with = "query")]
    pub local: bool,
    /// The pool's devices that match: key=value,… with the keys vendor, platform, model, node,
    /// accelerator, …
    #[arg(long, value_name = "QUERY")]
    pub query: Option<String>,
    /// Include the pool's devices on nodes without heartbeats
    #[arg(long, conflicts_with = "local")]
    pub all: bool,
    #[command(flatten)]
    pub at: RegistryAt,
    #[command(flatten)]
    pub json: Json,
}

/// `baltra run`
#[derive(Debug, ClapArgs)]
pub struct Run {
    /// Start a private daemon while the program runs
    #[arg(long)]
    pub standalone: bool,
    /// Restrict the program to this device: by name, or one that the registry allocates for a query
    /// (key=value,… with the keys vendor, platform, model, node, accelerator, …)
    #[arg(long, value_name = "NAME|QUERY")]
    pub device: Option<String>,
    /// Number of devices, with a query
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256), conflicts_with = "pool")]
    pub count: u32,
    /// Present several devices to the program as one: a number, or names with weights (a=2,b=1)
    #[arg(long, value_name = "N|NAME=WEIGHT,…")]
    pub pool: Option<AsOne>,
    /// The instance's name in the pool, with a query [default: a generated one]
    #[arg(long, value_name = "NAME")]
    pub instance: Option<String>,
    #[command(flatten)]
    pub at: RegistryAt,
    /// Run as this tenant
    #[arg(long, value_name = "NAME", env = "BALTRA_TENANT")]
    pub tenant: Option<String>,
    /// Use the Device Manager at this address: unix:/path, tcp://host:port or tls://host:port
    #[arg(long, value_name = "ENDPOINT", conflicts_with = "standalone")]
    pub connect: Option<baltra_session::Endpoint>,
    /// Restart the program when it fails
    #[arg(long)]
    pub restart: bool,
    /// Policy for leaving a device, with a query: live (the program's sessions move while it runs,
    /// if they can) or restart (with --restart) [default: 'registry.move_policy' of the registry]
    #[arg(long = "move", value_name = "HOW", value_parser = ["live", "restart"])]
    pub move_policy: Option<String>,
    /// A key of the daemon's configuration, with --standalone; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE", requires = "standalone")]
    pub set: Vec<String>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<std::ffi::OsString>,
}

/// The devices that a program sees as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsOne {
    /// This number of the program's devices.
    Count(u32),
    /// The value of `BALTRA_POOL`: names, each with its weight.
    Named(String),
}

impl std::str::FromStr for AsOne {
    type Err = String;

    fn from_str(text: &str) -> Result<AsOne, String> {
        match text.trim().parse() {
            Ok(count @ 1..=256) => Ok(AsOne::Count(count)),
            Ok(_) => Err("the number of devices is 1 to 256".into()),
            Err(_) if text.trim().is_empty() => Err("a number or names are required".into()),
            Err(_) => Ok(AsOne::Named(text.trim().to_owned())),
        }
    }
}

impl std::fmt::Display for AsOne {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AsOne::Count(count) => count.fmt(f),
            AsOne::Named(names) => names.fmt(f),
        }
    }
}

/// A tenant's quota; omitted values are unchanged.
#[derive(Clone, Debug, Default, ClapArgs)]
#[group(id = "limits")]
pub struct Quota {
    /// Device memory of all sessions together (512M, 4G, …)
    #[arg(long, value_name = "BYTES", value_parser = crate::output::parse_bytes)]
    pub memory: Option<u64>,
    /// Arena memory of a session
    #[arg(long, value_name = "BYTES", value_parser = crate::output::parse_bytes)]
    pub arena: Option<u64>,
    /// Live objects in a session
    #[arg(long, value_name = "N")]
    pub objects: Option<u32>,
    /// Incomplete commands in a queue
    #[arg(long, value_name = "N")]
    pub queued: Option<u32>,
    /// Time limit of a task, milliseconds; 0: none
    #[arg(long, value_name = "MS")]
    pub task_ms: Option<u64>,
    /// Open sessions
    #[arg(long, value_name = "N")]
    pub sessions: Option<u32>,
    /// Users (by number) who may act as the tenant; may be repeated
    #[arg(long, value_name = "UID")]
    pub user: Vec<u32>,
}

/// `baltra tenant`
#[derive(Debug, Subcommand)]
pub enum Tenant {
    /// Add a tenant
    #[command(after_help = "Example:\n  baltra tenant add red --weight 2 --memory 4G --user 1000")]
    Add {
        /// Its name
        name: String,
        /// Its weight in sharing device time (policy fair)
        #[arg(long, default_value_t = 1)]
        weight: u32,
        /// Its priority; higher goes first (policy priority)
        #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
        priority: i32,
        /// Guaranteed percent of a device's time (policy fair); 0: by weight
        #[arg(long, default_value_t = 0, value_name = "PERCENT")]
        share: u32,
        /// Limit of a device's time, percent; 0: none
        #[arg(long, default_value_t = 0, value_name = "PERCENT")]
        share_max: u32,
        #[command(flatten)]
        quota: Quota,
    },
    /// List the tenants
    #[command(after_help = "Example:\n  baltra tenant ls --json")]
    Ls(Json),
    /// Change a tenant's quota
    #[command(after_help = "Example:\n  baltra tenant quota red --memory 8G --weight 3")]
    Quota {
        /// The tenant
        name: String,
        /// Its weight in sharing device time (policy fair)
        #[arg(long)]
        weight: Option<u32>,
        /// Its priority; higher goes first (policy priority)
        #[arg(long, allow_negative_numbers = true)]
        priority: Option<i32>,
        #[command(flatten)]
        quota: Quota,
    },
    /// Create a new token for a tenant and print it once; the old one becomes invalid
    #[command(after_help = "Example:\n  BALTRA_TOKEN=$(baltra tenant token red)")]
    Token {
        /// The tenant
        name: String,
    },
    /// Show tenants' usage, by device
    #[command(after_help = "Examples:\n  baltra tenant usage\n  baltra tenant usage red --json")]
    Usage {
        /// One tenant only
        name: Option<String>,
        #[command(flatten)]
        json: Json,
    },
    /// Remove a tenant; its executors end
    #[command(after_help = "Example:\n  baltra tenant rm red")]
    Rm {
        /// The tenant
        name: String,
    },
}

/// `baltra accelerator`
#[derive(Debug, Subcommand)]
pub enum Accelerator {
    /// Compile OpenCL C to hardware: an image for emulated accelerators
    #[command(after_help = "Examples:
  baltra accelerator build sobel.cl
  baltra accelerator build matmul.cl -o matmul.img --options '-D TILE=16'
  baltra accelerator build sobel.cl --json")]
    Build(AcceleratorBuild),
    /// Compile what all programs share, which the first build does otherwise; for executors
    #[command(hide = true)]
    Prepare {
        /// The hardware tree (hdl)
        tree: PathBuf,
        /// The folder in which it is kept
        shared: PathBuf,
    },
    /// Show an image's kernels: arguments, loops, memories, estimated area
    #[command(after_help = "Examples:
  baltra accelerator report sobel.img
  baltra accelerator report sobel.img --json
  baltra accelerator report sobel.img --html --source sobel.cl -o sobel.html")]
    Report(AcceleratorReport),
    /// Store an image
    #[command(
        after_help = "Example:\n  baltra accelerator push sobel.bit --name sobel --kernels sobel,blur"
    )]
    Push {
        /// The image
        file: PathBuf,
        /// Its name
        #[arg(long)]
        name: String,
        /// The kernels in it, separated by commas
        #[arg(long, value_delimiter = ',')]
        kernels: Vec<String>,
        /// The devices for which it is built: a pattern of their model or name; empty: unknown
        #[arg(long, default_value = "")]
        target: String,
    },
    /// List the images
    #[command(after_help = "Example:\n  baltra accelerator ls --json")]
    Ls(Json),
    /// Remove an image, by name or digest
    #[command(after_help = "Example:\n  baltra accelerator rm sobel")]
    Rm {
        /// Its name, digest, or six or more digits of that
        accelerator: String,
    },
    /// Load an image on an exclusive device
    #[command(after_help = "Example:\n  baltra accelerator load sobel --device fpga0")]
    Load {
        /// Its name, digest, or six or more digits of that
        accelerator: String,
        /// The device
        #[arg(long)]
        device: String,
    },
}

/// A part that kernels are placed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AcceleratorTarget {
    /// LFE5UM5G-85F of speed grade 8
    #[value(name = "ecp5-85f")]
    Ecp5,
}

/// `baltra accelerator build`
#[derive(Debug, ClapArgs)]
pub struct AcceleratorBuild {
    /// The source, OpenCL C; or several sources and objects, which are linked
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The result; default: the first file's name with the ending .img, .obj or .lib
    #[arg(short, long, value_name = "IMAGE")]
    pub output: Option<PathBuf>,
    /// Compile one source to an object, which is linked later
    #[arg(short, long, conflicts_with_all = ["create_library", "json"])]
    pub compile: bool,
    /// Link the files to a library, which is linked with others later
    #[arg(long, conflicts_with = "json")]
    pub create_library: bool,
    /// Also place and route the kernels for this part, with Yosys and nextpnr (minutes)
    #[arg(long, value_name = "PART", conflicts_with_all = ["compile", "create_library"])]
    pub target: Option<AcceleratorTarget>,
    /// Options as for clBuildProgram
    #[arg(
        long,
        default_value = "",
        allow_hyphen_values = true,
        value_name = "OPTIONS"
    )]
    pub options: String,
    /// The hardware tree (hdl); default: BALTRA_HDL, or found beside this program
    #[arg(long, value_name = "DIR")]
    pub tree: Option<PathBuf>,
    #[command(flatten)]
    pub json: Json,
    /// Give up all other directories but this one, which may be written: for a tenant's source
    #[arg(long, hide = true, value_name = "DIR")]
    pub confined: Option<PathBuf>,
    /// With --confined: a directory that headers may be read from
    #[arg(long, hide = true, requires = "confined", value_name = "DIR")]
    pub headers: Option<PathBuf>,
    /// With --confined: the folder of what all programs share
    #[arg(long, hide = true, requires = "confined", value_name = "DIR")]
    pub shared: Option<PathBuf>,
}

/// `baltra accelerator report`
#[derive(Debug, ClapArgs)]
pub struct AcceleratorReport {
    /// The image
    pub image: PathBuf,
    #[command(flatten)]
    pub json: Json,
    /// Print a page, which also has the schedule of each loop and the area of each part
    #[arg(long, conflicts_with = "json")]
    pub html: bool,
    /// The page's file [default: standard output]
    #[arg(short, long, value_name = "FILE", requires = "html")]
    pub output: Option<PathBuf>,
    /// The source of the image, for the page: shown with line numbers that the tables link to
    #[arg(long, value_name = "FILE", requires = "html")]
    pub source: Option<PathBuf>,
}

/// `baltra keeper`
#[derive(Debug, ClapArgs)]
pub struct Keeper {
    /// The device's name in the configuration
    #[arg(long)]
    pub name: String,
    /// Maximum bytes of its file
    #[arg(long)]
    pub bytes_max: u64,
    /// Do not drop privileges (for debugging)
    #[arg(long)]
    pub no_sandbox: bool,
    /// Socket to reconnect to after the manager restarts
    #[arg(long)]
    pub adopt: Option<PathBuf>,
}

/// `baltra forwarder`
#[derive(Debug, ClapArgs)]
pub struct Forwarder {
    /// The device's name in the configuration
    #[arg(long)]
    pub name: String,
    /// Socket to reconnect to after the manager restarts
    #[arg(long)]
    pub adopt: Option<PathBuf>,
}

/// `baltra executor`
#[derive(Debug, ClapArgs)]
pub struct Executor {
    /// The device's name in the configuration
    #[arg(long)]
    pub name: String,
    /// The vendor's library
    #[arg(long)]
    pub driver: String,
    /// The index of its device
    #[arg(long, default_value = "")]
    pub select: String,
    /// Spin time of queues, microseconds
    #[arg(long, default_value_t = 50)]
    pub spin_us: u64,
    /// Its private directory
    #[arg(long)]
    pub work_dir: PathBuf,
    /// Directory of the tenants' caches for compiled kernels
    #[arg(long)]
    pub cache_root: Option<PathBuf>,
    /// Socket to reconnect to after the manager restarts
    #[arg(long)]
    pub adopt: Option<PathBuf>,
    /// Do not drop privileges (for debugging)
    #[arg(long)]
    pub no_sandbox: bool,
    /// Keep buffers out of clients' memory
    #[arg(long)]
    pub no_host_memory: bool,
    /// Report commands that belong to traces to the manager
    #[arg(long)]
    pub traces: bool,
    /// Time limit of an ended session's commands while other sessions use the process,
    /// milliseconds; by the device's kind if absent
    #[arg(long)]
    pub orphan_ms: Option<u64>,
    /// Time for which a command may block commands of ended sessions, milliseconds; 0: unlimited;
    /// 30,000 if absent
    #[arg(long)]
    pub contended_ms: Option<u64>,
    /// The limit of all memory objects together, as a multiple of the device's memory; if absent, 4
    /// on a GPU with memory of its own or with --memory-bytes, otherwise 1
    #[arg(long)]
    pub memory_overcommit: Option<u32>,
    /// Bytes that objects may take on the device, with --memory-overcommit; most of its memory if
    /// absent
    #[arg(long)]
    pub memory_bytes: Option<u64>,
    /// Maximum time for which a waiting tenant waits for the slices of a long launch, microseconds;
    /// 0: launches stay whole
    #[arg(long, default_value_t = 0)]
    pub slice_us: u64,
}
