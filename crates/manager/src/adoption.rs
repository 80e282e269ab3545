//! Adoption of executors that survived their manager, with the sessions that they serve.

use crate::executors::Process;
use crate::node::Node;
use anyhow::{Context, Result};
use baltra_channel::Channel;
use baltra_ring::peer::Peer;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Creates the socket to which executors reconnect.
pub(crate) fn bind(path: &Path) -> Result<OwnedFd> {
    let bound = || -> rustix::io::Result<OwnedFd> {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let _ = std::fs::remove_file(path);
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(0o600))?;
        rustix::net::listen(&socket, 64)?;
        Ok(socket)
    };
    bound().with_context(|| format!("cannot listen on {}", path.display()))
}

/// Adopts executors until the process exits.
pub(crate) fn serve(node: &Arc<Node>, listener: &OwnedFd) {
    loop {
        let socket = match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "cannot accept an executor");
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        if let Err(error) = admit(node, socket) {
            tracing::warn!("cannot adopt an executor: {error:#}");
        }
    }
}

fn admit(node: &Arc<Node>, socket: OwnedFd) -> Result<()> {
    let pid = Peer::of(&socket)?
        .pid
        .context("its process id is not visible in this PID namespace")?;
    let patience = Some(Duration::from_secs(1));
    rustix::net::sockopt::set_socket_timeout(
        socket.as_fd(),
        rustix::net::sockopt::Timeout::Recv,
        patience,
    )?;
    let mut process = Process::new(Channel::new(socket), pid, None)?.in_its_group();
    let (message, fds) = process
        .receive_adoption()?
        .context("it closed the connection before it identified itself")?;
    process.clear_timeout()?;
    node.adopt(process, message, fds)
}
