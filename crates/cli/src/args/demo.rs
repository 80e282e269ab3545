//! `baltra demo` and `baltra version`

use clap::Args as ClapArgs;
use std::path::PathBuf;

/// `baltra demo`
#[derive(Debug, ClapArgs)]
pub struct Demo {
    /// A PNG or JPEG file to find the edges of [default: a photograph in the program]
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// Keep the pictures in this directory
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// A key of the daemons' configuration, for example to select a device; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
}

/// `baltra demo-program`: the OpenCL program of the demonstration.
#[derive(Debug, ClapArgs)]
pub struct DemoProgram {
    /// The OpenCL library: a vendor's driver, or Baltra's
    #[arg(long)]
    pub library: String,
    /// The device in that library
    #[arg(long, default_value = "")]
    pub select: String,
    /// Width of the picture, pixels
    #[arg(long)]
    pub width: u32,
    /// Height of the picture, pixels
    #[arg(long)]
    pub height: u32,
    /// The picture, four bytes per pixel
    #[arg(long)]
    pub input: PathBuf,
    /// The file for its edges, in the same format
    #[arg(long)]
    pub edges: PathBuf,
    /// Run once, and measure the kernel by the device's clock
    #[arg(long)]
    pub once: bool,
}
