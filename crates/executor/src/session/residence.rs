//! Residence of memory objects: more memory than the device has.
//!
//! With `memory_overcommit` above 1, buffers and images are on the device only while commands use
//! them, and otherwise as long as there is room. Before a command is handed to the driver, its
//! working set (the objects that it names, sub-buffers and images of buffers with the buffer) is
//! made resident: objects of sessions that have been idle for longest leave ([`books`]), then the
//! set is created again and filled. Objects of commands in flight stay: each lane pins what its
//! commands use ([`pins`]).
//!
//! An object that leaves is read into host memory, unless it was not written since it came. Its
//! driver object goes to the next one of its size in the same move, or is released. A host copy is
//! kept for the object's next move while there is host memory for it; it is pinned if the driver
//! can do that without taking memory of the device ([`crate::driver::HostMemory`]). One thread
//! moves at a time. A thread that waits for room has no pins, so that threads never wait for each
//! other; while one waits, lanes whose pins are in use submit nothing new
//! ([`Residence::is_wanted`]).
//!
//! Executors of one device share its memory ([`baltra_ring::budget`]): one that needs more asks the
//! others ([`peers`]).
//!
//! Shared virtual memory, buffers in a client's memory and objects of contexts over sub-devices do
//! not leave.

mod books;
mod object;
mod peers;
mod pins;

use object::{HostCopy, Spare};
pub use object::{Object, Shape, Slice, Transfers};
pub use pins::Pins;

use crate::account::Account;
use crate::driver::{self, Code};
use baltra_opencl::*;
use baltra_ring::budget::{Lead, Member, Peer};
use baltra_ring::lease::monotonic_ns;
use baltra_ring::{Locked, Range, Unpoisoned};
use books::{Books, Number};
use pins::LanePins;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// A wait looks this often whether its session has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The driver has no memory.
fn is_refusal(code: Code) -> bool {
    code == CL_MEM_OBJECT_ALLOCATION_FAILURE
}

/// Sizes of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that objects take on the device together.
    pub device_bytes: u64,
    /// Bytes of all objects together.
    pub total_bytes: u64,
    /// Bytes of host copies from which on copies of objects on the device are given up.
    pub host_bytes: u64,
}

impl Room {
    /// `overcommit` times `device_bytes`, of which at most half of the host's memory is in the
    /// host.
    pub fn new(device_bytes: u64, overcommit: u32, host_bytes: u64) -> Room {
        let most = device_bytes.saturating_mul(overcommit.max(1).into());
        let host_bytes = (most - device_bytes).min(host_bytes / 2);
        Room {
            device_bytes,
            total_bytes: device_bytes.saturating_add(host_bytes),
            host_bytes,
        }
    }
}

struct State {
    books: Books,
    objects: HashMap<Number, Weak<Object>>,
    /// A thread moves objects.
    is_moving: bool,
}

/// The objects of a process that may leave its device.
pub struct Residence {
    context: Arc<driver::Context>,
    device: driver::Device,
    /// For the copies; made for the first one, because most executors never move an object.
    queue: Mutex<Option<Arc<driver::Queue>>>,
    /// Pins host copies.
    pins: bool,
    room: Room,
    /// Time that other executors may take to free memory without progress.
    patience: Duration,
    state: Mutex<State>,
    /// The pins of the lanes. Taken before a lane's pins, and those before `state`.
    lanes: Mutex<Vec<Weak<LanePins>>>,
    /// This executor's part of the device's memory.
    member: Mutex<Arc<Member>>,
    /// Others that have freed nothing when they were asked, as they were then.
    silent: Mutex<Vec<Peer>>,
    changed: Condvar,
    is_wanted: AtomicBool,
    next: AtomicU64,
    /// Bytes of host copies.
    host_bytes: AtomicU64,
    /// Of the present move.
    spares: Mutex<Vec<Spare>>,
}

/// The session whose command needs room.
pub struct Caller<'a> {
    /// Its tenant's account: each move is progress of its task.
    pub account: &'a Account,
    /// Whether the session is ending, so that its command is dropped.
    pub is_closed: &'a dyn Fn() -> bool,
}

/// The objects that a command uses, and whether it writes them.
pub type WorkingSet = Vec<(Arc<Object>, bool)>;

impl Residence {
    /// Without objects. `pins`: the driver copies faster from and to pinned memory. The budget is
    /// its own until [`Residence::join`]. `patience`: how long other executors may take to free memory
    /// without progress.
    pub fn new(
        context: &Arc<driver::Context>,
        device: driver::Device,
        pins: bool,
        room: Room,
        patience: Duration,
    ) -> std::io::Result<Residence> {
        let member = Member::alone()?;
        Ok(Residence {
            context: context.clone(),
            device,
            queue: Mutex::default(),
            pins,
            room,
            patience,
            state: Mutex::new(State {
                books: Books::new(room.device_bytes, room.total_bytes),
                objects: HashMap::new(),
                is_moving: false,
            }),
            lanes: Mutex::default(),
            member: Mutex::new(Arc::new(member)),
            silent: Mutex::default(),
            changed: Condvar::new(),
            is_wanted: false.into(),
            next: 1.into(),
            host_bytes: 0.into(),
            spares: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    fn queue(&self) -> Result<Arc<driver::Queue>, Code> {
        let mut queue = self.queue.locked();
        if let Some(queue) = &*queue {
            return Ok(queue.clone());
        }
        let made = Arc::new(self.context.queue(self.device, 0)?);
        Ok(queue.insert(made).clone())
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether objects of this context may leave.
    pub fn moves(&self, context: &driver::Context) -> bool {
        self.context.raw() == context.raw()
    }

    /// Whether a thread waits for objects in use to be unpinned.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// Bytes on the device, and bytes of all objects.
    pub fn bytes(&self) -> (u64, u64) {
        self.state().books.bytes()
    }

    /// Counts memory that cannot leave the device.
    pub fn fix(self: &Arc<Residence>, bytes: u64) -> Fixed {
        let mut state = self.state();
        state.books.fix(bytes);
        self.publish(&state);
        drop(state);
        Fixed {
            residence: self.clone(),
            bytes,
        }
    }

    /// Makes an object, on the device if there is room. Never waits.
    pub fn create(
        self: &Arc<Residence>,
        account: &Arc<Account>,
        session: u64,
        flags: u64,
        shape: Shape,
        contents: Option<&Range>,
    ) -> Result<Arc<Object>, Code> {
        let bytes = shape.bytes();
        let number = self.number();
        let mut state = self.state();
        let fits = self.enter(&mut state, number, session, bytes)?;
        drop(state);
        account.reside(bytes, fits);
        let object = Arc::new(Object::new(number, self, account, flags, shape));
        // Also for an object that has to wait for room: the driver checks its properties.
        let made = object.make(contents.filter(|_| fits));
        match made {
            Ok(mem) if fits => object.settle(mem, contents.is_some()),
            Ok(_) => object.keep(contents)?,
            Err(code) if !is_refusal(code) || bytes > self.room.device_bytes => return Err(code),
            Err(_) => {
                object.keep(contents)?;
                if fits {
                    let mut state = self.state();
                    state.books.leaves(number);
                    state.books.left(number, true);
                    self.publish(&state);
                    drop(state);
                    account.moved(bytes, false);
                }
            }
        }
        let mut state = self.state();
        state.objects.insert(number, Arc::downgrade(&object));
        drop(state);
        Ok(object)
    }

    /// Enters an object in the books; returns whether it may be on the device from the start.
    fn enter(
        &self,
        state: &mut State,
        number: Number,
        session: u64,
        bytes: u64,
    ) -> Result<bool, Code> {
        let others = self.member().taken();
        if !state.books.reserve(bytes, others.total) {
            return Err(CL_MEM_OBJECT_ALLOCATION_FAILURE);
        }
        let mut fits = state.books.add(number, session, bytes, others.resident);
        self.publish(state);
        // Another executor may have grown since.
        let others = self.member().taken();
        if state.books.bytes().1.saturating_add(others.total) > self.room.total_bytes {
            state.books.remove(number);
            state.books.unreserve(bytes);
            self.publish(state);
            return Err(CL_MEM_OBJECT_ALLOCATION_FAILURE);
        }
        let claimed = state.books.claimed().0.saturating_add(others.resident);
        if fits && claimed > self.room.device_bytes {
            state.books.leaves(number);
            state.books.left(number, true);
            self.publish(state);
            fits = false;
        }
        Ok(fits)
    }

    /// Removes an object; returns whether it was on the device.
    fn forget(&self, number: Number, bytes: u64) -> bool {
        let mut state = self.state();
        state.objects.remove(&number);
        let was_resident = state.books.remove(number);
        state.books.unreserve(bytes);
        self.publish(&state);
        drop(state);
        self.changed.notify_all();
        was_resident
    }

    /// The right to move, which one thread has at a time.
    fn begin_move(&self, is_closed: &dyn Fn() -> bool) -> Result<MutexGuard<'_, State>, Code> {
        let mut state = self.state();
        while state.is_moving {
            if is_closed() {
                return Err(CL_DEVICE_NOT_AVAILABLE);
            }
            state = self.wait(state);
        }
        state.is_moving = true;
        Ok(state)
    }

    fn end_move(&self) {
        self.spares.locked().clear();
        self.state().is_moving = false;
        self.is_wanted.store(false, Ordering::Release);
        self.changed.notify_all();
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, LOOK_EVERY);
        waited.unpoisoned().0
    }

    /// Waits for pins in use to be unpinned, for a moment.
    fn wait_unpinned<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if self.is_wanted.swap(true, Ordering::AcqRel) {
            return self.wait(state);
        }
        // From now on lanes that become idle unpin by themselves; some have just become idle.
        drop(state);
        self.unpin_idle();
        self.state()
    }

    /// Makes the set resident and pins it; the lane has no pins. Waits for objects of commands in
    /// flight if they have to leave.
    pub fn bring(
        &self,
        set: &WorkingSet,
        pins: &mut Pins,
        caller: &Caller<'_>,
    ) -> Result<(), Code> {
        let numbers = distinct(set);
        pins.unpin();
        let mut lead = None;
        let moved = loop {
            let state = self.begin_move(caller.is_closed)?;
            let moved = self.move_set(state, set, &numbers, caller, lead.as_ref());
            if moved == Ok(true) {
                pins.insert(set);
            }
            self.end_move();
            match moved {
                // Without the right to move, so that others can have this executor's memory.
                Ok(false) => lead = Some(self.take_lead(caller)?),
                Ok(true) => break Ok(()),
                Err(code) => break Err(code),
            }
        };
        moved
    }

    /// False: other executors have to free memory, and this thread does not have the lead.
    fn move_set<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        set: &WorkingSet,
        numbers: &[Number],
        caller: &Caller<'_>,
        lead: Option<&Lead>,
    ) -> Result<bool, Code> {
        state.books.pin(numbers);
        let mut moved = Ok(true);
        // One after the other, so that another executor's objects leave while those of the set come.
        for (object, _) in set {
            let space = self.make_space(state, object.number, numbers, caller, lead);
            moved = space.and_then(|has_space| {
                if has_space {
                    self.come(object, numbers, caller)?;
                }
                Ok(has_space)
            });
            state = self.state();
            state.books.expect_nothing();
            if moved != Ok(true) {
                state.books.unpin(numbers.iter().copied());
                break;
            }
        }
        self.publish(&state);
        moved
    }

    /// Frees what an object of a set needs, and reserves it: by objects of this executor, or of
    /// others that have been idle for longer. A set that exceeds the budget may do so alone. False:
    /// the lead is needed.
    fn make_space<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        number: Number,
        set: &[Number],
        caller: &Caller<'_>,
        lead: Option<&Lead>,
    ) -> Result<bool, Code> {
        let mut asked = Vec::new();
        loop {
            if (caller.is_closed)() {
                return Err(CL_DEVICE_NOT_AVAILABLE);
            }
            let member = self.member();
            if state.books.needed(&[number], member.taken().resident) > 0 {
                drop(state);
                self.unpin_idle();
                state = self.state();
            }
            let others = member.taken().resident;
            let needed = state.books.needed(&[number], others);
            let mut peers = self.willing_peers();
            peers.retain(|peer| !asked.contains(&peer.slot));
            if needed > 0 && !peers.is_empty() && lead.is_none() {
                return Ok(false);
            }
            let idle_since = state.books.idle_since(set);
            let peer = peers
                .first()
                .filter(|peer| idle_since.is_none_or(|own| peer.used_ns < own));
            if needed == 0 {
                break;
            } else if let (Some(peer), Some(lead)) = (peer, lead) {
                let all = state.books.needed(set, others);
                drop(state);
                let has_space = || {
                    self.state()
                        .books
                        .needed(&[number], member.taken().resident)
                        == 0
                };
                if !self.ask(lead, peer.slot, all, caller, &has_space)? {
                    asked.push(peer.slot);
                }
                state = self.state();
            } else if idle_since.is_some() {
                // The others' objects that have been idle for less long stay for now.
                let victims = state.books.victims(set, needed);
                let until = peers.first().map_or(u64::MAX, |peer| peer.used_ns);
                let victims = state.books.idle_before(victims, until);
                let victims = take(&mut state, &victims);
                drop(state);
                self.evict_all(victims, Some(caller))?;
                state = self.state();
            } else if state.books.has_pins(set) {
                state = self.wait_unpinned(state);
            } else {
                break;
            }
        }
        state.books.expect(&[number]);
        self.publish(&state);
        Ok(true)
    }

    /// Brings an object to the device, if it is not there.
    fn come(&self, object: &Object, set: &[Number], caller: &Caller<'_>) -> Result<(), Code> {
        if object.is_resident() {
            return Ok(());
        }
        match object.come() {
            Err(code) if is_refusal(code) => {
                let lead = self.member().lead();
                if !self.evict_extra(set, object.bytes, caller, lead.as_ref())? {
                    return Err(code);
                }
                self.spares.locked().clear();
                object.come()?;
            }
            came => came?,
        }
        let mut state = self.state();
        state.books.came(object.number);
        self.publish(&state);
        drop(state);
        object.account.moved(object.bytes, true);
        caller.account.lease.advance(monotonic_ns());
        Ok(())
    }

    /// Frees memory because the driver has refused a command over `set` although the budget holds;
    /// false: there is none to free.
    pub fn make_room(&self, set: &WorkingSet, caller: &Caller<'_>) -> Result<bool, Code> {
        let lead = self.take_lead(caller)?;
        let state = self.begin_move(caller.is_closed)?;
        drop(state);
        let bytes = set.iter().map(|(object, _)| object.bytes).sum();
        let evicted = self.evict_extra(&distinct(set), bytes, caller, Some(&lead));
        self.end_move();
        evicted
    }

    /// Frees `bytes`, if possible, by this executor's objects outside of `set`, or by another
    /// executor's if there are none; false: none were freed.
    fn evict_extra(
        &self,
        set: &[Number],
        bytes: u64,
        caller: &Caller<'_>,
        lead: Option<&Lead>,
    ) -> Result<bool, Code> {
        self.unpin_idle();
        let mut state = self.state();
        let victims = state.books.victims(set, bytes);
        let victims = take(&mut state, &victims);
        drop(state);
        if self.evict_all(victims, Some(caller))? > 0 {
            return Ok(true);
        }
        let Some(lead) = lead else {
            return Ok(false);
        };
        for peer in self.willing_peers() {
            if self.ask(lead, peer.slot, bytes, caller, &|| false)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives up host copies of objects on the device, as far as another of `bytes` bytes needs it:
    /// first those that are out of date. One of the same size is returned, because making and
    /// pinning memory takes longer than the copy.
    fn trim(&self, bytes: u64) -> Option<HostCopy> {
        let member = self.member();
        let others = member.taken().host;
        let held = || {
            self.host_bytes
                .load(Ordering::Relaxed)
                .saturating_add(others)
        };
        let is_enough = || held().saturating_add(bytes) <= self.room.host_bytes;
        if is_enough() {
            return None;
        }
        let state = self.state();
        let resident = state.objects.iter().filter_map(|(number, object)| {
            let object = object.upgrade()?;
            state.books.are_resident(&[*number]).then_some(object)
        });
        let mut resident: Vec<_> = resident.collect();
        drop(state);
        resident.sort_unstable_by_key(|object| object.bytes != bytes);
        for outdated in [true, false] {
            for object in &resident {
                if is_enough() {
                    return None;
                }
                let copy = object.give_up_copy(outdated);
                if copy.is_some() && object.bytes == bytes {
                    return copy;
                }
            }
        }
        if bytes > 0 {
            // The others give up theirs as soon as they can.
            member.urge();
        }
        None
    }

    /// Evicts objects that [`take`] has marked. After a failure the others stay. `caller`: `None`
    /// for another executor.
    fn evict_all(
        &self,
        victims: Vec<Arc<Object>>,
        caller: Option<&Caller<'_>>,
    ) -> Result<usize, Code> {
        let count = victims.len();
        let mut result = Ok(count);
        for object in victims {
            if result.is_ok() {
                result = if caller.is_some_and(|caller| (caller.is_closed)()) {
                    Err(CL_DEVICE_NOT_AVAILABLE)
                } else {
                    object.leave().map(|()| count)
                };
            }
            let left = result.is_ok();
            let mut state = self.state();
            state.books.left(object.number, left);
            self.publish(&state);
            drop(state);
            if left {
                object.account.moved(object.bytes, false);
                if let Some(caller) = caller {
                    caller.account.lease.advance(monotonic_ns());
                }
            }
        }
        result
    }
}

fn distinct(set: &WorkingSet) -> Vec<Number> {
    let mut numbers: Vec<_> = set.iter().map(|(object, _)| object.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Marks objects as leaving. One that is being dropped frees its memory by itself.
fn take(state: &mut State, victims: &[Number]) -> Vec<Arc<Object>> {
    let live = victims
        .iter()
        .filter_map(|number| state.objects.get(number)?.upgrade());
    let live: Vec<_> = live.collect();
    for object in &live {
        state.books.leaves(object.number);
    }
    live
}

/// Memory that cannot leave the device, as long as it lives.
pub struct Fixed {
    residence: Arc<Residence>,
    bytes: u64,
}

impl Drop for Fixed {
    fn drop(&mut self) {
        let mut state = self.residence.state();
        state.books.unfix(self.bytes);
        self.residence.publish(&state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_bounds_what_exceeds_the_device() {
        let room = Room::new(80, 4, 1000);
        assert_eq!((room.total_bytes, room.host_bytes), (320, 240));
        let room = Room::new(80, 4, 100);
        assert_eq!((room.total_bytes, room.host_bytes), (130, 50));
        assert_eq!(Room::new(u64::MAX, 4, 100).total_bytes, u64::MAX);
    }
}
