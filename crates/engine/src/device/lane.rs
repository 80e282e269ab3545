//! A command queue of a function on a device, and its calls in flight.
//!
//! The thread that has a call submits it: it takes a free slot, copies the body in, pushes the
//! commands and flushes. A call thus reaches the executor without a switch to another thread. A
//! thread whose call is the only one also polls briefly for its end, which saves the switch
//! afterwards. The lane's one thread only *completes* calls: it waits for the count of completed
//! commands, copies outputs out, replies, and refills the slots from the backlog; while no call is
//! in flight it sleeps.
//!
//! Calls that arrived while the device was busy are submitted together and, if the function allows
//! it, merged into one. When a merged call ends, the number of callers is estimated: the merged
//! calls and those that arrived meanwhile. The next merged call waits for that number of calls, but
//! at most for the manifest's `batching.wait_us` and, if the device idles meanwhile, for a fraction
//! of a merged call's duration ([`COMPANY_SHARE`]). A sole caller does not wait.
//!
//! # Failures
//!
//! A failing command publishes its number, but a later failure overwrites that number. After a
//! failure, every call that was in flight is therefore repeated alone, which identifies the failing
//! call. Its inputs are copied in again, so the repetition costs time but has no other effect.

use super::program::Program;
use super::slot::{Slot, SlotError};
use crate::backlog::Backlog;
use crate::pace::Pace;
use crate::pending::{Outcome, Pending, Traced, Waiter};
use crate::reply::{CallError, Timing};
use crate::stats::Stats;
use baltra_functions::{Call, Step};
use baltra_ring::{Locked, Unpoisoned};
use baltra_session::client::{Lost, Queue};
use baltra_wire::opencl::{text_of, DEVICE_NOT_AVAILABLE};
use baltra_wire::Id;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{fence, AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Merged calls in flight: one runs while the inputs of the next are copied.
const MERGED_DEPTH: usize = 2;
/// Longest idle time of a device while it waits for further calls to merge, as a divisor of a
/// merged call's time. On an H100 an empty call of 64 callers took 45 µs, and waiting 300, 50 or 1
/// µs for all of them gave 180, 230 and 280 thousand calls a second. A CPU device has no such
/// limit: it does not idle, because the callers run on it.
const COMPANY_SHARE: u32 = 4;
/// Interval in which a sleeping lane checks whether its session has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Limit of the device memory that a lane's idle slots keep, bytes.
const IDLE_BYTES_MAX: u64 = 256 << 20;

/// Limits of a lane.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Calls in flight.
    pub slots: usize,
    /// Bytes in flight, in addition to one call.
    pub flying_bytes_max: u64,
    /// Most requests in one merged call; 1: calls are not merged.
    pub merge_max: usize,
    /// Longest time that a merged call waits for further callers.
    pub merge_wait: Duration,
    /// Whether the device computes on the processors that the callers use.
    pub on_processors: bool,
}

/// A queue and its calls.
pub struct Lane {
    program: Arc<Program>,
    queue: Queue,
    implementation: usize,
    bounds: Bounds,
    backlog: Arc<Backlog>,
    stats: Arc<Stats>,
    pace: Arc<Pace>,
    state: Mutex<State>,
    /// Wakes the lane's thread.
    called: Condvar,
    room: AtomicBool,
    flying: AtomicUsize,
}

#[derive(Default)]
struct State {
    free: Vec<Slot>,
    flights: VecDeque<Flight>,
    /// Number of calls whose inputs are being copied.
    filling: usize,
    flying_bytes: u64,
    /// A call taken off the backlog that did not fit into the merged call before it.
    next: Option<Pending>,
    /// The failure seen last.
    failure: Option<(u64, i32)>,
    /// Calls with commands up to this number may have failed.
    tainted: u64,
    /// Calls to repeat alone.
    suspects: Vec<Flight>,
    /// Whether suspects are being repeated: no other call starts until that is done.
    alone: bool,
    /// The suspect that runs now: its start and its time limit.
    suspect: Option<(Instant, Duration)>,
    lost: bool,
    rest: Rest,
    /// Estimated number of callers when the last merged call ended.
    company: usize,
    /// Time since which a merged call has waited for further calls.
    waits_since: Option<Instant>,
    /// Time at which calls were last seen to have ended.
    settled: Option<Instant>,
    /// Time of the last merged call, from its submission to the notification of its end.
    merged_took: Duration,
}

/// A call in flight.
struct Flight {
    /// The number of its last command.
    last: u64,
    slot: Slot,
    /// `None`: no caller waits, only the slot is freed.
    load: Option<Load>,
    bytes: u64,
    pushed: Instant,
}

impl Flight {
    /// Whether it has exceeded its time limit on the device, counted from the end of the calls
    /// before it.
    fn is_late(&self, settled: Option<Instant>, now: Instant) -> bool {
        let allowed = self.load.as_ref().map(Load::allowed);
        let held = now.saturating_duration_since(self.since(settled));
        allowed.is_some_and(|allowed| held >= allowed)
    }

    /// Time since which it has been the next one; `settled`: the end of the calls before it.
    fn since(&self, settled: Option<Instant>) -> Instant {
        settled.map_or(self.pushed, |at| at.max(self.pushed))
    }

    fn callers(&self) -> usize {
        match &self.load {
            Some(Load::Many { waiters, .. }) => waiters.len(),
            Some(Load::One(_)) => 1,
            None => 0,
        }
    }
}

// A single call is the common case; boxing it would allocate for each call.
#[allow(clippy::large_enum_variant)]
enum Load {
    One(Pending),
    Many {
        merged: Box<Call>,
        calls: Vec<Call>,
        waiters: Vec<Waiter>,
    },
}

impl Load {
    fn call(&self) -> &Call {
        match self {
            Load::One(pending) => &pending.call,
            Load::Many { merged, .. } => merged,
        }
    }

    /// The time for which it may hold the device: the maximum of its callers' limits.
    fn allowed(&self) -> Duration {
        let allowed = match self {
            Load::One(pending) => Some(pending.waiter.allowed),
            Load::Many { waiters, .. } => waiters.iter().map(|w| w.allowed).max(),
        };
        allowed.unwrap_or_default()
    }

    /// The traces of its calls.
    fn traces(&self) -> Vec<Traced> {
        match self {
            Load::One(pending) => pending.waiter.traced.into_iter().collect(),
            Load::Many { waiters, .. } => waiters.iter().filter_map(|w| w.traced).collect(),
        }
    }

    fn pendings(self) -> Vec<Pending> {
        match self {
            Load::One(pending) => vec![pending],
            Load::Many { calls, waiters, .. } => {
                let pairs = calls.into_iter().zip(waiters);
                pairs
                    .map(|(call, waiter)| Pending { call, waiter })
                    .collect()
            }
        }
    }

    fn lose(self, started: bool, reason: &str) {
        for pending in self.pendings() {
            pending.lose(started, reason);
        }
    }

    fn fail(self, error: &CallError) {
        for pending in self.pendings() {
            pending.waiter.fail(error.clone());
        }
    }
}

/// The state of the lane's thread without a call in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    /// It checks for work.
    #[default]
    None,
    /// A merged call waits for further calls, up to its limit.
    ForCompany,
    /// It sleeps until it is woken.
    Sleep,
}

impl State {
    /// Whether the lane's thread has completions to handle or calls to run.
    fn has_work(&self) -> bool {
        !self.flights.is_empty() || (self.alone && self.filling == 0)
    }
}

impl Lane {
    /// A lane for a new queue; [`Lane::run`] serves it.
    pub fn new(
        program: &Arc<Program>,
        queue: Queue,
        implementation: usize,
        bounds: Bounds,
        backlog: &Arc<Backlog>,
        (stats, pace): (&Arc<Stats>, &Arc<Pace>),
    ) -> Lane {
        Lane {
            program: program.clone(),
            queue,
            implementation,
            bounds,
            backlog: backlog.clone(),
            stats: stats.clone(),
            pace: pace.clone(),
            state: Mutex::default(),
            called: Condvar::new(),
            room: AtomicBool::new(true),
            flying: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Whether it may accept another call. A thread that pushes to the backlog checks this
    /// afterwards (with a fence between), and a thread that makes room checks the backlog
    /// afterwards, so one of the two sees the other's change.
    pub fn has_room(&self) -> bool {
        self.room.load(Ordering::SeqCst)
    }

    /// Id of the lane's queue.
    pub fn queue_id(&self) -> Id {
        self.queue.id()
    }

    /// Number of calls in flight.
    pub fn flying(&self) -> usize {
        self.flying.load(Ordering::Relaxed)
    }

    /// The call that it runs, or that waits in the driver behind other queues' calls: the start and
    /// the time limit.
    pub fn running(&self) -> Option<(Instant, Duration)> {
        let state = self.lock();
        if state.suspect.is_some() {
            return state.suspect;
        }
        let flight = state.flights.front()?;
        let since = flight.since(state.settled);
        Some((since, flight.load.as_ref()?.allowed()))
    }

    /// Submits calls of the backlog while there is room.
    pub fn pump(&self) {
        self.submit_all();
        self.rouse();
    }

    /// Like [`Lane::pump`], for a thread that may then poll briefly for the end of the calls in
    /// flight. Polling saves two wake-ups: of the lane's thread and of the caller's.
    pub fn pump_and_poll(&self) {
        self.submit_all();
        let first = self.lock().flights.front().map(|flight| flight.last);
        if first.is_some_and(|last| self.queue.observe_briefly(last)) {
            self.settle();
        }
        self.rouse();
    }

    fn submit_all(&self) {
        let mut pushed = false;
        loop {
            let taken = self.take(&mut self.lock());
            let Some((slot, load)) = taken else {
                break;
            };
            pushed |= self.submit(slot, load);
        }
        if pushed {
            self.queue.flush();
        }
    }

    /// Wakes the lane's thread if it has work.
    fn rouse(&self) {
        let state = self.lock();
        let wanted = match state.rest {
            Rest::None => false,
            Rest::ForCompany => state.has_work(),
            Rest::Sleep => state.has_work() || state.waits_since.is_some(),
        };
        if wanted {
            self.called.notify_one();
        }
    }

    fn show(&self, state: &State) {
        let flying = state.flights.len() + state.filling;
        let merging = self.bounds.merge_max > 1;
        let depth = if merging {
            MERGED_DEPTH
        } else {
            self.pace.depth(self.bounds.slots)
        };
        let room = flying < depth
            && (flying == 0 || state.flying_bytes < self.bounds.flying_bytes_max)
            && !state.alone
            && !state.lost;
        self.flying.store(flying, Ordering::Relaxed);
        self.room.store(room, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Takes a free slot and one or more calls for it.
    fn take(&self, state: &mut State) -> Option<(Slot, Load)> {
        self.show(state);
        if !self.has_room() {
            return None;
        }
        let now = Instant::now();
        let most = self.bounds.merge_max;
        if most > 1 && self.backlog.len() < most {
            // While the device is busy, a merged call may wait until it is full.
            let busy = !state.flights.is_empty() || state.filling > 0;
            if busy || self.wants_company(state, now) {
                return None;
            }
        }
        state.waits_since = None;
        let first = state.next.take().and_then(|next| next.if_wanted(now));
        let first = first.or_else(|| self.backlog.pop(now))?;
        let load = match most {
            0 | 1 => Load::One(first),
            most => self.gather(state, first, most, now),
        };
        state.filling += 1;
        self.show(state);
        Some((state.free.pop().unwrap_or_default(), load))
    }

    /// Whether a merged call waits for the callers that were present when the last one ended.
    fn wants_company(&self, state: &mut State, now: Instant) -> bool {
        let here = self.backlog.len() + usize::from(state.next.is_some());
        if here == 0 || here >= state.company || self.bounds.merge_wait.is_zero() {
            return false;
        }
        let since = *state.waits_since.get_or_insert(now);
        now.saturating_duration_since(since) < self.patience(state)
    }

    /// Longest wait of a merged call for further calls.
    fn patience(&self, state: &State) -> Duration {
        if self.bounds.on_processors {
            self.bounds.merge_wait
        } else {
            self.bounds
                .merge_wait
                .min(state.merged_took / COMPANY_SHARE)
        }
    }

    fn gather(&self, state: &mut State, first: Pending, most: usize, now: Instant) -> Load {
        let mut calls = vec![first.call];
        let mut waiters = vec![first.waiter];
        // Use powers of two: drivers that compile a kernel for each work-group size then see few
        // sizes.
        let there = (self.backlog.len() + 1).min(most);
        let wanted = 1 << there.ilog2();
        while calls.len() < wanted {
            let Some(next) = self.backlog.pop(now) else {
                break;
            };
            if !calls[0].mergeable(&next.call) {
                state.next = Some(next);
                break;
            }
            calls.push(next.call);
            waiters.push(next.waiter);
        }
        if calls.len() > 1 {
            if let Some(merged) = Call::merge(&calls) {
                return Load::Many {
                    merged: Box::new(merged),
                    calls,
                    waiters,
                };
            }
        }
        // The merged call would exceed a limit: run the first call alone, and requeue the others
        // behind the waiting ones.
        let mut pairs = calls.into_iter().zip(waiters);
        let (call, waiter) = pairs.next().expect("a batch has at least one call");
        for (call, waiter) in pairs {
            self.backlog.push_back(Pending { call, waiter });
        }
        Load::One(Pending { call, waiter })
    }

    fn steps<'a>(&self, call: &'a Call) -> &'a [Step] {
        let launch = call.launches.get(self.implementation);
        launch.map_or(&[], |launch| &launch.steps)
    }

    fn fill(&self, slot: &mut Slot, call: &Call) -> Result<(), SlotError> {
        let launch = call.launches.get(self.implementation).ok_or_else(|| {
            let text = "the call was made for another version of the function";
            SlotError::Call(CallError::Failed(text.into()))
        })?;
        slot.prepare(&self.program, &launch.steps)?;
        slot.fill(&self.program, call, launch)
    }

    /// Copies the inputs and pushes the commands; `false` if there is nothing to flush.
    fn submit(&self, mut slot: Slot, load: Load) -> bool {
        let filled = self.fill(&mut slot, load.call());
        let mut state = self.lock();
        state.filling -= 1;
        let error = match filled {
            Ok(()) if state.lost => SlotError::Lost(Lost(0)),
            Ok(()) => {
                let before = self.queue.pushed();
                let call = load.call();
                let steps = self.steps(call);
                let pushed = slot
                    .trace(&self.program, &self.queue, call, steps, &load.traces())
                    .and_then(|()| slot.push(&self.program, &self.queue, call, steps));
                let (last, load, refused) = match pushed {
                    Ok(last) => (last, Some(load), None),
                    // The slot is free when the pushed commands are complete.
                    Err(lost) => (self.queue.pushed().max(before), None, Some((load, lost))),
                };
                let bytes = slot.bytes();
                state.flying_bytes += bytes;
                state.flights.push_back(Flight {
                    last,
                    slot,
                    load,
                    bytes,
                    pushed: Instant::now(),
                });
                self.show(&state);
                drop(state);
                if let Some((load, lost)) = refused {
                    load.lose(false, &text_of(lost.0));
                }
                return true;
            }
            Err(error) => error,
        };
        state.free.push(slot);
        self.show(&state);
        drop(state);
        match error {
            SlotError::Call(error) => load.fail(&error),
            SlotError::Lost(lost) => load.lose(false, &text_of(lost.0)),
        }
        false
    }

    /// Handles completions until the session ends.
    pub fn run(&self) {
        if !self.bounds.merge_wait.is_zero() {
            // The kernel's default timer slack is as long as this wait.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
        }
        loop {
            let goes_on = match self.rest() {
                Some(last) => self.queue.observe(last),
                None => !self.is_over(),
            };
            if !goes_on {
                return self.lose("the session ended");
            }
            self.settle();
            let suspects = {
                let mut state = self.lock();
                let still = state.flights.is_empty() && state.filling == 0;
                if state.alone && still {
                    std::mem::take(&mut state.suspects)
                } else {
                    continue;
                }
            };
            for flight in suspects {
                self.run_alone(flight);
            }
            let mut state = self.lock();
            state.alone = false;
            self.show(&state);
            drop(state);
            self.pump();
        }
    }

    fn is_over(&self) -> bool {
        self.program.client.is_lost().is_some()
    }

    /// Returns when the lane's thread has work; returns the last command's number of the first call
    /// in flight, if there is one.
    fn rest(&self) -> Option<u64> {
        let mut state = self.lock();
        while !state.has_work() && !self.is_over() {
            let (rest, time) = match state.waits_since {
                None => (Rest::Sleep, LOOK_EVERY),
                Some(since) => {
                    let left = self.patience(&state).saturating_sub(since.elapsed());
                    if left.is_zero() {
                        break;
                    }
                    (Rest::ForCompany, left)
                }
            };
            state.rest = rest;
            let woken = self.called.wait_timeout(state, time);
            state = woken.unpoisoned().0;
            state.rest = Rest::None;
        }
        state.flights.front().map(|flight| flight.last)
    }

    /// Replies to completed calls, and submits waiting ones.
    fn settle(&self) {
        let mut ended = Vec::new();
        let done = self.queue.completed();
        let failure = self.queue.failure();
        let mut state = self.lock();
        if failure.is_some() && failure != state.failure {
            state.failure = failure;
            state.tainted = self.queue.pushed();
        }
        while state.flights.front().is_some_and(|f| f.last <= done) {
            let flight = state.flights.pop_front().expect("checked above");
            state.flying_bytes -= flight.bytes;
            if flight.last <= state.tainted {
                state.alone = true;
                state.suspects.push(flight);
            } else {
                ended.push(flight);
            }
        }
        if let Some(first) = ended.first() {
            // The time limit counts from the end of the calls before it.
            let now = Instant::now();
            let began = state
                .settled
                .map_or(first.pushed, |at| at.max(first.pushed));
            let each = now.saturating_duration_since(began) / ended.len() as u32;
            self.pace.ran(nanoseconds(each));
            state.settled = Some(now);
        }
        if let Some(last) = ended.last().filter(|_| self.bounds.merge_max > 1) {
            state.company = last.callers() + self.backlog.len();
            state.merged_took = last.pushed.elapsed();
        }
        self.show(&state);
        drop(state);
        // Supply the device first, then reply to the callers.
        self.pump();
        let mut slots = Vec::with_capacity(ended.len());
        for flight in ended {
            if let Some(load) = flight.load {
                self.answer(load, &flight.slot, flight.pushed);
            }
            slots.push(flight.slot);
        }
        self.give_back(slots);
        self.pump();
    }

    fn give_back(&self, slots: Vec<Slot>) {
        let mut state = self.lock();
        let mut idle: u64 = state.free.iter().map(Slot::bytes).sum();
        for mut slot in slots {
            idle += slot.bytes();
            if idle > IDLE_BYTES_MAX {
                idle -= slot.bytes();
                slot.shrink(&self.program.client);
            }
            if state.free.len() < self.bounds.slots {
                state.free.push(slot);
            } else {
                slot.shrink(&self.program.client);
            }
        }
        self.show(&state);
    }

    fn answer(&self, load: Load, slot: &Slot, pushed: Instant) {
        let outputs = slot.outputs(load.call());
        let now = Instant::now();
        let timing = |waiter: &Waiter| Timing {
            queue_ns: nanoseconds(waiter.waited(pushed)),
            cold_ns: 0,
            device_ns: nanoseconds(now.saturating_duration_since(pushed)),
            pushed: Some(pushed),
        };
        self.stats.ran(match &load {
            Load::One(_) => 1,
            Load::Many { waiters, .. } => waiters.len(),
        });
        let done = |waiter: Waiter, outputs: Vec<Bytes>, batch: usize| {
            let timing = timing(&waiter);
            waiter.answer(Outcome::Done {
                outputs,
                batch: batch as u32,
                timing,
            });
        };
        match load {
            Load::One(pending) => done(pending.waiter, outputs, 1),
            Load::Many {
                merged, waiters, ..
            } => match merged.split(&outputs) {
                Some(parts) => {
                    let batch = waiters.len();
                    for (waiter, outputs) in waiters.into_iter().zip(parts) {
                        done(waiter, outputs, batch);
                    }
                }
                None => {
                    let error =
                        CallError::Failed("internal error: an output has the wrong size".into());
                    waiters.into_iter().for_each(|w| w.fail(error.clone()));
                }
            },
        }
    }

    /// Repeats a call that may have failed. The lane is empty.
    fn run_alone(&self, flight: Flight) {
        let Flight { mut slot, load, .. } = flight;
        for pending in load.map_or(Vec::new(), Load::pendings) {
            if let Err(pending) = self.try_alone(&mut slot, pending) {
                pending.lose(true, "the session ended");
            }
        }
        self.give_back(vec![slot]);
    }

    /// Returns `Err` if the session has ended.
    #[expect(clippy::result_large_err, reason = "the call itself is returned")]
    fn try_alone(&self, slot: &mut Slot, pending: Pending) -> Result<(), Pending> {
        let call = &pending.call;
        match self.fill(slot, call) {
            Ok(()) => {}
            Err(SlotError::Call(error)) => {
                pending.waiter.fail(error);
                return Ok(());
            }
            Err(SlotError::Lost(_)) => return Err(pending),
        }
        let before = self.queue.failure();
        let pushed = Instant::now();
        let Ok(last) = slot.push(&self.program, &self.queue, call, self.steps(call)) else {
            return Err(pending);
        };
        self.queue.flush();
        self.lock().suspect = Some((pushed, pending.waiter.allowed));
        let observed = self.queue.observe(last);
        let suspect = self.lock().suspect.take();
        if !observed {
            let late = suspect.is_some_and(|(since, allowed)| since.elapsed() >= allowed);
            if late {
                pending.waiter.overran(nanoseconds(pushed.elapsed()));
                return Ok(());
            }
            return Err(pending);
        }
        match self.queue.failure() {
            Some((_, DEVICE_NOT_AVAILABLE)) if super::is_over_soon(&self.program.client) => {
                return Err(pending);
            }
            Some((number, code)) if Some((number, code)) != before => {
                let name = self.steps(call).first().map_or("", |step| &step.kernel);
                let text = format!("running {name} failed: {}", text_of(code));
                self.lock().failure = Some((number, code));
                pending.waiter.fail(CallError::Failed(text));
            }
            _ => self.answer(Load::One(pending), slot, pushed),
        }
        Ok(())
    }

    /// Fails all calls in flight after the session has ended.
    fn lose(&self, reason: &str) {
        let mut state = self.lock();
        state.lost = true;
        // Such work would not end elsewhere either.
        let now = Instant::now();
        let settled = state.settled;
        let late = state
            .flights
            .front()
            .is_some_and(|f| f.is_late(settled, now));
        let late = late.then(|| state.flights.pop_front()).flatten();
        let flights: Vec<_> = state.flights.drain(..).collect();
        let suspects = std::mem::take(&mut state.suspects);
        let next = state.next.take();
        state.free.clear();
        self.show(&state);
        drop(state);
        if let Some(flight) = late {
            let held = nanoseconds(now.saturating_duration_since(flight.since(settled)));
            let pendings = flight.load.map_or(Vec::new(), Load::pendings);
            let each = held / (pendings.len().max(1) as u64);
            for pending in pendings {
                pending.waiter.overran(each);
            }
        }
        for load in flights.into_iter().chain(suspects).filter_map(|f| f.load) {
            load.lose(true, reason);
        }
        if let Some(next) = next {
            next.lose(false, reason);
        }
    }
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}
