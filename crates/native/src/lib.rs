//! Native functions: a sandboxed process that loads a function's shared library and calls it. A
//! fault of the library affects that process alone.
//!
//! | module | content |
//! |---|---|
//! | [`protocol`] | messages between the gateway and the process |
//! | [`library`] | the shared library, loaded and called: the C boundary |
//! | [`worker`] | the process |
//!
//! Calls use rings in shared memory, one pair per thread: a call costs its bytes and, when the
//! thread sleeps, one futex. The process signals completed calls, one or several at once, by a byte
//! on a socket, which the gateway's event loop can wait for.
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod library;
pub mod protocol;
pub mod worker;

pub use worker::main;
