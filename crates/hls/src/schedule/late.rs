//! Loads of pipelines as late as their uses permit: a pipeline carries a value from each step to the
//! next one, and many loads of an iteration have the same address, which is carried once.

use super::code::{End, Schedule};
use super::delay::delay;
use super::{Block, Form};
use crate::ir::{Instruction, Op, Value, ValueId};
use crate::memory::MemoryId;
use crate::units::unit;
use std::collections::HashMap;

impl Block<'_> {
    /// The schedule of a pipeline with later loads from memories, if all else can keep its steps.
    pub fn load_late(self, early: &Schedule, form: Form) -> Option<Schedule> {
        let earliest = self.latest_loads(early);
        let mut pairs = early.steps.iter().zip(&earliest);
        if !pairs.any(|(step, latest)| step.0 < *latest) {
            return None;
        }
        let (_, late) = self.schedule(form, &earliest)?;
        let stays = |instruction: &Instruction| match instruction.op {
            Op::Store { .. } | Op::Call(..) => true,
            Op::Load(..) => instruction.reader.is_some(),
            _ => unit(self.function, instruction).is_some(),
        };
        let steps = early.steps.iter().zip(&late.steps);
        let mut kept = (self.code.code.iter().zip(steps)).filter(|(i, _)| stays(i));
        let keeps = kept.all(|(_, (before, after))| before == after);
        (keeps && late.length <= early.length).then_some(late)
    }

    /// By instruction: its step, for a load the latest one after which its uses find the value in a
    /// register. Other instructions keep their steps, except for those without a unit, which follow
    /// their operands.
    fn latest_loads(self, early: &Schedule) -> Vec<u32> {
        let code = &self.code.code;
        // By value: the first step that reads it from a register.
        let mut needed: HashMap<ValueId, u32> = HashMap::new();
        let need = |needed: &mut HashMap<ValueId, u32>, value: Value, step: u32| {
            if let Value::Local(v) = value {
                let first = needed.entry(v).or_insert(step);
                *first = step.min(*first);
            }
        };
        let own = |value: &Value| match value {
            Value::Local(v) => early.from.get(v).copied(),
            _ => None,
        };
        // The next iteration, and the selection of the next state, have them at the same time.
        let nexts = self.code.phis.iter().flat_map(|(_, sources)| sources);
        let mut kept: Vec<Value> = nexts.map(|(_, value)| *value).collect();
        if let End::Branch(condition, _, _) = self.code.end {
            kept.push(condition);
        }
        for value in kept {
            if let Some(step) = own(&value) {
                need(&mut needed, value, step);
            }
        }
        let mut loads: HashMap<(MemoryId, u32), u32> = HashMap::new();
        for instruction in code {
            if let Op::Load(address, ..) = instruction.op {
                if let Some(memory) = self.memories.of(self.at, address) {
                    for bank in self.memories.banks(self.at, memory, address) {
                        *loads.entry((memory, bank)).or_insert(0) += 1;
                    }
                }
            }
        }
        let mut stores: HashMap<MemoryId, u32> = HashMap::new();
        let mut latest = vec![0; code.len()];
        for (index, instruction) in code.iter().enumerate().rev() {
            let step = early.steps[index].0;
            let until = instruction.result.and_then(|v| needed.get(&v).copied());
            let operands = instruction.op.uses();
            let at = match instruction.op {
                Op::Load(address, ..) if instruction.reader.is_none() && !instruction.volatile => {
                    let memory = self.memories.of(self.at, address);
                    let single = memory.is_some_and(|memory| {
                        let mut banks = self.memories.banks(self.at, memory, address);
                        !self.memories[memory].far
                            && banks.all(|bank| loads.get(&(memory, bank)) == Some(&1))
                    });
                    let stored = memory
                        .and_then(|m| stores.get(&m).copied())
                        .unwrap_or(u32::MAX);
                    let last = until.unwrap_or(0).saturating_sub(2).min(stored);
                    latest[index] = if single { last.max(step) } else { step };
                    latest[index]
                }
                Op::Load(..) => step,
                Op::Store { address, .. } => {
                    if let Some(memory) = self.memories.of(self.at, address) {
                        let first = stores.entry(memory).or_insert(step);
                        *first = step.min(*first);
                    }
                    step
                }
                _ if unit(self.function, instruction).is_some() => step,
                _ if matches!(instruction.op, Op::Call(..)) => step,
                _ => {
                    let own = u32::from(delay(self.function, instruction) > 0);
                    until.unwrap_or(step).saturating_sub(own).max(step)
                }
            };
            for operand in operands {
                need(&mut needed, operand, at);
            }
        }
        latest
    }
}
