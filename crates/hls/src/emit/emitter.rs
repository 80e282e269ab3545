//! The state of the emission: names, the values that need registers, and what has been emitted.

use crate::error::Position;
use crate::ir::{
    BlockId, Callee, Channels, EngineCall, Function, FunctionId, Module, Op, Value, ValueId,
};
use crate::memory::{Memories, MemoryId};
use crate::names::Names;
use crate::schedule::{Code, End};
use crate::units::{unit, Unit};
use crate::verilog::{DataType, Declaration, Expression, Item, Statement, Variant};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A function with its scheduled blocks.
pub struct Body<'a> {
    pub function: &'a Function,
    pub codes: Vec<Code>,
}

/// The definition of a value.
#[derive(Clone, Copy)]
enum Origin {
    Parameter,
    Phi(BlockId),
    Operation(BlockId),
    /// A call's result, in the block that follows it.
    Result(BlockId),
    /// Bits of a word of the argument block, from this one on.
    Word(u64, u64),
}

/// The point at which a value is read: function, block and step, or after a pipeline.
#[derive(Clone, Copy)]
pub struct Spot {
    pub function: FunctionId,
    pub block: BlockId,
    pub step: u32,
    pub after: bool,
}

/// A value of a function.
type Key = (FunctionId, ValueId);

/// The values that need registers, and the steps to which pipelines carry values.
#[derive(Default, PartialEq, Eq, Clone)]
pub struct Marks {
    pub registers: BTreeSet<Key>,
    pub chains: BTreeMap<Key, BTreeSet<u32>>,
}

/// A use of a unit: the condition of its step, its operands.
#[derive(Clone)]
pub struct Use {
    pub when: Expression,
    pub operands: Vec<Expression>,
    /// Whether a division is of signed numbers.
    pub signed: bool,
}

/// A read of a memory: the condition of its step, the word.
pub struct Read {
    pub when: Expression,
    pub word: Expression,
}

/// A write of a memory: the condition of its step, that under which it writes, the word, the bytes
/// that are enabled, the data.
pub struct Write {
    pub when: Expression,
    pub writes: Expression,
    pub word: Expression,
    pub mask: Expression,
    pub data: Expression,
}

/// The kind of a call of the engines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    Load,
    Store,
    Engine(EngineCall),
}

impl CallKind {
    /// The name of its constant in the emitted module.
    pub fn name(self) -> String {
        match self {
            CallKind::Load => "CallLoad".to_owned(),
            CallKind::Store => "CallStore".to_owned(),
            CallKind::Engine(call) => format!("Call{call:?}"),
        }
    }
}

/// A call of the engines: the condition of its step, that under which it is made, its kind, and the
/// values of inputs.
pub struct Call {
    pub when: Expression,
    pub made: Expression,
    pub kind: CallKind,
    pub inputs: Vec<(&'static str, Expression)>,
}

/// A load by a port: the condition of its step, that under which it reads, the address.
pub struct PortRead {
    pub when: Expression,
    pub reads: Expression,
    pub address: Expression,
}

/// The behavior of an operation on a channel without an element or space.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The step lasts longer.
    Waits,
    /// The operation does nothing.
    Passes,
    /// The iteration of the pipeline begins again.
    Repeats,
}

/// An operation on a channel: the condition of its step, the words of an element to write.
pub struct ChannelOperation {
    pub when: Expression,
    pub missing: Missing,
    pub words: Vec<Expression>,
}

/// A register with the lane of the access of the step before.
pub struct Lane {
    pub name: String,
    pub bits: u32,
    pub value: Expression,
}

pub struct Emitter<'a> {
    pub bodies: &'a [Body<'a>],
    pub memories: &'a Memories,
    pub channels: &'a Channels,
    /// See [`Module::parts`].
    pub parts: bool,
    pub marks: Marks,
    values: Vec<Vec<String>>,
    functions: Vec<String>,
    memory_names: Vec<String>,
    origins: Vec<HashMap<ValueId, Origin>>,
    /// Values of pipelines that are the same in all iterations.
    constant: BTreeSet<Key>,
    states: HashMap<(FunctionId, BlockId, u32), String>,
    pub variants: Vec<Variant>,
    /// Declarations, and the assignments and instances that drive them.
    pub declared: Vec<Item>,
    pub wires: Vec<Item>,
    pub units: BTreeMap<(Unit, u32), Vec<Use>>,
    /// By memory and bank.
    pub reads: BTreeMap<(MemoryId, u32), Vec<Read>>,
    pub writes: BTreeMap<(MemoryId, u32), Vec<Write>>,
    /// Memories with banks of which a load selects one.
    pub whole: BTreeSet<MemoryId>,
    pub calls: Vec<Call>,
    /// Loads by their port.
    pub readers: BTreeMap<u32, Vec<PortRead>>,
    /// Operations on channels by the kernel's port.
    pub channel_reads: BTreeMap<u32, Vec<ChannelOperation>>,
    pub channel_writes: BTreeMap<u32, Vec<ChannelOperation>>,
    /// Units whose results the step after their start waits for.
    pub waiting: BTreeSet<Unit>,
    pub lanes: Vec<Lane>,
    /// Words of the argument block that are used.
    pub words: BTreeSet<u64>,
    /// By state: its statements.
    pub steps: Vec<(Expression, Vec<Statement>)>,
    /// Statements of pipelines, which are executed in every state: registers that are read only while
    /// an iteration is in its step need no condition.
    pub flows: Vec<Statement>,
    /// By pipeline: the bits of its steps.
    pub valids: Vec<Expression>,
    /// By pipeline whose iterations may begin again: the bits of the steps after their first reads.
    pub later: Vec<Expression>,
    /// By block, step and expression: the value that is emitted for it.
    computed: HashMap<(FunctionId, BlockId, u32, String), ValueId>,
    /// By value: the one with the same expression in the same step, in place of which it is read.
    same: HashMap<Key, ValueId>,
}

/// The name of an instance of a unit.
pub fn unit_name(kind: Unit, instance: u32) -> String {
    match instance {
        0 => kind.name(),
        n => format!("{}_{n}", kind.name()),
    }
}

/// A step's position in the source: that of its first instruction.
fn position(code: &Code, step: u32) -> &Position {
    let mut steps = code.code.iter().zip(&code.schedule.steps);
    let found = steps.find(|(i, s)| s.0 == step && !i.position.is_unknown());
    found.map_or(&code.position, |(i, _)| &i.position)
}

/// The word and the lowest bit that an instruction reads from the argument block.
pub fn word(op: &Op) -> Option<(u64, u64)> {
    match op {
        Op::Call(Callee::Engine(EngineCall::Word), arguments) => match arguments.as_slice() {
            [(_, Value::Bits(word)), (_, Value::Bits(low))] => Some((*word, *low)),
            _ => None,
        },
        _ => None,
    }
}

/// By value of a function: its definition.
fn origins(body: &Body<'_>) -> HashMap<ValueId, Origin> {
    let mut of = HashMap::new();
    for v in (0..body.function.parameters).map(ValueId) {
        of.insert(v, Origin::Parameter);
    }
    for (b, code) in body.codes.iter().enumerate() {
        let b = BlockId(b);
        for (v, _) in &code.phis {
            of.insert(*v, Origin::Phi(b));
        }
        for instruction in &code.code {
            let origin = match word(&instruction.op) {
                Some((word, low)) => Origin::Word(word, low),
                None => Origin::Operation(b),
            };
            of.extend(instruction.result.map(|v| (v, origin)));
        }
        if let End::Call(_, _, Some(v), next) = &code.end {
            of.insert(*v, Origin::Result(*next));
        }
    }
    of
}

/// The values of a function's pipelines that are computed from arguments, constants and values from
/// before the pipeline. An iteration finds them in a register, which all iterations write alike.
fn constant_values((f, body): (usize, &Body<'_>)) -> BTreeSet<Key> {
    let mut all = BTreeSet::new();
    for code in body
        .codes
        .iter()
        .filter(|code| code.schedule.interval.is_some())
    {
        let phis = code.phis.iter().map(|(v, _)| *v);
        let mut varies: BTreeSet<ValueId> = phis.collect();
        for instruction in &code.code {
            let Some(result) = instruction.result else {
                continue;
            };
            let pure = unit(body.function, instruction).is_none()
                && !matches!(instruction.op, Op::Load(..) | Op::Call(..));
            let varying = |v: Value| matches!(v, Value::Local(v) if varies.contains(&v));
            if word(&instruction.op).is_some() {
                continue;
            }
            if pure && !instruction.op.uses().into_iter().any(varying) {
                all.insert((FunctionId(f), result));
            } else {
                varies.insert(result);
            }
        }
    }
    all
}

impl<'a> Emitter<'a> {
    pub fn new(
        bodies: &'a [Body<'a>],
        memories: &'a Memories,
        module: &'a Module,
        marks: Marks,
    ) -> Emitter<'a> {
        let mut names = Names::new();
        let memory_names = (memories.all.iter())
            .map(|m| names.new_name(&format!("{}_memory", m.name)))
            .collect();
        let functions: Vec<String> = bodies
            .iter()
            .map(|b| names.new_name(&b.function.name))
            .collect();
        let mut emitter = Emitter {
            bodies,
            memories,
            channels: &module.channels,
            parts: module.parts,
            marks,
            values: Vec::new(),
            functions,
            memory_names,
            origins: bodies.iter().map(origins).collect(),
            constant: bodies
                .iter()
                .enumerate()
                .flat_map(constant_values)
                .collect(),
            states: HashMap::new(),
            variants: Vec::new(),
            declared: Vec::new(),
            wires: Vec::new(),
            units: BTreeMap::new(),
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            whole: BTreeSet::new(),
            calls: Vec::new(),
            readers: BTreeMap::new(),
            channel_reads: BTreeMap::new(),
            channel_writes: BTreeMap::new(),
            waiting: BTreeSet::new(),
            lanes: Vec::new(),
            words: BTreeSet::new(),
            steps: Vec::new(),
            flows: Vec::new(),
            valids: Vec::new(),
            later: Vec::new(),
            computed: HashMap::new(),
            same: HashMap::new(),
        };
        for (f, body) in bodies.iter().enumerate() {
            emitter.name(&mut names, FunctionId(f), body);
        }
        emitter
    }

    /// Names the values and states of a function.
    fn name(&mut self, names: &mut Names, f: FunctionId, body: &Body<'_>) {
        let name = &self.functions[f.0];
        let prefix = match f {
            FunctionId(0) => String::new(),
            _ => format!("{name}_"),
        };
        let values = body.function.values.iter();
        let values = values.map(|v| names.new_name(&format!("{prefix}{}", v.name)));
        self.values.push(values.collect());
        for (b, code) in body.codes.iter().enumerate() {
            for step in 0..code.states() {
                let position = position(code, step);
                let name = names.new_name(&format!("S_{name}_{}", position.line));
                let file = position.file.rsplit('/').next().unwrap_or("");
                let comment = if position.is_unknown() {
                    String::new()
                } else {
                    format!("{file}:{}", position.line)
                };
                self.variants.push(Variant {
                    name: name.clone(),
                    comment,
                });
                self.states.insert((f, BlockId(b), step), name);
            }
        }
    }

    pub fn code(&self, function: FunctionId, block: BlockId) -> &'a Code {
        &self.bodies[function.0].codes[block.0]
    }

    pub fn function(&self, function: FunctionId) -> &'a Function {
        self.bodies[function.0].function
    }

    pub fn bits(&self, function: FunctionId, value: ValueId) -> u32 {
        self.function(function)[value].ty.bits().unwrap_or(1)
    }

    /// The width of an operand; `other` for a constant.
    pub fn operand_bits(&self, function: FunctionId, value: Value, other: u32) -> u32 {
        match value {
            Value::Local(v) => self.bits(function, v),
            _ => other,
        }
    }

    pub fn value_name(&self, function: FunctionId, value: ValueId) -> &str {
        &self.values[function.0][value.0]
    }

    pub fn function_name(&self, function: FunctionId) -> &str {
        &self.functions[function.0]
    }

    pub fn memory_name(&self, memory: MemoryId) -> &str {
        &self.memory_names[memory.0]
    }

    /// The name of a memory's bank.
    pub fn bank_name(&self, memory: MemoryId, bank: u32) -> String {
        let name = self.memory_name(memory);
        match self.memories[memory].banks.bits {
            0 => name.to_owned(),
            _ => format!("{name}_bank{bank}"),
        }
    }

    pub fn state(&self, function: FunctionId, block: BlockId, step: u32) -> Expression {
        Expression::name(self.states[&(function, block, step)].clone())
    }

    /// The bits that show which steps of a pipeline have an iteration.
    pub fn valid(&self, function: FunctionId, block: BlockId) -> Expression {
        let state = &self.states[&(function, block, 0)];
        Expression::name(format!("{state}_valid"))
    }

    pub fn has_register(&self, function: FunctionId, value: ValueId) -> bool {
        self.marks.registers.contains(&(function, value))
    }

    pub fn register(&mut self, function: FunctionId, value: ValueId) -> Expression {
        self.marks.registers.insert((function, value));
        Expression::name(self.value_name(function, value))
    }

    fn chained(&mut self, function: FunctionId, value: ValueId, step: u32) -> Expression {
        let steps = self.marks.chains.entry((function, value)).or_default();
        steps.insert(step);
        Expression::name(format!("{}_p{step}", self.value_name(function, value)))
    }

    /// The wire of a value: its name, unless its register has that.
    pub fn wire(&self, function: FunctionId, value: ValueId) -> String {
        let name = self.value_name(function, value);
        if self.has_register(function, value) {
            format!("{name}_d")
        } else {
            name.to_owned()
        }
    }

    /// Whether the block has the same expression in the same step already, of another value, which is
    /// then read in place of this one.
    pub fn is_known(&mut self, spot: Spot, value: ValueId, expression: &Expression) -> bool {
        let f = spot.function;
        let bits = self.bits(f, value);
        let key = (f, spot.block, spot.step, format!("{bits}: {expression}"));
        match self.computed.get(&key) {
            Some(first) => {
                self.same.insert((f, value), *first);
                true
            }
            None => {
                self.computed.insert(key, value);
                false
            }
        }
    }

    pub fn declare(&mut self, bits: u32, name: impl Into<String>) {
        let declaration = Declaration::new(DataType::Logic(bits), name);
        self.declared.push(Item::Declaration(declaration));
    }

    /// A value as an expression of `bits` bits, read at a spot.
    pub fn view(&mut self, spot: Spot, value: Value, bits: u32) -> Expression {
        let v = match value {
            Value::Bits(n) => return Expression::Literal(n, bits),
            Value::Null | Value::Undef | Value::Aggregate(_) => {
                return Expression::Literal(0, bits)
            }
            Value::Global(g, o) => {
                let offset = self.memories.offset(g) as i64 + o;
                return Expression::Literal(offset as u64, bits);
            }
            Value::Local(v) => v,
        };
        let f = spot.function;
        let code = self.code(f, spot.block);
        let schedule = &code.schedule;
        let here = |b: BlockId| b == spot.block && !spot.after;
        match self.origins[f.0].get(&v).copied() {
            // Words do not change while the kernel runs.
            Some(Origin::Word(word, low)) => {
                self.words.insert(word);
                let word = Expression::name(format!("argument_{word}"));
                match (low, self.bits(f, v)) {
                    (0, 64) => word,
                    (low, bits) => {
                        let (low, bits) = (low as u32, bits);
                        word.slice(low + bits - 1, low)
                    }
                }
            }
            Some(Origin::Phi(b)) if here(b) && schedule.interval.is_some() => {
                let renewal = schedule.renewals.get(&v);
                if spot.step <= renewal.map_or(0, |renewal| renewal.until) {
                    self.register(f, v)
                } else {
                    self.chained(f, v, spot.step)
                }
            }
            Some(Origin::Operation(b)) if here(b) => {
                let v = self.same.get(&(f, v)).copied().unwrap_or(v);
                let from = schedule.from.get(&v).copied().unwrap_or(0);
                match (from == spot.step, schedule.interval) {
                    (true, _) => Expression::name(self.wire(f, v)),
                    (false, Some(_)) if !self.constant.contains(&(f, v)) => {
                        self.chained(f, v, spot.step)
                    }
                    (false, _) => self.register(f, v),
                }
            }
            Some(Origin::Result(b)) if here(b) && spot.step == 0 => {
                Expression::name(self.wire(f, v))
            }
            _ => self.register(f, v),
        }
    }

    /// The condition under which a spot's step is active.
    pub fn when(&self, spot: Spot) -> Expression {
        let (f, b) = (spot.function, spot.block);
        match self.code(f, b).schedule.interval {
            None => Expression::name("state").equals(self.state(f, b, spot.step)),
            // No step has an iteration while the state is another one.
            Some(_) => self.valid(f, b).bit(spot.step),
        }
    }

    /// An operation's index in its block, and its width.
    pub fn operation(&self, spot: Spot, index: usize) -> (&'a Op, u32) {
        let instruction = &self.code(spot.function, spot.block).code[index];
        let result = instruction.result;
        let bits = result.map_or(0, |r| self.bits(spot.function, r));
        (&instruction.op, bits)
    }
}
