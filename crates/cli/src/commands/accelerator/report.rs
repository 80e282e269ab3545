//! `baltra accelerator report`: the content of an image.

use super::placement::{self, Placed};
use crate::output::{self, Table};
use anyhow::{Context, Result};
use baltra_board::accelerator::manifest::{Address, Argument, Kernel, Manifest};
use baltra_board::accelerator::{Image, BYTES_MAX};
use serde_json::json;
use std::io::Read;
use std::path::Path;

/// Prints an image's kernels.
pub fn report(path: &Path, as_json: bool) -> Result<()> {
    let mut file = Vec::new();
    std::fs::File::open(path)
        .and_then(|opened| opened.take(BYTES_MAX as u64 + 1).read_to_end(&mut file))
        .with_context(|| format!("cannot read {}", path.display()))?;
    let image = Image::parse(&file).with_context(|| path.display().to_string())?;
    let manifest = Manifest::parse(&image.manifest).with_context(|| path.display().to_string())?;
    let placed = placement::read(&image.manifest).with_context(|| path.display().to_string())?;
    if as_json {
        let mut kernels = serde_json::to_value(&manifest.kernels)?;
        let list = kernels.as_array_mut().into_iter().flatten();
        for (kernel, placed) in list.zip(&placed) {
            kernel["report"]["placed"] = serde_json::to_value(placed)?;
        }
        output::json(&json!({
            "kernels": kernels,
            "files": image.files.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "library_bytes": image.library.len(),
        }));
        return Ok(());
    }
    for (at, kernel) in manifest.kernels.iter().enumerate() {
        if at > 0 {
            println!();
        }
        print(kernel, placed.get(at).and_then(Option::as_ref));
    }
    Ok(())
}

/// A kernel in one line.
pub fn summary(kernel: &Kernel) -> String {
    let report = &kernel.report;
    let intervals = report.loops.iter().map(|each| each.interval);
    let interval = intervals.max().map(|n| format!("II {n}, "));
    let interval = interval.unwrap_or_default();
    format!(
        "kernel {}: {interval}{} LUT, {} block RAMs, {} multipliers (estimate)",
        kernel.name, report.luts, report.block_rams, report.multipliers
    )
}

fn print(kernel: &Kernel, placed: Option<&Placed>) {
    println!("{}", summary(kernel));
    if let Some(placed) = placed {
        println!("{}", placed.summary());
    }
    if let Some([x, y, z]) = kernel.required_work_group_size {
        println!("work-group size {x} x {y} x {z}");
    }
    let memory = [
        (kernel.local_bytes, "local memory"),
        (kernel.private_bytes, "private memory"),
    ];
    for (bytes, what) in memory.into_iter().filter(|(bytes, _)| *bytes > 0) {
        println!("{what} {}", output::bytes(bytes));
    }
    let mut arguments = Table::new(&["ARGUMENT", "TYPE", "SPACE", ">BYTES"]);
    for argument in &kernel.arguments {
        let bytes = match argument.address {
            Address::Private => argument.bytes.to_string(),
            _ => "-".to_owned(),
        };
        arguments.row([
            argument.name.clone(),
            argument.type_name.clone(),
            space(argument).to_owned(),
            bytes,
        ]);
    }
    arguments.print();
    if !kernel.report.loops.is_empty() {
        let mut loops = Table::new(&["LOOP AT LINE", ">INTERVAL", "LIMITED BY"]);
        for each in &kernel.report.loops {
            let line = match each.line {
                0 => "work-items".to_owned(),
                line => line.to_string(),
            };
            loops.row([line, each.interval.to_string(), each.limit.clone()]);
        }
        loops.print();
    }
    if !kernel.report.memories.is_empty() {
        let mut memories = Table::new(&["MEMORY", ">BYTES", ">BANKS"]);
        for memory in &kernel.report.memories {
            memories.row([
                memory.name.clone(),
                memory.bytes.to_string(),
                memory.banks.to_string(),
            ]);
        }
        memories.print();
    }
}

fn space(argument: &Argument) -> &'static str {
    match argument.address {
        Address::Private => "by value",
        Address::Global => "global",
        Address::Constant => "constant",
        Address::Local => "local",
    }
}
