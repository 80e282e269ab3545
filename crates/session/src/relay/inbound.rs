//! Converts the client's frames to messages in the executor's rings.

use super::outbound::progressed;
use super::place::RelayCommand;
use super::state::{Awaited, Queue, SharedBuffer, Transfer};
use super::Session;
use crate::client::Block;
use crate::tcp::frame::{Head, Kind, Violation};
use crate::tcp::link::Flushed;
use crate::tcp::reader::Receive;
use crate::tcp::split::{payload_of, with_payload};
use crate::tcp::subflows::Subflows;
pub(super) use crate::tcp::tunnel::relays::OWN_CALL;
use crate::tcp::{CHUNK_BYTES, RING_BYTES};
use baltra_ring::{ring_bytes, Range};
use baltra_wire::{
    decode, encode, Backing, Call, Command, Control, Direction, Id, Payload, Request, Waits,
};
use std::sync::Arc;

/// Maximum number of queues of a session in the relay, to bound its memory. The executor has its
/// own, lower limit, which fails the call.
const QUEUES_MAX: usize = 1 << 15;

/// The receiving side over one connection.
pub(super) struct Inbound<'a> {
    pub(super) session: &'a Session,
    acked: u32,
    /// Location of the current frame's received payload.
    arrived: Option<Arrived>,
    dirty: Vec<Id>,
    /// Queues in which the relay has executed commands itself, with the number of the last one.
    /// Reported to the client when no more frames have arrived.
    done: Vec<(Id, u64)>,
    /// Whether the outbox has unsent frames.
    unsent: bool,
    scratch: Vec<u8>,
    calls: Call,
}

/// A command's payload.
enum Arrived {
    /// In a block, for the executor.
    Staged(Block),
    /// In the payload's final place.
    InPlace { _keep: SharedBuffer },
}

pub(super) fn lost(lost: crate::client::Lost) -> Violation {
    Violation(format!(
        "cannot allocate the memory that the client requested ({lost})"
    ))
}

fn malformed(error: baltra_wire::CodecError) -> Violation {
    Violation(error.to_string())
}

impl<'a> Inbound<'a> {
    pub fn new(session: &'a Session) -> Inbound<'a> {
        // Frames that had begun to arrive are received again.
        Inbound {
            session,
            acked: 0,
            arrived: None,
            dirty: Vec::new(),
            done: Vec::new(),
            unsent: false,
            scratch: Vec::new(),
            calls: 0,
        }
    }

    pub(super) fn allocate(&self, len: u64, align: u64) -> Result<Block, Violation> {
        self.session.client.allocate(len, align).map_err(lost)
    }

    pub(super) fn send(&self, control: &Control<'_>) -> Result<(), Violation> {
        self.session.client.control(control).map_err(lost)
    }

    fn control(&mut self, message: &[u8]) -> Result<(), Violation> {
        let mut control = decode::<Control>(message).map_err(malformed)?;
        let mut taken = None;
        let mut made = None;
        let mut counts = Vec::new();
        match &mut control {
            // The executor reads the relay's rings, not the client's.
            Control::QueueRun(_) => return Ok(()),
            Control::ArenaAdd { .. } | Control::ArenaDrop(_) | Control::ArenaPart { .. } => {
                return Err(Violation::new(
                    "a control message for an arena, which TCP does not allow",
                ));
            }
            Control::EventsAdd { first, .. } => {
                let next = self.session.client.events().next_segment();
                if next.map(|n| n.1) != Some(*first) {
                    return Err(Violation::new("event slots out of order"));
                }
                return self.session.client.grow_events().map_err(lost);
            }
            Control::Queue {
                id,
                ring,
                properties,
                ..
            } => *ring = self.queue(*id, *properties)?,
            Control::Buffer {
                id,
                size,
                backing: backing @ Backing::Device(_),
                ..
            } => {
                let contents = match backing {
                    Backing::Device(Some(payload)) => Some(self.contents(payload.len)?),
                    _ => None,
                };
                match self.share(*size, contents) {
                    Ok(block) => {
                        *backing = Backing::Arena(block.payload());
                        made = Some((*id, block));
                    }
                    Err(block) => {
                        *backing = Backing::Device(block.as_ref().map(Block::payload));
                        taken = block;
                    }
                }
            }
            Control::SubBuffer {
                id,
                parent,
                origin,
                size,
                ..
            } => {
                let place = self.session.state().places.get(parent).cloned();
                let range = place.as_ref().and_then(|p| p.range.slice(*origin, *size));
                if let (Some(place), Some(range)) = (place, range) {
                    let id = *id;
                    self.send(&control)?;
                    return self.remember(id, place.block, range);
                }
            }
            Control::Image {
                contents: Some(payload),
                ..
            } => {
                let block = self.contents(payload.len)?;
                *payload = block.payload();
                taken = Some(block);
            }
            Control::Buffer {
                backing: Backing::Arena(_),
                ..
            } => {
                return Err(Violation::new(
                    "a buffer in the client's memory, which TCP does not allow",
                ))
            }
            Control::Release { id, after, notify } => {
                // The relay has to free the queue's ring or the buffer's memory.
                *notify |= self.session.state().release(*id);
                self.session.state().executors_counts(after, &mut counts);
                *after = &counts;
            }
            Control::SvmFree { after, .. } => {
                self.session.state().executors_counts(after, &mut counts);
                *after = &counts;
            }
            Control::Call { call, request }
                if *call >= OWN_CALL
                    || matches!(request, Request::SvmMap { .. } | Request::Memory(_)) =>
            {
                return Err(Violation::new("a request that only a local client makes"));
            }
            _ => {}
        }
        self.send(&control)?;
        if let Some((id, block)) = made {
            let range = block.range().clone();
            return self.remember(id, block, range);
        }
        match taken {
            Some(block) => {
                // Freed when the executor has processed all earlier messages.
                let call = self.reserve(Awaited::Contents { _block: block });
                let request = Request::Sync;
                self.send(&Control::Call { call, request })
            }
            None => Ok(()),
        }
    }

    fn queue(&mut self, id: Id, properties: u64) -> Result<Payload, Violation> {
        {
            let mut state = self.session.state();
            state.sweep();
            if state.queues.len() >= QUEUES_MAX || state.queues.contains_key(&id) {
                return Err(Violation::new(
                    "a queue's id is already in use, or over the limit of queues",
                ));
            }
        }
        let Ok(ring) = self
            .session
            .client
            .allocate(ring_bytes(RING_BYTES) as u64, 128)
        else {
            // The executor cannot create this queue, and its commands return the error.
            return Ok(Payload {
                arena: 0,
                offset: 0,
                len: 0,
            });
        };
        let payload = ring.payload();
        let queue = Queue::new(ring, properties, 0).map_err(|e| Violation(e.to_string()))?;
        self.session.state().queues.insert(id, queue);
        Ok(payload)
    }

    /// The received contents, which must have `len` bytes.
    fn contents(&self, len: u64) -> Result<Block, Violation> {
        match self.session.state().arriving.take() {
            Some((block, at, total)) if at == total && total == len => Ok(block),
            _ => Err(Violation::new(
                "contents whose length differs from the announced length",
            )),
        }
    }

    /// Reserves a number for one of the relay's own calls.
    pub(super) fn reserve(&mut self, awaited: Awaited) -> Call {
        let mut state = self.session.state();
        // There are always fewer outstanding calls than numbers.
        loop {
            self.calls = self.calls.wrapping_add(1) % OWN_CALL;
            if !state.awaited.contains_key(&(OWN_CALL | self.calls)) {
                break;
            }
        }
        state.awaited.insert(OWN_CALL | self.calls, awaited);
        OWN_CALL | self.calls
    }

    /// Forwards a command, or executes it; the latter is reported when the frame has been counted.
    fn command(&mut self, queue: Id, message: &[u8]) -> Result<Option<RelayCommand>, Violation> {
        let mut command = decode::<Command>(message).map_err(malformed)?;
        let arrived = match self.arrived.take() {
            Some(Arrived::InPlace { .. }) => return Ok(self.written(queue, &command)),
            Some(Arrived::Staged(block)) => Some(block),
            None => None,
        };
        if arrived.is_none() {
            if let Some(own) = self.read_in_place(queue, &command) {
                return Ok(Some(own));
            }
        }
        // The command may change bytes that are being sent to the client.
        self.session.link.detach();
        let mut transfer = None;
        if let Some((direction, payload)) = payload_of(&command.operation) {
            let block = match (direction, arrived) {
                (Direction::Write, Some(block)) => block,
                _ if payload.len > CHUNK_BYTES => {
                    return Err(Violation::new("an oversized transfer"));
                }
                (Direction::Write, None) if payload.len > 0 => {
                    return Err(Violation::new("write lacks its payload"));
                }
                _ => self.allocate(payload.len, 128)?,
            };
            let here = block.part(0, payload.len.min(block.len() as u64));
            if here.len != payload.len {
                return Err(Violation::new(
                    "a payload whose length differs from its command's",
                ));
            }
            command.operation = with_payload(&command.operation, here);
            transfer = Some((block, direction == Direction::Read));
        } else if arrived.is_some() {
            return Err(Violation::new("a payload that nothing takes"));
        }
        // All of the client's control messages before this frame are in the executor's ring, and
        // the announcement of the arena that was just created for it.
        command.after_control = self.session.client.control_count();
        let mut state = self.session.state();
        let state = &mut *state;
        let mut waits = Vec::new();
        if !command.waits.is_empty() {
            let events = self.session.client.events();
            state.waits(command.waits, events, &mut waits);
            command.waits = Waits(&waits);
        }
        self.scratch.clear();
        encode(&command, &mut self.scratch).map_err(malformed)?;
        let unknown = || Violation::new("a command on an unknown queue");
        let found = state.queues.get_mut(&queue).ok_or_else(unknown)?;
        if found.producer.try_push(&self.scratch).is_err() {
            return Err(Violation::new("more commands than the queue's window"));
        }
        if !std::mem::replace(&mut found.dirty, true) {
            self.dirty.push(queue);
        }
        if let Some((block, is_read)) = transfer {
            if !found.has_room(block.len() as u64) {
                return Err(Violation::new("more payload than the queue's window"));
            }
            let number = found.producer.pushed();
            let transfer = Transfer {
                number,
                clients_number: found.clients(number),
                event: command.event,
                block,
                is_read,
            };
            if command.event != 0 {
                let place = (queue, transfer.number);
                state.by_event.insert(command.event, place);
            }
            found.add(transfer);
        }
        Ok(None)
    }

    /// Accepts the subflows that the client offers for this connection.
    fn accept_subflows(&mut self, message: &[u8]) -> Result<(), Violation> {
        let tag = message.try_into().map(u64::from_le_bytes);
        let tag = tag.map_err(|_| Violation::new("an offer of subflows without a tag"))?;
        let link = &self.session.link;
        let mut outbox = link.outbox();
        if outbox.set_subflows(tag).is_some() {
            outbox.push(link, Kind::Subflows, 0, &tag.to_le_bytes(), None);
            self.unsent = true;
        }
        Ok(())
    }

    fn acked(&mut self, head: &Head) -> Result<(), Violation> {
        if head.ack != self.acked {
            self.session.link.acked(head.ack)?;
            self.acked = head.ack;
        }
        Ok(())
    }

    /// Reports a command that the relay has executed.
    fn report(&mut self, mut own: RelayCommand) -> Result<(), Violation> {
        self.unsent |= own.report(self.session)?;
        match self.done.iter_mut().find(|d| d.0 == own.queue) {
            Some(done) => done.1 = own.number,
            None => self.done.push((own.queue, own.number)),
        }
        Ok(())
    }

    /// Publishes pushed commands to the executor.
    fn publish(&mut self) {
        if self.dirty.is_empty() {
            return;
        }
        let mut state = self.session.state();
        let mut parked = Vec::new();
        for id in self.dirty.drain(..) {
            if let Some(queue) = state.queues.get_mut(&id) {
                queue.dirty = false;
                if queue.producer.publish() && queue.producer.take_parked() {
                    parked.push(id);
                }
            }
        }
        drop(state);
        for id in parked {
            // A lost session runs no commands.
            let _ = self.send(&Control::QueueRun(id));
        }
    }

    /// The place of the next piece of an object's contents.
    fn contents_place(&self, total: &[u8], len: u64) -> Result<Range, Violation> {
        let wrong = || Violation::new("pieces of contents whose lengths contradict each other");
        let total = u64::from_le_bytes(total.try_into().map_err(|_| wrong())?);
        let mut state = self.session.state();
        if total == 0 || total > state.limits.memory_bytes.min(state.limits.arena_bytes) {
            return Err(Violation(format!(
                "contents of {total} bytes, outside the session's limits"
            )));
        }
        if state.arriving.is_none() {
            state.arriving = Some((self.allocate(total, 128)?, 0, total));
        }
        let (block, at, expected) = state.arriving.as_ref().expect("set above");
        if *expected != total {
            return Err(wrong());
        }
        block.range().slice(*at, len).ok_or_else(wrong)
    }
}

impl Receive for Inbound<'_> {
    fn place(&mut self, head: &Head, message: &[u8]) -> Result<Range, Violation> {
        let len = u64::from(head.payload);
        match head.kind {
            Kind::Contents => self.contents_place(message, len),
            Kind::Command => {
                self.acked(head)?;
                let command = decode::<Command>(message).map_err(malformed)?;
                if let Some(place) = self.write_in_place(head, &command) {
                    let range = place.range.clone();
                    self.arrived = Some(Arrived::InPlace { _keep: place });
                    return Ok(range);
                }
                let state = self.session.state();
                let queue = state.queues.get(&head.queue);
                if !queue.is_some_and(|q| q.has_room(len)) {
                    return Err(Violation::new("more payload than the queue's window"));
                }
                drop(state);
                let block = self.allocate(len, 128)?;
                let range = block.range().clone();
                self.arrived = Some(Arrived::Staged(block));
                Ok(range)
            }
            _ => Err(Violation::new("a payload that nothing takes")),
        }
    }

    fn frame(&mut self, head: &Head, message: &[u8]) -> Result<bool, Violation> {
        self.acked(head)?;
        let mut own = None;
        match head.kind {
            Kind::Ack => {}
            Kind::Control => {
                // A control message may depend on earlier commands (a release).
                self.publish();
                self.control(message)?;
            }
            Kind::Command => own = self.command(head.queue, message)?,
            Kind::Contents if head.payload == 0 => {
                return Err(Violation::new("a piece of contents without bytes"));
            }
            Kind::Contents => {
                if let Some((_, at, _)) = &mut self.session.state().arriving {
                    *at += u64::from(head.payload);
                }
            }
            Kind::Subflows => self.accept_subflows(message)?,
            Kind::Close => return Ok(false),
            Kind::Notice | Kind::Data => {
                return Err(Violation(format!(
                    "an unexpected frame of kind {:?}",
                    head.kind
                )));
            }
        }
        // Counted first, so that the completion of the command is sent with an acknowledgement that
        // covers its frame.
        self.session.link.count(head);
        if let Some(own) = own {
            self.report(own)?;
        }
        Ok(true)
    }

    fn subflows(&self) -> Option<Arc<Subflows>> {
        self.session.link.any_subflows()
    }

    fn idle(&mut self) -> Result<(), Violation> {
        self.publish();
        let link = &self.session.link;
        if !self.unsent && self.done.is_empty() && !link.may_acknowledge() {
            return Ok(());
        }
        let mut outbox = link.outbox();
        if outbox.is_overfull() {
            return Err(Violation::new("too many frames are unacknowledged"));
        }
        for (queue, number) in self.done.drain(..) {
            progressed(self.session, queue, number, (0, 0), &mut outbox);
            self.unsent = true;
        }
        let acknowledges = link.acknowledge(&mut outbox);
        if (std::mem::take(&mut self.unsent) || acknowledges) && outbox.flush() == Flushed::Stalled
        {
            drop(outbox);
            self.session.poke();
        }
        Ok(())
    }
}
