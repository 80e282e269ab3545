//! LLVM's intrinsics for arithmetic with a check of overflow: the result, and whether it is not the
//! exact one.

use crate::ir::{masked, BinaryOp, Cast, IntPredicate, Op, Predicate, Type, Value, ValueId};

/// The widest integer.
const WORD: u32 = 64;

/// Appends an operation with a value as its result, or with a new one of a type; returns the
/// result.
type Add<'a> = dyn FnMut(Option<ValueId>, Type, Op) -> Value + 'a;

/// An operation whose overflow is checked.
pub struct Operation {
    signed: bool,
    op: BinaryOp,
}

impl Operation {
    /// The operation of an intrinsic such as `llvm.umul.with.overflow.i32`.
    pub fn named(name: &str) -> Option<Operation> {
        let stem = name.strip_prefix("llvm.")?;
        let (stem, _) = stem.split_once(".with.overflow.")?;
        let (signed, op) = match stem {
            "uadd" => (false, BinaryOp::Add),
            "sadd" => (true, BinaryOp::Add),
            "usub" => (false, BinaryOp::Sub),
            "ssub" => (true, BinaryOp::Sub),
            "umul" => (false, BinaryOp::Mul),
            "smul" => (true, BinaryOp::Mul),
            _ => return None,
        };
        Some(Operation { signed, op })
    }

    /// Replaces a call with these operands: the elements of the first vector, then those of the
    /// second one. `results`: the elements of the result, then whether each has overflowed.
    pub fn expand(&self, operands: &[(Type, Value)], results: &[ValueId], add: &mut Add<'_>) {
        let lanes = operands.len() / 2;
        for lane in 0..lanes.min(results.len() / 2) {
            let (ty, a) = operands[lane].clone();
            let b = operands[lanes + lane].1;
            let mut lane = Lane {
                bits: ty.bits().unwrap_or(32),
                signed: self.signed,
                result: results[lane],
                overflow: results[lanes + lane],
                add,
            };
            match self.op {
                BinaryOp::Mul => lane.product(a, b),
                op => lane.sum(op, a, b),
            }
        }
    }
}

/// The operation on one element.
struct Lane<'a, 'b> {
    bits: u32,
    signed: bool,
    result: ValueId,
    overflow: ValueId,
    add: &'a mut Add<'b>,
}

impl Lane<'_, '_> {
    fn binary(&mut self, bits: u32, op: BinaryOp, a: Value, b: Value) -> Value {
        (self.add)(None, Type::Int(bits), Op::Binary(op, a, b))
    }

    fn compare(&mut self, predicate: IntPredicate, bits: u32, left: Value, right: Value) -> Value {
        let predicate = Predicate::Int(predicate);
        let op = Op::Compare {
            predicate,
            bits,
            left,
            right,
        };
        (self.add)(None, Type::Int(1), op)
    }

    /// Extends a value to a word.
    fn widened(&mut self, value: Value) -> Value {
        let cast = if self.signed { Cast::Sext } else { Cast::Bits };
        (self.add)(None, Type::Int(WORD), Op::Cast(cast, self.bits, value))
    }

    /// A sum or a difference.
    fn sum(&mut self, op: BinaryOp, a: Value, b: Value) {
        let bits = self.bits;
        let ty = Type::Int(bits);
        let sum = (self.add)(Some(self.result), ty, Op::Binary(op, a, b));
        let less = |signed| IntPredicate::Less { signed };
        let overflow = if self.signed {
            // The sign differs from that of both operands (the second negated).
            let first = self.binary(bits, BinaryOp::Xor, a, sum);
            let (left, right) = match op {
                BinaryOp::Add => (b, sum),
                _ => (a, b),
            };
            let second = self.binary(bits, BinaryOp::Xor, left, right);
            let both = self.binary(bits, BinaryOp::And, first, second);
            self.compare(less(true), bits, both, Value::Bits(0))
        } else {
            let (left, right) = match op {
                BinaryOp::Add => (sum, a),
                _ => (a, b),
            };
            self.compare(less(false), bits, left, right)
        };
        (self.add)(Some(self.overflow), Type::Int(1), Op::Copy(overflow));
    }

    fn product(&mut self, a: Value, b: Value) {
        let (wide_a, wide_b) = match self.bits {
            WORD => (a, b),
            _ => (self.widened(a), self.widened(b)),
        };
        let low = self.binary(WORD, BinaryOp::Mul, wide_a, wide_b);
        let result = match self.bits {
            WORD => Op::Copy(low),
            _ => Op::Cast(Cast::Bits, WORD, low),
        };
        let result = (self.add)(Some(self.result), Type::Int(self.bits), result);
        // The word is not the exact product of operands of more than half of its bits.
        let inexact = (self.bits > WORD / 2).then(|| {
            let high = self.high(wide_a, wide_b);
            let expected = if self.signed {
                self.binary(WORD, BinaryOp::Ashr, low, Value::Bits(u64::from(WORD) - 1))
            } else {
                Value::Bits(0)
            };
            self.compare(IntPredicate::NotEqual, WORD, high, expected)
        });
        let outside = (self.bits < WORD).then(|| {
            let exact = self.widened(result);
            self.compare(IntPredicate::NotEqual, WORD, exact, low)
        });
        let overflow = match (inexact, outside) {
            (Some(a), Some(b)) => Op::Binary(BinaryOp::Or, a, b),
            (Some(one), None) | (None, Some(one)) => Op::Copy(one),
            (None, None) => Op::Copy(Value::Bits(0)),
        };
        (self.add)(Some(self.overflow), Type::Int(1), overflow);
    }

    /// The upper word of the product of two words.
    fn high(&mut self, a: Value, b: Value) -> Value {
        use BinaryOp::{Add, And, Ashr, Lshr, Mul, Sub};
        let (half, mask) = (Value::Bits(32), Value::Bits(masked(u64::MAX, 32)));
        let mut halves = |value| {
            (
                self.binary(WORD, And, value, mask),
                self.binary(WORD, Lshr, value, half),
            )
        };
        let ((a_low, a_high), (b_low, b_high)) = (halves(a), halves(b));
        let low = self.binary(WORD, Mul, a_low, b_low);
        let left = self.binary(WORD, Mul, a_high, b_low);
        let right = self.binary(WORD, Mul, a_low, b_high);
        let mut high = self.binary(WORD, Mul, a_high, b_high);
        let mut middle = self.binary(WORD, Lshr, low, half);
        for part in [left, right] {
            let lower = self.binary(WORD, And, part, mask);
            middle = self.binary(WORD, Add, middle, lower);
            let upper = self.binary(WORD, Lshr, part, half);
            high = self.binary(WORD, Add, high, upper);
        }
        let carry = self.binary(WORD, Lshr, middle, half);
        high = self.binary(WORD, Add, high, carry);
        if self.signed {
            // A negative operand is less by a word than its bits as a number without a sign.
            for (one, other) in [(a, b), (b, a)] {
                let sign = Value::Bits(u64::from(WORD) - 1);
                let negative = self.binary(WORD, Ashr, one, sign);
                let excess = self.binary(WORD, And, negative, other);
                high = self.binary(WORD, Sub, high, excess);
            }
        }
        high
    }
}
