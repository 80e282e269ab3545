//! A session of a client in a VM, which cannot use the host's futexes: all of its memory is in a
//! part of the VM's region, and the client rings a doorbell to wake a sleeping thread.

use super::Session;
use baltra_ring::{Locked, Memory, Segment};
use baltra_wire::Share;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Maximum wait for the doorbell before the session is checked.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// Interval for polling the rings without a doorbell.
const POLL_EVERY: Duration = Duration::from_millis(1);

/// The memory of a session.
pub enum SessionMemory {
    /// The memfd of a segment; arenas are passed over the socket.
    Segment(OwnedFd),
    /// All in a part of a memfd.
    Part {
        /// The memfd. It is held until the session's resources are freed: a lock on its open file
        /// description shows others that the part is in use.
        memory: OwnedFd,
        /// The part.
        share: Share,
        /// The client's doorbell; none: there is none.
        bell: Option<OwnedFd>,
    },
}

/// The way to a client in a VM.
pub(super) struct Door {
    pub memory: OwnedFd,
    pub share: Share,
    bell: Option<Arc<OwnedFd>>,
}

/// A session's memory, mapped.
pub(super) struct Opened {
    pub segment: Segment,
    /// The segment's file, unless the client brought the memory.
    pub memory: Option<OwnedFd>,
    pub door: Option<Door>,
}

impl SessionMemory {
    pub(super) fn open(self) -> io::Result<Opened> {
        match self {
            SessionMemory::Segment(fd) => Ok(Opened {
                segment: Segment::map(&fd)?,
                memory: Some(fd),
                door: None,
            }),
            SessionMemory::Part {
                memory,
                share,
                bell,
            } => {
                let part = Memory::map_part(&memory, share.offset, baltra_ring::SEGMENT_BYTES)?;
                let all = part.slice(0, part.len().min(share.len));
                let segment = Segment::read(&all.ok_or(io::ErrorKind::InvalidInput)?)?;
                let bell = bell.map(Arc::new);
                let door = Door {
                    memory,
                    share,
                    bell,
                };
                Ok(Opened {
                    segment,
                    memory: None,
                    door: Some(door),
                })
            }
        }
    }
}

impl Door {
    /// Starts the thread that wakes the session's others.
    pub fn listen(&self, session: &Arc<Session>) -> io::Result<()> {
        let (bell, session) = (self.bell.clone(), Arc::downgrade(session));
        let name = std::thread::Builder::new().name("door".into());
        name.spawn(move || listen(bell.as_deref(), &session))?;
        Ok(())
    }
}

/// A bell is whatever the client sent for one: the session is not held while it is waited for.
fn listen(bell: Option<&OwnedFd>, session: &Weak<Session>) {
    loop {
        match bell {
            Some(bell) => {
                let mut fds = [PollFd::new(bell, PollFlags::IN)];
                match poll(&mut fds, Some(&LOOK_EVERY)) {
                    Ok(0) | Err(rustix::io::Errno::INTR) => {}
                    Ok(_) if fds[0].revents().contains(PollFlags::IN) => {
                        let _ = rustix::io::read(bell, &mut [0u8; 8]);
                    }
                    // No bell: as if there were none.
                    _ => std::thread::sleep(POLL_EVERY),
                }
            }
            None => std::thread::sleep(POLL_EVERY),
        }
        let Some(session) = session.upgrade().filter(|session| !session.is_closed()) else {
            return;
        };
        session.control_waker.wake_behind();
        for queue in &*session.queues.locked() {
            queue.wake_behind();
        }
    }
}
