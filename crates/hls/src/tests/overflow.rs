//! Arithmetic with a check of overflow, interpreted, against numbers of 128 bits.

use super::interpret::Machine;
use crate::ir::FunctionId;
use crate::synthesis::instructions;

/// Limits of operands of a width, numbers near them, and numbers whose products are near them.
fn operands(bits: u32) -> Vec<u64> {
    let all = u64::MAX >> (64 - bits);
    let half = 1_u64 << (bits / 2);
    let sign = 1_u64 << (bits - 1);
    let near = [
        0,
        1,
        2,
        3,
        half,
        sign,
        all,
        0x9e37_79b9_7f4a_7c15,
        0x1_0000_0001,
    ];
    let near = near
        .iter()
        .flat_map(|n| [n.wrapping_sub(1), *n, n.wrapping_add(1)]);
    let mut near: Vec<u64> = near.map(|n| n & all).collect();
    near.sort_unstable();
    near.dedup();
    near
}

/// A number with or without a sign.
fn number(value: u64, bits: u32, signed: bool) -> i128 {
    let sign = signed && value >> (bits - 1) & 1 == 1;
    i128::from(value) - if sign { 1 << bits } else { 0 }
}

fn check(name: &str, bits: u32) {
    let text = format!(
        "define i32 @hum_main() {{\n  %r = call i64 @f(i64 1, i64 2, i1 0)\n  ret i32 0\n}}\n\
         define i64 @f(i64 %x, i64 %y, i1 %which) {{\n  \
         %a = trunc i64 %x to i{bits}\n  %b = trunc i64 %y to i{bits}\n  \
         %r = call {{ i{bits}, i1 }} @llvm.{name}.with.overflow.i{bits}(i{bits} %a, i{bits} %b)\n  \
         %value = extractvalue {{ i{bits}, i1 }} %r, 0\n  \
         %out = extractvalue {{ i{bits}, i1 }} %r, 1\n  \
         %wide = zext i{bits} %value to i64\n  %flag = zext i1 %out to i64\n  \
         %one = select i1 %which, i64 %wide, i64 %flag\n  ret i64 %one\n}}\n"
    );
    let text = if bits == 64 {
        let text = text.replace("trunc i64 %x to i64", "add i64 %x, 0");
        let text = text.replace("trunc i64 %y to i64", "add i64 %y, 0");
        text.replace("zext i64 %value to i64", "add i64 %value, 0")
    } else {
        text
    };
    let (module, memories) = instructions(&text, 0).unwrap();
    let mut machine = Machine::new(&module, &memories);
    let signed = name.starts_with('s');
    for a in operands(bits) {
        for b in operands(bits) {
            let (x, y) = (number(a, bits, signed), number(b, bits, signed));
            // The product of two words without a sign has more bits than the type.
            let exact = match &name[1..] {
                "add" => Some(x + y),
                "sub" => Some(x - y),
                _ => x.checked_mul(y),
            };
            let low = match &name[1..] {
                "add" => a.wrapping_add(b),
                "sub" => a.wrapping_sub(b),
                _ => a.wrapping_mul(b),
            };
            let low = low & (u64::MAX >> (64 - bits));
            let overflow = exact != Some(number(low, bits, signed));
            for (which, expected) in [(1, low), (0, u64::from(overflow))] {
                let found = machine.call(FunctionId(1), &[a, b, which]).unwrap();
                assert_eq!(found, expected, "{name} of {bits} bits: {a:#x}, {b:#x}");
            }
        }
    }
}

#[test]
fn overflow_is_that_of_exact_arithmetic() {
    for name in ["uadd", "sadd", "usub", "ssub", "umul", "smul"] {
        for bits in [8, 16, 24, 32, 33, 48, 64] {
            check(name, bits);
        }
    }
}
