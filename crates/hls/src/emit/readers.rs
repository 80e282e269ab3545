//! The ports of loads that may be executed before stores of other work-items.

use super::emitter::Emitter;
use super::module::logic;
use super::selection;
use crate::ir::Channels;
use crate::units::Registered;
use crate::verilog::{Connection, DataType, Declaration, Expression, Instance, Item, Statement};

/// The outputs of a kernel without readers.
const READER_OUTPUTS: [&str; 5] = [
    "fetch_valid",
    "fetch_buffer",
    "fetch_line",
    "read_fault",
    "read_address",
];

/// Block RAMs of the caches of ports in a kernel with channels, whose loops read more than a line at a
/// time; block RAMs of a line of the cache of 128 bytes, as a divisor; lines of a cache.
const BLOCK_RAMS: u32 = 64;
const LINES_PER_BLOCK_RAM: u32 = 16;
const LINES_MIN: u32 = 16;
const LINES_MAX: u32 = 512;
/// The same for a kernel whose work-items execute in parts: each work-item may read lines of its own.
const BLOCK_RAMS_OF_PARTS: u32 = 32;
const LINES_MAX_OF_PARTS: u32 = 64;

/// The signal of a port's word, or of its words.
pub fn port_word(port: u32) -> String {
    format!("port_word_{port}")
}

/// A word of a port with several words.
pub fn port_part(port: u32, word: u32) -> Expression {
    Expression::name(port_word(port)).slice(word * 64 + 63, word * 64)
}

/// Lines of the cache of each of the ports whose loads are of one word. Ports of several words have
/// [`LINES_MIN`], because they read words once, one after another.
pub fn lines(ports: u32, channels: &Channels, parts: bool) -> u32 {
    let (block_rams, lines_max) = match (channels.is_empty(), parts) {
        (false, _) => (BLOCK_RAMS, LINES_MAX),
        (true, true) => (BLOCK_RAMS_OF_PARTS, LINES_MAX_OF_PARTS),
        (true, false) => return LINES_MIN,
    };
    let most = block_rams * LINES_PER_BLOCK_RAM / ports.max(1);
    let lines = 1 << (31 - most.max(1).leading_zeros());
    lines.clamp(LINES_MIN, lines_max)
}

fn signal(port: u32, suffix: &str) -> Expression {
    Expression::name(format!("port{port}_{suffix}"))
}

impl Emitter<'_> {
    /// Words that a port reads by one access.
    pub fn port_words(&self, port: u32) -> u32 {
        let codes = self.bodies.iter().flat_map(|body| &body.codes);
        let loads = codes.flat_map(|code| &code.code);
        let own = loads.filter(|load| load.reader == Some(port));
        own.map(|load| load.reader_word + 1).max().unwrap_or(1)
    }

    /// The ports and their caches.
    pub fn readers(&self, items: &mut Vec<Item>) {
        let Some(ports) = self.readers.keys().max().map(|last| last + 1) else {
            let set = |name: &str, value| Item::Assign(Expression::name(name), value);
            items.push(set("readers_ready", Expression::Fill(true)));
            items.extend(READER_OUTPUTS.map(|output| set(output, Expression::Fill(false))));
            return;
        };
        let vector = |bits: u32, name: &str| Declaration::new(DataType::Vector(bits), name);
        items.push(Item::Aligned(vec![
            vector(ports, "port_steps"),
            vector(ports, "port_reads"),
            vector(ports, "ports_ready"),
            vector(ports * 32, "port_addresses"),
            vector(ports * 64, "port_words"),
        ]));
        let mut ready = Vec::new();
        for port in 0..ports {
            ready.push(self.port(port, items));
        }
        let all = |suffix: &str| {
            let parts = (0..ports).rev().map(|port| signal(port, suffix));
            Expression::Concatenation(parts.collect())
        };
        let set = |name: &str, value| Item::Assign(Expression::name(name), value);
        items.push(set("port_steps", all("step")));
        items.push(set("port_reads", all("read")));
        items.push(set("port_addresses", all("address")));
        let ready = ready.into_iter().reduce(Expression::and);
        items.push(set(
            "readers_ready",
            ready.unwrap_or(Expression::Fill(true)),
        ));
        items.push(Item::Blank);
        let mut parameters = vec![("PORTS", ports)];
        let small = (0..ports).filter(|port| self.port_words(*port) > 1);
        let count = ports - small.clone().count() as u32;
        let lines = lines(count, self.channels, self.parts);
        if lines != LINES_MIN {
            parameters.push(("LINES", lines));
            parameters.push(("SMALL", small.map(|port| 1 << port).sum()));
        }
        if self.parts {
            parameters.push(("STRIDES", 1));
        }
        items.push(Item::Instance(Instance {
            module: "kernel_readers".to_owned(),
            parameters,
            name: "u_readers".to_owned(),
            connections: vec![Connection::All],
        }));
        items.push(Item::Blank);
    }

    /// The signals of a port; returns whether it is ready.
    fn port(&self, port: u32, items: &mut Vec<Item>) -> Expression {
        let words = self.port_words(port);
        let name = |suffix: &str| format!("port{port}_{suffix}");
        let flags = ["step", "read"].map(name);
        items.push(Item::Declaration(logic(1, &[&flags[0], &flags[1]])));
        items.push(Item::Declaration(logic(32, &[&name("address")])));
        // A part of a part is not legal in SystemVerilog, so each port's word has a name.
        items.push(Item::Declaration(logic(64 * words, &[&port_word(port)])));
        let part = Expression::name("port_words").slice(port * 64 + 63, port * 64);
        let own = Expression::name("ports_ready").bit(port);
        let step = Expression::name("step");
        if words == 1 {
            items.push(Item::Assign(Expression::name(port_word(port)), part));
            items.push(Item::Assign(signal(port, "step"), step));
            return own;
        }
        let flags = ["words_read", "words_ready"].map(name);
        items.push(Item::Declaration(logic(1, &[&flags[0], &flags[1]])));
        items.push(Item::Declaration(logic(32, &[&name("words_address")])));
        items.push(Item::Instance(Instance {
            module: "kernel_words".to_owned(),
            parameters: vec![("WORDS", words)],
            name: format!("u_{}", name("words")),
            connections: vec![
                Connection::Same("clk"),
                Connection::Same("rst"),
                Connection::Same("step"),
                Connection::Port("read_valid", signal(port, "words_read")),
                Connection::Port("read_address", signal(port, "words_address")),
                Connection::Port("words", Expression::name(port_word(port))),
                Connection::Port("ready", signal(port, "words_ready")),
                Connection::Port("port_step", signal(port, "step")),
                Connection::Port("port_valid", signal(port, "read")),
                Connection::Port("port_address", signal(port, "address")),
                Connection::Port("port_word", part),
                Connection::Port("port_ready", own),
            ],
        }));
        signal(port, "words_ready")
    }

    /// The accesses of the ports.
    pub fn reader_inputs(&mut self, items: &mut Vec<Item>) {
        let Some(ports) = self.readers.keys().max().map(|last| last + 1) else {
            return;
        };
        let registered = Registered::new(self.bodies.iter().map(|body| body.function));
        let (mut statements, mut held, mut reset) = (Vec::new(), Vec::new(), Vec::new());
        let mut readers = std::mem::take(&mut self.readers);
        for port in 0..ports {
            let (read, address) = match self.port_words(port) {
                1 if registered.ports.contains(&port) => ("next_read", "next_address"),
                1 => ("read", "address"),
                _ => ("words_read", "words_address"),
            };
            if registered.ports.contains(&port) {
                let name = |suffix: &str| format!("port{port}_{suffix}");
                items.push(Item::Declaration(logic(1, &[&name(read)])));
                items.push(Item::Declaration(logic(32, &[&name(address)])));
                for (to, from) in [("read", read), ("address", address)] {
                    held.push(Statement::register(signal(port, to), signal(port, from)));
                }
                reset.push(Statement::register(
                    signal(port, "read"),
                    Expression::Fill(false),
                ));
            }
            let uses = readers.remove(&port).unwrap_or_default();
            let active = selection::any(uses.iter().map(|u| u.reads.clone()));
            statements.push(Statement::assign(signal(port, read), active));
            let choices = uses.into_iter().map(|u| (u.when, u.address));
            let to = signal(port, address);
            statements.extend(selection::or_any(&to, choices.collect()));
        }
        items.push(Item::Combinational(statements));
        if !held.is_empty() {
            let held = Statement::when(Expression::name("step"), held);
            let reset = Statement::when(Expression::name("rst"), reset);
            items.push(Item::Clocked(vec![held, reset]));
        }
    }
}
