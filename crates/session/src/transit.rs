//! A session's way to another node ([`baltra_wire::transit`]): messages and contents on a stream, and
//! what both ends need of the protocol of two executors ([`baltra_wire::moves`]).

pub(crate) mod incoming;
pub(crate) mod outgoing;

use crate::tcp::dial::read_framed;
use crate::tcp::stream::Stream;
use baltra_channel::Channel;
use baltra_ring::{Memory, Range};
use baltra_wire::moves::{RingPosition, ToTarget};
use baltra_wire::{decode, encode, MESSAGE_BYTES_MAX};
use rustix::net::sockopt::{set_socket_timeout, Timeout};
use serde::{de::DeserializeOwned, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Each message, with what follows it, is sent and received within this; while the session runs, the
/// executor at the other end may take turns at a busy device for as long.
pub(crate) const STEP: Duration = Duration::from_secs(45);
/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 1 << 20;

pub(crate) fn lost(error: io::Error) -> String {
    format!("the connection of the two nodes failed: {error}")
}

/// Sends one message.
pub(crate) fn send<T: Serialize>(stream: &Stream, message: &T) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    encode(message, &mut bytes).map_err(io::Error::other)?;
    let len = bytes.len() - 4;
    if len > MESSAGE_BYTES_MAX {
        return Err(io::Error::other(format!("a message of {len} bytes")));
    }
    bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
    stream.send_all(&bytes, Instant::now() + STEP)
}

/// Receives one message.
pub(crate) fn receive<T: DeserializeOwned>(stream: &Stream) -> io::Result<T> {
    receive_until(stream, Instant::now() + STEP)
}

/// Receives one message, before `deadline`.
pub(crate) fn receive_until<T: DeserializeOwned>(
    stream: &Stream,
    deadline: Instant,
) -> io::Result<T> {
    let bytes = read_framed(stream, MESSAGE_BYTES_MAX, deadline)?;
    decode(&bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))
}

/// Sends the bytes of a range.
pub(crate) fn send_range(stream: &Stream, range: &Range) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES.min(range.len())];
    let mut at = 0;
    while at < range.len() {
        let len = piece.len().min(range.len() - at);
        range.copy_out(at, &mut piece[..len]);
        stream.send_all(&piece[..len], Instant::now() + STEP)?;
        at += len;
    }
    Ok(())
}

/// Fills a range with received bytes, before `deadline`.
pub(crate) fn receive_range(stream: &Stream, range: &Range, deadline: Instant) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES.min(range.len())];
    let mut at = 0;
    while at < range.len() {
        let len = piece.len().min(range.len() - at);
        stream.recv_exact(&mut piece[..len], deadline)?;
        range.copy_in(at, &piece[..len]);
        at += len;
    }
    Ok(())
}

/// An executor that does not send or receive for [`STEP`] fails the move.
pub(crate) fn limit(executor: &Channel) -> io::Result<()> {
    let set = |which| set_socket_timeout(executor.as_fd(), which, Some(STEP));
    set(Timeout::Send).and_then(|()| set(Timeout::Recv))?;
    Ok(())
}

/// The next message of an executor at the other end of a move.
pub(crate) fn next<T: DeserializeOwned>(executor: &Channel) -> Result<(T, Vec<OwnedFd>), String> {
    match executor.receive() {
        Ok(Some(received)) => Ok(received),
        Ok(None) => Err("the executor has ended, or changed its mind".into()),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            Err("the executor takes too long".into())
        }
        Err(e) => Err(format!("the connection to the executor failed: {e}")),
    }
}

/// The bytes of a message.
pub(crate) fn encoded<T: Serialize>(message: &T) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// A file of an encoded message, and its bytes.
pub(crate) fn file_of<T: Serialize>(message: &T) -> Result<(OwnedFd, u64), String> {
    let bytes = encoded(message)?;
    let len = bytes.len() as u64;
    let made = Memory::create("baltra-move", len.max(1));
    let (memory, fd) = made.map_err(|e| format!("no host memory for {len} bytes: {e}"))?;
    let all = memory.slice(0, len).ok_or("a message without bytes")?;
    all.copy_in(0, &bytes);
    Ok((fd, len))
}

/// Sends an executor a message in a file, which is the first descriptor.
pub(crate) fn send_blob<T: Serialize>(
    executor: &Channel,
    what: &T,
    message: impl FnOnce(u64) -> ToTarget,
    more: &[BorrowedFd<'_>],
) -> Result<(), String> {
    let (file, len) = file_of(what)?;
    let mut fds = vec![file.as_fd()];
    fds.extend(more);
    let sent = executor.send(&message(len), &fds);
    sent.map_err(|e| format!("the connection to the executor failed: {e}"))
}

/// Decodes the message in a file, from a private copy.
pub(crate) fn read_file<T: DeserializeOwned>(fds: Vec<OwnedFd>, len: u64) -> Result<T, String> {
    let fd = fds.into_iter().next();
    let fd = fd.ok_or("message lacks its descriptor")?;
    if len > MESSAGE_BYTES_MAX as u64 {
        return Err(format!(
            "its description has {len} bytes, too many for a network"
        ));
    }
    let memory = Memory::map(&fd, len.max(1)).map_err(|e| e.to_string())?;
    let all = memory.slice(0, len).ok_or("a message outside its file")?;
    let mut bytes = vec![0; len as usize];
    all.copy_out(0, &mut bytes);
    decode(&bytes).map_err(|e| e.to_string())
}

/// A ring's position in a message.
pub(crate) fn ring_position(position: baltra_ring::Position) -> RingPosition {
    (position.bytes, position.messages, position.peer)
}

/// A ring's position, as a message has it.
pub(crate) fn position((bytes, messages, peer): RingPosition) -> baltra_ring::Position {
    baltra_ring::Position {
        bytes,
        messages,
        peer,
    }
}
