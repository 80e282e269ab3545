//! Computes integers of more than 32 bits with 32, where only the lower half is used: indices of
//! arrays have 64 bits in the IR, but addresses in fabric have 32.

use crate::ir::{masked, BinaryOp, BlockId, Cast, Function, Instruction, Op, Type, Value, ValueId};
use std::collections::HashSet;

/// Bits of an address.
const ADDRESS: u32 = 32;

/// By value: how many of its lower bits are used.
fn demand(function: &Function) -> Vec<u32> {
    let mut used = vec![0_u32; function.values.len()];
    let raise = |used: &mut Vec<u32>, value: Value, bits: u32| {
        let Value::Local(v) = value else {
            return false;
        };
        let more = used[v.0] < bits;
        used[v.0] = used[v.0].max(bits);
        more
    };
    loop {
        let mut changed = false;
        for instruction in function.instructions() {
            let own = instruction.result.map_or(0, |r| used[r.0]);
            match &instruction.op {
                Op::Binary(op, a, b) if modular(*op, *b) => {
                    changed |= raise(&mut used, *a, own);
                    changed |= raise(&mut used, *b, own);
                }
                Op::Select(c, a, b) => {
                    changed |= raise(&mut used, *c, 1);
                    changed |= raise(&mut used, *a, own);
                    changed |= raise(&mut used, *b, own);
                }
                Op::Phi(from) => {
                    for (_, value) in from {
                        changed |= raise(&mut used, *value, own);
                    }
                }
                Op::Copy(a) | Op::Cast(Cast::Bits, _, a) => changed |= raise(&mut used, *a, own),
                Op::Address { base, indices, .. } => {
                    changed |= raise(&mut used, *base, 64);
                    for index in indices {
                        changed |= raise(&mut used, index.value, ADDRESS.min(index.bits));
                    }
                }
                other => {
                    for value in other.uses() {
                        changed |= raise(&mut used, value, 64);
                    }
                }
            }
        }
        if !changed {
            return used;
        }
    }
}

/// Whether the lower bits of the result depend on the operands' lower bits only.
fn modular(op: BinaryOp, by: Value) -> bool {
    match op {
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor => true,
        BinaryOp::Shl => matches!(by, Value::Bits(n) if n < u64::from(ADDRESS)),
        _ => false,
    }
}

/// Whether the result of an operation may have fewer bits.
fn may(op: &Op) -> bool {
    match op {
        Op::Binary(op, _, b) => modular(*op, *b),
        Op::Select(..) | Op::Phi(_) | Op::Copy(_) | Op::Cast(Cast::Bits, ..) => true,
        Op::Cast(Cast::Sext, from, _) => *from <= ADDRESS,
        _ => false,
    }
}

/// Narrows a function's values.
pub fn narrow(function: &mut Function) {
    let used = demand(function);
    let wide =
        |function: &Function, v: ValueId| matches!(function[v].ty, Type::Int(n) if n > ADDRESS);
    let mut narrowed = HashSet::new();
    for instruction in function.instructions() {
        if let Some(result) = instruction.result {
            if wide(function, result) && used[result.0] <= ADDRESS && may(&instruction.op) {
                narrowed.insert(result);
            }
        }
    }
    for &v in &narrowed {
        function[v].ty = Type::Int(ADDRESS);
    }
    // A wide operand of a narrowed instruction is truncated before it.
    let mut late: Vec<(BlockId, Instruction)> = Vec::new();
    for at in 0..function.blocks.len() {
        let code = std::mem::take(&mut function.blocks[at].code);
        let mut out = Vec::new();
        for mut instruction in code {
            let small = instruction.result.is_some_and(|r| narrowed.contains(&r));
            let position = instruction.position.clone();
            let half = |function: &mut Function, value: &mut Value| match *value {
                Value::Bits(n) => {
                    *value = Value::Bits(masked(n, ADDRESS));
                    None
                }
                Value::Local(v) if wide(function, v) => {
                    let name = function[v].name.clone();
                    let result = function.value(&format!("{name}_low"), Type::Int(ADDRESS));
                    let op = Op::Cast(Cast::Bits, 64, *value);
                    *value = Value::Local(result);
                    Some(Instruction::new(Some(result), op, &position))
                }
                _ => None,
            };
            match &mut instruction.op {
                Op::Phi(from) if small => {
                    for (block, value) in from {
                        late.extend(half(function, value).map(|i| (*block, i)));
                    }
                }
                Op::Binary(_, a, b) | Op::Select(_, a, b) if small => {
                    out.extend(half(function, a));
                    out.extend(half(function, b));
                }
                Op::Copy(a) if small => out.extend(half(function, a)),
                Op::Cast(cast, from, Value::Local(v)) => {
                    let v = *v;
                    *from = function[v].ty.bits().unwrap_or(*from);
                    if small && *from == ADDRESS && matches!(cast, Cast::Sext | Cast::Bits) {
                        instruction.op = Op::Copy(Value::Local(v));
                    }
                }
                Op::Address { indices, .. } => {
                    for index in indices {
                        if let Value::Local(v) = index.value {
                            index.bits = function[v].ty.bits().unwrap_or(index.bits);
                        }
                    }
                }
                _ => {}
            }
            out.push(instruction);
        }
        function.blocks[at].code = out;
    }
    for (block, instruction) in late {
        let code = &mut function[block].code;
        let end = code.len().saturating_sub(1);
        code.insert(end, instruction);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn indices_have_32_bits_unless_all_bits_are_used() {
        let body = |last: &str| {
            format!(
                "define void @f(i32 %i, ptr %p) {{\n  %wide = sext i32 %i to i64\n  \
                 %next = add i64 %wide, 1\n  {last}\n  ret void\n}}\n"
            )
        };
        let width = |last: &str| {
            let mut function = first_function(&body(last));
            narrow(&mut function);
            let next = function.values.iter().find(|v| v.name == "next");
            next.and_then(|v| v.ty.bits())
        };
        let index = "%q = getelementptr i32, ptr %p, i64 %next";
        assert_eq!(width(index), Some(32));
        assert_eq!(width("store i64 %next, ptr %p, align 8"), Some(64));
    }
}
