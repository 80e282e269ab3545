//! `baltra run`: runs a program on the shared device.

mod allocated;
mod child;

use super::library;
use crate::args::{Config, Run};
use crate::configuration;
use crate::daemons::{Daemon, Running, Tie};
use anyhow::{anyhow, bail, Result};
use baltra_manager::options::PathOptions;
pub use child::Signals;
use child::{code, is_stopped, start_code, Program};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

/// Pause before a failed program is restarted. It doubles with each restart, up to the maximum, and
/// starts from the minimum again after the program has run for [`STEADY`].
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);
const STEADY: Duration = Duration::from_secs(60);

/// The devices and endpoints of a program, for its environment.
struct DaemonLock {
    /// The value of `BALTRA_ENDPOINT`.
    endpoint: String,
    /// The value of `BALTRA_DEVICE`.
    device: Option<String>,
    /// The value of `BALTRA_POOL`.
    pool: Option<String>,
    /// The value of `BALTRA_INSTANCE`.
    instance: Option<String>,
}

/// Runs the program; returns its exit code.
pub fn run(args: &Run, paths: &PathOptions, runtime_dir: Option<&PathBuf>) -> Result<ExitCode> {
    let library = library::find()?;
    let vendors = library::vendors(&library)?;
    let query = args.device.as_deref().filter(|text| text.contains('='));
    if query.is_some() && (args.standalone || args.connect.is_some()) {
        bail!("a query needs the registry: omit --standalone and --connect, or name a device");
    }
    if args.standalone {
        return standalone(args, &vendors);
    }
    if let Some(query) = query {
        return allocated::run(args, query, &vendors, paths);
    }
    if args.count != 1 || args.instance.is_some() {
        bail!("--count and --instance require a query: --device KEY=VALUE,…");
    }
    // Endpoints of other hosts are not checked; a local daemon must be running.
    let endpoint = match (&args.connect, std::env::var("BALTRA_ENDPOINT")) {
        (Some(endpoint), _) => endpoint.to_string(),
        (None, Ok(named)) if !named.is_empty() && runtime_dir.is_none() => named,
        _ => local(paths, runtime_dir)?,
    };
    let place = named(args, endpoint);
    let command = || prepare(args, &vendors, &place);
    if args.restart {
        restart(args, command)
    } else {
        let error = command().exec();
        crate::output::error(&failed_to_start(args, &error));
        Ok(start_code(&error))
    }
}

fn named(args: &Run, endpoint: String) -> DaemonLock {
    DaemonLock {
        endpoint,
        device: args.device.clone(),
        pool: args.pool.as_ref().map(ToString::to_string),
        instance: None,
    }
}

fn local(paths: &PathOptions, runtime_dir: Option<&PathBuf>) -> Result<String> {
    let mut sockets = vec![paths.session_socket()];
    if runtime_dir.is_none() {
        sockets.push(PathBuf::from("/run/baltra/baltra.sock"));
    }
    let found = sockets.iter().find(|s| s.exists());
    found
        .map(|socket| format!("unix:{}", socket.display()))
        .ok_or_else(|| {
            anyhow!(
                "no daemon is running in {}: start one with `baltra up`, or run with --standalone",
                paths.runtime.display()
            )
        })
}

fn prepare(args: &Run, vendors: &Path, place: &DaemonLock) -> Command {
    let mut command = Command::new(&args.program[0]);
    command
        .args(&args.program[1..])
        .env("OCL_ICD_VENDORS", vendors)
        .env_remove("OCL_ICD_FILENAMES")
        .env("BALTRA_ENDPOINT", &place.endpoint);
    if let Some(path) = library::stand_in(vendors) {
        command.env("LD_LIBRARY_PATH", path);
    }
    if let Some(device) = &place.device {
        command.env("BALTRA_DEVICE", device);
    }
    if let Some(pool) = &place.pool {
        command.env("BALTRA_POOL", pool);
    }
    if let Some(instance) = &place.instance {
        command.env("BALTRA_INSTANCE", instance);
    }
    if let Some(tenant) = &args.tenant {
        command.env("BALTRA_TENANT", tenant);
    }
    command
}

fn failed_to_start(args: &Run, error: &std::io::Error) -> anyhow::Error {
    anyhow!("cannot run {}: {error}", args.program[0].display())
}

/// Restarts the program whenever it fails, for example because its device was removed.
fn restart(args: &Run, command: impl Fn() -> Command) -> Result<ExitCode> {
    let mut pause = PAUSE_MIN;
    loop {
        let started = std::time::Instant::now();
        let status = supervise(args, command())?;
        if status.success() || is_stopped(status) {
            return Ok(code(status));
        }
        if started.elapsed() > STEADY {
            pause = PAUSE_MIN;
        }
        eprintln!(
            "baltra: {} ended ({status}), restarting it",
            args.program[0].display()
        );
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Runs the program as a child; only the child handles the terminal's interrupts.
fn supervise(args: &Run, command: Command) -> Result<ExitStatus> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let mut program = Program::start(command).map_err(|e| failed_to_start(args, &e))?;
        loop {
            tokio::select! {
                status = program.end() => return status,
                signal = signals.next() => program.signal(signal),
            }
        }
    })
}

/// Runs a program with a private daemon, which ends with it.
fn standalone(args: &Run, vendors: &Path) -> Result<ExitCode> {
    let home = tempfile::Builder::new().prefix("baltra-").tempdir()?;
    let runtime = home.path().join("run");
    let mut set = vec![
        "metrics.address=".to_owned(),
        "executors.prestart=1".to_owned(),
        "node.registry=".to_owned(),
    ];
    set.extend(args.set.iter().cloned());
    let config = Config {
        config: None,
        set: set.clone(),
        state_dir: Some(home.path().join("state")),
    };
    let options = configuration::manager(&config, Some(&runtime))?;
    let extra: Vec<String> = set.into_iter().flat_map(|s| ["--set".into(), s]).collect();
    let patience = Duration::from_millis(options.executors.start_timeout_ms + 5_000);
    let daemon = Running::start(Daemon::Manager, &options.paths, &extra, &[], Tie::Leashed)?;
    let mut daemon = daemon.wait_ready(Some(patience), true)?;
    let place = named(
        args,
        format!("unix:{}", options.paths.session_socket().display()),
    );
    let command = || prepare(args, vendors, &place);
    let result = if args.restart {
        restart(args, command)
    } else {
        supervise(args, command()).map(code)
    };
    daemon.stop();
    result
}
