//! The socket to the manager of a process that keeps a session: it outlives the manager, and reports
//! to the next one.

use crate::Channel;
use baltra_wire::executor::{ToExecutor, ToManager};
use baltra_wire::VERSION;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Interval at which a process whose manager has exited looks for the next one.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The socket to a manager.
#[derive(Debug)]
pub struct Manager {
    /// `None`: the manager has exited.
    channel: Option<Channel>,
    adopt: Option<PathBuf>,
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The manager has sent something, or has exited.
    pub message: bool,
    /// The client's socket is closed.
    pub client_gone: bool,
}

impl Manager {
    /// Over a connected socket; `adopt`: the socket to report to when this manager has exited.
    pub fn new(channel: Channel, adopt: Option<PathBuf>) -> Manager {
        Manager {
            channel: Some(channel),
            adopt,
        }
    }

    /// Whether the manager has not exited.
    pub fn is_there(&self) -> bool {
        self.channel.is_some()
    }

    /// Waits for a message or the end of the client; without a manager for a second at the most.
    /// Messages of the client stay in its socket.
    pub fn wait(&self, client: Option<BorrowedFd<'_>>) -> io::Result<Found> {
        let mut fds = Vec::new();
        if let Some(channel) = &self.channel {
            fds.push(PollFd::new(channel, PollFlags::IN));
        }
        if let Some(client) = client {
            fds.push(PollFd::from_borrowed_fd(client, PollFlags::RDHUP));
        }
        let limit = self.channel.is_none().then_some(&LOOK_EVERY);
        match poll(&mut fds, limit) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let is_ready = |fd: Option<&PollFd>| fd.is_some_and(|fd| !fd.revents().is_empty());
        Ok(Found {
            message: self.channel.is_some() && is_ready(fds.first()),
            client_gone: client.is_some() && is_ready(fds.last()),
        })
    }

    /// The next message; `None`: the manager has exited.
    pub fn receive(&mut self) -> Option<(ToExecutor, Vec<OwnedFd>)> {
        let received = self.channel.as_ref()?.receive();
        if !matches!(received, Ok(Some(_))) {
            self.channel = None;
        }
        received.ok().flatten()
    }

    /// Sends a message, if the manager is there.
    pub fn send(&mut self, message: &ToManager) {
        if let Some(channel) = &self.channel {
            if channel.send(message, &[]).is_err() {
                self.channel = None;
            }
        }
    }

    /// Looks whether a new manager has come, and reports to it.
    pub fn report(&mut self, first: ToManager) {
        let Some(Ok(channel)) = self.adopt.as_ref().map(|path| Channel::connect(path)) else {
            return;
        };
        match channel.send(&(first, VERSION), &[]) {
            Ok(()) => self.channel = Some(channel),
            Err(error) => tracing::warn!(%error, "reporting to the new manager failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_wait_finds_messages_and_the_end_of_either_peer() {
        let (theirs, ours) = Channel::pair().unwrap();
        let mut manager = Manager::new(ours, None);
        let (client, socket) = UnixStream::pair().unwrap();
        let end = ToExecutor::MoveGo { session: 7 };
        theirs.send(&end, &[]).unwrap();
        let found = manager.wait(Some(socket.as_fd())).unwrap();
        assert_eq!((found.message, found.client_gone), (true, false));
        assert_eq!(manager.receive().unwrap().0, end);
        drop(client);
        let found = manager.wait(Some(socket.as_fd())).unwrap();
        assert_eq!((found.message, found.client_gone), (false, true));
        drop(theirs);
        assert!(manager.wait(None).unwrap().message);
        assert!(manager.receive().is_none() && !manager.is_there());
        // Without a manager it ends by itself.
        assert_eq!(manager.wait(None).unwrap(), Found::default());
    }
}
