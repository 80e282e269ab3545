//! `libbaltra_opencl.so`: an OpenCL platform with the devices of Device Managers.
//!
//! `api/x.rs` has the C entry points of one kind of object: it checks arguments as the OpenCL
//! specification requires (the sentence stands above the check), converts handles to references and
//! calls `core/x.rs`, which has the objects and uses the session. `dispatch.rs` is the table that
//! an ICD loader reads through the first word of every handle.
//!
//! Environment: `BALTRA_ENDPOINT` (managers, separated by commas), `BALTRA_DEVICE` (names of
//! devices, to restrict the platform to those), `BALTRA_POOL` (the devices that the program sees as
//! one), `BALTRA_TENANT`, `BALTRA_TOKEN`, `BALTRA_INSTANCE`
//! (the process's description of itself), `BALTRA_RUNTIME_DIR`; `BALTRA_ENVIRONMENT` names a file
//! with values of variables that are not set.
#![allow(non_snake_case)]
// The safety contract of every entry point is the OpenCL specification's.
#![allow(clippy::missing_safety_doc)]

pub mod api;
mod core;
pub mod dispatch;
