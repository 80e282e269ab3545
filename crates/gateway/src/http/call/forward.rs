//! Forwards calls of container functions to replicas, and exchanges their state with the registry.
//!
//! The body of a waiting call is not read before it can be forwarded.

use crate::http::admission::body::Body;
use crate::http::admission::keys::TenantIndex;
use crate::http::call::invocation::Metered;
use crate::http::failure::Failure;
use crate::http::function::containers::{Container, InFlight};
use crate::http::gateway::Gateway;
use crate::http::problem::Problem;
use crate::http::telemetry::meters::Ending;
use crate::http::telemetry::spans::{self, Called};
use crate::http::telemetry::trace;
use baltra_api::client::Functions;
use baltra_api::registry::CallsRequest;
use baltra_engine::{Timing, Trace};
use http::header::{HeaderName, AUTHORIZATION, CONNECTION, EXPECT, HOST, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of requests to the registry; waiting calls cause further ones.
const EVERY: Duration = Duration::from_secs(1);
const EVERY_HELD: Duration = Duration::from_millis(100);
/// Least time between requests.
const APART: Duration = Duration::from_millis(20);
/// Timeout of a request to the registry; shorter than [`VALID`].
const ASK_MAX: Duration = Duration::from_millis(900);

/// Hop-by-hop headers (RFC 9110, 7.6.1), which are not forwarded.
const HOP_BY_HOP: [HeaderName; 8] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("te"),
    HeaderName::from_static("trailer"),
    HeaderName::from_static("transfer-encoding"),
    HeaderName::from_static("upgrade"),
];
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// A call to forward, without its body.
#[derive(Clone, Copy)]
pub(crate) struct Forwarding<'a> {
    /// The path after the function's name.
    pub rest: &'a str,
    pub parts: &'a Parts,
    pub trace: &'a Trace,
    pub began: Instant,
}

/// Forwards a call. Returns the replica's response unchanged, and records the times.
pub(crate) async fn call(
    gateway: &Gateway,
    container: &Arc<Container>,
    caller: TenantIndex,
    asked: Forwarding<'_>,
    body: Incoming,
) -> Result<(Response<Body>, Timing), Problem> {
    let bytes_max = gateway.options.limits.body_bytes_max;
    if body.size_hint().lower() > bytes_max {
        return Err(Problem::too_large("the body", bytes_max).closing());
    }
    let meter = container.meter(caller, &gateway.keys, &gateway.meters);
    let bytes_in = body.size_hint().exact().unwrap_or(0);
    let mut metered = Metered::begin(meter, asked.began, bytes_in);
    let body = Limited::new(body, usize::try_from(bytes_max).unwrap_or(usize::MAX));
    let passed = pass_on(gateway, container, asked, body).await;
    match &passed {
        Ok((response, timing)) => {
            metered.timing = *timing;
            metered.bytes_out = response.body().size_hint().exact().unwrap_or(0);
            metered.ending = Ending::of(response.status());
        }
        Err(problem) => metered.ending = Ending::of(problem.status),
    }
    let timing = metered.timing;
    let ended = metered.end();
    let problem = passed.as_ref().err();
    let answered = passed.as_ref().map(|(response, _)| response.status());
    spans::export(
        &gateway.spans,
        &Called {
            trace: asked.trace,
            function: &container.name,
            tenant: gateway.keys.name(caller),
            began: asked.began,
            ended,
            timing,
            status: answered.unwrap_or_else(|problem| problem.status).as_u16(),
            error: problem.map(|problem| problem.detail.as_str()),
            place: None,
            asked: "container",
        },
    );
    passed
}

async fn pass_on(
    gateway: &Gateway,
    container: &Arc<Container>,
    asked: Forwarding<'_>,
    body: Limited<Incoming>,
) -> Result<(Response<Body>, Timing), Problem> {
    let in_flight = InFlight::begin(container);
    let deadline = asked.began + container.timeout();
    let all = &gateway.containers;
    let held_max = gateway.options.limits.held_max;
    let (stream, at, waited) = container.connect(all, held_max, deadline).await?;
    let timing = Timing {
        cold_ns: waited.as_nanos() as u64,
        pushed: Some(Instant::now()),
        ..Timing::default()
    };
    let request = request(asked, at, gateway.keys.are_wanted(), body)?;
    let broken = |error: &dyn std::fmt::Display| {
        let detail = format!("'{}' at {at} did not respond: {error}", container.name);
        Problem::new(Failure::BadGateway, detail)
    };
    let greeted = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = greeted.map_err(|error| broken(&error))?;
    // The connection ends at the deadline, even if a client still reads the response.
    tokio::spawn(tokio::time::timeout_at(deadline.into(), connection));
    let answered = tokio::time::timeout_at(deadline.into(), sender.send_request(request)).await;
    let answered = answered.map_err(|_| {
        let detail = format!("'{}' did not respond in time", container.name);
        Problem::new(Failure::Timeout, detail).with(RETRY_AFTER, "5")
    })?;
    let mut response = answered.map_err(|error| broken(&error))?;
    end_to_end(response.headers_mut());
    let response = response.map(|body| {
        let body = body.map_frame(move |frame| {
            let _until_its_end = &in_flight;
            frame
        });
        Body::Other(axum::body::Body::new(body))
    });
    Ok((response, timing))
}

/// The forwarded request: without the headers that are meant for this gateway only.
fn request<B>(
    asked: Forwarding<'_>,
    at: SocketAddr,
    keys: bool,
    body: B,
) -> Result<Request<B>, Problem> {
    let Forwarding {
        rest, parts, trace, ..
    } = asked;
    let path = if rest.is_empty() { "/" } else { rest };
    let target = match parts.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let wrong = |_| Problem::bad_request("the path after the function's name is malformed");
    let target: Uri = target.parse().map_err(wrong)?;
    let mut request = Request::new(body);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = target;
    let headers = request.headers_mut();
    headers.clone_from(&parts.headers);
    end_to_end(headers);
    headers.remove(EXPECT);
    if keys {
        headers.remove(AUTHORIZATION);
        headers.remove(X_API_KEY);
    }
    if let Ok(host) = HeaderValue::from_str(&at.to_string()) {
        headers.insert(HOST, host);
    }
    headers.insert(trace::TRACEPARENT, trace::onward(trace).into());
    if trace::given_id(&parts.headers).is_none() {
        headers.insert(trace::X_REQUEST_ID, trace::request_id(trace));
    }
    Ok(request)
}

/// Removes hop-by-hop headers and those named by `Connection`.
fn end_to_end(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    headers.remove(CONNECTION);
}

/// Reports calls to the registry and receives endpoints while the gateway runs.
pub(crate) async fn follow(gateway: Arc<Gateway>, mut functions: Functions, name: String) {
    let all = &gateway.containers;
    let mut seen = 0;
    loop {
        let asked = Instant::now();
        let request = CallsRequest {
            gateway: name.clone(),
            seen,
            functions: all.counts(),
        };
        match tokio::time::timeout(ASK_MAX, functions.calls(request)).await {
            Ok(Ok(reply)) => {
                let reply = reply.into_inner();
                all.learn(reply.containers, asked, gateway.keys.tenant_count());
                seen = reply.number;
            }
            Ok(Err(status)) => {
                tracing::debug!(%status, "cannot get the containers' endpoints from the registry")
            }
            Err(_) => tracing::debug!(
                "cannot get the containers' endpoints from the registry: no response in time"
            ),
        }
        tokio::time::sleep(APART).await;
        let pause = match all.held() {
            0 => EVERY,
            _ => EVERY_HELD,
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = all.wait() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_s_own_headers_go_no_further() {
        let (parts, ()) = Request::get("/function/edges.red/a?b=c")
            .header("connection", "close, x-mine")
            .header("x-mine", "1")
            .header("transfer-encoding", "chunked")
            .header("x-api-key", "secret")
            .header("authorization", "Bearer secret")
            .header("accept", "image/png")
            .body(())
            .unwrap()
            .into_parts();
        let at = "10.0.0.1:80".parse().unwrap();
        let trace = trace::of(&parts.headers, &baltra_trace::Spans::default());
        let asked = |rest| Forwarding {
            rest,
            parts: &parts,
            trace: &trace,
            began: Instant::now(),
        };
        let passed = request(asked("/a"), at, true, ()).unwrap();
        assert_eq!(passed.uri(), "/a?b=c");
        let mut names: Vec<&str> = passed.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "host", "traceparent", "x-request-id"]);
        assert_eq!(passed.headers()[HOST], "10.0.0.1:80");
        // If no keys are configured, a header that looks like a key belongs to the container.
        let passed = request(asked(""), at, false, ()).unwrap();
        assert_eq!(passed.headers()[X_API_KEY], "secret");
        assert_eq!(passed.uri(), "/?b=c");
    }
}
