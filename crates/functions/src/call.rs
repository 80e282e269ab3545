//! A bound call, which an engine runs, independent of the protocol of its request.

use crate::plan::Plan;
use crate::types::{Scalar, Type};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Bytes as they came: frames are put together only where a codec must see them in one piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body(pub Vec<Bytes>);

impl Body {
    /// Of one frame.
    pub fn from_bytes(bytes: Bytes) -> Body {
        Body(vec![bytes])
    }

    /// All bytes of all frames.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|frame| frame.len() as u64).sum()
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|frame| frame.is_empty())
    }

    /// In one piece; copies only where there is more than one frame.
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

    /// The part from `from`, `bytes` long, without copying; shorter where the body ends before.
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
    /// When `to` is shorter than the body.
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

/// A request that fits its function, ready to run on any of the function's implementations.
#[derive(Clone, Debug)]
pub struct Call {
    /// All blocks of device memory that the call uses. Sizes are checked: a body's length matches
    /// its shape.
    pub buffers: Vec<Buffer>,
    /// What to start, for each implementation in the manifest's order.
    pub launches: Vec<Launch>,
    /// What comes out, in the manifest's order; [`Buffer::Output`] and [`Buffer::InOut`] point into it.
    pub outputs: Vec<OutputShape>,
    /// How many requests this call answers: 1, or more after [`Call::merge`].
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
    /// Bytes of what goes in and of what comes out.
    pub fn bytes(&self) -> u64 {
        let inputs = self.buffers.iter().map(|buffer| match buffer {
            Buffer::Input(body) | Buffer::InOut(body, _) => body.len(),
            Buffer::Constant(_) | Buffer::Output(_) => 0,
        });
        let outputs = self.outputs.iter().map(|output| output.bytes);
        inputs.chain(outputs).fold(0, u64::saturating_add)
    }
}

/// A block of device memory.
#[derive(Clone, Debug, PartialEq)]
pub enum Buffer {
    /// Written before the first step.
    Input(Body),
    /// The function's constant of this index ([`crate::Function::constant`]): the same for every call, so that it is
    /// written once a device.
    Constant(usize),
    /// Read after the last step; undefined before the first.
    Output(usize),
    /// Written before the first step, read after the last.
    InOut(Body, usize),
}

/// How one implementation carries a call out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Launch {
    /// Kernels, one after the other. A native implementation has one step, whose `kernel` is the symbol; a board has one.
    pub steps: Vec<Step>,
    /// Bytes of the device memory that only this implementation uses, between steps; undefined before the first.
    pub scratch: Vec<u64>,
}

/// One kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The kernel's name, or the native library's symbol.
    pub kernel: Arc<str>,
    /// In the kernel's order.
    pub arguments: Vec<Argument>,
    /// Work-items; 1 beyond `dimensions`. A zero means: nothing to do, leave the step out.
    pub global: [u64; 3],
    /// Work-items per group; `None`: the driver chooses. If given, `global` is a multiple of it.
    pub local: Option<[u64; 3]>,
    /// 1 to 3.
    pub dimensions: u8,
}

/// The value of a kernel's argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// The buffer of this index in [`Call::buffers`].
    Buffer(usize),
    /// The scratch buffer of this index in [`Launch::scratch`].
    Scratch(usize),
    /// A value.
    Scalar(Scalar),
    /// Local memory, in bytes.
    Local(u64),
}

/// An output's size, type and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputShape {
    /// `shape` × the type's size. May be 0.
    pub bytes: u64,
    /// The type of an element.
    pub kind: Type,
    /// Row major; empty for one value.
    pub shape: Vec<u64>,
}
