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
mod exit;
mod http;
mod registry;

use clap::Parser;
use exit::Exit;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and the version, too. Without a reader there is nobody to report to.
            let _ = error.print();
            return Exit::of_usage(&error).into();
        }
    };
    match commands::dispatch(args) {
        Ok(code) => code,
        Err(error) => {
            output::error(&error);
            Exit::Failure.into()
        }
    }
}
