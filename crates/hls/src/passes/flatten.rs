//! If-conversion: moves branches into the block before them. Their computations are executed always,
//! their stores under the branch's condition, so that a loop with an `if` becomes one block and can
//! be a pipeline.
//!
//! Short branches are always moved. In a loop over work-items, and in one with operations on channels,
//! all branches are moved if that makes the loop one block; loads from buffers and operations on
//! channels then have the branch's condition, too.

use super::loops::loops;
use crate::ir::{
    BinaryOp, BlockId, Callee, EngineCall, Function, Instruction, IntPredicate, Op, Predicate,
    Type, Value,
};
use crate::units::unit;
use std::collections::HashSet;

/// Instructions of the longest branch that is moved.
const BRANCH_MAX: usize = 12;
/// The same for one that makes a loop over work-items one block, and of that block.
const WORK_ITEM_MAX: usize = 1000;

/// The same for a loop with operations on channels: up to 128 products and what they need.
const CHANNELS_MAX: usize = 6000;

/// Accesses to memory that are moved for a loop with operations on channels: the loop executes them
/// in all iterations then.
const CHANNEL_ACCESSES_MAX: usize = 96;

/// The purpose of a function's synthesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Messages,
    /// With memory off the chip, which reports addresses out of its range as errors, so loads are
    /// not executed speculatively.
    MessagesWithMemory,
    /// A kernel whose loads from buffers may have a condition.
    Accelerator,
}

/// The instructions that may be moved.
#[derive(Clone, Copy)]
struct Rules {
    length_max: usize,
    /// Loads; with the branch's condition, or without.
    loads: Loads,
    /// Units, operations on channels, and both parts of an `if` with `else`.
    all: bool,
    /// Conditions of which each one leads to the same branch, as `||` and cases have them.
    shared: bool,
    /// Volatile accesses and fences, which are executed as often as before, and in the same order.
    volatile: bool,
}

/// All that may be moved to make a loop one block.
const WHOLE: Rules = Rules {
    length_max: WORK_ITEM_MAX,
    loads: Loads::Conditional,
    all: true,
    shared: false,
    volatile: false,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Loads {
    Stay,
    Unconditional,
    Conditional,
}

/// Flattens a function until nothing changes.
pub fn flatten(function: &mut Function, target: Target) {
    let short = Rules {
        length_max: BRANCH_MAX,
        loads: match target {
            Target::Messages => Loads::Unconditional,
            _ => Loads::Stay,
        },
        all: false,
        shared: false,
        volatile: false,
    };
    let all = |function: &Function| (0..function.blocks.len()).map(BlockId).collect();
    let mut whole = None;
    if target == Target::Accelerator {
        let mut other = function.clone();
        apply(&mut other, &all(function), WHOLE);
        whole = Some(other);
    }
    apply(function, &all(function), short);
    if let Some(whole) = whole {
        if pipelines(&whole) > pipelines(function) {
            *function = whole;
        }
    }
    compact(function);
    if target == Target::Accelerator {
        flatten_channels(function);
        compact(function);
    }
}

/// Flattens the innermost loops with operations on channels that become one block.
fn flatten_channels(function: &mut Function) {
    let found = loops(function);
    for own in &found {
        let header = own.header;
        let innermost =
            |l: &super::loops::Loop| l.header == header || !own.blocks.contains(&l.header);
        let code = || own.blocks.iter().flat_map(|b| &function[*b].code);
        if own.blocks.len() == 1
            || !found.iter().all(innermost)
            || !code().any(Instruction::uses_channel)
        {
            continue;
        }
        let rules = Rules {
            shared: true,
            volatile: true,
            length_max: CHANNELS_MAX,
            ..WHOLE
        };
        let mut other = function.clone();
        apply(&mut other, &own.blocks, rules);
        let whole = &other[header].code;
        let conditional = |i: &&Instruction| {
            matches!(
                i.op,
                Op::Load(_, _, Some(_))
                    | Op::Store {
                        condition: Some(_),
                        ..
                    }
            )
        };
        let accesses = whole.iter().filter(conditional).count();
        if is_pipeline(&other, header, rules) && accesses <= CHANNEL_ACCESSES_MAX {
            *function = other;
        }
    }
}

/// Flattens blocks; `WHOLE`: until nothing changes.
fn apply(function: &mut Function, blocks: &HashSet<BlockId>, rules: Rules) {
    let mut blocks: Vec<BlockId> = blocks.iter().copied().collect();
    blocks.sort();
    loop {
        let mut changed = false;
        for &at in &blocks {
            while branch(function, at, rules)
                || (rules.all && alternative(function, at, rules))
                || (rules.shared && (shared(function, at, rules) || two_way(function, at)))
                || straight(function, at)
                || (rules.shared && hoist(function, at, rules))
            {
                changed = true;
            }
        }
        if !changed || !rules.all {
            return;
        }
    }
}

/// Loops over work-items that have one block, and can be pipelines.
fn pipelines(function: &Function) -> usize {
    let blocks = (0..function.blocks.len()).map(BlockId);
    let items = blocks.filter(|at| {
        function[*at]
            .code
            .last()
            .is_some_and(|last| last.independent)
    });
    items.filter(|at| is_pipeline(function, *at, WHOLE)).count()
}

/// Whether a block is a loop, and can be a pipeline.
fn is_pipeline(function: &Function, at: BlockId, rules: Rules) -> bool {
    let fits = |i: &Instruction| match &i.op {
        Op::Call(Callee::Engine(call), _) => {
            call.is_pure() || call.uses_channel() || (rules.volatile && *call == EngineCall::Fence)
        }
        Op::Call(..) => false,
        _ => (rules.volatile || !i.volatile) && !unit(function, i).is_some_and(|kind| kind.waits()),
    };
    let code = &function[at].code;
    let loops = code
        .last()
        .is_some_and(|last| targets(&last.op).contains(&at));
    loops && code.len() <= rules.length_max && code.iter().all(fits)
}

fn end(function: &Function, block: BlockId) -> Option<&Op> {
    function[block].code.last().map(|i| &i.op)
}

fn targets(op: &Op) -> Vec<BlockId> {
    match op {
        Op::Jump(to) => vec![*to],
        Op::Branch(_, a, b) => vec![*a, *b],
        Op::Switch {
            cases, default: to, ..
        } => cases.iter().map(|c| c.1).chain([*to]).collect(),
        _ => Vec::new(),
    }
}

fn before(function: &Function, block: BlockId) -> Vec<BlockId> {
    (0..function.blocks.len())
        .map(BlockId)
        .flat_map(|b| {
            end(function, b)
                .map(targets)
                .unwrap_or_default()
                .into_iter()
                .map(move |t| (b, t))
        })
        .filter(|(_, t)| *t == block)
        .map(|(b, _)| b)
        .collect()
}

/// Whether an instruction may be moved.
fn moves(function: &Function, instruction: &Instruction, rules: Rules) -> bool {
    let may = !instruction.volatile || rules.volatile || !rules.all;
    let plain = match &instruction.op {
        Op::Load(..) => rules.loads != Loads::Stay && may,
        Op::Store {
            condition: Some(_), ..
        } => rules.all && may,
        Op::Call(Callee::Engine(call), _) => {
            let own = call.is_pure() || call.uses_channel();
            rules.all && (own || (rules.volatile && *call == EngineCall::Fence))
        }
        Op::Call(..) | Op::Phi(_) | Op::Local(_) => false,
        _ => true,
    };
    let unit = unit(function, instruction);
    plain && unit.is_none_or(|kind| rules.all && !kind.waits())
}

/// The code of a block that only `at` precedes and that jumps to another, without the jump.
fn movable(
    function: &Function,
    at: BlockId,
    inside: BlockId,
    rules: Rules,
) -> Option<(Vec<Instruction>, BlockId)> {
    let Some(&Op::Jump(next)) = end(function, inside) else {
        return None;
    };
    let body = body(function, at, inside, rules)?;
    (inside != next && next != at).then_some((body, next))
}

/// The code of a block that only `at` precedes, without its end, if all of it may be moved.
fn body(
    function: &Function,
    at: BlockId,
    inside: BlockId,
    rules: Rules,
) -> Option<Vec<Instruction>> {
    let (_, body) = function[inside].code.split_last()?;
    let body: Vec<Instruction> = body.iter().map(without_choice).collect();
    let fits = inside != at
        && body.len() <= rules.length_max
        && before(function, inside) == [at]
        && body.iter().all(|i| moves(function, i, rules));
    fits.then_some(body)
}

/// An instruction; a phi of a block with one predecessor is a copy.
fn without_choice(instruction: &Instruction) -> Instruction {
    let mut instruction = instruction.clone();
    if let Op::Phi(from) = &instruction.op {
        if let [(_, value)] = from.as_slice() {
            instruction.op = Op::Copy(*value);
        }
    }
    instruction
}

/// Gives stores, operations on channels, and loads if the rules require it, a condition, in
/// addition to their own.
fn restrict(
    function: &mut Function,
    body: Vec<Instruction>,
    when: Value,
    rules: Rules,
    out: &mut Vec<Instruction>,
) {
    for mut instruction in body {
        let mut restricted = |own: Option<Value>| match own {
            None | Some(Value::Bits(1)) => when,
            Some(more) => {
                let both = function.value("both", Type::Int(1));
                let op = Op::Binary(BinaryOp::And, when, more);
                out.push(Instruction::new(Some(both), op, &instruction.position));
                Value::Local(both)
            }
        };
        match &mut instruction.op {
            Op::Store { condition, .. } => *condition = Some(restricted(*condition)),
            Op::Load(_, _, condition) if rules.loads == Loads::Conditional => {
                *condition = Some(restricted(*condition));
            }
            Op::Call(Callee::Engine(call), arguments)
                if call.uses_channel() || *call == EngineCall::Fence =>
            {
                if let Some((_, condition)) = arguments.first_mut() {
                    *condition = restricted(Some(*condition));
                }
            }
            _ => {}
        }
        out.push(instruction);
    }
}

fn has_condition(body: &[Instruction], rules: Rules) -> bool {
    body.iter().any(|i| match i.op {
        Op::Store { .. } => true,
        Op::Load(..) => rules.loads == Loads::Conditional,
        Op::Call(Callee::Engine(EngineCall::Fence), _) => true,
        _ => i.uses_channel(),
    })
}

/// Adds the opposite of a condition.
fn opposite(
    function: &mut Function,
    condition: Value,
    like: &Instruction,
    add: &mut Vec<Instruction>,
) -> Value {
    let result = function.value("otherwise", Type::Int(1));
    let op = Op::Binary(BinaryOp::Xor, condition, Value::Bits(1));
    add.push(Instruction::new(Some(result), op, &like.position));
    Value::Local(result)
}

/// Makes the phis of a block selections by a condition between the values of two blocks, of which
/// `at` remains, and jumps to it.
fn select(
    function: &mut Function,
    (at, next): (BlockId, BlockId),
    sides: (BlockId, BlockId),
    (condition, like): (Value, &Instruction),
    add: &mut Vec<Instruction>,
) {
    join(function, (at, next), sides, (condition, like), add);
    add.push(Instruction::new(None, Op::Jump(next), &like.position));
}

/// The same without the jump.
fn join(
    function: &mut Function,
    (at, next): (BlockId, BlockId),
    (yes, no): (BlockId, BlockId),
    (condition, like): (Value, &Instruction),
    add: &mut Vec<Instruction>,
) {
    let mut chosen = Vec::new();
    for (index, instruction) in function[next].code.iter().enumerate() {
        let Op::Phi(from) = &instruction.op else {
            break;
        };
        let of = |b: BlockId| from.iter().find(|f| f.0 == b).map_or(Value::Undef, |f| f.1);
        chosen.extend(instruction.result.map(|phi| (index, phi, of(yes), of(no))));
    }
    for (index, phi, a, b) in chosen {
        let local = function[phi].clone();
        let select = function.value(&local.name, local.ty);
        let op = if a == b {
            Op::Copy(a)
        } else {
            Op::Select(condition, a, b)
        };
        add.push(Instruction::new(Some(select), op, &like.position));
        if let Op::Phi(from) = &mut function[next].code[index].op {
            from.retain(|f| f.0 != yes && f.0 != no && f.0 != at);
            from.push((at, Value::Local(select)));
        }
    }
}

/// `if (c) { … }` at a block's end.
fn branch(function: &mut Function, at: BlockId, rules: Rules) -> bool {
    let Some(&Op::Branch(condition, yes, no)) = end(function, at) else {
        return false;
    };
    let found = |inside: BlockId, next: BlockId| {
        movable(function, at, inside, rules).filter(|(_, to)| *to == next)
    };
    let (body, inside, next, negated) = if let Some((body, next)) = found(yes, no) {
        (body, yes, next, false)
    } else if let Some((body, next)) = found(no, yes) {
        (body, no, next, true)
    } else {
        return false;
    };
    let Some(last) = function[at].code.pop() else {
        return false;
    };
    let mut add = Vec::new();
    let mut when = condition;
    if negated && has_condition(&body, rules) {
        when = opposite(function, condition, &last, &mut add);
    }
    restrict(function, body, when, rules, &mut add);
    let sides = if negated { (at, inside) } else { (inside, at) };
    select(function, (at, next), sides, (condition, &last), &mut add);
    function[inside].code.clear();
    function[at].code.extend(add);
    true
}

/// `if (c) { … } else { … }` at a block's end.
fn alternative(function: &mut Function, at: BlockId, rules: Rules) -> bool {
    let Some(&Op::Branch(condition, yes, no)) = end(function, at) else {
        return false;
    };
    let sides = movable(function, at, yes, rules).zip(movable(function, at, no, rules));
    let Some(((first, next), (second, other))) = sides else {
        return false;
    };
    if next != other || yes == no {
        return false;
    }
    let Some(last) = function[at].code.pop() else {
        return false;
    };
    let mut add = Vec::new();
    restrict(function, first, condition, rules, &mut add);
    let when = opposite(function, condition, &last, &mut add);
    restrict(function, second, when, rules, &mut add);
    select(
        function,
        (at, next),
        (yes, no),
        (condition, &last),
        &mut add,
    );
    function[yes].code.clear();
    function[no].code.clear();
    function[at].code.extend(add);
    true
}

/// `if (a || b) { … }` at a block's end: two branches that lead to the same block.
fn shared(function: &mut Function, at: BlockId, rules: Rules) -> bool {
    let Some(&Op::Branch(condition, yes, no)) = end(function, at) else {
        return false;
    };
    let found = [(no, yes), (yes, no)].into_iter().find_map(|(inside, to)| {
        let Some(&Op::Branch(second, a, b)) = end(function, inside) else {
            return None;
        };
        let rest = if a == to { b } else { a };
        let fits = (a == to) != (b == to) && ![to, rest].iter().any(|t| *t == at || *t == inside);
        let body = body(function, at, inside, rules).filter(|_| fits)?;
        Some((body, inside, to, (second, a == to, rest)))
    });
    let Some((body, inside, to, (second, leads, rest))) = found else {
        return false;
    };
    let Some(last) = function[at].code.pop() else {
        return false;
    };
    let mut add = Vec::new();
    let other = opposite(function, condition, &last, &mut add);
    let (first, inner) = if to == yes {
        (condition, other)
    } else {
        (other, condition)
    };
    restrict(function, body, inner, rules, &mut add);
    let second = if leads {
        second
    } else {
        opposite(function, second, &last, &mut add)
    };
    let either = function.value("either", Type::Int(1));
    let op = Op::Binary(BinaryOp::Or, first, second);
    add.push(Instruction::new(Some(either), op, &last.position));
    join(function, (at, to), (at, inside), (first, &last), &mut add);
    for instruction in &mut function[rest].code {
        if let Op::Phi(from) = &mut instruction.op {
            from.iter_mut()
                .filter(|f| f.0 == inside)
                .for_each(|f| f.0 = at);
        }
    }
    let op = Op::Branch(Value::Local(either), to, rest);
    add.push(Instruction {
        op,
        result: None,
        ..last
    });
    function[inside].code.clear();
    function[at].code.extend(add);
    true
}

/// Moves the code of one side of a branch at a block's end, if both have the same end as others:
/// the branch leads to that end then.
fn hoist(function: &mut Function, at: BlockId, rules: Rules) -> bool {
    let Some(&Op::Branch(condition, yes, no)) = end(function, at) else {
        return false;
    };
    let found = [(yes, true), (no, false)]
        .into_iter()
        .find_map(|(inside, is_yes)| {
            let (body, next) = movable(function, at, inside, rules)?;
            // With an edge of its own, the branch is an `if`.
            let is_new = next != yes && next != no && !before(function, next).contains(&at);
            is_new.then_some((body, inside, next, is_yes))
        });
    let Some((body, inside, next, is_yes)) = found else {
        return false;
    };
    let Some(mut last) = function[at].code.pop() else {
        return false;
    };
    let mut add = Vec::new();
    let mut when = condition;
    if !is_yes && has_condition(&body, rules) {
        when = opposite(function, condition, &last, &mut add);
    }
    restrict(function, body, when, rules, &mut add);
    last.op = if is_yes {
        Op::Branch(condition, next, no)
    } else {
        Op::Branch(condition, yes, next)
    };
    add.push(last);
    for instruction in &mut function[next].code {
        if let Op::Phi(from) = &mut instruction.op {
            let edges = from.iter_mut().filter(|f| f.0 == inside);
            edges.for_each(|f| f.0 = at);
        }
    }
    function[inside].code.clear();
    function[at].code.extend(add);
    true
}

/// Makes a branch of a `switch` whose cases lead to the same block.
fn two_way(function: &mut Function, at: BlockId) -> bool {
    let Some(Op::Switch {
        value,
        bits,
        cases,
        default,
    }) = end(function, at).cloned()
    else {
        return false;
    };
    let Some(to) = cases.first().map(|case| case.1) else {
        return false;
    };
    if to == default || cases.iter().any(|case| case.1 != to) {
        return false;
    }
    let Some(last) = function[at].code.pop() else {
        return false;
    };
    let mut add = Vec::new();
    let mut any = None;
    for (case, _) in cases {
        let same = function.value("is_case", Type::Int(1));
        let op = Op::Compare {
            predicate: Predicate::Int(IntPredicate::Equal),
            bits,
            left: value,
            right: Value::Bits(case),
        };
        add.push(Instruction::new(Some(same), op, &last.position));
        any = Some(match any {
            None => Value::Local(same),
            Some(before) => {
                let either = function.value("either", Type::Int(1));
                let op = Op::Binary(BinaryOp::Or, before, Value::Local(same));
                add.push(Instruction::new(Some(either), op, &last.position));
                Value::Local(either)
            }
        });
    }
    add.push(Instruction {
        op: Op::Branch(any.unwrap_or(Value::Bits(0)), to, default),
        result: None,
        ..last
    });
    function[at].code.extend(add);
    // The block had an edge for each case.
    for instruction in &mut function[to].code {
        if let Op::Phi(from) = &mut instruction.op {
            let mut is_first = true;
            from.retain(|f| f.0 != at || std::mem::replace(&mut is_first, false));
        }
    }
    true
}

/// Merges a block with its only successor, if that has no other predecessor.
fn straight(function: &mut Function, at: BlockId) -> bool {
    let Some(&Op::Jump(next)) = end(function, at) else {
        return false;
    };
    if next == at || next == BlockId(0) || before(function, next) != [at] {
        return false;
    }
    let code = std::mem::take(&mut function[next].code);
    function[at].code.pop();
    for mut instruction in code {
        if let Op::Phi(from) = &instruction.op {
            instruction.op = Op::Copy(from.first().map_or(Value::Undef, |f| f.1));
        }
        function[at].code.push(instruction);
    }
    for block in &mut function.blocks {
        for instruction in &mut block.code {
            if let Op::Phi(from) = &mut instruction.op {
                from.iter_mut()
                    .filter(|f| f.0 == next)
                    .for_each(|f| f.0 = at);
            }
        }
    }
    true
}

/// Removes blocks without code.
fn compact(function: &mut Function) {
    let mut moved = vec![BlockId(0); function.blocks.len()];
    let mut kept = 0;
    for (at, block) in function.blocks.iter().enumerate() {
        moved[at] = BlockId(kept);
        kept += usize::from(!block.code.is_empty());
    }
    function.blocks.retain(|b| !b.code.is_empty());
    for instruction in function.blocks.iter_mut().flat_map(|b| &mut b.code) {
        instruction.op.blocks(&mut |b| *b = moved[b.0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    fn flattened(then: &str) -> Function {
        let mut function = first_function(&format!(
            "define void @f(i1 %c, ptr %p) {{\nentry:\n  br i1 %c, label %then, label %done\n\
             then:\n{then}\n  br label %done\ndone:\n  %x = phi i32 [ 1, %entry ], [ 2, %then ]\n  \
             store i32 %x, ptr %p, align 4\n  ret void\n}}\n"
        ));
        flatten(&mut function, Target::Messages);
        function
    }

    #[test]
    fn stores_of_a_branch_get_its_condition() {
        let function = flattened("  store i32 7, ptr %p, align 4");
        assert_eq!(function.blocks.len(), 1);
        let conditions: Vec<_> = function
            .instructions()
            .filter_map(|i| match i.op {
                Op::Store { condition, .. } => Some(condition.is_some()),
                _ => None,
            })
            .collect();
        assert_eq!(conditions, [true, false]);
        assert!(function
            .instructions()
            .any(|i| matches!(i.op, Op::Select(..))));
    }

    #[test]
    fn branches_with_calls_stay() {
        let function = flattened("  call void @hum_port_text(i32 7)");
        assert_eq!(function.blocks.len(), 3);
    }

    #[test]
    fn a_loop_over_work_items_becomes_one_block() {
        let with = |call: &str| {
            let mut function = first_function(&format!(
                "define void @f(i1 %c, ptr %p, i32 %n) {{\nentry:\n  br label %loop\nloop:\n  \
                 %i = phi i32 [ 0, %entry ], [ %next, %end ]\n  br i1 %c, label %a, label %b\na:\n  \
                 %x = load i32, ptr %p, align 4\n  %z = mul i32 %x, %i\n  br label %end\nb:\n  \
                 store i32 %i, ptr %p, align 4\n  br label %end\nend:\n  \
                 %y = phi i32 [ %z, %a ], [ 5, %b ]\n  store i32 %y, ptr %p, align 4\n{call}  \
                 %next = add i32 %i, 1\n  %last = icmp eq i32 %next, %n\n  \
                 br i1 %last, label %done, label %loop\ndone:\n  ret void\n}}\n"
            ));
            for last in function.blocks.iter_mut().filter_map(|b| b.code.last_mut()) {
                last.independent = matches!(last.op, Op::Branch(Value::Local(_), _, BlockId(1)));
            }
            flatten(&mut function, Target::Accelerator);
            function
        };
        let function = with("");
        assert_eq!(function.blocks.len(), 3);
        let conditions: Vec<_> = function
            .instructions()
            .filter_map(|i| match i.op {
                Op::Load(_, _, condition) | Op::Store { condition, .. } => Some(condition),
                _ => None,
            })
            .collect();
        let [Some(load), Some(store), None] = conditions.as_slice() else {
            panic!("{conditions:?}");
        };
        assert_ne!(load, store);
        // A call is not executed speculatively, and prevents a pipeline.
        let function = with("  call void @hum_port_text(i32 7)\n");
        assert_eq!(function.blocks.len(), 6);
    }

    #[test]
    fn a_loop_with_channels_becomes_one_block() {
        let mut function = first_function(
            "define void @f(i32 %n, i32 %m) {\nentry:\n  br label %loop\nloop:\n  \
             %i = phi i32 [ 0, %entry ], [ %next, %end ]\n  %c = icmp eq i32 %i, %m\n  \
             br i1 %c, label %then, label %other\nother:\n  %d = icmp ugt i32 %i, 7\n  \
             br i1 %d, label %then, label %end\nthen:\n  \
             %x = phi i32 [ 1, %loop ], [ 2, %other ]\n  call void @hum_port_text(i32 %x)\n  \
             br label %end\nend:\n  %next = add i32 %i, 1\n  %last = icmp eq i32 %next, %n\n  \
             br i1 %last, label %done, label %loop\ndone:\n  ret void\n}\n",
        );
        let text = function.blocks.iter_mut().flat_map(|b| &mut b.code);
        for instruction in text.filter(|i| matches!(i.op, Op::Call(..))) {
            let always = (Type::Int(1), Value::Bits(1));
            let call = Callee::Engine(EngineCall::ChannelRead(0));
            instruction.op = Op::Call(call, vec![always]);
        }
        flatten(&mut function, Target::Accelerator);
        assert_eq!(function.blocks.len(), 3);
        let mut code = function.instructions();
        let condition = code.find_map(|i| match &i.op {
            Op::Call(_, arguments) => Some(arguments[0].1),
            _ => None,
        });
        let defined = |v: Value| {
            function
                .instructions()
                .find(|i| i.result.map(Value::Local) == Some(v))
        };
        let condition = condition.and_then(defined).map(|i| &i.op);
        assert!(
            matches!(condition, Some(Op::Binary(BinaryOp::Or, ..))),
            "{condition:?}"
        );
    }

    #[test]
    fn branches_that_share_an_end_and_volatile_loads_become_one_block() {
        let mut function = first_function(
            "define void @f(i32 %n, i32 %m, ptr %p) {\nentry:\n  br label %loop\nloop:\n  \
             %i = phi i32 [ 0, %entry ], [ %next, %end ]\n  call void @hum_port_text(i32 %i)\n  \
             %c = icmp eq i32 %i, %m\n  br i1 %c, label %both, label %other\nother:\n  \
             %x = load volatile i32, ptr %p, align 4\n  br label %rest\nboth:\n  \
             %d = icmp ugt i32 %i, 7\n  br i1 %d, label %end, label %rest\nrest:\n  \
             %y = phi i32 [ %x, %other ], [ 5, %both ]\n  store i32 %y, ptr %p, align 4\n  \
             br label %end\nend:\n  %z = phi i32 [ %y, %rest ], [ 1, %both ]\n  \
             %next = add i32 %i, %z\n  %last = icmp eq i32 %next, %n\n  \
             br i1 %last, label %done, label %loop\ndone:\n  ret void\n}\n",
        );
        let text = function.blocks.iter_mut().flat_map(|b| &mut b.code);
        for instruction in text.filter(|i| matches!(i.op, Op::Call(..))) {
            let always = (Type::Int(1), Value::Bits(1));
            let call = Callee::Engine(EngineCall::ChannelWrite(0));
            instruction.op = Op::Call(call, vec![always]);
        }
        flatten(&mut function, Target::Accelerator);
        assert_eq!(function.blocks.len(), 3);
        let mut code = function.instructions();
        let load = code.find(|i| matches!(i.op, Op::Load(_, _, Some(_))));
        assert!(load.is_some_and(|load| load.volatile));
    }
}
