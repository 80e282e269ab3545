//! Reads and writes of a contiguous range: selection of the way to transfer the bytes.
//!
//! | condition | way |
//! |---|---|
//! | memory that a map returned to the application | the device accesses it directly: one command |
//! | the session is a socket, from [`LENT_BYTES_MIN`] on | the memory is *lent*: the kernel copies from and to it |
//! | more than a piece | in pieces ([`crate::core::pieces`]); unless the call blocks, on a thread of the library |
//! | otherwise | a staging block ([`Transfer::write`], [`Transfer::read`]) |

use crate::core::copy::{copy, copy_out};
use crate::core::event::{monotonic_ns, Event};
use crate::core::object::Ref;
use crate::core::pieces::{self, MakeOperation, WHOLE_BYTES};
use crate::core::replica;
use crate::core::transfer::{Begin, Job, Span, Transfer};
use baltra_opencl::*;
use baltra_session::client::Loan;
use baltra_wire::Direction;

/// Transfers from this size use the application's memory directly, if possible.
const LENT_BYTES_MIN: usize = 64 << 10;
/// A blocking read of at least this many bytes first waits for outstanding commands, which it follows
/// in order: then the executor needs no staging either, which saves more than the round trip costs.
const LENT_ALONE_BYTES_MIN: usize = 512 << 10;

impl Transfer<'_> {
    /// Writes application memory to a buffer.
    pub fn write_linear(self, source: Span, operation: MakeOperation) -> Result<(), i32> {
        let pending = self.queue.context.reads.newest(source);
        if pending.is_none() {
            if let Some(done) = self.run_mapped(source, Span::NONE, &operation) {
                return done;
            }
            if let Some(loan) = self.lend(source) {
                if self.blocking {
                    self.waits.wait()?;
                }
                return self.run_lent(loan, &operation);
            }
        }
        if source.len > WHOLE_BYTES {
            return self.run_in_pieces(Direction::Write, source, pending, operation);
        }
        let start = source.start;
        let fill = move |bytes: &mut [u8]| {
            copy_out(start as *const u8, bytes.as_mut_ptr(), bytes.len());
        };
        self.write(source.len, source, fill, |p| operation(0, p))
    }

    /// Reads from a buffer into application memory.
    pub fn read_linear(self, target: Span, operation: MakeOperation) -> Result<(), i32> {
        if let Some(done) = self.run_mapped(target, target, &operation) {
            return done;
        }
        if let Some(loan) = self.lend(target) {
            if !self.blocking {
                // A later write from the same memory has to wait for this read.
                let operation = operation(0, loan.payload());
                self.then(target, &operation, || ())?;
                loan.enqueued();
                return Ok(());
            }
            self.waits.wait()?;
            let is_alone = !self.queue.in_order() || self.queue.is_idle();
            if target.len >= LENT_ALONE_BYTES_MIN && !is_alone {
                self.become_local()?;
            }
            return self.run_lent(loan, &operation);
        }
        if target.len > WHOLE_BYTES {
            return self.run_in_pieces(Direction::Read, target, None, operation);
        }
        let start = target.start;
        let drain = move |bytes: &[u8]| copy(bytes.as_ptr(), start as *mut u8, bytes.len());
        self.read(target.len, target, drain, |p| operation(0, p))
    }

    /// Runs the transfer directly if a map has returned this memory to the application.
    fn run_mapped(
        &self,
        span: Span,
        target: Span,
        operation: &MakeOperation,
    ) -> Option<Result<(), i32>> {
        if span.len < LENT_BYTES_MIN {
            return None;
        }
        let (block, payload) = self.queue.here().blocks.holding(span)?;
        Some(self.then(target, &operation(0, payload), || drop(block)))
    }

    /// Lends the application's memory to the session, if that is possible and pays. Not in an
    /// out-of-order queue: there a piece's end may be reported before that of earlier pieces.
    fn lend(&self, span: Span) -> Option<Loan> {
        if span.len < LENT_BYTES_MIN || !self.queue.in_order() {
            return None;
        }
        // SAFETY: the application guarantees that its memory is valid and may be shared until the
        // command is complete, and the session does not access it afterwards (`Loan`).
        let memory = unsafe { baltra_ring::Memory::borrowed(span.start as *mut u8, span.len) };
        self.queue.here().client.lend(&memory)
    }

    /// A transfer straight from or to the application's memory.
    fn run_lent(&self, loan: Loan, operation: &MakeOperation) -> Result<(), i32> {
        let operation = operation(0, loan.payload());
        let submitted = self.submit(&[], None, &operation)?;
        loan.enqueued();
        if self.blocking {
            self.await_submitted(&submitted)
        } else {
            Ok(())
        }
    }

    /// A transfer in pieces: immediately if the call blocks, otherwise in queue order.
    fn run_in_pieces(
        &self,
        direction: Direction,
        span: Span,
        pending: Option<Ref<Event>>,
        operation: MakeOperation,
    ) -> Result<(), i32> {
        let (context, member) = (self.queue.context.clone(), self.queue.member);
        // If the application releases it meanwhile, it stays alive until the last piece.
        let memory = self.uses.map(|used| used.memory.share());
        let job: Job = Box::new(move || {
            let here = &context.members[member];
            let result = match direction {
                Direction::Write => pieces::write(here, span, &operation),
                Direction::Read => pieces::read(here, span, &operation),
            };
            drop(memory);
            result.err().unwrap_or(CL_COMPLETE)
        });
        if !self.blocking {
            let target = match direction {
                Direction::Write => Span::NONE,
                Direction::Read => span,
            };
            return self.between(Begin {
                target,
                after: pending,
                apart: true,
                job,
            });
        }
        if let Some(read) = pending {
            read.flush();
            read.wait();
        }
        self.come_to_turn()?;
        let started = monotonic_ns();
        match job() {
            CL_COMPLETE => {}
            code => return Err(code),
        }
        if self.queue.context.members.len() > 1 {
            let event = Event::complete(self.queue, self.command, [0; 4]);
            replica::used(self.queue, self.uses(), &event);
        }
        self.queue.complete(self.command, self.event_ret, started);
        Ok(())
    }

    /// Blocks until all commands that precede the transfer are complete.
    fn come_to_turn(&self) -> Result<(), i32> {
        self.queue.channel.flush();
        self.waits.wait()?;
        if self.queue.in_order() {
            self.queue.finish()?;
        }
        if self.queue.context.members.len() > 1 {
            let mut slots = Vec::new();
            replica::prepare(self.queue, self.uses(), &mut slots)?;
            let client = &self.queue.here().client;
            if let Some(code) = slots.iter().map(|&s| client.wait_event(s)).find(|&c| c < 0) {
                return Err(code);
            }
        }
        Ok(())
    }
}
