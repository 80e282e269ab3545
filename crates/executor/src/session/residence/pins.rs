//! Pins: the objects that a lane's commands may use, and that therefore stay on the device.
//!
//! An idle lane keeps its pins until another thread needs room, because its next commands mostly
//! use the same objects: without that, a read of 4 bytes on an H200 took 0.5 to 0.7 µs of 11 more.

use super::books::Number;
use super::{distinct, Object, Residence, WorkingSet};
use baltra_ring::lease::monotonic_ns;
use baltra_ring::Locked;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, Weak};

/// An idle lane keeps at most this many pins. Some may be of objects that exist no longer.
const KEPT_MAX: usize = 256;

/// Numbers of objects, which are consecutive, hash to themselves, spread over the upper bits.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio's bits (Knuth, The Art of Computer Programming 3, 6.4).
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[derive(Default)]
struct Pinned {
    /// Commands may use the objects: only the lane unpins them.
    is_in_use: bool,
    /// The pinned objects, and the last turn that used each.
    turns: HashMap<Number, u64, BuildHasherDefault<NumberHasher>>,
    turn: u64,
    /// Those that this turn uses.
    used: Vec<Arc<Object>>,
    /// Time of the last turn's end.
    used_ns: u64,
}

impl Pinned {
    /// Uses an object in this turn; false: it is not pinned.
    fn uses(&mut self, object: &Arc<Object>) -> bool {
        let Some(turn) = self.turns.get_mut(&object.number) else {
            return false;
        };
        if *turn != self.turn {
            *turn = self.turn;
            self.used.push(object.clone());
        }
        true
    }

    fn insert(&mut self, object: &Arc<Object>) {
        if self.turns.insert(object.number, self.turn) != Some(self.turn) {
            self.used.push(object.clone());
        }
    }
}

/// The objects that a lane has pinned.
#[derive(Default)]
pub(super) struct LanePins(Mutex<Pinned>);

/// The objects that a lane's commands may use.
pub struct Pins {
    residence: Arc<Residence>,
    lane: Arc<LanePins>,
    /// Emptied, for the next turn.
    spare: Vec<Arc<Object>>,
}

impl Pins {
    /// None yet.
    pub fn new(residence: &Arc<Residence>) -> Pins {
        let lane = Arc::<LanePins>::default();
        residence.lanes.locked().push(Arc::downgrade(&lane));
        Pins {
            residence: residence.clone(),
            lane,
            spare: Vec::new(),
        }
    }

    /// Pins a set that is resident; false: it is not, or another thread waits for room.
    pub fn add(&mut self, set: &WorkingSet) -> bool {
        let mut pinned = self.lane.0.locked();
        if !pinned.is_in_use {
            if self.residence.is_wanted() {
                self.residence.unpin(&mut pinned);
                return false;
            }
            pinned.is_in_use = true;
            pinned.turn += 1;
        }
        let mut new = WorkingSet::new();
        for (object, writes) in set {
            if !pinned.uses(object) {
                new.push((object.clone(), *writes));
            }
        }
        if new.is_empty() {
            return true;
        }
        if self.residence.is_wanted() {
            return false;
        }
        let numbers = distinct(&new);
        let mut state = self.residence.state();
        if !state.books.are_resident(&numbers) {
            return false;
        }
        state.books.pin(&numbers);
        drop(state);
        for (object, _) in &new {
            pinned.insert(object);
        }
        true
    }

    /// Takes a set over that the books have pinned.
    pub(super) fn insert(&mut self, set: &WorkingSet) {
        let mut pinned = self.lane.0.locked();
        pinned.is_in_use = true;
        pinned.turn += 1;
        for (object, _) in set {
            pinned.insert(object);
        }
    }

    /// Ends the turn: nothing of the lane is in flight.
    pub fn release(&mut self) {
        let mut pinned = self.lane.0.locked();
        if !pinned.is_in_use {
            return;
        }
        pinned.is_in_use = false;
        pinned.used_ns = monotonic_ns();
        std::mem::swap(&mut pinned.used, &mut self.spare);
        let is_kept = !self.residence.is_wanted() && pinned.turns.len() <= KEPT_MAX;
        if is_kept {
            self.residence.member().touch(pinned.used_ns);
        } else {
            self.residence.unpin(&mut pinned);
        }
        drop(pinned);
        // The objects' own ends take the lock.
        self.spare.clear();
    }

    /// Ends the turn and keeps nothing.
    pub(super) fn unpin(&mut self) {
        self.release();
        self.residence.unpin(&mut self.lane.0.locked());
    }

    /// Whether another thread waits for these objects, among others.
    pub fn are_wanted(&self) -> bool {
        self.residence.is_wanted() && self.lane.0.locked().is_in_use
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.unpin();
        let own = Arc::downgrade(&self.lane);
        let mut lanes = self.residence.lanes.locked();
        lanes.retain(|lane| !Weak::ptr_eq(lane, &own));
    }
}

impl Residence {
    /// Unpins all that a lane has pinned and does not use.
    fn unpin(&self, pinned: &mut Pinned) {
        if pinned.turns.is_empty() {
            return;
        }
        let mut state = self.state();
        let numbers = pinned.turns.keys().copied();
        state.books.unpin_since(numbers, pinned.used_ns);
        self.member().touch(state.books.last_use());
        drop(state);
        pinned.turns.clear();
        self.changed.notify_all();
    }

    /// Unpins what idle lanes have kept. The calling thread holds no other lock.
    pub(super) fn unpin_idle(&self) {
        for lane in &*self.lanes.locked() {
            if let Some(lane) = lane.upgrade() {
                let mut pinned = lane.0.locked();
                if !pinned.is_in_use {
                    self.unpin(&mut pinned);
                }
            }
        }
    }
}
