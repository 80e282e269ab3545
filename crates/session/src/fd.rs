//! Passing descriptors over a Unix socket.

use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most descriptors of one message.
pub const FDS_MAX: usize = 8;

/// Sends `bytes` (not empty) and `fds` (at most [`FDS_MAX`]) in one message.
pub fn send_with_fds(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "too many descriptors in one message",
        ));
    }
    let sent = rustix::io::retry_on_intr(|| {
        sendmsg(
            &socket,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )
    })?;
    if sent < bytes.len() {
        // A stream socket accepted a part of the message: the rest is sent without descriptors,
        // which were passed with the first byte.
        let mut rest = &bytes[sent..];
        while !rest.is_empty() {
            let n = rustix::io::retry_on_intr(|| {
                rustix::net::send(&socket, rest, SendFlags::NOSIGNAL)
            })?;
            rest = &rest[n..];
        }
    }
    Ok(())
}

/// Receives into `bytes`; returns the number of bytes (0: the peer has closed) and the descriptors
/// passed with them. `wait`: block until data arrives, otherwise return `WouldBlock`.
pub fn recv_with_fds(
    socket: impl AsFd,
    bytes: &mut [u8],
    wait: bool,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut flags = RecvFlags::CMSG_CLOEXEC;
    if !wait {
        flags |= RecvFlags::DONTWAIT;
    }
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)
    })?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok((received.bytes, fds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_arrive_with_their_bytes() {
        let (a, b) = UnixStream::pair().unwrap();
        let (x, y) = UnixStream::pair().unwrap();
        send_with_fds(&a, b"hi", &[x.as_fd(), y.as_fd()]).unwrap();
        let mut bytes = [0; 8];
        let (n, fds) = recv_with_fds(&b, &mut bytes, true).unwrap();
        assert_eq!((&bytes[..n], fds.len()), (&b"hi"[..], 2));
        let again = recv_with_fds(&b, &mut bytes, false).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert_eq!(recv_with_fds(&b, &mut bytes, true).unwrap().0, 0);
    }
}
