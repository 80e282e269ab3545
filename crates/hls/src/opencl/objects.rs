//! Separate compilation: objects are LLVM's bitcode before optimization, so that a linked program is
//! optimized and synthesized as if its sources were one.

use super::clang::{self, Loops};
use super::{synthesize_all, Accelerator, BuildError, Options};
use crate::program;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) const LINK: &str = "llvm-link-16";
/// The file of a linked program.
const LINKED: &str = "linked.bc";
/// In objects that need the library's part for it.
const PRINTF: &[u8] = b"printf";
/// A source for that part, which has doubles.
const PRINT_SOURCE: &str = "// printf, double\n";

/// Compiles a program to an object; returns it with the warnings. `work`: a folder for intermediate
/// files.
///
/// # Errors
///
/// The program is not correct.
pub fn compile_object(
    source: &str,
    options: &Options,
    work: &Path,
) -> Result<(Vec<u8>, String), BuildError> {
    clang::object(source, options, false, work)
}

/// Links objects to one.
///
/// # Errors
///
/// Two objects define a name, or one of them is malformed.
pub fn link_objects(objects: &[Vec<u8>], work: &Path) -> Result<(Vec<u8>, String), BuildError> {
    let (path, log) = link(objects, work)?;
    let linked = fs::read(&path).map_err(|error| unreadable(&path, &error))?;
    Ok((linked, log))
}

/// Links objects, and compiles the program.
///
/// # Errors
///
/// As [`link_objects`] and [`compile`](super::compile).
pub fn compile_linked(
    objects: &[Vec<u8>],
    options: &Options,
    work: &Path,
) -> Result<Accelerator, BuildError> {
    let mut all = objects.to_vec();
    let prints = |object: &Vec<u8>| object.windows(PRINTF.len()).any(|part| part == PRINTF);
    if all.iter().any(prints) {
        let options = Options {
            defines_and_flags: Vec::new(),
            ..options.clone()
        };
        all.push(clang::object(PRINT_SOURCE, &options, true, work)?.0);
    }
    let (path, log) = link(&all, work)?;
    let compiled = |loops: Loops| clang::ir_of_object(&path, loops, work);
    let mut accelerator = synthesize_all(&compiled, options)?;
    accelerator.log.insert_str(0, &log);
    Ok(accelerator)
}

fn unreadable(path: &Path, error: &std::io::Error) -> BuildError {
    BuildError {
        log: format!("cannot access {}: {error}\n", path.display()),
    }
}

fn link(objects: &[Vec<u8>], work: &Path) -> Result<(PathBuf, String), BuildError> {
    let mut names = Vec::new();
    for (at, object) in objects.iter().enumerate() {
        let name = format!("object_{at}.bc");
        let path = work.join(&name);
        fs::write(&path, object).map_err(|error| unreadable(&path, &error))?;
        names.push(name);
    }
    let run = Command::new(LINK)
        .current_dir(work)
        .args(&names)
        .args(["-o", LINKED])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| BuildError {
            log: format!("error: {}\n", program::not_started(LINK, &error)),
        })?;
    let log = String::from_utf8_lossy(&run.stderr).into_owned();
    if !run.status.success() {
        let log = program::failure(LINK, run.status, &log);
        return Err(BuildError { log });
    }
    Ok((work.join(LINKED), log))
}
