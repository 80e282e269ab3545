//! High-level synthesis for kernels of the message door: C, compiled to LLVM's intermediate
//! representation, becomes a state machine with its datapath in SystemVerilog.
//!
//! [`synthesise`] runs all steps: [`compile`] runs clang on a kernel and the library for boards
//! (`humboldt/fabric`), as one optimized module; [`parse`](mod@parse) reads its IR; [`lower`]
//! replaces instructions that hardware lacks, and rejects the rest with the source line; [`memory`]
//! assigns each pointer a memory; [`schedule`] assigns each instruction a step; [`emit`] writes the
//! module, whose arithmetic units are in `hdl/hls/rtl`.
#![forbid(unsafe_code)]

mod aggregate;
mod compile;
mod emit;
mod flatten;
mod ir;
mod lower;
mod maker;
mod memory;
mod names;
mod narrow;
mod parse;
mod print;
mod schedule;
#[cfg(test)]
mod tests;
mod units;

pub use compile::{synthesise, Kernel, CHAR};
pub use ir::{Place, Refusal};

use emit::Body;
use std::collections::HashSet;

/// A synthesized kernel.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// The module's text.
    pub text: String,
    /// States of the state machine.
    pub states: usize,
    /// Loops that are pipelines: position, clocks between iterations.
    pub pipelines: Vec<(Place, u32)>,
    /// Bytes of the memories on the chip.
    pub memory_bytes: usize,
    /// Bytes of the memories off the chip.
    pub far_bytes: u64,
}

/// A kernel's IR in the instructions that hardware has, and its memories.
fn instructions(text: &str, far: u64) -> Result<(ir::Module, memory::Memories), Refusal> {
    let mut module = parse::module(text)?;
    lower::module(&mut module, far > 0)?;
    let memories = memory::analyse(&mut module, far)?;
    Ok((module, memories))
}

/// Synthesizes IR; `far`: bytes of memory off the chip that the kernel has.
///
/// # Errors
///
/// The IR uses more than what can be synthesized.
pub fn from_ir(text: &str, name: &str, sources: &str, far: u64) -> Result<Hardware, Refusal> {
    let (module, memories) = instructions(text, far)?;
    let functions: HashSet<String> = module.functions.iter().map(|f| f.name.clone()).collect();
    let mut bodies = Vec::new();
    for (at, function) in module.functions.iter().enumerate() {
        let mut codes = schedule::blocks(function, &functions);
        schedule::function(function, at, &mut codes, &memories).ok_or_else(|| {
            Refusal::new(
                &function.place,
                format!(
                    "internal error: function '{}' has no schedule",
                    function.name
                ),
            )
        })?;
        bodies.push(Body { function, codes });
    }
    let codes = || bodies.iter().flat_map(|b| &b.codes);
    let states = codes()
        .map(|c| {
            if c.schedule.interval.is_some() {
                1
            } else {
                c.schedule.length as usize
            }
        })
        .sum();
    let pipelines = codes()
        .filter_map(|c| c.schedule.interval.map(|i| (c.place.clone(), i)))
        .collect();
    let memory_bytes = memories.all.iter().map(|m| m.bytes.len()).sum();
    let text = emit::module(name, sources, &bodies, &memories);
    Ok(Hardware {
        text,
        states,
        pipelines,
        memory_bytes,
        far_bytes: memories.far_bytes,
    })
}
