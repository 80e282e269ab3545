//! Channels between kernels: makes one operation of the calls that transfer an element
//! (`crates/hls/opencl/baltra_channels.h`).
//!
//! A kernel has a port for each channel that it reads, and one for each that it writes. Accesses of
//! different kernels to a buffer have no order, unless one of them uses fences: after a fence
//! it sees what others have written before their last fence. The writer of a channel whose reader
//! uses fences has a fence before each element, because programs rely on that.

use crate::error::{Error, Result};
use crate::ir::{
    Callee, Channel, Channels, EngineCall, Function, FunctionId, Global, Instruction, Module, Op,
    Type, Value,
};
use std::collections::{HashMap, HashSet};

/// Begins the names of the calls.
const CALL: &str = "__baltra_channel_";
pub const FENCE: &str = "__baltra_fence";
/// Begins the section of a channel with a depth.
const SECTION: &str = "baltra_channel ";
/// Bytes of the largest element.
const BYTES_MAX: u64 = 1024;
/// Elements of the deepest channel.
const DEPTH_MAX: u64 = 1 << 20;
/// Channels that a kernel reads, and that it writes.
const PORTS_MAX: usize = 32;

/// Whether a function is one of these calls.
pub fn is_call(name: &str) -> bool {
    name == FENCE || name.starts_with(CALL)
}

/// The channels that kernels read which use fences.
pub fn ordered(module: &Module) -> HashSet<String> {
    let mut found = HashSet::new();
    for function in &module.functions {
        let calls = || function.instructions().filter_map(call);
        if calls().any(|(name, _)| name == FENCE) {
            let reads = calls().filter(|(name, _)| name.ends_with("read"));
            found.extend(reads.filter_map(|(_, arguments)| {
                let place = place(&module.globals, arguments).ok()?;
                Some(place.name)
            }));
        }
    }
    found
}

/// Replaces the calls of a kernel; `ordered`: channels that kernels read which use fences.
pub fn lower(
    module: &mut Module,
    reached: &[FunctionId],
    entry: FunctionId,
    ordered: &HashSet<String>,
) -> Result<()> {
    for &at in reached.iter().filter(|at| **at != entry) {
        let mut code = module[at].instructions();
        if let Some(instruction) = code.find(|i| call(i).is_some()) {
            return Err(Error::unsupported(format!(
                "function '{}' is not inlined, but uses a channel or a fence",
                module[at].name
            ))
            .remedy("remove its attribute 'noinline'")
            .at(&instruction.position));
        }
    }
    let mut function = std::mem::replace(&mut module[entry], Function::empty());
    let mut lowering = Lowering {
        globals: &module.globals,
        channels: Channels::default(),
        puts: HashMap::new(),
        last_read: None,
        ordered,
        stores: function
            .instructions()
            .any(|i| matches!(i.op, Op::Store { .. })),
    };
    for block in &mut function.blocks {
        let code = std::mem::take(&mut block.code);
        for instruction in code {
            let result = lowering.instruction(&instruction, &mut block.code);
            result.map_err(|error| error.at(&instruction.position))?;
        }
    }
    module.channels = lowering.channels;
    module[entry] = function;
    Ok(())
}

/// The name and the arguments of one of these calls.
fn call(instruction: &Instruction) -> Option<(&str, &[(Type, Value)])> {
    match &instruction.op {
        Op::Call(Callee::Named(name), arguments) if is_call(name) => Some((name, arguments)),
        _ => None,
    }
}

/// A channel in a call.
struct ChannelReference {
    name: String,
    bytes: u64,
    depth: u64,
}

/// The channel that a call's first argument is the address of; the second has its elements' bytes in
/// calls that transfer one.
fn place(globals: &[Global], arguments: &[(Type, Value)]) -> Result<ChannelReference> {
    let variable = || {
        Error::unsupported("the channel is selected by a variable or an argument")
            .remedy("select it by a constant, or in a loop with '#pragma unroll'")
    };
    let (Some((_, Value::Global(global, offset))), Some((_, Value::Bits(bytes)))) =
        (arguments.first(), arguments.get(1))
    else {
        return Err(variable());
    };
    let global = &globals[global.0];
    let Some(index) = u64::try_from(*offset).ok().map(|o| o / (*bytes).max(1)) else {
        return Err(variable());
    };
    if !global.external {
        return Err(
            Error::unsupported(format!("'{}' is not a channel", global.name))
                .remedy("declare it with 'channel'"),
        );
    }
    let depth = match global.section.strip_prefix(SECTION) {
        None => 0,
        Some(text) => number(text).ok_or_else(|| {
            Error::unsupported(format!(
                "channel '{}' has depth '{text}', which is not a number up to {DEPTH_MAX}",
                global.name
            ))
        })?,
    };
    let name = if global.is_array {
        format!("{}[{index}]", global.name)
    } else {
        global.name.clone()
    };
    Ok(ChannelReference {
        name,
        bytes: *bytes,
        depth,
    })
}

/// A number as in C, also in brackets.
fn number(text: &str) -> Option<u64> {
    let text = text.trim().trim_matches(['(', ')', ' ']);
    let text = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let value = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    (value <= DEPTH_MAX).then_some(value)
}

struct Lowering<'a> {
    globals: &'a [Global],
    channels: Channels,
    /// Words of elements that will be written, by the address of their channel.
    puts: HashMap<Value, Vec<(Type, Value)>>,
    /// The last channel that has been read, by its address, and its port.
    last_read: Option<(Value, u32)>,
    ordered: &'a HashSet<String>,
    /// Whether the kernel has stores.
    stores: bool,
}

impl Lowering<'_> {
    /// Appends what replaces an instruction.
    fn instruction(&mut self, instruction: &Instruction, out: &mut Vec<Instruction>) -> Result<()> {
        let Some((name, arguments)) = call(instruction) else {
            out.push(instruction.clone());
            return Ok(());
        };
        let always = (Type::Int(1), Value::Bits(1));
        let mut add = |result, call, arguments| {
            let op = Op::Call(Callee::Engine(call), arguments);
            out.push(Instruction::new(result, op, &instruction.position));
        };
        let (result, address) = (
            instruction.result,
            arguments.first().map_or(Value::Undef, |a| a.1),
        );
        match name.strip_prefix(CALL) {
            None => add(None, EngineCall::Fence, vec![always]),
            Some("put") => {
                let words = self.puts.entry(address).or_default();
                words.extend(arguments.last().cloned());
            }
            Some("get") => {
                let read = self.last_read.filter(|(of, _)| *of == address);
                let (_, port) = read.ok_or_else(|| {
                    Error::internal("a word of an element is used apart from its channel")
                })?;
                let word = arguments.iter().skip(1).take(1).cloned().collect();
                add(result, EngineCall::ChannelWord(port), word);
            }
            Some(what @ ("read" | "try_read")) => {
                let port = self.port(arguments, instruction, false)?;
                self.last_read = Some((address, port));
                match what {
                    "read" => add(None, EngineCall::ChannelRead(port), vec![always]),
                    _ => add(result, EngineCall::ChannelTryRead(port), vec![always]),
                }
            }
            Some(what) => {
                let port = self.port(arguments, instruction, true)?;
                let channel = &self.channels.written[port as usize];
                let words = self.puts.remove(&address).unwrap_or_default();
                if words.len() as u64 != channel.bytes.div_ceil(8) {
                    let text = "an element is written apart from its words";
                    return Err(Error::internal(text));
                }
                if self.stores && self.ordered.contains(&channel.name) {
                    add(None, EngineCall::Fence, vec![always.clone()]);
                }
                let all = [always].into_iter().chain(words).collect();
                match what {
                    "write" => add(None, EngineCall::ChannelWrite(port), all),
                    _ => add(result, EngineCall::ChannelTryWrite(port), all),
                }
            }
        }
        Ok(())
    }

    /// The port of a call's channel.
    fn port(
        &mut self,
        arguments: &[(Type, Value)],
        instruction: &Instruction,
        writes: bool,
    ) -> Result<u32> {
        let place = place(self.globals, arguments)?;
        let ports = if writes {
            &mut self.channels.written
        } else {
            &mut self.channels.read
        };
        if let Some(at) = ports.iter().position(|c| c.name == place.name) {
            return Ok(at as u32);
        }
        if place.bytes > BYTES_MAX {
            return Err(Error::too_large(format!(
                "channel '{}' has elements of {} bytes, at most {BYTES_MAX} are supported",
                place.name, place.bytes
            )));
        }
        if ports.len() == PORTS_MAX {
            let what = if writes { "writes" } else { "reads" };
            return Err(Error::too_large(format!(
                "the kernel {what} more than {PORTS_MAX} channels"
            )));
        }
        ports.push(Channel {
            name: place.name,
            bytes: place.bytes,
            depth: place.depth,
            position: instruction.position.clone(),
        });
        Ok(ports.len() as u32 - 1)
    }
}
