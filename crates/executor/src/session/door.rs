//! A session whose client is beyond a futex's reach, in a VM: all of its memory lies in a part of the
//! VM's region, and where it has something to say to a thread that sleeps it rings a bell.

use super::Session;
use baltra_ring::{Memory, Segment};
use baltra_wire::Share;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a bell is waited for before the session is looked at.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// How often the rings are looked at where there is no bell.
const LOOK_UNTOLD: Duration = Duration::from_millis(1);

/// Where a session's memory is.
pub enum Place {
    /// A segment's memfd of its own; arenas come over the socket.
    Segment(OwnedFd),
    /// All in a part of a memfd.
    Part {
        /// The memfd. It is held until nothing of the session is left, so that a lock on its open
        /// file description tells others when.
        memory: OwnedFd,
        /// Which part.
        share: Share,
        /// What the client rings; none: nobody does.
        bell: Option<OwnedFd>,
    },
}

/// The way to a client in a VM.
pub(super) struct Door {
    pub memory: OwnedFd,
    pub share: Share,
    bell: Option<Arc<OwnedFd>>,
}

impl Place {
    pub(super) fn open(self) -> io::Result<(Segment, Option<Door>)> {
        match self {
            Place::Segment(fd) => Ok((Segment::map(&fd)?, None)),
            Place::Part {
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
                Ok((segment, Some(door)))
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
                    _ => std::thread::sleep(LOOK_UNTOLD),
                }
            }
            None => std::thread::sleep(LOOK_UNTOLD),
        }
        let Some(session) = session.upgrade().filter(|session| !session.is_closed()) else {
            return;
        };
        session.control_waker.wake_behind();
        for queue in &*session.queues.lock().expect("no panic under this lock") {
            queue.wake_behind();
        }
    }
}
