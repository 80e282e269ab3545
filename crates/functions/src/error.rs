//! Errors of manifests and of requests.

use std::fmt;
use std::path::PathBuf;

/// Why and where a manifest is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ManifestError {
    /// The file, if the manifest was read from one.
    pub file: Option<PathBuf>,
    /// The line, from 1; 0 if no line is at fault (a file is missing, for example).
    pub line: u32,
    /// The column, from 1; 0 with line 0.
    pub column: u32,
    /// The entry, such as `outputs[0].shape`; empty for the whole manifest.
    pub entry: String,
    /// The error and the remedy.
    pub reason: String,
}

impl ManifestError {
    /// An error of the whole manifest, without a position.
    pub fn new(reason: impl Into<String>) -> ManifestError {
        ManifestError {
            file: None,
            line: 0,
            column: 0,
            entry: String::new(),
            reason: reason.into(),
        }
    }

    /// An error of one entry; its position is determined later.
    pub fn at(entry: impl Into<String>, reason: impl Into<String>) -> ManifestError {
        ManifestError {
            entry: entry.into(),
            ..ManifestError::new(reason)
        }
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        if !self.entry.is_empty() {
            write!(f, "{}: ", self.entry)?;
        }
        f.write_str(&self.reason)
    }
}

/// Why a request is rejected. Each kind has its HTTP status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// 400: a parameter is missing, unknown or not a number.
    #[error("{0}")]
    BadRequest(String),
    /// 404: the function has no sub-paths.
    #[error("{0}")]
    NotFound(String),
    /// 405: `allow` is the value of the `Allow` header.
    #[error("method not allowed: use one of {allow}")]
    MethodNotAllowed {
        /// The methods that the function accepts, separated by commas.
        allow: String,
    },
    /// 406: the outputs have no format that the client accepts.
    #[error("{0}")]
    NotAcceptable(String),
    /// 413: the body, encoded or decoded, is larger than the function's limit.
    #[error("{0}")]
    TooLarge(String),
    /// 415: the function has no codec for this content type.
    #[error("{0}")]
    UnsupportedType(String),
    /// 422: well-formed, but the shapes or values do not fit.
    #[error("{0}")]
    Unprocessable(String),
    /// 500: the function violated its manifest (an output of the wrong size, for example).
    #[error("{0}")]
    BadOutput(String),
}

impl BindError {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            BindError::BadRequest(_) => 400,
            BindError::NotFound(_) => 404,
            BindError::MethodNotAllowed { .. } => 405,
            BindError::NotAcceptable(_) => 406,
            BindError::TooLarge(_) => 413,
            BindError::UnsupportedType(_) => 415,
            BindError::Unprocessable(_) => 422,
            BindError::BadOutput(_) => 500,
        }
    }
}
