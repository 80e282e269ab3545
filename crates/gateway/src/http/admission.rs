//! Admission limits of requests.
//!
//! | module | content |
//! |---|---|
//! | [`keys`] | callers' keys and rate limits |
//! | [`places`] | places for calls in progress |
//! | [`budget`], [`body`], [`coding`] | a request's memory, its body, its encoding |

pub(crate) mod body;
pub(crate) mod budget;
pub(crate) mod coding;
pub mod keys;
pub(crate) mod places;
