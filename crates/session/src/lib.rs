//! Both ends of a session over a transport.
//!
//! [`client`] is the base of the OpenCL library: it contains the rings, the event table and the
//! arenas of one session. [`handshake`] is the exchange with the manager before it passes the
//! session on, [`fd`] passes descriptors. Over TCP and TLS the library's end is a tunnel that takes
//! the executor's place at the same rings, and [`relay`] is the daemon's end of it. A session that
//! moves to another node goes through a [`forwarder`].
#![forbid(unsafe_code)]

pub mod client;
mod endpoint;
pub mod fd;
pub mod forwarder;
pub mod handshake;
mod inherited;
mod ivshmem;
pub mod relay;
mod tcp;
mod transit;

pub use endpoint::{default_runtime_dir, Endpoint, EndpointError};
pub use inherited::take_sockets;
pub use tcp::tls::reason as tls_reason;
