//! Codecs: between what travels and what a device computes on.

pub(crate) mod json;
pub(crate) mod npy;
pub(crate) mod picture;
