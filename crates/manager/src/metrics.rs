//! Prometheus metrics, read from accounts and pools at each request.

use crate::accounts::Used;
use crate::node::{Device, Node};
use anyhow::{Context, Result};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::HeaderMap;
use axum::routing::get;
use baltra_exposition as exposition;
use baltra_ring::lease::LATENCY_BUCKETS;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt::Error;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Listens on the address of `metrics.address`.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| {
        format!("cannot serve metrics on {address}, from 'metrics.address' (empty: none)")
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves `/metrics` and `/healthz`.
pub(crate) async fn serve(node: Arc<Node>, listener: TcpListener) {
    let text = {
        let node = node.clone();
        move |headers: HeaderMap| async move {
            let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
            let (kind, page) = exposition::page(accept, render(&node));
            ([(CONTENT_TYPE, kind)], page)
        }
    };
    let router = axum::Router::new()
        .route("/metrics", get(text))
        .route("/healthz", get(|| async { "ok\n" }));
    let served = async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, router).await
    };
    if let Err(error) = served.await {
        tracing::error!(%error, "metrics are no longer served");
    }
}

/// The whole page, in OpenMetrics.
pub fn render(node: &Arc<Node>) -> String {
    node.read_leases();
    let mut registry = Registry::with_prefix("baltra");
    registry.register_collector(Box::new(NodeCollector(node.clone())));
    let mut text = String::new();
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

struct NodeCollector(Arc<Node>);

impl std::fmt::Debug for NodeCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeCollector")
    }
}

/// A metric's name, help, unit and accessor.
type Row<S, T> = (&'static str, &'static str, Option<Unit>, fn(&S) -> T);

/// Labels of an account.
type Labels = [(&'static str, String); 2];

impl Collector for NodeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let node = &self.0;
        let lines = node.accounts.lines();
        let labels = |tenant: &str, device: &str| -> Labels {
            [("device", device.into()), ("tenant", tenant.into())]
        };
        let counters: [Row<Used, f64>; 5] = [
            (
                "device_busy",
                "Time in which the device ran tasks",
                Some(Unit::Seconds),
                |u| u.busy_ns as f64 / 1e9,
            ),
            (
                "device_processor",
                "Processor time of executors of CPU devices",
                Some(Unit::Seconds),
                |u| u.processor_ns as f64 / 1e9,
            ),
            ("tasks", "Completed tasks", None, |u| u.tasks as f64),
            ("commands", "Completed commands", None, |u| u.calls as f64),
            ("sessions_opened", "Opened sessions", None, |u| {
                u.sessions as f64
            }),
        ];
        for (name, help, unit, value) in counters {
            let mut family =
                encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
            for (tenant, device, used, _) in &lines {
                let labels = labels(tenant, device);
                let metric = family.encode_family(&labels)?;
                ConstCounter::new(value(used)).encode(metric)?;
            }
        }
        let moved: Directions = [("in", |u| u.bytes_in), ("out", |u| u.bytes_out)];
        let help = "Bytes moved to and from the device";
        encode_bytes(&mut encoder, "bytes", help, moved, &lines)?;
        let swapped: Directions = [("in", |u| u.swapped_in), ("out", |u| u.swapped_out)];
        let help = "Bytes of objects moved to the device and to host memory";
        encode_bytes(&mut encoder, "swapped_bytes", help, swapped, &lines)?;
        self.encode_latency(&mut encoder, &lines)?;
        self.encode_gauges(&mut encoder)?;
        self.encode_spans(&mut encoder)?;
        self.encode_devices(&mut encoder)?;
        self.encode_images(&mut encoder)
    }
}

/// Names and values of two directions.
type Directions = [(&'static str, fn(&Used) -> u64); 2];

/// Writes a counter of bytes by direction.
fn encode_bytes(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    directions: Directions,
    lines: &[crate::accounts::Line],
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (tenant, device, used, _) in lines {
        for (direction, bytes) in directions {
            let labels = [
                ("device", device.as_str()),
                ("tenant", tenant.as_str()),
                ("direction", direction),
            ];
            let metric = family.encode_family(&labels)?;
            ConstCounter::new(bytes(used)).encode(metric)?;
        }
    }
    Ok(())
}

impl NodeCollector {
    fn encode_latency(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        lines: &[crate::accounts::Line],
    ) -> Result<(), Error> {
        let help = "From a task's flush to its end";
        let mut family = encoder.encode_descriptor(
            "task_latency",
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (tenant, device, _, latency) in lines {
            // Bucket i contains values below 2^i microseconds; the last bucket has no bound.
            let bounds = (0..LATENCY_BUCKETS).map(|i| {
                if i + 1 == LATENCY_BUCKETS {
                    f64::INFINITY
                } else {
                    (1u64 << i) as f64 / 1e6
                }
            });
            let buckets: Vec<(f64, u64)> = bounds.zip(latency.buckets).collect();
            let count = latency
                .buckets
                .iter()
                .fold(0u64, |a, b| a.saturating_add(*b));
            let labels = [("device", device.as_str()), ("tenant", tenant.as_str())];
            family
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(
                    latency.sum_ns as f64 / 1e9,
                    count,
                    &buckets,
                    None,
                )?;
        }
        Ok(())
    }

    /// Current values, by device and tenant.
    fn encode_gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let node = &self.0;
        let mut sessions: BTreeMap<(String, String), i64> = BTreeMap::new();
        for s in node.sessions().values() {
            *sessions
                .entry((s.device.clone(), s.tenant.clone()))
                .or_default() += 1;
        }
        let (mut queued, mut memory) = (BTreeMap::new(), BTreeMap::new());
        let (mut resident, mut swapped) = (BTreeMap::new(), BTreeMap::new());
        let mut stalled = BTreeMap::new();
        let now_ns = baltra_ring::lease::monotonic_ns();
        for device in &node.devices {
            for metered in device.pool.leases() {
                let usage = metered.lease.granter.usage();
                let key = (device.name().to_owned(), metered.lease.tenant.clone());
                let clamp = |n: u64| n.min(i64::MAX as u64) as i64;
                *queued.entry(key.clone()).or_insert(0i64) += clamp(usage.queued);
                *memory.entry(key.clone()).or_insert(0i64) += clamp(usage.memory_bytes);
                if device.overcommits() {
                    *resident.entry(key.clone()).or_insert(0i64) += clamp(usage.resident_bytes);
                    *swapped.entry(key.clone()).or_insert(0i64) += clamp(usage.swapped_bytes);
                }
                let since_ns = metered.lease.granter.progress_ns().unwrap_or(now_ns);
                let longest = stalled.entry(key).or_insert(0i64);
                *longest = clamp(now_ns.saturating_sub(since_ns) / 1_000_000_000).max(*longest);
            }
        }
        for (name, help, values) in [
            ("sessions", "Open sessions", sessions),
            (
                "queue_depth",
                "Enqueued commands that are not complete",
                queued,
            ),
            (
                "memory_bytes",
                "Device and arena memory held by sessions",
                memory,
            ),
            (
                "resident_memory_bytes",
                "Memory of objects on a device whose objects may leave it",
                resident,
            ),
            (
                "swapped_memory_bytes",
                "Memory of such objects in the host",
                swapped,
            ),
            (
                "task_stalled_seconds",
                "Time since a command of the running task last completed",
                stalled,
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for ((device, tenant), value) in values {
                let labels = [("device", device), ("tenant", tenant)];
                let metric = family.encode_family(&labels)?;
                ConstGauge::new(value).encode(metric)?;
            }
        }
        Ok(())
    }

    /// None if spans are not exported.
    fn encode_spans(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(counts) = self.0.spans.counts() else {
            return Ok(());
        };
        exposition::encode_spans(encoder, counts.exported, counts.dropped)
    }

    fn encode_devices(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let devices = &self.0.devices;
        let gauges: [Row<Device, i64>; 6] = [
            ("device_regions", "Regions of the device", None, |d| {
                d.regions().into()
            }),
            ("executors", "Executor processes", None, |d| {
                d.pool.count() as i64
            }),
            (
                "gate_waiting",
                "Executors waiting for the device",
                None,
                |d| d.gate.waiting() as i64,
            ),
            (
                "images_waiting",
                "Images that wait for their turn on the device",
                None,
                |d| d.configuration.waiting() as i64,
            ),
            (
                "device_slots",
                "Executors that may use the device concurrently",
                None,
                |d| d.slots() as i64,
            ),
            (
                "device_up",
                "Whether the device's driver is usable (1) or not (0)",
                None,
                |d| i64::from(d.description.get().is_some() && d.pool.failure().is_none()),
            ),
        ];
        for (name, help, _, value) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for device in devices {
                let labels = [("device", device.name())];
                let metric = family.encode_family(&labels)?;
                ConstGauge::new(value(device)).encode(metric)?;
            }
        }
        let counters: [Row<Device, u64>; 2] = [
            (
                "executor_deaths",
                "Executors that exited unexpectedly",
                None,
                |d| d.deaths.load(Ordering::Relaxed),
            ),
            (
                "reconfigurations",
                "Reconfigurations of the device with another image",
                None,
                |d| d.reconfigurations.load(Ordering::Relaxed),
            ),
        ];
        for (name, help, _, value) in counters {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for device in devices {
                let labels = [("device", device.name())];
                let metric = family.encode_family(&labels)?;
                ConstCounter::new(value(device)).encode(metric)?;
            }
        }
        let help = "Open sessions, by transport";
        let mut family =
            encoder.encode_descriptor("transport_sessions", help, None, MetricType::Gauge)?;
        let sessions = self.0.sessions();
        for device in devices {
            for transport in ["unix", "tcp", "ivshmem"] {
                let own = sessions.values().filter(|s| s.is_on(device.name()));
                let count = own.filter(|s| s.transport == transport).count();
                let labels = [("device", device.name()), ("transport", transport)];
                let metric = family.encode_family(&labels)?;
                ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX)).encode(metric)?;
            }
        }
        drop(sessions);
        let help = "Executors ended by a tenant's work, by cause";
        let mut family =
            encoder.encode_descriptor("executor_faults", help, None, MetricType::Counter)?;
        for device in devices {
            for (tenant, fault, count) in device.pool.faults() {
                let labels = [
                    ("device", device.name()),
                    ("tenant", &tenant),
                    ("cause", fault.name()),
                ];
                let metric = family.encode_family(&labels)?;
                ConstCounter::new(count).encode(metric)?;
            }
        }
        Ok(())
    }

    /// Loads of devices that hold one image at a time, and the images of boards' regions.
    fn encode_images(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let devices = &self.0.devices;
        let help =
            "Time that loads of images have taken, from the pause of the device to the answer \
                    of its driver";
        let unit = Some(&Unit::Seconds);
        let mut family =
            encoder.encode_descriptor("device_loading", help, unit, MetricType::Counter)?;
        for device in devices {
            let labels = [("device", device.name())];
            let seconds = device.configuration.loads_time().as_secs_f64();
            ConstCounter::new(seconds).encode(family.encode_family(&labels)?)?;
        }
        let help = "Image that a region of a board holds: always 1";
        let mut family =
            encoder.encode_descriptor("region_image", help, None, MetricType::Gauge)?;
        for device in devices {
            for held in crate::registry::regions(&self.0, device) {
                let labels = [
                    ("device", device.name()),
                    ("region", &held.index.to_string()),
                    ("digest", &held.digest),
                    ("name", &held.name),
                ];
                ConstGauge::new(1).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
