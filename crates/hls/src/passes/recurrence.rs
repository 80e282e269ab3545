//! Values of a loop of one block that depend on each other from an iteration to the next one.

use crate::ir::{BlockId, Function, Instruction, Op, Value, ValueId};
use std::collections::{HashMap, HashSet};

/// Whether a block is a loop.
pub fn is_loop(function: &Function, at: BlockId) -> bool {
    let end = function[at].code.last().map(|i| &i.op);
    matches!(end, Some(Op::Branch(_, a, b)) if (*a == at) != (*b == at))
}

/// By value: the values of a loop that are computed from it, also in the next iteration.
pub struct Users(HashMap<ValueId, Vec<ValueId>>);

impl Users {
    pub fn new(code: &[Instruction], at: BlockId) -> Users {
        let mut users: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
        for instruction in code {
            let Some(result) = instruction.result else {
                continue;
            };
            let operands = match &instruction.op {
                Op::Phi(from) => from.iter().filter(|f| f.0 == at).map(|f| f.1).collect(),
                op => op.uses(),
            };
            for operand in operands {
                if let Value::Local(v) = operand {
                    users.entry(v).or_default().push(result);
                }
            }
        }
        Users(users)
    }

    /// The values that are computed from a value directly.
    pub fn of(&self, value: ValueId) -> &[ValueId] {
        self.0.get(&value).map_or(&[], Vec::as_slice)
    }

    /// All values that depend on a value; itself, if a later iteration's does.
    pub fn dependent(&self, from: ValueId) -> HashSet<ValueId> {
        let mut found = HashSet::new();
        let mut open = vec![from];
        while let Some(v) = open.pop() {
            for next in self.of(v) {
                if found.insert(*next) {
                    open.push(*next);
                }
            }
        }
        found
    }

    /// Whether a value depends on that of an earlier iteration.
    pub fn is_carried(&self, value: ValueId) -> bool {
        self.dependent(value).contains(&value)
    }
}
