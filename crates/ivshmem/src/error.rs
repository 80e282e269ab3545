//! What can go wrong between an application and its host.

use crate::message::Reason;
use std::io;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The region cannot be used.
    #[error(transparent)]
    Device(#[from] io::Error),
    /// All parts are taken by other applications of this VM.
    #[error("all parts of the region are in use by other applications of this VM")]
    Full,
    /// The host does not answer.
    #[error("the host does not answer (does `baltra vfun` run there?)")]
    Gone,
    /// The host started anew: everything that was asked for is forgotten. Open again.
    #[error("the host restarted and this connection was lost: open a new one")]
    Lost,
    /// The host said no.
    #[error("{text}")]
    Refused {
        /// Why.
        reason: Reason,
        /// In words.
        text: String,
    },
    /// The wait was over before the answer came. The call goes on.
    #[error("no answer yet")]
    NotYet,
    /// A use that the library does not allow, such as a get without a set.
    #[error("{0}")]
    Misuse(&'static str),
    /// The host's answer makes no sense.
    #[error("the host broke the protocol")]
    Protocol,
}
