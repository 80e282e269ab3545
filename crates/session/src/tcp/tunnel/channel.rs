//! A queue's outstanding commands: their numbers in the library, and the numbers of their pieces at
//! the executor.

use crate::tcp::frame::Violation;
use crate::tcp::{record_bytes, RING_BYTES, WINDOW_BYTES};
use baltra_ring::{Locked, Progress, Range};
use baltra_wire::{Event, Id};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard};

/// Free space that is always kept in the ring between relay and executor.
const RING_SLACK: usize = 4 << 10;

/// An outstanding piece.
pub(super) struct Piece {
    /// Its size in the ring.
    pub ring_bytes: usize,
    /// Payload bytes that count against the window.
    pub staged: u64,
    /// Whether it is the command's last piece.
    pub last: bool,
    /// The tunnel's own events that are free once the piece is complete; 0: none.
    pub spent: [Event; 2],
    /// Set if the piece transfers the application's memory, which must not be in transit when the
    /// piece is complete.
    pub lent: Option<Lent>,
}

/// The application's memory.
#[derive(Clone, Copy)]
pub(super) struct Lent {
    /// Its id.
    pub arena: u32,
    /// The frame that carries its bytes; 0: the bytes are received.
    pub frame: u64,
}

/// The counts of a queue.
#[derive(Default)]
pub(super) struct Account {
    /// Numbers of pieces sent and complete.
    sent: u64,
    done: u64,
    /// Number of commands whose last piece has been sent, or that are complete.
    commands_sent: u64,
    commands_done: u64,
    ring_bytes: usize,
    staged: u64,
    /// Pieces `done + 1 ..= sent`.
    pieces: VecDeque<Piece>,
    /// Destinations of reads, by piece.
    reads: HashMap<u64, Range>,
    /// Number of pieces with memory of the application.
    lent: usize,
    /// Whether a command waits for space.
    pub blocked: bool,
}

/// A queue, shared by both of the tunnel's threads.
pub(super) struct Channel {
    pub id: Id,
    pub in_order: bool,
    pub progress: Progress,
    /// Whether the library has released it.
    pub released: AtomicBool,
    account: Mutex<Account>,
}

impl Channel {
    /// Of a queue whose first `completed` commands are complete.
    pub fn new(id: Id, in_order: bool, progress: Progress, completed: u64) -> Channel {
        Channel {
            id,
            in_order,
            progress,
            released: false.into(),
            account: Mutex::new(Account {
                sent: completed,
                done: completed,
                commands_sent: completed,
                commands_done: completed,
                ..Account::default()
            }),
        }
    }

    pub fn account(&self) -> MutexGuard<'_, Account> {
        self.account.locked()
    }
}

impl Account {
    /// Whether a message of `len` bytes with `staged` payload may be sent now.
    pub fn has_room(&self, len: usize, staged: u64) -> bool {
        let ring = self.ring_bytes + record_bytes(len) + RING_SLACK <= RING_BYTES;
        // A payload may always be sent if no other is outstanding.
        ring && (self.staged == 0 || staged == 0 || self.staged + staged <= WINDOW_BYTES)
    }

    /// Records a piece and returns its number.
    pub fn send(&mut self, piece: Piece, read: Option<Range>) -> u64 {
        self.sent += 1;
        self.commands_sent += u64::from(piece.last);
        self.ring_bytes += piece.ring_bytes;
        self.staged += piece.staged;
        self.lent += usize::from(piece.lent.is_some());
        self.pieces.push_back(piece);
        if let Some(range) = read {
            self.reads.insert(self.sent, range);
        }
        self.sent
    }

    /// Number of pieces sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Number of commands sent.
    pub fn commands_sent(&self) -> u64 {
        self.commands_sent
    }

    /// Whether no piece is outstanding.
    pub fn is_drained(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Destination of piece `number`.
    pub fn read(&self, number: u64) -> Option<&Range> {
        self.reads.get(&number)
    }

    /// Records that the bytes of a read have arrived.
    pub fn read_done(&mut self, number: u64) {
        self.reads.remove(&number);
    }

    /// Records that piece `number` no longer has staging memory, although earlier pieces may have.
    pub fn unstage(&mut self, number: u64) {
        let index = number.checked_sub(self.done + 1);
        if let Some(piece) = index.and_then(|i| self.pieces.get_mut(i as usize)) {
            self.staged -= std::mem::take(&mut piece.staged);
        }
    }

    /// The command of piece `number`, if it is outstanding.
    pub fn command_of(&self, number: u64) -> Option<u64> {
        let index = number.checked_sub(self.done + 1)? as usize;
        let before = self.pieces.range(..index.min(self.pieces.len()));
        (index < self.pieces.len())
            .then(|| self.commands_done + before.filter(|p| p.last).count() as u64 + 1)
    }

    /// All pieces up to `number` are about to be reported to the application, which may then reuse
    /// its memory: none of it may still be in transit. `arrived`: frames that the relay has
    /// acknowledged.
    pub fn end_loans(&mut self, number: u64, arrived: u64, failed: bool) -> Result<(), Violation> {
        if self.lent == 0 || number <= self.done {
            return Ok(());
        }
        let count = (number - self.done).min(self.pieces.len() as u64);
        for (at, piece) in self.pieces.range(..count as usize).enumerate() {
            let Some(lent) = piece.lent else {
                continue;
            };
            if lent.frame > arrived {
                return Err(Violation::new(
                    "a write was reported complete before its bytes were acknowledged",
                ));
            }
            let missing = self.reads.remove(&(self.done + 1 + at as u64));
            if missing.is_some() && !failed {
                return Err(Violation::new(
                    "a read was reported complete before its bytes were received",
                ));
            }
        }
        Ok(())
    }

    /// Records that the first `completed` pieces are complete, and that `arrived` frames have
    /// reached the relay; returns the number of complete commands. The pieces are appended to
    /// `over`.
    pub fn complete(
        &mut self,
        completed: u64,
        arrived: u64,
        mut over: impl FnMut(&Piece),
    ) -> Result<u64, Violation> {
        if completed > self.sent {
            return Err(Violation(format!(
                "{completed} commands are complete of {} sent",
                self.sent
            )));
        }
        // Only the events record which of them failed.
        self.end_loans(completed, arrived, true)?;
        while self.done < completed {
            let Some(piece) = self.pieces.pop_front() else {
                break;
            };
            self.done += 1;
            self.ring_bytes -= piece.ring_bytes;
            self.staged -= piece.staged;
            self.commands_done += u64::from(piece.last);
            self.lent -= usize::from(piece.lent.is_some());
            over(&piece);
            if !self.reads.is_empty() {
                self.reads.remove(&self.done);
            }
        }
        Ok(self.commands_done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(staged: u64, last: bool) -> Piece {
        Piece {
            ring_bytes: 64,
            staged,
            last,
            spent: [0; 2],
            lent: None,
        }
    }

    fn lent(frame: u64) -> Piece {
        let lent = Some(Lent { arena: 1, frame });
        Piece {
            lent,
            ..piece(8, true)
        }
    }

    fn memory() -> Range {
        let memory = baltra_ring::Memory::anonymous(8).unwrap();
        memory.slice(0, 8).unwrap()
    }

    #[test]
    fn no_write_is_complete_before_its_bytes_have_arrived() {
        let mut account = Account::default();
        account.send(lent(7), None);
        assert!(account.end_loans(1, 6, false).is_err());
        assert!(account.complete(1, 6, |_| {}).is_err());
        assert!(account.end_loans(1, 7, false).is_ok());
        assert_eq!(account.complete(1, 7, |_| {}), Ok(1));
    }

    #[test]
    fn nothing_is_received_for_a_read_that_is_complete() {
        let mut account = Account::default();
        for _ in 0..4 {
            account.send(lent(0), Some(memory()));
        }
        account.read_done(1);
        assert!(account.end_loans(1, 0, false).is_ok());
        assert!(account.end_loans(2, 0, false).is_err(), "no bytes came");
        assert!(account.end_loans(3, 0, true).is_ok(), "it has failed");
        assert!(account.read(3).is_none() && account.read(4).is_some());
        assert_eq!(account.complete(4, 0, |_| {}), Ok(4));
        assert!(account.read(4).is_none());
    }

    #[test]
    fn pieces_complete_their_command_together() {
        let mut account = Account::default();
        account.send(piece(10, false), None);
        account.send(piece(10, true), None);
        account.send(piece(0, true), None);
        assert_eq!((account.sent(), account.commands_sent()), (3, 2));
        assert_eq!(account.command_of(1), Some(1));
        assert_eq!(account.command_of(2), Some(1));
        assert_eq!(account.command_of(3), Some(2));
        assert_eq!(account.command_of(4), None);
        assert_eq!(account.complete(1, 0, |_| {}), Ok(0));
        assert_eq!(account.command_of(2), Some(1));
        assert_eq!(account.complete(2, 0, |_| {}), Ok(1));
        assert_eq!(account.complete(3, 0, |_| {}), Ok(2));
        assert!(account.is_drained());
        assert!(account.complete(4, 0, |_| {}).is_err());
    }

    #[test]
    fn the_window_lets_one_payload_through_and_no_second_beyond_it() {
        let mut account = Account::default();
        assert!(account.has_room(64, 2 * WINDOW_BYTES));
        account.send(piece(WINDOW_BYTES, true), None);
        assert!(!account.has_room(64, 1));
        assert!(account.has_room(64, 0));
        account.unstage(1);
        assert!(account.has_room(64, 1));
        account.unstage(1);
        account.complete(1, 0, |_| {}).unwrap();
        assert!(account.has_room(64, 1));
    }

    #[test]
    fn the_ring_never_overflows() {
        let mut account = Account::default();
        while account.has_room(40, 0) {
            let ring_bytes = record_bytes(40);
            account.send(
                Piece {
                    ring_bytes,
                    ..piece(0, true)
                },
                None,
            );
        }
        assert!(account.ring_bytes <= RING_BYTES);
    }
}
