//! Counters and traces of calls.
//!
//! | module | content |
//! |---|---|
//! | [`meters`], [`usage`] | counters of a gateway, and the use of each tenant |
//! | [`trace`], [`spans`] | a call's trace context, and export of its spans |

pub mod meters;
pub(crate) mod spans;
pub mod trace;
pub mod usage;
