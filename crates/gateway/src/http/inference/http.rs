//! `/v2/…`: elements are JSON numbers, binary data after the JSON, or in shared memory.

use super::memory::Description;
use super::message::{self, read_request, write_response, HEADER_LENGTH};
use super::{model, protocol, Inferred, EXTENSIONS, SERVER_NAME};
use crate::http::admission::body::{collect, whole, Payload};
use crate::http::admission::coding::Coding;
use crate::http::failure::Failure;
use crate::http::gateway::{Gateway, Readiness};
use crate::http::manage::access::guard;
use crate::http::manage::request::{
    json, media_type, parse_json, read_json, unknown, wrong_method, At, SMALL_BYTES_MAX,
};
use crate::http::problem::Problem;
use crate::http::task::blocking;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{from_fn, from_fn_with_state, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use baltra_engine::{Timing, Trace};
use baltra_functions::Body as Bodies;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// From this size on, JSON is processed on a thread that does not serve connections.
const HEAVY_BYTES: u64 = 64 << 10;

type Door = State<Arc<Gateway>>;

/// Converts an error to this protocol's form, with a member `error`.
async fn name_errors(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let Some(problem) = response.extensions_mut().remove::<Problem>() else {
        return response;
    };
    let mut body: Value = serde_json::from_slice(&problem.json()).unwrap_or_default();
    body["error"] = problem.detail.clone().into();
    response.headers_mut().remove(CONTENT_LENGTH);
    let (parts, _) = response.into_parts();
    Response::from_parts(parts, Body::from(body.to_string()))
}

type Answer = Result<Response, Problem>;

/// Routes below `/v2`.
pub(crate) fn router(gateway: &Arc<Gateway>) -> Router<Arc<Gateway>> {
    let management = Router::new()
        .route("/repository/models/{name}/load", post(load))
        .route("/repository/models/{name}/unload", post(unload))
        .route_layer(from_fn_with_state(gateway.clone(), guard));
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
        .route("/models/{name}/config", get(config))
        .route("/models/{name}/versions/{version}/config", get(config))
        .route("/models/stats", get(all_statistics))
        .route("/models/{name}/stats", get(statistics))
        .route("/models/{name}/versions/{version}/stats", get(statistics))
        .route("/trace/setting", get(trace_settings).post(set_trace))
        .route(
            "/models/{name}/trace/setting",
            get(trace_settings).post(set_trace),
        )
        .route("/logging", get(log_settings).post(set_log))
        .route("/cudasharedmemory/status", get(no_regions))
        .route("/cudasharedmemory/unregister", post(no_unregister))
        .route("/cudasharedmemory/region/{region}/status", get(no_region))
        .route(
            "/cudasharedmemory/region/{region}/register",
            post(no_region),
        )
        .route(
            "/cudasharedmemory/region/{region}/unregister",
            post(no_unregister),
        )
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
        .merge(management)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn(name_errors))
}

/// Polling interval of the readiness of a function that accepts no calls.
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
        *response.status_mut() = Failure::Unavailable.status();
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
    match gateway.readiness(&deployed) {
        Readiness::Ready => Ok(json(&json!({"name": deployed.name(), "ready": true}))),
        Readiness::Building(why) | Readiness::Failed(why) => {
            let detail = format!("'{}' is not ready: {why}", deployed.name());
            Err(Problem::overload(detail, READY_AGAIN))
        }
    }
}

async fn config(State(gateway): Door, At(at): At<Model>, headers: HeaderMap) -> Answer {
    let (deployed, _) = model(&gateway, &headers, &at.name, &at.version)?;
    Ok(json(&protocol::config_json(&deployed)))
}

async fn statistics(State(gateway): Door, At(at): At<Model>, headers: HeaderMap) -> Answer {
    let (deployed, _) = model(&gateway, &headers, &at.name, &at.version)?;
    let statistics = protocol::statistics(&gateway, &[deployed]);
    Ok(json(&protocol::statistics_json(&statistics)))
}

async fn all_statistics(State(gateway): Door, headers: HeaderMap) -> Answer {
    gateway.keys.caller(&headers)?;
    let statistics = protocol::statistics(&gateway, &gateway.table.list());
    Ok(json(&protocol::statistics_json(&statistics)))
}

#[derive(Debug, Default, Deserialize)]
struct IndexRequest {
    #[serde(default)]
    ready: bool,
}

/// Parses an optional body.
async fn optional<T: DeserializeOwned + Default>(body: Body) -> Result<T, Problem> {
    let body = whole(body, SMALL_BYTES_MAX).await?;
    if body.is_empty() {
        Ok(T::default())
    } else {
        parse_json(&body)
    }
}

/// Lists the deployed functions, or only those that accept calls.
async fn index(State(gateway): Door, headers: HeaderMap, body: Body) -> Answer {
    gateway.keys.caller(&headers)?;
    let request: IndexRequest = optional(body).await?;
    let all = gateway.table.list();
    let models = all.iter().filter_map(|deployed| {
        let (state, reason) = protocol::state(gateway.readiness(deployed));
        let version = &deployed.function.manifest.version;
        let shown = !request.ready || state == "READY";
        shown.then(|| {
            json!({"name": deployed.name(), "version": version, "state": state, "reason": reason})
        })
    });
    Ok(json(&models.collect::<Vec<Value>>()))
}

#[derive(Debug, Default, Deserialize)]
struct RepositoryRequest {
    #[serde(default)]
    parameters: BTreeMap<String, IgnoredAny>,
}

impl RepositoryRequest {
    fn names(self) -> Vec<String> {
        self.parameters.into_keys().collect()
    }
}

async fn load(State(gateway): Door, At(name): At<String>, body: Body) -> Answer {
    let request: RepositoryRequest = optional(body).await?;
    protocol::load(&gateway, &name, &request.names()).await?;
    Ok(StatusCode::OK.into_response())
}

async fn unload(State(gateway): Door, At(name): At<String>, body: Body) -> Answer {
    let request: RepositoryRequest = optional(body).await?;
    protocol::unload(&gateway, &name, &request.names()).await?;
    Ok(StatusCode::OK.into_response())
}

async fn trace_settings(State(gateway): Door, headers: HeaderMap) -> Answer {
    gateway.keys.caller(&headers)?;
    let settings = protocol::trace_settings(&gateway);
    let settings = settings.into_iter().map(|(name, value)| match name {
        "trace_level" => (name.to_owned(), json!([value])),
        _ => (name.to_owned(), json!(value)),
    });
    Ok(json(&settings.collect::<serde_json::Map<String, Value>>()))
}

/// A request without changes returns the settings.
async fn set_trace(state: Door, headers: HeaderMap, body: Body) -> Answer {
    state.keys.caller(&headers)?;
    let request: BTreeMap<String, IgnoredAny> = optional(body).await?;
    if request.is_empty() {
        trace_settings(state, headers).await
    } else {
        Err(protocol::fixed_trace())
    }
}

async fn log_settings(State(gateway): Door, headers: HeaderMap) -> Answer {
    gateway.keys.caller(&headers)?;
    let settings = protocol::log_settings();
    let settings = settings
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    Ok(json(&settings.collect::<serde_json::Map<String, Value>>()))
}

async fn set_log(state: Door, headers: HeaderMap, body: Body) -> Answer {
    state.keys.caller(&headers)?;
    let request: BTreeMap<String, IgnoredAny> = optional(body).await?;
    if request.is_empty() {
        log_settings(state, headers).await
    } else {
        Err(protocol::fixed_log())
    }
}

async fn no_regions(State(gateway): Door, headers: HeaderMap) -> Answer {
    gateway.keys.caller(&headers)?;
    Ok(json(&json!([])))
}

/// Clients unregister all regions when they start, so this request succeeds without effect.
async fn no_unregister(State(gateway): Door, headers: HeaderMap) -> Answer {
    gateway.keys.caller(&headers)?;
    Ok(StatusCode::OK.into_response())
}

async fn no_region(State(gateway): Door, headers: HeaderMap) -> Answer {
    gateway.keys.caller(&headers)?;
    Err(protocol::no_cuda())
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
    // Clients of this protocol send JSON with any content type.
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
    gateway.keys.admit(caller)?;
    let _slot = gateway.slot()?;
    let coding = Coding::of(&headers)?;
    let length = header_length(&headers)?;
    let supported = [
        "",
        "application/json",
        "application/octet-stream",
        "text/plain",
    ];
    let media_type = media_type(&headers);
    // `curl -d` sends JSON as a form.
    if !supported.contains(&media_type.as_str())
        && media_type != "application/x-www-form-urlencoded"
    {
        return Err(Problem::unsupported_type("application/json"));
    }
    // Numbers are longer in JSON than in memory; the decoded size is bounded separately.
    let bytes_max = deployed
        .body_bytes_max
        .saturating_mul(8)
        .saturating_add(1 << 20);
    let bytes_max = bytes_max.min(gateway.options.limits.body_bytes_max);
    let payload = collect(body, bytes_max, gateway.hold(Some(caller))).await?;
    let payload = coding.decode(payload, bytes_max).await?;
    let Payload { frames, mut held } = payload;
    let frames = Bodies(frames);
    let input_bytes_max = deployed.body_bytes_max;
    held.grow(message::read_bytes(frames.len(), length, input_bytes_max))?;
    let light = frames.len().min(length.unwrap_or(u64::MAX)) < HEAVY_BYTES;
    let read = move || read_request(&frames, length, input_bytes_max);
    let (inference, form) = if light {
        read()?
    } else {
        blocking(read).await??
    };
    let inferred = gateway.infer(&deployed, caller, inference, held, &trace);
    let Inferred {
        tensors,
        timing,
        mut held,
    } = inferred.await?;
    held.grow(message::written_bytes(&form, &tensors))?;
    let bytes: u64 = tensors.iter().map(|t| t.tensor.data.len()).sum();
    let held = held.if_counted();
    let written = if bytes < HEAVY_BYTES {
        write_response(&deployed, &form, &tensors, held)
    } else {
        blocking(move || write_response(&deployed, &form, &tensors, held)).await?
    };
    let mut response = written.map_err(|error| Problem::internal(error.to_string()))?;
    response.extensions_mut().insert::<Timing>(timing);
    Ok(response)
}

/// Length of the JSON before the binary data.
fn header_length(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(HEADER_LENGTH) else {
        return Ok(None);
    };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| {
        Problem::bad_request("invalid Inference-Header-Content-Length: expected a number of bytes")
    })
}
