//! The target's end of a move to a forwarder: what the executor sends goes to the other node, except
//! for what stays with the program.

use super::Target;
use crate::client::FACTS;
use crate::tcp::dial::Dialer;
use crate::tcp::stream::Stream;
use crate::tcp::tunnel::{Deferred, Descriptors, Taken, TakenArena, TakenQueue, Tunnel};
use crate::transit::outgoing::Outgoing;
use crate::transit::{self, encoded, next, position, read_file};
use baltra_channel::Channel;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::{Memory, Segment};
use baltra_wire::executor::SessionStart;
use baltra_wire::facts::FactsRead;
use baltra_wire::moves::{Plan, QueueState, State, Step, ToSource, ToTarget};
use baltra_wire::transit::{FromSource, FromTarget, Rest};
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
    /// The descriptors for an executor that takes it over again.
    pub kept: Kept,
    /// When it stopped, `CLOCK_MONOTONIC` nanoseconds.
    pub stopped_ns: u64,
    /// Bytes that were copied, and those of them that were copied while it is stopped.
    pub bytes: (u64, u64),
    /// Objects that the other node has made or written while it is stopped.
    pub stopped_objects: u64,
    dialer: Dialer,
    /// Resumes the session on the other node.
    pub hello: Hello,
    stream: Stream,
    segment: Segment,
    taken: Taken,
}

/// The descriptors that a session has on the node of its program, wherever it is.
pub(super) struct Kept {
    /// The client's socket.
    pub socket: Arc<OwnedFd>,
    pub segment: OwnedFd,
    /// See [`Plan::mirror`].
    pub mirror: bool,
}

impl Departure {
    /// Carries the program's messages from now on.
    pub fn begin(self) -> io::Result<(Tunnel, Kept)> {
        let Departure {
            dialer,
            hello,
            stream,
            segment,
            taken,
            kept,
            ..
        } = self;
        let tunnel = Tunnel::take_over(dialer, hello, stream, &segment, taken)?;
        Ok((tunnel, kept))
    }
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
            kept: built.kept,
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

/// The objects that [`Departure`] gets.
struct Built {
    kept: Kept,
    stopped_ns: u64,
    bytes: (u64, u64),
    stopped_objects: u64,
    hello: Hello,
    stream: Stream,
    segment: Segment,
    taken: Taken,
}

struct Sender<'a> {
    way: Outgoing<'a>,
    arenas: HashMap<u32, TakenArena>,
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
        return Err("plan lacks its descriptors".into());
    }
    let segment = fds.pop().ok_or("plan lacks its segment")?;
    let socket = fds.pop().ok_or("plan lacks its socket")?;
    let plan: Plan = read_file(fds, len)?;
    if plan.host_buffers {
        return Err(
            "the program has buffers in its own memory, which another node cannot use \
             (device.host_memory = false on its device avoids that)"
                .into(),
        );
    }
    let memory = Segment::map(&segment).map_err(|e| e.to_string())?;
    let (stream, hello) = target.open()?;
    let mut sender = Sender {
        way: Outgoing::new(source, &stream),
        arenas: HashMap::new(),
        pending: VecDeque::new(),
        touched: HashSet::new(),
    };
    let (mirror, facts) = (plan.mirror, FactsRead::new(plan.facts));
    sender.way.send(&FromSource::Plan(plan))?;
    sender.way.prepared()?;
    let (state, bytes) = sender.send_rest()?;
    let socket = Arc::new(socket);
    let stopped_ns = state.stopped_ns;
    let Sender {
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
        taken: Taken {
            facts,
            passes_facts: target.version >= FACTS,
            ..taken((state, mirror), arenas, descriptors)?
        },
        stopped_ns,
        bytes,
        stopped_objects: touched.len() as u64,
        hello,
        stream,
        segment: memory,
        kept: Kept {
            socket,
            segment,
            mirror,
        },
    })
}

impl Sender<'_> {
    /// Sends everything after the plan; returns the stopped session's state, and the bytes of
    /// contents that were copied.
    fn send_rest(&mut self) -> Result<(State, (u64, u64)), String> {
        let mut stopped = None;
        loop {
            let (message, fds) = next(self.way.source)?;
            match message {
                ToTarget::Arenas(arenas) if arenas.len() == fds.len() => {
                    for (arena, fd) in arenas.into_iter().zip(fds) {
                        let memory = Memory::map_part(&fd, arena.offset, arena.len);
                        let memory = memory.map_err(|e| format!("an arena: {e}"))?;
                        let taken = TakenArena {
                            memory,
                            file: fd,
                            state: arena,
                        };
                        self.arenas.insert(arena.arena, taken);
                    }
                }
                ToTarget::Pending => self.pending.extend(fds),
                ToTarget::Window { len } => self.way.window(&fds, len)?,
                ToTarget::Parts(parts) => {
                    if stopped.is_some() {
                        self.touched.extend(parts.iter().map(|part| part.id));
                    }
                    self.way.send_parts(parts)?;
                    // They are on their way, and the window may be used again.
                    self.way.report(ToSource::Taken)?;
                }
                ToTarget::State { len } => {
                    let state: State = read_file(fds, len)?;
                    if state.stopped_ns == 0 {
                        self.way.send(&FromSource::Ahead(state))?;
                        self.way.prepared()?;
                    } else if stopped.is_none() {
                        self.way.send(&FromSource::Rest(rest(&state)?))?;
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
                    self.way.send(&FromSource::Complete { bytes })?;
                    match self.way.answer()? {
                        FromTarget::Built => {}
                        _ => return Err("the other node broke the protocol".into()),
                    }
                    let state = stopped.ok_or("end of the session lacks its state")?;
                    return Ok((state, bytes));
                }
                ToTarget::Plan { .. } | ToTarget::Arenas(_) | ToTarget::Stopping => {
                    return Err("the executor broke the protocol".into());
                }
            }
        }
    }
}

/// The state of a stopped session for the other node.
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

/// The parts that stay with the program.
fn taken(
    (state, mirror): (State, bool),
    arenas: HashMap<u32, TakenArena>,
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
        let (properties, ring) = *found.ok_or("queue lacks its record")?;
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
        slots: state.slots,
        queues,
        releases,
        watched: state.watched,
        mirror,
        facts: FactsRead::default(),
        passes_facts: true,
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
