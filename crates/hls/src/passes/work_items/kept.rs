//! Values that later regions use: computed again, in a register if they are the same for all
//! work-items, or in an object on the chip with a place for each work-item. Values that control flow
//! merges share an object, if no barrier needs both.

use super::{local, Loops, REPEATED_MAX};
use crate::ir::{
    BlockId, Callee, EngineCall, Function, Global, GlobalId, Instruction, Op, ScaledIndex, Type,
    Value, ValueId,
};
use crate::passes::ssa;
use crate::units::unit;
use std::collections::{HashMap, HashSet};

/// The values that are kept across barriers.
#[derive(Default)]
pub(super) struct Kept {
    /// Values that are the same for all work-items of a group.
    pub uniform: HashSet<ValueId>,
    /// By barrier: the values that are used after it, in order.
    after: Vec<Vec<ValueId>>,
    /// By value: the one whose object it shares.
    shared: HashMap<ValueId, ValueId>,
    /// By value that has an object: the object, and the bytes of a work-item's place.
    slots: HashMap<ValueId, (GlobalId, u64)>,
    /// By uniform value: the variable that holds it across barriers, and its value in the current
    /// region.
    held: HashMap<ValueId, (ValueId, ValueId)>,
}

/// The way in which a value is available in a later region.
#[derive(PartialEq, Eq)]
enum Way {
    Repeated,
    Held,
    Slot,
}

impl Loops<'_> {
    /// Finds the values that are used after each barrier.
    pub(super) fn find_kept(&mut self) {
        let all = self.old.instructions().filter_map(|i| i.result).collect();
        let live = ssa::live_in(&self.old, &all);
        let after = self.barriers.iter().map(|b| {
            let mut values: Vec<ValueId> = live[b.1 .0].iter().copied().collect();
            values.sort();
            values
        });
        self.kept.after = after.collect();
        self.share();
    }

    /// Lets the values of a phi share an object where no barrier needs two of them.
    fn share(&mut self) {
        let mut barriers: HashMap<ValueId, HashSet<usize>> = HashMap::new();
        for (k, values) in self.kept.after.iter().enumerate() {
            for value in values.iter().filter(|v| self.way(**v) == Way::Slot) {
                barriers.entry(*value).or_default().insert(k);
            }
        }
        let phis = || {
            let all = self.old.instructions();
            all.filter_map(|i| match (&i.op, i.result) {
                (Op::Phi(sources), Some(result)) => Some((sources, result)),
                _ => None,
            })
        };
        // Phis between two values that barriers need lead from one to the other.
        for (sources, result) in phis() {
            let locals = sources.iter().filter_map(|(_, source)| match source {
                Value::Local(source) => Some(*source),
                _ => None,
            });
            for value in locals.chain([result]) {
                barriers.entry(value).or_default();
            }
        }
        let mut shared: HashMap<ValueId, ValueId> = barriers.keys().map(|v| (*v, *v)).collect();
        for (sources, result) in phis() {
            for (_, source) in sources {
                let Value::Local(source) = source else {
                    continue;
                };
                let Some((&one, &other)) = shared.get(&result).zip(shared.get(source)) else {
                    continue;
                };
                if one == other || !barriers[&one].is_disjoint(&barriers[&other]) {
                    continue;
                }
                let more = barriers.remove(&other).unwrap_or_default();
                barriers.entry(one).or_default().extend(more);
                for root in shared.values_mut().filter(|root| **root == other) {
                    *root = one;
                }
            }
        }
        self.kept.shared = shared;
    }

    fn way(&self, value: ValueId) -> Way {
        if self.repeated(value, &mut Vec::new()).is_some() {
            Way::Repeated
        } else if self.kept.uniform.contains(&value) {
            Way::Held
        } else {
            Way::Slot
        }
    }

    /// The computation of a value from arguments and identifiers, in order; `None` if it depends on
    /// more, or is long.
    fn repeated(&self, value: ValueId, out: &mut Vec<Instruction>) -> Option<()> {
        if out.iter().any(|i| i.result == Some(value)) || self.is_variable(value) {
            return Some(());
        }
        let found = self.old.instructions().find(|i| i.result == Some(value))?;
        let pure = match &found.op {
            Op::Binary(..)
            | Op::Compare { .. }
            | Op::Select(..)
            | Op::Cast(..)
            | Op::Address { .. }
            | Op::Copy(_) => unit(&self.old, found).is_none(),
            Op::Call(Callee::Engine(EngineCall::Word), _) => true,
            _ => false,
        };
        if !pure || out.len() >= REPEATED_MAX {
            return None;
        }
        for operand in found.op.uses() {
            if let Value::Local(v) = operand {
                self.repeated(v, out)?;
            }
        }
        out.push(found.clone());
        Some(())
    }

    fn is_variable(&self, value: ValueId) -> bool {
        let v = &self.variables;
        let all = [v.local, v.group, v.base];
        all.iter().flatten().any(|d| *d == value) || v.item == value
    }

    /// The object that holds a value for each work-item.
    fn slot(&mut self, value: ValueId) -> (GlobalId, u64) {
        let value = self.kept.shared.get(&value).copied().unwrap_or(value);
        if let Some(slot) = self.kept.slots.get(&value) {
            return *slot;
        }
        let bits = self.new[value].ty.bits().unwrap_or(32);
        let bytes = u64::from(bits.div_ceil(8)).next_power_of_two();
        let name = format!("{}_of_item", self.new[value].name);
        let all = bytes * u64::from(self.items_max);
        self.globals.push(Global {
            items: true,
            ..Global::zeroed(name, all as usize)
        });
        self.private_bytes += bytes;
        let slot = (GlobalId(self.globals.len() - 1), bytes);
        self.kept.slots.insert(value, slot);
        slot
    }

    fn slot_address(&mut self, at: BlockId, value: ValueId) -> (Value, u64) {
        let (global, bytes) = self.slot(value);
        let address = self.new.value("slot", Type::Ptr);
        let op = Op::Address {
            base: Value::Global(global, 0),
            offset: 0,
            indices: vec![ScaledIndex {
                value: local(self.variables.item),
                bits: 32,
                scale: bytes as i64,
            }],
        };
        self.add(at, Some(address), op);
        (local(address), bytes)
    }

    /// The variables of a uniform value.
    fn held(&mut self, value: ValueId) -> (ValueId, ValueId) {
        if let Some(held) = self.kept.held.get(&value) {
            return *held;
        }
        let mut variable = |suffix: &str| {
            let name = format!("{}_{suffix}", self.new[value].name);
            let ty = self.new[value].ty.clone();
            self.new.value(&name, ty)
        };
        let held = (variable("held"), variable("here"));
        self.kept.held.insert(value, held);
        held
    }

    /// Defines the variables of uniform values at the kernel's start, so that each has a definition
    /// on all paths.
    pub(super) fn define_held(&mut self, at: BlockId) {
        let mut held: Vec<ValueId> = self.kept.held.values().map(|h| h.0).collect();
        held.sort();
        let undefined = held.into_iter().map(|variable| {
            Instruction::new(Some(variable), Op::Copy(Value::Undef), &Default::default())
        });
        self.new[at].code.splice(0..0, undefined);
    }

    /// The values that are used after the barrier that a region follows.
    fn before(&self, region: usize) -> Vec<ValueId> {
        let barrier = region.checked_sub(1);
        let values = barrier.and_then(|k| self.kept.after.get(k));
        values.cloned().unwrap_or_default()
    }

    /// Reads the uniform values that a region uses, before its loop over work-items.
    pub(super) fn read_held(&mut self, at: BlockId, region: usize) {
        for value in self.before(region) {
            if self.way(value) == Way::Held {
                let (held, here) = self.held(value);
                self.set(at, here, Op::Copy(local(held)));
            }
        }
    }

    /// The values whose objects need not be written at a region's end: it begins with them, and does
    /// not define them.
    pub(super) fn unchanged(&self, region: usize, blocks: &[BlockId]) -> HashSet<ValueId> {
        let defined = |function: &Function| -> HashSet<ValueId> {
            let code = blocks.iter().flat_map(|b| &function[*b].code);
            code.filter_map(|i| i.result).collect()
        };
        let defined = defined(&self.old);
        let values = self.before(region).into_iter();
        values.filter(|v| !defined.contains(v)).collect()
    }

    pub(super) fn save_values(
        &mut self,
        at: BlockId,
        barrier: usize,
        unchanged: &HashSet<ValueId>,
    ) {
        for value in self.kept.after[barrier].clone() {
            if unchanged.contains(&value) {
                continue;
            }
            match self.way(value) {
                Way::Repeated => {}
                Way::Held => {
                    let (held, _) = self.held(value);
                    self.set(at, held, Op::Copy(local(value)));
                }
                Way::Slot => {
                    let (address, bytes) = self.slot_address(at, value);
                    self.add(at, None, Op::store(local(value), address, bytes));
                }
            }
        }
    }

    pub(super) fn restore_values(&mut self, at: BlockId, region: usize) {
        let mut defined: HashSet<ValueId> = HashSet::new();
        for value in self.before(region) {
            match self.way(value) {
                Way::Repeated => {
                    let mut computation = Vec::new();
                    let _ = self.repeated(value, &mut computation);
                    for instruction in computation {
                        if instruction.result.is_none_or(|r| defined.insert(r)) {
                            self.new[at].code.push(instruction);
                        }
                    }
                }
                Way::Held => {
                    let (_, here) = self.held(value);
                    self.set(at, value, Op::Copy(local(here)));
                }
                Way::Slot => {
                    let (address, bytes) = self.slot_address(at, value);
                    self.add(at, Some(value), Op::Load(address, bytes, None));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::opencl;

    #[test]
    fn a_sum_over_two_loops_has_one_object() {
        let source = "kernel void k(global int *o, int n) {\n local int t[256];\n \
            int i = get_local_id(0), sum = 0;\n for (int j = 0; j < n; j++) {\n  \
            barrier(CLK_LOCAL_MEM_FENCE);\n  t[i] = o[i + j];\n  \
            barrier(CLK_LOCAL_MEM_FENCE);\n  for (int l = 0; l < n; l++) sum += t[i ^ l];\n }\n \
            o[i] = sum;\n}\n";
        let folder = tempfile::tempdir().unwrap();
        let lowered = opencl::instructions(source, false, true, folder.path());
        let (module, _) = lowered.unwrap_or_else(|e| panic!("{}", e.log));
        let objects = module.globals.iter().filter(|global| global.items);
        let names: Vec<&str> = objects.map(|global| global.name.as_str()).collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }
}
