//! The files of a cluster: the sources of its kernels, and the folders of a build.

use crate::model::{Cluster, Kernel};
use anyhow::{ensure, Result};
use std::path::PathBuf;

/// The folders and programs of a build.
#[derive(Clone, Debug)]
pub struct Build {
    /// Where programs go.
    pub out: PathBuf,
    /// `libhumboldt`'s folder in the tree: `include`, and the library's Makefile.
    pub humboldt: PathBuf,
    /// The C compiler.
    pub compiler: String,
    /// Processes are another MPI's: programs are made by its compiler, `mpicc.NAME`, with the bridge to boards.
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

/// What Verilog's files are called.
const SUFFIXES: &[&str] = &["sv", "v"];

/// Whether a file is Verilog's, by its name.
fn is_hdl(name: &str) -> bool {
    (name.rsplit_once('.')).is_some_and(|(_, end)| SUFFIXES.contains(&end))
}

/// The Verilog files of a kernel: those named as its sources, or `NAME.sv` or `NAME.v` where no source is named.
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
