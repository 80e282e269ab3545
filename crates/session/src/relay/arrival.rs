//! A session that has begun on another node: the relay receives it from its forwarder there, has an
//! executor take it over, and then serves it like any other.
//!
//! To the executor, the relay is the other end of a move ([`baltra_wire::moves`]) whose program is on
//! this node: rings, table of events and arenas are the relay's own. The forwarder's bytes are not
//! trusted: the relay bounds them, and the executor checks them as those of a client.

use super::resume::Resumption;
use super::state::{Queue, State};
use super::{connect, leaving, refuse, start, Options, Unobserved};
use crate::client::{Client, Lost, Peer};
use crate::handshake::{self, frame};
use crate::inherited::Socket;
use crate::tcp::stream::Stream;
use crate::tcp::{HELLO_TIMEOUT, RING_BYTES};
use crate::transit::incoming::{broken, check_steps, Window};
use crate::transit::{self, encoded, lost, next, send_blob};
use baltra_channel::Channel;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::{ring_bytes, Consumer, Locked, Memory, Segment};
use baltra_wire::moves::{ArenaState, Part, Plan, QueueState, ToSource, ToTarget, FDS_MAX};
use baltra_wire::transit::{FromSource, FromTarget, Rest};
use baltra_wire::{decode, event, Control, Hello, Id, Refusal, Welcome};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Parts of the table of events after the first: the table is full then.
const EVENT_PARTS_MAX: u32 = 15;
/// Receives the session that `hello` announces, and serves it.
pub(super) fn receive(
    stream: Stream,
    hello: &Hello,
    options: &Options,
    deadline: Instant,
) -> io::Result<()> {
    let manager = connect(&stream, options, deadline)?;
    let answer = handshake::hello_arriving(&manager, hello)?;
    let deadline = Instant::now() + HELLO_TIMEOUT;
    let (mut welcome, executor) = match answer {
        (Ok(welcome), Some(executor)) => (welcome, Channel::new(executor)),
        (Ok(_), None) => return Err(io::ErrorKind::InvalidData.into()),
        (Err(refusal), _) => return refuse(&stream, refusal, deadline),
    };
    getrandom::fill(&mut welcome.key).map_err(io::Error::other)?;
    let mut theirs = welcome.clone();
    for device in &mut theirs.devices {
        device.host_memory = false;
    }
    let leaving = leaving::Way::new(options, hello, &welcome);
    let resumption = Resumption::listen(&options.runtime_dir, welcome.session, welcome.key)?;
    stream.send_all(&frame(&Ok::<_, Refusal>(&theirs))?, deadline)?;
    transit::limit(&executor)?;
    let mut arrival = Arrival {
        stream: &stream,
        executor: &executor,
        welcome,
        limit: options.arrival,
        deadline: Instant::now() + options.arrival,
        segment: None,
        window: None,
        rest: None,
    };
    match arrival.run() {
        Ok(Rebuilt {
            client,
            notices,
            state,
        }) => start(
            stream,
            (client, notices),
            (state, false, Some(leaving)),
            &resumption,
            options,
        ),
        Err(reason) => {
            resumption.end();
            let text = reason.clone();
            // The forwarder may have ended.
            let _ = transit::send(&stream, &FromTarget::Refused(text));
            Err(io::Error::other(reason))
        }
    }
}

/// The client's end of a session that the executor has built.
struct Rebuilt {
    client: Arc<Client>,
    notices: Consumer,
    state: State,
}

struct Arrival<'a> {
    stream: &'a Stream,
    executor: &'a Channel,
    welcome: Welcome,
    /// The time limit, and the time at which the limit is reached.
    limit: Duration,
    deadline: Instant,
    /// The session's segment, and this end of the socket that the executor takes for the client's.
    segment: Option<(Segment, UnixStream)>,
    window: Option<Window>,
    rest: Option<Rebuilt>,
}

impl Arrival<'_> {
    /// The reason for which nothing was received.
    fn late(&self, error: io::Error) -> String {
        if Instant::now() < self.deadline {
            return lost(error);
        }
        format!(
            "it has not arrived within {} ms (set 'listen.arrival_timeout_ms' on the other node)",
            self.limit.as_millis()
        )
    }

    fn run(&mut self) -> Result<Rebuilt, String> {
        loop {
            match transit::receive_until(self.stream, self.deadline).map_err(|e| self.late(e))? {
                FromSource::Plan(plan) if self.segment.is_none() => self.plan(plan)?,
                FromSource::Ahead(state) if state.stopped_ns == 0 => {
                    check_steps(&state.steps)?;
                    send_blob(self.executor, &state, |len| ToTarget::State { len }, &[])?;
                    self.prepared()?;
                }
                FromSource::Window { len } => {
                    // The former one may be in use.
                    self.finish()?;
                    let window = Window::new(len)?;
                    let message = ToTarget::Window { len };
                    self.send(&message, &[window.fd.as_fd()])?;
                    self.window = Some(window);
                }
                FromSource::Parts(parts) => self.parts(parts)?,
                FromSource::Rest(rest) if self.rest.is_none() => {
                    let rebuilt = self.rebuild(rest)?;
                    self.rest = Some(rebuilt);
                }
                FromSource::Complete { bytes } => {
                    let rebuilt = self.rest.take().ok_or_else(|| broken("an early end"))?;
                    self.finish()?;
                    self.send(&ToTarget::Complete { bytes }, &[])?;
                    match self.answer()? {
                        ToSource::Started => {}
                        ToSource::Refused(reason) => return Err(reason),
                        _ => return Err("the executor broke the protocol".into()),
                    }
                    transit::send(self.stream, &FromTarget::Built).map_err(lost)?;
                    return Ok(rebuilt);
                }
                _ => return Err(broken("an unexpected message")),
            }
        }
    }

    fn send(&self, message: &ToTarget, fds: &[BorrowedFd<'_>]) -> Result<(), String> {
        let sent = self.executor.send(message, fds);
        sent.map_err(|e| format!("the connection to the executor failed: {e}"))
    }

    fn answer(&self) -> Result<ToSource, String> {
        Ok(next(self.executor)?.0)
    }

    /// Waits until the executor has made what it can, and reports that to the forwarder.
    fn prepared(&mut self) -> Result<(), String> {
        self.finish()?;
        match self.answer()? {
            ToSource::Prepared => {}
            ToSource::Refused(reason) => return Err(reason),
            _ => return Err("the executor broke the protocol".into()),
        }
        transit::send(self.stream, &FromTarget::Prepared).map_err(lost)
    }

    fn plan(&mut self, mut plan: Plan) -> Result<(), String> {
        plan.mirror = true;
        // Its buffers are the executor's, so that the session can leave again.
        plan.host_buffers = false;
        check_steps(&plan.steps)?;
        let text = |e: io::Error| e.to_string();
        let (segment, fd) = Segment::create().map_err(text)?;
        let (ours, theirs) = UnixStream::pair().map_err(text)?;
        self.segment = Some((segment, ours));
        let more = [theirs.as_fd(), fd.as_fd()];
        send_blob(self.executor, &plan, |len| ToTarget::Plan { len }, &more)?;
        self.prepared()
    }

    /// Passes contents on.
    fn parts(&mut self, parts: Vec<Part>) -> Result<(), String> {
        let mut window = self.window.take();
        let passed = window
            .as_mut()
            .ok_or_else(|| broken("contents without a size"))
            .and_then(|window| {
                let late = |error| self.late(error);
                window.pass((self.stream, self.deadline), self.executor, parts, late)
            });
        self.window = window;
        passed
    }

    /// Waits until the executor has taken all contents.
    fn finish(&mut self) -> Result<(), String> {
        match &mut self.window {
            Some(window) => window.finish(self.executor),
            None => Ok(()),
        }
    }

    /// Makes the client's end of the stopped session, and sends its state to the executor.
    fn rebuild(&mut self, rest: Rest) -> Result<Rebuilt, String> {
        let Rest {
            mut state,
            event_parts,
            now_ns,
        } = rest;
        self.finish()?;
        check_steps(&state.steps)?;
        let (segment, socket) = self.segment.take().ok_or_else(|| broken("no plan"))?;
        let captured = Arc::new(Captured {
            socket: Socket::new(socket.into()),
            arenas: Mutex::new(Some(Vec::new())),
        });
        let peer = Box::new(captured.clone());
        let made = Client::quiet(self.welcome.clone(), &segment, peer, Arc::new(Unobserved));
        let (client, notices) = made.map_err(|e| e.to_string())?;
        if event_parts > EVENT_PARTS_MAX {
            return Err(broken("too many events"));
        }
        for _ in 0..event_parts {
            client.grow_events().map_err(no_memory)?;
        }
        let events = client.events();
        for (slot, generation, status) in &state.events {
            events.set(event(*slot, *generation), *status, [0; 4]);
        }
        let mut ours = State::new(self.welcome.limits);
        ours.queues = rings(&client, &mut state)?;
        // The client's announcements so far, as if the executor had carried them out.
        let mut control = Consumer::new(segment.control()).map_err(|e| e.to_string())?;
        let mut message = Vec::new();
        state.slots.clear();
        while control.pop(&mut message).map_err(|e| e.to_string())? {
            match decode(&message) {
                Ok(Control::EventsAdd { .. }) => state.slots.push(message.clone()),
                Ok(Control::ArenaAdd { .. }) => {}
                _ => return Err("an unexpected announcement".into()),
            }
        }
        let at = control.position();
        state.control = ((at.bytes, at.messages, at.peer), at.messages);
        state.notices = Default::default();
        state.unsent.clear();
        state.stopped_ns = monotonic_ns();
        // The program's times continue, on this node's clock.
        let ahead = now_ns.wrapping_sub(state.stopped_ns) as i64;
        state.clock_offset_ns = state.clock_offset_ns.wrapping_add(ahead);
        let arenas = captured.arenas.locked().take().unwrap_or_default();
        for part in arenas.chunks(FDS_MAX) {
            let fds: Vec<_> = part.iter().map(|(_, fd)| fd.as_fd()).collect();
            let states = part.iter().map(|(state, _)| *state).collect();
            self.send(&ToTarget::Arenas(states), &fds)?;
        }
        send_blob(self.executor, &state, |len| ToTarget::State { len }, &[])?;
        Ok(Rebuilt {
            client,
            notices,
            state: ours,
        })
    }
}

/// Makes a ring for each queue of a stopped session.
fn rings(
    client: &Client,
    state: &mut baltra_wire::moves::State,
) -> Result<HashMap<Id, Queue>, String> {
    let mut queues = HashMap::new();
    for step in &mut state.steps {
        let Ok(Control::Queue {
            id,
            context,
            device,
            properties,
            ..
        }) = decode(&step.record)
        else {
            continue;
        };
        let queue = state.queues.iter_mut().find(|queue| queue.id == id);
        let queue = queue.ok_or_else(|| broken("queue lacks its state"))?;
        let block = client.allocate(ring_bytes(RING_BYTES) as u64, 128);
        let block = block.map_err(no_memory)?;
        let ring = block.payload();
        let made = Queue::new(block, properties, queue.completed);
        queues.insert(id, made.map_err(|e| e.to_string())?);
        queue.position = (0, queue.completed, 0);
        queue.parks = true;
        step.record = encoded(&Control::Queue {
            id,
            context,
            device,
            properties,
            ring,
        })?;
    }
    let is_stopped = |queue: &QueueState| {
        queues.contains_key(&queue.id)
            && queue.held.is_none()
            && queue.released.is_none()
            && queue.open.is_empty()
    };
    if !state.queues.iter().all(is_stopped) {
        return Err(broken("a queue that is not stopped"));
    }
    Ok(queues)
}

fn no_memory(_: Lost) -> String {
    "no host memory for its rings".into()
}

/// The executor as a client's peer: arenas that are made before it has the session go with that.
struct Captured {
    socket: Socket,
    /// `None`: the executor has the session.
    arenas: Mutex<Option<Vec<(ArenaState, OwnedFd)>>>,
}

impl Peer for Captured {
    fn send_arena(&self, arena: u32, memory: &Memory, fd: &OwnedFd) -> io::Result<()> {
        let mut captured = self.arenas.locked();
        let Some(arenas) = &mut *captured else {
            return self.socket.send_arena(arena, memory, fd);
        };
        let state = ArenaState {
            arena,
            offset: 0,
            len: memory.len(),
        };
        arenas.push((state, fd.try_clone()?));
        Ok(())
    }

    fn wait_for_end(&self) {
        self.socket.wait_for_end();
    }

    fn close(&self) {
        self.socket.close();
    }
}
