//! Calls of functions, synchronous and asynchronous.
//!
//! | module | content |
//! |---|---|
//! | [`dispatch`] | from a connection to a call, without locks |
//! | [`invocation`] | one call, independent of the protocol |
//! | [`forward`] | calls of functions in containers |
//! | [`asynchronous`], [`queue`] | asynchronous calls and their status |
//! | [`callback`], [`delivery`] | callbacks at the end of asynchronous calls |

pub(crate) mod asynchronous;
pub(crate) mod callback;
pub(crate) mod delivery;
pub(crate) mod dispatch;
pub(crate) mod forward;
pub(crate) mod invocation;
pub(crate) mod queue;
