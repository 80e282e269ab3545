//! Moves the end of counting loops: a loop of one block whose counter has more than 32 bits compares
//! the counter before its increment, as a 64-bit sum and comparison do not fit one clock.

use crate::ir::{masked, BinaryOp, BlockId, Function, Instruction, Op, Type, Value, ValueId};

/// Bits of a counter whose sum and comparison fit one clock.
const NARROW: u32 = 32;

/// In loops of one block, replaces `count + step == end` by `count == end - step`, whose right side
/// is invariant.
pub fn compare_early(function: &mut Function) {
    for at in (0..function.blocks.len()).map(BlockId) {
        let Some((compare, count, step, end)) = counted(function, at) else {
            continue;
        };
        let bits = match function[at].code[compare].op {
            Op::Compare { bits, .. } => bits,
            _ => continue,
        };
        let last = match end {
            Value::Bits(n) => Value::Bits(masked(n.wrapping_sub(step), bits)),
            end => {
                let Some(before) = only_entry(function, at) else {
                    continue;
                };
                let result = function.value("last", Type::Int(bits));
                let position = function[at].code[compare].position.clone();
                let op = Op::Binary(BinaryOp::Sub, end, Value::Bits(step));
                let code = &mut function[before].code;
                let end = code.len().saturating_sub(1);
                code.insert(end, Instruction::new(Some(result), op, &position));
                Value::Local(result)
            }
        };
        if let Op::Compare {
            left: a, right: b, ..
        } = &mut function[at].code[compare].op
        {
            (*a, *b) = (count, last);
        }
    }
}

/// The comparison of a loop's incremented counter with its end: index of the comparison, counter,
/// step, end.
fn counted(function: &Function, at: BlockId) -> Option<(usize, Value, u64, Value)> {
    let code = &function[at].code;
    let Op::Branch(Value::Local(condition), yes, no) = code.last()?.op else {
        return None;
    };
    if (yes == at) == (no == at) {
        return None;
    }
    let given = |v: ValueId| code.iter().position(|i| i.result == Some(v));
    let compare = given(condition)?;
    let Op::Compare {
        predicate,
        bits,
        left: Value::Local(raised),
        right: end,
    } = &code[compare].op
    else {
        return None;
    };
    let fixed = match end {
        Value::Bits(_) => true,
        Value::Local(v) => given(*v).is_none(),
        _ => false,
    };
    if *bits <= NARROW || !fixed || !predicate.is_equality() {
        return None;
    }
    let Op::Binary(BinaryOp::Add, Value::Local(count), Value::Bits(step)) =
        code[given(*raised)?].op
    else {
        return None;
    };
    let phi = matches!(code[given(count)?].op, Op::Phi(_));
    phi.then_some((compare, Value::Local(count), step, *end))
}

/// The only block from which a loop of one block is entered.
fn only_entry(function: &Function, at: BlockId) -> Option<BlockId> {
    let Op::Phi(from) = &function[at].code.first()?.op else {
        return None;
    };
    let mut outside = from.iter().map(|f| f.0).filter(|b| *b != at);
    outside.next().filter(|_| outside.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn test_wide_counters_are_compared_before_their_increment() {
        let mut function = first_function(
            "define void @f() {\nentry:\n  br label %loop\nloop:\n  \
             %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n  %next = add i64 %i, 1\n  \
             %over = icmp eq i64 %next, 100\n  br i1 %over, label %done, label %loop\n\
             done:\n  ret void\n}\n",
        );
        compare_early(&mut function);
        let compared = function.instructions().find_map(|i| match i.op {
            Op::Compare {
                left: Value::Local(v),
                right: end,
                ..
            } => Some((function[v].name.as_str(), end)),
            _ => None,
        });
        assert_eq!(compared, Some(("i", Value::Bits(99))));
    }
}
