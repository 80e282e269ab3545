//! The steps of the synthesis.

use crate::compile::Kernel;
use crate::emit::{self, Body, Interface};
use crate::error::{Error, Position, Result};
use crate::ir::{FunctionId, Module};
use crate::memory::{self, Memories};
use crate::passes::loops::{loops, Loop};
use crate::schedule::Code;
use crate::units::{unit, Registered, Unit};
use crate::{parse, passes, schedule};
use std::collections::BTreeMap;

/// Interval of a loop from which on its iterations are better executed by several work-items in turn.
const LONG: u32 = 3;

/// A loop that is a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// Of the loop; of its last instruction from the source if it is the compiler's loop over
    /// work-items: earlier ones may come from other parts of the kernel.
    pub position: Position,
    /// Clocks between iterations.
    pub interval: u32,
    /// The reason why the interval is not shorter.
    pub limit: &'static str,
    /// Whether its iterations are work-items.
    pub items: bool,
    /// Clocks that an iteration takes.
    pub steps: u32,
    /// By file and line of the source: the first and the last step of its instructions.
    pub stages: BTreeMap<(String, usize), (u32, u32)>,
}

/// A synthesized kernel.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// The module's text.
    pub text: String,
    /// States of the state machine.
    pub states: usize,
    /// Loops that are pipelines.
    pub pipelines: Vec<Pipeline>,
    /// Whether a loop that is not over work-items takes long: its iterations wait for each other.
    pub waits: bool,
    /// Instances of each kind of unit.
    pub units: BTreeMap<Unit, u32>,
    /// Bytes of the memories on the chip.
    pub memory_bytes: usize,
    /// Bytes of the memories off the chip.
    pub far_bytes: u64,
}

/// Synthesizes a kernel.
///
/// # Errors
///
/// An [`Error`] if the kernel cannot be synthesized; any other error if clang is missing or fails.
pub fn synthesize(kernel: &Kernel) -> anyhow::Result<Hardware> {
    let names = kernel.sources.iter().filter_map(|path| path.file_name());
    let sources: Vec<String> = names.map(|n| n.to_string_lossy().into_owned()).collect();
    Ok(from_ir(
        &kernel.ir()?,
        &kernel.name,
        &sources.join(", "),
        kernel.memory,
    )?)
}

/// A kernel's IR in the instructions that hardware has, and its memories.
pub fn instructions(text: &str, far: u64) -> Result<(Module, Memories)> {
    let mut module = parse::module(text)?;
    passes::run(&mut module, far > 0)?;
    let memories = memory::analyze(&mut module, far)?;
    Ok((module, memories))
}

/// Synthesizes IR; `far`: bytes of memory off the chip that the kernel has.
///
/// # Errors
///
/// The IR uses more than what can be synthesized.
pub fn from_ir(text: &str, name: &str, sources: &str, far: u64) -> Result<Hardware> {
    let (module, memories) = instructions(text, far)?;
    hardware(&module, &memories, name, sources, Interface::Messages)
}

/// Whether an innermost loop that is not over work-items has a long interval, or is not a pipeline.
fn waits(body: &Body<'_>) -> bool {
    let all = loops(body.function);
    let innermost = |own: &Loop| {
        let mut others = all.iter().filter(|other| other.header != own.header);
        others.all(|other| !own.blocks.contains(&other.header))
    };
    all.iter().filter(|own| innermost(own)).any(|own| {
        let codes = || own.blocks.iter().map(|block| &body.codes[block.0]);
        let intervals = || codes().filter_map(|code| code.schedule.interval);
        !codes().any(|code| code.independent) && intervals().all(|interval| interval >= LONG)
    })
}

/// The position of a loop. Instructions that the compiler makes have the function's.
fn loop_position(code: &Code, function: &Position) -> Position {
    let is_from_source = |at: &&Position| !at.is_unknown() && *at != function;
    let branch = Some(&code.branch).filter(|_| !code.independent);
    let branch = branch.filter(is_from_source);
    let mut body = code.code.iter().rev().map(|i| &i.position);
    let found = branch.or_else(|| body.find(is_from_source));
    found.unwrap_or(&code.position).clone()
}

/// The steps of a block by file and line of the source.
fn stages(code: &Code) -> BTreeMap<(String, usize), (u32, u32)> {
    let mut stages = BTreeMap::new();
    for (instruction, &(step, _)) in code.code.iter().zip(&code.schedule.steps) {
        let at = &instruction.position;
        if at.is_unknown() {
            continue;
        }
        let ready = instruction.result.and_then(|r| code.schedule.from.get(&r));
        let last = ready.copied().unwrap_or(step).max(step);
        let known = stages.entry((at.file.clone(), at.line));
        let (from, to) = known.or_insert((step, last));
        (*from, *to) = ((*from).min(step), (*to).max(last));
    }
    stages
}

/// Schedules and emits a module.
pub fn hardware(
    module: &Module,
    memories: &Memories,
    name: &str,
    sources: &str,
    interface: Interface,
) -> Result<Hardware> {
    let registered = Registered::new(&module.functions);
    let mut bodies = Vec::new();
    for (at, function) in module.functions.iter().enumerate() {
        let mut codes = schedule::blocks(function);
        let schedule =
            schedule::function(function, FunctionId(at), &mut codes, memories, &registered);
        schedule.ok_or_else(|| {
            Error::internal(format!("function '{}' has no schedule", function.name))
                .at(&function.position)
        })?;
        bodies.push(Body { function, codes });
    }
    let codes = || bodies.iter().flat_map(|b| &b.codes);
    let of_body = |body: &Body<'_>| {
        let pipelines = body.codes.iter().filter_map(|c| {
            c.schedule.interval.map(|interval| Pipeline {
                position: loop_position(c, &body.function.position),
                interval,
                limit: c.limit,
                items: c.independent,
                steps: c.schedule.length,
                stages: stages(c),
            })
        });
        pipelines.collect::<Vec<_>>()
    };
    let pipelines = bodies.iter().flat_map(of_body).collect();
    let waits = bodies.iter().any(waits);
    let mut units = BTreeMap::new();
    for body in &bodies {
        let all = body
            .codes
            .iter()
            .flat_map(|c| c.code.iter().zip(&c.schedule.steps));
        for (instruction, (_, instance)) in all {
            if let Some(kind) = unit(body.function, instruction) {
                let count = units.entry(kind).or_insert(0);
                *count = (instance + 1).max(*count);
            }
        }
    }
    Ok(Hardware {
        units,
        text: emit::module(name, sources, &bodies, (memories, module), interface),
        states: codes().map(|c| c.states() as usize).sum(),
        pipelines,
        waits,
        memory_bytes: memories.all.iter().map(|m| m.bytes.len()).sum(),
        far_bytes: memories.far_bytes,
    })
}
