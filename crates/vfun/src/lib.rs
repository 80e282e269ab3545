//! The VM door's host side: guests call the host's functions through memory shared with the host.
//!
//! | module | content |
//! |---|---|
//! | [`definition`] | permissions and limits of a VM |
//! | [`daemon`] | `baltra vfun`: the VMs, and the requests that change them |
//! | [`control`] | the operators' control socket |
//! | [`broker`] | instances of the VMs in a registry's pool |
//! | [`vm`] | one VM: its region, its socket, its worker |
//! | [`ivshmem`] | the server of QEMU's `ivshmem` devices |
//! | [`recover`] | finds a region that a VM holds and an earlier daemon created |
//! | [`protocol`] | messages between daemon and worker |
//! | [`worker`] | the process that serves one VM's region, sandboxed |
//!
//! The daemon creates a VM's region and never maps it. A worker maps one region and has no access
//! to other VMs: a guest that corrupts its region affects only itself.
#![forbid(unsafe_code)]

pub mod broker;
pub mod control;
pub mod daemon;
pub mod definition;
pub mod ivshmem;
pub mod protocol;
pub mod recover;
pub mod vm;
pub mod worker;

pub use broker::PoolOptions;
pub use daemon::{serve, Options};
pub use definition::Definition;
