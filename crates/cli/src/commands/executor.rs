//! `baltra executor`, `baltra keeper`, `baltra forwarder`, `baltra relay` and `baltra probe`: processes
//! that the manager starts for a tenant, for a suspended session, for one on another node, for a
//! remote client, and for listing a driver's devices. All but the last have their socket to the
//! manager as their standard input; a probe prints its result.

use crate::args::{Executor, Forwarder, Keeper, Probe, Relay};
use anyhow::{Context, Result};
use baltra_session::{forwarder, relay};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::time::Duration;

/// Runs the executor over the control socket on the standard input.
pub fn executor(args: Executor) -> Result<()> {
    super::daemon::log_to_stderr("warn");
    let control = take_socket()?;
    baltra_executor::run(baltra_executor::Options {
        control_fd: control.into_raw_fd(),
        device: args.select,
        name: args.name,
        host_memory: !args.no_host_memory,
        spin_us: args.spin_us,
        work_dir: args.work_dir,
        cache_root: args.cache_root,
        adopt: args.adopt,
        sandbox: !args.no_sandbox,
        traces: args.traces,
        orphan: args.orphan_ms.map(Duration::from_millis),
        contended: args.contended_ms.map(Duration::from_millis),
        memory_overcommit: args.memory_overcommit,
        memory_bytes: args.memory_bytes,
        slice: Duration::from_micros(args.slice_us),
        ..baltra_executor::Options::new(args.driver)
    })
}

/// Keeps a suspended session; the control socket is the standard input.
pub fn keeper(args: Keeper) -> Result<()> {
    super::daemon::log_to_stderr("warn");
    let control = take_socket()?;
    baltra_executor::keeper::run(baltra_executor::keeper::Options {
        control_fd: control.into_raw_fd(),
        name: args.name,
        bytes_max: args.bytes_max,
        sandbox: !args.no_sandbox,
        adopt: args.adopt,
    })
}

/// Carries the messages of a session that is on another node; the control socket is the standard
/// input.
pub fn forwarder(args: Forwarder) -> Result<()> {
    super::daemon::log_to_stderr("warn");
    let options = forwarder::Options {
        name: args.name,
        adopt: args.adopt,
    };
    Ok(forwarder::run(take_socket()?, options)?)
}

/// Prints the devices of a driver, or the reason why it cannot be used.
pub fn probe(args: Probe) -> Result<()> {
    let answer = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3)?;
    let options = baltra_executor::Options {
        work_dir: args.work_dir,
        sandbox: !args.no_sandbox,
        ..baltra_executor::Options::new(args.driver)
    };
    let listing = baltra_executor::probe(&options).map_err(|e| format!("{e:#}"));
    Ok(serde_json::to_writer(
        std::fs::File::from(answer),
        &listing,
    )?)
}

/// Runs a relay for the connection that the manager sends over the standard input, some time after
/// the start.
pub fn relay(args: Relay) -> Result<()> {
    super::daemon::log_to_stderr("warn");
    let mut options = relay::Options::new(args.manager);
    if let Some(ms) = args.arrival_timeout_ms {
        options.arrival = Duration::from_millis(ms);
    }
    if let (Some(certificate), Some(key)) = (args.tls_cert, args.tls_key) {
        options.tls = Some(relay::TlsFiles { certificate, key });
    }
    match relay::await_connection(&take_socket()?)? {
        Some(connection) => Ok(relay::run(connection, &options)?),
        // The manager has ended.
        None => Ok(()),
    }
}

/// Moves the socket to another descriptor: a driver that reads its standard input must not consume
/// the manager's messages.
fn take_socket() -> Result<OwnedFd> {
    let socket = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
    let null = std::fs::File::open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(socket)
}
