//! The passes from the IR of the front end to instructions that hardware has.

mod aggregate;
pub mod align;
mod calls;
mod dead_code;
mod flatten;
mod intrinsics;
mod kernel_end;
mod local_variables;
mod loop_end;
mod loop_values;
mod narrow;
mod printf;

use crate::error::{Error, Result};
use crate::ir::{Function, Module};

/// Bits of the widest integer.
const INTEGER_BITS_MAX: u32 = 64;

/// Keeps the functions that are reachable from the entry, the entry first, and lowers them. `far`:
/// the kernel has memory off the chip.
pub fn run(module: &mut Module, far: bool) -> Result<()> {
    let reached = calls::resolve(module)?;
    aggregate::split(module, &reached)?;
    let mut functions = Vec::new();
    for &at in reached.iter().rev() {
        let mut function = module[at].clone();
        check_widths(&function)?;
        intrinsics::expand(&mut function)?;
        local_variables::move_to_memory(&mut function, &mut module.globals);
        kernel_end::insert(&mut function);
        flatten::flatten(&mut function, far);
        loop_values::copy(&mut function);
        dead_code::remove(&mut function);
        narrow::narrow(&mut function);
        loop_end::compare_early(&mut function);
        functions.push(function);
    }
    module.functions = functions;
    calls::renumber(module, &reached);
    Ok(())
}

fn check_widths(function: &Function) -> Result<()> {
    let mut widths = function.values.iter().filter_map(|v| v.ty.bits());
    match widths.find(|bits| *bits > INTEGER_BITS_MAX) {
        Some(bits) => Err(Error::unsupported(format!(
            "function '{}' has an integer of {bits} bits, more than {INTEGER_BITS_MAX}",
            function.name
        ))
        .at(&function.position)),
        None => Ok(()),
    }
}
