//! Reorders sums of integers in loops of one block: those of an iteration are added to each other first,
//! as a tree, and to the value of an earlier iteration last. So an iteration waits for one sum of
//! the earlier one, not for a chain.

use super::recurrence::{is_loop, Users};
use crate::ir::{BinaryOp, BlockId, Function, Instruction, Op, Value, ValueId};
use std::collections::{HashMap, HashSet};

/// Reorders the sums of all loops of one block.
pub fn reorder(function: &mut Function) {
    let mut uses: HashMap<ValueId, u32> = HashMap::new();
    for value in function.instructions().flat_map(|i| i.op.uses()) {
        if let Value::Local(v) = value {
            *uses.entry(v).or_default() += 1;
        }
    }
    for at in (0..function.blocks.len()).map(BlockId) {
        if is_loop(function, at) {
            reorder_loop(function, at, &uses);
        }
    }
}

fn reorder_loop(function: &mut Function, at: BlockId, uses: &HashMap<ValueId, u32>) {
    let code = std::mem::take(&mut function[at].code);
    let defined: HashMap<ValueId, usize> = (code.iter().enumerate())
        .filter_map(|(index, i)| Some((i.result?, index)))
        .collect();
    let sum = |value: Value| match value {
        Value::Local(v) => match code[*defined.get(&v)?].op {
            Op::Binary(BinaryOp::Add, a, b) => Some((v, a, b)),
            _ => None,
        },
        _ => None,
    };
    // Sums whose only use is another one.
    let inner: HashSet<ValueId> = code
        .iter()
        .filter(|i| matches!(i.op, Op::Binary(BinaryOp::Add, ..)))
        .flat_map(|i| i.op.uses())
        .filter_map(sum)
        .map(|(v, ..)| v)
        .filter(|v| uses.get(v) == Some(&1))
        .collect();
    let users = Users::new(&code, at);
    let mut out = Vec::with_capacity(code.len());
    for instruction in &code {
        let root = instruction.result.filter(|v| !inner.contains(v));
        let parts = match root.map(Value::Local).and_then(sum) {
            Some((root, ..)) => {
                let mut parts = Vec::new();
                collect(Value::Local(root), true, &sum, &inner, &mut parts);
                let later = users.dependent(root);
                let (last, first): (Vec<_>, Vec<_>) = parts
                    .into_iter()
                    .partition(|part| matches!(part, Value::Local(v) if later.contains(v)));
                Some((first, last)).filter(|(first, last)| first.len() > 1 && !last.is_empty())
            }
            None => None,
        };
        match parts {
            Some((first, last)) => rebuild(function, instruction, first, last, &mut out),
            None => out.push(instruction.clone()),
        }
    }
    function[at].code = out;
}

/// The values that a sum consists of.
fn collect(
    value: Value,
    is_root: bool,
    sum: &dyn Fn(Value) -> Option<(ValueId, Value, Value)>,
    inner: &HashSet<ValueId>,
    parts: &mut Vec<Value>,
) {
    match sum(value) {
        Some((v, a, b)) if is_root || inner.contains(&v) => {
            collect(a, false, sum, inner, parts);
            collect(b, false, sum, inner, parts);
        }
        _ => parts.push(value),
    }
}

/// A tree of `first`, to which `last` are added.
fn rebuild(
    function: &mut Function,
    root: &Instruction,
    mut first: Vec<Value>,
    last: Vec<Value>,
    out: &mut Vec<Instruction>,
) {
    let Some(result) = root.result else {
        return;
    };
    let local = function[result].clone();
    let mut add = |function: &mut Function, a: Value, b: Value, result: Option<ValueId>| {
        let result = result.unwrap_or_else(|| function.value("part", local.ty.clone()));
        let op = Op::Binary(BinaryOp::Add, a, b);
        out.push(Instruction::new(Some(result), op, &root.position));
        Value::Local(result)
    };
    while first.len() > 1 {
        let pairs = first.chunks(2).map(<[Value]>::to_vec).collect::<Vec<_>>();
        first = (pairs.into_iter())
            .map(|pair| match pair.as_slice() {
                [a, b] => add(function, *a, *b, None),
                pair => pair[0],
            })
            .collect();
    }
    let mut total = first[0];
    let count = last.len();
    for (index, value) in last.into_iter().enumerate() {
        let is_root = index + 1 == count;
        total = add(function, total, value, is_root.then_some(result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn the_value_of_an_earlier_iteration_is_added_last() {
        let mut function = first_function(
            "define i32 @f(i32 %a, i32 %b, i32 %c, i32 %n) {\nentry:\n  br label %loop\nloop:\n  \
             %i = phi i32 [ 0, %entry ], [ %next, %loop ]\n  \
             %sum = phi i32 [ 0, %entry ], [ %z, %loop ]\n  %x = add i32 %sum, %a\n  \
             %y = add i32 %x, %b\n  %z = add i32 %y, %c\n  %next = add i32 %i, 1\n  \
             %over = icmp eq i32 %next, %n\n  br i1 %over, label %done, label %loop\n\
             done:\n  ret i32 %z\n}\n",
        );
        reorder(&mut function);
        let named = |v: &Value| match v {
            Value::Local(v) => function[*v].name.as_str(),
            _ => "",
        };
        let sums: Vec<_> = function.blocks[1]
            .code
            .iter()
            .filter_map(|i| match &i.op {
                Op::Binary(BinaryOp::Add, a, b) => Some((named(a), named(b))),
                _ => None,
            })
            .collect();
        // The first sums stay for other uses, and are removed as dead code.
        let own: Vec<_> = sums.iter().filter(|(a, _)| *a == "part").collect();
        assert_eq!(own, [&("part", "c"), &("part", "sum")]);
    }
}
