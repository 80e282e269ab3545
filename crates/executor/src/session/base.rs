//! The common parts of both kinds of queue: the channel, the task that holds the device, progress.

use super::position::ring_position;
use super::Session;
use crate::driver::emulate::kernels_wait;
use crate::driver::{Code, Event as DriverEvent};
use baltra_opencl::*;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::{Consumer, Locked, Progress, Range, RingError, Waker};
use baltra_wire::executor::TracedTask;
use baltra_wire::moves::{self as wire, OpenCommand};
use baltra_wire::{Event, Id, Notice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A thread that has had nothing to do for so long ends.
const PARK_AFTER: Duration = Duration::from_secs(2);

/// Maximum number of a queue's outstanding calls that belong to traces; further ones are not
/// reported.
const TRACED_MAX: usize = 64;

/// Why a queue's thread has stopped to work.
pub enum Served {
    /// The queue has ended.
    Ended,
    /// It has had nothing to do for long.
    Idle,
    /// The session stops.
    Frozen,
}

/// Commands that belong to a trace.
struct Traced {
    trace: [u8; 16],
    parent: [u8; 8],
    /// The last one's number.
    last: u64,
    came_ns: u64,
    /// `None`: the device is waited for.
    granted_ns: Option<u64>,
}

/// A client's report that a queue's command waits past its time limit.
#[derive(Clone, Copy)]
struct Late {
    at_ns: u64,
    allowed_ns: u64,
}

/// A queue's state that other threads can access.
pub struct QueueState {
    /// Its name.
    pub id: Id,
    taken: AtomicU64,
    submitted: AtomicU64,
    completed: AtomicU64,
    /// Time of the last completion while the driver has commands of the queue; 0: it has none.
    running_ns: AtomicU64,
    /// Time of the client's last report that the running command is past its limit, and that limit.
    late: Mutex<Option<Late>>,
    released: AtomicBool,
    closed: AtomicBool,
    /// Locked for any access to the ring from outside the queue's thread, because the ring may be
    /// returned to the client once the thread has ended. The value: the client requests a notice.
    notify: Mutex<bool>,
    waker: Waker,
    /// The client runs a queue that is parked.
    parks: bool,
}

impl QueueState {
    /// Of a queue that has taken nothing yet.
    pub fn new(id: Id, consumer: &Consumer, parks: bool) -> QueueState {
        QueueState {
            id,
            taken: 0.into(),
            submitted: 0.into(),
            completed: 0.into(),
            running_ns: 0.into(),
            late: Mutex::default(),
            released: false.into(),
            closed: false.into(),
            notify: Mutex::new(false),
            waker: consumer.waker(),
            parks,
        }
    }

    /// Commands taken off the channel.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::SeqCst)
    }

    /// Number of commands that are submitted to the driver or complete.
    pub fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::SeqCst)
    }

    /// Number of complete commands.
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::SeqCst)
    }

    /// Start of the driver's oldest command of this queue, or of its wait behind others
    /// (`CLOCK_MONOTONIC`); `None`: it has none.
    pub fn running_since_ns(&self) -> Option<u64> {
        let since = self.running_ns.load(Ordering::Relaxed);
        (since > 0).then_some(since)
    }

    /// The client reports that the running command is past its time limit, because another
    /// queue's command blocks it.
    pub fn report_late(&self, allowed: Duration) {
        *self.late.locked() = Some(Late {
            at_ns: monotonic_ns(),
            allowed_ns: allowed.as_nanos().try_into().unwrap_or(u64::MAX),
        });
    }

    /// The time limit of the running command, nanoseconds, if the client has reported it to be past
    /// that. A report is void once the queue has made progress.
    pub fn late_allowed_ns(&self) -> Option<u64> {
        let since_ns = self.running_since_ns()?;
        let late = (*self.late.locked())?;
        (since_ns < late.at_ns).then_some(late.allowed_ns)
    }

    /// The client has released the queue: its thread ends once the queue is empty. With `notify`,
    /// [`Notice::Freed`] then reports that the client may reuse the ring's memory.
    pub fn release(&self, notify: bool) {
        let mut wanted = self.notify.locked();
        *wanted = notify;
        self.released.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Wakes the thread if it sleeps although commands are available.
    pub fn wake_behind(&self) {
        self.waker.wake_behind();
    }

    /// The session ends: so does the thread.
    pub fn wake(&self) {
        let _held = self.notify.locked();
        if !self.closed.load(Ordering::Acquire) {
            self.waker.wake();
        }
    }

    /// Whether the client has released it.
    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// Whether the client runs a queue that is parked.
    pub fn parks(&self) -> bool {
        self.parks
    }

    /// Whether the queue has ended.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends the queue: waiters are released, and its ring is no longer accessed; returns whether
    /// the client requests a notice.
    pub fn end(&self) -> bool {
        let notify = self.notify.locked();
        self.closed.store(true, Ordering::Release);
        for count in [&self.taken, &self.submitted, &self.completed] {
            count.store(u64::MAX, Ordering::SeqCst);
        }
        *notify
    }
}

/// The common part of both kinds of queue.
pub struct Base {
    /// The session.
    pub session: Arc<Session>,
    /// The part that other threads can access.
    pub state: Arc<QueueState>,
    /// The channel.
    pub consumer: Consumer,
    /// Whether events need times.
    pub profiling: bool,
    progress: Progress,
    /// Start of the running task; `None`: no task, no lease.
    task: Option<Instant>,
    traced: Vec<Traced>,
    calls: u64,
    published: u64,
    shown: u64,
    /// A command that was taken and not begun, because the session stopped.
    held: Option<Vec<u8>>,
}

impl Base {
    /// Of a queue with these `CL_QUEUE_PROPERTIES`, which has begun no task.
    pub fn new(
        session: &Arc<Session>,
        state: &Arc<QueueState>,
        properties: u64,
        consumer: Consumer,
        ring: &Range,
    ) -> Result<Base, RingError> {
        Ok(Base {
            session: session.clone(),
            state: state.clone(),
            consumer,
            profiling: properties & CL_QUEUE_PROFILING_ENABLE as u64 != 0,
            progress: Progress::new(ring)?,
            task: None,
            traced: Vec::new(),
            calls: 0,
            published: 0,
            shown: 0,
            held: None,
        })
    }

    /// Whether the thread is to end: the session is closed, or the queue is released and empty.
    pub fn is_over(&self) -> bool {
        self.session.is_closed() || (self.state.is_released() && !self.has_commands())
    }

    /// Whether a command can be taken.
    pub fn has_commands(&self) -> bool {
        self.held.is_some() || !self.consumer.is_empty()
    }

    /// Puts a command back, because the session stops: `taken` are left.
    pub fn hold(&mut self, taken: u64, record: Vec<u8>) {
        self.calls = self.calls.saturating_sub(1);
        self.state.taken.store(taken, Ordering::SeqCst);
        self.held = Some(record);
    }

    /// The next command's record, if one is available.
    pub fn take(&mut self, record: &mut Vec<u8>) -> Result<bool, RingError> {
        if let Some(held) = self.held.take() {
            *record = held;
            return Ok(true);
        }
        let session = &self.session;
        self.consumer.pop_unless(record, || session.is_closed())
    }

    /// The state that another executor needs to continue a stopped queue: the first `completed`
    /// commands are complete.
    pub fn state(&self, completed: u64, open: Vec<OpenCommand>) -> wire::QueueState {
        wire::QueueState {
            id: self.state.id,
            position: ring_position(self.consumer.position()),
            completed,
            parks: self.state.parks,
            released: self
                .state
                .is_released()
                .then(|| *self.state.notify.locked()),
            held: self.held.clone(),
            open,
        }
    }

    /// Continues a queue of another executor.
    pub fn restore(&mut self, state: &mut wire::QueueState) {
        self.published = state.completed;
        self.held = state.held.take();
        let own = &self.state;
        for count in [&own.taken, &own.submitted, &own.completed] {
            count.store(state.completed, Ordering::SeqCst);
        }
    }

    /// Time for which the thread sleeps for the next command before it ends.
    pub fn idle_max(&self) -> Option<Duration> {
        self.state.parks.then_some(PARK_AFTER)
    }

    /// Whether the thread has slept for all of [`Base::idle_max`].
    pub fn is_idle(&self, since: Instant) -> bool {
        self.idle_max().is_some_and(|max| since.elapsed() >= max) && self.consumer.is_empty()
    }

    /// Whether the thread has to stay awake for something other than a command.
    pub fn is_called(&self) -> bool {
        self.session.is_closed() || self.session.is_frozen() || self.state.is_released()
    }

    /// Holds the device; false when the session ends or stops first.
    pub fn begin_task(&mut self) -> bool {
        self.hold_device(Session::is_stopping)
    }

    /// Holds the device again for a command that has begun; false when the session ends first.
    pub fn resume_task(&mut self) -> bool {
        self.hold_device(Session::is_closed)
    }

    fn hold_device(&mut self, ends: impl Fn(&Session) -> bool) -> bool {
        if self.task.is_some() {
            return true;
        }
        let started = Instant::now();
        let session = &self.session;
        if !session
            .account
            .lease
            .acquire_joining(|| ends(session), kernels_wait)
        {
            return false;
        }
        self.task = Some(started);
        self.runs_since(monotonic_ns());
        if !self.traced.is_empty() {
            let now = monotonic_ns();
            for traced in &mut self.traced {
                traced.granted_ns.get_or_insert(now);
            }
        }
        true
    }

    /// Assigns the `commands` after the command `number` to a trace.
    pub fn trace(&mut self, number: u64, trace: [u8; 16], parent: [u8; 8], commands: u32) {
        if !self.session.shared.traces.is_on() || self.traced.len() >= TRACED_MAX {
            return;
        }
        let came_ns = monotonic_ns();
        self.traced.push(Traced {
            trace,
            parent,
            last: number.saturating_add(commands.into()),
            came_ns,
            granted_ns: self.holds_device().then_some(came_ns),
        });
    }

    /// Says of those that are over when they were.
    fn end_traced(&mut self, completed: u64) {
        if self.traced.is_empty() {
            return;
        }
        let ended_ns = monotonic_ns();
        let (session, traces) = (self.session.start.session, &self.session.shared.traces);
        self.traced.retain(|traced| {
            let over = traced.last <= completed;
            if over {
                traces.post(TracedTask {
                    session,
                    trace: traced.trace,
                    parent: traced.parent,
                    came_ns: traced.came_ns,
                    granted_ns: traced.granted_ns.unwrap_or(ended_ns),
                    ended_ns,
                });
            }
            !over
        });
    }

    /// Whether a task is running.
    pub fn holds_device(&self) -> bool {
        self.task.is_some()
    }

    fn runs_since(&self, now_ns: u64) {
        self.state.running_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Gives the device up; nothing of this queue is in flight.
    pub fn end_task(&mut self, moved: &mut (u64, u64)) {
        let Some(started) = self.task.take() else {
            return;
        };
        self.runs_since(0);
        let lease = &self.session.account.lease;
        lease.release();
        lease.count_task(started.elapsed());
        lease.count_calls(self.calls, moved.0, moved.1);
        self.calls = 0;
        *moved = (0, 0);
    }

    /// Whether another tenant is waiting for the device.
    pub fn is_wanted_back(&self) -> bool {
        self.task.is_some() && self.session.account.lease.is_revoked()
    }

    /// Sets the number of outstanding commands, for statistics.
    pub fn show(&mut self, open: u64) {
        self.session.account.queued(self.shown, open);
        self.shown = open;
    }

    /// A command was taken: `number` so far.
    pub fn took(&mut self, number: u64) {
        self.calls += 1;
        self.state.taken.store(number, Ordering::SeqCst);
    }

    /// The first `number` commands are with the driver.
    pub fn submitted(&self, number: u64) {
        self.state.submitted.store(number, Ordering::SeqCst);
    }

    /// Reports to the client that the first `number` commands are complete.
    pub fn publish(&mut self, number: u64) {
        // With a lost context, the session's end completes everything outstanding.
        if number == self.published || self.session.shared.health.is_lost() {
            return;
        }
        self.published = number;
        self.state.completed.store(number, Ordering::SeqCst);
        self.progress.publish(number);
        if self.holds_device() {
            self.advance();
        }
        // Runs after the client has been notified, because tracing is not latency-critical.
        self.end_traced(number);
        if self.session.start.flags.mirror {
            self.session.notices.send(&Notice::Progress {
                queue: self.state.id,
                completed: number,
                failed: self.progress.failure().unwrap_or((0, 0)),
            });
        }
    }

    /// A command, or a part of one, is complete.
    pub fn advance(&self) {
        let now_ns = monotonic_ns();
        self.runs_since(now_ns);
        self.session.account.lease.advance(now_ns);
    }

    /// Ends a command. An error is recorded in its event or, without one, in the queue's progress.
    pub fn ended(&self, number: u64, event: Event, status: Code, times_ns: [u64; 4]) {
        let status = match status {
            0.. => status,
            code => self.session.verdict(code),
        };
        if event != 0 {
            self.session.board.complete(event, status, times_ns);
        } else if status < 0 {
            self.progress.fail(number, status);
        }
    }

    /// `CLOCK_MONOTONIC` now, for the times of a command; 0 without profiling.
    pub fn profiled_ns(&self) -> u64 {
        if self.profiling {
            monotonic_ns()
        } else {
            0
        }
    }

    /// The times of a command that this thread has carried out itself since `before_ns`.
    pub fn times_now(&self, before_ns: u64) -> [u64; 4] {
        if !self.profiling {
            return [0; 4];
        }
        [before_ns, before_ns, before_ns, monotonic_ns()].map(|ns| self.session.event_ns(ns))
    }

    /// The times of a command that the driver has carried out; `before_ns`: before it was enqueued.
    pub fn times_of(&self, event: &DriverEvent, before_ns: u64) -> [u64; 4] {
        if !self.profiling {
            return [0; 4];
        }
        let times_ns = event.times();
        let clock = &self.session.shared.clock;
        clock.follow(before_ns, times_ns, monotonic_ns());
        let shift_ns = self.session.clock_shift_ns();
        // Zero: the driver has no times.
        times_ns.map(|ns| match ns {
            0 => 0,
            ns => ns.wrapping_add_signed(shift_ns),
        })
    }
}
