//! Kernels in OpenCL C, synthesized and simulated, against references in Rust.

mod arguments;
mod chance;
mod channels;
mod counters;
mod generate;
mod kernels;
mod launch;
mod layer;
mod library;
mod names;
mod networks;
mod parts;
mod pipes;
mod printing;
mod reference;
mod refused;
mod report;
mod streams;
mod structures;
mod tiles;
