//! Contexts of several sessions: which replica of a memory object holds its contents, and their
//! transfer to the session of a command that needs them.
//!
//! A move is a read in one session and a write in another, each in a queue that the member keeps
//! for moves; the notice thread copies from one staging block to the other in between. The write is
//! enqueued only then: over a socket its bytes go with it. The command that needs the contents
//! waits for the write's event, which exists from the start. Writes into one replica are enqueued
//! in the order of their moves ([`Arrivals`]).
//!
//! A large buffer moves in pieces, on a thread of the library's ([`pieces::between`]): reads, copies
//! and writes overlap, and nothing as large as the buffer is allocated.

use crate::core::buffer::range;
use crate::core::callback;
use crate::core::context::Context;
use crate::core::copy::copy;
use crate::core::event::{set_slot, Event};
use crate::core::lost;
use crate::core::memory::Memory;
use crate::core::object::{Object, Ref};
use crate::core::pieces::{self, WHOLE_BYTES};
use crate::core::queue::{Access, Queue, Use};
use crate::core::workers;
use baltra_opencl::*;
use baltra_ring::Locked;
use baltra_session::client::Block;
use baltra_wire::{Direction, Event as Slot, Operation, Payload, Region};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// State of a memory object's replicas.
#[derive(Default)]
pub struct Coherence {
    /// Members whose replicas hold the contents; none: there are no contents yet.
    holders: Vec<usize>,
    /// The newest command that changed them.
    writer: Option<Ref<Event>>,
    /// Moves: the member of a slot, and the slot of the move's end there.
    moves: Vec<Move>,
    /// Members with what is to be written there.
    arrivals: Vec<(usize, Arc<Arrivals>)>,
}

/// Enqueues a write, or fails its event.
type Land = Box<dyn FnOnce() + Send>;

/// Writes into one replica, oldest first: the event, and the write once its bytes are there. An
/// older one may come later, from another member.
#[derive(Default)]
struct Arrivals(Mutex<VecDeque<(Slot, Option<Land>)>>);

impl Arrivals {
    /// A write will come.
    fn expect(&self, arrival: Slot) {
        let mut all = self.0.locked();
        all.push_back((arrival, None));
    }

    /// It has come: it and those that waited for it land.
    fn come(&self, arrival: Slot, land: Land) {
        let mut all = self.0.locked();
        if let Some(own) = all.iter_mut().find(|own| own.0 == arrival) {
            own.1 = Some(land);
        }
        // Under the lock, so that they land in order.
        while let Some((_, Some(_))) = all.front() {
            if let Some((_, Some(land))) = all.pop_front() {
                land();
            }
        }
    }
}

struct Move {
    member: usize,
    slot: Slot,
    /// Into the member (its commands wait for it) or out of it (commands that change it wait).
    inward: bool,
}

impl Coherence {
    /// Only this member has the contents.
    pub fn hold_only(&mut self, member: usize) {
        self.holders = vec![member];
    }

    /// A member whose replica holds the contents; one that is there, if any of them is.
    fn source(&self, context: &Context) -> usize {
        let mut all = self.holders.iter().copied();
        let present = all.find(|&member| !context.is_gone(member));
        present.unwrap_or(self.holders[0])
    }

    /// The contents move; for each end the member and the slot of the end's event.
    fn moves_on(&mut self, from: (usize, Slot), to: (usize, Slot)) {
        for ((member, slot), inward) in [(from, false), (to, true)] {
            self.moves.push(Move {
                member,
                slot,
                inward,
            });
        }
        self.holders.push(to.0);
    }

    fn arrivals(&mut self, member: usize) -> Arc<Arrivals> {
        if let Some((_, found)) = self.arrivals.iter().find(|own| own.0 == member) {
            return found.clone();
        }
        let fresh = Arc::<Arrivals>::default();
        self.arrivals.push((member, fresh.clone()));
        fresh
    }
}

/// The object that has the replicas: a sub-buffer's bytes are its parent's.
fn owner(memory: &Object<Memory>) -> &Object<Memory> {
    match &memory.parent {
        Some(parent) => owner(parent),
        None => memory,
    }
}

/// Transfers the objects' contents to `queue`'s member before the command that is about to be
/// pushed; appends the events that the command has to wait for.
pub fn prepare(queue: &Object<Queue>, uses: &[Use<'_>], slots: &mut Vec<Slot>) -> Result<(), i32> {
    for one in uses {
        let memory = owner(one.memory);
        let mut state = memory.coherence.locked();
        let member = queue.member;
        let context = &queue.context;
        state.moves.retain(|m| {
            let here = &context.members[m.member];
            let open = here.client.events().status(m.slot) > 0;
            if !open {
                here.free_event(m.slot);
            }
            open
        });
        let have = state.holders.is_empty() || state.holders.contains(&member);
        if !have && one.access != Access::Write {
            if memory.image.is_none() && memory.size > WHOLE_BYTES {
                bring_in_pieces(queue, memory, &mut state)?
            } else {
                bring(queue, memory, &mut state)?
            }
        }
        let changes = one.access != Access::Read;
        let concerns = |m: &&Move| m.member == member && (m.inward || changes);
        slots.extend(state.moves.iter().filter(concerns).map(|m| m.slot));
    }
    Ok(())
}

/// Records the accesses of a command that has been pushed.
pub fn used(queue: &Object<Queue>, uses: &[Use<'_>], event: &Ref<Event>) {
    for one in uses.iter().filter(|one| one.access != Access::Read) {
        let memory = owner(one.memory);
        let mut state = memory.coherence.locked();
        state.hold_only(queue.member);
        state.writer = Some(event.clone());
    }
}

/// All of an object, as a transfer's operation.
fn all(
    memory: &Memory,
    id: u32,
    direction: Direction,
    payload: Payload,
) -> Result<Operation<'static>, i32> {
    Ok(match &memory.image {
        None => Operation::Buffer {
            direction,
            buffer: id,
            offset: 0,
            payload,
        },
        Some(image) => Operation::Image {
            direction,
            image: id,
            region: Region {
                origin: [0; 3],
                size: image.layout.extent().map(|n| n as u64),
                row_pitch: 0,
                slice_pitch: 0,
            },
            payload,
        },
    })
}

fn bring(queue: &Object<Queue>, memory: &Memory, state: &mut Coherence) -> Result<(), i32> {
    let context = queue.context.clone();
    let (from, to) = (state.source(&context), queue.member);
    let (source, target) = (&context.members[from], &context.members[to]);
    let len = match &memory.image {
        Some(image) => image.layout.len() as u64,
        None => memory.size as u64,
    };
    let out = Arc::new(source.allocate(len, 128)?);
    let into = Arc::new(target.allocate(len, 128)?);

    let mut after: Vec<Slot> = Vec::new();
    if let Some(writer) = &state.writer {
        writer.flush();
        after.extend(writer.slot_in(from)?);
    }
    let here = |m: &&Move| m.member == from && m.inward;
    after.extend(state.moves.iter().filter(here).map(|m| m.slot));
    let read = source.new_event()?;
    let id = memory.id_in(from)?;
    let operation = all(memory, id, Direction::Read, out.payload())?;
    let follower = source.follower()?;
    follower.push(read, &after, &operation).map_err(lost)?;
    follower.flush();

    let arrival = target.new_event()?;
    let id = memory.id_in(to)?;
    let operation = all(memory, id, Direction::Write, into.payload())?;
    let arrivals = state.arrivals(to);
    arrivals.expect(arrival);
    let there = context.clone();
    let copied = move |done: baltra_wire::Completion| {
        if done.status == CL_COMPLETE {
            copy(out.ptr(), into.ptr(), into.len());
        }
        callback::run(move || drop(out));
        let land = move || land(there, to, arrival, (done.status, &operation), into);
        arrivals.come(arrival, Box::new(land));
    };
    source.client.watch(read, Box::new(copied)).map_err(lost)?;

    state.moves_on((from, read), (to, arrival));
    Ok(())
}

/// Called with the first error, or `CL_COMPLETE`.
type Ended = Box<dyn FnOnce(i32) + Send>;

/// Runs a job once everything that it waits for is over.
struct Dependencies {
    open: AtomicUsize,
    /// The first error, or `CL_COMPLETE`.
    status: AtomicI32,
    job: Mutex<Option<Ended>>,
}

impl Dependencies {
    /// One of them is over.
    fn ended(&self, status: i32) {
        if status < 0 {
            self.status.store(status, Ordering::Relaxed);
        }
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            let job = self.job.locked().take();
            if let Some(job) = job {
                job(self.status.load(Ordering::Relaxed));
            }
        }
    }
}

/// As [`bring`], for a large buffer.
fn bring_in_pieces(
    queue: &Object<Queue>,
    memory: &Object<Memory>,
    state: &mut Coherence,
) -> Result<(), i32> {
    let context = queue.context.clone();
    let (from, to) = (state.source(&context), queue.member);
    let (source, target) = (&context.members[from], &context.members[to]);
    let read = range(Direction::Read, memory.id_in(from)?, 0);
    let write = range(Direction::Write, memory.id_in(to)?, 0);
    let (gone, arrival) = (source.new_event()?, target.new_event()?);

    let (kept, there) = (memory.share(), context.clone());
    let moving = move |status| {
        workers::run(move || {
            let (source, target) = (&there.members[from], &there.members[to]);
            let moved = match status {
                CL_COMPLETE => pieces::between(source, &read, target, &write, kept.size),
                failed => Err(failed),
            };
            for (member, direction, slot) in [
                (from, Direction::Read, gone),
                (to, Direction::Write, arrival),
            ] {
                let ended = moved.and_then(|()| end_move(&there, member, direction, slot));
                if let Err(code) = ended {
                    set_slot(&there, member, slot, code);
                }
            }
            callback::run(move || drop((kept, there)));
        });
    };
    let dependencies = Arc::new(Dependencies {
        open: AtomicUsize::new(1),
        status: AtomicI32::new(CL_COMPLETE),
        job: Mutex::new(Some(Box::new(moving))),
    });
    let waits = || {
        dependencies.open.fetch_add(1, Ordering::Relaxed);
        let dependencies = dependencies.clone();
        move |status| dependencies.ended(status)
    };
    if let Some(writer) = &state.writer {
        writer.flush();
        writer.then(Box::new(waits()))?;
    }
    // Into the source: the bytes that move on. Into the target: older ones, which land before.
    let earlier = |m: &&Move| m.inward && (m.member == from || m.member == to);
    for earlier in state.moves.iter().filter(earlier) {
        let ended = waits();
        let client = &context.members[earlier.member].client;
        let then = move |done: baltra_wire::Completion| ended(done.status);
        client.watch(earlier.slot, Box::new(then)).map_err(lost)?;
    }
    dependencies.ended(CL_COMPLETE);

    state.moves_on((from, gone), (to, arrival));
    Ok(())
}

/// Completes the event of one end of a move, whose transfers are over. Its owner may free it as
/// soon as it is complete, so that nothing here waits for it.
fn end_move(context: &Context, member: usize, direction: Direction, slot: Slot) -> Result<(), i32> {
    let mover = context.members[member].mover(direction)?;
    mover.push(slot, &[], &Operation::Marker).map_err(lost)?;
    mover.flush();
    Ok(())
}

/// Enqueues a write whose bytes are there, or passes on why they are not.
fn land(
    context: Ref<Context>,
    to: usize,
    arrival: Slot,
    (status, operation): (i32, &Operation<'_>),
    block: Arc<Block>,
) {
    let target = &context.members[to];
    let sent = match status {
        CL_COMPLETE => target.mover(Direction::Write).and_then(|mover| {
            mover.push(arrival, &[], operation).map_err(lost)?;
            mover.flush();
            Ok(())
        }),
        failed => Err(failed),
    };
    if let Err(code) = sent {
        set_slot(&context, to, arrival, code);
        callback::run(move || drop((block, context)));
        return;
    }
    let client = target.client.clone();
    let done = move |_| callback::run(move || drop((block, context)));
    // Where the session is lost, it is called at once.
    let _ = client.watch(arrival, Box::new(done));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_land_in_the_order_of_their_moves() {
        let arrivals = Arrivals::default();
        let landed = Arc::new(Mutex::new(Vec::new()));
        let land = |arrival: Slot| {
            let landed = landed.clone();
            arrivals.come(
                arrival,
                Box::new(move || landed.lock().unwrap().push(arrival)),
            );
        };
        for arrival in 1..=4 {
            arrivals.expect(arrival);
        }
        land(3);
        land(2);
        assert!(landed.lock().unwrap().is_empty());
        land(1);
        assert_eq!(*landed.lock().unwrap(), [1, 2, 3]);
        land(4);
        assert_eq!(*landed.lock().unwrap(), [1, 2, 3, 4]);
    }
}
