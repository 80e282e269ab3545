//! Delays of loops whose interval values of earlier iterations limit. If a shorter interval is
//! possible with these delays, the schedule has them:
//!
//! - sums and comparisons have the width of their operands without leading zeroes;
//! - logic functions and selections share a cell while it reads at most five values;
//! - values that no earlier iteration affects come to such a path from registers;
//! - the path from an iteration to the next one may take up to 8.4 ns, a clock of 119 MHz.

use super::delay::delay;
use super::{Block, Booking, Time, BUDGET, REGISTER};
use crate::ir::{BinaryOp, Cast, Instruction, Op, Value, ValueId};
use std::collections::{HashMap, HashSet};

/// By value that lies on a path from an iteration to the next one: a number of the values that depend
/// on each other.
pub type Carried = HashMap<ValueId, usize>;

/// Budget of the path from an iteration to the next one.
const CARRIED_BUDGET: u32 = 74;
/// Inputs of a cell, and its delay, with up to four inputs or more.
const CELL_INPUTS: usize = 5;
const CELL: u32 = 9;
const LARGE_CELL: u32 = 11;

impl Block<'_> {
    /// The values that lie on a path from an iteration to the next one; those that depend on each
    /// other have the same number.
    pub fn carried(self) -> Carried {
        let mut uses: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
        let mut sources: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
        let mut edge = |from: Value, to: ValueId| {
            if let Value::Local(from) = from {
                uses.entry(from).or_default().push(to);
                sources.entry(to).or_default().push(from);
            }
        };
        for instruction in &self.code.code {
            if let Some(result) = instruction.result {
                let operands = instruction.op.uses().into_iter();
                operands.for_each(|operand| edge(operand, result));
            }
        }
        for (phi, from) in &self.code.phis {
            let own = from.iter().filter(|source| source.0 == self.own);
            own.for_each(|source| edge(source.1, *phi));
        }
        let mut carried = HashMap::new();
        for (number, (phi, _)) in self.code.phis.iter().enumerate() {
            if !carried.contains_key(phi) {
                let before = reached(*phi, &sources);
                let after = reached(*phi, &uses).into_iter();
                let both = after.filter(|v| before.contains(v));
                carried.extend(both.map(|v| (v, number)));
            }
        }
        carried
    }
}

/// The values that edges lead to, from one on.
fn reached(from: ValueId, edges: &HashMap<ValueId, Vec<ValueId>>) -> HashSet<ValueId> {
    let mut found = HashSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for next in edges.get(&at).into_iter().flatten() {
            if found.insert(*next) {
                open.push(*next);
            }
        }
    }
    found
}

/// Whether each bit of the result depends on the same bit of the operands only, or on a condition.
fn is_logic(op: &Op) -> bool {
    matches!(
        op,
        Op::Binary(BinaryOp::And | BinaryOp::Or | BinaryOp::Xor, ..)
            | Op::Select(..)
            | Op::Copy(_)
            | Op::Cast(Cast::Bits, ..)
    )
}

impl Booking<'_> {
    /// The latest time in a step at which a value is ready.
    pub fn budget(&self, value: Value) -> u32 {
        match (&self.form.carried, value) {
            (Some(carried), Value::Local(v)) if carried.contains_key(&v) => CARRIED_BUDGET,
            _ => BUDGET,
        }
    }

    /// When an operand is ready for an instruction with a result on a path between iterations, if
    /// the operand is not on it: in a register.
    fn registered(&self, operand: Value, result: Value, time: Time) -> Time {
        let Some(carried) = &self.form.carried else {
            return time;
        };
        let number = |value: Value| match value {
            Value::Local(v) => carried.get(&v),
            _ => None,
        };
        let own = number(result);
        if own.is_none() || own == number(operand) || time.1 <= REGISTER {
            return time;
        }
        (time.0 + 1, REGISTER)
    }

    /// The step in which all operands of an instruction are ready, and their delay in it.
    pub fn operands(&self, instruction: &Instruction) -> Time {
        let result = instruction.result.map_or(Value::Undef, Value::Local);
        let times = instruction.op.uses().into_iter().map(|operand| {
            let time = self.time(&[operand]);
            self.registered(operand, result, time)
        });
        times.max().unwrap_or((0, REGISTER))
    }

    /// When an instruction without a unit has its result; `time`: when its operands are ready.
    pub fn end(&mut self, instruction: &Instruction, time: Time) -> Time {
        if self.form.carried.is_none() {
            let own = delay(self.block.function, instruction);
            return match time {
                (step, late) if late + own > BUDGET => (step + 1, REGISTER + own),
                (step, late) => (step, late + own),
            };
        }
        let result = instruction.result.map_or(Value::Undef, Value::Local);
        let budget = self.budget(result);
        let own = self.exact(instruction);
        if let (true, Some(result)) = (is_logic(&instruction.op), instruction.result) {
            let found = self.cell(&instruction.op.uses(), time, own);
            if let Some((late, inputs)) = found.filter(|(late, _)| *late <= budget) {
                self.cells.insert(result, inputs);
                return (time.0, late);
            }
        }
        match time {
            (step, late) if late + own > budget => (step + 1, REGISTER + own),
            (step, late) => (step, late + own),
        }
    }

    /// The end of a logic function, and the values that its cell reads.
    /// `own`: its delay, 0 for wires. `None`: it reads too many.
    fn cell(&self, operands: &[Value], time: Time, own: u32) -> Option<(u32, Vec<ValueId>)> {
        let locals = operands.iter().filter_map(|operand| match operand {
            Value::Local(v) => Some(*v),
            _ => None,
        });
        let arrival = |v: &ValueId| match self.ready.get(v) {
            Some(&(step, late)) if step == time.0 => late,
            _ => REGISTER,
        };
        let direct: Vec<ValueId> = locals.collect();
        if own == 0 {
            let [only] = direct.as_slice() else {
                return None;
            };
            let inputs = self.cells.get(only).filter(|_| self.is_here(*only, time));
            return inputs.map(|inputs| (time.1, inputs.clone()));
        }
        let mut inputs: Vec<ValueId> = Vec::new();
        for v in &direct {
            match self.cells.get(v).filter(|_| self.is_here(*v, time)) {
                Some(own) => inputs.extend(own),
                None => inputs.push(*v),
            }
        }
        for inputs in [inputs, direct] {
            let mut inputs = inputs;
            inputs.sort_unstable();
            inputs.dedup();
            let cell = match inputs.len() {
                0..CELL_INPUTS => CELL,
                CELL_INPUTS => LARGE_CELL,
                _ => continue,
            };
            let late = inputs.iter().map(arrival).max().unwrap_or(REGISTER);
            return Some((late + cell, inputs));
        }
        None
    }

    /// Whether a value becomes ready in the step of a time.
    fn is_here(&self, value: ValueId, time: Time) -> bool {
        self.ready
            .get(&value)
            .is_some_and(|ready| ready.0 == time.0)
    }

    /// The delay of an instruction without a unit.
    fn exact(&self, instruction: &Instruction) -> u32 {
        let width = |value: Value, bits| self.block.bits.width(value, bits);
        let usual = delay(self.block.function, instruction);
        match &instruction.op {
            Op::Binary(BinaryOp::Add | BinaryOp::Mul, ..) if usual > 0 => {
                let result = instruction.result.map_or(Value::Undef, Value::Local);
                usual.min(14 + width(result, 32) / 3)
            }
            Op::Compare {
                predicate,
                bits,
                left,
                right,
            } => {
                let own = width(*left, *bits).max(width(*right, *bits)).min(*bits);
                usual.min(if predicate.is_equality() {
                    10 + own / 6
                } else {
                    12 + own.div_ceil(3)
                })
            }
            _ => usual,
        }
    }
}
