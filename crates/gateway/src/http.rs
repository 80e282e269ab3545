//! The gateway's protocols.
//!
//! | module | content |
//! |---|---|
//! | [`listener`] | listeners: binding, accepting, TLS, choosing a connection's protocol |
//! | [`connection`] | a socket with its state and its time limits |
//! | [`scan`] | rejection of malformed requests that lenient parsers accept (request smuggling) |
//! | [`gateway`] | the state that all modules share |
//! | [`budget`], [`body`], [`coding`] | a request's memory, its body, its encoding |
//! | [`dispatch`], [`call`] | `/function/…`: calls, without locks |
//! | [`containers`], [`forward`] | functions in containers: forwarding, and waiting until one is ready |
//! | [`table`], [`deployment`] | deployed functions |
//! | [`meters`], [`usage`], [`metrics`] | counters and their presentation |
//! | [`trace`], [`spans`] | a call's trace context, and export of its spans |
//! | [`store`], [`upload`] | functions and deployments on disk |
//! | [`faas`], [`namespace`], [`logs`], [`follow`] | OpenFaaS: management, logs |
//! | [`asynchronous`], [`queue`] | asynchronous calls and their status |
//! | [`callback`], [`delivery`] | callbacks at the end of asynchronous calls |
//! | [`inference`] | the Open Inference Protocol |
//! | [`keys`] | callers' keys and rate limits |
//! | [`router`], [`request`], [`access`], [`openapi`] | all paths that are not calls |
//! | [`task`] | blocking work off the event loop |
//! | [`wakes`], [`linger`] | wake-ups of connections by other threads; polling before a worker sleeps |

pub(crate) mod access;
pub(crate) mod asynchronous;
pub(crate) mod body;
pub(crate) mod budget;
pub(crate) mod call;
pub(crate) mod callback;
pub(crate) mod coding;
pub(crate) mod connection;
pub(crate) mod containers;
pub(crate) mod delivery;
pub mod deployment;
pub(crate) mod dispatch;
pub(crate) mod faas;
pub mod failure;
pub(crate) mod follow;
pub(crate) mod forward;
pub(crate) mod gateway;
pub mod inference;
pub mod keys;
pub(crate) mod linger;
pub(crate) mod listener;
pub mod logs;
pub mod meters;
pub(crate) mod metrics;
pub(crate) mod namespace;
pub(crate) mod openapi;
pub(crate) mod overview;
pub(crate) mod places;
pub(crate) mod pool;
pub mod problem;
pub(crate) mod queue;
pub(crate) mod request;
pub mod rfc3339;
pub(crate) mod router;
pub mod scan;
pub(crate) mod spans;
pub mod store;
pub(crate) mod table;
pub(crate) mod task;
pub(crate) mod text;
pub(crate) mod tls;
pub mod trace;
pub(crate) mod upload;
pub mod usage;
pub(crate) mod wakes;
