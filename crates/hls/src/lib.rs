//! High-level synthesis for kernels of the message door: C, compiled to LLVM's intermediate
//! representation, becomes a state machine with its datapath in SystemVerilog.
//!
//! [`synthesize`] runs all steps: [`compile`] runs clang on a kernel and the library for boards
//! (`humboldt/fabric`), as one optimized module; [`parse`] reads its IR; [`passes`] replace
//! instructions that hardware lacks, and reject the rest with the source line; [`memory`] assigns
//! each pointer a memory; [`schedule`] assigns each instruction a step; [`emit`] builds the module,
//! whose arithmetic units are in `hdl/hls/rtl`.
#![forbid(unsafe_code)]

mod address;
mod builder;
mod compile;
mod emit;
mod error;
mod ir;
mod memory;
mod names;
mod object;
pub mod opencl;
mod parse;
mod passes;
mod program;
mod schedule;
mod synthesis;
#[cfg(test)]
mod tests;
mod units;
mod verilog;

pub use compile::{Kernel, CHAR};
pub use error::{Error, ErrorKind, Position};
pub use synthesis::{from_ir, synthesize, Hardware, Pipeline};
