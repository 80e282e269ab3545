//! Interfaces of Device Managers and of the registry, for operators, nodes and applications:
//! messages, clients, and the language of device queries. No daemon.
//!
//! | module | content |
//! |---|---|
//! | [`control`] | a Device Manager's control service |
//! | [`registry`] | the registry's services |
//! | [`client`] | connections to a registry |
//! | [`query`] | conditions on the devices of an application |
//! | [`annotations`] | such conditions in annotations |
#![forbid(unsafe_code)]

pub mod annotations;
pub mod client;
pub mod query;

/// A Device Manager's control service: messages, client and server (see `proto/control.proto`).
pub mod control {
    #![allow(missing_docs, clippy::all)]
    tonic::include_proto!("baltra.control.v1");
}

/// The registry's services: messages, clients and servers (see `proto/registry.proto`).
pub mod registry {
    #![allow(missing_docs, clippy::all)]
    tonic::include_proto!("baltra.registry.v1");

    /// The file descriptors, for reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/registry.bin"));
}

/// Most devices of one instance.
pub const DEVICES_MAX: u32 = 256;

/// Whether a text is valid as the name of a node, device, function, tenant, pool or metric in the
/// registry.
pub fn valid_name(name: &str) -> bool {
    let character = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=128).contains(&name.len()) && name.bytes().all(character)
}
