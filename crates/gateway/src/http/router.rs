//! Everything that is not a call: health, management, inference, metrics, the console.

use crate::http::body::whole;
use crate::http::gateway::Gateway;
use crate::http::inference::http as inference;
use crate::http::problem::Problem;
use crate::http::{faas, follow, metrics, openapi};
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Query, Request, State};
use axum::middleware::{from_fn_with_state, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::Router;
use http::header::{HeaderName, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderMap, StatusCode, Uri};
use serde::de::DeserializeOwned;
use serde::Serialize;
use std::sync::Arc;

/// Bodies of management's requests, uploads aside.
pub(crate) const SMALL_BYTES_MAX: u64 = 1 << 20;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

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
        // Its id cannot be guessed: who has it may ask.
        .route("/system/async/{id}", get(faas::asynchronous))
        .nest("/v2", inference::router(gateway))
        .with_state(gateway.clone())
        .merge(guarded)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
}

/// Management: with a password, or from this host alone.
pub(crate) async fn guard(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let checked =
        gateway
            .keys
            .check_admin(headers)
            .and_then(|()| match gateway.keys.has_password() {
                true => Ok(()),
                false => check_local(headers, request.uri()),
            });
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Without a password, a page that a browser of this host shows must not manage functions: not
/// across sites, and not under a name that was made to point here.
fn check_local(headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let refused = |why: &str| {
        let detail =
            format!("management without a password is for this host's own programs: {why}");
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    };
    let site = headers.get(SEC_FETCH_SITE).map(|v| v.as_bytes());
    if site.is_some_and(|site| !matches!(site, b"same-origin" | b"none")) {
        return refused("the request comes from another site's page");
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = uri.host().or(host).unwrap_or("localhost");
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_matches(['[', ']']);
    let address = bare.parse::<std::net::IpAddr>();
    let local = address.map_or(bare.eq_ignore_ascii_case("localhost"), |a| a.is_loopback());
    match local {
        true => Ok(()),
        false => refused("it names another host"),
    }
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    match gateway.why_not_ready() {
        None => "ready\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

pub(crate) async fn unknown(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(100).collect();
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("nothing is at '{path}': /openapi.json says what there is"),
    )
}

pub(crate) async fn wrong_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path takes other methods: see the header Allow",
    )
}

/// The query's parameters; what is wrong with them is a problem.
pub(crate) struct Params<T>(pub T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Params(params)),
            Err(error) => Err(Problem::bad_request(error.body_text())),
        }
    }
}

/// The path's variables; what is wrong with them is a problem.
pub(crate) struct At<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for At<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(at)) => Ok(At(at)),
            Err(error) => Err(Problem::new(error.status(), error.body_text())),
        }
    }
}

/// Any value as JSON.
pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer has no JSON form");
            Problem::internal("the answer has no JSON form").into_response()
        }
    }
}

/// The essence of a content type, in lower case; empty where there is none.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let essence = text.unwrap_or_default().split(';').next();
    essence.unwrap_or_default().trim().to_ascii_lowercase()
}

/// A JSON body. One without a content type is taken for it.
pub(crate) async fn read_json<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Problem> {
    if !matches!(media_type(headers).as_str(), "" | "application/json") {
        return Err(Problem::unsupported_type("application/json"));
    }
    parse_json(&whole(body, SMALL_BYTES_MAX).await?)
}

/// 400 for what is no JSON, 422 for JSON of another shape.
pub(crate) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => Problem::unprocessable(format!("the body: {error}")),
        _ => Problem::bad_request(format!("the body is no JSON: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(list: &[(HeaderName, &'static str)]) -> HeaderMap {
        let pairs = list
            .iter()
            .map(|(n, v)| (n.clone(), HeaderValue::from_static(v)));
        pairs.collect()
    }

    #[test]
    fn without_a_password_only_this_host_manages() {
        let uri = Uri::from_static("/system/info");
        for host in [
            "localhost",
            "localhost:8080",
            "127.0.0.1:8080",
            "[::1]:8080",
            "127.3.2.1",
        ] {
            check_local(&headers(&[(HOST, host)]), &uri).unwrap();
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "10.0.0.1",
            "localhost.evil.example",
        ] {
            let problem = check_local(&headers(&[(HOST, host)]), &uri).unwrap_err();
            assert_eq!(problem.status, 403, "{host}");
        }
        let cross = [(HOST, "localhost"), (SEC_FETCH_SITE, "cross-site")];
        assert!(check_local(&headers(&cross), &uri).is_err());
        let own = [(HOST, "localhost"), (SEC_FETCH_SITE, "same-origin")];
        check_local(&headers(&own), &uri).unwrap();
    }

    #[test]
    fn wrong_json_is_400_and_another_shape_422() {
        assert_eq!(parse_json::<Vec<u8>>(b"[1,").unwrap_err().status, 400);
        assert_eq!(parse_json::<Vec<u8>>(b"{}").unwrap_err().status, 422);
        assert_eq!(parse_json::<Vec<u8>>(b"[1]").unwrap(), [1]);
    }
}
