//! Replaces LLVM's intrinsics by instructions that hardware has: copies of memory by loads and
//! stores, rotations by shifts.

use crate::builder::Builder;
use crate::error::{Error, Result};
use crate::ir::{
    masked, BinaryOp, Callee, Cast, EngineCall, Function, IntPredicate, Op, Predicate, Type, Value,
    ValueId, TRAP_STATUS,
};

/// Bytes that `memcpy` and `memset` may move without a loop.
pub const STRAIGHT_BYTES_MAX: u64 = 256;
/// A byte of 1 in each byte of a word.
pub const ONES: u64 = 0x0101_0101_0101_0101;

/// Replaces the intrinsics of a function.
pub fn expand(function: &mut Function) -> Result<()> {
    let blocks = std::mem::take(&mut function.blocks);
    let mut builder = Builder::new(function);
    let mut done = Vec::new();
    for mut block in blocks {
        for instruction in block.code {
            builder.position = instruction.position.clone();
            match &instruction.op {
                Op::Call(Callee::Named(name), arguments) => {
                    let call = Call {
                        name,
                        arguments,
                        result: instruction.result,
                    };
                    call.expand(&mut builder)
                        .map_err(|e| e.at(&instruction.position))?;
                }
                _ => builder.code.push(instruction),
            }
        }
        block.code = std::mem::take(&mut builder.code);
        done.push(block);
    }
    function.blocks = done;
    Ok(())
}

/// A call of an intrinsic.
struct Call<'a> {
    name: &'a str,
    arguments: &'a [(Type, Value)],
    result: Option<ValueId>,
}

impl Call<'_> {
    fn value(&self, i: usize) -> Value {
        self.arguments.get(i).map_or(Value::Undef, |a| a.1)
    }

    fn expand(&self, builder: &mut Builder<'_>) -> Result<()> {
        let stem = self.name.split('.').nth(1).unwrap_or("");
        let ty = self
            .arguments
            .first()
            .map_or(Type::Int(32), |a| a.0.clone());
        match (stem, self.result) {
            ("memcpy" | "memmove" | "memset", _) => self.copy(builder, stem)?,
            ("trap" | "debugtrap", _) => {
                let status = (Type::Int(32), Value::Bits(TRAP_STATUS));
                let end = Callee::Engine(EngineCall::End);
                builder.effect(Op::Call(end, vec![status]));
            }
            ("abs", Some(result)) => self.absolute(builder, ty, result),
            ("fshl", Some(result)) => self.rotate(builder, ty, result, true)?,
            ("fshr", Some(result)) => self.rotate(builder, ty, result, false)?,
            ("bswap", Some(result)) => self.swap_bytes(builder, ty, result),
            ("ctpop", Some(result)) => {
                let count = ones(builder, &ty, self.value(0));
                builder.define(result, Op::Copy(count));
            }
            ("ctlz", Some(result)) => {
                // All bits below the first one become ones.
                let mut filled = self.value(0);
                let bits = ty.bits().unwrap_or(32);
                let mut by = 1;
                while by < bits {
                    let down = Op::Binary(BinaryOp::Lshr, filled, Value::Bits(u64::from(by)));
                    let down = builder.value("down", ty.clone(), down);
                    let or = Op::Binary(BinaryOp::Or, filled, down);
                    filled = builder.value("filled", ty.clone(), or);
                    by *= 2;
                }
                let count = ones(builder, &ty, filled);
                let width = Value::Bits(u64::from(bits));
                builder.define(result, Op::Binary(BinaryOp::Sub, width, count));
            }
            ("cttz", Some(result)) => {
                // The ones below the last one: ~x & (x - 1).
                let (value, all) = (
                    self.value(0),
                    Value::Bits(masked(u64::MAX, ty.bits().unwrap_or(32))),
                );
                let not = Op::Binary(BinaryOp::Xor, value, all);
                let not = builder.value("not", ty.clone(), not);
                let less = Op::Binary(BinaryOp::Add, value, all);
                let less = builder.value("less", ty.clone(), less);
                let below = Op::Binary(BinaryOp::And, not, less);
                let below = builder.value("below", ty.clone(), below);
                let count = ones(builder, &ty, below);
                builder.define(result, Op::Copy(count));
            }
            ("uadd" | "usub" | "sadd" | "ssub", Some(result)) if self.name.contains(".sat.") => {
                self.saturate(builder, ty, result, stem);
            }
            _ => {
                return Err(Error::unsupported(format!(
                    "LLVM intrinsic '{}' cannot be synthesized",
                    self.name
                )))
            }
        }
        Ok(())
    }

    /// `memcpy`, `memmove` and `memset`.
    fn copy(&self, builder: &mut Builder<'_>, stem: &str) -> Result<()> {
        let Value::Bits(count) = self.value(2) else {
            let message = format!("'{stem}' of a length that is not a constant");
            return Err(Error::unsupported(message).remedy("write a loop"));
        };
        if count > STRAIGHT_BYTES_MAX {
            let message = format!("'{stem}' of {count} bytes, more than {STRAIGHT_BYTES_MAX}");
            return Err(Error::unsupported(message).remedy("write a loop"));
        }
        let at = |builder: &mut Builder<'_>, base: Value, offset: u64| match offset {
            0 => base,
            _ => builder.address("at", base, offset),
        };
        let pieces = pieces(count);
        // All loads precede the first store, as source and target of `memmove` may overlap.
        let mut data = Vec::new();
        for &(offset, size) in &pieces {
            let bits = size as u32 * 8;
            let ty = Type::Int(bits);
            data.push(match (stem, self.value(1)) {
                ("memset", Value::Bits(byte)) => {
                    Value::Bits(masked((byte & 0xff).wrapping_mul(ONES), bits))
                }
                ("memset", byte) => {
                    let wide = builder.value("byte", ty.clone(), Op::Cast(Cast::Bits, 8, byte));
                    let ones = Value::Bits(masked(ONES, bits));
                    builder.value("bytes", ty, Op::Binary(BinaryOp::Mul, wide, ones))
                }
                (_, from) => {
                    let from = at(builder, from, offset);
                    builder.value("moved", ty, Op::Load(from, size, None))
                }
            });
        }
        for (&(offset, size), data) in pieces.iter().zip(data) {
            let to = at(builder, self.value(0), offset);
            builder.effect(Op::store(data, to, size));
        }
        Ok(())
    }

    /// Sums and differences that stay at the limits of their type.
    fn saturate(&self, builder: &mut Builder<'_>, ty: Type, result: ValueId, stem: &str) {
        let (a, b, bits) = (self.value(0), self.value(1), ty.bits().unwrap_or(32));
        let number = |n: u64| Value::Bits(masked(n, bits));
        let compare = |signed: bool, left: Value, right: Value| Op::Compare {
            predicate: Predicate::Int(IntPredicate::Less { signed }),
            bits,
            left,
            right,
        };
        let op = if stem.ends_with("add") {
            BinaryOp::Add
        } else {
            BinaryOp::Sub
        };
        let sum = builder.value("sum", ty.clone(), Op::Binary(op, a, b));
        if stem.starts_with('u') {
            // An overflow makes a sum less than an operand; a difference underflows if a < b.
            let (left, limit) = match op {
                BinaryOp::Add => ((sum, a), number(u64::MAX)),
                _ => ((a, b), number(0)),
            };
            let out = builder.value("out", Type::Int(1), compare(false, left.0, left.1));
            builder.define(result, Op::Select(out, limit, sum));
            return;
        }
        // A signed overflow changes the result's sign against both operands (the second negated).
        let first = builder.value("first", ty.clone(), Op::Binary(BinaryOp::Xor, a, sum));
        let other = match op {
            BinaryOp::Add => (b, sum),
            _ => (a, b),
        };
        let second = Op::Binary(BinaryOp::Xor, other.0, other.1);
        let second = builder.value("second", ty.clone(), second);
        let both = Op::Binary(BinaryOp::And, first, second);
        let both = builder.value("both", ty.clone(), both);
        let out = builder.value("out", Type::Int(1), compare(true, both, number(0)));
        let negative = builder.value("negative", Type::Int(1), compare(true, a, number(0)));
        let (least, most) = (number(1 << (bits - 1)), number((1 << (bits - 1)) - 1));
        let limit = builder.value("limit", ty, Op::Select(negative, least, most));
        builder.define(result, Op::Select(out, limit, sum));
    }

    fn absolute(&self, builder: &mut Builder<'_>, ty: Type, result: ValueId) {
        let (value, zero) = (self.value(0), Value::Bits(0));
        let bits = ty.bits().unwrap_or(32);
        let minus = builder.value("minus", ty, Op::Binary(BinaryOp::Sub, zero, value));
        let less = Predicate::Int(IntPredicate::Less { signed: true });
        let below = Op::Compare {
            predicate: less,
            bits,
            left: value,
            right: zero,
        };
        let below = builder.value("below", Type::Int(1), below);
        builder.define(result, Op::Select(below, minus, value));
    }

    /// `fshl` and `fshr`, which rotate if both operands are the same.
    fn rotate(
        &self,
        builder: &mut Builder<'_>,
        ty: Type,
        result: ValueId,
        left: bool,
    ) -> Result<()> {
        // A shift by the width or more gives zero in SystemVerilog, so a rotation by zero is right,
        // too.
        let bits = ty.bits().unwrap_or(32);
        let width = Value::Bits(u64::from(bits));
        let by = match self.value(2) {
            Value::Bits(n) => Value::Bits(n % u64::from(bits)),
            by if bits.is_power_of_two() => {
                let mask = Value::Bits(u64::from(bits) - 1);
                builder.value("by", ty.clone(), Op::Binary(BinaryOp::And, by, mask))
            }
            _ => {
                let message = format!("rotation of {bits} bits by a variable");
                return Err(Error::unsupported(message).remedy("use 8, 16, 32 or 64 bits"));
            }
        };
        let rest = builder.value("rest", ty.clone(), Op::Binary(BinaryOp::Sub, width, by));
        let (up, down) = if left { (by, rest) } else { (rest, by) };
        let up = Op::Binary(BinaryOp::Shl, self.value(0), up);
        let up = builder.value("up", ty.clone(), up);
        let down = Op::Binary(BinaryOp::Lshr, self.value(1), down);
        let down = builder.value("down", ty, down);
        builder.define(result, Op::Binary(BinaryOp::Or, up, down));
        Ok(())
    }

    fn swap_bytes(&self, builder: &mut Builder<'_>, ty: Type, result: ValueId) {
        let bits = ty.bits().unwrap_or(32);
        let mut sum = Value::Bits(0);
        for byte in 0..bits / 8 {
            let from = u64::from(byte * 8);
            let mut binary = |name: &str, op, a, b| {
                builder.value(name, ty.clone(), Op::Binary(op, a, Value::Bits(b)))
            };
            let low = binary("low", BinaryOp::Lshr, self.value(0), from);
            let one = binary("one", BinaryOp::And, low, 0xff);
            let moved = binary("moved", BinaryOp::Shl, one, u64::from(bits) - 8 - from);
            let or = Op::Binary(BinaryOp::Or, sum, moved);
            sum = builder.value("swapped", ty.clone(), or);
        }
        builder.define(result, Op::Copy(sum));
    }
}

/// The number of ones in a value, of up to 64 bits.
fn ones(builder: &mut Builder<'_>, ty: &Type, value: Value) -> Value {
    let bits = ty.bits().unwrap_or(32);
    let number = |n: u64| Value::Bits(masked(n, bits));
    let mut binary = |op, a, b| builder.value("count", ty.clone(), Op::Binary(op, a, b));
    let mut sum = value;
    // Sums of neighbors, of 2, 4, 8 bits and so on.
    for (by, mask) in [
        (1, 0x5555_5555_5555_5555),
        (2, 0x3333_3333_3333_3333),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (8, 0x00ff_00ff_00ff_00ff),
        (16, 0x0000_ffff_0000_ffff),
        (32, 0x0000_0000_ffff_ffff),
    ] {
        if by >= bits {
            break;
        }
        let low = binary(BinaryOp::And, sum, number(mask));
        let high = binary(BinaryOp::Lshr, sum, Value::Bits(u64::from(by)));
        let high = binary(BinaryOp::And, high, number(mask));
        sum = binary(BinaryOp::Add, low, high);
    }
    sum
}

/// Divides bytes into pieces of 8, 4, 2 and 1: offset and size of each.
fn pieces(count: u64) -> Vec<(u64, u64)> {
    let (mut at, mut out) = (0, Vec::new());
    for size in [8, 4, 2, 1] {
        while count - at >= size {
            out.push((at, size));
            at += size;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn expanded(call: &str) -> Result<Function> {
        let text = format!("define void @f(ptr %a, ptr %b, i64 %n) {{\n  {call}\n  ret void\n}}\n");
        let mut function = parse::module(&text)?.functions.remove(0);
        expand(&mut function)?;
        Ok(function)
    }

    #[test]
    fn all_loads_of_a_copy_precede_its_stores() {
        let call = "call void @llvm.memmove.p0.p0.i64(ptr %a, ptr %b, i64 13, i1 false)";
        let function = expanded(call).unwrap();
        let accesses = function.instructions().filter_map(|i| match i.op {
            Op::Load(_, size, _) => Some((true, size)),
            Op::Store { size, .. } => Some((false, size)),
            _ => None,
        });
        let loads_then_stores = [true, false].map(|load| [8, 4, 1].map(|size| (load, size)));
        assert_eq!(accesses.collect::<Vec<_>>(), loads_then_stores.concat());
    }

    #[test]
    fn rejects_moves_of_variable_or_large_size() {
        for (length, why) in [("%n", "not a constant"), ("257", "257 bytes")] {
            let call =
                format!("call void @llvm.memmove.p0.p0.i64(ptr %a, ptr %b, i64 {length}, i1 0)");
            let error = expanded(&call).unwrap_err();
            assert!(error.message.contains(why), "{error}");
            assert_eq!(error.remedy, Some("write a loop"));
        }
    }
}
