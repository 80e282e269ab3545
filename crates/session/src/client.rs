//! The client's end of a session.
//!
//! Only [`Client::call`] and the waits of [`Queue`] and events block on the peer. Three threads
//! serve a session: one takes notices off their ring, one detects the end of the peer on the
//! socket, and one, which runs only while commands of a full queue are spilled, moves these into
//! the ring.

pub(crate) mod arena;
mod notices;
mod peer;
mod printing;
mod queue;
mod shared;

pub(crate) use arena::Pool;
pub use arena::{Block, Loan};
pub(crate) use peer::Peer;
pub use queue::Queue;
pub(crate) use shared::Shared;
use shared::{failed, ControlChannel, Freed, Replied, Watcher};

use crate::inherited::Socket;
use crate::tcp::dial::Dialer;
use crate::tcp::stream::Stream;
use crate::tcp::tunnel::Tunnel;
use crate::{handshake, ivshmem, tcp, Endpoint};
use baltra_ring::{Consumer, EventTable, Locked, Memory, Producer, Segment};
use baltra_wire::opencl::DEVICE_NOT_AVAILABLE;
use baltra_wire::{
    Control, DeviceDescription, Event, Hello, Id, Refusal, Reply, Request, Version, Welcome,
};
use sha2::{Digest, Sha256};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The first version with [`Control::QueueRun`] and [`Request::Creation`].
const RECENT: Version = Version { major: 1, minor: 2 };
/// The first version with `Query::KernelArg`.
const BINARIES: Version = Version { major: 1, minor: 3 };

/// The first version with [`Request::ProgramDigest`].
const DIGESTS: Version = Version { major: 1, minor: 4 };
/// The first version with [`Control::Pipe`].
const PIPES: Version = Version { major: 1, minor: 8 };
/// The first version with [`Control::FactsRead`].
pub(crate) const FACTS: Version = Version { major: 1, minor: 9 };
/// The first version with [`Control::Late`].
const LATE: Version = Version { major: 1, minor: 6 };
/// Total size from which binaries are named by their digests first, bytes: a smaller one costs less
/// than the round trip.
const NAMED_MIN: usize = 64 << 10;

/// The OpenCL error to report because the session was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("OpenCL error {0}")]
pub struct Lost(pub i32);

/// Why a session cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No manager listens at the endpoint, or the connection failed.
    #[error(
        "cannot connect to the Device Manager at {endpoint} (is it running? `baltra up` starts it)"
    )]
    Io {
        /// The manager's endpoint.
        endpoint: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The manager refused the session.
    #[error("the Device Manager at {endpoint} refused: {refusal}")]
    Refused {
        /// The manager's endpoint.
        endpoint: String,
        /// The manager's refusal.
        refusal: Refusal,
    },
}

/// Notifications of a session. Called on the session's own threads.
pub trait Handler: Send + Sync {
    /// A kernel has printed.
    fn printed(&self, bytes: &[u8]);
    /// Calls the callback of `clCreateContext`.
    fn context_error(&self, context: Id, text: &str);
    /// The session was lost; everything incomplete has failed with `code`.
    fn lost(&self, code: i32, text: &str);
}

/// A session, ended when dropped.
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// Lists the devices of the manager at `endpoint`, without opening a session.
    pub fn list(endpoint: &Endpoint, mut hello: Hello) -> Result<Welcome, ConnectError> {
        hello.device.clear();
        match endpoint {
            Endpoint::Unix(_) => Ok(dial(endpoint, &hello)?.0),
            Endpoint::Tcp { .. } => Ok(dial_tcp(endpoint, &hello)?.0),
            Endpoint::Ivshmem(_) => Ok(ivshmem::dial(endpoint, &hello)?.0),
        }
    }

    /// Opens a session with `hello.device`.
    pub fn connect(
        endpoint: &Endpoint,
        hello: Hello,
        handler: Arc<dyn Handler>,
    ) -> Result<Arc<Client>, ConnectError> {
        let failed = |source| ConnectError::Io {
            endpoint: endpoint.to_string(),
            source,
        };
        match endpoint {
            Endpoint::Tcp { .. } => return Self::connect_tcp(endpoint, hello, handler),
            Endpoint::Ivshmem(_) => {
                let (welcome, part) = ivshmem::dial(endpoint, &hello)?;
                let part = part.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
                let segment = Segment::read(part.memory()).map_err(failed)?;
                return Self::over(welcome, &segment, Box::new(part), handler).map_err(failed);
            }
            Endpoint::Unix(_) => {}
        }
        let (welcome, stream, segment) = dial(endpoint, &hello)?;
        let segment = segment.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        let segment = Segment::map(&segment).map_err(failed)?;
        let socket = Socket::new(stream.into());
        Self::over(welcome, &segment, Box::new(socket), handler).map_err(failed)
    }

    fn connect_tcp(
        endpoint: &Endpoint,
        mut hello: Hello,
        handler: Arc<dyn Handler>,
    ) -> Result<Arc<Client>, ConnectError> {
        let failed = |source| ConnectError::Io {
            endpoint: endpoint.to_string(),
            source,
        };
        let (welcome, dialer, stream) = dial_tcp(endpoint, &hello)?;
        hello.resume = Some((welcome.session, welcome.key));
        let (segment, _) = Segment::create().map_err(failed)?;
        let relay = (stream, welcome.version);
        let tunnel = Tunnel::new(dialer, hello, relay, &segment).map_err(failed)?;
        let tunnel = Arc::new(tunnel);
        let client = Self::over(welcome, &segment, Box::new(tunnel.clone()), handler);
        let client = client.map_err(failed)?;
        tunnel.attach(Arc::downgrade(&client.shared));
        Ok(client)
    }

    /// A session over a segment whose other end is `peer`.
    pub(crate) fn over(
        welcome: Welcome,
        segment: &Segment,
        peer: Box<dyn Peer>,
        handler: Arc<dyn Handler>,
    ) -> io::Result<Arc<Client>> {
        let (client, notices) = Self::new(welcome, segment, peer, handler, true)?;
        notices::spawn(&client.shared, notices)?;
        Ok(client)
    }

    /// Like [`Client::over`], but the caller receives the notices and observes the end of the peer.
    pub(crate) fn quiet(
        welcome: Welcome,
        segment: &Segment,
        peer: Box<dyn Peer>,
        handler: Arc<dyn Handler>,
    ) -> io::Result<(Arc<Client>, Consumer)> {
        Self::new(welcome, segment, peer, handler, false)
    }

    fn new(
        welcome: Welcome,
        segment: &Segment,
        peer: Box<dyn Peer>,
        handler: Arc<dyn Handler>,
        receives_notices: bool,
    ) -> io::Result<(Arc<Client>, Consumer)> {
        let notices = Consumer::new(segment.notices())?;
        let shared = Arc::new(Shared {
            control: Mutex::new(ControlChannel {
                producer: Producer::new(segment.control())?,
                message: Vec::new(),
            }),
            control_count: 0.into(),
            events: EventTable::new(segment),
            arenas: Mutex::default(),
            calls: Mutex::default(),
            watches: Mutex::default(),
            freed: Mutex::default(),
            queues: Mutex::default(),
            draining: false.into(),
            growing: Mutex::default(),
            objects: 0.into(),
            next_id: 1.into(),
            next_call: 1.into(),
            lost: 0.into(),
            why: OnceLock::new(),
            stop: false.into(),
            spin: spin(&*peer),
            waker: notices.waker(),
            printing: printing::Printing::new(&segment.notices())?,
            noticed: 0.into(),
            welcome,
            peer,
            handler,
            receives_notices,
        });
        Ok((Arc::new(Client { shared }), notices))
    }

    /// The manager's welcome.
    pub fn welcome(&self) -> &Welcome {
        &self.shared.welcome
    }

    /// The session's device.
    pub fn device(&self) -> &DeviceDescription {
        &self.shared.welcome.devices[0]
    }

    /// Whether the executor supports the messages of version 1.2.
    pub fn is_recent(&self) -> bool {
        self.shared.is_recent()
    }

    /// Whether the executor answers [`Query::KernelArg`], and [`Request::Kernels`] of a binary that
    /// has not been built.
    ///
    /// [`Query::KernelArg`]: baltra_wire::Query::KernelArg
    pub fn looks_into_binaries(&self) -> bool {
        self.shared.welcome.version >= BINARIES
    }

    /// Whether the executor creates pipes ([`Control::Pipe`]).
    pub fn makes_pipes(&self) -> bool {
        self.shared.welcome.version >= PIPES
    }

    /// Reports the facts that the program has read ([`baltra_wire::facts`]).
    pub fn report_facts(&self, facts: u64) {
        if self.shared.welcome.version >= FACTS {
            // A lost session has no device whose facts count.
            let _ = self.shared.control(&Control::FactsRead(facts));
        }
    }

    /// Whether the executor maps this side's arenas.
    pub fn shares_arenas(&self) -> bool {
        self.shared.peer.shares_arenas()
    }

    /// Whether the device works on arena memory in place.
    pub fn host_memory(&self) -> bool {
        self.device().host_memory
    }

    /// An id for a new object.
    pub fn new_id(&self) -> Id {
        self.shared.new_ids(1)
    }

    /// The first of `count` consecutive ids.
    pub fn new_ids(&self, count: u32) -> Id {
        self.shared.new_ids(count)
    }

    /// Sends a control message.
    pub fn control(&self, message: &Control<'_>) -> Result<(), Lost> {
        self.shared.control(message)
    }

    /// Sends a request and waits for its reply.
    pub fn call(&self, request: Request<'_>) -> Result<Reply, Lost> {
        self.shared.call(request)
    }

    /// Creates a program from one binary for each device (see [`Request::ProgramBinary`]). Over a
    /// network, the bytes are sent only if the node lacks them.
    pub fn program_binary(
        &self,
        id: Id,
        context: Id,
        devices: &[u8],
        binaries: Vec<&[u8]>,
    ) -> Result<Reply, Lost> {
        let bytes: usize = binaries.iter().map(|binary| binary.len()).sum();
        let supported = self.shared.welcome.version >= DIGESTS;
        if supported && !self.shares_arenas() && bytes >= NAMED_MIN {
            let digests = binaries.iter().flat_map(Sha256::digest);
            let digests: Vec<u8> = digests.collect();
            let reply = self.call(Request::ProgramDigest {
                id,
                context,
                devices,
                digests: &digests,
            })?;
            if reply != Reply::Lacking {
                return Ok(reply);
            }
            self.shared.uncount_object();
        }
        self.call(Request::ProgramBinary {
            id,
            context,
            devices,
            binaries,
        })
    }

    /// Sends a request; `then` receives the reply on the session's notice thread.
    pub fn call_then(&self, request: Request<'_>, then: Replied) -> Result<(), Lost> {
        self.shared.call_then(request, then)
    }

    /// Waits until an object is created; if that fails, releases its id.
    pub fn confirm(&self, id: Id) -> Result<(), Lost> {
        self.shared.confirm(id)
    }

    /// Opens a command queue.
    pub fn open_queue(&self, context: Id, device: Id, properties: u64) -> Result<Queue, Lost> {
        Queue::open(&self.shared, context, device, properties)
    }

    /// Releases an object after the commands enqueued so far; `freed` is called when the driver has
    /// released it (or the session is lost).
    pub fn release(&self, id: Id, freed: Option<Freed>) -> Result<(), Lost> {
        self.shared.release(id, freed)
    }

    /// Number of commands in each queue that has outstanding ones, as [`Control::Release`] and
    /// [`Control::SvmFree`] need it.
    pub fn pending(&self) -> Vec<u8> {
        self.shared.pending()
    }

    /// The event table.
    pub fn events(&self) -> &EventTable {
        &self.shared.events
    }

    /// A fresh event, status `CL_QUEUED`.
    pub fn new_event(&self) -> Result<Event, Lost> {
        loop {
            if let Some(event) = self.shared.events.alloc() {
                return Ok(event);
            }
            self.shared.free_events()?;
        }
    }

    /// Waits until an event is complete or failed; returns its status.
    pub fn wait_event(&self, event: Event) -> i32 {
        let status = self.wait_event_alone(event);
        self.shared.wait_for_prints();
        status
    }

    /// Like [`Client::wait_event`], without waiting for the notice thread.
    pub fn wait_event_alone(&self, event: Event) -> i32 {
        let shared = &self.shared;
        shared
            .events
            .wait(event, shared.spin, shared.peer.waiting())
    }

    /// Waits until the output of complete commands has been delivered, which [`Queue::wait`] and
    /// [`Client::wait_event`] do themselves. Returns immediately if no program prints.
    pub fn wait_for_prints(&self) {
        self.shared.wait_for_prints();
    }

    /// Calls `then` on the session's notice thread once the event is complete or failed.
    pub fn watch(&self, event: Event, then: Watcher) -> Result<(), Lost> {
        if let Err(lost) = self.shared.check() {
            then(failed(event, lost.0));
            return Ok(());
        }
        self.shared
            .watches
            .locked()
            .entry(event)
            .or_default()
            .push(then);
        match self.shared.control(&Control::Watch(event)) {
            Ok(()) => Ok(()),
            Err(lost) => {
                for then in self
                    .shared
                    .watches
                    .locked()
                    .remove(&event)
                    .unwrap_or_default()
                {
                    then(failed(event, lost.0));
                }
                Ok(())
            }
        }
    }

    /// A block of shared memory of `len` bytes, aligned to `align` (a power of two, at most 4,096).
    /// Its contents are undefined.
    pub fn allocate(&self, len: u64, align: u64) -> Result<Block, Lost> {
        self.shared.allocate(len, align)
    }

    /// Lends memory of this process to the transfer of one command, which then needs no block;
    /// `None`: this session needs shared memory. The memory is no longer accessed once the command
    /// is complete or has failed, or the session is lost.
    pub fn lend(&self, memory: &Memory) -> Option<Loan> {
        Loan::new(&self.shared, memory)
    }

    /// Number of control messages sent.
    pub(crate) fn control_count(&self) -> u64 {
        self.shared.control_count()
    }

    /// Adds the next segment of event slots; not by several threads at once.
    pub(crate) fn grow_events(&self) -> Result<(), Lost> {
        self.shared.grow_events()
    }

    /// Makes the executor end the session and all its work, because a command is past its deadline.
    /// Does not wait; `false`: the executor does not read its messages, and the caller should use
    /// [`Client::end`].
    pub fn abort(&self, reason: &str) -> bool {
        self.shared.try_control(&Control::Abort { reason })
    }

    /// Reports that a queue's command has been with the device for longer than `allowed`, because an
    /// older command of another queue blocks it ([`Control::Late`]). Does not wait; `false`: not
    /// sent, or an executor of an earlier release does not support it.
    pub fn report_late(&self, queue: Id, allowed: Duration) -> bool {
        let allowed_ms = allowed.as_millis().try_into().unwrap_or(u64::MAX);
        self.shared.welcome.version >= LATE
            && self
                .shared
                .try_control(&Control::Late { queue, allowed_ms })
    }

    /// Ends the session from this side, even if other handles exist.
    pub fn end(&self) {
        self.shared.lose(DEVICE_NOT_AVAILABLE, None);
    }

    /// Blocks until the peer has exited.
    pub(crate) fn wait_for_end(&self) {
        self.shared.peer.wait_for_end();
    }

    /// The reason of the session's loss; `None`: this side ended it. Set before any wait returns.
    pub fn lost_reason(&self) -> Option<&str> {
        self.shared.why.get().map(String::as_str)
    }

    /// The error of everything incomplete, if the session was lost.
    pub fn is_lost(&self) -> Option<i32> {
        self.shared.check().err().map(|l| l.0)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.lose(DEVICE_NOT_AVAILABLE, None);
    }
}

/// Maximum spin of a waiter before it sleeps. Spins without success become rare
/// ([`baltra_ring::Spin`]). `BALTRA_SPIN_US` overrides it.
fn spin(peer: &dyn Peer) -> Duration {
    let set = std::env::var("BALTRA_SPIN_US").ok();
    if let Some(us) = set.and_then(|v| v.parse().ok()) {
        return Duration::from_micros(us);
    }
    match std::thread::available_parallelism().map_or(1, |n| n.get()) {
        1 if !peer.is_elsewhere() => Duration::ZERO,
        _ => peer.spin(),
    }
}

fn dial(
    endpoint: &Endpoint,
    hello: &Hello,
) -> Result<(Welcome, UnixStream, Option<OwnedFd>), ConnectError> {
    let failed = |source| ConnectError::Io {
        endpoint: endpoint.to_string(),
        source,
    };
    let Endpoint::Unix(path) = endpoint else {
        return Err(failed(io::ErrorKind::Unsupported.into()));
    };
    let stream = UnixStream::connect(path).map_err(failed)?;
    let (answer, segment) = handshake::hello(&stream, hello).map_err(failed)?;
    match answer {
        Ok(welcome) => Ok((welcome, stream, segment)),
        Err(refusal) => Err(ConnectError::Refused {
            endpoint: endpoint.to_string(),
            refusal,
        }),
    }
}

fn dial_tcp(endpoint: &Endpoint, hello: &Hello) -> Result<(Welcome, Dialer, Stream), ConnectError> {
    let failed = |source| ConnectError::Io {
        endpoint: endpoint.to_string(),
        source,
    };
    let Endpoint::Tcp { host, port, tls } = endpoint else {
        return Err(failed(io::ErrorKind::Unsupported.into()));
    };
    let dialer = Dialer {
        host: host.clone(),
        port: *port,
        tls: *tls,
    };
    let (stream, deadline) = dialer.connect().map_err(failed)?;
    let answer_by = Instant::now() + tcp::OPEN_TIMEOUT;
    match tcp::dial::hello(&stream, hello, deadline, answer_by).map_err(failed)? {
        Ok(welcome) => Ok((welcome, dialer, stream)),
        Err(refusal) => Err(ConnectError::Refused {
            endpoint: endpoint.to_string(),
            refusal,
        }),
    }
}
