//! Instructions.

use super::cursor::Cursor;
use super::operand::{Locals, Symbols};
use crate::error::{Error, Result};
use crate::ir::{
    BinaryOp, BlockId, Callee, Cast, FloatOrder, FloatPredicate, IntPredicate, Op, Predicate, Type,
    Value,
};
use std::collections::HashMap;

/// Members of the largest structure that is held in registers.
const MEMBERS_MAX: usize = 16;
/// Calls that only inform the compiler.
const HINTS: &[&str] = &[
    "llvm.dbg.",
    "llvm.lifetime.",
    "llvm.assume",
    "llvm.experimental.noalias.scope",
];

/// The names of a function's blocks.
pub type Blocks = HashMap<String, BlockId>;

/// Reads the instructions of a function.
pub struct Reader<'a> {
    pub symbols: &'a Symbols,
    pub locals: &'a Locals,
    pub blocks: &'a Blocks,
}

impl Reader<'_> {
    /// Reads an instruction and its result's type; `None` for one that only informs the compiler.
    pub fn instruction(&self, t: &mut Cursor<'_>) -> Result<Option<(Op, Type)>> {
        t.attributes();
        let word = t.word();
        t.attributes();
        if word == "call" {
            return self.call(t);
        }
        let found = if let Some(op) = binary(word) {
            let (ty, a) = self.typed(t)?;
            t.expect(",")?;
            let b = self.symbols.value(t, &ty, self.locals)?;
            Some((Op::Binary(op, a, b), ty))
        } else if let Some(cast) = cast(word) {
            let (from, value) = self.typed(t)?;
            t.expect("to")?;
            let ty = self.symbols.ty(t)?;
            let lanes = |ty: &Type| match ty {
                Type::Vector(n, _) => *n,
                _ => 0,
            };
            let bits = from.element().bits().ok_or_else(|| {
                Error::unsupported("conversion of a value that does not fit a register")
            })?;
            if word == "bitcast" && lanes(&from) != lanes(&ty) {
                Some((Op::Reshape(value, from, ty.clone()), ty))
            } else {
                Some((Op::Cast(cast, bits, value), ty))
            }
        } else if let Some(found) = self.computation(word, t)? {
            Some(found)
        } else if let Some(found) = self.access(word, t)? {
            Some(found)
        } else {
            self.control(word, t)?.map(|op| (op, Type::Void))
        };
        match found {
            Some(found) => Ok(Some(found)),
            None => Err(Error::unsupported(format!(
                "LLVM instruction '{word}' cannot be synthesized"
            ))),
        }
    }

    fn typed(&self, t: &mut Cursor<'_>) -> Result<(Type, Value)> {
        self.symbols.typed(t, self.locals)
    }

    fn block(&self, t: &mut Cursor<'_>) -> Result<BlockId> {
        t.take("label");
        t.expect("%")?;
        let name = t.name();
        let found = self.blocks.get(&name).copied();
        found.ok_or_else(|| Error::malformed(format!("unknown block '%{name}'")))
    }

    /// Reads an instruction that computes a value.
    fn computation(&self, word: &str, t: &mut Cursor<'_>) -> Result<Option<(Op, Type)>> {
        Ok(Some(match word {
            "icmp" | "fcmp" => {
                let name = t.word();
                let (ty, a) = self.typed(t)?;
                t.expect(",")?;
                let b = self.symbols.value(t, &ty, self.locals)?;
                let bits = ty.element().bits().ok_or_else(|| {
                    Error::unsupported("comparison of values that do not fit a register")
                })?;
                let result = match &ty {
                    Type::Vector(n, _) => Type::Vector(*n, Box::new(Type::Int(1))),
                    _ => Type::Int(1),
                };
                let predicate = match word {
                    "icmp" => int_predicate(name).map(Predicate::Int),
                    _ => float_predicate(name).map(Predicate::Float),
                };
                let predicate = predicate
                    .ok_or_else(|| Error::malformed(format!("unknown predicate '{name}'")))?;
                (
                    Op::Compare {
                        predicate,
                        bits,
                        left: a,
                        right: b,
                    },
                    result,
                )
            }
            "select" => {
                let (_, c) = self.typed(t)?;
                t.expect(",")?;
                let (ty, a) = self.typed(t)?;
                t.expect(",")?;
                let (_, b) = self.typed(t)?;
                (Op::Select(c, a, b), ty)
            }
            "fneg" => {
                let (ty, a) = self.typed(t)?;
                (Op::Fneg(a), ty)
            }
            "freeze" => {
                let (ty, a) = self.typed(t)?;
                (Op::Copy(a), ty)
            }
            "insertvalue" => {
                let (ty, whole) = self.typed(t)?;
                t.expect(",")?;
                let (_, part) = self.typed(t)?;
                let (first, _) = member(t, &ty)?;
                (Op::Insert(whole, part, first), ty)
            }
            "extractvalue" => {
                let (ty, whole) = self.typed(t)?;
                let (first, member) = member(t, &ty)?;
                (Op::Extract(whole, first), member)
            }
            "insertelement" => {
                let (ty, whole) = self.typed(t)?;
                t.expect(",")?;
                let (_, part) = self.typed(t)?;
                t.expect(",")?;
                match self.typed(t)?.1 {
                    Value::Bits(index) => (Op::Insert(whole, part, index as usize), ty),
                    index => (Op::InsertAt(whole, part, index), ty),
                }
            }
            "extractelement" => {
                let (ty, whole) = self.typed(t)?;
                t.expect(",")?;
                let element = ty.element().clone();
                match self.typed(t)?.1 {
                    Value::Bits(index) => (Op::Extract(whole, index as usize), element),
                    index => (Op::ExtractAt(whole, index), element),
                }
            }
            "shufflevector" => self.shuffle(t)?,
            "phi" => {
                let ty = self.symbols.ty(t)?;
                let mut sources = Vec::new();
                while t.take("[") {
                    let value = self.symbols.value(t, &ty, self.locals)?;
                    t.expect(",")?;
                    sources.push((self.block(t)?, value));
                    t.expect("]")?;
                    t.take(",");
                }
                (Op::Phi(sources), ty)
            }
            _ => return Ok(None),
        }))
    }

    /// Reads the operands of `shufflevector`.
    fn shuffle(&self, t: &mut Cursor<'_>) -> Result<(Op, Type)> {
        let (ty, a) = self.typed(t)?;
        t.expect(",")?;
        let (_, b) = self.typed(t)?;
        t.expect(",")?;
        let (mask, indices) = self.typed(t)?;
        let indices = match indices {
            Value::Aggregate(index) => self.symbols.aggregates.borrow()[index.0].1.clone(),
            _ => Vec::new(),
        };
        let indices = indices.into_iter().map(|index| match index {
            Value::Bits(n) => Some(n as usize),
            _ => None,
        });
        let Type::Vector(n, _) = mask else {
            return Err(Error::malformed(
                "the mask of 'shufflevector' is not a vector",
            ));
        };
        let result = Type::Vector(n, Box::new(ty.element().clone()));
        Ok((Op::Shuffle(a, b, indices.collect()), result))
    }

    /// Reads an instruction that addresses or accesses memory.
    fn access(&self, word: &str, t: &mut Cursor<'_>) -> Result<Option<(Op, Type)>> {
        Ok(Some(match word {
            "getelementptr" => {
                let (base, offset, indices) = self.symbols.address(t, self.locals)?;
                (
                    Op::Address {
                        base,
                        offset,
                        indices,
                    },
                    Type::Ptr,
                )
            }
            "load" => {
                let ty = self.symbols.ty(t)?;
                t.expect(",")?;
                let (_, from) = self.typed(t)?;
                fits_registers(&ty)?;
                (Op::Load(from, ty.size(), None), ty)
            }
            "store" => {
                let (ty, value) = self.typed(t)?;
                t.expect(",")?;
                let (_, to) = self.typed(t)?;
                fits_registers(&ty)?;
                (Op::store(value, to, ty.size()), Type::Void)
            }
            "alloca" => {
                let ty = self.symbols.ty(t)?;
                let mut count = 1;
                while t.take(",") {
                    if t.take("align") {
                        t.word();
                    } else if t.rest.starts_with('i') {
                        let Value::Bits(n) = self.typed(t)?.1 else {
                            return Err(Error::unsupported("array with a variable length")
                                .remedy("give it a constant length"));
                        };
                        count = n;
                    } else {
                        break;
                    }
                }
                (Op::Local(ty.size() * count), Type::Ptr)
            }
            _ => return Ok(None),
        }))
    }

    /// Reads an instruction that ends a block.
    fn control(&self, word: &str, t: &mut Cursor<'_>) -> Result<Option<Op>> {
        Ok(Some(match word {
            "br" if t.rest.starts_with("label") => Op::Jump(self.block(t)?),
            "br" => {
                let (_, condition) = self.typed(t)?;
                t.expect(",")?;
                let yes = self.block(t)?;
                t.expect(",")?;
                Op::Branch(condition, yes, self.block(t)?)
            }
            "switch" => {
                let (ty, value) = self.typed(t)?;
                t.expect(",")?;
                let default = self.block(t)?;
                t.expect("[")?;
                let mut cases = Vec::new();
                while !t.take("]") {
                    let (_, case) = self.typed(t)?;
                    let Value::Bits(case) = case else {
                        return Err(Error::malformed("case of 'switch' is not a number"));
                    };
                    t.expect(",")?;
                    cases.push((case, self.block(t)?));
                }
                Op::Switch {
                    value,
                    bits: ty.bits().unwrap_or(32),
                    cases,
                    default,
                }
            }
            "ret" => match self.symbols.ty(t)? {
                Type::Void => Op::Return(None),
                ty => Op::Return(Some(self.symbols.value(t, &ty, self.locals)?)),
            },
            "unreachable" => Op::Unreachable,
            _ => return Ok(None),
        }))
    }

    fn call(&self, t: &mut Cursor<'_>) -> Result<Option<(Op, Type)>> {
        let ty = self.symbols.ty(t)?;
        if t.peek() == '(' {
            t.parenthesis();
        }
        t.attributes();
        if t.peek() != '@' {
            return Err(if t.rest.starts_with("asm") {
                Error::unsupported("inline assembly cannot be synthesized").remedy("write it in C")
            } else {
                Error::unsupported("call through a pointer cannot be synthesized")
                    .remedy("call the function by its name")
            });
        }
        t.skip(1);
        let name = t.name();
        if HINTS.iter().any(|hint| name.starts_with(hint)) {
            return Ok(None);
        }
        t.expect("(")?;
        let mut arguments = Vec::new();
        while !t.take(")") {
            let argument = self.typed(t).map_err(|mut e| {
                e.message = format!("call of '{name}': {}", e.message);
                e
            })?;
            arguments.push(argument);
            t.take(",");
        }
        let value = |i: usize| arguments.get(i).map_or(Value::Undef, |a| a.1);
        let two = |op| Op::Binary(op, value(0), value(1));
        let stem = name
            .strip_prefix("llvm.")
            .map(|n| n.split('.').next().unwrap_or(""));
        let op = match stem {
            Some("umin") => two(BinaryOp::Umin),
            Some("umax") => two(BinaryOp::Umax),
            Some("smin") => two(BinaryOp::Smin),
            Some("smax") => two(BinaryOp::Smax),
            Some("expect") => Op::Copy(value(0)),
            Some("fabs") => Op::Fabs(value(0)),
            _ => Op::Call(Callee::Named(name), arguments),
        };
        Ok(Some((op, ty)))
    }
}

/// Checks that a value of a type can be loaded or stored at once.
fn fits_registers(ty: &Type) -> Result<()> {
    match ty.members().len() {
        0 => Err(Error::unsupported("access to a value of zero bytes")),
        n if n > MEMBERS_MAX => Err(Error::unsupported(format!(
            "load or store of a structure with {n} members, more than {MEMBERS_MAX}"
        ))
        .remedy("copy its members")),
        _ => Ok(()),
    }
}

/// Reads the indices of a member of a structure in registers: the index of its first value among
/// the structure's, its type.
fn member(t: &mut Cursor<'_>, ty: &Type) -> Result<(usize, Type)> {
    let (mut first, mut ty) = (0, ty.clone());
    while t.take(",") {
        if t.peek() == '!' {
            break;
        }
        let index = t.word();
        let index: usize = index
            .parse()
            .map_err(|_| Error::malformed(format!("malformed index of a member '{index}'")))?;
        let before: usize;
        (before, ty) = match &ty {
            Type::Array(n, of) if (index as u64) < *n => {
                (index * of.members().len(), (**of).clone())
            }
            Type::Struct(members, _) if index < members.len() => (
                members[..index].iter().map(|m| m.members().len()).sum(),
                members[index].clone(),
            ),
            _ => {
                return Err(Error::malformed(format!(
                    "structure has no member with index {index}"
                )))
            }
        };
        first += before;
    }
    Ok((first, ty))
}

fn binary(word: &str) -> Option<BinaryOp> {
    Some(match word {
        "add" => BinaryOp::Add,
        "sub" => BinaryOp::Sub,
        "mul" => BinaryOp::Mul,
        "udiv" => BinaryOp::Udiv,
        "sdiv" => BinaryOp::Sdiv,
        "urem" => BinaryOp::Urem,
        "srem" => BinaryOp::Srem,
        "and" => BinaryOp::And,
        "or" => BinaryOp::Or,
        "xor" => BinaryOp::Xor,
        "shl" => BinaryOp::Shl,
        "lshr" => BinaryOp::Lshr,
        "ashr" => BinaryOp::Ashr,
        "fadd" => BinaryOp::Fadd,
        "fsub" => BinaryOp::Fsub,
        "fmul" => BinaryOp::Fmul,
        "fdiv" => BinaryOp::Fdiv,
        "frem" => BinaryOp::Frem,
        _ => return None,
    })
}

fn cast(word: &str) -> Option<Cast> {
    Some(match word {
        "trunc" | "zext" | "ptrtoint" | "inttoptr" | "bitcast" | "addrspacecast" => Cast::Bits,
        "sext" => Cast::Sext,
        "sitofp" => Cast::Sitofp,
        "uitofp" => Cast::Uitofp,
        "fptosi" => Cast::Fptosi,
        "fptoui" => Cast::Fptoui,
        "fpext" => Cast::Fpext,
        "fptrunc" => Cast::Fptrunc,
        _ => return None,
    })
}

fn int_predicate(name: &str) -> Option<IntPredicate> {
    let signed = name.starts_with('s');
    Some(match name {
        "eq" => IntPredicate::Equal,
        "ne" => IntPredicate::NotEqual,
        "ult" | "slt" => IntPredicate::Less { signed },
        "ule" | "sle" => IntPredicate::LessEqual { signed },
        "ugt" | "sgt" => IntPredicate::Greater { signed },
        "uge" | "sge" => IntPredicate::GreaterEqual { signed },
        _ => return None,
    })
}

fn float_predicate(name: &str) -> Option<FloatPredicate> {
    let order = match name {
        "false" | "uno" => FloatOrder::Never,
        "true" | "ord" => FloatOrder::Always,
        "oeq" | "ueq" => FloatOrder::Equal,
        "one" | "une" => FloatOrder::NotEqual,
        "olt" | "ult" => FloatOrder::Less,
        "ole" | "ule" => FloatOrder::LessEqual,
        "ogt" | "ugt" => FloatOrder::Greater,
        "oge" | "uge" => FloatOrder::GreaterEqual,
        _ => return None,
    };
    let unordered = name.starts_with('u') || name == "true";
    Some(FloatPredicate { order, unordered })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_predicates_differ_in_their_result_for_nan() {
        for (name, order, unordered) in [
            ("olt", FloatOrder::Less, false),
            ("ult", FloatOrder::Less, true),
            ("uno", FloatOrder::Never, true),
            ("ord", FloatOrder::Always, false),
            ("true", FloatOrder::Always, true),
            ("false", FloatOrder::Never, false),
        ] {
            let predicate = FloatPredicate { order, unordered };
            assert_eq!(float_predicate(name), Some(predicate), "{name}");
        }
        assert_eq!(float_predicate("slt"), None);
    }
}
