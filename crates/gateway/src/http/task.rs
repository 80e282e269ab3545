//! Blocking work off the event loop, and the clock for records.

use crate::http::problem::Problem;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_millis() as u64)
}

/// Runs blocking or long work on a thread that does not serve connections.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| {
        tracing::error!(%error, "a worker's task");
        Problem::internal("internal error (see the gateway's log)")
    })
}
