//! A tunnel that takes the place of an executor in a session of another process, whose library
//! continues to use its rings.

use super::pump::{Deferred, Pump};
use super::{Inner, Tunnel, Violation};
use crate::fd::recv_with_fds;
use crate::tcp::dial::Dialer;
use crate::tcp::stream::Stream;
use baltra_ring::{Locked, Memory, Position, Producer, Segment, Spin, Waiting, Waker};
use baltra_wire::facts::FactsRead;
use baltra_wire::moves::ArenaState;
use baltra_wire::{Event, Hello, Id, Payload};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Descriptors that a library may send ahead of the messages that announce them.
const PENDING_MAX: usize = 256;
/// A library has sent a descriptor before its announcement; it arrives within this.
const ARRIVES: Duration = Duration::from_secs(5);
/// Pause while the socket's buffer is full, of the thread that would otherwise look at the library's
/// messages again at once.
const PAUSE: Duration = Duration::from_micros(200);
/// Time for which the thread receives itself before it sleeps: a round trip to a nearby node.
const SPIN: Duration = Duration::from_micros(200);
/// Interval at which the thread looks whether the session has ended.
const LOOK: Duration = Duration::from_millis(500);

/// A command queue where the executor has stopped.
pub(crate) struct TakenQueue {
    pub id: Id,
    /// `cl_command_queue_properties`
    pub properties: u64,
    pub ring: Payload,
    pub position: Position,
    /// Number of the first commands that are complete.
    pub completed: u64,
    /// Commands that the executor had taken from the ring and not begun.
    pub taken: VecDeque<Vec<u8>>,
}

impl TakenQueue {
    /// A queue without commands.
    pub fn new(id: Id, properties: u64, ring: Payload) -> TakenQueue {
        TakenQueue {
            id,
            properties,
            ring,
            position: Position::default(),
            completed: 0,
            taken: VecDeque::new(),
        }
    }
}

/// The parts of a stopped session that a tunnel takes over.
pub(crate) struct Taken {
    /// The reading end of the control channel, and messages carried out.
    pub control: Position,
    pub controls: u64,
    /// The writing end of the notices, and those that were not sent.
    pub notices: Position,
    pub unsent: Vec<Vec<u8>>,
    pub arenas: HashMap<u32, TakenArena>,
    /// Records that added event slots to the first ones.
    pub slots: Vec<Vec<u8>>,
    pub queues: Vec<TakenQueue>,
    /// Releases that wait for commands.
    pub releases: Vec<Deferred>,
    /// Events of whose end the library wants a notice.
    pub watched: Vec<Event>,
    /// Whether the library is a relay.
    pub mirror: bool,
    /// The facts that the program has read so far.
    pub facts: FactsRead,
    /// Whether the other node receives reports of them.
    pub passes_facts: bool,
    pub descriptors: Descriptors,
}

/// An arena of the library.
pub(crate) struct TakenArena {
    pub memory: Memory,
    pub file: OwnedFd,
    pub state: ArenaState,
}

/// The descriptors that a library passes over its socket.
pub(crate) struct Descriptors {
    pub socket: Arc<OwnedFd>,
    /// Those that are not announced yet.
    pub pending: VecDeque<OwnedFd>,
}

impl Descriptors {
    /// The memory of an arena that the library announces.
    pub fn arena(&mut self, len: u64) -> Result<(Memory, OwnedFd), Violation> {
        let deadline = Instant::now() + ARRIVES;
        while self.pending.is_empty() && Instant::now() < deadline {
            let mut wait = [PollFd::new(&*self.socket, PollFlags::IN)];
            let moment = Timespec {
                tv_sec: 0,
                tv_nsec: 50_000_000,
            };
            // Interrupted or over: looked at again either way.
            let _ = poll(&mut wait, Some(&moment));
            match recv_with_fds(&*self.socket, &mut [0; 256], false) {
                Ok((0, _)) => break,
                Ok((_, fds)) => self.pending.extend(fds),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        if self.pending.len() > PENDING_MAX {
            return Err(Violation::new("more descriptors than announcements"));
        }
        let fd = self.pending.pop_front();
        let fd = fd.ok_or_else(|| Violation::new("arena lacks its descriptor"))?;
        let memory = Memory::map(&fd, len);
        let memory = memory.map_err(|e| Violation(format!("an arena cannot be mapped: {e}")))?;
        Ok((memory, fd))
    }
}

impl Inner {
    /// Sends the library's messages, and receives the answers while it may wait for them, until the
    /// session is closed.
    fn serve_library(&self, waker: &Waker) {
        let spin = Spin::default();
        while !self.is_closed() {
            self.rest();
            let seen = waker.published();
            self.kick();
            if self.link.outbox().unsent() > 0 {
                std::thread::sleep(PAUSE);
            }
            let came = || {
                self.look();
                waker.published() != seen
            };
            if spin.until(SPIN, came) {
                continue;
            }
            self.sleeps();
            waker.wait_unless(Some(LOOK), || self.is_closed());
            self.woke();
        }
    }
}

impl Tunnel {
    /// Takes the place of an executor that has stopped. `hello` resumes the session on the other
    /// node.
    pub fn take_over(
        dialer: Dialer,
        hello: Hello,
        stream: Stream,
        segment: &Segment,
        mut taken: Taken,
    ) -> io::Result<Tunnel> {
        let notices = Producer::resume(segment.notices(), taken.notices)?;
        // Replaced below, once the arenas are known.
        let none = Pump::new(segment)?;
        let mut inner = Inner::new(dialer, hello, stream, segment, (notices, none))?;
        inner.mirror = taken.mirror;
        inner.facts.set(taken.facts.get());
        inner.passes_facts = taken.passes_facts;
        let arenas = taken.arenas.iter();
        *inner.arenas.locked() = arenas.map(|(id, own)| (*id, own.memory.clone())).collect();
        inner.events.locked().watched = taken.watched.drain(..).collect();
        for notice in taken.unsent.drain(..) {
            inner.pass_on(&notice, true);
        }
        let pump = Pump::take_over(&inner, segment, taken).map_err(io::Error::other)?;
        let waker = pump.waker();
        *inner.pump.locked() = pump;
        let inner = Arc::new(inner);
        let ours = inner.clone();
        let name = Builder::new().name("baltra-library".into());
        name.spawn(move || ours.serve_library(&waker))?;
        Self::start(inner)
    }

    /// Number of its command queues.
    pub fn queues(&self) -> usize {
        self.0.channels.locked().len()
    }

    /// The facts that the program has read, if it has reported them.
    pub fn facts_read(&self) -> Option<u64> {
        self.0.facts.get()
    }

    /// Why the session was lost, if it was.
    pub fn failure(&self) -> Option<String> {
        self.0.failure.locked().clone()
    }
}
