//! One thread at a time in the driver's submitting calls.
//!
//! GPU drivers lock inside every call, and threads that fill several queues concurrently contend
//! for that lock: on an H200 eight threads together submit 45 k small tasks per second where one
//! submits 59 k. A queue's thread that takes a turn submits all its commands, flushes, and waits
//! for the device after its turn.

use baltra_ring::{futex_wait, futex_wake};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and a thread sleeps for it.
const WANTED: u32 = 2;
/// Polls before a thread sleeps; about 200 µs, the turns of a dozen others. Waking a thread whose
/// processor has gone idle costs several turns, more on a virtual machine: with 200 polls eight
/// clients on an H200 got 24 k to 30 k small tasks per second on such a host, with 2,000 to 20,000
/// polls 41 k to 48 k.
const SPINS: u32 = 4000;

/// The turn of a process's threads at the driver.
pub struct Turns {
    state: AtomicU32,
    wanted: bool,
}

impl Turns {
    /// `wanted` false: all threads pass without a turn.
    pub fn new(wanted: bool) -> Arc<Turns> {
        Arc::new(Turns {
            state: FREE.into(),
            wanted,
        })
    }

    fn take(&self) {
        if self.look(TAKEN) {
            return;
        }
        while self.state.swap(WANTED, Ordering::Acquire) != FREE {
            futex_wait(&self.state, WANTED, None);
            // Threads that are awake are faster: one that has slept polls for a while, too. Others
            // may sleep on.
            if self.look(WANTED) {
                return;
            }
        }
    }

    fn look(&self, taken: u32) -> bool {
        (0..SPINS).any(|_| {
            let seen = self.state.load(Ordering::Relaxed);
            if seen == FREE && self.swap(FREE, taken) {
                return true;
            }
            std::hint::spin_loop();
            false
        })
    }

    fn swap(&self, from: u32, to: u32) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn give(&self) {
        if self.state.swap(FREE, Ordering::Release) == WANTED {
            futex_wake(&self.state, 1);
        }
    }
}

/// One thread's turn, begun and ended many times.
pub struct Turn {
    turns: Arc<Turns>,
    held: bool,
}

impl Turn {
    /// Not begun yet.
    pub fn new(turns: &Arc<Turns>) -> Turn {
        Turn {
            turns: turns.clone(),
            held: false,
        }
    }

    /// Begins a turn, unless it has begun; may wait for the end of another one.
    pub fn begin(&mut self) {
        if !self.held && self.turns.wanted {
            self.turns.take();
            self.held = true;
        }
    }

    /// Ends the turn, if it has begun. To be called before any wait for the device.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.held) {
            self.turns.give();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn nobody_is_in_another_s_turn_and_everybody_gets_one() {
        let turns = Turns::new(true);
        let (inside, count) = (AtomicU32::new(0), AtomicU64::new(0));
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let mut turn = Turn::new(&turns);
                    for _ in 0..2000 {
                        turn.begin();
                        turn.begin();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        count.fetch_add(1, Ordering::Relaxed);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        turn.end();
                        turn.end();
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 8000);
    }

    #[test]
    fn a_turn_that_is_dropped_is_over() {
        let turns = Turns::new(true);
        let mut first = Turn::new(&turns);
        first.begin();
        drop(first);
        Turn::new(&turns).begin();
    }
}
