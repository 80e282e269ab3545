//! What the Device Manager and an executor say to each other: one postcard message per packet
//! of a `SOCK_SEQPACKET` Unix socket, descriptors beside it (`SCM_RIGHTS`).
//!
//! The executor starts with its end of the socket inherited, loads the driver and says
//! [`ToManager::Ready`]. The manager then may hand it to a tenant ([`ToExecutor::Assign`]) and
//! give it sessions ([`ToExecutor::Session`]); both carry on by themselves afterwards. When the
//! manager is gone the executor goes on serving; with a path to come back to
//! ([`crate::Options::adopt`]) it calls on the next manager with [`ToManager::Adopt`].
//!
//! The manager is trusted by the executor. The executor is not trusted by the manager: it runs
//! a vendor's driver and a tenant's kernels. The manager bounds what it reads by
//! [`PACKET_BYTES_MAX`] and takes every text in here for a claim.

use baltra_wire::{DeviceDescription, Limits, SessionFlags, Share};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{de::DeserializeOwned, Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest packet, in bytes: below the default send buffer of a Unix socket.
pub const PACKET_BYTES_MAX: usize = 128 << 10;

/// The most descriptors that come with one packet.
pub const PACKET_FDS_MAX: usize = 128;

/// From the manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToExecutor {
    /// The executor is this tenant's from now on (`isolation = "tenant"` and `"session"`):
    /// compiled kernels are kept in `cache_dir`, which nobody else can read. Sent once, before
    /// the first session; the executor closes its sandbox over it. Not sent to an executor that
    /// tenants share (`"device"`).
    Assign {
        /// The tenant.
        tenant: String,
        /// An existing directory of the tenant's own; empty: keep nothing.
        cache_dir: String,
    },
    /// Serves a session. Four descriptors: the client's socket, the session segment, the lease
    /// page, the lease's bell (`baltra_ring::lease::create`).
    Session(SessionStart),
    /// Takes no more sessions; exits when the last one ends.
    Drain,
    /// Ends every session and exits.
    Exit,
    /// The device holds one image at a time (`image = "exclusive"`): programs ask for theirs.
    /// Said before the first session, and whenever the image changes.
    Image {
        /// The image that it holds; `None`: not known.
        digest: Option<String>,
    },
    /// Answers [`ToManager::Program`].
    Programmed {
        /// Its number.
        call: u64,
        /// Whether the program may run.
        verdict: Verdict,
    },
    /// Ends one session, whose device is wanted for something else: its client is told why, and
    /// may open another one elsewhere.
    End {
        /// Which.
        session: u64,
        /// Why, for people to read.
        reason: String,
    },
    /// As [`ToExecutor::Session`], with the client's memory in the segment's place, and, if it has one,
    /// the bell that it rings as a fifth descriptor.
    Sharing(SessionStart, Share),
}

/// What comes of a program's image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The device holds it.
    Loaded,
    /// The node does not have its bytes: ask again, with them.
    Lacking,
    /// The device holds another and keeps it; why, for people to read.
    Refused(String),
}

/// A session to serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStart {
    /// Its number on this node.
    pub session: u64,
    /// Whose it is.
    pub tenant: String,
    /// What the tenant may have.
    pub limits: Limits,
    /// How the session works.
    pub flags: SessionFlags,
    /// Names the lease: sessions of equal `lease` share one lease page (of one tenant), and the
    /// executor keeps the descriptors that came with the first of them.
    pub lease: u64,
    /// What its client says it is: kept for the next manager.
    pub instance: String,
}

/// From the executor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToManager {
    /// The driver is loaded, sessions may come.
    Ready {
        /// The executor's process.
        pid: u32,
        /// The device as the driver describes it.
        device: Box<DeviceDescription>,
    },
    /// A session is over and everything of it is freed.
    SessionEnded {
        /// Which.
        session: u64,
        /// Why, for people to read.
        reason: String,
    },
    /// The driver cannot be used; the executor exits.
    Failed {
        /// What and why, for people to read.
        text: String,
    },
    /// Sent first to a manager that this executor was not started by. Two descriptors for each
    /// lease come with it, page and bell, in order.
    Adopt {
        /// The executor's process.
        pid: u32,
        /// The device as the driver describes it.
        device: Box<DeviceDescription>,
        /// The tenant it was assigned to; empty: none, or a shared executor.
        tenant: String,
        /// The sessions that live; what their clients say they are follows, [`ToManager::Named`].
        sessions: Vec<SessionStart>,
        /// Their leases: name and tenant.
        leases: Vec<(u64, String)>,
    },
    /// A session has a program whose image the device is to hold. Each session asks for one at a
    /// time. With one descriptor, a sealed memory file, come the image's bytes.
    Program {
        /// Repeated by the answer.
        call: u64,
        /// Which session.
        session: u64,
        /// The image: sha256, lower-case hexadecimal.
        digest: String,
        /// Its kernels, where they are known.
        kernels: Vec<String>,
    },
    /// A session has released its last program of an image.
    Unused {
        /// Which session.
        session: u64,
        /// The image.
        digest: String,
    },
    /// Said after [`ToManager::Adopt`], in a packet for each session, since all of them may be too
    /// long for one: what a session's client says it is.
    Named {
        /// Which session.
        session: u64,
        /// As its hello had it.
        instance: String,
    },
    /// Said after [`ToManager::Adopt`]: a session has programs of the image that the device
    /// holds.
    InUse {
        /// Which session.
        session: u64,
        /// The image.
        digest: String,
    },
    /// Commands that belong to traces are over. Said to who has started this executor with
    /// [`crate::Options::traces`] alone.
    Traced {
        /// They are.
        tasks: Vec<TracedTask>,
        /// So many more were left out.
        dropped: u64,
    },
    /// This executor cannot go on: it takes no more sessions, ends those that it has and exits.
    Failing {
        /// Why.
        cause: Cause,
        /// Whose work caused it.
        session: u64,
        /// What happened, for people to read.
        reason: String,
    },
}

/// Why an executor cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cause {
    /// A command ran past its deadline: only the process's end stops it.
    Overdue,
    /// The driver's context is in error for as long as the process lives.
    ContextLost,
}

impl Cause {
    /// As metrics and logs name it.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Overdue => "overdue",
            Cause::ContextLost => "context_lost",
        }
    }
}

/// Commands of one session that belong to a trace, from the first one's coming to the last one's end. Times are
/// `CLOCK_MONOTONIC`'s nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedTask {
    /// Which session.
    pub session: u64,
    /// `trace-id`
    pub trace: [u8; 16],
    /// `parent-id`
    pub parent: [u8; 8],
    /// They came.
    pub came_ns: u64,
    /// The session held the device.
    pub granted_ns: u64,
    /// They were over.
    pub ended_ns: u64,
}

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

    /// A socket that is already connected.
    pub fn new(socket: OwnedFd) -> Channel {
        Channel { socket }
    }

    /// Calls on a manager's listening `SOCK_SEQPACKET` socket.
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

    /// Sends one message and its descriptors, whole or not at all. Blocks where the socket does.
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

    /// Receives one message and its descriptors; `None`: the other end is closed. Blocks where
    /// the socket does (`WouldBlock` otherwise). A malformed message is `InvalidData`.
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
                Err(rustix::io::Errno::INTR) => {}
                Err(e) if e == rustix::io::Errno::CONNRESET => return Ok(None),
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
    use std::io::{Read, Write};

    #[test]
    fn test_messages_and_descriptors_arrive_together() {
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
    fn test_a_closed_end_is_no_error() {
        let (a, b) = Channel::pair().unwrap();
        drop(a);
        assert!(b.receive::<ToExecutor>().unwrap().is_none());
    }

    #[test]
    fn test_garbage_is_an_error() {
        let (a, b) = Channel::pair().unwrap();
        a.send(&[0xffu8; 32], &[]).unwrap();
        let error = b.receive::<ToExecutor>().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
