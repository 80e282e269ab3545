//! The board's arguments.

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

/// The board's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// A host behind a TAP device
    Tap,
    /// Its HTTP port forwarded to a port of this host
    User,
}

/// The order of waiting calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// The oldest one
    Fifo,
    /// One whose function is loaded: fewest reconfigurations
    Affinity,
    /// The one with the shortest time
    Shortest,
}

/// An address, a port and a path; the model checks the path.
fn store(text: &str) -> Result<String, String> {
    let (server, _) = text
        .split_once('/')
        .ok_or("missing path: expected IP:PORT/PATH")?;
    match server.parse::<SocketAddrV4>() {
        Ok(address) if address.port() != 0 && !address.ip().is_unspecified() => Ok(text.to_owned()),
        _ => Err(format!("invalid server '{server}': expected IP:PORT")),
    }
}

/// `baltra board`
#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Board {
    #[command(subcommand)]
    pub command: Option<BoardCommand>,
    /// TAP device for the board's Ethernet port; needs root, or permission to open the device
    #[arg(long, value_name = "NAME", required_unless_present_any = ["net", "replay"])]
    pub tap: Option<String>,
    /// The network; `user` needs neither a device nor root
    #[arg(long, value_name = "KIND")]
    pub net: Option<Network>,
    /// Its address on this host, with `--net user` [default: 127.0.0.1:8080]
    #[arg(long, value_name = "[ADDRESS:]PORT", conflicts_with = "tap")]
    pub forward: Option<String>,
    /// The board's address [default: 10.99.0.2]
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Option<Ipv4Addr>,
    /// The board's HTTP port [default: 80]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Number of regions, and so of loaded functions
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=8))]
    pub regions: u8,
    /// Functions: a directory with functions.conf and images [default: those built in]
    #[arg(long, value_name = "DIR")]
    pub functions: Option<PathBuf>,
    /// HTTP server with the images of functions marked @store: PATH/NAME.img
    #[arg(long, value_name = "IP:PORT/PATH", conflicts_with = "net", value_parser = store)]
    pub store: Option<String>,
    /// The gateway to a store in another network
    #[arg(long, value_name = "ADDRESS", requires = "store")]
    pub gateway: Option<Ipv4Addr>,
    /// The netmask of the board's network [default: 255.255.255.0]
    #[arg(long, value_name = "ADDRESS", requires = "gateway")]
    pub netmask: Option<Ipv4Addr>,
    /// The order of waiting calls [default: affinity]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<Policy>,
    /// A socket for programs of this host: `baltra function push`, a Device Manager
    #[arg(long, value_name = "PATH")]
    pub host_port: Option<PathBuf>,
    /// Capture every frame, with its cycle, in this file
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Replay a capture of `--pcap` without a network; needs the same options and seed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tap", "net"])]
    pub replay: Option<PathBuf>,
    /// Seed of the cookies' secret [default: random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// `baltra board …`
#[derive(Debug, Subcommand)]
pub enum BoardCommand {
    /// Write a waveform of one request, for GTKWave, and print the cycles of its stages
    #[command(after_help = "Examples:
  baltra board trace uppercase --body 'some words'
  baltra board trace 'sobel?width=8' --body-file picture.raw --cold --out sobel.vcd
  baltra board --tap tap0 --seed 1 --pcap frames; baltra board trace --replay frames --seed 1 --request 3")]
    Trace(Trace),
}

/// `baltra board trace`
#[derive(Debug, ClapArgs)]
pub struct Trace {
    /// The call, on a separate board: a function's name, with its scalars as a query
    #[arg(value_name = "FUNCTION[?SCALAR=N]", required_unless_present = "replay")]
    pub call: Option<String>,
    /// Its body
    #[arg(long, value_name = "TEXT", conflicts_with = "replay")]
    pub body: Option<String>,
    /// A file with its body
    #[arg(long, value_name = "FILE", conflicts_with_all = ["body", "replay"])]
    pub body_file: Option<PathBuf>,
    /// The first call of the function, which loads it; by default the second
    #[arg(long, conflicts_with = "replay")]
    pub cold: bool,
    /// Use a request from a capture of `--pcap` instead
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "call",
        requires = "request"
    )]
    pub replay: Option<PathBuf>,
    /// The request: the Nth segment with data for the HTTP port, from 1
    #[arg(long, value_name = "N", requires = "replay", conflicts_with = "call", value_parser = clap::value_parser!(u32).range(1..))]
    pub request: Option<u32>,
    /// The waveform
    #[arg(long, value_name = "FILE", default_value = "request.vcd")]
    pub out: PathBuf,
    /// Functions: a directory with functions.conf and images [default: those built in]
    #[arg(long, value_name = "DIR")]
    pub functions: Option<PathBuf>,
    /// The seed that the board ran with
    #[arg(long, value_name = "N", requires = "replay", conflicts_with = "call")]
    pub seed: Option<u64>,
}
