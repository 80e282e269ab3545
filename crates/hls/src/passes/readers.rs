//! Gives loads from buffers that do not depend on a store a port of their own (`kernel_readers`), with
//! lines that are requested ahead. Further loads share them.
//!
//! A load depends on the stores that the same work-item executes before it, in a kernel with barriers
//! also on those of its group. Stores of others need no order in a kernel without atomic functions:
//! the load may return the contents before or after them. Kernels with fences have no such ports. Such a load is executed when its port is ready, in any order
//! with accesses by the cache's port, except for stores that follow it in its work-item
//! ([`crate::schedule`]).

use super::ssa::successors;
use crate::address::follow;
use crate::ir::{
    BinaryOp, Block, BlockId, Callee, EngineCall, Function, FunctionId, Instruction, Module, Op,
    Value, ValueId,
};
use crate::memory::{Memories, MemoryId};
use crate::units::units_interval;
use std::collections::HashMap;

/// Work-items in parts execute one region after another: no region gets more ports for an interval that
/// is shorter than this part of the longest region's.
const SHORT: u32 = 4;
/// Ports of a kernel.
const PORTS_MAX: u32 = 16;
/// Conditional loads that follow each other and have one port together, at least; words of such a
/// port, at most.
const WORDS_MIN: usize = 4;
const WORDS_MAX: usize = 16;
/// Ports of several words.
const WIDE_MAX: u32 = 4;
/// Bytes of a word.
const WORD_BYTES: i64 = 8;
/// Bytes of a line, and half of those in a port's cache (`kernel_reader`).
const LINE_BYTES: i64 = 128;
const FIXED_BYTES: i64 = 1024;

/// Assigns ports in the first function, that of all work-items; `barriers`: the kernel has some.
pub fn assign(module: &mut Module, memories: &Memories, barriers: bool) {
    let is_fence = |i: &Instruction| matches!(i.op, Op::Call(Callee::Engine(EngineCall::Fence), _));
    // A volatile load uses the cache's port, and keeps its order with others of that port only.
    let is_load = |i: &Instruction| matches!(i.op, Op::Load(..));
    let ordered = |f: &Function| {
        let mut all = f.instructions();
        all.any(|i| (i.volatile && !is_load(i)) || is_fence(i))
    };
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
    let items = |own: usize| {
        function[BlockId(own)]
            .code
            .last()
            .is_some_and(|last| last.independent)
    };
    let interval = |own: usize| {
        let of_items = items(own).then(|| interval_min(function, BlockId(own), memories));
        of_items.unwrap_or(1)
    };
    let intervals: Vec<u32> = (0..function.blocks.len()).map(interval).collect();
    let longest = intervals.iter().copied().max().unwrap_or(1);
    let least = if module.parts { longest / SHORT } else { 1 };
    let mut ports = Ports::default();
    let mut assigned = Vec::new();
    for (own, stored) in stored.into_iter().enumerate() {
        let block = &function[BlockId(own)];
        let mut stored = stored;
        let mut loads = Vec::new();
        for (index, instruction) in block.code.iter().enumerate() {
            stored = stored || stores(0, instruction);
            let Op::Load(address, ..) = instruction.op else {
                continue;
            };
            if !stored && !instruction.volatile && memories.far(FunctionId(0), address) {
                loads.push((index, address));
            }
        }
        let items = items(own);
        if !items {
            for group in wide(function, block, &mut loads) {
                let Some(port) = ports.wide() else {
                    loads.extend(group.into_iter().filter_map(
                        |index| match block.code[index].op {
                            Op::Load(address, ..) => Some((index, address)),
                            _ => None,
                        },
                    ));
                    continue;
                };
                let words = group.into_iter().enumerate();
                assigned.extend(words.map(|(word, index)| (own, index, port, word as u32)));
            }
        }
        let shares = if items { intervals[own].max(least) } else { 1 };
        let keeps = items || !module.channels.is_empty();
        let found = ports.assign(function, &loads, keeps, shares);
        assigned.extend(found.into_iter().map(|(index, port)| (own, index, port, 0)));
    }
    let Some(function) = module.functions.first_mut() else {
        return;
    };
    for (own, index, port, word) in assigned {
        let instruction = &mut function.blocks[own].code[index];
        (instruction.reader, instruction.reader_word) = (Some(port), word);
    }
}

/// A lower bound of the interval of a loop over work-items, a block: by its units, its accesses to
/// memories on the chip, and its stores off the chip.
fn interval_min(function: &Function, block: BlockId, memories: &Memories) -> u32 {
    let at = FunctionId(0);
    let mut accesses: HashMap<(MemoryId, u32, bool), u32> = HashMap::new();
    let mut calls = 0;
    for instruction in &function[block].code {
        let (address, store) = match instruction.op {
            Op::Load(address, ..) => (address, false),
            Op::Store { address, .. } => (address, true),
            _ => continue,
        };
        match memories.of(at, address) {
            Some(memory) if !memories[memory].far => {
                for bank in memories.banks(at, memory, address) {
                    *accesses.entry((memory, bank, store)).or_insert(0) += 1;
                }
            }
            _ => calls += u32::from(store),
        }
    }
    let most = accesses.into_values().max().unwrap_or(1);
    units_interval(function, block).max(most).max(calls)
}

/// Removes conditional loads of words that follow each other, by index and address; returns them in
/// groups. A group has one port, which reads its words while the kernel waits.
fn wide(function: &Function, block: &Block, loads: &mut Vec<(usize, Value)>) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Stream, Value, i64, Vec<usize>)> = Vec::new();
    for (index, address) in loads.iter() {
        let Op::Load(_, 8, Some(condition)) = block.code[*index].op else {
            continue;
        };
        let (stream, offset) = place(function, *address);
        let group = groups.iter_mut().find(|(own, when, first, words)| {
            *own == stream
                && *when == condition
                && offset == *first + WORD_BYTES * words.len() as i64
                && words.len() < WORDS_MAX
        });
        match group {
            Some((.., words)) => words.push(*index),
            None => groups.push((stream, condition, offset, vec![*index])),
        }
    }
    let groups = groups.into_iter().map(|(.., words)| words);
    let groups: Vec<Vec<usize>> = groups.filter(|words| words.len() >= WORDS_MIN).collect();
    loads.retain(|(index, _)| !groups.iter().any(|words| words.contains(index)));
    groups
}

/// The places that a port reads: a base (for an argument, its word), and indices with their scales.
type Stream = (Value, Vec<(Value, i64)>);

/// Loads that share a port in a block.
struct Group {
    stream: Stream,
    first: i64,
    port: u32,
    loads: u32,
}

/// The ports that have been assigned.
#[derive(Default)]
struct Ports {
    count: u32,
    /// Base of the places that a port reads in blocks that share ports.
    bases: Vec<(Value, u32)>,
    /// Ports of several words, which other loads do not share.
    wide: Vec<u32>,
}

impl Ports {
    /// A port that has no loads yet, or after the last one any.
    fn next(&mut self) -> u32 {
        loop {
            self.count += 1;
            let port = (self.count - 1) % PORTS_MAX;
            if !self.wide.contains(&port) {
                return port;
            }
        }
    }

    /// A port of several words; `None`: there are too few.
    fn wide(&mut self) -> Option<u32> {
        if self.wide.len() as u32 >= WIDE_MAX || self.count >= PORTS_MAX {
            return None;
        }
        let port = self.next();
        self.wide.push(port);
        Some(port)
    }

    /// Assigns the ports of a block's loads, `(index, address)`. Up to `shares` loads of places near
    /// each other share a port: it can execute as many in an interval, and reads the same lines.
    /// Blocks that are executed one after another share ports, too (`keeps`): loops over work-items, and
    /// all blocks of a kernel with channels, whose ports hold more lines than those of one stream.
    fn assign(
        &mut self,
        function: &Function,
        loads: &[(usize, Value)],
        keeps: bool,
        shares: u32,
    ) -> Vec<(usize, u32)> {
        let mut groups: Vec<Group> = Vec::new();
        let mut out = Vec::new();
        for (index, address) in loads {
            let (stream, offset) = about(function, place(function, *address));
            let near = if stream.1.is_empty() {
                FIXED_BYTES
            } else {
                LINE_BYTES
            };
            let group = groups.iter_mut().find(|g| {
                g.loads < shares && g.stream == stream && (offset - g.first).abs() < near
            });
            if let Some(group) = group {
                group.loads += 1;
                out.push((*index, group.port));
                continue;
            }
            let free = |port: &u32| groups.iter().all(|g| g.port != *port);
            let known = self
                .bases
                .iter()
                .filter(|(base, _)| keeps && *base == stream.0);
            let port = match known.map(|(_, port)| *port).find(free) {
                Some(port) => port,
                None => self.next(),
            };
            if keeps {
                self.bases.push((stream.0, port));
            }
            out.push((*index, port));
            groups.push(Group {
                stream,
                first: offset,
                port,
                loads: 1,
            });
        }
        out
    }
}

fn definition(function: &Function, v: ValueId) -> Option<&Op> {
    let mut all = function.instructions();
    all.find(|i| i.result == Some(v)).map(|i| &i.op)
}

/// The places that an address is one of, and its offset in bytes.
fn place(function: &Function, address: Value) -> (Stream, i64) {
    let mut offset = 0;
    let mut indices = Vec::new();
    let definition = |v: ValueId| definition(function, v);
    let base = follow(address, definition, |own, parts| {
        offset += own;
        indices.extend(parts.iter().map(|part| (part.value, part.scale)));
    });
    let of_base = match base {
        Value::Local(v) => definition(v),
        _ => None,
    };
    let base = match of_base {
        Some(Op::Call(Callee::Engine(EngineCall::Word), words)) => words[0].1,
        _ => base,
    };
    ((base, indices), offset)
}

/// The same with constants that are added to the indices as a part of the offset. Where a sum of an
/// index overflows, the place is another one.
fn about(function: &Function, (stream, mut offset): (Stream, i64)) -> (Stream, i64) {
    let definition = |v: ValueId| definition(function, v);
    let mut indices = stream.1;
    for (index, scale) in &mut indices {
        while let Value::Local(v) = *index {
            *index = match definition(v) {
                Some(Op::Cast(_, _, inner) | Op::Copy(inner)) => *inner,
                Some(Op::Binary(BinaryOp::Add | BinaryOp::Or, inner, Value::Bits(more))) => {
                    offset += i64::from(*more as i32) * *scale;
                    *inner
                }
                _ => break,
            };
        }
    }
    ((stream.0, indices), offset)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn conditional_loads_that_follow_each_other_have_one_port() {
        let load = |at: usize| {
            format!(
                "  %p{at} = getelementptr i8, ptr %q, i64 {}\n  \
                 %x{at} = load i64, ptr %p{at}, align 8\n",
                8 * at
            )
        };
        let loads: String = [0, 1, 2, 3, 5].map(load).concat();
        let mut function = first_function(&format!(
            "define void @f(ptr %a, i1 %c, i64 %i) {{\n  \
             %q = getelementptr i64, ptr %a, i64 %i\n{loads}  ret void\n}}\n"
        ));
        let mut found = Vec::new();
        for (index, instruction) in function.blocks[0].code.iter_mut().enumerate() {
            if let Op::Load(address, _, condition) = &mut instruction.op {
                *condition = Some(Value::Local(ValueId(1)));
                found.push((index, *address));
            }
        }
        let all: Vec<usize> = found.iter().map(|(index, _)| *index).collect();
        let groups = wide(&function, &function.blocks[0], &mut found);
        assert_eq!(groups, [all[..4].to_vec()]);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn loads_of_places_near_each_other_share_a_port() {
        let function = first_function(
            "define void @f(ptr %a, ptr %b, i64 %i, i64 %j) {\n  \
             %p = getelementptr i8, ptr %a, i64 %i\n  \
             %q = getelementptr i8, ptr %p, i64 8\n  \
             %r = getelementptr i8, ptr %a, i64 %j\n  \
             %s = getelementptr i8, ptr %b, i64 512\n  ret void\n}\n",
        );
        let named = |name: &str| {
            let at = function.values.iter().position(|v| v.name == name);
            Value::Local(ValueId(at.unwrap()))
        };
        let loads: Vec<_> = ["p", "q", "r", "b", "s", "q"]
            .map(named)
            .into_iter()
            .enumerate()
            .collect();
        let ports = |ports: &mut Ports, shares| -> Vec<u32> {
            let found = ports.assign(&function, &loads, true, shares);
            found.into_iter().map(|(_, port)| port).collect()
        };
        let mut all = Ports::default();
        // One load of a port in each interval: all differ.
        assert_eq!(ports(&mut all, 1), [0, 1, 2, 3, 4, 5]);
        // The next loop over work-items uses the same ports.
        assert_eq!(ports(&mut all, 2), [0, 0, 1, 3, 3, 2]);
    }
}
