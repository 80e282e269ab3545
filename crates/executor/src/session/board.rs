//! The executor's private copy of the session's event states, indexed by slot. The shared table is
//! only written, for the client.

use super::notices::Notices;
use crate::driver::{Code, Event as DriverEvent};
use baltra_opencl::{CL_COMPLETE, CL_QUEUED};
use baltra_ring::{EventWriter, Locked, Unpoisoned, Waker};
use baltra_wire::{event_generation, event_slot, Completion, Event, Notice};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// State of an event.
#[derive(Clone)]
pub enum State {
    /// Its command has not been taken off a channel yet or is waiting itself, or it is a user event
    /// that has not been set.
    Pending,
    /// The driver has it.
    Submitted(Arc<Submitted>),
    /// `CL_COMPLETE` or an error.
    Done(Code),
}

/// An event's command in the driver.
pub struct Submitted {
    /// The driver's event.
    pub event: DriverEvent,
    /// The driver's context: wait lists cannot leave it.
    pub context: usize,
    /// The queue that it is in.
    pub queue: u32,
    /// A time of `CLOCK_MONOTONIC` before it was enqueued; 0 in a queue without profiling.
    pub before_ns: u64,
}

struct Slot {
    generation: u32,
    state: State,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    watched: HashSet<Event>,
    sleepers: Vec<Arc<Sleeper>>,
}

/// A thread that sleeps on its own channel and has to be woken by changes here.
pub struct Sleeper {
    /// Ends its sleep.
    pub waker: Waker,
    /// Whether it has anything that waits.
    pub interested: AtomicBool,
    /// Something changed since it last looked.
    pub changed: AtomicBool,
}

/// All events of a session.
pub struct Board {
    slots: Mutex<Slots>,
    changed: Condvar,
    waiting: AtomicU32,
    closed: AtomicBool,
    writer: EventWriter,
    notices: Arc<Notices>,
    mirror: bool,
}

impl Board {
    /// A board on which nothing happened yet.
    pub fn new(writer: EventWriter, notices: Arc<Notices>, mirror: bool) -> Board {
        Board {
            slots: Mutex::default(),
            changed: Condvar::new(),
            waiting: 0.into(),
            closed: false.into(),
            writer,
            notices,
            mirror,
        }
    }

    /// The shared table.
    pub fn writer(&self) -> &EventWriter {
        &self.writer
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.locked()
    }

    /// Whether there is such an event at all.
    pub fn exists(&self, event: Event) -> bool {
        event_generation(event) != 0 && self.writer.has(event)
    }

    /// A command of this event was submitted to the driver.
    pub fn submitted(&self, event: Event, submitted: Arc<Submitted>) {
        self.writer.set(event, baltra_opencl::CL_SUBMITTED, [0; 4]);
        let mut slots = self.lock();
        slots.put(event, State::Submitted(submitted));
        self.notify(&slots);
    }

    /// Records a complete or failed command and notifies waiters.
    pub fn complete(&self, event: Event, status: Code, times_ns: [u64; 4]) {
        let status = status.min(CL_COMPLETE);
        self.writer.set(event, status, times_ns);
        self.note(event, status, times_ns);
    }

    /// An event that the client completes by itself: nothing is written into its table.
    pub fn user(&self, event: Event, status: Code) {
        self.note(event, status.min(CL_COMPLETE), [0; 4]);
    }

    fn note(&self, event: Event, status: Code, times_ns: [u64; 4]) {
        let mut slots = self.lock();
        let dropped = slots.put(event, State::Done(status));
        let watched = !slots.watched.is_empty() && slots.watched.remove(&event);
        self.notify(&slots);
        drop(slots);
        // A driver event is released outside the lock.
        drop(dropped);
        if watched || self.mirror {
            self.notices.send(&Notice::Completed(Completion {
                event,
                status,
                times_ns,
            }));
        }
    }

    fn notify(&self, slots: &Slots) {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.changed.notify_all();
        }
        for sleeper in &slots.sleepers {
            if sleeper.interested.load(Ordering::Acquire) {
                sleeper.changed.store(true, Ordering::Release);
                sleeper.waker.wake();
            }
        }
    }

    /// Asks for a notice once the event is complete.
    pub fn watch(&self, event: Event) {
        let mut slots = self.lock();
        if let State::Done(status) = slots.get(event) {
            drop(slots);
            if !self.mirror {
                self.notices.send(&Notice::Completed(Completion {
                    event,
                    status,
                    times_ns: [0; 4],
                }));
            }
            return;
        }
        if self.exists(event) && !self.mirror {
            slots.watched.insert(event);
        }
    }

    /// Present state of an event.
    pub fn state(&self, event: Event) -> State {
        self.lock().get(event)
    }

    /// `CL_QUEUED` to `CL_COMPLETE`, as reported by the driver at present.
    pub fn status_now(&self, event: Event) -> u32 {
        let status = match self.state(event) {
            State::Pending => CL_QUEUED,
            State::Submitted(submitted) => submitted.event.status(),
            State::Done(_) => CL_COMPLETE,
        };
        status.max(CL_COMPLETE) as u32
    }

    /// Blocks until the event is submitted or complete, `stop` holds, or the session is closed.
    pub fn wait(&self, event: Event, stop: impl Fn() -> bool) -> State {
        let mut slots = self.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let state = loop {
            match slots.get(event) {
                State::Pending if !self.closed.load(Ordering::Acquire) && !stop() => {}
                state => break state,
            }
            let waited = self.changed.wait_timeout(slots, Duration::from_millis(100));
            slots = waited.unpoisoned().0;
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        state
    }

    /// Adds a thread to be woken by changes.
    pub fn subscribe(&self, sleeper: Arc<Sleeper>) {
        self.lock().sleepers.push(sleeper);
    }

    /// Removes a thread.
    pub fn unsubscribe(&self, sleeper: &Arc<Sleeper>) {
        self.lock().sleepers.retain(|s| !Arc::ptr_eq(s, sleeper));
    }

    /// Ends all waiting; the driver's events are let go.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let slots = self.lock();
        self.changed.notify_all();
        self.notify(&slots);
    }

    /// Has all that wait look at their conditions again.
    pub fn stir(&self) {
        let slots = self.lock();
        self.changed.notify_all();
        self.notify(&slots);
    }

    /// The events that have ended (slot, generation, status), and those that are watched; `None`:
    /// the driver has one of them.
    #[allow(clippy::type_complexity, reason = "two plain lists")]
    pub fn ended(&self) -> Option<(Vec<(u32, u32, Code)>, Vec<Event>)> {
        let slots = self.lock();
        let mut ended = Vec::new();
        for (at, slot) in slots.slots.iter().enumerate() {
            match &slot.state {
                State::Pending => {}
                State::Submitted(_) => return None,
                State::Done(status) => ended.push((at as u32, slot.generation, *status)),
            }
        }
        Some((ended, slots.watched.iter().copied().collect()))
    }

    /// Continues another executor's board; false: an event has no slot.
    pub fn restore(&self, ended: &[(u32, u32, Code)], watched: &[Event]) -> bool {
        let mut slots = self.lock();
        for (slot, generation, status) in ended {
            let event = baltra_wire::event(*slot, *generation);
            if !self.exists(event) {
                return false;
            }
            slots.put(event, State::Done(*status));
        }
        slots.watched = watched
            .iter()
            .copied()
            .filter(|e| self.exists(*e))
            .collect();
        true
    }

    /// Lets go of the driver's events.
    pub fn clear(&self) {
        let slots = std::mem::take(&mut *self.lock());
        drop(slots);
    }
}

impl Slots {
    /// If the slot has a newer generation, the event is no longer in use, by the client either.
    fn get(&self, event: Event) -> State {
        match self.slots.get(event_slot(event) as usize) {
            Some(slot) if slot.generation == event_generation(event) => slot.state.clone(),
            Some(slot) if slot.generation > event_generation(event) => State::Done(CL_COMPLETE),
            _ => State::Pending,
        }
    }

    /// Sets a state, unless the slot has a newer generation; returns the previous one.
    fn put(&mut self, event: Event, state: State) -> Option<State> {
        let at = event_slot(event) as usize;
        let generation = event_generation(event);
        if at >= self.slots.len() {
            // `exists` bounds the index by the slots that the client has provided memory for.
            let pending = || Slot {
                generation: 0,
                state: State::Pending,
            };
            self.slots
                .resize_with((at + 1).next_power_of_two().max(64), pending);
        }
        let slot = &mut self.slots[at];
        if slot.generation > generation {
            return Some(state);
        }
        slot.generation = generation;
        Some(std::mem::replace(&mut slot.state, state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_ring::Segment;
    use baltra_wire::event;

    fn board(mirror: bool) -> (Board, baltra_ring::Consumer) {
        let (segment, _) = Segment::create().unwrap();
        let notices = Notices::new(segment.notices()).unwrap();
        let consumer = baltra_ring::Consumer::new(segment.notices()).unwrap();
        (
            Board::new(EventWriter::new(&segment), notices, mirror),
            consumer,
        )
    }

    #[test]
    fn an_older_generation_counts_as_done_and_a_newer_one_as_pending() {
        let (board, _) = board(false);
        board.complete(event(3, 2), 0, [0; 4]);
        assert!(matches!(board.state(event(3, 1)), State::Done(0)));
        assert!(matches!(board.state(event(3, 2)), State::Done(0)));
        assert!(matches!(board.state(event(3, 3)), State::Pending));
        board.complete(event(3, 1), -5, [0; 4]);
        assert!(matches!(board.state(event(3, 2)), State::Done(0)));
    }

    #[test]
    fn a_watcher_is_notified_once() {
        let (board, mut consumer) = board(false);
        let mut record = Vec::new();
        board.watch(event(1, 1));
        assert!(!consumer.pop(&mut record).unwrap());
        board.user(event(1, 1), -7);
        assert!(consumer.pop(&mut record).unwrap());
        let Notice::Completed(completion) = baltra_wire::decode(&record).unwrap() else {
            panic!("another notice");
        };
        assert_eq!((completion.event, completion.status), (event(1, 1), -7));
        board.watch(event(1, 1));
        assert!(consumer.pop(&mut record).unwrap());
        assert!(!consumer.pop(&mut record).unwrap());
    }

    #[test]
    fn closing_ends_a_wait() {
        let (board, _) = board(false);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| board.wait(event(0, 1), || false));
            std::thread::sleep(Duration::from_millis(10));
            board.close();
            assert!(matches!(waiter.join().unwrap(), State::Pending));
        });
    }
}
