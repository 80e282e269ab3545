//! The subset of LLVM's intermediate representation that can be synthesized.

use std::fmt;

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
    Local(usize),
    /// The bits of a constant integer or float.
    Bits(u64),
    /// A global, by its index in the module, and an offset in bytes.
    Global(usize, i64),
    Null,
    /// Any value.
    Undef,
    /// A constant structure or array, by its index in [`Module::aggregates`]; `aggregate` replaces
    /// it.
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
    /// Operations on floats.
    Fadd,
    Fsub,
    Fmul,
}

/// Conversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// Truncation or extension by zeroes: trunc, zext, ptrtoint, inttoptr, bitcast.
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

/// The operation of an instruction.
#[derive(Clone, Debug)]
pub enum Op {
    Binary(Binary, Value, Value),
    /// A comparison: LLVM's predicate (`slt`, `oeq` …), width of the operands in bits, operands.
    Compare(String, u32, Value, Value),
    Select(Value, Value, Value),
    /// A conversion of a value of this width in bits.
    Cast(Cast, u32, Value),
    /// A float with its sign inverted, or cleared.
    Fneg(Value),
    Fabs(Value),
    /// An address: base, offset in bytes, and indices with their width in bits and scale in bytes.
    Address(Value, i64, Vec<(Value, u32, i64)>),
    /// A load from an address, of this size in bytes.
    Load(Value, u64),
    /// A store of a value to an address, of this size in bytes, if the condition holds.
    Store(Value, Value, u64, Option<Value>),
    /// A local variable of this size in bytes.
    Local(u64),
    /// A structure in registers with members replaced, from this index on; members of one, from
    /// this index on.
    Insert(Value, Value, usize),
    Extract(Value, usize),
    Call(String, Vec<(Type, Value)>),
    Phi(Vec<(usize, Value)>),
    /// The operand unchanged.
    Copy(Value),
    Jump(usize),
    Branch(Value, usize, usize),
    Switch(Value, u32, Vec<(u64, usize)>, usize),
    Return(Option<Value>),
    Unreachable,
}

impl Op {
    /// Visits all operands.
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
    /// The index of its result.
    pub result: Option<usize>,
    pub op: Op,
    pub place: Place,
    /// Whether a load or store accesses an object of an arithmetic type, which holds no address by
    /// C's aliasing rules.
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

/// A position in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The file's name, as given to the compiler.
    pub file: String,
    /// From 1; 0 if unknown.
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
    /// Number of parameters, which are the first values.
    pub parameters: usize,
    pub values: Vec<Local>,
    pub blocks: Vec<Block>,
    pub place: Place,
}

impl Function {
    /// A function without a name and blocks.
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

    /// Adds a value.
    pub fn value(&mut self, name: &str, ty: Type) -> usize {
        self.values.push(Local {
            name: name.to_owned(),
            ty,
        });
        self.values.len() - 1
    }
}

/// A global variable: its bytes, and the offsets at which it holds addresses.
#[derive(Clone, Debug)]
pub struct Global {
    pub name: String,
    pub bytes: Vec<u8>,
    pub pointers: Vec<(u64, Value)>,
    pub constant: bool,
    /// Whether it is declared but not defined.
    pub external: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Module {
    pub globals: Vec<Global>,
    pub functions: Vec<Function>,
    /// Constant structures: type, and a value for each member.
    pub aggregates: Vec<(Type, Vec<Value>)>,
}

/// The reason why a kernel cannot be synthesized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The position in the source.
    pub place: Place,
    /// The reason.
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
