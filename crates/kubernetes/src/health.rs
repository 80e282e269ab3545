//! `/healthz` and `/metrics` of a daemon.

use anyhow::{Context, Result};
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
use tokio::net::TcpListener;

/// Counters that a daemon keeps, by name; each is exported as `baltra_kubernetes_NAME_total`.
#[derive(Debug)]
pub struct Counters<const N: usize> {
    names: [(&'static str, &'static str); N],
    values: [AtomicU64; N],
}

impl<const N: usize> Counters<N> {
    /// All zero; pairs of a name and what it counts.
    pub fn new(names: [(&'static str, &'static str); N]) -> Arc<Counters<N>> {
        Arc::new(Counters {
            names,
            values: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    /// One more.
    pub fn count(&self, which: usize) {
        self.values[which].fetch_add(1, Ordering::Relaxed);
    }

    fn text(&self) -> String {
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

/// Serves until the runtime ends. Returns where.
///
/// # Errors
/// When nobody can listen there.
pub async fn serve<const N: usize>(
    address: SocketAddr,
    counters: Arc<Counters<N>>,
) -> Result<SocketAddr> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}, from --metrics"))?;
    let at = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            let counters = counters.clone();
            let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
                let counters = counters.clone();
                async move { Ok::<_, Infallible>(answer(request.uri().path(), &counters)) }
            });
            tokio::spawn(async move {
                let http = hyper::server::conn::http1::Builder::new();
                let _ = http.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    Ok(at)
}

fn answer<const N: usize>(path: &str, counters: &Counters<N>) -> Response<Full<Bytes>> {
    let (status, text) = match path {
        "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
        "/metrics" => (StatusCode::OK, counters.text()),
        _ => (StatusCode::NOT_FOUND, "not here\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert("content-type", kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_counters_are_in_prometheus_form() {
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
}
