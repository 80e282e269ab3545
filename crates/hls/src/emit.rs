//! Emits a scheduled kernel as SystemVerilog: a state machine with its datapath, memories and
//! units.
//!
//! A value is a wire in the step in which it is ready. If a later step or block reads it, it also
//! has a register with its name, and the wire is NAME_d. In a pipeline, registers NAME_pN, or memory
//! where the steps are many, carry it to step N. All registers hold while `step` is low: a call of the message engines or a division
//! waits.

mod access;
mod block;
mod channels;
mod emitter;
mod instruction;
mod memories;
mod module;
mod readers;
mod selection;
mod units;

use crate::ir;
use crate::memory::Memories;
pub use emitter::Body;
use emitter::{Emitter, Marks};
pub use module::Interface;
pub use readers::lines as reader_lines;

/// Emits the kernel's module; `sources` are listed in its first line.
pub fn module(
    name: &str,
    sources: &str,
    bodies: &[Body<'_>],
    (memories, module): (&Memories, &ir::Module),
    interface: Interface,
) -> String {
    // Emitting finds the values that need registers: emits until their set does not change.
    let mut marks = Marks::default();
    loop {
        let mut emitter = Emitter::new(bodies, memories, module, marks.clone());
        emitter.bodies();
        if emitter.marks == marks {
            return emitter.module(name, sources, interface).to_string();
        }
        marks = emitter.marks;
    }
}
