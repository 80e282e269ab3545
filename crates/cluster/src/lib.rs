//! Clusters of ranks that pass messages: which kernels there are (the logical file), where each runs (the map file),
//! and what makes processes of them.
//!
//! [`Cluster::read`] reads both files in any of their dialects and says, with file and line, what is wrong;
//! [`build`] compiles the kernels' C sources against `libhumboldt`, for processes and for boards
//! (synthesised, or for a processor there: `form`), and makes the boards' model; [`run`] starts the ranks: a process each, and one for each board.
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
pub use model::{Cluster, Comm, Kernel, Logical, Map, Node, NodeKind, Place, Port};
pub use problem::{Problem, Problems};
pub use run::{run, Options, Outcome};
pub use sources::Build;
