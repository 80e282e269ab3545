//! The subcommands, one file for each or for a family of them.

mod accelerator;
mod board;
mod completion;
mod daemon;
mod demo;
mod devices;
mod doctor;
mod drain;
mod executor;
mod function;
mod library;
mod logs;
mod pool;
mod run;
mod session;
mod tenant;
mod top;
mod up;
mod upgrade;
mod version;
mod vfun;

use crate::args::{Args, Command};
use crate::output::Stdout;
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::process::ExitCode;

/// Runs a command; returns the process's exit code.
pub fn dispatch(args: Args) -> Result<ExitCode> {
    // Paths become absolute, because started programs and daemons have other working directories.
    let runtime_dir = args.runtime_dir.filter(|dir| !dir.as_os_str().is_empty());
    let runtime_dir = runtime_dir.map(std::path::absolute).transpose()?;
    let paths = crate::control::paths(runtime_dir.as_ref());
    let done = |()| ExitCode::SUCCESS;
    match args.command {
        Command::Up(up) => up::up(&up, runtime_dir.as_ref()),
        Command::Manager(manager) => daemon::manager(&manager, runtime_dir.as_ref()).map(done),
        Command::Down { drain_ms } => up::down(&paths, drain_ms).map(done),
        Command::Status(json) => devices::status(&paths, json.json).map(done),
        Command::Registry(args) => daemon::registry(&args, runtime_dir.as_ref()).map(done),
        Command::Gateway(args) => daemon::gateway(&args, runtime_dir.as_ref()).map(done),
        Command::Logs {
            daemon,
            follow,
            lines,
        } => logs::logs(&paths, daemon, follow, lines).map(done),
        Command::Run(run) => run::run(&run, &paths, runtime_dir.as_ref()),
        Command::Demo(args) => demo::demo(&args),
        Command::DemoProgram(args) => demo::program::run(&args).map(done),
        Command::Version(json) => {
            version::version(json.json);
            Ok(ExitCode::SUCCESS)
        }
        Command::Devices(args) => devices::devices(&args, &paths).map(done),
        Command::Device(device) => pool::device(device, &paths),
        Command::Pool(command) => pool::pool(command, &paths).map(done),
        Command::Instances(args) => pool::instances(&args, &paths).map(done),
        Command::Function(command) => function::function(command, &paths),
        Command::Board(args) => match board::board(&args)? {},
        Command::Sessions(json) => devices::sessions(&paths, json.json).map(done),
        Command::Session(command) => session::session(&paths, command).map(done),
        Command::Top {
            once,
            interval_ms,
            json,
        } => top::top(&paths, once, interval_ms, json.json).map(done),
        Command::Doctor(args) => doctor::doctor(&args, &paths),
        Command::Tenant(tenant) => tenant::tenant(&paths, tenant).map(done),
        Command::Accelerator(accelerator) => accelerator::accelerator(&paths, accelerator),
        Command::Completion { shell } => completion::script(shell).map(done),
        Command::Complete(args) => {
            completion::complete(args, paths);
            Ok(ExitCode::SUCCESS)
        }
        Command::Manual { directory } => clap_mangen::generate_to(Args::command(), &directory)
            .with_context(|| format!("cannot write to {}", directory.display()))
            .map(done),
        Command::Cluster(command) => baltra_cluster::command(&command, &mut Stdout),
        #[cfg(feature = "kubernetes")]
        Command::Kubernetes(command) => {
            daemon::log_to_stderr("info");
            baltra_kubernetes::command(command, &mut Stdout).map(done)
        }
        Command::Simulate(args) => baltra_simulate::command(&args, &mut Stdout).map(done),
        Command::NativeWorker { arguments } => {
            baltra_engine::native_worker_main(&arguments).map(done)
        }
        Command::Vfun(args) => vfun::daemon(&args, &paths).map(done),
        Command::Vm(command) => vfun::vm(command, &paths).map(done),
        Command::VfunWorker => baltra_vfun::worker::main().map(done),
        Command::Relay(relay) => executor::relay(relay).map(done),
        Command::Keeper(keeper) => executor::keeper(keeper).map(done),
        Command::Forwarder(forwarder) => executor::forwarder(forwarder).map(done),
        Command::Executor(executor) => executor::executor(executor).map(done),
        Command::Probe(probe) => executor::probe(probe).map(done),
    }
}
