//! Volatile accesses to private variables: without a pointer elsewhere, nothing but the function's
//! own accesses observes such a variable, so they are not volatile; the stores to one that is never
//! loaded are removed. clang copies volatile structures by way of such variables.

use crate::ir::{Function, Op, Value, ValueId};
use std::collections::HashMap;

/// The uses of a variable's address.
#[derive(Clone, Copy, Default)]
struct Uses {
    is_loaded: bool,
    /// By anything but an access or an address.
    escapes: bool,
}

/// Removes `volatile` from accesses to private variables, and stores to those without loads.
pub fn relax(function: &mut Function) {
    let variables = variables(function);
    let mut uses: HashMap<ValueId, Uses> = HashMap::new();
    let of = |value: Value| match value {
        Value::Local(v) => variables.get(&v).copied(),
        _ => None,
    };
    for instruction in function.instructions() {
        let mut accesses = None;
        match instruction.op {
            Op::Load(address, ..) | Op::Store { address, .. } => {
                accesses = Some(address);
            }
            Op::Address { base, .. } => accesses = Some(base),
            _ => {}
        }
        let mut once = true;
        for value in instruction.op.uses() {
            let Some(variable) = of(value) else {
                continue;
            };
            let own = uses.entry(variable).or_default();
            if Some(value) == accesses && std::mem::take(&mut once) {
                own.is_loaded |= matches!(instruction.op, Op::Load(..));
            } else {
                own.escapes = true;
            }
        }
    }
    let of_address = |address: Value| {
        let variable = of(address)?;
        let uses = uses.get(&variable).copied().unwrap_or_default();
        (!uses.escapes).then_some(uses)
    };
    for block in &mut function.blocks {
        block.code.retain_mut(|instruction| {
            let (address, stores) = match instruction.op {
                Op::Load(address, ..) => (address, false),
                Op::Store { address, .. } => (address, true),
                _ => return true,
            };
            let Some(uses) = of_address(address) else {
                return true;
            };
            instruction.volatile = false;
            !stores || uses.is_loaded
        });
    }
}

/// By value that is an address in a private variable: the variable.
fn variables(function: &Function) -> HashMap<ValueId, ValueId> {
    let mut found = HashMap::new();
    loop {
        let before = found.len();
        for instruction in function.instructions() {
            let variable = match (&instruction.op, instruction.result) {
                (Op::Local(_), result) => result,
                (
                    Op::Address {
                        base: Value::Local(base),
                        ..
                    },
                    _,
                ) => found.get(base).copied(),
                _ => None,
            };
            if let (Some(result), Some(variable)) = (instruction.result, variable) {
                found.insert(result, variable);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    fn relaxed(body: &str) -> (usize, usize) {
        let mut function = first_function(&format!(
            "define void @f(ptr %p, i32 %i) {{\n  %x = alloca [4 x i32], align 4\n\
             {body}  ret void\n}}\n"
        ));
        relax(&mut function);
        let stores = |i: &&crate::ir::Instruction| matches!(i.op, Op::Store { .. });
        let volatile = function.instructions().filter(|i| i.volatile).count();
        (function.instructions().filter(stores).count(), volatile)
    }

    #[test]
    fn variables_without_a_load_are_removed() {
        let store = "  %q = getelementptr i32, ptr %x, i32 %i\n  \
                     store volatile i32 1, ptr %q, align 4\n";
        assert_eq!(relaxed(store), (0, 0));
        let loaded = format!("{store}  %v = load volatile i32, ptr %x, align 4\n");
        assert_eq!(relaxed(&loaded), (1, 0));
    }

    #[test]
    fn accesses_through_pointers_stay_volatile() {
        let escapes = "  store volatile i32 1, ptr %x, align 4\n  store ptr %x, ptr %p, align 8\n";
        assert_eq!(relaxed(escapes), (2, 1));
        let other = "  store volatile i32 1, ptr %p, align 4\n";
        assert_eq!(relaxed(other), (1, 1));
    }
}
