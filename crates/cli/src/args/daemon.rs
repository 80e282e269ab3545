//! Daemons' arguments.

use clap::Args as ClapArgs;
use std::path::PathBuf;

/// The configuration's layers.
#[derive(Clone, Debug, ClapArgs)]
pub struct Config {
    /// A TOML file over the embedded defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One key, with the highest precedence; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
    /// Directory of tenants, usage, images, functions and allocations
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// `baltra up`
#[derive(Debug, ClapArgs)]
pub struct Up {
    #[command(flatten)]
    pub config: Config,
    /// Print the resulting configuration and exit
    #[arg(long)]
    pub dump_config: bool,
    /// Stay in the foreground
    #[arg(long)]
    pub foreground: bool,
}

/// Arguments of every daemon's subcommand.
#[derive(Debug, ClapArgs)]
pub struct Background {
    /// Leave the terminal's session
    #[arg(long, hide = true)]
    pub detach: bool,
    /// Exit at the end of the standard input
    #[arg(long, hide = true)]
    pub leashed: bool,
}

/// `baltra manager`
#[derive(Debug, ClapArgs)]
pub struct Manager {
    #[command(flatten)]
    pub config: Config,
    /// The registry to join (node.registry)
    #[arg(long, value_name = "URL")]
    pub registry: Option<String>,
    #[command(flatten)]
    pub background: Background,
}

/// `baltra registry`
#[derive(Debug, ClapArgs)]
pub struct Registry {
    #[command(flatten)]
    pub config: Config,
    #[command(flatten)]
    pub background: Background,
}

/// `baltra gateway`
#[derive(Debug, ClapArgs)]
pub struct Gateway {
    #[command(flatten)]
    pub config: Config,
    #[command(flatten)]
    pub background: Background,
}
