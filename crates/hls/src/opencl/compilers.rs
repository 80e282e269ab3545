//! The programs that turn OpenCL C into models of hardware.

use super::{objects, prepared};
use crate::compile::CLANG;
pub use crate::program::PACKAGES;
use std::path::Path;
use std::process::{Command, Stdio};

/// Names of the programs that cannot be run. `tree`: the folder `hdl` of Baltra's tree.
pub fn missing(tree: &Path) -> Vec<&'static str> {
    let verilator = tree.join("verilator");
    let mut all = [CLANG, prepared::COMPILER, objects::LINK]
        .map(|name| (name, Path::new(name)))
        .to_vec();
    all.push(("Verilator", &verilator));
    all.retain(|(_, program)| !runs(program));
    all.into_iter().map(|(name, _)| name).collect()
}

fn runs(program: &Path) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null());
    command.output().is_ok_and(|done| done.status.success())
}
