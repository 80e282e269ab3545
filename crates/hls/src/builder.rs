//! Appends instructions to a function.

use crate::error::Position;
use crate::ir::{Function, Instruction, Op, Type, Value, ValueId};

/// Collects the instructions of a block, all with the current position.
pub struct Builder<'a> {
    pub function: &'a mut Function,
    pub code: Vec<Instruction>,
    pub position: Position,
}

impl<'a> Builder<'a> {
    pub fn new(function: &'a mut Function) -> Builder<'a> {
        let position = function.position.clone();
        Builder {
            function,
            code: Vec::new(),
            position,
        }
    }

    /// Appends an instruction with a new value as its result.
    pub fn value(&mut self, name: &str, ty: Type, op: Op) -> Value {
        let result = self.function.value(name, ty);
        self.define(result, op);
        Value::Local(result)
    }

    /// Appends an instruction with an existing value as its result.
    pub fn define(&mut self, result: ValueId, op: Op) {
        let instruction = Instruction::new(Some(result), op, &self.position);
        self.code.push(instruction);
    }

    /// Appends an instruction without a result.
    pub fn effect(&mut self, op: Op) {
        let instruction = Instruction::new(None, op, &self.position);
        self.code.push(instruction);
    }

    /// The address `offset` bytes after another; `name` for its value.
    pub fn address(&mut self, name: &str, base: Value, offset: u64) -> Value {
        match base {
            Value::Global(g, o) => Value::Global(g, o + offset as i64),
            base => self.value(name, Type::Ptr, Op::offset(base, offset)),
        }
    }
}
