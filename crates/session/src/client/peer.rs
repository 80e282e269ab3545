//! The interface of the client's end to the other end of a session.

use super::Pool;
use crate::fd::send_with_fds;
use crate::inherited::Socket;
use baltra_ring::{Memory, Waiting};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The other end of a session; it receives the arenas' descriptors.
pub(crate) trait Peer: Send + Sync {
    /// Passes an arena's memory; called before its `ArenaAdd` is pushed.
    fn send_arena(&self, arena: u32, memory: &Memory, fd: &OwnedFd) -> io::Result<()>;
    /// Blocks until the peer has exited, or [`Peer::close`] is called.
    fn wait_for_end(&self);
    /// The memory that contains all arenas; `None`: each arena has its own memfd.
    fn pool(&self) -> Option<&Pool> {
        None
    }
    /// Whether the executor maps this side's arenas.
    fn shares_arenas(&self) -> bool {
        true
    }
    /// Whether the peer runs under another kernel.
    fn is_elsewhere(&self) -> bool {
        false
    }
    /// Messages were published in one of the rings. `_sleeps`: whether its consumer slept.
    fn kick(&self, _sleeps: bool) {}
    /// Like [`Peer::kick`], from within a message: another thread has to do the work.
    fn kick_later(&self) {}
    /// Maximum spin of a waiter before it sleeps: a few round trips.
    fn spin(&self) -> Duration {
        Duration::from_micros(50)
    }
    /// Hooks of waiting threads.
    fn waiting(&self) -> &dyn Waiting {
        &()
    }
    /// Accepts memory that is not shared, under an arena's id, for one command; `false`: shared
    /// memory is required.
    fn lend(&self, _arena: u32, _memory: &Memory) -> bool {
        false
    }
    /// Ends a loan whose command was not enqueued.
    fn give_back(&self, _arena: u32) {}
    /// Ends the session. After it returns, lent memory is no longer accessed.
    fn close(&self);
}

impl<P: Peer> Peer for Arc<P> {
    fn send_arena(&self, arena: u32, memory: &Memory, fd: &OwnedFd) -> io::Result<()> {
        self.as_ref().send_arena(arena, memory, fd)
    }

    fn wait_for_end(&self) {
        self.as_ref().wait_for_end();
    }

    fn kick(&self, sleeps: bool) {
        self.as_ref().kick(sleeps);
    }

    fn kick_later(&self) {
        self.as_ref().kick_later();
    }

    fn spin(&self) -> Duration {
        self.as_ref().spin()
    }

    fn waiting(&self) -> &dyn Waiting {
        self.as_ref().waiting()
    }

    fn shares_arenas(&self) -> bool {
        self.as_ref().shares_arenas()
    }

    fn lend(&self, arena: u32, memory: &Memory) -> bool {
        self.as_ref().lend(arena, memory)
    }

    fn give_back(&self, arena: u32) {
        self.as_ref().give_back(arena);
    }

    fn close(&self) {
        self.as_ref().close();
    }
}

impl Peer for Socket {
    fn send_arena(&self, _: u32, _: &Memory, fd: &OwnedFd) -> io::Result<()> {
        let socket = self.get().ok_or(io::ErrorKind::NotConnected)?;
        send_with_fds(socket, &[1], &[fd.as_fd()])
    }

    fn wait_for_end(&self) {
        let mut bytes = [0; 16];
        // The executor sends nothing on this socket: any event is its end.
        while let Some(socket) = self.get() {
            match rustix::io::read(socket, &mut bytes) {
                Ok(n) if n > 0 => {}
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
    }

    fn close(&self) {
        if let Some(socket) = self.get() {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }
}
