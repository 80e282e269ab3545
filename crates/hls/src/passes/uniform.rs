//! Values and blocks that are the same for all work-items of a group.
//!
//! A value varies if it depends on the work-item's position, on memory or on a call, or if it is
//! selected by control flow that varies. A branch on a value that varies makes the blocks vary that
//! follow it, up to those that all paths reach.

use super::ssa;
use crate::ir::{BlockId, Callee, EngineCall, Function, Op, Value, ValueId};
use std::collections::HashSet;

/// The values that differ between the work-items of a group.
pub struct Varying {
    pub values: HashSet<ValueId>,
    /// By block: whether some work-items may execute it while others do not, or another number of
    /// times.
    pub blocks: Vec<bool>,
}

impl Varying {
    /// The values that are defined for all work-items, and are the same for them.
    pub fn uniform(&self, function: &Function) -> HashSet<ValueId> {
        let blocks = function.blocks.iter().zip(&self.blocks);
        let code = blocks.filter(|b| !b.1).flat_map(|b| &b.0.code);
        let results = code.filter_map(|i| i.result);
        results.filter(|v| !self.values.contains(v)).collect()
    }
}

/// Analyzes an OpenCL kernel's code of one work-item.
pub fn varying(function: &Function) -> Varying {
    let after = postdominators(function);
    let mut found = Varying {
        values: HashSet::new(),
        blocks: vec![false; function.blocks.len()],
    };
    loop {
        let before = (found.values.len(), found.blocks.clone());
        for (at, block) in function.blocks.iter().enumerate() {
            for instruction in &block.code {
                let varies = is_source(&instruction.op)
                    || matches!(instruction.op, Op::Phi(_)) && found.blocks[at]
                    || instruction.op.uses().iter().any(|v| found.is_varying(*v));
                if !varies {
                    continue;
                }
                found.values.extend(instruction.result);
                if matches!(instruction.op, Op::Branch(..) | Op::Switch { .. }) {
                    found.diverge(function, BlockId(at), &after[at]);
                }
            }
        }
        if before == (found.values.len(), found.blocks.clone()) {
            return found;
        }
    }
}

impl Varying {
    fn is_varying(&self, value: Value) -> bool {
        matches!(value, Value::Local(v) if self.values.contains(&v))
    }

    /// Marks the blocks between a branch and the blocks that all paths from it reach, `after`, and
    /// the phis of these.
    fn diverge(&mut self, function: &Function, at: BlockId, after: &[bool]) {
        let mut open = ssa::successors(&function[at]);
        let mut seen = HashSet::new();
        while let Some(block) = open.pop() {
            if !seen.insert(block) {
                continue;
            }
            if block != at && after[block.0] {
                let code = function[block].code.iter();
                let phis = code.take_while(|i| matches!(i.op, Op::Phi(_)));
                self.values.extend(phis.filter_map(|i| i.result));
                continue;
            }
            self.blocks[block.0] = true;
            open.extend(ssa::successors(&function[block]));
        }
    }
}

fn is_source(op: &Op) -> bool {
    match op {
        Op::Load(..) | Op::Local(_) => true,
        Op::Call(Callee::Engine(EngineCall::Word | EngineCall::GroupId), _) => false,
        Op::Call(..) => true,
        _ => false,
    }
}

/// By block: the blocks that all paths from it to an end reach. A block from which no path ends has
/// only itself.
fn postdominators(function: &Function) -> Vec<Vec<bool>> {
    let count = function.blocks.len();
    let next: Vec<Vec<BlockId>> = function.blocks.iter().map(ssa::successors).collect();
    let mut ends: Vec<bool> = next.iter().map(Vec::is_empty).collect();
    while let Some(at) = (0..count).find(|&at| !ends[at] && next[at].iter().any(|n| ends[n.0])) {
        ends[at] = true;
    }
    let own = |at: usize| (0..count).map(|other| other == at).collect::<Vec<bool>>();
    let open = |at: usize| ends[at] && !next[at].is_empty();
    let mut sets: Vec<Vec<bool>> = (0..count)
        .map(|at| if open(at) { vec![true; count] } else { own(at) })
        .collect();
    loop {
        let mut changed = false;
        for at in (0..count).rev().filter(|&at| open(at)) {
            let all = |other: usize| next[at].iter().all(|n| sets[n.0][other]);
            let now: Vec<bool> = (0..count).map(|other| other == at || all(other)).collect();
            changed |= now != sets[at];
            sets[at] = now;
        }
        if !changed {
            return sets;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::calls;

    fn analyzed(body: &str) -> (Function, Varying) {
        let text = format!(
            "declare i32 @__baltra_local_id(i32)\ndefine void @f(i32 %n, ptr %p) {{\n{body}\n}}\n"
        );
        let mut module = crate::parse::module(&text).unwrap();
        calls::resolve(&mut module, "f").unwrap();
        let function = module.functions[0].clone();
        let found = varying(&function);
        (function, found)
    }

    fn named(function: &Function, name: &str) -> ValueId {
        let found = function.values.iter().position(|v| v.name == name);
        ValueId(found.unwrap_or_else(|| panic!("no value {name}")))
    }

    #[test]
    fn counters_of_loops_with_a_common_end_are_uniform() {
        let (function, found) = analyzed(
            "entry:\n  %x = call i32 @__baltra_local_id(i32 0)\n  br label %loop\nloop:\n  \
             %i = phi i32 [ 0, %entry ], [ %next, %join ]\n  \
             %sum = phi i32 [ 0, %entry ], [ %more, %join ]\n  %odd = icmp eq i32 %x, %i\n  \
             br i1 %odd, label %add, label %join\nadd:\n  %added = add i32 %sum, 5\n  \
             br label %join\njoin:\n  %more = phi i32 [ %sum, %loop ], [ %added, %add ]\n  \
             %next = add i32 %i, 1\n  %end = icmp eq i32 %next, %n\n  \
             br i1 %end, label %done, label %loop\ndone:\n  ret void",
        );
        assert!(found.uniform(&function).contains(&named(&function, "i")));
        assert!(!found.uniform(&function).contains(&named(&function, "sum")));
        assert_eq!(found.blocks, [false, false, true, false, false]);
    }

    #[test]
    fn loops_that_work_items_leave_at_different_times_vary() {
        let (function, found) = analyzed(
            "entry:\n  %x = call i32 @__baltra_local_id(i32 0)\n  br label %loop\nloop:\n  \
             %i = phi i32 [ 0, %entry ], [ %next, %loop ]\n  %next = add i32 %i, 1\n  \
             %end = icmp eq i32 %next, %x\n  br i1 %end, label %done, label %loop\ndone:\n  \
             %last = add i32 %i, 7\n  ret void",
        );
        assert!(!found.uniform(&function).contains(&named(&function, "i")));
        assert!(!found.uniform(&function).contains(&named(&function, "last")));
        assert_eq!(found.blocks, [false, true, false]);
    }

    #[test]
    fn a_value_from_memory_varies() {
        let (function, found) = analyzed(
            "entry:\n  %v = load i32, ptr %p, align 4\n  %w = add i32 %n, 3\n  \
             %c = icmp eq i32 %v, 0\n  br i1 %c, label %a, label %b\na:\n  br label %b\nb:\n  \
             %either = phi i32 [ 1, %entry ], [ 2, %a ]\n  ret void",
        );
        assert!(!found.uniform(&function).contains(&named(&function, "v")));
        assert!(found.uniform(&function).contains(&named(&function, "w")));
        assert!(!found
            .uniform(&function)
            .contains(&named(&function, "either")));
    }
}
