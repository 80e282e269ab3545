//! Computes integers of more than 32 bits with 32, where only the lower half is used: indices of
//! arrays have 64 bits in the IR, but addresses in fabric have 32. Also, a loop whose counter has
//! more than 32 bits compares the counter before its increment, as a 64-bit sum and comparison do
//! not fit one clock.

use crate::ir::{Binary, Cast, Function, Instruction, Op, Type, Value};
use crate::parse::masked;
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
        let more = used[v] < bits;
        used[v] = used[v].max(bits);
        more
    };
    loop {
        let mut changed = false;
        for instruction in function.blocks.iter().flat_map(|b| &b.code) {
            let own = instruction.result.map_or(0, |r| used[r]);
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
                Op::Address(base, _, parts) => {
                    changed |= raise(&mut used, *base, 64);
                    for (part, bits, _) in parts {
                        changed |= raise(&mut used, *part, ADDRESS.min(*bits));
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
fn modular(op: Binary, by: Value) -> bool {
    match op {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::And | Binary::Or | Binary::Xor => true,
        Binary::Shl => matches!(by, Value::Bits(n) if n < u64::from(ADDRESS)),
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
    let wide = |function: &Function, v: usize| matches!(function.values[v].ty, Type::Int(n) if n > ADDRESS);
    let mut narrowed = HashSet::new();
    for instruction in function.blocks.iter().flat_map(|b| &b.code) {
        if let Some(result) = instruction.result {
            if wide(function, result) && used[result] <= ADDRESS && may(&instruction.op) {
                narrowed.insert(result);
            }
        }
    }
    for &v in &narrowed {
        function.values[v].ty = Type::Int(ADDRESS);
    }
    // A wide operand of a narrowed instruction is truncated before it.
    let mut late: Vec<(usize, Instruction)> = Vec::new();
    for at in 0..function.blocks.len() {
        let code = std::mem::take(&mut function.blocks[at].code);
        let mut out = Vec::new();
        for mut instruction in code {
            let small = instruction.result.is_some_and(|r| narrowed.contains(&r));
            let place = instruction.place.clone();
            let half = |function: &mut Function, value: &mut Value| match *value {
                Value::Bits(n) => {
                    *value = Value::Bits(masked(n, ADDRESS));
                    None
                }
                Value::Local(v) if wide(function, v) => {
                    let name = function.values[v].name.clone();
                    let result = function.value(&format!("{name}_low"), Type::Int(ADDRESS));
                    let op = Op::Cast(Cast::Bits, 64, *value);
                    *value = Value::Local(result);
                    Some(Instruction::new(Some(result), op, &place))
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
                    *from = function.values[v].ty.bits().unwrap_or(*from);
                    if small && *from == ADDRESS && matches!(cast, Cast::Sext | Cast::Bits) {
                        instruction.op = Op::Copy(Value::Local(v));
                    }
                }
                Op::Address(_, _, parts) => {
                    for (part, bits, _) in parts {
                        if let Value::Local(v) = part {
                            *bits = function.values[*v].ty.bits().unwrap_or(*bits);
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
        let code = &mut function.blocks[block].code;
        let end = code.len().saturating_sub(1);
        code.insert(end, instruction);
    }
}

/// In loops of one block, replaces `count + step == end` by `count == end - step`, whose right side
/// is invariant.
pub fn end_early(function: &mut Function) {
    for at in 0..function.blocks.len() {
        let Some((compare, count, step, end)) = counted(function, at) else {
            continue;
        };
        let bits = match function.blocks[at].code[compare].op {
            Op::Compare(_, bits, ..) => bits,
            _ => continue,
        };
        let last = match end {
            Value::Bits(n) => Value::Bits(masked(n.wrapping_sub(step), bits)),
            end => {
                let Some(before) = only_entry(function, at) else {
                    continue;
                };
                let result = function.value("last", Type::Int(bits));
                let place = function.blocks[at].code[compare].place.clone();
                let op = Op::Binary(Binary::Sub, end, Value::Bits(step));
                let code = &mut function.blocks[before].code;
                let end = code.len().saturating_sub(1);
                code.insert(end, Instruction::new(Some(result), op, &place));
                Value::Local(result)
            }
        };
        if let Op::Compare(_, _, a, b) = &mut function.blocks[at].code[compare].op {
            (*a, *b) = (count, last);
        }
    }
}

/// The comparison of a loop's incremented counter with its end: index of the comparison, counter,
/// step, end.
fn counted(function: &Function, at: usize) -> Option<(usize, Value, u64, Value)> {
    let code = &function.blocks[at].code;
    let Op::Branch(Value::Local(condition), yes, no) = code.last()?.op else {
        return None;
    };
    if (yes == at) == (no == at) {
        return None;
    }
    let given = |v: usize| code.iter().position(|i| i.result == Some(v));
    let compare = given(condition)?;
    let Op::Compare(predicate, bits, Value::Local(raised), end) = &code[compare].op else {
        return None;
    };
    let fixed = match end {
        Value::Bits(_) => true,
        Value::Local(v) => given(*v).is_none(),
        _ => false,
    };
    if *bits <= ADDRESS || !fixed || !["eq", "ne"].contains(&predicate.as_str()) {
        return None;
    }
    let Op::Binary(Binary::Add, Value::Local(count), Value::Bits(step)) = code[given(*raised)?].op
    else {
        return None;
    };
    let phi = matches!(code[given(count)?].op, Op::Phi(_));
    phi.then_some((compare, Value::Local(count), step, *end))
}

/// The only block from which a loop of one block is entered.
fn only_entry(function: &Function, at: usize) -> Option<usize> {
    let Op::Phi(from) = &function.blocks[at].code.first()?.op else {
        return None;
    };
    let mut outside = from.iter().map(|f| f.0).filter(|b| *b != at);
    outside.next().filter(|_| outside.next().is_none())
}
