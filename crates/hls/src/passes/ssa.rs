//! Restores the property that each value has one definition: values with several become a value
//! for each definition, with phis where control flow merges.

use crate::ir::{Block, BlockId, Function, Instruction, Op, Value, ValueId};
use std::collections::{HashMap, HashSet};

/// Restores the property, and removes blocks that are not reachable and superfluous phis.
pub fn restore(function: &mut Function) {
    remove_unreachable(function);
    Renaming::new(function).run();
    simplify(function);
}

/// The blocks that may follow a block.
pub fn successors(block: &Block) -> Vec<BlockId> {
    let mut out = Vec::new();
    if let Some(last) = block.code.last() {
        if !matches!(last.op, Op::Phi(_)) {
            last.op.clone().blocks(&mut |b| out.push(*b));
        }
    }
    out.dedup();
    out
}

/// The blocks before each block.
pub fn predecessors(function: &Function) -> Vec<Vec<BlockId>> {
    let mut all = vec![Vec::new(); function.blocks.len()];
    for (at, block) in function.blocks.iter().enumerate() {
        for next in successors(block) {
            if !all[next.0].contains(&BlockId(at)) {
                all[next.0].push(BlockId(at));
            }
        }
    }
    all
}

fn remove_unreachable(function: &mut Function) {
    let mut reached = vec![false; function.blocks.len()];
    let mut open = vec![BlockId(0)];
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut reached[at.0], true) {
            open.extend(successors(&function[at]));
        }
    }
    let mut moved = vec![BlockId(0); reached.len()];
    let mut kept = 0;
    for (at, reached) in reached.iter().enumerate() {
        moved[at] = BlockId(kept);
        kept += usize::from(*reached);
    }
    let blocks = std::mem::take(&mut function.blocks).into_iter();
    let kept = blocks.zip(&reached).filter(|(_, reached)| **reached);
    function.blocks = kept.map(|(block, _)| block).collect();
    for instruction in function.blocks.iter_mut().flat_map(|b| &mut b.code) {
        if let Op::Phi(sources) = &mut instruction.op {
            sources.retain(|s| reached[s.0 .0]);
        }
        instruction.op.blocks(&mut |b| *b = moved[b.0]);
    }
}

/// Values that are live at the start of each block, of those in `tracked`.
pub fn live_in(function: &Function, tracked: &HashSet<ValueId>) -> Vec<HashSet<ValueId>> {
    let mut live: Vec<HashSet<ValueId>> = vec![HashSet::new(); function.blocks.len()];
    let next: Vec<Vec<BlockId>> = function.blocks.iter().map(successors).collect();
    loop {
        let mut changed = false;
        for at in (0..function.blocks.len()).rev() {
            let mut now: HashSet<ValueId> = HashSet::new();
            for to in &next[at] {
                now.extend(&live[to.0]);
                for instruction in &function[*to].code {
                    let Op::Phi(sources) = &instruction.op else {
                        break;
                    };
                    for (from, value) in sources {
                        match value {
                            Value::Local(v) if from.0 == at && tracked.contains(v) => {
                                now.insert(*v);
                            }
                            _ => {}
                        }
                    }
                }
            }
            for instruction in function.blocks[at].code.iter().rev() {
                if let Some(result) = instruction.result {
                    now.remove(&result);
                }
                if matches!(instruction.op, Op::Phi(_)) {
                    continue;
                }
                for value in instruction.op.uses() {
                    match value {
                        Value::Local(v) if tracked.contains(&v) => {
                            now.insert(v);
                        }
                        _ => {}
                    }
                }
            }
            if now.len() != live[at].len() {
                live[at] = now;
                changed = true;
            }
        }
        if !changed {
            return live;
        }
    }
}

struct Renaming<'a> {
    function: &'a mut Function,
    multiple: HashSet<ValueId>,
    live: Vec<HashSet<ValueId>>,
    before: Vec<Vec<BlockId>>,
    /// By block and value: the new value at the block's start, and at its end.
    starts: HashMap<(BlockId, ValueId), Value>,
    ends: HashMap<(BlockId, ValueId), Value>,
}

impl<'a> Renaming<'a> {
    fn new(function: &'a mut Function) -> Renaming<'a> {
        let mut seen = HashSet::new();
        let results = function.instructions().filter_map(|i| i.result);
        let multiple: HashSet<ValueId> = results.filter(|r| !seen.insert(*r)).collect();
        let live = live_in(function, &multiple);
        let before = predecessors(function);
        Renaming {
            function,
            multiple,
            live,
            before,
            starts: HashMap::new(),
            ends: HashMap::new(),
        }
    }

    fn run(mut self) {
        let blocks = (0..self.function.blocks.len()).map(BlockId);
        // New values of all definitions, as uses may precede them.
        let mut renamed: HashMap<(BlockId, usize), ValueId> = HashMap::new();
        for at in blocks.clone() {
            for index in 0..self.function[at].code.len() {
                let Some(old) = self.function[at].code[index].result else {
                    continue;
                };
                if self.multiple.contains(&old) {
                    let new = self.copy(old);
                    renamed.insert((at, index), new);
                    self.ends.insert((at, old), Value::Local(new));
                }
            }
        }
        let mut phis: Vec<(BlockId, ValueId, ValueId)> = Vec::new();
        for at in blocks.clone() {
            let mut live: Vec<ValueId> = self.live[at.0].iter().copied().collect();
            live.sort();
            for old in live {
                if at == BlockId(0) {
                    self.starts.insert((at, old), Value::Undef);
                } else if self.before[at.0].len() != 1 {
                    let new = self.copy(old);
                    self.starts.insert((at, old), Value::Local(new));
                    phis.push((at, old, new));
                }
            }
        }
        for at in blocks {
            let mut code = std::mem::take(&mut self.function[at].code);
            let mut current: HashMap<ValueId, Value> = HashMap::new();
            for (index, instruction) in code.iter_mut().enumerate() {
                if let Op::Phi(sources) = &mut instruction.op {
                    for (from, value) in sources {
                        *value = self.at_end(*from, *value);
                    }
                } else {
                    let mut uses = instruction.op.clone();
                    uses.operands(&mut |value| {
                        if let Value::Local(v) = *value {
                            if self.multiple.contains(&v) {
                                *value = match current.get(&v) {
                                    Some(new) => *new,
                                    None => self.at_start(at, v),
                                };
                            }
                        }
                    });
                    instruction.op = uses;
                }
                if let Some(new) = renamed.get(&(at, index)) {
                    if let Some(old) = instruction.result.replace(*new) {
                        current.insert(old, Value::Local(*new));
                    }
                }
            }
            self.function[at].code = code;
        }
        for (at, old, new) in phis.into_iter().rev() {
            let sources = self.before[at.0].clone().into_iter();
            let sources = sources.map(|from| (from, self.at_end(from, Value::Local(old))));
            let op = Op::Phi(sources.collect());
            let position = self.function[at].code[0].position.clone();
            let phi = Instruction::new(Some(new), op, &position);
            self.function[at].code.insert(0, phi);
        }
    }

    fn copy(&mut self, value: ValueId) -> ValueId {
        let local = self.function[value].clone();
        let new = self.function.value(&local.name, local.ty);
        self.function[new].max = local.max;
        new
    }

    fn at_start(&self, at: BlockId, old: ValueId) -> Value {
        let mut at = at;
        // Blocks with one predecessor have its values. Blocks are reachable, so chains end.
        loop {
            if let Some(value) = self.starts.get(&(at, old)) {
                return *value;
            }
            let Some(&before) = self.before[at.0].first() else {
                return Value::Undef;
            };
            if let Some(value) = self.ends.get(&(before, old)) {
                return *value;
            }
            at = before;
        }
    }

    fn at_end(&self, at: BlockId, value: Value) -> Value {
        match value {
            Value::Local(old) if self.multiple.contains(&old) => match self.ends.get(&(at, old)) {
                Some(value) => *value,
                None => self.at_start(at, old),
            },
            other => other,
        }
    }
}

/// Removes phis with one value, and copies of values.
fn simplify(function: &mut Function) {
    loop {
        let mut same: HashMap<ValueId, Value> = HashMap::new();
        for instruction in function.instructions() {
            let Some(result) = instruction.result else {
                continue;
            };
            let only = match &instruction.op {
                Op::Phi(sources) => {
                    let own = Value::Local(result);
                    let mut others = sources.iter().map(|s| s.1).filter(|v| *v != own);
                    match others.next() {
                        Some(first) if others.all(|v| v == first) => Some(first),
                        _ => None,
                    }
                }
                Op::Copy(value) if *value != Value::Undef => Some(*value),
                _ => None,
            };
            same.extend(only.map(|value| (result, value)));
        }
        if same.is_empty() {
            return;
        }
        let resolve = |value: Value| {
            let mut value = value;
            // Cycles of phis that only refer to each other do not occur in reachable code.
            for _ in 0..=same.len() {
                match value {
                    Value::Local(v) => match same.get(&v) {
                        Some(next) => value = *next,
                        None => break,
                    },
                    _ => break,
                }
            }
            value
        };
        for block in &mut function.blocks {
            block
                .code
                .retain(|i| i.result.is_none_or(|r| !same.contains_key(&r)));
            for instruction in &mut block.code {
                instruction.op.operands(&mut |v| *v = resolve(*v));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn values_with_several_definitions_get_phis() {
        let mut function = first_function(
            "define i32 @f(i1 %c) {\nentry:\n  %x = add i32 1, 2\n  br i1 %c, label %a, label %b\n\
             a:\n  %y = add i32 %x, 3\n  br label %b\nb:\n  ret i32 %x\n}\n",
        );
        // The second addition also defines x.
        let x = function.blocks[0].code[0].result;
        function.blocks[1].code[0].result = x;
        restore(&mut function);
        let phi = &function.blocks[2].code[0];
        assert!(matches!(&phi.op, Op::Phi(sources) if sources.len() == 2));
        let last = &function.blocks[2].code[1].op;
        assert!(matches!(last, Op::Return(Some(Value::Local(v))) if Some(*v) == phi.result));
        let results: Vec<_> = function.instructions().filter_map(|i| i.result).collect();
        let unique: HashSet<_> = results.iter().collect();
        assert_eq!(unique.len(), results.len());
    }
}
