//! Binds the parameters of an OpenCL kernel to the words of its argument block.
//!
//! A number is in the words of its position. A pointer to global or constant memory is a virtual
//! address in one word. A pointer to local memory becomes the address of an object on the chip,
//! whose size is in the word. A structure is an object on the chip, with the words as contents; one
//! that the kernel changes is a variable of each work-item.

use crate::error::{Error, Result};
use crate::ir::{
    space, Callee, EngineCall, FunctionId, Global, GlobalId, Instruction, Module, Op, Type, Value,
    ValueId,
};
use crate::memory::largest;

/// The word of the first argument.
pub const FIRST: u64 = 10;
/// Bytes of all arguments, each of which is in words of its own.
const BYTES_MAX: u64 = 1024;
/// Arguments that are pointers to buffers: a pointer has four bits for the buffer.
const POINTERS_MAX: usize = 15;

/// The values that the arguments need before the first work-item.
#[derive(Debug, Default)]
pub struct Binding {
    /// Number of instructions at the entry's begin that copy structures from the words to their
    /// objects.
    pub copies: usize,
    /// By parameter: bytes of its value, words in the argument block.
    pub sizes: Vec<(u64, u64)>,
    /// Arguments that are local memory: the word with the size, the largest size in bytes.
    pub local: Vec<(u64, u64)>,
}

/// The call that reads bits of a word, from this one on.
pub fn word(word: u64, low: u64) -> Op {
    let number = |n: u64| (Type::Int(32), Value::Bits(n));
    let arguments = vec![number(word), number(low)];
    Op::Call(Callee::Engine(EngineCall::Word), arguments)
}

/// The number of words of a parameter of this type.
pub fn words(ty: &Type) -> u64 {
    ty.size().div_ceil(8).max(1)
}

/// Checks the arguments' sizes before anything is made of them.
fn check(parameters: &[Parameter]) -> Result<()> {
    let bytes = parameters.iter().map(|p| p.bytes);
    let bytes = bytes.fold(0, u64::saturating_add);
    if bytes > BYTES_MAX {
        let sizes = parameters.iter().map(|p| (p.name.as_str(), p.bytes));
        return Err(Error::too_large(format!(
            "the arguments have {bytes} bytes, at most {BYTES_MAX} are supported: {}",
            largest(sizes.collect(), "bytes")
        ))
        .remedy("pass large structures through a buffer"));
    }
    let pointers = parameters.iter().filter(|p| p.is_buffer).count();
    if pointers > POINTERS_MAX {
        return Err(Error::too_large(format!(
            "{pointers} arguments are pointers to buffers, at most {POINTERS_MAX} are supported"
        ))
        .remedy("put several arrays into one buffer"));
    }
    Ok(())
}

/// A parameter's name, size, and whether it is a pointer to a buffer.
struct Parameter {
    name: String,
    bytes: u64,
    is_buffer: bool,
}

/// Replaces the parameters of the entry. `local_bytes`: the size of each argument in local memory.
pub fn bind(module: &mut Module, entry: FunctionId, local_bytes: u64) -> Result<Binding> {
    let mut binding = Binding::default();
    let (mut copies, mut code) = (Vec::new(), Vec::new());
    let mut at = FIRST;
    let function = &mut module.functions[entry.0];
    let position = function.position.clone();
    let (parameters, passing) = (function.parameters, function.passing.clone());
    let described = (0..parameters).map(ValueId).zip(&passing);
    let described = described.map(|(parameter, passing)| {
        let value = &function[parameter];
        Parameter {
            name: value.name.clone(),
            bytes: passing.by_value.as_ref().unwrap_or(&value.ty).size(),
            is_buffer: passing.by_value.is_none()
                && value.ty == Type::Ptr
                && passing.space != space::LOCAL,
        }
    });
    check(&described.collect::<Vec<_>>()).map_err(|error| error.at(&position))?;
    for (parameter, passing) in (0..parameters).map(ValueId).zip(passing) {
        let (name, ty) = (function[parameter].name.clone(), &function[parameter].ty);
        let ty = ty.clone();
        let mut define = |result: ValueId, op: Op| {
            code.push(Instruction::new(Some(result), op, &position));
        };
        let object = |globals: &mut Vec<Global>, bytes: u64| {
            globals.push(Global::zeroed(name.clone(), bytes as usize));
            GlobalId(globals.len() - 1)
        };
        if let Some(structure) = &passing.by_value {
            let count = words(structure);
            // A structure that the kernel changes is a variable of each work-item.
            let fixed = passing.read_only;
            let global = fixed.then(|| object(&mut module.globals, count * 8));
            define(
                parameter,
                match global {
                    Some(global) => Op::Copy(Value::Global(global, 0)),
                    None => Op::Local(count * 8),
                },
            );
            for i in 0..count {
                let part = function.value(&name, Type::Int(64));
                let load = Instruction::new(Some(part), word(at + i, 0), &position);
                let store = |to: Value| {
                    let store = Op::store(Value::Local(part), to, 8);
                    let mut store = Instruction::new(None, store, &position);
                    store.numeric = true;
                    store
                };
                if let Some(global) = global {
                    let store = store(Value::Global(global, i as i64 * 8));
                    copies.extend([load, store]);
                    continue;
                }
                let to = function.value(&name, Type::Ptr);
                let place = Op::offset(Value::Local(parameter), i * 8);
                let place = Instruction::new(Some(to), place, &position);
                code.extend([load, place, store(Value::Local(to))]);
            }
            binding.sizes.push((structure.size(), count));
            at += count;
        } else if ty == Type::Ptr && passing.space == space::LOCAL {
            let global = object(&mut module.globals, local_bytes);
            module.globals[global.0].local = true;
            define(parameter, Op::Copy(Value::Global(global, 0)));
            binding.local.push((at, local_bytes));
            binding.sizes.push((8, 1));
            at += 1;
        } else if let Type::Vector(_, element) = &ty {
            let mut whole = Value::Undef;
            let members = ty.members();
            for (i, (_, offset)) in members.iter().enumerate() {
                let part = function.value(&name, (**element).clone());
                define(part, word(at + offset / 8, offset % 8 * 8));
                let next = if i + 1 == members.len() {
                    parameter
                } else {
                    function.value(&name, ty.clone())
                };
                // The first insertion replaces nothing.
                let base = match whole {
                    Value::Undef => {
                        let undefined = members.iter().map(|_| Value::Undef).collect();
                        module.aggregates.push((ty.clone(), undefined));
                        Value::Aggregate(crate::ir::AggregateId(module.aggregates.len() - 1))
                    }
                    other => other,
                };
                define(next, Op::Insert(base, Value::Local(part), i));
                whole = Value::Local(next);
            }
            binding.sizes.push((ty.size(), words(&ty)));
            at += words(&ty);
        } else if ty.bits().is_some() {
            binding.sizes.push((ty.size(), 1));
            define(parameter, word(at, 0));
            at += 1;
        } else {
            return Err(Error::unsupported(format!(
                "argument '{name}' has a type that cannot be synthesized"
            ))
            .at(&position));
        }
    }
    function.parameters = 0;
    binding.copies = copies.len();
    copies.append(&mut code);
    if let Some(first) = function.blocks.first_mut() {
        first.code.splice(0..0, copies);
    }
    Ok(binding)
}
