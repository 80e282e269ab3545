//! The board's arguments.

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

/// How the board is on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// It is a host behind a TAP device
    Tap,
    /// Its HTTP port is a port of this host
    User,
}

/// Which of the waiting calls goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// The oldest one
    Fifo,
    /// One whose function is loaded: fewest reconfigurations
    Affinity,
    /// The one that takes the least time
    Shortest,
}

/// An address, a port and a path; the model checks the path.
fn store(text: &str) -> Result<String, String> {
    let (server, _) = text.split_once('/').ok_or("there is no path")?;
    match server.parse::<SocketAddrV4>() {
        Ok(address) if address.port() != 0 && !address.ip().is_unspecified() => Ok(text.to_owned()),
        _ => Err(format!("'{server}' is no IP:PORT")),
    }
}

/// `baltra board`
#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Board {
    #[command(subcommand)]
    pub command: Option<BoardCommand>,
    /// TAP device that is the board's Ethernet port; whoever may open it need not be root
    #[arg(long, value_name = "NAME", required_unless_present_any = ["net", "replay"])]
    pub tap: Option<String>,
    /// The network; `user` needs neither a device nor root
    #[arg(long, value_name = "KIND")]
    pub net: Option<Network>,
    /// Where it answers, with `--net user` [default: 127.0.0.1:8080]
    #[arg(long, value_name = "[ADDRESS:]PORT", conflicts_with = "tap")]
    pub forward: Option<String>,
    /// The board's address [default: 10.99.0.2]
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Option<Ipv4Addr>,
    /// The board's HTTP port [default: 80]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Regions: how many functions are loaded at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=8))]
    pub regions: u8,
    /// Functions: a directory with functions.conf and images [default: those built in]
    #[arg(long, value_name = "DIR")]
    pub functions: Option<PathBuf>,
    /// Where the images are of functions whose line says @store: PATH/NAME.img, from an HTTP server
    #[arg(long, value_name = "IP:PORT/PATH", conflicts_with = "net", value_parser = store)]
    pub store: Option<String>,
    /// The way to a store in another network
    #[arg(long, value_name = "ADDRESS", requires = "store")]
    pub gateway: Option<Ipv4Addr>,
    /// What is not beyond the gateway [default: 255.255.255.0]
    #[arg(long, value_name = "ADDRESS", requires = "gateway")]
    pub netmask: Option<Ipv4Addr>,
    /// Which call goes next [default: affinity]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<Policy>,
    /// A socket for programs of this host: `baltra function push`, a Device Manager
    #[arg(long, value_name = "PATH")]
    pub host_port: Option<PathBuf>,
    /// Keep every frame, and its cycle, in this file
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// No network: play what `--pcap` kept, with the options and the seed that it was made with
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tap", "net"])]
    pub replay: Option<PathBuf>,
    /// Of the cookies' secret, which is random otherwise
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
    /// The call, on a board of its own: a function's name, with its scalars as a query
    #[arg(value_name = "FUNCTION[?SCALAR=N]", required_unless_present = "replay")]
    pub call: Option<String>,
    /// Its body
    #[arg(long, value_name = "TEXT", conflicts_with = "replay")]
    pub body: Option<String>,
    /// Its body is what is in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["body", "replay"])]
    pub body_file: Option<PathBuf>,
    /// The first call of the function, for which it is loaded; else the second
    #[arg(long, conflicts_with = "replay")]
    pub cold: bool,
    /// A request of a board that ran instead: what its `--pcap` kept
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "call",
        requires = "request"
    )]
    pub replay: Option<PathBuf>,
    /// Which one: the Nth segment with bytes for the HTTP port in it, from 1 on
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
