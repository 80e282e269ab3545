//! Routes other than calls: health, management, inference, metrics, the console.

use crate::http::failure::Failure;
use crate::http::gateway::Gateway;
use crate::http::inference::http as inference;
use crate::http::manage::access::guard;
use crate::http::manage::faas;
use crate::http::manage::follow;
use crate::http::manage::metrics;
use crate::http::manage::openapi;
use crate::http::manage::request::{unknown, wrong_method};
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::Router;
use std::sync::Arc;

/// All paths; `console` is mounted under `/ui`.
pub(crate) fn router(gateway: &Arc<Gateway>, console: Router) -> Router {
    let guarded = Router::new()
        .route("/metrics", get(metrics::page))
        .route(
            "/system/functions",
            get(faas::list)
                .post(faas::deploy)
                .put(faas::update)
                .delete(faas::remove),
        )
        .route("/system/function/{name}", get(faas::describe))
        .route("/system/scale-function/{name}", post(faas::scale))
        .route("/system/logs", get(follow::logs))
        .route("/system/namespaces", get(faas::namespaces))
        .route("/system/info", get(faas::info))
        .route("/system/usage", get(faas::usage))
        .route("/system/store", get(faas::stored))
        .route("/system/store/{name}", delete(faas::remove_stored))
        .with_state(gateway.clone())
        .merge(console)
        .route_layer(from_fn_with_state(gateway.clone(), guard));
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/openapi.json", get(openapi::page))
        // The id is not guessable, so it authorizes its holder.
        .route("/system/async/{id}", get(faas::asynchronous))
        .nest("/v2", inference::router(gateway))
        .with_state(gateway.clone())
        .merge(guarded)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    match gateway.why_not_ready() {
        None => "ready\n".into_response(),
        Some(why) => (Failure::Unavailable.status(), format!("{why}\n")).into_response(),
    }
}
