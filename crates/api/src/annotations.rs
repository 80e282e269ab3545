//! Conditions on devices in annotations of Pods and of functions.

use crate::query::{Field, Query};

/// Prefix of annotations.
pub const PREFIX: &str = "baltra.io/";
/// Prefix of the annotations of BlastFunction, which have the same meaning.
pub const BLASTFUNCTION: &str = "blastfunction.io/";
/// Annotations, without their prefix, that are conditions on a device.
pub const CONDITIONS: [&str; 5] = [
    "device",
    "vendor",
    "platform",
    "accelerator",
    "acceleratorhash",
];
/// The longest value, bytes.
pub const VALUE_BYTES_MAX: usize = 1_024;

/// Why an annotation is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The value is invalid.
    #[error("{0}")]
    Value(String),
    /// Another annotation sets the same field.
    #[error("it duplicates another annotation: keep one of them")]
    Twice,
}

/// Adds the condition of the annotation `key`, one of [`CONDITIONS`], to a query. A `device` with
/// `=` is a query, one with `/` an id, and any other one a model.
///
/// # Errors
/// The value is invalid, or the query has a term for its field.
pub fn with_condition(query: &Query, key: &str, value: &str) -> Result<Query, Error> {
    if value.is_empty() || value.len() > VALUE_BYTES_MAX {
        return Err(Error::Value("it must have 1 to 1,024 bytes".into()));
    }
    let added = match key {
        "device" if value.contains('=') => {
            let parsed = value.parse::<Query>();
            parsed.map_err(|e| Error::Value(format!("as a device query, {e}")))?
        }
        _ => {
            let field = match key {
                "device" if value.contains('/') => Field::Id,
                "device" => Field::Model,
                "vendor" => Field::Vendor,
                "platform" => Field::Platform,
                _ => Field::Accelerator,
            };
            let term = Query::any().with(field, value);
            term.map_err(|e| Error::Value(e.to_string()))?
        }
    };
    query.joined(&added).ok_or(Error::Twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_query_an_id_or_a_model() {
        for (value, query) in [
            ("vendor=Intel*,node=a", "vendor=Intel*,node=a"),
            ("node-1/fpga0", "id=node-1/fpga0"),
            ("A10*", "model=A10*"),
        ] {
            let got = with_condition(&Query::any(), "device", value).unwrap();
            assert_eq!(got, query.parse().unwrap(), "{value}");
        }
        let query = with_condition(&Query::any(), "vendor", "a").unwrap();
        let twice = with_condition(&query, "device", "vendor=b");
        assert_eq!(twice, Err(Error::Twice));
        for value in ["", "color=red"] {
            let wrong = with_condition(&query, "device", value);
            assert!(matches!(wrong, Err(Error::Value(_))), "{wrong:?}");
        }
    }
}
