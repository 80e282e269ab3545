//! Waiting for the other side: look, spin, sleep. Every sleep ends by itself, and is followed by
//! another look, so that a doorbell that is lost costs time and nothing else.

use crate::device::Bell;
use baltra_ring::{Consumer, Spin};
use std::time::{Duration, Instant};

/// Looks in a row before anything else: what is quick is there by then. Without a pause, which an
/// emulator makes a way out of its loop of.
const LOOKS_BARE: u32 = 256;
/// Looks with a pause between, without a look at the clock, which is dear in an emulated guest.
const LOOKS: u32 = 200;
/// How long a wait spins before it sleeps, unless that was in vain lately.
pub const SPIN: Duration = Duration::from_micros(50);
/// Sleeps grow with the wait: a sixteenth of it, within these bounds.
const NAP_MIN: Duration = Duration::from_micros(20);
const NAP_MAX: Duration = Duration::from_millis(1);
/// A sleep with a doorbell; a lost ring costs so much.
const DOZE: Duration = Duration::from_millis(10);

/// Looks a while, then spins; whether something is there.
pub fn look(consumer: &Consumer, spin: &Spin) -> bool {
    if (0..LOOKS_BARE).any(|_| !consumer.is_empty()) {
        return true;
    }
    for _ in 0..LOOKS {
        if !consumer.is_empty() {
            return true;
        }
        std::hint::spin_loop();
    }
    spin.until(SPIN, || !consumer.is_empty())
}

/// Sleeps once: with a doorbell until it rings, without one a little.
pub fn sleep(consumer: &Consumer, bell: Option<&Bell>, since: Instant) {
    match bell {
        Some(bell) => consumer.sleep_with(|| bell.wait(DOZE)),
        None => std::thread::sleep((since.elapsed() / 16).clamp(NAP_MIN, NAP_MAX)),
    }
}
