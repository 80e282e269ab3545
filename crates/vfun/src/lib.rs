//! The VM door's host side: guests call the host's functions through memory that they share with it.
//!
//! | module | what |
//! |---|---|
//! | [`definition`] | what an operator allows a VM |
//! | [`daemon`] | `baltra vfun`: the VMs, and who may change them |
//! | [`control`] | what operators ask the daemon |
//! | [`vm`] | one VM: its region, its socket, its worker |
//! | [`ivshmem`] | what QEMU's `ivshmem` devices are told over the socket |
//! | [`recover`] | finds a region again that a VM holds and a daemon before this one made |
//! | [`protocol`] | what daemon and worker say to each other |
//! | [`worker`] | the process that serves one VM's region, sandboxed |
//!
//! The daemon makes a VM's region and never looks into it. A worker sees one region and nothing of
//! other VMs: whatever a guest does to it, it does to itself.
#![forbid(unsafe_code)]

pub mod control;
pub mod daemon;
pub mod definition;
pub mod ivshmem;
pub mod protocol;
pub mod recover;
pub mod vm;
pub mod worker;

pub use daemon::{serve, Options};
pub use definition::Definition;
