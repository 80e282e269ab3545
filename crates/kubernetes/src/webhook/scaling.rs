//! `external.metrics.k8s.io/v1beta1`: the registry's signals for the cluster's horizontal
//! autoscaler.
//!
//! Each metric is of a Function of the namespace, which the selector names: `function=NAME`.
//! Without a selector the response lists all of the namespace's Functions. With
//! `baltra_function_replicas_desired` and a target of `averageValue: "1"` the autoscaler follows
//! the registry's desired number of replicas.

use crate::registry::Registry;
use crate::resources::function_name;
use baltra_api::registry::{Signal, SignalsRequest};
use k8s_openapi::jiff::Timestamp;
use serde_json::{json, Value};
use std::time::Duration;

/// The group and version.
pub const API: &str = "external.metrics.k8s.io/v1beta1";
/// Timeout of the registry.
const REGISTRY_MAX: Duration = Duration::from_secs(5);

const METRICS: [&str; 4] = [
    "baltra_function_replicas",
    "baltra_function_replicas_desired",
    "baltra_function_utilization_percent",
    "baltra_function_queue_wait_ms",
];

/// A request for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MetricsRequest {
    /// The list of metrics.
    Resources,
    /// The values of a metric.
    Metric {
        namespace: String,
        metric: &'static str,
        function: Option<String>,
    },
}

/// A rejected request: the HTTP status and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub u16, pub String);

fn parse(path: &str, query: Option<&str>) -> Result<MetricsRequest, Refused> {
    let unknown = || Refused(404, format!("there are {}", METRICS.join(", ")));
    let rest = path
        .strip_prefix("/apis/")
        .and_then(|p| p.strip_prefix(API));
    let rest = rest.ok_or_else(unknown)?.trim_matches('/');
    if rest.is_empty() {
        return Ok(MetricsRequest::Resources);
    }
    let parts: Vec<&str> = rest.split('/').collect();
    let ["namespaces", namespace, metric] = parts[..] else {
        return Err(unknown());
    };
    let metric = METRICS
        .into_iter()
        .find(|m| *m == metric)
        .ok_or_else(unknown)?;
    let pairs = query
        .unwrap_or_default()
        .split('&')
        .filter_map(|p| p.split_once('='));
    let selector = pairs
        .filter(|(key, _)| *key == "labelSelector")
        .map(|(_, v)| decoded(v));
    let mut function = None;
    for term in selector.flat_map(|s| s.split(',').map(str::to_owned).collect::<Vec<_>>()) {
        match term.split_once('=') {
            _ if term.is_empty() => {}
            Some(("function", name)) => function = Some(name.trim_start_matches('=').to_owned()),
            _ => {
                return Err(Refused(
                    400,
                    format!("unsupported selector '{term}': use function=NAME"),
                ))
            }
        }
    }
    Ok(MetricsRequest::Metric {
        namespace: namespace.to_owned(),
        metric,
        function,
    })
}

/// Percent-decodes a query.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|h| std::str::from_utf8(h).ok());
        let byte = hex.and_then(|h| u8::from_str_radix(h, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Responds to a request.
///
/// # Errors
/// The reason of a rejection.
pub async fn answer(
    registry: &Registry,
    path: &str,
    query: Option<&str>,
) -> Result<Value, Refused> {
    let request = parse(path, query)?;
    let signals = match request {
        MetricsRequest::Resources => Vec::new(),
        MetricsRequest::Metric { .. } => {
            let mut operators = registry.operators.clone();
            let reply =
                tokio::time::timeout(REGISTRY_MAX, operators.signals(SignalsRequest {})).await;
            match reply {
                Ok(Ok(reply)) => reply.into_inner().signals,
                Ok(Err(status)) => return Err(Refused(503, status.message().to_owned())),
                Err(_) => return Err(Refused(503, "the registry does not respond".to_owned())),
            }
        }
    };
    Ok(response(&request, &signals))
}

fn response(request: &MetricsRequest, signals: &[Signal]) -> Value {
    match request {
        MetricsRequest::Resources => {
            let resource = |name: &&str| {
                json!({"name": name, "singularName": "", "namespaced": true,
                       "kind": "ExternalMetricValueList", "verbs": ["get"]})
            };
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API,
                   "resources": METRICS.iter().map(resource).collect::<Vec<_>>()})
        }
        MetricsRequest::Metric {
            namespace,
            metric,
            function,
        } => {
            let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
            let suffix = function_name(namespace, "");
            let own = signals
                .iter()
                .filter_map(|s| Some((s.function.strip_suffix(&suffix)?, s)));
            let own = own.filter(|(name, _)| function.as_ref().is_none_or(|f| f == name));
            let item = |(name, signal): (&str, &Signal)| {
                json!({"metricName": metric, "metricLabels": {"function": name},
                       "timestamp": now.to_string(), "value": value(metric, signal)})
            };
            json!({"kind": "ExternalMetricValueList", "apiVersion": API, "metadata": {},
                   "items": own.map(item).collect::<Vec<_>>()})
        }
    }
}

/// Formats a quantity, in thousandths unless it is an integer.
fn value(metric: &str, signal: &Signal) -> String {
    let thousandths =
        |value: f64| format!("{}m", (value.clamp(0.0, 1e12) * 1_000.0).round() as u64);
    match metric {
        "baltra_function_replicas" => signal.replicas.to_string(),
        "baltra_function_replicas_desired" => signal.desired.to_string(),
        "baltra_function_utilization_percent" => thousandths(signal.utilization),
        _ => thousandths(signal.queue_wait_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "/apis/external.metrics.k8s.io/v1beta1";

    #[test]
    fn what_is_asked_is_checked() {
        assert_eq!(parse(BASE, None).unwrap(), MetricsRequest::Resources);
        let path = format!("{BASE}/namespaces/red/baltra_function_replicas_desired");
        let request = |query| parse(&path, query);
        let metric = |function: Option<&str>| MetricsRequest::Metric {
            namespace: "red".into(),
            metric: METRICS[1],
            function: function.map(str::to_owned),
        };
        assert_eq!(request(None).unwrap(), metric(None));
        assert_eq!(
            request(Some("labelSelector=function%3Dsobel")).unwrap(),
            metric(Some("sobel"))
        );
        assert_eq!(
            request(Some("labelSelector=function%3D%3Dsobel")).unwrap(),
            metric(Some("sobel"))
        );
        assert_eq!(request(Some("labelSelector=app%3Dx")).unwrap_err().0, 400);
        assert_eq!(
            parse(&format!("{BASE}/namespaces/red/luck"), None)
                .unwrap_err()
                .0,
            404
        );
        assert_eq!(parse("/apis/other", None).unwrap_err().0, 404);
    }

    #[test]
    fn only_functions_of_the_namespace_are_listed() {
        let signal = |function: &str| Signal {
            function: function.into(),
            replicas: 2,
            desired: 3,
            queue_wait_ms: 1.25,
            ..Signal::default()
        };
        let signals = [
            signal("sobel.red"),
            signal("mm.red"),
            signal("sobel.blue"),
            signal("plain"),
        ];
        let values = |metric, function: Option<&str>| {
            let request = MetricsRequest::Metric {
                namespace: "red".into(),
                metric,
                function: function.map(str::to_owned),
            };
            response(&request, &signals)["items"]
                .as_array()
                .unwrap()
                .clone()
        };
        assert_eq!(values(METRICS[1], None).len(), 2);
        let own = values(METRICS[1], Some("sobel"));
        assert_eq!((own.len(), &own[0]["value"]), (1, &json!("3")));
        assert_eq!(values(METRICS[3], Some("mm"))[0]["value"], "1250m");
    }

    #[test]
    fn percent_signs_are_taken_away() {
        assert_eq!(decoded("a%3Db+c"), "a=b c");
        assert_eq!(decoded("%"), "%");
        assert_eq!(decoded("%zz%4"), "%zz%4");
    }
}
