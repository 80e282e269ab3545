//! Estimates of a kernel's area on ECP5.

use super::clang::SOURCE;
use super::manifest::{LoopReport, MemoryReport, Report};
use crate::emit::reader_lines;
use crate::error::{Error, Result};
use crate::ir::{Module, Op};
use crate::memory::{largest, Memories, Memory};
use crate::synthesis::Hardware;
use crate::units::{unit, Unit};
use std::collections::BTreeSet;

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
/// Lines of a port's cache for each of its block RAMs.
const LINES_PER_BLOCK_RAM: u64 = 16;
/// Words of a memory that the synthesis makes of LUTs.
const LUT_RAM_WORDS: u64 = 16;
/// Result bits of operations for each LUT: many operations are merged with the next one.
const BITS_PER_LUT: u64 = 2;
/// The largest part that kernels are placed on, and what it has.
const DEVICE: &str = "an LFE5UM5G-85F";
const DEVICE_BLOCK_RAMS: u64 = 208;
const DEVICE_MULTIPLIERS: u64 = 156;
const DEVICE_LUTS: u64 = 83_640;
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

/// Describes a kernel's hardware.
pub fn report(module: &Module, memories: &Memories, hardware: &Hardware) -> Report {
    let parts = lut_parts(module, memories, hardware);
    let units = hardware.units.iter();
    let multipliers = units.map(|(kind, count)| u64::from(kind.multipliers() * count));
    let on_chip = || memories.all.iter().filter(|m| !m.far);
    let block_rams: u64 = on_chip().map(block_rams).sum();
    Report {
        states: hardware.states as u64,
        loops: (hardware.pipelines.iter())
            .filter(|pipeline| pipeline.position.file.ends_with(SOURCE))
            .map(|pipeline| LoopReport {
                line: pipeline.position.line as u64,
                interval: pipeline.interval,
                limit: pipeline.limit.to_owned(),
            })
            .collect(),
        memories: on_chip()
            .map(|m| MemoryReport {
                name: m.name.clone(),
                bytes: m.bytes.len() as u64,
                banks: u64::from(m.banks.count()),
            })
            .collect(),
        luts: parts.iter().map(|(_, luts)| luts).sum(),
        block_rams: block_rams + readers(module).1,
        multipliers: multipliers.sum(),
    }
}

/// The parts of a kernel's LUTs.
fn lut_parts(module: &Module, memories: &Memories, hardware: &Hardware) -> Vec<(String, u64)> {
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
    let (readers, _) = readers(module);
    let mut parts = vec![
        ("start and memory port".to_owned(), FRAME_LUTS),
        ("operations".to_owned(), result_bits / BITS_PER_LUT),
    ];
    if readers > 0 {
        let luts = readers * READER_LUTS + READERS_LUTS;
        parts.push(("ports of loads".to_owned(), luts));
    }
    for (&kind, &count) in &hardware.units {
        parts.push((kind.name(), unit_luts(kind) * u64::from(count)));
    }
    let on_chip = memories.all.iter().filter(|m| !m.far);
    parts.extend(on_chip.map(|m| (m.name.clone(), memory_luts(m))));
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
pub fn check(
    module: &Module,
    memories: &Memories,
    hardware: &Hardware,
    report: &Report,
) -> Result<()> {
    let used = [
        ("block RAMs", report.block_rams, DEVICE_BLOCK_RAMS),
        ("multipliers", report.multipliers, DEVICE_MULTIPLIERS),
        ("LUTs", report.luts, DEVICE_LUTS),
    ];
    let exceeds = |(what, used, most): &(&str, u64, u64)| match *what {
        "LUTs" => *used > most + most / LUTS_TOLERANCE,
        _ => used > most,
    };
    let Some((what, used, most)) = used.into_iter().find(exceeds) else {
        return Ok(());
    };
    let parts = match what {
        "LUTs" => lut_parts(module, memories, hardware),
        "multipliers" => {
            let all = |kind: Unit, count: u32| u64::from(kind.multipliers() * count);
            let units = hardware.units.iter();
            let units = units.map(|(&kind, &count)| (kind.name(), all(kind, count)));
            units.collect()
        }
        _ => {
            let own = memories.all.iter().filter(|m| !m.far);
            let mut own: Vec<_> = own.map(|m| (m.name.clone(), block_rams(m))).collect();
            let sum: u64 = own.iter().map(|(_, count)| count).sum();
            own.push(("caches of loads".to_owned(), used.saturating_sub(sum)));
            own
        }
    };
    let parts = parts.iter().map(|(name, count)| (name.as_str(), *count));
    let about = if what == "LUTs" { "about " } else { "" };
    Err(Error::too_large(format!(
        "the kernel needs {about}{used} {what}, {DEVICE} has {most}: {} too many; {}",
        used - most,
        largest(parts.collect(), what)
    ))
    .remedy("use fewer or smaller arrays, or less parallel work"))
}
