//! Loads and stores, in memories on the chip and off it.

use super::emitter::{Call, CallKind, Emitter, Lane, PortRead, Read, Spot, Write};
use super::readers::{port_part, port_word};
use crate::ir::Value;
use crate::memory::MemoryId;
use crate::verilog::{BinaryOperator, Expression};
use std::ops::Range;

/// Bytes of a word of memory off the chip.
const FAR_WORD: u64 = 8;

/// The lane of an access in a word, in units of the access.
enum LaneIndex {
    Constant(u64),
    Variable(Expression),
}

/// The banks, the word and the lane of an access to a memory on the chip.
struct BankAccess {
    memory: MemoryId,
    /// The banks that the access uses.
    banks: Range<u32>,
    /// The bank, if it is not constant.
    select: Option<Expression>,
    /// The word's index in the bank.
    word: Expression,
    lane: LaneIndex,
}

/// Bits of an index of this many words.
fn index_bits(words: usize) -> u32 {
    (usize::BITS - (words.max(2) - 1).leading_zeros()).max(1)
}

/// A mask of the lowest `count` bits.
fn ones(count: u64) -> u64 {
    (1 << count) - 1
}

impl Emitter<'_> {
    /// Bits of the index of the words of a memory's bank.
    pub fn word_bits(&self, memory: MemoryId) -> u32 {
        index_bits(self.memories[memory].words())
    }

    /// The place of an access.
    fn place(&mut self, spot: Spot, address: Value, size: u64) -> BankAccess {
        let Some(m) = self.memories.of(spot.function, address) else {
            unreachable!("memory::analyze rejects accesses without a memory");
        };
        let (width, split) = (self.memories[m].width, self.memories[m].banks);
        let banks = self.memories.banks(spot.function, m, address);
        let index = self.word_bits(m);
        let low = width.trailing_zeros();
        if let Value::Global(g, o) = address {
            let at = (self.memories.offset(g) as i64 + o) as u64;
            return BankAccess {
                memory: m,
                banks,
                select: None,
                word: Expression::Literal(split.split(at).1 >> low, index),
                lane: LaneIndex::Constant(at % width / size),
            };
        }
        let view = self.view(spot, address, 32);
        let lane = match width / size {
            1 => LaneIndex::Constant(0),
            _ => LaneIndex::Variable(view.clone().slice(low - 1, size.trailing_zeros())),
        };
        // The bits of the word are around those of the bank.
        let (from, inner) = (split.shift + split.bits, split.shift.saturating_sub(low));
        let word = match (split.bits, index - inner) {
            (0, _) => view.clone().slice(low + index - 1, low),
            (_, 0) => view.clone().slice(split.shift - 1, low),
            (_, outer) => {
                let mut parts = vec![view.clone().slice(from + outer - 1, from)];
                if inner > 0 {
                    parts.push(view.clone().slice(split.shift - 1, low));
                }
                Expression::Concatenation(parts)
            }
        };
        let several = banks.len() > 1;
        BankAccess {
            memory: m,
            banks,
            select: several.then(|| view.slice(from - 1, split.shift)),
            word,
            lane,
        }
    }

    /// A register that holds a value until the step in which the word of an access is there, the
    /// instruction at `index`.
    fn hold(&mut self, spot: Spot, index: usize, bits: u32, value: Expression) -> Expression {
        let code = self.code(spot.function, spot.block);
        let Some(result) = code.code[index].result else {
            return value;
        };
        let from = code.schedule.from.get(&result).copied().unwrap_or(0);
        let value_name = self.value_name(spot.function, result).to_owned();
        let mut held = value;
        for step in spot.step + 1..=from {
            let name = match from - step {
                0 => format!("{value_name}_lane"),
                before => format!("{value_name}_lane_before{before}"),
            };
            let value = std::mem::replace(&mut held, Expression::name(&name));
            self.lanes.push(Lane { name, bits, value });
        }
        held
    }

    pub fn load(
        &mut self,
        spot: Spot,
        index: usize,
        from: Value,
        size: u64,
        when: Expression,
    ) -> Expression {
        let (_, bits) = self.operation(spot, index);
        let place = self.place(spot, from, size);
        let m = place.memory;
        for bank in place.banks.clone() {
            let (when, word) = (when.clone(), place.word.clone());
            let reads = self.reads.entry((m, bank)).or_default();
            reads.push(Read { when, word });
        }
        let width = self.memories[m].width;
        let wide = size as u32 * 8;
        let lanes = (width / size).trailing_zeros();
        if let Some(select) = place.select {
            // The words of all banks are one vector, of which the bank and the lane select a part.
            let all = Expression::name(format!("{}_all", self.memory_name(m)));
            self.whole.insert(m);
            let (part, bits_of_part) = match place.lane {
                LaneIndex::Variable(lane) => {
                    let part = Expression::Concatenation(vec![select, lane]);
                    (part, self.memories[m].banks.bits + lanes)
                }
                LaneIndex::Constant(_) => (select, self.memories[m].banks.bits),
            };
            let part = self.hold(spot, index, bits_of_part, part);
            return all.part(part.scaled(u64::from(wide)), wide).resized(bits);
        }
        let q = Expression::name(format!("{}_q", self.bank_name(m, place.banks.start)));
        match place.lane {
            _ if width == size && bits == wide => q,
            _ if width == size => q.resized(bits),
            LaneIndex::Constant(lane) => {
                let low = lane as u32 * wide;
                q.slice(low + bits - 1, low)
            }
            LaneIndex::Variable(value) => {
                let lane = self.hold(spot, index, lanes, value);
                q.part(lane.scaled(u64::from(wide)), bits)
            }
        }
    }

    pub fn store(
        &mut self,
        spot: Spot,
        value: Value,
        to: Value,
        size: u64,
        condition: Option<Value>,
        when: Expression,
    ) {
        let place = self.place(spot, to, size);
        let width = self.memories[place.memory].width;
        let wide = size as u32 * 8;
        let bits = self.operand_bits(spot.function, value, wide);
        let mut data = self.view(spot, value, bits);
        if bits < wide {
            data = data.resized(wide);
        }
        let copies = width / size;
        if copies > 1 {
            data = data.repeated(copies);
        }
        let mask = match place.lane {
            _ if copies == 1 => Expression::Fill(true),
            LaneIndex::Constant(lane) => {
                Expression::Literal(ones(size) << (lane * size), width as u32)
            }
            LaneIndex::Variable(lane) => {
                let by = match size.trailing_zeros() {
                    0 => lane,
                    zeroes => Expression::Concatenation(vec![lane, Expression::Zeroes(zeroes)]),
                };
                let first = Expression::Literal(ones(size), width as u32);
                first.binary(BinaryOperator::ShiftLeft, by)
            }
        };
        let writes = self.if_condition(spot, when.clone(), condition);
        let bits = self.memories[place.memory].banks.bits;
        for bank in place.banks {
            let writes = match &place.select {
                Some(select) => {
                    let own = Expression::Literal(u64::from(bank), bits);
                    writes.clone().and(select.clone().equals(own))
                }
                None => writes.clone(),
            };
            self.writes
                .entry((place.memory, bank))
                .or_default()
                .push(Write {
                    when: when.clone(),
                    writes,
                    word: place.word.clone(),
                    mask: mask.clone(),
                    data: data.clone(),
                });
        }
    }

    fn if_condition(
        &mut self,
        spot: Spot,
        when: Expression,
        condition: Option<Value>,
    ) -> Expression {
        match condition {
            Some(condition) => when.and(self.view(spot, condition, 1)),
            None => when,
        }
    }

    /// An address off the chip, and its lane in a word in units of the access.
    fn far_place(&mut self, spot: Spot, address: Value, size: u64) -> (Expression, Expression) {
        let view = self.view(spot, address, 32);
        let lane = match (size, address) {
            (FAR_WORD, _) => Expression::Number(0),
            (_, Value::Global(g, o)) => {
                let offset = (self.memories.offset(g) as i64 + o) as u64;
                Expression::Number(offset % FAR_WORD / size)
            }
            _ => view.clone().slice(2, size.trailing_zeros()),
        };
        (view, lane)
    }

    pub fn far_load(
        &mut self,
        spot: Spot,
        index: usize,
        (from, size): (Value, u64),
        condition: Option<Value>,
        bits: u32,
        when: Expression,
    ) -> Expression {
        let (address, lane) = self.far_place(spot, from, size);
        let reads = self.if_condition(spot, when.clone(), condition);
        let word = match self.code(spot.function, spot.block).code[index].reader {
            Some(port) => {
                let code = self.code(spot.function, spot.block);
                let own = code.code[index].reader_word;
                let words = self.port_words(port);
                if own > 0 {
                    return port_part(port, own).resized(bits);
                }
                let all = self.readers.entry(port).or_default();
                all.push(PortRead {
                    when,
                    reads,
                    address,
                });
                match words {
                    1 => Expression::name(port_word(port)),
                    _ => port_part(port, 0),
                }
            }
            None => {
                self.calls.push(Call {
                    when,
                    made: reads,
                    kind: CallKind::Load,
                    inputs: vec![("call_command", address)],
                });
                Expression::name("port_word")
            }
        };
        let wide = size * 8;
        let lane = match (size, self.memories.pipelined) {
            (FAR_WORD, _) => return word.resized(bits),
            (_, false) => lane,
            // The word comes in the next step.
            (_, true) => self.hold(spot, index, (FAR_WORD / size).trailing_zeros(), lane),
        };
        word.part(lane.scaled(wide), wide as u32).resized(bits)
    }

    pub fn far_store(
        &mut self,
        spot: Spot,
        value: Value,
        to: Value,
        size: u64,
        condition: Option<Value>,
        when: Expression,
    ) {
        let (address, lane) = self.far_place(spot, to, size);
        let wide = size as u32 * 8;
        let bits = self.operand_bits(spot.function, value, wide);
        let view = self.view(spot, value, bits);
        let made = self.if_condition(spot, when.clone(), condition);
        let mask = Expression::Literal(ones(size), 32);
        let mask = mask.binary(BinaryOperator::ShiftLeft, lane.scaled(size));
        let data = view.resized(wide).repeated(FAR_WORD / size);
        self.calls.push(Call {
            when,
            made,
            kind: CallKind::Store,
            inputs: vec![
                ("call_command", address),
                ("call_bytes", mask),
                ("call_data", data),
            ],
        });
    }
}
