//! Submits a command to the driver: looks up ids, checks ranges, sets arguments.

use super::board::Submitted;
use super::checks::{check_pattern, check_pixels, check_range};
use super::launch::OwnKernels;
use super::objects::{Context, Memory};
use super::pinning::PinnedMemory;
use super::residence::{Caller, Pins, WorkingSet};
use super::slices::SecondQueue;
use super::tracker::{operands, track};
use super::{pixels, Session};
use crate::driver::{self, Code, Enqueue, Seat, Side, Turn};
use baltra_opencl::*;
use baltra_ring::Range;
use baltra_wire::{Direction, Id, Operation, Payload, Region};
use std::ffi::c_void;
use std::sync::Arc;

/// Commands in one turn at the driver, some tens of microseconds, because other threads wait for
/// theirs.
const TURN_COMMANDS_MAX: u32 = 32;
/// Smaller writes are staged by the driver immediately and do not block.
const BLOCKING_WRITE_BYTES: usize = 64 << 10;

/// Result of submitting a command.
pub enum Outcome {
    /// Submitted to the driver; with its event, if requested.
    Driver(Option<driver::Event>),
    /// Complete.
    Done,
    /// Nothing to do: the command is complete when all earlier ones are.
    Nothing,
    /// Complete, and so are all earlier commands, because the driver was waited for.
    Finished,
}

/// Options for submitting a command.
#[derive(Clone, Copy)]
pub struct SubmitOptions<'a> {
    /// Wait list and event.
    pub enqueue: Enqueue<'a>,
    /// Commands of the queue run in order.
    pub ordered: bool,
    /// All before it are complete and it waits for nothing.
    pub idle: bool,
    /// No later command is known: a transfer from or to ordinary memory may wait for its end.
    /// Drivers copy considerably faster if they may block (30 µs of a small read on an H200);
    /// pinned memory does not need that.
    pub last: bool,
}

/// A driver's queue and the state needed to fill it.
pub struct Lane {
    pub(super) session: Arc<Session>,
    pub(super) context: Arc<Context>,
    /// The driver's queue.
    pub queue: driver::Queue,
    /// Another one, for slices of launches.
    pub(super) second: SecondQueue,
    turn: Turn,
    seat: Seat,
    /// Commands handed over in this turn.
    turn_commands: u32,
    unflushed: bool,
    /// Driver events that are no longer needed: releasing one is a call too, to be made in the next
    /// turn.
    spent: Vec<Arc<Submitted>>,
    pub(super) kernels: OwnKernels,
    /// Objects of the command that is being submitted.
    held: Vec<Arc<Memory>>,
    /// Pins of arenas that commands in flight use.
    pinned: Vec<Arc<PinnedMemory>>,
    /// Objects of commands in flight that may otherwise leave the device.
    pins: Option<Pins>,
    /// Of these, those of the command that is being submitted.
    set: WorkingSet,
    /// Bytes moved to the device and from it, not yet counted.
    pub moved: (u64, u64),
}

impl Lane {
    /// Whether the device is the executor's own.
    pub fn is_own(&self) -> bool {
        self.queue.is_own()
    }

    /// A lane over a fresh driver queue.
    pub fn new(session: Arc<Session>, context: Arc<Context>, queue: driver::Queue) -> Lane {
        let pins = session.shared.residence.as_ref().map(Pins::new);
        Lane {
            turn: Turn::new(&session.shared.turns),
            seat: Seat::new(session.shared.seats.as_ref()),
            turn_commands: 0,
            unflushed: false,
            spent: Vec::new(),
            session,
            context,
            queue,
            second: SecondQueue::default(),
            kernels: OwnKernels::default(),
            held: Vec::new(),
            pinned: Vec::new(),
            pins,
            set: WorkingSet::new(),
            moved: (0, 0),
        }
    }

    /// The driver's context, as wait lists identify it.
    pub fn context(&self) -> usize {
        self.context.context.raw() as usize
    }

    fn memory(&self, id: Id) -> Result<Arc<Memory>, Code> {
        let memory = self.session.objects.memory(id)?;
        if memory.context.context.raw() != self.context.context.raw() {
            return Err(CL_INVALID_CONTEXT);
        }
        Ok(memory)
    }

    fn buffer(&self, id: Id) -> Result<Arc<Memory>, Code> {
        let memory = self.memory(id)?;
        match memory.pixel_bytes {
            0 if !memory.is_pipe => Ok(memory),
            _ => Err(CL_INVALID_MEM_OBJECT),
        }
    }

    /// Whether the buffer's bytes lie in the client's memory.
    pub fn is_local(&self, buffer: Id) -> bool {
        self.buffer(buffer)
            .is_ok_and(|buffer| buffer.arena.is_some())
    }

    fn image(&self, id: Id) -> Result<Arc<Memory>, Code> {
        let memory = self.memory(id)?;
        match memory.pixel_bytes {
            0 => Err(CL_INVALID_MEM_OBJECT),
            _ => Ok(memory),
        }
    }

    fn count(&mut self, direction: Direction, bytes: u64) {
        match direction {
            Direction::Write => self.moved.0 += bytes,
            Direction::Read => self.moved.1 += bytes,
        }
    }

    /// Flushes the driver's queue, ends the turn and leaves the seat. To be called before any wait;
    /// the next command begins another turn.
    pub fn flush(&mut self) {
        self.flush_before_wait();
        self.seat.leave();
    }

    /// As [`Lane::flush`], before a wait for the driver alone: keeps the seat if the wait is expected
    /// to be short. [`Lane::waited`] has to follow.
    pub fn flush_before_wait(&mut self) {
        if std::mem::take(&mut self.unflushed) {
            // An error shows again in the wait that follows.
            let _ = self.second.or(&self.queue).flush();
        }
        self.turn_commands = 0;
        self.turn.end();
        self.seat.wait();
    }

    /// The driver has been waited for.
    pub fn waited(&mut self) {
        self.seat.waited();
    }

    /// Lets go of a complete command's event, when it suits.
    pub fn spend(&mut self, event: Arc<Submitted>) {
        self.spent.push(event);
    }

    /// Hands the operation to the driver, or carries it out.
    pub fn submit(
        &mut self,
        operation: &Operation,
        options: SubmitOptions,
    ) -> Result<Outcome, Code> {
        if self.turn_commands >= TURN_COMMANDS_MAX {
            self.flush();
        }
        self.set.clear();
        self.make_resident(operation)?;
        let outcome = self.begin(operation, options);
        if !is_refused(&outcome) {
            return outcome;
        }
        let Some(room) = self.make_room()? else {
            return outcome;
        };
        // Once more, with more room.
        let outcome = self.begin(operation, options);
        if let (true, Some(pinning)) = (room.is_unpinned, &self.session.shared.pinning) {
            pinning.report(&self.session.start.tenant, !is_refused(&outcome));
        }
        outcome
    }

    fn begin(&mut self, operation: &Operation, options: SubmitOptions) -> Result<Outcome, Code> {
        if self.session.tracker.is_on() {
            track(&self.session, &self.context, &mut self.kernels, operation);
        }
        self.seat.take();
        self.turn.begin();
        self.turn_commands += 1;
        self.spent.clear();
        let outcome = self.hand_over(operation, options);
        self.unflushed |= matches!(outcome, Ok(Outcome::Driver(_)));
        outcome
    }

    /// Brings the objects that the operation uses to the device, and pins them there.
    fn make_resident(&mut self, operation: &Operation) -> Result<(), Code> {
        if self.pins.is_none() {
            return Ok(());
        }
        self.add_used(operation);
        let Lane { pins, set, .. } = self;
        let Some(pins) = pins.as_mut().filter(|_| !set.is_empty()) else {
            return Ok(());
        };
        if !pins.add(set) {
            self.settle();
            self.bring()?;
        }
        for (object, _) in self.set.iter().filter(|(_, writes)| *writes) {
            object.written();
        }
        Ok(())
    }

    fn bring(&mut self) -> Result<(), Code> {
        let Lane {
            pins, set, session, ..
        } = self;
        let caller = Caller {
            account: &session.account,
            is_closed: &|| session.is_closed(),
        };
        let residence = session.shared.residence.as_ref();
        match (residence, pins) {
            (Some(residence), Some(pins)) => residence.bring(set, pins, &caller),
            _ => Ok(()),
        }
    }

    /// Frees memory after the driver has refused some; `None`: there is none to free.
    fn make_room(&mut self) -> Result<Option<Freed>, Code> {
        let shared = self.session.shared.clone();
        let tenant = &self.session.start.tenant;
        let pinning = shared.pinning.as_ref().filter(|p| p.may_unpin(tenant));
        let residence = shared.residence.as_ref().filter(|_| !self.set.is_empty());
        let freed = Freed {
            is_unpinned: pinning.is_some(),
        };
        if pinning.is_none() && residence.is_none() {
            return Ok(None);
        }
        self.settle();
        if let Some(pinning) = pinning {
            pinning.unpin_all();
        }
        let Some(residence) = residence else {
            return Ok(Some(freed));
        };
        let caller = Caller {
            account: &self.session.account,
            is_closed: &|| self.session.is_closed(),
        };
        if !residence.make_room(&self.set, &caller)? && pinning.is_none() {
            return Ok(None);
        }
        self.bring()?;
        Ok(Some(freed))
    }

    /// Waits for all commands handed over, and unpins what they used.
    fn settle(&mut self) {
        self.flush();
        // An error shows again in the wait for the commands.
        let _ = self.queue.finish();
        self.second.finish();
        self.release_pins();
    }

    /// Unpins everything and leaves the seat: no command is in flight.
    pub fn end_task(&mut self) {
        self.seat.leave();
        self.set.clear();
        self.release_pins();
    }

    fn release_pins(&mut self) {
        self.pinned.clear();
        if let Some(pins) = &mut self.pins {
            pins.release();
        }
    }

    /// Whether another thread waits until objects of commands in flight may leave the device.
    pub fn is_wanted(&self) -> bool {
        self.pins.as_ref().is_some_and(Pins::are_wanted)
    }

    fn add_used(&mut self, operation: &Operation) {
        if let Operation::Launch {
            kernel,
            arg_count,
            args,
            ..
        } = *operation
        {
            let args = (arg_count, args);
            let Lane { kernels, set, .. } = self;
            return kernels.add_used(&self.session, &self.context, kernel, args, set);
        }
        let (read, written) = operands(operation);
        for (id, writes) in [(read, false), (written, true)] {
            if let Some(Ok(memory)) = id.map(|id| self.session.objects.memory(id)) {
                let object = memory.object();
                self.set.extend(object.map(|o| (o.clone(), writes)));
            }
        }
    }

    fn hand_over(
        &mut self,
        operation: &Operation,
        options: SubmitOptions,
    ) -> Result<Outcome, Code> {
        let driver = Outcome::Driver;
        let enqueue = options.enqueue;
        match *operation {
            Operation::Launch { .. } => self.launch(operation, options),
            Operation::Buffer {
                direction,
                buffer,
                offset,
                payload,
            } => self.transfer(direction, buffer, offset, payload, options),
            Operation::BufferRect {
                direction,
                buffer,
                ref region,
                payload,
            } => {
                let buffer = self.buffer(buffer)?;
                let host = self.tight(payload, region.size, 1)?;
                if !pixels::box_fits(region, buffer.size) {
                    return Err(CL_INVALID_VALUE);
                }
                self.count(direction, payload.len);
                let read = direction == Direction::Read;
                let size = sizes(region.size);
                // SAFETY: `host` holds the whole box; an arena is only unmapped once all
                // commands taken before are complete.
                unsafe {
                    self.queue.rect(
                        enqueue,
                        read,
                        &*buffer.mem()?,
                        side(region),
                        &size,
                        host.ptr(),
                    )
                }
                .map(driver)
            }
            Operation::Image {
                direction,
                image,
                ref region,
                payload,
            } => {
                let image = self.image(image)?;
                let host = self.tight(payload, region.size, image.pixel_bytes)?;
                self.count(direction, payload.len);
                let read = direction == Direction::Read;
                let (origin, size) = (sizes(region.origin), sizes(region.size));
                // SAFETY: as above, in pixels.
                unsafe {
                    self.queue
                        .image(enqueue, read, &*image.mem()?, &origin, &size, host.ptr())
                }
                .map(driver)
            }
            Operation::Migrate { objects, flags } => {
                self.held.clear();
                for id in super::names::ids(objects) {
                    let memory = self.memory(id)?;
                    self.held.push(memory);
                }
                if self.pins.is_some() {
                    // A hint, which must not displace what others use.
                    return self.queue.marker(enqueue.waits, enqueue.event).map(driver);
                }
                let mems: Result<Vec<_>, _> = self.held.iter().map(|m| m.mem()).collect();
                let raw: Vec<_> = mems?.iter().map(|mem| mem.raw()).collect();
                self.queue.migrate(enqueue, &raw, flags).map(driver)
            }
            Operation::Marker | Operation::Barrier
                if options.ordered && enqueue.waits.is_empty() =>
            {
                if options.idle {
                    return Ok(Outcome::Done);
                }
                if !enqueue.event {
                    return Ok(Outcome::Nothing);
                }
                self.queue.marker(&[], true).map(driver)
            }
            Operation::Trace { .. } => Ok(Outcome::Done),
            Operation::Marker => self.queue.marker(enqueue.waits, enqueue.event).map(driver),
            Operation::Barrier => self.queue.barrier(enqueue).map(driver),
            Operation::Svm { .. } | Operation::SvmCopy { .. } | Operation::SvmFill { .. } => {
                self.svm(operation, enqueue)
            }
            _ => self.on_device(operation, enqueue),
        }
    }

    fn launch(&mut self, operation: &Operation, options: SubmitOptions) -> Result<Outcome, Code> {
        let Operation::Launch {
            kernel,
            dimensions,
            offset,
            global,
            local,
            arg_count,
            args,
            svm_indirect,
        } = *operation
        else {
            return Err(CL_INVALID_VALUE);
        };
        if !(1..=3).contains(&dimensions) {
            return Err(CL_INVALID_WORK_DIMENSION);
        }
        self.held.clear();
        let own = self.kernels.prepare(
            &self.session,
            &self.context,
            kernel,
            (arg_count, args),
            svm_indirect,
            &mut self.held,
        )?;
        let (offset, global) = (sizes(offset), sizes(global));
        let local = match sizes(local) {
            [0, 0, 0] => own.one_group.local(dimensions.into(), &global),
            named => {
                own.grouped(&named[..usize::from(dimensions)]);
                named
            }
        };
        let launch = || {
            self.second.or(&self.queue).launch(
                options.enqueue,
                &own.kernel,
                dimensions.into(),
                &offset,
                &global,
                &local,
            )
        };
        let capture = match &self.session.shared.capture {
            Some(capture) if own.prints && !self.queue.is_own() => capture,
            _ => {
                let event = launch()?;
                self.held.clear();
                return Ok(Outcome::Driver(event));
            }
        };
        // Alone, so that the process's output during its run is this kernel's.
        self.turn.end();
        self.seat.leave();
        self.second.or(&self.queue).finish()?;
        let notices = &self.session.notices;
        let event = capture.during(
            || {
                let event = launch()?;
                self.second.or(&self.queue).finish()?;
                Ok::<_, Code>(event)
            },
            |printed| notices.print(printed),
        )?;
        self.held.clear();
        Ok(Outcome::Driver(event))
    }

    fn transfer(
        &mut self,
        direction: Direction,
        buffer: Id,
        offset: u64,
        payload: Payload,
        options: SubmitOptions,
    ) -> Result<Outcome, Code> {
        let buffer = self.buffer(buffer)?;
        let (host, pinned) = self.host(payload)?;
        let len = payload.len;
        check_range(offset, len, buffer.size)?;
        self.count(direction, len);
        if let Some(arena) = buffer.arena.as_ref().filter(|_| options.idle) {
            let device = arena.slice(offset, len).ok_or(CL_INVALID_VALUE)?;
            let (from, to) = match direction {
                Direction::Write => (&host, &device),
                Direction::Read => (&device, &host),
            };
            // SAFETY: both ranges have `len` bytes and may overlap; others may write there
            // meanwhile, which spoils nothing but the client's own bytes.
            unsafe { std::ptr::copy(from.ptr(), to.ptr(), len as usize) };
            return Ok(Outcome::Done);
        }
        let (offset, len) = (offset as usize, len as usize);
        let blocking = match direction {
            _ if pinned => false,
            Direction::Read => options.last,
            Direction::Write => options.last && len >= BLOCKING_WRITE_BYTES,
        };
        if blocking {
            self.turn.end();
            self.seat.wait();
        }
        // SAFETY: `host` has `len` bytes; an arena is only unmapped once all commands taken
        // before are complete.
        let event = unsafe {
            match direction {
                Direction::Write => self.queue.write(
                    options.enqueue,
                    false,
                    &*buffer.mem()?,
                    offset,
                    len,
                    host.ptr(),
                ),
                Direction::Read => self.queue.read(
                    options.enqueue,
                    blocking,
                    &*buffer.mem()?,
                    offset,
                    len,
                    host.ptr(),
                ),
            }
        };
        if blocking {
            self.seat.waited();
        }
        match event? {
            None if blocking && direction == Direction::Read => Ok(Outcome::Finished),
            event => Ok(Outcome::Driver(event)),
        }
    }

    /// A transfer's bytes in the host, and whether the device accesses them directly.
    fn host(&mut self, payload: Payload) -> Result<(Range, bool), Code> {
        let (range, pin) = self.session.pinned_payload(payload)?;
        let is_pinned = pin.is_some();
        if let Some(pin) = pin.filter(|pin| !self.pinned.iter().any(|own| Arc::ptr_eq(own, pin))) {
            self.pinned.push(pin);
        }
        Ok((range, is_pinned))
    }

    /// A payload that holds a box tightly.
    fn tight(&mut self, payload: Payload, size: [u64; 3], unit: u64) -> Result<Range, Code> {
        let bytes = pixels::volume(size).and_then(|v| v.checked_mul(unit));
        match bytes {
            // For pinned memory the driver copies without staging; otherwise it makes no
            // difference.
            Some(bytes) if bytes > 0 && bytes <= payload.len => {
                self.host(payload).map(|(host, _)| host)
            }
            _ => Err(CL_INVALID_VALUE),
        }
    }

    /// Operations between objects of the device.
    fn on_device(&mut self, operation: &Operation, enqueue: Enqueue) -> Result<Outcome, Code> {
        let event = match *operation {
            Operation::CopyBuffer {
                source,
                target,
                source_offset,
                target_offset,
                len,
            } => {
                let (source, target) = (self.buffer(source)?, self.buffer(target)?);
                check_range(source_offset, len, source.size)?;
                check_range(target_offset, len, target.size)?;
                self.queue.copy(
                    enqueue,
                    (&*source.mem()?, source_offset as usize),
                    (&*target.mem()?, target_offset as usize),
                    len as usize,
                )
            }
            Operation::CopyBufferRect {
                source,
                target,
                ref source_region,
                ref target_region,
            } => {
                let (source, target) = (self.buffer(source)?, self.buffer(target)?);
                let target_region = Region {
                    size: source_region.size,
                    ..*target_region
                };
                if !pixels::box_fits(source_region, source.size)
                    || !pixels::box_fits(&target_region, target.size)
                {
                    return Err(CL_INVALID_VALUE);
                }
                self.queue.copy_rect(
                    enqueue,
                    (&*source.mem()?, side(source_region)),
                    (&*target.mem()?, side(&target_region)),
                    &sizes(source_region.size),
                )
            }
            Operation::CopyImage {
                source,
                target,
                source_origin,
                target_origin,
                size,
            } => {
                let (source, target) = (self.image(source)?, self.image(target)?);
                self.queue.copy_image(
                    enqueue,
                    (&*source.mem()?, &sizes(source_origin)),
                    (&*target.mem()?, &sizes(target_origin)),
                    &sizes(size),
                )
            }
            Operation::CopyImageToBuffer {
                image,
                buffer,
                origin,
                size,
                offset,
            } => {
                let (image, buffer) = (self.image(image)?, self.buffer(buffer)?);
                check_pixels(&image, &buffer, size, offset)?;
                self.queue.copy_image_to_buffer(
                    enqueue,
                    (&*image.mem()?, &sizes(origin)),
                    &sizes(size),
                    (&*buffer.mem()?, offset as usize),
                )
            }
            Operation::CopyBufferToImage {
                buffer,
                image,
                offset,
                origin,
                size,
            } => {
                let (image, buffer) = (self.image(image)?, self.buffer(buffer)?);
                check_pixels(&image, &buffer, size, offset)?;
                self.queue.copy_buffer_to_image(
                    enqueue,
                    (&*buffer.mem()?, offset as usize),
                    (&*image.mem()?, &sizes(origin)),
                    &sizes(size),
                )
            }
            Operation::FillBuffer {
                buffer,
                pattern,
                offset,
                len,
            } => {
                let buffer = self.buffer(buffer)?;
                check_range(offset, len, buffer.size)?;
                check_pattern(pattern, len)?;
                self.queue.fill(
                    enqueue,
                    &*buffer.mem()?,
                    pattern,
                    offset as usize,
                    len as usize,
                )
            }
            Operation::FillImage {
                image,
                color,
                origin,
                size,
            } => {
                let image = self.image(image)?;
                let color: &[u8; 16] = color.try_into().map_err(|_| CL_INVALID_VALUE)?;
                self.queue
                    .fill_image(enqueue, &*image.mem()?, color, &sizes(origin), &sizes(size))
            }
            _ => Err(CL_INVALID_OPERATION),
        };
        event.map(Outcome::Driver)
    }

    fn svm(&mut self, operation: &Operation, enqueue: Enqueue) -> Result<Outcome, Code> {
        let event = match *operation {
            Operation::SvmCopy {
                target,
                source,
                len,
            } => {
                let target = self.session.svm_range(target, len)?;
                let source = self.session.svm_range(source, len)?;
                // SAFETY: both lie in allocations of the session, which are only freed once all
                // commands taken before are complete.
                unsafe {
                    self.queue.svm_copy(
                        enqueue,
                        target.cast::<c_void>(),
                        source.cast::<c_void>(),
                        len as usize,
                    )
                }
            }
            Operation::Svm {
                direction,
                address,
                payload,
            } => {
                let (host, _) = self.host(payload)?;
                let device = self.session.svm_range(address, payload.len)?;
                self.count(direction, payload.len);
                let (target, source) = match direction {
                    Direction::Write => (device, host.ptr()),
                    Direction::Read => (host.ptr(), device),
                };
                // SAFETY: as above; the payload's arena outlives the command too.
                unsafe {
                    self.queue.svm_copy(
                        enqueue,
                        target.cast::<c_void>(),
                        source.cast::<c_void>(),
                        payload.len as usize,
                    )
                }
            }
            Operation::SvmFill {
                address,
                pattern,
                len,
            } => {
                let target = self.session.svm_range(address, len)?;
                check_pattern(pattern, len)?;
                // SAFETY: as above.
                unsafe {
                    self.queue
                        .svm_fill(enqueue, target.cast::<c_void>(), pattern, len as usize)
                }
            }
            _ => Err(CL_INVALID_OPERATION),
        };
        event.map(Outcome::Driver)
    }
}

/// The measures taken after the driver had refused memory.
struct Freed {
    /// The arenas were unpinned.
    is_unpinned: bool,
}

fn is_refused<T>(result: &Result<T, Code>) -> bool {
    matches!(result, Err(CL_MEM_OBJECT_ALLOCATION_FAILURE))
}

fn sizes(of: [u64; 3]) -> [usize; 3] {
    of.map(|n| n as usize)
}

fn side(region: &Region) -> Side {
    (
        sizes(region.origin),
        region.row_pitch as usize,
        region.slice_pitch as usize,
    )
}
