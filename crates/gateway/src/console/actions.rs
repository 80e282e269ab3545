//! Operators' actions on devices, which the registry carries out.
//!
//! `POST /ui/api/device/{action}` with the JSON `{"device": "node/name"}`, for the action `end` also
//! with `"task"`, the id of a running task, for `move` with `"session"`, the number of a session, and
//! `"to"`, the name of another device of the node. The response of `move` has the order's id. The header `x-operator-token` has the registry's token
//! of operators; the gateway's own token is that of an application and is never used. A response
//! reports that the registry accepted the order; the state shows its effect.
//!
//! Pages of other sites cannot send requests with JSON and this header without a preflight request,
//! which is refused.

use crate::http::failure::Failure;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{header, HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::Router;
use baltra_api::client;
use baltra_api::registry as proto;
use bytes::Bytes;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Code, Status};

/// Timeout of the registry; a drain allocates other devices to all instances of the device.
const PATIENCE: Duration = Duration::from_secs(30);
const BODY_BYTES_MAX: usize = 4096;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Action {
    /// The device, node/name.
    device: String,
    /// The id of a running task.
    #[serde(default)]
    task: String,
    /// The number of a session.
    #[serde(default)]
    session: String,
    /// The device's name that a session moves to.
    #[serde(default)]
    to: String,
}

/// The id of a running task in a page.
pub(super) fn task_id(task: &proto::RunningTask) -> String {
    format!("{}-{}", task.lease, task.started_ns)
}

fn parse_task_id(id: &str) -> Option<(u64, u64)> {
    let (lease, started_ns) = id.split_once('-')?;
    Some((lease.parse().ok()?, started_ns.parse().ok()?))
}

/// Creates the routes. `registry`: without its token; `None`: there is no registry.
pub(super) fn router(registry: Option<client::Options>) -> Router {
    Router::new()
        .route("/ui/api/device/{action}", post(act))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::new(registry))
}

async fn act(
    State(registry): State<Arc<Option<client::Options>>>,
    Path(action): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // Only a request without a preflight could have another type.
    if headers.get(header::CONTENT_TYPE).map(|v| v.as_bytes()) != Some(b"application/json") {
        let text = "the content type must be application/json\n";
        return (Failure::UnsupportedType.status(), text).into_response();
    }
    let request: Action = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => {
            let text = format!("invalid request: {error}\n");
            return (Failure::BadRequest.status(), text).into_response();
        }
    };
    let Some(registry) = registry.as_ref() else {
        let text = "this gateway has no registry (set 'gateway.engine.registry')\n";
        return (Failure::Conflict.status(), text).into_response();
    };
    let token = headers.get("x-operator-token");
    let token = token.and_then(|t| t.to_str().ok()).unwrap_or_default();
    let options = client::Options {
        token: token.to_owned(),
        ..registry.clone()
    };
    let ordered = tokio::time::timeout(PATIENCE, order(&options, &action, request));
    match ordered.await {
        Ok(Ok(None)) => StatusCode::NO_CONTENT.into_response(),
        Ok(Ok(Some(order))) => super::json(serde_json::json!({ "order": order }).to_string()),
        Ok(Err(status)) => {
            (failure(&status).status(), format!("{}\n", status.message())).into_response()
        }
        Err(_) => {
            let text = format!(
                "the registry has not answered within {} s\n",
                PATIENCE.as_secs()
            );
            (Failure::Timeout.status(), text).into_response()
        }
    }
}

/// Sends an order; returns its id if its result is reported.
async fn order(
    options: &client::Options,
    action: &str,
    request: Action,
) -> Result<Option<String>, Status> {
    let mut operators = client::operators(options)
        .map_err(|error| Status::invalid_argument(format!("invalid token: {error}")))?;
    let device = request.device;
    let mut reported = None;
    match action {
        "cordon" => {
            let request = proto::CordonRequest { device };
            operators.cordon(request).await.map(drop)
        }
        "uncordon" => {
            let request = proto::UncordonRequest { device };
            operators.uncordon(request).await.map(drop)
        }
        "drain" => {
            let request = proto::DrainRequest { device };
            operators.drain(request).await.map(drop)
        }
        "end" => {
            let (lease, started_ns) = parse_task_id(&request.task)
                .ok_or_else(|| Status::invalid_argument("'task' is not the id of a task"))?;
            let request = proto::EndTaskRequest {
                device,
                lease,
                started_ns,
            };
            operators.end_task(request).await.map(drop)
        }
        "move" => {
            let session = request.session.parse().map_err(|_| {
                Status::invalid_argument("'session' is not the number of a session")
            })?;
            let request = proto::MoveSessionRequest {
                device,
                session,
                to: request.to,
            };
            let reply = operators.move_session(request).await;
            reply.map(|reply| reported = Some(reply.into_inner().order))
        }
        _ => Err(Status::not_found(
            "unknown action: expected cordon, uncordon, drain, end or move",
        )),
    }?;
    Ok(reported)
}

/// The registry's refusal over HTTP. A missing token is 403, because 401 would make the browser ask
/// for a password.
fn failure(status: &Status) -> Failure {
    match status.code() {
        Code::InvalidArgument => Failure::BadRequest,
        Code::Unauthenticated | Code::PermissionDenied => Failure::Forbidden,
        Code::NotFound => Failure::NotFound,
        Code::AlreadyExists | Code::ResourceExhausted => Failure::Conflict,
        Code::Unavailable => Failure::Unavailable,
        _ => Failure::BadGateway,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_ids_keep_all_digits() {
        let task = proto::RunningTask {
            lease: u64::MAX,
            started_ns: u64::MAX - 1,
            ..Default::default()
        };
        let id = task_id(&task);
        assert_eq!(parse_task_id(&id), Some((u64::MAX, u64::MAX - 1)));
        for wrong in [
            "",
            "1",
            "1-",
            "-1",
            "1-2-3",
            "a-b",
            "18446744073709551616-1",
        ] {
            assert_eq!(parse_task_id(wrong), None, "{wrong}");
        }
    }
}
