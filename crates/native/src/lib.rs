//! Native functions: a process of its own, sandboxed, that loads a function's shared library and
//! calls it. What the library breaks is that process alone.
//!
//! | module | what |
//! |---|---|
//! | [`protocol`] | what the gateway and the process say to each other |
//! | [`library`] | the shared library, loaded and called: the C boundary |
//! | [`worker`] | the process |
//!
//! Calls go over rings in shared memory, one pair a thread: a call costs its bytes and, when the
//! thread sleeps, one futex. That it has answered the process tells with a byte on a socket, once for
//! all that it did in one go, so that an event loop can wait for it.
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod library;
pub mod protocol;
pub mod worker;

pub use worker::main;
