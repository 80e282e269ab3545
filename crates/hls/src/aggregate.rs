//! Splits structures in registers, which functions take and return by value, into a value for each
//! member. A structure that a function returns goes through a memory of its own.

use crate::ir::{Function, Global, Instruction, Module, Op, Refusal, Type, Value};
use std::collections::HashMap;

/// By function that returns a structure: the global that holds the result, and its type.
type Results = HashMap<String, (usize, Type)>;

/// Splits the structures of the functions with these indices.
pub fn split(module: &mut Module, reached: &[usize]) -> Result<(), Refusal> {
    let mut results = Results::new();
    for &at in reached {
        let function = &mut module.functions[at];
        if !function.result.is_aggregate() {
            continue;
        }
        let ty = std::mem::replace(&mut function.result, Type::Void);
        let bytes = usize::try_from(ty.size()).unwrap_or(usize::MAX);
        results.insert(function.name.clone(), (module.globals.len(), ty));
        module.globals.push(Global {
            name: format!("{}.result", function.name),
            bytes: vec![0; bytes.min(1 << 16)],
            pointers: Vec::new(),
            constant: false,
            external: false,
        });
    }
    for &at in reached {
        let function = std::mem::replace(&mut module.functions[at], Function::empty());
        module.functions[at] = Splitter::new(function, &module.aggregates, &results).function()?;
    }
    Ok(())
}

struct Splitter<'a> {
    old: Function,
    new: Function,
    /// The new values of each old value.
    parts: Vec<Vec<usize>>,
    constants: &'a [(Type, Vec<Value>)],
    results: &'a Results,
}

impl<'a> Splitter<'a> {
    fn new(
        old: Function,
        constants: &'a [(Type, Vec<Value>)],
        results: &'a Results,
    ) -> Splitter<'a> {
        let mut new = Function {
            name: old.name.clone(),
            result: old.result.clone(),
            parameters: 0,
            values: Vec::new(),
            blocks: Vec::new(),
            place: old.place.clone(),
        };
        let mut parts = Vec::new();
        for (at, value) in old.values.iter().enumerate() {
            parts.push(match value.ty.is_aggregate() {
                false => vec![new.value(&value.name, value.ty.clone())],
                true => (value.ty.members().into_iter().enumerate())
                    .map(|(i, (ty, _))| new.value(&format!("{}_{i}", value.name), ty))
                    .collect(),
            });
            if at + 1 == old.parameters {
                new.parameters = new.values.len();
            }
        }
        Splitter {
            old,
            new,
            parts,
            constants,
            results,
        }
    }

    fn values(&self, value: Value) -> Vec<Value> {
        match value {
            Value::Local(v) => self.parts[v].iter().map(|p| Value::Local(*p)).collect(),
            Value::Aggregate(a) => self.constants[a].1.clone(),
            plain => vec![plain],
        }
    }

    /// An operand's type, if it is a structure.
    fn structure(&self, value: Value) -> Option<&Type> {
        let ty = match value {
            Value::Local(v) => &self.old.values[v].ty,
            Value::Aggregate(a) => &self.constants[a].0,
            _ => return None,
        };
        ty.is_aggregate().then_some(ty)
    }

    fn function(mut self) -> Result<Function, Refusal> {
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

    fn instruction(
        &mut self,
        instruction: Instruction,
        code: &mut Vec<Instruction>,
    ) -> Result<(), Refusal> {
        let place = instruction.place.clone();
        let whole = instruction
            .result
            .filter(|r| self.old.values[*r].ty.is_aggregate());
        let add = |code: &mut Vec<Instruction>, result: Option<usize>, op: Op| {
            code.push(Instruction::new(result, op, &place));
        };
        match (instruction.op.clone(), whole) {
            (Op::Load(from, _), Some(result)) => {
                let (parts, ty) = (
                    self.parts[result].clone(),
                    self.old.values[result].ty.clone(),
                );
                for (part, (member, offset)) in parts.into_iter().zip(ty.members()) {
                    let at = self.at(code, &instruction, from, offset);
                    add(code, Some(part), Op::Load(at, member.size()));
                }
            }
            (Op::Store(value, to, _, when), _) if self.structure(value).is_some() => {
                let members = self.structure(value).map_or(Vec::new(), Type::members);
                for (part, (ty, offset)) in self.values(value).into_iter().zip(members) {
                    let at = self.at(code, &instruction, to, offset);
                    add(code, None, Op::Store(part, at, ty.size(), when));
                }
            }
            (Op::Insert(base, value, first), Some(result)) => {
                let mut all = self.values(base);
                for (slot, part) in all.iter_mut().skip(first).zip(self.values(value)) {
                    *slot = part;
                }
                for (part, value) in self.parts[result].clone().into_iter().zip(all) {
                    add(code, Some(part), Op::Copy(value));
                }
            }
            (Op::Extract(base, first), _) => {
                let parts = instruction.result.map(|r| self.parts[r].clone());
                let from = self.values(base).into_iter().skip(first);
                for (part, value) in parts.unwrap_or_default().into_iter().zip(from) {
                    add(code, Some(part), Op::Copy(value));
                }
            }
            (Op::Copy(a), Some(result)) => {
                for (part, a) in self.parts[result].clone().into_iter().zip(self.values(a)) {
                    add(code, Some(part), Op::Copy(a));
                }
            }
            (Op::Select(c, a, b), Some(result)) => {
                let both = self.values(a).into_iter().zip(self.values(b));
                let c = self.plain(c);
                for (part, (a, b)) in self.parts[result].clone().into_iter().zip(both) {
                    add(code, Some(part), Op::Select(c, a, b));
                }
            }
            (Op::Phi(from), Some(result)) => {
                for (i, part) in self.parts[result].clone().into_iter().enumerate() {
                    let of = |v: Value| self.values(v).get(i).copied().unwrap_or(Value::Undef);
                    let from = from.iter().map(|(b, v)| (*b, of(*v))).collect();
                    add(code, Some(part), Op::Phi(from));
                }
            }
            (Op::Call(name, arguments), _) => self.call(&instruction, code, &name, arguments)?,
            (Op::Return(Some(value)), _) if self.results.contains_key(&self.old.name) => {
                let (global, ty) = self.results[&self.old.name].clone();
                for (part, (ty, offset)) in self.values(value).into_iter().zip(ty.members()) {
                    let to = Value::Global(global, offset as i64);
                    add(code, None, Op::Store(part, to, ty.size(), None));
                }
                add(code, None, Op::Return(None));
            }
            (_, None) => {
                let mut same = instruction;
                same.result = same.result.and_then(|r| self.parts[r].first().copied());
                same.op.operands(&mut |v| *v = self.plain(*v));
                code.push(same);
            }
            (_, Some(_)) => {
                return Err(Refusal::new(
                    &place,
                    "operation on a whole structure (use its members)",
                ))
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        instruction: &Instruction,
        code: &mut Vec<Instruction>,
        name: &str,
        arguments: Vec<(Type, Value)>,
    ) -> Result<(), Refusal> {
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
        let call = Op::Call(name.to_owned(), plain);
        let result = (instruction.result).map(|r| (r, self.old.values[r].ty.is_aggregate()));
        let Some((result, true)) = result else {
            let result = result.and_then(|r| self.parts[r.0].first().copied());
            code.push(Instruction::new(result, call, &instruction.place));
            return Ok(());
        };
        let Some((global, ty)) = self.results.get(name).cloned() else {
            let why = crate::lower::unknown_function(name);
            return Err(Refusal::new(&instruction.place, why));
        };
        code.push(Instruction::new(None, call, &instruction.place));
        for (part, (ty, offset)) in self.parts[result].clone().into_iter().zip(ty.members()) {
            let from = Value::Global(global, offset as i64);
            let load = Op::Load(from, ty.size());
            code.push(Instruction::new(Some(part), load, &instruction.place));
        }
        Ok(())
    }

    /// An operand that is not a structure.
    fn plain(&self, value: Value) -> Value {
        match value {
            Value::Local(v) => self.parts[v]
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
                let op = Op::Address(base, offset as i64, Vec::new());
                code.push(Instruction::new(Some(result), op, &instruction.place));
                Value::Local(result)
            }
        }
    }
}
