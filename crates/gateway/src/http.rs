//! The gateway's protocols.
//!
//! | module | content |
//! |---|---|
//! | [`listener`] | listeners: binding, accepting, TLS, choosing a connection's protocol |
//! | [`transport`] | connections: limits of time, malformed requests, TLS, wake-ups |
//! | [`admission`] | what a request may take: key and rate, places, memory, its body |
//! | [`function`] | functions: on disk, deployed, in containers, their logs |
//! | [`call`] | `/function/…` and `/async-function/…` |
//! | [`inference`] | the Open Inference Protocol |
//! | [`manage`] | all other paths: OpenFaaS' management, metrics, the interface's description |
//! | [`telemetry`] | counters, use of tenants, trace contexts and spans |
//! | [`gateway`] | the state that all modules share |
//! | [`pool`] | the registry's functions |
//! | [`failure`], [`problem`] | failures and their responses |
//! | [`disk`], [`rfc3339`], [`task`], [`text`] | files, times, blocking work, short texts |

pub(crate) mod admission;
pub(crate) mod call;
pub(crate) mod disk;
pub mod failure;
pub mod function;
pub(crate) mod gateway;
pub mod inference;
pub(crate) mod listener;
pub(crate) mod manage;
pub(crate) mod pool;
pub mod problem;
pub mod rfc3339;
pub(crate) mod task;
pub mod telemetry;
pub(crate) mod text;
pub mod transport;
