//! One call, independent of the protocol: binding, execution, response, counters and log.

use crate::http::admission::body::Payload;
use crate::http::admission::budget::Held;
use crate::http::admission::keys::TenantIndex;
use crate::http::failure::Failure;
use crate::http::function::table::Deployed;
use crate::http::gateway::Gateway;
use crate::http::problem::{Problem, Shed};
use crate::http::task::blocking;
use crate::http::telemetry::meters::{Ended, Ending, Meter};
use crate::http::telemetry::spans::{self, Called};
use crate::http::telemetry::trace;
use crate::http::text::without_paths;
use baltra_engine::{CallError, Caller, Timing, Trace};
use baltra_functions::manifest::Codec;
use baltra_functions::{Answer, Call, Request as FunctionRequest};
use http::header::{HeaderValue, ACCEPT, CONTENT_TYPE};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bodies of at least this size are decoded and encoded on threads that serve no connections.
const HEAVY_BYTES: u64 = 64 << 10;

/// The result of a call.
pub(crate) struct Done {
    pub answer: Answer,
    pub timing: Timing,
    /// End of the call.
    pub ended: Instant,
    /// Memory accounted to the response until it has been sent.
    pub held: Option<Held>,
}

/// Binds a request, runs it and makes the response; counts and logs the call.
pub(crate) async fn run(
    gateway: &Gateway,
    deployed: &Arc<Deployed>,
    caller: TenantIndex,
    request: FunctionRequest<'_>,
    payload: Payload,
    trace: &Trace,
    began: Instant,
) -> Result<Done, Problem> {
    let bytes_in = payload.bytes();
    let meter = deployed.meter(caller, &gateway.keys, &gateway.meters);
    let mut metered = Metered::begin(meter, began, bytes_in);
    let bound = (deployed, caller, meter);
    let result = run_bound(gateway, bound, request, payload, trace, began).await;
    let place = match &result {
        Ok((answer, ran, _)) => {
            metered.timing = ran.timing;
            metered.bytes_out = answer.body.len();
            metered.ending = Ending::Done;
            Some(ran)
        }
        Err(problem) => {
            metered.ending = Ending::of(problem.status);
            meter.note(problem);
            None
        }
    };
    let timing = metered.timing;
    let ended = metered.end();
    let problem = result.as_ref().err();
    spans::export(
        &gateway.spans,
        &Called {
            trace,
            function: deployed.name(),
            tenant: gateway.keys.name(caller),
            began,
            ended,
            timing,
            status: problem.map_or(200, |problem| problem.status.as_u16()),
            error: problem.map(|problem| problem.detail.as_str()),
            place: place.map(|ran| (ran.place.0.as_str(), ran.place.1.as_str())),
            asked: "device",
        },
    );
    deployed.log.call(ended, || {
        line(&request, problem, place, ended - began, trace)
    });
    result.map(|(answer, ran, held)| Done {
        answer,
        timing: ran.timing,
        ended,
        held,
    })
}

struct Ran {
    timing: Timing,
    place: (String, String),
}

async fn run_bound(
    gateway: &Gateway,
    (deployed, caller, meter): (&Arc<Deployed>, TenantIndex, &Arc<Meter>),
    request: FunctionRequest<'_>,
    payload: Payload,
    trace: &Trace,
    began: Instant,
) -> Result<(Answer, Ran, Option<Held>), Problem> {
    let function = &deployed.function;
    let Payload { frames, mut held } = payload;
    let body = baltra_functions::Body(frames);
    held.grow(function.unpacked_bytes(&request, &body))?;
    let call = bind(deployed, request, body).await?;
    let accept = request.headers.get(ACCEPT).and_then(|v| v.to_str().ok());
    // From here on, account for the inputs, the outputs, and the encoded response.
    held.set(
        call.bytes()
            .saturating_add(function.answer_bytes(&call, accept)?),
    )?;
    let deadline = began + deployed.timeout;
    let kept = call.for_answer();
    let called = gateway
        .engine
        .call_for(function, call, deadline, trace, from(caller, meter))
        .await;
    let reply = called.map_err(problem_of)?;
    let ran = Ran {
        timing: reply.timing,
        place: (reply.node, reply.device),
    };
    let bytes: u64 = reply.outputs.iter().map(|o| o.len() as u64).sum();
    let raw = |codecs: &[Codec]| codecs.iter().all(|c| *c == Codec::Raw);
    let plain = function.manifest.outputs.iter().all(|o| raw(&o.codecs));
    let answer = (if bytes < HEAVY_BYTES || plain {
        function.answer(&kept, reply.outputs, accept)
    } else {
        let (function, accept) = (function.clone(), accept.map(str::to_owned));
        blocking(move || function.answer(&kept, reply.outputs, accept.as_deref())).await?
    })?;
    held.shrink(held.bytes().saturating_sub(answer.body.len()));
    Ok((answer, ran, held.if_counted()))
}

async fn bind(
    deployed: &Arc<Deployed>,
    request: FunctionRequest<'_>,
    body: baltra_functions::Body,
) -> Result<Call, Problem> {
    let content_type = request.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let raw = content_type.is_some_and(|t| t.starts_with(b"application/octet-stream"));
    if body.len() < HEAVY_BYTES || raw {
        return Ok(deployed.function.bind(&request, body)?);
    }
    let function = deployed.function.clone();
    let (method, headers) = (request.method.clone(), request.headers.clone());
    let (path, query) = (request.path.to_owned(), request.query.to_owned());
    let bound = blocking(move || {
        let request = FunctionRequest {
            method: &method,
            path: &path,
            query: &query,
            headers: &headers,
        };
        function.bind(&request, body)
    });
    Ok(bound.await??)
}

/// The origin of a call for the engine.
pub(crate) fn from(caller: TenantIndex, meter: &Arc<Meter>) -> Caller {
    Caller {
        tenant: caller.0,
        account: Some(meter.clone()),
    }
}

/// Converts an error of the engine into a caller's error.
pub(crate) fn problem_of(error: CallError) -> Problem {
    match &error {
        CallError::Overload {
            reason,
            retry_after,
        } => {
            let reason = match reason {
                baltra_engine::Shed::Queue => Shed::Queue,
                baltra_engine::Shed::Deadline => Shed::Deadline,
            };
            Problem::shed(reason, error.to_string(), *retry_after)
        }
        CallError::HeldOff { retry_after } => {
            Problem::shed(Shed::HeldOff, error.to_string(), *retry_after)
        }
        CallError::Deadline => Problem::new(Failure::Timeout, error.to_string()),
        CallError::Unavailable(why) => Problem::overload(
            format!("no replica can run the call now: {}", without_paths(why)),
            Duration::from_secs(1),
        ),
        CallError::Failed(why) => {
            Problem::internal(format!("the function failed: {}", without_paths(why)))
        }
    }
}

/// A call that is counted when it ends, also if the caller disconnects.
pub(crate) struct Metered<'a> {
    meter: &'a Meter,
    began: Instant,
    bytes_in: u64,
    pub bytes_out: u64,
    pub timing: Timing,
    pub ending: Ending,
    now: Option<Instant>,
}

impl<'a> Metered<'a> {
    pub fn begin(meter: &'a Meter, began: Instant, bytes_in: u64) -> Metered<'a> {
        meter.begin();
        Metered {
            meter,
            began,
            bytes_in,
            bytes_out: 0,
            timing: Timing::default(),
            ending: Ending::Abandoned,
            now: None,
        }
    }

    /// Ends the call now.
    pub fn end(mut self) -> Instant {
        let now = Instant::now();
        self.now = Some(now);
        now
    }
}

impl Drop for Metered<'_> {
    fn drop(&mut self) {
        let now = self.now.unwrap_or_else(Instant::now);
        self.meter.end(&Ended {
            ending: self.ending,
            ns: (now - self.began).as_nanos() as u64,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            timing: self.timing,
        });
    }
}

/// Writes a call to the function's log: its place and outcome.
fn line(
    request: &FunctionRequest<'_>,
    problem: Option<&Problem>,
    ran: Option<&Ran>,
    took: Duration,
    trace: &Trace,
) -> (String, String) {
    let instance = match ran {
        Some(Ran { place, .. }) if !place.1.is_empty() => format!("{}/{}", place.0, place.1),
        Some(Ran { place, .. }) if !place.0.is_empty() => place.0.clone(),
        _ => "gateway".to_owned(),
    };
    let path = if request.path.is_empty() {
        "/"
    } else {
        request.path
    };
    let path: String = path.chars().take(200).collect();
    let status = problem.map_or(200, |problem| problem.status.as_u16());
    let took = took.as_secs_f64() * 1e3;
    let mut text = format!("{} {path} {status} in {took:.3} ms", request.method);
    if let Some(Ran { timing, .. }) = ran {
        let ms = |ns: u64| ns as f64 / 1e6;
        let (queue, device) = (ms(timing.queue_ns), ms(timing.device_ns));
        text += &format!(" (queue {queue:.3}, device {device:.3}");
        if timing.cold_ns > 0 {
            text += &format!(", cold start {:.3}", ms(timing.cold_ns));
        }
        text.push(')');
    }
    text += &format!(" traceparent={}", trace::header(trace));
    if let Some(problem) = problem {
        text += ": ";
        text += &problem.detail;
    }
    (instance, text)
}
