//! `baltra accelerator report`: the content of an image.

use super::placement::{self, Placed};
use super::summary::{self, argument_bytes, space, summary};
use crate::output::{self, Table};
use anyhow::{Context, Result};
use baltra_board::accelerator::manifest::{Kernel, Manifest};
use baltra_board::accelerator::{Image, BYTES_MAX};
use serde_json::json;
use std::io::Read;
use std::path::Path;

/// Prints an image's kernels.
pub fn report(image: &Path, as_json: bool) -> Result<()> {
    let path = image.display().to_string();
    let file = read(image, BYTES_MAX)?;
    let image = Image::parse(&file).with_context(|| path.clone())?;
    let content = Content::of(image).with_context(|| path.clone())?;
    if as_json {
        return content.print_json();
    }
    content.print();
    Ok(())
}

/// A file of at most `most` bytes; a longer one has one byte more.
fn read(path: &Path, most: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|opened| opened.take(most as u64 + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(bytes)
}

/// The content of an image.
pub struct Content {
    manifest: Manifest,
    placed: Vec<Option<Placed>>,
    files: Vec<String>,
    library_bytes: usize,
}

impl Content {
    /// Reads the manifest of an image.
    pub fn of(image: Image) -> Result<Content> {
        Ok(Content {
            manifest: Manifest::parse(&image.manifest)?,
            placed: placement::read(&image.manifest)?,
            files: image.files.into_iter().map(|(name, _)| name).collect(),
            library_bytes: image.library.len(),
        })
    }

    fn kernels(&self) -> impl Iterator<Item = (&Kernel, Option<&Placed>)> {
        let kernels = self.manifest.kernels.iter().enumerate();
        kernels.map(|(at, kernel)| (kernel, self.placed.get(at).and_then(Option::as_ref)))
    }

    /// Prints a line for each kernel, and one if it is placed.
    pub fn print_summary(&self) {
        for (kernel, placed) in self.kernels() {
            println!("{}", summary(kernel));
            if let Some(placed) = placed {
                println!("  {}", summary::placed(placed));
            }
        }
    }

    /// Prints all as JSON.
    pub fn print_json(&self) -> Result<()> {
        let mut kernels = Vec::new();
        for (kernel, placed) in self.kernels() {
            let mut json = serde_json::to_value(kernel)?;
            summary::add(&kernel.report, &mut json["report"]);
            json["report"]["placed"] = serde_json::to_value(placed)?;
            kernels.push(json);
        }
        output::json(&json!({
            "kernels": kernels,
            "files": self.files,
            "library_bytes": self.library_bytes,
        }));
        Ok(())
    }

    fn print(&self) {
        for (at, (kernel, placed)) in self.kernels().enumerate() {
            if at > 0 {
                println!();
            }
            print(kernel, placed);
        }
    }
}

fn print(kernel: &Kernel, placed: Option<&Placed>) {
    println!("{}", summary(kernel));
    if let Some(placed) = placed {
        println!("{}", summary::placed(placed));
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
        arguments.row([
            argument.name.clone(),
            argument.type_name.clone(),
            space(argument).to_owned(),
            argument_bytes(argument),
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
