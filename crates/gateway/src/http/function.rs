//! Functions: what is deployed, and where it is stored.
//!
//! | module | content |
//! |---|---|
//! | [`table`], [`deployment`] | deployed functions |
//! | [`store`], [`upload`] | functions and deployments on disk |
//! | [`containers`] | functions in containers: waiting until one is ready |
//! | [`namespace`], [`logs`] | OpenFaaS' namespaces; the calls' log |

pub(crate) mod containers;
pub mod deployment;
pub mod logs;
pub(crate) mod namespace;
pub mod store;
pub(crate) mod table;
pub(crate) mod upload;
