//! Making a session from its description.

use super::super::deferred::{After, ReleaseTarget};
use super::super::freeze::Frozen;
use super::super::ledger::Making;
use super::super::names::{words, IdMap};
use super::super::objects::ObjectLocation;
use super::super::position::position;
use super::super::residence::{Shape, Slice, Transfers};
use super::super::{ControlState, Session, SessionMemory, Violation};
use super::export::without_contents;
use super::window::{transfers, Window};
use crate::account::Account;
use crate::shared::Shared;
use baltra_opencl::*;
use baltra_ring::{Consumer, Locked};
use baltra_wire::executor::SessionStart;
use baltra_wire::moves::{ArenaState, KernelNeed, Part, Plan, QueueState, State, Step};
use baltra_wire::{decode, encode, Control, Id, ImageFormat, Reply};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

/// A session that is being made. Dropped, it leaves no trace at the client.
pub(super) struct Importer {
    pub session: Arc<Session>,
    applied: HashSet<u64>,
    created: HashSet<Id>,
    /// The session is stopped at the source.
    is_stopped: bool,
    /// Objects that were made or written since.
    touched: HashSet<Id>,
    /// The window, and the copies out of it, which end before it does.
    pub window: Option<(Transfers, Window)>,
    /// Shapes of objects with contents, as far as they were needed.
    shapes: IdMap<Shape>,
    /// The needs of the session's kernels.
    needs: Vec<KernelNeed>,
}

/// A session that is made except for contents that come.
pub(super) struct PreparedSession {
    frozen: Frozen,
    state: State,
}

fn text(violation: Violation) -> String {
    violation.text
}

impl Importer {
    /// A session without objects.
    pub fn new(
        shared: Arc<Shared>,
        account: Arc<Account>,
        start: SessionStart,
        socket: OwnedFd,
        segment: OwnedFd,
    ) -> Result<Importer, String> {
        let memory = SessionMemory::Segment(segment);
        let session = Session::make(shared, account, start, socket, memory, true);
        let session = session.map_err(|e| format!("cannot map the session's memory: {e}"))?;
        // Its notices do not come back: the source still reads the socket.
        let stopped = session.inbox.stop();
        stopped.map_err(|e| e.to_string())?;
        Ok(Importer {
            session,
            applied: HashSet::new(),
            created: HashSet::new(),
            is_stopped: false,
            touched: HashSet::new(),
            window: None,
            shapes: IdMap::default(),
            needs: Vec::new(),
        })
    }

    /// Builds the programs, and checks the rest of the plan.
    pub fn prepare(&mut self, plan: &Plan) -> Result<(), String> {
        let description = &self.session.shared.description;
        if plan.host_buffers && !description.host_memory {
            return Err(
                "the program has buffers in its own memory, which the device cannot use \
                 (device.host_memory = false on the first device avoids that)"
                    .into(),
            );
        }
        let offers = |format: &ImageFormat, kind: u32| {
            let own: Vec<u8> = [format.order.to_ne_bytes(), format.kind.to_ne_bytes()].concat();
            let of_kind = description.image_formats.iter().filter(|f| f.0 == kind);
            of_kind
                .flat_map(|f| f.2.chunks_exact(8))
                .any(|one| one == own)
        };
        if let Some((format, _)) = plan.formats.iter().find(|(f, kind)| !offers(f, *kind)) {
            return Err(format!(
                "the device has no images of order {:#x} and type {:#x}",
                format.order, format.kind
            ));
        }
        self.session
            .host_buffers
            .store(plan.host_buffers, Ordering::Relaxed);
        self.session.facts_read.set(plan.facts);
        for step in &plan.steps {
            self.apply(step)?;
        }
        self.needs = plan.kernels.clone();
        plan.kernels.iter().try_for_each(|need| self.check(need))
    }

    /// Whether a kernel can run as it has run.
    fn check(&self, need: &KernelNeed) -> Result<(), String> {
        let program = self.session.objects.program(need.program);
        // Released meanwhile, and its kernels with it.
        let Ok(program) = program else {
            return Ok(());
        };
        let refused = |code| format!("kernel '{}' is not there (error {code})", need.name);
        let kernel = program.driver().kernel(&need.name).map_err(refused)?;
        let device = self.session.shared.device;
        let most = kernel.work_group_info(device, CL_KERNEL_WORK_GROUP_SIZE as u32);
        let most = crate::driver::number(&most.map_err(refused)?);
        if need.group > most {
            return Err(format!(
                "kernel '{}' has run in groups of {} work-items, and the device allows {most}",
                need.name, need.group
            ));
        }
        let sides = device.info(CL_DEVICE_MAX_WORK_ITEM_SIZES as u32);
        let sides: Vec<_> = words(sides.as_deref().unwrap_or_default()).collect();
        if need
            .sides
            .iter()
            .zip(&sides)
            .any(|(side, most)| side > most)
        {
            return Err(format!(
                "kernel '{}' has run in groups with sides of up to {:?} work-items, and the device \
                 allows {sides:?}",
                need.name, need.sides
            ));
        }
        let own = kernel.work_group_info(device, CL_KERNEL_LOCAL_MEM_SIZE as u32);
        let own = crate::driver::number(&own.map_err(refused)?);
        let local_bytes = own.saturating_add(need.local_bytes);
        let most = device.number(CL_DEVICE_LOCAL_MEM_SIZE as u32);
        if local_bytes > most {
            return Err(format!(
                "kernel '{}' needs {local_bytes} bytes of local memory, and the device has {most}",
                need.name
            ));
        }
        Ok(())
    }

    /// Carries out a record, once.
    fn apply(&mut self, step: &Step) -> Result<(), String> {
        if self.applied.contains(&step.number) {
            return Ok(());
        }
        let message = decode::<Control>(&step.record).map_err(|e| e.to_string())?;
        let session = &self.session;
        match message {
            Control::Call { request, .. } => {
                let made = Making::of_request(&request);
                let made = made.filter(|made| made.id == step.id);
                let made = made.ok_or("a request that makes nothing")?;
                let reply = session.build(request);
                if step.succeeded {
                    succeeded(&reply)
                        .map_err(|why| format!("program {} cannot be built: {why}", step.id))?;
                }
                if let Ok(reply) = &reply {
                    session.keep_built(made, &step.record, reply);
                }
            }
            Control::Context { id, .. }
            | Control::Buffer { id, .. }
            | Control::SubBuffer { id, .. }
            | Control::Image { id, .. }
            | Control::Sampler { id, .. }
            | Control::ProgramSource { id, .. }
            | Control::Kernel { id, .. }
                if id == step.id =>
            {
                let message = without_contents(message);
                let mut record = Vec::new();
                encode(&message, &mut record).map_err(|e| e.to_string())?;
                session.take_message(&record).map_err(text)?;
            }
            // With its position, in `add_queue`.
            Control::Queue { .. } => return Ok(()),
            _ => return Err("a record that makes no object".into()),
        }
        let made = self.session.objects.creation(step.id);
        made.map_err(|code| format!("object {} cannot be made (error {code})", step.id))?;
        self.keep_needs(step);
        self.applied.insert(step.number);
        self.created.insert(step.id);
        if self.is_stopped {
            self.touched.insert(step.id);
        }
        Ok(())
    }

    /// A kernel has the needs that it had at the source, for its next move.
    fn keep_needs(&self, step: &Step) {
        if let Ok(Control::Kernel { program, name, .. }) = decode(&step.record) {
            let is_of = |need: &&KernelNeed| need.program == program && need.name == name;
            let need = self.needs.iter().find(is_of);
            let kernel = self.session.objects.kernel(step.id);
            if let (Some(need), Ok(kernel)) = (need, kernel) {
                kernel.needs.add(need);
            }
        }
    }

    /// Maps arenas.
    pub fn arenas(&mut self, arenas: Vec<ArenaState>, fds: Vec<OwnedFd>) -> Result<(), String> {
        if arenas.len() != fds.len() {
            return Err("arenas without descriptors".into());
        }
        for (arena, fd) in arenas.into_iter().zip(fds) {
            let added = self
                .session
                .add_arena(arena.arena, fd, arena.offset, arena.len);
            added.map_err(text)?;
            if self.session.arena(arena.arena).is_err() {
                return Err("the tenant's limit of memory is reached".into());
            }
        }
        Ok(())
    }

    /// Makes objects while the session still runs at the source.
    pub fn ahead(&mut self, state: &State) -> Result<(), String> {
        state.steps.iter().try_for_each(|step| self.apply(step))
    }

    /// Contents come through this memory.
    pub fn window(&mut self, fd: &OwnedFd, len: u64) -> Result<(), String> {
        // The former one is unmapped before.
        self.window = None;
        let shared = &self.session.shared;
        self.window = Some((
            transfers(shared)?,
            Window::map(shared.pinning.as_ref(), fd, len)?,
        ));
        Ok(())
    }

    /// The shape of an object that was made here.
    fn shape(&mut self, id: Id, bytes: u64) -> Result<&Shape, String> {
        if !self.shapes.contains_key(&id) {
            let recipe = self.session.ledger.creation(id);
            let recipe = recipe.ok_or("object lacks its record")?;
            let shape = match decode::<Control>(&recipe.record) {
                Ok(Control::Buffer { size, .. }) => Shape::Buffer(size),
                Ok(Control::Image { format, shape, .. }) => Shape::Image(format, shape, bytes),
                _ => return Err("contents of something that has none".into()),
            };
            self.shapes.insert(id, shape);
        }
        Ok(&self.shapes[&id])
    }

    /// Writes contents that are in the window.
    pub fn write(&mut self, parts: &[Part]) -> Result<(), String> {
        let window = self.window.take();
        let (mut transfers, window) = window.ok_or("contents without a window")?;
        let written = self.write_from(&mut transfers, &window, parts);
        self.window = Some((transfers, window));
        written
    }

    fn write_from(
        &mut self,
        transfers: &mut Transfers,
        window: &Window,
        parts: &[Part],
    ) -> Result<(), String> {
        for part in parts {
            let failed = |code| format!("object {} cannot be written (error {code})", part.id);
            let memory = self.session.objects.memory(part.id).map_err(failed)?;
            let host = window.slice(part.offset, part.len);
            let host = host.ok_or("contents outside the window")?;
            let shape = self.shape(part.id, memory.size)?;
            let slice = Slice {
                start: part.start,
                len: part.len,
            };
            if !slice.fits(shape) {
                return Err(format!("contents that object {} does not have", part.id));
            }
            let written = match &memory.place {
                ObjectLocation::Movable(object) => object.import(slice, &host),
                ObjectLocation::Fixed(mem) => transfers.add(mem, shape, false, slice, &host),
                ObjectLocation::Part(_) => Ok(()),
            };
            written.map_err(failed)?;
            if self.is_stopped {
                self.touched.insert(part.id);
            }
        }
        let written = transfers.wait();
        written.map_err(|code| format!("contents cannot be written (error {code})"))
    }

    /// Objects that were made or written while the session is stopped.
    pub fn stopped_objects(&self) -> u64 {
        self.touched.len() as u64
    }

    /// Makes everything else but contents.
    pub fn make(&mut self, mut state: State) -> Result<PreparedSession, String> {
        self.is_stopped = true;
        let session = self.session.clone();
        for record in &state.slots {
            match decode::<Control>(record) {
                Ok(Control::EventsAdd { .. }) => session.take_message(record).map_err(text)?,
                _ => return Err("a record that adds no event slots".into()),
            }
        }
        let mut frozen = Frozen {
            session,
            workers: Vec::new(),
        };
        let queues = std::mem::take(&mut state.queues);
        let mut queues: IdMap<QueueState> = queues.into_iter().map(|q| (q.id, q)).collect();
        for step in &state.steps {
            self.apply(step)?;
            if let Some(queue) = queues.remove(&step.id) {
                self.add_queue(step, queue, &mut frozen)?;
            }
        }
        Ok(PreparedSession { frozen, state })
    }

    /// The session is complete: its objects get their names, and what belongs to none continues.
    pub fn finish(mut self, made: PreparedSession) -> Result<Frozen, String> {
        let PreparedSession { frozen, state } = made;
        self.name(&state)?;
        self.restore(state)?;
        Ok(frozen)
    }

    fn add_queue(
        &mut self,
        step: &Step,
        mut queue: QueueState,
        frozen: &mut Frozen,
    ) -> Result<(), String> {
        let message = decode::<Control>(&step.record).map_err(|e| e.to_string())?;
        let Control::Queue {
            id,
            context,
            device,
            properties,
            ring,
        } = message
        else {
            return Err("queue lacks its record".into());
        };
        let session = &self.session;
        let made = Making::of(&message);
        let properties = (context, device, properties);
        let start = (position(queue.position), Some(queue.parks));
        let added = session.add_queue_at(id, properties, ring, start);
        added.map_err(text)?;
        let handle = session.objects.queue(id);
        let handle = handle.map_err(|code| format!("queue {id} cannot be made (error {code})"))?;
        if let Some(made) = made {
            session.ledger.add(made, &step.record);
        }
        let worker = handle.take_worker(Instant::now());
        let mut worker = worker.ok().flatten().ok_or("a queue has a thread")?;
        worker.restore(&mut queue).map_err(text)?;
        if let Some(notify) = queue.released {
            handle.keep(session.ledger.recipe(id));
            session.objects.remove(id);
            session.ledger.remove(id);
            handle.release(notify);
        }
        frozen.workers.push((handle, worker));
        Ok(())
    }

    /// Names the objects as the source did.
    fn name(&mut self, state: &State) -> Result<(), String> {
        let session = &self.session;
        let live: HashSet<Id> = state.live.iter().copied().collect();
        let owed: HashSet<Id> = state.owed.iter().copied().collect();
        for id in &self.created {
            if !live.contains(id) {
                session.release(*id, owed.contains(id));
            }
        }
        for id in owed.difference(&self.created) {
            session.notices.freed(*id);
        }
        for (id, code) in &state.failed {
            let object = super::super::table::Object::Failed(*code);
            let named = session.objects.insert(*id, object);
            named.map_err(|_| "too many objects")?;
        }
        let (mut named, _) = session.objects.named();
        let mut wanted = state.live.clone();
        named.sort_unstable();
        wanted.sort_unstable();
        if named != wanted {
            return Err("objects are missing".into());
        }
        Ok(())
    }

    /// Continues what belongs to no object.
    fn restore(&self, state: State) -> Result<(), String> {
        let session = &self.session;
        let (control, done) = state.control;
        let consumer = Consumer::resume(session.segment.control(), position(control));
        let consumer = consumer.map_err(|e| e.to_string())?;
        *session.control.locked() = ControlState::new(consumer);
        session.control_done.store(done, Ordering::Release);
        let (notices, printed) = state.notices;
        let ring = session.segment.notices();
        let restored = session
            .notices
            .restore(ring, position(notices), printed, state.unsent);
        restored.map_err(|e| e.to_string())?;
        if !session.board.restore(&state.events, &state.watched) {
            return Err("event lacks its slot".into());
        }
        let queues = session.queues.locked().clone();
        for release in state.releases {
            let after = release.after.iter().filter_map(|(id, count)| {
                let queue = queues.iter().find(|queue| queue.id == *id)?;
                Some((queue.clone(), *count))
            });
            let after = After::Submitted(after.collect());
            let target = ReleaseTarget::Object(release.id, release.notify);
            session.deferred.add(target, after);
        }
        session
            .clock_offset_ns
            .store(state.clock_offset_ns, Ordering::Relaxed);
        Ok(())
    }
}

/// The reason for which a request has failed.
fn succeeded(reply: &Result<Reply, crate::driver::Code>) -> Result<(), String> {
    match reply {
        Err(code) => Err(format!("error {code}")),
        Ok(Reply::Binaries(codes)) => match codes.iter().find(|code| **code != CL_SUCCESS) {
            Some(code) => Err(format!("error {code}")),
            None => Ok(()),
        },
        Ok(Reply::Built { code, devices, .. }) if *code != CL_SUCCESS => {
            let log = devices
                .first()
                .map(|device| String::from_utf8_lossy(&device.3));
            let log = log.unwrap_or_default();
            let line = log.lines().find(|line| !line.trim().is_empty());
            Err(format!("error {code}: {:.200}", line.unwrap_or_default()))
        }
        Ok(_) => Ok(()),
    }
}
