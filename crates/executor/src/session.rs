//! One client's session.
//!
//! | thread | task |
//! |---|---|
//! | control | carries out control messages when the client rings ([`control`]) |
//! | door | wakes the other threads for a client that cannot ([`door`]) |
//! | one per busy queue | takes commands off the queue's channel, drives the driver's queue ([`ordered`], [`unordered`]) |
//! | builder | requests for programs, which may take long ([`programs`]) |
//!
//! A queue thread that reads a command which depends on pending control messages drains the control
//! channel itself, under its lock, so that no command waits for another thread to be scheduled.

mod arena;
mod base;
pub mod board;
mod checks;
mod control;
mod deferred;
mod door;
mod freeze;
mod group;
mod headers;
mod inbox;
mod kernels;
mod launch;
mod ledger;
pub mod moving;
mod names;
mod notices;
mod objects;
mod ordered;
pub mod pinning;
mod pipes;
mod pixels;
mod position;
mod programs;
mod queue;
pub mod residence;
pub mod slices;
mod submit;
mod svm;
mod table;
mod tracker;
mod unordered;

pub use door::SessionMemory;
pub use notices::Notices;

use crate::account::Account;
use crate::driver::Code;
use crate::Shared;
use arena::Arena;
use baltra_opencl::*;
use baltra_ring::{Consumer, EventWriter, Locked, Range, Segment, Unpoisoned, Waker};
use baltra_wire::executor::SessionStart;
use baltra_wire::facts::FactsRead;
use baltra_wire::{Id, Notice, Payload};
use board::Board;
use control::ControlState;
use deferred::Deferred;
use door::Door;
use freeze::Freeze;
use inbox::Inbox;
use ledger::Ledger;
use pinning::PinnedMemory;
use programs::Builder;
use queue::QueueHandle;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};
use svm::Svm;
use table::Objects;
use tracker::Tracker;

/// Commands of a session that was aborted for its deadline end within this, or its executor does.
const ABORT_MAX: Duration = Duration::from_millis(100);
/// Maximum characters kept of a client's reason for an abort.
const REASON_CHARS_MAX: usize = 300;

/// The client broke the protocol: its session ends.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Violation {
    /// The OpenCL error that its calls return.
    pub code: Code,
    /// Description of the violation.
    pub text: String,
}

impl Violation {
    fn new(text: impl Into<String>) -> Violation {
        Violation {
            code: CL_INVALID_VALUE,
            text: text.into(),
        }
    }
}

impl From<table::NameTaken> for Violation {
    fn from(_: table::NameTaken) -> Violation {
        Violation::new("an object's id is null, already in use, or over the limit of objects")
    }
}

/// A session being served.
pub struct Session {
    /// As the manager announced it.
    pub start: SessionStart,
    shared: Arc<Shared>,
    account: Arc<Account>,
    objects: Objects,
    board: Board,
    notices: Arc<Notices>,
    arenas: RwLock<HashMap<u32, Arc<Arena>>>,
    arena_bytes: AtomicU64,
    control: Mutex<ControlState>,
    control_done: AtomicU64,
    control_changed: Condvar,
    control_waker: Waker,
    deferred: Deferred,
    queues: Mutex<Vec<Arc<QueueHandle>>>,
    /// A queue may be without a thread that it needs.
    starved: AtomicBool,
    builder: Builder,
    svm: Mutex<Svm>,
    /// Counts released kernels, so that queues check their own when it changes.
    kernels_released: AtomicU64,
    inbox: Inbox,
    /// Memory that the client brought.
    door: Option<Door>,
    closed: AtomicBool,
    closed_at: OnceLock<Instant>,
    /// Stops the session.
    freeze: Freeze,
    /// It is being moved.
    is_moving: AtomicBool,
    /// It continues in another executor.
    is_gone: AtomicBool,
    ledger: Ledger,
    tracker: Tracker,
    segment: Segment,
    /// The segment's file; `None`: the client brought its memory.
    memory: Option<OwnedFd>,
    /// Whether the client may have buffers in its own memory, by its first device's description.
    host_buffers: AtomicBool,
    /// The facts that the program has read.
    pub facts_read: FactsRead,
    /// The clock of the client's event times, as nanoseconds to add to `CLOCK_MONOTONIC`: 0, unless
    /// the session comes from another node.
    clock_offset_ns: AtomicI64,
    /// The queue whose thread is being joined: no longer in `queues`.
    joining: Mutex<Option<Arc<QueueHandle>>>,
    /// Its work is past a deadline.
    aborted: AtomicBool,
    /// A queue may wait past a time limit ([`baltra_wire::Control::Late`]).
    may_be_late: AtomicBool,
    reason: Mutex<Option<String>>,
}

impl Session {
    /// Starts to serve; `ended` is called with the reason once all resources are freed.
    pub fn open(
        shared: Arc<Shared>,
        account: Arc<Account>,
        start: SessionStart,
        socket: OwnedFd,
        memory: SessionMemory,
        ended: impl FnOnce(String) + Send + 'static,
    ) -> io::Result<Arc<Session>> {
        let session = Session::make(shared, account, start, socket, memory, false)?;
        if let Some(door) = &session.door {
            door.listen(&session)?;
        }
        session.serve(ended)?;
        Ok(session)
    }

    /// Without threads.
    fn make(
        shared: Arc<Shared>,
        account: Arc<Account>,
        start: SessionStart,
        socket: OwnedFd,
        memory: SessionMemory,
        is_frozen: bool,
    ) -> io::Result<Arc<Session>> {
        let opened = memory.open()?;
        let segment = opened.segment;
        let notices = Notices::new(segment.notices())?;
        if is_frozen {
            notices.stop();
        }
        let consumer = Consumer::new(segment.control())?;
        Ok(Arc::new(Session {
            objects: Objects::new(start.limits.objects),
            board: Board::new(
                EventWriter::new(&segment),
                notices.clone(),
                start.flags.mirror,
            ),
            notices,
            arenas: RwLock::default(),
            arena_bytes: 0.into(),
            control_waker: consumer.waker(),
            control: Mutex::new(ControlState::new(consumer)),
            control_done: 0.into(),
            control_changed: Condvar::new(),
            deferred: Deferred::default(),
            queues: Mutex::default(),
            starved: false.into(),
            builder: Builder::default(),
            svm: Mutex::default(),
            kernels_released: 0.into(),
            inbox: Inbox::new(socket),
            door: opened.door,
            memory: opened.memory,
            segment,
            host_buffers: shared.description.host_memory.into(),
            closed: false.into(),
            closed_at: OnceLock::new(),
            freeze: Freeze::new(is_frozen),
            is_moving: false.into(),
            is_gone: false.into(),
            ledger: Ledger::default(),
            tracker: Tracker::default(),
            facts_read: FactsRead::default(),
            clock_offset_ns: 0.into(),
            joining: Mutex::default(),
            aborted: false.into(),
            may_be_late: false.into(),
            reason: Mutex::default(),
            start,
            shared,
            account,
        }))
    }

    /// Starts the control thread.
    fn serve(self: &Arc<Session>, ended: impl FnOnce(String) + Send + 'static) -> io::Result<()> {
        let own = self.clone();
        std::thread::Builder::new()
            .name(format!("control {}", self.start.session))
            .spawn(move || {
                own.serve_control();
                ended(own.tear_down());
            })?;
        Ok(())
    }

    /// Whether the session stops or is stopped, to be continued.
    pub fn is_frozen(&self) -> bool {
        self.freeze.is_frozen()
    }

    /// Whether waits end: the session is closed, or stops.
    fn is_stopping(&self) -> bool {
        self.is_closed() || self.is_frozen()
    }

    /// Whether data on the client's socket is to be received.
    pub fn listens(&self) -> bool {
        !self.is_closed() && !self.is_frozen()
    }

    /// Ends a stopped session that continues in another executor, without a notice to the client.
    fn forget(&self) {
        self.reason
            .locked()
            .get_or_insert_with(|| "moved".to_owned());
        self.is_gone.store(true, Ordering::Release);
        self.notices.close();
        self.board.close();
        self.closed.store(true, Ordering::Release);
        self.closed_at.get_or_init(Instant::now);
        self.freeze.stir();
    }

    /// Frees a session that has never started.
    fn drop_unstarted(&self) {
        self.forget();
        self.tear_down();
    }

    /// Whether the session is ending.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// On the calling thread, work of a device of the executor's own ends with this session, whose
    /// client receives what kernels print.
    pub fn owns_thread(self: &Arc<Session>) {
        let session = Arc::downgrade(self);
        let is_closed = move || session.upgrade().is_none_or(|session| session.is_closed());
        crate::driver::cancel::set(Arc::new(is_closed));
        let notices = self.notices.clone();
        crate::driver::output::set(Arc::new(move |text: &[u8]| notices.print(text)));
    }

    /// Time for which the session has been ending: it waits for its commands, and a kernel that
    /// does not end by itself cannot be ended.
    pub fn ending_for(&self) -> Option<Duration> {
        self.closed_at.get().map(Instant::elapsed)
    }

    /// Whether the session is ending and its commands run past their grace period: `orphan_max`, or
    /// almost none if its work was past a deadline.
    pub fn overdue(&self, orphan_max: Duration) -> bool {
        let max = if self.aborted.load(Ordering::Acquire) {
            ABORT_MAX.min(orphan_max)
        } else {
            orphan_max
        };
        self.ending_for().is_some_and(|time| time >= max) && self.running_since_ns().is_some()
    }

    /// Start of its longest-running command (`CLOCK_MONOTONIC`), or of its wait in the driver;
    /// `None`: the driver has none of its commands.
    pub fn running_since_ns(&self) -> Option<u64> {
        self.running()
            .into_iter()
            .map(|(since_ns, _)| since_ns)
            .min()
    }

    /// Each queue whose commands the driver has: the start as in [`Session::running_since_ns`], and
    /// the time limit of a command that waits past it ([`base::QueueState::late_allowed_ns`]).
    pub fn running(&self) -> Vec<(u64, Option<u64>)> {
        let each = |q: &Arc<QueueHandle>| Some((q.running_since_ns()?, q.late_allowed_ns()));
        let mut running: Vec<_> = self.queues.locked().iter().filter_map(each).collect();
        running.extend(self.joining.locked().as_ref().and_then(each));
        running
    }

    /// A queue's command is past its time limit: the process examines which command blocks it.
    fn report_late(&self, queue: Id, allowed: Duration) {
        // A queue that no longer exists waits for nothing.
        let Ok(queue) = self.objects.queue(queue) else {
            return;
        };
        queue.report_late(allowed);
        if !self.may_be_late.swap(true, Ordering::AcqRel) {
            // It can only be full, and then it is readable anyway.
            let _ = rustix::io::write(&*self.shared.images.wake(), &1u64.to_ne_bytes());
        }
    }

    /// Whether a queue waits past a time limit.
    pub fn is_late(&self) -> bool {
        // Cleared before the queues are read, so that a report during that is not lost.
        if !self.may_be_late.swap(false, Ordering::AcqRel) {
            return false;
        }
        let is_late = self.running().iter().any(|(_, late)| late.is_some());
        if is_late {
            self.may_be_late.store(true, Ordering::Release);
        }
        is_late
    }

    /// The reason for the session's end; empty: it is open.
    pub fn reason(&self) -> String {
        let reason = self.reason.locked();
        reason.clone().unwrap_or_default()
    }

    /// Ends the session because its work is past its deadline, and notifies the client.
    fn abort(&self, reason: &str) {
        self.aborted.store(true, Ordering::Release);
        let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
        self.dismiss(&reason);
    }

    /// Ends the session; returns immediately. The first reason is kept.
    pub fn close(&self, reason: &str) {
        if self.is_gone.load(Ordering::Acquire) {
            return;
        }
        self.reason
            .locked()
            .get_or_insert_with(|| reason.to_owned());
        self.closed.store(true, Ordering::Release);
        self.closed_at.get_or_init(Instant::now);
        self.notices.close();
        self.inbox.shut_down();
        self.board.close();
        self.control_waker.wake();
        self.control_changed.notify_all();
        self.freeze.stir();
        for queue in &*self.queues.locked() {
            queue.wake();
        }
    }

    /// Ends the session because of a violation, and notifies the client.
    fn fatal(&self, violation: &Violation) {
        if self.is_closed() {
            return;
        }
        tracing::warn!(
            session = self.start.session,
            tenant = self.start.tenant,
            reason = violation.text,
            "session ended: the client broke the protocol"
        );
        self.notices.send(&Notice::Fatal {
            code: violation.code,
            text: &violation.text,
        });
        self.close(&format!("protocol violation: {}", violation.text));
    }

    /// Ends the session on the manager's order, and notifies the client.
    pub fn dismiss(&self, reason: &str) {
        if self.is_closed() {
            return;
        }
        self.notices.send(&Notice::Fatal {
            code: CL_DEVICE_NOT_AVAILABLE,
            text: reason,
        });
        self.close(reason);
    }

    /// The error reported to the client in place of the driver's.
    fn verdict(&self, code: Code) -> Code {
        self.shared.health.verdict(self.start.session, code)
    }

    /// The client's socket, to poll.
    pub fn socket(&self) -> std::os::fd::BorrowedFd<'_> {
        self.inbox.as_fd()
    }

    /// Receives data on the client's socket; its end ends the session.
    pub fn receive(&self) {
        match self.inbox.receive() {
            Ok(true) => {}
            Ok(false) => self.close("the client disconnected"),
            Err(e) => self.close(&format!("the client's socket failed: {e}")),
        }
    }

    /// Waits for the threads, then frees everything. Runs on the control thread.
    fn tear_down(&self) -> String {
        self.close("the session ended");
        loop {
            let mut queues = self.queues.locked();
            let Some(queue) = queues.pop() else {
                break;
            };
            *self.joining.locked() = Some(queue.clone());
            drop(queues);
            queue.join();
        }
        self.builder.join();
        self.board.clear();
        drop(self.objects.take_all());
        self.svm.locked().clear();
        self.arenas.write().unpoisoned().clear();
        self.reason()
    }

    /// The bytes that a payload names.
    fn payload(&self, payload: Payload) -> Result<Range, Code> {
        self.arena(payload.arena)?.slice(payload)
    }

    fn arena(&self, arena: u32) -> Result<Arc<Arena>, Code> {
        let arenas = self.arenas.read().unpoisoned();
        arenas.get(&arena).cloned().ok_or(CL_OUT_OF_RESOURCES)
    }

    /// As [`Session::payload`], for a transfer; also returns the arena's pin, to be held until the
    /// transfer is complete, if the device accesses the bytes directly.
    fn pinned_payload(&self, payload: Payload) -> Result<(Range, Option<Arc<PinnedMemory>>), Code> {
        let arena = self.arena(payload.arena)?;
        let range = arena.slice(payload)?;
        let pinning = self.shared.pinning.as_ref();
        let pinned = pinning.and_then(|pinning| arena.pinned(pinning, payload.len));
        Ok((range, pinned))
    }

    /// Allocates memory of the device; once more without pinned arenas if the driver refuses.
    fn allocate<T>(&self, make: impl Fn() -> Result<T, Code>) -> Result<T, Code> {
        let made = make();
        let tenant = &self.start.tenant;
        let pinning = self.shared.pinning.as_ref();
        match (&made, pinning.filter(|pinning| pinning.may_unpin(tenant))) {
            (Err(CL_MEM_OBJECT_ALLOCATION_FAILURE), Some(pinning)) => {
                pinning.unpin_all();
                let made = make();
                let is_refused = matches!(made, Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
                pinning.report(tenant, !is_refused);
                made
            }
            _ => made,
        }
    }

    fn has_reached(&self, count: u64) -> bool {
        // SYNC POINT: control done (pairs with `drain_control`)
        self.control_done.load(Ordering::Acquire) >= count
    }

    /// Drains the control channel until `count` messages are carried out; false if the session ends
    /// first.
    fn control_reached(self: &Arc<Session>, count: u64) -> bool {
        if self.has_reached(count) {
            return true;
        }
        let mut state = self.control.locked();
        loop {
            self.drain_control(&mut state);
            if self.has_reached(count) {
                return true;
            }
            if self.is_stopping() {
                return false;
            }
            let wait = Duration::from_millis(10);
            let waited = self.control_changed.wait_timeout(state, wait);
            state = waited.unpoisoned().0;
        }
    }

    /// A time of `CLOCK_MONOTONIC` by the clock of the client's event times.
    fn event_ns(&self, ns: u64) -> u64 {
        ns.wrapping_add_signed(self.clock_offset_ns.load(Ordering::Relaxed))
    }

    /// Nanoseconds to add to times of the driver for the client's event times.
    fn clock_shift_ns(&self) -> i64 {
        let offset = self.clock_offset_ns.load(Ordering::Relaxed);
        offset.wrapping_sub(self.shared.clock.offset_ns())
    }
}
