//! A relay's state of its session: the queues' rings, the blocks of outstanding transfers, and the
//! buffers whose bytes the relay can access.

use crate::client::Block;
use crate::tcp::WINDOW_BYTES;
use baltra_ring::{EventTable, Position, Producer, Range, RingError, RING_HEADER_BYTES};
use baltra_wire::opencl::{QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, QUEUE_PROFILING_ENABLE};
use baltra_wire::{event_slot, Call, Command, Direction, Event, Id, Limits, Operation, Waits};
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which the ring of a released queue is kept, because the queue's thread may publish its
/// progress once more.
const RING_REST: Duration = Duration::from_secs(1);
/// Payload beyond a queue's window that is still accepted: the last piece of the window.
const WINDOW_SLACK: u64 = crate::tcp::CHUNK_BYTES;

/// A buffer, or a part of one, in memory that relay and executor share.
#[derive(Clone)]
pub(super) struct SharedBuffer {
    pub block: Arc<Block>,
    pub range: Range,
    /// The outstanding call that confirms its creation; `None`: it exists.
    pub requested: Option<Call>,
}

/// Purpose of a call that the relay itself sent to the executor.
pub(super) enum Awaited {
    /// Confirms that the executor has read an object's initial contents.
    Contents { _block: Block },
    /// Confirms or rejects the creation of a buffer.
    Buffer(Id),
    /// Confirms that the executor has processed all earlier messages: dropped then.
    Processed { _signal: Sender<()> },
}

/// An outstanding transfer.
pub(super) struct Transfer {
    /// The command's number in the executor's count, and in the client's.
    pub number: u64,
    pub clients_number: u64,
    pub event: Event,
    pub block: Block,
    pub is_read: bool,
}

/// A command queue.
pub(super) struct Queue {
    pub producer: Producer,
    /// The ring's memory.
    ring: Block,
    /// Ordered by number.
    transfers: VecDeque<Transfer>,
    staged: u64,
    /// Whether pushed commands have not been published.
    pub dirty: bool,
    /// Pushed commands that the executor has reported as complete.
    completed: u64,
    /// Number of commands that the relay has executed itself, by which the client's numbering is
    /// ahead of the executor's.
    own: u64,
    /// The executor's number at the last of them; all commands up to it have been reported.
    own_after: u64,
    /// Whether the queue's events have times, which only the driver can measure.
    profiles: bool,
    /// Whether its commands run in order.
    is_ordered: bool,
}

impl Queue {
    /// Of a queue whose first `completed` commands are complete, in a block of
    /// [`crate::tcp::RING_BYTES`].
    pub fn new(ring: Block, properties: u64, completed: u64) -> Result<Queue, RingError> {
        if let Some(header) = ring.range().slice(0, RING_HEADER_BYTES as u64) {
            header.zero();
        }
        let start = Position {
            messages: completed,
            ..Position::default()
        };
        let producer = Producer::resume(ring.range().clone(), start)?;
        producer.start_parked();
        Ok(Queue {
            producer,
            ring,
            transfers: VecDeque::new(),
            staged: 0,
            dirty: false,
            completed,
            own: 0,
            own_after: 0,
            profiles: properties & QUEUE_PROFILING_ENABLE != 0,
            is_ordered: properties & QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0,
        })
    }

    /// Whether all earlier commands have been reported to the client as complete.
    pub fn is_idle(&self) -> bool {
        self.completed >= self.producer.pushed()
    }

    /// Counts a command that the relay executes itself while the queue is idle; returns its number
    /// in the client's count.
    pub fn carry_out(&mut self) -> u64 {
        debug_assert!(self.is_idle());
        self.own += 1;
        self.own_after = self.producer.pushed();
        self.clients(self.producer.pushed())
    }

    /// Whether the relay executed the last command itself.
    pub fn goes_on(&self) -> bool {
        self.own > 0 && self.own_after == self.producer.pushed()
    }

    /// Converts the executor's number of a command to the client's. The command must be complete,
    /// or later than all commands that the relay has executed.
    pub fn clients(&self, number: u64) -> u64 {
        number + self.own
    }

    /// Converts the client's count to the executor's.
    pub fn executors(&self, count: u64) -> u64 {
        count.saturating_sub(self.own)
    }

    /// Converts the executor's progress to the client's numbering.
    pub fn translate(&mut self, completed: u64, failed: (u64, i32)) -> (u64, (u64, i32)) {
        self.completed = self.completed.max(completed.min(self.producer.pushed()));
        let failed = match failed {
            // Already reported.
            (number, _) if number <= self.own_after => (0, 0),
            (number, code) => (self.clients(number), code),
        };
        (self.clients(completed), failed)
    }

    /// Whether the client may have `len` more bytes in flight.
    pub fn has_room(&self, len: u64) -> bool {
        self.staged + len <= WINDOW_BYTES + WINDOW_SLACK
    }

    pub fn add(&mut self, transfer: Transfer) {
        self.staged += transfer.block.len() as u64;
        self.transfers.push_back(transfer);
    }

    /// Takes the transfers of the first `completed` commands.
    pub fn complete(&mut self, completed: u64) -> impl Iterator<Item = Transfer> {
        let done = self.transfers.partition_point(|t| t.number <= completed);
        let done: Vec<_> = self.transfers.drain(..done).collect();
        self.staged -= done.iter().map(|t| t.block.len() as u64).sum::<u64>();
        done.into_iter()
    }

    /// Whether a transfer is outstanding.
    pub fn has_transfers(&self) -> bool {
        !self.transfers.is_empty()
    }

    /// Command `number` has ended: takes its transfer and, of a queue that runs in order, the
    /// earlier ones, which have ended before.
    pub fn end(&mut self, number: u64) -> (Vec<Transfer>, Option<Transfer>) {
        let earlier = if self.is_ordered {
            self.complete(number.saturating_sub(1)).collect()
        } else {
            Vec::new()
        };
        (earlier, self.take(number))
    }

    /// Takes the transfer of command `number`.
    fn take(&mut self, number: u64) -> Option<Transfer> {
        let found = self.transfers.binary_search_by_key(&number, |t| t.number);
        let transfer = self.transfers.remove(found.ok()?)?;
        self.staged -= transfer.block.len() as u64;
        Some(transfer)
    }
}

/// State shared by the inbound and the outbound thread.
pub(super) struct State {
    pub limits: Limits,
    pub queues: HashMap<Id, Queue>,
    /// Transfers whose command has an event.
    pub by_event: HashMap<Event, (Id, u64)>,
    /// Buffers in shared memory.
    pub places: HashMap<Id, SharedBuffer>,
    /// Released buffers, until the executor has released them, too.
    pub leaving: HashMap<Id, Arc<Block>>,
    /// Outstanding calls of the relay itself.
    pub awaited: HashMap<Call, Awaited>,
    /// Events that commands at the executor wait for, by slot.
    waited_for: HashMap<u32, Event>,
    /// Contents that are being received: their block, the received bytes, and all bytes.
    pub arriving: Option<(Block, u64, u64)>,
    /// Rings of released queues.
    resting: VecDeque<(Instant, Block)>,
    /// Released queues that have not been freed yet.
    pub released: Vec<Id>,
}

impl State {
    pub fn new(limits: Limits) -> State {
        State {
            limits,
            queues: HashMap::new(),
            by_event: HashMap::new(),
            places: HashMap::new(),
            leaving: HashMap::new(),
            awaited: HashMap::new(),
            waited_for: HashMap::new(),
            arriving: None,
            resting: VecDeque::new(),
            released: Vec::new(),
        }
    }

    /// The place of the bytes that a command of `queue` transfers, if they are in shared memory and
    /// all earlier commands are complete, so that the relay may execute the command.
    pub fn in_place(
        &self,
        queue: Id,
        command: &Command<'_>,
        events: &EventTable,
    ) -> Option<(Direction, SharedBuffer)> {
        let Operation::Buffer {
            direction,
            buffer,
            offset,
            payload,
        } = command.operation
        else {
            return None;
        };
        let place = self.places.get(&buffer).filter(|p| p.requested.is_none())?;
        let range = place.range.slice(offset, payload.len)?;
        let queue = self.queues.get(&queue)?;
        let alone = queue.is_idle() && command.waits.iter().all(|e| events.status(e) == 0);
        let place = SharedBuffer {
            range,
            ..place.clone()
        };
        (alone && !queue.profiles && payload.len > 0).then_some((direction, place))
    }

    /// Removes completed events from a wait list, because the executor has no record of those that
    /// the relay completed. Records the rest.
    pub fn waits(&mut self, waits: Waits<'_>, events: &EventTable, left: &mut Vec<u8>) {
        for event in waits.iter().filter(|&e| events.status(e) != 0) {
            left.extend_from_slice(&event.to_le_bytes());
            if events.has(event) {
                self.waited_for.insert(event_slot(event), event);
            }
        }
    }

    /// Records a complete event; returns whether commands at the executor may have waited for it.
    pub fn completed(&mut self, event: Event) -> bool {
        let slot = event_slot(event);
        let waited = self.waited_for.get(&slot) == Some(&event);
        if waited {
            self.waited_for.remove(&slot);
        }
        waited
    }

    /// Whether commands at the executor may wait for an event.
    pub fn is_waited_for(&self, event: Event) -> bool {
        self.waited_for.get(&event_slot(event)) == Some(&event)
    }

    /// Removes an object that the client releases. Returns whether the relay has to free a queue's
    /// ring or a buffer's memory once the executor has released the object.
    pub fn release(&mut self, id: Id) -> bool {
        let is_queue = self.queues.contains_key(&id);
        if is_queue {
            self.released.push(id);
        }
        let place = self.places.remove(&id);
        let is_buffer = place.is_some();
        if let Some(place) = place {
            self.leaving.insert(id, place.block);
        }
        is_queue || is_buffer
    }

    /// Converts counts of queues' commands (an id, a count; little-endian) from the client's to the
    /// executor's.
    pub fn executors_counts(&self, after: &[u8], counts: &mut Vec<u8>) {
        for entry in after.chunks_exact(12) {
            let (id, count) = entry.split_at(4);
            let count = u64::from_le_bytes(count.try_into().expect("eight bytes"));
            let queue = self
                .queues
                .get(&Id::from_le_bytes(id.try_into().expect("four bytes")));
            let count = queue.map_or(count, |q| q.executors(count));
            counts.extend_from_slice(id);
            counts.extend_from_slice(&count.to_le_bytes());
        }
    }

    /// Handles the executor's reply to one of the relay's own calls.
    pub fn answered(&mut self, call: Call, worked: bool) -> Option<Awaited> {
        let awaited = self.awaited.remove(&call);
        if let Some(Awaited::Buffer(id)) = &awaited {
            let place = self.places.get_mut(id);
            if let Some(place) = place.filter(|p| worked && p.requested == Some(call)) {
                place.requested = None;
            }
        }
        awaited
    }

    /// Frees a queue that the executor has released.
    pub fn drop_queue(&mut self, id: Id) {
        self.released.retain(|&released| released != id);
        if let Some(queue) = self.queues.remove(&id) {
            self.resting.push_back((Instant::now(), queue.ring));
        }
    }

    /// Frees rings whose waiting time has elapsed.
    pub fn sweep(&mut self) {
        while let Some((since, _)) = self.resting.front() {
            if since.elapsed() < RING_REST {
                break;
            }
            self.resting.pop_front();
        }
    }

    /// Removes a transfer's event.
    pub fn forget(&mut self, transfer: &Transfer) {
        if transfer.event != 0 {
            self.by_event.remove(&transfer.event);
        }
    }
}
