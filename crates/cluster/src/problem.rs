//! Problems of the logical and the map file, each with its file and line.

use std::fmt;
use std::path::PathBuf;

/// Something that is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// From 1; 0: the file as a whole.
    pub line: usize,
    /// What is wrong.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.text),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.text),
        }
    }
}

/// All that is wrong, one a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if i > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
