//! `/metrics` and `/healthz`.

use crate::functions::signals;
use crate::operators;
use crate::registry::Registry;
use crate::state::Phase;
use anyhow::{Context, Result};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::HeaderMap;
use axum::routing::get;
use baltra_exposition as exposition;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry as Page;
use std::collections::BTreeMap;
use std::fmt::Error;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// Listens on the address of `registry.metrics`.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| {
        format!("cannot serve metrics on {address} ('registry.metrics'; empty to disable)")
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves until `stopped`.
pub(crate) async fn serve(
    registry: Arc<Registry>,
    listener: TcpListener,
    stopped: impl Future<Output = ()> + Send + 'static,
) {
    let text = move |headers: HeaderMap| async move {
        let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let (kind, page) = exposition::page(accept, render(&registry));
        ([(CONTENT_TYPE, kind)], page)
    };
    let router = axum::Router::new()
        .route("/metrics", get(text))
        .route("/healthz", get(|| async { "ok\n" }));
    let served = async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, router)
            .with_graceful_shutdown(stopped)
            .await
    };
    if let Err(error) = served.await {
        tracing::error!(%error, "stopped serving metrics");
    }
}

/// Renders the metrics in OpenMetrics format.
pub fn render(registry: &Arc<Registry>) -> String {
    let mut page = Page::with_prefix("baltra_registry");
    let c = &registry.counters;
    for (name, help, counter) in [
        ("registrations", "Registrations of nodes", &c.registrations),
        ("heartbeats", "Heartbeats received", &c.heartbeats),
        ("nodes_silent", "Nodes whose lease expired", &c.nodes_silent),
        (
            "allocations",
            "Instances that devices were allocated to",
            &c.allocations,
        ),
        ("releases", "Instances released", &c.releases),
        (
            "instances_expired",
            "Instances whose lease expired",
            &c.instances_expired,
        ),
        (
            "migrations",
            "Instances moved to other devices",
            &c.migrations,
        ),
        (
            "store_failures",
            "Failed writes to the store",
            &c.store_failures,
        ),
        (
            "metrics_failures",
            "Failed queries for metrics",
            &c.metrics_failures,
        ),
    ] {
        page.register(name, help, counter.clone());
    }
    let help = "Instances refused, by the filter that rejected the most devices";
    page.register("refusals", help, c.refusals.clone());
    let help = "Requests to reconfigure a device, by result";
    page.register("reconfigurations", help, c.reconfigurations.clone());
    page.register_collector(Box::new(Now(registry.clone())));
    let mut text = String::new();
    let _ = prometheus_client::encoding::text::encode(&mut text, &page);
    text
}

/// Gauges, computed at each scrape.
#[derive(Debug)]
struct Now(Arc<Registry>);

/// A metric's lines: label values, and the value.
type Lines<const N: usize> = Vec<([String; N], f64)>;

impl Collector for Now {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let encoder = &mut encoder;
        let (pool, nodes, instances, scaling) = self.look();
        let by_state = |states: BTreeMap<&'static str, u64>| {
            let line = |(state, n): (&str, u64)| ([state.to_owned()], n as f64);
            states.into_iter().map(line).collect::<Lines<1>>()
        };
        family(
            encoder,
            "nodes",
            "Nodes, by state",
            ["state"],
            by_state(nodes),
        )?;
        family(
            encoder,
            "instances",
            "Instances, by state",
            ["state"],
            by_state(instances),
        )?;
        let mut states = BTreeMap::from([
            ("ready", 0u64),
            ("unconfirmed", 0),
            ("silent", 0),
            ("failed", 0),
        ]);
        let (mut utilization, mut occupation, mut waits) = (Vec::new(), Vec::new(), Vec::new());
        let mut deaths = Vec::new();
        for device in &pool.devices {
            let reported = ["ready", "unconfirmed", "silent", "failed"];
            if let Some(state) = reported.into_iter().find(|s| *s == device.state) {
                *states.entry(state).or_default() += 1;
            }
            let name = device.description.as_ref().map(|d| d.name.clone());
            let labels = [device.node.clone(), name.unwrap_or_default()];
            utilization.push((labels.clone(), device.utilization / 100.0));
            occupation.push((labels.clone(), f64::from(device.occupation)));
            waits.push((labels.clone(), device.queue_wait_ms / 1e3));
            deaths.push((labels, device.executor_deaths));
        }
        family(
            encoder,
            "devices",
            "Devices, by state",
            ["state"],
            by_state(states),
        )?;
        let of_device = ["node", "device"];
        let help = "Utilization of a device, 0 to 1";
        family(
            encoder,
            "device_utilization_ratio",
            help,
            of_device,
            utilization,
        )?;
        let help = "Instances allocated to a device";
        family(encoder, "device_instances", help, of_device, occupation)?;
        let help = "Mean time that tasks wait for a device";
        family(encoder, "device_queue_wait_seconds", help, of_device, waits)?;
        let help = "Executors that ended unexpectedly since their manager started";
        counters(encoder, "executor_deaths", help, of_device, deaths)?;
        let (mut info, mut up) = (Vec::new(), Vec::new());
        for node in pool.nodes {
            up.extend(node.uptime_s.map(|s| ([node.name.clone()], s as f64)));
            info.push(([node.name, node.version], 1.0));
        }
        let help = "Nodes, by the version of their manager";
        family(encoder, "node_info", help, ["node", "version"], info)?;
        let help = "Time since a node's manager started";
        family(encoder, "node_uptime_seconds", help, ["node"], up)?;
        let (mut has, mut wants) = (Vec::new(), Vec::new());
        for signal in scaling {
            has.push(([signal.function.clone()], f64::from(signal.replicas)));
            wants.push(([signal.function], f64::from(signal.desired)));
        }
        let help = "Replicas of a function";
        family(encoder, "function_replicas", help, ["function"], has)?;
        let help = "Replicas that a function needs, by utilization and queue wait";
        family(
            encoder,
            "function_replicas_desired",
            help,
            ["function"],
            wants,
        )?;
        let failures = self.0.failures().clone();
        let up = |failure: &str| vec![([], f64::from(u8::from(failure.is_empty())))];
        let help = "Whether the store can be written";
        family(encoder, "store_up", help, [], up(&failures.store))?;
        let help = "Whether the configured source of metrics answers";
        family(
            encoder,
            "metrics_source_up",
            help,
            [],
            up(&failures.metrics),
        )
    }
}

type Counts = BTreeMap<&'static str, u64>;

impl Now {
    fn look(
        &self,
    ) -> (
        baltra_api::registry::DevicesReply,
        Counts,
        Counts,
        Vec<baltra_api::registry::Signal>,
    ) {
        let state = self.0.state();
        let request = baltra_api::registry::DevicesRequest {
            silent: true,
            ..Default::default()
        };
        let pool = operators::devices(&state, &request).unwrap_or_default();
        let mut nodes = Counts::from([("ready", 0), ("unconfirmed", 0), ("silent", 0)]);
        for (_, live) in state.nodes() {
            let phase = match live.phase {
                Phase::Ready => "ready",
                Phase::Unconfirmed => "unconfirmed",
                Phase::Silent => "silent",
            };
            *nodes.entry(phase).or_default() += 1;
        }
        let mut instances = Counts::from([("assigned", 0), ("pending", 0)]);
        for instance in state.image().instances.values() {
            let has = if instance.devices.is_empty() {
                "pending"
            } else {
                "assigned"
            };
            *instances.entry(has).or_default() += 1;
        }
        let scaling = signals(&state, &self.0.options.scaling);
        (pool, nodes, instances, scaling)
    }
}

fn family<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    labels: [&'static str; N],
    lines: Lines<N>,
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    if N == 0 {
        let value = lines.first().map_or(0.0, |(_, value)| *value);
        return ConstGauge::new(value).encode(family);
    }
    for (values, value) in lines {
        let labels: Vec<(&str, String)> = labels.into_iter().zip(values).collect();
        let metric = family.encode_family(&labels)?;
        ConstGauge::new(value).encode(metric)?;
    }
    Ok(())
}

fn counters<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    labels: [&'static str; N],
    lines: Vec<([String; N], u64)>,
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (values, value) in lines {
        let labels: Vec<(&str, String)> = labels.into_iter().zip(values).collect();
        let metric = family.encode_family(&labels)?;
        ConstCounter::new(value).encode(metric)?;
    }
    Ok(())
}
