//! Copying contents while the session runs, so that only what was written since is copied while it
//! is stopped.
//!
//! Each command that is handed to the driver notes the objects that it may write ([`Tracker`]). A
//! copy counts if no command handed over before it was noted is still running, and none was noted
//! since.

use super::super::launch::OwnKernels;
use super::super::names::IdMap;
use super::super::objects::Context;
use super::super::submit::operands;
use super::super::Session;
use super::export::{self, copy_root, Room, Root, ALIGNMENT};
use baltra_ring::Locked;
use baltra_wire::moves::State;
use baltra_wire::{Id, Operation};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often a queue is looked at whose commands are waited for.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// All objects once, then those that were written meanwhile.
const PASSES: usize = 2;

/// The objects that commands may have written, while that is noted.
#[derive(Default)]
pub struct Tracker {
    is_on: AtomicBool,
    written: Mutex<HashSet<u64>>,
}

impl Tracker {
    /// Whether commands note what they write.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    /// Notes objects ([`super::super::objects::Memory::number`]).
    pub fn add(&self, written: &[u64]) {
        self.written.locked().extend(written);
    }

    fn start(&self) {
        self.is_on.store(true, Ordering::SeqCst);
    }

    /// The objects noted since the last call.
    pub(super) fn take(&self) -> HashSet<u64> {
        std::mem::take(&mut *self.written.locked())
    }

    /// Notes nothing any more.
    pub(super) fn stop(&self) {
        self.is_on.store(false, Ordering::SeqCst);
        self.take();
    }
}

/// Notes the objects that an operation may write, before it is handed to the driver.
pub fn track(
    session: &Session,
    context: &Context,
    kernels: &mut OwnKernels,
    operation: &Operation,
) {
    let mut written = Vec::new();
    if let Operation::Launch {
        kernel,
        arg_count,
        args,
        ..
    } = *operation
    {
        let args = (arg_count, args);
        kernels.each_memory(session, context, kernel, args, |memory, writes| {
            written.extend(writes.then(|| memory.whole().number));
        });
    } else if let (_, Some(id)) = operands(operation) {
        let memory = session.objects.memory(id);
        written.extend(memory.map(|memory| memory.whole().number));
    }
    session.tracker.add(&written);
}

/// Objects that have a place in the room.
#[derive(Default)]
pub(super) struct Copies {
    /// Offsets by number.
    pub places: HashMap<u64, u64>,
    /// The objects whose bytes are there, as far as no command has written them since.
    pub current: HashSet<u64>,
    /// End of the last place.
    pub end: u64,
    /// Bytes that were copied.
    pub bytes: u64,
}

impl Copies {
    /// A place for an object of this size.
    pub fn place(&mut self, number: u64, bytes: u64) -> u64 {
        let Copies { places, end, .. } = self;
        *places.entry(number).or_insert_with(|| {
            let at = *end;
            *end += bytes.next_multiple_of(ALIGNMENT);
            at
        })
    }

    /// Bytes of room that `roots` need, with the present places.
    pub fn needed(&self, roots: &[Root]) -> u64 {
        let new = roots
            .iter()
            .filter(|root| !self.places.contains_key(&root.memory.number));
        let new = new.map(|root| root.shape.bytes().next_multiple_of(ALIGNMENT));
        new.fold(self.end, u64::saturating_add)
    }
}

impl Session {
    /// Copies contents into the room while the session runs. Whatever prevents that shows, or does
    /// not matter, once the session is stopped.
    /// Returns what was copied, and a description of these objects, which is a [`State`] of a
    /// session that has not stopped; the target has the steps with the numbers `planned`.
    pub(super) fn copy_ahead(
        &self,
        room: &Room,
        wait: Duration,
        planned: &HashSet<u64>,
    ) -> (Copies, State) {
        self.tracker.start();
        let mut copies = Copies::default();
        let mut state = State::default();
        let Ok(steps) = self.steps(&[]) else {
            return (copies, state);
        };
        let records: IdMap<_> = steps.iter().rev().map(|s| (s.id, s.clone())).collect();
        let Ok(roots) = self.roots(&records) else {
            return (copies, state);
        };
        self.copy_roots(&roots, room, Instant::now() + wait, &mut copies);
        let copied = |root: &&Root| copies.current.contains(&root.memory.number);
        for root in roots.iter().filter(copied) {
            let offset = copies.places[&root.memory.number];
            state.contents.push((root.id, offset, root.shape.bytes()));
        }
        let copied: HashSet<Id> = state.contents.iter().map(|(id, ..)| *id).collect();
        let steps = steps.iter().filter(|step| copied.contains(&step.id));
        state.steps = steps.map(|own| export::step(own, planned)).collect();
        (copies, state)
    }

    fn copy_roots(&self, roots: &[Root], room: &Room, until: Instant, copies: &mut Copies) {
        if copies.needed(roots) > room.len {
            return;
        }
        let Ok(queue) = self.shared.context.queue(self.shared.device, 0) else {
            return;
        };
        for _ in 0..PASSES {
            let written = self.tracker.take();
            copies.current.retain(|number| !written.contains(number));
            if !self.commands_ended(until) {
                return;
            }
            for root in roots {
                if self.is_stopping() {
                    return;
                }
                let (number, bytes) = (root.memory.number, root.shape.bytes());
                // A client that has released it needs its memory.
                let is_released = Arc::strong_count(&root.memory) == 1;
                if copies.current.contains(&number) || is_released {
                    continue;
                }
                let Some(host) = room.slice(copies.place(number, bytes), bytes) else {
                    return;
                };
                if let Ok(copied @ 1..) = copy_root(&queue, root, &host) {
                    copies.current.insert(number);
                    copies.bytes += copied;
                }
            }
        }
    }

    /// Waits until no command runs that was handed over before this call.
    fn commands_ended(&self, until: Instant) -> bool {
        let queues = self.queues.locked().clone();
        let taken: Vec<_> = queues.iter().map(|q| (q.clone(), q.taken())).collect();
        for (queue, count) in taken {
            while queue.completed() < count && queue.running_since_ns().is_some() {
                if Instant::now() >= until || self.is_closed() {
                    return false;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_objects_keep_their_places() {
        let mut copies = Copies::default();
        assert_eq!(copies.place(7, 1), 0);
        assert_eq!(copies.place(8, 5000), 4096);
        assert_eq!(copies.place(7, 1), 0);
        assert_eq!(copies.place(9, 1), 4096 + 8192);
        assert_eq!(copies.end, 4096 + 8192 + 4096);
    }

    #[test]
    fn test_what_is_written_is_noted_once_until_it_is_taken() {
        let tracker = Tracker::default();
        assert!(!tracker.is_on());
        tracker.start();
        tracker.add(&[1, 2]);
        tracker.add(&[2]);
        assert_eq!(tracker.take(), HashSet::from([1, 2]));
        assert_eq!(tracker.take(), HashSet::new());
        tracker.add(&[3]);
        tracker.stop();
        assert_eq!((tracker.is_on(), tracker.take()), (false, HashSet::new()));
    }
}
