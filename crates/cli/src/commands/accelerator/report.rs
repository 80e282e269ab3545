//! `baltra accelerator report`: the content of an image.

use super::page::{Page, Source};
use super::placement::{self, Placed};
use super::summary::{self, argument_bytes, space, summary};
use crate::args::AcceleratorReport;
use crate::output::{self, Table};
use anyhow::{ensure, Context, Result};
use baltra_board::accelerator::manifest::{source_checksum, Kernel, Manifest};
use baltra_board::accelerator::{Image, BYTES_MAX};
use serde_json::json;
use std::io::{Read, Write};
use std::path::Path;

/// Bytes of the longest source in a page.
const SOURCE_BYTES_MAX: usize = 1 << 20;

/// Prints an image's kernels, or writes a page about them.
pub fn report(args: &AcceleratorReport) -> Result<()> {
    let path = args.image.display().to_string();
    let file = read(&args.image, BYTES_MAX)?;
    let image = Image::parse(&file).with_context(|| path.clone())?;
    let content = Content::of(image).with_context(|| path.clone())?;
    if args.json.json {
        return content.print_json();
    }
    if !args.html {
        content.print();
        return Ok(());
    }
    let source = args.source.as_deref();
    let source = source.map(|path| source_of(path, &content.manifest));
    let source = source.transpose()?;
    let page = Page {
        title: &file_name(&args.image),
        kernels: &content.manifest.kernels,
        placed: &content.placed,
        source: source.as_ref(),
    };
    let text = page.text();
    match &args.output {
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        }
        None => output::Stdout
            .write_all(text.as_bytes())
            .context("cannot write the output"),
    }
}

/// A file of at most `most` bytes; a longer one has one byte more.
fn read(path: &Path, most: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|opened| opened.take(most as u64 + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(bytes)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn source_of(path: &Path, manifest: &Manifest) -> Result<Source> {
    let bytes = read(path, SOURCE_BYTES_MAX)?;
    ensure!(
        bytes.len() <= SOURCE_BYTES_MAX,
        "the source {} has more than {}, the most that a page shows",
        path.display(),
        output::bytes(SOURCE_BYTES_MAX as u64)
    );
    // As `baltra accelerator build` reads it.
    let text = String::from_utf8_lossy(&bytes);
    let built = Some(&manifest.source_sha256).filter(|checksum| !checksum.is_empty());
    Ok(Source {
        name: file_name(path),
        lines: text.lines().map(str::to_owned).collect(),
        matches: built.map(|checksum| *checksum == source_checksum(text.as_bytes())),
    })
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
