//! Arithmetic units that take more than a clock (`hdl/hls/rtl`): modules, parameters and latencies.

use crate::ir::{masked, BinaryOp, BlockId, Cast, Function, Instruction, Op, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Units of one kind that a pipeline may have.
pub const UNITS_MAX: u32 = 4;
/// The same if its iterations are work-items, and multipliers of 18 bits in all of them.
const ITEM_UNITS_MAX: u32 = 16;
/// Uses of a kind of floats by a work-item up to which that many units are allowed: beyond, they
/// would take more than four clocks.
const ITEM_FLOAT_USES_MAX: u32 = 4 * ITEM_UNITS_MAX;
/// Units of floats with more uses: half as many take three quarters of the area, and can be routed
/// (k-means with 112 sums on an ECP5-85: 21.5 k of 84 k LUTs, 113 MHz; with 16 of a kind 29.7 k, not
/// routed).
const ITEM_SHARED_FLOATS_MAX: u32 = 8;
const ITEM_MULTIPLIERS_MAX: u32 = 64;
/// Products of up to 18 bits, which have a multiplier each: four fifths of the largest part's.
const ITEM_PRODUCTS_MAX: u32 = 128;

/// A kind of unit; each accepts operands every clock, except for division.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// Integers of up to N bits.
    Multiply(u32),
    /// Signed integers of 18 bits, with all bits of the product.
    Product,
    Divide(u32),
    /// Floats of N bits.
    Fadd(u32),
    Fmul(u32),
    /// Integer of N bits, signed or not, to a float of N bits.
    FromInteger(u32, bool, u32),
    /// Float of N bits to an integer of N bits, signed or not.
    ToInteger(u32, u32, bool),
    Widen,
    Narrow,
}

impl Unit {
    /// Clocks from operands to result, equal to the module's.
    pub fn latency(self) -> u32 {
        match self {
            Unit::Multiply(18) | Unit::Product => 2,
            Unit::Multiply(_) => 3,
            Unit::Divide(_) | Unit::Widen => 1,
            Unit::Fadd(_) => 5,
            Unit::Fmul(_) => 5,
            Unit::FromInteger(..) => 3,
            Unit::ToInteger(..) | Unit::Narrow => 2,
        }
    }

    /// Multipliers of 18 bits that it consists of.
    pub fn multipliers(self) -> u32 {
        match self {
            Unit::Multiply(18) | Unit::Product => 1,
            Unit::Multiply(32) | Unit::Fmul(32) => 4,
            Unit::Multiply(_) | Unit::Fmul(_) => 16,
            _ => 0,
        }
    }

    /// Whether its latency depends on the operands, so that its step waits.
    pub fn waits(self) -> bool {
        matches!(self, Unit::Divide(_))
    }

    /// The module's name and parameters.
    pub fn module(self) -> (&'static str, Vec<(&'static str, u32)>) {
        let converter = |integer: u32, signed: bool, float: u32| {
            let mut parameters = vec![("I", integer), ("SIGNED", u32::from(signed))];
            parameters.extend(float_parameters(float));
            parameters
        };
        match self {
            Unit::Multiply(w) => ("hls_multiply", vec![("W", w)]),
            Unit::Product => ("hls_product", Vec::new()),
            Unit::Divide(w) => ("hls_divide", vec![("W", w)]),
            Unit::Fadd(w) => ("hls_fadd", float_parameters(w)),
            Unit::Fmul(w) => ("hls_fmul", float_parameters(w)),
            Unit::FromInteger(i, signed, w) => ("hls_from_integer", converter(i, signed, w)),
            Unit::ToInteger(w, i, signed) => ("hls_to_integer", converter(i, signed, w)),
            Unit::Widen => ("hls_widen", Vec::new()),
            Unit::Narrow => ("hls_narrow", Vec::new()),
        }
    }

    /// The name of its first instance.
    pub fn name(self) -> String {
        match self {
            Unit::Multiply(w) => format!("multiply{w}"),
            Unit::Product => "product".to_owned(),
            Unit::Divide(w) => format!("divide{w}"),
            Unit::Fadd(w) => format!("fadd{w}"),
            Unit::Fmul(w) => format!("fmul{w}"),
            Unit::FromInteger(i, s, w) => {
                format!("float{w}_from_{}{i}", if s { "int" } else { "unsigned" })
            }
            Unit::ToInteger(w, i, s) => {
                format!("{}{i}_from_float{w}", if s { "int" } else { "unsigned" })
            }
            Unit::Widen => "double_from_float".to_owned(),
            Unit::Narrow => "float_from_double".to_owned(),
        }
    }

    /// Bits of operands and of the result.
    pub fn bits(self) -> (u32, u32) {
        match self {
            Unit::Multiply(w) | Unit::Divide(w) | Unit::Fadd(w) | Unit::Fmul(w) => (w, w),
            Unit::Product => (18, 36),
            Unit::FromInteger(i, _, w) => (i, w),
            Unit::ToInteger(w, i, _) => (w, i),
            Unit::Widen => (32, 64),
            Unit::Narrow => (64, 32),
        }
    }

    pub fn operands(self) -> usize {
        match self {
            Unit::Multiply(_) | Unit::Product | Unit::Divide(_) | Unit::Fadd(_) | Unit::Fmul(_) => {
                2
            }
            _ => 1,
        }
    }
}

/// The parameters of a module on floats of N bits.
pub fn float_parameters(bits: u32) -> Vec<(&'static str, u32)> {
    match bits {
        32 => vec![("EXP", 8), ("MAN", 23)],
        _ => vec![("EXP", 11), ("MAN", 52)],
    }
}

fn integer(bits: u32) -> u32 {
    if bits <= 32 {
        32
    } else {
        64
    }
}

/// A factor as a sum or difference of at most two powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shifts {
    Zero,
    One(u32),
    Sum(u32, u32),
    /// The first less the second.
    Difference(u32, u32),
}

/// A constant factor of a product of this many bits as shifts; `None`: it takes a multiplier.
pub fn shifts(factor: u64, bits: u32) -> Option<Shifts> {
    let factor = masked(factor, bits);
    let low = factor.trailing_zeros();
    let high = 63_u32.saturating_sub(factor.leading_zeros());
    let run = factor.checked_shr(low).unwrap_or(0);
    Some(match factor.count_ones() {
        0 => Shifts::Zero,
        1 => Shifts::One(low),
        2 => Shifts::Sum(high, low),
        _ if run & run.wrapping_add(1) == 0 && high + 1 < bits => Shifts::Difference(high + 1, low),
        _ => return None,
    })
}

/// Uses from which on operands come from registers: of a kind of unit, and of a port of loads.
const REGISTERED_UNIT_USES_MIN: u32 = 32;
const REGISTERED_PORT_USES_MIN: u32 = 3;

/// Units and ports of loads whose operands are selected in a clock of their own.
pub struct Registered {
    /// Kinds of units of floats with many uses, whose operands are far apart on the chip.
    pub units: BTreeSet<Unit>,
    /// Ports of loads with several uses: the sum of the address and the buffer's place, and the
    /// cache, follow the selection.
    pub ports: BTreeSet<u32>,
}

impl Registered {
    /// Those of a module with these functions.
    pub fn new<'a>(functions: impl IntoIterator<Item = &'a Function>) -> Registered {
        let mut units = BTreeMap::new();
        let mut ports = BTreeMap::new();
        let mut words = BTreeSet::new();
        for function in functions {
            for instruction in function.instructions() {
                if let Some(kind @ (Unit::Fadd(_) | Unit::Fmul(_))) = unit(function, instruction) {
                    *units.entry(kind).or_insert(0) += 1;
                }
                if let Some(port) = instruction.reader {
                    *ports.entry(port).or_insert(0) += 1;
                    if instruction.reader_word > 0 {
                        words.insert(port);
                    }
                }
            }
        }
        units.retain(|_, count| *count >= REGISTERED_UNIT_USES_MIN);
        ports.retain(|port, count| *count >= REGISTERED_PORT_USES_MIN && !words.contains(port));
        Registered {
            units: units.into_keys().collect(),
            ports: ports.into_keys().collect(),
        }
    }
}

/// The unit that executes an instruction, if any.
pub fn unit(function: &Function, instruction: &Instruction) -> Option<Unit> {
    let ty = instruction.result.map(|r| &function[r].ty)?;
    let bits = ty.bits()?;
    Some(match &instruction.op {
        Op::Binary(BinaryOp::Mul, _, Value::Bits(n)) if shifts(*n, bits).is_some() => return None,
        Op::Binary(BinaryOp::Mul, ..) if instruction.is_short_product => Unit::Product,
        Op::Binary(BinaryOp::Mul, ..) => {
            Unit::Multiply(if bits <= 18 { 18 } else { integer(bits) })
        }
        Op::Binary(BinaryOp::Udiv | BinaryOp::Sdiv | BinaryOp::Urem | BinaryOp::Srem, ..) => {
            Unit::Divide(integer(bits))
        }
        Op::Binary(BinaryOp::Fadd | BinaryOp::Fsub, ..) => Unit::Fadd(bits),
        Op::Binary(BinaryOp::Fmul, ..) => Unit::Fmul(bits),
        Op::Cast(Cast::Sitofp, from, _) => Unit::FromInteger(integer(*from), true, bits),
        Op::Cast(Cast::Uitofp, from, _) => Unit::FromInteger(integer(*from), false, bits),
        Op::Cast(Cast::Fptosi, from, _) => Unit::ToInteger(*from, integer(bits), true),
        Op::Cast(Cast::Fptoui, from, _) => Unit::ToInteger(*from, integer(bits), false),
        Op::Cast(Cast::Fpext, ..) => Unit::Widen,
        Op::Cast(Cast::Fptrunc, ..) => Unit::Narrow,
        _ => return None,
    })
}

/// Units of a kind for this many uses in a pipeline; `items`: its iterations are work-items.
pub fn units_max(kind: Unit, uses: u32, items: bool) -> u32 {
    if !items {
        return UNITS_MAX;
    }
    let multipliers = ITEM_MULTIPLIERS_MAX / kind.multipliers().max(1);
    match kind {
        Unit::Product => ITEM_PRODUCTS_MAX,
        Unit::Fadd(_) | Unit::Fmul(_) if uses > ITEM_FLOAT_USES_MAX => {
            multipliers.clamp(UNITS_MAX, ITEM_SHARED_FLOATS_MAX)
        }
        _ => multipliers.clamp(UNITS_MAX, ITEM_UNITS_MAX),
    }
}

/// By kind of unit: the instructions that use it.
pub fn unit_uses<'a>(
    function: &Function,
    code: impl IntoIterator<Item = &'a Instruction>,
) -> HashMap<Unit, u32> {
    let mut uses = HashMap::new();
    for instruction in code {
        if let Some(kind) = unit(function, instruction) {
            *uses.entry(kind).or_insert(0) += 1;
        }
    }
    uses
}

/// The shortest interval for which a loop over work-items, a block, may have enough units.
pub fn units_interval(function: &Function, block: BlockId) -> u32 {
    let uses = unit_uses(function, &function[block].code).into_iter();
    let intervals = uses.map(|(kind, count)| count.div_ceil(units_max(kind, count, true)));
    intervals.max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_sums_of_a_work_item_share_eight_units() {
        let sums = |uses| units_max(Unit::Fadd(32), uses, true);
        assert_eq!((sums(16), sums(64), sums(65)), (16, 16, 8));
        assert_eq!(units_max(Unit::Fadd(32), 112, false), UNITS_MAX);
        // Products of integers need no area beyond their multipliers.
        assert_eq!(units_max(Unit::Multiply(18), 65, true), 16);
        // Of doubles, each takes 16 multipliers.
        assert_eq!(units_max(Unit::Fmul(64), 65, true), UNITS_MAX);
    }

    #[test]
    fn factors_with_two_powers_of_two_are_shifts() {
        assert_eq!(shifts(0, 32), Some(Shifts::Zero));
        assert_eq!(shifts(1 << 63, 64), Some(Shifts::One(63)));
        assert_eq!(shifts(10, 32), Some(Shifts::Sum(3, 1)));
        assert_eq!(shifts(56, 32), Some(Shifts::Difference(6, 3)));
        // Without the bits above 32.
        assert_eq!(shifts(0x7_0000_0003, 32), Some(Shifts::Sum(1, 0)));
        for factor in [11, 0x1001_0001, u64::MAX] {
            assert_eq!(shifts(factor, 32), None, "{factor}");
        }
        for factor in 1..2000_u64 {
            let value = |by: u32| 1_u64 << by;
            let found = match shifts(factor, 16) {
                Some(Shifts::One(a)) => value(a),
                Some(Shifts::Sum(a, b)) => value(a) + value(b),
                Some(Shifts::Difference(a, b)) => value(a) - value(b),
                _ => factor,
            };
            assert_eq!(found, factor);
        }
    }
}
