//! Moves the end of counting loops of one block, whose sum and comparison do not fit one clock: a loop
//! that ends at an equal number compares the counter before its increment, and another loop has a
//! second counter that is a step ahead.

use crate::ir::{
    masked, BinaryOp, BlockId, Function, Instruction, Op, Predicate, Type, Value, ValueId,
};

/// Bits of a counter whose sum and comparison fit one clock, if it is compared for equality.
const NARROW: u32 = 32;
/// The same for other comparisons.
const NARROW_ORDER: u32 = 16;

/// A counter of a loop, and its comparison with the end.
struct Counted {
    /// The index of the comparison, and whether it is for equality.
    compare: usize,
    is_equality: bool,
    bits: u32,
    count: ValueId,
    step: u64,
    end: Value,
}

/// Moves the ends of all loops of one block.
pub fn compare_early(function: &mut Function) {
    for at in (0..function.blocks.len()).map(BlockId) {
        let Some(counted) = counted(function, at) else {
            continue;
        };
        let before = only_entry(function, at);
        if counted.is_equality {
            move_end(function, at, &counted, before);
        } else if let Some(before) = before {
            count_ahead(function, at, &counted, before);
        }
    }
}

/// The sum or difference of a value and a step, computed at the end of a block.
fn computed(
    function: &mut Function,
    before: Option<BlockId>,
    op: BinaryOp,
    (value, step): (Value, u64),
    like: &Instruction,
) -> Option<Value> {
    let Op::Compare { bits, .. } = like.op else {
        return None;
    };
    if let Value::Bits(n) = value {
        let sum = match op {
            BinaryOp::Sub => n.wrapping_sub(step),
            _ => n.wrapping_add(step),
        };
        return Some(Value::Bits(masked(sum, bits)));
    }
    let before = before?;
    let result = function.value("last", Type::Int(bits));
    let op = Op::Binary(op, value, Value::Bits(step));
    let code = &mut function[before].code;
    let end = code.len().saturating_sub(1);
    code.insert(end, Instruction::new(Some(result), op, &like.position));
    Some(Value::Local(result))
}

/// Replaces `count + step == end` by `count == end - step`, whose right side is invariant.
fn move_end(function: &mut Function, at: BlockId, counted: &Counted, before: Option<BlockId>) {
    let like = function[at].code[counted.compare].clone();
    let end = (counted.end, counted.step);
    let Some(last) = computed(function, before, BinaryOp::Sub, end, &like) else {
        return;
    };
    if let Op::Compare { left, right, .. } = &mut function[at].code[counted.compare].op {
        (*left, *right) = (Value::Local(counted.count), last);
    }
}

/// Replaces `count + step < end` by `ahead < end`.
fn count_ahead(function: &mut Function, at: BlockId, counted: &Counted, before: BlockId) {
    let like = function[at].code[counted.compare].clone();
    let start = function[at].code.iter().find_map(|i| match &i.op {
        Op::Phi(from) if i.result == Some(counted.count) => {
            from.iter().find(|f| f.0 == before).map(|f| f.1)
        }
        _ => None,
    });
    let first = start.and_then(|start| {
        let start = (start, counted.step);
        computed(function, Some(before), BinaryOp::Add, start, &like)
    });
    let Some(first) = first else {
        return;
    };
    let ahead = function.value("ahead", Type::Int(counted.bits));
    let next = function.value("ahead", Type::Int(counted.bits));
    let code = &mut function[at].code;
    if let Op::Compare { left, .. } = &mut code[counted.compare].op {
        *left = Value::Local(ahead);
    }
    let sum = Op::Binary(
        BinaryOp::Add,
        Value::Local(ahead),
        Value::Bits(counted.step),
    );
    code.insert(
        counted.compare,
        Instruction::new(Some(next), sum, &like.position),
    );
    let phi = Op::Phi(vec![(before, first), (at, Value::Local(next))]);
    let position = code[0].position.clone();
    code.insert(0, Instruction::new(Some(ahead), phi, &position));
}

/// The comparison of a loop's incremented counter with its end, if it does not fit a clock.
fn counted(function: &Function, at: BlockId) -> Option<Counted> {
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
    let is_equality = predicate.is_equality();
    let narrow = if is_equality { NARROW } else { NARROW_ORDER };
    if *bits <= narrow || !fixed || matches!(predicate, Predicate::Float(_)) {
        return None;
    }
    let Op::Binary(BinaryOp::Add, Value::Local(count), Value::Bits(step)) =
        code[given(*raised)?].op
    else {
        return None;
    };
    let phi = matches!(code[given(count)?].op, Op::Phi(_));
    phi.then_some(Counted {
        compare,
        is_equality,
        bits: *bits,
        count,
        step,
        end: *end,
    })
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
    fn wide_counters_are_compared_before_their_increment() {
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

    #[test]
    fn an_order_is_compared_with_a_counter_that_is_a_step_ahead() {
        let mut function = first_function(
            "define void @f(i32 %n, i32 %first) {\nentry:\n  br label %loop\nloop:\n  \
             %i = phi i32 [ %first, %entry ], [ %next, %loop ]\n  %next = add i32 %i, 3\n  \
             %more = icmp slt i32 %next, %n\n  br i1 %more, label %loop, label %done\n\
             done:\n  ret void\n}\n",
        );
        compare_early(&mut function);
        let of = |v: &Value| match v {
            Value::Local(v) => function.instructions().find(|i| i.result == Some(*v)),
            _ => None,
        };
        let compare = function.instructions().find_map(|i| match &i.op {
            Op::Compare { left, .. } => of(left),
            _ => None,
        });
        let Some(Op::Phi(from)) = compare.map(|i| &i.op) else {
            panic!("{compare:?}");
        };
        let sums = from.iter().filter_map(|(_, value)| of(value));
        let steps = sums.map(|i| match i.op {
            Op::Binary(BinaryOp::Add, Value::Local(of), Value::Bits(step)) => {
                (function[of].name.as_str(), step)
            }
            _ => panic!("{i:?}"),
        });
        assert_eq!(steps.collect::<Vec<_>>(), [("first", 3), ("ahead", 3)]);
    }
}
