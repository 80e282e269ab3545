//! The in-order queue.
//!
//! The loop takes available commands (up to [`IN_FLIGHT_MAX`]), then waits for the oldest
//! *milestone*: a command whose driver event is kept because its event may be queried, because it
//! reads, or at regular intervals; after the last milestone it calls `clFinish`. When no command is
//! in flight the task ends: the lease is returned and the thread spins briefly, then sleeps.
//!
//! Waiting was compared with event callbacks on PoCL 3.1 (empty kernel, waiter in another thread):
//! 10.0 µs by `clFinish`, 9.3 µs by callback. The simpler way was chosen; the out-of-order queue
//! ([`super::unordered`]) needs callbacks anyway.

use super::base::{Base, Served};
use super::board::{State, Submitted};
use super::slices::{launching, Division};
use super::submit::{Lane, Outcome, SubmitOptions};
use super::Violation;
use crate::driver::{Code, Enqueue};
use baltra_opencl::*;
use baltra_ring::lease::monotonic_ns;
use baltra_wire::moves::QueueState;
use baltra_wire::{decode, Command, Direction, Event, Operation};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of commands submitted to the driver and not complete.
const IN_FLIGHT_MAX: u64 = 512;
/// One command in this number keeps its event, so that progress is published regularly.
const MILESTONE_EVERY: u64 = 64;
/// If commands take longer than this, each of them keeps its event, and few are submitted ahead:
/// progress is published, and the device can be returned soon.
const SLOW: Duration = Duration::from_millis(5);
/// Maximum number of submitted commands if they take that long.
const IN_FLIGHT_SLOW_MAX: u64 = 16;

/// Maximum size of a transfer that blocks while other threads wait for events of earlier commands;
/// tens of microseconds.
const BLOCKING_BYTES_MAX: u64 = 1 << 20;

/// A command whose driver event is kept until it is complete.
struct Milestone {
    number: u64,
    event: Event,
    driver: Arc<Submitted>,
}

/// State of the queue's thread.
pub struct InOrder {
    /// As in any queue.
    pub base: Base,
    lane: Result<Lane, Code>,
    milestones: VecDeque<Milestone>,
    taken: u64,
    completed: u64,
    /// Commands are expected to take longer than [`SLOW`] each.
    slow: bool,
}

/// Result of resolving a command's wait list.
enum Ready {
    /// Driver events to pass on.
    Now(Vec<Arc<Submitted>>),
    /// One of them failed.
    Failed,
    /// The session ends, or stops.
    Closed,
}

impl InOrder {
    /// Nothing taken yet.
    pub fn new(base: Base, lane: Result<Lane, Code>) -> InOrder {
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
        if self.slow {
            IN_FLIGHT_SLOW_MAX
        } else {
            IN_FLIGHT_MAX
        }
    }

    /// The state of the stopped queue, for another executor.
    pub fn state(&self) -> QueueState {
        self.base.state(self.completed, Vec::new())
    }

    /// Continues a queue of another executor.
    pub fn restore(&mut self, state: &mut QueueState) {
        (self.taken, self.completed) = (state.completed, state.completed);
        self.base.restore(state);
    }

    /// Works until the queue has ended, is stopped, or has been idle for long.
    pub fn serve(&mut self) -> Served {
        let spin = self.base.session.shared.options.spin();
        let mut record = Vec::new();
        while !self.base.is_over() {
            while self.taken - self.completed < self.in_flight_max()
                && !self.base.session.is_frozen()
                && !self.base.is_wanted_back()
                && !self.lane.as_ref().is_ok_and(Lane::is_wanted)
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
            if let Ok(lane) = &mut self.lane {
                lane.flush_before_wait();
            }
            self.base.submitted(self.taken);
            if self.completed < self.taken {
                self.base.show(self.taken - self.completed);
                self.retire_before(0);
                self.base.session.run_due();
                continue;
            }
            self.base.publish(self.completed);
            self.end_task();
            self.base.show(0);
            if self.base.session.is_frozen() {
                return Served::Frozen;
            }
            self.base.session.run_due();
            let (since, idle_max) = (Instant::now(), self.base.idle_max());
            self.base
                .consumer
                .wait_unless(spin, idle_max, || self.base.is_called());
            if self.base.is_idle(since) {
                return Served::Idle;
            }
        }
        self.drain();
        self.end_task();
        self.base.show(0);
        Served::Ended
    }

    fn end_task(&mut self) {
        if let Ok(lane) = &mut self.lane {
            lane.end_task();
        }
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
                // No client waits for this command: its end is reported with that of the next.
                if self.completed + 1 == number {
                    self.completed = number;
                }
                return Ok(());
            }
        }
        if !self.base.session.has_reached(command.after_control) {
            self.flush();
            if !self.base.session.control_reached(command.after_control) {
                self.put_off(number, event, record);
                return Ok(());
            }
        }
        // The message that adds its slot may be the last one before the command.
        if event != 0 && !self.base.session.board.exists(event) {
            return Err(Violation::new("an event outside the event table"));
        }
        let waits = match self.resolve(&command) {
            Ready::Now(waits) => waits,
            Ready::Closed => {
                self.put_off(number, event, record);
                return Ok(());
            }
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
        let division = self.division(&command.operation);
        if !self.base.holds_device() {
            self.flush();
            if !self.base.begin_task() {
                self.put_off(number, event, record);
                return Ok(());
            }
        }
        // For a transfer within shared memory without later commands, a copy by this thread, once
        // the device is idle, is faster than a command of the driver.
        let last = waits.is_empty() && self.base.consumer.is_empty();
        if last && self.is_local(&command.operation) || self.is_own_launch(&command.operation) {
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
        if let Some(division) = division {
            self.drain_before(1);
            let InOrder { base, lane, .. } = self;
            let (status, times) = match lane {
                Ok(lane) => launching::run(base, lane, &command.operation, division, &list),
                Err(code) => (*code, [0; 4]),
            };
            self.finished(number, event, status, times);
            return Ok(());
        }
        let before_ns = self.base.profiled_ns();
        let blocks = last && self.may_block(&command.operation);
        let outcome = match &mut self.lane {
            Ok(lane) => lane.submit(
                &command.operation,
                SubmitOptions {
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
                    queue: self.base.state.id,
                    before_ns,
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
                let times = self.base.times_now(before_ns);
                self.finished(number, event, CL_COMPLETE, times);
            }
            Ok(Outcome::Done) => {
                let times = self.base.times_now(before_ns);
                self.finished(number, event, CL_COMPLETE, times);
            }
            Err(code) => self.finished(number, event, code, [0; 4]),
        }
        Ok(())
    }

    /// The division of the operation, if it is a launch that is expected to be long. Makes the
    /// kernel for its slices if it needs one; the device is not held meanwhile.
    fn division(&mut self, operation: &Operation) -> Option<Division> {
        let division = launching::division(self.lane.as_mut().ok()?, operation)?;
        if launching::must_rewrite(self.lane.as_ref().ok()?, operation, &division) {
            self.flush();
            self.drain_before(1);
            self.end_task();
            launching::rewrite(self.lane.as_mut().ok()?, operation, &division);
        }
        let lane = self.lane.as_ref().ok()?;
        launching::is_possible(lane, operation, &division).then_some(division)
    }

    /// Whether blocking in a transfer delays the completion of earlier commands only briefly.
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

    /// Whether the call that hands over the command returns at its end. A kernel may wait there for
    /// another one, which the client launches once it has seen the commands before it complete.
    fn is_own_launch(&self, operation: &Operation) -> bool {
        matches!(operation, Operation::Launch { .. }) && self.lane.as_ref().is_ok_and(Lane::is_own)
    }

    /// The session stops, or ends, before the command could be carried out.
    fn put_off(&mut self, number: u64, event: Event, record: &[u8]) {
        if self.base.session.is_closed() {
            return self.drop_command(number, event);
        }
        self.taken -= 1;
        self.base.hold(self.taken, record.to_vec());
    }

    /// The session ends before the command could be carried out. Without the error, its client would
    /// take the results of the command for complete, because the count of completed commands
    /// includes it.
    fn drop_command(&mut self, number: u64, event: Event) {
        let has_slot = self.base.session.board.exists(event);
        let event = if has_slot { event } else { 0 };
        self.finished(number, event, CL_DEVICE_NOT_AVAILABLE, [0; 4]);
    }

    /// Completes a command that the driver has finished.
    fn finished(&mut self, number: u64, event: Event, status: Code, times_ns: [u64; 4]) {
        self.base.ended(number, event, status, times_ns);
        if self.completed + 1 == number {
            self.completed = number;
            self.base.publish(number);
        }
    }

    /// Waits for conditions that the driver cannot wait for: user events, events that have not been
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
                // The wait may be long, and a tenant with waiting work is not idle.
                self.base.show(self.taken - self.completed);
                state = session.board.wait(event, || session.is_frozen());
            }
            match state {
                State::Done(status) if status < 0 => return Ready::Failed,
                State::Done(_) => {}
                State::Pending => return Ready::Closed,
                State::Submitted(submitted) if submitted.queue == self.base.state.id => {}
                State::Submitted(submitted)
                    if submitted.context == context
                        && !(self.lane.as_ref().is_ok_and(Lane::is_own)
                            && submitted.event.status() > CL_COMPLETE) =>
                {
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

    /// Waits for the oldest milestone, or for everything but the newest `open` commands, which are
    /// not resolved yet.
    fn retire_before(&mut self, open: u64) {
        if let Ok(lane) = &mut self.lane {
            lane.flush_before_wait();
        }
        let (before, since_ns) = (self.completed, self.base.state.running_since_ns());
        if let Some(milestone) = self.milestones.pop_front() {
            let driver = &milestone.driver.event;
            let status = driver.wait();
            let times = self.base.times_of(driver, milestone.driver.before_ns);
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
        if let Ok(lane) = &mut self.lane {
            lane.waited();
        }
        if let Some(since_ns) = since_ns {
            let took = Duration::from_nanos(monotonic_ns().saturating_sub(since_ns));
            let ended = u32::try_from(self.completed - before).unwrap_or(u32::MAX);
            let each = took / ended.max(1);
            self.slow = each >= SLOW;
            let slices = &self.base.session.shared.slices;
            if let (Some(slices), Ok(lane)) = (slices, &mut self.lane) {
                if slices.is_unexpected(each) {
                    lane.kernels.forget_paces();
                }
            }
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
