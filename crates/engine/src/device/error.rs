//! Why a function is not ready.

use baltra_session::client::{ConnectError, Lost};
use baltra_wire::opencl::text_of;

/// A function could not be made ready on a device.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    /// The node's doing: another node may do.
    #[error("{0}")]
    Node(String),
    /// The function's own fault: it would be the same everywhere.
    #[error("{0}")]
    Function(String),
}

impl From<Lost> for StartError {
    fn from(lost: Lost) -> StartError {
        StartError::Node(format!("the session was lost: {}", text_of(lost.0)))
    }
}

impl From<ConnectError> for StartError {
    fn from(error: ConnectError) -> StartError {
        let source = std::error::Error::source(&error).map(|s| format!(": {s}"));
        StartError::Node(format!("{error}{}", source.unwrap_or_default()))
    }
}
