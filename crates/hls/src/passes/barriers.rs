//! Barriers of a work-group: where they may be, and the blocks that they divide.

use super::ssa;
use crate::error::{Error, Result};
use crate::ir::{
    Block, BlockId, Callee, EngineCall, Function, FunctionId, Instruction, Module, Op,
};

/// Rejects barriers and identifiers in functions that are not part of the kernel's code.
pub(super) fn reject_elsewhere(module: &Module, entry: FunctionId) -> Result<()> {
    for (at, function) in module.functions.iter().enumerate() {
        if at == entry.0 {
            continue;
        }
        for instruction in function.instructions() {
            use EngineCall::{Barrier, GlobalId, GroupId, LocalId};
            let Op::Call(Callee::Engine(Barrier | GlobalId | GroupId | LocalId), _) =
                &instruction.op
            else {
                continue;
            };
            return Err(Error::unsupported(format!(
                "function '{}' is not inlined, but uses the work-item's position or a barrier",
                function.name
            ))
            .remedy("remove its attribute 'noinline'")
            .at(&instruction.position));
        }
    }
    Ok(())
}

pub(super) fn is_barrier(instruction: &Instruction) -> bool {
    matches!(
        instruction.op,
        Op::Call(Callee::Engine(EngineCall::Barrier), _)
    )
}

pub(super) fn has_barrier(block: &Block) -> bool {
    block.code.iter().any(is_barrier)
}

/// Splits blocks at barriers, which end a block then; returns the block before and after each.
pub(super) fn divide(function: &mut Function) -> Vec<(BlockId, BlockId)> {
    let mut barriers = Vec::new();
    let mut at = 0;
    while at < function.blocks.len() {
        let Some(index) = function.blocks[at].code.iter().position(is_barrier) else {
            at += 1;
            continue;
        };
        let (before, after) = (BlockId(at), BlockId(function.blocks.len()));
        let rest = function.blocks[at].code.split_off(index + 1);
        let position = function.blocks[at].code.pop().map(|i| i.position);
        let jump = Instruction::new(None, Op::Jump(after), &position.unwrap_or_default());
        function.blocks[at].code.push(jump);
        function.blocks.push(Block { code: rest });
        // The rest of the block is what its successors follow.
        for next in ssa::successors(&function.blocks[after.0]) {
            for instruction in &mut function.blocks[next.0].code {
                if let Op::Phi(sources) = &mut instruction.op {
                    let sources = sources.iter_mut().filter(|s| s.0 == before);
                    sources.for_each(|s| s.0 = after);
                }
            }
        }
        barriers.push((before, after));
        at += 1;
    }
    barriers
}
