//! The client's socket: passes descriptors of arenas, and its end shows the client's end.

use baltra_ring::Locked;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Descriptors that a client may send ahead of the messages that announce them.
const PENDING_MAX: usize = 256;
const FDS_MAX: usize = 32;

/// Descriptors received over a client's socket.
pub struct Inbox {
    socket: OwnedFd,
    fds: Mutex<Pending>,
}

/// Descriptors that are not announced yet.
#[derive(Default)]
struct Pending {
    fds: VecDeque<OwnedFd>,
    /// Nothing is taken from the socket, because another executor may be going to do that.
    is_stopped: bool,
}

impl Inbox {
    /// Over a connected stream socket.
    pub fn new(socket: OwnedFd) -> Inbox {
        Inbox {
            socket,
            fds: Mutex::default(),
        }
    }

    /// Receives nothing until [`Inbox::start`]; returns the descriptors that are not announced yet.
    pub fn stop(&self) -> io::Result<Vec<OwnedFd>> {
        let mut pending = self.fds.locked();
        pending.is_stopped = true;
        pending.fds.iter().map(OwnedFd::try_clone).collect()
    }

    /// Receives again.
    pub fn start(&self) {
        self.fds.locked().is_stopped = false;
    }

    /// Adds descriptors that another executor has received.
    pub fn restore(&self, fds: Vec<OwnedFd>) {
        self.fds.locked().fds.extend(fds);
    }

    /// Receives available data; false: the client has disconnected.
    pub fn receive(&self) -> io::Result<bool> {
        let mut pending = self.fds.locked();
        if pending.is_stopped {
            return Ok(true);
        }
        let pending = &mut pending.fds;
        let mut bytes = [0u8; 256];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let received = rustix::net::recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(&mut bytes)],
                &mut ancillary,
                RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
            );
            match received {
                Ok(message) => {
                    for message in ancillary.drain() {
                        if let RecvAncillaryMessage::ScmRights(rights) = message {
                            pending.extend(rights);
                        }
                    }
                    if message.bytes == 0 || pending.len() > PENDING_MAX {
                        return Ok(false);
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(true),
                Err(rustix::io::Errno::CONNRESET) => return Ok(false),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// The next descriptor, which the client has sent before the message that needs it: a short
    /// wait is sufficient.
    pub fn next(&self, stop: impl Fn() -> bool) -> Option<OwnedFd> {
        let started = Instant::now();
        loop {
            let alive = self.receive().unwrap_or(false);
            let mut fds = self.fds.locked();
            if let Some(fd) = fds.fds.pop_front() {
                return Some(fd);
            }
            drop(fds);
            if !alive || stop() || started.elapsed() > Duration::from_secs(5) {
                return None;
            }
            let mut wait = [PollFd::new(&self.socket, PollFlags::IN)];
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: 5_000_000,
            };
            // Interrupted or over: looked at again either way.
            let _ = poll(&mut wait, Some(&timeout));
        }
    }

    /// Notifies the client of the session's end.
    pub fn shut_down(&self) {
        // It may be gone already.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
