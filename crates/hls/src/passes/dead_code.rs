//! Dead code.

use crate::ir::{Callee, Function, Op, Value};

/// Removes instructions whose results are not used.
pub fn remove(function: &mut Function) {
    loop {
        let mut used = vec![false; function.values.len()];
        for instruction in function.instructions() {
            for value in instruction.op.uses() {
                // A phi that only feeds itself is not used.
                if let (Value::Local(v), true) =
                    (value, instruction.result.map(Value::Local) != Some(value))
                {
                    used[v.0] = true;
                }
            }
        }
        let mut changed = false;
        for block in &mut function.blocks {
            let before = block.code.len();
            block.code.retain(|i| {
                i.result.is_none_or(|r| {
                    let effect = match &i.op {
                        Op::Call(Callee::Engine(call), _) => !call.is_pure(),
                        Op::Call(..) => true,
                        _ => false,
                    };
                    used[r.0] || effect
                })
            });
            changed |= block.code.len() != before;
        }
        if !changed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn unused_values_are_removed_and_calls_stay() {
        let mut function = first_function(
            "define void @f(i32 %x) {\n  %a = add i32 %x, 1\n  %b = mul i32 %a, 3\n  \
             %c = call i32 @g()\n  ret void\n}\n",
        );
        remove(&mut function);
        let ops: Vec<_> = function.instructions().map(|i| &i.op).collect();
        assert!(matches!(ops[..], [Op::Call(..), Op::Return(None)]));
    }
}
