//! Error responses: `application/problem+json` (RFC 9457).

use crate::http::failure::Failure;
use baltra_functions::BindError;
use bytes::Bytes;
use http::header::{HeaderName, ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

/// The media type.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a call was refused under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// Too many calls are in progress.
    Places,
    /// Too many calls of the function wait.
    Queue,
    /// It would end after its deadline.
    Deadline,
    /// The function is suspended, because its calls ran past their deadlines.
    HeldOff,
    /// Requests and responses use too much memory.
    Memory,
    /// Too many asynchronous calls wait.
    Async,
}

impl Shed {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Shed; 6] = [
        Shed::Places,
        Shed::Queue,
        Shed::Deadline,
        Shed::HeldOff,
        Shed::Memory,
        Shed::Async,
    ];

    /// The reason as a metric's label.
    pub fn name(self) -> &'static str {
        match self {
            Shed::Places => "places",
            Shed::Queue => "queue",
            Shed::Deadline => "deadline",
            Shed::HeldOff => "held_off",
            Shed::Memory => "memory",
            Shed::Async => "async",
        }
    }
}

/// An error response: what failed, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {detail}")]
pub struct Problem {
    /// The HTTP status.
    pub status: StatusCode,
    /// Description for people.
    pub detail: String,
    /// Why the call was refused under load.
    pub shed: Option<Shed>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem without headers.
    pub fn new(failure: Failure, detail: impl Into<String>) -> Problem {
        Problem {
            status: failure.status(),
            detail: detail.into(),
            shed: None,
            headers: Vec::new(),
        }
    }

    /// Status 400.
    pub fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(Failure::BadRequest, detail)
    }

    /// 401 for management's password.
    pub fn unauthorized_admin() -> Problem {
        let detail = "management requires the password of 'gateway.admin' (basic authentication)";
        Problem::new(Failure::Unauthorized, detail).with(
            WWW_AUTHENTICATE,
            "Basic realm=\"baltra\", charset=\"UTF-8\"",
        )
    }

    /// 401 for a key.
    pub fn unauthorized_key() -> Problem {
        let detail = "this gateway requires a key: 'Authorization: Bearer KEY' or 'X-API-Key: KEY'";
        Problem::new(Failure::Unauthorized, detail)
            .with(WWW_AUTHENTICATE, "Bearer realm=\"baltra\"")
    }

    /// 404 for a function.
    pub fn unknown_function(name: &str) -> Problem {
        let name: String = name.chars().take(64).collect();
        Problem::new(
            Failure::NotFound,
            format!("function '{name}' is not deployed"),
        )
    }

    /// 405 with the supported methods.
    pub fn method_not_allowed(allow: &str) -> Problem {
        Problem::new(
            Failure::MethodNotAllowed,
            format!("method not allowed: use one of {allow}"),
        )
        .with(ALLOW, allow)
    }

    /// Status 413.
    pub fn too_large(what: &str, bytes_max: u64) -> Problem {
        Problem::new(
            Failure::TooLarge,
            format!("{what} is larger than {bytes_max} bytes"),
        )
    }

    /// 415 with the supported types.
    pub fn unsupported_type(wanted: &str) -> Problem {
        Problem::new(
            Failure::UnsupportedType,
            format!("unsupported content type: use {wanted}"),
        )
    }

    /// Status 422.
    pub fn unprocessable(detail: impl Into<String>) -> Problem {
        Problem::new(Failure::Unprocessable, detail)
    }

    /// 503 with the time after which to retry.
    pub fn overload(detail: impl Into<String>, retry_after: std::time::Duration) -> Problem {
        let seconds = retry_after.as_millis().div_ceil(1000).max(1);
        let mut problem = Problem::new(Failure::Unavailable, detail);
        problem
            .headers
            .push((RETRY_AFTER, HeaderValue::from(seconds as u64)));
        problem
    }

    /// 500; the operator finds the cause in the log.
    pub fn internal(detail: impl Into<String>) -> Problem {
        Problem::new(Failure::Internal, detail)
    }

    /// 503 for a call that is refused under load.
    pub fn shed(
        reason: Shed,
        detail: impl Into<String>,
        retry_after: std::time::Duration,
    ) -> Problem {
        Problem {
            shed: Some(reason),
            ..Problem::overload(detail, retry_after)
        }
    }

    /// From a failed write to the state directory: 507 when the disk is full.
    pub fn storage(what: &str, error: &std::io::Error) -> Problem {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        match error.kind() {
            StorageFull | QuotaExceeded => Problem::new(
                Failure::StorageFull,
                format!("cannot write {what}: the disk of the gateway's state directory is full"),
            ),
            _ => {
                tracing::error!(%error, what, "cannot write");
                let error = crate::http::text::without_paths(&error.to_string());
                Problem::internal(format!("cannot write {what}: {error}"))
            }
        }
    }

    /// Adds a header; `value` must be valid in HTTP.
    pub fn with(mut self, name: HeaderName, value: &str) -> Problem {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// Closes the connection after the response.
    pub fn closing(self) -> Problem {
        self.with(CONNECTION, "close")
    }

    /// The response's body.
    pub fn json(&self) -> Bytes {
        let value = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        Bytes::from(value.to_string())
    }

    /// Writes the problem's headers, including the content type, into `headers`.
    pub(crate) fn fill(&self, headers: &mut http::HeaderMap) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
    }

    /// The whole response.
    pub(crate) fn response<B: From<Bytes>>(&self) -> Response<B> {
        let mut response = Response::new(B::from(self.json()));
        *response.status_mut() = self.status;
        self.fill(response.headers_mut());
        response
    }
}

impl From<BindError> for Problem {
    fn from(error: BindError) -> Problem {
        if let BindError::MethodNotAllowed { allow } = &error {
            return Problem::method_not_allowed(allow);
        }
        let failure = Failure::of(error.status());
        Problem::new(failure, error.to_string())
    }
}

impl axum::response::IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        let mut response = self.response::<axum::body::Body>();
        // For protocols with another format of errors.
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_its_status_and_the_remedy() {
        let problem = Problem::method_not_allowed("GET, POST");
        let response = problem.response::<Bytes>();
        assert_eq!(response.status(), 405);
        assert_eq!(response.headers()[ALLOW], "GET, POST");
        assert_eq!(response.headers()[CONTENT_TYPE], PROBLEM_JSON);
        let body: serde_json::Value = serde_json::from_slice(&problem.json()).unwrap();
        assert_eq!(body["status"], 405);
        assert_eq!(body["title"], "Method Not Allowed");
    }

    #[test]
    fn retry_after_is_whole_seconds_and_never_zero() {
        for (ms, seconds) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2")] {
            let problem = Problem::overload("busy", std::time::Duration::from_millis(ms));
            assert_eq!(problem.response::<Bytes>().headers()[RETRY_AFTER], seconds);
        }
    }

    #[test]
    fn a_full_disk_is_507() {
        let error = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert_eq!(Problem::storage("x", &error).status, 507);
    }
}
