//! Instructions of the IR, made one after the other.

use crate::ir::{Function, Instruction, Op, Place, Type, Value};

/// Appends instructions to a block.
pub struct Maker<'a> {
    pub function: &'a mut Function,
    pub code: Vec<Instruction>,
    pub place: Place,
}

impl Maker<'_> {
    pub fn value(&mut self, name: &str, ty: Type, op: Op) -> Value {
        let result = self.function.value(name, ty);
        self.give(result, op);
        Value::Local(result)
    }

    pub fn give(&mut self, result: usize, op: Op) {
        let instruction = Instruction::new(Some(result), op, &self.place);
        self.code.push(instruction);
    }

    pub fn act(&mut self, op: Op) {
        let instruction = Instruction::new(None, op, &self.place);
        self.code.push(instruction);
    }

    pub fn at(&mut self, base: Value, offset: u64) -> Value {
        match base {
            Value::Global(g, o) => Value::Global(g, o + offset as i64),
            base if offset == 0 => base,
            base => self.value(
                "at",
                Type::Ptr,
                Op::Address(base, offset as i64, Vec::new()),
            ),
        }
    }
}
