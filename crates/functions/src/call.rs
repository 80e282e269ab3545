//! A bound call, which an engine runs, independent of the protocol of its request.

use crate::plan::Plan;
use crate::types::{Scalar, Type};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Bytes in received frames, which are merged only if a codec needs one piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body(pub Vec<Bytes>);

impl Body {
    /// A body of one frame.
    pub fn from_bytes(bytes: Bytes) -> Body {
        Body(vec![bytes])
    }

    /// Number of bytes of all frames.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|frame| frame.len() as u64).sum()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|frame| frame.is_empty())
    }

    /// The bytes in one piece; copies only if there is more than one frame.
    pub fn to_bytes(&self) -> Bytes {
        match self.0.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            frames => {
                let mut whole = BytesMut::with_capacity(self.len() as usize);
                frames
                    .iter()
                    .for_each(|frame| whole.extend_from_slice(frame));
                whole.freeze()
            }
        }
    }

    /// The part of `bytes` bytes from `from` on, without copying; shorter if the body ends before.
    pub fn slice(&self, from: u64, bytes: u64) -> Body {
        let (mut skip, mut left) = (from, bytes);
        let mut frames = Vec::new();
        for frame in &self.0 {
            let length = frame.len() as u64;
            if skip >= length {
                skip -= length;
                continue;
            }
            let taken = left.min(length - skip);
            if taken == 0 {
                break;
            }
            frames.push(frame.slice(skip as usize..(skip + taken) as usize));
            (skip, left) = (0, left - taken);
        }
        Body(frames)
    }

    /// Copies everything to the start of `to`.
    ///
    /// # Panics
    /// `to` is shorter than the body.
    pub fn copy_to(&self, to: &mut [u8]) {
        let mut at = 0;
        for frame in &self.0 {
            to[at..at + frame.len()].copy_from_slice(frame);
            at += frame.len();
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body(vec![bytes.into()])
    }
}

/// A checked and bound request, ready to run on any of the function's implementations.
#[derive(Clone, Debug)]
pub struct Call {
    /// All device buffers of the call. Sizes are checked: a body's length matches its shape.
    pub buffers: Vec<Buffer>,
    /// The launch for each implementation, in the manifest's order.
    pub launches: Vec<Launch>,
    /// The outputs in the manifest's order; the indices in [`Buffer::Output`] and [`Buffer::InOut`]
    /// refer to this list.
    pub outputs: Vec<OutputShape>,
    /// Number of requests that this call serves: 1, or more after [`Call::merge`].
    pub items: u32,
    /// The batching dimension's size in each merged request; empty for a call that is not merged.
    pub(crate) parts: Vec<u64>,
    /// Values of the plan's variables.
    pub(crate) values: Vec<i128>,
    /// Values of the scalar inputs.
    pub(crate) scalars: Vec<Option<Scalar>>,
    pub(crate) plan: Arc<Plan>,
}

impl Call {
    /// Bytes of its inputs.
    pub fn input_bytes(&self) -> u64 {
        let bodies = self.buffers.iter().filter_map(|buffer| match buffer {
            Buffer::Input(body) | Buffer::InOut(body, _) => Some(body.len()),
            _ => None,
        });
        bodies.sum()
    }

    /// A copy without buffers and launches, for [`crate::Function::answer`].
    pub fn for_answer(&self) -> Call {
        Call {
            buffers: Vec::new(),
            launches: Vec::new(),
            outputs: self.outputs.clone(),
            items: self.items,
            parts: Vec::new(),
            values: Vec::new(),
            scalars: Vec::new(),
            plan: self.plan.clone(),
        }
    }

    /// Total bytes of the inputs and outputs.
    pub fn bytes(&self) -> u64 {
        let inputs = self.buffers.iter().map(|buffer| match buffer {
            Buffer::Input(body) | Buffer::InOut(body, _) => body.len(),
            Buffer::Constant(_) | Buffer::Output(_) => 0,
        });
        let outputs = self.outputs.iter().map(|output| output.bytes);
        inputs.chain(outputs).fold(0, u64::saturating_add)
    }
}

/// A device buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum Buffer {
    /// Written before the first step.
    Input(Body),
    /// The function's constant with this index ([`crate::Function::constant`]): equal for all
    /// calls, so that it is written once per device.
    Constant(usize),
    /// Read after the last step; undefined before the first.
    Output(usize),
    /// Written before the first step, read after the last.
    InOut(Body, usize),
}

/// The launch of one implementation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Launch {
    /// Kernels in sequence. A native implementation has one step, whose `kernel` is the symbol; a
    /// board has one step.
    pub steps: Vec<Step>,
    /// Bytes of this implementation's scratch buffers; undefined before the first step.
    pub scratch: Vec<u64>,
}

/// One kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The kernel's name, or the native library's symbol.
    pub kernel: Arc<str>,
    /// Arguments in the kernel's order.
    pub arguments: Vec<Argument>,
    /// Work-items; 1 beyond `dimensions`. If one is zero, the step is skipped.
    pub global: [u64; 3],
    /// Work-items per group; `None`: the driver chooses. If given, `global` is a multiple of it.
    pub local: Option<[u64; 3]>,
    /// Number of dimensions, 1 to 3.
    pub dimensions: u8,
}

/// The value of a kernel's argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// The buffer with this index in [`Call::buffers`].
    Buffer(usize),
    /// The scratch buffer with this index in [`Launch::scratch`].
    Scratch(usize),
    /// A value.
    Scalar(Scalar),
    /// Local memory, in bytes.
    Local(u64),
}

/// An output's size, type and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputShape {
    /// The product of `shape` and the type's size. May be 0.
    pub bytes: u64,
    /// The type of an element.
    pub kind: Type,
    /// Row major; empty for a scalar.
    pub shape: Vec<u64>,
}
