//! The description of a session.

use super::super::freeze::Frozen;
use super::super::ledger::{self, Recipe};
use super::super::names::IdMap;
use super::super::objects::{Memory, Place};
use super::super::pixels;
use super::super::residence::{copy_contents, Shape};
use super::super::table::Object;
use super::super::Session;
use super::ahead::Copies;
use super::ring_position;
use crate::driver::Queue;
use baltra_ring::{Locked, Memory as HostMemory, Range};
use baltra_wire::moves::{KernelNeed, Plan, QueueState, State, Step};
use baltra_wire::{decode, Backing, Control, Id};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Contents of objects begin at multiples of this.
pub(super) const ALIGNMENT: u64 = 4096;

pub(super) fn step(step: &ledger::Step, planned: &HashSet<u64>) -> Step {
    let known = planned.contains(&step.number);
    Step {
        number: step.number,
        id: step.id,
        record: if known {
            Vec::new()
        } else {
            step.record.to_vec()
        },
        succeeded: step.succeeded,
    }
}

/// The memory objects whose contents have to be copied.
pub(super) struct Root {
    pub id: Id,
    pub memory: Arc<Memory>,
    pub shape: Shape,
}

impl Session {
    pub(super) fn steps(&self, more: &[Arc<Recipe>]) -> Result<Vec<Arc<ledger::Step>>, String> {
        let steps = self.ledger.steps(more);
        steps.map_err(|_| "a program was made from programs that it no longer has".into())
    }

    /// What another executor can prepare while the session runs.
    pub(super) fn plan(&self) -> Result<Plan, String> {
        let mut plan = Plan {
            host_buffers: self.host_buffers.load(Ordering::Relaxed),
            mirror: self.start.flags.mirror,
            ..Plan::default()
        };
        for own in self.steps(&[])? {
            match decode::<Control>(&own.record) {
                Ok(
                    Control::Context { .. } | Control::ProgramSource { .. } | Control::Call { .. },
                ) => plan.steps.push(step(&own, &HashSet::new())),
                Ok(Control::Kernel { program, name, .. }) => {
                    let kernel = self.objects.kernel(own.id);
                    plan.kernels.push(KernelNeed {
                        program,
                        name: name.to_owned(),
                        group: kernel.map_or(0, |k| k.largest_group.load(Ordering::Relaxed)),
                    });
                }
                Ok(Control::Image { format, shape, .. }) => {
                    plan.formats.push((format, shape.kind));
                }
                _ => {}
            }
        }
        Ok(plan)
    }

    /// The largest object, bytes.
    pub(super) fn largest_object(&self) -> u64 {
        let sizes = self
            .objects
            .all()
            .into_iter()
            .map(|(_, object)| match object {
                Object::Memory(memory) => memory.size,
                _ => 0,
            });
        sizes.max().unwrap_or(0)
    }

    /// Bytes of room for the contents of its objects at present, and some more for those that come
    /// before it stops; 0: it has none.
    pub(super) fn contents_bytes(&self) -> u64 {
        let sizes = self
            .objects
            .all()
            .into_iter()
            .map(|(_, object)| match object {
                Object::Memory(memory) if memory.parent.is_none() && memory.arena.is_none() => {
                    memory.size.next_multiple_of(ALIGNMENT)
                }
                _ => 0,
            });
        let bytes = sizes.fold(0, u64::saturating_add);
        bytes.saturating_add(bytes / 16)
    }

    pub(super) fn roots(&self, records: &IdMap<Arc<ledger::Step>>) -> Result<Vec<Root>, String> {
        let mut roots: IdMap<Root> = IdMap::default();
        for (id, object) in self.objects.all() {
            let Object::Memory(mut memory) = object else {
                continue;
            };
            let mut id = id;
            loop {
                let record = records.get(&id).map(|step| decode::<Control>(&step.record));
                let (shape, parent) = match record {
                    Some(Ok(Control::Buffer { size, .. })) => (Shape::Buffer(size), 0),
                    Some(Ok(Control::SubBuffer { parent, .. })) => (Shape::Buffer(0), parent),
                    Some(Ok(Control::Image {
                        format,
                        shape,
                        parent,
                        ..
                    })) => {
                        let bytes = pixels::contents_bytes(&shape, memory.pixel_bytes);
                        (Shape::Image(format, shape, bytes.unwrap_or(0)), parent)
                    }
                    _ => return Err(format!("memory object {id} has no record")),
                };
                match (parent, memory.parent.clone()) {
                    (0, _) => {
                        if memory.arena.is_none() {
                            roots.entry(id).or_insert(Root { id, memory, shape });
                        }
                        break;
                    }
                    (parent, Some(whole)) => (id, memory) = (parent, whole),
                    (_, None) => return Err(format!("memory object {id} has no parent")),
                }
            }
        }
        Ok(roots.into_values().collect())
    }
}

/// Memory for the contents of objects, shared with the target.
pub(super) struct Room {
    memory: HostMemory,
    pub fd: OwnedFd,
    pub len: u64,
}

impl Room {
    /// Room for `len` bytes, which are there: the first access to shared memory takes longer than a
    /// copy.
    pub fn new(len: u64) -> Result<Room, String> {
        let made = HostMemory::create("baltra-move", len);
        let made = made.map_err(|e| format!("there is no host memory for {len} bytes: {e}"));
        let (memory, fd) = made?;
        memory.populate();
        Ok(Room { memory, fd, len })
    }

    /// A part of it.
    pub fn slice(&self, offset: u64, len: u64) -> Option<Range> {
        self.memory.slice(offset, len)
    }
}

/// What a stopped session consists of, except its arenas.
pub(super) struct Exported {
    pub state: State,
    /// Room for the contents, if the target has not received it yet.
    pub room: Option<Room>,
}

impl Frozen {
    /// Describes the session; the target has the steps with the numbers `planned`.
    pub(super) fn export(
        &self,
        stopped_ns: u64,
        planned: &HashSet<u64>,
        room: Option<&Room>,
        copies: Copies,
    ) -> Result<Exported, String> {
        let session = &self.session;
        let queues: Vec<QueueState> = self.workers.iter().map(|(_, w)| w.state()).collect();
        let released = self.workers.iter().filter_map(|(queue, _)| queue.recipe());
        let released: Vec<_> = released.collect();
        let steps = session.steps(&released)?;
        // The first record of an id is that of its creation.
        let creations = steps.iter().rev().map(|step| (step.id, step.clone()));
        let records: IdMap<_> = creations.collect();
        let (live, failed) = session.objects.named();
        let (events, watched) = session.board.ended().ok_or("a command has not ended")?;
        let stopped = session.notices.stopped();
        let stopped = stopped.ok_or("the program has not read its notices")?;
        let control = session.control.locked().position();
        let mut exported = Exported {
            state: State {
                stopped_ns,
                bytes: (0, 0),
                control: (
                    ring_position(control),
                    session.control_done.load(Ordering::Acquire),
                ),
                notices: (ring_position(stopped.position), stopped.printed),
                unsent: stopped.unsent,
                slots: session.ledger.slots(),
                steps: steps.iter().map(|own| step(own, planned)).collect(),
                live,
                failed,
                owed: stopped.owed,
                contents: Vec::new(),
                queues,
                events,
                watched,
                releases: session.deferred.objects(),
                clock_offset_ns: session.clock_offset_ns.load(Ordering::Relaxed),
            },
            room: None,
        };
        self.copy_contents(session.roots(&records)?, room, copies, &mut exported)?;
        Ok(exported)
    }

    /// Copies what was not copied before, or was written since.
    fn copy_contents(
        &self,
        roots: Vec<Root>,
        room: Option<&Room>,
        mut copies: Copies,
        exported: &mut Exported,
    ) -> Result<(), String> {
        if roots.is_empty() {
            return Ok(());
        }
        let session = &self.session;
        for number in session.tracker.take() {
            copies.current.remove(&number);
        }
        if room.is_none_or(|room| room.len < copies.needed(&roots)) {
            // Objects have come meanwhile: places in other room for those that are not copied yet.
            (copies.places, copies.end) = Default::default();
            exported.room = Some(Room::new(copies.needed(&roots))?);
        }
        let room = exported.room.as_ref().or(room);
        let room = room.ok_or("there is no room")?;
        let queue = session.shared.context.queue(session.shared.device, 0);
        let queue = queue.map_err(|code| format!("no queue for copies (error {code})"))?;
        let mut stopped_bytes = 0;
        for root in &roots {
            self.check()?;
            let (number, bytes) = (root.memory.number, root.shape.bytes());
            if copies.current.contains(&number) {
                // The target has them.
                continue;
            }
            let offset = copies.place(number, bytes);
            let host = room.slice(offset, bytes).ok_or("contents outside")?;
            let copied = copy_root(&queue, root, &host);
            let copied = copied
                .map_err(|code| format!("object {} cannot be read (error {code})", root.id))?;
            if copied > 0 {
                stopped_bytes += copied;
                exported.state.contents.push((root.id, offset, bytes));
            }
        }
        exported.state.bytes = (copies.bytes + stopped_bytes, stopped_bytes);
        Ok(())
    }
}

/// Copies an object's contents; returns how many bytes were copied.
pub(super) fn copy_root(queue: &Queue, root: &Root, host: &Range) -> crate::driver::Result<u64> {
    match &root.memory.place {
        Place::Movable(object) => object.export(host),
        Place::Fixed(mem) => {
            // SAFETY: `host` has the object's bytes, and the call waits.
            unsafe { copy_contents(queue, mem, &root.shape, true, host.ptr()) }?;
            Ok(root.shape.bytes())
        }
        // A part has its whole's contents.
        Place::Part(_) => Ok(0),
    }
}

/// A record as the target carries it out: with contents in `contents`.
pub(super) fn with_contents<'a>(
    message: Control<'a>,
    contents: Option<baltra_wire::Payload>,
) -> Control<'a> {
    match message {
        Control::Buffer {
            id,
            context,
            flags,
            size,
            backing: Backing::Device(_),
        } => Control::Buffer {
            id,
            context,
            flags,
            size,
            backing: Backing::Device(contents),
        },
        Control::Image {
            id,
            context,
            flags,
            format,
            shape,
            parent,
            ..
        } => Control::Image {
            id,
            context,
            flags,
            format,
            shape,
            parent,
            contents,
        },
        other => other,
    }
}
