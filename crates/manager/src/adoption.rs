//! Adoption of executors that survived their manager, with the sessions that they serve.

use crate::executors::{Phase, Process};
use crate::gate_thread::Lease;
use crate::node::{clip, Node, SessionRecord, UNNAMED};
use crate::tenants::Tenant;
use anyhow::{anyhow, bail, Context, Result};
use baltra_channel::Channel;
use baltra_ring::peer::Peer;
use baltra_wire::executor::{ToExecutor, ToManager};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

impl Node {
    /// Takes over an executor of an earlier manager.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        process: Process,
        message: ToManager,
        fds: Vec<OwnedFd>,
    ) -> Result<()> {
        if let ToManager::AdoptKeeper { device, session } = message {
            return self.adopt_kept(process, &device, session, None);
        }
        if let ToManager::AdoptForwarder {
            device,
            session,
            remote,
        } = message
        {
            let remote = Some(clip(&remote).to_owned());
            return self.adopt_kept(process, &device, session, remote);
        }
        let ToManager::Adopt {
            device: description,
            tenant,
            sessions,
            leases,
            ..
        } = message
        else {
            bail!("first message is not an adoption request");
        };
        let device = self
            .device(&description.name)
            .ok_or_else(|| anyhow!("device '{}' is not served here", clip(&description.name)))?
            .clone();
        if fds.len() != leases.len() * 2 {
            bail!("{} descriptors for {} leases", fds.len(), leases.len());
        }
        // Before its leases, because it determines whether their processor time is charged.
        device.set_description(*description);
        let id = self.next_number();
        let pid = process.pid;
        let process = Arc::new(process);
        // New sessions may need what an executor of an earlier release lacks.
        let is_current = process.is_current();
        let phase = if is_current {
            Phase::Serving
        } else {
            Phase::Ending
        };
        device.pool.add(id, process.clone(), phase);
        device.pool.with(id, |e| e.tenant = tenant);
        let mut fds = fds.into_iter();
        for (lease, name) in leases {
            let (Some(page), Some(bell)) = (fds.next(), fds.next()) else {
                break;
            };
            let tenant = self
                .tenants
                .get(&name)
                .unwrap_or_else(|| Tenant::named(&name));
            let lease = Lease::over(lease, &name, page, bell)?;
            self.add_lease(&device, id, &tenant, lease)?;
        }
        let mut open = self.sessions();
        for session in &sessions {
            let record = SessionRecord {
                tenant: session.tenant.clone(),
                device: device.name().to_owned(),
                executor: id,
                executor_pid: pid,
                instance: UNNAMED.into(),
                pid: 0,
                uid: 0,
                transport: "unix",
                is_suspended: false,
                remote: None,
                description: None,
                since: Instant::now(),
            };
            open.insert(session.session, record);
            device.pool.with(id, |e| e.sessions.insert(session.session));
        }
        drop(open);
        tracing::info!(
            device = device.name(),
            pid,
            sessions = sessions.len(),
            is_current,
            "executor adopted"
        );
        if !is_current {
            let _ = process.send(&ToExecutor::Drain, &[]);
        }
        if is_current {
            device.introduce(id, &process);
        }
        let node = self.clone();
        std::thread::Builder::new()
            .name(format!("executor-{pid}"))
            .spawn(move || node.listen(&device, id, &process))?;
        Ok(())
    }
}
