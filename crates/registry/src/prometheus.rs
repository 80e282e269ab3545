//! Devices' metrics from a Prometheus server, as BlastFunction's metrics gatherer reads them.
//!
//! Each configured query is an instant query of the HTTP API (`/api/v1/query`). The labels of a
//! sample identify its device: `device` and `node`. Without `node`, `instance` must be the address
//! at which the node's manager serves metrics; without both, only one device may have the name. A
//! query that contains `{device}` or `{node}` is sent once for each device with these replaced, and
//! its first sample counts.
//!
//! `utilization` is in percent, 0 to 100, so a rate of busy seconds needs `100 *`.

use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::codegen::{http::Uri, Bytes};

/// Limit of a response, bytes: 10,000 devices with long labels need 4 MB.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Timeout of a query.
const QUERY_TIME_MAX: Duration = Duration::from_secs(10);

/// The names of a device in samples' labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// Its node.
    pub node: String,
    /// Its name on the node.
    pub device: String,
    /// The address at which the node's manager serves metrics; empty: none.
    pub metrics: String,
}

/// Values by node and device.
pub type Values = BTreeMap<(String, String), f64>;

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server cannot be reached, or disconnected.
    #[error("cannot query {url}: {reason}")]
    Unreachable {
        /// The query.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The response has no samples.
    #[error("{url} refused the query '{query}': {reason}")]
    Refused {
        /// The query.
        url: String,
        /// The query.
        query: String,
        /// The server's message.
        reason: String,
    },
}

/// Checks `registry.prometheus`.
pub fn check_url(url: &str) -> Result<Uri, String> {
    let uri: Uri = url
        .parse()
        .map_err(|_| format!("is '{url}', must be a URL such as http://127.0.0.1:9090"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(_)) if uri.query().is_none() => Ok(uri),
        (Some("https"), _) => Err("must be http://…: for TLS, run a local proxy".into()),
        _ => Err(format!(
            "is '{url}', must be a URL such as http://127.0.0.1:9090"
        )),
    }
}

/// A client of one server.
#[derive(Debug)]
pub struct Prometheus {
    url: String,
    client: Client<HttpConnector, Empty<Bytes>>,
}

#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<Data>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: serde_json::Value,
}

/// An entry of a vector: labels, time and value.
#[derive(Deserialize)]
struct Sample {
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

impl Prometheus {
    /// A client for a URL that [`check_url`] accepts. Connects at the first query.
    pub fn new(url: &str) -> Prometheus {
        Prometheus {
            url: url.trim_end_matches('/').to_owned(),
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// The values of a metric for all devices for which the server has them.
    pub async fn values(&self, query: &str, devices: &[Named]) -> Result<Values, Error> {
        if !query.contains("{device}") && !query.contains("{node}") {
            return Ok(assign(&self.vector(query).await?, devices));
        }
        let mut values = Values::new();
        for d in devices {
            let own = query
                .replace("{device}", &quoted(&d.device))
                .replace("{node}", &quoted(&d.node));
            if let Some(value) = self.vector(&own).await?.first().and_then(number) {
                values.insert((d.node.clone(), d.device.clone()), value);
            }
        }
        Ok(values)
    }

    async fn vector(&self, query: &str) -> Result<Vec<Sample>, Error> {
        let unreachable = |reason: String| Error::Unreachable {
            url: self.url.clone(),
            reason,
        };
        let refused = |reason: String| Error::Refused {
            url: self.url.clone(),
            query: query.to_owned(),
            reason,
        };
        let uri: Uri = format!("{}/api/v1/query?query={}", self.url, encoded(query))
            .parse()
            .map_err(|_| refused("the query does not fit into a URL".into()))?;
        let request = async {
            let response = self.client.get(uri).await.map_err(|e| chain(&e))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
            let body = body.collect().await.map_err(|e| e.to_string())?;
            Ok((status, body.to_bytes()))
        };
        let (status, body) = tokio::time::timeout(QUERY_TIME_MAX, request)
            .await
            .map_err(|_| unreachable(format!("no response within {QUERY_TIME_MAX:?}")))?
            .map_err(unreachable)?;
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|e| refused(format!("status {status}, not a Prometheus response ({e})")))?;
        let data = match answer.data {
            Some(data) if answer.status == "success" => data,
            _ => return Err(refused(answer.error)),
        };
        if data.result_type != "vector" {
            let reason = format!(
                "the result is a {}, not an instant vector",
                data.result_type
            );
            return Err(refused(reason));
        }
        serde_json::from_value(data.result).map_err(|e| refused(e.to_string()))
    }
}

/// Finds the device of each sample.
fn assign(samples: &[Sample], devices: &[Named]) -> Values {
    let mut by_device: BTreeMap<&str, Vec<&Named>> = BTreeMap::new();
    for named in devices {
        by_device.entry(&named.device).or_default().push(named);
    }
    let mut values = Values::new();
    for sample in samples {
        let label = |key: &str| sample.metric.get(key).map(String::as_str);
        let Some(candidates) = label("device").and_then(|d| by_device.get(d)) else {
            continue;
        };
        let found = match (label("node"), label("instance")) {
            (Some(node), _) => candidates.iter().find(|c| c.node == node),
            (None, Some(address)) if candidates.iter().any(|c| c.metrics == address) => {
                candidates.iter().find(|c| c.metrics == address)
            }
            _ if candidates.len() == 1 => candidates.first(),
            _ => None,
        };
        if let (Some(found), Some(value)) = (found, number(sample)) {
            values.insert((found.node.clone(), found.device.clone()), value);
        }
    }
    values
}

fn number(sample: &Sample) -> Option<f64> {
    let value: f64 = sample.value.1.parse().ok()?;
    value.is_finite().then_some(value)
}

/// Names are checked at registration; quoting protects the query in any case.
fn quoted(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"")
}

fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for b in text.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(b as char);
            }
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

/// An error with its causes: hyper's own text is "client error (Connect)" without the reason.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(node: &str, device: &str, metrics: &str) -> Named {
        Named {
            node: node.into(),
            device: device.into(),
            metrics: metrics.into(),
        }
    }

    fn sample(labels: &[(&str, &str)], value: &str) -> Sample {
        let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        Sample {
            metric: labels.iter().map(owned).collect(),
            value: (0.0, value.into()),
        }
    }

    #[test]
    fn labels_name_the_device() {
        let devices = [
            named("a", "gpu", "10.0.0.1:9464"),
            named("b", "gpu", "10.0.0.2:9464"),
            named("b", "cpu", "10.0.0.2:9464"),
        ];
        let samples = [
            sample(&[("device", "gpu"), ("node", "a")], "0.25"),
            sample(&[("device", "gpu"), ("instance", "10.0.0.2:9464")], "0.5"),
            sample(&[("device", "cpu"), ("instance", "elsewhere:1")], "0.75"),
            sample(&[("device", "gpu"), ("instance", "elsewhere:1")], "0.9"),
            sample(&[("device", "unknown")], "1"),
            sample(&[("node", "a")], "1"),
        ];
        let values = assign(&samples, &devices);
        let at = |n: &str, d: &str| values.get(&(n.to_owned(), d.to_owned())).copied();
        assert_eq!(at("a", "gpu"), Some(0.25));
        assert_eq!(at("b", "gpu"), Some(0.5));
        assert_eq!(at("b", "cpu"), Some(0.75));
        assert_eq!(values.len(), 3);
    }

    #[test]
    fn what_is_no_number_is_no_value() {
        let devices = [named("a", "gpu", "")];
        for text in ["NaN", "+Inf", "", "high"] {
            assert!(assign(&[sample(&[("device", "gpu")], text)], &devices).is_empty());
        }
    }

    #[test]
    fn queries_survive_the_url() {
        assert_eq!(
            encoded("a{b=\"c d\"}[5m]+é"),
            "a%7Bb%3D%22c%20d%22%7D%5B5m%5D%2B%C3%A9"
        );
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named() {
        let url = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            format!("http://{}", listener.local_addr().unwrap())
        };
        let error = Prometheus::new(&url).values("up", &[]).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }));
        assert!(error.to_string().contains(&url), "{error}");
    }
}
