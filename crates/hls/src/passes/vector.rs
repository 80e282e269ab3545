//! Operations on vectors, element by element: the part of `aggregate` for vectors.

use crate::ir::{BinaryOp, Callee, Cast, IntPredicate, Op, Predicate, Type, Value};

/// The operation on one element of an operation on vectors; `None` if it is not done by element.
/// `of` selects an operand's element.
pub fn element(op: &Op, of: &dyn Fn(Value) -> Value) -> Option<Op> {
    Some(match op {
        Op::Binary(op, a, b) => Op::Binary(*op, of(*a), of(*b)),
        Op::Compare {
            predicate,
            bits,
            left,
            right,
        } => Op::Compare {
            predicate: *predicate,
            bits: *bits,
            left: of(*left),
            right: of(*right),
        },
        Op::Cast(cast, bits, a) => Op::Cast(*cast, *bits, of(*a)),
        Op::Fneg(a) => Op::Fneg(of(*a)),
        Op::Fabs(a) => Op::Fabs(of(*a)),
        Op::Call(callee, arguments) => {
            let arguments = arguments.iter();
            let arguments = arguments.map(|(ty, v)| (ty.element().clone(), of(*v)));
            let callee = match callee {
                Callee::Elementwise(function) => Callee::Function(*function),
                other => other.clone(),
            };
            Op::Call(callee, arguments.collect())
        }
        _ => return None,
    })
}

/// The words of up to 64 bits in which a vector is loaded and stored; `None` if it is accessed by
/// element.
pub fn pieces(ty: &Type) -> Option<Type> {
    let Type::Vector(n, element) = ty else {
        return None;
    };
    let size = ty.size();
    // A vector of three elements is not accessed as a whole.
    let whole = n.is_power_of_two() && element.bits().is_some_and(|bits| bits % 8 == 0);
    if !whole || size <= element.size() || element.size() >= 8 {
        return None;
    }
    let bytes = size.min(8);
    let word = Type::Int(bytes as u32 * 8);
    Some(Type::Vector(size / bytes, Box::new(word)))
}

/// Whether an index has this value.
pub fn is_index(index: Value, bits: u32, number: usize) -> Op {
    Op::Compare {
        predicate: Predicate::Int(IntPredicate::Equal),
        bits,
        left: index,
        right: Value::Bits(number as u64),
    }
}

/// Divides the bits of values of one width into values of another: `add` appends an operation and
/// returns its result.
pub fn reshape(
    values: &[Value],
    from: &Type,
    to: &Type,
    add: &mut dyn FnMut(Type, Op) -> Value,
) -> Vec<Value> {
    let width = |ty: &Type| ty.element().bits().unwrap_or(32);
    let (narrow, wide) = (width(from), width(to));
    let lanes = to.members().len();
    let mut out = Vec::new();
    for lane in 0..lanes as u32 {
        let low = lane * wide;
        if narrow >= wide {
            let value = values.get((low / narrow) as usize).copied();
            let value = value.unwrap_or(Value::Undef);
            let by = Value::Bits(u64::from(low % narrow));
            let ty = Type::Int(narrow);
            let bits = add(ty.clone(), Op::Cast(Cast::Bits, narrow, value));
            let down = add(ty, Op::Binary(BinaryOp::Lshr, bits, by));
            out.push(add(
                to.element().clone(),
                Op::Cast(Cast::Bits, narrow, down),
            ));
            continue;
        }
        let mut sum = Value::Bits(0);
        for piece in 0..wide / narrow {
            let value = values.get((low / narrow + piece) as usize).copied();
            let value = value.unwrap_or(Value::Undef);
            let ty = Type::Int(narrow);
            let bits = add(ty, Op::Cast(Cast::Bits, narrow, value));
            let ty = Type::Int(wide);
            let bits = add(ty.clone(), Op::Cast(Cast::Bits, narrow, bits));
            let by = Value::Bits(u64::from(piece * narrow));
            let up = add(ty.clone(), Op::Binary(BinaryOp::Shl, bits, by));
            sum = add(ty, Op::Binary(BinaryOp::Or, sum, up));
        }
        out.push(add(to.element().clone(), Op::Cast(Cast::Bits, wide, sum)));
    }
    out
}
