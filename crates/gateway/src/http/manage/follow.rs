//! `/system/logs`: the gateway's and the function's log lines, in one stream.

use crate::http::function::logs::{Line, Log};
use crate::http::function::namespace::check_namespace;
use crate::http::function::table::Deployed;
use crate::http::gateway::Gateway;
use crate::http::manage::request::Params;
use crate::http::problem::Problem;
use crate::http::rfc3339;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use baltra_engine::log::Line as EngineLine;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc};

/// Interval of empty lines to a follower while there are no new lines.
const QUIET_MAX: Duration = Duration::from_secs(15);
/// Polling interval of the engine's lines.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Deserialize)]
pub(crate) struct LogQuery {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    tail: i64,
    #[serde(default)]
    follow: String,
    #[serde(default)]
    since: String,
}

/// `GET /system/logs`: lines of JSON, with `follow` until the client disconnects.
pub(crate) async fn logs(
    State(gateway): State<Arc<Gateway>>,
    Params(query): Params<LogQuery>,
) -> Result<Response, Problem> {
    check_namespace(&query.namespace)?;
    let found = gateway.table.find(&query.name);
    let deployed = found.ok_or_else(|| Problem::unknown_function(&query.name))?;
    let since = match query.since.as_str() {
        "" => None,
        text => Some(rfc3339::parse(text).ok_or_else(|| {
            Problem::unprocessable("invalid 'since': expected a time such as 2026-01-31T12:00:00Z")
        })?),
    };
    let follow = matches!(
        query.follow.as_str(),
        "true" | "1" | "t" | "T" | "TRUE" | "True"
    );
    let tail = usize::try_from(query.tail).unwrap_or(0);
    let (mut lines, news) = deployed.log.read(0, since);
    let (engine, next) = engine_lines(&gateway, &deployed, 0);
    lines.extend(
        engine
            .into_iter()
            .filter(|l| since.is_none_or(|since| l.at >= since)),
    );
    lines.sort_by_key(|line| line.at);
    if tail > 0 {
        lines.drain(..lines.len().saturating_sub(tail));
    }
    let name = deployed.name().to_owned();
    let text: String = lines.iter().map(|line| line.json(&name)).collect();
    let kind = [(CONTENT_TYPE, "application/x-ndjson")];
    if !follow {
        return Ok((kind, text).into_response());
    }
    let (sender, receiver) = mpsc::channel(16);
    let log = Arc::downgrade(&deployed.log);
    let _ = sender.try_send(Bytes::from(text));
    drop(deployed);
    tokio::spawn(follow_log(gateway, name, log, news, next, sender));
    Ok((kind, Body::new(Stream(receiver))).into_response())
}

/// The function's own lines from a number on, and the next number.
fn engine_lines(gateway: &Gateway, deployed: &Deployed, from: u64) -> (Vec<Line>, u64) {
    let Some(log) = gateway.engine.log(&deployed.function) else {
        return (Vec::new(), from);
    };
    let lines: Vec<EngineLine> = log.since(from);
    let next = lines.last().map_or(from, |line| line.number + 1);
    let line = |line: EngineLine| Line {
        at: line.at,
        instance: line.from,
        text: line.text,
    };
    (lines.into_iter().map(line).collect(), next)
}

/// Follows until the client disconnects, the function is removed, or the gateway stops.
async fn follow_log(
    gateway: Arc<Gateway>,
    name: String,
    log: std::sync::Weak<Log>,
    mut news: broadcast::Receiver<Line>,
    mut next: u64,
    sender: mpsc::Sender<Bytes>,
) {
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut quiet = Duration::ZERO;
    while log.strong_count() > 0 && gateway.is_ready() {
        let mut text = String::new();
        tokio::select! {
            line = news.recv() => match line {
                Ok(line) => text = line.json(&name),
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return,
            },
            _ = look.tick() => {
                if let Some(deployed) = gateway.table.find(&name) {
                    let lines;
                    (lines, next) = engine_lines(&gateway, &deployed, next);
                    text = lines.iter().map(|line| line.json(&name)).collect();
                }
                quiet += LOOK_EVERY;
                if text.is_empty() && quiet >= QUIET_MAX {
                    text.push('\n');
                }
            }
            () = sender.closed() => return,
        }
        if !text.is_empty() {
            quiet = Duration::ZERO;
            if sender.send(text.into()).await.is_err() {
                return;
            }
        }
    }
}

/// Lines as a body.
struct Stream(mpsc::Receiver<Bytes>);

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        let next = self.0.poll_recv(context);
        next.map(|bytes| bytes.map(|b| Ok(http_body::Frame::data(b))))
    }
}
