//! Waiting for the other side: look, spin, sleep. Every sleep ends by itself, and is followed by
//! another look, so that a doorbell that is lost costs time and nothing else.

use crate::device::Bell;
use baltra_ring::{Consumer, Spin};
use std::time::{Duration, Instant};

/// Looks in a row before anything else: what is quick is there by then. Without a pause, which an
/// emulator makes a way out of its loop of, and without the clock, which is dear there.
const LOOKS_BARE: u32 = 256;
/// Looks with a pause between.
const LOOKS: u32 = 200;
/// How long a wait spins before it sleeps, unless that was in vain lately.
const SPIN: Duration = Duration::from_micros(50);
/// And in a guest: a host that sleeps is awake by then, and a nap takes longer than that.
const SPIN_GUEST: Duration = Duration::from_micros(100);
/// There a wait that is known to be no longer is spun through: an emulated guest's sleep ends some
/// hundred microseconds late, whatever it was asked for.
const SPIN_GUEST_KNOWN: Duration = Duration::from_millis(2);
/// Sleeps grow with the wait: a sixteenth of it, within these bounds.
const NAP_MIN: Duration = Duration::from_micros(20);
const NAP_MAX: Duration = Duration::from_millis(1);
/// A sleep with a doorbell; a lost ring costs so much.
const DOZE: Duration = Duration::from_millis(10);
/// So long before an answer is expected a wait is awake: an eighth of what it takes, within these
/// bounds. A sleep ends late by about the least of them, in an emulated guest.
const EARLY_MIN: Duration = Duration::from_micros(120);
const EARLY_MAX: Duration = Duration::from_millis(1);

/// One who waits, and what it learned of it.
#[derive(Default)]
pub struct Waiter {
    /// Its processors are emulated, perhaps, and the other side is not among its threads.
    in_guest: bool,
    spin: Spin,
    /// Of the ends of waits that are known.
    near: Spin,
}

impl Waiter {
    /// One in a guest, or on the host.
    pub fn new(in_guest: bool) -> Waiter {
        Waiter {
            in_guest,
            ..Waiter::default()
        }
    }

    /// Looks longer than [`looks`], and spins, unless it is known to take longer; whether something is
    /// there.
    pub fn look(&self, consumer: &Consumer, guess: Guess) -> bool {
        if let Some(known) = guess.0 {
            let spins = self.in_guest && known <= SPIN_GUEST_KNOWN;
            return spins && looks_for(known + SPIN_GUEST, consumer);
        }
        if self.in_guest {
            return looks_for(SPIN_GUEST, consumer);
        }
        for _ in 0..LOOKS {
            if !consumer.is_empty_so_far() {
                return true;
            }
            std::hint::spin_loop();
        }
        self.spin.until_crowded(SPIN, || !consumer.is_empty())
    }

    /// Sleeps once: with a doorbell until it rings, without one a little; and where it is known how long
    /// it takes, until shortly before that, to spin then.
    pub fn sleep(&self, consumer: &Consumer, bell: Option<&Bell>, since: Instant, guess: Guess) {
        let waited = since.elapsed();
        let nap = match guess.0 {
            None => waited / 16,
            Some(guess) => {
                let early = (guess / 8).clamp(EARLY_MIN, EARLY_MAX);
                if waited + early < guess {
                    let rest = guess - early - waited;
                    return match bell {
                        Some(bell) => consumer.sleep_with(|| bell.wait(rest.min(DOZE))),
                        None => std::thread::sleep(rest),
                    };
                }
                let late = (guess + early / 2).saturating_sub(waited);
                let came = match self.in_guest {
                    true => looks_for(late, consumer),
                    false => self.near.until_crowded(late, || !consumer.is_empty()),
                };
                if came {
                    return;
                }
                waited.saturating_sub(guess) / 4
            }
        };
        match bell {
            Some(bell) => consumer.sleep_with(|| bell.wait(DOZE)),
            None => std::thread::sleep(nap.clamp(NAP_MIN, NAP_MAX)),
        }
    }
}

/// Looks a few times; whether something is there.
pub fn looks(consumer: &Consumer) -> bool {
    (0..LOOKS_BARE).any(|_| !consumer.is_empty_so_far())
}

fn looks_for(limit: Duration, consumer: &Consumer) -> bool {
    let started = Instant::now();
    while started.elapsed() < limit {
        if looks(consumer) {
            return true;
        }
    }
    false
}

/// How long the same thing took lately: calls in a loop are mostly alike. A wait for something that is
/// known sleeps until shortly before it, and spins there.
#[derive(Default, Clone, Copy)]
pub struct Guess(Option<Duration>);

impl Guess {
    /// It took so long. What is quicker counts at once, what is slower little by little: one that was
    /// held up says nothing of the next.
    pub fn learn(&mut self, took: Duration) {
        self.0 = match self.0 {
            _ if took < SPIN => None,
            Some(guess) if guess < took => Some(guess + (took - guess) / 8),
            _ => Some(took),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_guess_follows_what_is_quicker_at_once() {
        let mut guess = Guess::default();
        let us = Duration::from_micros;
        guess.learn(us(800));
        assert_eq!(guess.0, Some(us(800)));
        guess.learn(us(1600));
        assert_eq!(guess.0, Some(us(900)));
        guess.learn(us(400));
        assert_eq!(guess.0, Some(us(400)));
        guess.learn(us(3));
        assert_eq!(guess.0, None, "a spin is long enough");
    }
}
