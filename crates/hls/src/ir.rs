//! The typed intermediate representation: the subset of LLVM's IR that can be synthesized.

mod engine_call;

use crate::error::Position;
pub use engine_call::EngineCall;
use std::ops::{Index, IndexMut};

/// The entry function of a kernel (humboldt/fabric/hls.c).
pub const ENTRY: &str = "hum_main";
/// The exit status of a kernel that reaches unreachable code: that of a process after SIGILL.
pub const TRAP_STATUS: u64 = 128 + 4;

/// Declares indices into tables, which cannot be confused with each other.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub usize);)*
    };
}

ids! {
    /// A value of a function.
    ValueId
    /// A block of a function.
    BlockId
    /// A function of a module.
    FunctionId
    /// A global variable of a module.
    GlobalId
    /// A constant structure of a module.
    AggregateId
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    Void,
    /// An integer of N bits.
    Int(u32),
    /// IEEE 754: 32 or 64 bits.
    Float(u32),
    Ptr,
    Array(u64, Box<Type>),
    /// Members; whether the structure is packed.
    Struct(Vec<Type>, bool),
    /// Elements of a vector in registers.
    Vector(u64, Box<Type>),
}

impl Type {
    /// Bits of a value in a register; `None` for a type that does not fit one.
    pub fn bits(&self) -> Option<u32> {
        match self {
            Type::Int(n) | Type::Float(n) => Some(*n),
            Type::Ptr => Some(32),
            _ => None,
        }
    }

    /// Bytes in memory.
    pub fn size(&self) -> u64 {
        match self {
            Type::Void => 0,
            Type::Int(n) | Type::Float(n) => u64::from(n.div_ceil(8)).next_power_of_two(),
            // As on the hosts, although an address in a register has 32 bits.
            Type::Ptr => 8,
            Type::Array(n, of) => n.saturating_mul(of.size()),
            // A vector of three elements has the size of one of four.
            Type::Vector(n, of) => n.next_power_of_two().saturating_mul(of.size()),
            Type::Struct(members, _) => {
                let end = members
                    .last()
                    .map_or(0, |m| self.offset(members.len() - 1) + m.size());
                end.next_multiple_of(self.align())
            }
        }
    }

    /// Alignment in bytes.
    pub fn align(&self) -> u64 {
        match self {
            Type::Void => 1,
            Type::Array(_, of) => of.align(),
            Type::Vector(..) => self.size(),
            Type::Struct(_, true) => 1,
            Type::Struct(members, false) => members.iter().map(Type::align).max().unwrap_or(1),
            other => other.size().clamp(1, 8),
        }
    }

    /// The values of register size that the type consists of, with their offsets in bytes.
    pub fn members(&self) -> Vec<(Type, u64)> {
        let mut out = Vec::new();
        self.collect(0, &mut out);
        out
    }

    fn collect(&self, at: u64, out: &mut Vec<(Type, u64)>) {
        match self {
            Type::Void => {}
            Type::Array(n, of) | Type::Vector(n, of) => {
                (0..*n).for_each(|i| of.collect(at + i * of.size(), out));
            }
            Type::Struct(members, _) => {
                for (i, member) in members.iter().enumerate() {
                    member.collect(at + self.offset(i), out);
                }
            }
            plain => out.push((plain.clone(), at)),
        }
    }

    /// Whether it is a structure, an array or a vector.
    pub fn is_aggregate(&self) -> bool {
        matches!(self, Type::Array(..) | Type::Struct(..) | Type::Vector(..))
    }

    /// The type of a vector's elements; the type itself if it is not a vector.
    pub fn element(&self) -> &Type {
        match self {
            Type::Vector(_, of) => of,
            other => other,
        }
    }

    /// Offset of a structure's member in bytes.
    pub fn offset(&self, member: usize) -> u64 {
        let Type::Struct(members, packed) = self else {
            return 0;
        };
        let mut at = 0_u64;
        for (index, m) in members.iter().enumerate().take(member + 1) {
            if !packed {
                at = at.next_multiple_of(m.align());
            }
            if index < member {
                at += m.size();
            }
        }
        at
    }
}

/// An operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// The result of an instruction, or a parameter, by its index in the function.
    Local(ValueId),
    /// The bits of a constant integer or float.
    Bits(u64),
    /// A global, by its index in the module, and an offset in bytes.
    Global(GlobalId, i64),
    Null,
    /// Any value.
    Undef,
    /// A constant structure or array, by its index in [`Module::aggregates`]; `aggregate` replaces
    /// it.
    Aggregate(AggregateId),
}

/// Operations with two operands and a result of their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Udiv,
    Sdiv,
    Urem,
    Srem,
    And,
    Or,
    Xor,
    Shl,
    Lshr,
    Ashr,
    Umin,
    Umax,
    Smin,
    Smax,
    /// Operations on floats.
    Fadd,
    Fsub,
    Fmul,
    /// Replaced by calls of the library (`passes`).
    Fdiv,
    Frem,
}

/// Conversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// Truncation or extension by zeroes: trunc, zext, ptrtoint, inttoptr, bitcast,
    /// addrspacecast.
    Bits,
    Sext,
    /// Between integers and floats, and between floats.
    Sitofp,
    Uitofp,
    Fptosi,
    Fptoui,
    Fpext,
    Fptrunc,
}

/// A comparison of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntPredicate {
    Equal,
    NotEqual,
    Less { signed: bool },
    LessEqual { signed: bool },
    Greater { signed: bool },
    GreaterEqual { signed: bool },
}

/// A comparison of floats. The result is that of the order, or `unordered` if an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatPredicate {
    pub order: FloatOrder,
    pub unordered: bool,
}

/// The order of two floats for which a comparison is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatOrder {
    Never,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Always,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predicate {
    Int(IntPredicate),
    Float(FloatPredicate),
}

impl Predicate {
    /// Whether it compares for equality or inequality of integers.
    pub fn is_equality(self) -> bool {
        matches!(
            self,
            Predicate::Int(IntPredicate::Equal | IntPredicate::NotEqual)
        )
    }
}

/// The function that a call executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee {
    /// A function that is not resolved yet; gone after `passes`.
    Named(String),
    /// A function of the module.
    Function(FunctionId),
    /// A function of the module for each element of vectors; gone after `passes`.
    Elementwise(FunctionId),
    Engine(EngineCall),
}

/// An index of an address: its width in bits, and the bytes that it counts.
#[derive(Clone, Copy, Debug)]
pub struct ScaledIndex {
    pub value: Value,
    pub bits: u32,
    pub scale: i64,
}

/// The operation of an instruction.
#[derive(Clone, Debug)]
pub enum Op {
    Binary(BinaryOp, Value, Value),
    /// A comparison: width of the operands in bits, operands.
    Compare {
        predicate: Predicate,
        bits: u32,
        left: Value,
        right: Value,
    },
    Select(Value, Value, Value),
    /// A conversion of a value of this width in bits.
    Cast(Cast, u32, Value),
    /// A float with its sign inverted, or cleared.
    Fneg(Value),
    Fabs(Value),
    /// An address: base, offset in bytes, indices.
    Address {
        base: Value,
        offset: i64,
        indices: Vec<ScaledIndex>,
    },
    /// A load from an address, of this size in bytes; any value unless the condition holds.
    Load(Value, u64, Option<Value>),
    /// A store of a value to an address, of this size in bytes, if the condition holds.
    Store {
        value: Value,
        address: Value,
        size: u64,
        condition: Option<Value>,
    },
    /// A local variable of this size in bytes.
    Local(u64),
    /// A structure in registers with members replaced, from this index on; members of one, from
    /// this index on.
    Insert(Value, Value, usize),
    Extract(Value, usize),
    /// A vector with the element at a variable index replaced; that element.
    InsertAt(Value, Value, Value),
    ExtractAt(Value, Value),
    /// Elements of two vectors by their indices; `None`: any value.
    Shuffle(Value, Value, Vec<Option<usize>>),
    /// The bits of a value, of which at least one is a vector: types of operand and result.
    Reshape(Value, Type, Type),
    Call(Callee, Vec<(Type, Value)>),
    Phi(Vec<(BlockId, Value)>),
    /// The operand unchanged.
    Copy(Value),
    Jump(BlockId),
    Branch(Value, BlockId, BlockId),
    Switch {
        value: Value,
        bits: u32,
        cases: Vec<(u64, BlockId)>,
        default: BlockId,
    },
    Return(Option<Value>),
    Unreachable,
}

impl Op {
    /// A store without a condition.
    pub fn store(value: Value, address: Value, size: u64) -> Op {
        Op::Store {
            value,
            address,
            size,
            condition: None,
        }
    }

    /// The address `bytes` after another.
    pub fn offset(base: Value, bytes: u64) -> Op {
        Op::Address {
            base,
            offset: bytes as i64,
            indices: Vec::new(),
        }
    }

    /// Visits all operands.
    pub fn operands(&mut self, each: &mut dyn FnMut(&mut Value)) {
        match self {
            Op::Binary(_, a, b)
            | Op::Compare {
                left: a, right: b, ..
            } => {
                each(a);
                each(b);
            }
            Op::Insert(a, b, _) | Op::ExtractAt(a, b) | Op::Shuffle(a, b, _) => {
                each(a);
                each(b);
            }
            Op::InsertAt(a, b, c) => {
                each(a);
                each(b);
                each(c);
            }
            Op::Store {
                value: a,
                address: b,
                condition: when,
                ..
            } => {
                each(a);
                each(b);
                if let Some(when) = when {
                    each(when);
                }
            }
            Op::Load(a, _, when) => {
                each(a);
                if let Some(when) = when {
                    each(when);
                }
            }
            Op::Select(a, b, c) => {
                each(a);
                each(b);
                each(c);
            }
            Op::Cast(_, _, a)
            | Op::Fneg(a)
            | Op::Fabs(a)
            | Op::Extract(a, _)
            | Op::Reshape(a, _, _)
            | Op::Copy(a)
            | Op::Branch(a, _, _)
            | Op::Switch { value: a, .. }
            | Op::Return(Some(a)) => each(a),
            Op::Address { base, indices, .. } => {
                each(base);
                indices.iter_mut().for_each(|i| each(&mut i.value));
            }
            Op::Call(_, arguments) => arguments.iter_mut().for_each(|a| each(&mut a.1)),
            Op::Phi(from) => from.iter_mut().for_each(|f| each(&mut f.1)),
            Op::Local(_) | Op::Jump(_) | Op::Return(None) | Op::Unreachable => {}
        }
    }

    /// Visits all blocks that it refers to.
    pub fn blocks(&mut self, each: &mut dyn FnMut(&mut BlockId)) {
        match self {
            Op::Phi(sources) => sources.iter_mut().for_each(|s| each(&mut s.0)),
            Op::Jump(to) => each(to),
            Op::Branch(_, a, b) => {
                each(a);
                each(b);
            }
            Op::Switch {
                cases, default: to, ..
            } => {
                cases.iter_mut().for_each(|c| each(&mut c.1));
                each(to);
            }
            _ => {}
        }
    }

    /// All operands.
    pub fn uses(&self) -> Vec<Value> {
        let mut all = Vec::new();
        self.clone().operands(&mut |v| all.push(*v));
        all
    }
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    pub result: Option<ValueId>,
    pub op: Op,
    pub position: Position,
    /// Whether a load or store accesses an object of an arithmetic type, which holds no address by
    /// C's aliasing rules.
    pub numeric: bool,
    /// Whether a load or store is volatile: part of an atomic function, for example.
    pub volatile: bool,
    /// Whether a branch ends a loop over work-items.
    pub independent: bool,
    /// Whether a branch ends a loop over work-groups.
    pub group_end: bool,
    /// The port of a load that may be executed before stores of other work-items (`passes::readers`).
    pub reader: Option<u32>,
    /// The word of that port, if several loads read words that follow each other by one access.
    pub reader_word: u32,
    /// Whether a product's operands fit a multiplier of 18 bits (`passes::products`).
    pub is_short_product: bool,
}

impl Instruction {
    pub fn new(result: Option<ValueId>, op: Op, position: &Position) -> Instruction {
        Instruction {
            result,
            op,
            position: position.clone(),
            numeric: false,
            volatile: false,
            independent: false,
            group_end: false,
            reader: None,
            reader_word: 0,
            is_short_product: false,
        }
    }

    /// Whether it is an operation on a channel.
    pub fn uses_channel(&self) -> bool {
        matches!(&self.op, Op::Call(Callee::Engine(call), _) if call.uses_channel())
    }
}

/// A value's name and type, and its largest value, if given.
#[derive(Clone, Debug)]
pub struct Local {
    pub name: String,
    pub ty: Type,
    pub max: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Block {
    pub code: Vec<Instruction>,
}

/// The way in which OpenCL passes a parameter of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passing {
    /// The address space of what a pointer refers to: one of [`space`].
    pub space: u32,
    /// The type of a structure that is passed by value, through a pointer.
    pub by_value: Option<Type>,
    /// Whether the function only reads through the pointer.
    pub read_only: bool,
}

/// Address spaces, with the numbers of target `spir64`.
pub mod space {
    pub const GLOBAL: u32 = 1;
    pub const CONSTANT: u32 = 2;
    pub const LOCAL: u32 = 3;
}

#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub result: Type,
    /// Number of parameters, which are the first values.
    pub parameters: usize,
    /// By parameter, before structures are split.
    pub passing: Vec<Passing>,
    pub values: Vec<Local>,
    pub blocks: Vec<Block>,
    pub position: Position,
}

impl Function {
    /// A function without a name and blocks.
    pub fn empty() -> Function {
        Function {
            name: String::new(),
            result: Type::Void,
            parameters: 0,
            passing: Vec::new(),
            values: Vec::new(),
            blocks: Vec::new(),
            position: Position::default(),
        }
    }

    /// Adds a value.
    pub fn value(&mut self, name: &str, ty: Type) -> ValueId {
        self.values.push(Local {
            name: name.to_owned(),
            ty,
            max: None,
        });
        ValueId(self.values.len() - 1)
    }
}

impl Function {
    /// All instructions.
    pub fn instructions(&self) -> impl Iterator<Item = &Instruction> {
        self.blocks.iter().flat_map(|b| &b.code)
    }

    /// All instructions with their positions; one that the compiler has made without a position has
    /// that of the instruction before it, or the function's.
    pub fn placed_instructions(&self) -> impl Iterator<Item = (&Instruction, &Position)> {
        self.instructions()
            .scan(&self.position, |last, instruction| {
                if !instruction.position.is_unknown() {
                    *last = &instruction.position;
                }
                Some((instruction, *last))
            })
    }

    /// Bits of an operand; `other` for a constant.
    pub fn bits_of(&self, value: Value, other: u32) -> u32 {
        match value {
            Value::Local(v) => self[v].ty.bits().unwrap_or(32),
            _ => other,
        }
    }
}

impl Index<ValueId> for Function {
    type Output = Local;

    fn index(&self, value: ValueId) -> &Local {
        &self.values[value.0]
    }
}

impl IndexMut<ValueId> for Function {
    fn index_mut(&mut self, value: ValueId) -> &mut Local {
        &mut self.values[value.0]
    }
}

impl Index<BlockId> for Function {
    type Output = Block;

    fn index(&self, block: BlockId) -> &Block {
        &self.blocks[block.0]
    }
}

impl IndexMut<BlockId> for Function {
    fn index_mut(&mut self, block: BlockId) -> &mut Block {
        &mut self.blocks[block.0]
    }
}

/// A global variable: its bytes, and the offsets at which it holds addresses.
#[derive(Clone, Debug)]
pub struct Global {
    pub name: String,
    pub bytes: Vec<u8>,
    pub pointers: Vec<(u64, Value)>,
    pub constant: bool,
    /// Whether it is in the local memory of a work-group.
    pub local: bool,
    /// Whether each work-item of a group has a part of its own.
    pub items: bool,
    /// Whether it is declared but not defined.
    pub external: bool,
    /// The section that it is declared to be in.
    pub section: String,
    /// Whether it is an array.
    pub is_array: bool,
}

impl Global {
    /// A variable of this size.
    pub fn zeroed(name: String, bytes: usize) -> Global {
        Global {
            name,
            bytes: vec![0; bytes],
            pointers: Vec::new(),
            constant: false,
            local: false,
            items: false,
            external: false,
            section: String::new(),
            is_array: false,
        }
    }
}

/// A channel that a kernel uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The variable's name, with the index of an array's element.
    pub name: String,
    /// Bytes of an element.
    pub bytes: u64,
    /// Elements that it holds at least.
    pub depth: u64,
    /// Of the first operation.
    pub position: Position,
}

/// The channels of a kernel by their ports.
#[derive(Clone, Debug, Default)]
pub struct Channels {
    pub read: Vec<Channel>,
    pub written: Vec<Channel>,
}

impl Channels {
    pub fn is_empty(&self) -> bool {
        self.read.is_empty() && self.written.is_empty()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Module {
    pub globals: Vec<Global>,
    pub functions: Vec<Function>,
    /// Constant structures: type, and a value for each member.
    pub aggregates: Vec<(Type, Vec<Value>)>,
    /// Those of the kernel, after `passes::channels`.
    pub channels: Channels,
    /// Whether the kernel's work-items execute in parts, each loop's iterations together
    /// (`passes::work_items`).
    pub parts: bool,
}

impl Index<FunctionId> for Module {
    type Output = Function;

    fn index(&self, function: FunctionId) -> &Function {
        &self.functions[function.0]
    }
}

impl IndexMut<FunctionId> for Module {
    fn index_mut(&mut self, function: FunctionId) -> &mut Function {
        &mut self.functions[function.0]
    }
}

impl Index<GlobalId> for Module {
    type Output = Global;

    fn index(&self, global: GlobalId) -> &Global {
        &self.globals[global.0]
    }
}

/// Clears all but the lower `bits` of a number.
pub fn masked(value: u64, bits: u32) -> u64 {
    match bits {
        0..=63 => value & ((1 << bits) - 1),
        _ => value,
    }
}

/// Sign-extends the lower `bits` of a number.
pub fn signed(value: u64, bits: u32) -> i64 {
    match bits {
        0 => 0,
        1..=63 => ((value << (64 - bits)) as i64) >> (64 - bits),
        _ => value as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_without_a_position_have_the_last_one() {
        let at = |line| Position {
            file: "k.cl".to_owned(),
            line,
        };
        let mut function = Function::empty();
        function.position = at(3);
        let code = [0, 7, 0, 8, 0].map(|line| Instruction::new(None, Op::Return(None), &at(line)));
        function.blocks = vec![Block::default(), Block::default()];
        function.blocks[0].code = code[..2].to_vec();
        function.blocks[1].code = code[2..].to_vec();
        let placed = function.placed_instructions();
        let lines: Vec<_> = placed.map(|(_, position)| position.line).collect();
        assert_eq!(lines, [3, 7, 7, 8, 8]);
    }
}
