//! Runs a native function's library for a gateway embedded in a program other than `baltra`. In
//! `baltra`, a subcommand of the same name does the same.
#![forbid(unsafe_code)]

fn main() -> anyhow::Result<()> {
    // The gateway passes only the name of the subcommand as an argument.
    let args: Vec<String> = std::env::args().skip(2).collect();
    baltra_engine::native_worker_main(&args)
}
