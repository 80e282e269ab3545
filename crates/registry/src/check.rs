//! Checks of values received over the network.

use crate::failure::Failure;
use crate::records::StoredQuery;
use baltra_api::query::Query;
use baltra_api::valid_name;
use std::collections::BTreeMap;
use tonic::Status;

/// Default limit of texts, bytes.
pub const TEXT_BYTES_MAX: usize = 256;
/// Most labels of one object.
pub const LABELS_MAX: usize = 64;

/// Checks a name.
pub fn name(what: &str, name: &str) -> Result<(), Status> {
    if valid_name(name) {
        return Ok(());
    }
    Err(Failure::InvalidArgument.status(format!(
        "{what} '{}' must be 1 to 128 letters, digits, '-', '_' or '.'",
        shown(name)
    )))
}

/// Checks a name, which may be empty.
pub fn name_or_none(what: &str, text: &str) -> Result<(), Status> {
    match text {
        "" => Ok(()),
        text => name(what, text),
    }
}

/// Checks the length of a text.
pub fn text(what: &str, text: &str) -> Result<(), Status> {
    if text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Failure::InvalidArgument.status(format!(
        "{what} '{}' must have at most {TEXT_BYTES_MAX} bytes and no control characters",
        shown(text)
    )))
}

/// Checks a number against its limit.
pub fn count(what: &str, n: usize, max: usize) -> Result<(), Status> {
    if n <= max {
        return Ok(());
    }
    Err(Failure::InvalidArgument.status(format!("too many {what}: {n}, at most {max} are allowed")))
}

/// Checks labels.
pub fn labels(labels: &BTreeMap<String, String>) -> Result<(), Status> {
    count("labels", labels.len(), LABELS_MAX)?;
    for (key, value) in labels {
        text("the label", key)?;
        text("the label's value", value)?;
    }
    Ok(())
}

/// Checks a digest, which may be empty.
pub fn digest_or_none(what: &str, digest: &str) -> Result<(), Status> {
    let hexadecimal = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    if digest.is_empty() || digest.len() == 64 && digest.bytes().all(hexadecimal) {
        return Ok(());
    }
    Err(Failure::InvalidArgument.status(format!(
        "{what} '{}' must be a sha256: 64 lower-case hexadecimal digits",
        shown(digest)
    )))
}

/// Checks a measured amount: a finite number, 0 or more.
pub fn amount(what: &str, value: f64) -> Result<(), Status> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(Failure::InvalidArgument.status(format!(
        "{what} is {value}: it must be a finite number of at least 0"
    )))
}

/// Parses a device query.
pub fn query(text: &str) -> Result<Query, Status> {
    text.parse()
        .map_err(|e| Failure::InvalidArgument.status(format!("the query: {e}")))
}

/// Parses a stored query, to be combined with others.
pub fn stored<'a>(what: &str, name: &str, query: &'a StoredQuery) -> Result<&'a Query, Status> {
    match query.error() {
        None => Ok(query.query()),
        Some(error) => {
            Err(Failure::InvalidArgument
                .status(format!("the query of the {what} '{name}': {error}")))
        }
    }
}

/// The beginning of a received text, escaped for a message.
pub fn shown(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { '?' } else { c });
    let mut shown: String = clean.take(64).collect();
    if text.chars().nth(64).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_are_bounded() {
        name("node", "a-1_b.c").unwrap();
        for bad in ["", "a/b", "a b", "ä", &"x".repeat(129)] {
            assert!(name("node", bad).is_err(), "{bad}");
        }
        name_or_none("pool", "").unwrap();
        text("model", "").unwrap();
        assert!(text("model", &"x".repeat(257)).is_err());
        assert!(text("model", "a\nb").is_err());
        digest_or_none("digest", &"0a".repeat(32)).unwrap();
        assert!(digest_or_none("digest", &"0A".repeat(32)).is_err());
        assert!(digest_or_none("digest", "00").is_err());
        amount("uses", 0.0).unwrap();
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(amount("uses", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_message_shows_the_start_of_a_long_text_only() {
        assert_eq!(shown("a\u{7}b"), "a?b");
        assert_eq!(shown(&"x".repeat(1_000)).chars().count(), 65);
    }
}
