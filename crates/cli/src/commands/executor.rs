//! `baltra executor` and `baltra relay`: processes that the manager starts, for a tenant and for
//! a client elsewhere. Each has its socket to the manager as its standard input.

use crate::args::{Executor, Relay};
use anyhow::{Context, Result};
use baltra_session::relay;
use std::os::fd::{IntoRawFd, OwnedFd};

/// Runs the executor over the control socket on the standard input.
pub fn executor(args: Executor) -> Result<()> {
    super::daemon::log_to_stderr("warn");
    let control = take_socket()?;
    baltra_executor::run(baltra_executor::Options {
        control_fd: control.into_raw_fd(),
        driver: args.driver,
        device: args.select,
        name: args.name,
        host_memory: !args.no_host_memory,
        spin_us: args.spin_us,
        work_dir: args.work_dir,
        cache_root: args.cache_root,
        adopt: args.adopt,
        sandbox: !args.no_sandbox,
        traces: args.traces,
    })
}

/// Runs a relay for the connection that the manager passes over the standard input, some time
/// after the start.
pub fn relay(args: Relay) -> Result<()> {
    super::daemon::log_to_stderr("warn");
    let mut options = relay::Options::new(args.manager);
    if let (Some(certificate), Some(key)) = (args.tls_cert, args.tls_key) {
        options.tls = Some(relay::TlsFiles { certificate, key });
    }
    match relay::await_connection(&take_socket()?)? {
        Some(connection) => Ok(relay::run(connection, &options)?),
        // The manager has ended.
        None => Ok(()),
    }
}

/// The socket, in a place of its own: a driver that reads its standard input must not eat the
/// manager's messages.
fn take_socket() -> Result<OwnedFd> {
    let socket = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
    let null = std::fs::File::open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(socket)
}
