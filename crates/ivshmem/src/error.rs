//! Errors between an application and its host.

use crate::message::Reason;
use std::io;

/// An error of a call or connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The region is unusable.
    #[error(transparent)]
    Device(#[from] io::Error),
    /// Other applications of this VM use all parts.
    #[error("all parts of the region are in use by other applications of this VM")]
    Full,
    /// The host does not respond.
    #[error("the host does not answer (does `baltra vfun` run there?)")]
    Gone,
    /// The host restarted, and all handles are lost. Open again.
    #[error("the host restarted and this connection was lost: open a new one")]
    Lost,
    /// The host rejected the request.
    #[error("{text}")]
    Refused {
        /// The reason.
        reason: Reason,
        /// The reason as text.
        text: String,
    },
    /// The wait ended before the answer arrived. The call continues.
    #[error("no answer yet")]
    NotYet,
    /// Invalid use of the library, such as a get without a set.
    #[error("{0}")]
    Misuse(&'static str),
    /// The host's answer is malformed.
    #[error("the host broke the protocol")]
    Protocol,
}
