//! The socket between the Device Manager and an executor: one postcard message per packet of a
//! `SOCK_SEQPACKET` Unix socket, with descriptors (`SCM_RIGHTS`). [`baltra_wire::executor`] defines
//! the messages.
//!
//! [`PACKET_BYTES_MAX`] and [`PACKET_FDS_MAX`] bound a packet.
#![forbid(unsafe_code)]

mod manager;

pub use manager::{Found, Manager};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{de::DeserializeOwned, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest packet, in bytes: below the default send buffer of a Unix socket.
pub const PACKET_BYTES_MAX: usize = 128 << 10;

/// Most descriptors in one packet.
pub const PACKET_FDS_MAX: usize = 128;

/// One end of the control socket.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

impl Channel {
    /// A connected pair; give one end's descriptor to the executor (both close on exec).
    pub fn pair() -> io::Result<(Channel, Channel)> {
        let (a, b) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Channel { socket: a }, Channel { socket: b }))
    }

    /// Wraps a connected socket.
    pub fn new(socket: OwnedFd) -> Channel {
        Channel { socket }
    }

    /// Connects to a manager's listening `SOCK_SEQPACKET` socket.
    pub fn connect(path: &std::path::Path) -> io::Result<Channel> {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::net::connect(&socket, &rustix::net::SocketAddrUnix::new(path)?)?;
        Ok(Channel { socket })
    }

    /// The socket itself.
    pub fn into_fd(self) -> OwnedFd {
        self.socket
    }

    /// Sends one message and its descriptors atomically. Blocks if the socket does.
    pub fn send<T: Serialize>(&self, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(256);
        baltra_wire::encode(message, &mut bytes).map_err(io::Error::other)?;
        if bytes.len() > PACKET_BYTES_MAX || fds.len() > PACKET_FDS_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("control packet of {} bytes is too long", bytes.len()),
            ));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_FDS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            let pushed = ancillary.push(SendAncillaryMessage::ScmRights(fds));
            debug_assert!(pushed, "the buffer is sized for it");
        }
        loop {
            match rustix::net::sendmsg(
                &self.socket,
                &[IoSlice::new(&bytes)],
                &mut ancillary,
                SendFlags::NOSIGNAL,
            ) {
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Receives one message and its descriptors; `None`: the other end is closed. Blocks if the
    /// socket does (`WouldBlock` otherwise). A malformed message is `InvalidData`.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut bytes = vec![0u8; PACKET_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_FDS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            match rustix::net::recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(&mut bytes)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            ) {
                // The kernel reports once that the other end was closed with unread messages, ahead
                // of the messages that the other end has sent before.
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
                Err(e) => return Err(e.into()),
                Ok(r) => break r,
            }
        };
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        if received
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "control packet is too long",
            ));
        }
        let message = baltra_wire::decode(&bytes[..received.bytes])
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        Ok(Some((message, fds)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_wire::executor::{SessionStart, ToExecutor};
    use baltra_wire::{Limits, SessionFlags};
    use std::io::{Read, Write};

    #[test]
    fn messages_and_descriptors_arrive_together() {
        let (a, b) = Channel::pair().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let message = ToExecutor::Session(SessionStart {
            session: 7,
            tenant: "red".into(),
            limits: Limits::default(),
            flags: SessionFlags::default(),
            lease: 1,
            instance: String::new(),
        });
        a.send(&message, &[writer.as_fd()]).unwrap();
        drop(writer);
        let (got, fds) = b.receive::<ToExecutor>().unwrap().unwrap();
        assert_eq!(got, message);
        let [fd] = <[OwnedFd; 1]>::try_from(fds).unwrap();
        std::fs::File::from(fd).write_all(b"x").unwrap();
        let mut text = String::new();
        std::fs::File::from(reader)
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "x");
    }

    #[test]
    fn a_closed_end_is_no_error() {
        let (a, b) = Channel::pair().unwrap();
        drop(a);
        assert!(b.receive::<ToExecutor>().unwrap().is_none());
    }

    #[test]
    fn the_last_message_of_an_end_that_was_closed_with_unread_ones_arrives() {
        let (a, b) = Channel::pair().unwrap();
        b.send(&ToExecutor::Exit, &[]).unwrap();
        a.send(&ToExecutor::Exit, &[]).unwrap();
        drop(a);
        let last = b
            .receive::<ToExecutor>()
            .unwrap()
            .map(|(message, _)| message);
        assert_eq!(last, Some(ToExecutor::Exit));
        assert!(b.receive::<ToExecutor>().unwrap().is_none());
    }

    #[test]
    fn garbage_is_an_error() {
        let (a, b) = Channel::pair().unwrap();
        a.send(&[0xffu8; 32], &[]).unwrap();
        let error = b.receive::<ToExecutor>().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
