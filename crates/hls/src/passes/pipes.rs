//! Pipes between kernels: what the library's functions (`crates/hls/opencl/baltra_pipes.h`) leave to
//! the synthesis.
//!
//! A kernel publishes the packets that it has written before it waits for the other side of a pipe,
//! and when it ends. The packets are in memory before the word that publishes them.

use super::kernel_arguments::{word, Binding, FIRST};
use crate::error::{Error, Result};
use crate::ir::{
    Callee, EngineCall, Function, FunctionId, Instruction, Module, Op, Type, Value, ValueId,
};

/// Publishes the packets of all pipes that the kernel writes.
const PUBLISH: &str = "__baltra_pipe_publish";
/// Names the bytes of a pipe's packets.
const PACKET: &str = "__baltra_pipe_packet";
/// Offsets in a pipe's header: the first position that is not complete, and not published.
const READY: u64 = 132;
const PUBLISHED: u64 = 136;
/// Bytes of the largest packet.
pub const PACKET_BYTES_MAX: u64 = 1024;

/// The pipes of a kernel, by its parameters' numbers.
#[derive(Clone, Debug, Default)]
pub struct Pipes {
    /// Those that it writes.
    pub written: Vec<usize>,
    /// By parameter: bytes of a packet of those that it uses.
    pub packets: Vec<(usize, u64)>,
}

/// Whether a function is one of the library's calls.
pub fn is_call(name: &str) -> bool {
    name == PUBLISH || name == PACKET
}

/// Whether a function is one of OpenCL's for pipes and sub-groups.
pub fn is_of_sub_group(name: &str) -> bool {
    name.starts_with("__sub_group_") && name.ends_with("_pipe")
}

/// Replaces the calls of a kernel, and notes the sizes of packets.
pub fn lower(
    module: &mut Module,
    reached: &[FunctionId],
    entry: FunctionId,
    pipes: &mut Pipes,
) -> Result<()> {
    for &at in reached.iter().filter(|at| **at != entry) {
        let uses = |i: &&Instruction| matches!(&i.op, Op::Call(Callee::Named(n), _) if is_call(n));
        if let Some(instruction) = module[at].instructions().find(uses) {
            let name = &module[at].name;
            return Err(Error::unsupported(format!(
                "function '{name}' is not inlined, but uses a pipe"
            ))
            .remedy("remove its attribute 'noinline'")
            .at(&instruction.position));
        }
    }
    let function = &mut module.functions[entry.0];
    for at in 0..function.blocks.len() {
        for instruction in std::mem::take(&mut function.blocks[at].code) {
            match &instruction.op {
                Op::Call(Callee::Named(name), _) if name == PUBLISH => {
                    let pointers = pipes.written.iter().map(|p| Value::Local(ValueId(*p)));
                    let fence = || Op::Call(Callee::Named(super::channels::FENCE.into()), vec![]);
                    let pointers = pointers.collect::<Vec<_>>();
                    let code = publish(function, &pointers, &fence, &instruction);
                    function.blocks[at].code.extend(code);
                }
                Op::Call(Callee::Named(name), arguments) if name == PACKET => {
                    note(pipes, arguments, function.parameters)
                        .map_err(|error| error.at(&instruction.position))?;
                }
                _ => function.blocks[at].code.push(instruction),
            }
        }
    }
    Ok(())
}

/// Notes the size of a pipe's packets.
fn note(pipes: &mut Pipes, arguments: &[(Type, Value)], parameters: usize) -> Result<()> {
    let (Some((_, Value::Local(pipe))), Some((_, Value::Bits(bytes)))) =
        (arguments.first(), arguments.get(1))
    else {
        return Err(Error::internal("a pipe is not an argument of its kernel"));
    };
    if pipe.0 >= parameters {
        return Err(Error::internal("a pipe is not an argument of its kernel"));
    }
    if *bytes > PACKET_BYTES_MAX {
        return Err(Error::too_large(format!(
            "a pipe has packets of {bytes} bytes, at most {PACKET_BYTES_MAX} are supported"
        )));
    }
    if !pipes.packets.contains(&(pipe.0, *bytes)) {
        pipes.packets.push((pipe.0, *bytes));
    }
    Ok(())
}

/// Publishes the packets before the kernel, which executes all work-items, ends.
pub fn publish_at_end(module: &mut Module, entry: FunctionId, pipes: &Pipes, binding: &Binding) {
    if pipes.written.is_empty() {
        return;
    }
    let function = &mut module.functions[entry.0];
    for at in 0..function.blocks.len() {
        let Some(end) = function.blocks[at].code.iter().position(is_end) else {
            continue;
        };
        let end_call = function.blocks[at].code[end].clone();
        let (mut code, mut pointers) = (Vec::new(), Vec::new());
        for pipe in &pipes.written {
            let words = binding.sizes[..*pipe].iter().map(|(_, words)| words);
            let pointer = function.value("pipe", Type::Ptr);
            let load = word(FIRST + words.sum::<u64>(), 0);
            code.push(Instruction::new(Some(pointer), load, &end_call.position));
            pointers.push(Value::Local(pointer));
        }
        let always = vec![(Type::Int(1), Value::Bits(1))];
        let fence = || Op::Call(Callee::Engine(EngineCall::Fence), always.clone());
        code.extend(publish(function, &pointers, &fence, &end_call));
        function.blocks[at].code.splice(end..end, code);
    }
}

/// Whether a call ends the kernel with success.
fn is_end(instruction: &Instruction) -> bool {
    match &instruction.op {
        Op::Call(Callee::Engine(EngineCall::End), arguments) => {
            matches!(arguments[..], [(_, Value::Bits(0))])
        }
        _ => false,
    }
}

/// Instructions that publish the packets of pipes at these addresses, at the position of `of`. The
/// second fence empties the cache, so that the other sides' progress is visible afterwards.
fn publish(
    function: &mut Function,
    pointers: &[Value],
    fence: &dyn Fn() -> Op,
    of: &Instruction,
) -> Vec<Instruction> {
    let mut code = Vec::new();
    let access = |result, op| Instruction {
        volatile: true,
        numeric: true,
        ..Instruction::new(result, op, &of.position)
    };
    let mut ready = Vec::new();
    for pointer in pointers {
        let place = function.value("ready_at", Type::Ptr);
        let value = function.value("ready", Type::Int(32));
        let offset = Op::offset(*pointer, READY);
        code.push(Instruction::new(Some(place), offset, &of.position));
        code.push(access(Some(value), Op::Load(Value::Local(place), 4, None)));
        ready.push(value);
    }
    code.push(Instruction::new(None, fence(), &of.position));
    for (pointer, value) in pointers.iter().zip(ready) {
        let place = function.value("published_at", Type::Ptr);
        let offset = Op::offset(*pointer, PUBLISHED);
        code.push(Instruction::new(Some(place), offset, &of.position));
        let store = Op::store(Value::Local(value), Value::Local(place), 4);
        code.push(access(None, store));
    }
    if !pointers.is_empty() {
        code.push(Instruction::new(None, fence(), &of.position));
    }
    code
}
