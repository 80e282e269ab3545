//! Asynchronous calls: accepted at once, run when capacity is free, reported to a callback.
//!
//! They do not survive the gateway: a shutdown waits for running calls and drops the others.

use crate::http::admission::body::{collect, Body, Payload};
use crate::http::admission::coding::Coding;
use crate::http::admission::keys::TenantIndex;
use crate::http::call::callback::{Callback, Outcome};
use crate::http::call::invocation;
use crate::http::call::queue::{Line, State, Status, X_CALL_ID};
use crate::http::function::table::Deployed;
use crate::http::gateway::Gateway;
use crate::http::problem::Problem;
use crate::http::task::now_ms;
use crate::http::telemetry::trace;
use baltra_engine::Trace;
use baltra_functions::Request as FunctionRequest;
use http::header::{HeaderName, HeaderValue, LOCATION};
use http::request::Parts;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::{Duration, Instant};

const X_CALLBACK_URL: HeaderName = HeaderName::from_static("x-callback-url");

/// A reservation of a place in the queue, released when dropped.
struct QueueReservation {
    gateway: Arc<Gateway>,
    line: Line,
    bytes: u64,
}

impl QueueReservation {
    /// Reserves a place in the queue and memory for the body.
    fn reserve(
        gateway: &Arc<Gateway>,
        line: Line,
        bytes: u64,
    ) -> Result<QueueReservation, Problem> {
        let (limits, is_shared) = (&gateway.options.limits, gateway.is_shared());
        gateway.queue.enter(&line, bytes, limits, is_shared)?;
        Ok(QueueReservation {
            gateway: gateway.clone(),
            line,
            bytes,
        })
    }
}

impl Drop for QueueReservation {
    fn drop(&mut self) {
        self.gateway.queue.leave(&self.line, self.bytes);
    }
}

/// `/async-function/{name}`: 202, or an error.
pub(crate) async fn accept(
    gateway: &Arc<Gateway>,
    name: &str,
    rest: &str,
    parts: &Parts,
    body: Incoming,
    trace: &Trace,
) -> Result<Response<Body>, Problem> {
    let caller = gateway.keys.caller(&parts.headers)?;
    let found = gateway.table.find(name);
    let deployed = found.ok_or_else(|| match gateway.containers.find(name) {
        Some(_) => {
            Problem::bad_request("containers cannot be called asynchronously: call /function/…")
        }
        None => Problem::unknown_function(name),
    })?;
    if !deployed.takes(&parts.method) {
        return Err(Problem::method_not_allowed(&deployed.allow));
    }
    gateway.keys.admit(caller)?;
    let callback = match parts.headers.get(X_CALLBACK_URL) {
        None => None,
        Some(url) => Some(Callback::new(url, &gateway.options.callback_hosts)?),
    };
    if let Some(callback) = &callback {
        gateway.deliveries.check(caller, callback.host())?;
    }
    if !gateway.is_ready() {
        let detail = "the gateway is shutting down";
        return Err(Problem::overload(detail, Duration::from_secs(5)));
    }
    let coding = Coding::of(&parts.headers)?;
    let bytes_max = deployed.body_bytes_max;
    let payload = collect(body, bytes_max, gateway.hold(Some(caller))).await?;
    let payload = coding.decode(payload, bytes_max).await?;
    let line = (deployed.name().to_owned(), caller.0);
    let reservation =
        QueueReservation::reserve(gateway, line, payload.bytes()).inspect_err(|problem| {
            let meter = deployed.meter(caller, &gateway.keys, &gateway.meters);
            meter.note(problem);
        })?;
    let id = trace::secret_id().map_err(|error| {
        tracing::error!(%error, "cannot generate a call's id");
        Problem::internal("internal error: cannot generate a call's id")
    })?;
    gateway.queue.insert(Status {
        call_id: id.clone(),
        function: deployed.name().to_owned(),
        state: State::Queued,
        status: None,
        detail: None,
        accepted_ms: now_ms(),
        ended_ms: None,
        callback: None,
    });
    let waiting = Waiting {
        id: id.clone(),
        deployed,
        caller,
        method: parts.method.clone(),
        path: rest.to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers.clone(),
        payload,
        trace: *trace,
        callback,
    };
    gateway.runtime.spawn(waiting.carry_out(reservation));
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::ACCEPTED;
    let headers = response.headers_mut();
    let location = format!("/system/async/{id}");
    for (name, value) in [(X_CALL_ID, id), (LOCATION, location)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    Ok(response)
}

struct Waiting {
    id: String,
    deployed: Arc<Deployed>,
    caller: TenantIndex,
    method: http::Method,
    path: String,
    query: String,
    headers: http::HeaderMap,
    payload: Payload,
    trace: Trace,
    callback: Option<Callback>,
}

impl Waiting {
    async fn carry_out(self, reservation: QueueReservation) {
        let gateway = reservation.gateway.clone();
        let queue = &gateway.queue;
        let turn = queue.turn(&reservation.line).await;
        queue.change(&self.id, |status| status.state = State::Running);
        let began = Instant::now();
        let request = FunctionRequest {
            method: &self.method,
            path: &self.path,
            query: &self.query,
            headers: &self.headers,
        };
        let (deployed, caller) = (&self.deployed, self.caller);
        let (payload, trace) = (self.payload, &self.trace);
        let result =
            invocation::run(&gateway, deployed, caller, request, payload, trace, began).await;
        drop(turn);
        // A slow callback does not delay other calls.
        drop(reservation);
        queue.change(&self.id, |status| {
            status.ended_ms = Some(now_ms());
            match &result {
                Ok(_) => (status.state, status.status) = (State::Done, Some(200)),
                Err(problem) => {
                    status.state = State::Failed;
                    status.status = Some(problem.status.as_u16());
                    status.detail = Some(problem.detail.clone());
                }
            }
        });
        if let Some(callback) = &self.callback {
            let outcome = Outcome {
                call_id: &self.id,
                function: deployed.name(),
                took: began.elapsed(),
                trace,
                result: result.as_ref().map(|done| &done.answer),
            };
            let delivered = deliver(&gateway, caller, callback, &outcome).await;
            if let Err(error) = &delivered {
                deployed.log.call(Instant::now(), || {
                    let text = format!("the callback of {} failed: {error}", self.id);
                    ("gateway".to_owned(), text)
                });
            }
            queue.change(&self.id, |status| {
                status.callback = Some(delivered.map_or_else(|error| error, |s| s.to_string()));
            });
        }
        queue.end(&self.id);
    }
}

/// Sends a call's callback when its lane has room.
async fn deliver(
    gateway: &Gateway,
    caller: TenantIndex,
    callback: &Callback,
    outcome: &Outcome<'_>,
) -> Result<u16, String> {
    let reservation = gateway.deliveries.enter(caller, callback.host())?;
    let _turn = reservation.turn().await?;
    callback.send(outcome).await
}
