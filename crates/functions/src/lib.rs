//! Functions, which clients call. A manifest describes a function's inputs, outputs and
//! implementations; binding converts a request to a [`Call`]; codecs convert pictures and arrays to
//! buffers and back.
//!
//! This crate does not run functions. Its only I/O is reading a function's own files.

#![forbid(unsafe_code)]

mod answer;
mod batch;
mod bind;
mod call;
mod codec;
mod error;
mod expression;
mod files;
mod function;
pub mod manifest;
mod plan;
mod request;
mod schema;
pub mod templates;
mod tensors;
mod types;
mod yaml;

pub use call::{Argument, Body, Buffer, Call, Launch, OutputShape, Step};
pub use codec::json::quote_odd_floats;
pub use error::{BindError, ManifestError};
pub use files::Files;
pub use function::{Function, MANIFEST_FILE};
pub use manifest::Manifest;
pub use request::{Answer, Request};
pub use schema::{schema, SCHEMA};
pub use tensors::{Metadata, Tensor, TensorMetadata};
pub use types::{Scalar, Type};
