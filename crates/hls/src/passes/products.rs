//! Products of integers that fit one multiplier of 18 bits, by the bits that operations leave to the
//! operands: those of `char`, of `short`, and of counters with few bits.

use crate::ir::{signed, BinaryOp, Cast, Function, Instruction, Op, Value, ValueId};
use crate::memory::Bits;
use std::collections::HashMap;

/// Bits of a multiplier's operands, which are signed.
const OPERAND_BITS: u32 = 18;
/// Operations that are followed from an operand.
const DEPTH_MAX: u32 = 8;

/// Marks the products of a function that fit a multiplier.
pub fn mark(function: &mut Function) {
    let operands = Operands {
        function,
        bits: Bits::new(function),
        definitions: (function.instructions())
            .filter_map(|i| Some((i.result?, &i.op)))
            .collect(),
    };
    let fits = |instruction: &Instruction| match instruction.op {
        Op::Binary(BinaryOp::Mul, a, b) => {
            let own = instruction.result.and_then(|r| function[r].ty.bits());
            let own = own.unwrap_or(0);
            own > OPERAND_BITS
                && [a, b]
                    .into_iter()
                    .all(|v| operands.signed_bits(v, own, 0) <= OPERAND_BITS)
        }
        _ => false,
    };
    let found: Vec<ValueId> = function
        .instructions()
        .filter(|i| fits(i))
        .filter_map(|i| i.result)
        .collect();
    for instruction in function.blocks.iter_mut().flat_map(|b| &mut b.code) {
        instruction.is_short_product |= instruction.result.is_some_and(|r| found.contains(&r));
    }
}

struct Operands<'a> {
    function: &'a Function,
    bits: Bits<'a>,
    definitions: HashMap<ValueId, &'a Op>,
}

impl Operands<'_> {
    /// Bits of a value as a signed number.
    fn signed_bits(&self, value: Value, bits: u32, depth: u32) -> u32 {
        let v = match value {
            Value::Bits(n) => {
                let n = signed(n, bits);
                return 65 - if n < 0 { !n } else { n }.leading_zeros();
            }
            Value::Local(v) => v,
            _ => return bits,
        };
        let own = self.function.bits_of(value, bits);
        let positive = self.bits.width(value, own) + 1;
        let Some(op) = self.definitions.get(&v).filter(|_| depth < DEPTH_MAX) else {
            return positive.min(own);
        };
        let of = |value: Value, bits| self.signed_bits(value, bits, depth + 1);
        let found = match op {
            Op::Copy(a) => of(*a, own),
            Op::Select(_, a, b) => of(*a, own).max(of(*b, own)),
            Op::Cast(Cast::Sext, from, a) => of(*a, *from),
            // The lower bits, which have the sign if the rest repeats it.
            Op::Cast(Cast::Bits, from, a) if *from >= own => of(*a, *from),
            Op::Binary(BinaryOp::Ashr, a, Value::Bits(n)) if *n < u64::from(own) => {
                of(*a, own).saturating_sub(*n as u32).max(1)
            }
            _ => own,
        };
        found.min(positive).min(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    fn fits(body: &str) -> bool {
        let mut function = first_function(&format!(
            "define i32 @f(i8 %a, i16 %b, i32 %c, i64 %d) {{\n{body}  ret i32 %p\n}}\n"
        ));
        mark(&mut function);
        let product = function.instructions().find(|i| i.is_short_product);
        product.is_some()
    }

    #[test]
    fn products_of_short_operands_fit_a_multiplier() {
        assert!(fits(
            "  %x = sext i8 %a to i32\n  %y = zext i16 %b to i32\n  %p = mul i32 %x, %y\n"
        ));
        assert!(fits(
            "  %x = ashr i64 %d, 56\n  %y = trunc i64 %x to i32\n  %p = mul i32 %y, -1000\n"
        ));
        assert!(fits("  %x = lshr i32 %c, 15\n  %p = mul i32 %x, %x\n"));
    }

    #[test]
    fn products_of_longer_operands_do_not() {
        assert!(!fits("  %x = lshr i32 %c, 14\n  %p = mul i32 %x, %x\n"));
        assert!(!fits(
            "  %x = zext i8 %a to i32\n  %p = mul i32 %x, 131072\n"
        ));
        assert!(!fits(
            "  %x = ashr i64 %d, 24\n  %y = trunc i64 %x to i32\n  %p = mul i32 %y, 5\n"
        ));
    }
}
