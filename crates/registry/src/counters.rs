//! Counters of events since the start.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// The label of refusals: the filter that rejected most devices.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusalLabels {
    /// Its name, as in a `Rejection`.
    pub filter: &'static str,
}

/// The label of reconfigurations: the response to the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReconfigurationLabels {
    /// The response: `allowed`, `unchanged`, `refused` or `failed`.
    pub answer: &'static str,
}

/// Counters, in the order in which `/metrics` shows them.
#[derive(Debug, Default)]
pub struct Counters {
    /// Registrations of nodes.
    pub registrations: Counter,
    /// Heartbeats received.
    pub heartbeats: Counter,
    /// Nodes whose lease expired.
    pub nodes_silent: Counter,
    /// Successful allocations.
    pub allocations: Counter,
    /// Refused allocations.
    pub refusals: Family<RefusalLabels, Counter>,
    /// Released instances.
    pub releases: Counter,
    /// Instances whose lease expired.
    pub instances_expired: Counter,
    /// Requests to reconfigure a device.
    pub reconfigurations: Family<ReconfigurationLabels, Counter>,
    /// Moved instances.
    pub migrations: Counter,
    /// Failed writes to the store.
    pub store_failures: Counter,
    /// Failed queries of a Prometheus server.
    pub metrics_failures: Counter,
}
