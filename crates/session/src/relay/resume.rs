//! Resumption of connections: the relay process that accepts the new connection passes it to the
//! relay that has the session.
//!
//! The relay that has a session listens on a Unix socket with the session's name. The new relay
//! sends the client's key, then passes the connection: the socket itself or, if the new relay
//! terminates TLS, one end of a socket pair, whose bytes it forwards to and from the client.

use super::{leaving, refuse, Options, Session};
use crate::fd::{recv_with_fds, send_with_fds};
use crate::handshake::frame;
use crate::tcp::stream::Stream;
use baltra_ring::peer::Peer;
use baltra_ring::{Locked, Unpoisoned};
use baltra_wire::{Purpose, Refusal, Welcome};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Timeout of each step between two relays.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// The byte with which a connection comes: it carries the session's frames, the session leaves over
/// it, or it is a subflow, whose tag follows.
const RESUMES: u8 = 1;
const LEAVES: u8 = 2;
const SUBFLOW: u8 = 3;

#[derive(Default)]
struct Slot {
    connection: Option<OwnedFd>,
    ended: bool,
}

struct Shared {
    listener: UnixListener,
    path: PathBuf,
    key: [u8; 16],
    slot: Mutex<Slot>,
    changed: Condvar,
}

/// The side of the relay that has the session.
#[derive(Clone)]
pub(super) struct Resumption(Arc<Shared>);

fn path(dir: &Path, session: u64) -> PathBuf {
    dir.join(format!("session-{session}.resume"))
}

/// Compares in constant time.
fn equal(a: &[u8; 16], b: &[u8; 16]) -> bool {
    a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

impl Resumption {
    /// Listens for connections that resume the session.
    pub fn listen(dir: &Path, session: u64, key: [u8; 16]) -> io::Result<Resumption> {
        let path = path(dir, session);
        // Left by an earlier daemon whose sessions have ended.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(Resumption(Arc::new(Shared {
            listener,
            path,
            key,
            slot: Mutex::default(),
            changed: Condvar::new(),
        })))
    }

    /// Starts the thread that accepts connections; each new one ends the previous one.
    pub fn spawn(&self, session: &Arc<Session>) -> io::Result<()> {
        let (ours, session) = (self.0.clone(), Arc::downgrade(session));
        let name = Builder::new().name("baltra-resume".into());
        name.spawn(move || {
            while let Ok((peer, _)) = ours.listener.accept() {
                // A relay that disconnects does not affect this session.
                let Ok((arrival, connection)) = ours.receive(&peer) else {
                    continue;
                };
                let Some(session) = session.upgrade() else {
                    return;
                };
                match arrival {
                    Purpose::Leave => {
                        leaving::spawn(session, Stream::plain(connection));
                        continue;
                    }
                    Purpose::Subflow(tag) => {
                        add_subflow(&session, tag, Stream::plain(connection));
                        continue;
                    }
                    Purpose::Open | Purpose::Arrive => {}
                }
                let mut slot = ours.slot.locked();
                slot.connection = Some(connection);
                drop(slot);
                ours.changed.notify_all();
                session.link.down();
            }
        })?;
        Ok(())
    }

    /// The next connection; `None`: none arrived in time, or the session has ended.
    pub fn take(&self, deadline: Instant) -> Option<Stream> {
        let mut slot = self.0.slot.locked();
        loop {
            if slot.ended {
                return None;
            }
            if let Some(connection) = slot.connection.take() {
                return Some(Stream::plain(connection));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.0.changed.wait_timeout(slot, left);
            slot = waited.unpoisoned().0;
        }
    }

    /// Stops accepting connections.
    pub fn end(&self) {
        let mut slot = self.0.slot.locked();
        if std::mem::replace(&mut slot.ended, true) {
            return;
        }
        drop(slot);
        self.0.changed.notify_all();
        // The directory may have been cleared; the thread ends with its listener.
        let _ = fs::remove_file(&self.0.path);
        let _ = rustix::net::shutdown(&self.0.listener, rustix::net::Shutdown::Both);
    }
}

impl Shared {
    /// The next connection, and what it is for; `Purpose::Open`: for the session's frames.
    fn receive(&self, peer: &UnixStream) -> io::Result<(Purpose, OwnedFd)> {
        let mut peer_stream = peer;
        peer.set_read_timeout(Some(STEP_TIMEOUT))?;
        if Peer::of(peer)?.uid != rustix::process::getuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut key = [0; 16];
        peer_stream.read_exact(&mut key)?;
        if !equal(&key, &self.key) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        peer_stream.write_all(&[1])?;
        let mut message = [0; 9];
        let (len, fds) = recv_with_fds(peer, &mut message, true)?;
        let connection = fds.into_iter().next();
        let connection = connection.ok_or(io::ErrorKind::UnexpectedEof)?;
        let [kind, tag @ ..] = message;
        let purpose = match kind {
            LEAVES => Purpose::Leave,
            SUBFLOW if len == message.len() => Purpose::Subflow(u64::from_le_bytes(tag)),
            SUBFLOW => return Err(io::ErrorKind::InvalidData.into()),
            _ => Purpose::Open,
        };
        Ok((purpose, connection))
    }
}

/// Adds a subflow to the session's connection, unless it belongs to an earlier one.
fn add_subflow(session: &Session, tag: u64, stream: Stream) {
    let Some(subflows) = session.link.subflows(tag) else {
        return;
    };
    let deadline = Instant::now() + STEP_TIMEOUT;
    if let Err(error) = subflows.accept(stream, deadline) {
        tracing::debug!(%error, "a further connection of the session failed");
    }
}

/// A new relay's side: passes `stream` to the relay that has `session`.
pub(super) fn hand_over(
    stream: Stream,
    (session, key): (u64, [u8; 16]),
    purpose: Purpose,
    options: &Options,
    deadline: Instant,
) -> io::Result<()> {
    let message = match purpose {
        Purpose::Leave => vec![LEAVES],
        Purpose::Subflow(tag) => [&[SUBFLOW][..], &tag.to_le_bytes()].concat(),
        Purpose::Open | Purpose::Arrive => vec![RESUMES],
    };
    let holder = match show_key(&path(&options.runtime_dir, session), key) {
        Ok(holder) => holder,
        Err(_) => {
            let text = "cannot resume the session: it has ended or does not exist on this node";
            return refuse(&stream, Refusal::NotAllowed(text.into()), deadline);
        }
    };
    let welcome = Welcome::again(session, key);
    stream.send_all(&frame(&Ok::<_, Refusal>(welcome))?, deadline)?;
    if !stream.is_tls() {
        return send_with_fds(&holder, &message, &[stream.into_fd().as_fd()]);
    }
    let (ours, theirs) = UnixStream::pair()?;
    send_with_fds(&holder, &message, &[theirs.as_fd()])?;
    drop((theirs, holder));
    carry(stream, ours)
}

fn show_key(path: &Path, key: [u8; 16]) -> io::Result<UnixStream> {
    let mut holder = UnixStream::connect(path)?;
    holder.set_read_timeout(Some(STEP_TIMEOUT))?;
    holder.write_all(&key)?;
    holder.read_exact(&mut [0; 1])?;
    Ok(holder)
}

/// Forwards bytes between a TLS client and the relay that has its session, until either ends.
fn carry(stream: Stream, holder: UnixStream) -> io::Result<()> {
    const PIECE_BYTES: usize = 128 << 10;
    let stream = Arc::new(stream);
    let (outward, mut from_holder) = (stream.clone(), holder.try_clone()?);
    let name = Builder::new().name("baltra-carry".into());
    let back = name.spawn(move || {
        let mut piece = vec![0; PIECE_BYTES];
        let patience = Duration::from_secs(60);
        while let Ok(n @ 1..) = from_holder.read(&mut piece) {
            let sent = outward.send_all(&piece[..n], Instant::now() + patience);
            if sent.is_err() {
                break;
            }
        }
        outward.shutdown();
    })?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut to_holder = &holder;
    while let Ok(n @ 1..) = stream.recv(None, &mut piece) {
        if to_holder.write_all(&piece[..n]).is_err() {
            break;
        }
    }
    // Wakes the thread.
    let _ = holder.shutdown(std::net::Shutdown::Both);
    let _ = back.join();
    Ok(())
}
