//! Assigns each instruction a step.
//!
//! A block is a sequence of steps, one state each. An instruction is scheduled in the earliest step
//! in which its operands are ready, its combinational path fits a clock, and its resource is free
//! (a memory's port, a unit, the message engines or memory off the chip). A loop of one block
//! becomes a pipeline (modulo scheduling): an iteration begins every `interval` steps, the smallest
//! interval for which values from earlier iterations are ready in time.

use crate::ir::{Binary, Cast, Function, Instruction, Op, Value};
use crate::memory::Memories;
use crate::units::{unit, Unit};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Delays on ECP5 in tenths of a nanosecond. The budget is a clock of 156.25 MHz less a register
/// and its routing.
const BUDGET: u32 = 54;
const REGISTER: u32 = 7;
const MEMORY: u32 = 34;
/// Delay of outputs of the message engines, and the latest time of their inputs.
const PORT: u32 = 28;
const TO_PORT: u32 = 34;
/// Largest interval that is tried.
const INTERVAL_MAX: u32 = 48;
/// Units of one kind that a pipeline may have.
const UNITS_MAX: u32 = 4;

/// A block without calls of functions, except at its end.
#[derive(Clone, Debug, Default)]
pub struct Code {
    pub phis: Vec<(usize, Vec<(usize, Value)>)>,
    pub code: Vec<Instruction>,
    pub end: End,
    pub place: crate::ir::Place,
    pub schedule: Schedule,
}

/// How a block ends.
#[derive(Clone, Debug, Default)]
pub enum End {
    #[default]
    Never,
    Jump(usize),
    Branch(Value, usize, usize),
    Switch(Value, u32, Vec<(u64, usize)>, usize),
    /// Function, arguments, index of the result, following block.
    Call(String, Vec<Value>, Option<usize>, usize),
    Return(Option<Value>),
}

#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// By instruction: its step, and the instance of its unit.
    pub steps: Vec<(u32, u32)>,
    /// By value: the first step in which it is ready.
    pub from: HashMap<usize, u32>,
    /// Number of steps.
    pub length: u32,
    /// Steps between iterations, in a pipeline.
    pub interval: Option<u32>,
}

/// A resource that instructions share.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    Read(usize),
    Write(usize),
    Port,
    Unit(Unit),
}

/// Splits blocks after calls of functions, and updates targets and the sources of phis.
pub fn blocks(function: &Function, functions: &HashSet<String>) -> Vec<Code> {
    let mut out: Vec<Code> = Vec::new();
    let mut last = Vec::new();
    let mut first = Vec::new();
    for block in &function.blocks {
        first.push(out.len());
        let mut code = Code::default();
        for instruction in &block.code {
            if code.place.line == 0 {
                code.place = instruction.place.clone();
            }
            match &instruction.op {
                Op::Phi(from) => {
                    if let Some(result) = instruction.result {
                        code.phis.push((result, from.clone()));
                    }
                }
                Op::Call(name, arguments) if functions.contains(name) => {
                    let arguments = arguments.iter().map(|a| a.1).collect();
                    code.end =
                        End::Call(name.clone(), arguments, instruction.result, out.len() + 1);
                    out.push(std::mem::take(&mut code));
                    code.place = instruction.place.clone();
                }
                Op::Jump(to) => code.end = End::Jump(*to),
                Op::Branch(c, a, b) => code.end = End::Branch(*c, *a, *b),
                Op::Switch(v, bits, cases, to) => {
                    code.end = End::Switch(*v, *bits, cases.clone(), *to)
                }
                Op::Return(v) => code.end = End::Return(*v),
                Op::Unreachable => code.end = End::Never,
                _ => code.code.push(instruction.clone()),
            }
        }
        last.push(out.len());
        out.push(code);
    }
    for code in &mut out {
        for (_, from) in &mut code.phis {
            from.iter_mut().for_each(|f| f.0 = last[f.0]);
        }
        match &mut code.end {
            End::Jump(to) => *to = first[*to],
            End::Branch(_, a, b) => (*a, *b) = (first[*a], first[*b]),
            End::Switch(_, _, cases, to) => {
                cases.iter_mut().for_each(|c| c.1 = first[c.1]);
                *to = first[*to];
            }
            _ => {}
        }
    }
    out
}

impl Code {
    /// Whether the block is a loop.
    pub fn loops(&self, at: usize) -> bool {
        matches!(self.end, End::Branch(_, a, b) if (a == at) != (b == at))
    }
}

/// Combinational delay in tenths of a nanosecond; 0 for wiring.
fn delay(function: &Function, instruction: &Instruction) -> u32 {
    let bits = |v: &Value| match v {
        Value::Local(v) => function.values[*v].ty.bits().unwrap_or(32),
        _ => 32,
    };
    let own = instruction
        .result
        .and_then(|r| function.values[r].ty.bits())
        .unwrap_or(32);
    let constant = |v: &Value| !matches!(v, Value::Local(_));
    match &instruction.op {
        Op::Binary(Binary::Add | Binary::Sub, ..) => 14 + own / 3,
        Op::Binary(Binary::And | Binary::Or | Binary::Xor, a, b) => {
            if constant(a) || constant(b) {
                4
            } else {
                9
            }
        }
        Op::Binary(Binary::Shl | Binary::Lshr | Binary::Ashr, _, b) if constant(b) => 0,
        Op::Binary(Binary::Shl | Binary::Lshr | Binary::Ashr, ..) => 7 * (32 - own.leading_zeros()),
        Op::Binary(Binary::Umin | Binary::Umax | Binary::Smin | Binary::Smax, ..) => 24 + own / 4,
        Op::Compare(predicate, bits, ..) if predicate.starts_with('f') => 20 + bits / 4,
        Op::Compare(predicate, bits, ..) if predicate == "eq" || predicate == "ne" => 10 + bits / 6,
        Op::Compare(_, bits, ..) => 12 + bits / 3,
        Op::Select(c, _, _) => 9 + bits(c).saturating_sub(1) / 16,
        Op::Address(_, offset, parts) => {
            let scaled = parts.iter().any(|p| p.2.count_ones() != 1);
            let sums = parts.len() as u32 + u32::from(*offset != 0);
            // Bases are constants that are mostly merged with offsets.
            u32::from(sums > 0) * 6 + sums * 12 + if scaled { 30 } else { 0 }
        }
        _ => 0,
    }
}

struct Booking<'a> {
    at: usize,
    memories: &'a Memories,
    interval: Option<u32>,
    taken: HashMap<(Resource, u32), u32>,
    /// By value: the step in which it is ready, and its delay in that step.
    there: HashMap<usize, (u32, u32)>,
    steps: Vec<(u32, u32)>,
}

impl Booking<'_> {
    /// The step in which all operands are ready, and their delay in it.
    fn ready(&self, operands: &[Value]) -> (u32, u32) {
        let (mut step, mut late) = (0, REGISTER);
        for operand in operands {
            let Value::Local(v) = operand else {
                continue;
            };
            let &(s, d) = self.there.get(v).unwrap_or(&(0, REGISTER));
            if s > step {
                (step, late) = (s, d);
            } else if s == step {
                late = late.max(d);
            }
        }
        (step, late)
    }

    fn slot(&self, step: u32) -> u32 {
        self.interval.map_or(step, |i| step % i)
    }

    /// Reserves a resource in the first step from `step` on in which one of `count` instances is
    /// free.
    fn book(&mut self, resource: &Resource, mut step: u32, count: u32) -> Option<(u32, u32)> {
        for _ in 0..256 {
            let slot = self.slot(step);
            let used = self.taken.entry((resource.clone(), slot)).or_insert(0);
            if *used < count {
                *used += 1;
                return Some((step, *used - 1));
            }
            step += 1;
        }
        None
    }
}

/// The name of a call of the message engines, without its prefix.
fn port(op: &Op) -> Option<&str> {
    match op {
        Op::Call(name, _) => name.strip_prefix("hum_port_"),
        _ => None,
    }
}

/// Whether a call waits for its engine, so that its step has no other.
pub fn waits(name: &str) -> bool {
    matches!(
        name,
        "send" | "put" | "sent" | "take" | "get" | "text" | "end"
    )
}

/// Schedules a block, with an interval as a pipeline; `None` if the interval is too short.
fn book(
    function: &Function,
    at: usize,
    code: &Code,
    memories: &Memories,
    own: usize,
    interval: Option<u32>,
) -> Option<Schedule> {
    let mut b = Booking {
        at,
        memories,
        interval,
        taken: HashMap::new(),
        there: HashMap::new(),
        steps: Vec::new(),
    };
    let count = if interval.is_some() { UNITS_MAX } else { 1 };
    // Steps of the last accesses by memory, and of the last call.
    let mut loads: HashMap<usize, u32> = HashMap::new();
    let mut stores: HashMap<usize, u32> = HashMap::new();
    let mut called: Option<u32> = None;
    let mut length = 1;
    for instruction in &code.code {
        let operands = instruction.op.uses();
        let (mut step, mut late) = b.ready(&operands);
        let mut place = 0;
        let mut there = None;
        let limit = |step: &mut u32, late: &mut u32, most: u32| {
            if *late > most {
                *step += 1;
                *late = REGISTER;
            }
        };
        match &instruction.op {
            Op::Load(address, _) | Op::Store(_, address, _, _)
                if b.memories.far(b.at, *address) =>
            {
                limit(&mut step, &mut late, TO_PORT);
                step = step.max(called.map_or(0, |c| c + 1));
                (step, _) = b.book(&Resource::Port, step, 1)?;
                called = Some(step);
                there = Some((step, PORT));
            }
            Op::Load(from, _) => {
                limit(&mut step, &mut late, BUDGET);
                let memory = b.memories.of(b.at, *from)?;
                step = step.max(stores.get(&memory).map_or(0, |s| s + 1));
                (step, _) = b.book(&Resource::Read(memory), step, 1)?;
                let l = loads.entry(memory).or_insert(step);
                *l = (*l).max(step);
                there = Some((step + 1, MEMORY));
            }
            Op::Store(_, to, _, _) => {
                limit(&mut step, &mut late, BUDGET);
                let memory = b.memories.of(b.at, *to)?;
                step = step
                    .max(stores.get(&memory).map_or(0, |s| s + 1))
                    .max(loads.get(&memory).copied().unwrap_or(0));
                (step, _) = b.book(&Resource::Write(memory), step, 1)?;
                stores.insert(memory, step);
            }
            op if port(op).is_some() => {
                let name = port(op).unwrap_or("");
                if waits(name) {
                    limit(&mut step, &mut late, TO_PORT);
                    step = step.max(called.map_or(0, |c| c + 1));
                    (step, _) = b.book(&Resource::Port, step, 1)?;
                    called = Some(step);
                } else {
                    // In the step of the call whose result it reads.
                    step = step.max(called.unwrap_or(0));
                }
                there = Some((step, if name == "rank" { REGISTER } else { PORT }));
            }
            _ => match unit(function, instruction) {
                // A division starts in a step; the next step waits for the result.
                Some(kind) if kind.waits() => {
                    if interval.is_some() {
                        return None;
                    }
                    limit(&mut step, &mut late, BUDGET);
                    step = step.max(called.map_or(0, |c| c + 1));
                    while b.taken.contains_key(&(Resource::Port, step + 1))
                        || b.taken.contains_key(&(Resource::Unit(kind), step))
                    {
                        step += 1;
                    }
                    b.taken.insert((Resource::Port, step + 1), 1);
                    b.taken.insert((Resource::Unit(kind), step), 1);
                    b.taken.insert((Resource::Unit(kind), step + 1), 1);
                    called = Some(step + 1);
                    there = Some((step + 1, REGISTER));
                }
                Some(kind) => {
                    limit(&mut step, &mut late, BUDGET - 14);
                    (step, place) = b.book(&Resource::Unit(kind), step, count)?;
                    there = Some((step + kind.latency(), REGISTER));
                }
                None => {
                    let own = delay(function, instruction);
                    if late + own > BUDGET {
                        step += 1;
                        late = REGISTER;
                    }
                    there = Some((step, late + own));
                }
            },
        }
        if let (Some(result), Some(when)) = (instruction.result, there) {
            b.there.insert(result, when);
            length = length.max(when.0 + 1);
        }
        length = length.max(step + 1);
        b.steps.push((step, place));
    }
    // Values that select the next state must be ready before the end of the last step.
    let decides: Vec<Value> = match &code.end {
        End::Branch(c, _, _) => vec![*c],
        End::Switch(v, _, _, _) => vec![*v],
        End::Return(Some(v)) => vec![*v],
        End::Call(_, arguments, _, _) => arguments.clone(),
        _ => Vec::new(),
    };
    let (step, late) = b.ready(&decides);
    let decided = if late > BUDGET - 8 { step + 1 } else { step };
    length = length.max(decided + 1);
    let from: HashMap<usize, u32> = b.there.iter().map(|(v, t)| (*v, t.0)).collect();
    let schedule = Schedule {
        steps: b.steps,
        from,
        length,
        interval,
    };
    match interval {
        Some(interval) => {
            fits(at, code, memories, own, &schedule, interval, decided).then_some(schedule)
        }
        None => Some(schedule),
    }
}

/// The step of a pipeline at whose end a phi's next value is written.
pub fn renewed(schedule: &Schedule, next: Value) -> u32 {
    match next {
        Value::Local(v) => schedule.from.get(&v).copied().unwrap_or(0),
        _ => 0,
    }
}

/// Whether values of earlier iterations are ready in time, and accesses keep their order.
fn fits(
    at: usize,
    code: &Code,
    memories: &Memories,
    own: usize,
    schedule: &Schedule,
    interval: u32,
    decided: u32,
) -> bool {
    if decided >= interval {
        return false;
    }
    for (phi, from) in &code.phis {
        let Some((_, next)) = from.iter().find(|f| f.0 == own) else {
            return false;
        };
        let renewed = renewed(schedule, *next);
        let early = |step: u32| step + interval < renewed + 1;
        for (instruction, (step, _)) in code.code.iter().zip(&schedule.steps) {
            if instruction.op.uses().contains(&Value::Local(*phi)) && early(*step) {
                return false;
            }
        }
        // Another phi copies it in its first step.
        if code
            .phis
            .iter()
            .any(|(_, f)| f.contains(&(own, Value::Local(*phi))))
            && early(0)
        {
            return false;
        }
        if let End::Branch(Value::Local(c), _, _) = code.end {
            if c == *phi && early(interval - 1) {
                return false;
            }
        }
    }
    let calls: Vec<u32> = (code.code.iter().zip(&schedule.steps))
        .filter(|(i, _)| match i.op {
            Op::Load(a, _) | Op::Store(_, a, _, _) => memories.far(at, a),
            _ => port(&i.op).is_some_and(waits),
        })
        .map(|(_, s)| s.0)
        .collect();
    if calls
        .iter()
        .max()
        .zip(calls.iter().min())
        .is_some_and(|(a, b)| a - b >= interval)
    {
        return false;
    }
    // Accesses to one memory, of different iterations.
    let mut accesses: Vec<(usize, u32, Value, u64, bool)> = Vec::new();
    for (instruction, (step, _)) in code.code.iter().zip(&schedule.steps) {
        let access = match instruction.op {
            Op::Load(a, size) => (a, size, false),
            Op::Store(_, a, size, _) => (a, size, true),
            _ => continue,
        };
        let Some(memory) = memories.of(at, access.0) else {
            return false;
        };
        // Accesses off the chip are calls, which keep their order.
        if memories.all[memory].far {
            continue;
        }
        accesses.push((memory, *step, access.0, access.1, access.2));
    }
    for first in &accesses {
        for second in &accesses {
            if first.0 != second.0 || !(first.4 || second.4) {
                continue;
            }
            let Some(distance) = distance(code, own, (first.2, first.3), (second.2, second.3))
            else {
                continue;
            };
            // The earlier iteration's access comes first; a load returns the contents before a
            // store in the same step.
            let (before, after) = (first.1, distance * interval + second.1);
            let right = if first.4 {
                after > before
            } else {
                after >= before
            };
            if !right {
                return false;
            }
        }
    }
    true
}

/// An address as a sum: base, constant offset, values with their scales, and growth per iteration,
/// all in bytes.
struct Sum {
    base: Value,
    constant: i64,
    parts: BTreeMap<usize, i64>,
    stride: Option<i64>,
}

/// After how many iterations the second access may overlap the first; `None`: never.
fn distance(code: &Code, own: usize, first: (Value, u64), second: (Value, u64)) -> Option<u32> {
    let (a, b) = (sum(code, own, first.0), sum(code, own, second.0));
    let stride = match (a.stride, b.stride) {
        (Some(x), Some(y)) if x == y && a.base == b.base && a.parts == b.parts => x,
        _ => return Some(1),
    };
    (1..=64).find(|k| {
        let apart = b.constant - a.constant + stride * i64::from(*k);
        apart < first.1 as i64 && -apart < second.1 as i64
    })
}

fn sum(code: &Code, own: usize, value: Value) -> Sum {
    let mut total = Sum {
        base: value,
        constant: 0,
        parts: BTreeMap::new(),
        stride: Some(0),
    };
    let mut at = value;
    // Follows chains of addresses.
    for _ in 0..16 {
        let Value::Local(v) = at else {
            break;
        };
        match code
            .code
            .iter()
            .find(|i| i.result == Some(v))
            .map(|i| &i.op)
        {
            Some(Op::Copy(a)) => at = *a,
            Some(Op::Address(base, offset, parts)) => {
                total.constant += offset;
                for (part, _, scale) in parts {
                    let (value, constant) = plain(code, *part);
                    total.constant += constant * scale;
                    if let Value::Local(p) = value {
                        *total.parts.entry(p).or_insert(0) += scale;
                        let step = step(code, own, value);
                        total.stride = total.stride.zip(step).map(|(t, s)| t + s * scale);
                    }
                }
                at = *base;
            }
            _ => break,
        }
    }
    if let Value::Local(_) = at {
        total.stride = total.stride.zip(step(code, own, at)).map(|(t, s)| t + s);
    }
    if let Value::Global(g, o) = at {
        total.constant += o;
        at = Value::Global(g, 0);
    }
    total.base = at;
    total
}

/// Splits a value into another and a constant.
fn plain(code: &Code, value: Value) -> (Value, i64) {
    let Value::Local(v) = value else {
        return (value, 0);
    };
    match code
        .code
        .iter()
        .find(|i| i.result == Some(v))
        .map(|i| &i.op)
    {
        Some(Op::Binary(Binary::Add, a, Value::Bits(n))) => {
            let (a, more) = plain(code, *a);
            (a, more + i64::from(*n as u32 as i32))
        }
        Some(Op::Copy(a)) => plain(code, *a),
        _ => (value, 0),
    }
}

/// Growth of a value per iteration, if constant.
fn step(code: &Code, own: usize, value: Value) -> Option<i64> {
    let Value::Local(v) = value else {
        return Some(0);
    };
    if let Some((_, from)) = code.phis.iter().find(|p| p.0 == v) {
        let next = from.iter().find(|f| f.0 == own)?.1;
        if let Value::Local(n) = next {
            if let Some(Op::Address(base, offset, parts)) = code
                .code
                .iter()
                .find(|i| i.result == Some(n))
                .map(|i| &i.op)
            {
                return (*base == value && parts.is_empty()).then_some(*offset);
            }
        }
        let (base, constant) = plain(code, next);
        return (base == value).then_some(constant);
    }
    match code
        .code
        .iter()
        .find(|i| i.result == Some(v))
        .map(|i| &i.op)
    {
        None => Some(0),
        Some(Op::Cast(Cast::Bits | Cast::Sext, _, a) | Op::Copy(a)) => step(code, own, *a),
        Some(Op::Binary(Binary::Add, a, Value::Bits(_))) => step(code, own, *a),
        _ => None,
    }
}

/// Schedules all blocks of a function; `at`: its index in the module.
pub fn function(
    function: &Function,
    at: usize,
    codes: &mut [Code],
    memories: &Memories,
) -> Option<()> {
    for (own, code) in codes.iter_mut().enumerate() {
        let straight = book(function, at, code, memories, own, None)?;
        let mut best = straight;
        if code.loops(own) {
            let most = best.length.min(INTERVAL_MAX);
            if let Some(pipeline) = (1..most)
                .find_map(|interval| book(function, at, code, memories, own, Some(interval)))
            {
                best = pipeline;
            }
        }
        code.schedule = best;
    }
    Some(())
}
