//! Codecs: conversions between encodings of requests and arrays in memory.

pub(crate) mod json;
pub(crate) mod npy;
pub(crate) mod picture;
