//! The ring's atomics, in one place, so that loom can replace them.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{fence, AtomicI32, AtomicU32, AtomicU64};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{fence, AtomicI32, AtomicU32, AtomicU64};
