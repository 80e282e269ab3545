//! Kernels in OpenCL C, synthesized and simulated, against references in Rust.

mod kernels;
mod launch;
mod refused;
mod streams;
