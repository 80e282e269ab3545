//! Connecting to a manager's TCP address: name, socket, TLS, hello.

use super::stream::Stream;
use super::{tls, HELLO_TIMEOUT};
use crate::handshake::{frame, ANSWER_BYTES_MAX};
use baltra_wire::{decode, Refusal, Welcome};
use rustix::net::sockopt;
use serde::Serialize;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time without a reply after which a connection counts as broken.
const SILENCE: Duration = Duration::from_secs(20);

/// The address and settings for reaching a manager.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub host: String,
    pub port: u16,
    pub tls: bool,
}

/// Send buffer of a socket to the same host, bytes (the kernel doubles it for its own overhead).
/// More bytes in flight there do not shorten a wait but evict each other from the caches: with the
/// kernel's default of 4 MB a large transfer is a fifth slower.
const LOOPBACK_SEND_BYTES: usize = 512 << 10;

/// Settings of either end's socket: small messages are not delayed, and a dead path is detected.
pub(crate) fn prepare(socket: &OwnedFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, SILENCE / 2)?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(2))?;
    sockopt::set_tcp_user_timeout(socket, SILENCE.as_millis() as u32)?;
    let peer = rustix::net::getpeername(socket)?.and_then(|a| SocketAddr::try_from(a).ok());
    if peer.is_some_and(|a| a.ip().to_canonical().is_loopback()) {
        sockopt::set_socket_send_buffer_size(socket, LOOPBACK_SEND_BYTES)?;
    }
    Ok(())
}

impl Dialer {
    /// A connected stream after the TLS handshake, and the deadline of the hello.
    pub fn connect(&self) -> io::Result<(Stream, Instant)> {
        let deadline = Instant::now() + HELLO_TIMEOUT;
        let mut failure = io::Error::new(
            io::ErrorKind::NotFound,
            format!("host name '{}' does not resolve to an address", self.host),
        );
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            let left = deadline.saturating_duration_since(Instant::now());
            match TcpStream::connect_timeout(&address, left.max(Duration::from_millis(1))) {
                Ok(socket) => return self.secure(socket.into(), deadline),
                Err(e) => failure = e,
            }
        }
        Err(failure)
    }

    fn secure(&self, socket: OwnedFd, deadline: Instant) -> io::Result<(Stream, Instant)> {
        prepare(&socket)?;
        let stream = if self.tls {
            let authority = std::env::var_os("BALTRA_TLS_CA").filter(|v| !v.is_empty());
            let authority = authority.map(PathBuf::from);
            let connection = tls::client(&self.host, authority.as_deref())?;
            Stream::tls(socket, connection.into(), deadline)?
        } else {
            Stream::plain(socket)
        };
        Ok((stream, deadline))
    }
}

/// Client: sends a hello and reads the answer, which must arrive before `answer_by`.
pub(crate) fn hello(
    stream: &Stream,
    hello: &impl Serialize,
    deadline: Instant,
    answer_by: Instant,
) -> io::Result<Result<Welcome, Refusal>> {
    stream.send_all(&frame(hello)?, deadline)?;
    let bytes = read_framed(stream, ANSWER_BYTES_MAX, answer_by)?;
    decode(&bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))
}

/// Reads one message that is preceded by its length.
pub(crate) fn read_framed(
    stream: &Stream,
    bytes_max: usize,
    deadline: Instant,
) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.recv_exact(&mut len, deadline)?;
    let len = u32::from_le_bytes(len) as usize;
    if len == 0 || len > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the first message has {len} bytes (1 to {bytes_max} allowed)"),
        ));
    }
    // Grows with the received bytes, not with the announced length.
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let at = bytes.len();
        bytes.resize((at + (64 << 10)).min(len), 0);
        stream.recv_exact(&mut bytes[at..], deadline)?;
    }
    Ok(bytes)
}

/// Both ends of a resumed session exchange the numbers of frames that they have received.
pub(crate) fn exchange_counts(
    stream: &Stream,
    received: u64,
    deadline: Instant,
) -> io::Result<u64> {
    stream.send_all(&received.to_le_bytes(), deadline)?;
    let mut theirs = [0; 8];
    stream.recv_exact(&mut theirs, deadline)?;
    Ok(u64::from_le_bytes(theirs))
}

/// Makes a client's socket close with a reset, so that the relay can distinguish a process that has
/// ended from a failed network path.
pub(crate) fn reset_on_close(socket: &OwnedFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}
