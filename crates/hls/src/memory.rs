//! Assigns each pointer a memory. Objects that one pointer may refer to share a memory
//! (Steensgaard's analysis). A memory's word is as wide as its widest access. A pointer is an
//! offset in bytes from the start of its memory, or from the start of all memory off the chip.
//!
//! Values of any type may hold an address, as the compiler copies structures as integers.
//! Exceptions are results of arithmetic other than sums and bitwise operations, and objects of an
//! arithmetic type (`Instruction::numeric`). An access through a pointer that no object's address
//! reaches is an error.

mod banks;
mod bits;

use crate::error::{Error, Result};
use crate::ir::{
    BinaryOp, Callee, Cast, EngineCall, Function, FunctionId, GlobalId, Instruction, Module, Op,
    Type, Value, ValueId,
};
use crate::passes::align;
pub use banks::{divide, Banks};
pub use bits::Bits;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Index, Range};

/// Bytes of all memories of a kernel on the chip: 128 block RAMs of 4 KB.
const BYTES_MAX: u64 = 512 << 10;

/// A memory of a kernel, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryId(pub usize);

/// A set of values that may hold addresses of the same objects, by one of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Class(usize);

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
    /// Whether accesses of different work-items need no order: they are to local memory, or to parts
    /// of their own.
    pub items: bool,
    pub banks: Banks,
}

impl Memory {
    /// Words of a bank.
    pub fn words(&self) -> usize {
        (self.bytes.len() >> self.banks.bits) / self.width as usize
    }
}

/// The memories, and the class of each value. Values that may hold addresses of the same objects
/// have one class.
pub struct Memories {
    pub all: Vec<Memory>,
    parents: Vec<Class>,
    /// By class of addresses: the class of the values in memory there.
    contents: HashMap<Class, Class>,
    values: HashMap<(FunctionId, ValueId), Class>,
    /// By global: the class of its object.
    globals: Vec<Class>,
    /// By function: the class of its result.
    results: Vec<Class>,
    /// By class: its memory.
    memories: HashMap<Class, MemoryId>,
    offsets: Vec<u64>,
    /// Classes of pointers that may be null.
    null: HashSet<Class>,
    /// Classes of values that hold numbers other than addresses.
    numbers: HashSet<Class>,
    /// Pairs of classes whose values are compared.
    compared: Vec<(Class, Class)>,
    /// Classes of addresses in the argument block: they refer to buffers off the chip.
    buffers: Vec<Class>,
    /// By address of an access: its bank, where that is constant.
    fixed_banks: HashMap<(FunctionId, ValueId), u32>,
    /// Bytes of memory off the chip that are used.
    pub far_bytes: u64,
    /// Whether memory off the chip returns words in the step after a load.
    pub pipelined: bool,
}

impl Memories {
    fn node(&mut self) -> Class {
        let node = Class(self.parents.len());
        self.parents.push(node);
        node
    }

    fn root(&self, mut node: Class) -> Class {
        while self.parents[node.0] != node {
            node = self.parents[node.0];
        }
        node
    }

    fn unify(&mut self, a: Class, b: Class) {
        let (a, b) = (self.root(a), self.root(b));
        if a == b {
            return;
        }
        self.parents[b.0] = a;
        match (self.contents.get(&a).copied(), self.contents.remove(&b)) {
            (Some(x), Some(y)) => self.unify(x, y),
            (None, Some(y)) => {
                self.contents.insert(a, y);
            }
            _ => {}
        }
    }

    fn content(&mut self, node: Class) -> Class {
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

    fn class(&mut self, function: FunctionId, value: Value) -> Option<Class> {
        match value {
            Value::Local(v) => match self.values.get(&(function, v)) {
                Some(&c) => Some(c),
                None => {
                    let node = self.node();
                    self.values.insert((function, v), node);
                    Some(node)
                }
            },
            Value::Global(g, _) => Some(self.globals[g.0]),
            _ => None,
        }
    }

    /// Adds a value to a class.
    fn flow(&mut self, function: FunctionId, value: Value, to: Option<Class>) {
        let Some(to) = to else {
            return;
        };
        match (self.class(function, value), value) {
            (Some(class), _) => self.unify(to, class),
            // A pointer that may be null refers to a memory whose first word belongs to no object.
            (None, Value::Null | Value::Bits(0)) => {
                self.null.insert(to);
            }
            (None, Value::Bits(_)) => self.number(Some(to)),
            (None, _) => {}
        }
    }

    fn number(&mut self, class: Option<Class>) {
        self.numbers.extend(class);
    }

    /// The memory of an address.
    pub fn of(&self, function: FunctionId, value: Value) -> Option<MemoryId> {
        let node = match value {
            Value::Local(v) => *self.values.get(&(function, v))?,
            Value::Global(g, _) => self.globals[g.0],
            _ => return None,
        };
        self.memories.get(&self.root(node)).copied()
    }

    /// The banks of a memory that an access to an address uses.
    pub fn banks(&self, function: FunctionId, memory: MemoryId, address: Value) -> Range<u32> {
        let banks = self[memory].banks;
        let fixed = match address {
            Value::Global(g, o) => {
                let (bank, _) = banks.split((self.offset(g) as i64 + o) as u64);
                Some(bank)
            }
            Value::Local(v) => self.fixed_banks.get(&(function, v)).copied(),
            _ => None,
        };
        fixed.map_or(0..banks.count(), |bank| bank..bank + 1)
    }

    /// Whether an address is in memory off the chip.
    pub fn far(&self, function: FunctionId, address: Value) -> bool {
        self.of(function, address).is_some_and(|m| self[m].far)
    }

    /// A global's offset in its memory in bytes.
    pub fn offset(&self, global: GlobalId) -> u64 {
        self.offsets[global.0]
    }
}

impl Index<MemoryId> for Memories {
    type Output = Memory;

    fn index(&self, memory: MemoryId) -> &Memory {
        &self.all[memory.0]
    }
}

fn is_pointer(function: &Function, value: Value) -> bool {
    match value {
        Value::Local(v) => function[v].ty == Type::Ptr,
        Value::Global(..) | Value::Null => true,
        _ => false,
    }
}

/// Assigns memories, and splits accesses that may be unaligned. `far`: bytes of memory off the
/// chip, for objects that do not fit on it.
pub fn analyze(module: &mut Module, far: u64) -> Result<Memories> {
    let mut m = Memories {
        all: Vec::new(),
        parents: Vec::new(),
        contents: HashMap::new(),
        values: HashMap::new(),
        globals: Vec::new(),
        results: Vec::new(),
        memories: HashMap::new(),
        offsets: vec![0; module.globals.len()],
        null: HashSet::new(),
        numbers: HashSet::new(),
        compared: Vec::new(),
        buffers: Vec::new(),
        fixed_banks: HashMap::new(),
        far_bytes: 0,
        pipelined: false,
    };
    for _ in &module.globals {
        let node = m.node();
        m.globals.push(node);
    }
    for _ in &module.functions {
        let node = m.node();
        m.results.push(node);
    }
    for (at, function) in module.functions.iter().enumerate() {
        for instruction in function.instructions() {
            constrain(&mut m, module, FunctionId(at), instruction);
        }
    }
    for (index, global) in module.globals.iter().enumerate() {
        for (_, value) in &global.pointers {
            if let Value::Global(to, _) = value {
                let content = m.content(m.globals[index]);
                let to = m.globals[to.0];
                m.unify(content, to);
            }
        }
    }
    compare(&mut m);
    align::split_accesses(module);
    place(module, &mut m, far)?;
    verify(module, &m)?;
    Ok(m)
}

/// Applies an instruction's constraints to the classes of its values.
fn constrain(m: &mut Memories, module: &Module, at: FunctionId, instruction: &Instruction) {
    let result = instruction
        .result
        .and_then(|r| m.class(at, Value::Local(r)));
    let pointer = |v: Value| is_pointer(&module[at], v);
    let tracked = |v: Value| pointer(v) || !instruction.numeric;
    let of_bits = |op: BinaryOp| {
        use BinaryOp::{Add, And, Ashr, Lshr, Or, Shl, Smax, Smin, Sub, Umax, Umin, Xor};
        [
            Add, Sub, And, Or, Xor, Shl, Lshr, Ashr, Umin, Umax, Smin, Smax,
        ]
        .contains(&op)
    };
    match &instruction.op {
        Op::Address {
            base,
            offset,
            indices,
        } => {
            m.flow(at, *base, result);
            if !matches!(base, Value::Local(_) | Value::Global(..)) {
                // An offset from null is a number that is converted to an address.
                indices.iter().for_each(|i| m.flow(at, i.value, result));
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
        Op::Compare {
            left: a, right: b, ..
        } => {
            let (x, y) = (m.class(at, *a), m.class(at, *b));
            for (class, other) in [(x, *b), (y, *a)] {
                if let (Some(class), Value::Null | Value::Bits(0)) = (class, other) {
                    m.null.insert(class);
                }
            }
            match (x, y) {
                (Some(x), Some(y)) if pointer(*a) || pointer(*b) => m.unify(x, y),
                (Some(x), Some(y)) => m.compared.push((x, y)),
                _ => {}
            }
            m.number(result);
        }
        Op::Load(from, ..) => match (m.class(at, *from), result) {
            (Some(class), Some(r))
                if instruction.result.is_some_and(|r| tracked(Value::Local(r))) =>
            {
                let content = m.content(class);
                m.unify(content, r);
            }
            _ => m.number(result),
        },
        Op::Store {
            value, address: to, ..
        } if tracked(*value) => {
            if let Some(class) = m.class(at, *to) {
                let content = m.content(class);
                m.flow(at, *value, Some(content));
            }
        }
        Op::Call(Callee::Engine(EngineCall::Word), _) => match instruction.result {
            Some(r) if pointer(Value::Local(r)) => m.buffers.extend(result),
            _ => m.number(result),
        },
        Op::Call(Callee::Function(callee), arguments) => {
            let parameters = (0..module[*callee].parameters).map(ValueId);
            for (parameter, (_, argument)) in parameters.zip(arguments) {
                let parameter = m.class(*callee, Value::Local(parameter));
                m.flow(at, *argument, parameter);
            }
            if let Some(r) = result {
                m.unify(m.results[callee.0], r);
            }
        }
        Op::Return(Some(v)) => {
            let node = m.results[at.0];
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
            owners[m.root(*global).0] = true;
        }
        let next = m.compared.iter().copied().find(|&(a, b)| {
            let (a, b) = (m.root(a), m.root(b));
            a != b && owners[a.0] && owners[b.0]
        });
        match next {
            Some((a, b)) => m.unify(a, b),
            None => return,
        }
    }
}

/// Places objects that are accessed in memories.
fn place(module: &Module, m: &mut Memories, far: u64) -> Result<()> {
    // The parts of a split access have the class of the whole.
    for (at, function) in module.functions.iter().enumerate() {
        let at = FunctionId(at);
        for instruction in function.instructions() {
            if let (Op::Address { base, .. }, Some(result)) = (&instruction.op, instruction.result)
            {
                let result = m.class(at, Value::Local(result));
                m.flow(at, *base, result);
            }
        }
    }
    // A pointer in memory may be null, as memory is zero at first.
    let held = m.contents.values();
    let nulls: HashSet<Class> = m.null.iter().chain(held).map(|&n| m.root(n)).collect();
    let used = widths(module, m)?;
    let buffers: HashSet<Class> = m.buffers.iter().map(|&n| m.root(n)).collect();
    if !buffers.is_empty() {
        m.pipelined = true;
        m.all.push(Memory {
            name: "buffers".to_owned(),
            width: 8,
            bytes: Vec::new(),
            objects: vec!["buffers".to_owned()],
            far: true,
            items: false,
            banks: Banks::default(),
        });
        let id = MemoryId(m.all.len() - 1);
        m.memories.extend(buffers.iter().map(|class| (*class, id)));
    }
    for (class, width) in used {
        if buffers.contains(&class) {
            continue;
        }
        let null = nulls.contains(&class);
        let memory = fill(module, m, class, width, null)?;
        m.memories.insert(class, MemoryId(m.all.len()));
        m.all.push(memory);
    }
    // Objects without accesses have an address, too, which differs from those of others and from
    // null.
    let mut ends: HashMap<Class, u64> = HashMap::new();
    for (global, object) in module.globals.iter().enumerate() {
        let class = m.root(m.globals[global]);
        if !m.memories.contains_key(&class) {
            let end = ends.entry(class).or_insert(8);
            let size = object.bytes.len().max(1) as u64;
            m.offsets[global] = aligned(*end, size);
            *end = (m.offsets[global] + size).next_multiple_of(8);
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
            let bits = (m.offset(*to) as i64 + offset) as u32;
            let at = (m.offsets[index] + at) as usize;
            m.all[memory.0].bytes[at..at + 4].copy_from_slice(&bits.to_le_bytes());
        }
    }
    Ok(())
}

/// The classes of all accesses, and the size of the widest access of each.
fn widths(module: &Module, m: &mut Memories) -> Result<BTreeMap<Class, u64>> {
    let numbers: HashSet<Class> = m.numbers.iter().map(|&n| m.root(n)).collect();
    let owners: HashSet<Class> = m.globals.iter().map(|&n| m.root(n)).collect();
    let buffers: HashSet<Class> = m.buffers.iter().map(|&n| m.root(n)).collect();
    let mut used = BTreeMap::new();
    for (at, function) in module.functions.iter().enumerate() {
        for (instruction, position) in function.placed_instructions() {
            let (address, size) = match instruction.op {
                Op::Load(a, size, _)
                | Op::Store {
                    address: a, size, ..
                } => (a, size),
                _ => continue,
            };
            let Some(class) = m.class(FunctionId(at), address) else {
                let error = Error::unsupported("access through a null pointer");
                return Err(error
                    .remedy("assign the address of an object or a buffer first")
                    .at(position));
            };
            let class = m.root(class);
            if owners.contains(&class) && buffers.contains(&class) {
                return Err(Error::unsupported(
                    "access through a pointer that may refer to a buffer or to an object of the \
                     kernel",
                )
                .remedy("use a pointer for each")
                .at(position));
            }
            let known = owners.contains(&class) || buffers.contains(&class);
            if !known && numbers.contains(&class) {
                return Err(Error::unsupported(
                    "access through an address that is computed from a number or received in a \
                     message",
                )
                .remedy("use a pointer to an object of the kernel")
                .at(position));
            }
            let width = used.entry(class).or_insert(1);
            *width = size.max(*width);
        }
    }
    Ok(used)
}

/// The first address from `end` on for an object of this size. A type's size is a multiple of its
/// alignment, so that the alignment is known without the type; `long16` has the largest one.
fn aligned(end: u64, size: u64) -> u64 {
    end.next_multiple_of(1 << size.trailing_zeros().clamp(3, 7))
}

/// The memory of a class with its objects; `null`: a pointer to it may be null.
fn fill(module: &Module, m: &mut Memories, class: Class, width: u64, null: bool) -> Result<Memory> {
    let mut bytes = vec![0; if null { 8 } else { 0 }];
    let mut objects = Vec::new();
    let members: Vec<GlobalId> = (0..module.globals.len())
        .filter(|&g| m.root(m.globals[g]) == class)
        .map(GlobalId)
        .collect();
    for &global in &members {
        let object = &module[global];
        if object.external {
            return Err(Error::unsupported(format!(
                "variable '{}' is declared, but neither the sources nor the library define it",
                object.name
            )));
        }
        let size = object.bytes.len() as u64;
        let start = aligned(bytes.len() as u64, size);
        m.offsets[global.0] = start;
        bytes.resize(start as usize, 0);
        bytes.extend(&object.bytes);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        objects.push(object.name.clone());
    }
    if bytes.is_empty() {
        bytes.resize(8, 0);
    }
    let name = match members.as_slice() {
        [one] => module[*one].name.clone(),
        many if many.iter().all(|g| module[*g].constant) => "texts".to_owned(),
        _ => "memory".to_owned(),
    };
    Ok(Memory {
        name,
        width,
        bytes,
        objects,
        far: false,
        items: !members.is_empty()
            && (members.iter()).all(|g| module[*g].local || module[*g].items),
        banks: Banks::default(),
    })
}

/// Checks that each access has a memory.
fn verify(module: &Module, m: &Memories) -> Result<()> {
    for (at, function) in module.functions.iter().enumerate() {
        for (instruction, position) in function.placed_instructions() {
            let address = match instruction.op {
                Op::Load(a, ..) | Op::Store { address: a, .. } => a,
                _ => continue,
            };
            if m.of(FunctionId(at), address).is_none() {
                return Err(
                    Error::internal("access through a pointer that has no memory").at(position),
                );
            }
        }
    }
    Ok(())
}

/// Moves the largest memories off the chip until the rest fits on it.
fn move_away(module: &Module, m: &mut Memories, far: u64) -> Result<()> {
    let whole: u64 = m.all.iter().map(|memory| memory.bytes.len() as u64).sum();
    if whole > BYTES_MAX && far == 0 {
        let sizes = m.all.iter();
        let sizes = sizes.map(|m| (m.name.as_str(), m.bytes.len() as u64));
        return Err(Error::too_large(format!(
            "{whole} bytes of arrays exceed the block RAM of a kernel, {BYTES_MAX} bytes, by {}: {}",
            whole - BYTES_MAX,
            largest(sizes.collect(), "bytes")
        ))
        .remedy("an m_axi port gives it memory off the chip"));
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
            .filter(|&g| m.memories.get(&m.root(m.globals[g])) == Some(&MemoryId(moved)));
        for global in members.collect::<Vec<_>>() {
            let object = &module.globals[global];
            if object.bytes.iter().any(|b| *b != 0) || !object.pointers.is_empty() {
                return Err(Error::too_large(format!(
                    "'{}' has initial contents and does not fit on the chip, but memory off the \
                     chip is zero at first",
                    object.name
                ))
                .remedy("assign the contents when the kernel starts"));
            }
            m.offsets[global] += m.far_bytes;
        }
        m.far_bytes += bytes.len() as u64;
    }
    if m.far_bytes > far {
        return Err(Error::too_large(format!(
            "arrays off the chip take {} bytes, but the m_axi port has {far}",
            m.far_bytes
        ))
        .remedy("raise its 'bytes'"));
    }
    Ok(())
}

/// The largest parts as text: names with amounts of a unit, and the sum of the rest.
pub fn largest(mut parts: Vec<(&str, u64)>, unit: &str) -> String {
    const SHOWN: usize = 4;
    parts.retain(|(_, amount)| *amount > 0);
    // In the order of the source where amounts are equal.
    parts.sort_by_key(|(_, amount)| std::cmp::Reverse(*amount));
    let rest = parts.split_off(parts.len().min(SHOWN));
    let mut text: Vec<_> = (parts.iter())
        .map(|(name, amount)| format!("'{name}' {amount} {unit}"))
        .collect();
    if !rest.is_empty() {
        let sum: u64 = rest.iter().map(|(_, amount)| amount).sum();
        text.push(format!("{} others {sum} {unit}", rest.len()));
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn the_largest_parts_come_first() {
        let parts = ["a", "b", "c", "d", "e", "f"]
            .into_iter()
            .zip([1, 9, 0, 9, 2, 3]);
        let text = largest(parts.collect(), "bytes");
        assert_eq!(
            text,
            "'b' 9 bytes, 'd' 9 bytes, 'f' 3 bytes, 'e' 2 bytes, 1 others 1 bytes"
        );
    }

    const OBJECTS: &str = "@a = internal global [4 x i32] zeroinitializer\n\
                           @b = internal global [4 x i8] zeroinitializer\n";

    fn analyzed(body: &str) -> Result<Memories> {
        let text = format!("{OBJECTS}define i32 @f(i1 %c, i32 %n) {{\n{body}\n}}\n");
        let mut module = parse::module(&text)?;
        analyze(&mut module, 0)
    }

    #[test]
    fn objects_of_one_pointer_share_a_memory() {
        let apart = "  %x = load i32, ptr @a, align 4\n  store i8 1, ptr @b, align 1\n  ret i32 %x";
        let widths = |m: &Memories| m.all.iter().map(|m| m.width).collect::<Vec<_>>();
        assert_eq!(widths(&analyzed(apart).unwrap()), [4, 1]);
        let shared = "  %p = select i1 %c, ptr @a, ptr @b\n  %x = load i32, ptr %p, align 4\n  \
                      ret i32 %x";
        let memories = analyzed(shared).unwrap();
        assert_eq!(widths(&memories), [4]);
        assert_eq!(memories.all[0].objects, ["a", "b"]);
        assert_eq!(memories.offset(GlobalId(1)), 16);
    }

    #[test]
    fn rejects_addresses_that_are_computed_from_numbers() {
        let body = "  %n2 = mul i32 %n, 3\n  %p = inttoptr i32 %n2 to ptr\n  \
                    %x = load i32, ptr %p, align 4\n  ret i32 %x";
        let error = analyzed(body).err().map(|e| e.to_string());
        assert!(error.is_some_and(|e| e.contains("computed from a number")));
    }
}
