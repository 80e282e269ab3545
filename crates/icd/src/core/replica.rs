//! Contexts of several sessions: which replica of a memory object holds its contents, and their
//! transfer to the session of a command that needs them.
//!
//! A move is a read in one session and a write in another, each in a queue that the member keeps
//! for moves; the notice thread copies from one staging block to the other in between and opens the
//! write's gate. The command that needs the contents waits for the write, like for any event.

use crate::core::callback;
use crate::core::copy::copy;
use crate::core::event::{set_slot, Event};
use crate::core::lost;
use crate::core::memory::Memory;
use crate::core::object::{Object, Ref};
use crate::core::queue::{Access, Queue, Use};
use baltra_opencl::*;
use baltra_wire::{Direction, Event as Slot, Operation, Payload, Region};
use std::sync::Arc;

/// State of a memory object's replicas.
#[derive(Default)]
pub struct Coherence {
    /// Members whose replicas hold the contents; none: there are no contents yet.
    holders: Vec<usize>,
    /// The newest command that changed them.
    writer: Option<Ref<Event>>,
    /// Moves: the member of a slot, and the slot of the move's end there.
    moves: Vec<Move>,
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
}

/// The object that has the replicas: a sub-buffer's bytes are its parent's.
fn owner(memory: &Memory) -> &Memory {
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
        let mut state = memory.coherence.lock().expect("no panic under this lock");
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
            bring(queue, memory, &mut state)?;
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
        let mut state = memory.coherence.lock().expect("no panic under this lock");
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
    let (from, to) = (state.holders[0], queue.member);
    let context = queue.context.clone();
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
    let mover = source.mover(Direction::Read)?;
    mover.push(read, &after, &operation).map_err(lost)?;
    mover.flush();

    let gate = target.new_event()?;
    let arrival = target.new_event()?;
    let id = memory.id_in(to)?;
    let operation = all(memory, id, Direction::Write, into.payload())?;
    let mover = target.mover(Direction::Write)?;
    mover.push(arrival, &[gate], &operation).map_err(lost)?;
    mover.flush();

    let then_context = context.clone();
    let landing = into.clone();
    let copied = move |done: baltra_wire::Completion| {
        if done.status == CL_COMPLETE {
            copy(out.ptr(), landing.ptr(), landing.len());
        }
        set_slot(&then_context, to, gate, done.status);
        then_context.members[to].free_event(gate);
        callback::run(move || drop((out, landing, then_context)));
    };
    source.client.watch(read, Box::new(copied)).map_err(lost)?;
    let done = Box::new(move |_| callback::run(move || drop(into)));
    target.client.watch(arrival, done).map_err(lost)?;

    state.moves.push(Move {
        member: from,
        slot: read,
        inward: false,
    });
    state.moves.push(Move {
        member: to,
        slot: arrival,
        inward: true,
    });
    state.holders.push(to);
    Ok(())
}
