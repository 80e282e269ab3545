//! Statuses of refused calls.
//!
//! `scripts/reference.py` writes the comments of the variants into `docs/reference/errors.md`: the
//! meaning, and after "Remedy:" what the caller can do. Statuses of the registry are created here
//! only, which that script checks.

use tonic::{Code, Status};

/// Why the registry refuses or fails a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Failure {
    /// A name, query, text or number of the request is missing, malformed or beyond its limit.
    /// Remedy: correct what the message names.
    InvalidArgument = 3,
    /// No such device, node, instance, function, pool, task or session. Remedy: `baltra devices --all` and
    /// `baltra instances` list them; write devices as node/name.
    NotFound = 5,
    /// The name of a node is in use, an instance or function of this name belongs to another tenant,
    /// or a session is being moved already. Remedy: another name (`node.name`), or wait until the
    /// other node's lease expires, or until the session has moved.
    AlreadyExists = 6,
    /// The token lacks the role for the call, or another node has the name of the calling one.
    /// Remedy: send the token of `registry.tokens` for the role in the message; set another
    /// `node.name`.
    PermissionDenied = 7,
    /// There are too many nodes, instances, functions, pools, gateways or moves of sessions. Remedy:
    /// remove some or wait, or raise the limit in the message (`registry.limits`).
    ResourceExhausted = 8,
    /// A named device is not registered now. Remedy: retry after its node has joined.
    FailedPrecondition = 9,
    /// A function or pool was changed or removed during the call. Remedy: retry.
    Aborted = 10,
    /// The registry has an internal error. Remedy: see its log.
    Internal = 13,
    /// The registry is stopping, is not reachable, or cannot write its state; then reads, heartbeats
    /// and renewals work. Remedy: retry later; free space in `registry.state`.
    Unavailable = 14,
    /// The token is missing or invalid. Remedy: set `registry.token`, or `node.registry_token` of a
    /// node.
    Unauthenticated = 16,
}

impl Failure {
    /// The status, with a text for people.
    pub fn status(self, text: impl Into<String>) -> Status {
        Status::new(Code::from_i32(self as i32), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_numbers_of_grpc() {
        for (failure, code) in [
            (Failure::InvalidArgument, Code::InvalidArgument),
            (Failure::NotFound, Code::NotFound),
            (Failure::AlreadyExists, Code::AlreadyExists),
            (Failure::PermissionDenied, Code::PermissionDenied),
            (Failure::ResourceExhausted, Code::ResourceExhausted),
            (Failure::FailedPrecondition, Code::FailedPrecondition),
            (Failure::Aborted, Code::Aborted),
            (Failure::Internal, Code::Internal),
            (Failure::Unavailable, Code::Unavailable),
            (Failure::Unauthenticated, Code::Unauthenticated),
        ] {
            assert_eq!(failure.status("").code(), code);
        }
    }
}
