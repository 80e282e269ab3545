//! Carrying out control messages.

use super::deferred::{After, ReleaseTarget};
use super::ledger::Making;
use super::names::{ids, words};
use super::objects::{Context, Kernel, MakePart, Memory, Needs, ObjectLocation, Part, Program};
use super::queue::QueueHandle;
use super::residence::{Residence, Shape};
use super::table::Object;
use super::{pinning, pixels, Arena, Session, Violation};
use crate::account::Charge;
use crate::driver::{self, Code, Device};
use baltra_opencl::*;
use baltra_ring::{Consumer, Locked, Position, Range, Unpoisoned};
use baltra_wire::{
    decode, Backing, Call, Control, Id, ImageFormat, ImageShape, Notice, Payload, Query, Reply,
    Request,
};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Maximum number of queues of one session, each with a thread if all are busy.
const QUEUES_MAX: usize = 8192;

/// The reading end of the control channel, used by one thread at a time.
pub struct ControlState {
    consumer: Consumer,
    record: Vec<u8>,
}

impl ControlState {
    /// The position at which another executor continues to read.
    pub fn position(&self) -> Position {
        self.consumer.position()
    }

    /// Nothing read yet.
    pub fn new(consumer: Consumer) -> ControlState {
        ControlState {
            consumer,
            record: Vec::new(),
        }
    }
}

impl Session {
    /// The control thread's life.
    pub(super) fn serve_control(self: &Arc<Session>) {
        while !self.is_closed() {
            if self.freeze.wait(|| self.is_closed()) {
                continue;
            }
            let mut state = self.control.locked();
            self.drain_control(&mut state);
            drop(state);
            // A queue that ended in the meantime may have made a release due.
            self.run_due();
            self.feed();
            self.control_waker
                .wait_unless(Some(Duration::from_secs(1)), || self.is_stopping());
            if self.notices.is_closed() {
                self.close("the client does not read its notices");
            }
        }
    }

    /// Carries out the available messages.
    pub(super) fn drain_control(self: &Arc<Session>, state: &mut ControlState) {
        let ControlState { consumer, record } = state;
        let mut drained = false;
        while !self.is_stopping() {
            let done = match consumer.pop_unless(record, || self.is_closed()) {
                Ok(false) => break,
                Ok(true) => self.take_message(record),
                Err(e) => Err(Violation::from(e)),
            };
            if let Err(violation) = done {
                self.fatal(&violation);
                break;
            }
            // SYNC POINT: control done (pairs with `control_reached`)
            self.control_done.fetch_add(1, Ordering::Release);
            drained = true;
        }
        if drained {
            self.control_changed.notify_all();
        }
    }

    /// Carries out a message, and keeps what makes an object.
    pub(super) fn take_message(self: &Arc<Session>, record: &[u8]) -> Result<(), Violation> {
        let message = decode::<Control>(record)?;
        let made = Making::of(&message);
        self.carry_out(message, record)?;
        // Slots of events belong to no object.
        let is_made = |made: &Making| made.id == 0 || self.objects.creation(made.id).is_ok();
        if let Some(made) = made.filter(is_made) {
            self.ledger.add(made, record);
        }
        Ok(())
    }

    fn name(&self, id: Id, made: Result<Object, Code>) -> Result<(), Violation> {
        let object = made.unwrap_or_else(|code| Object::Failed(self.verdict(code)));
        Ok(self.objects.insert(id, object)?)
    }

    fn carry_out(self: &Arc<Session>, message: Control, record: &[u8]) -> Result<(), Violation> {
        match message {
            Control::ArenaAdd { arena, len } => {
                let fd = self.inbox.next(|| self.is_closed());
                let fd = fd.ok_or_else(|| {
                    Violation::new("an arena was announced without its descriptor")
                })?;
                self.add_arena(arena, fd, 0, len)
            }
            Control::ArenaPart { arena, offset, len } => self.add_part(arena, offset, len),
            Control::ArenaDrop(arena) => {
                self.drop_arena(arena);
                Ok(())
            }
            Control::EventsAdd { first, payload } => {
                let range = self.needed(payload)?;
                match self.board.writer().add(range) {
                    Some(at) if at == first => Ok(()),
                    _ => Err(Violation::new(
                        "event slots of the wrong size or out of order",
                    )),
                }
            }
            Control::Context { id, devices } => {
                let made = self.make_context(devices).map(Object::Context);
                self.name(id, made)
            }
            Control::Queue {
                id,
                context,
                device,
                properties,
                ring,
            } => self.add_queue(id, context, device, properties, ring),
            Control::Buffer {
                id,
                context,
                flags,
                size,
                backing,
            } => {
                let made = self.make_buffer(context, flags, size, backing);
                self.name(id, made.map(Object::Memory))
            }
            Control::SubBuffer {
                id,
                parent,
                flags,
                origin,
                size,
            } => {
                let made = self.make_sub_buffer(parent, flags, origin, size);
                self.name(id, made.map(Object::Memory))
            }
            Control::Image {
                id,
                context,
                flags,
                format,
                shape,
                parent,
                contents,
            } => {
                let made = self.make_image(context, flags, format, &shape, parent, contents);
                self.name(id, made.map(Object::Memory))
            }
            Control::Pipe { id, context, shape } => {
                let made = self.make_pipe(context, shape);
                self.name(id, made.map(Object::Memory))
            }
            Control::Sampler {
                id,
                context,
                properties,
            } => {
                let properties: Vec<u64> = words(properties).collect();
                let made = self
                    .objects
                    .context(context)
                    .and_then(|context| context.context.sampler(&properties))
                    .map(|sampler| Object::Sampler(Arc::new(sampler)));
                self.name(id, made)
            }
            Control::ProgramSource {
                id,
                context,
                source,
            } => {
                let made = self.make_program_source(context, source);
                self.name(id, made)
            }
            Control::UserEvent { event, status } => {
                if !self.board.exists(event) {
                    return Err(Violation::new("a user event outside the event table"));
                }
                self.board.user(event, status);
                Ok(())
            }
            Control::Watch(event) => {
                self.board.watch(event);
                Ok(())
            }
            Control::Kernel { id, program, name } => {
                let made = self.objects.program(program).and_then(|program| {
                    if !program.may_run(&self.shared.images) {
                        return Err(CL_INVALID_PROGRAM_EXECUTABLE);
                    }
                    Ok(Object::Kernel(Arc::new(Kernel {
                        program,
                        name: name.to_owned(),
                        needs: Needs::default(),
                        queried: OnceLock::new(),
                    })))
                });
                self.name(id, made)
            }
            Control::Release { id, after, notify } => {
                let after = self.named_queues(after);
                self.deferred
                    .add(ReleaseTarget::Object(id, notify), After::Submitted(after));
                self.run_due();
                Ok(())
            }
            Control::Call { call, request } => {
                self.request(call, request, record);
                Ok(())
            }
            Control::Abort { reason } => {
                self.abort(reason);
                Ok(())
            }
            Control::QueueRun(id) => {
                // A queue that no longer exists has no commands left.
                if let Ok(queue) = self.objects.queue(id) {
                    self.run_queue(&queue);
                }
                Ok(())
            }
            Control::FactsRead(facts) => {
                self.facts_read.add(facts);
                Ok(())
            }
            Control::Late { queue, allowed_ms } => {
                self.report_late(queue, Duration::from_millis(allowed_ms));
                Ok(())
            }
            Control::SvmFree { address, after } => {
                let after = self.named_queues(after);
                self.deferred
                    .add(ReleaseTarget::Svm(address), After::Completed(after));
                self.run_due();
                Ok(())
            }
        }
    }

    fn request(self: &Arc<Session>, call: Call, request: Request, record: &[u8]) {
        let reply = match request {
            Request::Sync => Ok(Reply::Done),
            Request::Creation(id) => self.objects.creation(id).map(|()| Reply::Done),
            Request::Memory(payload) => self.payload(payload).map(|_| Reply::Done),
            Request::EventStatus(event) => Ok(Reply::Count(self.board.status_now(event))),
            Request::SubDevices {
                parent,
                properties,
                first,
                count_max,
            } => self.make_sub_devices(parent, properties, first, count_max),
            Request::SvmMap { address, payload } => self.svm_map(address, payload),
            Request::SvmAlloc {
                context,
                flags,
                len,
                alignment,
            } => self.svm_alloc(context, flags, len, alignment),
            Request::Query(
                query @ (Query::Device { .. }
                | Query::Memory { .. }
                | Query::Image { .. }
                | Query::ImageFormats { .. }
                | Query::Timers),
            ) => self.query(query).map(Reply::Bytes),
            // Whatever may compile, or wait for a compilation.
            _ => return self.builder.add(self, record.to_vec()),
        };
        self.reply(call, reply);
    }

    /// Answers a request.
    pub(super) fn reply(&self, call: Call, reply: Result<Reply, Code>) {
        let reply = reply.unwrap_or_else(|code| Reply::Error(self.verdict(code)));
        self.notices.send(&Notice::Reply { call, reply });
    }

    fn query(&self, query: Query) -> Result<Vec<u8>, Code> {
        match query {
            Query::Device { device, param } => self.device(device)?.info(param),
            Query::Memory { object, param } => self.objects.memory(object)?.sample()?.info(param),
            Query::Image { image, param } => {
                self.objects.memory(image)?.sample()?.image_info(param)
            }
            Query::ImageFormats {
                context,
                flags,
                kind,
            } => {
                let context = self.objects.context(context)?;
                context.context.image_formats(flags, kind)
            }
            Query::Timers => {
                let (device, host) = self.shared.device.timers()?;
                Ok([device.to_ne_bytes(), host.to_ne_bytes()].concat())
            }
            _ => Err(CL_INVALID_VALUE),
        }
    }

    /// The session's device or a sub-device.
    pub(super) fn device(&self, id: Id) -> Result<Device, Code> {
        match id {
            0 => Ok(self.shared.device),
            id => Ok(self.objects.device(id)?.device()),
        }
    }

    fn named_queues(&self, after: &[u8]) -> Vec<(Arc<QueueHandle>, u64)> {
        after
            .chunks_exact(12)
            .filter_map(|entry| {
                let (queue, count) = entry.split_at(4);
                let queue = u32::from_le_bytes(queue.try_into().ok()?);
                let count = u64::from_le_bytes(count.try_into().ok()?);
                // A queue that no longer exists has no commands left.
                Some((self.objects.queue(queue).ok()?, count))
            })
            .collect()
    }

    fn drop_arena(&self, arena: u32) {
        // Removed from the list first: a command that finds the arena has been counted as taken.
        let mut arenas = self.arenas.write().unpoisoned();
        let Some(gone) = arenas.remove(&arena) else {
            return;
        };
        drop(arenas);
        self.arena_bytes.fetch_sub(gone.len(), Ordering::Relaxed);
        let queues = self.queues.locked();
        let after = queues
            .iter()
            .map(|queue| (queue.clone(), queue.taken()))
            .collect();
        drop(queues);
        self.deferred
            .add(ReleaseTarget::Arena(gone), After::Completed(after));
        self.run_due();
    }

    /// Carries out the releases that wait for nothing any more.
    pub(super) fn run_due(&self) {
        if !self.is_frozen() {
            self.release_due();
        }
    }

    /// As [`Session::run_due`], also of a stopped session.
    pub(super) fn release_due(&self) {
        for target in self.deferred.due() {
            match target {
                ReleaseTarget::Object(id, notify) => self.release(id, notify),
                ReleaseTarget::Arena(arena) => {
                    let bytes = arena.len();
                    pinning::let_go(arena, bytes);
                }
                ReleaseTarget::Svm(address) => self.svm_free(address),
            }
        }
    }

    pub(super) fn release(&self, id: Id, notify: bool) {
        let freed = || {
            if notify {
                self.notices.freed(id);
            }
        };
        if let Ok(queue) = self.objects.queue(id) {
            queue.keep(self.ledger.recipe(id));
        }
        match self.ledger.remove_with(id, || self.objects.remove(id)) {
            Some(Object::Memory(memory)) if notify => {
                let notices = self.notices.clone();
                notices.owe(id);
                let registered = memory.on_destroyed(Box::new(move || {
                    notices.freed(id);
                }));
                drop(memory);
                if registered.is_err() {
                    freed();
                }
            }
            Some(Object::Queue(queue)) => {
                // Its thread reports the release after its last access to the ring.
                queue.release(notify);
                self.run_queue(&queue);
            }
            Some(Object::Kernel(kernel)) => {
                drop(kernel);
                self.kernels_released.fetch_add(1, Ordering::Release);
                freed();
            }
            object => {
                drop(object);
                freed();
            }
        }
    }

    /// The bytes of a range without which the session cannot continue.
    pub(super) fn needed(&self, payload: Payload) -> Result<Range, Violation> {
        self.payload(payload).map_err(|code| Violation {
            code,
            text: "a queue or event slots outside the arenas, or an arena over the limit".into(),
        })
    }

    /// An arena in the memory that the client brought.
    fn add_part(&self, arena: u32, offset: u64, len: u64) -> Result<(), Violation> {
        let outside = || Violation::new("an arena outside of the session's memory");
        let door = self.door.as_ref().ok_or_else(outside)?;
        let end = offset.checked_add(len);
        if end.is_none_or(|end| end > door.share.len) {
            return Err(outside());
        }
        let fd = door.memory.try_clone();
        let fd =
            fd.map_err(|e| Violation::new(format!("cannot duplicate an arena's descriptor: {e}")))?;
        self.add_arena(arena, fd, door.share.offset + offset, len)
    }

    pub(super) fn add_arena(
        &self,
        arena: u32,
        fd: OwnedFd,
        offset: u64,
        len: u64,
    ) -> Result<(), Violation> {
        let held = self.arena_bytes.load(Ordering::Relaxed);
        let total = held.saturating_add(len);
        let charge = (total <= self.start.limits.arena_bytes)
            .then(|| self.account.charge(len))
            .flatten();
        let Some(charge) = charge else {
            // The object is unusable: its commands return the error.
            return Ok(());
        };
        let memory = baltra_ring::Memory::map_part(&fd, offset, len)
            .map_err(|e| Violation::new(format!("cannot map an arena: {e}")))?;
        let mut arenas = self.arenas.write().unpoisoned();
        if arenas.contains_key(&arena) {
            return Err(Violation::new("an arena's id is already in use"));
        }
        self.arena_bytes.fetch_add(memory.len(), Ordering::Relaxed);
        arenas.insert(arena, Arc::new(Arena::new(memory, fd, offset, charge)));
        Ok(())
    }

    fn make_context(&self, devices: &[u8]) -> Result<Arc<Context>, Code> {
        let names: Vec<Id> = if devices.is_empty() {
            vec![0]
        } else {
            ids(devices).collect()
        };
        if names.iter().all(|id| *id == 0) {
            // The driver's contexts are expensive (a GPU's takes a tenth of a second), and tenants
            // are separated by processes: the process's context serves.
            return Ok(Arc::new(Context {
                context: self.shared.context.clone(),
                devices: vec![(0, self.shared.device)],
                _parts: Vec::new(),
            }));
        }
        let mut parts = Vec::new();
        let mut list = Vec::new();
        for id in names {
            if id == 0 {
                list.push((0, self.shared.device));
            } else {
                let part = self.objects.device(id)?;
                list.push((id, part.device()));
                parts.push(part);
            }
        }
        let raw: Vec<_> = list.iter().map(|(_, device)| *device).collect();
        Ok(Arc::new(Context {
            context: Arc::new(driver::Context::new(&raw)?),
            devices: list,
            _parts: parts,
        }))
    }

    fn add_queue(
        self: &Arc<Session>,
        id: Id,
        context: Id,
        device: Id,
        properties: u64,
        ring: Payload,
    ) -> Result<(), Violation> {
        let start = (Position::default(), None);
        self.add_queue_at(id, (context, device, properties), ring, start)
    }

    /// A queue whose ring has been read up to a position, and whether its client asks for threads; if
    /// that is not known, a client that does not mark the ring as parked expects a thread.
    pub(super) fn add_queue_at(
        self: &Arc<Session>,
        id: Id,
        (context, device, properties): (Id, Id, u64),
        ring: Payload,
        (position, parks): (Position, Option<bool>),
    ) -> Result<(), Violation> {
        let range = match self.payload(ring) {
            Ok(range) => range,
            Err(code) => return self.name(id, Err(code)),
        };
        let mut queues = self.queues.locked();
        queues.retain(|queue| !queue.is_finished());
        if queues.len() >= QUEUES_MAX {
            return self.name(id, Err(CL_OUT_OF_RESOURCES));
        }
        let made = self.objects.context(context).and_then(|context| {
            let device = context.device(device)?;
            let queue = context.context.queue(device, properties)?;
            Ok((context, queue))
        });
        let consumer = Consumer::resume(range.clone(), position)?;
        let parks = parks.unwrap_or_else(|| consumer.is_parked());
        if let (Err(code), true) = (&made, parks) {
            // The client may query the error ([`Request::Creation`]), and each command returns it.
            return self.name(id, Err(*code));
        }
        let handle = super::queue::open(self, id, properties, (consumer, parks), &range, made)?;
        queues.push(handle.clone());
        drop(queues);
        self.name(id, Ok(Object::Queue(handle.clone())))?;
        if self.objects.queue(id).is_err() {
            // One object too many.
            handle.release(false);
            self.run_queue(&handle);
        }
        Ok(())
    }

    /// Starts a thread for a parked queue; if that fails, it is retried later.
    fn run_queue(&self, queue: &Arc<QueueHandle>) {
        if !queue.run() {
            self.starve();
        }
    }

    /// A queue has no thread although it needs one.
    pub(super) fn starve(&self) {
        self.starved.store(true, Ordering::Relaxed);
    }

    /// Retries to start threads for queues.
    fn feed(&self) {
        if !self.starved.swap(false, Ordering::Relaxed) {
            return;
        }
        let queues = self.queues.locked().clone();
        for queue in queues.iter().filter(|queue| queue.is_starved()) {
            self.run_queue(queue);
        }
    }

    pub(super) fn charge(&self, bytes: u64) -> Result<Charge, Code> {
        self.account
            .charge(bytes)
            .ok_or(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    }

    fn make_buffer(
        &self,
        context: Id,
        flags: u64,
        size: u64,
        backing: Backing,
    ) -> Result<Arc<Memory>, Code> {
        let context = self.objects.context(context)?;
        let flags = flags & !HOST_FLAGS;
        let (host, more, charge, arena) = match backing {
            Backing::Device(None) => (None, 0, Some(self.charge(size)?), None),
            Backing::Device(Some(payload)) => {
                let range = self.payload(payload)?;
                if payload.len < size {
                    return Err(CL_INVALID_VALUE);
                }
                let charge = self.charge(size)?;
                (Some(range), CL_MEM_COPY_HOST_PTR, Some(charge), None)
            }
            Backing::Arena(payload) => {
                if payload.len < size || !self.shared.description.host_memory {
                    return Err(CL_INVALID_VALUE);
                }
                let range = self.payload(payload)?;
                (Some(range.clone()), CL_MEM_USE_HOST_PTR, None, Some(range))
            }
            Backing::Svm(_) => (None, CL_MEM_USE_HOST_PTR, None, None),
        };
        if let (Some(residence), Backing::Device(_)) = (self.residence(&context), backing) {
            let (owner, shape) = (self.start.session, Shape::Buffer(size));
            let made = residence.create(&self.account, owner, flags, shape, host.as_ref())?;
            return Ok(Arc::new(Memory {
                _charge: charge,
                ..Memory::new(ObjectLocation::Movable(made), context, size)
            }));
        }
        let pointer = match backing {
            Backing::Svm(address) => self.svm_range(address, size)?,
            _ => host.as_ref().map_or(std::ptr::null_mut(), Range::ptr),
        };
        // SAFETY: the range is at least `size` bytes; `host` outlives the call, and memory that the
        // driver uses in place is kept by the destructor callback below, or was allocated by the
        // driver, which tracks its use.
        let make = || unsafe {
            let flags = flags | more as u64;
            context.context.buffer(flags, size as usize, pointer)
        };
        let mem = self.allocate(make)?;
        if let Some(range) = arena.clone() {
            // Without it the pages could go while the driver still uses them.
            mem.on_destroyed(Box::new(move || drop(range)))?;
        }
        Ok(Arc::new(Memory {
            arena,
            _charge: charge,
            ..Memory::new(ObjectLocation::Fixed(Arc::new(mem)), context, size)
        }))
    }

    /// For objects of a context that may leave the device.
    fn residence(&self, context: &Context) -> Option<&Arc<Residence>> {
        let residence = self.shared.residence.as_ref();
        residence.filter(|residence| residence.moves(&context.context))
    }

    fn make_sub_buffer(
        &self,
        parent: Id,
        flags: u64,
        origin: u64,
        size: u64,
    ) -> Result<Arc<Memory>, Code> {
        let parent = self.objects.memory(parent)?;
        let flags = flags & !HOST_FLAGS;
        let place = Self::part_of(
            &parent,
            Box::new(move |parent| parent.sub_buffer(flags, origin as usize, size as usize)),
        )?;
        let arena = match &parent.arena {
            Some(range) => Some(range.slice(origin, size).ok_or(CL_INVALID_VALUE)?),
            None => None,
        };
        Ok(Arc::new(Memory {
            arena,
            parent: Some(parent.clone()),
            ..Memory::new(place, parent.context.clone(), size)
        }))
    }

    /// A part of `parent`, whose properties the driver checks now.
    fn part_of(parent: &Arc<Memory>, make: MakePart) -> Result<ObjectLocation, Code> {
        let made = make(&*parent.sample()?)?;
        Ok(match parent.object() {
            None => ObjectLocation::Fixed(Arc::new(made)),
            Some(whole) => ObjectLocation::Part(Part::new(whole, make)),
        })
    }

    fn make_image(
        &self,
        context: Id,
        flags: u64,
        format: ImageFormat,
        shape: &ImageShape,
        parent: Id,
        contents: Option<Payload>,
    ) -> Result<Arc<Memory>, Code> {
        let context = self.objects.context(context)?;
        let pixel_bytes = pixels::pixel_bytes(format).ok_or(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
        let bytes =
            pixels::contents_bytes(shape, pixel_bytes).ok_or(CL_INVALID_IMAGE_DESCRIPTOR)?;
        let parent = match parent {
            0 => None,
            id => Some(self.objects.memory(id)?),
        };
        let charge = match parent {
            None => Some(self.charge(bytes)?),
            Some(_) => None,
        };
        let host = match contents {
            Some(payload) if payload.len < bytes => return Err(CL_INVALID_HOST_PTR),
            Some(payload) => Some(self.payload(payload)?),
            None => None,
        };
        let flags = flags & !HOST_FLAGS;
        let place = match (&parent, self.residence(&context)) {
            (None, Some(residence)) => {
                let (owner, shape) = (self.start.session, Shape::Image(format, *shape, bytes));
                let made = residence.create(&self.account, owner, flags, shape, host.as_ref())?;
                ObjectLocation::Movable(made)
            }
            (Some(parent), _) if parent.object().is_some() => {
                if host.is_some() {
                    return Err(CL_INVALID_HOST_PTR);
                }
                let (context, shape) = (context.context.clone(), *shape);
                Self::part_of(
                    parent,
                    Box::new(move |parent| {
                        let (format, shape) = pixels::driver_image(format, &shape, parent.raw());
                        // SAFETY: without contents.
                        unsafe { context.image(flags, &format, &shape, std::ptr::null_mut()) }
                    }),
                )?
            }
            _ => {
                let mem = parent.as_ref().map(|parent| parent.sample()).transpose()?;
                let mem_object = mem.as_ref().map_or(std::ptr::null_mut(), |mem| mem.raw());
                let (format, description) = pixels::driver_image(format, shape, mem_object);
                let copies = host.as_ref().map_or(0, |_| CL_MEM_COPY_HOST_PTR as u64);
                let pointer = host.as_ref().map_or(std::ptr::null_mut(), Range::ptr);
                // SAFETY: the contents are at least the image's tight bytes, computed above.
                let make = || unsafe {
                    let flags = flags | copies;
                    context.context.image(flags, &format, &description, pointer)
                };
                ObjectLocation::Fixed(Arc::new(self.allocate(make)?))
            }
        };
        Ok(Arc::new(Memory {
            pixel_bytes,
            _charge: charge,
            parent,
            ..Memory::new(place, context, bytes)
        }))
    }

    fn make_program_source(&self, context: Id, source: &[u8]) -> Result<Object, Code> {
        let context = self.objects.context(context)?;
        let program = context.context.program_source(source)?;
        let program = Program {
            compiles: true,
            prints: super::kernels::mentions_printf(source).into(),
            ..Program::new(program, context)
        };
        Ok(Object::Program(Arc::new(program)))
    }

    fn make_sub_devices(
        &self,
        parent: Id,
        properties: &[u8],
        first: Id,
        count_max: u32,
    ) -> Result<Reply, Code> {
        let properties: Vec<isize> = words(properties).map(|w| w as isize).collect();
        let parts = self
            .device(parent)?
            .partition(&properties, count_max.min(4096) as usize)?;
        let count = parts.len() as u32;
        for (at, part) in parts.into_iter().enumerate() {
            let id = first.checked_add(at as u32).ok_or(CL_INVALID_VALUE)?;
            self.objects
                .insert(id, Object::Device(Arc::new(part)))
                .map_err(|_| CL_INVALID_VALUE)?;
        }
        Ok(Reply::Count(count))
    }
}

/// The backing decides about host pointers, not the client's flags; and the library refuses its
/// client the accesses that the others forbid, which the executor needs to move an object.
const HOST_FLAGS: u64 = (CL_MEM_USE_HOST_PTR
    | CL_MEM_COPY_HOST_PTR
    | CL_MEM_ALLOC_HOST_PTR
    | CL_MEM_HOST_WRITE_ONLY
    | CL_MEM_HOST_READ_ONLY
    | CL_MEM_HOST_NO_ACCESS) as u64;
