//! Copies the phis of a loop of one block that are used after it, as a pipeline changes them before
//! its last iteration has ended.

use crate::ir::{BlockId, Function, Instruction, Op, Value, ValueId};

/// Copies the phis of all loops of one block.
pub fn copy(function: &mut Function) {
    for at in (0..function.blocks.len()).map(BlockId) {
        let code = &function[at].code;
        let end = code.last().map(|i| &i.op);
        if !matches!(end, Some(Op::Branch(_, a, b)) if (*a == at) != (*b == at)) {
            continue;
        }
        let phis = code.iter().filter(|i| matches!(i.op, Op::Phi(_)));
        let phis: Vec<ValueId> = phis.filter_map(|i| i.result).collect();
        for phi in phis {
            let copy = ValueId(function.values.len());
            if !replace_outside(function, at, phi, copy) {
                continue;
            }
            let (name, ty) = (
                format!("{}_last", function[phi].name),
                function[phi].ty.clone(),
            );
            function.value(&name, ty);
            let code = &mut function[at].code;
            let front = code.iter().take_while(|i| matches!(i.op, Op::Phi(_)));
            let front = front.count();
            let position = code[front].position.clone();
            let op = Op::Copy(Value::Local(phi));
            code.insert(front, Instruction::new(Some(copy), op, &position));
        }
    }
}

/// Replaces the uses of a phi outside of its loop; returns whether there are any.
fn replace_outside(function: &mut Function, at: BlockId, phi: ValueId, copy: ValueId) -> bool {
    let mut used = false;
    let mut replace = |value: &mut Value| {
        if *value == Value::Local(phi) {
            *value = Value::Local(copy);
            used = true;
        }
    };
    let blocks = function.blocks.iter_mut().enumerate();
    for (_, block) in blocks.filter(|(other, _)| *other != at.0) {
        for instruction in &mut block.code {
            match &mut instruction.op {
                Op::Phi(sources) => {
                    let sources = sources.iter_mut().filter(|(source, _)| *source == at);
                    sources.for_each(|(_, value)| replace(value));
                }
                op => op.operands(&mut replace),
            }
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn phis_that_are_used_after_their_loop_are_copied() {
        let mut function = first_function(
            "define i32 @f() {\nentry:\n  br label %loop\nloop:\n  \
             %i = phi i32 [ 0, %entry ], [ %next, %loop ]\n  %next = add i32 %i, 1\n  \
             %over = icmp eq i32 %next, 9\n  br i1 %over, label %done, label %loop\n\
             done:\n  ret i32 %i\n}\n",
        );
        copy(&mut function);
        let last = function.blocks[2].code.last().map(|i| &i.op);
        let Some(Op::Return(Some(Value::Local(v)))) = last else {
            panic!("{last:?}");
        };
        assert_eq!(function[*v].name, "i_last");
    }
}
