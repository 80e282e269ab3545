//! The description of a session.

use super::super::freeze::Frozen;
use super::super::ledger::{self, Recipe};
use super::super::names::IdMap;
use super::super::objects::{Memory, Needs, ObjectLocation};
use super::super::pixels;
use super::super::position::ring_position;
use super::super::residence::Shape;
use super::super::table::Object;
use super::super::Session;
use baltra_ring::Locked;
use baltra_wire::moves::{KernelNeed, Plan, QueueState, State, Step};
use baltra_wire::{decode, Backing, Control, Id};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

pub(super) fn step(step: &ledger::Step) -> Step {
    Step {
        number: step.number,
        id: step.id,
        record: step.record.to_vec(),
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

    /// The plan of the objects that another executor can prepare while the session runs.
    pub(super) fn plan(&self) -> Result<Plan, String> {
        let mut plan = Plan {
            host_buffers: self.host_buffers.load(Ordering::Relaxed),
            mirror: self.start.flags.mirror,
            facts: self.facts_read.get(),
            ..Plan::default()
        };
        for own in self.steps(&[])? {
            match decode::<Control>(&own.record) {
                Ok(
                    Control::Context { .. } | Control::ProgramSource { .. } | Control::Call { .. },
                ) => plan.steps.push(step(&own)),
                Ok(Control::Kernel { program, name, .. }) => {
                    let kernel = self.objects.kernel(own.id);
                    let most = |need: &dyn Fn(&Needs) -> &AtomicU64| {
                        let need = kernel.as_ref().map(|k| need(&k.needs));
                        need.map_or(0, |need| need.load(Ordering::Relaxed))
                    };
                    plan.kernels.push(KernelNeed {
                        program,
                        name: name.to_owned(),
                        group: most(&|needs| &needs.group),
                        sides: std::array::from_fn(|at| most(&|needs| &needs.sides[at])),
                        local_bytes: most(&|needs| &needs.local_bytes),
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

    /// The objects with contents whose records are among these. While the session runs, objects
    /// are made that have none yet; `is_stopped`: each must have one.
    pub(super) fn roots(
        &self,
        records: &IdMap<Arc<ledger::Step>>,
        is_stopped: bool,
    ) -> Result<Vec<Root>, String> {
        let mut roots: IdMap<Root> = IdMap::default();
        for (id, object) in self.objects.all() {
            let Object::Memory(memory) = object else {
                continue;
            };
            match root(id, memory, records) {
                Ok(Some(root)) => drop(roots.entry(root.id).or_insert(root)),
                Ok(None) => {}
                Err(reason) if is_stopped => return Err(reason),
                Err(_) => {}
            }
        }
        Ok(roots.into_values().collect())
    }
}

/// The object that has the contents of a memory object; `None`: they are in the client's memory.
fn root(
    mut id: Id,
    mut memory: Arc<Memory>,
    records: &IdMap<Arc<ledger::Step>>,
) -> Result<Option<Root>, String> {
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
            (0, _) if memory.arena.is_some() => return Ok(None),
            (0, _) => return Ok(Some(Root { id, memory, shape })),
            (parent, Some(whole)) => (id, memory) = (parent, whole),
            (_, None) => return Err(format!("memory object {id} has no parent")),
        }
    }
}

impl Root {
    /// Whether nothing but this list keeps it.
    pub fn is_released(&self) -> bool {
        Arc::strong_count(&self.memory) == 1
    }

    /// Whether it has contents that have to be copied.
    pub fn has_contents(&self) -> bool {
        match &self.memory.place {
            ObjectLocation::Movable(object) => object.has_contents(),
            ObjectLocation::Fixed(_) => true,
            // A part has its whole's contents.
            ObjectLocation::Part(_) => false,
        }
    }
}

/// Bytes of the largest slice.
pub(super) fn largest_slice(roots: &[Root]) -> u64 {
    roots
        .iter()
        .map(|root| root.shape.unit())
        .max()
        .unwrap_or(0)
}

impl Frozen {
    /// Describes the session; the target has the steps with the numbers `planned`. Also returns the
    /// objects with contents.
    pub(super) fn export(
        &self,
        stopped_ns: u64,
        planned: &HashSet<u64>,
    ) -> Result<(State, Vec<Root>), String> {
        let session = &self.session;
        let queues: Vec<QueueState> = self.workers.iter().map(|(_, w)| w.state()).collect();
        let released = self.workers.iter().filter_map(|(queue, _)| queue.recipe());
        let released: Vec<_> = released.collect();
        let steps = session.steps(&released)?;
        let roots = session.roots(&creations(&steps), true)?;
        let (live, failed) = session.objects.named();
        let (events, watched) = session.board.ended().ok_or("a command has not ended")?;
        let stopped = session.notices.stopped();
        let stopped = stopped.ok_or("the program has not read its notices")?;
        let control = session.control.locked().position();
        let new = steps.iter().filter(|own| !planned.contains(&own.number));
        let state = State {
            stopped_ns,
            control: (
                ring_position(control),
                session.control_done.load(Ordering::Acquire),
            ),
            notices: (ring_position(stopped.position), stopped.printed),
            unsent: stopped.unsent,
            slots: session.ledger.slots(),
            steps: new.map(|own| step(own)).collect(),
            live,
            failed,
            owed: stopped.owed,
            queues,
            events,
            watched,
            releases: session.deferred.objects(),
            clock_offset_ns: session.clock_offset_ns.load(Ordering::Relaxed),
        };
        Ok((state, roots))
    }
}

/// The creation of each object: the first record of its id.
pub(super) fn creations(steps: &[Arc<ledger::Step>]) -> IdMap<Arc<ledger::Step>> {
    steps.iter().rev().map(|s| (s.id, s.clone())).collect()
}

/// A record as the target carries it out: the contents come later.
pub(super) fn without_contents(message: Control<'_>) -> Control<'_> {
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
            backing: Backing::Device(None),
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
            contents: None,
        },
        other => other,
    }
}
