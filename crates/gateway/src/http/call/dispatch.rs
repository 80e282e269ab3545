//! The path from a request to its response.
//!
//! The path of a call takes no lock, and writes no log except for a bounded number of lines per
//! second: the table of functions is replaced as a whole, each thread has its own counters, and the
//! request's header map is reused for the response.

use crate::http::admission::body::{collect, Body};
use crate::http::admission::budget::Held;
use crate::http::admission::coding::Coding;
use crate::http::admission::places::CallPermit;
use crate::http::call::asynchronous;
use crate::http::call::forward;
use crate::http::call::invocation;
use crate::http::gateway::{Gateway, TOO_MANY};
use crate::http::problem::{Problem, Shed};
use crate::http::telemetry::meters::Meter;
use crate::http::telemetry::trace;
use crate::http::text::Text;
use crate::http::transport::connection::Watch;
use crate::http::transport::linger::Linger;
use axum::Router;
use baltra_engine::{Timing, Trace};
use baltra_functions::{Answer, Request as FunctionRequest};
use http::header::{HeaderName, HeaderValue, CONNECTION, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use std::sync::atomic::AtomicUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tower_service::Service as _;

/// Response header with the durations of a call's phases (W3C Server Timing).
pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// State shared by the connections of a thread.
pub(crate) struct Worker {
    pub gateway: Arc<Gateway>,
    pub router: Router,
    /// Number of calls in progress, which is limited.
    pub calls: AtomicUsize,
    pub calls_max: usize,
    pub linger: Linger,
}

/// A response before its headers are written.
struct Answered {
    status: StatusCode,
    content: Content,
    timing: Timing,
    /// End of the call; `None`: now.
    ended: Option<Instant>,
}

/// Header fields of a request that its response repeats.
struct EchoedHeaders {
    id: Option<HeaderValue>,
    traced: bool,
}

impl EchoedHeaders {
    fn of(headers: &HeaderMap) -> EchoedHeaders {
        EchoedHeaders {
            id: trace::given_id(headers).cloned(),
            traced: headers.contains_key(trace::TRACEPARENT),
        }
    }
}

/// Value of the header with the durations of a call's phases.
fn server_timing(timing: &Timing, total: Duration) -> HeaderValue {
    let mut text = Text::<160>::new();
    for (name, ns) in [
        (&b"queue;dur="[..], timing.queue_ns),
        (b", cold;dur=", timing.cold_ns),
        (b", device;dur=", timing.device_ns),
        (b", total;dur=", total.as_nanos() as u64),
    ] {
        text.put(name);
        text.put_ms(ns);
    }
    text.into()
}

enum Content {
    /// A function's response, with its accounted memory.
    Function(Answer, Option<Held>),
    Problem(Problem),
    /// A response that has its own headers.
    Whole(Box<Response<Body>>),
}

impl From<Problem> for Answered {
    fn from(problem: Problem) -> Answered {
        Answered {
            status: problem.status,
            content: Content::Problem(problem),
            timing: Timing::default(),
            ended: None,
        }
    }
}

impl Worker {
    /// Responds to one request. A faulty request is not an error of the connection.
    pub async fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        watch: &Watch,
    ) -> Response<Body> {
        watch.enter();
        let began = Instant::now();
        let (parts, body) = request.into_parts();
        let trace = trace::of(&parts.headers, &self.gateway.spans);
        if let Err(problem) = check_host(&parts) {
            let echoed = EchoedHeaders::of(&parts.headers);
            let response = self.finish(parts.headers, echoed, problem.into(), &trace, began);
            watch.leave();
            return response;
        }
        let answered = match route(parts.uri.path()) {
            Route::Function(name, rest) => {
                let called = self.function(name, rest, &parts, body, &trace, began);
                called.await.unwrap_or_else(Answered::from)
            }
            Route::Async(name, rest) => {
                let accepted =
                    asynchronous::accept(&self.gateway, name, rest, &parts, body, &trace);
                match Box::pin(accepted).await {
                    Ok(response) => whole(response),
                    Err(problem) => problem.into(),
                }
            }
            Route::Other => return self.routed(parts, body, &trace, began, watch).await,
        };
        let echoed = EchoedHeaders::of(&parts.headers);
        let response = self.finish(parts.headers, echoed, answered, &trace, began);
        watch.leave();
        self.linger.served();
        response
    }

    /// Runs one call of a function.
    async fn function(
        &self,
        name: &str,
        rest: &str,
        parts: &Parts,
        body: Incoming,
        trace: &Trace,
        began: Instant,
    ) -> Result<Answered, Problem> {
        let gateway = &*self.gateway;
        let caller = gateway.keys.caller(&parts.headers)?;
        let Some(deployed) = gateway.table.find(name) else {
            let found = gateway.containers.find(name);
            let container = found.ok_or_else(|| Problem::unknown_function(name))?;
            gateway.keys.admit(caller)?;
            let meter = container.meter(caller, &gateway.keys, &gateway.meters);
            let _place = self.place(meter, || {
                Problem::shed(Shed::Places, TOO_MANY, Duration::from_secs(1))
            })?;
            let asked = forward::Forwarding {
                rest,
                parts,
                trace,
                began,
            };
            let passed = forward::call(gateway, &container, caller, asked, body);
            // Boxed: as in `routed`.
            let (response, timing) = Box::pin(passed).await?;
            return Ok(Answered {
                timing,
                ..whole(response)
            });
        };
        if !deployed.takes(&parts.method) {
            return Err(Problem::method_not_allowed(&deployed.allow));
        }
        gateway.keys.admit(caller)?;
        let meter = deployed.meter(caller, &gateway.keys, &gateway.meters);
        let _place = self.place(meter, || gateway.no_place(&deployed))?;
        let coding = Coding::of(&parts.headers)?;
        let bytes_max = deployed.body_bytes_max;
        let noted = |problem: Problem| {
            meter.note(&problem);
            problem
        };
        let payload = collect(body, bytes_max, gateway.hold(Some(caller))).await;
        let payload = payload.map_err(noted)?;
        let payload = coding.decode(payload, bytes_max).await.map_err(noted)?;
        let asked = FunctionRequest {
            method: &parts.method,
            path: rest,
            query: parts.uri.query().unwrap_or_default(),
            headers: &parts.headers,
        };
        // Reception of a body may have taken long.
        let began = if payload.frames.is_empty() {
            began
        } else {
            Instant::now()
        };
        let done =
            invocation::run(gateway, &deployed, caller, asked, payload, trace, began).await?;
        Ok(Answered {
            status: StatusCode::OK,
            content: Content::Function(done.answer, done.held),
            timing: done.timing,
            ended: Some(done.ended),
        })
    }

    /// Takes one of the thread's limited places for calls.
    fn place<'a>(
        &'a self,
        meter: &'a Meter,
        refusal: impl FnOnce() -> Problem,
    ) -> Result<CallPermit<'a>, Problem> {
        let is_shared = self.gateway.is_shared();
        let place = CallPermit::take(&self.calls, meter.places(), self.calls_max, is_shared);
        place.ok_or_else(|| {
            meter.shed(Shed::Places);
            refusal()
        })
    }

    /// Requests that are not calls.
    async fn routed(
        self: &Arc<Self>,
        parts: Parts,
        body: Incoming,
        trace: &Trace,
        began: Instant,
        watch: &Watch,
    ) -> Response<Body> {
        let echoed = EchoedHeaders::of(&parts.headers);
        let mut request = Request::from_parts(parts, axum::body::Body::new(body));
        request.extensions_mut().insert(*trace);
        // Boxed: a connection's state for a request is as large as its largest future.
        let called = Box::pin(self.router.clone().call(request)).await;
        let response = match called {
            Ok(response) => response.map(Body::Other),
            Err(never) => match never {},
        };
        let response = self.finish(HeaderMap::new(), echoed, whole(response), trace, began);
        watch.leave();
        response
    }

    /// Writes the headers that every response has.
    fn finish(
        &self,
        mut headers: HeaderMap,
        echoed: EchoedHeaders,
        answered: Answered,
        trace: &Trace,
        began: Instant,
    ) -> Response<Body> {
        headers.clear();
        let mut response = match answered.content {
            Content::Function(answer, held) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
                for (name, value) in answer.headers {
                    let name = HeaderName::from_bytes(name.as_bytes());
                    if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
                        headers.insert(name, value);
                    }
                }
                let mut response = Response::new(Body::frames(answer.body.0).holding(held));
                *response.headers_mut() = headers;
                response
            }
            Content::Problem(problem) => {
                problem.fill(&mut headers);
                let mut response = Response::new(Body::from(problem.json()));
                *response.headers_mut() = headers;
                response
            }
            Content::Whole(response) => *response,
        };
        *response.status_mut() = answered.status;
        let headers = response.headers_mut();
        let id = echoed.id.unwrap_or_else(|| trace::request_id(trace));
        headers.insert(trace::X_REQUEST_ID, id);
        if echoed.traced {
            headers.insert(trace::TRACEPARENT, trace::text(trace).into());
        }
        let now = answered.ended.unwrap_or_else(Instant::now);
        let total = now.saturating_duration_since(began);
        headers.insert(SERVER_TIMING, server_timing(&answered.timing, total));
        if !self.gateway.is_ready() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// RFC 9112, 3.2: a request of HTTP/1.1 has one `Host`, and no request has two.
fn check_host(parts: &Parts) -> Result<(), Problem> {
    let wrong = |why: &str| Err(Problem::bad_request(why).closing());
    let mut hosts = parts.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => wrong("several 'Host' header fields: send one"),
        (None, None) if parts.version == Version::HTTP_11 => {
            wrong("missing 'Host' header field, which HTTP/1.1 requires")
        }
        (Some(host), None) if !valid_host(host.as_bytes()) => {
            wrong("malformed 'Host' header field: expected HOST or HOST:PORT")
        }
        _ => Ok(()),
    }
}

/// `uri-host [ ":" port ]` (RFC 9110, 7.2); empty if the target has no authority.
fn valid_host(host: &[u8]) -> bool {
    let (name, port) = match host.iter().rposition(|byte| matches!(byte, b':' | b']')) {
        Some(at) if host[at] == b':' => host.split_at(at),
        _ => (host, &[][..]),
    };
    let digits = port.iter().skip(1).all(u8::is_ascii_digit);
    let named = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(byte);
    let literal = match name {
        [b'[', address @ .., b']'] => address.iter().all(|b| named(b) || *b == b':'),
        _ => name.iter().all(named),
    };
    digits && literal
}

fn whole(response: Response<Body>) -> Answered {
    let timing = response.extensions().get::<Timing>().copied();
    Answered {
        status: response.status(),
        content: Content::Whole(Box::new(response)),
        timing: timing.unwrap_or_default(),
        ended: None,
    }
}

enum Route<'a> {
    Function(&'a str, &'a str),
    Async(&'a str, &'a str),
    Other,
}

/// Splits the path of a call into name and sub-path.
fn route(path: &str) -> Route<'_> {
    let split = |rest: &'static str| {
        let rest = path.strip_prefix(rest)?;
        let end = rest.find('/').unwrap_or(rest.len());
        (end > 0).then(|| rest.split_at(end))
    };
    if let Some((name, rest)) = split("/function/") {
        return Route::Function(name, rest);
    }
    match split("/async-function/") {
        Some((name, rest)) => Route::Async(name, rest),
        None => Route::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        for host in [
            "",
            "a",
            "localhost:8080",
            "[::1]",
            "[::1]:80",
            "a.b-c_d:",
            "10.0.0.1",
            "xn--e1a.example",
        ] {
            assert!(valid_host(host.as_bytes()), "{host}");
        }
        for host in [
            "a b", "a:b", "a/b", "a@b", "[::1", "::1", "a:80:80", "a?b", "a#b", "\u{e4}", "[a]b",
            "a\t",
        ] {
            assert!(!valid_host(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn paths_are_split_at_the_name() {
        let split = |path| match route(path) {
            Route::Function(name, rest) => format!("{name}|{rest}"),
            Route::Async(name, rest) => format!("async {name}|{rest}"),
            Route::Other => "other".to_owned(),
        };
        for (path, parts) in [
            ("/function/a", "a|"),
            ("/function/a/", "a|/"),
            ("/function/a/b/c%20d", "a|/b/c%20d"),
            ("/function/", "other"),
            ("/function", "other"),
            ("/function//a", "other"),
            ("/async-function/a/b", "async a|/b"),
            ("/functional/a", "other"),
            ("/", "other"),
        ] {
            assert_eq!(split(path), parts, "{path}");
        }
    }
}
