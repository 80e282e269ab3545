//! Memories: block RAMs with a read port and a write port with byte enables.

use super::emitter::{Emitter, Write};
use super::selection;
use crate::memory::{Memory, MemoryId};
use crate::verilog::{DataType, Declaration, Expression, Item, Line, Statement};

/// Objects that the comment of a memory lists.
const OBJECTS_MAX: usize = 6;

/// The names of a memory's signals.
struct Signals {
    memory: String,
}

impl Signals {
    fn array(&self) -> Expression {
        Expression::name(self.memory.clone())
    }

    fn name(&self, suffix: &str) -> String {
        format!("{}_{suffix}", self.memory)
    }

    fn signal(&self, suffix: &str) -> Expression {
        Expression::Name(self.name(suffix))
    }
}

impl Emitter<'_> {
    pub fn memories(&self, out: &mut Vec<Item>) {
        for (m, memory) in self.memories.all.iter().enumerate() {
            if memory.far {
                let objects = memory.objects.join(", ");
                out.push(Item::Section(format!("{objects}: off the chip")));
            } else {
                let title = title(memory);
                out.push(Item::Section(title));
                out.push(Item::Blank);
                for bank in 0..memory.banks.count() {
                    self.bank(MemoryId(m), bank, memory, out);
                }
                self.all_banks(MemoryId(m), memory, out);
            }
        }
    }

    /// The words of all banks as a vector.
    fn all_banks(&self, m: MemoryId, memory: &Memory, out: &mut Vec<Item>) {
        if !self.whole.contains(&m) {
            return;
        }
        let name = format!("{}_all", self.memory_name(m));
        let bits = memory.width as u32 * 8 * memory.banks.count();
        let declaration = Declaration::new(DataType::Logic(bits), name.clone());
        out.push(Item::Declaration(declaration));
        let banks = (0..memory.banks.count()).rev();
        let words = banks.map(|bank| Expression::name(format!("{}_q", self.bank_name(m, bank))));
        let words = Expression::Concatenation(words.collect());
        out.push(Item::Assign(Expression::name(name), words));
    }

    fn bank(&self, m: MemoryId, bank: u32, memory: &Memory, out: &mut Vec<Item>) {
        let signals = Signals {
            memory: self.bank_name(m, bank),
        };
        let words = memory.words();
        let width = memory.width as u32;
        let (bits, index) = (width * 8, self.word_bits(m));
        let declare = |bits, name| Declaration::new(DataType::Logic(bits), name);
        let mut array = declare(bits, signals.memory.clone());
        array.words = Some(words);
        out.push(Item::Declaration(array));
        let mut declared = vec![("q", bits)];
        let at = (m, bank);
        let (reads, writes) = (self.reads.get(&at), self.writes.get(&at));
        if reads.is_some() {
            declared.extend([("read", 1), ("from", index)]);
        }
        if writes.is_some() {
            declared.extend([("write", width), ("to", index), ("data", bits)]);
        }
        for (suffix, bits) in declared {
            out.push(Item::Declaration(declare(bits, signals.name(suffix))));
        }
        out.push(Item::Initial(contents(memory, bank, &signals)));
        out.push(Item::Combinational(self.ports(at, &signals)));
        let mut clocked = Vec::new();
        if reads.is_some() {
            let word = signals.array().index(signals.signal("from"));
            let read = Line::Register(signals.signal("q"), word);
            clocked.push(read.guarded(signals.signal("read")).into());
        }
        if writes.is_some() {
            clocked.push(write(&signals, memory.width).into());
        }
        out.push(Item::Clocked(clocked));
    }

    /// The inputs of the ports of a memory's bank.
    fn ports(&self, at: (MemoryId, u32), signals: &Signals) -> Vec<Statement> {
        let mut out = Vec::new();
        if let Some(reads) = self.reads.get(&at) {
            let active = selection::any(reads.iter().map(|read| read.when.clone()));
            let read = Expression::name("step").and(active.grouped());
            out.push(Statement::assign(signals.signal("read"), read));
            let words = reads.iter().map(|r| (r.when.clone(), r.word.clone()));
            out.extend(selection::or_any(&signals.signal("from"), words.collect()));
        }
        if let Some(writes) = self.writes.get(&at) {
            type Part = fn(&Write) -> Expression;
            let choices = |part: Part| writes.iter().map(|w| (w.when.clone(), part(w))).collect();
            let masks = writes.iter().map(|w| (w.writes.clone(), w.mask.clone()));
            out.extend(selection::or_zero(
                &signals.signal("write"),
                masks.collect(),
            ));
            let parts: [(&str, Part); 2] =
                [("to", |w| w.word.clone()), ("data", |w| w.data.clone())];
            for (suffix, part) in parts {
                out.extend(selection::or_any(&signals.signal(suffix), choices(part)));
            }
        }
        out
    }
}

/// The title of a memory: its objects.
fn title(memory: &Memory) -> String {
    let listed = memory.objects.iter().take(OBJECTS_MAX).cloned();
    let objects = listed.collect::<Vec<_>>().join(", ");
    let more = if memory.objects.len() > OBJECTS_MAX {
        " …"
    } else {
        ""
    };
    let words = memory.words();
    match memory.banks.count() {
        1 => format!("{objects}{more}: {words} words"),
        banks => format!("{objects}{more}: {banks} banks of {words} words"),
    }
}

/// The initial contents of a memory's bank.
fn contents(memory: &Memory, bank: u32, signals: &Signals) -> Vec<Statement> {
    let clear = Line::Assign(
        signals.array().index(Expression::name("i")),
        Expression::Fill(false),
    );
    let clear = Line::For {
        variable: "i",
        count: memory.words() as u64,
        body: Box::new(clear),
    };
    let mut out = vec![clear.into()];
    for (i, word) in memory.bytes.chunks(memory.width as usize).enumerate() {
        let value = word.iter().rev().fold(0, |all, b| all << 8 | u64::from(*b));
        let (own, at) = memory.banks.split(i as u64 * memory.width);
        if value != 0 && own == bank {
            let at = signals.array().index(Expression::Number(at / memory.width));
            let bits = memory.width as u32 * 8;
            out.push(Statement::assign(at, Expression::Word(value, bits)));
        }
    }
    out
}

/// The write port of a memory of this width in bytes.
fn write(signals: &Signals, width: u64) -> Line {
    let step = Expression::name("step");
    let (enable, data) = (signals.signal("write"), signals.signal("data"));
    let word = signals.array().index(signals.signal("to"));
    if width == 1 {
        return Line::Register(word, data).guarded(step.and(enable));
    }
    let byte = || Expression::name("b");
    let part = |word: Expression| word.part(byte().scaled(8), 8);
    let write = Line::Register(part(word), part(data));
    Line::For {
        variable: "b",
        count: width,
        body: Box::new(write.guarded(step.and(enable.index(byte())))),
    }
}
