//! The out-of-order queue: commands wait in a list until they are ready for the driver's own
//! out-of-order queue; completions are reported by callbacks.

use super::base::{Base, Served};
use super::board::{Sleeper, State, Submitted};
use super::slices::{launching, Division};
use super::submit::{Lane, Outcome, SubmitOptions};
use super::Violation;
use crate::driver::emulate::kernels_wait;
use crate::driver::{Code, Enqueue};
use baltra_opencl::*;
use baltra_ring::Locked;
use baltra_wire::moves::{OpenCommand, QueueState};
use baltra_wire::{decode, Command, Event, Operation};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum number of commands taken off the channel and not complete.
const OPEN_MAX: usize = 4096;

/// Interval at which a thread with a command for a device of the executor's own looks whether
/// kernels there wait for it.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Conditions for submitting a command to the driver.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// Its own wait list.
    Waits,
    /// All before it (a marker without a wait list).
    AllBefore,
    /// Its wait list or, if that is empty, all earlier commands; no later command is submitted
    /// before it.
    Barrier,
}

impl Order {
    fn of(command: &Command) -> Order {
        match command.operation {
            Operation::Barrier => Order::Barrier,
            Operation::Marker if command.waits.is_empty() => Order::AllBefore,
            _ => Order::Waits,
        }
    }
}

enum Stage {
    Waiting { record: Vec<u8>, order: Order },
    Driver(Arc<Submitted>, Instant),
    Ended,
}

struct Open {
    event: Event,
    stage: Stage,
}

/// Results of the driver's callbacks: command number and status.
type Ends = Arc<Mutex<Vec<(u64, Code)>>>;

/// State of the queue's thread.
pub struct Unordered {
    /// As in any queue.
    pub base: Base,
    lane: Lane,
    /// Every command from number `first` on.
    open: VecDeque<Open>,
    first: u64,
    in_driver: usize,
    waiting: usize,
    ends: Ends,
    sleeper: Arc<Sleeper>,
}

impl Drop for Unordered {
    fn drop(&mut self) {
        self.base.session.board.unsubscribe(&self.sleeper);
    }
}

impl Unordered {
    /// Nothing taken yet.
    pub fn new(base: Base, lane: Lane) -> Unordered {
        let sleeper = Arc::new(Sleeper {
            waker: base.consumer.waker(),
            interested: AtomicBool::new(false),
            changed: AtomicBool::new(false),
        });
        base.session.board.subscribe(sleeper.clone());
        Unordered {
            base,
            lane,
            open: VecDeque::new(),
            first: 1,
            in_driver: 0,
            waiting: 0,
            ends: Ends::default(),
            sleeper,
        }
    }

    /// Whether it has taken commands that have not ended.
    pub fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The state of the stopped queue, for another executor.
    pub fn state(&self) -> QueueState {
        let open = self.open.iter().map(|open| OpenCommand {
            event: open.event,
            record: match &open.stage {
                Stage::Waiting { record, .. } => Some(record.clone()),
                Stage::Driver(..) | Stage::Ended => None,
            },
        });
        self.base.state(self.first - 1, open.collect())
    }

    /// Continues a queue of another executor.
    pub fn restore(&mut self, state: &mut QueueState) -> Result<(), Violation> {
        self.base.restore(state);
        self.first = state.completed + 1;
        for command in std::mem::take(&mut state.open).into_iter().take(OPEN_MAX) {
            let stage = match command.record {
                None => Stage::Ended,
                Some(record) => {
                    let order = Order::of(&decode(&record)?);
                    self.waiting += 1;
                    Stage::Waiting { record, order }
                }
            };
            self.open.push_back(Open {
                event: command.event,
                stage,
            });
            self.base.took(self.first + self.open.len() as u64 - 1);
        }
        Ok(())
    }

    /// Works until the queue has ended, is stopped, or has been idle for long.
    pub fn serve(&mut self) -> Served {
        let spin = self.base.session.shared.options.spin();
        loop {
            let frozen = self.base.session.is_frozen();
            let over = self.base.is_over();
            if over && (self.base.session.is_closed() || self.open.is_empty()) {
                break;
            }
            self.collect();
            let ingested = if frozen { Ok(()) } else { self.ingest() };
            if let Err(violation) = ingested {
                self.base.session.fatal(&violation);
                break;
            }
            self.sleeper
                .interested
                .store(self.waiting > 0, Ordering::Release);
            self.sleeper.changed.store(false, Ordering::Release);
            let submitted = if frozen { Ok(()) } else { self.submit_ready() };
            if let Err(violation) = submitted {
                self.base.session.fatal(&violation);
                break;
            }
            self.advance();
            self.base.show(self.open.len() as u64);
            if self.in_driver == 0 {
                self.end_task();
                if frozen {
                    return Served::Frozen;
                }
            }
            self.base.session.run_due();
            let (ends, sleeper, base) = (&self.ends, &self.sleeper, &self.base);
            let full = frozen || self.open.len() >= OPEN_MAX;
            let called = || {
                !ends.locked().is_empty()
                    || sleeper.changed.load(Ordering::Acquire)
                    || base.is_called() && self.open.is_empty()
                    || base.session.is_stopping()
            };
            if full {
                // The channel may hold more commands, which is not a reason to stay awake.
                if frozen || !called() {
                    std::thread::sleep(std::time::Duration::from_micros(50));
                }
            } else {
                let is_between = self.waiting > 0 && self.in_driver > 0;
                let idle_max = if self.open.is_empty() {
                    self.base.idle_max()
                } else {
                    (is_between && self.lane.is_own()).then_some(LOOK_EVERY)
                };
                let since = Instant::now();
                self.base.consumer.wait_unless(spin, idle_max, called);
                if self.open.is_empty() && self.in_driver == 0 && self.base.is_idle(since) {
                    return Served::Idle;
                }
            }
        }
        // The callbacks of the driver's commands use this object.
        self.drain();
        self.end_task();
        self.base.show(0);
        Served::Ended
    }

    /// Waits for all commands that the driver has.
    fn drain(&mut self) {
        self.lane.flush();
        while self.in_driver > 0 {
            let _ = self.lane.queue.finish();
            self.collect();
            if self.in_driver > 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    fn end_task(&mut self) {
        self.lane.end_task();
        self.base.end_task(&mut self.lane.moved);
    }

    /// Processes the results of the driver's callbacks.
    fn collect(&mut self) {
        let ends = std::mem::take(&mut *self.ends.locked());
        for (number, status) in ends {
            let at = (number - self.first) as usize;
            let open = &mut self.open[at];
            let stage = std::mem::replace(&mut open.stage, Stage::Ended);
            if let Stage::Driver(submitted, since) = stage {
                self.in_driver -= 1;
                let slices = self.base.session.shared.slices.as_ref();
                if slices.is_some_and(|slices| slices.is_unexpected(since.elapsed())) {
                    // Too long because of other commands: the paces are learned again, which is harmless.
                    self.lane.kernels.forget_paces();
                }
                let times = self.base.times_of(&submitted.event, submitted.before_ns);
                self.base.ended(number, open.event, status, times);
            }
        }
    }

    fn ingest(&mut self) -> Result<(), Violation> {
        let mut record = Vec::new();
        while self.open.len() < OPEN_MAX && self.base.take(&mut record)? {
            let command: Command = decode(&record)?;
            let event = command.event;
            let order = Order::of(&command);
            self.open.push_back(Open {
                event,
                stage: Stage::Waiting {
                    record: std::mem::take(&mut record),
                    order,
                },
            });
            self.waiting += 1;
            self.base.took(self.first + self.open.len() as u64 - 1);
        }
        Ok(())
    }

    /// Submits commands that are ready, in order where barriers and markers require it.
    fn submit_ready(&mut self) -> Result<(), Violation> {
        if self.waiting == 0 {
            return Ok(());
        }
        // A kernel in the driver may wait for one that is to be launched here.
        let yields = self.base.is_wanted_back() || self.lane.is_wanted();
        if yields && !kernels_wait() {
            if self.in_driver > 0 {
                return Ok(());
            }
            self.end_task();
        }
        let mut all_before = true;
        for at in 0..self.open.len() {
            let open = &mut self.open[at];
            let Stage::Waiting { record, order } = &mut open.stage else {
                // The executor's own devices do not order commands.
                all_before &= !(self.lane.is_own() && matches!(open.stage, Stage::Driver(..)));
                continue;
            };
            let order = *order;
            let record = std::mem::take(record);
            let event = open.event;
            let command: Command = decode(&record)?;
            if !self.base.session.has_reached(command.after_control) {
                self.lane.flush();
            }
            let reached = self.base.session.control_reached(command.after_control);
            // The message that adds its slot may be the last one before the command.
            if reached && event != 0 && !self.base.session.board.exists(event) {
                return Err(Violation::new("an event outside the event table"));
            }
            let bare = command.waits.is_empty();
            let free = match order {
                Order::Waits => true,
                Order::AllBefore => all_before,
                Order::Barrier => !bare || all_before,
            };
            let waits = if reached && free {
                self.resolve(&command)
            } else {
                None
            };
            let Some(waits) = waits else {
                if let Stage::Waiting { record: place, .. } = &mut self.open[at].stage {
                    *place = record;
                }
                if order == Order::Barrier {
                    break;
                }
                all_before = false;
                continue;
            };
            let division = match waits {
                Ok(_) => self.division(&command.operation),
                Err(_) => None,
            };
            if waits.is_ok() && !self.base.holds_device() {
                self.lane.flush();
                if !self.base.begin_task() {
                    if let Stage::Waiting { record: place, .. } = &mut self.open[at].stage {
                        *place = record;
                    }
                    break;
                }
            }
            self.waiting -= 1;
            match (division, waits) {
                (Some(division), Ok(waits)) => self.run_in_slices(at, &command, division, &waits),
                (_, waits) => self.submit(at, event, &command, waits),
            }
        }
        self.lane.flush();
        Ok(())
    }

    /// The driver events that the command waits for, or the failure among them; `None`: the command
    /// has to wait here.
    fn resolve(&self, command: &Command) -> Option<Result<Vec<Arc<Submitted>>, Code>> {
        let mut waits = Vec::new();
        let failed = Some(Err(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST));
        for event in command.waits.iter() {
            if !self.base.session.board.exists(event) {
                return failed;
            }
            match self.base.session.board.state(event) {
                State::Pending => return None,
                State::Done(status) if status < 0 => return failed,
                State::Done(_) => {}
                State::Submitted(submitted) if submitted.context == self.lane.context() => {
                    if self.lane.is_own() && submitted.event.status() > CL_COMPLETE {
                        return None;
                    }
                    waits.push(submitted);
                }
                State::Submitted(_) => return None,
            }
        }
        Some(Ok(waits))
    }

    /// The division of the operation, if it is a launch that is expected to be long. Makes the
    /// kernel for its slices if it needs one; the device is not held meanwhile.
    fn division(&mut self, operation: &Operation) -> Option<Division> {
        let division = launching::division(&mut self.lane, operation)?;
        if launching::must_rewrite(&self.lane, operation, &division) {
            self.drain();
            self.end_task();
            launching::rewrite(&mut self.lane, operation, &division);
        }
        launching::is_possible(&self.lane, operation, &division).then_some(division)
    }

    /// Runs a launch alone, because it occupies the device.
    fn run_in_slices(
        &mut self,
        at: usize,
        command: &Command,
        division: Division,
        waits: &[Arc<Submitted>],
    ) {
        self.drain();
        let list: Vec<cl_event> = waits.iter().map(|w| w.event.raw()).collect();
        let Unordered { base, lane, .. } = self;
        let (status, times) = launching::run(base, lane, &command.operation, division, &list);
        self.open[at].stage = Stage::Ended;
        let number = self.first + at as u64;
        self.base.ended(number, command.event, status, times);
    }

    fn submit(
        &mut self,
        at: usize,
        event: Event,
        command: &Command,
        waits: Result<Vec<Arc<Submitted>>, Code>,
    ) {
        let number = self.first + at as u64;
        let before_ns = self.base.profiled_ns();
        let outcome = waits.and_then(|waits| {
            let list: Vec<cl_event> = waits.iter().map(|w| w.event.raw()).collect();
            let options = SubmitOptions {
                enqueue: Enqueue {
                    waits: &list,
                    event: true,
                },
                ordered: false,
                idle: false,
                last: false,
            };
            self.lane.submit(&command.operation, options)
        });
        let (status, times) = match outcome {
            Ok(Outcome::Driver(Some(driver))) => {
                let submitted = Arc::new(Submitted {
                    event: driver,
                    context: self.lane.context(),
                    queue: self.base.state.id,
                    before_ns,
                });
                self.open[at].stage = Stage::Driver(submitted.clone(), Instant::now());
                self.in_driver += 1;
                if event != 0 {
                    let board = &self.base.session.board;
                    board.submitted(event, submitted.clone());
                }
                let (ends, waker) = (self.ends.clone(), self.base.consumer.waker());
                let registered = submitted.event.on_complete(Box::new(move |status| {
                    ends.locked().push((number, status));
                    waker.wake();
                }));
                if registered.is_err() {
                    self.lane.flush();
                    let status = submitted.event.wait();
                    let mut ends = self.ends.locked();
                    ends.push((number, status));
                }
                return;
            }
            Ok(_) => (CL_COMPLETE, self.base.times_now(before_ns)),
            Err(code) => (code, [0; 4]),
        };
        self.open[at].stage = Stage::Ended;
        self.base.ended(number, event, status, times);
    }

    /// Publishes how many of the first commands are complete, and how many are submitted to the
    /// driver.
    fn advance(&mut self) {
        let before = self.first;
        while matches!(self.open.front(), Some(open) if matches!(open.stage, Stage::Ended)) {
            self.open.pop_front();
            self.first += 1;
        }
        let gone = |open: &&Open| !matches!(open.stage, Stage::Waiting { .. });
        let with_driver = self.open.iter().take_while(gone).count() as u64;
        self.base.submitted(self.first - 1 + with_driver);
        if self.first != before {
            self.base.publish(self.first - 1);
        }
    }
}
