//! The namespace of OpenFaaS' tools.

use crate::http::problem::Problem;

/// The only namespace: the one that OpenFaaS's command line calls functions in.
pub(crate) const NAMESPACE: &str = "openfaas-fn";

/// Refuses another namespace.
pub(crate) fn check_namespace(namespace: &str) -> Result<(), Problem> {
    match namespace {
        "" | NAMESPACE => Ok(()),
        _ => Err(Problem::bad_request(format!(
            "unknown namespace: the only one is '{NAMESPACE}'"
        ))),
    }
}
