//! Runs a native function's library for a gateway that lives in a program other than `baltra`,
//! whose subcommand of the same name does this elsewhere.
#![forbid(unsafe_code)]

fn main() -> anyhow::Result<()> {
    // The gateway names the subcommand; nothing else is an argument.
    let args: Vec<String> = std::env::args().skip(2).collect();
    baltra_engine::native_worker_main(&args)
}
