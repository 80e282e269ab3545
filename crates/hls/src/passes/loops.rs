//! The natural loops of a function.

use super::ssa;
use crate::ir::{BlockId, Function};
use std::collections::HashSet;

/// A natural loop.
pub struct Loop {
    pub header: BlockId,
    pub blocks: HashSet<BlockId>,
}

/// The natural loops of a function; those with the same header are one.
pub fn loops(function: &Function) -> Vec<Loop> {
    let before = ssa::predecessors(function);
    let dominators = dominators(&before);
    let mut found: Vec<Loop> = Vec::new();
    for from in (0..function.blocks.len()).map(BlockId) {
        for header in ssa::successors(&function[from]) {
            // All blocks dominate one that is not reachable.
            let reachable = dominators[from.0].iter().any(|d| !d);
            if !reachable || !dominators[from.0][header.0] {
                continue;
            }
            let mut blocks = HashSet::from([header]);
            let mut open = vec![from];
            while let Some(at) = open.pop() {
                if blocks.insert(at) {
                    open.extend(&before[at.0]);
                }
            }
            match found.iter_mut().find(|l| l.header == header) {
                Some(same) => same.blocks.extend(blocks),
                None => found.push(Loop { header, blocks }),
            }
        }
    }
    found
}

/// By block: the blocks through which all paths to it lead.
fn dominators(before: &[Vec<BlockId>]) -> Vec<Vec<bool>> {
    let count = before.len();
    let mut sets = vec![vec![true; count]; count];
    if let Some(entry) = sets.first_mut() {
        *entry = (0..count).map(|other| other == 0).collect();
    }
    loop {
        let mut changed = false;
        for at in 1..count {
            let all = |other: usize| before[at].iter().all(|b| sets[b.0][other]);
            let now: Vec<bool> = (0..count).map(|other| other == at || all(other)).collect();
            changed |= now != sets[at];
            sets[at] = now;
        }
        if !changed {
            return sets;
        }
    }
}
