//! If-conversion: moves short branches into the block before them. Their computations are executed
//! always, their stores under the branch's condition, so that a loop with an `if` becomes one block
//! and can be a pipeline.

use crate::ir::{BinaryOp, BlockId, Function, Instruction, Op, Type, Value};
use crate::units::unit;

/// Instructions of the longest branch that is moved.
const BRANCH_MAX: usize = 12;

/// Flattens a function until nothing changes. `far`: there is memory off the chip, which reports
/// addresses out of its range as errors, so loads are not executed speculatively.
pub fn flatten(function: &mut Function, far: bool) {
    for at in (0..function.blocks.len()).map(BlockId) {
        while branch(function, at, far) || straight(function, at) {}
    }
    compact(function);
}

fn end(function: &Function, block: BlockId) -> Option<&Op> {
    function[block].code.last().map(|i| &i.op)
}

fn targets(op: &Op) -> Vec<BlockId> {
    match op {
        Op::Jump(to) => vec![*to],
        Op::Branch(_, a, b) => vec![*a, *b],
        Op::Switch {
            cases, default: to, ..
        } => cases.iter().map(|c| c.1).chain([*to]).collect(),
        _ => Vec::new(),
    }
}

fn before(function: &Function, block: BlockId) -> Vec<BlockId> {
    (0..function.blocks.len())
        .map(BlockId)
        .flat_map(|b| {
            end(function, b)
                .map(targets)
                .unwrap_or_default()
                .into_iter()
                .map(move |t| (b, t))
        })
        .filter(|(_, t)| *t == block)
        .map(|(b, _)| b)
        .collect()
}

/// Whether an instruction may be executed speculatively.
fn harmless(function: &Function, instruction: &Instruction, far: bool) -> bool {
    let plain = match instruction.op {
        Op::Load(..) => !far,
        Op::Call(..)
        | Op::Phi(_)
        | Op::Store {
            condition: Some(_), ..
        }
        | Op::Local(_) => false,
        _ => true,
    };
    plain && unit(function, instruction).is_none()
}

/// `if (c) { … }` at a block's end.
fn branch(function: &mut Function, at: BlockId, far: bool) -> bool {
    let Some(&Op::Branch(condition, yes, no)) = end(function, at) else {
        return false;
    };
    let inner = |b: BlockId, next: BlockId| {
        b != at
            && b != next
            && matches!(end(function, b), Some(Op::Jump(to)) if *to == next)
            && before(function, b) == [at]
    };
    let (inside, next, negated) = if inner(yes, no) {
        (yes, no, false)
    } else if inner(no, yes) {
        (no, yes, true)
    } else {
        return false;
    };
    let code = &function[inside].code;
    let body = &code[..code.len() - 1];
    if next == at || body.len() > BRANCH_MAX || !body.iter().all(|i| harmless(function, i, far)) {
        return false;
    }
    let mut body = body.to_vec();
    let Some(last) = function[at].code.pop() else {
        return false;
    };
    let position = last.position.clone();
    let mut add = Vec::new();
    let stores = body.iter().any(|i| matches!(i.op, Op::Store { .. }));
    let mut when = condition;
    if negated && stores {
        let opposite = function.value("otherwise", Type::Int(1));
        let op = Op::Binary(BinaryOp::Xor, condition, Value::Bits(1));
        add.push(Instruction::new(Some(opposite), op, &position));
        when = Value::Local(opposite);
    }
    for instruction in &mut body {
        if let Op::Store {
            condition: only, ..
        } = &mut instruction.op
        {
            *only = Some(when);
        }
    }
    add.extend(body);
    // Phis of both paths become selections.
    let mut chosen = Vec::new();
    for (index, instruction) in function[next].code.iter().enumerate() {
        let Op::Phi(from) = &instruction.op else {
            break;
        };
        let of = |b: BlockId| from.iter().find(|f| f.0 == b).map_or(Value::Undef, |f| f.1);
        let (taken, other) = (of(inside), of(at));
        chosen.extend(instruction.result.map(|phi| (index, phi, taken, other)));
    }
    for (index, phi, taken, other) in chosen {
        let local = function[phi].clone();
        let select = function.value(&local.name, local.ty);
        let (a, b) = if negated {
            (other, taken)
        } else {
            (taken, other)
        };
        let op = if a == b {
            Op::Copy(a)
        } else {
            Op::Select(condition, a, b)
        };
        add.push(Instruction::new(Some(select), op, &position));
        if let Op::Phi(from) = &mut function[next].code[index].op {
            from.retain(|f| f.0 != inside && f.0 != at);
            from.push((at, Value::Local(select)));
        }
    }
    add.push(Instruction::new(None, Op::Jump(next), &position));
    function[inside].code.clear();
    function[at].code.extend(add);
    true
}

/// Merges a block with its only successor, if that has no other predecessor.
fn straight(function: &mut Function, at: BlockId) -> bool {
    let Some(&Op::Jump(next)) = end(function, at) else {
        return false;
    };
    if next == at || next == BlockId(0) || before(function, next) != [at] {
        return false;
    }
    let code = std::mem::take(&mut function[next].code);
    function[at].code.pop();
    for mut instruction in code {
        if let Op::Phi(from) = &instruction.op {
            instruction.op = Op::Copy(from.first().map_or(Value::Undef, |f| f.1));
        }
        function[at].code.push(instruction);
    }
    for block in &mut function.blocks {
        for instruction in &mut block.code {
            if let Op::Phi(from) = &mut instruction.op {
                from.iter_mut()
                    .filter(|f| f.0 == next)
                    .for_each(|f| f.0 = at);
            }
        }
    }
    true
}

/// Removes blocks without code.
fn compact(function: &mut Function) {
    let mut moved = vec![BlockId(0); function.blocks.len()];
    let mut kept = 0;
    for (at, block) in function.blocks.iter().enumerate() {
        moved[at] = BlockId(kept);
        kept += usize::from(!block.code.is_empty());
    }
    function.blocks.retain(|b| !b.code.is_empty());
    for instruction in function.blocks.iter_mut().flat_map(|b| &mut b.code) {
        instruction.op.blocks(&mut |b| *b = moved[b.0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    fn flattened(then: &str) -> Function {
        let mut function = first_function(&format!(
            "define void @f(i1 %c, ptr %p) {{\nentry:\n  br i1 %c, label %then, label %done\n\
             then:\n{then}\n  br label %done\ndone:\n  %x = phi i32 [ 1, %entry ], [ 2, %then ]\n  \
             store i32 %x, ptr %p, align 4\n  ret void\n}}\n"
        ));
        flatten(&mut function, false);
        function
    }

    #[test]
    fn test_stores_of_a_branch_get_its_condition() {
        let function = flattened("  store i32 7, ptr %p, align 4");
        assert_eq!(function.blocks.len(), 1);
        let conditions: Vec<_> = function
            .instructions()
            .filter_map(|i| match i.op {
                Op::Store { condition, .. } => Some(condition.is_some()),
                _ => None,
            })
            .collect();
        assert_eq!(conditions, [true, false]);
        assert!(function
            .instructions()
            .any(|i| matches!(i.op, Op::Select(..))));
    }

    #[test]
    fn test_branches_with_calls_stay() {
        let function = flattened("  call void @hum_port_text(i32 7)");
        assert_eq!(function.blocks.len(), 3);
    }
}
