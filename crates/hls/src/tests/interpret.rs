//! Interprets a kernel's lowered instructions, each access in the memory that the analysis assigns.
//! Random programs print the same as processes and when interpreted.

use super::chance::Chance;
use crate::ir::{
    masked, signed, BinaryOp, BlockId, Callee, Cast, EngineCall, FloatOrder, FloatPredicate,
    FunctionId, Instruction, IntPredicate, Module, Op, Predicate, Type, Value, ValueId,
};
use crate::memory::{Memories, MemoryId};
use crate::synthesis::instructions;
use crate::Kernel;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// More steps than any of the programs executes.
const STEPS_MAX: u64 = 200_000_000;

pub struct Machine<'a> {
    module: &'a Module,
    memories: &'a Memories,
    contents: Vec<Vec<u8>>,
    text: Vec<u8>,
    steps: u64,
    /// An OpenCL kernel's argument block, and its buffers by their number less one.
    pub words: Vec<u64>,
    pub buffers: Vec<Vec<u8>>,
}

/// The kernel's end, with its exit status.
#[derive(Debug)]
pub struct End(pub u64);

/// The buffer of an address, and the offset in it.
fn place(address: u64) -> (usize, usize) {
    ((address >> 28) as usize, (address & 0xfff_ffff) as usize)
}

fn float(bits: u32, value: u64) -> f64 {
    match bits {
        32 => f64::from(f32::from_bits(value as u32)),
        _ => f64::from_bits(value),
    }
}

impl<'a> Machine<'a> {
    pub fn new(module: &'a Module, memories: &'a Memories) -> Machine<'a> {
        Machine {
            module,
            memories,
            contents: memories.all.iter().map(|m| m.bytes.clone()).collect(),
            text: Vec::new(),
            steps: 0,
            words: Vec::new(),
            buffers: Vec::new(),
        }
    }

    pub fn call(&mut self, at: FunctionId, arguments: &[u64]) -> Result<u64, End> {
        let function = &self.module[at];
        let mut values = vec![0_u64; function.values.len()];
        values[..arguments.len()].copy_from_slice(arguments);
        let bits = |v: ValueId| function[v].ty.bits().unwrap_or(64);
        let (mut block, mut before) = (BlockId(0), BlockId(0));
        'blocks: loop {
            let code = &function[block].code;
            // Phis are evaluated before any of them changes.
            let mut phis = Vec::new();
            for instruction in code {
                let (Op::Phi(from), Some(result)) = (&instruction.op, instruction.result) else {
                    break;
                };
                let value = from.iter().find(|f| f.0 == before);
                let value = value.map_or(Value::Undef, |f| f.1);
                phis.push((result, self.value(&values, value, bits(result))));
            }
            for &(result, value) in &phis {
                values[result.0] = value;
            }
            for instruction in &code[phis.len()..] {
                self.steps += 1;
                assert!(self.steps < STEPS_MAX, "an endless program");
                let see = |value: Value, bits: u32| self.value(&values, value, bits);
                match &instruction.op {
                    Op::Jump(to) => {
                        (before, block) = (block, *to);
                        continue 'blocks;
                    }
                    Op::Branch(c, yes, no) => {
                        let to = if see(*c, 1) == 1 { *yes } else { *no };
                        (before, block) = (block, to);
                        continue 'blocks;
                    }
                    Op::Switch {
                        value: v,
                        bits,
                        cases,
                        default,
                    } => {
                        let value = see(*v, *bits);
                        let case = cases.iter().find(|c| masked(c.0, *bits) == value);
                        (before, block) = (block, case.map_or(*default, |c| c.1));
                        continue 'blocks;
                    }
                    Op::Return(value) => {
                        let bits = function.result.bits().unwrap_or(64);
                        return Ok(value.map_or(0, |v| see(v, bits)));
                    }
                    Op::Unreachable => panic!("{}: unreachable code is reached", function.name),
                    _ => {}
                }
                let result = self.result(at, &values, instruction)?;
                if let Some(v) = instruction.result {
                    values[v.0] = masked(result, bits(v));
                }
            }
            panic!("{}: a block without an end", function.name);
        }
    }

    /// The result of an instruction that does not end a block.
    fn result(
        &mut self,
        at: FunctionId,
        values: &[u64],
        instruction: &Instruction,
    ) -> Result<u64, End> {
        let function = &self.module[at];
        let bits = |v: ValueId| function[v].ty.bits().unwrap_or(64);
        let own = instruction.result.map_or(64, bits);
        let wide = |value: Value, other: u32| match value {
            Value::Local(v) => bits(v),
            _ => other,
        };
        let see = |m: &Self, value: Value, bits: u32| m.value(values, value, bits);
        Ok(match &instruction.op {
            Op::Call(callee, arguments) => {
                let value =
                    |(ty, value): &(Type, Value)| see(self, *value, ty.bits().unwrap_or(64));
                let arguments: Vec<u64> = arguments.iter().map(value).collect();
                match callee {
                    Callee::Function(f) => self.call(*f, &arguments)?,
                    Callee::Engine(call) => self.engine_call(*call, &arguments)?,
                    other => panic!("call of '{other:?}' is not resolved"),
                }
            }
            Op::Load(from, size, _) => self.load(at, *from, see(self, *from, 32), *size),
            Op::Store {
                value,
                address: to,
                size,
                condition: when,
            } => {
                let address = see(self, *to, 32);
                let value = see(self, *value, *size as u32 * 8);
                if when.is_none_or(|w| see(self, w, 1) == 1) {
                    self.store(at, *to, address, *size, value);
                }
                0
            }
            Op::Address {
                base,
                offset,
                indices,
            } => {
                let mut sum = see(self, *base, 32).wrapping_add(*offset as u64);
                for index in indices {
                    let value = see(self, index.value, index.bits);
                    let value = signed(value, index.bits) as u64;
                    sum = sum.wrapping_add(value.wrapping_mul(index.scale as u64));
                }
                sum
            }
            Op::Binary(op, a, b) => {
                let ty = instruction.result.map(|r| &function[r].ty);
                let (a, b) = (see(self, *a, own), see(self, *b, own));
                match ty {
                    Some(Type::Float(_)) => floats(*op, own, a, b),
                    _ => integers(*op, own, a, b),
                }
            }
            Op::Compare {
                predicate,
                bits,
                left: a,
                right: b,
            } => {
                let (a, b) = (see(self, *a, *bits), see(self, *b, *bits));
                u64::from(compare(*predicate, *bits, a, b))
            }
            Op::Select(c, a, b) => {
                let chosen = if see(self, *c, 1) == 1 { *a } else { *b };
                see(self, chosen, own)
            }
            Op::Cast(cast, from, a) => {
                let from = wide(*a, *from);
                convert(*cast, from, own, see(self, *a, from))
            }
            Op::Fneg(a) => see(self, *a, own) ^ 1 << (own - 1),
            Op::Fabs(a) => see(self, *a, own) & !(1 << (own - 1)),
            Op::Copy(a) => see(self, *a, own),
            other => panic!("{other:?}"),
        })
    }

    fn value(&self, values: &[u64], value: Value, bits: u32) -> u64 {
        let value = match value {
            Value::Local(v) => values[v.0],
            Value::Bits(n) => n,
            Value::Global(g, o) => self.memories.offset(g).wrapping_add(o as u64),
            Value::Null | Value::Undef => 0,
            Value::Aggregate(_) => panic!("a structure in a register"),
        };
        masked(value, bits)
    }

    fn engine_call(&mut self, call: EngineCall, arguments: &[u64]) -> Result<u64, End> {
        match call {
            EngineCall::Text => self.text.push(arguments[0] as u8),
            EngineCall::End => return Err(End(arguments[0])),
            EngineCall::Rank | EngineCall::Start => {}
            EngineCall::Word => return Ok(self.words[arguments[0] as usize] >> arguments[1]),
            EngineCall::Cycles => return Ok(self.steps),
            other => panic!("{other:?} without an engine"),
        }
        Ok(0)
    }

    fn memory(&self, at: FunctionId, address: Value) -> MemoryId {
        self.memories.of(at, address).expect("a memory")
    }

    /// A speculative load may be outside of its memory.
    fn load(&self, at: FunctionId, from: Value, address: u64, size: u64) -> u64 {
        let memory = self.memory(at, from);
        let bytes = if self.memories.far(at, from) {
            let (buffer, offset) = place(address);
            let buffer = buffer.checked_sub(1).and_then(|b| self.buffers.get(b));
            buffer.and_then(|b| b.get(offset..offset + size as usize))
        } else {
            self.contents[memory.0].get(address as usize..(address + size) as usize)
        };
        let bytes = bytes.unwrap_or_default().iter().rev();
        bytes.fold(0, |all, byte| all << 8 | u64::from(*byte))
    }

    fn store(&mut self, at: FunctionId, to: Value, address: u64, size: u64, value: u64) {
        let memory = self.memory(at, to);
        let bytes = if self.memories.far(at, to) {
            let (buffer, offset) = place(address);
            let buffer = buffer.checked_sub(1).and_then(|b| self.buffers.get_mut(b));
            buffer.and_then(|b| b.get_mut(offset..offset + size as usize))
        } else {
            self.contents[memory.0].get_mut(address as usize..(address + size) as usize)
        };
        let bytes = bytes.expect("an address in its memory");
        bytes.copy_from_slice(&value.to_le_bytes()[..size as usize]);
    }
}

fn integers(op: BinaryOp, bits: u32, a: u64, b: u64) -> u64 {
    let (x, y) = (signed(a, bits), signed(b, bits));
    let out = b >= u64::from(bits);
    match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Udiv => a.checked_div(b).unwrap_or(0),
        BinaryOp::Urem => a.checked_rem(b).unwrap_or(0),
        BinaryOp::Sdiv => x.checked_div(y).unwrap_or(0) as u64,
        BinaryOp::Srem => x.checked_rem(y).unwrap_or(0) as u64,
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl | BinaryOp::Lshr if out => 0,
        BinaryOp::Shl => a << b,
        BinaryOp::Lshr => a >> b,
        BinaryOp::Ashr => (x >> b.min(63)) as u64,
        BinaryOp::Umin => a.min(b),
        BinaryOp::Umax => a.max(b),
        BinaryOp::Smin => x.min(y) as u64,
        BinaryOp::Smax => x.max(y) as u64,
        other => panic!("{other:?} of integers"),
    }
}

fn floats(op: BinaryOp, bits: u32, a: u64, b: u64) -> u64 {
    if bits == 32 {
        let (a, b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
        let value = match op {
            BinaryOp::Fadd => a + b,
            BinaryOp::Fsub => a - b,
            _ => a * b,
        };
        return u64::from(value.to_bits());
    }
    let (a, b) = (f64::from_bits(a), f64::from_bits(b));
    let value = match op {
        BinaryOp::Fadd => a + b,
        BinaryOp::Fsub => a - b,
        _ => a * b,
    };
    value.to_bits()
}

fn compare(predicate: Predicate, bits: u32, a: u64, b: u64) -> bool {
    match predicate {
        Predicate::Float(FloatPredicate { order, unordered }) => {
            let Some(found) = float(bits, a).partial_cmp(&float(bits, b)) else {
                return unordered;
            };
            match order {
                FloatOrder::Never => false,
                FloatOrder::Equal => found.is_eq(),
                FloatOrder::NotEqual => found.is_ne(),
                FloatOrder::Less => found.is_lt(),
                FloatOrder::LessEqual => found.is_le(),
                FloatOrder::Greater => found.is_gt(),
                FloatOrder::GreaterEqual => found.is_ge(),
                FloatOrder::Always => true,
            }
        }
        Predicate::Int(predicate) => {
            let order = |is_signed: bool| {
                if is_signed {
                    signed(a, bits).cmp(&signed(b, bits))
                } else {
                    a.cmp(&b)
                }
            };
            match predicate {
                IntPredicate::Equal => a == b,
                IntPredicate::NotEqual => a != b,
                IntPredicate::Less { signed } => order(signed).is_lt(),
                IntPredicate::LessEqual { signed } => order(signed).is_le(),
                IntPredicate::Greater { signed } => order(signed).is_gt(),
                IntPredicate::GreaterEqual { signed } => order(signed).is_ge(),
            }
        }
    }
}

fn convert(cast: Cast, from: u32, to: u32, value: u64) -> u64 {
    let rounded = |wide: f64, narrow: f32| match to {
        32 => u64::from(narrow.to_bits()),
        _ => wide.to_bits(),
    };
    match cast {
        Cast::Bits => value,
        Cast::Sext => signed(value, from) as u64,
        Cast::Sitofp => {
            let value = signed(value, from);
            rounded(value as f64, value as f32)
        }
        Cast::Uitofp => rounded(value as f64, value as f32),
        Cast::Fptosi => float(from, value) as i64 as u64,
        Cast::Fptoui => float(from, value) as u64,
        Cast::Fpext => float(32, value).to_bits(),
        Cast::Fptrunc => u64::from((f64::from_bits(value) as f32).to_bits()),
    }
}

/// The output of a program when interpreted.
fn interpreted(source: &Path, work: &Path) -> String {
    let kernel = Kernel {
        name: "msg_chance".to_owned(),
        sources: vec![source.to_owned()],
        first: 0,
        copies: 1,
        ranks: 1,
        streams: None,
        arguments: None,
        environment: Vec::new(),
        memory: 0,
        humboldt: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../humboldt"),
        work: work.to_owned(),
    };
    let ir = kernel.ir().unwrap_or_else(|e| panic!("{e:#}"));
    let (module, memories) = instructions(&ir, 0).unwrap_or_else(|e| panic!("{e}"));
    let mut machine = Machine::new(&module, &memories);
    if let Err(End(code)) = machine.call(FunctionId(0), &[]) {
        assert_eq!(code, 0);
    }
    String::from_utf8_lossy(&machine.text).into_owned()
}

/// The output of a program as a process.
fn run(source: &Path, work: &Path) -> String {
    let program = work.join("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-w", "-ffp-contract=off", "-o"]);
    let compiled = compiler.arg(&program).arg(source).status().unwrap();
    assert!(compiled.success());
    let ran = Command::new(&program).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// `FORMS_SEED` and `FORMS_ROUNDS` select the first seed and the number of programs.
#[test]
fn random_programs_print_the_same_as_processes() {
    let number = |name: &str, other: u64| {
        let text = std::env::var(name).ok();
        text.and_then(|n| n.parse().ok()).unwrap_or(other)
    };
    let (seed, rounds) = (number("FORMS_SEED", 1), number("FORMS_ROUNDS", 12));
    for round in seed..seed + rounds {
        let work: PathBuf =
            std::env::temp_dir().join(format!("baltra-hls-{}-{round}", std::process::id()));
        fs::create_dir_all(&work).unwrap();
        let source = work.join("chance.c");
        fs::write(&source, Chance::new(round).program(false)).unwrap();
        let (process, hardware) = (run(&source, &work), interpreted(&source, &work));
        assert!(process.contains("sum"), "{process}");
        assert_eq!(hardware, process, "seed {round}: {}", source.display());
        fs::remove_dir_all(&work).unwrap();
    }
}
