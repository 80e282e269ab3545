//! A connected socket, plain or TLS: one thread reads, any thread may send.

use super::tls;
use crate::inherited::Socket;
use baltra_ring::io::{recv, send, Part};
use baltra_ring::{Locked, Range};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustls::Connection;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Most plaintext bytes that one send encrypts.
const TLS_SEND_BYTES: usize = 256 << 10;
/// Most bytes in a TLS record.
const RECORD_BYTES: usize = 16 << 10;
/// Interval at which a thread that waits for bytes checks that the socket is still open: closing a
/// descriptor does not end a wait for it.
const LOOK: Duration = Duration::from_secs(1);
/// The error of a session whose socket the program has closed.
pub(crate) const CLOSED: &str = "the program has closed the session's descriptor";

/// A stream socket in blocking mode, on which sending does not block.
pub(crate) struct Stream {
    fd: Socket,
    tls: Option<Mutex<Connection>>,
    guarded: bool,
}

/// A non-blocking view of the socket for rustls.
struct Nonblocking<'a>(&'a OwnedFd);

impl Read for Nonblocking<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let flags = rustix::net::RecvFlags::DONTWAIT;
        let (n, _) = rustix::io::retry_on_intr(|| rustix::net::recv(self.0, &mut *bytes, flags))?;
        Ok(n)
    }
}

impl Write for Nonblocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(self.0, &[Part::Bytes(bytes)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, tls::reason(&error))
}

impl Stream {
    /// Wraps a connected socket.
    pub fn plain(fd: OwnedFd) -> Stream {
        Stream {
            fd: Socket::new(fd),
            tls: None,
            guarded: false,
        }
    }

    /// For programs with descriptors of other code, which may close any descriptor and open others
    /// with the same number. After that, every call fails without touching the other descriptor.
    pub fn guard(mut self) -> Stream {
        self.guarded = true;
        self
    }

    /// Whether code outside this library has closed the socket.
    pub fn is_gone(&self) -> bool {
        self.guarded && self.fd.get().is_none()
    }

    /// The socket for one call.
    fn socket(&self) -> io::Result<&OwnedFd> {
        if self.guarded {
            self.fd.get().ok_or_else(|| io::Error::other(CLOSED))
        } else {
            Ok(&self.fd)
        }
    }

    /// Performs the handshake first, until `deadline` at the latest.
    pub fn tls(fd: OwnedFd, mut connection: Connection, deadline: Instant) -> io::Result<Stream> {
        connection.set_buffer_limit(Some(2 * TLS_SEND_BYTES));
        while connection.is_handshaking() || connection.wants_write() {
            while connection.wants_write() {
                match connection.write_tls(&mut Nonblocking(&fd)) {
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        wait(&fd, PollFlags::OUT, Some(deadline))?;
                    }
                    Err(e) => return Err(e),
                }
            }
            if !connection.is_handshaking() {
                break;
            }
            wait(&fd, PollFlags::IN, Some(deadline))?;
            if connection.read_tls(&mut Nonblocking(&fd))? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Err(error) = connection.process_new_packets() {
                // Sends the alert to the peer; the handshake has failed either way.
                let _ = connection.write_tls(&mut Nonblocking(&fd));
                return Err(invalid(error));
            }
        }
        Ok(Stream {
            fd: Socket::new(fd),
            tls: Some(Mutex::new(connection)),
            guarded: false,
        })
    }

    /// The socket.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Whether the bytes on the socket are encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the socket of a plain stream.
    pub fn into_fd(self) -> OwnedFd {
        self.fd.into_fd()
    }

    /// Receives, blocking, into `first` and then into `rest`; if `rest` is empty, returns with a
    /// part of `first` (see [`recv`]). 0: the peer has closed.
    pub fn recv(&self, first: Option<&Range>, rest: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => recv(self.socket()?, first, rest),
            Some(tls) => self.recv_tls(tls, first, rest, true),
        }
    }

    /// Receives the available bytes; `WouldBlock`: none. 0: the peer has closed.
    pub fn recv_now(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => Nonblocking(self.socket()?).read(bytes),
            Some(tls) => self.recv_tls(tls, None, bytes, false),
        }
    }

    /// Waits until bytes are available, or the stream has ended.
    pub fn wait_readable(&self) {
        loop {
            // The caller receives afterwards, which returns the failure.
            let Ok(socket) = self.socket() else { return };
            let deadline = self.guarded.then(|| Instant::now() + LOOK);
            match wait(socket, PollFlags::IN, deadline) {
                Err(e) if e.kind() == io::ErrorKind::TimedOut => {}
                _ => return,
            }
        }
    }

    fn recv_tls(
        &self,
        tls: &Mutex<Connection>,
        first: Option<&Range>,
        rest: &mut [u8],
        block: bool,
    ) -> io::Result<usize> {
        loop {
            let mut connection = lock(tls);
            let read = match first {
                None => connection.reader().read(rest),
                Some(range) => {
                    let mut piece = [0; RECORD_BYTES];
                    let len = piece.len().min(range.len());
                    let read = connection.reader().read(&mut piece[..len]);
                    read.inspect(|&n| range.copy_in(0, &piece[..n]))
                }
            };
            match read {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            drop(connection);
            if block {
                self.wait_readable();
            }
            let socket = self.socket()?;
            let mut connection = lock(tls);
            match connection.read_tls(&mut Nonblocking(socket)) {
                Ok(0) => return Ok(0),
                Ok(_) => {
                    connection.process_new_packets().map_err(invalid)?;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && block => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Fills `bytes`, until `deadline` at the latest.
    pub fn recv_exact(&self, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            let buffered = self.tls.as_ref().is_some_and(|tls| {
                let mut tls = lock(tls);
                // Decrypted bytes do not make the socket readable.
                tls.process_new_packets()
                    .is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
            });
            if !buffered {
                wait(self.socket()?, PollFlags::IN, Some(deadline))?;
            }
            match self.recv(None, &mut bytes[at..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => at += n,
            }
        }
        Ok(())
    }

    /// Sends as much as the socket's buffer accepts; `WouldBlock`: it is full.
    pub fn send(&self, parts: &[Part<'_>]) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return send(self.socket()?, parts);
        };
        let mut connection = lock(tls);
        self.push_tls(&mut connection)?;
        if connection.wants_write() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut taken = 0;
        let mut piece = [0; RECORD_BYTES];
        'parts: for part in parts {
            let mut from = 0;
            while from < part.len() {
                if taken >= TLS_SEND_BYTES {
                    break 'parts;
                }
                let len = (part.len() - from).min(RECORD_BYTES);
                let plain = match part {
                    Part::Bytes(bytes) => &bytes[from..from + len],
                    Part::Shared(range, at) => {
                        range.copy_out(at + from, &mut piece[..len]);
                        &piece[..len]
                    }
                };
                let n = connection.writer().write(plain)?;
                from += n;
                taken += n;
                if n < len {
                    break 'parts;
                }
            }
        }
        self.push_tls(&mut connection)?;
        Ok(taken)
    }

    fn push_tls(&self, connection: &mut Connection) -> io::Result<()> {
        while connection.wants_write() {
            match connection.write_tls(&mut Nonblocking(self.socket()?)) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Sends all of `bytes`, until `deadline` at the latest.
    pub fn send_all(&self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() || !self.is_flushed()? {
            let rest = [Part::Bytes(&bytes[at..])];
            match self.send(if at < bytes.len() { &rest } else { &[] }) {
                Ok(n) => at += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    wait(self.socket()?, PollFlags::OUT, Some(deadline))?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Whether all data accepted by [`Stream::send`] has been written to the socket, after an
    /// attempt to write it.
    pub fn is_flushed(&self) -> io::Result<bool> {
        let Some(tls) = &self.tls else {
            return Ok(true);
        };
        let mut connection = lock(tls);
        self.push_tls(&mut connection)?;
        Ok(!connection.wants_write())
    }

    /// Waits until the socket accepts more data, at most for `timeout`.
    pub fn wait_writable(&self, timeout: Duration) {
        // The caller sends afterwards, which returns the failure.
        if let Ok(socket) = self.socket() {
            let _ = wait(socket, PollFlags::OUT, Some(Instant::now() + timeout));
        }
    }

    /// Ends both directions, which wakes receiving threads.
    pub fn shutdown(&self) {
        // The connection may be broken already.
        if let Ok(socket) = self.socket() {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }
}

fn lock(tls: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    tls.locked()
}

fn wait(fd: &OwnedFd, events: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
    loop {
        let timeout = match deadline {
            None => None,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                Some(Timespec {
                    tv_sec: left.as_secs() as i64,
                    tv_nsec: left.subsec_nanos().into(),
                })
            }
        };
        match poll(
            &mut [PollFd::from_borrowed_fd(fd.as_fd(), events)],
            timeout.as_ref(),
        ) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
