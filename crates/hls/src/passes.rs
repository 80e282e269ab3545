//! The passes from the IR of the front end to instructions that hardware has.

mod aggregate;
mod ahead;
pub mod align;
mod barriers;
mod calls;
pub mod channels;
mod dead_code;
mod divisions;
mod equal_values;
mod flatten;
mod intrinsics;
mod item_stores;
pub mod kernel_arguments;
mod kernel_end;
mod local_variables;
mod long_copies;
mod loop_barriers;
mod loop_end;
mod loop_values;
pub mod loops;
mod narrow;
mod overflow;
pub mod pipes;
mod printf;
mod private_volatile;
mod products;
pub mod readers;
mod recurrence;
mod ssa;
mod sums;
mod uniform;
mod vector;
pub mod work_items;

use crate::error::{Error, Result};
use crate::ir::{Function, FunctionId, Module, ENTRY};
use flatten::Target;
use kernel_arguments::Binding;
use pipes::Pipes;
use std::collections::HashSet;
use work_items::{Groups, Items};

/// Bits of the widest integer.
const INTEGER_BITS_MAX: u32 = 64;

/// Keeps the functions that are reachable from the entry, the entry first, and lowers them. `far`:
/// the kernel has memory off the chip.
pub fn run(module: &mut Module, far: bool) -> Result<()> {
    let reached = calls::resolve(module, ENTRY)?;
    aggregate::split(module, &reached)?;
    let target = if far {
        Target::MessagesWithMemory
    } else {
        Target::Messages
    };
    lower(module, &reached, target)
}

/// The same for an OpenCL kernel, whose function becomes one that executes all work-items.
/// `ordered`: see [`channels::ordered`]; `pipes`: those that the kernel writes, receives the sizes
/// of packets.
pub fn run_kernel(
    module: &mut Module,
    name: &str,
    groups: &Groups,
    local_bytes: u64,
    ordered: &HashSet<String>,
    pipes: &mut Pipes,
) -> Result<(Items, Binding)> {
    let reached = calls::resolve(module, name)?;
    let entry = *reached.last().unwrap_or(&FunctionId(0));
    pipes::lower(module, &reached, entry, pipes)?;
    channels::lower(module, &reached, entry, ordered)?;
    let binding = kernel_arguments::bind(module, entry, local_bytes)?;
    aggregate::split(module, &reached)?;
    private_volatile::relax(&mut module.functions[entry.0]);
    // Functions that are not reachable may use what this kernel does not have.
    let mut kept = vec![false; module.functions.len()];
    reached.iter().for_each(|f| kept[f.0] = true);
    for (function, kept) in module.functions.iter_mut().zip(kept) {
        if !kept {
            function.blocks.clear();
        }
    }
    let items = work_items::expand(module, entry, groups, &binding)?;
    pipes::publish_at_end(module, entry, pipes, &binding);
    lower(module, &reached, Target::Accelerator)?;
    Ok((items, binding))
}

fn lower(module: &mut Module, reached: &[FunctionId], target: Target) -> Result<()> {
    let mut functions = Vec::new();
    for &at in reached.iter().rev() {
        let mut function = module[at].clone();
        check_widths(&function)?;
        long_copies::expand(&mut function);
        intrinsics::expand(&mut function)?;
        divisions::replace(&mut function);
        local_variables::move_to_memory(&mut function, &mut module.globals)?;
        kernel_end::insert(&mut function);
        flatten::flatten(&mut function, target);
        item_stores::remove(&mut function, &module.globals);
        equal_values::merge(&mut function);
        sums::reorder(&mut function);
        ahead::compute(&mut function);
        equal_values::merge(&mut function);
        loop_values::copy(&mut function);
        dead_code::remove(&mut function);
        narrow::narrow(&mut function);
        loop_end::compare_early(&mut function);
        products::mark(&mut function);
        functions.push(function);
    }
    module.functions = functions;
    calls::renumber(module, reached);
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
