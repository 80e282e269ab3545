//! Emits a scheduled kernel as SystemVerilog: a state machine with its datapath, memories and
//! units.
//!
//! A value is a wire in the step in which it is ready. If a later step or block reads it, it also
//! has a register with its name, and the wire is NAME_d. In a pipeline, registers NAME_pN carry it
//! to step N. All registers hold while `step` is low: a call of the message engines or a division
//! waits.

mod expression;
mod text;

use crate::ir::{Binary, Cast, Function, Op, Type, Value};
use crate::memory::Memories;
use crate::names::Names;
use crate::schedule::{renewed, waits, Code, End};
use crate::units::{unit, Unit};
use expression::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

/// The definition of a value.
#[derive(Clone, Copy)]
enum Origin {
    Parameter,
    Phi(usize),
    Operation(usize),
    /// A call's result, in the block that follows it.
    Result(usize),
}

/// The point at which a value is read: function, block and step, or after a pipeline.
#[derive(Clone, Copy)]
struct Spot {
    function: usize,
    block: usize,
    step: u32,
    after: bool,
}

/// A function with its scheduled blocks.
pub struct Body<'a> {
    pub function: &'a Function,
    pub codes: Vec<Code>,
}

/// The values that need registers, and the last step to which pipelines carry values.
#[derive(Default, PartialEq, Eq, Clone)]
struct Marks {
    registers: BTreeSet<(usize, usize)>,
    chains: BTreeMap<(usize, usize), u32>,
}

struct Emitter<'a> {
    bodies: &'a [Body<'a>],
    memories: &'a Memories,
    values: Vec<Vec<String>>,
    functions: Vec<String>,
    memory_names: Vec<String>,
    origins: Vec<HashMap<usize, Origin>>,
    states: HashMap<(usize, usize, u32), String>,
    order: Vec<(String, String)>,
    marks: Marks,
    /// Declarations, and the assignments that drive them.
    declared: String,
    wires: String,
    units: BTreeMap<(Unit, u32), Vec<Use>>,
    reads: BTreeMap<usize, Vec<(String, String)>>,
    writes: BTreeMap<usize, Vec<(String, [String; 3])>>,
    calls: Vec<(String, String)>,
    waiting: BTreeMap<Unit, Vec<String>>,
    lanes: Vec<(String, u32, String)>,
    steps: Vec<(String, Vec<String>)>,
}

/// A state in which a unit is used, and its operands there.
type Use = (String, Vec<String>);

/// Emits the kernel's module; `sources` are listed in its first line.
pub fn module(name: &str, sources: &str, bodies: &[Body<'_>], memories: &Memories) -> String {
    let mut marks = Marks::default();
    loop {
        let mut emitter = Emitter::new(bodies, memories, marks.clone());
        emitter.bodies();
        if emitter.marks == marks {
            return emitter.text(name, sources);
        }
        marks = emitter.marks;
    }
}

impl<'a> Emitter<'a> {
    fn new(bodies: &'a [Body<'a>], memories: &'a Memories, marks: Marks) -> Emitter<'a> {
        let mut names = Names::new();
        let memory_names = memories
            .all
            .iter()
            .map(|m| names.new_name(&format!("{}_memory", m.name)))
            .collect();
        let functions: Vec<String> = bodies
            .iter()
            .map(|b| names.new_name(&b.function.name))
            .collect();
        let mut values = Vec::new();
        let mut origins = Vec::new();
        let (mut states, mut order) = (HashMap::new(), Vec::new());
        for (f, body) in bodies.iter().enumerate() {
            let prefix = if f == 0 {
                String::new()
            } else {
                format!("{}_", functions[f])
            };
            let mut of = HashMap::new();
            for v in 0..body.function.parameters {
                of.insert(v, Origin::Parameter);
            }
            for (b, code) in body.codes.iter().enumerate() {
                for (v, _) in &code.phis {
                    of.insert(*v, Origin::Phi(b));
                }
                for v in code.code.iter().filter_map(|i| i.result) {
                    of.insert(v, Origin::Operation(b));
                }
                if let End::Call(_, _, Some(v), next) = &code.end {
                    of.insert(*v, Origin::Result(*next));
                }
            }
            values.push(
                body.function
                    .values
                    .iter()
                    .map(|v| names.new_name(&format!("{prefix}{}", v.name)))
                    .collect(),
            );
            origins.push(of);
            for (b, code) in body.codes.iter().enumerate() {
                let steps = if code.schedule.interval.is_some() {
                    1
                } else {
                    code.schedule.length
                };
                for step in 0..steps {
                    let place = place(code, step);
                    let name = names.new_name(&format!("S_{}_{}", functions[f], place.line));
                    let file = place.file.rsplit('/').next().unwrap_or("");
                    let comment = if place.line == 0 {
                        String::new()
                    } else {
                        format!("{file}:{}", place.line)
                    };
                    order.push((name.clone(), comment));
                    states.insert((f, b, step), name);
                }
            }
        }
        Emitter {
            bodies,
            memories,
            values,
            functions,
            memory_names,
            origins,
            states,
            order,
            marks,
            declared: String::new(),
            wires: String::new(),
            units: BTreeMap::new(),
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            calls: Vec::new(),
            waiting: BTreeMap::new(),
            lanes: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn code(&self, spot: Spot) -> &'a Code {
        &self.bodies[spot.function].codes[spot.block]
    }

    fn bits(&self, function: usize, value: usize) -> u32 {
        self.bodies[function].function.values[value]
            .ty
            .bits()
            .unwrap_or(1)
    }

    fn register(&mut self, function: usize, value: usize) -> String {
        self.marks.registers.insert((function, value));
        self.values[function][value].clone()
    }

    fn chained(&mut self, function: usize, value: usize, step: u32) -> String {
        let most = self.marks.chains.entry((function, value)).or_insert(step);
        *most = (*most).max(step);
        format!("{}_p{step}", self.values[function][value])
    }

    /// The wire of a value: its name, unless its register has that.
    fn wire(&self, function: usize, value: usize) -> String {
        let name = &self.values[function][value];
        match self.marks.registers.contains(&(function, value)) {
            true => format!("{name}_d"),
            false => name.clone(),
        }
    }

    /// A value as an expression of `bits` bits, read at a spot.
    fn view(&mut self, spot: Spot, value: Value, bits: u32) -> String {
        let v = match value {
            Value::Bits(n) => return literal(n, bits),
            Value::Null | Value::Undef | Value::Aggregate(_) => return literal(0, bits),
            Value::Global(g, o) => {
                return literal((self.memories.offset(g) as i64 + o) as u64, bits)
            }
            Value::Local(v) => v,
        };
        let f = spot.function;
        let code = self.code(spot);
        let here = |b: usize| b == spot.block && !spot.after;
        match self.origins[f].get(&v).copied() {
            Some(Origin::Phi(b)) if here(b) && code.schedule.interval.is_some() => {
                let next = code
                    .phis
                    .iter()
                    .find(|p| p.0 == v)
                    .and_then(|p| p.1.iter().find(|x| x.0 == b));
                let until = renewed(&code.schedule, next.map_or(Value::Undef, |n| n.1));
                match spot.step <= until {
                    true => self.register(f, v),
                    false => self.chained(f, v, spot.step),
                }
            }
            Some(Origin::Operation(b)) if here(b) => {
                let from = code.schedule.from.get(&v).copied().unwrap_or(0);
                match (from == spot.step, code.schedule.interval) {
                    (true, _) => self.wire(f, v),
                    (false, None) => self.register(f, v),
                    (false, Some(_)) => self.chained(f, v, spot.step),
                }
            }
            Some(Origin::Result(b)) if here(b) && spot.step == 0 => self.wire(f, v),
            _ => self.register(f, v),
        }
    }

    fn bodies(&mut self) {
        for f in 0..self.bodies.len() {
            let name = self.bodies[f].function.name.clone();
            for text in [&mut self.declared, &mut self.wires] {
                let _ = writeln!(text, "\n  // ---- {name} ----\n");
            }
            for b in 0..self.bodies[f].codes.len() {
                self.block(f, b);
            }
        }
    }

    fn block(&mut self, f: usize, b: usize) {
        let body = &self.bodies[f];
        let code = &body.codes[b];
        let pipeline = code.schedule.interval;
        let steps = if pipeline.is_some() {
            1
        } else {
            code.schedule.length
        };
        let mut acts: Vec<Vec<String>> = vec![Vec::new(); steps as usize];
        // Results of calls, and writes of registers.
        for other in &body.codes {
            if let End::Call(callee, _, Some(v), next) = &other.end {
                if *next == b {
                    let (bits, wire) = (self.bits(f, *v), self.wire(f, *v));
                    let callee = self.function(callee);
                    let _ = writeln!(self.declared, "  logic {}{wire};", range(bits));
                    let _ = writeln!(
                        self.wires,
                        "  assign {wire} = {}_result;",
                        self.functions[callee]
                    );
                    if self.marks.registers.contains(&(f, *v)) {
                        acts[0].push(format!("{} <= {wire};", self.values[f][*v]));
                    }
                }
            }
        }
        for (index, instruction) in code.code.iter().enumerate() {
            let (step, instance) = code.schedule.steps[index];
            let spot = Spot {
                function: f,
                block: b,
                step,
                after: false,
            };
            self.instruction(spot, index, instance);
            let Some(v) = instruction.result else {
                continue;
            };
            let from = code.schedule.from.get(&v).copied().unwrap_or(0);
            if self.marks.registers.contains(&(f, v)) {
                let (name, wire) = (self.values[f][v].clone(), self.wire(f, v));
                let write = format!("{name} <= {wire};");
                match pipeline {
                    None => acts[from as usize].push(write),
                    Some(_) => acts[0].push(format!("if ({}[{from}]) {write}", self.valid(f, b))),
                }
            }
            if pipeline.is_some() {
                let wire = self.wire(f, v);
                self.chain(f, v, from, &wire, &mut acts[0]);
            }
        }
        match pipeline {
            None => {
                let last = steps - 1;
                let spot = Spot {
                    function: f,
                    block: b,
                    step: last,
                    after: false,
                };
                for step in 0..last {
                    acts[step as usize]
                        .push(format!("state <= {};", self.states[&(f, b, step + 1)]));
                }
                let end = self.end(spot, b, &code.end, 0);
                acts[last as usize].extend(end);
            }
            Some(interval) => self.pipeline(f, b, interval, &mut acts[0]),
        }
        for (step, act) in acts.into_iter().enumerate() {
            self.steps
                .push((self.states[&(f, b, step as u32)].clone(), act));
        }
    }

    fn valid(&self, f: usize, b: usize) -> String {
        format!("{}_valid", self.states[&(f, b, 0)])
    }

    /// Registers that carry a value along a pipeline.
    fn chain(&mut self, f: usize, v: usize, from: u32, first: &str, act: &mut Vec<String>) {
        let Some(&most) = self.marks.chains.get(&(f, v)) else {
            return;
        };
        let name = self.values[f][v].clone();
        let bits = range(self.bits(f, v));
        let mut before = first.to_owned();
        for step in from + 1..=most {
            let next = format!("{name}_p{step}");
            let _ = writeln!(self.declared, "  logic {bits}{next};");
            act.push(format!("{next} <= {before};"));
            before = next;
        }
    }

    fn pipeline(&mut self, f: usize, b: usize, interval: u32, act: &mut Vec<String>) {
        let code = &self.bodies[f].codes[b];
        let length = code.schedule.length;
        let valid = self.valid(f, b);
        let End::Branch(condition, yes, no) = code.end.clone() else {
            return;
        };
        let spot = |step| Spot {
            function: f,
            block: b,
            step,
            after: false,
        };
        for (phi, from) in &code.phis {
            let Some((_, next)) = from.iter().find(|x| x.0 == b) else {
                continue;
            };
            let until = renewed(&code.schedule, *next);
            let bits = self.bits(f, *phi);
            let view = self.view(spot(until), *next, bits);
            let name = self.register(f, *phi);
            act.push(format!("if ({valid}[{until}]) {name} <= {view};"));
            self.chain(f, *phi, until, &name, act);
        }
        let again = self.view(spot(interval - 1), condition, 1);
        let again = if yes == b { again } else { format!("!{again}") };
        let next = format!("{valid}[{}] && {again}", interval - 1);
        let _ = writeln!(
            self.declared,
            "  logic [{}:0] {valid};  // an iteration every {interval} clocks; each takes {length}",
            length - 1
        );
        act.push(match length {
            1 => format!("{valid} <= {next};"),
            2 => format!("{valid} <= {{{valid}[0], {next}}};"),
            _ => format!("{valid} <= {{{valid}[{}:0], {next}}};", length - 2),
        });
        let out = if yes == b { no } else { yes };
        let goes = self.go(
            Spot {
                function: f,
                block: b,
                step: 0,
                after: true,
            },
            b,
            out,
            0,
        );
        act.push(format!(
            "if ({valid} == '0) begin\n{}\nend",
            goes.join("\n")
        ));
    }

    fn function(&self, name: &str) -> usize {
        self.bodies
            .iter()
            .position(|b| b.function.name == name)
            .unwrap_or(0)
    }

    /// The statements of a block's end, read at a spot; `from`: that block.
    fn end(&mut self, spot: Spot, from: usize, end: &End, depth: u32) -> Vec<String> {
        match end {
            End::Never => Vec::new(),
            End::Jump(to) => self.go(spot, from, *to, depth),
            End::Branch(c, yes, no) => {
                let c = self.view(spot, *c, 1);
                let (yes, no) = (
                    self.go(spot, from, *yes, depth),
                    self.go(spot, from, *no, depth),
                );
                let mut out = vec![format!("if ({c}) begin")];
                out.extend(yes);
                out.push("end else begin".to_owned());
                out.extend(no);
                out.push("end".to_owned());
                out
            }
            End::Switch(v, bits, cases, default) => {
                let v = self.view(spot, *v, *bits);
                let mut out = vec![format!("case ({v})")];
                for (case, to) in cases {
                    out.push(format!("{}: begin", literal(*case, *bits)));
                    out.extend(self.go(spot, from, *to, depth));
                    out.push("end".to_owned());
                }
                out.push("default: begin".to_owned());
                out.extend(self.go(spot, from, *default, depth));
                out.push("end".to_owned());
                out.push("endcase".to_owned());
                out
            }
            End::Call(name, arguments, _, next) => {
                let callee = self.function(name);
                let mut out = Vec::new();
                for (i, argument) in arguments
                    .iter()
                    .enumerate()
                    .take(self.bodies[callee].function.parameters)
                {
                    let bits = self.bits(callee, i);
                    let view = self.view(spot, *argument, bits);
                    // A parameter that is not used has no register.
                    if self.marks.registers.contains(&(callee, i)) {
                        out.push(format!("{} <= {view};", self.values[callee][i]));
                    }
                }
                out.push(format!(
                    "{}_return <= {};",
                    self.functions[callee],
                    self.states[&(spot.function, *next, 0)]
                ));
                out.push(format!("state <= {};", self.states[&(callee, 0, 0)]));
                out
            }
            End::Return(value) => {
                let name = self.functions[spot.function].clone();
                let mut out = Vec::new();
                if let (Some(value), Some(bits)) =
                    (value, self.bodies[spot.function].function.result.bits())
                {
                    let view = self.view(spot, *value, bits);
                    out.push(format!("{name}_result <= {view};"));
                }
                out.push(format!("state <= {name}_return;"));
                out
            }
        }
    }

    /// The statements of a transition between blocks.
    fn go(&mut self, spot: Spot, from: usize, to: usize, depth: u32) -> Vec<String> {
        let f = spot.function;
        let code = &self.bodies[f].codes[to];
        let passes = code.phis.is_empty()
            && code.code.is_empty()
            && code.schedule.length == 1
            && matches!(code.end, End::Jump(_) | End::Branch(..))
            && !self.bodies[f]
                .codes
                .iter()
                .any(|c| matches!(c.end, End::Call(_, _, Some(_), next) if next == to))
            && depth < 3
            && to != 0;
        if passes {
            let end = code.end.clone();
            return self.end(spot, to, &end, depth + 1);
        }
        let mut out = Vec::new();
        for (phi, sources) in &code.phis {
            let Some((_, value)) = sources.iter().find(|s| s.0 == from) else {
                continue;
            };
            if matches!(value, Value::Undef) || !self.marks.registers.contains(&(f, *phi)) {
                continue;
            }
            let bits = self.bits(f, *phi);
            let view = self.view(spot, *value, bits);
            let name = &self.values[f][*phi];
            if view != *name {
                out.push(format!("{name} <= {view};"));
            }
        }
        if code.schedule.interval.is_some() {
            out.push(format!(
                "{} <= {}'d1;",
                self.valid(f, to),
                code.schedule.length
            ));
        }
        out.push(format!("state <= {};", self.states[&(f, to, 0)]));
        out
    }

    /// The condition under which a spot's step is active.
    fn when(&self, spot: Spot) -> String {
        match self.code(spot).schedule.interval {
            None => format!(
                "state == {}",
                self.states[&(spot.function, spot.block, spot.step)]
            ),
            Some(_) => {
                let state = &self.states[&(spot.function, spot.block, 0)];
                format!(
                    "state == {state} && {}[{}]",
                    self.valid(spot.function, spot.block),
                    spot.step
                )
            }
        }
    }

    fn instruction(&mut self, spot: Spot, index: usize, instance: u32) {
        let f = spot.function;
        let instruction = &self.code(spot).code[index];
        let function = self.bodies[f].function;
        let when = self.when(spot);
        let bits = instruction.result.map_or(0, |r| self.bits(f, r));
        let of = |v: &Value| match v {
            Value::Local(v) => function.values[*v].ty.bits().unwrap_or(32),
            _ => bits,
        };
        let expression = if let Some(kind) = unit(function, instruction) {
            self.unit(spot, index, kind, instance, &when)
        } else {
            match &instruction.op {
                Op::Binary(op, a, b) => {
                    let (x, y) = (self.view(spot, *a, bits), self.view(spot, *b, bits));
                    binary(*op, &x, &y, bits, b)
                }
                Op::Compare(predicate, width, a, b) => {
                    let (x, y) = (self.view(spot, *a, *width), self.view(spot, *b, *width));
                    match predicate.strip_prefix('f') {
                        Some(p) => {
                            self.ordered(f, instruction.result.unwrap_or(0), p, *width, &x, &y)
                        }
                        None => compare(predicate, &x, &y),
                    }
                }
                Op::Select(c, a, b) => {
                    let c = self.view(spot, *c, 1);
                    let (x, y) = (self.view(spot, *a, bits), self.view(spot, *b, bits));
                    format!("{c} ? {x} : {y}")
                }
                Op::Cast(cast, from, a) => {
                    let from = match a {
                        Value::Local(_) => of(a),
                        _ => *from,
                    };
                    let x = self.view(spot, *a, from);
                    match cast {
                        Cast::Sext => format!("{bits}'($signed({x}))"),
                        _ => format!("{bits}'({x})"),
                    }
                }
                Op::Fneg(a) => format!(
                    "{} ^ {}",
                    self.view(spot, *a, bits),
                    literal(1 << (bits - 1), bits)
                ),
                Op::Fabs(a) => format!(
                    "{} & {}",
                    self.view(spot, *a, bits),
                    literal(!(1 << (bits - 1)), bits)
                ),
                Op::Copy(a) => self.view(spot, *a, bits),
                Op::Address(base, offset, parts) => self.address(spot, *base, *offset, parts),
                Op::Load(from, size) if self.memories.far(f, *from) => {
                    self.far_load(spot, *from, *size, bits, &when)
                }
                Op::Store(value, to, size, condition) if self.memories.far(f, *to) => {
                    self.far_store(spot, *value, *to, *size, *condition, &when);
                    return;
                }
                Op::Load(from, size) => {
                    self.load(spot, instruction.result, *from, *size, bits, &when)
                }
                Op::Store(value, to, size, condition) => {
                    self.store(spot, *value, *to, *size, *condition, &when);
                    return;
                }
                Op::Call(name, arguments) => match self.call(spot, name, arguments, &when) {
                    Some(expression) => expression,
                    None => return,
                },
                _ => literal(0, bits.max(1)),
            }
        };
        if let Some(v) = instruction.result {
            let wire = self.wire(f, v);
            let _ = writeln!(self.declared, "  logic {}{wire};", range(bits));
            let _ = writeln!(self.wires, "  assign {wire} = {expression};");
        }
    }

    fn unit(&mut self, spot: Spot, index: usize, kind: Unit, instance: u32, when: &str) -> String {
        let instruction = &self.code(spot).code[index];
        let result = self.bits(spot.function, instruction.result.unwrap_or(0));
        let (wide, out) = kind.bits();
        let operands = instruction.op.uses();
        let signed = matches!(
            instruction.op,
            Op::Binary(Binary::Sdiv | Binary::Srem, ..) | Op::Cast(Cast::Sitofp, ..)
        );
        let mut inputs = Vec::new();
        for (i, operand) in operands.iter().enumerate().take(kind.operands()) {
            let from = match (&instruction.op, operand) {
                (_, Value::Local(v)) => self.bits(spot.function, *v),
                (Op::Cast(_, from, _), _) => *from,
                _ => result,
            };
            let mut view = self.view(spot, *operand, from);
            if from < wide {
                view = if signed {
                    format!("{wide}'($signed({view}))")
                } else {
                    format!("{wide}'({view})")
                };
            }
            if i == 1 && matches!(instruction.op, Op::Binary(Binary::Fsub, ..)) {
                view = format!("{view} ^ {}", literal(1 << (wide - 1), wide));
            }
            inputs.push(view);
        }
        if kind.waits() {
            inputs.push(format!("1'b{}", u8::from(signed)));
            let next = self.states[&(spot.function, spot.block, spot.step + 1)].clone();
            self.waiting.entry(kind).or_default().push(next);
        }
        self.units
            .entry((kind, instance))
            .or_default()
            .push((when.to_owned(), inputs));
        let name = unit_name(kind, instance);
        let y = match instruction.op {
            Op::Binary(Binary::Urem | Binary::Srem, ..) => format!("{name}_rest"),
            _ => format!("{name}_y"),
        };
        if result < out {
            format!("{result}'({y})")
        } else {
            y
        }
    }

    fn ordered(
        &mut self,
        f: usize,
        v: usize,
        predicate: &str,
        width: u32,
        x: &str,
        y: &str,
    ) -> String {
        let name = self.values[f][v].clone();
        let shape = if width == 32 {
            ".EXP(8), .MAN(23)"
        } else {
            ".EXP(11), .MAN(52)"
        };
        let _ = writeln!(
            self.declared,
            "  logic {name}_less, {name}_equal, {name}_unordered;"
        );
        let _ = writeln!(
            self.wires,
            "  hls_fcompare #({shape}) u_{name} (.a({x}), .b({y}), .less({name}_less), .equal({name}_equal), .unordered({name}_unordered));"
        );
        let (less, equal, unordered) = (
            format!("{name}_less"),
            format!("{name}_equal"),
            format!("{name}_unordered"),
        );
        match predicate {
            "oeq" => equal,
            "one" => format!("!({equal} || {unordered})"),
            "olt" => less,
            "ole" => format!("{less} || {equal}"),
            "ogt" => format!("!({less} || {equal} || {unordered})"),
            "oge" => format!("!({less} || {unordered})"),
            "ord" => format!("!{unordered}"),
            "uno" => unordered,
            "ueq" => format!("{equal} || {unordered}"),
            "une" => format!("!{equal}"),
            "ult" => format!("{less} || {unordered}"),
            "ule" => format!("{less} || {equal} || {unordered}"),
            "ugt" => format!("!({less} || {equal})"),
            "uge" => format!("!{less}"),
            "true" => "1'b1".to_owned(),
            _ => "1'b0".to_owned(),
        }
    }

    fn address(
        &mut self,
        spot: Spot,
        base: Value,
        offset: i64,
        parts: &[(Value, u32, i64)],
    ) -> String {
        let mut terms = Vec::new();
        let mut constant = offset;
        match base {
            Value::Global(g, o) => constant += self.memories.offset(g) as i64 + o,
            Value::Null | Value::Undef => {}
            base => terms.push(self.view(spot, base, 32)),
        }
        for (part, bits, scale) in parts {
            let view = self.view(spot, *part, *bits);
            let view = match bits {
                32 => view,
                0..=31 => format!("32'($signed({view}))"),
                _ => format!("32'({view})"),
            };
            terms.push(match scale {
                1 => view,
                s if s.count_ones() == 1 => format!("({view} << {})", s.trailing_zeros()),
                s => format!("({view} * {})", literal(*s as u64, 32)),
            });
        }
        if constant != 0 || terms.is_empty() {
            terms.push(literal(constant as u64, 32));
        }
        terms.join(" + ")
    }

    /// An address's memory, word, and lane in the word in units of the access.
    fn word(
        &mut self,
        spot: Spot,
        address: Value,
        size: u64,
    ) -> (usize, String, Result<u64, String>) {
        let Some(m) = self.memories.of(spot.function, address) else {
            unreachable!("memory::analyse rejects accesses without a memory");
        };
        let memory = &self.memories.all[m];
        let index = index_bits(memory.words());
        let low = memory.width.trailing_zeros();
        let lanes = memory.width / size;
        if let Value::Global(g, o) = address {
            let at = (self.memories.offset(g) as i64 + o) as u64;
            return (m, literal(at >> low, index), Ok(at % memory.width / size));
        }
        let view = self.view(spot, address, 32);
        let lane = if lanes == 1 {
            Ok(0)
        } else {
            Err(format!("{view}[{}:{}]", low - 1, size.trailing_zeros()))
        };
        (m, format!("{view}[{}:{low}]", low + index - 1), lane)
    }

    fn load(
        &mut self,
        spot: Spot,
        result: Option<usize>,
        from: Value,
        size: u64,
        bits: u32,
        when: &str,
    ) -> String {
        let (m, word, lane) = self.word(spot, from, size);
        self.reads
            .entry(m)
            .or_default()
            .push((when.to_owned(), word));
        let memory = self.memory_names[m].clone();
        let q = format!("{memory}_q");
        let wide = size * 8;
        let lane = match lane {
            Ok(lane) => lane.to_string(),
            Err(view) => {
                let lanes = (self.memories.all[m].width / size).trailing_zeros();
                let name = format!("{}_lane", self.values[spot.function][result.unwrap_or(0)]);
                self.lanes.push((name.clone(), lanes, view));
                name
            }
        };
        let (slice, exact) = match (self.memories.all[m].width == size, lane.parse::<u64>()) {
            (true, _) => (q, u64::from(bits) == wide),
            (false, Ok(lane)) => (
                format!("{q}[{}:{}]", lane * wide + u64::from(bits) - 1, lane * wide),
                true,
            ),
            (false, Err(_)) => (format!("{q}[{wide}*{lane}+:{bits}]"), true),
        };
        if exact {
            slice
        } else {
            format!("{bits}'({slice})")
        }
    }

    fn store(
        &mut self,
        spot: Spot,
        value: Value,
        to: Value,
        size: u64,
        condition: Option<Value>,
        when: &str,
    ) {
        let (m, word, lane) = self.word(spot, to, size);
        let width = self.memories.all[m].width;
        let bits = match value {
            Value::Local(v) => self.bits(spot.function, v),
            _ => size as u32 * 8,
        };
        let mut data = self.view(spot, value, bits);
        if u64::from(bits) < size * 8 {
            data = format!("{}'({data})", size * 8);
        }
        let copies = width / size;
        if copies > 1 {
            data = format!("{{{copies}{{{data}}}}}");
        }
        let ones = literal((1_u64 << size) - 1, width as u32);
        let mask = match lane {
            _ if copies == 1 => "'1".to_owned(),
            Ok(lane) => literal(((1_u64 << size) - 1) << (lane * size), width as u32),
            Err(lane) if size == 1 => format!("{ones} << {lane}"),
            Err(lane) => format!("{ones} << {{{lane}, {}'d0}}", size.trailing_zeros()),
        };
        let mut when = when.to_owned();
        if let Some(condition) = condition {
            let condition = self.view(spot, condition, 1);
            when = format!("{when} && {condition}");
        }
        self.writes
            .entry(m)
            .or_default()
            .push((when, [word, mask, data]));
    }

    /// An address off the chip, and its lane in a word of 64 bits in units of the access.
    fn far_place(&mut self, spot: Spot, address: Value, size: u64) -> (String, String) {
        let view = self.view(spot, address, 32);
        let lane = match (size, address) {
            (8, _) => "0".to_owned(),
            (_, Value::Global(g, o)) => {
                ((self.memories.offset(g) as i64 + o) as u64 % 8 / size).to_string()
            }
            _ => format!("{view}[2:{}]", size.trailing_zeros()),
        };
        (view, lane)
    }

    fn far_load(&mut self, spot: Spot, from: Value, size: u64, bits: u32, when: &str) -> String {
        let (address, lane) = self.far_place(spot, from, size);
        self.calls.push((
            when.to_owned(),
            format!("call = CallLoad;\ncall_command = {address};"),
        ));
        let wide = size * 8;
        match size {
            8 => format!("{bits}'(port_word)"),
            _ => format!("{bits}'(port_word[{wide}*{lane}+:{wide}])"),
        }
    }

    fn far_store(
        &mut self,
        spot: Spot,
        value: Value,
        to: Value,
        size: u64,
        condition: Option<Value>,
        when: &str,
    ) {
        let (address, lane) = self.far_place(spot, to, size);
        let wide = size as u32 * 8;
        let bits = match value {
            Value::Local(v) => self.bits(spot.function, v),
            _ => wide,
        };
        let view = self.view(spot, value, bits);
        let when = match condition {
            Some(condition) => format!("{when} && {}", self.view(spot, condition, 1)),
            None => when.to_owned(),
        };
        self.calls.push((
            when,
            format!(
                "call = CallStore;\ncall_command = {address};\ncall_bytes = 32'd{} << {size}*{lane};\ncall_data = {{{}{{{wide}'({view})}}}};",
                (1_u64 << size) - 1,
                8 / size
            ),
        ));
    }

    fn call(
        &mut self,
        spot: Spot,
        name: &str,
        arguments: &[(Type, Value)],
        when: &str,
    ) -> Option<String> {
        let name = name.strip_prefix("hum_port_").unwrap_or(name);
        let mut drive = Vec::new();
        let mut word = |e: &mut Self, i: usize, to: &str, bits: u32| {
            if let Some((_, value)) = arguments.get(i) {
                let view = e.view(spot, *value, bits);
                drive.push(format!("{to} = {view};"));
            }
        };
        match name {
            "send" | "take" => {
                word(self, 0, "call_command", 32);
                word(self, 1, "call_bytes", 32);
            }
            "put" => word(self, 0, "call_data", 64),
            "text" | "end" => word(self, 0, "call_command", 32),
            _ => {}
        }
        if waits(name) {
            let mut kind = name.to_owned();
            kind[..1].make_ascii_uppercase();
            self.calls.push((
                when.to_owned(),
                format!("call = Call{kind};\n{}", drive.join("\n")),
            ));
        }
        Some(match name {
            "rank" => "32'(own)".to_owned(),
            "cycles" => "port_cycles".to_owned(),
            "sent" => "32'(port_fault)".to_owned(),
            "get" => "port_there".to_owned(),
            "beat" => "in_data".to_owned(),
            "outcome" => {
                "{4'd0, port_outcome.tag, port_outcome.source, port_outcome.fault}".to_owned()
            }
            "bytes" => "32'(port_outcome.size)".to_owned(),
            _ => return None,
        })
    }
}
