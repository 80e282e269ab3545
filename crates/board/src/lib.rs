//! Client of a board's host port, for programs on the board's host, and the formats of images.
//!
//! | module | content |
//! |---|---|
//! | [`accelerator`] | images of accelerators, for emulation |
//! | [`binding`] | bindings of functions to kernels from OpenCL C |
//! | [`image`] | images of regions: format and validation |
//! | [`port`] | a connection to a board's host port: functions, programs, calls |
//! | [`packet`] | packets of the port's socket |
//!
//! The live board (`baltra board --host-port PATH`) listens on a Unix socket and shares a window of
//! memory with each program that connects; `hdl/board/sim/host_protocol.h` defines the board's
//! side.
#![forbid(unsafe_code)]

pub mod accelerator;
pub mod binding;
mod error;
pub mod image;
mod link;
pub mod packet;
pub mod port;

pub use image::Image;
pub use port::Port;

/// A name of the board's table, and of a kernel's scalar: letters, digits, `-` and `_`.
pub fn is_plain(name: &str, most: usize) -> bool {
    (1..=most).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
