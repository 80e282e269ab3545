//! Splits structures and vectors in registers into a value for each member. A structure that a
//! function returns goes through a memory of its own.

use super::{overflow, vector};
use crate::error::{Error, Result};
use crate::ir::{
    Callee, Function, FunctionId, GlobalId, Instruction, Module, Op, Type, Value, ValueId,
};
use crate::object;
use std::collections::HashMap;

/// By function that returns a structure: the global that holds the result, and its type.
type Results = HashMap<FunctionId, (GlobalId, Type)>;

/// Splits the structures of the functions with these indices.
pub fn split(module: &mut Module, reached: &[FunctionId]) -> Result<()> {
    let mut results = Results::new();
    for &at in reached {
        let function = &mut module[at];
        if !function.result.is_aggregate() {
            continue;
        }
        let ty = std::mem::replace(&mut function.result, Type::Void);
        let name = format!("{}.result", function.name);
        let position = function.position.clone();
        let object = object::add(&mut module.globals, name, ty.size())
            .map_err(|error| error.at(&position))?;
        results.insert(at, (object, ty));
    }
    for &at in reached {
        let function = std::mem::replace(&mut module[at], Function::empty());
        module[at] = Splitter::new(at, function, &module.aggregates, &results).function()?;
    }
    Ok(())
}

struct Splitter<'a> {
    at: FunctionId,
    old: Function,
    new: Function,
    /// The new values of each old value.
    parts: Vec<Vec<ValueId>>,
    constants: &'a [(Type, Vec<Value>)],
    results: &'a Results,
}

impl<'a> Splitter<'a> {
    fn new(
        at: FunctionId,
        old: Function,
        constants: &'a [(Type, Vec<Value>)],
        results: &'a Results,
    ) -> Splitter<'a> {
        let mut new = Function::empty();
        new.name = old.name.clone();
        new.result = old.result.clone();
        new.position = old.position.clone();
        let mut parts = Vec::new();
        for (at, value) in old.values.iter().enumerate() {
            parts.push(if value.ty.is_aggregate() {
                (value.ty.members().into_iter().enumerate())
                    .map(|(i, (ty, _))| new.value(&format!("{}_{i}", value.name), ty))
                    .collect()
            } else {
                vec![new.value(&value.name, value.ty.clone())]
            });
            if at + 1 == old.parameters {
                new.parameters = new.values.len();
            }
        }
        Splitter {
            at,
            old,
            new,
            parts,
            constants,
            results,
        }
    }

    fn values(&self, value: Value) -> Vec<Value> {
        match value {
            Value::Local(v) => self.parts[v.0].iter().map(|p| Value::Local(*p)).collect(),
            Value::Aggregate(a) => self.constants[a.0].1.clone(),
            plain => vec![plain],
        }
    }

    /// An operand's type, if it is a structure.
    fn structure(&self, value: Value) -> Option<&Type> {
        let ty = match value {
            Value::Local(v) => &self.old[v].ty,
            Value::Aggregate(a) => &self.constants[a.0].0,
            _ => return None,
        };
        ty.is_aggregate().then_some(ty)
    }

    fn function(mut self) -> Result<Function> {
        for mut block in std::mem::take(&mut self.old.blocks) {
            let mut code = Vec::new();
            for instruction in std::mem::take(&mut block.code) {
                self.instruction(instruction, &mut code)?;
            }
            block.code = code;
            self.new.blocks.push(block);
        }
        Ok(self.new)
    }

    fn instruction(&mut self, instruction: Instruction, code: &mut Vec<Instruction>) -> Result<()> {
        let position = instruction.position.clone();
        let whole = instruction
            .result
            .filter(|r| self.old[*r].ty.is_aggregate());
        let add = |code: &mut Vec<Instruction>, result: Option<ValueId>, op: Op| {
            code.push(Instruction::new(result, op, &position));
        };
        match (instruction.op.clone(), whole) {
            (Op::Load(from, ..), Some(result))
                if vector::pieces(&self.old[result].ty).is_some() =>
            {
                let ty = self.old[result].ty.clone();
                let pieces = vector::pieces(&ty).unwrap_or(Type::Void);
                let mut words = Vec::new();
                for (member, offset) in pieces.members() {
                    let at = self.at(code, &instruction, from, offset);
                    let word = self.new.value("word", member.clone());
                    let load = Op::Load(at, member.size(), None);
                    code.push(same_access(&instruction, Some(word), load));
                    words.push(Value::Local(word));
                }
                let lanes = self.reshape(code, &instruction, &words, &pieces, &ty);
                for (part, value) in self.parts[result.0].clone().into_iter().zip(lanes) {
                    add(code, Some(part), Op::Copy(value));
                }
            }
            (
                Op::Store {
                    value,
                    address,
                    condition,
                    ..
                },
                _,
            ) if self.structure(value).and_then(vector::pieces).is_some() => {
                let ty = self.structure(value).cloned().unwrap_or(Type::Void);
                let pieces = vector::pieces(&ty).unwrap_or(Type::Void);
                let lanes = self.values(value);
                let words = self.reshape(code, &instruction, &lanes, &ty, &pieces);
                for (word, (member, offset)) in words.into_iter().zip(pieces.members()) {
                    let store = Op::Store {
                        value: word,
                        address: self.at(code, &instruction, address, offset),
                        size: member.size(),
                        condition,
                    };
                    code.push(same_access(&instruction, None, store));
                }
            }
            (Op::Load(from, ..), Some(result)) => {
                let (parts, ty) = (self.parts[result.0].clone(), self.old[result].ty.clone());
                for (part, (member, offset)) in parts.into_iter().zip(ty.members()) {
                    let at = self.at(code, &instruction, from, offset);
                    add(code, Some(part), Op::Load(at, member.size(), None));
                }
            }
            (
                Op::Store {
                    value,
                    address: to,
                    condition: when,
                    ..
                },
                _,
            ) if self.structure(value).is_some() => {
                let members = self.structure(value).map_or(Vec::new(), Type::members);
                for (part, (ty, offset)) in self.values(value).into_iter().zip(members) {
                    let at = self.at(code, &instruction, to, offset);
                    add(
                        code,
                        None,
                        Op::Store {
                            value: part,
                            address: at,
                            size: ty.size(),
                            condition: when,
                        },
                    );
                }
            }
            (Op::Insert(base, value, first), Some(result)) => {
                let mut all = self.values(base);
                for (slot, part) in all.iter_mut().skip(first).zip(self.values(value)) {
                    *slot = part;
                }
                for (part, value) in self.parts[result.0].clone().into_iter().zip(all) {
                    add(code, Some(part), Op::Copy(value));
                }
            }
            (Op::Extract(base, first), _) => {
                let parts = instruction.result.map(|r| self.parts[r.0].clone());
                let from = self.values(base).into_iter().skip(first);
                for (part, value) in parts.unwrap_or_default().into_iter().zip(from) {
                    add(code, Some(part), Op::Copy(value));
                }
            }
            (Op::Copy(a), Some(result)) => {
                for (part, a) in self.parts[result.0].clone().into_iter().zip(self.values(a)) {
                    add(code, Some(part), Op::Copy(a));
                }
            }
            (Op::Select(c, a, b), Some(result)) => {
                let both = self.values(a).into_iter().zip(self.values(b));
                let conditions = self.values(c);
                let parts = self.parts[result.0].clone();
                for (i, (part, (a, b))) in parts.into_iter().zip(both).enumerate() {
                    // A vector has a condition for each element.
                    let c = conditions.get(i).unwrap_or(&conditions[0]);
                    add(code, Some(part), Op::Select(*c, a, b));
                }
            }
            (Op::InsertAt(whole, part, index), Some(result)) => {
                let (part, index) = (self.plain(part), self.plain(index));
                let bits = self.new.bits_of(index, 32);
                let old = self.values(whole);
                for (i, slot) in self.parts[result.0].clone().into_iter().enumerate() {
                    let here = self.new.value("here", Type::Int(1));
                    add(code, Some(here), vector::is_index(index, bits, i));
                    let select = Op::Select(Value::Local(here), part, old[i]);
                    add(code, Some(slot), select);
                }
            }
            (Op::ExtractAt(whole, index), _) => {
                let index = self.plain(index);
                let bits = self.new.bits_of(index, 32);
                let Some(result) = instruction.result.map(|r| self.parts[r.0][0]) else {
                    return Ok(());
                };
                let ty = self.new[result].ty.clone();
                let mut found = Value::Undef;
                for (i, element) in self.values(whole).into_iter().enumerate() {
                    let here = self.new.value("here", Type::Int(1));
                    add(code, Some(here), vector::is_index(index, bits, i));
                    let next = self.new.value("element", ty.clone());
                    add(
                        code,
                        Some(next),
                        Op::Select(Value::Local(here), element, found),
                    );
                    found = Value::Local(next);
                }
                add(code, Some(result), Op::Copy(found));
            }
            (Op::Shuffle(a, b, indices), Some(result)) => {
                let all: Vec<Value> = self.values(a).into_iter().chain(self.values(b)).collect();
                let parts = self.parts[result.0].clone();
                for (i, part) in parts.into_iter().enumerate() {
                    let index = indices.get(i).copied().unwrap_or(Some(0));
                    let value = index.and_then(|at| all.get(at).copied());
                    add(code, Some(part), Op::Copy(value.unwrap_or(Value::Undef)));
                }
            }
            (Op::Reshape(value, from, to), _) => {
                let Some(result) = instruction.result else {
                    return Ok(());
                };
                let values = self.values(value);
                let parts = self.parts[result.0].clone();
                let lanes = self.reshape(code, &instruction, &values, &from, &to);
                for (part, value) in parts.into_iter().zip(lanes) {
                    add(code, Some(part), Op::Copy(value));
                }
            }
            (op, Some(result))
                if matches!(self.old[result].ty, Type::Vector(..)) && by_element(&op) =>
            {
                for (i, part) in self.parts[result.0].clone().into_iter().enumerate() {
                    let of = |v: Value| {
                        let values = self.values(v);
                        values
                            .get(i)
                            .or(values.first())
                            .copied()
                            .unwrap_or(Value::Undef)
                    };
                    if let Some(op) = vector::element(&op, &of) {
                        add(code, Some(part), op);
                    }
                }
            }
            (Op::Phi(from), Some(result)) => {
                for (i, part) in self.parts[result.0].clone().into_iter().enumerate() {
                    let of = |v: Value| self.values(v).get(i).copied().unwrap_or(Value::Undef);
                    let from = from.iter().map(|(b, v)| (*b, of(*v))).collect();
                    add(code, Some(part), Op::Phi(from));
                }
            }
            (Op::Call(callee, arguments), _) => self.call(&instruction, code, callee, arguments)?,
            (Op::Return(Some(value)), _) if self.results.contains_key(&self.at) => {
                let (global, ty) = self.results[&self.at].clone();
                for (part, (ty, offset)) in self.values(value).into_iter().zip(ty.members()) {
                    let to = Value::Global(global, offset as i64);
                    add(code, None, Op::store(part, to, ty.size()));
                }
                add(code, None, Op::Return(None));
            }
            (_, None) => {
                let mut same = instruction;
                same.result = same.result.and_then(|r| self.parts[r.0].first().copied());
                same.op.operands(&mut |v| *v = self.plain(*v));
                code.push(same);
            }
            (_, Some(_)) => {
                return Err(Error::unsupported("operation on a whole structure")
                    .remedy("use its members")
                    .at(&position))
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        instruction: &Instruction,
        code: &mut Vec<Instruction>,
        callee: Callee,
        arguments: Vec<(Type, Value)>,
    ) -> Result<()> {
        let mut plain = Vec::new();
        for (ty, value) in arguments {
            match self.structure(value) {
                Some(ty) => {
                    let types = ty.members().into_iter().map(|m| m.0);
                    plain.extend(types.zip(self.values(value)));
                }
                None => plain.push((ty, self.plain(value))),
            }
        }
        let returned = match &callee {
            Callee::Function(f) => self.results.get(f).cloned(),
            _ => None,
        };
        let call = Op::Call(callee, plain);
        let result = (instruction.result).map(|r| (r, self.old[r].ty.is_aggregate()));
        let Some((result, true)) = result else {
            let result = result.and_then(|r| self.parts[r.0 .0].first().copied());
            code.push(Instruction::new(result, call, &instruction.position));
            return Ok(());
        };
        if let Op::Call(Callee::Named(name), operands) = &call {
            if let Some(operation) = overflow::Operation::named(name) {
                let parts = self.parts[result.0].clone();
                let new = &mut self.new;
                let mut add = |result: Option<ValueId>, ty: Type, op: Op| {
                    let result = result.unwrap_or_else(|| new.value("checked", ty));
                    code.push(Instruction::new(Some(result), op, &instruction.position));
                    Value::Local(result)
                };
                operation.expand(operands, &parts, &mut add);
                return Ok(());
            }
        }
        let Some((global, ty)) = returned else {
            return Err(
                Error::unsupported("call of an intrinsic that returns a structure")
                    .remedy("use operators instead of a builtin function")
                    .at(&instruction.position),
            );
        };
        code.push(Instruction::new(None, call, &instruction.position));
        for (part, (ty, offset)) in self.parts[result.0].clone().into_iter().zip(ty.members()) {
            let from = Value::Global(global, offset as i64);
            let load = Op::Load(from, ty.size(), None);
            code.push(Instruction::new(Some(part), load, &instruction.position));
        }
        Ok(())
    }

    /// Appends the operations that divide the bits of values of one type into those of another.
    fn reshape(
        &mut self,
        code: &mut Vec<Instruction>,
        instruction: &Instruction,
        values: &[Value],
        from: &Type,
        to: &Type,
    ) -> Vec<Value> {
        let new = &mut self.new;
        vector::reshape(values, from, to, &mut |ty, op| {
            let result = new.value("bits", ty);
            code.push(Instruction::new(Some(result), op, &instruction.position));
            Value::Local(result)
        })
    }

    /// An operand that is not a structure.
    fn plain(&self, value: Value) -> Value {
        match value {
            Value::Local(v) => self.parts[v.0]
                .first()
                .map_or(Value::Undef, |p| Value::Local(*p)),
            other => other,
        }
    }

    fn at(
        &mut self,
        code: &mut Vec<Instruction>,
        instruction: &Instruction,
        base: Value,
        offset: u64,
    ) -> Value {
        let base = self.plain(base);
        match base {
            Value::Global(g, o) => Value::Global(g, o + offset as i64),
            base if offset == 0 => base,
            base => {
                let result = self.new.value("member", Type::Ptr);
                let op = Op::offset(base, offset);
                code.push(Instruction::new(Some(result), op, &instruction.position));
                Value::Local(result)
            }
        }
    }
}

/// A load or store that is part of another one.
fn same_access(whole: &Instruction, result: Option<ValueId>, op: Op) -> Instruction {
    let mut part = Instruction::new(result, op, &whole.position);
    (part.numeric, part.volatile) = (whole.numeric, whole.volatile);
    part
}

/// Whether an operation on vectors is done element by element: not a call of a function.
fn by_element(op: &Op) -> bool {
    match op {
        // An intrinsic, or a division of floats by the library.
        Op::Call(callee, _) => matches!(callee, Callee::Named(_) | Callee::Elementwise(_)),
        Op::Binary(..) | Op::Compare { .. } | Op::Cast(..) | Op::Fneg(_) | Op::Fabs(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn structures_become_a_value_for_each_member() {
        let text = "define { i32, ptr } @f(i32 %x, { i32, ptr } %s) {\n  \
                    %t = insertvalue { i32, ptr } %s, i32 %x, 0\n  ret { i32, ptr } %t\n}\n";
        let mut module = parse::module(text).unwrap();
        split(&mut module, &[FunctionId(0)]).unwrap();
        let function = &module.functions[0];
        assert_eq!((function.parameters, &function.result), (3, &Type::Void));
        // The result goes through a memory.
        assert_eq!(module.globals[0].name, "f.result");
        let stores = function.instructions().filter_map(|i| match i.op {
            Op::Store {
                address: to,
                size,
                condition: None,
                ..
            } => Some((to, size)),
            _ => None,
        });
        let result = |offset| Value::Global(GlobalId(0), offset);
        let stores: Vec<_> = stores.collect();
        assert_eq!(stores, [(result(0), 4), (result(8), 8)]);
    }

    #[test]
    fn vectors_are_loaded_and_stored_in_words() {
        for (ty, expected) in [
            ("<4 x i8>", vec![4]),
            ("<4 x float>", vec![8, 8]),
            ("<2 x double>", vec![8, 8]),
            ("<3 x i16>", vec![2, 2, 2]),
        ] {
            let text = format!(
                "define void @f(ptr %p) {{\n  %v = load {ty}, ptr %p\n  store {ty} %v, ptr %p\n  \
                 ret void\n}}\n"
            );
            let mut module = parse::module(&text).unwrap();
            split(&mut module, &[FunctionId(0)]).unwrap();
            let (mut loads, mut stores) = (Vec::new(), Vec::new());
            for instruction in module.functions[0].instructions() {
                match instruction.op {
                    Op::Load(_, size, _) => loads.push(size),
                    Op::Store { size, .. } => stores.push(size),
                    _ => {}
                }
            }
            assert_eq!((&loads, &stores), (&expected, &expected), "{ty}");
        }
    }
}
