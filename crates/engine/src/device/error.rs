//! Errors of loading a function.

use baltra_session::client::{ConnectError, Lost};
use baltra_wire::opencl::text_of;

/// Why a function could not be loaded on a device.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    /// A fault of the node; another node may succeed.
    #[error("{0}")]
    Node(String),
    /// A fault of the function, which would fail on every node.
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
