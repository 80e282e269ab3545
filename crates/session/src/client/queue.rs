//! One command queue's channel.

use super::{Lost, Shared};
use crate::client::arena::Block;
use baltra_ring::{Full, Locked, Producer, Progress, RING_HEADER_BYTES};
use baltra_wire::opencl::OUT_OF_HOST_MEMORY;
use baltra_wire::{encode, Command, Control, Event, Id, Operation, Waits};
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

/// Data bytes of a queue's ring: about two thousand launches.
const RING_BYTES: usize = 256 << 10;
/// After this many bytes commands are published to the executor without a flush, so that it starts
/// early (an implicit flush, which OpenCL allows at any time).
const PUBLISH_BYTES: usize = 4 << 10;

struct Channel {
    producer: Producer,
    message: Vec<u8>,
    waits: Vec<u8>,
    /// Messages that did not fit into the ring, so that enqueueing never waits for the executor.
    spill: VecDeque<Box<[u8]>>,
    pushed: u64,
    reported_failure: u64,
}

impl Channel {
    /// Moves spilled messages into the ring, as far as they fit.
    fn drain_spill(&mut self) -> bool {
        while let Some(message) = self.spill.front() {
            if self.producer.try_push(message).is_err() {
                break;
            }
            self.spill.pop_front();
        }
        self.producer.publish();
        self.spill.is_empty()
    }
}

/// A command queue: commands are pushed, and the number of complete ones is read. Thread-safe.
///
/// Dropped, it is released: the executor still carries out its commands, and reads its ring until
/// it confirms the release.
pub struct Queue(Arc<OpenQueue>);

impl Deref for Queue {
    type Target = OpenQueue;

    fn deref(&self) -> &OpenQueue {
        &self.0
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.flush();
        let open = self.0.clone();
        // A lost session has released everything.
        let _ = self
            .shared
            .release(self.id, Some(Box::new(move || drop(open))));
    }
}

/// A command queue that the executor may still access.
pub struct OpenQueue {
    id: Id,
    shared: Arc<Shared>,
    channel: Mutex<Channel>,
    progress: Progress,
    /// The ring's memory.
    _ring: Block,
}

impl Queue {
    pub(super) fn open(
        shared: &Arc<Shared>,
        context: Id,
        device: Id,
        properties: u64,
    ) -> Result<Queue, Lost> {
        let ring = shared.allocate(baltra_ring::ring_bytes(RING_BYTES) as u64, 128)?;
        // Only the written part is mapped here, so that unused pages are not populated.
        let header = ring.range().slice(0, RING_HEADER_BYTES as u64);
        header.ok_or(Lost(OUT_OF_HOST_MEMORY))?.zero();
        let layout = |_| Lost(OUT_OF_HOST_MEMORY);
        let producer = Producer::new(ring.range().clone()).map_err(layout)?;
        let recent = shared.is_recent();
        if recent {
            // Its thread is started at the first command.
            producer.start_parked();
        }
        let progress = Progress::new(ring.range()).map_err(layout)?;
        let id = shared.new_ids(1);
        shared.control(&Control::Queue {
            id,
            context,
            device,
            properties,
            ring: ring.payload(),
        })?;
        shared.confirm(id)?;
        let open = Arc::new(OpenQueue {
            id,
            shared: shared.clone(),
            channel: Mutex::new(Channel {
                producer,
                message: Vec::new(),
                waits: Vec::new(),
                spill: VecDeque::new(),
                pushed: 0,
                reported_failure: 0,
            }),
            progress,
            _ring: ring,
        });
        let mut queues = shared.queues.locked();
        queues.retain(|q| q.strong_count() > 0);
        queues.push(Arc::downgrade(&open));
        Ok(Queue(open))
    }
}

impl OpenQueue {
    /// Its id.
    pub fn id(&self) -> Id {
        self.id
    }

    fn lock(&self) -> MutexGuard<'_, Channel> {
        self.channel.locked()
    }

    /// Appends a command, which waits for `waits` and completes `event` (0: none); returns its
    /// number in the queue, from 1. It is published by the next [`Queue::flush`] or earlier.
    pub fn push(
        &self,
        event: Event,
        waits: &[Event],
        operation: &Operation<'_>,
    ) -> Result<u64, Lost> {
        self.shared.check()?;
        let mut guard = self.lock();
        let channel = &mut *guard;
        channel.message.clear();
        channel.waits.clear();
        for wait in waits {
            channel.waits.extend_from_slice(&wait.to_le_bytes());
        }
        let command = CommandRef {
            event,
            after_control: self.shared.control_count(),
            waits: Waits(&channel.waits),
            operation,
        };
        encode(&command, &mut channel.message).map_err(|_| Lost(OUT_OF_HOST_MEMORY))?;
        let pushed = if channel.spill.is_empty() {
            channel.producer.try_push(&channel.message)
        } else {
            Err(Full)
        };
        if pushed.is_err() {
            if channel.message.len() > channel.producer.message_bytes_max()
                || channel.spill.len() >= self.shared.welcome.limits.queued_commands as usize
            {
                return Err(Lost(OUT_OF_HOST_MEMORY));
            }
            channel.producer.publish();
            channel.spill.push_back(channel.message.as_slice().into());
            if channel.spill.len() == 1 {
                // The thread also restarts a parked queue thread.
                self.shared.start_draining();
            }
        }
        channel.pushed += 1;
        let number = channel.pushed;
        if channel.producer.unpublished_bytes() >= PUBLISH_BYTES {
            let sleeps = channel.producer.publish();
            self.published(guard, sleeps);
        }
        Ok(number)
    }

    /// Notifies the executor of published commands, and makes it start the queue's thread if
    /// necessary.
    fn published(&self, channel: MutexGuard<'_, Channel>, sleeps: bool) {
        let parked = sleeps && channel.producer.take_parked();
        drop(channel);
        if parked {
            // A lost session runs no commands.
            let _ = self.shared.control(&Control::QueueRun(self.id));
        }
        self.shared.peer.kick(sleeps);
    }

    /// Publishes all commands to the executor.
    pub fn flush(&self) {
        let mut channel = self.lock();
        let sleeps = if channel.spill.is_empty() {
            channel.producer.publish()
        } else {
            channel.drain_spill();
            true
        };
        self.published(channel, sleeps);
    }

    pub(super) fn drain(&self) -> bool {
        let mut channel = self.lock();
        let drained = channel.drain_spill();
        self.published(channel, true);
        drained
    }

    /// Number of commands pushed since the queue was created.
    pub fn pushed(&self) -> u64 {
        self.lock().pushed
    }

    /// Number of complete commands: the first ones of the queue.
    pub fn completed(&self) -> u64 {
        self.progress.completed()
    }

    /// Whether no command is outstanding.
    pub fn is_idle(&self) -> bool {
        let pushed = self.pushed();
        self.progress.completed() >= pushed
    }

    /// Flushes and waits until the first `number` commands are complete. The error is that of a
    /// command without an event (each is reported once) or that of the lost session.
    pub fn wait(&self, number: u64) -> Result<(), i32> {
        self.flush();
        if !self.reached(number) {
            return Err(self.shared.lost_code());
        }
        self.shared.wait_for_prints();
        if let Some((command, code)) = self.progress.failure() {
            let mut channel = self.lock();
            if command <= number && command > channel.reported_failure {
                channel.reported_failure = command;
                return Err(code);
            }
        }
        Ok(())
    }

    /// The number and the error of the latest failed command; earlier failures are overwritten.
    /// Read it after [`Queue::completed`]: it then covers every command in that count.
    pub fn failure(&self) -> Option<(u64, i32)> {
        self.progress.failure()
    }

    /// Blocks until `number` commands are complete, pushed or not, or the session is lost
    /// (`false`). Does not flush, and leaves errors to [`Queue::failure`].
    pub fn observe(&self, number: u64) -> bool {
        let reached = self.reached(number);
        self.shared.wait_for_prints();
        reached
    }

    fn reached(&self, number: u64) -> bool {
        let shared = &self.shared;
        let waiting = shared.peer.waiting();
        self.progress
            .wait(number, shared.spin, &shared.stop, waiting)
    }

    /// Like [`Queue::observe`], but spins briefly instead of sleeping; returns whether the commands
    /// are complete. Spins without success become rare.
    pub fn observe_briefly(&self, number: u64) -> bool {
        let reached = self.progress.wait_briefly(number, self.shared.spin);
        if reached {
            self.shared.wait_for_prints();
        }
        reached
    }

    pub(super) fn wake(&self) {
        self.progress.wake();
    }
}

/// [`Command`] with a borrowed operation, encoded to the same bytes.
#[derive(serde::Serialize)]
struct CommandRef<'a> {
    event: Event,
    after_control: u64,
    waits: Waits<'a>,
    operation: &'a Operation<'a>,
}

// The two must have the same fields in the same order.
const _: fn(Command<'_>) = |c| {
    let Command {
        event: _,
        after_control: _,
        waits: _,
        operation: _,
    } = c;
};
