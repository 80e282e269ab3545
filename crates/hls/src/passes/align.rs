//! Splits accesses that may be unaligned into aligned ones.

use crate::builder::Builder;
use crate::ir::{
    BinaryOp, Callee, Cast, EngineCall, FunctionId, Instruction, Module, Op, Type, Value, ValueId,
};

/// Objects are aligned to words of 2^3 bytes.
const OBJECT_ZEROES: u32 = 3;

/// Splits the accesses of all functions.
pub fn split_accesses(module: &mut Module) {
    let known = Zeroes::find(module);
    for (at, function) in module.functions.iter_mut().enumerate() {
        let blocks = std::mem::take(&mut function.blocks);
        let mut builder = Builder::new(function);
        let mut done = Vec::new();
        for mut block in blocks {
            for instruction in block.code {
                let address = match instruction.op {
                    Op::Load(a, ..) | Op::Store { address: a, .. } => a,
                    _ => {
                        builder.code.push(instruction);
                        continue;
                    }
                };
                let zeroes = match address {
                    Value::Local(v) => known.0[at].get(v.0).copied().unwrap_or(0),
                    Value::Global(_, o) => o.trailing_zeros().min(OBJECT_ZEROES),
                    _ => OBJECT_ZEROES,
                };
                let unit = 1_u64 << zeroes.min(OBJECT_ZEROES);
                builder.position = instruction.position.clone();
                let (volatile, first) = (instruction.volatile, builder.code.len());
                split(&mut builder, instruction, address, unit);
                let parts = builder.code[first..].iter_mut();
                parts.for_each(|part| part.volatile = volatile);
            }
            block.code = std::mem::take(&mut builder.code);
            done.push(block);
        }
        function.blocks = done;
    }
}

/// By function and value: how many of its lowest bits are always zero.
struct Zeroes(Vec<Vec<u32>>);

impl Zeroes {
    /// Starts with the maximum, and decreases until all instructions agree.
    fn find(module: &Module) -> Zeroes {
        let functions = module.functions.iter();
        let mut known = Zeroes(functions.map(|f| vec![64; f.values.len()]).collect());
        known.0[0][..module.functions[0].parameters].fill(0);
        loop {
            let mut changed = false;
            for (at, function) in module.functions.iter().enumerate() {
                for instruction in function.instructions() {
                    if let Op::Call(Callee::Function(callee), arguments) = &instruction.op {
                        changed |= known.pass(at, arguments, module, *callee);
                    }
                    if let Some(result) = instruction.result {
                        let ty = &function[result].ty;
                        let found = known.of_result(at, ty, &instruction.op);
                        changed |= known.lower(at, result, found);
                    }
                }
            }
            if !changed {
                return known;
            }
        }
    }

    fn lower(&mut self, at: usize, value: ValueId, zeroes: u32) -> bool {
        let known = &mut self.0[at][value.0];
        let changed = *known > zeroes;
        *known = zeroes.min(*known);
        changed
    }

    /// Passes arguments to the parameters of a function.
    fn pass(
        &mut self,
        at: usize,
        arguments: &[(Type, Value)],
        module: &Module,
        callee: FunctionId,
    ) -> bool {
        let values: Vec<u32> = arguments.iter().map(|a| self.of(at, a.1)).collect();
        let parameters = (0..module[callee].parameters).map(ValueId);
        let mut changed = false;
        for (parameter, zeroes) in parameters.zip(values) {
            changed |= self.lower(callee.0, parameter, zeroes);
        }
        changed
    }

    fn of(&self, at: usize, value: Value) -> u32 {
        match value {
            Value::Local(v) => self.0[at][v.0],
            Value::Bits(n) => n.trailing_zeros().min(64),
            Value::Global(_, o) => o.trailing_zeros().min(OBJECT_ZEROES),
            Value::Null | Value::Undef | Value::Aggregate(_) => 64,
        }
    }

    fn of_result(&self, at: usize, ty: &Type, op: &Op) -> u32 {
        let of = |v: Value| self.of(at, v);
        match op {
            Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Or | BinaryOp::Xor, a, b) => {
                of(*a).min(of(*b))
            }
            Op::Binary(BinaryOp::And, a, b) => of(*a).max(of(*b)),
            Op::Binary(BinaryOp::Mul, a, b) => (of(*a) + of(*b)).min(64),
            Op::Binary(BinaryOp::Shl, a, Value::Bits(n)) => (of(*a) + *n as u32).min(64),
            Op::Binary(BinaryOp::Lshr | BinaryOp::Ashr, a, Value::Bits(n)) => {
                of(*a).saturating_sub(*n as u32)
            }
            Op::Binary(BinaryOp::Umin | BinaryOp::Umax | BinaryOp::Smin | BinaryOp::Smax, a, b) => {
                of(*a).min(of(*b))
            }
            Op::Select(_, a, b) => of(*a).min(of(*b)),
            Op::Cast(Cast::Bits | Cast::Sext, _, a) | Op::Copy(a) => of(*a),
            Op::Phi(sources) => sources.iter().map(|s| of(s.1)).min().unwrap_or(0),
            Op::Address {
                base,
                offset,
                indices,
            } => {
                let indices = indices
                    .iter()
                    .map(|i| (of(i.value) + i.scale.trailing_zeros()).min(64));
                let offset = match offset {
                    0 => 64,
                    n => n.trailing_zeros(),
                };
                of(*base).min(offset).min(indices.min().unwrap_or(64))
            }
            // Buffers are aligned: see kernel_arguments.
            Op::Call(Callee::Engine(EngineCall::Word), _) => match ty {
                Type::Ptr => 64,
                _ => 0,
            },
            _ => 0,
        }
    }
}

fn split(builder: &mut Builder<'_>, instruction: Instruction, address: Value, unit: u64) {
    let size = match instruction.op {
        Op::Load(_, size, _) | Op::Store { size, .. } => size,
        _ => 0,
    };
    if size <= unit {
        builder.code.push(instruction);
        return;
    }
    let (whole, part) = (Type::Int(size as u32 * 8), Type::Int(unit as u32 * 8));
    let place =
        |builder: &mut Builder<'_>, offset: u64| builder.address("piece_at", address, offset);
    match instruction.op {
        Op::Load(_, _, condition) => {
            let mut sum = Value::Bits(0);
            for offset in (0..size).step_by(unit as usize) {
                let at = place(builder, offset);
                let piece = builder.value("piece", part.clone(), Op::Load(at, unit, condition));
                let wide = builder.value(
                    "piece",
                    whole.clone(),
                    Op::Cast(Cast::Bits, unit as u32 * 8, piece),
                );
                let up = builder.value(
                    "piece",
                    whole.clone(),
                    Op::Binary(BinaryOp::Shl, wide, Value::Bits(offset * 8)),
                );
                sum = builder.value("pieces", whole.clone(), Op::Binary(BinaryOp::Or, sum, up));
            }
            if let Some(result) = instruction.result {
                let bits = size as u32 * 8;
                builder.define(result, Op::Cast(Cast::Bits, bits, sum));
            }
        }
        Op::Store {
            value,
            condition: when,
            ..
        } => {
            for offset in (0..size).step_by(unit as usize) {
                let at = place(builder, offset);
                let down = builder.value(
                    "piece",
                    whole.clone(),
                    Op::Binary(BinaryOp::Lshr, value, Value::Bits(offset * 8)),
                );
                let piece = builder.value(
                    "piece",
                    part.clone(),
                    Op::Cast(Cast::Bits, size as u32 * 8, down),
                );
                builder.effect(Op::Store {
                    value: piece,
                    address: at,
                    size: unit,
                    condition: when,
                });
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn sizes(body: &str) -> Vec<u64> {
        let text = format!(
            "@a = internal global [64 x i8] zeroinitializer\n\
             define void @f(i32 %i) {{\n{body}\n  ret void\n}}\n"
        );
        let mut module = parse::module(&text).unwrap();
        split_accesses(&mut module);
        let accesses = module.functions[0].instructions();
        let accesses = accesses.filter_map(|i| match i.op {
            Op::Load(_, size, _) | Op::Store { size, .. } => Some(size),
            _ => None,
        });
        accesses.collect()
    }

    #[test]
    fn splits_accesses_that_may_be_unaligned() {
        let load = |scale: &str| {
            format!(
                "  %p = getelementptr {scale}, ptr @a, i32 %i\n  %x = load i32, ptr %p, align 1"
            )
        };
        assert_eq!(sizes(&load("i32")), [4]);
        assert_eq!(sizes(&load("i16")), [2, 2]);
        assert_eq!(sizes(&load("i8")), [1, 1, 1, 1]);
        assert_eq!(sizes("  store i64 7, ptr @a, align 1"), [8]);
    }
}
