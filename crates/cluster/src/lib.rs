//! Clusters of ranks that pass messages. The logical file lists the kernels, the map file places
//! each on a node; this crate checks both files, builds the kernels and runs them.
//!
//! [`Cluster::read`] reads both files in any of their dialects and reports problems with file and
//! line. [`build`] compiles the kernels' C sources against `libhumboldt` for processes and for
//! boards (synthesized, or for a processor; see `form`), and makes the boards' model. [`run`]
//! starts one process for each rank, and one for each board.
#![forbid(unsafe_code)]

mod build;
mod check;
mod command;
mod form;
mod job;
mod long;
mod model;
pub mod pool;
pub mod probe;
mod problem;
mod read;
mod rtl;
mod run;
mod sources;
mod stuck;
#[cfg(test)]
mod tests;
mod tree;
mod write;

pub use build::{build, Built, OnBoard, Program};
pub use command::{command, Command};
pub use form::Form;
pub use model::{Cluster, Comm, Kernel, KernelPlacement, Logical, Map, Node, NodeKind, Port};
pub use problem::{Problem, Problems};
pub use run::{run, Options, Outcome};
pub use sources::Build;
