//! `cl_event`: the status that the application sees.
//!
//! Most events are a slot of the session's event table, which the executor writes. An event may
//! also be complete from the beginning (the library did the work itself), or be the application's
//! own. If a command has a host part (a read whose bytes are still in the staging block), the event
//! becomes complete for the application only when that part has been run; a thread that queries the
//! status runs it first (see [`crate::core::queue`]).

use crate::core::callback;
use crate::core::context::Context;
use crate::core::lost;
use crate::core::object::{Class, Object, Ref};
use crate::core::queue::{Queue, Reach};
use baltra_opencl::*;
use baltra_ring::{Locked, Unpoisoned};
use baltra_steps::DevicePart;
use baltra_wire::{Control, Event as Slot, Reply, Request};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// `Event::known` while the status is not final.
const OPEN: i32 = i32::MAX;
/// Value of `Event::queried_ns` once the driver has reported that the command runs.
const RUNS: u64 = u64::MAX;
/// Minimum interval between queries of the driver for a polling application, nanoseconds.
const QUERY_EVERY_NS: u64 = 100_000;

type Job = Box<dyn FnOnce(i32) + Send>;

/// One `cl_event`.
pub struct Event {
    /// The context.
    pub context: Ref<Context>,
    /// The queue; `None` for the application's own events.
    pub queue: Option<Ref<Queue>>,
    /// `CL_COMMAND_…`
    pub command: i32,
    /// The member whose session has `slot`.
    pub member: usize,
    /// The slot; 0: born complete.
    pub slot: Slot,
    /// The command's number in its queue.
    number: u64,
    /// The final status, once known.
    known: AtomicI32,
    /// Time of the last query of the driver for the command's state; [`RUNS`]: it runs.
    queried_ns: AtomicU64,
    /// Of an event that was born complete.
    times_ns: [u64; 4],
    /// Time at which this side carried out the command; `None`: the executor does.
    times: Option<Arc<Times>>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// Time at which this side carried out a command, by the device's clock; 0: not yet.
#[derive(Default)]
pub struct Times {
    /// The beginning.
    pub began_ns: AtomicU64,
    /// The end.
    pub ended_ns: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    /// The application's own events: what to do when the status is set.
    jobs: Vec<Job>,
    /// Slots of other sessions that stand for this event there.
    proxies: Vec<(usize, Slot)>,
}

impl Class for Event {
    type Raw = _cl_event;
    const TAG: u32 = 0xba17_0006;
    const INVALID: i32 = CL_INVALID_EVENT;
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Event {
    /// The event of a command that has been pushed.
    pub fn of_command(
        queue: &Object<Queue>,
        command: i32,
        slot: Slot,
        number: u64,
        times: Option<Arc<Times>>,
    ) -> Ref<Event> {
        let mut event = Event::new(queue, command, OPEN);
        event.slot = slot;
        event.number = number;
        event.times = times;
        Object::new(event)
    }

    /// The event of a command that is complete already.
    pub fn complete(queue: &Object<Queue>, command: i32, times_ns: [u64; 4]) -> Ref<Event> {
        let mut event = Event::new(queue, command, CL_COMPLETE);
        event.times_ns = times_ns;
        Object::new(event)
    }

    fn new(queue: &Object<Queue>, command: i32, known: i32) -> Event {
        Event {
            context: queue.context.clone(),
            queue: Some(queue.share()),
            command,
            member: queue.member,
            slot: 0,
            number: 0,
            known: AtomicI32::new(known),
            queried_ns: AtomicU64::new(0),
            times_ns: [0; 4],
            times: None,
            waiting: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// `clCreateUserEvent`.
    pub fn user(context: &Object<Context>) -> Result<Ref<Event>, i32> {
        let home = context.home();
        let slot = context.members[home].new_event()?;
        context.user_events.fetch_add(1, Ordering::AcqRel);
        Ok(Object::new(Event {
            slot,
            context: context.share(),
            queue: None,
            command: CL_COMMAND_USER,
            member: home,
            number: 0,
            known: AtomicI32::new(OPEN),
            times_ns: [0; 4],
            queried_ns: AtomicU64::new(0),
            times: None,
            waiting: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    fn is_user(&self) -> bool {
        self.queue.is_none()
    }

    /// The status reported by the executor (or the application), before the host part.
    pub fn slot_status(&self) -> i32 {
        match self.known.load(Ordering::Acquire) {
            OPEN if self.is_user() => {
                let client = &self.context.members[self.member].client;
                client.is_lost().unwrap_or(CL_SUBMITTED)
            }
            OPEN => self.client_status(),
            known => known,
        }
    }

    fn client_status(&self) -> i32 {
        let client = &self.context.members[self.member].client;
        client.events().status(self.slot)
    }

    /// `CL_EVENT_COMMAND_EXECUTION_STATUS`.
    pub fn status(&self) -> i32 {
        match self.known.load(Ordering::Acquire) {
            OPEN => match self.slot_status() {
                status if status > 0 => status,
                status => self.settle(status),
            },
            known => known,
        }
    }

    /// As [`Event::status`], for an application that may poll for `CL_RUNNING`, which the executor
    /// writes only on request: otherwise every command would need a callback from the driver.
    pub fn observe(&self) -> i32 {
        let status = self.status();
        let client = &self.context.members[self.member].client;
        if status != CL_SUBMITTED || self.is_user() || !client.is_recent() {
            return status;
        }
        let now = monotonic_ns();
        match self.queried_ns.load(Ordering::Relaxed) {
            RUNS => return CL_RUNNING,
            queried if now < queried.saturating_add(QUERY_EVERY_NS) => return status,
            _ => self.queried_ns.store(now, Ordering::Relaxed),
        }
        match client.call(Request::EventStatus(self.slot)) {
            Ok(Reply::Count(n)) if n as i32 == CL_RUNNING => {
                self.queried_ns.store(RUNS, Ordering::Relaxed);
                // It may be complete by now.
                self.status().min(CL_RUNNING)
            }
            _ => self.status(),
        }
    }

    /// As [`Event::status`], but complete as soon as the driver reports it. The executor's report is
    /// still on its way if its thread for the queue is behind those of others; a command of
    /// another queue that has waited for this one may be seen to be complete before.
    pub fn status_by_driver(&self) -> i32 {
        let status = self.status();
        let client = &self.context.members[self.member].client;
        if status <= 0 || self.is_user() || !client.is_recent() {
            return status;
        }
        match client.call(Request::EventStatus(self.slot)) {
            // The report follows without any further command.
            Ok(Reply::Count(n)) if n as i32 == CL_COMPLETE => self.wait(),
            _ => self.status(),
        }
    }

    /// Runs the host part of a command that is complete on the device.
    fn settle(&self, status: i32) -> i32 {
        if let Some(queue) = &self.queue {
            queue.settle(Reach::Command(self.number));
            self.known.store(status, Ordering::Release);
        }
        status
    }

    /// Blocks until the event is complete or failed; returns its status.
    pub fn wait(&self) -> i32 {
        if self.is_user() {
            let mut waiting = self.waiting.locked();
            loop {
                let status = self.slot_status();
                if status <= 0 {
                    return status;
                }
                // Woken by the application's call; the timeout is for a session that is lost.
                let timeout = std::time::Duration::from_millis(100);
                let woken = self.changed.wait_timeout(waiting, timeout);
                waiting = woken.unpoisoned().0;
            }
        }
        let client = &self.context.members[self.member].client;
        let status = self.status();
        if status <= 0 {
            client.wait_for_prints();
            return status;
        }
        let status = client.wait_event(self.slot);
        self.settle(status)
    }

    /// Sees to it that the command is going to be executed.
    pub fn flush(&self) {
        if let Some(queue) = &self.queue {
            if self.known.load(Ordering::Relaxed) == OPEN {
                queue.channel.flush();
            }
        }
    }

    /// `clSetUserEventStatus`.
    pub fn set_user(&self, status: i32) -> Result<(), i32> {
        // CL_INVALID_EVENT if event is not a valid user event object.
        if !self.is_user() {
            return Err(CL_INVALID_EVENT);
        }
        // CL_INVALID_OPERATION if the execution_status for event has already been changed by a
        // previous call to clSetUserEventStatus.
        self.known
            .compare_exchange(OPEN, status, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|_| CL_INVALID_OPERATION)?;
        self.context.user_events.fetch_sub(1, Ordering::AcqRel);
        let (jobs, proxies) = {
            let mut waiting = self.waiting.locked();
            let jobs = std::mem::take(&mut waiting.jobs);
            (jobs, waiting.proxies.clone())
        };
        self.changed.notify_all();
        for (member, slot) in [(self.member, self.slot)].into_iter().chain(proxies) {
            set_slot(&self.context, member, slot, status);
        }
        for job in jobs {
            job(status);
        }
        Ok(())
    }

    /// The slot that represents this event in a member's session; `None`: it is complete, and need
    /// not be waited for.
    pub fn slot_in(&self, member: usize) -> Result<Option<Slot>, i32> {
        if self.slot_status() == CL_COMPLETE {
            return Ok(None);
        }
        if member == self.member {
            return Ok(Some(self.slot));
        }
        let mut waiting = self.waiting.locked();
        if let Some(&(_, slot)) = waiting.proxies.iter().find(|p| p.0 == member) {
            return Ok(Some(slot));
        }
        let slot = self.context.members[member].new_event()?;
        waiting.proxies.push((member, slot));
        drop(waiting);
        if self.is_user() {
            let status = self.known.load(Ordering::Acquire);
            if status != OPEN {
                // Set meanwhile, perhaps without having seen the new proxy.
                set_slot(&self.context, member, slot, status);
            }
            return Ok(Some(slot));
        }
        let context = self.context.clone();
        let then = move |status| set_slot(&context, member, slot, status);
        self.then(Box::new(then))?;
        Ok(Some(slot))
    }

    /// Runs `job` when the command is complete on the device: on the session's notice thread, or
    /// immediately.
    pub fn then(&self, job: Job) -> Result<(), i32> {
        if self.is_user() {
            let mut waiting = self.waiting.locked();
            let status = self.slot_status();
            if status > 0 {
                waiting.jobs.push(job);
                return Ok(());
            }
            drop(waiting);
            job(status);
            return Ok(());
        }
        let status = self.slot_status();
        if status <= 0 {
            job(status);
            return Ok(());
        }
        let client = &self.context.members[self.member].client;
        let then = move |done: baltra_wire::Completion| job(done.status);
        client.watch(self.slot, Box::new(then)).map_err(lost)
    }

    /// Runs the command's step, if it is complete on the device and has one. Waits for nothing
    /// else.
    pub fn run_step(&self) {
        if let Some(queue) = &self.queue {
            queue.run_steps(self.number);
        }
    }

    /// Nanoseconds of queued, submitted, started and ended.
    pub fn times_ns(&self) -> [u64; 4] {
        if self.slot == 0 {
            return self.times_ns;
        }
        let client = &self.context.members[self.member].client;
        let mut times = client.events().times(self.slot);
        if let Some(queue) = &self.queue {
            times = queue.by_device_clock(times);
        }
        if let Some(own) = &self.times {
            let load = |ns: &AtomicU64| ns.load(Ordering::Acquire);
            let (began, ended) = (load(&own.began_ns), load(&own.ended_ns));
            // The executor has only observed the end of the command.
            times[0] = times[0].min(began);
            times[1] = times[1].min(began);
            times[2] = began;
            times[3] = ended.max(began + 1);
        }
        times
    }
}

impl Object<Event> {
    /// `clSetEventCallback`: runs `job` on the callback thread once the status is at most
    /// `when`, with `when` or the error.
    pub fn on(&self, when: i32, job: Job) -> Result<(), i32> {
        let event = self.share();
        let fire = move |_| {
            callback::run(move || {
                // For the application the event is complete only after the host part.
                let status = event.wait();
                job(if status < 0 { status } else { when });
            })
        };
        if when > CL_COMPLETE && self.status() <= when {
            fire(0);
            return Ok(());
        }
        self.then(Box::new(fire))
    }
}

/// An event held for its command's step.
#[derive(Clone)]
pub struct Held(pub Ref<Event>);

impl DevicePart for Held {
    fn status(&self) -> i32 {
        self.0.slot_status()
    }

    fn wait(&self) -> i32 {
        // Without waiting for prints: the thread that delivers them may have to run steps.
        let Held(event) = self;
        let client = &event.context.members[event.member].client;
        client.wait_event_alone(event.slot)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.is_user() && *self.known.get_mut() == OPEN {
            self.context.user_events.fetch_sub(1, Ordering::AcqRel);
        }
        let proxies = std::mem::take(&mut self.waiting.get_mut().expect("no panic").proxies);
        for (member, slot) in [(self.member, self.slot)].into_iter().chain(proxies) {
            self.context.members[member].free_event(slot);
        }
    }
}

/// Completes a slot that represents an event of this side, here and at the executor.
pub fn set_slot(context: &Context, member: usize, slot: Slot, status: i32) {
    let client = &context.members[member].client;
    client.events().set(slot, status, [monotonic_ns(); 4]);
    // A lost session needs no notification.
    let _ = client.control(&Control::UserEvent {
        event: slot,
        status,
    });
}

/// An event wait list, checked.
#[derive(Default)]
pub struct Waits<'a> {
    events: Vec<&'a Object<Event>>,
}

impl<'a> Waits<'a> {
    /// Appends an event.
    pub fn push(&mut self, event: &'a Object<Event>) {
        self.events.push(event);
    }

    /// No events at all.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The events.
    pub fn iter(&self) -> impl Iterator<Item = &'a Object<Event>> + '_ {
        self.events.iter().copied()
    }

    /// Whether all are complete; an error where one has failed.
    pub fn are_complete(&self) -> Result<bool, i32> {
        let mut complete = true;
        for event in &self.events {
            match event.status() {
                status if status < 0 => return Err(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
                CL_COMPLETE => {}
                _ => complete = false,
            }
        }
        Ok(complete)
    }

    /// Flushes their queues and blocks until all are complete; an error if one has failed.
    pub fn wait(&self) -> Result<(), i32> {
        for event in &self.events {
            event.flush();
        }
        let mut result = Ok(());
        for event in &self.events {
            if event.wait() < 0 {
                result = Err(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
            }
        }
        result
    }

    /// The slots to send with a command to a member's session.
    pub fn slots(&self, member: usize) -> Result<Vec<Slot>, i32> {
        let mut slots = Vec::new();
        for event in &self.events {
            slots.extend(event.slot_in(member)?);
        }
        Ok(slots)
    }

    /// Events whose commands have a host part that has not been run yet. (An in-order queue tracks
    /// its own.)
    pub fn with_local_part(&self, for_queue: &Queue) -> Vec<Ref<Event>> {
        let minded = |q: &Ref<Queue>| std::ptr::eq::<Queue>(&***q, for_queue) && q.in_order();
        let open = self.events.iter().filter(|event| {
            let queue = event.queue.as_ref().filter(|q| !minded(q));
            event.known.load(Ordering::Relaxed) == OPEN && queue.is_some_and(|q| q.has_local())
        });
        open.map(|event| event.share()).collect()
    }
}
