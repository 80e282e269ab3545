//! Divides memories into banks, which are accessed at the same time: a word is in the bank that some
//! bits of its address select. They are those by which most accesses of a loop over work-items go to
//! different banks; an access whose bank is not constant uses all of them.

use super::bits::Bits;
use super::{Memories, MemoryId};
use crate::ir::{BlockId, Function, FunctionId, Instruction, Module, Op, Value};
use crate::passes::loops::loops as natural_loops;
use crate::units::units_interval;
use std::collections::BTreeMap;

/// Most banks, as a power of two.
const COUNT_BITS_MAX: u32 = 4;
/// Assumed iterations of a loop around others.
const ITERATIONS: u64 = 4;
/// Bytes of the smallest bank.
const BYTES_MIN: u64 = 2;

/// The bits of an address that select a bank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Banks {
    /// The lowest one.
    pub shift: u32,
    /// Their number: the banks' number is a power of two.
    pub bits: u32,
}

impl Banks {
    pub fn count(self) -> u32 {
        1 << self.bits
    }

    /// The bank of an address, and its address in the bank.
    pub fn split(self, address: u64) -> (u32, u64) {
        let low = address & ((1 << self.shift) - 1);
        let bank = (address >> self.shift) & u64::from(self.count() - 1);
        let high = address >> (self.shift + self.bits);
        (bank as u32, high << self.shift | low)
    }

    /// The bank of a sum of a constant and bits that may be one, if it is constant.
    fn fixed(self, constant: i64, variable: u64) -> Option<u32> {
        let below = (1_u64 << (self.shift + self.bits)) - 1;
        let selects = below & !((1 << self.shift) - 1);
        let carries = constant as u64 & variable & below;
        let bank = (constant as u64 & selects) >> self.shift;
        (carries == 0 && variable & selects == 0).then_some(bank as u32)
    }
}

/// An access of a loop to a memory.
struct Access {
    constant: i64,
    variable: u64,
    store: bool,
}

/// The accesses of a loop over work-items.
struct Loop {
    accesses: Vec<Access>,
    /// The interval for which it has enough units.
    enough: u32,
    /// Assumed number of executions.
    weight: u64,
}

/// Chooses the banks of all memories.
pub fn divide(module: &Module, memories: &mut Memories) {
    let mut loops: BTreeMap<MemoryId, Vec<Loop>> = BTreeMap::new();
    for (at, function) in module.functions.iter().enumerate() {
        let bits = Bits::new(function);
        let all = natural_loops(function);
        for block in (0..function.blocks.len()).map(BlockId) {
            if is_wide_loop(function, block) {
                let depth = all.iter().filter(|l| l.blocks.contains(&block)).count() as u32;
                let own = accesses(function, FunctionId(at), block, &bits, memories);
                for (memory, accesses) in own {
                    loops.entry(memory).or_default().push(Loop {
                        accesses,
                        enough: units_interval(function, block),
                        weight: ITERATIONS.saturating_pow(depth),
                    });
                }
            }
        }
    }
    for (memory, loops) in loops {
        let banks = best(&loops, &memories[memory]);
        let part = 1 << (banks.shift + banks.bits);
        let bytes = &mut memories.all[memory.0].bytes;
        bytes.resize(bytes.len().next_multiple_of(part), 0);
        memories.all[memory.0].banks = banks;
    }
    for (at, function) in module.functions.iter().enumerate() {
        let bits = Bits::new(function);
        for instruction in function.instructions() {
            let (Op::Load(address, ..) | Op::Store { address, .. }) = instruction.op else {
                continue;
            };
            let at = FunctionId(at);
            let memory = memories
                .of(at, address)
                .filter(|m| memories[*m].banks.bits > 0);
            if let (Some(memory), Value::Local(v)) = (memory, address) {
                let (constant, variable) = sum(&bits, memories, address);
                let bank = memories[memory].banks.fixed(constant, variable);
                memories
                    .fixed_banks
                    .extend(bank.map(|bank| ((at, v), bank)));
            }
        }
    }
}

/// Whether a block is a loop over work-items, or one with operations on channels.
fn is_wide_loop(function: &Function, block: BlockId) -> bool {
    let code = &function[block].code;
    code.last().is_some_and(|last| {
        let loops = matches!(last.op, Op::Branch(_, a, b) if a == block || b == block);
        loops && (last.independent || code.iter().any(Instruction::uses_channel))
    })
}

/// An address as a constant and bits that may be one.
fn sum(bits: &Bits<'_>, memories: &Memories, address: Value) -> (i64, u64) {
    match bits.address(address) {
        (Value::Global(global, offset), constant, variable) => {
            let place = memories.offset(global) as i64;
            (place + offset + constant, variable)
        }
        _ => (0, u64::MAX),
    }
}

fn accesses(
    function: &Function,
    at: FunctionId,
    block: BlockId,
    bits: &Bits<'_>,
    memories: &Memories,
) -> BTreeMap<MemoryId, Vec<Access>> {
    let mut found: BTreeMap<MemoryId, Vec<Access>> = BTreeMap::new();
    for instruction in &function[block].code {
        let (address, store) = match instruction.op {
            Op::Load(address, ..) => (address, false),
            Op::Store { address, .. } => (address, true),
            _ => continue,
        };
        let memory = memories.of(at, address).filter(|m| !memories[*m].far);
        if let Some(memory) = memory {
            let (constant, variable) = sum(bits, memories, address);
            found.entry(memory).or_default().push(Access {
                constant,
                variable,
                store,
            });
        }
    }
    found
}

/// The fewest banks with which the loops' intervals are shortest.
fn best(loops: &[Loop], memory: &super::Memory) -> Banks {
    let none = Banks::default();
    let mut chosen = (cost(loops, none), none);
    for bits in 1..=COUNT_BITS_MAX {
        for shift in memory.width.trailing_zeros().. {
            let banks = Banks { shift, bits };
            let part = 1_u64 << (shift + bits);
            if part > memory.bytes.len() as u64 || memory.bytes.len() as u64 >> bits < BYTES_MIN {
                break;
            }
            let cost = cost(loops, banks);
            if cost < chosen.0 {
                chosen = (cost, banks);
            }
        }
    }
    chosen.1
}

/// The sum of the loops' intervals, each as often as it is executed.
fn cost(loops: &[Loop], banks: Banks) -> u64 {
    let interval = |l: &Loop| {
        let mut used = vec![[0_u32; 2]; banks.count() as usize];
        for access in &l.accesses {
            match banks.fixed(access.constant, access.variable) {
                Some(bank) => used[bank as usize][usize::from(access.store)] += 1,
                None => used
                    .iter_mut()
                    .for_each(|b| b[usize::from(access.store)] += 1),
            }
        }
        let most = used.into_iter().flatten().max();
        most.unwrap_or(0).max(l.enough)
    };
    let costs = loops
        .iter()
        .map(|l| l.weight.saturating_mul(interval(l).into()));
    costs.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_divided_among_banks() {
        let banks = Banks { shift: 3, bits: 2 };
        assert_eq!(banks.split(0b1_1011_0101), (2, 0b110_1101));
        let mut all: Vec<_> = (0..256).map(|a| banks.split(a)).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 256);
        assert!(all.iter().all(|(bank, at)| *bank < 4 && *at < 64));
    }

    #[test]
    fn a_bank_is_constant_only_if_no_sum_carries_into_its_bits() {
        let banks = Banks { shift: 3, bits: 2 };
        assert_eq!(banks.fixed(0x48, !0x1f), Some(1));
        assert_eq!(banks.fixed(0x4a, 0x60 | 1), Some(1));
        assert_eq!(banks.fixed(0x4a, 2), None);
        assert_eq!(banks.fixed(0, 8), None);
    }
}
