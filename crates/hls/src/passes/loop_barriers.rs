//! Barriers in loops whose iterations all work-items of a group, or a part, execute together: each
//! iteration becomes a region, so that the loop over work-items is inside of the loop. The work-items
//! are a pipeline then, and the latency of a sum over iterations is hidden by other work-items, whose
//! sums are in RAMs.
//!
//! A loop with a barrier also gets one after it, if what follows accesses memory, or always in a kernel
//! without barriers of its own: otherwise the region of the loop's last iteration, and so all of them,
//! would reserve time for that.

use super::barriers::{has_barrier, is_barrier};
use super::loops::{loops, Loop};
use super::ssa;
use super::uniform::Varying;
use crate::ir::{Block, BlockId, Callee, EngineCall, Function, Instruction, Op};

/// Bytes of values per work-item that the iterations of a loop pass on.
const CARRIED_BYTES_MAX: u64 = 512;

/// Whether the work-items of a kernel without barriers may execute iterations together: they differ
/// in their position, and have no order among each other, as that of operations on channels.
pub fn suits_parts(function: &Function) -> bool {
    use EngineCall::{Fence, GlobalId, Text};
    let calls = |call: fn(&EngineCall) -> bool| {
        let mut all = function.instructions();
        all.any(|i| matches!(&i.op, Op::Call(Callee::Engine(own), _) if call(own)))
    };
    let ordered = |i: &Instruction| i.volatile || i.uses_channel();
    calls(|call| matches!(call, GlobalId))
        && !calls(|call| matches!(call, Fence | Text))
        && !function.instructions().any(ordered)
}

/// Inserts the barriers, before `barriers::divide`. `together`: also in loops, and not only after those
/// that have one.
pub fn insert(function: &mut Function, varying: &Varying, together: bool) {
    let loops = loops(function);
    let parts = !function.blocks.iter().any(has_barrier);
    let divided = |l: &Loop, f: &Function| l.blocks.iter().any(|b| has_barrier(&f[*b]));
    let mut starts = Vec::new();
    for own in loops.iter().filter(|_| together) {
        let innermost =
            (loops.iter()).all(|l| l.header == own.header || !own.blocks.contains(&l.header));
        let suits = passes_on_little(function, own, varying)
            && (parts || own.blocks.iter().any(|b| accesses(&function[*b])));
        if innermost && !divided(own, function) && suits {
            starts.push(own.header);
        }
    }
    for own in &loops {
        if !divided(own, function) && !starts.iter().any(|s| own.blocks.contains(s)) {
            continue;
        }
        for at in &own.blocks {
            let next = ssa::successors(&function[*at]).into_iter();
            let ends = |to: &BlockId| parts || accesses(&function[*to]);
            starts.extend(next.filter(|to| !own.blocks.contains(to) && ends(to)));
        }
    }
    starts.sort();
    starts.dedup();
    for at in starts {
        if !varying.blocks[at.0] {
            let code = &mut function[at].code;
            let phis = code.iter().take_while(|i| matches!(i.op, Op::Phi(_)));
            let position = phis.clone().next().map(|i| i.position.clone());
            let call = Op::Call(Callee::Engine(EngineCall::Barrier), Vec::new());
            let barrier = Instruction::new(None, call, &position.unwrap_or_default());
            let index = phis.count();
            code.insert(index, barrier);
        }
    }
}

/// Whether a block accesses memory before a barrier.
fn accesses(block: &Block) -> bool {
    let mut code = block.code.iter().take_while(|i| !is_barrier(i));
    code.any(|i| matches!(i.op, Op::Load(..) | Op::Store { .. }))
}

/// Whether a loop's iterations pass on few values to the next ones, without atomic functions.
fn passes_on_little(function: &Function, own: &Loop, varying: &Varying) -> bool {
    let code = || own.blocks.iter().flat_map(|b| &function[*b].code);
    let plain = code().all(|i| !i.volatile && !matches!(i.op, Op::Call(Callee::Function(_), _)));
    let phis = function[own.header].code.iter();
    let phis = phis.take_while(|i| matches!(i.op, Op::Phi(_)));
    let carried = phis.filter_map(|i| i.result);
    let carried = carried.filter(|v| varying.values.contains(v));
    let bytes: u64 = carried.map(|v| function[v].ty.size()).sum();
    plain && bytes <= CARRIED_BYTES_MAX
}
