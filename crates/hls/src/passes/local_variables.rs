//! Moves local variables to memory: each gets an object of its own, as hardware has no stack.

use crate::error::Result;
use crate::ir::{Function, Global, Op, Value};
use crate::object;

/// Replaces the local variables of a function by globals.
pub fn move_to_memory(function: &mut Function, globals: &mut Vec<Global>) -> Result<()> {
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
        let variable = format!("{name}.{}", values[result.0].name);
        let object = object::add(globals, variable, *bytes)
            .map_err(|error| error.at(&instruction.position))?;
        instruction.op = Op::Copy(Value::Global(object, 0));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn local_variables_become_objects_of_memory() {
        let mut function =
            first_function("define void @f() {\n  %x = alloca [3 x i32], align 4\n  ret void\n}\n");
        let mut globals = Vec::new();
        move_to_memory(&mut function, &mut globals).unwrap();
        assert_eq!(
            (globals[0].name.as_str(), globals[0].bytes.len()),
            ("f.x", 12)
        );
        let address = Value::Global(crate::ir::GlobalId(0), 0);
        assert!(matches!(function.blocks[0].code[0].op, Op::Copy(a) if a == address));
    }
}
