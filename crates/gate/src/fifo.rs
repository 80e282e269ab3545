//! `fifo`: clients are served in the order of their requests, for a quantum each.

use super::{ClientId, Policy, Share};

/// No state: the scheduler records the order of arrival.
pub(super) struct Fifo;

impl Policy for Fifo {
    fn add(&mut self, _: ClientId, _: &Share) {}

    fn remove(&mut self, _: ClientId) {}

    fn wake(&mut self, _: ClientId, _: u64) {}

    fn sleep(&mut self, _: ClientId, _: u64) {}

    fn charge(&mut self, _: ClientId, _: u64) {}

    fn rank(&self, _: ClientId) -> i128 {
        0
    }

    fn yields(&self, _: ClientId, _: ClientId, held_ns: u64, quantum_ns: u64) -> bool {
        held_ns >= quantum_ns
    }
}
