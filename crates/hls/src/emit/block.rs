//! Blocks: the statements of their states, and the transitions between them.

use super::emitter::{word, Emitter, Spot};
use crate::ir::{BlockId, FunctionId, Value, ValueId};
use crate::schedule::End;
use crate::verilog::{
    Connection, DataType, Declaration, Expression, Instance, Item, Line, Statement,
};
use std::ops::Range;

/// Blocks that a transition may pass without a state of their own.
const PASSED_MAX: u32 = 3;

/// LUTs of a delay in memory, in addition to one for each bit.
const DELAY_LUTS: u32 = 16;

/// Whether a value that a pipeline carries for some steps is in memory (`hls_delay`) in place of
/// registers: if that saves at least two registers for each LUT that it takes.
fn is_kept_in_memory(bits: u32, steps: u32) -> bool {
    bits * steps.saturating_sub(2) >= 2 * (bits + DELAY_LUTS)
}

/// The memory that makes signal `name` from `input`.
fn delay(name: &str, bits: u32, steps: u32, input: Expression) -> Instance {
    Instance {
        module: "hls_delay".to_owned(),
        parameters: vec![("W", bits), ("STEPS", steps)],
        name: format!("u_{name}"),
        connections: vec![
            Connection::Same("clk"),
            Connection::Port("enable", Expression::name("step")),
            Connection::Port("a", input),
            Connection::Port("y", Expression::name(name)),
        ],
    }
}

/// The statement of a change of state.
fn go_to(state: Expression) -> Statement {
    Statement::register(Expression::name("state"), state)
}

impl Emitter<'_> {
    /// Emits all functions.
    pub fn bodies(&mut self) {
        for (f, body) in self.bodies.iter().enumerate() {
            for items in [&mut self.declared, &mut self.wires] {
                items.push(Item::Section(body.function.name.clone()));
                items.push(Item::Blank);
            }
            for b in 0..body.codes.len() {
                self.block(FunctionId(f), BlockId(b));
            }
        }
    }

    fn block(&mut self, f: FunctionId, b: BlockId) {
        let code = self.code(f, b);
        let pipeline = code.schedule.interval;
        let mut acts: Vec<Vec<Statement>> = vec![Vec::new(); code.states() as usize];
        self.results(f, b, &mut acts[0]);
        for (index, instruction) in code.code.iter().enumerate() {
            let (step, instance) = code.schedule.steps[index];
            let spot = Spot {
                function: f,
                block: b,
                step,
                after: false,
            };
            if word(&instruction.op).is_some() {
                continue;
            }
            self.instruction(spot, index, instance);
            let Some(v) = instruction.result else {
                continue;
            };
            let from = code.schedule.from.get(&v).copied().unwrap_or(0);
            let wire = Expression::name(self.wire(f, v));
            if self.has_register(f, v) {
                let register = Expression::name(self.value_name(f, v));
                let write = Line::Register(register, wire.clone());
                match pipeline {
                    None => acts[from as usize].push(write.into()),
                    Some(_) => {
                        let active = self.valid(f, b).bit(from);
                        self.flows.push(write.guarded(active).into());
                    }
                }
            }
            if pipeline.is_some() {
                self.chain(f, v, from, wire);
            }
        }
        match pipeline {
            None => {
                let last = code.states() - 1;
                let spot = Spot {
                    function: f,
                    block: b,
                    step: last,
                    after: false,
                };
                for step in 0..last {
                    acts[step as usize].push(go_to(self.state(f, b, step + 1)));
                }
                let end = self.end(spot, b, &code.end, 0);
                acts[last as usize].extend(end);
            }
            Some(interval) => self.pipeline(f, b, interval, &mut acts[0]),
        }
        for (step, act) in acts.into_iter().enumerate() {
            self.steps.push((self.state(f, b, step as u32), act));
        }
    }

    /// Results of the calls that a block follows.
    fn results(&mut self, f: FunctionId, b: BlockId, act: &mut Vec<Statement>) {
        for other in &self.bodies[f.0].codes {
            let End::Call(callee, _, Some(v), next) = &other.end else {
                continue;
            };
            if *next != b {
                continue;
            }
            let wire = self.wire(f, *v);
            self.declare(self.bits(f, *v), wire.clone());
            let wire = Expression::name(wire);
            let result = Expression::name(format!("{}_result", self.function_name(*callee)));
            self.wires.push(Item::Assign(wire.clone(), result));
            if self.has_register(f, *v) {
                let register = Expression::name(self.value_name(f, *v));
                act.push(Statement::register(register, wire));
            }
        }
    }

    /// Carries a value along a pipeline to each step that reads it, in registers or memory.
    fn chain(&mut self, f: FunctionId, v: ValueId, from: u32, first: Expression) {
        let steps = self.marks.chains.get(&(f, v)).cloned().unwrap_or_default();
        let bits = self.bits(f, v);
        let (mut at, mut before) = (from, first);
        for to in steps {
            let in_memory = is_kept_in_memory(bits, to - at);
            let own = if in_memory { to..=to } else { at + 1..=to };
            for step in own {
                let name = format!("{}_p{step}", self.value_name(f, v));
                self.declare(bits, name.clone());
                let next = Expression::name(&name);
                if in_memory {
                    let delay = delay(&name, bits, to - at, before);
                    self.wires.push(Item::Instance(delay));
                } else {
                    let register = Statement::register(next.clone(), before);
                    self.flows.push(register);
                }
                before = next;
            }
            at = to;
        }
    }

    /// Whether a pipeline's step has an iteration that does not begin again.
    fn passes(&self, f: FunctionId, b: BlockId, step: u32) -> Expression {
        let active = self.valid(f, b).bit(step);
        if self.code(f, b).schedule.entry() == Some(step) {
            active.and(Expression::name("first_ready"))
        } else {
            active
        }
    }

    fn pipeline(&mut self, f: FunctionId, b: BlockId, interval: u32, act: &mut Vec<Statement>) {
        let code = self.code(f, b);
        let length = code.schedule.length;
        let valid = self.valid(f, b);
        let End::Branch(condition, yes, no) = code.end else {
            return;
        };
        let spot = |step| Spot {
            function: f,
            block: b,
            step,
            after: false,
        };
        for (phi, _) in &code.phis {
            let Some(renewal) = code.schedule.renewals.get(phi) else {
                continue;
            };
            let view = self.view(spot(renewal.at), renewal.value, self.bits(f, *phi));
            let register = self.register(f, *phi);
            let write = Line::Register(register.clone(), view);
            let active = self.passes(f, b, renewal.at);
            self.flows.push(write.guarded(active).into());
            self.chain(f, *phi, renewal.until, register);
        }
        let again = self.view(spot(interval - 1), condition, 1);
        let mut again = if yes == b { again } else { again.negated() };
        let entry = code.schedule.entry();
        if entry.is_some() {
            again = Expression::name("first_ready")
                .negated()
                .or(again)
                .grouped();
        }
        let next = valid.clone().bit(interval - 1).and(again);
        let mut declaration = Declaration::new(DataType::Vector(length), valid.to_string());
        declaration.comment = Some(format!(
            "an iteration every {interval} clocks; each takes {length}"
        ));
        self.declared.push(Item::Declaration(declaration));
        let bits = |steps: Range<u32>| match steps.len() {
            0 => None,
            1 => Some(valid.clone().bit(steps.start)),
            _ => Some(valid.clone().slice(steps.end - 1, steps.start)),
        };
        let mut parts = Vec::new();
        match entry.filter(|entry| entry + 1 < length) {
            Some(entry) => {
                self.later.extend(bits(entry + 1..length));
                parts.extend(bits(entry + 1..length - 1));
                parts.push(self.passes(f, b, entry));
                parts.extend(bits(0..entry));
            }
            None => parts.extend(bits(0..length - 1)),
        }
        parts.push(next);
        let shifted = match parts.len() {
            1 => parts.remove(0),
            _ => Expression::Concatenation(parts),
        };
        self.flows.push(Statement::register(valid.clone(), shifted));
        self.valids.push(valid.clone());
        let out = if yes == b { no } else { yes };
        let after = Spot {
            after: true,
            ..spot(0)
        };
        let exit = self.go(after, b, out, 0);
        act.push(Statement::when(valid.equals(Expression::Fill(false)), exit));
    }

    /// The statements of a block's end, read at a spot; `from`: that block.
    fn end(&mut self, spot: Spot, from: BlockId, end: &End, depth: u32) -> Vec<Statement> {
        match end {
            End::Never => Vec::new(),
            End::Jump(to) => self.go(spot, from, *to, depth),
            End::Branch(c, yes, no) => vec![Statement::If {
                condition: self.view(spot, *c, 1),
                then: self.go(spot, from, *yes, depth),
                otherwise: self.go(spot, from, *no, depth),
            }],
            End::Switch {
                value: v,
                bits,
                cases,
                default,
            } => {
                let subject = self.view(spot, *v, *bits);
                let mut arms = Vec::new();
                for (case, to) in cases {
                    let label = Expression::Literal(*case, *bits);
                    arms.push((label, self.go(spot, from, *to, depth)));
                }
                vec![Statement::Case {
                    subject,
                    arms,
                    default: self.go(spot, from, *default, depth),
                }]
            }
            End::Call(callee, arguments, _, next) => {
                self.call_function(spot, *callee, arguments, *next)
            }
            End::Return(value) => {
                let name = self.function_name(spot.function).to_owned();
                let mut out = Vec::new();
                let bits = self.function(spot.function).result.bits();
                if let (Some(value), Some(bits)) = (value, bits) {
                    let view = self.view(spot, *value, bits);
                    let result = Expression::name(format!("{name}_result"));
                    out.push(Statement::register(result, view));
                }
                out.push(go_to(Expression::name(format!("{name}_return"))));
                out
            }
        }
    }

    fn call_function(
        &mut self,
        spot: Spot,
        callee: FunctionId,
        arguments: &[Value],
        next: BlockId,
    ) -> Vec<Statement> {
        let mut out = Vec::new();
        let parameters = (0..self.function(callee).parameters).map(ValueId);
        for (parameter, argument) in parameters.zip(arguments) {
            let view = self.view(spot, *argument, self.bits(callee, parameter));
            // A parameter that is not used has no register.
            if self.has_register(callee, parameter) {
                let register = Expression::name(self.value_name(callee, parameter));
                out.push(Statement::register(register, view));
            }
        }
        let back = Expression::name(format!("{}_return", self.function_name(callee)));
        out.push(Statement::register(
            back,
            self.state(spot.function, next, 0),
        ));
        out.push(go_to(self.state(callee, BlockId(0), 0)));
        out
    }

    /// The statements of a transition between blocks.
    fn go(&mut self, spot: Spot, from: BlockId, to: BlockId, depth: u32) -> Vec<Statement> {
        let f = spot.function;
        let code = self.code(f, to);
        if depth < PASSED_MAX && self.is_empty(f, to) {
            return self.end(spot, to, &code.end, depth + 1);
        }
        let mut out = Vec::new();
        for (phi, sources) in &code.phis {
            let Some((_, value)) = sources.iter().find(|s| s.0 == from) else {
                continue;
            };
            if matches!(value, Value::Undef) || !self.has_register(f, *phi) {
                continue;
            }
            let view = self.view(spot, *value, self.bits(f, *phi));
            let register = Expression::name(self.value_name(f, *phi));
            if view != register {
                out.push(Statement::register(register, view));
            }
        }
        if code.schedule.interval.is_some() {
            let first = Expression::Literal(1, code.schedule.length);
            out.push(Statement::register(self.valid(f, to), first));
        }
        out.push(go_to(self.state(f, to, 0)));
        out
    }

    /// Whether a block only selects the next one, so that a transition may pass it.
    fn is_empty(&self, f: FunctionId, block: BlockId) -> bool {
        let code = self.code(f, block);
        let mut others = self.bodies[f.0].codes.iter();
        code.phis.is_empty()
            && code.code.is_empty()
            && code.schedule.length == 1
            && matches!(code.end, End::Jump(_) | End::Branch(..))
            && !others.any(|c| matches!(c.end, End::Call(_, _, Some(_), next) if next == block))
            && block != BlockId(0)
    }
}
