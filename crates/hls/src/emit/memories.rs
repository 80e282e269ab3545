//! Memories: block RAMs with a read port and a write port with byte enables.

use super::emitter::Emitter;
use crate::memory::{Memory, MemoryId};
use crate::verilog::{DataType, Declaration, Expression, Item, Line, Statement};

/// Objects that the comment of a memory lists.
const OBJECTS_MAX: usize = 6;

/// The names of a memory's signals.
struct Signals<'a> {
    memory: &'a str,
}

impl Signals<'_> {
    fn array(&self) -> Expression {
        Expression::name(self.memory)
    }

    fn name(&self, suffix: &str) -> String {
        format!("{}_{suffix}", self.memory)
    }

    fn signal(&self, suffix: &str) -> Expression {
        Expression::Name(self.name(suffix))
    }

    fn set(&self, suffix: &str, value: Expression) -> Statement {
        Statement::assign(self.signal(suffix), value)
    }
}

impl Emitter<'_> {
    pub fn memories(&self, out: &mut Vec<Item>) {
        for (m, memory) in self.memories.all.iter().enumerate() {
            if memory.far {
                let objects = memory.objects.join(", ");
                out.push(Item::Section(format!("{objects}: off the chip")));
            } else {
                self.memory(MemoryId(m), memory, out);
            }
        }
    }

    fn memory(&self, m: MemoryId, memory: &Memory, out: &mut Vec<Item>) {
        let signals = Signals {
            memory: self.memory_name(m),
        };
        let words = memory.words();
        let listed = memory.objects.iter().take(OBJECTS_MAX).cloned();
        let objects = listed.collect::<Vec<_>>().join(", ");
        let more = if memory.objects.len() > OBJECTS_MAX {
            " …"
        } else {
            ""
        };
        out.push(Item::Section(format!("{objects}{more}: {words} words")));
        out.push(Item::Blank);
        let width = memory.width as u32;
        let (bits, index) = (width * 8, self.word_bits(m));
        let declare = |bits, name| Declaration::new(DataType::Logic(bits), name);
        let mut array = declare(bits, signals.memory.to_owned());
        array.words = Some(words);
        out.push(Item::Declaration(array));
        let mut declared = vec![("q", bits)];
        let (reads, writes) = (self.reads.get(&m), self.writes.get(&m));
        if reads.is_some() {
            declared.extend([("read", 1), ("from", index)]);
        }
        if writes.is_some() {
            declared.extend([("write", width), ("to", index), ("data", bits)]);
        }
        for (suffix, bits) in declared {
            out.push(Item::Declaration(declare(bits, signals.name(suffix))));
        }
        out.push(Item::Initial(contents(memory, &signals)));
        out.push(Item::Combinational(self.ports(m, &signals)));
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

    /// The inputs of a memory's ports.
    fn ports(&self, m: MemoryId, signals: &Signals<'_>) -> Vec<Statement> {
        let zero = || Expression::Fill(false);
        let mut out = Vec::new();
        if let Some(reads) = self.reads.get(&m) {
            out.push(signals.set("read", Expression::Literal(0, 1)));
            out.push(signals.set("from", zero()));
            out.extend(reads.iter().map(|read| {
                let inputs = vec![
                    signals.set("read", Expression::name("step")),
                    signals.set("from", read.word.clone()),
                ];
                Statement::when(read.when.clone(), inputs)
            }));
        }
        if let Some(writes) = self.writes.get(&m) {
            out.extend(["write", "to", "data"].map(|suffix| signals.set(suffix, zero())));
            out.extend(writes.iter().map(|write| {
                let inputs = vec![
                    signals.set("write", write.mask.clone()),
                    signals.set("to", write.word.clone()),
                    signals.set("data", write.data.clone()),
                ];
                Statement::when(write.when.clone(), inputs)
            }));
        }
        out
    }
}

/// The initial contents of a memory.
fn contents(memory: &Memory, signals: &Signals<'_>) -> Vec<Statement> {
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
        if value != 0 {
            let at = signals.array().index(Expression::Number(i as u64));
            let bits = memory.width as u32 * 8;
            out.push(Statement::assign(at, Expression::Word(value, bits)));
        }
    }
    out
}

/// The write port of a memory of this width in bytes.
fn write(signals: &Signals<'_>, width: u64) -> Line {
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
