//! The console: a page for an operator at `/ui/`, and the JSON that it reads.
//!
//! | path | content |
//! |---|---|
//! | `/ui/` | the page and its files, with entity tags |
//! | `/ui/api/state` | the current state |
//! | `/ui/api/history?span=SPAN` | the points of `recent` (ten minutes), `hour` or `day` |
//! | `/ui/api/stream` | server-sent events: `history` once, then `state` every second |
//! | `/ui/api/function/{name}` | a function's contract, latency histogram and cold starts |
//! | `/ui/api/images?node=NODE&device=DEVICE` | the image changes of a device's regions |
//! | `POST /ui/api/device/{action}` | an operator's action on a device ([`actions`]) |
//!
//! The page loads no resource from another origin, and its content security policy forbids that,
//! inline scripts, and markup made of strings. Actions need the registry's token of operators. The
//! layer that the router is mounted under controls access.

mod actions;
mod alerts;
mod assets;
mod history;
mod hub;
mod images;
pub mod model;
mod pool;
mod view;

#[cfg(test)]
mod tests;

pub use alerts::AlertWatch;
pub use hub::STREAMS_MAX;
pub use model::Source;
pub use pool::Pool;

use crate::http::failure::Failure;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::Router;
use history::Span;
use hub::Hub;
use serde::Deserialize;
use std::sync::Arc;

/// Sent with every response. `blob:` is for images in a function's responses; with trusted types,
/// the browser rejects markup made of strings.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Creates the console's router over `source`. Must be called within a runtime: the console polls
/// the source once a second until the router is dropped.
pub fn router(source: Arc<dyn Source>) -> Router {
    let actions = actions::router(source.registry());
    Router::new()
        .route("/ui", get(redirect))
        .route("/ui/", get(|headers| file(Path(String::new()), headers)))
        .route("/ui/{*path}", get(file))
        .route("/ui/api/state", get(state))
        .route("/ui/api/history", get(history))
        .route("/ui/api/images", get(images))
        .route("/ui/api/stream", get(stream))
        .route("/ui/api/function/{name}", get(function))
        .with_state(Hub::start(source))
        .merge(actions)
        .layer(axum::middleware::map_response(guard))
}

/// Adds the headers that every response has.
async fn guard(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn redirect() -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, "/ui/")]).into_response()
}

/// A file, or 304 if the browser has it.
async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    let Some(asset) = assets::find(&path) else {
        let text = "not found: the console is at /ui/\n";
        return (Failure::NotFound.status(), text).into_response();
    };
    let common = [
        (header::ETAG, asset.tag().clone()),
        // Cached but revalidated: the page of a new binary appears at the next load.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    if is_current(&headers, asset.tag()) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let kind = [(header::CONTENT_TYPE, asset.kind)];
    (common, kind, asset.text).into_response()
}

/// Whether the request lists the tag, according to RFC 9110 13.1.2 (a list, compared weakly).
fn is_current(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let named = headers.get_all(header::IF_NONE_MATCH).into_iter();
    let mut tags = named
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    tags.any(|t| {
        let t = t.trim();
        t == "*" || t.strip_prefix("W/").unwrap_or(t).as_bytes() == tag.as_bytes()
    })
}

fn json(text: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, text).into_response()
}

async fn state(State(hub): State<Arc<Hub>>) -> Response {
    json(hub.state_json())
}

#[derive(Debug, Deserialize)]
struct HistoryQuery {
    span: Span,
}

async fn history(State(hub): State<Arc<Hub>>, Query(query): Query<HistoryQuery>) -> Response {
    json(hub.history_json(query.span))
}

#[derive(Debug, Deserialize)]
struct ImagesQuery {
    node: String,
    device: String,
}

async fn images(State(hub): State<Arc<Hub>>, Query(query): Query<ImagesQuery>) -> Response {
    json(hub.images_json(&query.node, &query.device))
}

async fn function(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    match hub.function_json(&name) {
        Some(text) => json(text),
        None => (Failure::NotFound.status(), "function not found\n").into_response(),
    }
}

async fn stream(State(hub): State<Arc<Hub>>) -> Response {
    let Some(stream) = hub.stream() else {
        let text =
            format!("too many console pages: {STREAMS_MAX} are open, the maximum: close one\n");
        let retry = [(header::RETRY_AFTER, "5")];
        return (Failure::Unavailable.status(), retry, text).into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Disables buffering of responses in proxies.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::new(stream)).into_response()
}
