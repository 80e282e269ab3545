//! The state of a session that its threads and its handles share.

use super::printing::Printing;
use super::queue::OpenQueue;
use super::{arena, Block, Handler, Lost, Peer, RECENT};
use baltra_ring::{EventTable, Locked, Memory, Producer, Waker};
use baltra_wire::opencl::{DEVICE_NOT_AVAILABLE, OUT_OF_HOST_MEMORY, OUT_OF_RESOURCES};
use baltra_wire::{encode, Call, Completion, Control, Event, Id, Reply, Request, Welcome};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
use std::sync::{mpsc, Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// Called once an object's memory may be used again.
pub(super) type Freed = Box<dyn FnOnce() + Send>;
/// Called with an event's completion.
pub(super) type Watcher = Box<dyn FnOnce(Completion) + Send>;
/// Called with the reply to a request.
pub(super) type Replied = Box<dyn FnOnce(Reply) + Send>;

/// The sending end of the control channel.
pub(super) struct ControlChannel {
    pub(super) producer: Producer,
    pub(super) message: Vec<u8>,
}

/// The state that the session's threads and its handles share.
pub(crate) struct Shared {
    pub(super) welcome: Welcome,
    pub(super) control: Mutex<ControlChannel>,
    pub(super) control_count: AtomicU64,
    pub(super) events: EventTable,
    pub(super) arenas: Mutex<arena::Arenas>,
    pub(super) calls: Mutex<HashMap<Call, Replied>>,
    pub(super) watches: Mutex<HashMap<Event, Vec<Watcher>>>,
    pub(super) freed: Mutex<HashMap<Id, Freed>>,
    pub(super) queues: Mutex<Vec<Weak<OpenQueue>>>,
    pub(super) draining: AtomicBool,
    /// Held while the table of events grows.
    pub(super) growing: Mutex<()>,
    /// Number of objects created and not released.
    pub(super) objects: AtomicU32,
    pub(super) next_id: AtomicU32,
    pub(super) next_call: AtomicU32,
    pub(super) lost: AtomicI32,
    /// The reason of the loss.
    pub(super) why: OnceLock<String>,
    pub(super) stop: AtomicBool,
    pub(super) spin: Duration,
    pub(super) waker: Waker,
    pub(super) printing: Printing,
    /// Bytes of the notice ring that have been handled.
    pub(super) noticed: AtomicU64,
    pub(super) peer: Box<dyn Peer>,
    pub(super) handler: Arc<dyn Handler>,
    /// Whether the session's own threads deliver replies.
    pub(super) receives_notices: bool,
}

impl Shared {
    pub(crate) fn events(&self) -> &EventTable {
        &self.events
    }

    pub(super) fn check(&self) -> Result<(), Lost> {
        match self.lost.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(Lost(code)),
        }
    }

    pub(super) fn lost_code(&self) -> i32 {
        match self.lost.load(Ordering::Acquire) {
            0 => DEVICE_NOT_AVAILABLE,
            code => code,
        }
    }

    pub(super) fn control_count(&self) -> u64 {
        self.control_count.load(Ordering::Acquire)
    }

    pub(super) fn new_ids(&self, count: u32) -> Id {
        self.next_id.fetch_add(count, Ordering::Relaxed)
    }

    pub(super) fn control(&self, message: &Control<'_>) -> Result<(), Lost> {
        self.check()?;
        self.count_object(message)?;
        let mut channel = self.control.locked();
        let ControlChannel {
            producer,
            message: bytes,
        } = &mut *channel;
        bytes.clear();
        encode(message, bytes).map_err(|_| Lost(OUT_OF_HOST_MEMORY))?;
        if producer.try_push(bytes).is_err() {
            // The executor continues to read, and waits for nothing but the driver.
            let pause = || {
                self.peer.kick_later();
                std::thread::sleep(Duration::from_micros(50));
                !self.stop.load(Ordering::Acquire)
            };
            let pushed = producer.push_large(bytes, pause);
            pushed.map_err(|_| Lost(self.lost_code()))?;
        }
        self.control_count.fetch_add(1, Ordering::Release);
        let sleeps = producer.publish();
        drop(channel);
        self.peer.kick(sleeps);
        Ok(())
    }

    /// Sends a control message if that does not block; returns whether it was sent.
    pub(super) fn try_control(&self, message: &Control<'_>) -> bool {
        let mut bytes = Vec::new();
        let Ok(mut channel) = self.control.try_lock() else {
            return false;
        };
        if self.check().is_err()
            || encode(message, &mut bytes).is_err()
            || channel.producer.try_push(&bytes).is_err()
        {
            return false;
        }
        self.control_count.fetch_add(1, Ordering::Release);
        let sleeps = channel.producer.publish();
        drop(channel);
        self.peer.kick(sleeps);
        true
    }

    pub(super) fn call(&self, request: Request<'_>) -> Result<Reply, Lost> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let deliver = move |reply| {
            // The receiver waits below.
            let _ = sender.send(reply);
        };
        self.call_then(request, Box::new(deliver))?;
        receiver.recv().map_err(|_| Lost(self.lost_code()))
    }

    pub(super) fn call_then(&self, request: Request<'_>, then: Replied) -> Result<(), Lost> {
        let call = self.next_call.fetch_add(1, Ordering::Relaxed);
        self.calls.locked().insert(call, then);
        let sent = self.control(&Control::Call { call, request });
        // If the session was lost meanwhile, its loss has answered the call.
        if sent.is_err() && self.calls.locked().remove(&call).is_none() {
            return Ok(());
        }
        sent
    }

    pub(super) fn confirm(&self, id: Id) -> Result<(), Lost> {
        if !self.is_recent() {
            // Commands return the error.
            return Ok(());
        }
        let Reply::Error(code) = self.call(Request::Creation(id))? else {
            return Ok(());
        };
        self.control(&Control::Release {
            id,
            after: &[],
            notify: false,
        })?;
        Err(Lost(code))
    }

    /// As [`super::Client::release`].
    pub(super) fn release(&self, id: Id, freed: Option<Freed>) -> Result<(), Lost> {
        let notify = freed.is_some();
        let after = self.pending();
        if let Some(freed) = freed {
            if let Err(lost) = self.check() {
                freed();
                return Err(lost);
            }
            self.freed.locked().insert(id, freed);
        }
        let sent = self.control(&Control::Release {
            id,
            after: &after,
            notify,
        });
        if sent.is_err() {
            let freed = self.freed.locked().remove(&id);
            if let Some(freed) = freed {
                freed();
            }
        }
        sent
    }

    /// As [`super::Client::pending`].
    pub(super) fn pending(&self) -> Vec<u8> {
        let mut after = Vec::new();
        for queue in self.open_queues() {
            let pushed = queue.pushed();
            if queue.completed() < pushed {
                after.extend_from_slice(&queue.id().to_le_bytes());
                after.extend_from_slice(&pushed.to_le_bytes());
            }
        }
        after
    }

    fn open_queues(&self) -> Vec<Arc<OpenQueue>> {
        let queues = self.queues.locked();
        queues.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether the peer supports this release's messages.
    pub(super) fn is_recent(&self) -> bool {
        self.welcome.version >= RECENT
    }

    /// Counts a created or released object; an error if it exceeds the session's limit.
    pub(super) fn count_object(&self, message: &Control<'_>) -> Result<(), Lost> {
        match message {
            Control::Release { .. } => {
                self.uncount_object();
                Ok(())
            }
            Control::Context { .. }
            | Control::Queue { .. }
            | Control::Buffer { .. }
            | Control::SubBuffer { .. }
            | Control::Image { .. }
            | Control::Pipe { .. }
            | Control::Sampler { .. }
            | Control::ProgramSource { .. }
            | Control::Kernel { .. }
            | Control::Call {
                request:
                    Request::ProgramBinary { .. }
                    | Request::ProgramDigest { .. }
                    | Request::ProgramStored { .. }
                    | Request::ProgramIl { .. }
                    | Request::ProgramBuiltIn { .. }
                    | Request::Link { .. },
                ..
            } => {
                let max = self.welcome.limits.objects;
                let more = |n: u32| (n < max).then_some(n + 1);
                let counted = self.objects.fetch_update(Relaxed, Relaxed, more);
                counted.map(drop).map_err(|_| Lost(OUT_OF_RESOURCES))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn uncount_object(&self) {
        let less = |n: u32| n.checked_sub(1);
        // Ids of sub-devices were not counted.
        let _ = self.objects.fetch_update(Relaxed, Relaxed, less);
    }

    pub(super) fn allocate(self: &Arc<Self>, len: u64, align: u64) -> Result<Block, Lost> {
        self.check()?;
        self.arenas.locked().allocate(self, len, align)
    }

    pub(super) fn add_arena(
        &self,
        arena: u32,
        len: u64,
        memory: &Memory,
        fd: &OwnedFd,
    ) -> Result<(), Lost> {
        self.peer
            .send_arena(arena, memory, fd)
            .map_err(|_| Lost(DEVICE_NOT_AVAILABLE))?;
        self.control(&Control::ArenaAdd { arena, len })
    }

    /// Adds the next segment of event slots, unless one is free.
    pub(super) fn free_events(self: &Arc<Self>) -> Result<(), Lost> {
        let _one_at_a_time = self.growing.locked();
        if self.events.has_free() {
            // Another thread has added it meanwhile.
            return Ok(());
        }
        self.grow_events()
    }

    /// Adds the next segment of event slots; not by several threads at once.
    pub(super) fn grow_events(self: &Arc<Self>) -> Result<(), Lost> {
        let none = Lost(OUT_OF_HOST_MEMORY);
        let (bytes, first) = self.events.next_segment().ok_or(none)?;
        let block = self.allocate(bytes, 128)?;
        block.range().zero();
        if self.receives_notices && self.is_recent() && self.peer.shares_arenas() {
            // The tenant may have reached its memory limit, which only the executor can check.
            if let Reply::Error(code) = self.call(Request::Memory(block.payload()))? {
                return Err(Lost(code));
            }
        }
        // Announced before a command can have one of them.
        self.control(&Control::EventsAdd {
            first,
            payload: block.payload(),
        })?;
        let added = self.events.add(block.range().clone());
        // Both ends use the mapping for the lifetime of the session.
        std::mem::forget(block);
        added.map(drop).ok_or(none)
    }

    /// Starts the thread that moves spilled commands into their rings, if it is not running.
    pub(super) fn start_draining(self: &Arc<Self>) {
        if self.draining.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = self.clone();
        let drain = move || loop {
            std::thread::sleep(Duration::from_micros(200));
            shared.draining.store(false, Ordering::Release);
            let done = shared.open_queues().iter().filter(|q| !q.drain()).count() == 0;
            shared.peer.kick(true);
            let stop = shared.stop.load(Ordering::Acquire);
            if done || stop || shared.draining.swap(true, Ordering::AcqRel) {
                return;
            }
        };
        let name = std::thread::Builder::new().name("baltra-spill".into());
        // Without the thread, the next flush moves them.
        let _ = name.spawn(drain);
    }

    /// Ends the session: everything incomplete fails with `code`. `text`: the reason, unless this
    /// side ended the session.
    pub(super) fn lose(&self, code: i32, text: Option<&str>) {
        // Before any failure is reported, because lent memory is free from then on.
        self.peer.close();
        if self
            .lost
            .compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            return;
        }
        if let Some(text) = text {
            let _ = self.why.set(text.to_owned());
        }
        self.stop.store(true, Ordering::Release);
        self.events.fail_all(code);
        for queue in self.open_queues() {
            queue.wake();
        }
        for (_, then) in std::mem::take(&mut *self.calls.locked()) {
            then(Reply::Error(code));
        }
        for (event, watchers) in std::mem::take(&mut *self.watches.locked()) {
            for then in watchers {
                then(failed(event, code));
            }
        }
        for (_, freed) in std::mem::take(&mut *self.freed.locked()) {
            freed();
        }
        if let Some(text) = text {
            self.handler.lost(code, text);
        }
        self.waker.wake();
    }
}

pub(super) fn failed(event: Event, status: i32) -> Completion {
    Completion {
        event,
        status,
        times_ns: [0; 4],
    }
}
