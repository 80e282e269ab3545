//! Kernels in OpenCL C, synthesized and simulated, against references in Rust.

mod chance;
mod generate;
mod kernels;
mod launch;
mod library;
mod refused;
mod streams;
