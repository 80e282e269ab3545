//! Ends the kernel where its entry function returns.

use crate::ir::{Callee, EngineCall, Function, Instruction, Op, Type, Value, ENTRY, TRAP_STATUS};

/// Makes the entry's return, and unreachable code, end the kernel, as a processor stops there.
pub fn insert(function: &mut Function) {
    let entry = function.name == ENTRY;
    let end = Callee::Engine(EngineCall::End);
    for block in &mut function.blocks {
        let Some(last) = block.code.last() else {
            continue;
        };
        let code = match last.op {
            Op::Return(value) if entry => value.unwrap_or(Value::Bits(0)),
            Op::Unreachable => Value::Bits(TRAP_STATUS),
            _ => continue,
        };
        let position = last.position.clone();
        block.code.pop();
        let over = |i: &Instruction| matches!(i.op, Op::Call(Callee::Engine(EngineCall::End), _));
        if !block.code.last().is_some_and(over) {
            let op = Op::Call(end.clone(), vec![(Type::Int(32), code)]);
            block.code.push(Instruction::new(None, op, &position));
        }
        block
            .code
            .push(Instruction::new(None, Op::Unreachable, &position));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn the_entry_ends_the_kernel_with_its_status() {
        let mut function = first_function("define i32 @hum_main() {\n  ret i32 7\n}\n");
        insert(&mut function);
        let code = &function.blocks[0].code;
        assert!(matches!(code[1].op, Op::Unreachable));
        let Op::Call(Callee::Engine(EngineCall::End), arguments) = &code[0].op else {
            panic!("{:?}", code[0].op);
        };
        assert_eq!(arguments[0].1, Value::Bits(7));
    }

    #[test]
    fn other_functions_end_the_kernel_only_where_code_is_unreachable() {
        for (end, count) in [("ret void", 1), ("unreachable", 2)] {
            let mut function = first_function(&format!("define void @f() {{\n  {end}\n}}\n"));
            insert(&mut function);
            assert_eq!(function.instructions().count(), count, "{end}");
        }
    }
}
