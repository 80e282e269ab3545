//! The server of QEMU's `ivshmem-doorbell` device (QEMU's documentation, "Device specification for
//! Inter-VM shared memory device"): messages of eight bytes, little endian, optionally with a
//! descriptor. The host is peer 0 and never leaves; other peers are not announced to each other.

use baltra_session::fd::send_with_fds;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

const PROTOCOL_VERSION: i64 = 0;
const HOST: i64 = 0;
const MEMORY: i64 = -1;

fn say(socket: &UnixStream, word: i64, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    send_with_fds(socket, &word.to_le_bytes(), fd.as_slice())
}

/// Welcomes a peer: sends the region, the host's doorbells and the peer's own, one per vector.
pub fn welcome(
    socket: &UnixStream,
    peer: u32,
    memory: &OwnedFd,
    host: &[OwnedFd],
    own: &[OwnedFd],
) -> io::Result<()> {
    say(socket, PROTOCOL_VERSION, None)?;
    say(socket, peer.into(), None)?;
    say(socket, MEMORY, Some(memory.as_fd()))?;
    for event in host {
        say(socket, HOST, Some(event.as_fd()))?;
    }
    for event in own {
        say(socket, peer.into(), Some(event.as_fd()))?;
    }
    Ok(())
}
