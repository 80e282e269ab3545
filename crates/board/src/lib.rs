//! A board's host port, as programs of its host see it.
//!
//! | module | what |
//! |---|---|
//! | [`image`] | images of regions: what stands in one, and whether it is whole |
//! | [`port`] | a connection with a board's host port: functions, programs, calls |
//! | [`packet`] | what goes over its socket |
//!
//! The live board (`baltra board --host-port PATH`) listens on a Unix socket and gives each program that connects a
//! window of shared memory; `hdl/board/sim/host_protocol.h` is the same for the other side.
#![forbid(unsafe_code)]

pub mod image;
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
