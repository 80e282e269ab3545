//! High-level synthesis for kernels of the message door: C, by way of LLVM's intermediate representation, to a state machine
//! with its datapath in SystemVerilog.
//!
//! [`synthesise`] is all of it: [`compile`] has clang make IR of a kernel and of the library for boards (`humboldt/fabric`),
//! whole and optimised; [`parse`](mod@parse) reads it; [`lower`] makes what has no form in hardware out of what has, and
//! refuses the rest with the source's line; [`memory`] finds which memory each pointer points into; [`schedule`] says when
//! each instruction is carried out; [`emit`] writes the module, whose units are in `hdl/hls/rtl`.
#![forbid(unsafe_code)]

mod aggregate;
mod compile;
mod emit;
mod flatten;
mod ir;
mod lower;
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

/// What became of a kernel.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// The module's text.
    pub text: String,
    /// States of its machine.
    pub states: usize,
    /// Loops that are pipelines: their line, clocks between iterations.
    pub pipelines: Vec<(Place, u32)>,
    /// Bytes of its memories on the chip.
    pub memory_bytes: usize,
    /// And of those off it.
    pub far_bytes: u64,
}

/// What hardware has of a kernel's IR, and where its addresses point.
fn instructions(text: &str, far: u64) -> Result<(ir::Module, memory::Memories), Refusal> {
    let mut module = parse::module(text)?;
    lower::module(&mut module, far > 0)?;
    let memories = memory::analyse(&mut module, far)?;
    Ok((module, memories))
}

/// A kernel's module from IR; `far`: bytes of memory off the chip that it has.
///
/// # Errors
///
/// What has no form in hardware.
pub fn from_ir(text: &str, name: &str, sources: &str, far: u64) -> Result<Hardware, Refusal> {
    let (module, memories) = instructions(text, far)?;
    let functions: HashSet<String> = module.functions.iter().map(|f| f.name.clone()).collect();
    let mut bodies = Vec::new();
    for (at, function) in module.functions.iter().enumerate() {
        let mut codes = schedule::blocks(function, &functions);
        schedule::function(function, at, &mut codes, &memories).ok_or_else(|| {
            Refusal::new(
                &function.place,
                format!("{}: no schedule was found", function.name),
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
