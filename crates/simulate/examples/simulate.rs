//! `baltra simulate` as a separate program, which builds without the rest of the binary.

use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: baltra_simulate::Args,
}

fn main() -> anyhow::Result<()> {
    baltra_simulate::command(&Line::parse().args, &mut std::io::stdout().lock())
}
