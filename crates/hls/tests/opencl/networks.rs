//! Random networks of kernels that channels connect, also in circles: the same bytes from the
//! simulated hardware and from a model that executes one statement of a kernel after the other, with
//! channels of their declared depth. A network that ends in the model must end in hardware.

use super::launch::{Argument, End, Launch, Outcome, Program};
use super::reference::difference;
use std::collections::VecDeque;
use std::fmt::Write;

/// Iterations, or work-items, of each kernel.
const COUNT: i32 = 40;
const VARIABLES: u64 = 4;
const BINS: usize = 8;
const DELAY: usize = 3;
const CYCLES_MAX: u64 = 100_000;

/// A generator of numbers, reproducible by its seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }

    fn variable(&mut self) -> usize {
        self.below(VARIABLES) as usize
    }
}

/// The condition of a statement.
#[derive(Clone, Copy)]
enum When {
    Always,
    /// In iterations from one to another, those whose number has these bits under a mask.
    Iterations(i32, i32, i32, i32),
    /// If a variable is odd.
    Odd(usize),
    /// If a variable is odd, or another one has two bits.
    Either(usize, usize),
}

#[derive(Clone, Copy)]
enum Statement {
    /// Variables, and a number.
    Add(usize, usize, i32),
    Multiply(usize, usize, usize),
    Mix(usize, usize, usize),
    Index(usize),
    Load(usize),
    /// Adds a variable to an element of an array, and returns the sum.
    Count(usize, usize),
    /// Adds a variable to the sum of three such statements before, and keeps the sum.
    Delay(usize, usize),
    Read(usize, usize),
    /// Reads a channel to one variable if another is odd, or else to a third one.
    ReadTo(usize, usize, usize, usize),
    Write(usize, usize),
}

use Statement::{Add, Count, Delay, Index, Load, Mix, Multiply, Read, ReadTo};

struct Kernel {
    /// Whether the iterations are work-items.
    items: bool,
    /// The first elements of delays.
    delayed: [i32; DELAY],
    code: Vec<(When, Statement)>,
}

struct Network {
    depths: Vec<usize>,
    kernels: Vec<Kernel>,
}

impl Network {
    fn new(seed: u64) -> Network {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let count = 2 + chance.below(3) as usize;
        let mut depths = Vec::new();
        let mut channel = |chance: &mut Chance| {
            depths.push([0, 0, 1, 2, 5, 20][chance.below(6) as usize]);
            depths.len() - 1
        };
        let (mut starts, mut ends) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for at in 1..count {
            for _ in 0..1 + chance.below(2) {
                let own = channel(&mut chance);
                let mask = [0, 0, 1, 3][chance.below(4) as usize];
                let when = When::Iterations(0, COUNT, mask, chance.below(4) as i32 & mask);
                let (from, to) = (chance.variable(), chance.variable());
                ends[at - 1].push(vec![(when, Statement::Write(own, from))]);
                let read = match chance.below(4) {
                    0 => ReadTo(own, chance.variable(), to, chance.variable()),
                    _ => Read(own, to),
                };
                starts[at].push(vec![(when, read)]);
            }
            if chance.below(3) == 0 {
                // The first element decides whether there is a second one.
                let (own, other) = (channel(&mut chance), channel(&mut chance));
                let (from, to, more) = (chance.variable(), chance.variable(), chance.variable());
                ends[at - 1].push(vec![
                    (When::Always, Statement::Write(own, from)),
                    (When::Odd(from), Statement::Write(other, more)),
                ]);
                starts[at].push(vec![
                    (When::Always, Read(own, to)),
                    (When::Odd(to), Read(other, more)),
                ]);
            }
            if chance.below(2) == 0 {
                let (own, late) = (channel(&mut chance), 1 + chance.below(4) as i32);
                let first = When::Iterations(late, COUNT, 0, 0);
                let last = When::Iterations(0, COUNT - late, 0, 0);
                starts[at - 1].push(vec![(first, Read(own, chance.variable()))]);
                ends[at].push(vec![(last, Statement::Write(own, chance.variable()))]);
            }
        }
        let mut kernels = Vec::new();
        for (start, end) in starts.into_iter().zip(ends) {
            let items = chance.below(3) == 0;
            let mut parts = start;
            for _ in 0..2 + chance.below(5) {
                parts.push(vec![chance.computation(items)]);
            }
            parts.extend(end);
            // Some operations change places.
            for _ in 0..chance.below(3) {
                let at = chance.below(parts.len() as u64 - 1) as usize;
                parts.swap(at, at + 1);
            }
            kernels.push(Kernel {
                items,
                delayed: [[7; DELAY], [1, 2, 3]][chance.below(2) as usize],
                code: parts.concat(),
            });
        }
        Network { depths, kernels }
    }

    /// The program.
    fn source(&self) -> String {
        let mut out = "#pragma OPENCL EXTENSION cl_intel_channels : enable\n".to_owned();
        for (at, depth) in self.depths.iter().enumerate() {
            writeln!(out, "channel int c{at} __attribute__((depth({depth})));").unwrap();
        }
        for (at, kernel) in self.kernels.iter().enumerate() {
            let arguments = "global const int *restrict in, global int *restrict out, int n";
            writeln!(out, "kernel void k{at}({arguments})\n{{").unwrap();
            let variables: Vec<String> = (0..VARIABLES).map(|v| format!("v{v} = {v}")).collect();
            writeln!(out, "int {};", variables.join(", ")).unwrap();
            if kernel.items {
                writeln!(out, "int i = get_global_id(0);\n{{").unwrap();
            } else {
                let [a, b, c] = kernel.delayed;
                writeln!(out, "int d0 = {a}, d1 = {b}, d2 = {c}, bins[{BINS}];").unwrap();
                writeln!(out, "for (int b = 0; b < {BINS}; b++) bins[b] = 0;").unwrap();
                writeln!(out, "for (int i = 0; i < n; i++) {{").unwrap();
            }
            for (when, statement) in &kernel.code {
                writeln!(out, "{}{}", when.text(), statement.text()).unwrap();
            }
            writeln!(out, "out[i] = v0 ^ v1 << 3 ^ v2;\n}}\n}}").unwrap();
        }
        out
    }

    /// By kernel: its output; `None`: the kernels wait for each other.
    fn expected(&self, input: &[i32]) -> Option<Vec<Vec<i32>>> {
        let mut channels = vec![VecDeque::new(); self.depths.len()];
        let mut states: Vec<State> = self.kernels.iter().map(State::new).collect();
        loop {
            let mut moved = false;
            for (kernel, state) in self.kernels.iter().zip(&mut states) {
                while state.step(kernel, input, &mut channels, &self.depths) {
                    moved = true;
                }
            }
            if states.iter().all(|s| s.i == COUNT) {
                return Some(states.into_iter().map(|s| s.out).collect());
            }
            if !moved {
                return None;
            }
        }
    }
}

impl Chance {
    fn computation(&mut self, items: bool) -> (When, Statement) {
        let when = match self.below(5) {
            0 => When::Odd(self.variable()),
            1 => When::Either(self.variable(), self.variable()),
            2 => When::Iterations(0, COUNT, 1, self.below(2) as i32),
            _ => When::Always,
        };
        let (to, a, b) = (self.variable(), self.variable(), self.variable());
        let statement = match self.below(8) {
            0 | 1 => Add(to, a, self.below(100) as i32 - 50),
            2 => Multiply(to, a, b),
            3 => Mix(to, a, b),
            4 => Index(to),
            5 => Load(to),
            _ if items => Mix(to, b, a),
            6 => Delay(to, a),
            _ => Count(to, a),
        };
        (when, statement)
    }
}

impl When {
    fn text(self) -> String {
        match self {
            When::Always => String::new(),
            When::Iterations(from, to, mask, bits) => {
                format!("if (i >= {from} && i < {to} && (i & {mask}) == {bits}) ")
            }
            When::Odd(v) => format!("if (v{v} & 1) "),
            When::Either(a, b) => format!("if ((v{a} & 1) || (v{b} & 6) == 6) "),
        }
    }

    fn holds(self, i: i32, variables: &[i32]) -> bool {
        match self {
            When::Always => true,
            When::Iterations(from, to, mask, bits) => (from..to).contains(&i) && i & mask == bits,
            When::Odd(v) => variables[v] & 1 == 1,
            When::Either(a, b) => variables[a] & 1 == 1 || variables[b] & 6 == 6,
        }
    }
}

impl Statement {
    fn text(self) -> String {
        match self {
            Add(to, a, n) => format!("v{to} = (int)((uint)v{a} + (uint)({n}));"),
            Multiply(to, a, b) => format!("v{to} = (v{a} & 0x7fff) * (v{b} & 0x7fff);"),
            Mix(to, a, b) => format!("v{to} = v{a} ^ (int)((uint)v{b} >> 5);"),
            Index(to) => format!("v{to} = i;"),
            Load(to) => format!("v{to} = in[i];"),
            Count(to, a) => format!("v{to} = bins[v{a} & {}] += v{a} & 0xff;", BINS - 1),
            Delay(to, a) => {
                let sum = format!("v{to} = (int)((uint)v{a} + (uint)d2)");
                format!("{{ {sum}; d2 = d1; d1 = d0; d0 = v{to}; }}")
            }
            Read(channel, to) => format!("v{to} = read_channel_intel(c{channel});"),
            ReadTo(channel, odd, a, b) => {
                let read = format!("read_channel_intel(c{channel})");
                format!("{{ if (v{odd} & 1) v{a} = (int)((uint){read} + 1); else v{b} = {read}; }}")
            }
            Statement::Write(channel, from) => {
                format!("write_channel_intel(c{channel}, v{from});")
            }
        }
    }
}

/// The state of a kernel in the model.
struct State {
    i: i32,
    at: usize,
    variables: Vec<i32>,
    bins: [i32; BINS],
    delayed: [i32; DELAY],
    out: Vec<i32>,
}

impl State {
    fn new(kernel: &Kernel) -> State {
        State {
            delayed: kernel.delayed,
            i: 0,
            at: 0,
            variables: (0..VARIABLES as i32).collect(),
            bins: [0; BINS],
            out: Vec::new(),
        }
    }

    /// Executes a statement; returns whether that was possible.
    fn step(
        &mut self,
        kernel: &Kernel,
        input: &[i32],
        channels: &mut [VecDeque<i32>],
        depths: &[usize],
    ) -> bool {
        if self.i == COUNT {
            return false;
        }
        let Some((when, statement)) = kernel.code.get(self.at) else {
            let v = &self.variables;
            self.out.push(v[0] ^ v[1] << 3 ^ v[2]);
            (self.i, self.at) = (self.i + 1, 0);
            if kernel.items {
                self.variables = State::new(kernel).variables;
            }
            return true;
        };
        if !when.holds(self.i, &self.variables) {
            self.at += 1;
            return true;
        }
        let i = self.i;
        let v = &mut self.variables;
        match *statement {
            Add(to, a, n) => v[to] = v[a].wrapping_add(n),
            Multiply(to, a, b) => v[to] = (v[a] & 0x7fff) * (v[b] & 0x7fff),
            Mix(to, a, b) => v[to] = v[a] ^ (v[b] as u32 >> 5) as i32,
            Index(to) => v[to] = i,
            Load(to) => v[to] = input[i as usize],
            Count(to, a) => {
                let bin = &mut self.bins[v[a] as usize % BINS];
                *bin = bin.wrapping_add(v[a] & 0xff);
                v[to] = *bin;
            }
            Delay(to, a) => {
                v[to] = v[a].wrapping_add(self.delayed[DELAY - 1]);
                self.delayed.rotate_right(1);
                self.delayed[0] = v[to];
            }
            Read(channel, to) => match channels[channel].pop_front() {
                Some(element) => v[to] = element,
                None => return false,
            },
            ReadTo(channel, odd, a, b) => match channels[channel].pop_front() {
                Some(element) if v[odd] & 1 == 1 => v[a] = element.wrapping_add(1),
                Some(element) => v[b] = element,
                None => return false,
            },
            Statement::Write(channel, from) => {
                if channels[channel].len() >= depths[channel].max(1) {
                    return false;
                }
                channels[channel].push_back(v[from]);
            }
        }
        self.at += 1;
        true
    }
}

/// The outputs of a network in simulation, and the outcomes of its kernels.
fn simulated(network: &Network, program: &Program, input: &[i32]) -> (Vec<Vec<u8>>, Vec<Outcome>) {
    let input: Vec<u8> = input.iter().flat_map(|n| n.to_le_bytes()).collect();
    let count = COUNT as usize;
    let mut out = vec![vec![0; 4 * count]; network.kernels.len()];
    let names: Vec<String> = (0..out.len()).map(|k| format!("k{k}")).collect();
    let buffers = out.iter_mut().map(|out| {
        [
            Argument::ReadOnly(&input),
            Argument::Buffer(out),
            Argument::Word(COUNT as u64),
        ]
    });
    let mut arguments: Vec<_> = buffers.collect();
    let kernels = network.kernels.iter().zip(&names).zip(&mut arguments);
    let launches = kernels.map(|((kernel, name), arguments)| Launch {
        name,
        after: 0,
        sizes: [
            [if kernel.items { COUNT as u64 } else { 1 }, 1, 1],
            [0; 3],
            [1; 3],
        ],
        arguments,
    });
    let outcomes = program.run_together(CYCLES_MAX, launches.collect());
    drop(arguments);
    (out, outcomes)
}

/// The difference of the results of a seed's network; `None`: none. Returns nothing for a network
/// whose kernels wait for each other in the model.
fn compare(seed: u64) -> Option<Option<String>> {
    let network = Network::new(seed);
    let mut chance = Chance(seed + 77);
    let input: Vec<i32> = (0..COUNT).map(|_| chance.below(1 << 32) as i32).collect();
    let expected = network.expected(&input)?;
    let program = match Program::try_new(&network.source(), &[]) {
        Ok(program) => program,
        Err(error) => return Some(Some(error.log)),
    };
    let (out, outcomes) = simulated(&network, &program, &input);
    for (kernel, outcome) in outcomes.iter().enumerate() {
        if outcome.end != End::Done {
            let text = format!("k{kernel}: {:?}, waits {:?}", outcome.end, outcome.waits);
            return Some(Some(text));
        }
    }
    for (kernel, (out, expected)) in out.iter().zip(expected).enumerate() {
        let expected: Vec<u8> = expected.iter().flat_map(|n| n.to_le_bytes()).collect();
        if let Some(text) = difference(out, &expected) {
            return Some(Some(format!("k{kernel}: {text}")));
        }
    }
    let kernels = &program.accelerator.manifest.kernels;
    let loops = kernels.iter().flat_map(|k| &k.report.loops);
    let intervals: Vec<u32> = loops.map(|l| l.interval).collect();
    let cycles = outcomes.iter().map(|o| o.cycles).max();
    println!("seed {seed}: {cycles:?} cycles, intervals {intervals:?}");
    Some(None)
}

/// `NETWORKS_SEED` and `NETWORKS_ROUNDS` select the first seed and the number of networks.
#[test]
fn random_networks_of_kernels_have_the_results_of_a_model() {
    let number = |name: &str, other: u64| {
        let text = std::env::var(name).ok();
        text.and_then(|n| n.parse().ok()).unwrap_or(other)
    };
    let (mut seed, rounds) = (number("NETWORKS_SEED", 1), number("NETWORKS_ROUNDS", 3));
    let mut wrong = Vec::new();
    for _ in 0..rounds {
        let result = loop {
            match compare(seed) {
                Some(result) => break result,
                None => seed += 1,
            }
        };
        if let Some(text) = result {
            let file = std::env::temp_dir().join(format!("baltra-network-{seed}.cl"));
            std::fs::write(&file, Network::new(seed).source()).unwrap();
            wrong.push(format!("seed {seed}: {text}: {}", file.display()));
            println!("{}", wrong.last().unwrap());
        }
        seed += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
