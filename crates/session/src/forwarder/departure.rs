//! The target's end of a move to a forwarder: what the executor sends goes to the other node, except
//! for what stays with the program.

use super::Target;
use crate::tcp::dial::Dialer;
use crate::tcp::stream::Stream;
use crate::tcp::tunnel::{Deferred, Descriptors, Taken, TakenQueue, Tunnel};
use crate::transit::{self, encoded, next, position, read_file, send_range};
use baltra_channel::Channel;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::{Memory, Segment};
use baltra_wire::executor::SessionStart;
use baltra_wire::moves::{Part, Plan, QueueState, State, Step, ToSource, ToTarget};
use baltra_wire::transit::{Rest, ToForwarder, ToRelay};
use baltra_wire::{decode, Command, Control, Hello, Id, Operation, Payload, Waits};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A session that is built on the other node.
pub(super) struct Departure {
    pub start: SessionStart,
    /// The executor that has it.
    pub source: Channel,
    /// The client's socket.
    pub socket: Arc<OwnedFd>,
    /// When it stopped, `CLOCK_MONOTONIC` nanoseconds.
    pub stopped_ns: u64,
    /// Bytes that were copied, and those of them that were copied while it is stopped.
    pub bytes: (u64, u64),
    /// Objects that the other node has made or written while it is stopped.
    pub stopped_objects: u64,
    dialer: Dialer,
    /// Resumes the session on the other node.
    hello: Hello,
    stream: Stream,
    segment: Segment,
    taken: Taken,
}

impl Departure {
    /// Carries the program's messages from now on.
    pub fn begin(self) -> io::Result<Tunnel> {
        let Departure {
            dialer,
            hello,
            stream,
            segment,
            taken,
            ..
        } = self;
        Tunnel::take_over(dialer, hello, stream, &segment, taken)
    }
}

fn lost(error: io::Error) -> String {
    format!("the connection of the two nodes failed: {error}")
}

/// Sends the session of the executor at the other end of `source` to another node. It continues
/// there unless [`ToSource::Started`] follows.
pub(super) fn send(
    start: SessionStart,
    source: Channel,
    target: &Target,
) -> Result<Departure, String> {
    let built = receive_all(&source, target);
    match built {
        Ok(built) => Ok(Departure {
            start,
            source,
            socket: built.socket,
            stopped_ns: built.stopped_ns,
            bytes: built.bytes,
            stopped_objects: built.stopped_objects,
            dialer: target.dialer.clone(),
            hello: built.hello,
            stream: built.stream,
            segment: built.segment,
            taken: built.taken,
        }),
        Err(reason) => {
            // The source may have ended.
            let _ = source.send(&ToSource::Refused(reason.clone()), &[]);
            Err(reason)
        }
    }
}

/// What [`Departure`] gets.
struct Built {
    socket: Arc<OwnedFd>,
    stopped_ns: u64,
    bytes: (u64, u64),
    stopped_objects: u64,
    hello: Hello,
    stream: Stream,
    segment: Segment,
    taken: Taken,
}

struct Sender<'a> {
    source: &'a Channel,
    stream: Stream,
    window: Option<Memory>,
    arenas: HashMap<u32, Memory>,
    pending: VecDeque<OwnedFd>,
    /// Objects that are made or written after the stop.
    touched: HashSet<Id>,
}

fn receive_all(source: &Channel, target: &Target) -> Result<Built, String> {
    transit::limit(source).map_err(|e| e.to_string())?;
    let (ToTarget::Plan { len }, mut fds) = next(source)? else {
        return Err("the executor sends no plan".into());
    };
    if fds.len() != 3 {
        return Err("a plan without its descriptors".into());
    }
    let segment = fds.pop().ok_or("a plan without its segment")?;
    let socket = fds.pop().ok_or("a plan without its socket")?;
    let plan: Plan = read_file(fds, len)?;
    if plan.host_buffers {
        return Err(
            "the program has buffers in its own memory, which another node cannot use \
             (device.host_memory = false on its device avoids that)"
                .into(),
        );
    }
    let segment = Segment::map(&segment).map_err(|e| e.to_string())?;
    let (stream, hello) = target.open()?;
    let mut sender = Sender {
        source,
        stream,
        window: None,
        arenas: HashMap::new(),
        pending: VecDeque::new(),
        touched: HashSet::new(),
    };
    sender.send(&ToRelay::Plan(plan))?;
    sender.prepared()?;
    let (state, bytes) = sender.send_rest()?;
    let socket = Arc::new(socket);
    let stopped_ns = state.stopped_ns;
    let Sender {
        stream,
        arenas,
        pending,
        touched,
        ..
    } = sender;
    let descriptors = Descriptors {
        socket: socket.clone(),
        pending,
    };
    Ok(Built {
        taken: taken(state, arenas, descriptors)?,
        socket,
        stopped_ns,
        bytes,
        stopped_objects: touched.len() as u64,
        hello,
        stream,
        segment,
    })
}

impl Sender<'_> {
    fn send(&self, message: &ToRelay) -> Result<(), String> {
        transit::send(&self.stream, message).map_err(|e| self.refusal().unwrap_or_else(|| lost(e)))
    }

    /// The reason for which the relay has closed the connection, if it has sent one.
    fn refusal(&self) -> Option<String> {
        match transit::receive(&self.stream) {
            Ok(ToForwarder::Refused(reason)) => Some(reason),
            _ => None,
        }
    }

    fn answer(&self) -> Result<ToForwarder, String> {
        match transit::receive(&self.stream).map_err(lost)? {
            ToForwarder::Refused(reason) => Err(reason),
            answer => Ok(answer),
        }
    }

    /// Waits until the relay has prepared something, and reports that to the source.
    fn prepared(&self) -> Result<(), String> {
        match self.answer()? {
            ToForwarder::Prepared => self.report(ToSource::Prepared),
            _ => Err("the other node broke the protocol".into()),
        }
    }

    fn report(&self, message: ToSource) -> Result<(), String> {
        let sent = self.source.send(&message, &[]);
        sent.map_err(|e| format!("the connection to the executor failed: {e}"))
    }

    /// Sends everything after the plan; returns the stopped session's state, and the bytes of
    /// contents that were copied.
    fn send_rest(&mut self) -> Result<(State, (u64, u64)), String> {
        let mut stopped = None;
        loop {
            let (message, fds) = next(self.source)?;
            match message {
                ToTarget::Arenas(arenas) if arenas.len() == fds.len() => {
                    for (arena, fd) in arenas.into_iter().zip(fds) {
                        let memory = Memory::map_part(&fd, arena.offset, arena.len);
                        let memory = memory.map_err(|e| format!("an arena: {e}"))?;
                        self.arenas.insert(arena.arena, memory);
                    }
                }
                ToTarget::Pending => self.pending.extend(fds),
                ToTarget::Window { len } => {
                    let fd = fds.first().ok_or("a window without its descriptor")?;
                    let memory = Memory::map(fd, len).map_err(|e| e.to_string())?;
                    self.window = Some(memory);
                    self.send(&ToRelay::Window { len })?;
                }
                ToTarget::Parts(parts) => {
                    if stopped.is_some() {
                        self.touched.extend(parts.iter().map(|part| part.id));
                    }
                    self.send_parts(parts)?;
                    // They are on their way, and the window may be used again.
                    self.report(ToSource::Taken)?;
                }
                ToTarget::State { len } => {
                    let state: State = read_file(fds, len)?;
                    if state.stopped_ns == 0 {
                        self.send(&ToRelay::Ahead(state))?;
                        self.prepared()?;
                    } else if stopped.is_none() {
                        self.send(&ToRelay::Rest(rest(&state)?))?;
                        let is_queue =
                            |step: &Step| matches!(decode(&step.record), Ok(Control::Queue { .. }));
                        let made = state.steps.iter().filter(|step| !is_queue(step));
                        self.touched.extend(made.map(|step| step.id));
                        stopped = Some(state);
                    } else {
                        return Err("a second state".into());
                    }
                }
                ToTarget::Complete { bytes } => {
                    self.send(&ToRelay::Complete { bytes })?;
                    match self.answer()? {
                        ToForwarder::Built => {}
                        _ => return Err("the other node broke the protocol".into()),
                    }
                    let state = stopped.ok_or("an end without a state")?;
                    return Ok((state, bytes));
                }
                ToTarget::Plan { .. } | ToTarget::Arenas(_) => {
                    return Err("the executor broke the protocol".into());
                }
            }
        }
    }

    fn send_parts(&self, parts: Vec<Part>) -> Result<(), String> {
        let window = self.window.as_ref().ok_or("contents without a window")?;
        let ranges = parts.iter().map(|part| window.slice(part.offset, part.len));
        let ranges: Option<Vec<_>> = ranges.collect();
        let ranges = ranges.ok_or("contents outside the window")?;
        self.send(&ToRelay::Parts(parts))?;
        for range in ranges {
            send_range(&self.stream, &range)
                .map_err(|e| self.refusal().unwrap_or_else(|| lost(e)))?;
        }
        Ok(())
    }
}

/// What the other node gets of a stopped session.
fn rest(state: &State) -> Result<Rest, String> {
    for queue in &state.queues {
        if queue.released.is_some() {
            return Err(
                "a queue that its program has released still has commands: try again \
                        later"
                    .into(),
            );
        }
        if !queue.parks {
            return Err(
                "its program's library is of a release that expects an executor on its \
                        own node: start the program again to use the present one"
                    .into(),
            );
        }
    }
    let queues = state.queues.iter().map(|queue| QueueState {
        position: Default::default(),
        held: None,
        open: Vec::new(),
        ..queue.clone()
    });
    Ok(Rest {
        event_parts: state.slots.len() as u32,
        now_ns: monotonic_ns(),
        state: State {
            control: Default::default(),
            notices: Default::default(),
            unsent: Vec::new(),
            slots: Vec::new(),
            queues: queues.collect(),
            // They wait for commands that the other node does not have yet.
            releases: Vec::new(),
            ..state.clone()
        },
    })
}

/// What stays with the program.
fn taken(
    state: State,
    arenas: HashMap<u32, Memory>,
    descriptors: Descriptors,
) -> Result<Taken, String> {
    let mut rings: HashMap<_, (u64, Payload)> = HashMap::new();
    for step in &state.steps {
        if let Ok(Control::Queue {
            id,
            properties,
            ring,
            ..
        }) = decode(&step.record)
        {
            rings.insert(id, (properties, ring));
        }
    }
    let mut queues = Vec::new();
    for queue in state.queues {
        let found = rings.get(&queue.id);
        let (properties, ring) = *found.ok_or("a queue without its record")?;
        let open = queue.open.into_iter();
        let mut waiting = VecDeque::new();
        for command in open {
            waiting.push_back(match command.record {
                Some(record) => record,
                None => ended()?,
            });
        }
        waiting.extend(queue.held);
        queues.push(TakenQueue {
            id: queue.id,
            properties,
            ring,
            position: position(queue.position),
            completed: queue.completed,
            taken: waiting,
        });
    }
    let mut slots = Vec::new();
    for record in &state.slots {
        match decode(record) {
            Ok(Control::EventsAdd { payload, .. }) => slots.push(payload),
            _ => return Err("a record that adds no event slots".into()),
        }
    }
    let mut releases = Vec::new();
    for release in state.releases {
        let message = Control::Release {
            id: release.id,
            after: &[],
            notify: release.notify,
        };
        releases.push(Deferred {
            message: encoded(&message)?,
            after: release.after,
        });
    }
    let (control, controls) = state.control;
    Ok(Taken {
        control: position(control),
        controls,
        notices: position(state.notices.0),
        unsent: state.unsent,
        arenas,
        slots,
        queues,
        releases,
        watched: state.watched,
        descriptors,
    })
}

/// A command in the place of one that has ended before an earlier one of its queue: the numbers of
/// those behind it stay the same.
fn ended() -> Result<Vec<u8>, String> {
    let command = Command {
        event: 0,
        after_control: 0,
        waits: Waits(&[]),
        operation: Operation::Marker,
    };
    encoded(&command)
}
