//! Makes an OpenCL kernel, which is the code of one work-item, a function that executes all
//! work-items: loops over work-groups, and in them a loop over work-items.
//!
//! Barriers divide the kernel's code into regions: a region begins at the kernel's start or after a
//! barrier, and consists of all code that is reachable without a barrier. All work-items of a group
//! execute a region before any executes the next. A value that is used in a later region is
//! computed again there if it only depends on arguments and identifiers; otherwise an object on the
//! chip holds it for each work-item. Code in several regions is copied. If work-items of a group
//! reach different barriers, the kernel ends with [`STATUS_BARRIER`].
//!
//! A kernel without barriers and local memory that does not use the position in a group has one
//! group with all work-items, or groups of its own: parts of [`PART_ITEMS`] work-items, which
//! execute each iteration of a loop together as if the loop had a barrier.

mod kept;

use super::kernel_arguments::{word, Binding};
use super::{barriers, loop_barriers, ssa, uniform};
use crate::error::{Error, Position, Result};
use crate::ir::{
    BinaryOp, Block, BlockId, Callee, EngineCall, Function, FunctionId, Global, Instruction,
    IntPredicate, Module, Op, Predicate, ScaledIndex, Type, Value, ValueId,
};
use crate::object;
use std::collections::{HashMap, HashSet};

/// The kernel's status if the group size differs from the required one or is too large.
pub const STATUS_GROUP_SIZE: u64 = 1;
/// The kernel's status if an argument in local memory is too large.
pub const STATUS_LOCAL_BYTES: u64 = 2;
/// The kernel's status if work-items of a group reach different barriers.
pub const STATUS_BARRIER: u64 = 3;
/// Words of the argument block.
const GLOBAL_SIZE: u64 = 0;
const GLOBAL_OFFSET: u64 = 3;
const LOCAL_SIZE: u64 = 6;
/// Instructions of the longest computation that is repeated in a later region.
const REPEATED_MAX: usize = 24;

/// Work-items of a part: enough to hide most of an iteration's latency, and as many as the words of
/// a RAM that ECP5 makes of LUTs, so that values of work-items need no block RAM.
pub const PART_ITEMS: u32 = 16;

/// The unit that executes a region of a kernel's code before the next region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// All work-items: there is one region.
    Whole,
    /// The work-items of a part.
    Parts,
    /// Those of a work-group.
    Groups,
}

/// Work-groups that a kernel supports.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The size that the kernel's attribute requires.
    pub required: Option<[u32; 3]>,
    /// Work-items of the largest group, if the kernel has barriers.
    pub items_max: u32,
    /// Whether all work-items of a group execute an iteration of a loop before the next one, where
    /// that is possible.
    pub together: bool,
}

/// The results of the synthesis of the loops.
#[derive(Clone, Debug)]
pub struct Items {
    /// Number of barriers, including those in and after loops.
    pub barriers: usize,
    /// Bytes of values of each work-item that are kept across barriers.
    pub private_bytes: u64,
    /// Work-items of the largest group.
    pub group_items_max: u32,
}

/// Replaces the entry's code.
pub fn expand(
    module: &mut Module,
    entry: FunctionId,
    groups: &Groups,
    binding: &Binding,
) -> Result<Items> {
    barriers::reject_elsewhere(module, entry)?;
    // Objects of other kernels do not matter.
    let mut used = HashSet::new();
    for instruction in module.functions.iter().flat_map(Function::instructions) {
        for value in instruction.op.uses() {
            if let Value::Global(g, _) = value {
                used.insert(g);
            }
        }
    }
    let local = used.iter().any(|g| module[*g].local);
    let position_in_group = module
        .functions
        .iter()
        .flat_map(Function::instructions)
        .any(|i| match &i.op {
            Op::Call(Callee::Engine(EngineCall::LocalId | EngineCall::GroupId), _) => true,
            Op::Call(Callee::Engine(EngineCall::Word), arguments) => {
                let size = LOCAL_SIZE..LOCAL_SIZE + 3;
                matches!(arguments[0].1, Value::Bits(word) if size.contains(&word))
            }
            _ => false,
        });
    let function = &mut module.functions[entry.0];
    let divided = function.blocks.iter().any(barriers::has_barrier);
    let required = groups.required.is_some();
    let grouped = divided || local || position_in_group || required;
    let varying = uniform::varying(function);
    let uniform = varying.uniform(function);
    let parts = groups.together && !grouped && loop_barriers::suits_parts(function);
    if divided || parts {
        loop_barriers::insert(function, &varying, groups.together);
    }
    let barriers = barriers::divide(function);
    let division = match (grouped, barriers.is_empty()) {
        (true, _) => Division::Groups,
        (false, true) => Division::Whole,
        (false, false) => Division::Parts,
    };
    let mut old = std::mem::replace(&mut module.functions[entry.0], Function::empty());
    let copies: Vec<Instruction> = old.blocks[0].code.drain(..binding.copies).collect();
    let mut loops = Loops::new(old, &mut module.globals, groups, division, barriers);
    loops.kept.uniform = uniform;
    loops.identifiers()?;
    loops.private_variables()?;
    loops.build(binding, &copies)?;
    let items = Items {
        barriers: loops.barriers.len(),
        private_bytes: loops.private_bytes,
        group_items_max: match division {
            Division::Groups if !loops.barriers.is_empty() => groups.items_max,
            _ => u32::MAX,
        },
    };
    let mut function = loops.new;
    ssa::restore(&mut function);
    module.functions[entry.0] = function;
    module.parts = division == Division::Parts;
    Ok(items)
}

/// The end of a region: a barrier, or the end of the work-item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum End {
    Barrier(usize),
    Finished,
}

/// Values that each work-item has; they have several definitions until `ssa::restore`.
struct Variables {
    local: [ValueId; 3],
    group: [ValueId; 3],
    /// The global identifier of the group's first work-item.
    base: [ValueId; 3],
    /// The same less the global offset.
    progress: [ValueId; 3],
    /// The identifiers of the part's first work-item, less the global offset.
    part: [ValueId; 3],
    /// The number of the part's last work-item, which its first region finds.
    part_last: ValueId,
    /// The work-item's number in its group or part.
    item: ValueId,
    /// The end that the work-item has reached, that of the first work-item, whether one differs.
    end: ValueId,
    first_end: ValueId,
    differs: ValueId,
}

/// A loop over the work-items of a group.
struct ItemLoop {
    /// The block that a work-item begins with.
    first: BlockId,
    /// The block that it ends with.
    next: BlockId,
    /// The last identifier in each dimension that has more than one.
    last: Vec<(usize, Value)>,
}

/// With which work-item a loop over work-items ends.
enum LoopEnd {
    /// The last one of all dimensions.
    Whole,
    /// That one, or the one for which this holds.
    Also(Value),
    /// The one for which this holds.
    Only(Value),
}

struct Loops<'a> {
    old: Function,
    new: Function,
    globals: &'a mut Vec<Global>,
    groups: &'a Groups,
    division: Division,
    /// Work-items that execute a region before the next one, at most, if there are barriers.
    items_max: u32,
    barriers: Vec<(BlockId, BlockId)>,
    variables: Variables,
    private_bytes: u64,
    kept: kept::Kept,
}

fn number(n: u64) -> Value {
    Value::Bits(n)
}

fn local(v: ValueId) -> Value {
    Value::Local(v)
}

impl<'a> Loops<'a> {
    fn new(
        old: Function,
        globals: &'a mut Vec<Global>,
        groups: &'a Groups,
        division: Division,
        barriers: Vec<(BlockId, BlockId)>,
    ) -> Loops<'a> {
        let mut new = old.clone();
        new.blocks.clear();
        let mut value = |name: &str, bits: u32| new.value(name, Type::Int(bits));
        let mut three = |name: &str| ["x", "y", "z"].map(|d| value(&format!("{name}_{d}"), 32));
        let (local, group) = (three("local"), three("group"));
        let (base, progress, part) = (three("first"), three("progress"), three("part"));
        let variables = Variables {
            local,
            group,
            base,
            progress,
            part,
            part_last: value("part_last", 32),
            item: value("item", 32),
            end: value("end", 8),
            first_end: value("first_end", 8),
            differs: value("differs", 1),
        };
        let items_max = match division {
            Division::Parts => PART_ITEMS,
            _ => groups.items_max,
        };
        let most = |size: u32| Some(u64::from(size.saturating_sub(1)));
        if groups.required.is_some() || !barriers.is_empty() {
            new[variables.item].max = most(items_max);
            new[variables.part_last].max = most(items_max);
        }
        if groups.required.is_some() || (division == Division::Groups && !barriers.is_empty()) {
            let sizes = groups.required.unwrap_or([items_max; 3]);
            for (id, size) in variables.local.into_iter().zip(sizes) {
                new[id].max = most(size);
            }
        }
        let mut old = old;
        old.values = new.values.clone();
        Loops {
            old,
            new,
            globals,
            groups,
            division,
            items_max,
            barriers,
            variables,
            private_bytes: 0,
            kept: kept::Kept::default(),
        }
    }

    /// Replaces identifiers by the loops' variables.
    fn identifiers(&mut self) -> Result<()> {
        let variables = &self.variables;
        for instruction in self.old.blocks.iter_mut().flat_map(|b| &mut b.code) {
            use EngineCall::{GlobalId, GroupId, LocalId, Word};
            let Op::Call(Callee::Engine(call @ (GlobalId | GroupId | LocalId | Word)), arguments) =
                &instruction.op
            else {
                continue;
            };
            let Some((_, Value::Bits(d))) = arguments.first() else {
                let error = Error::internal("the dimension of a work-item function is variable");
                return Err(error.at(&instruction.position));
            };
            let d = (*d as usize).min(2);
            instruction.op = match call {
                LocalId => Op::Copy(local(variables.local[d])),
                GroupId => Op::Copy(local(variables.group[d])),
                GlobalId => {
                    let (base, id) = (variables.base[d], variables.local[d]);
                    Op::Binary(BinaryOp::Add, local(base), local(id))
                }
                _ => continue,
            };
        }
        Ok(())
    }

    /// With barriers, gives each work-item its own copies of the kernel's variables in memory.
    fn private_variables(&mut self) -> Result<()> {
        if self.barriers.is_empty() {
            return Ok(());
        }
        for block in &mut self.old.blocks {
            for instruction in &mut block.code {
                let (Op::Local(bytes), Some(result)) = (&instruction.op, instruction.result) else {
                    continue;
                };
                let name = self.new[result].name.clone();
                object::check(self.globals, &name, *bytes)
                    .map_err(|error| error.at(&instruction.position))?;
                let bytes = bytes.next_multiple_of(8);
                let all = bytes * u64::from(self.items_max);
                let object = object::add(self.globals, format!("{name}_of_items"), all)
                    .map_err(|error| error.at(&instruction.position))?;
                self.globals[object.0].items = true;
                self.private_bytes += bytes;
                instruction.op = Op::Address {
                    base: Value::Global(object, 0),
                    offset: 0,
                    indices: vec![ScaledIndex {
                        value: local(self.variables.item),
                        bits: 32,
                        scale: bytes as i64,
                    }],
                };
            }
        }
        Ok(())
    }

    fn block(&mut self) -> BlockId {
        self.new.blocks.push(Block::default());
        BlockId(self.new.blocks.len() - 1)
    }

    fn add(&mut self, at: BlockId, result: Option<ValueId>, op: Op) {
        let instruction = Instruction::new(result, op, &Position::default());
        self.new[at].code.push(instruction);
    }

    fn set(&mut self, at: BlockId, variable: ValueId, op: Op) {
        self.add(at, Some(variable), op);
    }

    fn value(&mut self, at: BlockId, name: &str, bits: u32, op: Op) -> Value {
        let result = self.new.value(name, Type::Int(bits));
        self.add(at, Some(result), op);
        local(result)
    }

    fn word(&mut self, at: BlockId, index: u64) -> Value {
        self.value(at, &format!("word_{index}"), 32, word(index, 0))
    }

    fn compare(&mut self, at: BlockId, predicate: IntPredicate, a: Value, b: Value) -> Value {
        let op = Op::Compare {
            predicate: Predicate::Int(predicate),
            bits: 32,
            left: a,
            right: b,
        };
        self.value(at, "test", 1, op)
    }

    /// The number of work-items of a group in a dimension.
    fn size(&mut self, at: BlockId, d: usize) -> Value {
        match (self.groups.required, self.division) {
            (Some(size), _) => number(u64::from(size[d])),
            (None, Division::Groups) => self.word(at, LOCAL_SIZE + d as u64),
            (None, _) => self.word(at, GLOBAL_SIZE + d as u64),
        }
    }

    /// Ends the kernel with a status, after which it waits for the next start.
    fn finish(&mut self, at: BlockId, status: u64) {
        let end = Callee::Engine(EngineCall::End);
        let arguments = vec![(Type::Int(32), number(status))];
        self.add(at, None, Op::Call(end, arguments));
        self.add(at, None, Op::Jump(BlockId(0)));
    }

    fn build(&mut self, binding: &Binding, copies: &[Instruction]) -> Result<()> {
        let start = self.block();
        let start_call = Callee::Engine(EngineCall::Start);
        self.add(start, None, Op::Call(start_call, Vec::new()));
        let done = self.block();
        self.finish(done, 0);
        let checked = self.check(start, done, binding);
        self.new[checked].code.extend_from_slice(copies);
        let group_end = self.block();
        let regions: Vec<BlockId> = (0..=self.barriers.len()).map(|_| self.block()).collect();
        if self.division == Division::Groups {
            self.group_loops(checked, regions[0], group_end, done);
        } else {
            for d in 0..3 {
                let offset = self.word(checked, GLOBAL_OFFSET + d as u64);
                self.set(checked, self.variables.base[d], Op::Copy(offset));
            }
            if self.division == Division::Parts {
                self.loop_over_parts(checked, regions[0], group_end, done);
            } else {
                self.add(checked, None, Op::Jump(regions[0]));
                self.add(group_end, None, Op::Jump(done));
            }
        }
        self.find_kept();
        for region in 0..regions.len() {
            self.region(region, &regions, group_end);
        }
        self.define_held(checked);
        Ok(())
    }

    /// Ends the kernel with a status unless a test holds; returns the block that follows.
    fn require(&mut self, at: BlockId, test: Value, status: u64) -> BlockId {
        let (next, failed) = (self.block(), self.block());
        self.finish(failed, status);
        self.add(at, None, Op::Branch(test, next, failed));
        next
    }

    /// Checks the sizes; returns the block that follows.
    fn check(&mut self, at: BlockId, done: BlockId, binding: &Binding) -> BlockId {
        let mut current = at;
        for d in 0..3 {
            let size = self.word(current, GLOBAL_SIZE + d);
            let test = self.compare(current, IntPredicate::NotEqual, size, number(0));
            let next = self.block();
            self.add(current, None, Op::Branch(test, next, done));
            current = next;
        }
        if let Some(required) = self.groups.required {
            for (d, size) in required.into_iter().enumerate() {
                let given = self.word(current, LOCAL_SIZE + d as u64);
                let same = IntPredicate::Equal;
                let test = self.compare(current, same, given, number(u64::from(size)));
                current = self.require(current, test, STATUS_GROUP_SIZE);
            }
        } else if self.division == Division::Groups && !self.barriers.is_empty() {
            // Each size first, as the product may overflow.
            let most = number(u64::from(self.items_max));
            let within = IntPredicate::LessEqual { signed: false };
            let mut product = number(1);
            for d in 0..3 {
                let size = self.word(current, LOCAL_SIZE + d);
                let test = self.compare(current, within, size, most);
                current = self.require(current, test, STATUS_GROUP_SIZE);
                let op = Op::Binary(BinaryOp::Mul, size, product);
                product = self.value(current, "items", 32, op);
                let test = self.compare(current, within, product, most);
                current = self.require(current, test, STATUS_GROUP_SIZE);
            }
        }
        for (index, bytes) in &binding.local {
            let given = self.word(current, *index);
            let within = IntPredicate::LessEqual { signed: false };
            let test = self.compare(current, within, given, number(*bytes));
            current = self.require(current, test, STATUS_LOCAL_BYTES);
        }
        current
    }

    /// The loops over groups around the first region and the end of a group.
    fn group_loops(&mut self, from: BlockId, body: BlockId, end: BlockId, done: BlockId) {
        let mut before = from;
        let mut after = done;
        let mut next = Vec::new();
        let tops: Vec<BlockId> = (0..3).map(|_| self.block()).collect();
        for d in (0..3).rev() {
            let (group, progress) = (self.variables.group[d], self.variables.progress[d]);
            self.set(before, group, Op::Copy(number(0)));
            self.set(before, progress, Op::Copy(number(0)));
            self.add(before, None, Op::Jump(tops[d]));
            let offset = self.word(tops[d], GLOBAL_OFFSET + d as u64);
            let base = Op::Binary(BinaryOp::Add, local(progress), offset);
            self.set(tops[d], self.variables.base[d], base);
            before = tops[d];
            let last = if d == 0 { end } else { self.block() };
            next.push((d, last));
        }
        self.add(before, None, Op::Jump(body));
        for (d, at) in next {
            let (group, progress) = (self.variables.group[d], self.variables.progress[d]);
            let size = self.size(at, d);
            let one = Op::Binary(BinaryOp::Add, local(group), number(1));
            self.set(at, group, one);
            let further = Op::Binary(BinaryOp::Add, local(progress), size);
            self.set(at, progress, further);
            let whole = self.word(at, GLOBAL_SIZE + d as u64);
            let less = IntPredicate::Less { signed: false };
            let test = self.compare(at, less, local(progress), whole);
            self.add(at, None, Op::Branch(test, tops[d], after));
            if let Some(branch) = self.new[at].code.last_mut() {
                branch.group_end = true;
            }
            after = at;
        }
    }

    /// The loop over parts around the first region and the end of a part. A part ends with the
    /// identifiers of the next one's first work-item, which are zeros after the last part.
    fn loop_over_parts(&mut self, from: BlockId, body: BlockId, end: BlockId, done: BlockId) {
        let (part, ids) = (self.variables.part, self.variables.local);
        let top = self.block();
        for first in part.into_iter().chain([self.variables.part_last]) {
            self.set(from, first, Op::Copy(number(0)));
        }
        self.add(from, None, Op::Jump(top));
        self.add(top, None, Op::Jump(body));
        let mut any = number(0);
        for (first, id) in part.into_iter().zip(ids) {
            self.set(end, first, Op::Copy(local(id)));
            let op = Op::Binary(BinaryOp::Or, any, local(id));
            any = self.value(end, "any", 32, op);
        }
        let further = self.compare(end, IntPredicate::NotEqual, any, number(0));
        self.add(end, None, Op::Branch(further, top, done));
        if let Some(branch) = self.new[end].code.last_mut() {
            branch.group_end = true;
        }
    }

    /// Appends the loop over the work-items of a region.
    fn region(&mut self, region: usize, regions: &[BlockId], group_end: BlockId) {
        let first = match region {
            0 => BlockId(0),
            n => self.barriers[n - 1].1,
        };
        let (blocks, ends) = self.extent(first);
        let several = ends.len() > 1;
        let counted = several || !self.barriers.is_empty();
        let variables = [self.variables.item, self.variables.first_end];
        if counted {
            self.set(regions[region], variables[0], Op::Copy(number(0)));
        }
        if several {
            self.set(regions[region], variables[1], Op::Copy(number(0)));
            let differs = self.variables.differs;
            self.set(regions[region], differs, Op::Copy(number(0)));
        }
        self.read_held(regions[region], region);
        let items = self.open_loop(regions[region]);
        let (inner, next) = (items.first, items.next);
        // Values from before, then the region's code.
        self.restore_values(inner, region);
        let unchanged = self.unchanged(region, &blocks);
        let copies: HashMap<BlockId, BlockId> = blocks.iter().map(|b| (*b, self.block())).collect();
        self.add(inner, None, Op::Jump(copies[&first]));
        for old in &blocks {
            self.copy_block(*old, &copies, next, several, &unchanged);
        }
        // The work-item's end.
        if several {
            let (end, first_end) = (self.variables.end, self.variables.first_end);
            let item = local(self.variables.item);
            let is_first = self.compare(next, IntPredicate::Equal, item, number(0));
            let op = Op::Select(is_first, local(end), local(first_end));
            self.set(next, first_end, op);
            let op = Op::Compare {
                predicate: Predicate::Int(IntPredicate::NotEqual),
                bits: 8,
                left: local(end),
                right: local(first_end),
            };
            let other = self.value(next, "other_end", 1, op);
            let differs = self.variables.differs;
            self.set(
                next,
                differs,
                Op::Binary(BinaryOp::Or, local(differs), other),
            );
        }
        let item = self.variables.item;
        let end = match (self.division, region) {
            (Division::Parts, 0) => {
                self.set(next, self.variables.part_last, Op::Copy(local(item)));
                let last = number(u64::from(PART_ITEMS - 1));
                LoopEnd::Also(self.compare(next, IntPredicate::Equal, local(item), last))
            }
            (Division::Parts, _) => {
                let last = local(self.variables.part_last);
                LoopEnd::Only(self.compare(next, IntPredicate::Equal, local(item), last))
            }
            _ => LoopEnd::Whole,
        };
        if counted {
            self.set(
                next,
                item,
                Op::Binary(BinaryOp::Add, local(item), number(1)),
            );
        }
        let after = self.close_loop(&items, end);
        self.leave(after, &ends, regions, group_end);
    }

    /// The code that follows when all work-items have executed a region.
    fn leave(&mut self, at: BlockId, ends: &[End], regions: &[BlockId], group_end: BlockId) {
        let target = |end: End| match end {
            End::Barrier(k) => regions[k + 1],
            End::Finished => group_end,
        };
        match ends {
            // A region that never ends.
            [] => self.add(at, None, Op::Unreachable),
            [one] => self.add(at, None, Op::Jump(target(*one))),
            [first, rest @ ..] => {
                let (same, failed) = (self.block(), self.block());
                self.finish(failed, STATUS_BARRIER);
                let differs = local(self.variables.differs);
                self.add(at, None, Op::Branch(differs, failed, same));
                let cases = rest.iter().map(|e| (code(*e), target(*e))).collect();
                let op = Op::Switch {
                    value: local(self.variables.first_end),
                    bits: 8,
                    cases,
                    default: target(*first),
                };
                self.add(same, None, op);
            }
        }
    }

    /// The blocks that are reachable without a barrier, and the ends that they reach.
    fn extent(&self, first: BlockId) -> (Vec<BlockId>, Vec<End>) {
        let (mut blocks, mut ends) = (vec![first], Vec::new());
        let mut at = 0;
        while at < blocks.len() {
            let block = blocks[at];
            at += 1;
            if let Some(k) = self.barriers.iter().position(|b| b.0 == block) {
                ends.push(End::Barrier(k));
                continue;
            }
            let code = &self.old[block].code;
            if matches!(code.last().map(|i| &i.op), Some(Op::Return(_))) {
                ends.push(End::Finished);
            }
            for next in ssa::successors(&self.old[block]) {
                if !blocks.contains(&next) {
                    blocks.push(next);
                }
            }
        }
        ends.sort();
        ends.dedup();
        (blocks, ends)
    }

    /// Copies a block of the kernel's code to a region.
    fn copy_block(
        &mut self,
        old: BlockId,
        places: &HashMap<BlockId, BlockId>,
        next: BlockId,
        several: bool,
        unchanged: &HashSet<ValueId>,
    ) {
        let to = places[&old];
        let barrier = self.barriers.iter().position(|b| b.0 == old);
        for mut instruction in self.old[old].code.clone() {
            let end = match instruction.op {
                Op::Return(_) => Some(End::Finished),
                Op::Jump(_) => barrier.map(End::Barrier),
                _ => None,
            };
            if let Some(end) = end {
                if let End::Barrier(k) = end {
                    self.save_values(to, k, unchanged);
                }
                if several {
                    self.set(to, self.variables.end, Op::Copy(number(code(end))));
                }
                self.add(to, None, Op::Jump(next));
                continue;
            }
            if let Op::Phi(sources) = &mut instruction.op {
                sources.retain(|s| places.contains_key(&s.0));
            }
            instruction.op.blocks(&mut |b| *b = places[b]);
            self.new[to].code.push(instruction);
        }
    }

    /// Opens the loop over the work-items of a group. It is one loop for all dimensions, so that a
    /// pipeline continues at the end of a row.
    fn open_loop(&mut self, from: BlockId) -> ItemLoop {
        let mut last = Vec::new();
        for d in 0..3 {
            let id = self.variables.local[d];
            let first = match self.division {
                Division::Parts => local(self.variables.part[d]),
                _ => number(0),
            };
            self.set(from, id, Op::Copy(first));
            if matches!(self.groups.required, Some(size) if size[d] == 1) {
                continue;
            }
            let end = match self.size(from, d) {
                Value::Bits(size) => number(size.wrapping_sub(1)),
                size => {
                    let less = Op::Binary(BinaryOp::Sub, size, number(1));
                    self.value(from, "last", 32, less)
                }
            };
            last.push((d, end));
        }
        let first = if last.is_empty() { from } else { self.block() };
        if first != from {
            self.add(from, None, Op::Jump(first));
        }
        ItemLoop {
            first,
            next: self.block(),
            last,
        }
    }

    /// Closes the loop; returns the block after it.
    fn close_loop(&mut self, items: &ItemLoop, end: LoopEnd) -> BlockId {
        let at = items.next;
        // Whether the identifiers of all dimensions before are the last ones.
        let mut over: Option<Value> = None;
        for &(d, last) in &items.last {
            let id = self.variables.local[d];
            let ends = self.compare(at, IntPredicate::Equal, local(id), last);
            let one_more = Op::Binary(BinaryOp::Add, local(id), number(1));
            let one_more = self.value(at, "following", 32, one_more);
            let mut next = Op::Select(ends, number(0), one_more);
            let mut all = ends;
            if let Some(over) = over {
                let turned = self.value(at, "turned", 32, next);
                next = Op::Select(over, turned, local(id));
                all = self.value(at, "over", 1, Op::Binary(BinaryOp::And, over, ends));
            }
            over = Some(all);
            self.set(at, id, next);
        }
        let Some(over) = over else {
            return at;
        };
        let over = match end {
            LoopEnd::Whole => over,
            LoopEnd::Also(full) => self.value(at, "over", 1, Op::Binary(BinaryOp::Or, over, full)),
            LoopEnd::Only(last) => last,
        };
        let outside = self.block();
        self.add(at, None, Op::Branch(over, outside, items.first));
        if let Some(branch) = self.new[at].code.last_mut() {
            branch.independent = true;
        }
        outside
    }
}

/// The number of an end.
fn code(end: End) -> u64 {
    match end {
        End::Finished => 0,
        End::Barrier(k) => k as u64 + 1,
    }
}
