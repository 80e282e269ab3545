//! Requests and responses of the paths that are not calls: parameters, JSON, common errors.

use crate::http::admission::body::whole;
use crate::http::failure::Failure;
use crate::http::problem::Problem;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Query};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Uri};
use serde::de::DeserializeOwned;
use serde::Serialize;

/// Limit of the bodies of management requests, except uploads.
pub(crate) const SMALL_BYTES_MAX: u64 = 1 << 20;

pub(crate) async fn unknown(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(100).collect();
    Problem::new(
        Failure::NotFound,
        format!("not found: '{path}' (/openapi.json lists the paths)"),
    )
}

pub(crate) async fn wrong_method() -> Problem {
    Problem::new(
        Failure::MethodNotAllowed,
        "method not allowed (see the header 'Allow')",
    )
}

/// The query's parameters; invalid ones are rejected with a problem.
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

/// The path's variables; invalid ones are rejected with a problem.
pub(crate) struct At<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for At<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(at)) => Ok(At(at)),
            Err(error) => Err(Problem::new(
                Failure::of(error.status().as_u16()),
                error.body_text(),
            )),
        }
    }
}

/// A response with any value as JSON.
pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot serialize a response");
            Problem::internal("internal error: cannot serialize the response").into_response()
        }
    }
}

/// The content type without parameters, in lower case; empty if there is none.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let essence = text.unwrap_or_default().split(';').next();
    essence.unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads a JSON body. A body without a content type is treated as JSON.
pub(crate) async fn read_json<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Problem> {
    if !matches!(media_type(headers).as_str(), "" | "application/json") {
        return Err(Problem::unsupported_type("application/json"));
    }
    parse_json(&whole(body, SMALL_BYTES_MAX).await?)
}

/// 400 for a body that is not JSON, 422 for JSON of another shape.
pub(crate) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => {
            Problem::unprocessable(format!("cannot read the body: {error}"))
        }
        _ => Problem::bad_request(format!("invalid JSON body: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_json_is_400_and_another_shape_422() {
        assert_eq!(parse_json::<Vec<u8>>(b"[1,").unwrap_err().status, 400);
        assert_eq!(parse_json::<Vec<u8>>(b"{}").unwrap_err().status, 422);
        assert_eq!(parse_json::<Vec<u8>>(b"[1]").unwrap(), [1]);
    }
}
