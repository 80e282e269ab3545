//! Moves local variables to memory: each gets an object of its own, as hardware has no stack.

use crate::ir::{Function, Global, GlobalId, Op, Value};

/// Bytes of the largest local variable.
const BYTES_MAX: usize = 1 << 24;

/// Replaces the local variables of a function by globals.
pub fn move_to_memory(function: &mut Function, globals: &mut Vec<Global>) {
    let Function {
        name,
        values,
        blocks,
        ..
    } = function;
    for instruction in blocks.iter_mut().flat_map(|b| &mut b.code) {
        let (Op::Local(bytes), Some(result)) = (&instruction.op, instruction.result) else {
            continue;
        };
        let bytes = usize::try_from(*bytes).unwrap_or(usize::MAX);
        let variable = format!("{name}.{}", values[result.0].name);
        globals.push(Global::zeroed(variable, bytes.min(BYTES_MAX)));
        let address = Value::Global(GlobalId(globals.len() - 1), 0);
        instruction.op = Op::Copy(address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn test_local_variables_become_objects_of_memory() {
        let mut function =
            first_function("define void @f() {\n  %x = alloca [3 x i32], align 4\n  ret void\n}\n");
        let mut globals = Vec::new();
        move_to_memory(&mut function, &mut globals);
        assert_eq!(
            (globals[0].name.as_str(), globals[0].bytes.len()),
            ("f.x", 12)
        );
        let address = Value::Global(GlobalId(0), 0);
        assert!(matches!(function.blocks[0].code[0].op, Op::Copy(a) if a == address));
    }
}
