//! Computes functions of a loop's counters an iteration ahead.
//!
//! In a loop whose branches have become selections, a comparison of a counter selects the counter's
//! next value: an iteration waits for the comparison, and the comparison for the counter. Such a
//! function of one phi, and of values that do not change, becomes a phi of its own. Its next value is
//! selected as the counter's is, from the function's values of all that the counter may become.
//! These do not wait for the selection.
//!
//! This is for loops of one block with operations on channels. Those over work-items count without
//! such functions.

use super::recurrence::{is_loop, Users};
use crate::error::Position;
use crate::ir::{
    BinaryOp, BlockId, Cast, Function, Instruction, Op, Predicate, Type, Value, ValueId,
};
use crate::units::unit;
use std::collections::{HashMap, HashSet};

/// Operations of the longest function.
const LENGTH_MAX: usize = 4;
/// Values that a counter may have next, at most.
const CHOICES_MAX: usize = 12;

/// Computes functions ahead in all loops of one block with operations on channels.
pub fn compute(function: &mut Function) {
    for at in (0..function.blocks.len()).map(BlockId) {
        let code = &function[at].code;
        let channels = code.iter().any(Instruction::uses_channel);
        let items = code.last().is_some_and(|last| last.independent);
        if !channels || items || !is_loop(function, at) {
            continue;
        }
        let Some(before) = only_entry(function, at) else {
            continue;
        };
        select_increments(function, at);
        let chosen = Loop::new(function, at).chosen();
        Ahead::new(function, at, before).replace(chosen);
    }
}

/// The only block from which a loop of one block is entered.
fn only_entry(function: &Function, at: BlockId) -> Option<BlockId> {
    let Op::Phi(from) = &function[at].code.first()?.op else {
        return None;
    };
    let mut outside = from.iter().map(|f| f.0).filter(|b| *b != at);
    outside.next().filter(|_| outside.next().is_none())
}

/// Replaces the sum of a counter and a condition by a selection of the counter's increment.
fn select_increments(function: &mut Function, at: BlockId) {
    let users = Users::new(&function[at].code, at);
    let code = std::mem::take(&mut function[at].code);
    let conditions: HashMap<ValueId, Value> = (code.iter())
        .filter_map(|i| match i.op {
            Op::Cast(Cast::Bits, _, c) if function.bits_of(c, 0) == 1 => Some((i.result?, c)),
            _ => None,
        })
        .collect();
    let mut out = Vec::with_capacity(code.len());
    for mut instruction in code {
        let found = match (&instruction.op, instruction.result) {
            (Op::Binary(BinaryOp::Add, a, Value::Local(b)), Some(result))
                if users.is_carried(result) =>
            {
                conditions.get(b).map(|condition| (*a, *condition, result))
            }
            _ => None,
        };
        if let Some((counter, condition, result)) = found {
            let local = function[result].clone();
            let next = function.value(&local.name, local.ty);
            let op = Op::Binary(BinaryOp::Add, counter, Value::Bits(1));
            out.push(Instruction::new(Some(next), op, &instruction.position));
            instruction.op = Op::Select(condition, Value::Local(next), counter);
        }
        out.push(instruction);
    }
    function[at].code = out;
}

/// A function of one value: indices of instructions, of which each uses the result of the one before
/// it, and the value.
#[derive(Clone)]
struct Chain {
    steps: Vec<usize>,
    base: ValueId,
}

/// A loop of one block, before it is changed.
struct Loop<'a> {
    function: &'a Function,
    at: BlockId,
    code: &'a [Instruction],
    defined: HashMap<ValueId, usize>,
}

impl<'a> Loop<'a> {
    fn new(function: &'a Function, at: BlockId) -> Loop<'a> {
        let code = &function[at].code;
        let defined = code.iter().enumerate();
        Loop {
            function,
            at,
            code,
            defined: defined.filter_map(|(n, i)| Some((i.result?, n))).collect(),
        }
    }

    fn definition(&self, value: Value) -> Option<(ValueId, &Instruction)> {
        match value {
            Value::Local(v) => Some((v, &self.code[*self.defined.get(&v)?])),
            _ => None,
        }
    }

    /// The operand of an operation without a unit whose others do not change in the loop.
    fn variable(&self, instruction: &Instruction) -> Option<ValueId> {
        let fits = match &instruction.op {
            Op::Compare { predicate, .. } => matches!(predicate, Predicate::Int(_)),
            Op::Binary(
                BinaryOp::Add | BinaryOp::Sub | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor,
                ..,
            )
            | Op::Cast(Cast::Bits | Cast::Sext, ..) => true,
            Op::Binary(BinaryOp::Mul, ..) => unit(self.function, instruction).is_none(),
            Op::Binary(BinaryOp::Shl | BinaryOp::Lshr | BinaryOp::Ashr, _, by) => {
                matches!(by, Value::Bits(_))
            }
            _ => false,
        };
        let mut found = None;
        for operand in instruction.op.uses() {
            match self.definition(operand) {
                Some((v, _)) if found.is_none_or(|f| f == v) => found = Some(v),
                Some(_) => return None,
                None => {}
            }
        }
        found.filter(|_| fits)
    }

    /// The function that an instruction is the last operation of.
    fn chain(&self, last: usize) -> Option<Chain> {
        let mut steps = vec![last];
        loop {
            let first = *steps.last()?;
            let base = self.variable(&self.code[first])?;
            let index = *self.defined.get(&base)?;
            match &self.code[index].op {
                Op::Phi(_) | Op::Select(..) => {
                    steps.reverse();
                    return Some(Chain { steps, base });
                }
                _ if steps.len() == LENGTH_MAX => return None,
                _ => steps.push(index),
            }
        }
    }

    /// Whether an operation takes time that selections would have to wait for.
    fn is_slow(&self, index: usize) -> bool {
        match self.code[index].op {
            Op::Compare { .. } => true,
            Op::Binary(op, ..) => matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul),
            _ => false,
        }
    }

    /// Whether a counter's next values are known early: others than the counter, and a step from
    /// one, depend on more than it.
    fn is_near(&self, value: Value, phis: &mut HashSet<ValueId>, choices: &mut usize) -> bool {
        let Some((v, instruction)) = self.definition(value) else {
            return true;
        };
        match &instruction.op {
            Op::Phi(from) => {
                let next = from.iter().find(|f| f.0 == self.at).map(|f| f.1);
                !phis.insert(v) || next.is_none_or(|next| self.is_near(next, phis, choices))
            }
            Op::Select(_, a, b) => {
                *choices += 1;
                *choices < CHOICES_MAX
                    && self.is_near(*a, phis, choices)
                    && self.is_near(*b, phis, choices)
            }
            _ => {
                let of = self.variable(instruction).map(Value::Local);
                let of = of.and_then(|of| self.definition(of));
                of.is_some_and(|(_, of)| matches!(of.op, Op::Phi(_)))
            }
        }
    }

    /// The functions to compute ahead: those that values of later iterations wait for.
    fn chosen(&self) -> Vec<Chain> {
        let users = Users::new(self.code, self.at);
        let mut inner = HashSet::new();
        let mut chosen = Vec::new();
        for index in (0..self.code.len()).rev() {
            let Some(result) = self.code[index].result else {
                continue;
            };
            let Some(chain) = self.chain(index).filter(|_| !inner.contains(&index)) else {
                continue;
            };
            let is_step = |v: &ValueId| self.defined.get(v).is_some_and(|at| self.is_slow(*at));
            let is_waited_for = matches!(self.code[index].op, Op::Compare { .. })
                || users.of(result).iter().any(is_step);
            let mut phis = HashSet::new();
            if chain.steps.iter().any(|step| self.is_slow(*step))
                && is_waited_for
                && users.is_carried(result)
                && self.is_near(Value::Local(chain.base), &mut phis, &mut 0)
            {
                inner.extend(chain.steps.iter().copied());
                chosen.push(chain);
            }
        }
        chosen.reverse();
        chosen
    }
}

/// The change of a loop.
struct Ahead<'a> {
    function: &'a mut Function,
    at: BlockId,
    before: BlockId,
    /// The loop's code as it was.
    code: Vec<Instruction>,
    defined: HashMap<ValueId, usize>,
    /// By function and operand: its value.
    known: HashMap<(String, Value), Value>,
    /// New instructions: at the place that is being changed, and before the loop.
    out: Vec<Instruction>,
    early: Vec<Instruction>,
    /// New phis, and for each its function, its result, and the next value of its counter.
    phis: Vec<(Instruction, Chain, ValueId, Value)>,
}

impl<'a> Ahead<'a> {
    fn new(function: &'a mut Function, at: BlockId, before: BlockId) -> Ahead<'a> {
        let code = std::mem::take(&mut function[at].code);
        let defined = code.iter().enumerate();
        let defined = defined.filter_map(|(n, i)| Some((i.result?, n))).collect();
        Ahead {
            function,
            at,
            before,
            code,
            defined,
            known: HashMap::new(),
            out: Vec::new(),
            early: Vec::new(),
            phis: Vec::new(),
        }
    }

    /// Replaces functions, which are in the order of their last instructions.
    fn replace(mut self, chosen: Vec<Chain>) {
        let mut chosen = chosen.into_iter().peekable();
        for index in 0..self.code.len() {
            let mut instruction = self.code[index].clone();
            let is_end = index + 1 == self.code.len();
            if is_end {
                let mut done = 0;
                while done < self.phis.len() {
                    let (_, chain, _, next) = self.phis[done].clone();
                    let next = self.apply(&chain, next);
                    if let Op::Phi(from) = &mut self.phis[done].0.op {
                        from.push((self.at, next));
                    }
                    done += 1;
                }
            }
            let last = |chain: &Chain| chain.steps.last() == Some(&index);
            if let Some(chain) = chosen.next_if(last) {
                let value = self.apply(&chain, Value::Local(chain.base));
                instruction.op = Op::Copy(value);
            }
            self.out.push(instruction);
        }
        let phis = self.phis.into_iter().map(|(phi, ..)| phi);
        let code = &mut self.function[self.at].code;
        code.extend(phis);
        code.append(&mut self.out);
        let entry = &mut self.function[self.before].code;
        let end = entry.len().saturating_sub(1);
        entry.splice(end..end, self.early);
    }

    /// The value of a function for an operand.
    fn apply(&mut self, chain: &Chain, operand: Value) -> Value {
        let key = (self.text(chain), operand);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let index = match operand {
            Value::Local(v) => self.defined.get(&v).copied(),
            _ => None,
        };
        let defined = index.map(|index| self.code[index].clone());
        let result = match defined.as_ref().map(|i| &i.op) {
            None => {
                let mut out = std::mem::take(&mut self.early);
                let result = self.steps(chain, operand, &mut out);
                self.early = out;
                result
            }
            Some(Op::Phi(from)) => return self.phi(chain, key, from.clone()),
            Some(Op::Select(condition, a, b)) => {
                let (a, b) = (self.apply(chain, *a), self.apply(chain, *b));
                let (name, ty) = self.result(chain);
                let result = self.function.value(&name, ty);
                let op = Op::Select(*condition, a, b);
                let position = &self.code[chain.steps[0]].position;
                self.out.push(Instruction::new(Some(result), op, position));
                Value::Local(result)
            }
            Some(_) => {
                let mut out = std::mem::take(&mut self.out);
                let result = self.steps(chain, operand, &mut out);
                self.out = out;
                result
            }
        };
        self.known.insert(key, result);
        result
    }

    /// A phi for a function of a phi.
    fn phi(&mut self, chain: &Chain, key: (String, Value), from: Vec<(BlockId, Value)>) -> Value {
        let of = |block| {
            from.iter()
                .find(|f| f.0 == block)
                .map_or(Value::Undef, |f| f.1)
        };
        let (first, next) = (of(self.before), of(self.at));
        let (name, ty) = self.result(chain);
        let result = self.function.value(&format!("{name}_ahead"), ty);
        self.known.insert(key, Value::Local(result));
        let mut out = std::mem::take(&mut self.early);
        let first = self.steps(chain, first, &mut out);
        self.early = out;
        // Without a position, as the loop's first instruction has the loop's.
        let op = Op::Phi(vec![(self.before, first)]);
        let phi = Instruction::new(Some(result), op, &Position::default());
        self.phis.push((phi, chain.clone(), result, next));
        Value::Local(result)
    }

    /// The name and type of a function's result.
    fn result(&self, chain: &Chain) -> (String, Type) {
        let last = chain.steps.last().and_then(|last| self.code[*last].result);
        let local = last.map(|last| self.function[last].clone());
        local.map_or((String::new(), Type::Void), |local| (local.name, local.ty))
    }

    /// A function's operations, to compare functions.
    fn text(&self, chain: &Chain) -> String {
        let mut before = chain.base;
        let mut text = String::new();
        for step in &chain.steps {
            let mut op = self.code[*step].op.clone();
            op.operands(&mut |value| {
                if *value == Value::Local(before) {
                    *value = Value::Undef;
                }
            });
            let result = self.code[*step].result.unwrap_or(before);
            text.push_str(&format!("{op:?} {:?};", self.function[result].ty));
            before = result;
        }
        text
    }

    /// Appends a function's operations on a value.
    fn steps(&mut self, chain: &Chain, operand: Value, out: &mut Vec<Instruction>) -> Value {
        let (mut before, mut value) = (chain.base, operand);
        for step in &chain.steps {
            let mut instruction = self.code[*step].clone();
            instruction.op.operands(&mut |operand| {
                if *operand == Value::Local(before) {
                    *operand = value;
                }
            });
            before = self.code[*step].result.unwrap_or(before);
            let local = self.function[before].clone();
            let result = self.function.value(&local.name, local.ty);
            instruction.result = Some(result);
            value = Value::Local(result);
            out.push(instruction);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Callee, EngineCall};
    use crate::parse::first_function;

    /// A loop whose counter begins again at `n`, with an operation on a channel.
    fn counter() -> Function {
        let mut function = first_function(
            "define void @f(i32 %n, i32 %m) {\nentry:\n  br label %loop\nloop:\n  \
             %i = phi i32 [ 0, %entry ], [ %j, %loop ]\n  \
             %k = phi i32 [ 0, %entry ], [ %next, %loop ]\n  call void @hum_port_text(i32 %i)\n  \
             %last = icmp eq i32 %i, %n\n  %one = zext i1 %last to i32\n  \
             %k2 = add i32 %k, %one\n  %i1 = add i32 %i, 1\n  \
             %j = select i1 %last, i32 0, i32 %i1\n  %over = icmp eq i32 %k, %m\n  \
             %next = select i1 %over, i32 0, i32 %k2\n  \
             br i1 %over, label %done, label %loop\ndone:\n  ret void\n}\n",
        );
        let code = function.blocks.iter_mut().flat_map(|b| &mut b.code);
        for instruction in code.filter(|i| matches!(i.op, Op::Call(..))) {
            let always = (Type::Int(1), Value::Bits(1));
            let call = Callee::Engine(EngineCall::ChannelWrite(0));
            instruction.op = Op::Call(call, vec![always]);
        }
        function
    }

    fn definition(function: &Function, value: Value) -> &Op {
        let mut all = function.instructions();
        let found = all.find(|i| i.result.map(Value::Local) == Some(value));
        &found.unwrap().op
    }

    #[test]
    fn the_comparison_of_a_counter_becomes_a_phi() {
        let mut function = counter();
        compute(&mut function);
        let named = |name: &str| {
            let at = function.values.iter().position(|v| v.name == name);
            Value::Local(ValueId(at.unwrap()))
        };
        let Op::Copy(phi) = definition(&function, named("last")) else {
            panic!("{:?}", definition(&function, named("last")));
        };
        let Op::Phi(from) = definition(&function, *phi) else {
            panic!("{:?}", definition(&function, *phi));
        };
        // Its first value is computed before the loop, the next one selected from two comparisons.
        let entry = &function.blocks[0].code;
        let first = entry.iter().find(|i| matches!(i.op, Op::Compare { .. }));
        assert_eq!(
            first.and_then(|i| i.result).map(Value::Local),
            Some(from[0].1)
        );
        let Op::Select(condition, a, b) = definition(&function, from[1].1) else {
            panic!("{:?}", definition(&function, from[1].1));
        };
        assert_eq!(*condition, named("last"));
        for side in [a, b] {
            assert!(matches!(definition(&function, *side), Op::Compare { .. }));
        }
    }

    #[test]
    fn a_counter_that_a_condition_increments_is_selected() {
        let mut function = counter();
        compute(&mut function);
        let k2 = function.values.iter().position(|v| v.name == "k2");
        let sum = Value::Local(ValueId(k2.unwrap()));
        assert!(matches!(definition(&function, sum), Op::Select(..)));
    }
}
