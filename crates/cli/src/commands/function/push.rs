//! `baltra function push`: uploads images of regions to a running board, over its host port.

use crate::args::Push;
use anyhow::{bail, Context, Result};
use baltra_board::image::{Description, BYTES_MAX, NAME_MAX, SCALARS, SCALAR_MAX};
use baltra_board::{is_plain, Image, Port};
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Default limit of cycles per call.
pub const TIMEOUT: u32 = 1 << 24;

/// Writes each image to board memory and its name to the function table. All images are checked
/// before the first is uploaded.
pub fn push(args: &Push) -> Result<()> {
    let files = args.images.iter().map(|text| read(text));
    let files: Vec<(String, &str, Vec<u8>)> = files.collect::<Result<_>>()?;
    let mut ready = Vec::new();
    for (name, path, bytes) in &files {
        let image = Image::parse(bytes).with_context(|| path.to_string())?;
        let about = describe(args, name, &image).with_context(|| path.to_string())?;
        ready.push((path, image, about));
    }
    let largest = ready.iter().map(|(_, image, _)| image.bytes.len());
    let port = Port::connect(&args.board, largest.max().unwrap_or(1) as u64)?;
    for (path, image, _) in &ready {
        image
            .suits(port.about.shell, port.about.regions)
            .with_context(|| path.to_string())?;
    }
    let count = ready.len();
    let progress = std::io::stderr().is_terminal();
    for (index, (path, image, about)) in ready.iter().enumerate() {
        if progress {
            eprint!(
                "\r\x1b[K{}/{count} {} ({} bytes)",
                index + 1,
                about.name,
                image.bytes.len()
            );
            std::io::stderr().flush()?;
        }
        let pushed = port.define(image, about);
        if progress {
            eprint!("\r\x1b[K");
        }
        let number = pushed.with_context(|| format!("{path}: {} of {count} pushed", index))?;
        println!(
            "{}: function {number}, {} bytes",
            about.name,
            image.bytes.len()
        );
    }
    Ok(())
}

/// Removes functions from a board's table.
pub fn remove(board: &Path, names: &[String]) -> Result<()> {
    let port = Port::connect(board, 1)?;
    for name in names {
        port.remove(name).with_context(|| name.clone())?;
        println!("{name} removed");
    }
    Ok(())
}

/// The optional name, the path, and the file's contents.
fn read(text: &str) -> Result<(String, &str, Vec<u8>)> {
    let (name, path) = text.split_once('=').unwrap_or(("", text));
    let about = std::fs::metadata(path).with_context(|| path.to_owned())?;
    if !about.is_file() || about.len() > BYTES_MAX as u64 {
        bail!("{path} is not a regular file of at most {BYTES_MAX} bytes");
    }
    let bytes = std::fs::read(path).with_context(|| path.to_owned())?;
    Ok((name.to_owned(), path, bytes))
}

/// The table entry: the command line's values, otherwise the image's own.
fn describe(args: &Push, name: &str, image: &Image<'_>) -> Result<Description> {
    let mut about = image.description.clone().unwrap_or(Description {
        timeout: TIMEOUT,
        ..Description::default()
    });
    if !name.is_empty() {
        about.name = name.to_owned();
    }
    if let Some(scalars) = &args.scalars {
        about.scalars = scalars.clone();
    }
    about.timeout = args.timeout.unwrap_or(about.timeout);
    about.speed = args.speed.unwrap_or(about.speed);
    if about.name.is_empty() {
        bail!("the image does not name its kernel: set the name with NAME=FILE");
    }
    if !is_plain(&about.name, NAME_MAX) {
        bail!(
            "invalid function name '{}': use letters, digits, - and _, up to {NAME_MAX}",
            about.name
        );
    }
    if let Some(wrong) = about.scalars.iter().find(|s| !is_plain(s, SCALAR_MAX)) {
        bail!("invalid scalar name '{wrong}': use letters, digits, - and _, up to {SCALAR_MAX}");
    }
    if about.scalars.len() > SCALARS {
        bail!("too many scalars: a kernel has at most {SCALARS}");
    }
    Ok(about)
}
