//! `/healthz` and `/metrics` of a daemon.

use anyhow::{Context, Result};
use baltra_exposition as exposition;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Named counters of a daemon; each is exported as `baltra_kubernetes_NAME_total`.
#[derive(Debug)]
pub struct Counters<const N: usize> {
    names: [(&'static str, &'static str); N],
    values: [AtomicU64; N],
}

impl<const N: usize> Counters<N> {
    /// Counters at zero; `names` are pairs of a name and a help text.
    pub fn new(names: [(&'static str, &'static str); N]) -> Arc<Counters<N>> {
        Arc::new(Counters {
            names,
            values: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    /// Increments a counter.
    pub fn count(&self, which: usize) {
        self.values[which].fetch_add(1, Ordering::Relaxed);
    }

    /// The page in Prometheus' text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for ((name, help), value) in self.names.iter().zip(&self.values) {
            let name = format!("baltra_kubernetes_{name}_total");
            let value = value.load(Ordering::Relaxed);
            let _ = writeln!(
                text,
                "# HELP {name} {help}.\n# TYPE {name} counter\n{name} {value}"
            );
        }
        text
    }
}

/// Upper bounds of the buckets of [`Durations`], microseconds.
const BOUNDS_US: [u64; 16] = [
    500, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000, 7_500, 10_000, 15_000, 20_000, 30_000, 50_000,
    100_000, 1_000_000, 5_000_000,
];

/// A histogram of durations, exported as `baltra_kubernetes_NAME_seconds`.
#[derive(Debug)]
pub struct Durations {
    name: &'static str,
    help: &'static str,
    /// Counts by bucket; the last one is beyond all bounds.
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Durations {
    /// An empty histogram.
    pub fn new(name: &'static str, help: &'static str) -> Durations {
        Durations {
            name,
            help,
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_us: AtomicU64::new(0),
        }
    }

    /// Adds a duration.
    pub fn count(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// The page in Prometheus' text format.
    pub fn text(&self) -> String {
        let name = format!("baltra_kubernetes_{}_seconds", self.name);
        let mut text = format!("# HELP {name} {}.\n# TYPE {name} histogram\n", self.help);
        let mut below = 0;
        for (at, count) in self.counts.iter().enumerate() {
            below += count.load(Ordering::Relaxed);
            let bound = BOUNDS_US.get(at).map(|us| *us as f64 / 1e6);
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |s| s.to_string());
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {below}");
        }
        let sum = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(text, "{name}_sum {sum}\n{name}_count {below}");
        text
    }
}

/// Serves until the runtime ends; `metrics` renders `/metrics`. Returns the address.
///
/// # Errors
/// The address cannot be bound.
pub async fn serve(
    address: SocketAddr,
    metrics: impl Fn() -> String + Clone + Send + 'static,
) -> Result<SocketAddr> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} (--metrics)"))?;
    let at = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            let metrics = metrics.clone();
            let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
                let accept = request.headers().get(http::header::ACCEPT);
                let accept = accept.and_then(|accept| accept.to_str().ok());
                let answer = answer(request.uri().path(), accept, &metrics);
                async move { Ok::<_, Infallible>(answer) }
            });
            tokio::spawn(async move {
                let http = hyper::server::conn::http1::Builder::new();
                let _ = http.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    Ok(at)
}

fn answer(
    path: &str,
    accept: Option<&str>,
    metrics: &impl Fn() -> String,
) -> Response<Full<Bytes>> {
    let plain = |status, text: &str| (status, ("text/plain; charset=utf-8", text.to_owned()));
    let (status, (kind, text)) = match path {
        "/healthz" => plain(StatusCode::OK, "ok\n"),
        "/metrics" => (StatusCode::OK, exposition::page_of_text(accept, metrics())),
        _ => plain(StatusCode::NOT_FOUND, "not here\n"),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static(kind);
    response.headers_mut().insert("content-type", kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_in_prometheus_form() {
        let counters = Counters::new([("moves", "Pods moved"), ("refusals", "Pods refused")]);
        counters.count(1);
        let text = counters.text();
        assert!(
            text.contains("# TYPE baltra_kubernetes_moves_total counter\n"),
            "{text}"
        );
        assert!(
            text.contains("\nbaltra_kubernetes_refusals_total 1\n"),
            "{text}"
        );
    }

    #[test]
    fn durations_are_counted_below_their_bounds() {
        let durations = Durations::new("admission", "How long");
        for ms in [1, 5, 6, 10_000] {
            durations.count(Duration::from_millis(ms));
        }
        let text = durations.text();
        for line in [
            "# TYPE baltra_kubernetes_admission_seconds histogram",
            "baltra_kubernetes_admission_seconds_bucket{le=\"0.001\"} 1",
            "baltra_kubernetes_admission_seconds_bucket{le=\"0.005\"} 2",
            "baltra_kubernetes_admission_seconds_bucket{le=\"0.0075\"} 3",
            "baltra_kubernetes_admission_seconds_bucket{le=\"5\"} 3",
            "baltra_kubernetes_admission_seconds_bucket{le=\"+Inf\"} 4",
            "baltra_kubernetes_admission_seconds_sum 10.012",
            "baltra_kubernetes_admission_seconds_count 4",
        ] {
            assert!(text.lines().any(|l| l == line), "no '{line}' in {text}");
        }
    }
}
