//! Statuses of failed requests.
//!
//! `scripts/reference.py` writes the comments of the variants into `docs/reference/errors.md`: the
//! meaning, and after "Remedy:" what the caller can do.

use http::StatusCode;

/// Why the gateway refuses or fails a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Failure {
    /// The request is malformed: its syntax, headers, query, JSON or manifest, or a deployment with
    /// unsupported fields. Remedy: correct what the message names.
    BadRequest = 400,
    /// The key or the password is missing or invalid. Remedy: send `Authorization: Bearer KEY` or
    /// `X-API-Key: KEY` for calls, the password of `gateway.admin` (basic authentication) for
    /// management.
    Unauthorized = 401,
    /// Management without a password from another host, or from another site's page; an operation of
    /// the console without an operator's token; shared memory where `gateway.shared_memory` is false.
    /// Remedy: set `gateway.admin.password_sha256`, or send the token.
    Forbidden = 403,
    /// No such function, path, call, model or region. Remedy: `baltra function list`; `/openapi.json`
    /// lists the paths.
    NotFound = 404,
    /// The path or the function does not support the method. Remedy: use a method of the header
    /// `Allow`.
    MethodNotAllowed = 405,
    /// The function has none of the types in the header `Accept`. Remedy: accept a type that the
    /// message lists.
    NotAcceptable = 406,
    /// The resource is in use, or its state forbids the operation: a stored function that is
    /// deployed, replicas of a function that scales with its demand. Remedy: the message names the
    /// use.
    Conflict = 409,
    /// The body exceeds a limit. Remedy: a smaller body; or raise the function's `body_bytes` or the
    /// limit that the message names (`gateway.limits`).
    TooLarge = 413,
    /// The content type or encoding of the body is not supported. Remedy: use one that the message
    /// lists.
    UnsupportedType = 415,
    /// The body is well-formed, but a value, a shape or a kernel is not acceptable. Remedy: the
    /// message names the parameter, or has the compiler's log.
    Unprocessable = 422,
    /// The tenant exceeds its rate of calls. Remedy: wait for the time in `Retry-After`, or raise the
    /// rate of the key.
    TooManyRequests = 429,
    /// The request line and headers exceed `gateway.limits.head_bytes_max`. Remedy: shorter headers,
    /// or a larger limit.
    HeadTooLarge = 431,
    /// The function failed, or the gateway has an internal error. Remedy: the body has the function's
    /// error; for others see the gateway's log.
    Internal = 500,
    /// A function's container closed the connection or sent malformed HTTP; an operation of the
    /// console failed in the registry. Remedy: see the container's log.
    BadGateway = 502,
    /// Overload, no device for the function, a suspended function, or too many connections. Remedy:
    /// wait for the time in `Retry-After`; `/readyz` and `baltra function describe NAME` have the
    /// reason.
    Unavailable = 503,
    /// The call exceeded its deadline, or a container or the registry did not respond in time.
    /// Remedy: a larger `timeout_ms`, or a faster kernel.
    Timeout = 504,
    /// The disk of the gateway's state directory is full. Remedy: free space in `gateway.state`.
    StorageFull = 507,
}

impl Failure {
    /// All, by their statuses.
    pub const ALL: [Failure; 17] = [
        Failure::BadRequest,
        Failure::Unauthorized,
        Failure::Forbidden,
        Failure::NotFound,
        Failure::MethodNotAllowed,
        Failure::NotAcceptable,
        Failure::Conflict,
        Failure::TooLarge,
        Failure::UnsupportedType,
        Failure::Unprocessable,
        Failure::TooManyRequests,
        Failure::HeadTooLarge,
        Failure::Internal,
        Failure::BadGateway,
        Failure::Unavailable,
        Failure::Timeout,
        Failure::StorageFull,
    ];

    /// The status of the response.
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self as u16).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The failure with this status; [`Failure::Internal`] for all others.
    pub(crate) fn of(status: u16) -> Failure {
        let mut all = Failure::ALL.into_iter();
        all.find(|failure| *failure as u16 == status)
            .unwrap_or(Failure::Internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::problem::Problem;
    use baltra_functions::BindError;

    #[test]
    fn each_failure_has_its_own_status() {
        for failure in Failure::ALL {
            assert_eq!(failure.status().as_u16(), failure as u16);
            assert_eq!(Failure::of(failure as u16), failure);
        }
        assert_eq!(Failure::of(418), Failure::Internal);
    }

    #[test]
    fn each_error_of_a_request_keeps_its_status() {
        let text = String::new;
        for error in [
            BindError::BadRequest(text()),
            BindError::NotFound(text()),
            BindError::MethodNotAllowed { allow: text() },
            BindError::NotAcceptable(text()),
            BindError::TooLarge(text()),
            BindError::UnsupportedType(text()),
            BindError::Unprocessable(text()),
            BindError::BadOutput(text()),
        ] {
            let status = error.status();
            assert_eq!(Problem::from(error).status, status);
        }
    }
}
