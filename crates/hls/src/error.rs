//! The errors of the synthesis.

use std::fmt;

/// The result of a step of the synthesis.
pub type Result<T> = std::result::Result<T, Error>;

/// A position in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The file's name, as given to the compiler.
    pub file: String,
    /// From 1; 0 if unknown.
    pub line: usize,
}

impl Position {
    /// Whether the line is unknown.
    pub fn is_unknown(&self) -> bool {
        self.line == 0
    }
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The kernel uses a construct that cannot be synthesized.
    Unsupported,
    /// The kernel needs more of a resource than there is.
    TooLarge,
    /// The IR is not that of the supported compiler.
    MalformedIr,
    /// An invariant of the synthesis does not hold.
    Internal,
}

/// Functions of OpenCL C that are not defined: how their names begin, what they are (empty: their
/// name says it), and the remedy.
const ABSENT: [(&str, &str, &str); 13] = [
    ("work_group_", "", "use local memory and barriers"),
    ("sub_group_", "", "use local memory and barriers"),
    ("intel_sub_group_", "", "use local memory and barriers"),
    (
        "atomic_",
        "",
        "use the functions of OpenCL 1.2, such as 'atomic_add'",
    ),
    (
        "__opencl_atomic_",
        "atomic types",
        "use integers and 'atomic_add'",
    ),
    (
        "__translate_sampler_initializer",
        "samplers",
        "read from a buffer",
    ),
    ("read_image", "images", "use a buffer"),
    ("write_image", "images", "use a buffer"),
    ("get_image_", "images", "use a buffer"),
    (
        "ndrange_",
        "kernels that enqueue kernels",
        "enqueue them by the host",
    ),
    (
        "enqueue_kernel",
        "kernels that enqueue kernels",
        "enqueue them by the host",
    ),
    (
        "__enqueue_kernel_",
        "kernels that enqueue kernels",
        "enqueue them by the host",
    ),
    (
        "get_default_queue",
        "kernels that enqueue kernels",
        "enqueue them by the host",
    ),
];

/// The message and the remedy for a function of OpenCL C that the library lacks.
pub(crate) fn absent(name: &str) -> Option<(String, &'static str)> {
    let (_, what, remedy) = ABSENT
        .iter()
        .find(|(prefix, ..)| name.starts_with(prefix))?;
    let message = match *what {
        "" => format!("'{name}' is not supported"),
        what => format!("{what} are not supported"),
    };
    Some((message, remedy))
}

/// The reason why a kernel cannot be synthesized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The position of the construct in the source.
    pub position: Position,
    /// The failure, with the offending value.
    pub message: String,
    /// A change of the source or the configuration that avoids the error.
    pub remedy: Option<&'static str>,
}

impl Error {
    fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            position: Position::default(),
            message: message.into(),
            remedy: None,
        }
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unsupported, message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::TooLarge, message)
    }

    pub(crate) fn malformed(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::MalformedIr, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Internal, message)
    }

    pub(crate) fn undefined_function(name: &str) -> Error {
        if let Some((message, remedy)) = absent(plain(name)) {
            return Error::unsupported(message).remedy(remedy);
        }
        Error::unsupported(format!(
            "call of '{}', which neither the sources nor the library define",
            plain(name)
        ))
    }

    /// Adds a remedy.
    pub(crate) fn remedy(mut self, remedy: &'static str) -> Error {
        self.remedy = Some(remedy);
        self
    }

    /// Adds the position, unless the error has one.
    pub(crate) fn at(mut self, position: &Position) -> Error {
        if self.position.is_unknown() {
            self.position = position.clone();
        }
        self
    }
}

/// The function's name in a mangled name such as `_Z4fmodff`.
fn plain(name: &str) -> &str {
    let Some(rest) = name.strip_prefix("_Z") else {
        return name;
    };
    let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let length = rest[..rest.len() - digits.len()].parse().unwrap_or(0);
    digits
        .get(..length)
        .filter(|n| !n.is_empty())
        .unwrap_or(name)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.position.is_unknown() {
            write!(f, "{}:{}: ", self.position.file, self.position.line)?;
        }
        if self.kind == ErrorKind::Internal {
            write!(f, "internal error: ")?;
        }
        write!(f, "{}", self.message)?;
        match self.remedy {
            Some(remedy) => write!(f, " ({remedy})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_overloaded_functions_are_plain() {
        for (mangled, name) in [("_Z4fmodff", "fmod"), ("rand", "rand"), ("_Z9", "_Z9")] {
            let error = Error::undefined_function(mangled);
            assert!(error.message.contains(&format!("'{name}'")), "{error}");
        }
    }

    #[test]
    fn displays_position_message_and_remedy() {
        let position = |line| Position {
            file: "k.c".to_owned(),
            line,
        };
        let error = Error::unsupported("recursion").remedy("use a loop");
        assert_eq!(error.to_string(), "recursion (use a loop)");
        let error = error.at(&position(3)).at(&position(9));
        assert_eq!(error.to_string(), "k.c:3: recursion (use a loop)");
        let error = Error::internal("no memory");
        assert_eq!(error.to_string(), "internal error: no memory");
    }
}
