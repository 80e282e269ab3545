//! Estimates of a kernel's area on ECP5.

use super::clang::SOURCE;
use super::device;
use super::manifest::{
    AccessReport, AreaReport, LoopReport, MemoryKind, MemoryReport, Report, StageReport,
};
use crate::emit::reader_lines;
use crate::error::{Error, Result};
use crate::ir::{FunctionId, Module, Op};
use crate::memory::{largest, Memories, Memory, MemoryId};
use crate::synthesis::Hardware;
use crate::units::{unit, Unit};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes and bits of width of a block RAM.
const BLOCK_RAM_BYTES: u64 = 2048;
const BLOCK_RAM_BITS: u64 = 36;
/// LUTs of the start, of the memory port and of the text. The estimate is fitted to nine placed
/// kernels (bench/results/kernels/2026-11-28-placed-6c6dde0a05.md), 11 % below to 9 % above, and
/// compared with eleven mapped ones (2026-11-29-mapped-bd6910dcf4.md), 16 % below to 21 % above.
const FRAME_LUTS: u64 = 180;
/// LUTs of the port of a load (`kernel_reader`) and its block RAMs (a larger cache has those of its
/// lines and one), and LUTs that all ports share (`kernel_readers`).
const READER_LUTS: u64 = 700;
const READERS_LUTS: u64 = 150;
const READER_BLOCK_RAMS: u64 = 2;
/// Their part in the report.
const READERS: &str = "ports of loads";
/// Lines of a port's cache for each of its block RAMs.
const LINES_PER_BLOCK_RAM: u64 = 16;
/// Words of a memory that the synthesis makes of LUTs.
const LUT_RAM_WORDS: u64 = 16;
/// Result bits of operations for each LUT: many operations are merged with the next one.
const BITS_PER_LUT: u64 = 2;
/// Estimates above the device's LUTs by at most one part of this many may be too high.
const LUTS_TOLERANCE: u64 = 4;

/// LUTs of a unit.
fn unit_luts(kind: Unit) -> u64 {
    match kind {
        Unit::Multiply(18) | Unit::Product => 20,
        Unit::Multiply(32) => 80,
        Unit::Multiply(_) => 400,
        Unit::Divide(w) => u64::from(w) * 9,
        Unit::Fadd(32) => 850,
        Unit::Fadd(_) => 1200,
        Unit::Fmul(32) => 550,
        Unit::Fmul(_) => 600,
        Unit::FromInteger(i, _, _) => u64::from(i) * 7,
        Unit::ToInteger(w, i, _) => u64::from(w.max(i)) * 6,
        Unit::Widen | Unit::Narrow => 150,
    }
}

/// Lines of the stages, and of the accesses, in a kernel's report: those of 128 kernels fit into an
/// image's manifest.
const LINES_MAX: usize = 256;

/// Describes a kernel's hardware.
pub fn report(module: &Module, memories: &Memories, hardware: &Hardware) -> Report {
    let area = area(module, memories, hardware);
    let sum = |of: fn(&AreaReport) -> u64| area.iter().map(of).sum();
    Report {
        states: hardware.states as u64,
        loops: loops(hardware),
        memories: on_chip(module, memories),
        luts: sum(|part| part.luts),
        block_rams: sum(|part| part.block_rams),
        multipliers: sum(|part| part.multipliers),
        item_cycles_min: 0,
        area,
    }
}

fn loops(hardware: &Hardware) -> Vec<LoopReport> {
    let mut lines = LINES_MAX;
    let own = hardware.pipelines.iter();
    own.filter(|pipeline| pipeline.position.file.ends_with(SOURCE))
        .map(|pipeline| {
            let stages = pipeline.stages.iter();
            let own = stages.filter(|((file, _), _)| file.ends_with(SOURCE));
            let stages = own.map(|(&(_, line), &(first, last))| StageReport {
                line: line as u64,
                first,
                last,
            });
            let stages: Vec<_> = stages.take(lines).collect();
            lines -= stages.len();
            LoopReport {
                line: pipeline.position.line as u64,
                interval: pipeline.interval,
                limit: pipeline.limit.to_owned(),
                work_items: pipeline.items,
                steps: u64::from(pipeline.steps),
                stages,
            }
        })
        .collect()
}

/// The memories on the chip.
fn on_chip(module: &Module, memories: &Memories) -> Vec<MemoryReport> {
    let mut accesses: BTreeMap<MemoryId, BTreeMap<usize, AccessReport>> = BTreeMap::new();
    for (at, function) in module.functions.iter().enumerate() {
        for instruction in function.instructions() {
            let position = &instruction.position;
            let (address, loads, stores) = match instruction.op {
                Op::Load(address, ..) => (address, 1, 0),
                Op::Store { address, .. } => (address, 0, 1),
                _ => continue,
            };
            let Some(memory) = memories.of(FunctionId(at), address) else {
                continue;
            };
            if !position.is_unknown() && position.file.ends_with(SOURCE) {
                let lines = accesses.entry(memory).or_default();
                let own = lines.entry(position.line).or_default();
                own.line = position.line as u64;
                own.loads += loads;
                own.stores += stores;
            }
        }
    }
    let mut lines = LINES_MAX;
    let all = memories.all.iter().enumerate().filter(|(_, m)| !m.far);
    all.map(|(at, memory)| {
        let own = accesses.remove(&MemoryId(at)).unwrap_or_default();
        let own: Vec<_> = own.into_values().take(lines).collect();
        lines -= own.len();
        MemoryReport {
            name: memory.name.clone(),
            bytes: memory.bytes.len() as u64,
            banks: u64::from(memory.banks.count()),
            kind: kind(module, memory),
            word_bits: memory.width * 8,
            accesses: own,
        }
    })
    .collect()
}

fn kind(module: &Module, memory: &Memory) -> MemoryKind {
    let held = |name: &String| module.globals.iter().find(|global| global.name == *name);
    let objects: Vec<_> = memory.objects.iter().filter_map(held).collect();
    if objects.iter().any(|object| object.local) {
        MemoryKind::Local
    } else if !objects.is_empty() && objects.iter().all(|object| object.constant) {
        MemoryKind::Constant
    } else {
        MemoryKind::Private
    }
}

/// The parts of a kernel's area.
fn area(module: &Module, memories: &Memories, hardware: &Hardware) -> Vec<AreaReport> {
    let mut result_bits = 0;
    for function in &module.functions {
        for instruction in function.instructions() {
            if unit(function, instruction).is_some() {
                continue;
            }
            let bits = instruction.result.and_then(|r| function[r].ty.bits());
            let bits = u64::from(bits.unwrap_or(0));
            result_bits += match instruction.op {
                Op::Binary(..) | Op::Select(..) | Op::Address { .. } | Op::Phi(_) => bits,
                Op::Compare { bits, .. } => u64::from(bits) / 2,
                Op::Store { .. } => 32,
                _ => 0,
            };
        }
    }
    let part = |name: String, luts| AreaReport {
        name,
        count: 1,
        luts,
        ..AreaReport::default()
    };
    let mut parts = vec![
        part("start and memory port".to_owned(), FRAME_LUTS),
        part("operations".to_owned(), result_bits / BITS_PER_LUT),
    ];
    let (ports, reader_block_rams) = readers(module);
    if ports > 0 {
        parts.push(AreaReport {
            count: ports,
            block_rams: reader_block_rams,
            ..part(READERS.to_owned(), ports * READER_LUTS + READERS_LUTS)
        });
    }
    for (&kind, &count) in &hardware.units {
        parts.push(AreaReport {
            count: u64::from(count),
            multipliers: u64::from(kind.multipliers() * count),
            ..part(kind.name(), unit_luts(kind) * u64::from(count))
        });
    }
    let on_chip = memories.all.iter().filter(|m| !m.far);
    parts.extend(on_chip.map(|memory| AreaReport {
        block_rams: block_rams(memory),
        ..part(memory.name.clone(), memory_luts(memory))
    }));
    parts
}

/// The ports of loads, and their block RAMs.
fn readers(module: &Module) -> (u64, u64) {
    let all = || module.functions.iter().flat_map(|f| f.instructions());
    let ports: BTreeSet<u32> = all().filter_map(|i| i.reader).collect();
    let of_words = all().filter(|i| i.reader_word > 0);
    let of_words: BTreeSet<u32> = of_words.filter_map(|i| i.reader).collect();
    let (ports, small) = (ports.len() as u64, of_words.len() as u64);
    let lines = u64::from(reader_lines(
        (ports - small) as u32,
        &module.channels,
        module.parts,
    ));
    let block_rams = match lines / LINES_PER_BLOCK_RAM {
        0..=1 => READER_BLOCK_RAMS,
        large => large.max(READER_BLOCK_RAMS) + 1,
    };
    (
        ports,
        small * READER_BLOCK_RAMS + (ports - small) * block_rams,
    )
}

/// LUTs of a memory that the synthesis makes of LUTs: one for each bit of a word, and half as many to
/// write it.
fn memory_luts(memory: &Memory) -> u64 {
    if is_small(memory) {
        (memory.width * 8 * 3 / 2) << memory.banks.bits
    } else {
        0
    }
}

fn is_small(memory: &Memory) -> bool {
    memory.bytes.len() as u64 >> memory.banks.bits <= LUT_RAM_WORDS * memory.width
}

/// Block RAMs of a memory.
fn block_rams(memory: &Memory) -> u64 {
    if is_small(memory) {
        return 0;
    }
    let bytes = memory.bytes.len() as u64 >> memory.banks.bits;
    let bank = bytes
        .div_ceil(BLOCK_RAM_BYTES)
        .max((memory.width * 8).div_ceil(BLOCK_RAM_BITS));
    bank << memory.banks.bits
}

/// Checks that a kernel alone fits into the largest part of the family.
pub fn check(report: &Report) -> Result<()> {
    type Amount = fn(&AreaReport) -> u64;
    let used: [(&str, u64, u64, Amount); 3] = [
        (
            "block RAMs",
            report.block_rams,
            device::BLOCK_RAMS,
            |part| part.block_rams,
        ),
        (
            "multipliers",
            report.multipliers,
            device::MULTIPLIERS,
            |part| part.multipliers,
        ),
        ("LUTs", report.luts, device::LUTS, |part| part.luts),
    ];
    let exceeds = |(what, used, most, _): &(&str, u64, u64, Amount)| match *what {
        "LUTs" => *used > most + most / LUTS_TOLERANCE,
        _ => used > most,
    };
    let Some((what, used, most, amount)) = used.into_iter().find(exceeds) else {
        return Ok(());
    };
    let parts = report.area.iter();
    let parts = parts.map(|part| (part.name.as_str(), amount(part)));
    let about = if what == "LUTs" { "about " } else { "" };
    Err(Error::too_large(format!(
        "the kernel needs {about}{used} {what}, {} has {most}: {} too many; {}",
        device::NAME,
        used - most,
        largest(parts.collect(), what)
    ))
    .remedy("use fewer or smaller arrays, or less parallel work"))
}
