//! The parts of a request that a gateway passes to a function, and the response.

use crate::call::Body;
use http::{HeaderMap, Method};

/// A request without its body, as the client sent it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path after the function's name: empty, or beginning with a slash; percent-encoded.
    pub path: &'a str,
    /// The query, percent-encoded; empty if there is none.
    pub query: &'a str,
    /// All headers.
    pub headers: &'a HeaderMap,
}

/// The response.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The body, in frames; raw outputs are not copied.
    pub body: Body,
    /// The `Content-Type`.
    pub content_type: &'static str,
    /// Further headers: `x-baltra-shape` has type and shape of raw outputs.
    pub headers: Vec<(&'static str, String)>,
}
