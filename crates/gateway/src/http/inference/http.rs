//! `/v2/…`: elements come as JSON numbers, as binary data behind the JSON, or in shared memory.

use super::memory::Description;
use super::message::{read_request, write_response, HEADER_LENGTH};
use super::{model, EXTENSIONS, SERVER_NAME};
use crate::engine::{Timing, Trace};
use crate::http::body::collect;
use crate::http::gateway::{blocking, Gateway};
use crate::http::problem::{Problem, PROBLEM_JSON};
use crate::http::router::{json, media_type, read_json, At};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use baltra_functions::Body as Bodies;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::Arc;
use std::time::Duration;

/// JSON from here on is read and written where it holds nobody up.
const HEAVY_BYTES: u64 = 64 << 10;

type Door = State<Arc<Gateway>>;

/// A problem as this protocol's clients read it: with a member `error`.
struct Refused(Problem);

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Refused {
        Refused(problem)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut body: Value = serde_json::from_slice(&self.0.json()).unwrap_or_default();
        body["error"] = self.0.detail.clone().into();
        let mut response = (self.0.status, body.to_string()).into_response();
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        self.0.fill(response.headers_mut());
        response
    }
}

type Answer = Result<Response, Refused>;

/// Everything below `/v2`.
pub(crate) fn router() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/", get(server))
        .route(
            "/health/live",
            get(|| async { json(&json!({"live": true})) }),
        )
        .route("/health/ready", get(server_ready))
        .route("/models/{name}", get(metadata))
        .route("/models/{name}/versions/{version}", get(metadata))
        .route("/models/{name}/ready", get(ready))
        .route("/models/{name}/versions/{version}/ready", get(ready))
        .route("/models/{name}/infer", post(infer))
        .route("/models/{name}/versions/{version}/infer", post(infer))
        .route("/repository/index", post(index))
        .route("/systemsharedmemory/status", get(regions))
        .route("/systemsharedmemory/unregister", post(unregister))
        .route("/systemsharedmemory/region/{region}/status", get(regions))
        .route(
            "/systemsharedmemory/region/{region}/register",
            post(register),
        )
        .route(
            "/systemsharedmemory/region/{region}/unregister",
            post(unregister),
        )
}

/// A function that takes no calls is asked again so soon.
const READY_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize)]
pub(crate) struct Model {
    name: String,
    #[serde(default)]
    version: String,
}

async fn server() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    json(&json!({"name": SERVER_NAME, "version": version, "extensions": EXTENSIONS}))
}

async fn server_ready(State(gateway): Door) -> Response {
    let ready = gateway.why_not_ready().is_none();
    let mut response = json(&json!({"ready": ready}));
    if !ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

async fn metadata(State(gateway): Door, At(at): At<Model>, headers: HeaderMap) -> Answer {
    let (deployed, _) = model(&gateway, &headers, &at.name, &at.version)?;
    let mut metadata = deployed.function.metadata();
    metadata.name = deployed.name().to_owned();
    Ok(json(&metadata))
}

async fn ready(State(gateway): Door, At(at): At<Model>, headers: HeaderMap) -> Answer {
    let (deployed, _) = model(&gateway, &headers, &at.name, &at.version)?;
    match gateway.engine.why_not_ready(&deployed.function) {
        None => Ok(json(&json!({"name": deployed.name(), "ready": true}))),
        Some(why) => Err(Problem::overload(why, READY_AGAIN).into()),
    }
}

/// Which of them take calls.
async fn index(State(gateway): Door, headers: HeaderMap) -> Answer {
    gateway.keys.caller(&headers)?;
    let all = gateway.table.list();
    let models = all.iter().map(|deployed| {
        let version = &deployed.function.manifest.version;
        let why = gateway.engine.why_not_ready(&deployed.function);
        let state = match why {
            None => "READY",
            Some(_) => "UNAVAILABLE",
        };
        let reason = why.unwrap_or_default();
        json!({"name": deployed.name(), "version": version, "state": state, "reason": reason})
    });
    Ok(json(&models.collect::<Vec<Value>>()))
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct AtRegion {
    region: Option<String>,
}

async fn regions(State(gateway): Door, At(at): At<AtRegion>, headers: HeaderMap) -> Answer {
    let caller = gateway.keys.caller(&headers)?;
    Ok(json(&gateway.regions.status(caller, at.region.as_deref())?))
}

async fn unregister(State(gateway): Door, At(at): At<AtRegion>, headers: HeaderMap) -> Answer {
    let caller = gateway.keys.caller(&headers)?;
    gateway.regions.unregister(caller, at.region.as_deref())?;
    Ok(StatusCode::OK.into_response())
}

#[derive(Debug, Deserialize)]
struct Registration {
    key: String,
    #[serde(default)]
    offset: u64,
    byte_size: u64,
}

async fn register(
    State(gateway): Door,
    At(name): At<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let caller = gateway.keys.caller(&headers)?;
    // Clients of this protocol send JSON under whatever type their library has.
    let mut plain = headers;
    plain.remove(CONTENT_TYPE);
    let registration: Registration = read_json(&plain, body).await?;
    let region = Description {
        name,
        key: registration.key,
        offset: registration.offset,
        byte_size: registration.byte_size,
    };
    gateway.regions.register(caller, region)?;
    Ok(StatusCode::OK.into_response())
}

async fn infer(
    State(gateway): Door,
    At(at): At<Model>,
    Extension(trace): Extension<Trace>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (deployed, caller) = model(&gateway, &headers, &at.name, &at.version)?;
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(Problem::unsupported_type("sent as it is: no content encoding").into());
    }
    let length = header_length(&headers)?;
    let known = [
        "",
        "application/json",
        "application/octet-stream",
        "text/plain",
    ];
    let media_type = media_type(&headers);
    // `curl -d` calls it a form.
    if !known.contains(&media_type.as_str()) && media_type != "application/x-www-form-urlencoded" {
        return Err(Problem::unsupported_type("application/json").into());
    }
    // Numbers in JSON are longer than their bytes; what they come to is bounded again.
    let bytes_max = deployed
        .body_bytes_max
        .saturating_mul(8)
        .saturating_add(1 << 20);
    let bytes_max = bytes_max.min(gateway.options.limits.body_bytes_max);
    let frames = Bodies(collect(body, bytes_max).await?);
    let input_bytes_max = deployed.body_bytes_max;
    let read = move || read_request(&frames, length, input_bytes_max);
    let (inference, form) = match length.unwrap_or(u64::MAX) < HEAVY_BYTES {
        true => read()?,
        false => blocking(read).await??,
    };
    let (tensors, timing) = gateway.infer(&deployed, caller, inference, &trace).await?;
    let bytes: u64 = tensors.iter().map(|t| t.data.len()).sum();
    let written = match bytes < HEAVY_BYTES {
        true => write_response(&deployed, &form, &tensors),
        false => blocking(move || write_response(&deployed, &form, &tensors)).await?,
    };
    let mut response = written.map_err(|error| Problem::internal(error.to_string()))?;
    response.extensions_mut().insert::<Timing>(timing);
    Ok(response)
}

/// Where the JSON ends and the binary data begins.
fn header_length(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(HEADER_LENGTH) else {
        return Ok(None);
    };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| {
        Problem::bad_request("Inference-Header-Content-Length is no number of bytes")
    })
}
