//! Transfers between the application's memory and the device: the common part of reads and writes.
//!
//! Where the device works in host memory and no command is outstanding, a transfer is an immediate
//! copy. Otherwise bytes go through a *staging block* of the session: a write fills it when it is
//! enqueued, a read empties it in its host part (see [`crate::core::queue`]). Large transfers use
//! other ways ([`crate::core::linear`]).

use crate::core::callback;
use crate::core::event::{monotonic_ns, set_slot, Event, Times, Waits};
use crate::core::lost;
use crate::core::memory::Memory;
use crate::core::object::{Object, Ref};
use crate::core::queue::{Queue, Reach, Submission, Submitted, Use};
use crate::core::{pieces, replica, workers};
use baltra_opencl::*;
use baltra_ring::Locked;
use baltra_session::client::Block;
use baltra_steps::Step;
use baltra_wire::{Event as Slot, Operation, Payload};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Staging blocks of reads from this size are also emptied by the notice thread.
const EAGER_BYTES: usize = 64 << 10;
/// Maximum bytes of a queue in staging blocks before the next transfer waits for a block: a few
/// blocks serve all transfers; each new one would have to be populated and pinned first.
const STAGED_BYTES_MAX: usize = 6 << 20;
/// Maximum time of that wait: far longer than a transfer takes on an idle device. Enqueueing does
/// not block longer, and only once while no command completes.
const ROOM_WAIT_MAX: Duration = Duration::from_millis(10);
/// Transfers from this size on are flushed when they are enqueued.
pub const FLUSHED_BYTES: usize = 256 << 10;

/// A staging block, counted in [`Queue::staged`] while it is in use.
struct Staged {
    block: Arc<Block>,
    count: Arc<AtomicUsize>,
}

impl Staged {
    fn new(block: &Arc<Block>, queue: &Queue) -> Staged {
        queue.staged.fetch_add(block.len(), Ordering::Relaxed);
        Staged {
            block: block.clone(),
            count: queue.staged.clone(),
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.count.fetch_sub(self.block.len(), Ordering::Relaxed);
    }
}

/// A range of the application's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte's address.
    pub start: usize,
    /// Bytes.
    pub len: usize,
}

impl Span {
    /// `len` bytes at `pointer`.
    pub fn new<T>(pointer: *const T, len: usize) -> Span {
        Span {
            start: pointer as usize,
            len,
        }
    }

    /// No memory at all.
    pub const NONE: Span = Span { start: 0, len: 0 };

    fn overlaps(self, other: Span) -> bool {
        self.start < other.start + other.len && other.start < self.start + self.len
    }
}

/// Outstanding staged reads, which will write into the application's memory. A write from a range
/// that they will write to (a non-blocking read, then a write from the same memory) must not copy
/// earlier.
#[derive(Default)]
pub struct PendingReads {
    next: AtomicU64,
    count: AtomicUsize,
    reads: Mutex<Vec<(Target, Ref<Event>)>>,
}

/// Target range of such a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    read: u64,
    span: Span,
}

impl PendingReads {
    /// The target of a new read.
    pub fn target(&self, span: Span) -> Target {
        Target {
            read: self.next.fetch_add(1, Ordering::Relaxed),
            span,
        }
    }

    /// The read is on its way.
    pub fn add(&self, target: Target, event: Ref<Event>) {
        let mut reads = self.reads.locked();
        reads.push((target, event));
        self.count.store(reads.len(), Ordering::Release);
    }

    /// The read has written its target.
    fn remove(&self, target: Target) {
        let mut reads = self.reads.locked();
        let at = reads.iter().position(|read| read.0 == target);
        let read = at.map(|at| reads.remove(at));
        self.count.store(reads.len(), Ordering::Release);
        drop(reads);
        drop(read);
    }

    /// The event of the newest read that writes into `source`.
    pub fn newest(&self, source: Span) -> Option<Ref<Event>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let reads = self.reads.locked();
        let mut newest = reads.iter().rev();
        let read = newest.find(|read| read.0.span.overlaps(source));
        read.map(|read| read.1.clone())
    }
}

/// Runs `then` when a read is complete: on a session's notice thread, or immediately.
fn behind(read: Ref<Event>, then: impl FnOnce() + Send + 'static) -> Result<(), i32> {
    let kept = read.clone();
    let over = move |_| {
        kept.run_step();
        then();
        callback::run(move || drop(kept));
    };
    read.then(Box::new(over))
}

/// The work of a command that this side carries out: returns its status.
pub type Job = Box<dyn FnOnce() -> i32 + Send>;

/// The way to run a command that this side carries out ([`Transfer::between`]).
pub struct Begin {
    /// The application's memory that it writes.
    pub target: Span,
    /// A read that has to be over first.
    pub after: Option<Ref<Event>>,
    /// On a separate thread, for long jobs; otherwise on the session's notice thread.
    pub apart: bool,
    /// The work.
    pub job: Job,
}

/// One transfer on its way into a queue.
#[derive(Clone, Copy)]
pub struct Transfer<'a> {
    /// The queue.
    pub queue: &'a Object<Queue>,
    /// `CL_COMMAND_…`
    pub command: i32,
    /// Its wait list.
    pub waits: &'a Waits<'a>,
    /// Destination of the application's event; may be null.
    pub event_ret: *mut cl_event,
    /// Whether the call returns only when the application may use its memory again.
    pub blocking: bool,
    /// The memory object, if any.
    pub uses: Option<Use<'a>>,
}

impl<'a> Transfer<'a> {
    pub(super) fn uses(&self) -> &[Use<'a>] {
        self.uses.as_slice()
    }

    pub(super) fn submit(
        &self,
        more: &[Slot],
        step: Option<Step>,
        operation: &Operation<'_>,
    ) -> Result<Submitted, i32> {
        let submission = Submission {
            command: self.command,
            waits: self.waits,
            more,
            event_ret: self.event_ret,
            step,
            target: None,
            times: None,
        };
        self.queue.submit(submission, self.uses(), operation)
    }

    fn stage(&self, len: usize) -> Result<Arc<Block>, i32> {
        self.queue.here().allocate(len as u64, 128).map(Arc::new)
    }

    /// Whether this side may transfer immediately: all earlier commands are complete.
    pub fn may_be_local(&self) -> Result<bool, i32> {
        let idle = self.queue.is_idle() && (self.waits.is_empty() || self.waits.are_complete()?);
        if idle && self.blocking {
            self.queue.here().client.wait_for_prints();
        }
        Ok(idle)
    }

    /// Blocks until this side may do it on the spot.
    pub fn become_local(&self) -> Result<(), i32> {
        // In order: it follows all enqueued commands. Out of order that is allowed, too.
        self.queue.channel.flush();
        let waits = self.waits.wait();
        self.queue.drain()?;
        // CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST if the operation is blocking and the
        // execution status of any of the events in event_wait_list is a negative integer value.
        waits
    }

    /// Transfers immediately. The caller has checked [`Transfer::may_be_local`].
    pub fn on_the_spot(&self, run: impl FnOnce()) {
        let started = monotonic_ns();
        run();
        self.queue.complete(self.command, self.event_ret, started);
    }

    /// Runs `run` on this side when all earlier commands are complete: immediately if they are or
    /// the transfer is blocking, otherwise between two commands that hold its place in the queue.
    pub fn local(&self, run: impl FnOnce() + Send + 'static) -> Result<(), i32> {
        if self.blocking {
            self.become_local()?;
        }
        if self.blocking || self.may_be_local()? {
            self.on_the_spot(run);
            return Ok(());
        }
        self.between(Begin {
            target: Span::NONE,
            after: None,
            apart: false,
            job: Box::new(|| {
                run();
                CL_COMPLETE
            }),
        })
    }

    /// Enqueues a command that this side carries out when all earlier commands are complete. Two
    /// commands hold its place: the first completes when all earlier commands are complete, the
    /// second waits for a gate that is opened when the job is done. The first is omitted if there
    /// is nothing to wait for.
    pub(super) fn between(&self, begin: Begin) -> Result<(), i32> {
        let (queue, member) = (self.queue, self.queue.member);
        let here = queue.here();
        let mut slots = self.waits.slots(member)?;
        if queue.context.members.len() > 1 {
            replica::prepare(queue, self.uses(), &mut slots)?;
        }
        let gate = here.new_event()?;
        let mut before = 0;
        // Out of order a marker with an empty list would wait for everything.
        if !slots.is_empty() || (queue.in_order() && !queue.is_idle()) {
            before = here.new_event()?;
            let pushed = queue.channel.push(before, &slots, &Operation::Marker);
            pushed.map_err(lost)?;
        }
        let times = Arc::new(Times::default());
        self.hold_place(begin.target, (before, gate), &times)?;
        let Begin {
            after, apart, job, ..
        } = begin;
        let context = queue.context.clone();
        let offset_ns = queue.device.clock_offset_ns();
        let carry_out = move |status: i32| {
            let run = move || {
                let now = || monotonic_ns().wrapping_add_signed(offset_ns);
                times.began_ns.store(now(), Ordering::Release);
                let status = match status {
                    CL_COMPLETE => job(),
                    failed => failed,
                };
                times.ended_ns.store(now(), Ordering::Release);
                set_slot(&context, member, gate, status);
                callback::run(move || drop(context));
            };
            if apart {
                workers::run(run)
            } else {
                run()
            }
        };
        let client = here.client.clone();
        let start = move || {
            if before == 0 {
                return carry_out(CL_COMPLETE);
            }
            let then = move |done: baltra_wire::Completion| carry_out(done.status);
            // Where the session is lost, it is called at once.
            let _ = client.watch(before, Box::new(then));
        };
        match after {
            Some(read) => behind(read, start),
            None => {
                start();
                Ok(())
            }
        }
    }

    /// The second of the two commands of [`Transfer::between`], which the application's event is.
    fn hold_place(
        &self,
        target: Span,
        (before, gate): (Slot, Slot),
        times: &Arc<Times>,
    ) -> Result<(), i32> {
        let context = self.queue.context.clone();
        let member = self.queue.member;
        let target = (target.len != 0).then(|| context.reads.target(target));
        let give_back = Box::new(move |_: bool| {
            if let Some(target) = target {
                context.reads.remove(target);
            }
            context.members[member].free_event(gate);
            context.members[member].free_event(before);
        });
        let submission = Submission {
            command: self.command,
            // Complete on the device by then; their host parts run first.
            waits: self.waits,
            more: &[gate],
            event_ret: self.event_ret,
            step: Some(give_back),
            target,
            times: Some(times.clone()),
        };
        let marker = Operation::Marker;
        self.queue
            .submit(submission, self.uses(), &marker)
            .map(drop)
    }

    /// Writes `len` bytes that `fill` puts into the staging block. `source`: the application's
    /// memory that it reads.
    pub fn write(
        self,
        len: usize,
        source: Span,
        fill: impl FnOnce(&mut [u8]) + Send + 'static,
        operation: impl FnOnce(Payload) -> Operation<'static>,
    ) -> Result<(), i32> {
        if self.blocking {
            // The bytes are in the staging block when the call returns; the device's part may
            // follow later.
            self.waits.wait()?;
        }
        self.make_room(len);
        let block = self.stage(len)?;
        let operation = operation(block.payload());
        let staged = Staged::new(&block, self.queue);
        let release: Step = Box::new(move |_| drop(staged));
        let Some(read) = self.queue.context.reads.newest(source) else {
            fill(bytes(&block));
            let submitted = self.submit(&[], Some(release), &operation)?;
            return self.sent(&submitted, len);
        };
        if self.blocking {
            read.flush();
            read.wait();
            fill(bytes(&block));
            let submitted = self.submit(&[], Some(release), &operation)?;
            return self.sent(&submitted, len);
        }
        self.write_later(Some(read), block, fill, operation)
    }

    /// Writes what `fill` puts into the operation's block once all earlier commands are complete.
    /// The command is sent only then, because over a socket its bytes are sent with it.
    pub fn write_later(
        &self,
        after: Option<Ref<Event>>,
        block: Arc<Block>,
        fill: impl FnOnce(&mut [u8]) + Send + 'static,
        operation: Operation<'static>,
    ) -> Result<(), i32> {
        let (context, member) = (self.queue.context.clone(), self.queue.member);
        // If the application releases it meanwhile, it stays alive until the end.
        let memory = self.uses.map(|used| used.memory.share());
        self.between(Begin {
            target: Span::NONE,
            after,
            apart: true,
            job: Box::new(move || {
                fill(bytes(&block));
                let sent = pieces::write_block(&context.members[member], &operation);
                drop(memory);
                sent.err().unwrap_or(CL_COMPLETE)
            }),
        })
    }

    /// Gets staging blocks of complete transfers back, and waits for one where many are on their
    /// way.
    fn make_room(&self, len: usize) {
        let queue = self.queue;
        let staged = || queue.staged.load(Ordering::Relaxed);
        if staged() == 0 {
            return;
        }
        queue.run_finished_steps();
        while staged() + len > STAGED_BYTES_MAX && queue.runs_by_itself() {
            let Some(first) = queue.first_step() else {
                return;
            };
            if queue.stalled.load(Ordering::Relaxed) == first {
                return;
            }
            queue.channel.flush();
            if !queue.completes_within(first, ROOM_WAIT_MAX) {
                queue.stalled.store(first, Ordering::Relaxed);
                return;
            }
            queue.run_finished_steps();
            if queue.first_step() == Some(first) {
                return;
            }
        }
    }

    fn sent(&self, submitted: &Submitted, len: usize) -> Result<(), i32> {
        // In order, commands that follow come behind it. Out of order, programs take a blocking
        // write for complete.
        if self.blocking && !self.queue.in_order() {
            return self.await_submitted(submitted);
        }
        if len >= EAGER_BYTES && self.queue.staged.load(Ordering::Relaxed) > STAGED_BYTES_MAX {
            // Gives the staging block back early.
            self.queue.settle_by_itself(submitted);
        }
        if self.blocking || len >= FLUSHED_BYTES {
            self.queue.channel.flush();
        }
        Ok(())
    }

    /// Reads `len` bytes, which `drain` takes out of the staging block. `target`: the application's
    /// memory that it writes.
    pub fn read(
        self,
        len: usize,
        target: Span,
        drain: impl FnOnce(&[u8]) + Send + 'static,
        operation: impl FnOnce(Payload) -> Operation<'static>,
    ) -> Result<(), i32> {
        self.make_room(len);
        let block = self.stage(len)?;
        let staged = Staged::new(&block, self.queue);
        let then = move || drain(bytes(&staged.block));
        self.read_into(block, target, then, operation)
    }

    /// Reads into a block and then, on success, runs `then` on this side before the command is
    /// reported as complete.
    pub fn read_into(
        self,
        block: Arc<Block>,
        target: Span,
        then: impl FnOnce() + Send + 'static,
        operation: impl FnOnce(Payload) -> Operation<'static>,
    ) -> Result<(), i32> {
        let operation = operation(block.payload());
        self.then(target, &operation, then)
    }

    /// Enqueues a command with a host part, which writes `target`.
    pub fn then(
        self,
        target: Span,
        operation: &Operation<'_>,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<(), i32> {
        if self.blocking {
            self.waits.wait()?;
        }
        let large = matches!(operation, Operation::Buffer { payload, .. }
            if payload.len >= FLUSHED_BYTES as u64);
        let context = self.queue.context.clone();
        let target = (target.len != 0).then(|| context.reads.target(target));
        let step = Box::new(move |ok: bool| {
            if ok {
                then();
            }
            if let Some(target) = target {
                context.reads.remove(target);
            }
        });
        let submission = Submission {
            command: self.command,
            waits: self.waits,
            more: &[],
            event_ret: self.event_ret,
            step: Some(step),
            target,
            times: None,
        };
        let submitted = self.queue.submit(submission, self.uses(), operation)?;
        if large && !self.blocking {
            self.queue.channel.flush();
        }
        if self.blocking {
            return self.await_submitted(&submitted);
        }
        if target.is_some_and(|target| target.span.len >= EAGER_BYTES) {
            self.queue.settle_by_itself(&submitted);
        }
        Ok(())
    }

    /// Blocks until a command is complete on both sides.
    pub(super) fn await_submitted(&self, submitted: &Submitted) -> Result<(), i32> {
        let Some(event) = &submitted.event else {
            let result = self.queue.channel.wait(submitted.number);
            self.queue.settle(Reach::Command(submitted.number));
            return result;
        };
        self.queue.channel.flush();
        match event.wait() {
            status if status < 0 => Err(status),
            _ => Ok(()),
        }
    }
}

/// A staging block's bytes. An executor that violates the protocol may write them at any time; they
/// are plain bytes, and no decision depends on them.
#[allow(clippy::mut_from_ref)] // the block is a view of shared memory, like a cell
fn bytes(block: &Block) -> &mut [u8] {
    // SAFETY: the block belongs to this process and is valid for its length; no other reference to
    // it exists in this process while a transfer fills or empties it.
    unsafe { std::slice::from_raw_parts_mut(block.ptr(), block.len()) }
}

/// The memory object of a transfer that reads it, for [`Transfer::uses`].
pub fn reads(memory: &Object<Memory>) -> Option<Use<'_>> {
    Some(Use {
        memory,
        access: crate::core::queue::Access::Read,
    })
}

/// The memory object of a transfer that changes (a part of) it.
pub fn writes(memory: &Object<Memory>) -> Option<Use<'_>> {
    Some(Use {
        memory,
        access: crate::core::queue::Access::ReadWrite,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_touch_do_not_overlap() {
        let span = |start, len| Span { start, len };
        assert!(span(0, 8).overlaps(span(7, 1)));
        assert!(!span(0, 8).overlaps(span(8, 4)));
        assert!(!span(8, 4).overlaps(span(0, 8)));
    }
}
