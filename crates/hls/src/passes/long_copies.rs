//! Replaces `memcpy` and `memset` of many bytes, or of a variable number, by loops.
//! `intrinsics` replaces the others by loads and stores.

use super::intrinsics::{ONES, STRAIGHT_BYTES_MAX};
use crate::builder::Builder;
use crate::ir::{
    masked, BinaryOp, Block, BlockId, Callee, Cast, Function, Instruction, IntPredicate, Op,
    Predicate, ScaledIndex, Type, Value,
};

/// Bits of a loop's counter.
const COUNTER: u32 = 32;

/// A call that becomes a loop.
struct Copy {
    /// Bytes of each access.
    size: u64,
    to: Value,
    /// Of `memset`: the byte; of `memcpy`: the source.
    from: Value,
    is_set: bool,
    /// Number of bytes, and its width.
    count: (Value, u32),
}

impl Copy {
    fn new(op: &Op) -> Option<Copy> {
        let Op::Call(Callee::Named(name), arguments) = op else {
            return None;
        };
        let is_set = name.starts_with("llvm.memset.");
        if !is_set && !name.starts_with("llvm.memcpy.") {
            return None;
        }
        let [(_, to), (_, from), (ty, count), ..] = arguments.as_slice() else {
            return None;
        };
        let size = match count {
            Value::Bits(n) if *n <= STRAIGHT_BYTES_MAX => return None,
            Value::Bits(n) => 1 << n.trailing_zeros().min(3),
            _ => 1,
        };
        Some(Copy {
            size,
            to: *to,
            from: *from,
            is_set,
            count: (*count, ty.bits().unwrap_or(64)),
        })
    }

    /// Adds the loop's blocks between two blocks; returns the code that precedes the loop.
    fn build(
        &self,
        builder: &mut Builder<'_>,
        before: BlockId,
        after: BlockId,
    ) -> (Vec<Instruction>, [Block; 2]) {
        let word = Type::Int(self.size as u32 * 8);
        let counter = Type::Int(COUNTER);
        // The loop's blocks follow each other.
        let head = BlockId(after.0 + 1);
        let body = BlockId(after.0 + 2);
        let count = Op::Cast(Cast::Bits, self.count.1, self.count.0);
        let count = builder.value("count", counter.clone(), count);
        let set = self.is_set.then(|| match self.from {
            Value::Bits(byte) => Value::Bits(masked(
                (byte & 0xff).wrapping_mul(ONES),
                self.size as u32 * 8,
            )),
            byte => {
                let byte = builder.value("byte", word.clone(), Op::Cast(Cast::Bits, 8, byte));
                let ones = Value::Bits(masked(ONES, self.size as u32 * 8));
                builder.value("bytes", word.clone(), Op::Binary(BinaryOp::Mul, byte, ones))
            }
        });
        builder.effect(Op::Jump(head));
        let entry = std::mem::take(&mut builder.code);
        let at = builder.function.value("at", counter.clone());
        let next = builder.function.value("next", counter.clone());
        let phi = Op::Phi(vec![(before, Value::Bits(0)), (body, Value::Local(next))]);
        builder.define(at, phi);
        let more = Op::Compare {
            predicate: Predicate::Int(IntPredicate::Less { signed: false }),
            bits: COUNTER,
            left: Value::Local(at),
            right: count,
        };
        let more = builder.value("more", Type::Int(1), more);
        builder.effect(Op::Branch(more, body, after));
        let test = std::mem::take(&mut builder.code);
        let place = |base: Value| Op::Address {
            base,
            offset: 0,
            indices: vec![ScaledIndex {
                value: Value::Local(at),
                bits: COUNTER,
                scale: 1,
            }],
        };
        let data = set.unwrap_or_else(|| {
            let from = builder.value("from", Type::Ptr, place(self.from));
            builder.value("moved", word, Op::Load(from, self.size, None))
        });
        let to = builder.value("to", Type::Ptr, place(self.to));
        builder.effect(Op::store(data, to, self.size));
        let size = Value::Bits(self.size);
        builder.define(next, Op::Binary(BinaryOp::Add, Value::Local(at), size));
        builder.effect(Op::Jump(head));
        let step = std::mem::take(&mut builder.code);
        (entry, [Block { code: test }, Block { code: step }])
    }
}

/// Replaces the calls of a function.
pub fn expand(function: &mut Function) {
    let mut at = 0;
    while at < function.blocks.len() {
        let code = &function.blocks[at].code;
        let found = (code.iter().enumerate()).find_map(|(i, c)| Some((i, Copy::new(&c.op)?)));
        let Some((index, copy)) = found else {
            at += 1;
            continue;
        };
        let (before, after) = (BlockId(at), BlockId(function.blocks.len()));
        let rest = function.blocks[at].code.split_off(index + 1);
        let call = function.blocks[at].code.pop();
        // The code behind the call is a block of its own, from which its successors are reached.
        for instruction in function.blocks.iter_mut().flat_map(|b| &mut b.code) {
            if let Op::Phi(sources) = &mut instruction.op {
                let moved = sources.iter_mut().filter(|s| s.0 == before);
                moved.for_each(|s| s.0 = after);
            }
        }
        function.blocks.push(Block { code: rest });
        let mut builder = Builder::new(function);
        if let Some(call) = call {
            builder.position = call.position;
        }
        let (entry, blocks) = copy.build(&mut builder, before, after);
        function.blocks[at].code.extend(entry);
        function.blocks.extend(blocks);
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::first_function;

    #[test]
    fn long_copies_become_loops() {
        for (call, size, blocks) in [
            ("memcpy.p0.p0.i64(ptr %a, ptr %b, i64 1000, i1 0)", 8, 6),
            ("memcpy.p0.p0.i64(ptr %a, ptr %b, i64 %n, i1 0)", 1, 6),
            ("memset.p0.i64(ptr %a, i8 7, i64 260, i1 0)", 4, 6),
            ("memset.p0.i64(ptr %a, i8 7, i64 256, i1 0)", 0, 3),
        ] {
            let text = format!(
                "define void @f(ptr %a, ptr %b, i64 %n) {{\nentry:\n  br label %x\nx:\n  \
                 call void @llvm.{call}\n  br label %y\ny:\n  \
                 %p = phi i32 [ 1, %x ]\n  ret void\n}}\n"
            );
            let mut function = first_function(&text);
            expand(&mut function);
            assert_eq!(function.blocks.len(), blocks, "{call}");
            let stored = function.instructions().find_map(|i| match i.op {
                Op::Store { size, .. } => Some(size),
                _ => None,
            });
            assert_eq!(stored.unwrap_or(0), size, "{call}");
            let from = function.instructions().find_map(|i| match &i.op {
                Op::Phi(sources) if sources.len() == 1 => Some(sources[0].0),
                _ => None,
            });
            let expected = if size == 0 { BlockId(1) } else { BlockId(3) };
            assert_eq!(from, Some(expected), "{call}");
        }
    }
}
