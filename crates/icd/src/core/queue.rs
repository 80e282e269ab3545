//! `cl_command_queue`: enqueueing, and the host part of commands.
//!
//! A command may have a *host part* after its part on the device: a read's bytes are copied from
//! the staging block to the application's memory, a staging block is freed (see [`baltra_steps`]).
//! Before the library reports a command as complete to the application, it runs the steps up to
//! that command ([`Queue::settle`]); large ones are also run by the session's notice thread as soon
//! as possible, so that the copy overlaps with the application's work.

use crate::core::callback;
use crate::core::context::{Context, Member};
use crate::core::device::Device;
use crate::core::event::{Event, Held, Times, Waits};
use crate::core::lost;
use crate::core::memory::Memory;
use crate::core::object::{Class, Object, Ref};
use crate::core::pool::DeviceAssignment;
use crate::core::transfer::Target;
use baltra_opencl::*;
use baltra_ring::Locked;
use baltra_session::client::Queue as Channel;
use baltra_steps::{Step, Steps};
use baltra_wire::{Event as Slot, Operation};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum number of events in one command; those of a longer wait list are combined by markers.
const WAITS_MAX: usize = 4096;

/// The commands to be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A command of this number and, in order, those before it.
    Command(u64),
    /// All commands up to this number.
    UpTo(u64),
}

/// A command's access to a memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its contents matter and stay.
    Read,
    /// All of its contents are replaced.
    Write,
    /// Its contents matter and change.
    ReadWrite,
}

/// A memory object that a command uses.
#[derive(Clone, Copy)]
pub struct Use<'a> {
    /// The object.
    pub memory: &'a Object<Memory>,
    /// The access.
    pub access: Access,
}

/// The dependencies of a command of the queue, in addition to its own host part.
#[derive(Clone)]
enum Behind {
    /// An event with a host part.
    Event(Ref<Event>),
    /// Everything that the commands before it depend on: an out-of-order marker or barrier without
    /// a wait list.
    Earlier,
}

impl Behind {
    fn is(&self, other: &Behind) -> bool {
        match (self, other) {
            (Behind::Event(one), Behind::Event(other)) => Arc::ptr_eq(one, other),
            (Behind::Earlier, Behind::Earlier) => true,
            _ => false,
        }
    }
}

/// One `cl_command_queue`.
pub struct Queue {
    /// The queue's end in the session, released before the context.
    pub channel: Channel,
    /// The context.
    pub context: Ref<Context>,
    /// The device.
    pub device: Ref<Device>,
    /// The member that has its session; on a pool it is one of several.
    pub member: usize,
    /// On a pool, what counts it as one of that member's.
    _assignment: Option<DeviceAssignment>,
    /// `cl_command_queue_properties`
    pub properties: u64,
    /// `CL_QUEUE_PROPERTIES_ARRAY`
    pub property_list: Vec<u64>,
    steps: Steps<Held>,
    /// Events of other queues with a host part, which commands of this queue have waited for.
    behind: Mutex<Vec<(u64, Behind)>>,
    behind_count: AtomicUsize,
    /// Number of the last barrier.
    barrier: AtomicU64,
    /// Bytes in staging blocks of its transfers.
    pub staged: Arc<AtomicUsize>,
    /// The command that a transfer has waited for without success to get a staging block.
    pub stalled: AtomicU64,
}

impl Class for Queue {
    type Raw = _cl_command_queue;
    const TAG: u32 = 0xba17_0004;
    const INVALID: i32 = CL_INVALID_COMMAND_QUEUE;
}

impl Queue {
    /// `clCreateCommandQueue…`, its arguments checked.
    pub fn create(
        context: Ref<Context>,
        device: Ref<Device>,
        properties: u64,
        property_list: Vec<u64>,
    ) -> Result<Ref<Queue>, i32> {
        let mut place = device.pool().and_then(|pool| pool.place(&context, &device));
        let member = match &place {
            Some((member, _)) => *member,
            None => context
                .members_of(&device)
                .next()
                .ok_or(CL_INVALID_DEVICE)?,
        };
        let here = &context.members[member];
        let channel = here
            .client
            .open_queue(here.id, device.id, properties)
            .map_err(lost)?;
        Ok(Object::new(Queue {
            context,
            device,
            member,
            _assignment: place.take().map(|(_, assignment)| assignment),
            channel,
            properties,
            property_list,
            steps: Steps::new(in_order(properties)),
            behind: Mutex::default(),
            behind_count: AtomicUsize::new(0),
            barrier: AtomicU64::new(0),
            staged: Arc::default(),
            stalled: AtomicU64::new(0),
        }))
    }

    /// Its member of the context.
    pub fn here(&self) -> &Member {
        &self.context.members[self.member]
    }

    /// Whether commands run one after the other.
    pub fn in_order(&self) -> bool {
        in_order(self.properties)
    }

    /// Whether events have times.
    pub fn profiles(&self) -> bool {
        self.properties & CL_QUEUE_PROFILING_ENABLE as u64 != 0
    }

    /// Whether anything is left to do on this side.
    pub fn has_local(&self) -> bool {
        !self.steps.is_empty() || self.behind_count.load(Ordering::Acquire) != 0
    }

    /// Whether no command is outstanding, so that work of the library itself keeps the queue's
    /// order.
    pub fn is_idle(&self) -> bool {
        let pushed = self.channel.pushed();
        let idle = self.channel.completed() >= pushed;
        if idle {
            self.settle(Reach::UpTo(pushed));
        }
        idle
    }

    /// Whether a command with this wait list, which the library carries out, may begin: in order no
    /// command is outstanding, out of order neither a barrier nor an event of the list.
    pub fn may_begin(&self, waits: &Waits<'_>) -> Result<bool, i32> {
        let follows_nothing = if self.in_order() {
            self.is_idle()
        } else {
            self.channel.completed() >= self.barrier.load(Ordering::Acquire)
        };
        Ok(follows_nothing && (waits.is_empty() || waits.are_complete()?))
    }

    /// Whether all commands, present and next, end without an action of the application.
    pub fn runs_by_itself(&self) -> bool {
        self.context.user_events.load(Ordering::Acquire) == 0
    }

    /// Runs the host part of commands that are complete on the device.
    pub fn settle(&self, reach: Reach) {
        if !self.has_local() {
            return;
        }
        if self.behind_count.load(Ordering::Acquire) != 0 {
            self.settle_others(reach);
        }
        let (Reach::Command(number) | Reach::UpTo(number)) = reach;
        self.run_steps(number);
    }

    /// Settles commands of other queues that these commands have waited for.
    fn settle_others(&self, reach: Reach) {
        let behind = self.behind.locked();
        let is_alone = |number: u64| {
            let gathers = |b: &(u64, Behind)| b.0 == number && matches!(b.1, Behind::Earlier);
            !self.in_order() && !behind.iter().any(gathers)
        };
        // Only strictly earlier commands, otherwise the search would not end.
        let (first, last) = match reach {
            Reach::Command(number) if is_alone(number) => (number, number),
            Reach::Command(number) | Reach::UpTo(number) => (0, number),
        };
        let reached = |b: &&(u64, Behind)| (first..=last).contains(&b.0);
        let before: Vec<_> = behind.iter().filter(reached).cloned().collect();
        drop(behind);
        // Not under the lock: that queue may be waiting for an event of this one.
        for (_, behind) in &before {
            if let Behind::Event(event) = behind {
                event.wait();
            }
        }
        let mut behind = self.behind.locked();
        let waited = |b: &(u64, Behind)| before.iter().any(|w| w.0 == b.0 && w.1.is(&b.1));
        behind.retain(|b| !waited(b));
        self.behind_count.store(behind.len(), Ordering::Release);
    }

    /// Runs the steps whose commands are complete on the device: [`Steps::run`].
    pub fn run_steps(&self, number: u64) {
        self.steps.run(number);
    }

    /// Runs the steps whose commands are complete, without waiting.
    pub fn run_finished_steps(&self) {
        self.steps.run(0);
    }

    /// Number of the first command with a step.
    pub fn first_step(&self) -> Option<u64> {
        self.steps.first()
    }

    /// Polls for at most `limit` until the first `number` commands are complete.
    pub fn completes_within(&self, number: u64, limit: Duration) -> bool {
        let begun = Instant::now();
        while self.channel.completed() < number {
            if begun.elapsed() >= limit {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// `clFinish`: the error is that of a command without an event, or of the session.
    pub fn finish(&self) -> Result<(), i32> {
        let number = self.channel.pushed();
        let result = self.channel.wait(number);
        self.settle(Reach::UpTo(number));
        result
    }

    /// The application has released the queue: a thread runs the remaining steps when they are due,
    /// because the steps' events keep the queue alive.
    pub fn abandon(queue: Ref<Queue>) {
        queue.channel.flush();
        if queue.has_local() {
            // Without a thread, the steps run when an event's status is queried.
            let name = std::thread::Builder::new().name("baltra-settle".into());
            let _ = name.spawn(move || queue.drain());
        }
    }

    /// Waits until everything enqueued so far is complete, successful or not; an error only if the
    /// session is lost.
    pub fn drain(&self) -> Result<(), i32> {
        let _ = self.finish();
        match self.here().client.is_lost() {
            Some(code) => Err(code),
            None => Ok(()),
        }
    }
}

/// The result of [`Object::submit`].
pub struct Submitted {
    /// Its event, which keeps its slot; `None` if it is not needed.
    pub event: Option<Ref<Event>>,
    /// Its number in the queue.
    pub number: u64,
}

/// A command on its way into the queue.
pub struct Submission<'a, 'w> {
    /// `CL_COMMAND_…`
    pub command: i32,
    /// Its wait list.
    pub waits: &'a Waits<'w>,
    /// More slots of this session that it waits for.
    pub more: &'a [Slot],
    /// Destination of the application's event; may be null.
    pub event_ret: *mut cl_event,
    /// The host part that follows.
    pub step: Option<Step>,
    /// The application's memory that the step writes.
    pub target: Option<Target>,
    /// Its time, if this side carries it out.
    pub times: Option<Arc<Times>>,
}

impl Object<Queue> {
    /// Enqueues a command that is the executor's alone.
    pub fn enqueue(
        &self,
        command: i32,
        waits: &Waits<'_>,
        event_ret: *mut cl_event,
        uses: &[Use<'_>],
        operation: &Operation<'_>,
    ) -> Result<(), i32> {
        let submission = Submission {
            command,
            waits,
            more: &[],
            event_ret,
            step: None,
            target: None,
            times: None,
        };
        self.submit(submission, uses, operation).map(drop)
    }

    /// Enqueues a command that does nothing. Out of order, a marker with an empty list would wait for
    /// all commands before it.
    pub fn enqueue_nothing(
        &self,
        command: i32,
        waits: &Waits<'_>,
        event_ret: *mut cl_event,
        uses: &[Use<'_>],
    ) -> Result<(), i32> {
        if self.may_begin(waits)? {
            self.complete(command, event_ret, crate::core::event::monotonic_ns());
            return Ok(());
        }
        self.enqueue(command, waits, event_ret, uses, &Operation::Marker)
    }

    /// Enqueues a command.
    pub fn submit(
        &self,
        submission: Submission<'_, '_>,
        uses: &[Use<'_>],
        operation: &Operation<'_>,
    ) -> Result<Submitted, i32> {
        let Submission {
            command,
            waits,
            more,
            event_ret,
            step,
            target,
            times,
        } = submission;
        let mut slots = if waits.is_empty() {
            Vec::new()
        } else {
            waits.slots(self.member)?
        };
        slots.extend_from_slice(more);
        let mut markers = Vec::new();
        while slots.len() > WAITS_MAX {
            // The marker's event is one of those that are left.
            let first = slots.drain(..WAITS_MAX).collect::<Vec<_>>();
            let marker = self.marker(&first)?;
            slots.push(marker.slot);
            markers.push(marker);
        }
        // Their slots are needed until the command has been carried out.
        let step = if markers.is_empty() {
            step
        } else {
            Some(Box::new(move |ok: bool| {
                if let Some(step) = step {
                    step(ok);
                }
                drop(markers);
            }) as Step)
        };
        let shared = self.context.members.len() > 1 && !uses.is_empty();
        if shared {
            crate::core::replica::prepare(self, uses, &mut slots)?;
        }
        let wanted = !event_ret.is_null();
        let with_event = wanted || step.is_some() || shared;
        let slot = if with_event {
            self.here().new_event()?
        } else {
            0
        };
        let number = match self.channel.push(slot, &slots, operation) {
            Ok(number) => number,
            Err(error) => {
                if slot != 0 {
                    self.here().client.events().free(slot);
                }
                return Err(lost(error));
            }
        };
        if matches!(operation, Operation::Barrier) {
            self.barrier.fetch_max(number, Ordering::AcqRel);
        }
        let event = with_event.then(|| Event::of_command(self, command, slot, number, times));
        if let (Some(run), Some(event)) = (step, &event) {
            if let Some(target) = target {
                // Before the step can be run, which takes it out again.
                self.context.reads.add(target, event.clone());
            }
            self.steps.keep(number, Held(event.clone()), run);
        }
        if !waits.is_empty() {
            let events = waits.with_local_part(self).into_iter();
            self.come_behind(number, events.map(Behind::Event).collect());
        } else if !self.in_order() && self.behind_count.load(Ordering::Acquire) != 0 {
            // A marker or barrier depends on everything that the commands before it depend on.
            if matches!(operation, Operation::Marker | Operation::Barrier) {
                self.come_behind(number, vec![Behind::Earlier]);
            }
        }
        if let Some(event) = &event {
            if shared {
                crate::core::replica::used(self, uses, event);
            }
            if wanted {
                // SAFETY: not null, and the application's place for an event, as its caller
                // has promised to the entry point.
                unsafe { event_ret.write(event.give()) };
            }
        }
        Ok(Submitted { event, number })
    }

    /// Enqueues a marker that waits for these.
    fn marker(&self, slots: &[Slot]) -> Result<Ref<Event>, i32> {
        let slot = self.here().new_event()?;
        let number = self.channel.push(slot, slots, &Operation::Marker);
        let number = number.map_err(|error| {
            self.here().client.events().free(slot);
            lost(error)
        })?;
        Ok(Event::of_command(
            self,
            CL_COMMAND_MARKER,
            slot,
            number,
            None,
        ))
    }

    fn come_behind(&self, number: u64, commands: Vec<Behind>) {
        if commands.is_empty() {
            return;
        }
        let mut behind = self.behind.locked();
        behind.extend(commands.into_iter().map(|command| (number, command)));
        self.behind_count.store(behind.len(), Ordering::Release);
    }

    /// Returns an event to the application for a command that the library itself has carried out
    /// since `started_ns` (`CLOCK_MONOTONIC`).
    pub fn complete(&self, command: i32, event_ret: *mut cl_event, started_ns: u64) {
        if event_ret.is_null() {
            return;
        }
        let mut times = [0; 4];
        if self.profiles() {
            let ended = crate::core::event::monotonic_ns();
            times = [
                started_ns,
                started_ns,
                started_ns,
                ended.max(started_ns + 1),
            ]
            .map(|ns| self.device_ns(ns));
        }
        let event = Event::complete(self, command, times);
        // SAFETY: as in `submit`.
        unsafe { event_ret.write(event.give()) };
    }

    /// A time of `CLOCK_MONOTONIC` by the device's clock.
    pub fn device_ns(&self, ns: u64) -> u64 {
        ns.wrapping_add_signed(self.device.clock_offset_ns())
    }

    /// Times that the member's session has reported, by the device's clock; 0: not known.
    pub fn by_device_clock(&self, times_ns: [u64; 4]) -> [u64; 4] {
        let from = self.here().device.clock_offset_ns();
        let shift = self.device.clock_offset_ns().wrapping_sub(from);
        times_ns.map(|ns| match ns {
            0 => 0,
            ns => ns.wrapping_add_signed(shift),
        })
    }

    /// Makes the notice thread run the steps up to a command when it is complete.
    pub fn settle_by_itself(&self, submitted: &Submitted) {
        let Some(event) = submitted.event.clone() else {
            return;
        };
        let queue = self.share();
        let (number, kept) = (submitted.number, event.clone());
        let then = move |_| {
            // The steps only: nothing here may wait for work of this thread.
            queue.run_steps(number);
            callback::run(move || drop((kept, queue)));
        };
        // A lost session completes everything, and a query of the event's status runs the step.
        let _ = event.then(Box::new(then));
    }
}

fn in_order(properties: u64) -> bool {
    properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE as u64 == 0
}
