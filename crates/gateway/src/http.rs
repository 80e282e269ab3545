//! The protocols of the door.
//!
//! | module | what |
//! |---|---|
//! | [`listener`] | doors: binding, accepting, TLS, what becomes of a connection |
//! | [`connection`] | a socket that knows what it is waiting for, and its limits |
//! | [`scan`] | what a parser would let pass: smuggling shapes |
//! | [`gateway`] | what all of them share |
//! | [`budget`], [`body`], [`coding`] | what a request holds, its body, how that is encoded |
//! | [`dispatch`], [`call`] | `/function/…`: the way of a call, without locks |
//! | [`containers`], [`forward`] | functions that are containers: calls go on there, and wait until one is ready |
//! | [`table`], [`deployment`] | what is deployed |
//! | [`meters`], [`usage`], [`metrics`] | counting, and showing it |
//! | [`trace`], [`spans`] | which trace a call belongs to, and telling its spans |
//! | [`store`], [`upload`] | functions and deployments on disk |
//! | [`faas`], [`namespace`], [`logs`], [`follow`] | OpenFaaS: management, logs |
//! | [`asynchronous`], [`queue`] | asynchronous calls, and where they stand |
//! | [`callback`], [`delivery`] | telling the ends of asynchronous calls |
//! | [`inference`] | the Open Inference Protocol |
//! | [`keys`] | who calls, how often |
//! | [`router`], [`request`], [`access`], [`openapi`] | everything that is not a call |
//! | [`task`] | work beside the event loop |

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
pub(crate) mod follow;
pub(crate) mod forward;
pub(crate) mod gateway;
pub mod inference;
pub mod keys;
pub(crate) mod listener;
pub mod logs;
pub mod meters;
pub(crate) mod metrics;
pub(crate) mod namespace;
pub(crate) mod openapi;
pub(crate) mod overview;
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
