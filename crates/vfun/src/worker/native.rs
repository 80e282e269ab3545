//! Calls of native code, on the caller's own thread.

use super::Refusal;
use anyhow::{bail, Result};
use baltra_functions::manifest::Implementation as Way;
use baltra_functions::{Argument, Buffer, Call, Function, Launch, Step};
use baltra_ivshmem::Reason;
use baltra_native::library::{Aligned, Contents, Library, Memory, Prepared};
use baltra_native::protocol::Arg;
use bytes::Bytes;
use std::path::Path;

/// Size limit of the inputs, and of the outputs, of a prepared call.
const AGAIN_BYTES_MAX: u64 = 4096;

/// A loaded library of a function.
pub(crate) struct Native {
    library: Library,
    /// Constants by index; the library is trusted not to change them.
    constants: Vec<Aligned>,
}

impl Native {
    /// Loads the library of a function's only implementation, whose files are in a directory.
    pub fn load(function: &Function, directory: &Path) -> Result<Native> {
        let Some(Way::Native(native)) = function.manifest.implementations.first() else {
            bail!("the function has no native implementation");
        };
        let path = directory.join(&native.library);
        let library = Library::open(&path, std::slice::from_ref(&native.symbol))?;
        let constants = (0..function.constants()).map(|index| function.constant(index));
        Ok(Native {
            library,
            constants: constants.map(|bytes| Aligned::of(&bytes)).collect(),
        })
    }

    /// Prepares a call whose answer consists of these outputs. `None`: preparation does not pay.
    pub fn again(&self, call: &Call, outputs: &[usize]) -> Option<Again> {
        let (launch, step) = step(call).ok()?;
        let small = |bytes: u64| bytes <= AGAIN_BYTES_MAX;
        let outputs_small = call.outputs.iter().all(|output| small(output.bytes));
        if !launch.scratch.is_empty() || !outputs_small {
            return None;
        }
        let mut blocks = Vec::with_capacity(call.buffers.len());
        for buffer in &call.buffers {
            blocks.push(match buffer {
                Buffer::Input(body) if small(body.len()) => Contents::Bytes(body.to_bytes().into()),
                Buffer::Output(output) => Contents::Zero(call.outputs[*output].bytes as usize),
                Buffer::Constant(index) => Contents::Shared(self.constants[*index].shared_block()),
                Buffer::Input(_) | Buffer::InOut(..) => return None,
            });
        }
        let block_of = |wanted: &usize| {
            let mut buffers = call.buffers.iter();
            buffers.position(|buffer| matches!(buffer, Buffer::Output(output) if output == wanted))
        };
        let values = numbers(step);
        let arguments = arguments(call, step, &values).ok()?;
        Some(Again {
            answer: outputs.iter().map(block_of).collect::<Option<_>>()?,
            prepared: self.library.prepare(0, blocks, &arguments).ok()?,
        })
    }

    /// Runs a call; returns its outputs in the manifest's order.
    pub fn call(&self, call: &Call, room: &mut Room) -> Result<Vec<Bytes>, Refusal> {
        let (launch, step) = step(call)?;
        let blocks = call.buffers.len() + launch.scratch.len();
        if room.blocks.len() < blocks {
            room.blocks.resize_with(blocks, Aligned::default);
        }
        let mut memory: Vec<Memory> = Vec::with_capacity(blocks);
        for (buffer, block) in call.buffers.iter().zip(&mut room.blocks) {
            let len = match buffer {
                Buffer::Input(body) => body.len() as usize,
                Buffer::Output(output) => call.outputs[*output].bytes as usize,
                Buffer::InOut(body, output) => body.len().max(call.outputs[*output].bytes) as usize,
                Buffer::Constant(index) => {
                    memory.push(self.constants[*index].shared_block());
                    continue;
                }
            };
            // Clears the data of the last call.
            block.resize(0);
            block.resize(len);
            if let Buffer::Input(body) | Buffer::InOut(body, _) = buffer {
                body.copy_to(block.bytes_mut());
            }
            memory.push(block.block(0, len));
        }
        let scratch = room.blocks[call.buffers.len()..].iter_mut();
        for (bytes, block) in launch.scratch.iter().zip(scratch) {
            block.resize(*bytes as usize);
            memory.push(block.block(0, *bytes as usize));
        }
        let values = numbers(step);
        let arguments = arguments(call, step, &values)?;
        let called = self.library.call(0, &mut memory, &arguments);
        called.map_err(|text| (Reason::Failed, text))?;
        let mut outputs = vec![Bytes::new(); call.outputs.len()];
        for (buffer, block) in call.buffers.iter().zip(&room.blocks) {
            if let Buffer::Output(output) | Buffer::InOut(_, output) = buffer {
                let len = call.outputs[*output].bytes as usize;
                outputs[*output] = Bytes::copy_from_slice(&block.bytes()[..len]);
            }
        }
        Ok(outputs)
    }
}

fn step(call: &Call) -> Result<(&Launch, &Step), Refusal> {
    let step = call.launches.first().and_then(|launch| {
        let step = launch.steps.first()?;
        Some((launch, step))
    });
    step.ok_or_else(|| (Reason::Failed, "the call has no native step".into()))
}

fn numbers(step: &Step) -> Vec<([u8; 8], usize)> {
    let numbers = step.arguments.iter().map(|argument| match argument {
        Argument::Scalar(scalar) => scalar.bytes(),
        _ => ([0; 8], 0),
    });
    numbers.collect()
}

fn arguments<'a>(
    call: &Call,
    step: &Step,
    numbers: &'a [([u8; 8], usize)],
) -> Result<Vec<Arg<'a>>, Refusal> {
    let arguments = step.arguments.iter().zip(numbers);
    let arguments = arguments.map(|(argument, (bytes, len))| match *argument {
        Argument::Buffer(index) => Ok(Arg::Buffer(index as u32)),
        Argument::Scratch(index) => Ok(Arg::Buffer((call.buffers.len() + index) as u32)),
        Argument::Scalar(_) => Ok(Arg::Value(&bytes[..*len])),
        Argument::Local(_) => Err((
            Reason::Failed,
            "a native function cannot have arguments in local memory".to_owned(),
        )),
    });
    arguments.collect()
}

/// A small call that is prepared for repetition.
pub(crate) struct Again {
    prepared: Prepared,
    /// The blocks that form the answer.
    answer: Vec<usize>,
}

impl Again {
    /// Runs the call, and writes the answer's data.
    pub fn call(&mut self, to: &mut [u8]) -> Result<(), Refusal> {
        let called = self.prepared.call();
        called.map_err(|text| (Reason::Failed, text))?;
        let mut rest = to;
        for block in &self.answer {
            let bytes = self.prepared.block(*block);
            let part;
            (part, rest) = rest.split_at_mut(bytes.len());
            part.copy_from_slice(bytes);
        }
        Ok(())
    }
}

/// A thread's memory for calls, reused for the next call.
#[derive(Default)]
pub(crate) struct Room {
    blocks: Vec<Aligned>,
}
