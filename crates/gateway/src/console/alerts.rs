//! The firing alerts of a Prometheus server that has loaded `deploy/prometheus/alerts.yaml`.
//!
//! A task polls the server's HTTP API (`/api/v1/alerts`). Alerts whose name begins with `Baltra` are
//! shown; the server may have others.

use super::model::{Alert, Alerts};
use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::net::TcpStream;

/// Pause between a response and the next request.
const PAUSE: Duration = Duration::from_secs(5);

/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest response, bytes.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Most shown alerts.
const ALERTS_MAX: usize = 100;

/// Longest text of an alert, characters.
const TEXT_CHARS_MAX: usize = 300;

/// The beginning of the names of the alerts.
const PREFIX: &str = "Baltra";

/// A polled server. Polling ends when the value is dropped.
#[derive(Debug)]
pub struct AlertWatch(Arc<Mutex<Alerts>>);

impl AlertWatch {
    /// Checks a server's address; returns what is wrong with it.
    pub fn check(url: &str) -> Result<Uri, String> {
        let wrong = || format!("is '{url}', must be a URL such as http://127.0.0.1:9090");
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        match (uri.scheme_str(), uri.authority()) {
            (Some("https"), _) => Err("must be http://…: for TLS, run a local proxy".into()),
            (Some("http"), Some(host)) if uri.query().is_none() && !host.as_str().contains('@') => {
                Ok(uri)
            }
            _ => Err(wrong()),
        }
    }

    /// Starts polling, unless the address is empty or invalid. Must be called within a runtime.
    pub fn start(url: &str) -> Option<AlertWatch> {
        let server = AlertWatch::check(url).ok()?;
        let alerts = Arc::new(Mutex::new(Alerts {
            address: url.to_owned(),
            reason: "no request was sent yet".into(),
            firing: Vec::new(),
        }));
        tokio::spawn(watch(server, Arc::downgrade(&alerts)));
        Some(AlertWatch(alerts))
    }

    /// The alerts of the last response.
    pub fn alerts(&self) -> Alerts {
        let alerts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        alerts.clone()
    }
}

async fn watch(server: Uri, alerts: Weak<Mutex<Alerts>>) {
    while alerts.strong_count() > 0 {
        let read = tokio::time::timeout(PATIENCE, fetch(&server)).await;
        let read = read.unwrap_or_else(|_| {
            let limit = PATIENCE.as_secs();
            Err(format!("no response within {limit} s").into())
        });
        if let Some(alerts) = alerts.upgrade() {
            let mut alerts = alerts.lock().unwrap_or_else(PoisonError::into_inner);
            match read {
                Ok(firing) => {
                    alerts.firing = firing;
                    alerts.reason.clear();
                }
                // An alert of an old response may have ended.
                Err(error) => {
                    alerts.firing.clear();
                    alerts.reason = shortened(&error.to_string());
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The firing alerts of a server.
async fn fetch(server: &Uri) -> Result<Vec<Alert>, Failure> {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, server.port_u16().unwrap_or(80))).await?;
    let path = server.path().trim_end_matches('/');
    let request = Request::get(format!("{path}/api/v1/alerts"))
        .header(HOST, server.authority().map_or("", |a| a.as_str()))
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let answered = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
        Ok::<_, Failure>((status, body.collect().await?.to_bytes()))
    };
    let mut answered = std::pin::pin!(answered);
    // The connection is driven only until the response is complete.
    let (status, body) = tokio::select! {
        answer = &mut answered => answer?,
        _ = connection => answered.await?,
    };
    if !status.is_success() {
        return Err(format!("the server responded with {status}").into());
    }
    parse(&body)
}

#[derive(Deserialize)]
struct Answer {
    data: AnswerData,
}

#[derive(Deserialize)]
struct AnswerData {
    alerts: Vec<AnswerAlert>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerAlert {
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    state: String,
    #[serde(default)]
    active_at: String,
}

/// The alerts that fire, those with the severity `critical` first.
fn parse(body: &[u8]) -> Result<Vec<Alert>, Failure> {
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|error| format!("the response is not a list of alerts ({error})"))?;
    let text = |texts: &BTreeMap<String, String>, key: &str| {
        texts.get(key).map(|t| shortened(t)).unwrap_or_default()
    };
    let firing = answer.data.alerts.iter().filter(|a| a.state == "firing");
    let mut all: Vec<Alert> = firing
        .map(|alert| Alert {
            name: text(&alert.labels, "alertname"),
            severity: text(&alert.labels, "severity"),
            summary: match text(&alert.annotations, "summary") {
                empty if empty.is_empty() => text(&alert.annotations, "description"),
                summary => summary,
            },
            since: shortened(&alert.active_at),
        })
        .filter(|alert| alert.name.starts_with(PREFIX))
        .collect();
    all.sort_by_key(|alert| (alert.severity != "critical", alert.name.clone()));
    all.truncate(ALERTS_MAX);
    Ok(all)
}

fn shortened(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firing_alerts_of_the_rules_are_listed() {
        let alert = |name: &str, severity: &str, state: &str| {
            format!(
                r#"{{"labels":{{"alertname":"{name}","severity":"{severity}"}},
                "annotations":{{"description":"{name} is so"}},
                "state":"{state}","activeAt":"2026-11-28T01:02:03.4Z","value":"1e+00"}}"#
            )
        };
        let list = [
            alert("BaltraSlow", "warning", "firing"),
            alert("BaltraDown", "critical", "firing"),
            alert("BaltraLater", "warning", "pending"),
            alert("DiskFull", "critical", "firing"),
        ];
        let list = list.join(",");
        let body = format!(r#"{{"status":"success","data":{{"alerts":[{list}]}}}}"#);
        let alerts = parse(body.as_bytes()).unwrap();
        let names: Vec<&str> = alerts.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["BaltraDown", "BaltraSlow"]);
        assert_eq!(alerts[0].summary, "BaltraDown is so");
        assert_eq!(alerts[0].since, "2026-11-28T01:02:03.4Z");
        for wrong in ["", "[]", r#"{"data":{}}"#] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn alerts_and_their_texts_are_bounded() {
        let long = "x".repeat(TEXT_CHARS_MAX + 1);
        let alert = format!(
            r#"{{"labels":{{"alertname":"Baltra{long}"}},"state":"firing","activeAt":"{long}"}}"#
        );
        let list = vec![alert; ALERTS_MAX + 1].join(",");
        let body = format!(r#"{{"data":{{"alerts":[{list}]}}}}"#);
        let alerts = parse(body.as_bytes()).unwrap();
        assert_eq!(alerts.len(), ALERTS_MAX);
        assert_eq!(alerts[0].since.len(), TEXT_CHARS_MAX);
        assert_eq!(alerts[0].summary, "");
    }
}
