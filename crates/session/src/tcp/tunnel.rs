//! The library's side of a TCP session, which takes the executor's place at the library's own
//! rings.
//!
//! A thread that flushes sends the frames itself ([`pump`]) unless another thread is sending, which
//! then also sends what was added. A thread that spins for an answer receives frames itself
//! ([`receiver`]), so that a round trip wakes no other thread; at other times one thread receives,
//! which also reconnects after a failure. Another thread waits while the socket's buffer is full.

mod channel;
mod leaving;
mod pump;
mod receiver;
pub(crate) mod relays;
mod subflows;
mod taken;

pub(crate) use leaving::Left;
pub(crate) use pump::Deferred;
pub(crate) use taken::{Descriptors, Taken, TakenArena, TakenQueue};

use super::dial::{self, Dialer};
use super::frame::{Kind, Violation};
use super::link::{Flushed, Link};
use super::reader::{Ended, Reader};
use super::stream::{Stream, CLOSED};
use super::GRACE;
use crate::client::{Peer, Shared};
use baltra_ring::{
    EventWriter, Locked, Memory, Producer, Progress, Range, Segment, Unpoisoned, Waiting,
};
use baltra_wire::facts::FactsRead;
use baltra_wire::opencl::DEVICE_NOT_AVAILABLE;
use baltra_wire::{encode, Completion, Event, Hello, Id, Notice, Payload, Version};
use channel::Channel;
use pump::Pump;
use receiver::{ReceiveState, Receiver};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, TryLockError, Weak};
use std::thread::{self, Builder, Thread};
use std::time::{Duration, Instant};

/// First and longest pause between attempts to reconnect.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// The receiving thread leaves the socket to waiting threads that read it themselves, and checks at
/// this interval whether they still do: this bounds the delay of frames without a waiter.
const LEAVE: Duration = Duration::from_micros(200);

/// Events whose completion the executor will report.
#[derive(Default)]
struct Events {
    /// Outstanding commands with an event: queue and piece.
    expected: HashMap<Event, (Arc<Channel>, u64)>,
    /// Events for which the library has requested a notice.
    watched: HashSet<Event>,
}

/// The stage of a tunnel, by the library's messages that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// All of them.
    Runs,
    /// No commands.
    Stops,
    /// Nothing.
    Stopped,
}

/// The end of a tunnel.
#[derive(Default)]
struct End {
    /// Nothing is received any more.
    has_come: bool,
    /// Another process may have continued the session, so that it outlives the tunnel.
    is_undecided: bool,
}

impl End {
    /// Whether the tunnel has ended, and the end or the continuation of its session is decided.
    fn is_final(&self) -> bool {
        self.has_come && !self.is_undecided
    }
}

/// One connection, which one thread at a time reads.
struct Incoming {
    stream: Arc<Stream>,
    reader: Reader,
    state: ReceiveState,
    /// Why the connection ended, detected by a waiting thread and handled by the receiving thread.
    ended: Option<Ended>,
}

impl Incoming {
    fn new(stream: Arc<Stream>) -> Incoming {
        Incoming {
            stream,
            reader: Reader::new(),
            // Frames that had begun to arrive are received again.
            state: ReceiveState::default(),
            ended: None,
        }
    }

    fn read(&mut self, inner: &Inner) -> Result<bool, Ended> {
        let state = &mut self.state;
        self.reader
            .read(&self.stream, &mut Receiver { inner, state })
    }
}

struct Inner {
    dialer: Dialer,
    hello: Hello,
    link: Link,
    /// Number of subflows that are opened for large transfers, and of offers so far.
    subflows: usize,
    offers: AtomicU32,
    /// For threads that this one starts.
    me: OnceLock<Weak<Inner>>,
    writer: EventWriter,
    notices: Mutex<Producer>,
    /// In the header of the library's notice ring: number of notices of printed text.
    printed: Progress,
    arenas: Mutex<HashMap<u32, Memory>>,
    channels: Mutex<HashMap<Id, Arc<Channel>>>,
    events: Mutex<Events>,
    pump: Mutex<Pump>,
    /// Whether messages were added since the pump's last check.
    dirty: AtomicBool,
    incoming: Mutex<Incoming>,
    /// Number of checks of the socket by waiting threads, and number of waiting threads that
    /// stopped because they sleep.
    looks: AtomicU64,
    sleepers: AtomicUsize,
    /// The thread that receives when no other thread does.
    receiver: OnceLock<Thread>,
    /// Held while bytes are received into their final place.
    receiving: Mutex<()>,
    /// Whether the pump waits for the socket.
    stalled: Mutex<bool>,
    unstalled: Condvar,
    closed: AtomicBool,
    /// A [`Stage`].
    stage: AtomicU8,
    /// Whether the thread in the library's place neither looks at its messages nor sleeps.
    rests: AtomicBool,
    /// Whether the library gets no notices, and whether another process serves it.
    is_silent: AtomicBool,
    is_retired: AtomicBool,
    /// Whether the library is a relay, which also gets the ends of commands as notices
    /// ([`baltra_wire::SessionFlags::mirror`]).
    mirror: bool,
    /// The facts that the program has read, and whether the peer receives reports of them.
    facts: FactsRead,
    passes_facts: bool,
    /// The program has closed the socket, and the library has been notified.
    socket_lost: AtomicBool,
    end: Mutex<End>,
    /// Why the session was lost.
    failure: Mutex<Option<String>>,
    over: Condvar,
    library: OnceLock<Weak<Shared>>,
}

/// The peer of a session over TCP.
pub(crate) struct Tunnel(Arc<Inner>);

impl Tunnel {
    /// A tunnel for a stream whose hello has been answered by a relay of version `relay`, and the
    /// library's `segment`. `hello` is sent again to resume the session.
    pub fn new(
        dialer: Dialer,
        hello: Hello,
        (stream, relay): (Stream, Version),
        segment: &Segment,
    ) -> io::Result<Tunnel> {
        let notices = Producer::new(segment.notices())?;
        let mut inner = Inner::new(
            dialer,
            hello,
            stream,
            segment,
            (notices, Pump::new(segment)?),
        )?;
        inner.subflows = subflows::count(relay);
        Self::start(Arc::new(inner))
    }

    fn start(inner: Arc<Inner>) -> io::Result<Tunnel> {
        // Called only once.
        let _ = inner.me.set(Arc::downgrade(&inner));
        let ours = inner.clone();
        let name = Builder::new().name("baltra-tcp".into());
        name.spawn(move || ours.run())?;
        let ours = inner.clone();
        let name = Builder::new().name("baltra-tcp-wait".into());
        name.spawn(move || ours.wait_for_socket())?;
        Ok(Tunnel(inner))
    }

    /// Sets the library that the tunnel serves, from which the tunnel takes its own event slots.
    pub fn attach(&self, library: Weak<Shared>) {
        // Called only once.
        let _ = self.0.library.set(library);
    }
}

impl Inner {
    fn new(
        dialer: Dialer,
        hello: Hello,
        stream: Stream,
        segment: &Segment,
        (notices, pump): (Producer, Pump),
    ) -> io::Result<Inner> {
        dial::reset_on_close(stream.fd())?;
        let stream = Arc::new(stream.guard());
        Ok(Inner {
            dialer,
            hello,
            link: Link::new(stream.clone()),
            subflows: 0,
            offers: 0.into(),
            me: OnceLock::new(),
            writer: EventWriter::new(segment),
            notices: Mutex::new(notices),
            printed: Progress::new(&segment.notices())?,
            arenas: Mutex::default(),
            channels: Mutex::default(),
            events: Mutex::default(),
            pump: Mutex::new(pump),
            dirty: false.into(),
            incoming: Mutex::new(Incoming::new(stream)),
            looks: 0.into(),
            sleepers: 0.into(),
            receiver: OnceLock::new(),
            receiving: Mutex::default(),
            stalled: false.into(),
            unstalled: Condvar::new(),
            closed: false.into(),
            stage: (Stage::Runs as u8).into(),
            rests: false.into(),
            is_silent: false.into(),
            is_retired: false.into(),
            mirror: false,
            facts: FactsRead::default(),
            passes_facts: true,
            socket_lost: false.into(),
            end: Mutex::default(),
            failure: Mutex::default(),
            over: Condvar::new(),
            library: OnceLock::new(),
        })
    }
}

impl Peer for Tunnel {
    fn send_arena(&self, arena: u32, memory: &Memory, _: &OwnedFd) -> io::Result<()> {
        self.0.arenas.locked().insert(arena, memory.clone());
        Ok(())
    }

    fn shares_arenas(&self) -> bool {
        false
    }

    fn spin(&self) -> Duration {
        // A round trip to a nearby host, so that the receiving thread does not have to wake another
        // one.
        Duration::from_micros(200)
    }

    fn wait_for_end(&self) {
        let mut end = self.0.end.locked();
        while !end.is_final() {
            end = self.0.over.wait(end).unpoisoned();
        }
    }

    fn kick(&self, _sleeps: bool) {
        self.0.kick();
    }

    fn kick_later(&self) {
        *self.0.stalled.locked() = true;
        self.0.unstalled.notify_one();
    }

    fn waiting(&self) -> &dyn Waiting {
        &*self.0
    }

    fn lend(&self, arena: u32, memory: &Memory) -> bool {
        self.0.arenas.locked().insert(arena, memory.clone());
        true
    }

    fn give_back(&self, arena: u32) {
        self.0.arenas.locked().remove(&arena);
    }

    fn close(&self) {
        let inner = &self.0;
        if !inner.closed.swap(true, Ordering::AcqRel) {
            let mut outbox = inner.link.outbox();
            outbox.push(&inner.link, Kind::Close, 0, &[], None);
            outbox.flush();
        }
        // Stops sending and receiving.
        inner.link.close();
        drop(inner.receiving.locked());
        inner.unstalled.notify_all();
        inner.call_receiver();
    }
}

/// A thread that spins for a reply reads the socket itself.
impl Waiting for Inner {
    fn look(&self) {
        let Ok(mut incoming) = self.incoming.try_lock() else {
            return;
        };
        self.looks.fetch_add(1, Ordering::Relaxed);
        if incoming.ended.is_some() {
            return;
        }
        if let Err(ended) = incoming.read(self) {
            incoming.stream.shutdown();
            let is_gone = incoming.stream.is_gone();
            incoming.ended = Some(ended);
            drop(incoming);
            if is_gone {
                self.fail_socket_lost();
            }
            self.call_receiver();
        }
    }

    fn sleeps(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        self.call_receiver();
    }

    fn woke(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Inner {
    fn stage(&self) -> Stage {
        match self.stage.load(Ordering::SeqCst) {
            0 => Stage::Runs,
            1 => Stage::Stops,
            _ => Stage::Stopped,
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Sends the rings' content, unless another thread is sending.
    fn kick(&self) {
        self.dirty.store(true, Ordering::SeqCst);
        loop {
            let mut pump = match self.pump.try_lock() {
                Ok(pump) => pump,
                // The thread that holds the lock checks `dirty` once more afterwards.
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(_)) => panic!("no panic under this lock"),
            };
            while self.dirty.swap(false, Ordering::SeqCst) {
                match pump.pass(self) {
                    Ok(Flushed::Stalled) => {
                        *self.stalled.locked() = true;
                        self.unstalled.notify_one();
                    }
                    Ok(Flushed::All) => {}
                    Ok(Flushed::Down) => self.check_socket(),
                    Err(violation) => self.fail(&violation.to_string()),
                }
            }
            drop(pump);
            if !self.dirty.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// The thread that waits until the socket accepts more data.
    fn wait_for_socket(&self) {
        loop {
            let mut stalled = self.stalled.locked();
            while !*stalled {
                if self.is_closed() {
                    return;
                }
                let timeout = Duration::from_secs(1);
                let waited = self.unstalled.wait_timeout(stalled, timeout);
                stalled = waited.unpoisoned().0;
            }
            *stalled = false;
            drop(stalled);
            let stream = self.link.outbox().stream();
            if let Some(stream) = stream {
                stream.wait_writable(Duration::from_millis(100));
            }
            self.kick();
        }
    }

    /// Ends the pause of the receiving thread.
    fn call_receiver(&self) {
        if let Some(receiver) = self.receiver.get() {
            receiver.unpark();
        }
    }

    /// The thread that receives when no waiting thread does.
    fn run(&self) {
        // Called only once.
        let _ = self.receiver.set(thread::current());
        loop {
            let ended = self.receive();
            self.link.down();
            if self.is_closed() {
                break;
            }
            match ended {
                Ended::Closed => break,
                Ended::Violation(violation) => {
                    self.fail(&violation.to_string());
                    break;
                }
                Ended::Broken(_) if self.incoming.locked().stream.is_gone() => {
                    self.fail_socket_lost();
                    break;
                }
                Ended::Broken(cause) => match self.reconnect() {
                    Ok(fresh) => *self.incoming.locked() = Incoming::new(fresh),
                    Err(why) => {
                        self.fail(&format!("the connection failed ({cause}) and {why}"));
                        break;
                    }
                },
            }
            self.kick();
        }
        self.end.locked().has_come = true;
        self.over.notify_all();
    }

    /// Receives until the connection ends.
    fn receive(&self) -> Ended {
        let stream = self.incoming.locked().stream.clone();
        let mut seen = self.looks.load(Ordering::Relaxed);
        loop {
            let looks = self.looks.load(Ordering::Relaxed);
            let others = looks != seen && self.sleepers.load(Ordering::SeqCst) == 0;
            seen = looks;
            if others {
                thread::park_timeout(LEAVE);
                continue;
            }
            stream.wait_readable();
            let mut incoming = self.incoming.locked();
            if let Some(ended) = incoming.ended.take() {
                return ended;
            }
            if let Err(ended) = incoming.read(self) {
                return ended;
            }
        }
    }

    fn reconnect(&self) -> Result<Arc<Stream>, String> {
        let deadline = Instant::now() + GRACE;
        let mut pause = RETRY_FIRST;
        loop {
            let failure = match self.try_resume() {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(refused)) => return Err(refused),
                Err(failure) => failure,
            };
            if Instant::now() + pause > deadline || self.is_closed() {
                let seconds = GRACE.as_secs();
                return Err(format!(
                    "could not be resumed within {seconds} s: {failure}"
                ));
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(RETRY_MAX);
        }
    }

    /// One attempt to reconnect; the inner error is final.
    fn try_resume(&self) -> io::Result<Result<Arc<Stream>, String>> {
        let (stream, deadline) = self.dialer.connect()?;
        if let Err(refusal) = dial::hello(&stream, &self.hello, deadline, deadline)? {
            return Ok(Err(format!("could not be resumed: {refusal}")));
        }
        let theirs = dial::exchange_counts(&stream, self.link.received(), deadline)?;
        dial::reset_on_close(stream.fd())?;
        let stream = Arc::new(stream.guard());
        match self.link.resume(stream.clone(), theirs) {
            Ok(()) => Ok(Ok(stream)),
            Err(violation) => Ok(Err(violation.to_string())),
        }
    }

    /// Fails the session if the program has closed its socket while the receiving thread waits for
    /// it; the receiving thread handles every other end of the connection.
    fn check_socket(&self) {
        let lost = self
            .incoming
            .try_lock()
            .is_ok_and(|incoming| incoming.stream.is_gone());
        if lost {
            self.fail_socket_lost();
        }
    }

    /// Fails a session whose socket the program has closed. The session cannot be resumed, because
    /// its other end may have interpreted the reset as the end of the program.
    fn fail_socket_lost(&self) {
        if !self.socket_lost.swap(true, Ordering::AcqRel) {
            self.fail(CLOSED);
        }
    }

    /// Notifies the library that the session was lost, with the reason.
    fn fail(&self, text: &str) {
        self.failure.locked().get_or_insert_with(|| text.to_owned());
        self.notify(&Notice::Fatal {
            code: DEVICE_NOT_AVAILABLE,
            text,
        });
        self.link.down();
    }

    /// Adds a notice of the tunnel itself.
    fn notify(&self, notice: &Notice<'_>) {
        let mut bytes = Vec::new();
        if encode(notice, &mut bytes).is_ok() {
            self.pass_on(&bytes, true);
        }
    }

    /// Passes printed text to the library, which reads it at the end of a wait for a command.
    fn print(&self, notice: &[u8]) {
        self.pass_on(notice, false);
        self.printed.publish(self.printed.completed() + 1);
    }

    /// Passes a notice to the library.
    fn pass_on(&self, notice: &[u8], publish: bool) {
        let mut notices = self.notices.locked();
        // Another process may write there.
        if self.is_silent.load(Ordering::SeqCst) {
            return;
        }
        if notices.try_push(notice).is_err() {
            let pause = || {
                std::thread::sleep(Duration::from_micros(50));
                !self.is_closed()
            };
            // A closed session reads no notices.
            let _ = notices.push_large(notice, pause);
        }
        if publish {
            notices.publish();
        }
    }

    /// The library's memory for a payload.
    fn memory(&self, payload: Payload) -> Result<Range, Violation> {
        let arenas = self.arenas.locked();
        let memory = arenas.get(&payload.arena);
        let range = memory.and_then(|m| m.slice(payload.offset, payload.len));
        range.ok_or_else(|| Violation::new("a payload outside the library's arenas"))
    }

    /// Registers an event for which the library requests a notice. A complete one has been reported
    /// already, and the executor reports each only once.
    fn watch(&self, event: Event) {
        let mut events = self.events.locked();
        let status = self.writer.status(event);
        if status > 0 {
            events.watched.insert(event);
            return;
        }
        drop(events);
        self.notify(&Notice::Completed(Completion {
            event,
            status,
            times_ns: self.writer.times(event),
        }));
    }

    /// Takes an event slot for the tunnel itself; `None`: all are in use.
    fn take_event(&self) -> Option<Event> {
        self.library.get()?.upgrade()?.events().alloc()
    }

    /// Frees the tunnel's own events that are no longer referenced.
    fn give_events(&self, spent: &[Event]) {
        let Some(library) = self.library.get().and_then(Weak::upgrade) else {
            return;
        };
        let mut events = self.events.locked();
        for event in spent {
            events.expected.remove(event);
            library.events().free(*event);
        }
    }
}
