//! The steps of operations on channels. They keep their order; of one step, reads come first, as the
//! elements that it writes may depend on them (`hdl/kernels/rtl/kernel_channels.sv`).

use super::{engine_call, Block, Booking, Resource, Schedule};
use crate::ir::{EngineCall, Op};
use std::collections::HashMap;

/// The last steps of operations on channels.
#[derive(Default)]
pub struct ChannelSteps {
    read: Option<u32>,
    written: Option<u32>,
    /// The last fence, which is complete before what follows begins.
    fenced: Option<u32>,
    /// By port: the last read.
    pub of_port: HashMap<u32, u32>,
}

impl ChannelSteps {
    /// The step of the last operation; 0: there is none.
    pub fn last(&self) -> u32 {
        self.read.max(self.written).unwrap_or(0)
    }
}

fn after(step: Option<u32>) -> u32 {
    step.map_or(0, |step| step + 1)
}

impl Booking<'_> {
    /// Reserves a channel for an operation.
    pub fn channel(&mut self, call: EngineCall, step: u32) -> Option<u32> {
        let last = &self.channels;
        let (port, writes) = match call {
            EngineCall::ChannelWrite(port) | EngineCall::ChannelTryWrite(port) => (port, true),
            EngineCall::ChannelRead(port) | EngineCall::ChannelTryRead(port) => (port, false),
            _ => return None,
        };
        let earliest = if writes {
            last.last()
        } else {
            last.read.unwrap_or(0).max(after(last.written))
        };
        let step = step.max(earliest).max(after(last.fenced));
        let (step, _) = self.book(Resource::Channel(port, writes), step, 1)?;
        if writes {
            self.channels.written = Some(step);
        } else {
            self.channels.read = Some(step);
            self.channels.of_port.insert(port, step);
        }
        Some(step)
    }

    /// Reserves the port to memory for a fence.
    pub fn fence(&mut self, step: u32) -> Option<u32> {
        let last = self.channels.read.max(self.channels.written);
        let read = after(self.read);
        let step = self.call(step.max(after(last)).max(read))?;
        self.channels.fenced = Some(step);
        Some(step)
    }
}

impl Block<'_> {
    /// Whether operations on channels of different iterations keep their order, with accesses to
    /// buffers if there are fences. Otherwise, one that waits could prevent an operation before it,
    /// for which another kernel waits.
    pub fn keeps_channels(self, schedule: &Schedule, interval: u32) -> bool {
        let calls = |i: &&crate::ir::Instruction| engine_call(&i.op);
        let is_fence = |call| call == Some(EngineCall::Fence);
        let fenced = self.code.code.iter().any(|i| is_fence(calls(&i)));
        let steps = (self.code.code.iter().zip(&schedule.steps)).filter(|(i, _)| match i.op {
            Op::Load(a, ..) | Op::Store { address: a, .. } => {
                fenced && self.memories.far(self.at, a)
            }
            _ => calls(i).is_some_and(EngineCall::uses_channel) || is_fence(calls(i)),
        });
        let steps = || steps.clone().map(|(_, s)| s.0);
        let (first, last) = (steps().min(), steps().max());
        last.zip(first).is_none_or(|(l, f)| l - f < interval)
    }
}
