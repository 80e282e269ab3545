//! Prometheus metrics, read from the counters at each scrape.

use crate::http::function::containers::Container;
use crate::http::gateway::Gateway;
use crate::http::problem::Shed;
use crate::http::telemetry::meters::{bound_ns, Counts, Ending, BUCKETS};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use baltra_engine::breaker::Position;
use baltra_engine::replica::ReplicaStatus;
use baltra_engine::stats::BATCH_BOUNDS;
use baltra_engine::Status;
use baltra_exposition as exposition;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::HeaderMap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// `GET /metrics`
pub(crate) async fn page(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let (kind, page) = exposition::page(accept, render(&gateway));
    ([(CONTENT_TYPE, kind)], page).into_response()
}

fn render(gateway: &Arc<Gateway>) -> String {
    let mut registry = Registry::with_prefix("baltra_gateway");
    registry.register_collector(Box::new(GatewayCollector(gateway.clone())));
    let mut text = String::new();
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

struct GatewayCollector(Arc<Gateway>);

impl std::fmt::Debug for GatewayCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GatewayCollector")
    }
}

/// Tenant, function, sums.
type Line = (String, String, Counts);

/// A metric's name, help, unit and accessor.
type Row<T> = (&'static str, &'static str, Option<Unit>, fn(&T) -> f64);

fn labels(line: &Line) -> [(&'static str, &str); 2] {
    [("function", &line.1), ("tenant", &line.0)]
}

impl Collector for GatewayCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let lines = self.0.meters.read();
        encode_calls(&mut encoder, &lines)?;
        encode_shed(&mut encoder, &lines)?;
        encode_latency(&mut encoder, &lines)?;
        encode_sums(&mut encoder, &lines)?;
        encode_running(&mut encoder, &lines)?;
        self.encode_engine(&mut encoder)?;
        self.encode_containers(&mut encoder)?;
        self.encode_spans(&mut encoder)?;
        self.encode_gauges(&mut encoder)
    }
}

fn encode_calls(encoder: &mut DescriptorEncoder<'_>, lines: &[Line]) -> Result<(), Error> {
    let help = "Calls completed, by outcome";
    let mut family = encoder.encode_descriptor("calls", help, None, MetricType::Counter)?;
    for line in lines {
        for ending in Ending::ALL {
            let labels = [
                ("function", line.1.as_str()),
                ("tenant", line.0.as_str()),
                ("ending", ending.name()),
            ];
            let metric = family.encode_family(&labels)?;
            ConstCounter::new(line.2.of(ending)).encode(metric)?;
        }
    }
    Ok(())
}

fn encode_shed(encoder: &mut DescriptorEncoder<'_>, lines: &[Line]) -> Result<(), Error> {
    let help = "Calls refused under load, by reason";
    let mut family = encoder.encode_descriptor("calls_shed", help, None, MetricType::Counter)?;
    for line in lines {
        for reason in Shed::ALL {
            let labels = [
                ("function", line.1.as_str()),
                ("tenant", line.0.as_str()),
                ("reason", reason.name()),
            ];
            let metric = family.encode_family(&labels)?;
            ConstCounter::new(line.2.shed[reason as usize]).encode(metric)?;
        }
    }
    Ok(())
}

fn encode_latency(encoder: &mut DescriptorEncoder<'_>, lines: &[Line]) -> Result<(), Error> {
    let help = "Time from the end of a call's body to its response";
    let unit = Unit::Seconds;
    let mut family =
        encoder.encode_descriptor("call_latency", help, Some(&unit), MetricType::Histogram)?;
    for line in lines {
        let bound = |i: usize| {
            if i + 1 == BUCKETS {
                f64::INFINITY
            } else {
                bound_ns(i) as f64 / 1e9
            }
        };
        let counts = &line.2;
        let buckets: Vec<(f64, u64)> = (0..BUCKETS)
            .map(|i| (bound(i), counts.buckets[i]))
            .collect();
        let sum = counts.sum_ns as f64 / 1e9;
        let labels = labels(line);
        let mut metric = family.encode_family(&labels)?;
        metric.encode_histogram::<NoLabelSet>(sum, counts.ended(), &buckets, None)?;
    }
    Ok(())
}

fn encode_sums(encoder: &mut DescriptorEncoder<'_>, lines: &[Line]) -> Result<(), Error> {
    let rows: [Row<Counts>; 6] = [
        (
            "call_queue",
            "Time that calls waited for the device",
            Some(Unit::Seconds),
            |c| c.queue_ns as f64 / 1e9,
        ),
        (
            "call_device",
            "Time that calls spent on the device",
            Some(Unit::Seconds),
            |c| c.device_ns as f64 / 1e9,
        ),
        (
            "call_cold",
            "Time that calls waited for a function to load",
            Some(Unit::Seconds),
            |c| c.cold_ns as f64 / 1e9,
        ),
        (
            "cold_starts",
            "Calls that waited for a function to load",
            None,
            |c| c.cold_starts as f64,
        ),
        (
            "request",
            "Size of request bodies",
            Some(Unit::Bytes),
            |c| c.bytes_in as f64,
        ),
        (
            "response",
            "Size of response bodies",
            Some(Unit::Bytes),
            |c| c.bytes_out as f64,
        ),
    ];
    for (name, help, unit, value) in rows {
        let mut family =
            encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        for line in lines {
            let labels = labels(line);
            let metric = family.encode_family(&labels)?;
            ConstCounter::new(value(&line.2)).encode(metric)?;
        }
    }
    Ok(())
}

fn encode_running(encoder: &mut DescriptorEncoder<'_>, lines: &[Line]) -> Result<(), Error> {
    let help = "Calls waiting or running";
    let mut family = encoder.encode_descriptor("calls_running", help, None, MetricType::Gauge)?;
    for line in lines {
        let labels = labels(line);
        let metric = family.encode_family(&labels)?;
        ConstGauge::new(line.2.running as i64).encode(metric)?;
    }
    Ok(())
}

impl GatewayCollector {
    /// The engine's metrics of each function.
    fn encode_engine(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let all = self.0.table.list();
        let all = all.iter().filter_map(|deployed| {
            let status = self.0.engine.status(&deployed.function)?;
            Some((deployed.name().to_owned(), status))
        });
        let all: Vec<(String, Status)> = all.collect();
        let help = "Requests merged into one launch";
        let mut family = encoder.encode_descriptor("batch", help, None, MetricType::Histogram)?;
        for (function, status) in &all {
            let bounds = BATCH_BOUNDS
                .iter()
                .map(|b| *b as f64)
                .chain([f64::INFINITY]);
            let counts = status.stats.batches.iter().copied();
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            let count = buckets.iter().map(|(_, n)| n).sum();
            let sum = status.stats.requests_ran as f64;
            let labels = [("function", function.as_str())];
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        let help = "Calls repeated on another replica";
        let mut family = encoder.encode_descriptor("retries", help, None, MetricType::Counter)?;
        for (function, status) in &all {
            let labels = [("function", function.as_str())];
            let metric = family.encode_family(&labels)?;
            ConstCounter::new(status.stats.retries).encode(metric)?;
        }
        let help = "Calls aborted because they held a device past their deadline";
        let mut family = encoder.encode_descriptor("overruns", help, None, MetricType::Counter)?;
        for (function, status) in &all {
            let labels = [("function", function.as_str())];
            let metric = family.encode_family(&labels)?;
            ConstCounter::new(status.stats.overruns).encode(metric)?;
        }
        let gauges: [Row<Status>; 2] = [
            (
                "overdue",
                "Longest time that a running call has been past its deadline",
                Some(Unit::Seconds),
                |s| {
                    let longest = s.replicas.iter().filter_map(|r| r.overdue_ms).max();
                    longest.unwrap_or(0) as f64 / 1e3
                },
            ),
            (
                "held_off",
                "Remaining time without calls, after calls ran past their deadlines",
                Some(Unit::Seconds),
                |s| s.held_ms.unwrap_or(0) as f64 / 1e3,
            ),
        ];
        for (name, help, unit, value) in gauges {
            let mut family =
                encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            for (function, status) in &all {
                let labels = [("function", function.as_str())];
                let metric = family.encode_family(&labels)?;
                ConstGauge::new(value(status)).encode(metric)?;
            }
        }
        let help = "Replicas of a function, by state";
        let mut family = encoder.encode_descriptor("replicas", help, None, MetricType::Gauge)?;
        for (function, status) in &all {
            let count = |wanted: fn(&ReplicaStatus) -> bool| {
                status.replicas.iter().filter(|r| wanted(r)).count()
            };
            for (state, number) in [
                ("wanted", status.desired),
                ("placed", status.replicas.len()),
                ("loaded", count(|r| r.loaded)),
                ("sick", count(|r| r.breaker != Position::Closed)),
            ] {
                let labels = [("function", function.as_str()), ("state", state)];
                let metric = family.encode_family(&labels)?;
                ConstGauge::new(number as i64).encode(metric)?;
            }
        }
        Ok(())
    }

    /// Metrics of container functions.
    fn encode_containers(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let all = self.0.containers.list();
        let rows: [Row<Container>; 2] = [
            (
                "calls_held",
                "Calls waiting for a container to start",
                None,
                |c| c.held() as f64,
            ),
            (
                "container_endpoints",
                "Ready endpoints of a container",
                None,
                |c| c.endpoints() as f64,
            ),
        ];
        for (name, help, unit, value) in rows {
            let mut family =
                encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            for container in &all {
                let labels = [("function", container.name.as_str())];
                let metric = family.encode_family(&labels)?;
                ConstGauge::new(value(container)).encode(metric)?;
            }
        }
        Ok(())
    }

    /// Encodes nothing if spans are not exported.
    fn encode_spans(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(counts) = self.0.spans.counts() else {
            return Ok(());
        };
        exposition::encode_spans(encoder, counts.exported, counts.dropped)
    }

    fn encode_gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let rows: [Row<Gateway>; 7] = [
            ("connections", "Open connections", None, |g| {
                g.connections.load(Relaxed) as f64
            }),
            ("functions", "Deployed functions", None, |g| {
                g.table.count() as f64
            }),
            (
                "async_calls",
                "Asynchronous calls waiting or running",
                None,
                |g| g.queue.open() as f64,
            ),
            ("callbacks", "Callbacks waiting or running", None, |g| {
                g.deliveries.open() as f64
            }),
            (
                "memory_held",
                "Memory held by requests and responses",
                Some(Unit::Bytes),
                |g| g.budget.used() as f64,
            ),
            (
                "memory_max",
                "Limit of the memory held by requests and responses",
                Some(Unit::Bytes),
                |g| g.budget.bytes_max() as f64,
            ),
            (
                "uptime",
                "Time since the gateway started",
                Some(Unit::Seconds),
                |g| g.started.elapsed().as_secs_f64(),
            ),
        ];
        for (name, help, unit, value) in rows {
            let metric = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            ConstGauge::new(value(&self.0)).encode(metric)?;
        }
        Ok(())
    }
}
