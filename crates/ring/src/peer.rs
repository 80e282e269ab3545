//! Identity of the process at the other end of a socket.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};

/// A process, as recorded by the kernel when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Effective user of the process.
    pub uid: u32,
    /// Its process id; `None`: the process is outside this process's PID namespace, for example in
    /// another container.
    pub pid: Option<u32>,
}

impl Peer {
    /// The peer of a connected Unix socket.
    ///
    /// # Errors
    ///
    /// The kernel's error, in particular if the socket is not a Unix socket.
    pub fn of(socket: impl AsFd) -> io::Result<Peer> {
        let mut credentials = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut length = mem::size_of_val(&credentials) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, the size of `credentials`; any bytes
        // are a valid ucred.
        let failed = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &mut length,
            )
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        let pid = u32::try_from(credentials.pid).ok().filter(|pid| *pid != 0);
        Ok(Peer {
            uid: credentials.uid,
            pid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_peer_is_who_it_is() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        assert_eq!(peer.pid, Some(std::process::id()));
        let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        // For other families of sockets the kernel returns no credentials or an empty record.
        assert!(Peer::of(&other).map_or(true, |peer| peer.pid.is_none()));
    }
}
