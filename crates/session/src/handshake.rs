//! The exchange that precedes a session: hello, and welcome or refusal.
//!
//! Each consists of its length as four little-endian bytes and one message. A welcome to a device
//! passes the session segment's memfd with its first byte, unless the client provided the session's
//! memory with its hello ([`Share`]).

use crate::fd::{recv_with_fds, send_with_fds};
use baltra_wire::{
    decode, decode_first, encode, Hello, Purpose, Refusal, Share, Trailing, Version, Welcome,
    VERSION,
};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Size limit of a hello, bytes.
pub const HELLO_BYTES_MAX: usize = 64 << 10;
/// Size limit of an answer, bytes (for a node with very many devices).
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;

fn malformed(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// Frames one message.
pub fn frame<T: serde::Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    encode(message, &mut bytes).map_err(|e| malformed(e.to_string()))?;
    let len = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    Ok(bytes)
}

/// Memory that a client provides for its session.
#[derive(Debug)]
pub struct ClientMemory {
    /// The part of the memory.
    pub share: Share,
    /// A memfd.
    pub memory: OwnedFd,
    /// The doorbell that the client rings.
    pub bell: Option<OwnedFd>,
}

/// Manager: reads a hello of at most [`HELLO_BYTES_MAX`] bytes; `timeout` bounds the whole read,
/// however slowly the bytes arrive. `InvalidData`: malformed (answer with a refusal). If the hello
/// has another major version, only the version is decoded, which the caller compares.
pub fn read_hello(
    stream: &UnixStream,
    timeout: Duration,
) -> io::Result<(Hello, Purpose, Option<ClientMemory>)> {
    let deadline = Instant::now() + timeout;
    let mut fds = Vec::new();
    let mut read_exact = |bytes: &mut [u8]| -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            let (n, more) = recv_with_fds(stream, &mut bytes[at..], true)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            at += n;
            fds.extend(more);
            // A memfd and a doorbell; further descriptors are closed.
            fds.truncate(2);
        }
        Ok(())
    };
    let mut len = [0; 4];
    read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len == 0 || len > HELLO_BYTES_MAX {
        return Err(malformed(format!(
            "the hello has {len} bytes (1 to {HELLO_BYTES_MAX} allowed)"
        )));
    }
    let mut bytes = vec![0; len];
    read_exact(&mut bytes)?;
    stream.set_read_timeout(None)?;
    let (hello, purpose) = decode_hello(&bytes)?;
    let mut fds = fds.into_iter();
    let brought = match fds.next() {
        Some(memory) if hello.version.major == VERSION.major => {
            let share = decode_first::<Hello>(&bytes).and_then(|(_, rest)| decode::<Share>(rest));
            Some(ClientMemory {
                share: share.map_err(|e| malformed(e.to_string()))?,
                memory,
                bell: fds.next(),
            })
        }
        _ => None,
    };
    // With memory, what follows the hello describes that.
    let purpose = match brought {
        Some(_) => Purpose::Open,
        None => purpose,
    };
    Ok((hello, purpose, brought))
}

/// Decodes a hello and its purpose; only the version if it has another major version.
pub fn decode_hello(bytes: &[u8]) -> io::Result<(Hello, Purpose)> {
    // The version is the first field of a hello of any version; the rest may differ.
    let version: Version = decode(bytes).map_err(|e| malformed(e.to_string()))?;
    if version.major != VERSION.major {
        let hello = Hello {
            version,
            tenant: String::new(),
            token: String::new(),
            instance: String::new(),
            device: String::new(),
            resume: None,
            mirror: false,
        };
        return Ok((hello, Purpose::Open));
    }
    let decoded = decode::<(Hello, Trailing<Purpose>)>(bytes);
    let (hello, purpose) = decoded.map_err(|e| malformed(e.to_string()))?;
    Ok((hello, purpose.0.unwrap_or_default()))
}

/// Manager: answers a hello, with the session segment if there is one.
pub fn answer(
    stream: &UnixStream,
    answer: &Result<Welcome, Refusal>,
    segment: Option<&OwnedFd>,
) -> io::Result<()> {
    let bytes = frame(answer)?;
    match segment {
        Some(fd) => send_with_fds(stream, &bytes, &[fd.as_fd()]),
        None => (&mut &*stream).write_all(&bytes),
    }
}

/// Client: sends a hello and reads the answer and, for a session, its segment.
pub fn hello(
    stream: &UnixStream,
    hello: &Hello,
) -> io::Result<(Result<Welcome, Refusal>, Option<OwnedFd>)> {
    (&mut &*stream).write_all(&frame(hello)?)?;
    answered(stream)
}

/// Relay: like [`hello`], for a session that arrives from another node. The descriptor is the socket
/// to the executor that takes it over ([`baltra_wire::moves`]).
pub(crate) fn hello_arriving(
    stream: &UnixStream,
    hello: &Hello,
) -> io::Result<(Result<Welcome, Refusal>, Option<OwnedFd>)> {
    (&mut &*stream).write_all(&frame(&(hello, Purpose::Arrive))?)?;
    answered(stream)
}

/// Relay: like [`hello_arriving`], for a session that leaves again.
pub(crate) fn hello_leaving(
    stream: &UnixStream,
    hello: &Hello,
) -> io::Result<(Result<Welcome, Refusal>, Option<OwnedFd>)> {
    (&mut &*stream).write_all(&frame(&(hello, Purpose::Leave))?)?;
    answered(stream)
}

/// Like [`hello`], for a session in memory that the client provides: passes descriptors of the
/// memory and, optionally, of a doorbell.
pub fn hello_sharing(
    stream: &UnixStream,
    hello: &Hello,
    share: &Share,
    fds: &[BorrowedFd<'_>],
) -> io::Result<Result<Welcome, Refusal>> {
    let mut bytes = frame(hello)?;
    encode(share, &mut bytes).map_err(|e| malformed(e.to_string()))?;
    let len = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    send_with_fds(stream, &bytes, fds)?;
    Ok(answered(stream)?.0)
}

fn answered(stream: &UnixStream) -> io::Result<(Result<Welcome, Refusal>, Option<OwnedFd>)> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 64 << 10];
    let mut segment = None;
    loop {
        let (n, fds) = recv_with_fds(stream, &mut piece, true)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        segment = segment.or(fds.into_iter().next());
        bytes.extend_from_slice(&piece[..n]);
        if bytes.len() < 4 {
            continue;
        }
        let len = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")) as usize;
        if len > ANSWER_BYTES_MAX {
            return Err(malformed(format!(
                "the manager's answer has {len} bytes (at most {ANSWER_BYTES_MAX} allowed)"
            )));
        }
        if bytes.len() >= 4 + len {
            let answer = decode(&bytes[4..4 + len]).map_err(|e| malformed(e.to_string()))?;
            return Ok((answer, segment));
        }
    }
}

/// Decodes a framed answer that was forwarded.
pub fn decode_answer(bytes: &[u8]) -> io::Result<Result<Welcome, Refusal>> {
    let rest = bytes.get(4..).unwrap_or_default();
    decode(rest).map_err(|e| malformed(e.to_string()))
}
