//! The blocks of a function as the schedule divides them: a block ends at a call of a function.

use crate::error::Position;
use crate::ir::{BlockId, Callee, Function, FunctionId, Instruction, Op, Value, ValueId};
use std::collections::HashMap;

/// A block without calls of functions, except at its end.
#[derive(Clone, Debug, Default)]
pub struct Code {
    pub phis: Vec<(ValueId, Vec<(BlockId, Value)>)>,
    pub code: Vec<Instruction>,
    pub end: End,
    pub position: Position,
    /// The position of the branch at its end: clang gives that of a loop the line of its `for` or
    /// `while`.
    pub branch: Position,
    pub schedule: Schedule,
    /// The reason why a pipeline's interval is not shorter.
    pub limit: &'static str,
    /// Whether the block is a loop whose iterations are different work-items.
    pub independent: bool,
}

/// The end of a block.
#[derive(Clone, Debug, Default)]
pub enum End {
    #[default]
    Never,
    Jump(BlockId),
    Branch(Value, BlockId, BlockId),
    Switch {
        value: Value,
        bits: u32,
        cases: Vec<(u64, BlockId)>,
        default: BlockId,
    },
    /// Function, arguments, index of the result, following block.
    Call(FunctionId, Vec<Value>, Option<ValueId>, BlockId),
    Return(Option<Value>),
}

#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// By instruction: its step, and the instance of its unit.
    pub steps: Vec<(u32, u32)>,
    /// By value: the first step in which it is ready.
    pub from: HashMap<ValueId, u32>,
    /// Number of steps.
    pub length: u32,
    /// Steps between iterations, in a pipeline.
    pub interval: Option<u32>,
    /// Whether iterations of the pipeline begin with reads of channels, in step `interval - 1`. An
    /// iteration that finds no element begins again in the place of the next one.
    pub repeats: bool,
    /// By phi of a pipeline: the renewal of its register.
    pub renewals: HashMap<ValueId, Renewal>,
}

impl Schedule {
    /// The step of the reads with which iterations begin: until its end an iteration may begin
    /// again.
    pub fn entry(&self) -> Option<u32> {
        let last = self.interval.map(|interval| interval - 1);
        last.filter(|_| self.repeats)
    }
}

/// The renewal of a phi's register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The value that is written.
    pub value: Value,
    /// The step of an iteration at whose end it is written.
    pub at: u32,
    /// The last step in which an iteration finds its own value of the phi in the register.
    pub until: u32,
}

impl Renewal {
    /// The first step in which an iteration finds its own value of the phi in the register.
    pub fn first(self, interval: u32) -> u32 {
        (self.until + 1).saturating_sub(interval)
    }
}

/// Splits blocks after calls of functions, and updates targets and the sources of phis.
pub fn blocks(function: &Function) -> Vec<Code> {
    let mut out: Vec<Code> = Vec::new();
    let mut last = Vec::new();
    let mut first = Vec::new();
    for block in &function.blocks {
        first.push(BlockId(out.len()));
        let mut code = Code::default();
        for instruction in &block.code {
            if code.position.is_unknown() {
                code.position = instruction.position.clone();
            }
            match &instruction.op {
                Op::Phi(from) => {
                    if let Some(result) = instruction.result {
                        code.phis.push((result, from.clone()));
                    }
                }
                Op::Call(Callee::Function(callee), arguments) => {
                    let arguments = arguments.iter().map(|a| a.1).collect();
                    let next = BlockId(out.len() + 1);
                    code.end = End::Call(*callee, arguments, instruction.result, next);
                    out.push(std::mem::take(&mut code));
                    code.position = instruction.position.clone();
                }
                Op::Jump(to) => code.end = End::Jump(*to),
                Op::Branch(c, a, b) => {
                    code.end = End::Branch(*c, *a, *b);
                    code.branch = instruction.position.clone();
                    code.independent = instruction.independent;
                }
                Op::Switch {
                    value: v,
                    bits,
                    cases,
                    default: to,
                } => {
                    code.end = End::Switch {
                        value: *v,
                        bits: *bits,
                        cases: cases.clone(),
                        default: *to,
                    }
                }
                Op::Return(v) => code.end = End::Return(*v),
                Op::Unreachable => code.end = End::Never,
                _ => code.code.push(instruction.clone()),
            }
        }
        last.push(BlockId(out.len()));
        out.push(code);
    }
    for code in &mut out {
        for (_, from) in &mut code.phis {
            from.iter_mut().for_each(|f| f.0 = last[f.0 .0]);
        }
        match &mut code.end {
            End::Jump(to) => *to = first[to.0],
            End::Branch(_, a, b) => (*a, *b) = (first[a.0], first[b.0]),
            End::Switch {
                cases, default: to, ..
            } => {
                cases.iter_mut().for_each(|c| c.1 = first[c.1 .0]);
                *to = first[to.0];
            }
            _ => {}
        }
    }
    out
}

impl Code {
    /// Number of states: a pipeline is one.
    pub fn states(&self) -> u32 {
        match self.schedule.interval {
            Some(_) => 1,
            None => self.schedule.length,
        }
    }

    /// The instruction of the block that defines a value.
    pub fn definition(&self, value: ValueId) -> Option<&Op> {
        let instruction = self.code.iter().find(|i| i.result == Some(value));
        instruction.map(|i| &i.op)
    }

    /// Whether the block, which has this index, is a loop.
    pub fn loops(&self, at: BlockId) -> bool {
        matches!(self.end, End::Branch(_, a, b) if (a == at) != (b == at))
    }
}
