//! Waiting for the peer: poll, spin, sleep. Every sleep is bounded and followed by another poll, so
//! that a lost doorbell only costs time.

use crate::device::Bell;
use baltra_ring::{Consumer, Spin};
use std::time::{Duration, Instant};

/// Polls in a row before other steps, for fast answers. They neither pause, because an emulator
/// leaves its loop at a pause, nor read the clock, which is slow in an emulator.
const LOOKS_BARE: u32 = 256;
/// Further polls with a pause between them.
const LOOKS: u32 = 200;
/// Maximum spin before a wait sleeps, unless recent spins did not succeed.
const SPIN: Duration = Duration::from_micros(50);
/// The same in a guest: a sleeping host wakes up within it, and a nap takes longer.
const SPIN_GUEST: Duration = Duration::from_micros(100);
/// In a guest, waits expected to be no longer than this spin throughout: an emulated guest's sleep
/// ends some hundred microseconds late, whatever its length.
const SPIN_GUEST_KNOWN: Duration = Duration::from_millis(2);
/// Sleeps grow with the wait: a sixteenth of it, within these bounds.
const NAP_MIN: Duration = Duration::from_micros(20);
const NAP_MAX: Duration = Duration::from_millis(1);
/// Maximum sleep with a doorbell, which bounds the delay of a lost ring.
const DOZE: Duration = Duration::from_millis(10);
/// A wait stops sleeping this long before the expected answer: an eighth of the expected time,
/// within these bounds. An emulated guest's sleep ends late by about the lower one.
const EARLY_MIN: Duration = Duration::from_micros(120);
const EARLY_MAX: Duration = Duration::from_millis(1);

/// A waiter and its statistics.
#[derive(Default)]
pub struct Waiter {
    /// Whether the processors may be emulated, and the peer does not run on them.
    in_guest: bool,
    spin: Spin,
    /// Spins at the expected end of waits.
    near: Spin,
}

impl Waiter {
    /// A waiter in a guest or on the host.
    pub fn new(in_guest: bool) -> Waiter {
        Waiter {
            in_guest,
            ..Waiter::default()
        }
    }

    /// Polls longer than [`looks`], and spins, unless the answer is expected to take longer;
    /// returns whether the ring has a message.
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

    /// Sleeps once: with a doorbell until it rings, otherwise briefly; if the duration is known,
    /// until shortly before its end, to spin then.
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
                let came = if self.in_guest {
                    looks_for(late, consumer)
                } else {
                    self.near.until_crowded(late, || !consumer.is_empty())
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

/// Polls a few times; returns whether the ring has a message.
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

/// The expected duration of a repeated operation, from its recent durations. A wait with an
/// expectation sleeps until shortly before it, and then spins.
#[derive(Default, Clone, Copy)]
pub struct Guess(Option<Duration>);

impl Guess {
    /// Records a duration. A shorter one replaces the expectation, a longer one raises it
    /// gradually, because it may be an outlier.
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
    fn a_guess_follows_what_is_quicker_at_once() {
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
