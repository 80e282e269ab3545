//! Bytes between the application's memory and the device: what all reads and writes share.
//!
//! Where the device works in host memory and nothing is on its way, a transfer is a copy on the
//! spot. Else bytes go through a *staging block* of the session: a write fills it when it is
//! enqueued, a read empties it as its step on this side (see [`crate::core::queue`]). Large
//! blocking transfers go in pieces, so that the copies here and the device's overlap and the
//! staging stays small.
//!
//! Where the session is a socket, a large linear transfer *lends* it the application's memory
//! instead: the kernel copies from and to it, and nothing else does. The session leaves the
//! memory alone when the command is complete or has failed, as the application is told then.

use crate::core::callback;
use crate::core::copy::copy;
use crate::core::event::{monotonic_ns, set_slot, Event, Waits};
use crate::core::lost;
use crate::core::memory::Memory;
use crate::core::object::{Object, Ref};
use crate::core::queue::{Queue, Reach, Submission, Submitted, Use};
use baltra_opencl::*;
use baltra_session::client::{Block, Loan};
use baltra_steps::Step;
use baltra_wire::{Event as Slot, Operation, Payload};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of a piece of a large transfer.
const PIECE_BYTES: usize = 4 << 20;
/// Pieces on their way at once.
const PIECES_MAX: usize = 4;
/// Reads of so many bytes are also emptied by the notice thread.
const EAGER_BYTES: usize = 64 << 10;
/// Transfers of so many bytes lend the application's memory where they can.
const LENT_BYTES_MIN: usize = 64 << 10;
/// A blocking read of so many bytes first waits for what is on its way: the other side then
/// needs no staging either, which is worth more than a round trip.
const LENT_ALONE_BYTES_MIN: usize = 512 << 10;

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

    fn overlaps(self, other: Span) -> bool {
        self.start < other.start + other.len && other.start < self.start + self.len
    }
}

/// Staged reads that will still write into the application's memory. A write whose source they
/// touch (a non-blocking read, then a write from the same place) must not copy before them.
#[derive(Default)]
pub struct PendingReads {
    next: AtomicU64,
    count: AtomicUsize,
    reads: Mutex<Vec<(Target, Ref<Event>)>>,
}

/// Where one of them writes.
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
        let mut reads = self.reads.lock().expect("no panic under this lock");
        reads.push((target, event));
        self.count.store(reads.len(), Ordering::Release);
    }

    /// The read has written its target.
    fn remove(&self, target: Target) {
        let mut reads = self.reads.lock().expect("no panic under this lock");
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
        let reads = self.reads.lock().expect("no panic under this lock");
        let mut newest = reads.iter().rev();
        let read = newest.find(|read| read.0.span.overlaps(source));
        read.map(|read| read.1.clone())
    }
}

/// One transfer on its way into a queue.
#[derive(Clone, Copy)]
pub struct Transfer<'a> {
    /// The queue.
    pub queue: &'a Object<Queue>,
    /// `CL_COMMAND_…`
    pub command: i32,
    /// What it waits for.
    pub waits: &'a Waits<'a>,
    /// Where the application wants its event; may be null.
    pub event_ret: *mut cl_event,
    /// Whether the call returns only when the application may use its memory again.
    pub blocking: bool,
    /// The memory object, if any.
    pub uses: Option<Use<'a>>,
}

impl<'a> Transfer<'a> {
    fn uses(&self) -> &[Use<'a>] {
        self.uses.as_slice()
    }

    fn submit(
        &self,
        first: bool,
        last: bool,
        more: &[Slot],
        step: Option<Step>,
        operation: &Operation<'_>,
    ) -> Result<Submitted, i32> {
        let none = Waits::default();
        let submission = Submission {
            command: self.command,
            waits: if first { self.waits } else { &none },
            more,
            event_ret: if last {
                self.event_ret
            } else {
                std::ptr::null_mut()
            },
            step,
            target: None,
        };
        self.queue.submit(submission, self.uses(), operation)
    }

    fn stage(&self, len: usize) -> Result<Arc<Block>, i32> {
        let client = &self.queue.here().client;
        let block = client.allocate(len as u64, 128).map_err(lost)?;
        Ok(Arc::new(block))
    }

    /// Whether this side may do it on the spot: everything before it is complete.
    pub fn may_be_local(&self) -> Result<bool, i32> {
        let idle = self.queue.is_idle() && (self.waits.is_empty() || self.waits.are_complete()?);
        if idle && self.blocking {
            self.queue.here().client.hear_prints();
        }
        Ok(idle)
    }

    /// Blocks until this side may do it on the spot.
    pub fn become_local(&self) -> Result<(), i32> {
        // In order: it comes behind all that was enqueued. Out of order the same is allowed.
        self.queue.channel.flush();
        let waits = self.waits.wait();
        self.queue.drain()?;
        // CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST if the operation is blocking and the
        // execution status of any of the events in event_wait_list is a negative integer value.
        waits
    }

    /// Does it on the spot. The caller has seen to [`Transfer::may_be_local`].
    pub fn on_the_spot(&self, run: impl FnOnce()) {
        let started = monotonic_ns();
        run();
        self.queue.complete(self.command, self.event_ret, started);
    }

    /// Runs `run` on this side when everything before it is complete: at once if it is or the
    /// transfer is blocking, else between two commands that hold its place in the queue.
    pub fn local(&self, run: impl FnOnce() + Send + 'static) -> Result<(), i32> {
        if self.blocking {
            self.become_local()?;
        }
        if self.blocking || self.may_be_local()? {
            self.on_the_spot(run);
            return Ok(());
        }
        let gate = self.queue.here().new_event()?;
        let marker = Operation::Marker;
        // The first command is complete when all before it is; the second waits for the gate,
        // which the notice thread opens after having run our part.
        let before = self.queue.here().new_event()?;
        let slots = self.waits.slots(self.queue.member)?;
        let pushed = self.queue.channel.push(before, &slots, &marker);
        pushed.map_err(lost)?;
        let step_context = self.queue.context.clone();
        let member = self.queue.member;
        let give_back = Box::new(move |_: bool| {
            step_context.members[member].free_event(gate);
            step_context.members[member].free_event(before);
        });
        let nothing = Waits::default();
        let submission = Submission {
            command: self.command,
            waits: &nothing,
            more: &[gate],
            event_ret: self.event_ret,
            step: Some(give_back),
            target: None,
        };
        self.queue
            .submit(submission, self.uses(), &Operation::Barrier)?;
        let context = self.queue.context.clone();
        let then = move |done: baltra_wire::Completion| {
            if done.status == CL_COMPLETE {
                run();
            }
            set_slot(&context, member, gate, done.status);
            callback::run(move || drop(context));
        };
        let client = &self.queue.here().client;
        client.watch(before, Box::new(then)).map_err(lost)
    }

    /// Writes `len` bytes that `fill` puts into the staging block. `source`: where it reads
    /// the application's memory.
    pub fn write(
        self,
        len: usize,
        source: Span,
        fill: impl FnOnce(&mut [u8]) + Send + 'static,
        operation: impl FnOnce(Payload) -> Operation<'static>,
    ) -> Result<(), i32> {
        if self.blocking {
            // The bytes are in the staging block when the call returns; the device's part may
            // come later.
            self.waits.wait()?;
        }
        let block = self.stage(len)?;
        let operation = operation(block.payload());
        let step_block = block.clone();
        let release: Step = Box::new(move |_| drop(step_block));
        let Some(read) = self.queue.context.reads.newest(source) else {
            fill(bytes(&block));
            let submitted = self.submit(true, true, &[], Some(release), &operation)?;
            return self.sent(&submitted, len);
        };
        if self.blocking {
            read.flush();
            read.wait();
            fill(bytes(&block));
            let submitted = self.submit(true, true, &[], Some(release), &operation)?;
            return self.sent(&submitted, len);
        }
        let (context, member) = (self.queue.context.clone(), self.queue.member);
        let gate = context.members[member].new_event()?;
        let step_context = context.clone();
        let release: Step = Box::new(move |ok| {
            release(ok);
            step_context.members[member].free_event(gate);
        });
        self.submit(true, true, &[gate], Some(release), &operation)?;
        let kept = read.clone();
        let then = move |_| {
            kept.run_step();
            fill(bytes(&block));
            set_slot(&context, member, gate, CL_COMPLETE);
            callback::run(move || drop((kept, context)));
        };
        read.then(Box::new(then))
    }

    fn sent(&self, submitted: &Submitted, len: usize) -> Result<(), i32> {
        if len >= EAGER_BYTES {
            // Gives the staging block back early.
            self.queue.settle_by_itself(submitted);
        }
        if self.blocking {
            self.queue.channel.flush();
        }
        Ok(())
    }

    /// Reads `len` bytes, which `drain` takes out of the staging block. `target`: where it
    /// writes the application's memory.
    pub fn read(
        self,
        len: usize,
        target: Span,
        drain: impl FnOnce(&[u8]) + Send + 'static,
        operation: impl FnOnce(Payload) -> Operation<'static>,
    ) -> Result<(), i32> {
        let block = self.stage(len)?;
        let staged = block.clone();
        let then = move || drain(bytes(&staged));
        self.read_into(block, target, then, operation)
    }

    /// Reads into a block and then, if that has worked, runs `then` on this side before
    /// anybody learns that the command is complete.
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

    /// Enqueues a command that is followed by a part on this side, which writes `target`.
    pub fn then(
        self,
        target: Span,
        operation: &Operation<'_>,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<(), i32> {
        if self.blocking {
            self.waits.wait()?;
        }
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
        };
        let submitted = self.queue.submit(submission, self.uses(), operation)?;
        if self.blocking {
            return self.await_submitted(&submitted);
        }
        if target.is_some_and(|target| target.span.len >= EAGER_BYTES) {
            self.queue.settle_by_itself(&submitted);
        }
        Ok(())
    }

    /// Blocks until a command is complete on both sides.
    fn await_submitted(&self, submitted: &Submitted) -> Result<(), i32> {
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

    /// Lends the application's memory to the session, if that pays and can be had. Not out of
    /// order: there the session may learn of a piece's end before that of the pieces before.
    fn lend(&self, span: Span) -> Option<Loan> {
        if span.len < LENT_BYTES_MIN || !self.queue.in_order() {
            return None;
        }
        // SAFETY: the application has promised that its memory is valid and its to share until
        // the command is complete, and the session leaves it alone from then on (`Loan`).
        let memory = unsafe { baltra_ring::Memory::borrowed(span.start as *mut u8, span.len) };
        self.queue.here().client.lend(&memory)
    }

    /// A transfer straight from or to the application's memory.
    fn run_lent(&self, loan: Loan, operation: &MakeOperationAt<'_>) -> Result<(), i32> {
        let operation = operation(0, loan.payload());
        let submitted = self.submit(true, true, &[], None, &operation)?;
        loan.enqueued();
        match self.blocking {
            true => self.await_submitted(&submitted),
            false => Ok(()),
        }
    }

    /// Writes application memory to a buffer, in pieces if it is long and the call blocking.
    pub fn write_linear(self, source: Span, operation: &MakeOperationAt<'_>) -> Result<(), i32> {
        if self.queue.context.reads.newest(source).is_none() {
            if let Some(loan) = self.lend(source) {
                if self.blocking {
                    self.waits.wait()?;
                }
                return self.run_lent(loan, operation);
            }
        }
        let pieces = self.blocking && source.len > PIECE_BYTES && self.queue.in_order();
        if !pieces || self.queue.context.reads.newest(source).is_some() {
            let start = source.start;
            let fill = move |bytes: &mut [u8]| {
                copy(start as *const u8, bytes.as_mut_ptr(), bytes.len());
            };
            return self.write(source.len, source, fill, |p| operation(0, p));
        }
        self.waits.wait()?;
        let mut flying: VecDeque<(Arc<Block>, u64)> = VecDeque::new();
        let mut at = 0;
        while at < source.len {
            let n = PIECE_BYTES.min(source.len - at);
            let block = match flying.len() >= PIECES_MAX {
                true => {
                    let (block, number) = flying.pop_front().expect("not empty");
                    self.queue.channel.wait(number)?;
                    block
                }
                false => self.stage(PIECE_BYTES)?,
            };
            copy((source.start + at) as *const u8, block.ptr(), n);
            let last = at + n == source.len;
            let operation = operation(at as u64, block.part(0, n as u64));
            let step: Option<Step> = last.then(|| {
                let all: Vec<_> = flying.drain(..).chain([(block.clone(), 0)]).collect();
                Box::new(move |_: bool| drop(all)) as Step
            });
            let submitted = self.submit(at == 0, last, &[], step, &operation)?;
            self.queue.channel.flush();
            if last {
                self.queue.settle_by_itself(&submitted);
            } else {
                flying.push_back((block, submitted.number));
            }
            at += n;
        }
        Ok(())
    }

    /// Reads from a buffer into application memory, in pieces if it is long and the call
    /// blocking.
    pub fn read_linear(self, target: Span, operation: &MakeOperationAt<'_>) -> Result<(), i32> {
        if let Some(loan) = self.lend(target) {
            if !self.blocking {
                // Whoever writes from the same memory next has to know of it.
                let operation = operation(0, loan.payload());
                self.then(target, &operation, || ())?;
                loan.enqueued();
                return Ok(());
            }
            self.waits.wait()?;
            if target.len >= LENT_ALONE_BYTES_MIN && !self.queue.is_idle() {
                self.become_local()?;
            }
            return self.run_lent(loan, operation);
        }
        if !(self.blocking && target.len > PIECE_BYTES && self.queue.in_order()) {
            let start = target.start;
            let drain = move |bytes: &[u8]| copy(bytes.as_ptr(), start as *mut u8, bytes.len());
            return self.read(target.len, target, drain, |p| operation(0, p));
        }
        self.waits.wait()?;
        let mut flying: VecDeque<(Arc<Block>, usize, usize, u64)> = VecDeque::new();
        let mut asked = 0;
        while asked < target.len || !flying.is_empty() {
            if asked < target.len && flying.len() < PIECES_MAX {
                let n = PIECE_BYTES.min(target.len - asked);
                let block = self.stage(PIECE_BYTES)?;
                let last = asked + n == target.len;
                let operation = operation(asked as u64, block.part(0, n as u64));
                // The event's step keeps its completion behind our copies, which come first.
                let submitted = self.submit(asked == 0, last, &[], None, &operation)?;
                self.queue.channel.flush();
                flying.push_back((block, asked, n, submitted.number));
                asked += n;
                continue;
            }
            let (block, at, n, number) = flying.pop_front().expect("not empty");
            self.queue.channel.wait(number)?;
            copy(block.ptr(), (target.start + at) as *mut u8, n);
        }
        let completed = self.queue.channel.completed();
        self.queue.settle(Reach::UpTo(completed));
        Ok(())
    }
}

/// What makes the command of the bytes from an offset on out of a payload.
pub type MakeOperationAt<'o> = dyn Fn(u64, Payload) -> Operation<'static> + 'o;

/// A staging block's bytes. The executor may write them at any time, as a peer that breaks the
/// protocol; they are plain bytes, and no decision rests on them.
#[allow(clippy::mut_from_ref)] // the block is a view of shared memory, like a cell
fn bytes(block: &Block) -> &mut [u8] {
    // SAFETY: the block is this process's to use and valid for its length; nobody here holds
    // another reference to it while a transfer fills or empties it.
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
    fn test_spans_that_touch_do_not_overlap() {
        let span = |start, len| Span { start, len };
        assert!(span(0, 8).overlaps(span(7, 1)));
        assert!(!span(0, 8).overlaps(span(8, 4)));
        assert!(!span(8, 4).overlaps(span(0, 8)));
    }
}
