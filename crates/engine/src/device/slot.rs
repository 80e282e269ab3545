//! The resources of one call in flight on a device: its buffers, and kernels with these as
//! arguments.
//!
//! On a device that works on host memory, a buffer *is* a block of the session's arena: a body is
//! copied once, from its received frames. On other devices, a block stages the transfer. A slot
//! keeps its buffers for the next call and enlarges them if needed. The contents of an output
//! before its kernel runs are undefined; they may be from another call of the same function.

use super::program::Program;
use crate::pending::Traced;
use crate::reply::CallError;
use baltra_functions::{Argument, Body, Buffer, Call, Launch, Step};
use baltra_session::client::{Block, Client, Lost, Queue};
use baltra_wire::opencl::{text_of, MEM_READ_WRITE};
use baltra_wire::{encode, Arg, Backing, Control, Direction, Id, Operation, Version};
use bytes::Bytes;
use std::sync::Arc;

/// The first version with [`Operation::Trace`].
const TRACE_SINCE: Version = Version { major: 1, minor: 1 };

/// Buffers of at least this size are page-aligned and sized in pages.
const PAGE_BYTES: u64 = 4096;

/// One buffer.
struct SlotBuffer {
    id: Id,
    /// Bytes of device memory.
    size: u64,
    /// The buffer's memory (host memory), or its staging memory; scratch buffers of other devices
    /// have none.
    block: Option<Block>,
}

/// The buffers and kernels of one call.
#[derive(Default)]
pub struct Slot {
    /// For each of the call's buffers that is not a constant.
    places: Vec<Option<SlotBuffer>>,
    /// Scratch buffers.
    scratch: Vec<Option<SlotBuffer>>,
    /// Constants are buffers that all slots share.
    constants: Vec<Option<Id>>,
    kernels: Vec<(Arc<str>, Id)>,
    args: Vec<u8>,
}

/// Why a call cannot be submitted.
pub enum SlotError {
    /// The session has ended.
    Lost(Lost),
    /// The call is at fault.
    Call(CallError),
}

impl From<Lost> for SlotError {
    fn from(lost: Lost) -> SlotError {
        SlotError::Lost(lost)
    }
}

impl Slot {
    /// Bytes of device memory that the slot holds.
    pub fn bytes(&self) -> u64 {
        let places = self.places.iter().chain(&self.scratch);
        places.flatten().map(|place| place.size).sum()
    }

    /// Allocates buffers for the call and copies its inputs. The slot must not be in flight.
    pub fn fill(
        &mut self,
        program: &Program,
        call: &Call,
        launch: &Launch,
    ) -> Result<(), SlotError> {
        let count = call.buffers.len();
        if self.places.len() < count {
            self.places.resize_with(count, || None);
            self.constants.resize(count, None);
        }
        if self.scratch.len() < launch.scratch.len() {
            self.scratch.resize_with(launch.scratch.len(), || None);
        }
        for (place, size) in self.scratch.iter_mut().zip(&launch.scratch) {
            room(place, program, *size, false)?;
        }
        for (index, buffer) in call.buffers.iter().enumerate() {
            let place = &mut self.places[index];
            match buffer {
                Buffer::Constant(constant) => {
                    if self.constants[index].is_none() {
                        self.constants[index] = Some(program.constant(*constant)?.id);
                    }
                }
                Buffer::Input(body) => room(place, program, body.len(), true)?.copy_in(body),
                Buffer::InOut(body, output) => {
                    let size = body.len().max(call.outputs[*output].bytes);
                    room(place, program, size, true)?.copy_in(body);
                }
                Buffer::Output(output) => {
                    room(place, program, call.outputs[*output].bytes, true)?;
                }
            }
        }
        Ok(())
    }

    fn kernel(&mut self, program: &Program, name: &Arc<str>) -> Result<Id, SlotError> {
        let same = |known: &Arc<str>| Arc::ptr_eq(known, name) || known == name;
        if let Some((_, id)) = self.kernels.iter().find(|(known, _)| same(known)) {
            return Ok(*id);
        }
        let checked = program.kernel(name);
        checked.map_err(|e| SlotError::Call(CallError::Failed(e.to_string())))?;
        let id = program.client.new_id();
        program.client.control(&Control::Kernel {
            id,
            program: program.id,
            name,
        })?;
        self.kernels.push((name.clone(), id));
        Ok(id)
    }

    /// Creates the kernels of the steps and checks the number of their arguments, so that
    /// [`Slot::push`] cannot fail for that reason.
    pub fn prepare(&mut self, program: &Program, steps: &[Step]) -> Result<(), SlotError> {
        for step in steps {
            self.kernel(program, &step.kernel)?;
            let kernel = program.kernel(&step.kernel);
            let kernel = kernel.map_err(|e| SlotError::Call(CallError::Failed(e.to_string())))?;
            if kernel.args.len() != step.arguments.len() {
                return Err(SlotError::Call(CallError::Failed(format!(
                    "kernel '{}' takes {} arguments, but the manifest lists {}",
                    step.kernel,
                    kernel.args.len(),
                    step.arguments.len()
                ))));
            }
        }
        Ok(())
    }

    /// Sends the trace contexts of the commands that [`Slot::push`] appends next. Nodes that do not
    /// support traces receive none.
    pub fn trace(
        &self,
        program: &Program,
        queue: &Queue,
        call: &Call,
        steps: &[Step],
        traces: &[Traced],
    ) -> Result<(), Lost> {
        if traces.is_empty() || program.client.welcome().version < TRACE_SINCE {
            return Ok(());
        }
        let commands = self.command_count(program.client.host_memory(), call, steps);
        for (index, traced) in traces.iter().enumerate() {
            let others = traces.len() - 1 - index;
            let operation = Operation::Trace {
                trace: traced.trace,
                parent: traced.parent,
                commands: u32::try_from(others + commands).unwrap_or(u32::MAX),
            };
            queue.push(0, &[], &operation)?;
        }
        Ok(())
    }

    /// Number of commands that [`Slot::push`] appends.
    fn command_count(&self, host: bool, call: &Call, steps: &[Step]) -> usize {
        let moved = |index: usize, bytes: u64| {
            let place = self.places[index].as_ref();
            usize::from(bytes > 0 && place.is_some_and(|place| place.block.is_some()))
        };
        let transfers = call.buffers.iter().enumerate().map(|(index, buffer)| {
            let output = |output: &usize| moved(index, call.outputs[*output].bytes);
            match buffer {
                Buffer::Constant(_) => 0,
                Buffer::Input(body) => moved(index, body.len()),
                Buffer::Output(out) => output(out),
                Buffer::InOut(body, out) => moved(index, body.len()) + output(out),
            }
        });
        let transfers = if host { 0 } else { transfers.sum() };
        let launches = steps.iter().filter(|step| is_launched(step)).count();
        (transfers + launches).max(1)
    }

    /// Appends the call's commands to the queue; returns the number of the last one.
    pub fn push(
        &mut self,
        program: &Program,
        queue: &Queue,
        call: &Call,
        steps: &[Step],
    ) -> Result<u64, Lost> {
        let host = program.client.host_memory();
        let mut last = None;
        if !host {
            for (index, buffer) in call.buffers.iter().enumerate() {
                if let Buffer::Input(body) | Buffer::InOut(body, _) = buffer {
                    let moved = self.transfer(queue, Direction::Write, index, body.len())?;
                    last = moved.or(last);
                }
            }
        }
        for step in steps.iter().filter(|step| is_launched(step)) {
            last = Some(self.launch(queue, step)?);
        }
        if !host {
            for (index, buffer) in call.buffers.iter().enumerate() {
                if let Buffer::Output(output) | Buffer::InOut(_, output) = buffer {
                    let bytes = call.outputs[*output].bytes;
                    let moved = self.transfer(queue, Direction::Read, index, bytes)?;
                    last = moved.or(last);
                }
            }
        }
        match last {
            Some(last) => Ok(last),
            None => queue.push(0, &[], &Operation::Marker),
        }
    }

    fn transfer(
        &self,
        queue: &Queue,
        direction: Direction,
        index: usize,
        bytes: u64,
    ) -> Result<Option<u64>, Lost> {
        let place = self.places[index].as_ref().expect("filled before");
        let Some(block) = place.block.as_ref().filter(|_| bytes > 0) else {
            return Ok(None);
        };
        let operation = Operation::Buffer {
            direction,
            buffer: place.id,
            offset: 0,
            payload: block.part(0, bytes),
        };
        queue.push(0, &[], &operation).map(Some)
    }

    fn launch(&mut self, queue: &Queue, step: &Step) -> Result<u64, Lost> {
        let kernel = self.kernels.iter().find(|(name, _)| *name == step.kernel);
        let kernel = kernel.expect("prepared before").1;
        self.args.clear();
        for argument in &step.arguments {
            let (bytes, len);
            let arg = match *argument {
                Argument::Buffer(index) => Arg::Memory(match &self.places[index] {
                    Some(place) => place.id,
                    None => self.constants[index].expect("filled before"),
                }),
                Argument::Scratch(index) => {
                    let place = self.scratch[index].as_ref();
                    Arg::Memory(place.expect("filled before").id)
                }
                Argument::Scalar(scalar) => {
                    (bytes, len) = scalar.bytes();
                    Arg::Value(&bytes[..len])
                }
                Argument::Local(bytes) => Arg::Local(bytes),
            };
            encode(&arg, &mut self.args).expect("an argument can always be encoded");
        }
        let operation = Operation::Launch {
            kernel,
            dimensions: step.dimensions.clamp(1, 3),
            offset: [0; 3],
            global: step.global,
            local: step.local.unwrap_or_default(),
            arg_count: step.arguments.len() as u32,
            args: &self.args,
            svm_indirect: &[],
        };
        queue.push(0, &[], &operation)
    }

    /// Copies the outputs of a completed call.
    pub fn outputs(&self, call: &Call) -> Vec<Bytes> {
        let mut outputs = vec![Bytes::new(); call.outputs.len()];
        for (index, buffer) in call.buffers.iter().enumerate() {
            let (Buffer::Output(output) | Buffer::InOut(_, output)) = buffer else {
                continue;
            };
            let bytes = call.outputs[*output].bytes as usize;
            let block = self.places[index].as_ref().and_then(|p| p.block.as_ref());
            if let Some(block) = block.filter(|_| bytes > 0) {
                let mut copy = Vec::with_capacity(bytes);
                block.read(0, bytes, &mut copy);
                outputs[*output] = copy.into();
            }
        }
        outputs
    }

    /// Releases the buffers and keeps the kernels.
    pub fn shrink(&mut self, client: &Client) {
        let places = self.places.iter_mut().chain(&mut self.scratch);
        for place in places.filter_map(Option::take) {
            place.release(client);
        }
    }
}

/// Whether the step has work-items.
fn is_launched(step: &Step) -> bool {
    let dimensions = usize::from(step.dimensions.clamp(1, 3));
    !step.global[..dimensions].contains(&0)
}

/// Allocates the buffer, or replaces a buffer that is too small.
fn room<'a>(
    place: &'a mut Option<SlotBuffer>,
    program: &Program,
    size: u64,
    host: bool,
) -> Result<&'a mut SlotBuffer, SlotError> {
    let had = place.as_ref().map_or(0, |p| p.size);
    if had < size || place.is_none() {
        let client = &program.client;
        if let Some(old) = place.take() {
            old.release(client);
        }
        // Calls slightly larger than the last one are common: grow by at least a quarter.
        let size = size.max(had + had / 4).max(64);
        let made = SlotBuffer::new(client, program.context, size, host);
        *place = Some(made.map_err(|lost| match client.is_lost() {
            Some(_) => SlotError::Lost(lost),
            None => SlotError::Call(CallError::Failed(format!(
                "cannot allocate {size} bytes: {}",
                text_of(lost.0)
            ))),
        })?);
    }
    Ok(place.as_mut().expect("made above"))
}

impl SlotBuffer {
    fn new(client: &Arc<Client>, context: Id, size: u64, host: bool) -> Result<SlotBuffer, Lost> {
        let (size, align) = match size {
            n if n >= PAGE_BYTES => (n.next_multiple_of(PAGE_BYTES), PAGE_BYTES),
            n => (n.next_power_of_two(), 128),
        };
        let in_place = client.host_memory();
        let block = if in_place || host {
            Some(client.allocate(size, align)?)
        } else {
            None
        };
        let backing = match &block {
            Some(block) if in_place => Backing::Arena(block.payload()),
            _ => Backing::Device(None),
        };
        let id = client.new_id();
        client.control(&Control::Buffer {
            id,
            context,
            flags: MEM_READ_WRITE,
            size,
            backing,
        })?;
        Ok(SlotBuffer { id, size, block })
    }

    fn copy_in(&mut self, body: &Body) {
        let Some(block) = &mut self.block else {
            return;
        };
        let mut at = 0;
        for frame in &body.0 {
            block.write(at, frame);
            at += frame.len();
        }
    }

    /// The block returns to the arena when the driver has released the buffer.
    fn release(self, client: &Client) {
        let SlotBuffer { id, block, .. } = self;
        // A session that has ended has released everything already.
        let _ = client.release(id, Some(Box::new(move || drop(block))));
    }
}
