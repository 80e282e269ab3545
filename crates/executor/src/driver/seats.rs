//! Limits the threads that submit short tasks to a GPU's driver.
//!
//! Threads that wait in the driver contend for its lock with those that submit, and its order is
//! chance: of eight threads on an H200, the slowest task of a hundred took 1.1 ms, and the
//! shares differed by 5 to 10 %. A thread has one of two seats from the first command of a task to
//! the end of its next wait for the device: 0.4 ms, 1 %, and as many tasks together or more. Waiting
//! threads get seats in the order in which they came. Only the first ones poll: more of them would
//! slow down those that work.

use baltra_ring::{futex_wait, futex_wake};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Threads with a seat. On an H200, three do as much, and the slowest task takes longer; one does less.
const SEATS: u32 = 2;
/// Waiting threads that poll: one that is woken has the time of as many tasks to get there.
const NEAR: u32 = 4;
/// Polls before a thread takes a seat beyond [`SEATS`], because those that have one wait for
/// something long; about 200 µs.
const SPINS: u32 = 4000;
/// A task that is expected to take longer leaves its seat once it has been submitted.
const BRIEF: Duration = Duration::from_micros(500);
/// Words that waiting threads sleep on, so that few share one.
const SLOTS: usize = 64;

/// The seats of a process.
pub struct Seats {
    /// The number of the next thread that comes.
    next: AtomicU32,
    /// Threads with smaller numbers have, or had, a seat.
    limit: AtomicU32,
    /// Seats that were taken beyond [`SEATS`]: when as many are left, nobody gets them.
    beyond: AtomicU32,
    slots: [AtomicU32; SLOTS],
}

impl Seats {
    /// All free.
    pub fn new() -> Arc<Seats> {
        Arc::new(Seats {
            next: 0.into(),
            limit: SEATS.into(),
            beyond: 0.into(),
            slots: std::array::from_fn(|_| 0.into()),
        })
    }

    fn take(&self) {
        // SYNC POINT: the next number and the limit (pairs with `give`): either this thread sees
        // the new limit, or `give` sees this thread's number.
        let own = self.next.fetch_add(1, Ordering::SeqCst);
        let slot = &self.slots[own as usize % SLOTS];
        let mut polls = 0;
        loop {
            let seen = slot.load(Ordering::SeqCst);
            let before = own
                .wrapping_sub(self.limit.load(Ordering::SeqCst))
                .cast_signed();
            if before < 0 {
                return;
            }
            if before >= NEAR.cast_signed() {
                futex_wait(slot, seen, None);
            } else if polls < SPINS {
                polls += 1;
                std::hint::spin_loop();
            } else {
                polls = 0;
                self.beyond.fetch_add(1, Ordering::Relaxed);
                self.give();
            }
        }
    }

    fn leave(&self) {
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let fewer = |beyond: u32| beyond.checked_sub(1);
        if self.beyond.fetch_update(set, get, fewer).is_err() {
            self.give();
        }
    }

    /// One more thread may sit; wakes the one that is near now.
    fn give(&self) {
        // SYNC POINT: the limit and the next number (pairs with `take`).
        let limit = self.limit.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        let near = limit.wrapping_add(NEAR - 1);
        let has_come = self
            .next
            .load(Ordering::SeqCst)
            .wrapping_sub(near)
            .cast_signed()
            > 0;
        if has_come {
            let slot = &self.slots[near as usize % SLOTS];
            slot.fetch_add(1, Ordering::SeqCst);
            futex_wake(slot, u32::MAX);
        }
    }
}

/// One thread's seat, taken and left many times.
pub struct Seat {
    /// `None`: the driver needs no seats.
    seats: Option<Arc<Seats>>,
    is_taken: bool,
    /// When it was taken last.
    since: Option<Instant>,
    /// The next task is expected to take less than [`BRIEF`].
    is_brief: bool,
}

impl Seat {
    /// Not taken yet.
    pub fn new(seats: Option<&Arc<Seats>>) -> Seat {
        Seat {
            seats: seats.cloned(),
            is_taken: false,
            since: None,
            is_brief: false,
        }
    }

    /// Takes a seat, unless the thread has one; may wait for others.
    pub fn take(&mut self) {
        if let (false, Some(seats)) = (self.is_taken, &self.seats) {
            seats.take();
            self.is_taken = true;
            self.since = Some(Instant::now());
        }
    }

    /// To be called before a wait for the driver: leaves the seat, unless the wait is expected to be
    /// short.
    pub fn wait(&mut self) {
        if !self.is_brief {
            self.leave();
        }
    }

    /// To be called after a wait for the driver: leaves the seat. The next task is expected to take
    /// as long as this one has, since it got its seat.
    pub fn waited(&mut self) {
        self.leave();
        if let Some(since) = self.since.take() {
            self.is_brief = since.elapsed() < BRIEF;
        }
    }

    /// Leaves it, if the thread has one.
    pub fn leave(&mut self) {
        if let (true, Some(seats)) = (std::mem::take(&mut self.is_taken), &self.seats) {
            seats.leave();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(seats: &Seats) -> i32 {
        let limit = seats.limit.load(Ordering::SeqCst);
        limit
            .wrapping_sub(seats.next.load(Ordering::SeqCst))
            .cast_signed()
    }

    #[test]
    fn everybody_gets_a_seat_and_all_are_free_in_the_end() {
        let seats = Seats::new();
        // Numbers wrap around on the way.
        seats.next.store(u32::MAX - 1000, Ordering::SeqCst);
        seats.limit.store(u32::MAX - 1000 + SEATS, Ordering::SeqCst);
        std::thread::scope(|s| {
            for _ in 0..16 {
                s.spawn(|| {
                    let mut seat = Seat::new(Some(&seats));
                    for _ in 0..2000 {
                        seat.take();
                        seat.take();
                        seat.leave();
                        seat.leave();
                    }
                });
            }
        });
        assert_eq!(free(&seats), SEATS.cast_signed());
        assert_eq!(seats.beyond.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn threads_that_keep_their_seats_keep_nobody_from_working() {
        let seats = Seats::new();
        let take = || {
            let mut seat = Seat::new(Some(&seats));
            seat.take();
            seat
        };
        let kept: Vec<Seat> = (0..3 * SEATS).map(|_| take()).collect();
        assert_eq!(free(&seats), 0);
        assert_eq!(seats.beyond.load(Ordering::SeqCst), 2 * SEATS);
        // A seat that is dropped is left; those beyond are not given to others.
        drop(kept);
        assert_eq!(free(&seats), SEATS.cast_signed());
        assert_eq!(seats.beyond.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_task_keeps_its_seat_in_a_wait_if_the_one_before_was_short() {
        let seats = Seats::new();
        let mut seat = Seat::new(Some(&seats));
        let second = Duration::from_secs(1);
        let mut keeps = |takes_long: bool| {
            seat.take();
            seat.wait();
            let keeps = free(&seats) < SEATS.cast_signed();
            let now = Instant::now();
            // In the future: no time has passed, however busy the host is.
            seat.since = Some(if takes_long {
                now - second
            } else {
                now + second
            });
            seat.waited();
            assert_eq!(free(&seats), SEATS.cast_signed());
            keeps
        };
        // The time that the first one takes is unknown.
        assert!(!keeps(true));
        assert!(!keeps(false));
        assert!(keeps(false));
        assert!(keeps(true));
        assert!(!keeps(true));
    }

    #[test]
    fn a_thread_that_comes_after_many_is_woken() {
        let seats = Seats::new();
        let held: Vec<Seat> = (0..SEATS)
            .map(|_| {
                let mut seat = Seat::new(Some(&seats));
                seat.take();
                seat
            })
            .collect();
        std::thread::scope(|s| {
            // More than poll: some sleep.
            for _ in 0..4 * NEAR {
                s.spawn(|| {
                    let mut seat = Seat::new(Some(&seats));
                    seat.take();
                });
            }
            drop(held);
        });
        assert_eq!(free(&seats), SEATS.cast_signed());
    }
}
