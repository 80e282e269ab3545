//! Replaces signed divisions by powers of two, which round toward zero, by shifts.

use crate::ir::{masked, BinaryOp, Function, Instruction, Op, Type, Value};

/// Replaces the divisions and remainders of a function.
pub fn replace(function: &mut Function) {
    for at in 0..function.blocks.len() {
        let code = std::mem::take(&mut function.blocks[at].code);
        let mut out = Vec::with_capacity(code.len());
        for instruction in code {
            match power(function, &instruction) {
                Some(shift) => expand(function, instruction, shift, &mut out),
                None => out.push(instruction),
            }
        }
        function.blocks[at].code = out;
    }
}

/// The exponent of a signed division's divisor, if that is a power of two and not one.
fn power(function: &Function, instruction: &Instruction) -> Option<u32> {
    let Op::Binary(BinaryOp::Sdiv | BinaryOp::Srem, _, Value::Bits(by)) = instruction.op else {
        return None;
    };
    let bits = function[instruction.result?].ty.bits()?;
    let shift = by.is_power_of_two().then(|| by.trailing_zeros())?;
    (1..bits - 1).contains(&shift).then_some(shift)
}

/// A negative dividend is increased by the divisor less one, so that the shift rounds toward zero.
fn expand(
    function: &mut Function,
    mut instruction: Instruction,
    shift: u32,
    out: &mut Vec<Instruction>,
) {
    let (Op::Binary(op, a, _), Some(result)) = (&instruction.op, instruction.result) else {
        return;
    };
    let (op, a, ty) = (*op, *a, function[result].ty.clone());
    let bits = ty.bits().unwrap_or(32);
    let position = instruction.position.clone();
    let mut value = |name: &str, ty: Type, op: Op| {
        let result = function.value(name, ty);
        out.push(Instruction::new(Some(result), op, &position));
        Value::Local(result)
    };
    let binary = |op, a, by: u32| Op::Binary(op, a, Value::Bits(u64::from(by)));
    let sign = value("sign", ty.clone(), binary(BinaryOp::Ashr, a, bits - 1));
    let more = value(
        "more",
        ty.clone(),
        binary(BinaryOp::Lshr, sign, bits - shift),
    );
    let sum = value("sum", ty.clone(), Op::Binary(BinaryOp::Add, a, more));
    instruction.op = if op == BinaryOp::Sdiv {
        binary(BinaryOp::Ashr, sum, shift)
    } else {
        let mask = Value::Bits(masked(u64::MAX << shift, bits));
        let whole = value("whole", ty, Op::Binary(BinaryOp::And, sum, mask));
        Op::Binary(BinaryOp::Sub, a, whole)
    };
    out.push(instruction);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn signed_divisions_by_powers_of_two_are_shifts() {
        let mut function = first_function(
            "define i32 @f(i32 %x) {\n  %a = sdiv i32 %x, 8\n  %b = srem i32 %a, 4\n  \
             %c = sdiv i32 %b, 7\n  %d = sdiv i32 %c, 1\n  %e = sdiv i32 %d, -2147483648\n  \
             ret i32 %e\n}\n",
        );
        replace(&mut function);
        let left = function
            .instructions()
            .filter(|i| matches!(i.op, Op::Binary(BinaryOp::Sdiv | BinaryOp::Srem, ..)));
        assert_eq!(left.count(), 3);
    }
}
