//! Replaces `printf`, copies of memory and intrinsics by instructions that hardware has, and
//! rejects instructions that cannot be synthesized.

use crate::aggregate;
use crate::flatten::flatten;
use crate::ir::{
    Binary, Block, Cast, Function, Global, Instruction, Module, Op, Place, Refusal, Type, Value,
};
use crate::maker::Maker;
use crate::narrow::{end_early, narrow};
use crate::print;
use std::collections::{HashMap, HashSet};

/// The entry function of a kernel (humboldt/fabric/hls.c).
pub const ENTRY: &str = "hum_main";
/// Bytes that `memcpy` and `memset` may move without a loop.
const STRAIGHT_BYTES_MAX: u64 = 256;

/// The calls that the message engines execute, with their number of arguments.
pub const PORTS: &[(&str, usize)] = &[
    ("hum_port_rank", 0),
    ("hum_port_cycles", 0),
    ("hum_port_send", 2),
    ("hum_port_put", 1),
    ("hum_port_sent", 0),
    ("hum_port_take", 2),
    ("hum_port_get", 0),
    ("hum_port_beat", 0),
    ("hum_port_outcome", 0),
    ("hum_port_bytes", 0),
    ("hum_port_text", 1),
    ("hum_port_end", 1),
];

/// Keeps the functions that are reachable from the entry, and lowers them. `far`: the kernel has
/// memory off the chip.
pub fn module(module: &mut Module, far: bool) -> Result<(), Refusal> {
    let index: HashMap<String, usize> = module
        .functions
        .iter()
        .enumerate()
        .map(|(i, f)| (f.name.clone(), i))
        .collect();
    let mut path = Vec::new();
    let mut reached = Vec::new();
    let entry = *index.get(ENTRY).ok_or_else(|| {
        Refusal::new(
            &Place::default(),
            format!("internal error: the IR has no function '{ENTRY}'"),
        )
    })?;
    reach(module, &index, entry, &mut path, &mut reached)?;
    let names: HashSet<String> = reached
        .iter()
        .map(|&i| module.functions[i].name.clone())
        .collect();
    aggregate::split(module, &reached)?;
    let mut functions = Vec::new();
    // The entry first.
    for &at in reached.iter().rev() {
        let mut function = module.functions[at].clone();
        lower(&mut function, &mut module.globals, &names)?;
        ends(&mut function);
        flatten(&mut function, far);
        outlive(&mut function);
        forget(&mut function);
        narrow(&mut function);
        end_early(&mut function);
        functions.push(function);
    }
    module.functions = functions;
    Ok(())
}

/// Lists reachable functions, callees before their callers.
fn reach(
    module: &mut Module,
    index: &HashMap<String, usize>,
    at: usize,
    path: &mut Vec<usize>,
    reached: &mut Vec<usize>,
) -> Result<(), Refusal> {
    if reached.contains(&at) {
        return Ok(());
    }
    if path.contains(&at) {
        let f = &module.functions[at];
        return Err(Refusal::new(
            &f.place,
            format!(
                "'{}' calls itself: hardware has no stack (replace the recursion by a loop)",
                f.name
            ),
        ));
    }
    path.push(at);
    // `printf` first, as its format determines which of the library's functions are called.
    let mut function = module.functions[at].clone();
    for block in &mut function.blocks.clone() {
        let code = std::mem::take(&mut block.code);
        let place = function.place.clone();
        let mut maker = Maker {
            function: &mut function,
            code: Vec::new(),
            place,
        };
        for instruction in code {
            maker.place = instruction.place.clone();
            match &instruction.op {
                Op::Call(name, arguments) if name == "printf" || name == "fprintf" => {
                    let arguments = &arguments[usize::from(name == "fprintf")..];
                    print::lower(&mut maker, &mut module.globals, arguments)?;
                    if let Some(result) = instruction.result {
                        maker.give(result, Op::Copy(Value::Undef));
                    }
                }
                _ => maker.code.push(instruction),
            }
        }
        block.code = std::mem::take(&mut maker.code);
        let name = block.name.clone();
        if let Some(b) = function.blocks.iter_mut().find(|b| b.name == name) {
            *b = block.clone();
        }
    }
    let mut callees = Vec::new();
    for instruction in function.blocks.iter().flat_map(|b| &b.code) {
        let Op::Call(name, arguments) = &instruction.op else {
            continue;
        };
        let wrong = |why: String| Err(Refusal::new(&instruction.place, why));
        if let Some(&callee) = index.get(name) {
            if !callees.contains(&callee) {
                callees.push(callee);
            }
        } else if let Some((_, count)) = PORTS.iter().find(|p| p.0 == name) {
            if arguments.len() != *count {
                return wrong(format!(
                    "call of '{name}' with {} arguments, expected {count}",
                    arguments.len()
                ));
            }
        } else if !name.starts_with("llvm.") {
            return wrong(unknown_function(name));
        }
    }
    module.functions[at] = function;
    for callee in callees {
        reach(module, index, callee, path, reached)?;
    }
    path.pop();
    reached.push(at);
    Ok(())
}

/// The error text for a call of a function without a definition.
pub fn unknown_function(name: &str) -> String {
    format!("call of '{name}', which neither the sources nor the library define")
}

fn lower(
    function: &mut Function,
    globals: &mut Vec<Global>,
    names: &HashSet<String>,
) -> Result<(), Refusal> {
    for value in &function.values {
        if value.ty.bits().is_some_and(|b| b > 64) {
            return Err(Refusal::new(
                &function.place,
                format!(
                    "function '{}' uses integers of more than 64 bits",
                    function.name
                ),
            ));
        }
    }
    let blocks = std::mem::take(&mut function.blocks);
    let place = function.place.clone();
    let mut maker = Maker {
        function,
        code: Vec::new(),
        place,
    };
    let mut done = Vec::new();
    for block in blocks {
        for instruction in block.code {
            maker.place = instruction.place.clone();
            match (&instruction.op, instruction.result) {
                (Op::Call(name, arguments), result)
                    if !names.contains(name) && name.starts_with("llvm.") =>
                {
                    let arguments = arguments.clone();
                    intrinsic(&mut maker, name, &arguments, result)?;
                }
                // A local variable lies in a memory of its own, as hardware has no stack.
                (Op::Local(bytes), Some(result)) => {
                    let name = maker.function.values[result].name.clone();
                    globals.push(Global {
                        name: format!("{}.{name}", maker.function.name),
                        bytes: vec![0; usize::try_from(*bytes).unwrap_or(usize::MAX).min(1 << 24)],
                        pointers: Vec::new(),
                        constant: false,
                        external: false,
                    });
                    let at = Value::Global(globals.len() - 1, 0);
                    maker.give(result, Op::Copy(at));
                }
                _ => maker.code.push(instruction),
            }
        }
        done.push(Block {
            name: block.name,
            code: std::mem::take(&mut maker.code),
        });
    }
    function.blocks = done;
    Ok(())
}

/// Makes the entry's return, and unreachable code, end the kernel, as a processor stops there.
fn ends(function: &mut Function) {
    let entry = function.name == ENTRY;
    for block in &mut function.blocks {
        let Some(last) = block.code.last() else {
            continue;
        };
        let code = match last.op {
            Op::Return(value) if entry => value.unwrap_or(Value::Bits(0)),
            Op::Unreachable => Value::Bits(132),
            _ => continue,
        };
        let place = last.place.clone();
        block.code.pop();
        let over = |i: &Instruction| matches!(&i.op, Op::Call(name, _) if name == "hum_port_end");
        if !block.code.last().is_some_and(over) {
            let op = Op::Call("hum_port_end".to_owned(), vec![(Type::Int(32), code)]);
            block.code.push(Instruction::new(None, op, &place));
        }
        block
            .code
            .push(Instruction::new(None, Op::Unreachable, &place));
    }
}

/// Removes instructions whose results are not used.
fn forget(function: &mut Function) {
    loop {
        let mut used = vec![false; function.values.len()];
        for instruction in function.blocks.iter().flat_map(|b| &b.code) {
            for value in instruction.op.uses() {
                // A phi that only feeds itself is not used.
                if let (Value::Local(v), true) =
                    (value, instruction.result.map(Value::Local) != Some(value))
                {
                    used[v] = true;
                }
            }
        }
        let mut changed = false;
        for block in &mut function.blocks {
            let before = block.code.len();
            block.code.retain(|i| {
                i.result
                    .is_none_or(|r| used[r] || matches!(i.op, Op::Call(..)))
            });
            changed |= block.code.len() != before;
        }
        if !changed {
            return;
        }
    }
}

/// Copies the phis of a loop of one block that are used after it, as a pipeline changes them before
/// its last iteration has ended.
fn outlive(function: &mut Function) {
    for at in 0..function.blocks.len() {
        let code = &function.blocks[at].code;
        if !matches!(code.last().map(|i| &i.op), Some(Op::Branch(_, a, b)) if (*a == at) != (*b == at))
        {
            continue;
        }
        let phis: Vec<usize> = code
            .iter()
            .filter(|i| matches!(i.op, Op::Phi(_)))
            .filter_map(|i| i.result)
            .collect();
        for phi in phis {
            let copy = function.values.len();
            let mut used = false;
            for (other, block) in function.blocks.iter_mut().enumerate() {
                for instruction in &mut block.code {
                    let inside = other == at;
                    match &mut instruction.op {
                        Op::Phi(from) => {
                            for (source, value) in from {
                                if *value == Value::Local(phi) && *source == at && !inside {
                                    *value = Value::Local(copy);
                                    used = true;
                                }
                            }
                        }
                        op if !inside => op.operands(&mut |value| {
                            if *value == Value::Local(phi) {
                                *value = Value::Local(copy);
                                used = true;
                            }
                        }),
                        _ => {}
                    }
                }
            }
            if used {
                let (name, ty) = (
                    format!("{}_last", function.values[phi].name),
                    function.values[phi].ty.clone(),
                );
                function.value(&name, ty);
                let code = &mut function.blocks[at].code;
                let front = code
                    .iter()
                    .take_while(|i| matches!(i.op, Op::Phi(_)))
                    .count();
                let place = code[front].place.clone();
                code.insert(
                    front,
                    Instruction::new(Some(copy), Op::Copy(Value::Local(phi)), &place),
                );
            }
        }
    }
}

fn intrinsic(
    maker: &mut Maker<'_>,
    name: &str,
    arguments: &[(Type, Value)],
    result: Option<usize>,
) -> Result<(), Refusal> {
    let stem = name.split('.').nth(1).unwrap_or("");
    let place = maker.place.clone();
    let wrong = |why: String| Err(Refusal::new(&place, why));
    let value = |i: usize| arguments.get(i).map_or(Value::Undef, |a| a.1);
    let ty = arguments.first().map_or(Type::Int(32), |a| a.0.clone());
    let bits = ty.bits().unwrap_or(32);
    match (stem, result) {
        ("memcpy" | "memmove" | "memset", _) => {
            let Value::Bits(count) = value(2) else {
                return wrong(format!(
                    "'{stem}' of a length that is not a constant (write a loop)"
                ));
            };
            if count > STRAIGHT_BYTES_MAX {
                return wrong(format!(
                    "'{stem}' of {count} bytes, more than {STRAIGHT_BYTES_MAX} (write a loop)"
                ));
            }
            let pieces = pieces(count);
            // All loads precede the first store, as source and target of `memmove` may overlap.
            let mut data = Vec::new();
            for &(offset, size) in &pieces {
                let ty = Type::Int(size as u32 * 8);
                data.push(match stem {
                    "memset" => match value(1) {
                        Value::Bits(byte) => Value::Bits(crate::parse::masked(
                            (byte & 0xff) * 0x0101_0101_0101_0101,
                            size as u32 * 8,
                        )),
                        byte => {
                            let wide =
                                maker.value("byte", ty.clone(), Op::Cast(Cast::Bits, 8, byte));
                            let ones = Value::Bits(crate::parse::masked(
                                0x0101_0101_0101_0101,
                                size as u32 * 8,
                            ));
                            maker.value("bytes", ty, Op::Binary(Binary::Mul, wide, ones))
                        }
                    },
                    _ => {
                        let from = maker.at(value(1), offset);
                        maker.value("moved", ty, Op::Load(from, size))
                    }
                });
            }
            for (&(offset, size), data) in pieces.iter().zip(data) {
                let to = maker.at(value(0), offset);
                maker.act(Op::Store(data, to, size, None));
            }
        }
        ("trap" | "debugtrap", _) => maker.act(Op::Call(
            "hum_port_end".to_owned(),
            vec![(Type::Int(32), Value::Bits(132))],
        )),
        ("abs", Some(result)) => {
            let minus = maker.value(
                "minus",
                ty.clone(),
                Op::Binary(Binary::Sub, Value::Bits(0), value(0)),
            );
            let below = maker.value(
                "below",
                Type::Int(1),
                Op::Compare("slt".to_owned(), bits, value(0), Value::Bits(0)),
            );
            maker.give(result, Op::Select(below, minus, value(0)));
        }
        ("fshl" | "fshr", Some(result)) => {
            // A shift by the width or more gives zero in SystemVerilog, so a rotation by zero is
            // right, too.
            let width = Value::Bits(u64::from(bits));
            let by = match value(2) {
                Value::Bits(n) => Value::Bits(n % u64::from(bits)),
                by if bits.is_power_of_two() => maker.value(
                    "by",
                    ty.clone(),
                    Op::Binary(Binary::And, by, Value::Bits(u64::from(bits) - 1)),
                ),
                _ => {
                    return wrong(format!(
                        "rotation of {bits} bits by a variable (use 8, 16, 32 or 64 bits)"
                    ))
                }
            };
            funnel(maker, stem, (value(0), value(1), by, width), ty, result);
        }
        ("bswap", Some(result)) => {
            let mut sum = Value::Bits(0);
            for byte in 0..bits / 8 {
                let from = u64::from(byte * 8);
                let low = maker.value(
                    "low",
                    ty.clone(),
                    Op::Binary(Binary::Lshr, value(0), Value::Bits(from)),
                );
                let one = maker.value(
                    "one",
                    ty.clone(),
                    Op::Binary(Binary::And, low, Value::Bits(0xff)),
                );
                let up = Value::Bits(u64::from(bits) - 8 - from);
                let moved = maker.value("moved", ty.clone(), Op::Binary(Binary::Shl, one, up));
                sum = maker.value("swapped", ty.clone(), Op::Binary(Binary::Or, sum, moved));
            }
            maker.give(result, Op::Copy(sum));
        }
        _ => return wrong(format!("LLVM intrinsic '{name}' cannot be synthesized")),
    }
    Ok(())
}

fn funnel(
    maker: &mut Maker<'_>,
    stem: &str,
    (high, low, by, width): (Value, Value, Value, Value),
    ty: Type,
    result: usize,
) {
    let rest = maker.value("rest", ty.clone(), Op::Binary(Binary::Sub, width, by));
    let (left, right) = if stem == "fshl" {
        (by, rest)
    } else {
        (rest, by)
    };
    let up = maker.value("up", ty.clone(), Op::Binary(Binary::Shl, high, left));
    let down = maker.value("down", ty, Op::Binary(Binary::Lshr, low, right));
    maker.give(result, Op::Binary(Binary::Or, up, down));
}

/// Divides bytes into pieces of 8, 4, 2 and 1: offset and size of each.
fn pieces(count: u64) -> Vec<(u64, u64)> {
    let (mut at, mut out) = (0, Vec::new());
    for size in [8, 4, 2, 1] {
        while count - at >= size {
            out.push((at, size));
            at += size;
        }
    }
    out
}
