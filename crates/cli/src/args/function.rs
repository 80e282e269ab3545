//! `baltra function`

use super::Json;
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

/// The gateway.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct Door {
    /// The gateway's address, http://host:port [default: this host's]
    #[arg(
        long,
        env = "BALTRA_GATEWAY",
        value_name = "URL",
        hide_env_values = true
    )]
    pub gateway: Option<String>,
    /// The password of the gateway's administrator, as user:password
    #[arg(
        long,
        env = "BALTRA_GATEWAY_ADMIN",
        value_name = "USER:PASSWORD",
        hide_env_values = true
    )]
    pub admin: Option<String>,
    /// The tenant's key, for calls
    #[arg(
        long,
        env = "BALTRA_API_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub key: Option<String>,
    /// Certificates to trust in addition to the public roots, PEM
    #[arg(
        long,
        env = "BALTRA_TLS_CA",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub ca: Option<PathBuf>,
}

/// `baltra function`
#[derive(Debug, Subcommand)]
pub enum Function {
    /// Create a function from a template
    #[command(
        after_help = "Examples:\n  baltra function init hello\n  baltra function init edges --template picture --dir functions/edges\n  baltra function init --list"
    )]
    Init {
        /// Its name
        #[arg(required_unless_present = "list")]
        name: Option<String>,
        /// The template
        #[arg(long, value_name = "NAME")]
        template: Option<String>,
        /// The directory [default: a new one with the function's name]
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// List the templates
        #[arg(long)]
        list: bool,
    },
    /// Deploy functions: manifests, functions' directories, or directories of those
    #[command(
        after_help = "Examples:\n  baltra function deploy sobel.yaml\n  baltra function deploy apps/functions"
    )]
    Deploy {
        /// Manifests or directories
        #[arg(required = true, value_name = "FILE|DIR")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        door: Door,
        #[command(flatten)]
        json: Json,
    },
    /// Put functions into a running board: images of regions, over its host port
    #[command(after_help = "Examples:
  baltra function push sobel.img --board board.sock
  baltra function push edges=sobel.img --scalars width --timeout 4000000 --board board.sock")]
    Push(Push),
    /// List the functions
    #[command(alias = "ls", after_help = "Example:\n  baltra function list --json")]
    List {
        #[command(flatten)]
        door: Door,
        #[command(flatten)]
        json: Json,
    },
    /// Show a function: its contract, replicas and statistics
    #[command(after_help = "Example:\n  baltra function describe sobel")]
    Describe {
        /// Its name
        name: String,
        #[command(flatten)]
        door: Door,
        #[command(flatten)]
        json: Json,
    },
    /// Call a function and write the response to stdout; exit code 1 if it fails
    #[command(after_help = "Examples:
  baltra function invoke sobel --data @photo.png > edges.png
  baltra function invoke sobel --data @photo.raw -q width=640 -q height=480 -o edges.raw
  echo '{\"a\": [1, 2], \"b\": [3, 4]}' | baltra function invoke add --type application/json")]
    Invoke(Invoke),
    /// Show a function's log
    #[command(
        after_help = "Examples:\n  baltra function logs sobel\n  baltra function logs sobel -f"
    )]
    Logs {
        /// Its name
        name: String,
        /// Follow the log
        #[arg(short, long)]
        follow: bool,
        /// Number of the newest lines
        #[arg(short = 'n', long, default_value_t = 200)]
        lines: usize,
        #[command(flatten)]
        door: Door,
    },
    /// Remove functions
    #[command(
        alias = "rm",
        after_help = "Examples:\n  baltra function remove sobel matmul\n  baltra function remove edges --board board.sock"
    )]
    Remove {
        /// Their names
        #[arg(required = true)]
        names: Vec<String>,
        /// Remove them from a running board, by its host port's socket
        #[arg(long, value_name = "PATH", conflicts_with = "gateway")]
        board: Option<PathBuf>,
        #[command(flatten)]
        door: Door,
    },
    /// Set the number of a function's replicas; 0: none until it is called
    #[command(after_help = "Example:\n  baltra function scale sobel 2")]
    Scale {
        /// Its name
        name: String,
        /// Number of replicas
        replicas: u32,
        #[command(flatten)]
        door: Door,
    },
}

/// `baltra function invoke`
#[derive(Debug, ClapArgs)]
pub struct Invoke {
    /// Its name, optionally with a path below it
    pub name: String,
    /// The body: a text, @file, or - for the standard input; by default the standard input if it is
    /// not a terminal
    #[arg(short, long, value_name = "TEXT|@FILE")]
    pub data: Option<String>,
    /// A query parameter; may be repeated
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub query: Vec<String>,
    /// A header; may be repeated
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// The body's type
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub content_type: Option<String>,
    /// The method
    #[arg(short = 'X', long, default_value = "POST")]
    pub method: String,
    /// File for the response
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Do not wait: print the call's id
    #[arg(long = "async")]
    pub deferred: bool,
    /// Print the response's status and headers on stderr
    #[arg(short, long)]
    pub include: bool,
    #[command(flatten)]
    pub door: Door,
}

/// `baltra function push`
#[derive(Debug, ClapArgs)]
pub struct Push {
    /// Images, each under its kernel's name or another one
    #[arg(required = true, value_name = "[NAME=]FILE")]
    pub images: Vec<String>,
    /// The socket of the board's host port (`baltra board --host-port`)
    #[arg(long, env = "BALTRA_BOARD_PORT", value_name = "PATH")]
    pub board: PathBuf,
    /// Query parameters that become the kernel's scalars, in their order [default: the image's own]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub scalars: Option<Vec<String>>,
    /// Limit of cycles per call; 0: none [default: the image's own, or 16777216]
    #[arg(long, value_name = "CYCLES")]
    pub timeout: Option<u32>,
    /// log2 of the cycles that the kernel takes for eight bytes [default: the image's own, or 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..8))]
    pub speed: Option<u32>,
    /// The kernel of an accelerator's image to which the function is bound
    #[arg(long, requires_all = ["args", "global"])]
    pub kernel: Option<String>,
    /// The kernel's arguments: `body` and `answer` for buffers; a number, a scalar, `body` for its bytes, or
    /// one of these divided by a number or a scalar
    #[arg(long, value_name = "ARG,…", value_delimiter = ',', requires = "kernel")]
    pub args: Option<Vec<String>>,
    /// The work-items of each dimension, such as width,body/width
    #[arg(
        long,
        value_name = "SIZE,…",
        value_delimiter = ',',
        requires = "kernel"
    )]
    pub global: Option<Vec<String>>,
    /// The bytes of the answer, such as body or 1024
    #[arg(
        long,
        value_name = "BYTES",
        requires = "kernel",
        default_value = "body"
    )]
    pub answer: String,
}
