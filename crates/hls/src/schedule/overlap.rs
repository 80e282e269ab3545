//! Accesses of different iterations of a loop: whether they may overlap.

use super::code::Code;
use crate::address::follow;
use crate::ir::{BinaryOp, BlockId, Cast, Op, Value, ValueId};
use std::collections::BTreeMap;

/// An address as a sum: base, constant offset, values with their scales, and growth per iteration,
/// all in bytes.
struct Sum {
    base: Value,
    constant: i64,
    indices: BTreeMap<ValueId, i64>,
    stride: Option<i64>,
}

/// After how many iterations the second access may overlap the first; `None`: never.
pub fn distance(
    code: &Code,
    own: BlockId,
    first: (Value, u64),
    second: (Value, u64),
) -> Option<u32> {
    let (a, b) = (sum(code, own, first.0), sum(code, own, second.0));
    let stride = match (a.stride, b.stride) {
        (Some(x), Some(y)) if x == y && a.base == b.base && a.indices == b.indices => x,
        _ => return Some(1),
    };
    (1..=64).find(|k| {
        let apart = b.constant - a.constant + stride * i64::from(*k);
        apart < first.1 as i64 && -apart < second.1 as i64
    })
}

fn sum(code: &Code, own: BlockId, value: Value) -> Sum {
    let mut total = Sum {
        base: value,
        constant: 0,
        indices: BTreeMap::new(),
        stride: Some(0),
    };
    let mut at = follow(
        value,
        |v| code.definition(v),
        |offset, indices| {
            total.constant += offset;
            for index in indices {
                let scale = index.scale;
                let (value, constant) = plain(code, index.value);
                total.constant += constant * scale;
                if let Value::Local(p) = value {
                    *total.indices.entry(p).or_insert(0) += scale;
                    let step = step(code, own, value);
                    total.stride = total.stride.zip(step).map(|(t, s)| t + s * scale);
                }
            }
        },
    );
    if let Value::Local(_) = at {
        total.stride = total.stride.zip(step(code, own, at)).map(|(t, s)| t + s);
    }
    if let Value::Global(g, o) = at {
        total.constant += o;
        at = Value::Global(g, 0);
    }
    total.base = at;
    total
}

/// Splits a value into another and a constant.
fn plain(code: &Code, value: Value) -> (Value, i64) {
    let Value::Local(v) = value else {
        return (value, 0);
    };
    match code.definition(v) {
        Some(Op::Binary(BinaryOp::Add, a, Value::Bits(n))) => {
            let (a, more) = plain(code, *a);
            (a, more + i64::from(*n as u32 as i32))
        }
        Some(Op::Copy(a)) => plain(code, *a),
        _ => (value, 0),
    }
}

/// Growth of a value per iteration, if constant.
fn step(code: &Code, own: BlockId, value: Value) -> Option<i64> {
    let Value::Local(v) = value else {
        return Some(0);
    };
    if let Some((_, from)) = code.phis.iter().find(|p| p.0 == v) {
        let next = from.iter().find(|f| f.0 == own)?.1;
        if let Value::Local(n) = next {
            if let Some(Op::Address {
                base,
                offset,
                indices,
            }) = code.definition(n)
            {
                return (*base == value && indices.is_empty()).then_some(*offset);
            }
        }
        let (base, constant) = plain(code, next);
        return (base == value).then_some(constant);
    }
    match code.definition(v) {
        None => Some(0),
        Some(Op::Cast(Cast::Bits | Cast::Sext, _, a) | Op::Copy(a)) => step(code, own, *a),
        Some(Op::Binary(BinaryOp::Add, a, Value::Bits(_))) => step(code, own, *a),
        _ => None,
    }
}
