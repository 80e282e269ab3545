//! Assigns each instruction a step.
//!
//! A block is a sequence of steps, one state each. An instruction is scheduled in the earliest step
//! in which its operands are ready, its combinational path fits a clock, and its resource is free
//! (a memory's port, a unit, the message engines or memory off the chip). A loop of one block
//! becomes a pipeline (modulo scheduling): an iteration begins every `interval` steps, the smallest
//! interval for which values from earlier iterations are ready in time.

mod carried;
mod channels;
mod code;
mod delay;
mod late;
mod overlap;
mod tight;

use crate::ir::{
    BlockId, Callee, EngineCall, Function, FunctionId, Instruction, Op, Value, ValueId,
};
use crate::memory::{Bits, Memories, MemoryId};
use crate::units::{unit, unit_uses, units_max, Registered, Unit, UNITS_MAX};
use channels::ChannelSteps;
pub use code::{blocks, Code, End, Schedule};
use overlap::distance;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;
use tight::Carried;

/// Delays on ECP5 in tenths of a nanosecond. The budget is a clock of 156.25 MHz less a register
/// and its routing.
const BUDGET: u32 = 54;
const REGISTER: u32 = 7;
const MEMORY: u32 = 34;
/// Delay of outputs of the message engines, and the latest time of their inputs.
const PORT: u32 = 28;
const TO_PORT: u32 = 34;
/// Latest time of the operands of a unit.
const TO_UNIT: u32 = 40;
/// Delay of the multiplexer before a port of loads with several uses.
const SELECTION: u32 = 16;
/// Steps after a load by a port of its own until its word is there, in a register
/// (`hdl/kernels/rtl/kernel_reader.sv`).
const READER_STEPS: u32 = 2;
/// The same for a load of several words, before which the kernel waits (`kernel_words.sv`), and for
/// loads by the port of all accesses (`kernel_calls.sv`).
const WORDS_STEPS: u32 = 1;
const LOAD_STEPS: u32 = 3;
/// Delay of the selection of the next state.
const DECISION: u32 = 8;
/// Largest interval that is tried.
const INTERVAL_MAX: u32 = 48;
/// Schedules that are tried until operations on channels are near each other, and phis are read in
/// time.
const ATTEMPTS: u32 = 16;
/// Maximum number of moves of a phi's reads to a later step: with more, they wait for themselves.
const MOVES_MAX: u32 = 3;
/// Steps in which a free resource is searched.
const SEARCH_MAX: u32 = 256;

/// A resource that instructions share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Resource {
    /// Of a memory's bank.
    Read(MemoryId, u32),
    Write(MemoryId, u32),
    Port,
    Reader(u32),
    /// Of the kernel: its number, and whether it writes.
    Channel(u32, bool),
    Unit(Unit),
}

/// Schedules all blocks of a function; `at`: its index in the module; `registered`: the units and
/// ports whose operands come from registers.
pub fn function(
    function: &Function,
    at: FunctionId,
    codes: &mut [Code],
    memories: &Memories,
    registered: &Registered,
) -> Option<()> {
    let uses = Uses::new(function, codes);
    let bits = Bits::new(function);
    for (own, code) in codes.iter_mut().enumerate() {
        let own = BlockId(own);
        let block = Block {
            function,
            at,
            code,
            own,
            memories,
            uses: &uses,
            registered,
            bits: &bits,
        };
        let (_, mut best) = block.schedule(Form::default(), &[])?;
        if block.code.loops(own) {
            // As a pipeline, a loop over work-items takes one state also without a shorter interval.
            let end = best.length + u32::from(code.independent);
            let end = end.min(INTERVAL_MAX);
            let find = |end, carried: &_| (1..end).find_map(|i| block.pipeline(i, carried));
            let mut found = find(end, &None);
            let found_interval = |found: &Option<(Form, Schedule)>| {
                found.as_ref().and_then(|(_, schedule)| schedule.interval)
            };
            let end = found_interval(&found).unwrap_or(end);
            if end > 1 {
                let carried = Some(Rc::new(block.carried()));
                found = find(end, &carried).or(found);
            }
            if let Some((form, pipeline)) = found {
                best = block.load_late(&pipeline, form).unwrap_or(pipeline);
            }
        }
        let limit = best.interval.map_or("", |interval| block.limit(interval));
        code.limit = limit;
        code.schedule = best;
    }
    Some(())
}

/// By kind of unit, and by port of loads: the instructions of a function that use it.
struct Uses {
    units: HashMap<Unit, u32>,
    readers: HashMap<u32, u32>,
    /// Ports whose loads are of several words.
    words: HashSet<u32>,
}

impl Uses {
    fn new(function: &Function, codes: &[Code]) -> Uses {
        let all = || codes.iter().flat_map(|code| &code.code);
        let mut readers = HashMap::new();
        let first = all().filter(|instruction| instruction.reader_word == 0);
        for port in first.filter_map(|instruction| instruction.reader) {
            *readers.entry(port).or_insert(0) += 1;
        }
        let further = all().filter(|instruction| instruction.reader_word > 0);
        Uses {
            units: unit_uses(function, all()),
            readers,
            words: further
                .filter_map(|instruction| instruction.reader)
                .collect(),
        }
    }
}

/// A time: a step, and the delay in it.
type Time = (u32, u32);

/// The form of a block's schedule.
#[derive(Clone, Default)]
struct Form {
    /// As a pipeline: its interval.
    interval: Option<u32>,
    /// See [`Schedule::repeats`].
    repeats: bool,
    /// The first step of operations on channels, except for those with which iterations begin.
    channels_from: u32,
    /// By phi: the first step in which it is read; empty: any.
    phis: HashMap<ValueId, u32>,
    /// Whether operations on channels need no order, to find what limits an interval.
    any_order: bool,
    /// With exact delays, and more time for these values (`tight`).
    carried: Option<Rc<Carried>>,
}

/// A block to schedule.
#[derive(Clone, Copy)]
struct Block<'a> {
    function: &'a Function,
    at: FunctionId,
    code: &'a Code,
    own: BlockId,
    memories: &'a Memories,
    uses: &'a Uses,
    registered: &'a Registered,
    bits: &'a Bits<'a>,
}

/// The state of the schedule of a block.
struct Booking<'a> {
    block: Block<'a>,
    form: Form,
    interval: Option<u32>,
    /// By instruction: the first step of a load from a memory; empty: any.
    earliest: &'a [u32],
    /// By kind of unit: the instances that it has.
    units: HashMap<Unit, u32>,
    taken: HashMap<(Resource, u32), u32>,
    /// By value: the step in which it is ready, and its delay in that step.
    ready: HashMap<ValueId, Time>,
    /// By value of a logic function: the values that its cell reads (`tight`).
    cells: HashMap<ValueId, Vec<ValueId>>,
    steps: Vec<(u32, u32)>,
    /// Steps of the last accesses by memory and bank, and of the last call.
    loads: HashMap<(MemoryId, u32), u32>,
    stores: HashMap<(MemoryId, u32), u32>,
    called: Option<u32>,
    /// The last step of a load by a reader, and by reader.
    read: Option<u32>,
    words: HashMap<u32, u32>,
    /// Of operations on channels, and of fences.
    channels: ChannelSteps,
    length: u32,
}

/// The first step after the last accesses to banks of a memory.
fn after(last: &HashMap<(MemoryId, u32), u32>, memory: MemoryId, banks: Range<u32>) -> u32 {
    let steps = banks.filter_map(|bank| last.get(&(memory, bank)));
    steps.max().map_or(0, |step| step + 1)
}

/// The engine call of an instruction.
fn engine_call(op: &Op) -> Option<EngineCall> {
    match op {
        Op::Call(Callee::Engine(call), _) => Some(*call),
        _ => None,
    }
}

impl<'a> Block<'a> {
    /// Schedules the block as a pipeline; `None` if the interval is too short.
    fn pipeline(self, interval: u32, carried: &Option<Rc<Carried>>) -> Option<(Form, Schedule)> {
        let with = |repeats| Form {
            interval: Some(interval),
            repeats,
            carried: carried.clone(),
            ..Form::default()
        };
        let simple = self.schedule(with(false), &[]);
        simple.or_else(|| self.schedule(with(true), &[]))
    }

    /// Schedules the block; `None` if that is not possible in this form, of which operations on
    /// channels and reads of phis may be later. `earliest`: by instruction, the first step of a load
    /// from a memory.
    fn schedule(self, mut form: Form, earliest: &[u32]) -> Option<(Form, Schedule)> {
        if form.repeats && !self.may_repeat() {
            return None;
        }
        let mut moves: HashMap<ValueId, u32> = HashMap::new();
        for _ in 0..ATTEMPTS {
            let mut schedule = self.attempt(&form, earliest)?;
            let Some(interval) = form.interval else {
                return Some((form, schedule));
            };
            schedule.renewals = self.renewals(&schedule, interval)?;
            let early = self.early_reads(&schedule, interval)?;
            let nearness = self.nearness(&schedule, interval)?;
            if early.is_empty() && (nearness.fits || form.any_order) {
                return Some((form, schedule));
            }
            for phi in early.keys() {
                let count = moves.entry(*phi).or_default();
                *count += 1;
                if *count > MOVES_MAX {
                    return None;
                }
            }
            form.phis.extend(early);
            form.channels_from = form.channels_from.max(nearness.from);
        }
        None
    }

    /// The same, but operations on channels may be too far apart, and reads of phis too early.
    fn attempt(self, form: &Form, earliest: &[u32]) -> Option<Schedule> {
        let interval = form.interval;
        let mut b = Booking {
            block: self,
            form: form.clone(),
            interval,
            earliest,
            units: self.units(interval),
            taken: HashMap::new(),
            ready: form
                .phis
                .iter()
                .map(|(v, s)| (*v, (*s, REGISTER)))
                .collect(),
            cells: HashMap::new(),
            steps: Vec::new(),
            loads: HashMap::new(),
            stores: HashMap::new(),
            called: None,
            read: None,
            words: HashMap::new(),
            channels: ChannelSteps::default(),
            length: 1,
        };
        for instruction in &self.code.code {
            b.instruction(instruction)?;
        }
        // Values that select the next state must be ready before the end of the last step.
        let decides: Vec<Value> = match &self.code.end {
            End::Branch(c, _, _) => vec![*c],
            End::Switch { value: v, .. } => vec![*v],
            End::Return(Some(v)) => vec![*v],
            End::Call(_, arguments, _, _) => arguments.clone(),
            _ => Vec::new(),
        };
        let (step, late) = b.time(&decides);
        let late = decides.iter().all(|v| late > b.budget(*v) - DECISION);
        let decided = step + u32::from(!decides.is_empty() && late);
        let schedule = Schedule {
            from: b.ready.iter().map(|(v, t)| (*v, t.0)).collect(),
            length: b.length.max(decided + 1),
            steps: b.steps,
            interval,
            repeats: form.repeats,
            renewals: HashMap::new(),
        };
        match interval {
            Some(interval) => {
                let fits = decided < interval
                    && self.keeps_calls(&schedule, interval)
                    && self.keeps_accesses(&schedule, interval);
                fits.then_some(schedule)
            }
            None => Some(schedule),
        }
    }

    /// By kind of unit: the instances that the block uses. With work-items or elements of channels as
    /// iterations, those that the interval needs. Without work-items, more units may shorten the path
    /// from one iteration to the next.
    fn units(self, interval: Option<u32>) -> HashMap<Unit, u32> {
        let items = self.code.independent;
        let many = self.has_many_units();
        let mut units = unit_uses(self.function, &self.code.code);
        for (kind, count) in &mut units {
            let most = units_max(*kind, *count, many);
            let needed = |interval| count.div_ceil(interval).min(most);
            *count = match interval {
                None => 1,
                Some(interval) if items => needed(interval),
                Some(interval) => needed(interval).max(UNITS_MAX),
            };
        }
        units
    }

    /// Whether the block may have as many units as a loop over work-items.
    fn has_many_units(self) -> bool {
        self.code.independent || self.code.code.iter().any(Instruction::uses_channel)
    }

    /// The reason why the interval is not shorter than this.
    fn limit(self, interval: u32) -> &'static str {
        let (mut calls, mut readers) = (0, HashMap::new());
        let mut accesses = HashMap::new();
        let units = unit_uses(self.function, &self.code.code);
        for instruction in &self.code.code {
            let address = match &instruction.op {
                Op::Load(a, ..) | Op::Store { address: a, .. } => *a,
                op => {
                    calls += u32::from(engine_call(op).is_some_and(EngineCall::waits));
                    continue;
                }
            };
            if let Some(port) = instruction.reader {
                *readers.entry(port).or_insert(0) += u32::from(instruction.reader_word == 0);
                continue;
            }
            let store = matches!(instruction.op, Op::Store { .. });
            match self.memories.of(self.at, address) {
                Some(m) if !self.memories[m].far => {
                    for bank in self.memories.banks(self.at, m, address) {
                        *accesses.entry((m, bank, store)).or_insert(0) += 1;
                    }
                }
                _ => calls += 1,
            }
        }
        match interval {
            1 => "",
            _ if calls >= interval => "accesses off the chip",
            _ if accesses.values().any(|n| *n >= interval) => "accesses to a memory on the chip",
            _ if (units.iter()).any(|(kind, n)| {
                *n > units_max(*kind, *n, self.has_many_units()) * (interval - 1)
            }) =>
            {
                "arithmetic units"
            }
            // After the others, because loads share ports as far as these permit.
            _ if readers.values().any(|n| *n >= interval) => "loads that share a port",
            _ if self.channels_limit(interval) => "operations on channels",
            _ => "values of earlier iterations",
        }
    }

    /// Whether calls of different iterations need not keep their order: all are accesses off the
    /// chip that are not volatile, and either the iterations are different work-items, or all
    /// are loads.
    fn orders_calls_freely(self) -> bool {
        self.code.code.iter().all(|i| match i.op {
            Op::Load(..) if i.reader.is_some() => true,
            Op::Load(a, ..) if self.memories.far(self.at, a) => !i.volatile,
            Op::Store { address: a, .. } if self.memories.far(self.at, a) => {
                !i.volatile && self.code.independent
            }
            _ => !engine_call(&i.op).is_some_and(EngineCall::waits),
        })
    }

    /// Whether calls of different iterations keep their order.
    fn keeps_calls(self, schedule: &Schedule, interval: u32) -> bool {
        if self.orders_calls_freely() {
            return true;
        }
        let calls = (self.code.code.iter().zip(&schedule.steps)).filter(|(i, _)| match i.op {
            Op::Load(..) if i.reader.is_some() => false,
            Op::Load(a, ..) | Op::Store { address: a, .. } => self.memories.far(self.at, a),
            _ => engine_call(&i.op).is_some_and(EngineCall::waits),
        });
        let steps = || calls.clone().map(|(_, s)| s.0);
        let (first, last) = (steps().min(), steps().max());
        last.zip(first).is_none_or(|(l, f)| l - f < interval)
    }

    /// Whether accesses of different iterations to one memory keep their order.
    fn keeps_accesses(self, schedule: &Schedule, interval: u32) -> bool {
        struct Access {
            memory: MemoryId,
            banks: Range<u32>,
            step: u32,
            place: (Value, u64),
            store: bool,
            free: bool,
        }
        let mut accesses = Vec::new();
        for (instruction, (step, _)) in self.code.code.iter().zip(&schedule.steps) {
            let (place, store) = match instruction.op {
                Op::Load(a, size, _) => ((a, size), false),
                Op::Store {
                    address: a, size, ..
                } => ((a, size), true),
                _ => continue,
            };
            let Some(memory) = self.memories.of(self.at, place.0) else {
                return false;
            };
            // Accesses off the chip are calls, which keep their order.
            if !self.memories[memory].far {
                accesses.push(Access {
                    memory,
                    banks: self.memories.banks(self.at, memory, place.0),
                    step: *step,
                    place,
                    store,
                    free: self.code.independent
                        && self.memories[memory].items
                        && !instruction.volatile,
                });
            }
        }
        let pairs = accesses
            .iter()
            .flat_map(|a| accesses.iter().map(move |b| (a, b)));
        pairs
            .filter(|(a, b)| a.memory == b.memory && (a.store || b.store))
            .filter(|(a, b)| a.banks.start < b.banks.end && b.banks.start < a.banks.end)
            .filter(|(a, b)| !(a.free && b.free))
            .all(|(first, second)| {
                let Some(distance) = distance(self.code, self.own, first.place, second.place)
                else {
                    return true;
                };
                // The earlier iteration's access comes first; a load returns the contents before a
                // store in the same step.
                let (before, after) = (first.step, distance * interval + second.step);
                if first.store {
                    after > before
                } else {
                    after >= before
                }
            })
    }
}

impl Booking<'_> {
    /// The step in which all operands are ready, and their delay in it.
    fn time(&self, operands: &[Value]) -> Time {
        let (mut step, mut late) = (0, REGISTER);
        for operand in operands {
            let Value::Local(v) = operand else {
                continue;
            };
            let &(s, d) = self.ready.get(v).unwrap_or(&(0, REGISTER));
            if s > step {
                (step, late) = (s, d);
            } else if s == step {
                late = late.max(d);
            }
        }
        (step, late)
    }

    /// Reserves a resource in the first step from `step` on in which one of `count` instances is
    /// free.
    fn book(&mut self, resource: Resource, step: u32, count: u32) -> Option<(u32, u32)> {
        for step in step..step + SEARCH_MAX {
            let slot = self.interval.map_or(step, |i| step % i);
            let used = self.taken.entry((resource, slot)).or_insert(0);
            if *used < count {
                *used += 1;
                return Some((step, *used - 1));
            }
        }
        None
    }

    /// Reserves ports of a memory for an access, in the first step from `step` on in which those of
    /// all its banks are free.
    fn book_banks(
        &mut self,
        memory: MemoryId,
        address: Value,
        step: u32,
        port: fn(MemoryId, u32) -> Resource,
    ) -> Option<u32> {
        let Block { memories, at, .. } = self.block;
        let banks = memories.banks(at, memory, address);
        let slot = |step: u32| self.interval.map_or(step, |i| step % i);
        let free = |step: &u32| {
            let mut banks = banks.clone();
            banks.all(|bank| !self.taken.contains_key(&(port(memory, bank), slot(*step))))
        };
        let step = (step..step + SEARCH_MAX).find(free)?;
        let slot = slot(step);
        self.taken
            .extend(banks.map(|bank| ((port(memory, bank), slot), 1)));
        Some(step)
    }

    /// The first step after the last call.
    fn after_call(&self) -> u32 {
        self.called.map_or(0, |c| c + 1)
    }

    /// The first step in which all words of loads by ports of their own are there: until then a port
    /// may read the memory.
    fn after_read(&self) -> u32 {
        self.read.map_or(0, |last| last + READER_STEPS)
    }

    /// Reserves the message engines for a call, in order.
    fn call(&mut self, step: u32) -> Option<u32> {
        let (step, _) = self.book(Resource::Port, step.max(self.after_call()), 1)?;
        self.called = Some(step);
        Some(step)
    }

    /// Schedules an instruction; `None` if that is not possible with the interval.
    fn instruction(&mut self, instruction: &Instruction) -> Option<()> {
        let (memories, at) = (self.block.memories, self.block.at);
        let time = self.operands(instruction);
        // The step in which operands are early enough for an input.
        let before = |latest: u32| time.0 + u32::from(time.1 > latest);
        let mut instance = 0;
        let (step, ready) = match &instruction.op {
            Op::Load(..) if instruction.reader.is_some() => {
                let port = instruction.reader.unwrap_or(0);
                if instruction.reader_word > 0 {
                    // With the first word, whose address is the only one.
                    let step = *self.words.get(&port)?;
                    self.ready_at(instruction, (step + WORDS_STEPS, REGISTER));
                    self.steps.push((step, 0));
                    return Some(());
                }
                let selection = u32::from(self.block.registered.ports.contains(&port));
                let latest = match self.block.uses.readers.get(&port) {
                    _ if selection > 0 => BUDGET - SELECTION,
                    Some(2..) => TO_PORT - SELECTION,
                    _ => TO_PORT,
                };
                let (step, _) = self.book(Resource::Reader(port), before(latest), 1)?;
                let read = step + selection;
                self.read = Some(self.read.map_or(read, |last| last.max(read)));
                self.words.insert(port, step);
                let own = if self.block.uses.words.contains(&port) {
                    WORDS_STEPS
                } else {
                    selection + READER_STEPS
                };
                (step, Some((step + own, REGISTER)))
            }
            Op::Load(address, ..) | Op::Store { address, .. } if memories.far(at, *address) => {
                // A store follows the reads before it, which may be of the same place.
                let read = match instruction.op {
                    Op::Store { .. } => self.after_read(),
                    _ => 0,
                };
                let effect = match instruction.op {
                    Op::Load(..) if !instruction.volatile => 0,
                    _ => self.first_effect(),
                };
                let step = self.call(before(TO_PORT).max(read).max(effect))?;
                let ready = if memories.pipelined {
                    (step + LOAD_STEPS, REGISTER)
                } else {
                    (step, PORT)
                };
                (step, Some(ready))
            }
            Op::Load(from, ..) => {
                let memory = memories.of(at, *from)?;
                let banks = memories.banks(at, memory, *from);
                let stored = after(&self.stores, memory, banks.clone());
                let earliest = self.earliest.get(self.steps.len()).copied().unwrap_or(0);
                let step = before(BUDGET).max(stored).max(earliest);
                let step = self.book_banks(memory, *from, step, Resource::Read)?;
                for bank in banks {
                    let last = self.loads.entry((memory, bank)).or_insert(step);
                    *last = (*last).max(step);
                }
                (step, Some((step + 1, MEMORY)))
            }
            Op::Store { address: to, .. } => {
                let memory = memories.of(at, *to)?;
                let banks = memories.banks(at, memory, *to);
                let stored = after(&self.stores, memory, banks.clone());
                let loaded = after(&self.loads, memory, banks.clone()).saturating_sub(1);
                let step = before(BUDGET).max(stored).max(loaded);
                let step = step.max(self.first_effect());
                let step = self.book_banks(memory, *to, step, Resource::Write)?;
                self.stores.extend(banks.map(|bank| ((memory, bank), step)));
                (step, None)
            }
            Op::Call(Callee::Engine(EngineCall::Word), _) => (0, Some((0, REGISTER))),
            Op::Call(Callee::Engine(EngineCall::ChannelWord(port)), _) => {
                let step = self.channels.of_port.get(port).copied().unwrap_or(0);
                (step, Some((step, PORT)))
            }
            Op::Call(Callee::Engine(call), arguments) if call.uses_channel() => {
                let (from, late) = self.time(&[arguments.first().map_or(Value::Undef, |a| a.1)]);
                let from = from + u32::from(late > REGISTER);
                let step = self.channel(*call, before(TO_PORT), from)?;
                (step, Some((step, PORT)))
            }
            Op::Call(Callee::Engine(call), _) => {
                let step = if *call == EngineCall::Fence {
                    self.fence(before(TO_PORT))?
                } else if call.waits() {
                    let step = before(TO_PORT).max(self.channels.last());
                    self.call(step.max(self.first_effect()))?
                } else {
                    // In the step of the call whose result it reads.
                    time.0.max(self.called.unwrap_or(0))
                };
                let delay = match call {
                    EngineCall::Rank => REGISTER,
                    _ => PORT,
                };
                (step, Some((step, delay)))
            }
            _ => match unit(self.block.function, instruction) {
                Some(kind) if kind.waits() => {
                    let step = self.division(kind, before(BUDGET))?;
                    (step, Some((step + 1, REGISTER)))
                }
                Some(kind) => {
                    let count = self.units.get(&kind).copied().unwrap_or(1);
                    let step;
                    let first = before(self.to_unit(kind, count));
                    (step, instance) = self.book(Resource::Unit(kind), first, count)?;
                    let selection = u32::from(self.block.registered.units.contains(&kind));
                    (step, Some((step + selection + kind.latency(), REGISTER)))
                }
                None => {
                    let (step, late) = self.end(instruction, time);
                    (step, Some((step, late)))
                }
            },
        };
        if let Some(ready) = ready {
            self.ready_at(instruction, ready);
        }
        self.length = self.length.max(step + 1);
        self.steps.push((step, instance));
        Some(())
    }

    /// Notes when an instruction has its result.
    fn ready_at(&mut self, instruction: &Instruction, ready: Time) {
        if let Some(result) = instruction.result {
            self.ready.insert(result, ready);
            self.length = self.length.max(ready.0 + 1);
        }
    }

    /// The latest time of the operands of a unit. Those of a sum with several uses come from registers:
    /// memories and ports of loads leave no time for a multiplexer and the comparison in its first
    /// stage. A product's first stage is short (in `bench/kernels/fft.cl`, 105 MHz after a memory and a
    /// multiplexer of 12 uses).
    fn to_unit(&self, kind: Unit, count: u32) -> u32 {
        let uses = self.block.uses.units.get(&kind).copied().unwrap_or(1);
        match kind {
            Unit::Fadd(_) if uses > count && !self.block.registered.units.contains(&kind) => {
                REGISTER
            }
            _ => TO_UNIT,
        }
    }

    /// Reserves a unit whose latency is variable: it starts in a step, and the next step waits for
    /// the result.
    fn division(&mut self, kind: Unit, step: u32) -> Option<u32> {
        if self.interval.is_some() {
            return None;
        }
        let mut step = step.max(self.after_call());
        while self.taken.contains_key(&(Resource::Port, step + 1))
            || self.taken.contains_key(&(Resource::Unit(kind), step))
        {
            step += 1;
        }
        self.taken.insert((Resource::Port, step + 1), 1);
        self.taken.insert((Resource::Unit(kind), step), 1);
        self.taken.insert((Resource::Unit(kind), step + 1), 1);
        self.called = Some(step + 1);
        Some(step)
    }
}
