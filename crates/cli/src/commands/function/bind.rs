//! `baltra function push --kernel`: binds a function of a board to a kernel from OpenCL C.

use crate::args::Push;
use anyhow::{bail, Context, Result};
use baltra_board::accelerator::{self, manifest::Manifest};
use baltra_board::binding::{self, Binding, Call};
use baltra_board::image::{Description, NAME_MAX, SCALAR_MAX};
use baltra_board::{is_plain, Port};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

/// Bytes of the bitstream that the kernel stands for, as for programs.
const CONFIGURATION_BYTES: u64 = 128 << 10;
/// The window for the binding.
const WINDOW_BYTES: u64 = 4096;

/// Checks the image and the binding, and adds the function to the board's table.
pub fn bind(args: &Push, kernel: &str) -> Result<()> {
    let [text] = args.images.as_slice() else {
        bail!("--kernel binds one function: name one image");
    };
    let (name, path) = text.split_once('=').unwrap_or((kernel, text));
    let scalars = args.scalars.clone().unwrap_or_default();
    if !is_plain(name, NAME_MAX) {
        bail!("invalid function name '{name}': use letters, digits, - and _, up to {NAME_MAX}");
    }
    if let Some(wrong) = scalars.iter().find(|s| !is_plain(s, SCALAR_MAX)) {
        bail!("invalid scalar name '{wrong}': use letters, digits, - and _, up to {SCALAR_MAX}");
    }
    if scalars.len() > binding::SCALARS {
        bail!(
            "too many scalars: a function that is bound to a kernel has at most {}",
            binding::SCALARS
        );
    }
    let about = std::fs::metadata(path).with_context(|| path.to_owned())?;
    if !about.is_file() || about.len() > accelerator::BYTES_MAX as u64 {
        bail!(
            "{path} is not a regular file of at most {} bytes",
            accelerator::BYTES_MAX
        );
    }
    let bytes = std::fs::read(path).with_context(|| path.to_owned())?;
    let image = accelerator::Image::parse(&bytes).with_context(|| path.to_owned())?;
    let manifest = Manifest::parse(&image.manifest).with_context(|| path.to_owned())?;
    let names = || manifest.kernels.iter().map(|k| k.name.as_str());
    let number = names().position(|known| known == kernel);
    let number = number.ok_or_else(|| binding::Error::Kernel {
        kernel: kernel.to_owned(),
        have: names().collect::<Vec<_>>().join(", "),
    })?;
    let call = Call {
        arguments: args.args.as_deref().unwrap_or_default(),
        global: args.global.as_deref().unwrap_or_default(),
        answer: &args.answer,
        scalars: &scalars,
    };
    let bound = Binding::new(&manifest.kernels[number], &call)?;
    let mut library = tempfile::tempfile().context("cannot create a temporary file")?;
    library.write_all(&image.library)?;
    let port = Port::connect(&args.board, WINDOW_BYTES)?;
    let about = Description {
        name: name.to_owned(),
        scalars,
        timeout: args.timeout.unwrap_or(super::push::TIMEOUT),
        speed: args.speed.unwrap_or(0),
    };
    let function =
        push(&port, &library, number, &bound, &about).with_context(|| path.to_owned())?;
    println!("{name}: function {function}, kernel {kernel}");
    Ok(())
}

fn push(
    port: &Port,
    library: &File,
    kernel: usize,
    bound: &Binding,
    about: &Description,
) -> Result<u32> {
    let number = port.bind(
        library.as_fd(),
        kernel as u32,
        CONFIGURATION_BYTES,
        bound,
        about,
    )?;
    Ok(number)
}
