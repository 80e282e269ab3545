//! Converts the content of the library's rings to frames.

use super::channel::{Account, Channel, Lent, Piece};
use super::subflows::SUBFLOWS_FROM;
use super::taken::{Descriptors, Taken, TakenArena, TakenQueue};
use super::{relays, Inner, Stage};
use crate::tcp::frame::{Kind, Violation};
use crate::tcp::link::{Flushed, Outbox, Payload as FramePayload};
use crate::tcp::split::{payload_of, pieces_from, with_payload};
use crate::tcp::{record_bytes, CHUNK_BYTES};
use crate::transit::ring_position;
use baltra_ring::{Consumer, Locked, Position, Progress, RingError, Segment, Waker};
use baltra_wire::moves::{self, ArenaState, OpenCommand, QueueState};
use baltra_wire::opencl::{
    INVALID_OPERATION, OUT_OF_HOST_MEMORY, QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
};
use baltra_wire::{
    decode, encode, Backing, Command, Control, Direction, Event, Id, Notice, Payload, Reply,
    Request, Waits,
};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Above this number of unsent bytes the rings are not read.
const UNSENT_MAX: usize = 4 << 20;

impl From<RingError> for Violation {
    fn from(error: RingError) -> Violation {
        Violation(error.to_string())
    }
}

fn malformed(error: baltra_wire::CodecError) -> Violation {
    Violation(error.to_string())
}

/// Progress of a queue's current command.
#[derive(Default)]
struct Cursor {
    /// Number of payload bytes sent.
    done: u64,
    /// The event of the previous piece, which the next one waits for.
    chain: Event,
}

/// A queue's ring.
struct Feed {
    channel: Arc<Channel>,
    /// Commands that precede those in the ring: an executor had taken them when the tunnel took its
    /// place.
    taken: VecDeque<Vec<u8>>,
    ring: Consumer,
    /// The current command, if `held`.
    message: Vec<u8>,
    held: bool,
    cursor: Cursor,
    /// The place of the ring.
    place: Payload,
}

/// A release that waits until the commands before it have been sent.
pub(crate) struct Deferred {
    pub message: Vec<u8>,
    /// Queues and command counts.
    pub after: Vec<(Id, u64)>,
}

/// The sending side's state.
pub(super) struct Pump {
    control: Consumer,
    /// Number of control messages taken.
    controls: u64,
    message: Vec<u8>,
    scratch: Vec<u8>,
    feeds: Vec<Feed>,
    deferred: Vec<Deferred>,
    /// Set if the library is in another process.
    descriptors: Option<Descriptors>,
    /// Records that added slots to the table of events, and arenas, of such a library.
    slots: Vec<Vec<u8>>,
    arenas: HashMap<u32, (ArenaState, OwnedFd)>,
}

impl Pump {
    pub fn new(segment: &Segment) -> Result<Pump, RingError> {
        Ok(Pump {
            control: Consumer::new(segment.control())?,
            controls: 0,
            message: Vec::new(),
            scratch: Vec::new(),
            feeds: Vec::new(),
            deferred: Vec::new(),
            descriptors: None,
            slots: Vec::new(),
            arenas: HashMap::new(),
        })
    }

    /// Continues where an executor has stopped; the arenas are those of `inner`.
    pub fn take_over(inner: &Inner, segment: &Segment, taken: Taken) -> Result<Pump, Violation> {
        let mut pump = Pump {
            control: Consumer::resume(segment.control(), taken.control)?,
            controls: taken.controls,
            descriptors: Some(taken.descriptors),
            ..Pump::new(segment)?
        };
        for record in &taken.slots {
            match decode::<Control>(record).map_err(malformed)? {
                Control::EventsAdd { payload, .. } => {
                    inner.writer.add(inner.memory(payload)?);
                }
                _ => return Err(Violation::new("a record that adds no event slots")),
            }
        }
        pump.slots = taken.slots;
        for (arena, TakenArena { file, state, .. }) in taken.arenas {
            pump.arenas.insert(arena, (state, file));
        }
        for queue in taken.queues {
            pump.add_queue(queue, inner)?;
        }
        pump.deferred = taken.releases;
        Ok(pump)
    }

    /// The control ring's waker, for the thread that waits in the library's place.
    pub fn waker(&self) -> Waker {
        self.control.waker()
    }

    fn add_queue(&mut self, queue: TakenQueue, inner: &Inner) -> Result<(), Violation> {
        let TakenQueue {
            id,
            properties,
            ring,
            position,
            completed,
            taken,
        } = queue;
        let range = inner.memory(ring)?;
        let progress = Progress::new(&range)?;
        let in_order = properties & QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0;
        let channel = Arc::new(Channel::new(id, in_order, progress, completed));
        inner.channels.locked().insert(id, channel.clone());
        self.feeds.push(Feed {
            place: ring,
            channel,
            taken,
            ring: Consumer::resume(range, position)?,
            message: Vec::new(),
            held: false,
            cursor: Cursor::default(),
        });
        Ok(())
    }

    /// Sends all messages, as far as the windows and the socket allow.
    pub fn pass(&mut self, inner: &Inner) -> Result<Flushed, Violation> {
        let mut outbox = inner.link.outbox();
        loop {
            let takes = inner.stage() != Stage::Stopped;
            let mut moved = takes;
            if takes && outbox.unsent() < UNSENT_MAX {
                moved = self.drain_control(inner, &mut outbox)?;
                moved |= self.send_deferred(inner, &mut outbox)?;
                for at in 0..self.feeds.len() {
                    moved |= self.drain_queue(at, inner, &mut outbox)?;
                }
            }
            inner.link.acknowledge(&mut outbox);
            let flushed = outbox.flush();
            if !moved || flushed != Flushed::All {
                return Ok(flushed);
            }
        }
    }

    fn drain_control(&mut self, inner: &Inner, outbox: &mut Outbox) -> Result<bool, Violation> {
        let mut moved = false;
        let mut message = std::mem::take(&mut self.message);
        while outbox.unsent() < UNSENT_MAX && self.control.pop(&mut message)? {
            moved = true;
            self.controls += 1;
            self.control(&message, inner, outbox)?;
        }
        self.message = message;
        Ok(moved)
    }

    fn control(
        &mut self,
        message: &[u8],
        inner: &Inner,
        outbox: &mut Outbox,
    ) -> Result<(), Violation> {
        match decode::<Control>(message).map_err(malformed)? {
            // Arenas exist only on this side.
            Control::ArenaAdd { arena, len } => {
                if let Some(descriptors) = &mut self.descriptors {
                    let (memory, file) = descriptors.arena(len)?;
                    inner.arenas.locked().insert(arena, memory);
                    let state = ArenaState {
                        arena,
                        offset: 0,
                        len,
                    };
                    self.arenas.insert(arena, (state, file));
                }
                return Ok(());
            }
            Control::ArenaDrop(arena) => {
                inner.arenas.locked().remove(&arena);
                self.arenas.remove(&arena);
                return Ok(());
            }
            Control::EventsAdd { payload, .. } => {
                inner.writer.add(inner.memory(payload)?);
                if self.descriptors.is_some() {
                    self.slots.push(message.to_vec());
                }
            }
            Control::Queue {
                id,
                properties,
                ring,
                ..
            } => {
                let new = TakenQueue::new(id, properties, ring);
                self.add_queue(new, inner)?;
            }
            Control::Buffer {
                backing: Backing::Device(Some(payload)),
                ..
            }
            | Control::Image {
                contents: Some(payload),
                ..
            } => contents(payload, inner, outbox)?,
            Control::Buffer {
                backing: Backing::Arena(_),
                ..
            } => {
                return Err(Violation::new(
                    "a buffer in the client's memory, which TCP does not allow",
                ))
            }
            Control::Watch(event) => inner.watch(event),
            Control::FactsRead(facts) => {
                inner.facts.add(facts);
                if !inner.passes_facts {
                    return Ok(());
                }
            }
            Control::Call { call, request } if inner.mirror && call & relays::OWN_CALL != 0 => {
                let call = relays::sent(call);
                self.scratch.clear();
                encode(&Control::Call { call, request }, &mut self.scratch).map_err(malformed)?;
                outbox.push(&inner.link, Kind::Control, 0, &self.scratch, None);
                return Ok(());
            }
            Control::Release { after, .. } | Control::SvmFree { after, .. } => {
                let after = after.chunks_exact(12).map(|entry| {
                    let (queue, count) = entry.split_at(4);
                    (
                        Id::from_le_bytes(queue.try_into().expect("four bytes")),
                        u64::from_le_bytes(count.try_into().expect("eight bytes")),
                    )
                });
                self.deferred.push(Deferred {
                    message: message.to_vec(),
                    after: after.collect(),
                });
                return Ok(());
            }
            Control::Call {
                call,
                request: Request::SvmMap { .. },
            } => {
                inner.notify(&Notice::Reply {
                    call,
                    reply: Reply::Error(INVALID_OPERATION),
                });
                return Ok(());
            }
            // Only a library in another process asks this: its arenas are here.
            Control::Call {
                call,
                request: Request::Memory(payload),
            } => {
                let reply = match inner.memory(payload) {
                    Ok(_) => Reply::Done,
                    Err(_) => Reply::Error(OUT_OF_HOST_MEMORY),
                };
                inner.notify(&Notice::Reply { call, reply });
                return Ok(());
            }
            _ => {}
        }
        outbox.push(&inner.link, Kind::Control, 0, message, None);
        Ok(())
    }

    /// Sends the releases whose preceding commands have all been sent.
    fn send_deferred(&mut self, inner: &Inner, outbox: &mut Outbox) -> Result<bool, Violation> {
        let mut moved = false;
        let deferred = std::mem::take(&mut self.deferred);
        for release in deferred {
            let channels = inner.channels.locked();
            let known = release
                .after
                .iter()
                .filter_map(|&(queue, count)| Some((channels.get(&queue)?, count)));
            let ready = known
                .clone()
                .all(|(channel, count)| channel.account().commands_sent() >= count);
            if !ready {
                drop(channels);
                self.deferred.push(release);
                continue;
            }
            let mut after = Vec::new();
            for (channel, _) in known {
                after.extend_from_slice(&channel.id.to_le_bytes());
                after.extend_from_slice(&channel.account().sent().to_le_bytes());
            }
            drop(channels);
            moved = true;
            self.release(&release.message, &after, inner, outbox)?;
        }
        Ok(moved)
    }

    fn release(
        &mut self,
        message: &[u8],
        after: &[u8],
        inner: &Inner,
        outbox: &mut Outbox,
    ) -> Result<(), Violation> {
        let mut control = decode::<Control>(message).map_err(malformed)?;
        match &mut control {
            Control::Release { id, after: old, .. } => {
                *old = after;
                let id = *id;
                self.feeds.retain(|f| f.channel.id != id);
                let mut channels = inner.channels.locked();
                if let Some(channel) = channels.get(&id) {
                    channel.released.store(true, Ordering::Release);
                    // A queue with outstanding commands still receives their completions.
                    if channel.account().is_drained() {
                        channels.remove(&id);
                    }
                }
            }
            Control::SvmFree { after: old, .. } => *old = after,
            _ => {}
        }
        self.scratch.clear();
        encode(&control, &mut self.scratch).map_err(malformed)?;
        outbox.push(&inner.link, Kind::Control, 0, &self.scratch, None);
        Ok(())
    }

    fn drain_queue(
        &mut self,
        at: usize,
        inner: &Inner,
        outbox: &mut Outbox,
    ) -> Result<bool, Violation> {
        let mut moved = false;
        while outbox.unsent() < UNSENT_MAX {
            let feed = &mut self.feeds[at];
            // A command that has begun is completed.
            if inner.stage() != Stage::Runs && feed.cursor.done == 0 {
                break;
            }
            if !feed.held && !feed.take()? {
                // A library in another process announces commands of a parked ring, by which one
                // thread waits for all queues.
                let waits = self.descriptors.is_some() && !feed.ring.is_parked();
                if waits && !feed.ring.park(|| false) {
                    continue;
                }
                break;
            }
            feed.held = true;
            let message = std::mem::take(&mut feed.message);
            let command = decode::<Command>(&message).map_err(malformed)?;
            if command.after_control > self.controls {
                // The arrived messages are counted and about to be published; the following kick
                // will find them.
                moved |= self.drain_control(inner, outbox)?;
            }
            let known = command.after_control <= self.controls;
            let feed = &mut self.feeds[at];
            let sent = known
                && ship(
                    &command,
                    &message,
                    &feed.channel,
                    &mut feed.cursor,
                    &mut self.scratch,
                    inner,
                    outbox,
                )?;
            feed.message = message;
            if !sent {
                break;
            }
            feed.held = false;
            feed.cursor = Cursor::default();
            moved = true;
        }
        Ok(moved)
    }
}

/// The library's end of a session, in which no command is outstanding.
pub(crate) struct Rest {
    /// The reading end of the control channel, and messages taken.
    pub control: (Position, u64),
    pub slots: Vec<Vec<u8>>,
    pub arenas: Vec<(ArenaState, OwnedFd)>,
    /// Descriptors of arenas that are not announced yet.
    pub pending: Vec<OwnedFd>,
    /// The queues, and where their rings are.
    pub queues: Vec<(QueueState, Payload)>,
    pub releases: Vec<moves::Release>,
}

impl Pump {
    /// Whether no command is outstanding.
    pub fn is_drained(&self, inner: &Inner) -> bool {
        let channels = inner.channels.locked();
        let mut all = channels.values();
        all.all(|channel| channel.account().is_drained())
            && self.feeds.iter().all(|feed| feed.cursor.done == 0)
    }

    /// The state that another process needs to continue in this one's place.
    pub fn rest(&self) -> Result<Rest, String> {
        let text = |e: std::io::Error| e.to_string();
        let descriptors = self.descriptors.as_ref();
        let descriptors = descriptors.ok_or("its library is in this process")?;
        let pending = descriptors.pending.iter().map(OwnedFd::try_clone);
        let arenas = self.arenas.values();
        let arenas = arenas.map(|(state, file)| Ok((*state, file.try_clone()?)));
        let releases = self.deferred.iter().map(Deferred::release);
        Ok(Rest {
            control: (self.control.position(), self.controls),
            slots: self.slots.clone(),
            arenas: arenas.collect::<Result<_, _>>().map_err(text)?,
            pending: pending.collect::<Result<_, _>>().map_err(text)?,
            queues: self
                .feeds
                .iter()
                .map(Feed::rest)
                .collect::<Result<_, _>>()?,
            releases: releases.collect::<Result<_, _>>()?,
        })
    }
}

impl Deferred {
    fn release(&self) -> Result<moves::Release, String> {
        match decode(&self.message) {
            Ok(Control::Release { id, notify, .. }) => Ok(moves::Release {
                id,
                notify,
                after: self.after.clone(),
            }),
            _ => Err("shared virtual memory is being released: try again later".into()),
        }
    }
}

impl Feed {
    /// The queue's state: commands that were taken are not sent.
    fn rest(&self) -> Result<(QueueState, Payload), String> {
        let held = self.held.then_some(&self.message);
        let mut waiting = held.into_iter().chain(&self.taken).cloned();
        let mut queue = QueueState {
            id: self.channel.id,
            position: ring_position(self.ring.position()),
            completed: self.channel.account().commands_sent(),
            parks: true,
            released: None,
            held: None,
            open: Vec::new(),
        };
        if self.channel.in_order {
            queue.held = waiting.next();
        } else {
            for record in waiting.by_ref() {
                let command = decode::<Command>(&record).map_err(|e| e.to_string())?;
                queue.open.push(OpenCommand {
                    event: command.event,
                    record: Some(record),
                });
            }
        }
        match waiting.next() {
            None => Ok((queue, self.place)),
            Some(_) => Err("a queue with several commands at once".into()),
        }
    }

    /// Takes the next command; `false`: there is none.
    fn take(&mut self) -> Result<bool, RingError> {
        match self.taken.pop_front() {
            Some(first) => self.message = first,
            None => return self.ring.pop(&mut self.message),
        }
        Ok(true)
    }
}

/// Sends an object's first contents ahead of its creation.
fn contents(payload: Payload, inner: &Inner, outbox: &mut Outbox) -> Result<(), Violation> {
    if payload.len >= SUBFLOWS_FROM {
        inner.offer_subflows(outbox);
    }
    let mut at = 0;
    while at < payload.len {
        let len = (payload.len - at).min(CHUNK_BYTES);
        let range = inner.memory(Payload {
            offset: payload.offset + at,
            len,
            ..payload
        })?;
        let total = payload.len.to_le_bytes();
        let payload = FramePayload::Lent(range);
        outbox.push(&inner.link, Kind::Contents, 0, &total, Some(payload));
        at += len;
    }
    Ok(())
}

/// Sends a command, or as many of its pieces as fit; `false`: some are left.
#[allow(clippy::too_many_arguments)]
fn ship(
    command: &Command<'_>,
    message: &[u8],
    channel: &Arc<Channel>,
    cursor: &mut Cursor,
    scratch: &mut Vec<u8>,
    inner: &Inner,
    outbox: &mut Outbox,
) -> Result<bool, Violation> {
    let mut account = channel.account();
    let Some((direction, whole)) = payload_of(&command.operation) else {
        if !account.has_room(message.len(), 0) {
            account.blocked = true;
            return Ok(false);
        }
        let piece = Piece {
            ring_bytes: record_bytes(message.len() + SLACK),
            staged: 0,
            last: true,
            spent: [0; 2],
            lent: None,
        };
        note(&mut account, piece, None, command.event, channel, inner);
        outbox.push(&inner.link, Kind::Command, channel.id, message, None);
        return Ok(true);
    };
    if whole.len >= SUBFLOWS_FROM {
        inner.offer_subflows(outbox);
    }
    for (operation, mut payload) in pieces_from(&command.operation, whole, CHUNK_BYTES, cursor.done)
    {
        let len = payload.len;
        // Only an invalid transfer is longer; the executor returns the error.
        payload.len = len.min(CHUNK_BYTES);
        if !account.has_room(message.len() + 2 * SLACK, payload.len) {
            account.blocked = true;
            return Ok(false);
        }
        let last = cursor.done + len >= whole.len;
        let (event, own) = match event_of(command, last, (channel, &account), cursor, inner) {
            Some(found) => found,
            None => {
                account.blocked = true;
                return Ok(false);
            }
        };
        let chain = cursor.chain.to_le_bytes();
        let piece = Command {
            event,
            after_control: command.after_control,
            waits: match cursor.chain {
                0 => command.waits,
                _ => Waits(&chain),
            },
            operation: with_payload(&operation, payload),
        };
        scratch.clear();
        encode(&piece, scratch).map_err(malformed)?;
        let range = inner.memory(payload)?;
        let lent = range.memory().is_borrowed().then(|| Lent {
            arena: payload.arena,
            frame: match direction {
                Direction::Write => outbox.pushed() + 1,
                Direction::Read => 0,
            },
        });
        let (sent, read) = match direction {
            Direction::Write if payload.len > 0 => (Some(range), None),
            Direction::Write => (None, None),
            Direction::Read => (None, Some(range)),
        };
        // An event of the chain is free once the next piece is complete; an event that only returns
        // the window is free with its own piece.
        let spent = [cursor.chain, if own && last { event } else { 0 }];
        let piece = Piece {
            ring_bytes: record_bytes(scratch.len() + SLACK),
            staged: payload.len,
            last,
            spent,
            lent,
        };
        note(&mut account, piece, read, event, channel, inner);
        let sent = sent.map(FramePayload::Lent);
        outbox.push(&inner.link, Kind::Command, channel.id, scratch, sent);
        cursor.done += len;
        cursor.chain = if own { event } else { 0 };
    }
    Ok(true)
}

/// Maximum growth of a command when the relay inserts its own numbers.
const SLACK: usize = 24;

/// The event of a piece, and whether it is one of the tunnel's own; `None`: the piece has to wait.
fn event_of(
    command: &Command<'_>,
    last: bool,
    (channel, account): (&Channel, &Account),
    cursor: &Cursor,
    inner: &Inner,
) -> Option<(Event, bool)> {
    // Without an event, what follows a piece cannot wait for it, except in order or once the queue
    // has nothing else. A failure of the piece is not propagated then.
    let alone = channel.in_order || account.is_drained();
    let is_chained = cursor.done == 0 || cursor.chain != 0;
    if last && command.event != 0 && (is_chained || alone) || last && channel.in_order {
        return Some((command.event, false));
    }
    let own = if is_chained { inner.take_event() } else { None };
    match own {
        Some(event) => Some((event, true)),
        None if alone => Some((if last { command.event } else { 0 }, false)),
        None => None,
    }
}

fn note(
    account: &mut Account,
    piece: Piece,
    read: Option<baltra_ring::Range>,
    event: Event,
    channel: &Arc<Channel>,
    inner: &Inner,
) {
    let number = account.send(piece, read);
    if event != 0 {
        let mut events = inner.events.locked();
        events.expected.insert(event, (channel.clone(), number));
    }
}
