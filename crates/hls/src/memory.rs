//! Assigns each pointer a memory. Objects that one pointer may refer to share a memory
//! (Steensgaard's analysis). A memory's word is as wide as its widest access. A pointer is an
//! offset in bytes from the start of its memory, or from the start of all memory off the chip.
//!
//! Values of any type may hold an address, as the compiler copies structures as integers.
//! Exceptions are results of arithmetic other than sums and bitwise operations, and objects of an
//! arithmetic type (`Instruction::numeric`). An access through a pointer that no object's address
//! reaches is an error.

use crate::ir::{Binary, Cast, Function, Instruction, Module, Op, Place, Refusal, Type, Value};
use crate::maker::Maker;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Bytes of all memories of a kernel on the chip: 128 block RAMs of 4 KB.
const BYTES_MAX: u64 = 512 << 10;

/// A memory of a kernel.
#[derive(Clone, Debug)]
pub struct Memory {
    pub name: String,
    /// Bytes of a word: 1, 2, 4 or 8.
    pub width: u64,
    /// Initial contents.
    pub bytes: Vec<u8>,
    /// The source's objects in it.
    pub objects: Vec<String>,
    /// Whether it is off the chip, where memory is zero at first.
    pub far: bool,
}

impl Memory {
    pub fn words(&self) -> usize {
        self.bytes.len() / self.width as usize
    }
}

/// The memories, and the class of each value. Values that may hold addresses of the same objects
/// have one class.
pub struct Memories {
    pub all: Vec<Memory>,
    parents: Vec<usize>,
    contents: HashMap<usize, usize>,
    /// By function and value.
    values: HashMap<(usize, usize), usize>,
    /// By global: the class of its object.
    globals: Vec<usize>,
    results: HashMap<String, usize>,
    /// By class: its memory.
    memories: HashMap<usize, usize>,
    offsets: Vec<u64>,
    null: HashMap<usize, bool>,
    /// Classes of values that hold numbers other than addresses.
    numbers: HashSet<usize>,
    /// Pairs of classes whose values are compared.
    compared: Vec<(usize, usize)>,
    /// Bytes of memory off the chip that are used.
    pub far_bytes: u64,
}

impl Memories {
    fn node(&mut self) -> usize {
        self.parents.push(self.parents.len());
        self.parents.len() - 1
    }

    fn root(&self, mut node: usize) -> usize {
        while self.parents[node] != node {
            node = self.parents[node];
        }
        node
    }

    fn unify(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        if a == b {
            return;
        }
        self.parents[b] = a;
        match (self.contents.get(&a).copied(), self.contents.remove(&b)) {
            (Some(x), Some(y)) => self.unify(x, y),
            (None, Some(y)) => {
                self.contents.insert(a, y);
            }
            _ => {}
        }
    }

    fn content(&mut self, node: usize) -> usize {
        let root = self.root(node);
        match self.contents.get(&root) {
            Some(&c) => c,
            None => {
                let c = self.node();
                self.contents.insert(root, c);
                c
            }
        }
    }

    fn class(&mut self, function: usize, value: Value) -> Option<usize> {
        match value {
            Value::Local(v) => match self.values.get(&(function, v)) {
                Some(&c) => Some(c),
                None => {
                    let node = self.node();
                    self.values.insert((function, v), node);
                    Some(node)
                }
            },
            Value::Global(g, _) => Some(self.globals[g]),
            _ => None,
        }
    }

    /// Adds a value to a class.
    fn flow(&mut self, function: usize, value: Value, to: Option<usize>) {
        let Some(to) = to else {
            return;
        };
        match (self.class(function, value), value) {
            (Some(class), _) => self.unify(to, class),
            // A pointer that may be null refers to a memory whose first word belongs to no object.
            (None, Value::Null | Value::Bits(0)) => {
                self.null.insert(to, true);
            }
            (None, Value::Bits(_)) => self.number(Some(to)),
            (None, _) => {}
        }
    }

    fn number(&mut self, class: Option<usize>) {
        self.numbers.extend(class);
    }

    /// The memory of an address.
    pub fn of(&self, function: usize, value: Value) -> Option<usize> {
        let node = match value {
            Value::Local(v) => *self.values.get(&(function, v))?,
            Value::Global(g, _) => self.globals[g],
            _ => return None,
        };
        self.memories.get(&self.root(node)).copied()
    }

    /// Whether an address is in memory off the chip.
    pub fn far(&self, function: usize, address: Value) -> bool {
        self.of(function, address).is_some_and(|m| self.all[m].far)
    }

    /// A global's offset in its memory in bytes.
    pub fn offset(&self, global: usize) -> u64 {
        self.offsets[global]
    }
}

fn is_pointer(function: &Function, value: Value) -> bool {
    match value {
        Value::Local(v) => function.values[v].ty == Type::Ptr,
        Value::Global(..) | Value::Null => true,
        _ => false,
    }
}

/// Assigns memories, and splits accesses that may be unaligned. `far`: bytes of memory off the
/// chip, for objects that do not fit on it.
pub fn analyse(module: &mut Module, far: u64) -> Result<Memories, Refusal> {
    let mut m = Memories {
        all: Vec::new(),
        parents: Vec::new(),
        contents: HashMap::new(),
        values: HashMap::new(),
        globals: Vec::new(),
        results: HashMap::new(),
        memories: HashMap::new(),
        offsets: vec![0; module.globals.len()],
        null: HashMap::new(),
        numbers: HashSet::new(),
        compared: Vec::new(),
        far_bytes: 0,
    };
    for _ in &module.globals {
        let node = m.node();
        m.globals.push(node);
    }
    let parameters: HashMap<String, (usize, usize)> = module
        .functions
        .iter()
        .enumerate()
        .map(|(i, f)| (f.name.clone(), (i, f.parameters)))
        .collect();
    for f in &module.functions {
        let node = m.node();
        m.results.insert(f.name.clone(), node);
    }
    for (at, function) in module.functions.iter().enumerate() {
        for instruction in function.blocks.iter().flat_map(|b| &b.code) {
            constrain(&mut m, at, function, instruction, &parameters);
        }
    }
    for (index, global) in module.globals.iter().enumerate() {
        for (_, value) in &global.pointers {
            if let Value::Global(to, _) = value {
                let content = m.content(m.globals[index]);
                let to = m.globals[*to];
                m.unify(content, to);
            }
        }
    }
    compare(&mut m);
    align(module);
    lay(module, &mut m, far)?;
    verify(module, &m)?;
    Ok(m)
}

/// Applies an instruction's constraints to the classes of its values.
fn constrain(
    m: &mut Memories,
    at: usize,
    function: &Function,
    instruction: &Instruction,
    parameters: &HashMap<String, (usize, usize)>,
) {
    let result = instruction
        .result
        .and_then(|r| m.class(at, Value::Local(r)));
    let pointer = |v: Value| is_pointer(function, v);
    let tracked = |v: Value| pointer(v) || !instruction.numeric;
    let of_bits = |op: Binary| {
        use Binary::{Add, And, Ashr, Lshr, Or, Shl, Smax, Smin, Sub, Umax, Umin, Xor};
        [
            Add, Sub, And, Or, Xor, Shl, Lshr, Ashr, Umin, Umax, Smin, Smax,
        ]
        .contains(&op)
    };
    match &instruction.op {
        Op::Address(base, offset, parts) => {
            m.flow(at, *base, result);
            if !matches!(base, Value::Local(_) | Value::Global(..)) {
                // An offset from null is a number that is converted to an address.
                parts.iter().for_each(|p| m.flow(at, p.0, result));
                if *offset != 0 {
                    m.number(result);
                }
            }
        }
        Op::Copy(a) | Op::Cast(Cast::Bits, _, a) => m.flow(at, *a, result),
        Op::Select(_, a, b) => {
            m.flow(at, *a, result);
            m.flow(at, *b, result);
        }
        Op::Phi(from) => from.iter().for_each(|(_, v)| m.flow(at, *v, result)),
        Op::Binary(op, a, b) if of_bits(*op) => {
            for v in [*a, *b] {
                if matches!(v, Value::Local(_) | Value::Global(..)) {
                    m.flow(at, v, result);
                }
            }
        }
        Op::Compare(_, _, a, b) => {
            let (x, y) = (m.class(at, *a), m.class(at, *b));
            for (class, other) in [(x, *b), (y, *a)] {
                if let (Some(class), Value::Null | Value::Bits(0)) = (class, other) {
                    m.null.insert(class, true);
                }
            }
            match (x, y) {
                (Some(x), Some(y)) if pointer(*a) || pointer(*b) => m.unify(x, y),
                (Some(x), Some(y)) => m.compared.push((x, y)),
                _ => {}
            }
            m.number(result);
        }
        Op::Load(from, _) => match (m.class(at, *from), result) {
            (Some(class), Some(r))
                if instruction.result.is_some_and(|r| tracked(Value::Local(r))) =>
            {
                let content = m.content(class);
                m.unify(content, r);
            }
            _ => m.number(result),
        },
        Op::Store(value, to, _, _) if tracked(*value) => {
            if let Some(class) = m.class(at, *to) {
                let content = m.content(class);
                m.flow(at, *value, Some(content));
            }
        }
        Op::Call(name, arguments) => match parameters.get(name) {
            Some(&(callee, count)) => {
                for (i, (_, argument)) in arguments.iter().enumerate().take(count) {
                    let parameter = m.class(callee, Value::Local(i));
                    m.flow(at, *argument, parameter);
                }
                if let Some(r) = result {
                    let node = m.results[name];
                    m.unify(node, r);
                }
            }
            None => m.number(result),
        },
        Op::Return(Some(v)) => {
            let node = m.results[&function.name];
            m.flow(at, *v, Some(node));
        }
        _ => m.number(result),
    }
}

/// Unifies the classes of values that are compared as integers, if both are addresses.
fn compare(m: &mut Memories) {
    loop {
        let mut owners = vec![false; m.parents.len()];
        for global in &m.globals {
            owners[m.root(*global)] = true;
        }
        let next = m.compared.iter().copied().find(|&(a, b)| {
            let (a, b) = (m.root(a), m.root(b));
            a != b && owners[a] && owners[b]
        });
        match next {
            Some((a, b)) => m.unify(a, b),
            None => return,
        }
    }
}

/// By function and value: how many of its lowest bits are always zero. Starts with the maximum, and
/// decreases until all instructions agree.
fn zeroes(module: &Module) -> Vec<Vec<u32>> {
    let mut known: Vec<Vec<u32>> = module
        .functions
        .iter()
        .map(|f| vec![64; f.values.len()])
        .collect();
    known[0][..module.functions[0].parameters].fill(0);
    let index: HashMap<&str, usize> = module
        .functions
        .iter()
        .enumerate()
        .map(|(i, f)| (f.name.as_str(), i))
        .collect();
    loop {
        let mut changed = false;
        for (at, function) in module.functions.iter().enumerate() {
            for instruction in function.blocks.iter().flat_map(|b| &b.code) {
                let of = |v: Value| match v {
                    Value::Local(v) => known[at][v],
                    Value::Bits(n) => n.trailing_zeros().min(64),
                    // Objects are aligned to 8 bytes.
                    Value::Global(_, o) => o.trailing_zeros().min(3),
                    Value::Null | Value::Undef | Value::Aggregate(_) => 64,
                };
                let found = match &instruction.op {
                    Op::Binary(Binary::Add | Binary::Sub | Binary::Or | Binary::Xor, a, b) => {
                        of(*a).min(of(*b))
                    }
                    Op::Binary(Binary::And, a, b) => of(*a).max(of(*b)),
                    Op::Binary(Binary::Mul, a, b) => (of(*a) + of(*b)).min(64),
                    Op::Binary(Binary::Shl, a, Value::Bits(n)) => (of(*a) + *n as u32).min(64),
                    Op::Binary(Binary::Lshr | Binary::Ashr, a, Value::Bits(n)) => {
                        of(*a).saturating_sub(*n as u32)
                    }
                    Op::Binary(Binary::Umin | Binary::Umax | Binary::Smin | Binary::Smax, a, b) => {
                        of(*a).min(of(*b))
                    }
                    Op::Select(_, a, b) => of(*a).min(of(*b)),
                    Op::Cast(Cast::Bits | Cast::Sext, _, a) | Op::Copy(a) => of(*a),
                    Op::Phi(from) => from.iter().map(|f| of(f.1)).min().unwrap_or(0),
                    Op::Address(base, offset, parts) => {
                        let parts = parts
                            .iter()
                            .map(|p| (of(p.0) + p.2.trailing_zeros()).min(64))
                            .min()
                            .unwrap_or(64);
                        of(*base)
                            .min(if *offset == 0 {
                                64
                            } else {
                                offset.trailing_zeros()
                            })
                            .min(parts)
                    }
                    Op::Call(name, arguments) => {
                        if let Some(&callee) = index.get(name.as_str()) {
                            let values: Vec<u32> = arguments.iter().map(|a| of(a.1)).collect();
                            for (i, zeroes) in values
                                .into_iter()
                                .enumerate()
                                .take(module.functions[callee].parameters)
                            {
                                if known[callee][i] > zeroes {
                                    known[callee][i] = zeroes;
                                    changed = true;
                                }
                            }
                        }
                        0
                    }
                    _ => 0,
                };
                if let Some(result) = instruction.result {
                    if known[at][result] > found {
                        known[at][result] = found;
                        changed = true;
                    }
                }
            }
        }
        if !changed {
            return known;
        }
    }
}

/// Splits accesses that may be unaligned into aligned ones.
fn align(module: &mut Module) {
    let known = zeroes(module);
    for (at, function) in module.functions.iter_mut().enumerate() {
        let blocks = std::mem::take(&mut function.blocks);
        let mut maker = Maker {
            function,
            code: Vec::new(),
            place: Place::default(),
        };
        let mut done = Vec::new();
        for mut block in blocks {
            for instruction in block.code {
                let address = match instruction.op {
                    Op::Load(a, _) | Op::Store(_, a, _, _) => a,
                    _ => {
                        maker.code.push(instruction);
                        continue;
                    }
                };
                let zeroes = match address {
                    Value::Local(v) => known[at].get(v).copied().unwrap_or(0),
                    Value::Global(_, o) => o.trailing_zeros().min(3),
                    _ => 3,
                };
                let unit = 1_u64 << zeroes.min(3);
                maker.place = instruction.place.clone();
                split(&mut maker, instruction, address, unit);
            }
            block.code = std::mem::take(&mut maker.code);
            done.push(block);
        }
        function.blocks = done;
    }
}

fn split(maker: &mut Maker<'_>, instruction: Instruction, address: Value, unit: u64) {
    let size = match instruction.op {
        Op::Load(_, size) | Op::Store(_, _, size, _) => size,
        _ => 0,
    };
    if size <= unit {
        maker.code.push(instruction);
        return;
    }
    let (whole, part) = (Type::Int(size as u32 * 8), Type::Int(unit as u32 * 8));
    let place = |maker: &mut Maker<'_>, offset: u64| match address {
        Value::Global(g, o) => Value::Global(g, o + offset as i64),
        _ => maker.value(
            "piece_at",
            Type::Ptr,
            Op::Address(address, offset as i64, Vec::new()),
        ),
    };
    match instruction.op {
        Op::Load(..) => {
            let mut sum = Value::Bits(0);
            for offset in (0..size).step_by(unit as usize) {
                let at = place(maker, offset);
                let piece = maker.value("piece", part.clone(), Op::Load(at, unit));
                let wide = maker.value(
                    "piece",
                    whole.clone(),
                    Op::Cast(Cast::Bits, unit as u32 * 8, piece),
                );
                let up = maker.value(
                    "piece",
                    whole.clone(),
                    Op::Binary(Binary::Shl, wide, Value::Bits(offset * 8)),
                );
                sum = maker.value("pieces", whole.clone(), Op::Binary(Binary::Or, sum, up));
            }
            if let Some(result) = instruction.result {
                let bits = size as u32 * 8;
                maker.give(result, Op::Cast(Cast::Bits, bits, sum));
            }
        }
        Op::Store(value, _, _, when) => {
            for offset in (0..size).step_by(unit as usize) {
                let at = place(maker, offset);
                let down = maker.value(
                    "piece",
                    whole.clone(),
                    Op::Binary(Binary::Lshr, value, Value::Bits(offset * 8)),
                );
                let piece = maker.value(
                    "piece",
                    part.clone(),
                    Op::Cast(Cast::Bits, size as u32 * 8, down),
                );
                maker.act(Op::Store(piece, at, unit, when));
            }
        }
        _ => {}
    }
}

/// Places objects that are accessed in memories.
fn lay(module: &Module, m: &mut Memories, far: u64) -> Result<(), Refusal> {
    // The parts of a split access have the class of the whole.
    for (at, function) in module.functions.iter().enumerate() {
        for instruction in function.blocks.iter().flat_map(|b| &b.code) {
            if let (Op::Address(base, _, _), Some(result)) = (&instruction.op, instruction.result) {
                let result = m.class(at, Value::Local(result));
                m.flow(at, *base, result);
            }
        }
    }
    // A pointer in memory may be null, as memory is zero at first.
    let held = m.contents.values();
    let nulls: HashSet<usize> = (m.null.keys().chain(held)).map(|&n| m.root(n)).collect();
    let numbers: HashSet<usize> = m.numbers.iter().map(|&n| m.root(n)).collect();
    let owners: HashSet<usize> = m.globals.iter().map(|&n| m.root(n)).collect();
    // Widths by class.
    let mut used: BTreeMap<usize, u64> = BTreeMap::new();
    for (at, function) in module.functions.iter().enumerate() {
        for instruction in function.blocks.iter().flat_map(|b| &b.code) {
            let (address, size) = match instruction.op {
                Op::Load(a, size) | Op::Store(_, a, size, _) => (a, size),
                _ => continue,
            };
            let Some(class) = m.class(at, address) else {
                return Err(Refusal::new(
                    &instruction.place,
                    "access through a null pointer",
                ));
            };
            let class = m.root(class);
            if !owners.contains(&class) && numbers.contains(&class) {
                return Err(Refusal::new(
                    &instruction.place,
                    "access through an address that is computed from a number or received in a message \
                     (use a pointer to an object of the kernel)",
                ));
            }
            let width = used.entry(class).or_insert(1);
            *width = size.max(*width);
        }
    }
    for (class, width) in used {
        let mut memory = Memory {
            name: String::new(),
            width,
            bytes: Vec::new(),
            objects: Vec::new(),
            far: false,
        };
        if nulls.contains(&class) {
            memory.bytes.resize(8, 0);
        }
        let members: Vec<usize> = (0..module.globals.len())
            .filter(|&g| m.root(m.globals[g]) == class)
            .collect();
        for &global in &members {
            let object = &module.globals[global];
            if object.external {
                return Err(Refusal::new(
                    &Place::default(),
                    format!(
                        "variable '{}' is declared, but neither the sources nor the library define it",
                        object.name
                    ),
                ));
            }
            m.offsets[global] = memory.bytes.len() as u64;
            memory.bytes.extend(&object.bytes);
            let end = memory.bytes.len().next_multiple_of(8);
            memory.bytes.resize(end, 0);
            memory.objects.push(object.name.clone());
        }
        if memory.bytes.is_empty() {
            memory.bytes.resize(8, 0);
        }
        memory.name = match members.as_slice() {
            [one] => module.globals[*one].name.clone(),
            many if many.iter().all(|g| module.globals[*g].constant) => "texts".to_owned(),
            _ => "memory".to_owned(),
        };
        m.memories.insert(class, m.all.len());
        m.all.push(memory);
    }
    // Objects without accesses have an address, too, which differs from those of others and from
    // null.
    let mut ends: HashMap<usize, u64> = HashMap::new();
    for (global, object) in module.globals.iter().enumerate() {
        let class = m.root(m.globals[global]);
        if !m.memories.contains_key(&class) {
            let end = ends.entry(class).or_insert(8);
            m.offsets[global] = *end;
            *end += (object.bytes.len().max(1) as u64).next_multiple_of(8);
        }
    }
    move_away(module, m, far)?;
    // Addresses in initial contents, now that all offsets are final.
    for (index, global) in module.globals.iter().enumerate() {
        let Some(memory) = m.memories.get(&m.root(m.globals[index])).copied() else {
            continue;
        };
        for (at, value) in &global.pointers {
            let Value::Global(to, offset) = value else {
                continue;
            };
            let bits = (m.offsets[*to] as i64 + offset) as u32;
            let at = (m.offsets[index] + at) as usize;
            m.all[memory].bytes[at..at + 4].copy_from_slice(&bits.to_le_bytes());
        }
    }
    Ok(())
}

/// Checks that each access has a memory.
fn verify(module: &Module, m: &Memories) -> Result<(), Refusal> {
    for (at, function) in module.functions.iter().enumerate() {
        for instruction in function.blocks.iter().flat_map(|b| &b.code) {
            let address = match instruction.op {
                Op::Load(a, _) | Op::Store(_, a, _, _) => a,
                _ => continue,
            };
            if m.of(at, address).is_none() {
                let why = "internal error: access through a pointer that has no memory";
                return Err(Refusal::new(&instruction.place, why));
            }
        }
    }
    Ok(())
}

/// Moves the largest memories off the chip until the rest fits on it.
fn move_away(module: &Module, m: &mut Memories, far: u64) -> Result<(), Refusal> {
    let wrong = |why: String| Err(Refusal::new(&Place::default(), why));
    let whole: u64 = m.all.iter().map(|memory| memory.bytes.len() as u64).sum();
    if whole > BYTES_MAX && far == 0 {
        return wrong(format!(
            "{whole} bytes of arrays exceed the block RAM of a kernel, {BYTES_MAX} bytes \
             (an m_axi port gives it memory off the chip)"
        ));
    }
    let mut left = whole;
    while left > BYTES_MAX {
        let largest = (0..m.all.len())
            .filter(|&i| !m.all[i].far)
            .max_by_key(|&i| m.all[i].bytes.len());
        let Some(moved) = largest else {
            break;
        };
        let memory = &mut m.all[moved];
        let bytes = std::mem::take(&mut memory.bytes);
        memory.far = true;
        left -= bytes.len() as u64;
        let members = (0..module.globals.len())
            .filter(|&g| m.memories.get(&m.root(m.globals[g])) == Some(&moved));
        for global in members.collect::<Vec<_>>() {
            let object = &module.globals[global];
            if object.bytes.iter().any(|b| *b != 0) || !object.pointers.is_empty() {
                return wrong(format!(
                    "'{}' has initial contents and does not fit on the chip, but memory off the chip is zero at first \
                     (assign the contents when the kernel starts)",
                    object.name
                ));
            }
            m.offsets[global] += m.far_bytes;
        }
        m.far_bytes += bytes.len() as u64;
    }
    if m.far_bytes > far {
        return wrong(format!(
            "arrays off the chip take {} bytes, but the m_axi port has {far} (raise its 'bytes')",
            m.far_bytes
        ));
    }
    Ok(())
}
