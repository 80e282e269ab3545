//! The daemon's end of a session over TCP or TLS: one process per connection, which is the
//! executor's shared-memory client on one side and the peer of the library's [`crate::tcp`] tunnel
//! on the other.
//!
//! | thread | task |
//! |---|---|
//! | the calling thread | converts frames to ring messages ([`inbound`]), and notices to frames during calls; waits until a failed connection is resumed |
//! | `baltra-notices` | converts notices to frames ([`outbound`]) at other times |
//! | `baltra-executor` | detects the executor's end |
//! | `baltra-resume` | accepts connections that resume the session, and its subflows ([`resume`]) |
//! | `baltra-send`, `baltra-receive` | transfer the parts of payloads on one subflow |
//!
//! If the device works in host memory, a buffer's bytes are in memory that the relay shares with
//! the executor. The relay itself carries out transfers that depend on no earlier command
//! ([`place`]): from the socket into the buffer, and from the buffer to the socket.
//!
//! A client's frames are bounded and checked before they reach a ring; the executor checks their
//! content. A relay that receives a malformed frame ends its own session only.

mod arrival;
mod inbound;
mod leaving;
mod outbound;
mod place;
mod resume;
mod state;

pub use crate::tcp::tls::TlsFiles;

use crate::client::{Client, Handler};
use crate::fd::recv_with_fds;
use crate::handshake::{self, frame, HELLO_BYTES_MAX};
use crate::inherited::Socket;
use crate::tcp::dial::{exchange_counts, prepare, read_framed};
use crate::tcp::frame::Kind;
use crate::tcp::link::Link;
use crate::tcp::reader::{Ended, Reader};
use crate::tcp::stream::Stream;
use crate::tcp::{tls, GRACE, HELLO_TIMEOUT};
use baltra_ring::{Consumer, Locked, Segment, Spin, Waker};
use baltra_wire::opencl::DEVICE_NOT_AVAILABLE;
use baltra_wire::{Hello, Id, Notice, Purpose, Refusal, Welcome, VERSION};
use outbound::Notices;
use resume::Resumption;
use state::State;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};

/// A reset socket usually means that the client has ended: its session is kept for this shorter
/// time.
const GRACE_AFTER_RESET: Duration = Duration::from_millis(700);
/// A session arrives within this, however slowly its bytes come: longer than its source waits.
const ARRIVAL: Duration = Duration::from_secs(90);
/// Maximum spin for the executor's notices and for the client's reply to them; spins without
/// success become rare.
const SPIN: Duration = Duration::from_micros(100);

/// Options of a relay.
#[derive(Clone, Debug)]
pub struct Options {
    /// The manager's Unix socket for relays.
    pub manager: PathBuf,
    /// A directory that only the daemon may write to, for the sockets by which a connection finds
    /// the session that it resumes.
    pub runtime_dir: PathBuf,
    /// Certificate and key for TLS; `None`: plain TCP.
    pub tls: Option<TlsFiles>,
    /// Time to keep the session of a failed connection.
    pub grace: Duration,
    /// Time limit for a session that comes from another node.
    pub arrival: Duration,
}

impl Options {
    /// Options for plain TCP with the manager at `manager`, whose directory is the runtime
    /// directory.
    pub fn new(manager: impl Into<PathBuf>) -> Options {
        let manager = manager.into();
        Options {
            runtime_dir: manager.parent().map(PathBuf::from).unwrap_or_default(),
            manager,
            tls: None,
            grace: GRACE,
            arrival: ARRIVAL,
        }
    }
}

/// The session's state, shared by its threads.
struct Session {
    client: Arc<Client>,
    link: Link,
    state: Mutex<State>,
    /// Whether the device works in host memory, so that buffers are in arenas.
    shares: bool,
    over: AtomicBool,
    /// The executor's notices, which one thread at a time reads.
    notices: Mutex<Notices>,
    /// Whether the outbound thread has work other than notices.
    poked: AtomicBool,
    /// Number of checks for notices by the inbound thread on behalf of the outbound thread.
    looks: AtomicU64,
    /// Ends the sleep of the outbound thread.
    waker: Waker,
    outbound: OnceLock<Thread>,
    /// The way back of the session, if it has come from another node.
    leaving: Option<leaving::Way>,
}

impl Session {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Makes the outbound thread check the connection again.
    fn poke(&self) {
        self.poked.store(true, Ordering::SeqCst);
        self.waker.wake();
        self.call_outbound();
    }

    /// Ends the pause of the outbound thread.
    fn call_outbound(&self) {
        if let Some(outbound) = self.outbound.get() {
            outbound.unpark();
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// Ignores notifications: the relay receives the notices itself.
struct Unobserved;

impl Handler for Unobserved {
    fn printed(&self, _: &[u8]) {}
    fn context_error(&self, _: Id, _: &str) {}
    fn lost(&self, _: i32, _: &str) {}
}

/// Waits for the connection that the manager passes over `control` with
/// [`crate::fd::send_with_fds`]; `None`: the manager exited without passing one.
pub fn await_connection(control: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let (_, mut fds) = recv_with_fds(control, &mut [0], true)?;
    Ok(fds.pop())
}

/// Serves one accepted connection until its session ends. An error concerns this connection only,
/// and has been sent to its client if possible.
pub fn run(socket: OwnedFd, options: &Options) -> io::Result<()> {
    let deadline = Instant::now() + HELLO_TIMEOUT;
    // Sockets of other families (of a test or a proxy) lack these settings.
    let _ = prepare(&socket);
    let stream = match &options.tls {
        None => Stream::plain(socket),
        Some(files) => Stream::tls(socket, tls::server(files)?.into(), deadline)?,
    };
    let hello = read_framed(&stream, HELLO_BYTES_MAX, deadline);
    let (mut hello, purpose) = match hello.and_then(|bytes| handshake::decode_hello(&bytes)) {
        Ok(hello) => hello,
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            return refuse(&stream, Refusal::Malformed(e.to_string()), deadline);
        }
        Err(e) => return Err(e),
    };
    if hello.version.major != VERSION.major {
        let refusal = Refusal::Version {
            manager: VERSION,
            client: hello.version,
        };
        return refuse(&stream, refusal, deadline);
    }
    if hello.token.is_empty() {
        let text = "a connection over TCP needs a token: `baltra tenant token` prints it, the \
                    client reads it from BALTRA_TOKEN";
        return refuse(&stream, Refusal::NotAllowed(text.into()), deadline);
    }
    if let Some(resumed) = hello.resume {
        return resume::hand_over(stream, resumed, purpose, options, deadline);
    }
    hello.mirror = true;
    match purpose {
        Purpose::Open => open(stream, &hello, options, deadline),
        Purpose::Arrive => arrival::receive(stream, &hello, options, deadline),
        Purpose::Leave | Purpose::Subflow(_) => {
            let text = "a hello that names no session which leaves or gets a further connection";
            refuse(&stream, Refusal::Malformed(text.into()), deadline)
        }
    }
}

fn refuse(stream: &Stream, refusal: Refusal, deadline: Instant) -> io::Result<()> {
    let text = refusal.to_string();
    let answer: Result<Welcome, Refusal> = Err(refusal);
    stream.send_all(&frame(&answer)?, deadline)?;
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Connects to the manager.
fn connect(stream: &Stream, options: &Options, deadline: Instant) -> io::Result<UnixStream> {
    match UnixStream::connect(&options.manager) {
        Ok(manager) => Ok(manager),
        Err(e) => {
            let busy = Refusal::Busy("the Device Manager does not answer".into());
            refuse(stream, busy, deadline)?;
            Err(e)
        }
    }
}

/// Opens the session that `hello` requests, and serves it.
fn open(stream: Stream, hello: &Hello, options: &Options, deadline: Instant) -> io::Result<()> {
    let manager = connect(&stream, options, deadline)?;
    let answer = handshake::hello(&manager, hello)?;
    // The executor may have taken long to start.
    let deadline = Instant::now() + HELLO_TIMEOUT;
    let (mut welcome, segment) = match answer {
        (Ok(welcome), segment) => (welcome, segment),
        (Err(refusal), _) => return refuse(&stream, refusal, deadline),
    };
    let shares = welcome.devices.first().is_some_and(|d| d.host_memory);
    for device in &mut welcome.devices {
        // A remote client shares no pages.
        device.host_memory = false;
    }
    let Some(segment) = segment else {
        // A request for the list of devices only.
        return stream.send_all(&frame(&Ok::<_, Refusal>(&welcome))?, deadline);
    };
    getrandom::fill(&mut welcome.key).map_err(io::Error::other)?;
    let segment = Segment::map(&segment)?;
    // From here on, the relay creates the session's arenas.
    let ours = welcome.clone();
    let manager = Box::new(Socket::new(manager.into()));
    let (client, notices) = Client::quiet(ours, &segment, manager, Arc::new(Unobserved))?;
    let resumption = Resumption::listen(&options.runtime_dir, welcome.session, welcome.key)?;
    stream.send_all(&frame(&Ok::<_, Refusal>(&welcome))?, deadline)?;
    let state = State::new(welcome.limits);
    start(
        stream,
        (client, notices),
        (state, shares, None),
        &resumption,
        options,
    )
}

/// Serves a session that the executor has.
fn start(
    stream: Stream,
    (client, notices): (Arc<Client>, Consumer),
    (state, shares, leaving): (State, bool, Option<leaving::Way>),
    resumption: &Resumption,
    options: &Options,
) -> io::Result<()> {
    let stream = Arc::new(stream);
    let session = Arc::new(Session {
        link: Link::new(stream.clone()),
        state: Mutex::new(state),
        client,
        shares,
        over: false.into(),
        poked: false.into(),
        looks: 0.into(),
        waker: notices.waker(),
        notices: Mutex::new(Notices::new(notices)),
        outbound: OnceLock::new(),
        leaving,
    });
    serve(&session, stream, resumption, options)
}

fn serve(
    session: &Arc<Session>,
    mut stream: Arc<Stream>,
    resumption: &Resumption,
    options: &Options,
) -> io::Result<()> {
    let ours = session.clone();
    let name = Builder::new().name("baltra-notices".into());
    let outbound = name.spawn(move || outbound::run(&ours))?;
    // Called only once.
    let _ = session.outbound.set(outbound.thread().clone());
    let ours = session.clone();
    let cut = resumption.clone();
    let name = Builder::new().name("baltra-executor".into());
    name.spawn(move || {
        ours.client.wait_for_end();
        // The executor's remaining notices are sent first.
        std::thread::sleep(Duration::from_millis(1));
        ours.over.store(true, Ordering::Release);
        ours.client.end();
        ours.poke();
        cut.end();
    })?;
    resumption.spawn(session)?;
    let spins = Spins::default();
    let result = loop {
        let ended = receive(session, &stream, &spins);
        session.link.down();
        let grace = match ended {
            _ if session.is_over() => break Ok(()),
            Ended::Closed => break Ok(()),
            Ended::Violation(violation) => {
                tracing::warn!(%violation, "session ended");
                break Err(io::Error::new(io::ErrorKind::InvalidData, violation));
            }
            Ended::Broken(e)
                if e.kind() == io::ErrorKind::ConnectionReset || session.link.was_reset() =>
            {
                GRACE_AFTER_RESET.min(options.grace)
            }
            Ended::Broken(_) => options.grace,
        };
        match resume_within(session, resumption, grace) {
            Some(fresh) => stream = fresh,
            None => break Ok(()),
        }
        session.poke();
    };
    session.over.store(true, Ordering::Release);
    session.poke();
    // The thread has reported the session's end to the client, if there is a connection.
    let _ = outbound.join();
    session.link.down();
    resumption.end();
    session.client.end();
    result
}

/// Spin histories of the inbound thread.
#[derive(Default)]
struct Spins {
    for_notices: Spin,
    for_frames: Spin,
}

/// Receives until the connection ends. During calls, this thread serves both directions, without
/// sleeping in between.
fn receive(session: &Session, stream: &Stream, spins: &Spins) -> Ended {
    let mut inbound = inbound::Inbound::new(session);
    let mut reader = Reader::new();
    loop {
        if let Err(ended) = reader.read(stream, &mut inbound) {
            return ended;
        }
        let mut read = Ok(false);
        let mut found = false;
        // Spins for the executor's reply, and for the client's reaction to it.
        spins.for_notices.until(SPIN, || {
            found = outbound::look(session);
            read = reader.read(stream, &mut inbound);
            found || !matches!(read, Ok(false))
        });
        let more = |read: &Result<bool, Ended>| !matches!(read, Ok(false));
        if found && !more(&read) {
            spins.for_frames.until(SPIN, || {
                outbound::look(session);
                read = reader.read(stream, &mut inbound);
                more(&read)
            });
        }
        match read {
            Err(ended) => return ended,
            Ok(true) => {}
            Ok(false) => {
                session.call_outbound();
                stream.wait_readable();
            }
        }
    }
}

/// Waits for connections that resume the session until one of them can.
fn resume_within(
    session: &Session,
    resumption: &Resumption,
    grace: Duration,
) -> Option<Arc<Stream>> {
    let deadline = Instant::now() + grace;
    while let Some(stream) = resumption.take(deadline) {
        let soon = Instant::now() + HELLO_TIMEOUT;
        let resumed = exchange_counts(&stream, session.link.received(), soon);
        let Ok(theirs) = resumed else {
            continue;
        };
        let stream = Arc::new(stream);
        if session.link.resume(stream.clone(), theirs).is_ok() {
            return Some(stream);
        }
    }
    None
}

/// Sends the final frames to the client when the executor has ended.
fn farewell(session: &Session) {
    let notice = Notice::Fatal {
        code: DEVICE_NOT_AVAILABLE,
        text: "the executor has ended",
    };
    let mut bytes = Vec::new();
    if baltra_wire::encode(&notice, &mut bytes).is_ok() {
        let mut outbox = session.link.outbox();
        outbox.push(&session.link, Kind::Notice, 0, &bytes, None);
        // Sends as much as possible without blocking.
        outbox.flush();
    }
}
