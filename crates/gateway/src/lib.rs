//! The HTTP gateway: functions that any HTTP client can call.
//!
//! A gateway is a separate process. It serves HTTP/1.1, optionally over TLS: OpenFaaS's paths, the
//! Open Inference Protocol (over gRPC too, on a second address), health, metrics and an OpenAPI
//! description ([`http`]); stores deployed functions; and runs their calls on devices of one or
//! many nodes ([`baltra_engine`]).
//!
//! [`Options`] builds a [`Service`], which serves until it is stopped or dropped.
#![forbid(unsafe_code)]

pub mod console;
pub mod http;
pub mod options;
mod service;

pub use options::Options;
pub use service::Service;

/// The Open Inference Protocol's messages and server (see `proto/inference.proto`).
pub mod proto {
    #![allow(missing_docs, clippy::all)]
    tonic::include_proto!("inference");
}
