//! A call of native code, on the caller's own thread.

use super::functions::Refusal;
use anyhow::{bail, Result};
use baltra_functions::manifest::Implementation as Way;
use baltra_functions::{Argument, Buffer, Call, Function};
use baltra_native::library::{Aligned, Library, Memory};
use baltra_native::protocol::Arg;
use baltra_vguest::Reason;
use bytes::Bytes;
use std::path::Path;

/// A function's library, loaded.
pub(crate) struct Native {
    library: Library,
    /// By their index; the library is trusted to leave them as they are.
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

    /// Carries a call out; its outputs in the manifest's order.
    pub fn call(&self, call: &Call, room: &mut Room) -> Result<Vec<Bytes>, Refusal> {
        let step = call.launches.first().and_then(|launch| {
            let step = launch.steps.first()?;
            Some((launch, step))
        });
        let Some((launch, step)) = step else {
            return Err((Reason::Failed, "the call has no native step".into()));
        };
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
            // Nothing of the last call is left in it.
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
        let values: Vec<_> = step
            .arguments
            .iter()
            .map(|argument| match argument {
                Argument::Scalar(scalar) => scalar.bytes(),
                _ => ([0; 8], 0),
            })
            .collect();
        let arguments = step.arguments.iter().zip(&values);
        let arguments = arguments.map(|(argument, (bytes, len))| match *argument {
            Argument::Buffer(index) => Ok(Arg::Buffer(index as u32)),
            Argument::Scratch(index) => Ok(Arg::Buffer((call.buffers.len() + index) as u32)),
            Argument::Scalar(_) => Ok(Arg::Value(&bytes[..*len])),
            Argument::Local(_) => Err((
                Reason::Failed,
                "local memory is for kernels: a native function has none".to_owned(),
            )),
        });
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
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

/// A thread's memory for calls, kept from one to the next.
#[derive(Default)]
pub(crate) struct Room {
    blocks: Vec<Aligned>,
}
