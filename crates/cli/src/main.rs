//! The `baltra` binary: every daemon and tool is a subcommand.
#![forbid(unsafe_code)]

// First, because its macros apply to the modules after it.
#[macro_use]
mod output;

mod args;
mod commands;
mod configuration;
mod control;
mod daemons;
mod http;
mod registry;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = args::Args::parse();
    match commands::dispatch(args) {
        Ok(code) => code,
        Err(error) => {
            output::error(&error);
            ExitCode::FAILURE
        }
    }
}
