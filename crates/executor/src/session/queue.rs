//! A command queue's thread: takes commands off the queue's channel, hands them to the driver,
//! says how far it got.
//!
//! The in-order loop: take what is there (up to [`IN_FLIGHT_MAX`]), then wait for the oldest
//! *milestone*, a command whose driver event is kept because somebody may ask for it, because it
//! reads, or because it is time for one; behind the last milestone, `clFinish`. When nothing is in
//! flight the task is over: the lease is given up and the thread spins a little, then sleeps.
//!
//! GPU drivers are filled by one thread at a time ([`crate::driver::Turns`]): a turn begins with a
//! batch's first command and ends with its flush, and nobody waits for the device within one.
//!
//! Waiting was measured against event callbacks on PoCL 3.1 (empty kernel, waiter in another
//! thread): 10.0 µs by `clFinish`, 9.3 µs by callback. The simpler one won; the out-of-order
//! queue ([`super::unordered`]) needs callbacks anyway.

use super::board::{State, Submitted};
use super::objects::Context;
use super::submit::{How, Lane, Outcome};
use super::{unordered, Session, Violation};
use crate::control::TracedTask;
use crate::driver::{self, Code, Enqueue, Event as DriverEvent};
use baltra_opencl::*;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::{Consumer, Progress, Range, Waker};
use baltra_wire::{decode, Command, Direction, Event, Id, Notice, Operation};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Commands that the driver has and that are not complete; at most so many.
const IN_FLIGHT_MAX: u64 = 512;
/// A command in so many keeps its event, so that progress is published now and then.
const MILESTONE_EVERY: u64 = 64;

/// Where commands take longer each, every one of them keeps its event, and the driver gets few
/// ahead: progress is seen, and the device comes back soon where it is wanted.
const SLOW: Duration = Duration::from_millis(5);
/// Commands that the driver has at most where they take so long.
const IN_FLIGHT_SLOW_MAX: u64 = 16;

/// A transfer that blocks while others wait for events of earlier commands; tens of
/// microseconds.
const BLOCKING_BYTES_MAX: u64 = 1 << 20;

/// Calls that belong to traces and are on their way in a queue; others are not told of.
const TRACED_MAX: usize = 64;

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

/// What others know of a queue.
pub struct QueueHandle {
    /// Its name.
    pub id: Id,
    taken: AtomicU64,
    submitted: AtomicU64,
    completed: AtomicU64,
    /// Since when nothing has ended in a queue whose commands the driver has; 0: it has none.
    running_ns: AtomicU64,
    released: AtomicBool,
    closed: AtomicBool,
    /// Held by whoever touches the ring from outside the queue's thread, which may be given
    /// back to the client once the thread has ended. The value: the client wants to be told.
    notify: Mutex<bool>,
    waker: Waker,
}

impl QueueHandle {
    /// Commands taken off the channel.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::SeqCst)
    }

    /// The first so many commands are with the driver or done.
    pub fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::SeqCst)
    }

    /// The first so many commands are complete.
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::SeqCst)
    }

    /// Since when the driver's oldest command of this queue runs, or waits behind others
    /// (`CLOCK_MONOTONIC`); `None`: it has none.
    pub fn running_since_ns(&self) -> Option<u64> {
        let since = self.running_ns.load(Ordering::Relaxed);
        (since > 0).then_some(since)
    }

    /// The client has given the queue up: its thread ends once nothing is left in it.
    /// With `notify`, [`Notice::Freed`] then says that the ring's memory is the client's again.
    pub fn release(&self, notify: bool) {
        let mut wanted = self.notify.lock().expect("no panic under this lock");
        *wanted = notify;
        self.released.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// The session ends: so does the thread.
    /// Wakes the thread if it sleeps although there are commands.
    pub fn wake_behind(&self) {
        self.waker.wake_behind();
    }

    pub fn wake(&self) {
        let _held = self.notify.lock().expect("no panic under this lock");
        if !self.closed.load(Ordering::Acquire) {
            self.waker.wake();
        }
    }

    /// Nothing waits for this queue any more, and nobody touches its ring; whether the client
    /// wants to know.
    fn end(&self) -> bool {
        let notify = self.notify.lock().expect("no panic under this lock");
        self.closed.store(true, Ordering::Release);
        for count in [&self.taken, &self.submitted, &self.completed] {
            count.store(u64::MAX, Ordering::SeqCst);
        }
        *notify
    }
}

/// What both kinds of queue are made of.
pub struct Base {
    /// The session.
    pub session: Arc<Session>,
    /// What others know.
    pub handle: Arc<QueueHandle>,
    /// The channel.
    pub consumer: Consumer,
    /// Times are wanted.
    pub profiling: bool,
    progress: Progress,
    /// Since when the running task runs; `None`: no task, no lease.
    task: Option<Instant>,
    traced: Vec<Traced>,
    calls: u64,
    published: u64,
    shown: u64,
}

/// Starts a queue's thread. Where the driver has no such queue the thread runs all the same, and
/// every command fails.
pub fn start(
    session: &Arc<Session>,
    id: Id,
    properties: u64,
    ring: &Range,
    made: Result<(Arc<Context>, driver::Queue), Code>,
) -> Result<(Arc<QueueHandle>, JoinHandle<()>), Violation> {
    let consumer = Consumer::new(ring.clone())?;
    let handle = Arc::new(QueueHandle {
        id,
        taken: 0.into(),
        submitted: 0.into(),
        completed: 0.into(),
        running_ns: 0.into(),
        released: false.into(),
        closed: false.into(),
        notify: Mutex::new(false),
        waker: consumer.waker(),
    });
    let base = Base {
        session: session.clone(),
        handle: handle.clone(),
        consumer,
        profiling: properties & CL_QUEUE_PROFILING_ENABLE as u64 != 0,
        progress: Progress::new(ring)?,
        task: None,
        traced: Vec::new(),
        calls: 0,
        published: 0,
        shown: 0,
    };
    let lane = made.map(|(context, queue)| Lane::new(session.clone(), context, queue));
    let unordered = properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE as u64 != 0;
    let run = move || {
        let handle = base.handle.clone();
        let session = base.session.clone();
        match lane {
            Ok(lane) if unordered => unordered::run(base, lane),
            lane => InOrder::new(base, lane).run(),
        }
        if handle.end() {
            session.notices.send(&Notice::Freed(id));
        }
        session.run_due();
    };
    let thread = std::thread::Builder::new()
        .name(format!("queue {id}"))
        .spawn(run)
        .map_err(|e| Violation {
            code: CL_OUT_OF_RESOURCES,
            text: format!("no thread for a command queue: {e}"),
        })?;
    Ok((handle, thread))
}

impl Base {
    /// Whether the thread is to end: the session is closed, or the queue is released and empty.
    pub fn is_over(&self) -> bool {
        self.session.is_closed()
            || (self.handle.released.load(Ordering::Acquire) && self.consumer.is_empty())
    }

    /// The next command's record, if one is there.
    pub fn take(&mut self, record: &mut Vec<u8>) -> Result<bool, baltra_ring::RingError> {
        let session = &self.session;
        self.consumer.pop_unless(record, || session.is_closed())
    }

    /// Whether something other than a command wants the thread awake.
    pub fn is_called(&self) -> bool {
        self.session.is_closed() || self.handle.released.load(Ordering::Acquire)
    }

    /// Holds the device; false when the session ends first.
    pub fn begin_task(&mut self) -> bool {
        if self.task.is_some() {
            return true;
        }
        let started = Instant::now();
        let session = &self.session;
        if !session.account.lease.acquire_unless(|| session.is_closed()) {
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

    /// The `commands` behind the command `number` belong to a trace.
    fn trace(&mut self, number: u64, trace: [u8; 16], parent: [u8; 8], commands: u32) {
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
        self.handle.running_ns.store(now_ns, Ordering::Relaxed);
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

    /// Whether another tenant wants the device.
    pub fn is_wanted_back(&self) -> bool {
        self.task.is_some() && self.session.account.lease.is_revoked()
    }

    /// So many commands are open now: a figure for people.
    pub fn show(&mut self, open: u64) {
        self.session.account.queued(self.shown, open);
        self.shown = open;
    }

    /// A command was taken: `number` so far.
    pub fn took(&mut self, number: u64) {
        self.calls += 1;
        self.handle.taken.store(number, Ordering::SeqCst);
    }

    /// The first `number` commands are with the driver.
    pub fn submitted(&self, number: u64) {
        self.handle.submitted.store(number, Ordering::SeqCst);
    }

    /// The first `number` commands are complete: the client is told.
    pub fn publish(&mut self, number: u64) {
        if number == self.published {
            return;
        }
        self.published = number;
        self.handle.completed.store(number, Ordering::SeqCst);
        self.progress.publish(number);
        if self.holds_device() {
            let now_ns = monotonic_ns();
            self.runs_since(now_ns);
            self.session.account.lease.advance(now_ns);
        }
        // Behind the client's news: it is nobody's in a hurry.
        self.end_traced(number);
        if self.session.start.flags.mirror {
            self.session.notices.send(&Notice::Progress {
                queue: self.handle.id,
                completed: number,
                failed: self.progress.failure().unwrap_or((0, 0)),
            });
        }
    }

    /// A command ended. An error reaches its event or, failing that, the queue's progress.
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

    /// The times of a command that this thread carried out itself.
    pub fn times_now(&self, since_ns: u64) -> [u64; 4] {
        if !self.profiling {
            return [0; 4];
        }
        [since_ns, since_ns, since_ns, self.session.device_ns()]
    }

    /// The times of a command that the driver carried out.
    pub fn times_of(&self, event: &DriverEvent) -> [u64; 4] {
        if self.profiling {
            event.times()
        } else {
            [0; 4]
        }
    }
}

/// A command whose driver event is kept until it is complete.
struct Milestone {
    number: u64,
    event: Event,
    driver: Arc<Submitted>,
}

struct InOrder {
    base: Base,
    lane: Result<Lane, Code>,
    milestones: VecDeque<Milestone>,
    taken: u64,
    completed: u64,
    /// Commands take longer than [`SLOW`] each, as far as is known.
    slow: bool,
}

/// What a command's wait list came to.
enum Ready {
    /// Driver events to pass on.
    Now(Vec<Arc<Submitted>>),
    /// One of them failed.
    Failed,
    /// The session ends.
    Closed,
}

impl InOrder {
    fn new(base: Base, lane: Result<Lane, Code>) -> InOrder {
        InOrder {
            base,
            lane,
            milestones: VecDeque::new(),
            taken: 0,
            completed: 0,
            slow: true,
        }
    }

    fn in_flight_max(&self) -> u64 {
        match self.slow {
            true => IN_FLIGHT_SLOW_MAX,
            false => IN_FLIGHT_MAX,
        }
    }

    fn run(mut self) {
        let spin = self.base.session.shared.options.spin();
        let mut record = Vec::new();
        while !self.base.is_over() {
            while self.taken - self.completed < self.in_flight_max() && !self.base.is_wanted_back()
            {
                let done = match self.base.take(&mut record) {
                    Ok(false) => break,
                    Ok(true) => self.command(&record),
                    Err(e) => Err(Violation::from(e)),
                };
                if let Err(violation) = done {
                    self.base.session.fatal(&violation);
                    break;
                }
            }
            self.flush();
            self.base.submitted(self.taken);
            if self.completed < self.taken {
                self.base.show(self.taken - self.completed);
                self.retire();
                self.base.session.run_due();
                continue;
            }
            self.base.publish(self.completed);
            self.end_task();
            self.base.show(0);
            self.base.session.run_due();
            self.base
                .consumer
                .wait_unless(spin, None, || self.base.is_called());
        }
        self.drain();
        self.end_task();
        self.base.show(0);
    }

    fn end_task(&mut self) {
        let mut none = (0, 0);
        let moved = self.lane.as_mut().map_or(&mut none, |lane| &mut lane.moved);
        self.base.end_task(moved);
    }

    /// Carries out one command, or hands it to the driver.
    fn command(&mut self, record: &[u8]) -> Result<(), Violation> {
        let command: Command = decode(record)?;
        self.taken += 1;
        self.base.took(self.taken);
        let number = self.taken;
        let event = command.event;
        if let Operation::Trace {
            trace,
            parent,
            commands,
        } = command.operation
        {
            self.base.trace(number, trace, parent, commands);
            if event == 0 && command.waits.is_empty() {
                // Nobody waits for this one: its end is told with what is behind it.
                if self.completed + 1 == number {
                    self.completed = number;
                }
                return Ok(());
            }
        }
        if event != 0 && !self.base.session.board.exists(event) {
            return Err(Violation::new("an event outside the event table"));
        }
        if !self.base.session.has_reached(command.after_control) {
            self.flush();
            if !self.base.session.control_reached(command.after_control) {
                return Ok(());
            }
        }
        let waits = match self.resolve(&command) {
            Ready::Now(waits) => waits,
            Ready::Closed => return Ok(()),
            Ready::Failed => {
                self.finished(
                    number,
                    event,
                    CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
                    [0; 4],
                );
                return Ok(());
            }
        };
        if !self.base.holds_device() {
            self.flush();
            if !self.base.begin_task() {
                return Ok(());
            }
        }
        // A transfer within shared memory that nothing follows: a copy by this thread, once the
        // device is done, beats a command of the driver's.
        let last = waits.is_empty() && self.base.consumer.is_empty();
        if last && self.is_local(&command.operation) {
            self.drain_before(1);
        }
        let idle = self.completed + 1 == number && waits.is_empty();
        let reads = matches!(
            command.operation,
            Operation::Buffer {
                direction: Direction::Read,
                ..
            }
        );
        let keep = event != 0
            || self.slow
            || number.is_multiple_of(MILESTONE_EVERY)
            || (reads && !idle && !last);
        let list: Vec<cl_event> = waits.iter().map(|w| w.event.raw()).collect();
        let since_ns = match self.base.profiling {
            true => self.base.session.device_ns(),
            false => 0,
        };
        let blocks = last && self.may_block(&command.operation);
        let outcome = match &mut self.lane {
            Ok(lane) => lane.submit(
                &command.operation,
                How {
                    enqueue: Enqueue {
                        waits: &list,
                        event: keep,
                    },
                    ordered: true,
                    idle,
                    last: blocks,
                },
            ),
            Err(code) => Err(*code),
        };
        match outcome {
            Ok(Outcome::Driver(Some(driver))) => {
                let submitted = Arc::new(Submitted {
                    event: driver,
                    context: self.lane.as_ref().map_or(0, Lane::context),
                    queue: self.base.handle.id,
                });
                if event != 0 {
                    let board = &self.base.session.board;
                    board.submitted(event, submitted.clone());
                }
                self.milestones.push_back(Milestone {
                    number,
                    event,
                    driver: submitted,
                });
            }
            Ok(Outcome::Driver(None) | Outcome::Nothing) => {}
            Ok(Outcome::Finished) => {
                while !self.milestones.is_empty() {
                    self.retire_before(1);
                }
                self.completed = number - 1;
                let times = self.base.times_now(since_ns);
                self.finished(number, event, CL_COMPLETE, times);
            }
            Ok(Outcome::Done) => {
                let times = self.base.times_now(since_ns);
                self.finished(number, event, CL_COMPLETE, times);
            }
            Err(code) => self.finished(number, event, code, [0; 4]),
        }
        Ok(())
    }

    /// Whether blocking in a transfer holds up no news of earlier commands for long.
    fn may_block(&self, operation: &Operation) -> bool {
        match operation {
            Operation::Buffer { payload, .. } => {
                self.milestones.is_empty() || payload.len <= BLOCKING_BYTES_MAX
            }
            _ => false,
        }
    }

    fn is_local(&self, operation: &Operation) -> bool {
        match (operation, &self.lane) {
            (Operation::Buffer { buffer, .. }, Ok(lane)) => lane.is_local(*buffer),
            _ => false,
        }
    }

    /// A command that the driver has nothing to do with any more.
    fn finished(&mut self, number: u64, event: Event, status: Code, times_ns: [u64; 4]) {
        self.base.ended(number, event, status, times_ns);
        if self.completed + 1 == number {
            self.completed = number;
            self.base.publish(number);
        }
    }

    /// Waits for what the driver cannot wait for itself: user events, events that nobody has
    /// submitted yet, events of other contexts. The device is not held meanwhile.
    fn resolve(&mut self, command: &Command) -> Ready {
        let mut waits = Vec::new();
        if command.waits.is_empty() {
            return Ready::Now(waits);
        }
        let session = self.base.session.clone();
        let context = self.lane.as_ref().map_or(0, Lane::context);
        for event in command.waits.iter() {
            if !session.board.exists(event) {
                return Ready::Failed;
            }
            let mut state = session.board.state(event);
            if matches!(state, State::Pending) {
                self.flush();
                self.drain_before(1);
                self.end_task();
                session.run_due();
                // It may wait for long, and who has work that waits is not idle.
                self.base.show(self.taken - self.completed);
                state = session.board.wait(event);
            }
            match state {
                State::Done(status) if status < 0 => return Ready::Failed,
                State::Done(_) => {}
                State::Pending => return Ready::Closed,
                State::Submitted(submitted) if submitted.queue == self.base.handle.id => {}
                State::Submitted(submitted) if submitted.context == context => {
                    waits.push(submitted);
                }
                State::Submitted(submitted) => {
                    self.flush();
                    self.drain_before(1);
                    self.end_task();
                    if submitted.event.wait() < 0 {
                        return Ready::Failed;
                    }
                }
            }
        }
        Ready::Now(waits)
    }

    /// Waits for the oldest milestone, or for everything.
    fn retire(&mut self) {
        self.retire_before(0);
    }

    /// As [`InOrder::retire`], while the newest `open` commands are still being looked at.
    fn retire_before(&mut self, open: u64) {
        self.flush();
        let (before, since_ns) = (self.completed, self.base.handle.running_since_ns());
        if let Some(milestone) = self.milestones.pop_front() {
            let driver = &milestone.driver.event;
            let status = driver.wait();
            let times = self.base.times_of(driver);
            self.base
                .ended(milestone.number, milestone.event, status, times);
            self.completed = milestone.number;
            if let Ok(lane) = &mut self.lane {
                lane.spend(milestone.driver);
            }
        } else {
            let last = self.taken - open;
            if let Ok(lane) = &self.lane {
                if let Err(code) = lane.queue.finish() {
                    self.base.ended(last, 0, code, [0; 4]);
                }
            }
            self.completed = last;
        }
        if let Some(since_ns) = since_ns {
            let took = Duration::from_nanos(monotonic_ns().saturating_sub(since_ns));
            let ended = u32::try_from(self.completed - before).unwrap_or(u32::MAX);
            self.slow = took >= SLOW * ended.max(1);
        }
        self.base.publish(self.completed);
    }

    fn flush(&mut self) {
        if let Ok(lane) = &mut self.lane {
            lane.flush();
        }
    }

    fn drain_before(&mut self, open: u64) {
        while self.completed < self.taken - open {
            self.retire_before(open);
        }
    }

    fn drain(&mut self) {
        self.drain_before(0);
    }
}
