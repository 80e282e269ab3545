//! Stores to the objects that hold a value for each work-item (`passes::work_items`): those of the
//! value that the object already holds are removed, and those of one value on both sides of a branch
//! become one. The objects have no other accesses, and an access names its object and work-item.

use crate::ir::{BinaryOp, Function, Global, Instruction, Op, Value, ValueId};
use std::collections::{HashMap, HashSet};

/// A place of a work-item: object, work-item.
type ItemSlot = (Value, Value);

/// By value: the operation that defines it.
type Definitions = HashMap<ValueId, Op>;

/// Removes redundant stores in each block.
pub fn remove(function: &mut Function, globals: &[Global]) {
    let all = function.instructions();
    let definitions: Definitions = (all.filter(|i| {
        matches!(
            i.op,
            Op::Address { .. } | Op::Copy(_) | Op::Binary(BinaryOp::Xor | BinaryOp::And, ..)
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
fn place(definitions: &Definitions, globals: &[Global], address: Value) -> Option<ItemSlot> {
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
    let mut held: HashMap<Value, ItemSlot> = HashMap::new();
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

/// A store under a condition: where it is, and what it stores.
struct Conditional {
    index: usize,
    value: Value,
    place: ItemSlot,
    size: u64,
    condition: Value,
}

/// Joins stores of the same value to the same place whose conditions exclude each other, as on both
/// sides of a branch, without another access to the object between.
fn join(code: &mut Vec<Instruction>, definitions: &Definitions, globals: &[Global]) {
    // By object: the last stores, which follow each other.
    let mut open: HashMap<Value, Vec<Conditional>> = HashMap::new();
    let mut joined = HashSet::new();
    for (index, instruction) in code.iter_mut().enumerate() {
        match &mut instruction.op {
            Op::Load(address, ..) => {
                if let Some(place) = place(definitions, globals, *address) {
                    open.remove(&place.0);
                }
            }
            Op::Store {
                value,
                address,
                size,
                condition,
            } => {
                let Some(place) = place(definitions, globals, *address) else {
                    continue;
                };
                let before = open.entry(place.0).or_default();
                let value = source(definitions, *value);
                while let Some((when, last)) = condition.zip(before.last()) {
                    let same = (last.value, last.place, last.size) == (value, place, *size);
                    let when = source(definitions, when);
                    let joint = same.then(|| either(definitions, last.condition, when));
                    let Some(joint) = joint.flatten() else {
                        break;
                    };
                    // The later one remains: its condition is known by then.
                    joined.insert(last.index);
                    *condition = joint;
                    before.pop();
                }
                if let Some(condition) = condition {
                    before.push(Conditional {
                        index,
                        value,
                        place,
                        size: *size,
                        condition: source(definitions, *condition),
                    });
                } else {
                    before.clear();
                }
            }
            _ => {}
        }
    }
    let mut index = 0;
    code.retain(|_| {
        index += 1;
        !joined.contains(&(index - 1))
    });
}

/// The condition that one of two conditions holds, if it is simpler: none if they are opposites, and
/// `c` for `c && d` and `c && !d`.
fn either(definitions: &Definitions, one: Value, other: Value) -> Option<Option<Value>> {
    let opposite = |of: Value, other: Value| match of {
        Value::Local(v) => match definitions.get(&v) {
            Some(Op::Binary(BinaryOp::Xor, a, Value::Bits(1))) => source(definitions, *a) == other,
            _ => false,
        },
        _ => false,
    };
    let opposites = |a: Value, b: Value| opposite(a, b) || opposite(b, a);
    if opposites(one, other) {
        return Some(None);
    }
    let parts = |of: Value| match of {
        Value::Local(v) => match definitions.get(&v) {
            Some(Op::Binary(BinaryOp::And, a, b)) => {
                let (a, b) = (source(definitions, *a), source(definitions, *b));
                Some([(a, b), (b, a)])
            }
            _ => None,
        },
        _ => None,
    };
    let (one, other) = parts(one).zip(parts(other))?;
    let mut pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
    let found = pairs.find(|(a, b)| a.0 == b.0 && opposites(a.1, b.1));
    found.map(|(a, _)| Some(a.0))
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
        // As branches become in `flatten`: the first store under %c, the second one under %o, or under
        // %od and the third one under %last.
        let local = |name: &str| {
            let at = function.values.iter().position(|v| v.name == name);
            at.map(|v| Value::Local(ValueId(v)))
        };
        let conditions: &[&str] = if body.contains("%last") {
            &["c", "od", "last"]
        } else {
            &["c", "o"]
        };
        let mut conditions = conditions.iter().map(|name| local(name));
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

    #[test]
    fn stores_before_three_ends_are_one() {
        let store = "  store i32 %x, ptr %p\n";
        let conditions = |last: &str| {
            format!(
                "  %d = icmp eq i32 %x, 0\n  %nd = xor i1 %d, 1\n  %od = and i1 %o, %d\n  \
                 %last = and i1 {last}, %nd\n"
            )
        };
        let all = format!("{}{store}{store}{store}", conditions("%o"));
        assert_eq!(stores(&all), [None]);
        // The last one is not under the opposite of the first one's condition.
        let all = format!("{}{store}{store}{store}", conditions("%c"));
        assert_eq!(stores(&all).len(), 3);
    }
}
