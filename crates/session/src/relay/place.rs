//! Transfers that the relay executes itself.
//!
//! On a device that works in host memory, a buffer is a block of the session's arenas, as for a
//! client on the same host. If no earlier command is outstanding, a write is received directly into
//! the buffer and a read is sent directly from it, without a staging block or a command for the
//! executor.
//!
//! A write whose connection fails is received again as a whole: until then the buffer holds a part
//! of it, but no later command of its queue runs. Bytes of a read that the client has not
//! acknowledged are copied before any operation of the session that may change them
//! (`Link::detach`); mostly the client has acknowledged them by then.

use super::inbound::Inbound;
use super::state::{Awaited, SharedBuffer};
use super::Session;
use crate::client::Block;
use crate::tcp::frame::{Head, Kind, Violation};
use crate::tcp::link::Payload;
use crate::tcp::{CHUNK_BYTES, WINDOW_BYTES};
use baltra_ring::Range;
use baltra_wire::opencl::MEM_SIZE;
use baltra_wire::{
    encode, Command, Completion, Control, Direction, Event, Id, Notice, Query, Request,
};
use std::sync::Arc;

/// Smaller reads are copied, which is cheaper than tracking them.
const LENT_BYTES_MIN: usize = 64 << 10;
/// Smaller writes are forwarded to the executor together with later commands, so that the client
/// receives one report for all. If the relay has executed the previous command, it executes these
/// too.
const WRITE_BYTES_MIN: usize = 32 << 10;
/// Above this number of copied, unacknowledged bytes, reads are forwarded to the executor.
const COPIES_BYTES_MAX: usize = 2 * WINDOW_BYTES as usize;
/// Buffers from this size are page-aligned.
const PAGE_BYTES: u64 = 4096;

/// A command that the relay has executed.
pub(super) struct RelayCommand {
    pub queue: Id,
    /// Its number in the client's count.
    pub number: u64,
    event: Event,
    /// Whether commands at the executor wait for its event.
    waited_for: bool,
    read: Option<Payload>,
}

impl RelayCommand {
    /// Adds the read bytes and the event's completion to the outbox, and notifies the executor if
    /// its commands wait for the event; returns whether there is anything to send.
    pub fn report(&mut self, session: &Session) -> Result<bool, Violation> {
        let (event, read) = (self.event, self.read.take());
        if event == 0 && read.is_none() {
            return Ok(false);
        }
        let link = &session.link;
        let mut outbox = link.outbox();
        if let Some(payload) = read {
            let number = self.number.to_le_bytes();
            outbox.push(link, Kind::Data, self.queue, &number, Some(payload));
        }
        if event == 0 {
            return Ok(true);
        }
        let notice = Notice::Completed(Completion {
            event,
            status: 0,
            times_ns: [0; 4],
        });
        let mut bytes = Vec::new();
        encode(&notice, &mut bytes).map_err(|e| Violation(e.to_string()))?;
        outbox.push(link, Kind::Notice, 0, &bytes, None);
        drop(outbox);
        // For later wait lists.
        session.client.events().set(event, 0, [0; 4]);
        if !self.waited_for {
            return Ok(true);
        }
        let user = Control::UserEvent { event, status: 0 };
        session
            .client
            .control(&user)
            .map_err(super::inbound::lost)?;
        Ok(true)
    }
}

impl Inbound<'_> {
    /// Memory for a buffer that the executor uses in place, with its initial contents if there are
    /// any; they are returned if it cannot be allocated.
    pub(super) fn share(
        &self,
        size: u64,
        contents: Option<Block>,
    ) -> Result<Arc<Block>, Option<Block>> {
        let session = self.session;
        match contents {
            Some(block) if session.shares && block.len() as u64 >= size => Ok(Arc::new(block)),
            None if session.shares && (1..=session.state().limits.arena_bytes).contains(&size) => {
                let align = if size >= PAGE_BYTES { PAGE_BYTES } else { 128 };
                let block = session.client.allocate(size, align);
                // The driver may have memory although the arenas have none.
                block.map(Arc::new).map_err(|_| None)
            }
            contents => Err(contents),
        }
    }

    /// Records a buffer's place. It is used only after the executor has created the buffer, so that
    /// a rejected buffer (a quota, a flag) fails as it should.
    pub(super) fn remember(
        &mut self,
        id: Id,
        block: Arc<Block>,
        range: Range,
    ) -> Result<(), Violation> {
        let call = self.reserve(Awaited::Buffer(id));
        let place = SharedBuffer {
            block,
            range,
            requested: Some(call),
        };
        self.session.state().places.insert(id, place);
        let query = Query::Memory {
            object: id,
            param: MEM_SIZE,
        };
        let request = Request::Query(query);
        self.send(&Control::Call { call, request })
    }

    /// The place of a write's payload, if it can be received there immediately.
    pub(super) fn write_in_place(
        &mut self,
        head: &Head,
        command: &Command<'_>,
    ) -> Option<SharedBuffer> {
        let session = self.session;
        let state = session.state();
        let found = state.in_place(head.queue, command, session.client.events());
        let (direction, place) = found?;
        if direction != Direction::Write || place.range.len() != head.payload as usize {
            return None;
        }
        let goes_on = state.queues.get(&head.queue)?.goes_on();
        if place.range.len() < WRITE_BYTES_MIN && !goes_on {
            return None;
        }
        drop(state);
        session.link.detach();
        Some(place)
    }

    /// The write's bytes have been received.
    pub(super) fn written(&self, queue: Id, command: &Command<'_>) -> Option<RelayCommand> {
        let mut state = self.session.state();
        Some(RelayCommand {
            queue,
            number: state.queues.get_mut(&queue)?.carry_out(),
            event: command.event,
            waited_for: state.completed(command.event),
            read: None,
        })
    }

    /// Executes a read if that is possible immediately.
    pub(super) fn read_in_place(&self, queue: Id, command: &Command<'_>) -> Option<RelayCommand> {
        let session = self.session;
        let mut state = session.state();
        let found = state.in_place(queue, command, session.client.events());
        let (_, SharedBuffer { block, range, .. }) = found.filter(|f| f.0 == Direction::Read)?;
        if range.len() as u64 > CHUNK_BYTES {
            return None;
        }
        let link = &session.link;
        let lent = link.in_place() + range.len() <= WINDOW_BYTES as usize;
        // Commands at the executor that wait for the event may change the bytes.
        let lent = lent && !state.is_waited_for(command.event);
        let payload = if lent && range.len() >= LENT_BYTES_MIN {
            Payload::InPlace {
                range,
                _keep: block,
            }
        } else if link.copies() + range.len() <= COPIES_BYTES_MAX {
            let mut bytes = vec![0; range.len()];
            range.copy_out(0, &mut bytes);
            Payload::Own(bytes)
        } else {
            return None;
        };
        Some(RelayCommand {
            queue,
            number: state.queues.get_mut(&queue)?.carry_out(),
            event: command.event,
            waited_for: state.completed(command.event),
            read: Some(payload),
        })
    }
}
