//! Remote clients: each TCP connection is passed to a relay process, which terminates TLS and
//! represents the client at the relay socket. The manager reads nothing from the connection.
//!
//! Starting a process takes longer than the rest of a connection's setup. So some relays are
//! started in advance; used ones are replaced after a burst of connections has ended.

use crate::node::Node;
use anyhow::{Context, Result};
use baltra_ring::Locked;
use baltra_session::fd::send_with_fds;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

/// Number of relays started in advance: a program opens one connection to list devices, and one for
/// its session.
const READY: usize = 2;
/// Delay after the last connection before further relays are started in advance.
const REFILL_AFTER: Duration = Duration::from_millis(30);

/// The running relays, by process id.
#[derive(Debug, Default)]
pub struct Relays(Mutex<HashMap<u32, Relay>>);

#[derive(Debug)]
struct Relay {
    pidfd: OwnedFd,
    /// Whether it serves a connection.
    serves: bool,
}

impl Relays {
    /// Number of relays that serve a connection.
    pub fn count(&self) -> usize {
        let relays = self.0.locked();
        relays.values().filter(|r| r.serves).count()
    }

    /// Kills all relays.
    pub fn kill_all(&self) {
        for relay in self.0.locked().values() {
            let _ = rustix::process::pidfd_send_signal(&relay.pidfd, Signal::KILL);
        }
    }
}

/// A relay without a connection. Dropping it ends the process.
struct Waiting {
    pid: u32,
    control: UnixStream,
}

/// Listens on a TCP address.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .with_context(|| format!("cannot listen on {address}, from 'listen.tcp'"))
}

/// Accepts connections until the process exits.
pub(crate) fn serve(node: &Arc<Node>, listener: &TcpListener) {
    let max = node.options.listen.sessions_max;
    let ready = prepare(node);
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a TCP connection");
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        if node.relays.count() >= max || node.is_draining() {
            // Without a relay no error can be sent; the client sees the connection close.
            continue;
        }
        if let Err(error) = hand_over(node, &stream, ready.as_ref()) {
            tracing::error!(%error, "cannot start a relay");
        }
    }
}

/// State shared by the accepting thread and the one that starts relays.
struct Ready {
    waiting: Arc<Mutex<Vec<Waiting>>>,
    taken: SyncSender<()>,
}

/// Starts the thread that keeps relays ready; `None`: they are started on demand.
fn prepare(node: &Arc<Node>) -> Option<Ready> {
    let (taken, takes) = mpsc::sync_channel(1);
    let waiting = Arc::new(Mutex::new(Vec::new()));
    let (node, ours) = (node.clone(), waiting.clone());
    let refill = move || {
        while !node.is_draining() {
            if let Err(error) = fill(&node, &ours) {
                tracing::warn!(%error, "cannot start a relay ahead");
            }
            if takes.recv().is_err() || !come_to_rest(&takes) {
                return;
            }
        }
    };
    let name = std::thread::Builder::new().name("relays".into());
    let spawned = name.stack_size(128 << 10).spawn(refill);
    spawned.ok().map(|_| Ready { waiting, taken })
}

fn fill(node: &Arc<Node>, waiting: &Mutex<Vec<Waiting>>) -> io::Result<()> {
    let ready = || waiting.locked().len();
    while ready() < READY {
        let relay = start(node)?;
        waiting.locked().push(relay);
    }
    Ok(())
}

/// Waits until no connection has arrived for a while; `false`: the manager is shutting down.
fn come_to_rest(takes: &Receiver<()>) -> bool {
    loop {
        match takes.recv_timeout(REFILL_AFTER) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Passes a connection to a ready relay, or to a new one.
fn hand_over(node: &Arc<Node>, stream: &TcpStream, ready: Option<&Ready>) -> io::Result<()> {
    let _ = stream.set_nodelay(true);
    while let Some(relay) = ready.and_then(take) {
        // The relay has died meanwhile: use the next one.
        if pass(node, &relay, stream).is_ok() {
            return Ok(());
        }
    }
    pass(node, &start(node)?, stream)
}

fn take(ready: &Ready) -> Option<Waiting> {
    // A full channel means that the thread will check anyway.
    let _ = ready.taken.try_send(());
    let mut waiting = ready.waiting.locked();
    waiting.pop()
}

fn pass(node: &Arc<Node>, relay: &Waiting, stream: &TcpStream) -> io::Result<()> {
    let mut relays = node.relays.0.locked();
    if let Some(known) = relays.get_mut(&relay.pid) {
        known.serves = true;
    }
    drop(relays);
    send_with_fds(&relay.control, &[1], &[stream.as_fd()])
}

/// Starts a relay, whose standard input is the socket that passes it its connection.
fn start(node: &Arc<Node>) -> io::Result<Waiting> {
    let (control, theirs) = UnixStream::pair()?;
    let listen = &node.options.listen;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("baltra")
        .arg("relay")
        .arg("--manager")
        .arg(node.options.paths.relay_socket())
        .arg("--arrival-timeout-ms")
        .arg(listen.arrival_timeout_ms.to_string())
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null());
    if let (Some(cert), Some(key)) = (&listen.tls_cert, &listen.tls_key) {
        command
            .arg("--tls-cert")
            .arg(cert)
            .arg("--tls-key")
            .arg(key);
    }
    let child = command.spawn()?;
    let pid = child.id();
    let pidfd = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let relay = Relay {
        pidfd,
        serves: false,
    };
    let mut relays = node.relays.0.locked();
    relays.insert(pid, relay);
    drop(relays);
    reap(node, child)?;
    Ok(Waiting { pid, control })
}

/// Starts the thread that waits for a relay's end.
fn reap(node: &Arc<Node>, mut child: Child) -> io::Result<()> {
    let relays = node.relays.clone();
    let pid = child.id();
    let wait = move || {
        let _ = child.wait();
        let mut relays = relays.0.locked();
        relays.remove(&pid);
    };
    let name = std::thread::Builder::new().name("relay".into());
    name.stack_size(64 << 10).spawn(wait)?;
    Ok(())
}
