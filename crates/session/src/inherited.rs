//! Sockets of sessions in a program that forks, or closes descriptors that it has not opened.
//!
//! A forked child inherits the sockets and, while it holds them open, the peers cannot detect that
//! the parent has ended. A program that closes all descriptors, as daemons do, may get a socket's
//! number for a file of its own: device and inode identify a socket, not its number.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Most registered sockets; those of further sessions stay open in a child until it ends.
const SOCKETS_MAX: usize = 128;
const NONE: RawFd = -1;

/// Device and inode that no socket has.
const ABSENT: Identity = (0, 0);

/// Device and inode of a descriptor's file.
pub type Identity = (u64, u64);

fn identity(fd: impl AsFd) -> Identity {
    let stat = rustix::fs::fstat(fd);
    stat.map_or(ABSENT, |stat| (stat.st_dev, stat.st_ino))
}

struct Entry {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

static SOCKETS: [Entry; SOCKETS_MAX] = [const {
    Entry {
        fd: AtomicI32::new(NONE),
        device: AtomicU64::new(ABSENT.0),
        inode: AtomicU64::new(ABSENT.1),
    }
}; SOCKETS_MAX];

/// Removes and returns all sockets with their identities, for a child to close. Takes no lock,
/// which is not allowed in the child of a multithreaded process.
pub fn take_sockets() -> impl Iterator<Item = (RawFd, Identity)> {
    let taken = SOCKETS.iter().map(|entry| {
        let fd = entry.fd.swap(NONE, Ordering::Relaxed);
        let device = entry.device.load(Ordering::Relaxed);
        (fd, (device, entry.inode.load(Ordering::Relaxed)))
    });
    taken.filter(|(fd, _)| *fd != NONE)
}

/// A registered socket, unregistered when dropped.
#[derive(Debug)]
pub(crate) struct Remembered(Option<&'static AtomicI32>);

impl Remembered {
    /// The socket must outlive the value.
    pub fn new(socket: &OwnedFd) -> Remembered {
        let fd = socket.as_raw_fd();
        let free = SOCKETS.iter().find(|entry| {
            let exchange = |order| entry.fd.compare_exchange(NONE, fd, order, order);
            exchange(Ordering::Relaxed).is_ok()
        });
        if let Some(entry) = free {
            // A child that is forked before this line leaves the socket open.
            let (device, inode) = identity(socket);
            entry.device.store(device, Ordering::Relaxed);
            entry.inode.store(inode, Ordering::Relaxed);
        }
        Remembered(free.map(|entry| &entry.fd))
    }
}

impl Drop for Remembered {
    fn drop(&mut self) {
        if let Some(entry) = self.0 {
            entry.store(NONE, Ordering::Relaxed);
        }
    }
}

/// A session's socket that detects when the application has closed all descriptors, as daemons do,
/// and its number refers to another file.
pub(crate) struct Socket {
    // Before the descriptor, so that the registration is removed before the descriptor is closed.
    _remembered: Remembered,
    fd: Option<OwnedFd>,
    identity: Identity,
}

impl Socket {
    pub fn new(fd: OwnedFd) -> Socket {
        Socket {
            _remembered: Remembered::new(&fd),
            identity: identity(&fd),
            fd: Some(fd),
        }
    }

    /// Returns the descriptor.
    pub fn into_fd(mut self) -> OwnedFd {
        self.fd.take().expect("there until the end")
    }

    /// The socket; `None`: it was closed by code outside this library.
    pub fn get(&self) -> Option<&OwnedFd> {
        let fd = self.fd.as_ref()?;
        (identity(fd) == self.identity).then_some(fd)
    }
}

impl std::ops::Deref for Socket {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        self.fd.as_ref().expect("there until the end")
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.fd.is_some() && self.get().is_none() {
            // The number belongs to another file now.
            let _ = self.fd.take().map(IntoRawFd::into_raw_fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_is_remembered_as_long_as_it_lives() {
        // The descriptor stays open, so that no other test gets its number.
        let (socket, _other) = UnixStream::pair().unwrap();
        let socket = OwnedFd::from(socket);
        let fd = socket.as_raw_fd();
        let known = || SOCKETS.iter().any(|s| s.fd.load(Ordering::Relaxed) == fd);
        let remembered = Remembered::new(&socket);
        assert!(known());
        drop(remembered);
        assert!(!known());
    }

    #[test]
    fn a_number_that_became_anothers_is_left_alone() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let socket = Socket::new(socket.into());
        let file = std::fs::File::open("/dev/null").unwrap();
        // The effect of closing all descriptors and opening a file.
        let number = socket.get().unwrap().try_clone().unwrap();
        let mut number = number;
        rustix::io::dup2(&file, &mut number).unwrap();
        let stolen = Socket {
            _remembered: Remembered::new(&number),
            fd: Some(number),
            identity: socket.identity,
        };
        assert!(stolen.get().is_none());
    }
}
