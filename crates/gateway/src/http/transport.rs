//! Connections, below HTTP's requests.
//!
//! | module | content |
//! |---|---|
//! | [`connection`] | a socket with its state and its time limits |
//! | [`scan`] | rejection of malformed requests that lenient parsers accept (request smuggling) |
//! | [`tls`] | certificates |
//! | [`wakes`] | wake-ups of connections by other threads |
//! | [`linger`] | polling before a worker sleeps |

pub(crate) mod connection;
pub(crate) mod linger;
pub mod scan;
pub(crate) mod tls;
pub(crate) mod wakes;
