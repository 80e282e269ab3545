//! `libbaltra_opencl.so`: an OpenCL platform whose devices live in Device Managers.
//!
//! `api/x.rs` holds the C entry points of one kind of object: it checks arguments as the OpenCL
//! specification says (the sentence stands above the check), turns handles into references and
//! calls `core/x.rs`, which holds the objects and speaks to the session. `dispatch.rs` is the
//! table that an ICD loader reads through the first word of every handle.
//!
//! Environment: `BALTRA_ENDPOINT` (managers, separated by commas), `BALTRA_DEVICE` (of their
//! devices, those of these names), `BALTRA_TENANT`, `BALTRA_TOKEN`, `BALTRA_INSTANCE` (who the
//! process says it is), `BALTRA_RUNTIME_DIR`; `BALTRA_ENVIRONMENT` names a file with those that the
//! environment lacks.
#![allow(non_snake_case)]
// The safety contract of every entry point is the OpenCL specification's.
#![allow(clippy::missing_safety_doc)]

pub mod api;
mod core;
pub mod dispatch;
