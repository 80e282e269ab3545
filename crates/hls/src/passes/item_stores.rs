//! Stores to the objects that hold a value for each work-item (`passes::work_items`): those of the
//! value that the object already holds are removed, and those of one value on both sides of a branch
//! become one. The objects have no other accesses, and an access names its object and work-item.

use crate::ir::{BinaryOp, Function, Global, Instruction, Op, Value, ValueId};
use std::collections::HashMap;

/// A place of a work-item: object, work-item.
type Place = (Value, Value);

/// By value: the operation that defines it.
type Definitions = HashMap<ValueId, Op>;

/// Removes redundant stores in each block.
pub fn remove(function: &mut Function, globals: &[Global]) {
    let all = function.instructions();
    let definitions: Definitions = (all.filter(|i| {
        matches!(
            i.op,
            Op::Address { .. } | Op::Copy(_) | Op::Binary(BinaryOp::Xor, ..)
        )
    }))
    .filter_map(|i| Some((i.result?, i.op.clone())))
    .collect();
    for block in &mut function.blocks {
        remove_held(&mut block.code, &definitions, globals);
        join(&mut block.code, &definitions, globals);
    }
}

/// A value without copies.
fn source(definitions: &Definitions, value: Value) -> Value {
    match value {
        Value::Local(v) => match definitions.get(&v) {
            Some(Op::Copy(of)) => source(definitions, *of),
            _ => value,
        },
        _ => value,
    }
}

/// The place of an access.
fn place(definitions: &Definitions, globals: &[Global], address: Value) -> Option<Place> {
    let Value::Local(v) = source(definitions, address) else {
        return None;
    };
    match definitions.get(&v)? {
        Op::Address {
            base: base @ Value::Global(global, 0),
            offset: 0,
            indices,
        } if globals[global.0].items && indices.len() == 1 => {
            Some((*base, source(definitions, indices[0].value)))
        }
        _ => None,
    }
}

/// Removes stores of the value that was loaded from the same place, without a store between.
fn remove_held(code: &mut Vec<Instruction>, definitions: &Definitions, globals: &[Global]) {
    let mut held: HashMap<Value, Place> = HashMap::new();
    code.retain(|instruction| {
        match instruction.op {
            Op::Load(address, ..) => {
                let place = place(definitions, globals, address);
                if let (Some(result), Some(place)) = (instruction.result, place) {
                    held.insert(Value::Local(result), place);
                }
            }
            Op::Store { value, address, .. } => {
                let Some(place) = place(definitions, globals, address) else {
                    return true;
                };
                if held.get(&source(definitions, value)) == Some(&place) {
                    return false;
                }
                held.retain(|_, other| other.0 != place.0);
            }
            _ => {}
        }
        true
    });
}

/// Joins a store under a condition and the next one of the same value to the same place under the
/// opposite condition, without another access to the object between.
fn join(code: &mut Vec<Instruction>, definitions: &Definitions, globals: &[Global]) {
    let mut open: HashMap<Value, usize> = HashMap::new();
    let mut joined = Vec::new();
    for index in 0..code.len() {
        match code[index].op {
            Op::Load(address, ..) => {
                if let Some(place) = place(definitions, globals, address) {
                    open.remove(&place.0);
                }
            }
            Op::Store { address, .. } => {
                let Some(place) = place(definitions, globals, address) else {
                    continue;
                };
                let before = open.insert(place.0, index);
                if let Some(before) = before {
                    if joins(definitions, globals, &code[before].op, &code[index].op) {
                        joined.push((before, index));
                    }
                }
            }
            _ => {}
        }
    }
    // The later one remains: its condition's opposite is known by then.
    for (_, last) in &joined {
        if let Op::Store { condition, .. } = &mut code[*last].op {
            *condition = None;
        }
    }
    let mut index = 0;
    code.retain(|_| {
        index += 1;
        joined.iter().all(|(first, _)| *first != index - 1)
    });
}

fn joins(definitions: &Definitions, globals: &[Global], first: &Op, second: &Op) -> bool {
    let parts = |op: &Op| match op {
        Op::Store {
            value,
            address,
            size,
            condition: Some(condition),
        } => {
            let place = place(definitions, globals, *address)?;
            Some((
                source(definitions, *value),
                place,
                *size,
                source(definitions, *condition),
            ))
        }
        _ => None,
    };
    let Some((first, second)) = parts(first).zip(parts(second)) else {
        return false;
    };
    let opposite = |of: Value, other: Value| match of {
        Value::Local(v) => match definitions.get(&v) {
            Some(Op::Binary(BinaryOp::Xor, a, Value::Bits(1))) => source(definitions, *a) == other,
            _ => false,
        },
        _ => false,
    };
    (first.0, first.1, first.2) == (second.0, second.1, second.2)
        && (opposite(first.3, second.3) || opposite(second.3, first.3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    /// The stores that remain of a function with a place `p` of a work-item.
    fn stores(body: &str) -> Vec<Option<Value>> {
        let text = format!(
            "@g = internal global [4 x i32] zeroinitializer\n\
             define void @f(i64 %i, i64 %j, i32 %x, i1 %c) {{\n  \
             %p = getelementptr [4 x i32], ptr @g, i64 0, i64 %i\n  \
             %q = getelementptr [4 x i32], ptr @g, i64 0, i64 %j\n  \
             %o = xor i1 %c, 1\n{body}  ret void\n}}\n"
        );
        let mut module = parse::module(&text).unwrap();
        module.globals[0].items = true;
        let mut function = module.functions.remove(0);
        // As branches become in `flatten`: the first store under %c, the second one under %o.
        let local = |name: &str| {
            let at = function.values.iter().position(|v| v.name == name);
            at.map(|v| Value::Local(ValueId(v)))
        };
        let mut conditions = [local("c"), local("o")].into_iter();
        if body.contains("store i32 %x") {
            for instruction in &mut function.blocks[0].code {
                if let Op::Store { condition, .. } = &mut instruction.op {
                    *condition = conditions.next().flatten();
                }
            }
        }
        remove(&mut function, &module.globals);
        let kept = function.instructions().filter_map(|i| match &i.op {
            Op::Store { condition, .. } => Some(*condition),
            _ => None,
        });
        kept.collect()
    }

    #[test]
    fn a_value_is_not_stored_where_it_was_loaded() {
        let load = "  %v = load i32, ptr %p\n";
        let store = "  store i32 %v, ptr %p\n";
        assert_eq!(stores(&format!("{load}{store}")), []);
        assert_eq!(stores(&format!("{load}  store i32 %v, ptr %q\n")), [None]);
        let between = "  store i32 7, ptr %p\n";
        assert_eq!(stores(&format!("{load}{between}{store}")), [None, None]);
    }

    #[test]
    fn stores_on_both_sides_of_a_branch_are_one() {
        let store = "  store i32 %x, ptr %p\n";
        assert_eq!(stores(&format!("{store}{store}")), [None]);
        let other = "  store i32 %x, ptr %q\n";
        assert_eq!(stores(&format!("{store}{other}")).len(), 2);
        let load = "  %v = load i32, ptr %p\n  call void @use(i32 %v)\n";
        assert_eq!(stores(&format!("{store}{load}{store}")).len(), 2);
    }
}
