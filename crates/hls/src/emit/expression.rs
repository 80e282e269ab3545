//! Expressions and names of the SystemVerilog.

use crate::ir::{Binary, Place, Value};
use crate::schedule::Code;
use crate::units::Unit;

/// A literal of `bits` bits.
pub(super) fn literal(value: u64, bits: u32) -> String {
    let value = crate::parse::masked(value, bits);
    match (bits, value) {
        (1, v) => format!("1'b{v}"),
        (_, v) if v < 1024 => format!("{bits}'d{v}"),
        (_, v) => format!("{bits}'h{v:x}"),
    }
}

pub(super) fn unit_name(kind: Unit, instance: u32) -> String {
    match instance {
        0 => kind.name(),
        n => format!("{}_{n}", kind.name()),
    }
}

/// A step's position in the source: that of its first instruction.
pub(super) fn place(code: &Code, step: u32) -> Place {
    let steps = code.code.iter().zip(&code.schedule.steps);
    let found = steps
        .filter(|(i, s)| s.0 == step && i.place.line > 0)
        .map(|(i, _)| &i.place)
        .next();
    found.unwrap_or(&code.place).clone()
}

pub(super) fn index_bits(words: usize) -> u32 {
    (usize::BITS - (words.max(2) - 1).leading_zeros()).max(1)
}

pub(super) fn range(bits: u32) -> String {
    match bits {
        0 | 1 => String::new(),
        n => format!("[{}:0] ", n - 1),
    }
}

pub(super) fn binary(op: Binary, x: &str, y: &str, bits: u32, b: &Value) -> String {
    let less = |signed: bool| match signed {
        true => format!("$signed({x}) < $signed({y})"),
        false => format!("{x} < {y}"),
    };
    match op {
        Binary::Add => format!("{x} + {y}"),
        Binary::Sub => format!("{x} - {y}"),
        // Products with other factors use a unit.
        Binary::Mul => match b {
            Value::Bits(n) if *n != 0 => format!("{x} << {}", n.trailing_zeros()),
            _ => literal(0, bits),
        },
        Binary::And => format!("{x} & {y}"),
        Binary::Or => format!("{x} | {y}"),
        Binary::Xor => format!("{x} ^ {y}"),
        Binary::Shl => format!("{x} << {y}"),
        Binary::Lshr => format!("{x} >> {y}"),
        Binary::Ashr => format!("$unsigned($signed({x}) >>> {y})"),
        Binary::Umin => format!("({}) ? {x} : {y}", less(false)),
        Binary::Umax => format!("({}) ? {y} : {x}", less(false)),
        Binary::Smin => format!("({}) ? {x} : {y}", less(true)),
        Binary::Smax => format!("({}) ? {y} : {x}", less(true)),
        _ => literal(0, bits),
    }
}

pub(super) fn compare(predicate: &str, x: &str, y: &str) -> String {
    let operator = match &predicate[predicate.len() - 2..] {
        "eq" => "==",
        "ne" => "!=",
        "lt" => "<",
        "le" => "<=",
        "gt" => ">",
        _ => ">=",
    };
    match predicate.starts_with('s') {
        true => format!("$signed({x}) {operator} $signed({y})"),
        false => format!("{x} {operator} {y}"),
    }
}
