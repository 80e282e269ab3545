//! Gives loads from buffers that do not depend on a store a port of their own (`kernel_readers`), with
//! lines that are requested ahead. Further loads share them.
//!
//! A load depends on the stores that the same work-item executes before it, in a kernel with barriers
//! also on those of its group. Stores of others need no order in a kernel without atomic functions:
//! the load may return the contents before or after them. Kernels with fences have no such ports. Such a load is executed when its port is ready, in any order
//! with accesses by the cache's port, except for stores that follow it in its work-item
//! ([`crate::schedule`]).

use super::ssa::successors;
use crate::ir::{BlockId, Callee, EngineCall, Function, FunctionId, Instruction, Module, Op};
use crate::memory::Memories;

/// Ports of a kernel.
const PORTS_MAX: u32 = 16;

/// Assigns ports in the first function, that of all work-items; `barriers`: the kernel has some.
pub fn assign(module: &mut Module, memories: &Memories, barriers: bool) {
    let is_fence = |i: &Instruction| matches!(i.op, Op::Call(Callee::Engine(EngineCall::Fence), _));
    let ordered = |f: &Function| f.instructions().any(|i| i.volatile || is_fence(i));
    if module.functions.iter().any(ordered) {
        return;
    }
    let stores = |at: usize, i: &Instruction| {
        let Op::Store { address, .. } = i.op else {
            return false;
        };
        memories.far(FunctionId(at), address)
    };
    // A function may be called between a load and a store.
    let mut others = module.functions.iter().enumerate().skip(1);
    if others.any(|(at, f)| f.instructions().any(|i| stores(at, i))) {
        return;
    }
    let Some(function) = module.functions.first() else {
        return;
    };
    // At its end, stores matter no longer.
    let ends = |i: &Instruction| i.group_end || (i.independent && !barriers);
    let stored = stored_before(function, &|i| stores(0, i), &ends);
    let Some(function) = module.functions.first_mut() else {
        return;
    };
    let mut port = 0;
    for (block, stored) in function.blocks.iter_mut().zip(stored) {
        let mut stored = stored;
        for instruction in &mut block.code {
            stored = stored || stores(0, instruction);
            let Op::Load(address, ..) = instruction.op else {
                continue;
            };
            if !stored && memories.far(FunctionId(0), address) {
                instruction.reader = Some(port % PORTS_MAX);
                port += 1;
            }
        }
    }
}

/// By block: whether its work-item, or its group, may have executed a store before it. `ends`: the
/// branch at whose end a work-item or group ends.
fn stored_before(
    function: &Function,
    stores: &dyn Fn(&Instruction) -> bool,
    ends: &dyn Fn(&Instruction) -> bool,
) -> Vec<bool> {
    let mut stored = vec![false; function.blocks.len()];
    let mut open: Vec<BlockId> = Vec::new();
    let own = |at: BlockId| function[at].code.iter().any(stores);
    let ends = |at: BlockId| function[at].code.last().is_some_and(ends);
    open.extend((0..function.blocks.len()).map(BlockId).filter(|b| own(*b)));
    while let Some(at) = open.pop() {
        if ends(at) {
            continue;
        }
        for next in successors(&function[at]) {
            if !std::mem::replace(&mut stored[next.0], true) {
                open.push(next);
            }
        }
    }
    stored
}
