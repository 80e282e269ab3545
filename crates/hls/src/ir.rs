//! The part of LLVM's intermediate representation that kernels are made of.

use std::fmt;

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    Void,
    /// An integer of so many bits.
    Int(u32),
    /// IEEE 754: 32 or 64 bits.
    Float(u32),
    Ptr,
    Array(u64, Box<Type>),
    /// Members; whether they lie without gaps.
    Struct(Vec<Type>, bool),
}

impl Type {
    /// Bits of a value in a register; none for what does not fit one.
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
            // As on the hosts; in a register an address has 32 bits.
            Type::Ptr => 8,
            Type::Array(n, of) => n.saturating_mul(of.size()),
            Type::Struct(members, _) => {
                let end = members
                    .last()
                    .map_or(0, |m| self.offset(members.len() - 1) + m.size());
                end.next_multiple_of(self.align())
            }
        }
    }

    /// Bytes that addresses are multiples of.
    pub fn align(&self) -> u64 {
        match self {
            Type::Void => 1,
            Type::Array(_, of) => of.align(),
            Type::Struct(_, true) => 1,
            Type::Struct(members, false) => members.iter().map(Type::align).max().unwrap_or(1),
            other => other.size().clamp(1, 8),
        }
    }

    /// What a value of the type is made of: values that fit a register, and where each lies.
    pub fn members(&self) -> Vec<(Type, u64)> {
        let mut out = Vec::new();
        self.collect(0, &mut out);
        out
    }

    fn collect(&self, at: u64, out: &mut Vec<(Type, u64)>) {
        match self {
            Type::Void => {}
            Type::Array(n, of) => (0..*n).for_each(|i| of.collect(at + i * of.size(), out)),
            Type::Struct(members, _) => {
                for (i, member) in members.iter().enumerate() {
                    member.collect(at + self.offset(i), out);
                }
            }
            plain => out.push((plain.clone(), at)),
        }
    }

    /// Whether it is a structure or an array.
    pub fn is_aggregate(&self) -> bool {
        matches!(self, Type::Array(..) | Type::Struct(..))
    }

    /// Where a structure's member lies.
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
    /// What an instruction or a parameter gives, by its number in the function.
    Local(usize),
    /// A constant's bits: an integer's, a float's.
    Bits(u64),
    /// A global, by its number in the module, and bytes from its beginning.
    Global(usize, i64),
    Null,
    /// A value that does not matter.
    Undef,
    /// A structure or an array in registers, by its number in [`Module::aggregates`]; gone after `aggregate`.
    Aggregate(usize),
}

/// Operations with two operands and a result of their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
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
    /// Floats'.
    Fadd,
    Fsub,
    Fmul,
}

/// Conversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// Bits as they are, the upper ones left out, or zeroes put there: trunc, zext, ptrtoint, inttoptr, bitcast.
    Bits,
    Sext,
    /// Integers to floats and back, between floats.
    Sitofp,
    Uitofp,
    Fptosi,
    Fptoui,
    Fpext,
    Fptrunc,
}

/// What an instruction does.
#[derive(Clone, Debug)]
pub enum Op {
    Binary(Binary, Value, Value),
    /// A comparison: LLVM's name of it (`slt`, `oeq` …), of operands of so many bits.
    Compare(String, u32, Value, Value),
    Select(Value, Value, Value),
    /// From a value of so many bits.
    Cast(Cast, u32, Value),
    /// A float with its sign changed, or without.
    Fneg(Value),
    Fabs(Value),
    /// An address: base, bytes, and values (of so many bits) times bytes.
    Address(Value, i64, Vec<(Value, u32, i64)>),
    /// From an address; in bytes.
    Load(Value, u64),
    /// A value of so many bytes to an address, if a condition holds.
    Store(Value, Value, u64, Option<Value>),
    /// Room of so many bytes.
    Local(u64),
    /// Of a structure in registers: with some of its members, from the first on, replaced; so many members of it.
    Insert(Value, Value, usize),
    Extract(Value, usize),
    Call(String, Vec<(Type, Value)>),
    Phi(Vec<(usize, Value)>),
    /// Its operand.
    Copy(Value),
    Jump(usize),
    Branch(Value, usize, usize),
    Switch(Value, u32, Vec<(u64, usize)>, usize),
    Return(Option<Value>),
    Unreachable,
}

impl Op {
    /// Its operands, to look at or to change.
    pub fn operands(&mut self, each: &mut dyn FnMut(&mut Value)) {
        match self {
            Op::Binary(_, a, b) | Op::Compare(_, _, a, b) => {
                each(a);
                each(b);
            }
            Op::Insert(a, b, _) => {
                each(a);
                each(b);
            }
            Op::Store(a, b, _, when) => {
                each(a);
                each(b);
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
            | Op::Load(a, _)
            | Op::Extract(a, _)
            | Op::Copy(a)
            | Op::Branch(a, _, _)
            | Op::Switch(a, _, _, _)
            | Op::Return(Some(a)) => each(a),
            Op::Address(base, _, parts) => {
                each(base);
                parts.iter_mut().for_each(|p| each(&mut p.0));
            }
            Op::Call(_, arguments) => arguments.iter_mut().for_each(|a| each(&mut a.1)),
            Op::Phi(from) => from.iter_mut().for_each(|f| each(&mut f.1)),
            Op::Local(_) | Op::Jump(_) | Op::Return(None) | Op::Unreachable => {}
        }
    }

    /// As [`Op::operands`], to look at.
    pub fn uses(&self) -> Vec<Value> {
        let mut all = Vec::new();
        self.clone().operands(&mut |v| all.push(*v));
        all
    }
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// The value that it gives.
    pub result: Option<usize>,
    pub op: Op,
    pub place: Place,
    /// Whether a load or a store is of an object of an arithmetic type, which holds no address (C's aliasing rules).
    pub numeric: bool,
}

impl Instruction {
    pub fn new(result: Option<usize>, op: Op, place: &Place) -> Instruction {
        Instruction {
            result,
            op,
            place: place.clone(),
            numeric: false,
        }
    }
}

/// Where something is in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The source's name, as the compiler has it.
    pub file: String,
    /// From 1; 0: nowhere.
    pub line: usize,
}

/// A value's name and type.
#[derive(Clone, Debug)]
pub struct Local {
    pub name: String,
    pub ty: Type,
}

#[derive(Clone, Debug, Default)]
pub struct Block {
    pub name: String,
    pub code: Vec<Instruction>,
}

#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub result: Type,
    /// Parameters are the first values.
    pub parameters: usize,
    pub values: Vec<Local>,
    pub blocks: Vec<Block>,
    pub place: Place,
}

impl Function {
    /// Without a name and blocks.
    pub fn empty() -> Function {
        Function {
            name: String::new(),
            result: Type::Void,
            parameters: 0,
            values: Vec::new(),
            blocks: Vec::new(),
            place: Place::default(),
        }
    }

    /// A new value.
    pub fn value(&mut self, name: &str, ty: Type) -> usize {
        self.values.push(Local {
            name: name.to_owned(),
            ty,
        });
        self.values.len() - 1
    }
}

/// A global variable: its bytes, and which of them are addresses of others.
#[derive(Clone, Debug)]
pub struct Global {
    pub name: String,
    pub bytes: Vec<u8>,
    pub pointers: Vec<(u64, Value)>,
    pub constant: bool,
    /// It is only declared.
    pub external: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Module {
    pub globals: Vec<Global>,
    pub functions: Vec<Function>,
    /// Constant structures: their type, and a value for each of its members.
    pub aggregates: Vec<(Type, Vec<Value>)>,
}

/// What cannot be made: where, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Where.
    pub place: Place,
    /// Why.
    pub why: String,
}

impl Refusal {
    pub(crate) fn new(place: &Place, why: impl Into<String>) -> Refusal {
        Refusal {
            place: place.clone(),
            why: why.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.line {
            0 => write!(f, "{}", self.why),
            line => write!(f, "{}:{line}: {}", self.place.file, self.why),
        }
    }
}

impl std::error::Error for Refusal {}
