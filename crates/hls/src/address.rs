//! Chains of address computations.

use crate::ir::{Op, ScaledIndex, Value, ValueId};

/// Longest chain that is followed.
const LENGTH_MAX: u32 = 24;

/// Follows an address through copies and address computations to its base; `part` gets the offset
/// and the indices of each. `definition`: the instruction that defines a value.
pub fn follow<'a>(
    address: Value,
    definition: impl Fn(ValueId) -> Option<&'a Op>,
    mut part: impl FnMut(i64, &[ScaledIndex]),
) -> Value {
    let mut at = address;
    for _ in 0..LENGTH_MAX {
        let Value::Local(v) = at else {
            break;
        };
        match definition(v) {
            Some(Op::Copy(a)) => at = *a,
            Some(Op::Address {
                base,
                offset,
                indices,
            }) => {
                part(*offset, indices);
                at = *base;
            }
            _ => break,
        }
    }
    at
}
