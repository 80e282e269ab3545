//! The steps of operations on channels. They keep their order; of one step, reads come first, as the
//! elements that it writes may depend on them (`hdl/kernels/rtl/kernel_channels.sv`).
//!
//! An operation that waits must not prevent an earlier one of the kernel, for which the kernel at the
//! other end may wait. As a pipeline stands still while an operation waits, those of an iteration are
//! less than an interval apart: so all of an iteration precede those of the next one. Reads with
//! which an iteration begins may be further ahead: while an element is missing, the iteration begins
//! again every interval, and those before it proceed.

use super::{engine_call, Block, Booking, Form, Resource, Schedule};
use crate::ir::{EngineCall, Instruction, Op};
use std::collections::HashMap;

/// The last steps of operations on channels.
#[derive(Default)]
pub struct ChannelSteps {
    read: Option<u32>,
    written: Option<u32>,
    /// The last fence, which is complete before what follows begins.
    fenced: Option<u32>,
    /// Whether an operation is not one of those with which the iteration begins.
    has_others: bool,
    /// By port: the last read.
    pub of_port: HashMap<u32, u32>,
}

impl ChannelSteps {
    /// The step of the last operation; 0: there is none.
    pub fn last(&self) -> u32 {
        self.read.max(self.written).unwrap_or(0)
    }
}

/// The distances between the operations of an iteration, except for reads with which it begins.
pub struct Nearness {
    /// The first step that is less than an interval before the last operation.
    pub from: u32,
    /// Whether no operation is before it.
    pub fits: bool,
}

fn after(step: Option<u32>) -> u32 {
    step.map_or(0, |step| step + 1)
}

impl Booking<'_> {
    /// The first step of what an iteration must not do twice.
    pub fn first_effect(&self) -> u32 {
        match self.form.interval {
            Some(interval) if self.form.repeats => interval,
            _ => 0,
        }
    }

    /// Reserves a channel for an operation. `condition`: the step in which a register has its condition,
    /// on which depends whether the kernel waits. An iteration that begins with a read does not.
    pub fn channel(&mut self, call: EngineCall, step: u32, condition: u32) -> Option<u32> {
        let (port, writes) = match call {
            EngineCall::ChannelWrite(port) | EngineCall::ChannelTryWrite(port) => (port, true),
            EngineCall::ChannelRead(port) | EngineCall::ChannelTryRead(port) => (port, false),
            _ => return None,
        };
        if matches!(call, EngineCall::ChannelRead(_)) && self.begins_with(port, step) {
            return Some(self.first_effect() - 1);
        }
        self.channels.has_others = true;
        let last = &self.channels;
        let earliest = if writes {
            last.last()
        } else {
            last.read.unwrap_or(0).max(after(last.written))
        };
        let step = step.max(condition).max(earliest).max(after(last.fenced));
        let step = step.max(self.form.channels_from).max(self.first_effect());
        let (step, _) = self.book(Resource::Channel(port, writes), step, 1)?;
        if writes {
            self.channels.written = Some(step);
        } else {
            self.channels.read = Some(step);
            self.channels.of_port.insert(port, step);
        }
        Some(step)
    }

    /// Reserves a channel for a read with which an iteration begins, if it is one.
    fn begins_with(&mut self, port: u32, step: u32) -> bool {
        let Some(entry) = self.first_effect().checked_sub(1) else {
            return false;
        };
        let slot = (Resource::Channel(port, false), entry);
        if self.channels.has_others || step > entry || self.taken.contains_key(&slot) {
            return false;
        }
        self.taken.insert(slot, 1);
        self.channels.read = Some(entry);
        self.channels.of_port.insert(port, entry);
        true
    }

    /// Reserves the port to memory for a fence.
    pub fn fence(&mut self, step: u32) -> Option<u32> {
        let last = self.channels.read.max(self.channels.written);
        let step = self.call(step.max(after(last)).max(self.after_read()))?;
        self.channels.fenced = Some(step);
        Some(step)
    }
}

fn is_fence(instruction: &Instruction) -> bool {
    engine_call(&instruction.op) == Some(EngineCall::Fence)
}

/// The kernel's port of an operation on a channel, and whether it writes.
fn port(instruction: &Instruction) -> Option<(u32, bool)> {
    match engine_call(&instruction.op)? {
        EngineCall::ChannelRead(port) | EngineCall::ChannelTryRead(port) => Some((port, false)),
        EngineCall::ChannelWrite(port) | EngineCall::ChannelTryWrite(port) => Some((port, true)),
        _ => None,
    }
}

impl Block<'_> {
    /// Whether iterations may begin with reads of channels, again and again: the first operation is
    /// such a read, and there is no fence.
    pub fn may_repeat(self) -> bool {
        let code = &self.code.code;
        let mut calls = code.iter().filter_map(|i| engine_call(&i.op));
        let first = calls.find(|call| call.uses_channel());
        matches!(first, Some(EngineCall::ChannelRead(_))) && !code.iter().any(is_fence)
    }

    /// Whether operations on channels prevent a shorter interval: by their number on one of them, or
    /// by their order.
    pub fn channels_limit(self, interval: u32) -> bool {
        let mut uses = HashMap::new();
        for port in self.code.code.iter().filter_map(port) {
            *uses.entry(port).or_insert(0) += 1;
        }
        let form = Form {
            interval: Some(interval - 1),
            any_order: true,
            ..Form::default()
        };
        let most = uses.into_values().max().unwrap_or(0);
        most >= interval || (most > 0 && self.schedule(form, &[]).is_some())
    }

    /// The distances between the operations on channels of an iteration; `None`: operations on
    /// one channel would not keep their order, or the iteration does not begin with a read.
    pub fn nearness(self, schedule: &Schedule, interval: u32) -> Option<Nearness> {
        let fenced = self.code.code.iter().any(is_fence);
        let counts = |i: &Instruction| match i.op {
            Op::Load(a, ..) | Op::Store { address: a, .. } => {
                fenced && self.memories.far(self.at, a)
            }
            _ => port(i).is_some() || is_fence(i),
        };
        let code = self.code.code.iter().zip(&schedule.steps);
        let all = code.filter(|(i, _)| counts(i)).map(|(i, step)| (i, step.0));
        let entry = schedule.entry();
        let (begin, others): (Vec<_>, Vec<_>) = all.partition(|(_, step)| entry == Some(*step));
        if let Some(entry) = entry {
            let first: Vec<_> = begin.iter().map(|(i, _)| port(i)).collect();
            let late = |(i, step): &(&Instruction, u32)| {
                *step >= entry + interval && first.contains(&port(i))
            };
            if first.is_empty() || others.iter().any(late) {
                return None;
            }
        }
        let steps = || others.iter().map(|(_, step)| *step);
        let from = steps()
            .max()
            .map_or(0, |last| (last + 1).saturating_sub(interval));
        Some(Nearness {
            from,
            fits: steps().all(|step| step >= from),
        })
    }
}
