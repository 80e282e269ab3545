//! The executor: a process that drives a vendor's OpenCL driver for one tenant's sessions,
//! sandboxed ([`baltra_sandbox`]).
//!
//! | module | content |
//! |---|---|
//! | [`driver`] | the vendor's library, loaded and called |
//! | [`session`] | one client's session: its objects, queues, events |
//! | [`account`] | a tenant's lease, memory and counters |
//! | [`capture`] | what kernels print |
//! | [`health`] | whether the driver's context is still of use |
//! | [`images`] | the device's image, where it holds one at a time |
//! | [`shared`] | options, and the state that sessions share |
//! | [`process`] | the process's main loop |
//! | [`regions`] | the images that a board's regions hold |
//!
//! The executor uses shared memory only, and treats its content as hostile: a record is copied
//! once, checked, and the copy is used.

pub mod account;
pub mod binaries;
pub mod capture;
pub mod driver;
pub mod health;
mod host;
pub mod images;
pub mod keeper;
mod load;
pub mod process;
pub mod regions;
pub mod session;
pub mod shared;
pub mod traces;

pub use process::{probe, run};
pub use shared::{Options, Shared};
