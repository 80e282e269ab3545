//! Large transfers of ordinary memory, piece by piece through blocks of the session.
//!
//! The device accesses the blocks directly, and the same few serve every transfer: nothing as large
//! as the transfer is allocated, pinned or staged. Copies on the host and on the device overlap.
//! The pieces are sent in a queue of the library, one for each direction, so that transfers in both
//! directions overlap whatever queues the application has.

use crate::core::buffer::range;
use crate::core::context::{Context, Member};
use crate::core::copy::{copy, copy_out, start_helpers};
use crate::core::object::Ref;
use crate::core::transfer::Span;
use crate::core::{callback, lost, workers};
use baltra_opencl::*;
use baltra_ring::Memory;
use baltra_session::client::{Block, Queue as Channel};
use baltra_wire::{Direction, Event as Slot, Id, Operation, Payload};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Longer transfers go in pieces.
pub const WHOLE_BYTES: usize = 4 << 20;
/// The first buffer from this size on prepares transfers ([`prepare`]).
pub const PREPARED_BYTES: usize = 1 << 20;
/// Bytes of a piece. All pieces in flight are in the one arena that small blocks share. With pieces
/// of 4 MiB, in arenas of their own, an H100 reads 64 MB at 46 GB/s instead of 34, but writes the
/// first 192 MB of a session at 16 GB/s instead of 27.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of the first piece, so that the device begins early.
const FIRST_BYTES: usize = 512 << 10;
/// Pieces in flight at once.
const PIECES_MAX: usize = 6;

/// Creates the command that transfers the bytes from an offset on, given their payload.
pub type MakeOperation = Box<dyn Fn(u64, Payload) -> Operation<'static> + Send>;

/// A piece that the device has.
struct Piece {
    block: Block,
    slot: Slot,
    at: usize,
    len: usize,
}

/// One transfer.
struct Pieces<'a> {
    member: &'a Member,
    channel: &'a Channel,
    operation: &'a MakeOperation,
    flying: VecDeque<Piece>,
}

/// Writes application memory, in the calling thread. The caller has waited for everything that the
/// transfer depends on, and keeps the object alive until the end.
pub fn write(member: &Member, source: Span, operation: &MakeOperation) -> Result<(), i32> {
    let mut pieces = Pieces::new(member, Direction::Write, operation)?;
    if let Some(done) = pieces.lend(source) {
        return done;
    }
    let mut at = 0;
    let mut result = Ok(());
    while at < source.len && result.is_ok() {
        let len = piece_len(at, source.len);
        result = pieces.block(|_| ()).and_then(|block| {
            copy_out((source.start + at) as *const u8, block.ptr(), len);
            pieces.send(block, at, len)
        });
        at += len;
    }
    result.and(pieces.drain(|_| ()))
}

/// Reads into application memory; otherwise as [`write`].
pub fn read(member: &Member, target: Span, operation: &MakeOperation) -> Result<(), i32> {
    let mut pieces = Pieces::new(member, Direction::Read, operation)?;
    if let Some(done) = pieces.lend(target) {
        return done;
    }
    let take = |piece: &Piece| {
        let into = (target.start + piece.at) as *mut u8;
        copy(piece.block.ptr(), into, piece.len);
    };
    let mut at = 0;
    let mut result = Ok(());
    while at < target.len && result.is_ok() {
        let len = piece_len(at, target.len);
        result = pieces
            .block(take)
            .and_then(|block| pieces.send(block, at, len));
        at += len;
    }
    result.and(pieces.drain(take))
}

/// Copies `len` bytes from one session's object to another session's, in the calling thread; the
/// caller as for [`write`]. Both devices and the processors work at the same time.
pub fn between(
    source: &Member,
    from: &MakeOperation,
    target: &Member,
    to: &MakeOperation,
    len: usize,
) -> Result<(), i32> {
    let mut reads = Pieces::new(source, Direction::Read, from)?;
    let mut writes = Pieces::new(target, Direction::Write, to)?;
    let mut asked = 0;
    loop {
        while asked < len && reads.flying.len() < PIECES_MAX {
            let n = piece_len(asked, len);
            match source.allocate(PIECE_BYTES as u64, 128) {
                Ok(block) => reads.send(block, asked, n)?,
                Err(code) if reads.flying.is_empty() => return Err(code),
                // Where memory is short, fewer have to do.
                Err(_) => break,
            }
            asked += n;
        }
        let Some(piece) = reads.flying.pop_front() else {
            return writes.drain(|_| ());
        };
        end(source, piece.slot)?;
        let block = writes.block(|_| ())?;
        copy_out(piece.block.ptr(), block.ptr(), piece.len);
        writes.send(block, piece.at, piece.len)?;
    }
}

/// Prepares transfers of a context's large buffers, in the background: queues for both directions,
/// the arena's pages, their pinning, the threads that copy. Otherwise the first transfer takes some
/// milliseconds longer.
pub fn prepare(context: &Ref<Context>, member: usize, buffer: Id) {
    if context.members[member]
        .prepared
        .swap(true, Ordering::Relaxed)
    {
        return;
    }
    let context = context.clone();
    workers::run(move || {
        start_helpers();
        let here = &context.members[member];
        for queue in [Direction::Write, Direction::Read] {
            // An error is reported by the transfer that meets it again.
            let _ = touch(here, queue, buffer);
        }
        callback::run(move || drop(context));
    });
}

/// Reads one byte of a buffer in one of the queues, so that the block's arena is pinned.
fn touch(member: &Member, queue: Direction, buffer: Id) -> Result<(), i32> {
    let block = member.allocate(PIECE_BYTES as u64, 128)?;
    block.range().memory().populate();
    let operation = range(Direction::Read, buffer, 0)(0, block.part(0, 1));
    let slot = push(member, member.mover(queue)?, &operation)?;
    end(member, slot)
}

/// Sends a command whose bytes are in a block, and waits for its end.
pub fn write_block(member: &Member, operation: &Operation<'_>) -> Result<(), i32> {
    let slot = push(member, member.mover(Direction::Write)?, operation)?;
    end(member, slot)
}

fn push(member: &Member, channel: &Channel, operation: &Operation<'_>) -> Result<Slot, i32> {
    let slot = member.new_event()?;
    match channel.push(slot, &[], operation) {
        Ok(_) => {
            channel.flush();
            Ok(slot)
        }
        Err(error) => {
            member.client.events().free(slot);
            Err(lost(error))
        }
    }
}

/// Waits for a command's end.
fn end(member: &Member, slot: Slot) -> Result<(), i32> {
    let status = member.client.wait_event(slot);
    member.free_event(slot);
    match status {
        CL_COMPLETE => Ok(()),
        code => Err(code),
    }
}

/// Bytes of the piece that begins at `at`.
fn piece_len(at: usize, len: usize) -> usize {
    let most = match at {
        0 => FIRST_BYTES,
        _ => PIECE_BYTES,
    };
    most.min(len - at)
}

impl<'a> Pieces<'a> {
    fn new(
        member: &'a Member,
        direction: Direction,
        operation: &'a MakeOperation,
    ) -> Result<Pieces<'a>, i32> {
        Ok(Pieces {
            member,
            channel: member.mover(direction)?,
            operation,
            flying: VecDeque::new(),
        })
    }

    /// The whole transfer in one command, if the session can use the application's memory directly.
    fn lend(&self, span: Span) -> Option<Result<(), i32>> {
        // SAFETY: the application guarantees that its memory is valid and may be shared until the
        // command is complete, and the session does not access it afterwards (`Loan`).
        let memory = unsafe { Memory::borrowed(span.start as *mut u8, span.len) };
        let loan = self.member.client.lend(&memory)?;
        let sent = self.push(&(self.operation)(0, loan.payload()));
        Some(sent.and_then(|slot| {
            loan.enqueued();
            end(self.member, slot)
        }))
    }

    /// A block for the next piece: the oldest piece's block, once that piece is complete and passed
    /// to `done`, or a new one.
    fn block(&mut self, done: impl Fn(&Piece)) -> Result<Block, i32> {
        if self.flying.len() < PIECES_MAX {
            let block = self.member.allocate(PIECE_BYTES as u64, 128);
            // Where memory is short, fewer have to do.
            if block.is_ok() || self.flying.is_empty() {
                return block;
            }
        }
        self.oldest(done).expect("not empty")
    }

    fn send(&mut self, block: Block, at: usize, len: usize) -> Result<(), i32> {
        let payload = block.part(0, len as u64);
        let slot = self.push(&(self.operation)(at as u64, payload))?;
        self.flying.push_back(Piece {
            block,
            slot,
            at,
            len,
        });
        Ok(())
    }

    fn push(&self, operation: &Operation<'_>) -> Result<Slot, i32> {
        push(self.member, self.channel, operation)
    }

    /// Waits for the oldest piece; its block.
    fn oldest(&mut self, done: impl Fn(&Piece)) -> Option<Result<Block, i32>> {
        let piece = self.flying.pop_front()?;
        Some(end(self.member, piece.slot).map(|()| {
            done(&piece);
            piece.block
        }))
    }

    /// Waits for all of them; the first error.
    fn drain(&mut self, done: impl Fn(&Piece)) -> Result<(), i32> {
        let mut result = Ok(());
        while let Some(ended) = self.oldest(&done) {
            result = result.and(ended.map(drop));
        }
        result
    }
}

impl Drop for Pieces<'_> {
    fn drop(&mut self) {
        // The device must have finished with the blocks before they are reused.
        let _ = self.drain(|_| ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_transfer_without_gaps() {
        for len in [
            1,
            FIRST_BYTES,
            FIRST_BYTES + 1,
            PIECE_BYTES,
            5 * PIECE_BYTES + 77,
        ] {
            let mut at = 0;
            while at < len {
                let n = piece_len(at, len);
                assert!((1..=PIECE_BYTES).contains(&n), "{len}: {n} at {at}");
                at += n;
            }
            assert_eq!(at, len);
        }
    }
}
