//! The management API of OpenFaaS, as its command line uses it.
//!
//! `image` names a function of this node's store. An upload to the same path, in one of the types
//! of [`upload`], stores a function and deploys it under its own name.

use crate::http::admission::body::{collect, whole, Payload};
use crate::http::admission::coding::Coding;
use crate::http::failure::Failure;
use crate::http::function::containers::Container;
use crate::http::function::namespace::{check_namespace, NAMESPACE};
use crate::http::function::table::Deployed;
use crate::http::function::upload::{self, Form};
use crate::http::gateway::{DeployRequest, Gateway, Readiness};
use crate::http::manage::request::{
    json, media_type, parse_json, read_json, At, Params, SMALL_BYTES_MAX,
};
use crate::http::problem::Problem;
use crate::http::rfc3339;
use crate::http::task::blocking;
use crate::http::telemetry::meters::Ending;
use crate::http::telemetry::usage;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

type Door = State<Arc<Gateway>>;
type Answer = Result<Response, Problem>;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    service: String,
    image: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    /// The other fields.
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// Fields that set up a container, which functions of the gateway are not.
const CONTAINER_FIELDS: [&str; 7] = [
    "constraints",
    "envProcess",
    "envVars",
    "limits",
    "readOnlyRootFilesystem",
    "requests",
    "secrets",
];
/// Whether a field of a deployment requests something; clients also send empty fields.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(on) => *on,
        Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => map.values().any(is_set),
    }
}

impl Request {
    /// The request, if the gateway supports its fields. Labels and annotations are checked when the
    /// function is known.
    fn checked(self) -> Result<DeployRequest, Problem> {
        check_namespace(&self.namespace)?;
        let container = |field: &&str| self.rest.get(*field).is_some_and(is_set);
        if let Some(field) = CONTAINER_FIELDS.iter().find(|field| container(field)) {
            return Err(Problem::bad_request(format!(
                "'{field}' is not supported, because functions of this gateway are not containers: remove it"
            )));
        }
        Ok(DeployRequest {
            name: self.service,
            image: self.image,
            labels: self.labels.unwrap_or_default(),
            annotations: self.annotations.unwrap_or_default(),
        })
    }
}

/// `POST /system/functions`
pub(crate) async fn deploy(
    State(gateway): Door,
    Params(query): Params<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let media_type = media_type(&headers);
    if let Some(form) = Form::of(&media_type) {
        return upload(&gateway, form, &query, &headers, body).await;
    }
    if !matches!(media_type.as_str(), "" | "application/json") {
        return Err(Problem::unsupported_type(upload::TYPES));
    }
    let request: Request = parse_json(&whole(body, SMALL_BYTES_MAX).await?)?;
    gateway.deploy(request.checked()?).await?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// Stores a function, and deploys it unless `?deploy=false`.
async fn upload(
    gateway: &Arc<Gateway>,
    form: Form,
    query: &BTreeMap<String, String>,
    headers: &HeaderMap,
    body: Body,
) -> Answer {
    let bytes_max = gateway.options.limits.upload_bytes_max;
    // Encodings as base64 or tar are larger than their contents.
    let body_bytes_max = bytes_max.saturating_mul(2);
    let coding = Coding::of(headers)?;
    let payload = collect(body, body_bytes_max, gateway.hold(None)).await?;
    let Payload { frames, mut held } = coding.decode(payload, body_bytes_max).await?;
    let body = baltra_functions::Body(frames);
    // Held twice: in one piece, and as files.
    held.grow(body.len().saturating_mul(2))?;
    let unpacked = blocking(move || form.unpack(&body.to_bytes(), bytes_max)).await?;
    let wanted = query.get("deploy").is_none_or(|v| v != "false");
    let uploaded = gateway.upload(unpacked?, wanted).await?;
    drop(held);
    let mut about = json!({
        "name": uploaded.name,
        "digest": uploaded.digest,
        "deployed": uploaded.deployed.is_some(),
    });
    if let Some(deployed) = uploaded.deployed {
        readiness(&mut about, &gateway.readiness(&deployed));
    }
    Ok((StatusCode::CREATED, json(&about)).into_response())
}

/// Adds whether the function accepts calls, and if not, the reason.
fn readiness(about: &mut Value, readiness: &Readiness) {
    about["ready"] = (*readiness == Readiness::Ready).into();
    if let Readiness::Building(why) | Readiness::Failed(why) = readiness {
        about["reason"] = why.clone().into();
    }
}

/// `PUT /system/functions`: 404 for a function that is not deployed; `faas-cli` then deploys it.
pub(crate) async fn update(State(gateway): Door, headers: HeaderMap, body: Body) -> Answer {
    let request: Request = read_json(&headers, body).await?;
    if gateway.table.find(&request.service).is_none() {
        return Err(Problem::unknown_function(&request.service));
    }
    gateway.deploy(request.checked()?).await?;
    Ok(StatusCode::ACCEPTED.into_response())
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Removal {
    function_name: String,
    #[serde(default)]
    namespace: String,
}

/// `DELETE /system/functions`
pub(crate) async fn remove(State(gateway): Door, headers: HeaderMap, body: Body) -> Answer {
    let removal: Removal = read_json(&headers, body).await?;
    check_namespace(&removal.namespace)?;
    if gateway.remove(&removal.function_name).await? {
        Ok(StatusCode::ACCEPTED.into_response())
    } else {
        Err(Problem::unknown_function(&removal.function_name))
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct NamespaceQuery {
    #[serde(default)]
    namespace: String,
}

/// `GET /system/functions`
pub(crate) async fn list(State(gateway): Door, Params(at): Params<NamespaceQuery>) -> Answer {
    check_namespace(&at.namespace)?;
    let all = gateway.table.list();
    let mut all: Vec<Value> = all.iter().map(|d| status(&gateway, d)).collect();
    all.extend(gateway.containers.list().iter().map(|c| container(c)));
    Ok(json(&all))
}

/// A function as OpenFaaS describes it.
fn status(gateway: &Gateway, deployed: &Deployed) -> Value {
    let deployment = &deployed.deployment;
    let counts = gateway.meters.read_function(deployed.name());
    let engine = gateway.engine.status(&deployed.function);
    let desired = engine.as_ref().map(|s| s.desired);
    let loaded = engine.map_or(0, |s| s.replicas.iter().filter(|r| r.loaded).count());
    let created = UNIX_EPOCH + Duration::from_millis(deployment.created_ms);
    json!({
        "name": deployed.name(),
        "image": deployment.image,
        "namespace": NAMESPACE,
        "envProcess": "",
        "labels": deployment.labels,
        "annotations": deployment.annotations,
        "invocationCount": counts.ended(),
        "replicas": desired.unwrap_or(deployment.replicas as usize),
        "availableReplicas": loaded,
        "createdAt": rfc3339::format(created),
    })
}

/// The gateway's state of a function in a container.
fn container(container: &Container) -> Value {
    json!({
        "name": container.name,
        "image": "",
        "namespace": NAMESPACE,
        "envProcess": "",
        "labels": {},
        "annotations": {},
        "invocationCount": container.begun(),
        "replicas": container.endpoints(),
        "availableReplicas": container.endpoints(),
    })
}

/// `GET /system/function/{name}`: the same, with this gateway's own details.
pub(crate) async fn describe(
    State(gateway): Door,
    At(name): At<String>,
    Params(at): Params<NamespaceQuery>,
) -> Answer {
    check_namespace(&at.namespace)?;
    let found = gateway.table.find(&name);
    let deployed = found.ok_or_else(|| Problem::unknown_function(&name))?;
    let mut all = status(&gateway, &deployed);
    let counts = gateway.meters.read_function(deployed.name());
    let engine = gateway.engine.status(&deployed.function);
    let places = engine.iter().flat_map(|s| &s.replicas).map(|replica| {
        json!({
            "implementation": replica.implementation,
            "node": replica.node,
            "device": replica.device,
            "loaded": replica.loaded,
            "running": replica.outstanding,
            "refused": replica.refused,
            "cold_us": replica.cold.map(|c| json!({
                "session": c.session_us,
                "program": c.program_us,
                "buffers": c.buffers_us,
                "first_call": c.first_call_us,
            })),
        })
    });
    let places: Vec<Value> = places.collect();
    let endings = Ending::ALL
        .iter()
        .map(|e| (e.name().to_owned(), counts.of(*e).into()));
    let endings: serde_json::Map<String, Value> = endings.collect();
    readiness(&mut all, &gateway.readiness(&deployed));
    all["scale"] = json!(engine.as_ref().and_then(|s| s.scale));
    all["digest"] = deployed.function.digest.clone().into();
    all["methods"] = deployed.allow.clone().into();
    all["calls"] = endings.into();
    all["running"] = counts.running.into();
    all["coldStarts"] = counts.cold_starts.into();
    all["places"] = places.into();
    all["manifest"] = serde_json::to_value(&deployed.function.manifest).unwrap_or_default();
    Ok(json(&all))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Scaling {
    replicas: u32,
    #[serde(default)]
    namespace: String,
}

/// Above the number of devices of any pool.
const REPLICAS_MAX: u32 = 10_000;

/// `POST /system/scale-function/{name}`
pub(crate) async fn scale(
    State(gateway): Door,
    At(name): At<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let scaling: Scaling = read_json(&headers, body).await?;
    check_namespace(&scaling.namespace)?;
    if scaling.replicas > REPLICAS_MAX {
        let detail = format!("too many replicas: at most {REPLICAS_MAX}");
        return Err(Problem::unprocessable(detail));
    }
    if gateway.scale(&name, scaling.replicas).await? {
        Ok(StatusCode::ACCEPTED.into_response())
    } else {
        Err(Problem::unknown_function(&name))
    }
}

/// `GET /system/namespaces`
pub(crate) async fn namespaces() -> Response {
    json(&[NAMESPACE])
}

/// `GET /system/info`
pub(crate) async fn info() -> Response {
    let version = json!({"release": env!("CARGO_PKG_VERSION"), "sha": "", "commit_message": ""});
    json(&json!({
        "provider": {"provider": "baltra", "orchestration": "baltra", "version": version},
        "version": version,
        "arch": std::env::consts::ARCH,
    }))
}

/// `GET /system/usage`: JSON, or CSV by `Accept` or `?format=csv`.
pub(crate) async fn usage(
    State(gateway): Door,
    Params(query): Params<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Answer {
    let accept = headers.get(ACCEPT).and_then(|v| v.to_str().ok());
    let csv = match query.get("format").map(String::as_str) {
        Some("csv") => true,
        Some("json") => false,
        Some(_) => return Err(Problem::bad_request("unknown format: use csv or json")),
        None => accept.is_some_and(|a| a.trim_start().starts_with("text/csv")),
    };
    let mut lines = gateway.meters.usage();
    for (key, field) in [("tenant", 0), ("function", 1)] {
        if let Some(wanted) = query.get(key) {
            lines.retain(|l| [&l.tenant, &l.function][field] == wanted);
        }
    }
    Ok(if csv {
        let kind = [(CONTENT_TYPE, "text/csv; charset=utf-8; header=present")];
        (kind, usage::csv(&lines)).into_response()
    } else {
        json(&lines)
    })
}

/// `GET /system/store`
pub(crate) async fn stored(State(gateway): Door) -> Answer {
    let store = gateway.store.clone();
    let names = blocking(move || store.list()).await?;
    Ok(json(&names.map_err(|e| Problem::storage("the store", &e))?))
}

/// `DELETE /system/store/{name}`
pub(crate) async fn remove_stored(State(gateway): Door, At(name): At<String>) -> Answer {
    if gateway.remove_stored(&name).await? {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(Problem::new(
            Failure::NotFound,
            "the function is not in the gateway's store",
        ))
    }
}

/// `GET /system/async/{id}`
pub(crate) async fn asynchronous(State(gateway): Door, At(id): At<String>) -> Answer {
    let status = gateway.queue.status(&id).ok_or_else(|| {
        Problem::new(
            Failure::NotFound,
            "no asynchronous call with this id: unknown, or ended too long ago",
        )
    })?;
    Ok(json(&status))
}
