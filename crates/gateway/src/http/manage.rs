//! All paths that are not calls.
//!
//! | module | content |
//! |---|---|
//! | [`router`], [`request`], [`access`] | paths, parameters of requests, tokens |
//! | [`faas`], [`follow`] | OpenFaaS: management, logs that are followed |
//! | [`metrics`], [`overview`] | Prometheus' page; the console's summary |
//! | [`openapi`] | the description of the interface |

pub(crate) mod access;
pub(crate) mod faas;
pub(crate) mod follow;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod overview;
pub(crate) mod request;
pub(crate) mod router;
