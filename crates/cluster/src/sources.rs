//! The sources of a cluster's kernels, and the folders of a build.

use crate::model::{Cluster, Kernel};
use anyhow::{ensure, Result};
use std::path::PathBuf;

/// The folders and programs of a build.
#[derive(Clone, Debug)]
pub struct Build {
    /// The output folder.
    pub out: PathBuf,
    /// The folder of `libhumboldt` in the tree: it contains `include` and the library's Makefile.
    pub humboldt: PathBuf,
    /// The C compiler.
    pub compiler: String,
    /// The MPI that the processes use, if not HUMboldt's: its compiler `mpicc.NAME` makes the
    /// programs, with the bridge to boards.
    pub mpi: Option<String>,
}

/// The C files of a kernel.
pub fn c_sources(cluster: &Cluster, kernel: &Kernel) -> Result<Vec<PathBuf>> {
    let folder = cluster.folder();
    let mut names = kernel.sources.clone();
    names.retain(|name| !is_hdl(name));
    if names.is_empty() {
        names.push(format!("{}.c", kernel.name));
    }
    names
        .iter()
        .map(|name| {
            let path = folder.join(name);
            ensure!(
                path.is_file(),
                "{}:{}: kernel '{}': cannot read the source {} (set it with <source>)",
                cluster.logical.path.display(),
                kernel.line,
                kernel.name,
                path.display()
            );
            Ok(path)
        })
        .collect()
}

/// Suffixes of Verilog files.
const SUFFIXES: &[&str] = &["sv", "v"];

/// Whether a file is Verilog, by its name.
fn is_hdl(name: &str) -> bool {
    (name.rsplit_once('.')).is_some_and(|(_, end)| SUFFIXES.contains(&end))
}

/// The Verilog files of a kernel: those in its list of sources, or `NAME.sv` or `NAME.v` if the
/// list is empty.
pub fn verilog_sources(cluster: &Cluster, kernel: &Kernel) -> Vec<PathBuf> {
    let folder = cluster.folder();
    if !kernel.sources.is_empty() {
        let hdl = kernel.sources.iter().filter(|name| is_hdl(name));
        return hdl.map(|name| folder.join(name)).collect();
    }
    let own = |end: &str| folder.join(format!("{}.{end}", kernel.name));
    let mut own = SUFFIXES.iter().map(|end| own(end));
    own.find(|path| path.is_file()).into_iter().collect()
}
