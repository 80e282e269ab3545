//! What happened since the start.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// The filter that most devices failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusalLabels {
    /// Its name, as in a `Rejection`.
    pub filter: &'static str,
}

/// How a request for reconfiguration was answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReconfigurationLabels {
    /// `allowed`, `unchanged`, `refused`, `failed`
    pub answer: &'static str,
}

/// Counters, in the order in which `/metrics` shows them.
#[derive(Debug, Default)]
pub struct Counters {
    /// Nodes that registered.
    pub registrations: Counter,
    /// Heartbeats received.
    pub heartbeats: Counter,
    /// Nodes whose lease ended.
    pub nodes_silent: Counter,
    /// Instances that were given devices.
    pub allocations: Counter,
    /// Instances that were refused.
    pub refusals: Family<RefusalLabels, Counter>,
    /// Instances that were released.
    pub releases: Counter,
    /// Instances whose lease ended.
    pub instances_expired: Counter,
    /// Requests to reconfigure a device.
    pub reconfigurations: Family<ReconfigurationLabels, Counter>,
    /// Instances that were moved.
    pub migrations: Counter,
    /// Writes that failed.
    pub store_failures: Counter,
    /// Queries of a Prometheus server that failed.
    pub metrics_failures: Counter,
}
