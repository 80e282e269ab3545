//! The combinational delay of instructions on ECP5.

use crate::ir::{BinaryOp, Function, Instruction, Op, Predicate, Value};
use crate::units::{shifts, Shifts};

/// Combinational delay in tenths of a nanosecond; 0 for wiring.
pub fn delay(function: &Function, instruction: &Instruction) -> u32 {
    let bits = |v: &Value| match v {
        Value::Local(v) => function[*v].ty.bits().unwrap_or(32),
        _ => 32,
    };
    let own = instruction
        .result
        .and_then(|r| function[r].ty.bits())
        .unwrap_or(32);
    let constant = |v: &Value| !matches!(v, Value::Local(_));
    match &instruction.op {
        Op::Binary(BinaryOp::Add | BinaryOp::Sub, ..) => 14 + own / 3,
        Op::Binary(BinaryOp::Mul, _, Value::Bits(n)) => match shifts(*n, own) {
            Some(Shifts::Sum(..) | Shifts::Difference(..)) => 14 + own / 3,
            _ => 0,
        },
        Op::Binary(BinaryOp::And | BinaryOp::Or | BinaryOp::Xor, a, b) => {
            if constant(a) || constant(b) {
                4
            } else {
                9
            }
        }
        Op::Binary(BinaryOp::Shl | BinaryOp::Lshr | BinaryOp::Ashr, _, b) if constant(b) => 0,
        Op::Binary(BinaryOp::Shl | BinaryOp::Lshr | BinaryOp::Ashr, ..) => {
            7 * (32 - own.leading_zeros())
        }
        Op::Binary(BinaryOp::Umin | BinaryOp::Umax | BinaryOp::Smin | BinaryOp::Smax, ..) => {
            24 + own / 4
        }
        Op::Compare {
            predicate: Predicate::Float(_),
            bits,
            ..
        } => 20 + bits / 4,
        Op::Compare {
            predicate, bits, ..
        } if predicate.is_equality() => 10 + bits / 6,
        Op::Compare { bits, .. } => 12 + bits / 3,
        Op::Select(c, _, _) => 9 + bits(c).saturating_sub(1) / 16,
        Op::Address {
            offset, indices, ..
        } => {
            let scaled = indices.iter().any(|i| i.scale.count_ones() != 1);
            let sums = indices.len() as u32 + u32::from(*offset != 0);
            // Bases are constants that are mostly merged with offsets.
            u32::from(sums > 0) * 6 + sums * 12 + if scaled { 30 } else { 0 }
        }
        _ => 0,
    }
}
