//! Bits of values that may be one, as far as operations on constants, and on values whose largest
//! value is given, determine them.

use crate::address::follow;
use crate::ir::{masked, BinaryOp, Cast, Function, Instruction, Op, ScaledIndex, Value, ValueId};
use std::cell::RefCell;
use std::collections::HashMap;

/// Operations that are followed from a value.
const DEPTH_MAX: u32 = 24;
/// Bits of an address.
const ADDRESS: u32 = 32;

/// The definitions of a function's values.
pub struct Bits<'a> {
    function: &'a Function,
    definitions: HashMap<ValueId, &'a Instruction>,
    /// By value: the bits that have been found.
    found: RefCell<HashMap<ValueId, u64>>,
}

/// A mask of the bits up to the highest one of `mask`.
fn filled(mask: u64) -> u64 {
    match mask.leading_zeros() {
        64 => 0,
        zeros => u64::MAX >> zeros,
    }
}

/// The bits of the sum of two values.
fn sum(a: u64, b: u64) -> u64 {
    match (a & b, a | b) {
        (0, both) => both,
        (_, both) => filled(a.saturating_add(b)) & (u64::MAX << both.trailing_zeros()),
    }
}

/// The bits of a value's product with a constant.
fn product(a: u64, by: u64) -> u64 {
    match (a, by) {
        (0, _) | (_, 0) => 0,
        _ if by.is_power_of_two() && a.leading_zeros() >= by.trailing_zeros() => a * by,
        _ => {
            let low = (a.trailing_zeros() + by.trailing_zeros()).min(63);
            filled(a.saturating_mul(by)) & (u64::MAX << low)
        }
    }
}

impl<'a> Bits<'a> {
    pub fn new(function: &'a Function) -> Bits<'a> {
        let all = function.instructions();
        Bits {
            function,
            definitions: all.filter_map(|i| Some((i.result?, i))).collect(),
            found: RefCell::default(),
        }
    }

    fn of(&self, value: Value, bits: u32, depth: u32) -> u64 {
        let all = masked(u64::MAX, bits);
        let v = match value {
            Value::Bits(n) => return masked(n, bits),
            Value::Null | Value::Undef => return 0,
            Value::Local(v) => v,
            _ => return all,
        };
        if let Some(most) = self.function[v].max {
            return filled(most);
        }
        if let Some(found) = self.found.borrow().get(&v) {
            return found & all;
        }
        let definition = self.definitions.get(&v);
        let Some(op) = definition.map(|i| &i.op).filter(|_| depth < DEPTH_MAX) else {
            return all;
        };
        let of = |value: Value| self.of(value, self.function.bits_of(value, bits), depth + 1);
        let found = match op {
            Op::Copy(a) => of(*a),
            Op::Select(_, a, b) => of(*a) | of(*b),
            Op::Cast(Cast::Bits, from, a) => {
                self.of(*a, self.function.bits_of(*a, *from), depth + 1)
            }
            Op::Cast(Cast::Sext, from, a) => {
                let from = self.function.bits_of(*a, *from);
                extended(self.of(*a, from, depth + 1), from)
            }
            Op::Binary(op, a, b) => match (op, *b) {
                (BinaryOp::Add, b) => sum(of(*a), of(b)),
                (BinaryOp::And, b) => of(*a) & of(b),
                (BinaryOp::Or | BinaryOp::Xor, b) => of(*a) | of(b),
                (BinaryOp::Mul, Value::Bits(n)) => product(of(*a), n),
                (BinaryOp::Shl, Value::Bits(n)) if n < 64 => product(of(*a), 1 << n),
                (BinaryOp::Lshr, Value::Bits(n)) if n < 64 => of(*a) >> n,
                _ => all,
            },
            _ => all,
        };
        self.found.borrow_mut().insert(v, found & all);
        found & all
    }

    /// The width of a value without leading bits that are always zero; `bits`: that of a constant.
    pub fn width(&self, value: Value, bits: u32) -> u32 {
        let own = self.function.bits_of(value, bits).min(64);
        64 - self.of(value, own, 0).leading_zeros()
    }

    /// An address as the sum of a constant, relative to the base, and of bits that may be one.
    pub fn address(&self, address: Value) -> (Value, i64, u64) {
        let (mut constant, mut variable) = (0_i64, 0);
        let definition = |v: ValueId| self.definitions.get(&v).map(|i| &i.op);
        let base = follow(address, definition, |offset, indices| {
            constant = constant.wrapping_add(offset);
            for index in indices {
                let (known, more) = self.index(index);
                constant = constant.wrapping_add(known);
                variable = sum(variable, more);
            }
        });
        if let Value::Local(_) = base {
            variable = u64::MAX;
        }
        (base, constant, variable)
    }

    /// A scaled index as a constant and bits that may be one.
    fn index(&self, index: &ScaledIndex) -> (i64, u64) {
        let bits = self.function.bits_of(index.value, index.bits);
        // A constant summand is apart, so that it does not hide the others' bits.
        let (value, constant) = match index.value {
            Value::Local(v) => match self.definitions.get(&v).map(|i| &i.op) {
                Some(Op::Binary(BinaryOp::Add | BinaryOp::Or, a, Value::Bits(n)))
                    if self.of(*a, bits, 0) & n == 0 =>
                {
                    (*a, *n as i64)
                }
                _ => (index.value, 0),
            },
            Value::Bits(n) => return ((n as i64).wrapping_mul(index.scale), 0),
            other => (other, 0),
        };
        let own = extended(self.of(value, bits, 0), bits);
        let scale = index.scale;
        let more = match u64::try_from(scale) {
            Ok(scale) => product(own, scale),
            Err(_) => u64::MAX << (own.trailing_zeros() + scale.trailing_zeros()).min(63),
        };
        (constant.wrapping_mul(scale), more)
    }
}

/// The bits of a sign-extended value.
fn extended(own: u64, bits: u32) -> u64 {
    let negative = (1..ADDRESS.max(64)).contains(&bits) && own >> (bits - 1) & 1 != 0;
    if negative {
        own | u64::MAX << (bits - 1)
    } else {
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn bits_of_sums_and_products() {
        assert_eq!(sum(0b0011, 0b1100), 0b1111);
        assert_eq!(sum(0b0110, 0b0010), 0b1110);
        assert_eq!(product(0b11, 64), 0b1100_0000);
        assert_eq!(product(0b11, 6), 0b1_1110);
        assert_eq!(product(0, 9), 0);
    }

    #[test]
    fn addresses_have_a_constant_and_the_bits_of_indices() {
        let mut function = first_function(
            "@p = internal global [512 x i32] zeroinitializer\ndefine i32 @f(i32 %x, i32 %y) {\n  \
             %row = shl i32 %y, 5\n  %sum = or i32 %row, 3\n  \
             %a = getelementptr [64 x i32], ptr @p, i32 %x, i32 %sum\n  \
             %v = load i32, ptr %a, align 4\n  ret i32 %v\n}\n",
        );
        function.values[0].max = Some(7);
        let load = function.instructions().find_map(|i| match i.op {
            Op::Load(a, ..) => Some(a),
            _ => None,
        });
        let (base, constant, variable) = Bits::new(&function).address(load.unwrap());
        assert!(matches!(base, Value::Global(..)));
        assert_eq!(constant, 12);
        assert_eq!(variable & 0x7f, 0);
        assert_ne!(variable & 0x80, 0);
    }
}
