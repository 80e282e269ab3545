//! Kernels in OpenCL C, synthesized and simulated, against references in Rust.

mod arguments;
mod chance;
mod channels;
mod generate;
mod kernels;
mod launch;
mod library;
mod pipes;
mod reference;
mod refused;
mod streams;
mod tiles;
