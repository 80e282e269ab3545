//! Errors of a board's host port.

use crate::image;
use crate::packet::VERSION;
use std::io;
use std::path::PathBuf;

/// Reasons for which a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No board listens.
    #[error("no board listens at {path} (is `baltra board --host-port {path}` running?)")]
    Connect {
        /// The socket's path.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The board disconnected or violated the protocol.
    #[error("the board closed its host port")]
    Lost(#[source] io::Error),
    /// The board has another protocol version.
    #[error("the board uses version {0} of the host port's protocol, this program version {VERSION}: install the same release of both")]
    Version(u32),
    /// The image is invalid or unsuitable for this board.
    #[error(transparent)]
    Image(#[from] image::Error),
    /// The window is too small.
    #[error("{0} bytes do not fit into the window shared with the board")]
    Window(u64),
    /// The kernel exceeded its time limit, or was cancelled.
    #[error("the kernel did not end in time, or is no longer needed, and was stopped")]
    Killed,
    /// The answer exceeds its buffer; its length in bytes.
    #[error("the answer has {0} bytes, more than its buffer")]
    Room(u64),
    /// The board refused the image while loading it into a region.
    #[error("the board refused the image while loading it into region {region}: {}", load_result(*result))]
    Refused {
        /// The region that the board's scheduler selected.
        region: u32,
        /// `load_result_t` of fn_pkg.
        result: u32,
    },
    /// The board's memory is exhausted.
    #[error("not enough memory on the board: {0}")]
    Full(String),
    /// The function or program does not exist.
    #[error("{0}")]
    Unknown(String),
    /// The memory guard refused a kernel's access.
    #[error("the kernel's {} at offset {offset} of buffer {buffer} was refused", if *is_write { "store" } else { "load" })]
    Fault {
        /// From 1 on; 0: none.
        buffer: u32,
        /// In the buffer.
        offset: u64,
        /// Whether it was a store.
        is_write: bool,
    },
    /// The kernel ended with a status.
    #[error("the kernel failed with status {0}")]
    Failed(u32),
    /// Any other refusal.
    #[error("the board refused the request with status {status}: {text}")]
    Wrong {
        /// `host_status`, or host_pkg::end_t.
        status: u32,
        /// The board's text.
        text: String,
    },
}

/// The meaning of `load_result_t` of fn_pkg.
fn load_result(result: u32) -> &'static str {
    match result {
        1 => "it is not an image",
        2 => "its format has an unsupported version",
        3 => "its header is damaged",
        4 => "it is made for another shell",
        5 => "it is made for another region",
        6 => "its length is invalid",
        7 => "board memory failed",
        8 => "its body is damaged",
        9 => "its address is not aligned",
        _ => "unknown reason",
    }
}

/// The board violated the protocol.
pub fn malformed(what: &str) -> Error {
    Error::Lost(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()))
}
