//! The parts of a request that a gateway passes to a function, and the answer.

use crate::call::Body;
use http::{HeaderMap, Method};

/// A request, less its body. Everything in it is as the client sent it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a Method,
    /// What follows the function's name: empty, or from the slash on, percent-encoded.
    pub path: &'a str,
    /// What follows the question mark, percent-encoded; empty where there is none.
    pub query: &'a str,
    /// All headers.
    pub headers: &'a HeaderMap,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The body, in frames; raw outputs are not copied.
    pub body: Body,
    /// The `Content-Type`.
    pub content_type: &'static str,
    /// Further headers: `x-baltra-shape` has type and shape of raw outputs.
    pub headers: Vec<(&'static str, String)>,
}
