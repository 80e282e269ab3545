//! Merges equal values of loops of one block, which branches have computed before they were moved into
//! it, and removes selections between equal values.

use super::recurrence::is_loop;
use crate::ir::{BlockId, Function, Instruction, Op, Value, ValueId};
use std::collections::HashMap;

/// Merges the values of all loops of one block.
pub fn merge(function: &mut Function) {
    for at in (0..function.blocks.len()).map(BlockId) {
        if !is_loop(function, at) {
            continue;
        }
        let merged = merged(function, at);
        if merged.is_empty() {
            continue;
        }
        for instruction in function.blocks.iter_mut().flat_map(|b| &mut b.code) {
            instruction
                .op
                .operands(&mut |value| replace(&merged, value));
        }
        let is_merged = |i: &Instruction| i.result.is_some_and(|r| merged.contains_key(&r));
        function[at].code.retain(|i| !is_merged(i));
    }
}

fn replace(merged: &HashMap<ValueId, Value>, value: &mut Value) {
    while let Value::Local(v) = *value {
        match merged.get(&v) {
            Some(other) => *value = *other,
            None => return,
        }
    }
}

/// By value of a block that equals another: the other.
fn merged(function: &Function, at: BlockId) -> HashMap<ValueId, Value> {
    let mut merged = HashMap::new();
    let mut selections: HashMap<ValueId, (Value, Value, Value)> = HashMap::new();
    let mut known: HashMap<String, ValueId> = HashMap::new();
    for instruction in &function[at].code {
        let Some(result) = instruction.result else {
            continue;
        };
        let mut op = instruction.op.clone();
        if !is_value(&op) {
            continue;
        }
        op.operands(&mut |value| replace(&merged, value));
        if let Op::Select(condition, a, b) = &mut op {
            // A selection by the same condition before it.
            for (operand, is_first) in [(a, true), (b, false)] {
                if let Value::Local(v) = *operand {
                    match selections.get(&v) {
                        Some((same, x, y)) if same == condition => {
                            *operand = if is_first { *x } else { *y };
                        }
                        _ => {}
                    }
                }
            }
        }
        match op {
            Op::Copy(a) => {
                merged.insert(result, a);
                continue;
            }
            Op::Select(_, a, b) if a == b => {
                merged.insert(result, a);
                continue;
            }
            Op::Select(condition, a, b) => {
                selections.insert(result, (condition, a, b));
            }
            _ => {}
        }
        match known.get(&format!("{op:?} {:?}", function[result].ty)) {
            Some(other) => {
                merged.insert(result, Value::Local(*other));
            }
            None => {
                known.insert(format!("{op:?} {:?}", function[result].ty), result);
            }
        }
    }
    merged
}

/// Whether an operation has a value that depends on its operands only.
fn is_value(op: &Op) -> bool {
    matches!(
        op,
        Op::Binary(..)
            | Op::Compare { .. }
            | Op::Select(..)
            | Op::Cast(..)
            | Op::Address { .. }
            | Op::Copy(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn equal_values_are_computed_once() {
        let mut function = first_function(
            "define i32 @f(i16 %x, i32 %n, i1 %c) {\nentry:\n  br label %loop\nloop:\n  \
             %i = phi i32 [ 0, %entry ], [ %next, %loop ]\n  %a = zext i16 %x to i32\n  \
             %wide = zext i16 %x to i64\n  %b = zext i16 %x to i32\n  \
             %s = select i1 %c, i32 %a, i32 %b\n  %next = add i32 %i, %s\n  \
             %over = icmp eq i32 %next, %n\n  br i1 %over, label %done, label %loop\n\
             done:\n  ret i32 %s\n}\n",
        );
        merge(&mut function);
        let named = |name: &str| {
            let at = function.values.iter().position(|v| v.name == name);
            Value::Local(ValueId(at.unwrap()))
        };
        let code = &function.blocks[1].code;
        assert_eq!(code.len(), 6);
        assert!(code
            .iter()
            .any(|i| matches!(i.op, Op::Binary(_, _, b) if b == named("a"))));
        let last = &function.blocks[2].code[0].op;
        assert!(matches!(last, Op::Return(Some(v)) if *v == named("a")));
    }

    #[test]
    fn nested_selections_by_one_condition_become_one() {
        let mut function = first_function(
            "define i32 @f(i32 %x, i32 %y, i32 %n, i1 %c) {\nentry:\n  br label %loop\nloop:\n  \
             %i = phi i32 [ 0, %entry ], [ %next, %loop ]\n  \
             %s = select i1 %c, i32 %x, i32 %y\n  %t = select i1 %c, i32 %s, i32 %y\n  \
             %next = add i32 %i, %t\n  %over = icmp eq i32 %next, %n\n  \
             br i1 %over, label %done, label %loop\ndone:\n  ret i32 %next\n}\n",
        );
        merge(&mut function);
        let selections = function.instructions();
        let selections = selections.filter(|i| matches!(i.op, Op::Select(..)));
        assert_eq!(selections.count(), 1);
    }
}
