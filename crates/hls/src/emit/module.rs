//! The module: declarations, the datapath, the calls of the engines and the state machine.

use super::emitter::{unit_name, Call, CallKind, Emitter};
use super::selection;
use crate::ir::{BlockId, FunctionId};
use crate::verilog::{
    Connection, DataType, Declaration, Expression, Instance, Item, Line, Module, Statement,
};
use std::collections::BTreeMap;

/// Bits of the number of a word of the argument block (`hdl/kernels/rtl/kernel_argument_ports.svh`).
const INDEX_BITS: u32 = 11;
/// Inputs of the engines.
const CALL_INPUTS: [&str; 3] = ["call_command", "call_bytes", "call_data"];

/// The ports of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// Those of a kernel of the message door.
    Messages,
    /// Those of an accelerator's kernel (`hdl/kernels/rtl/kernel_ports.svh`).
    Accelerator,
}

pub fn logic(bits: u32, names: &[&str]) -> Declaration {
    declaration(DataType::Logic(bits), names)
}

fn declaration(ty: DataType, names: &[&str]) -> Declaration {
    let mut declaration = Declaration::new(ty, names[0]);
    declaration.names = names.iter().map(|n| (*n).to_owned()).collect();
    declaration
}

fn named(ty: &str, name: &str) -> Declaration {
    Declaration::new(DataType::Named(ty.to_owned()), name)
}

impl Emitter<'_> {
    /// The module of what has been emitted; `sources` are listed in its first line.
    pub fn module(&mut self, name: &str, sources: &str, interface: Interface) -> Module {
        let mut items = Vec::new();
        self.states(&mut items);
        match interface {
            Interface::Messages => calls(&mut items),
            Interface::Accelerator => {
                self.accelerator(&mut items);
                self.readers(&mut items);
            }
        }
        self.functions(&mut items);
        self.registers(&mut items);
        items.append(&mut self.declared);
        self.memories(&mut items);
        self.units(&mut items);
        items.append(&mut self.wires);
        items.push(Item::Blank);
        let rest = self.step(interface);
        match self.channels_ready() {
            None => items.push(Item::Assign(Expression::name("step"), rest)),
            Some(ready) => {
                items.push(Item::Declaration(logic(
                    1,
                    &["rest_ready", "channels_ready", "first_ready"],
                )));
                items.push(Item::Assign(Expression::name("rest_ready"), rest));
                let both = Expression::name("rest_ready").and(ready);
                items.push(Item::Assign(Expression::name("step"), both));
            }
        }
        self.call_inputs(&mut items);
        self.reader_inputs(&mut items);
        self.channels(&mut items);
        self.machine(&mut items);
        let (command, imports, ports): (_, &[&str], _) = match interface {
            Interface::Messages => (
                "baltra cluster build",
                &["hum_envelope_pkg", "msg_pkg", "msg_calls_pkg"],
                "msg_kernel_ports.svh",
            ),
            Interface::Accelerator => (
                "baltra accelerator build",
                &["kernel_calls_pkg"],
                "kernel_ports.svh",
            ),
        };
        Module {
            comment: vec![
                format!("{sources}, synthesized by `{command}`: do not edit."),
                String::new(),
                "Ports: those that every kernel of a live board has. One state per clock while \
                 `step` is high; comments"
                    .to_owned(),
                "give the source line of each state.".to_owned(),
            ],
            defines: self.channel_defines(),
            name: name.to_owned(),
            imports: imports.iter().map(|name| (*name).to_owned()).collect(),
            ports: ports.to_owned(),
            items,
        }
    }

    /// Start, end, text and memory of an accelerator's kernel, and the words of its argument block.
    fn accelerator(&self, items: &mut Vec<Item>) {
        items.push(Item::Section("start, end, text and memory".to_owned()));
        items.push(Item::Blank);
        items.push(Item::Aligned(vec![
            named("call_t", "call"),
            logic(32, &["call_command", "call_bytes"]),
            logic(64, &["call_data", "port_word"]),
            logic(1, &["port_ready", "readers_ready"]),
        ]));
        items.push(Item::Blank);
        items.push(Item::Instance(Instance {
            module: "kernel_calls".to_owned(),
            parameters: Vec::new(),
            name: "u_calls".to_owned(),
            connections: vec![Connection::All],
        }));
        items.push(Item::Section("arguments".to_owned()));
        items.push(Item::Blank);
        let mut clocked = Vec::new();
        for word in &self.words {
            let name = format!("argument_{word}");
            items.push(Item::Declaration(logic(64, &[&name])));
            let own = Expression::name("arg_index").equals(Expression::Literal(*word, INDEX_BITS));
            let write = Line::Register(Expression::name(name), Expression::name("arg_data"));
            let write = write.guarded(Expression::name("arg_valid").and(own));
            clocked.push(write.into());
        }
        if !clocked.is_empty() {
            items.push(Item::Clocked(clocked));
        }
    }

    fn states(&mut self, items: &mut Vec<Item>) {
        let states = self.variants.len();
        items.push(Item::Enumeration {
            name: "state_t".to_owned(),
            bits: usize::BITS - (states.max(2) - 1).leading_zeros(),
            variants: std::mem::take(&mut self.variants),
        });
        items.push(Item::Blank);
        items.push(Item::Aligned(vec![
            named("state_t", "state"),
            logic(1, &["step"]),
        ]));
    }

    /// Return states and results of functions.
    fn functions(&self, items: &mut Vec<Item>) {
        for (f, body) in self.bodies.iter().enumerate().skip(1) {
            let name = self.function_name(FunctionId(f));
            let back = named("state_t", &format!("{name}_return"));
            items.push(Item::Declaration(back));
            if let Some(bits) = body.function.result.bits() {
                let result = logic(bits, &[&format!("{name}_result")]);
                items.push(Item::Declaration(result));
            }
        }
    }

    fn registers(&self, items: &mut Vec<Item>) {
        items.push(Item::Section("registers".to_owned()));
        items.push(Item::Blank);
        for &(f, v) in &self.marks.registers {
            let register = logic(self.bits(f, v), &[self.value_name(f, v)]);
            items.push(Item::Declaration(register));
        }
        for lane in &self.lanes {
            items.push(Item::Declaration(logic(lane.bits, &[&lane.name])));
        }
    }

    /// The condition under which the state machine proceeds, except for operations on channels: no
    /// unit, engine or port waits.
    fn step(&self, interface: Interface) -> Expression {
        let units = self.waiting.iter();
        let units = units.map(|unit| format!("{}_done", unit_name(*unit, 0)));
        let ports: &[&str] = match interface {
            Interface::Messages => &["port_ready"],
            Interface::Accelerator => &["port_ready", "readers_ready"],
        };
        let all = units.chain(ports.iter().map(|port| (*port).to_owned()));
        let all = all.map(Expression::name).reduce(Expression::and);
        all.unwrap_or(Expression::Fill(true))
    }

    fn call_inputs(&mut self, items: &mut Vec<Item>) {
        let calls = std::mem::take(&mut self.calls);
        let call = |kind: &str| Statement::assign(Expression::name("call"), Expression::name(kind));
        let mut statements = vec![call("CallNone")];
        let kinds: BTreeMap<String, CallKind> =
            calls.iter().map(|c| (c.kind.name(), c.kind)).collect();
        for (name, kind) in kinds {
            let own = calls.iter().filter(|c| c.kind == kind);
            let made = selection::any(own.map(|c| c.made.clone()));
            statements.push(Statement::when(made, vec![call(&name)]));
        }
        for input in CALL_INPUTS {
            let own = |c: &Call| {
                let found = c.inputs.iter().find(|i| i.0 == input);
                found.map(|i| (c.when.clone(), i.1.clone()))
            };
            let choices = calls.iter().filter_map(own).collect();
            statements.extend(selection::or_any(&Expression::name(input), choices));
        }
        items.push(Item::Combinational(statements));
    }

    fn machine(&mut self, items: &mut Vec<Item>) {
        let state = || Expression::name("state");
        let mut moves = Vec::new();
        for lane in std::mem::take(&mut self.lanes) {
            moves.push(Statement::register(Expression::Name(lane.name), lane.value));
        }
        // Before those of the states, one of which may begin a pipeline.
        moves.append(&mut self.flows);
        let mut arms = std::mem::take(&mut self.steps);
        arms.retain(|(_, acts)| !acts.is_empty());
        moves.push(Statement::Case {
            subject: state(),
            arms,
            default: Vec::new(),
        });
        let first = self.state(FunctionId(0), BlockId(0), 0);
        let mut reset = vec![Statement::register(state(), first)];
        let valids = std::mem::take(&mut self.valids).into_iter();
        reset.extend(valids.map(|valid| Statement::register(valid, Expression::Fill(false))));
        items.push(Item::Clocked(vec![
            Statement::when(Expression::name("step"), moves),
            Statement::when(Expression::name("rst"), reset),
        ]));
    }
}

/// The signals of calls of the message engines and of memory off the chip.
fn calls(items: &mut Vec<Item>) {
    let title = "calls of the message engines and of memory off the chip";
    items.push(Item::Section(title.to_owned()));
    items.push(Item::Blank);
    items.push(Item::Aligned(vec![
        named("call_t", "call"),
        logic(32, &["call_command", "call_bytes"]),
        logic(64, &["call_data", "port_cycles", "port_word"]),
        logic(1, &["port_ready", "port_there"]),
        logic(8, &["port_fault"]),
        named("outcome_t", "port_outcome"),
    ]));
    items.push(Item::Blank);
    items.push(Item::Instance(Instance {
        module: "msg_calls".to_owned(),
        parameters: Vec::new(),
        name: "u_calls".to_owned(),
        connections: vec![Connection::All],
    }));
    items.push(Item::Blank);
}
