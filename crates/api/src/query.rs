//! The device query: conditions on the devices of an application.
//!
//! On a command line, a query is a text such as `vendor=Intel*,accelerator=sobel`; in JSON, YAML or
//! TOML, it is that text or a map of the same fields. A value is exact, or a pattern in which `*`
//! stands for any characters and `?` for any single one. A value that contains a comma needs double
//! quotes (`vendor="Xilinx, Inc."`); a backslash makes the next character literal. Only identifiers
//! (id, node, pool, accelerator) are case-sensitive, because vendors vary the spelling of their
//! names.
//!
//! `label.KEY=VALUE` is a condition on a label that an operator gave a device; a missing label has
//! the empty value.
//!
//! All fields but `accelerator` are fixed properties: a device that does not match one of them can
//! never be used. `accelerator` must be loaded, and a device may be reconfigured for it.

mod pattern;
#[cfg(test)]
mod tests;

pub use pattern::Pattern;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Size limit of a query's text, bytes.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Size limit of a value, bytes.
pub const VALUE_BYTES_MAX: usize = 256;

/// A field of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Field {
    /// The device's id.
    Id,
    /// The device's name on its node.
    Name,
    /// The device's node.
    Node,
    /// The device's pool.
    Pool,
    /// The vendor.
    Vendor,
    /// The OpenCL platform.
    Platform,
    /// The OpenCL profile.
    Profile,
    /// The board's model, from its driver.
    Model,
    /// The number of its regions.
    Regions,
    /// The loaded accelerator, by name or digest.
    Accelerator,
}

impl Field {
    /// All fields, in the order of a query's text.
    pub const ALL: [Field; 10] = [
        Field::Id,
        Field::Name,
        Field::Node,
        Field::Pool,
        Field::Vendor,
        Field::Platform,
        Field::Profile,
        Field::Model,
        Field::Regions,
        Field::Accelerator,
    ];

    /// As written in a query.
    pub fn name(self) -> &'static str {
        match self {
            Field::Id => "id",
            Field::Name => "name",
            Field::Node => "node",
            Field::Pool => "pool",
            Field::Vendor => "vendor",
            Field::Platform => "platform",
            Field::Profile => "profile",
            Field::Model => "model",
            Field::Regions => "regions",
            Field::Accelerator => "accelerator",
        }
    }

    fn case_matters(self) -> bool {
        matches!(
            self,
            Field::Id | Field::Node | Field::Pool | Field::Accelerator
        )
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A bitstream image, or a program binary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Accelerator {
    /// Name for display.
    pub name: String,
    /// SHA-256 of the image, hexadecimal. Empty: unknown, as for a planned accelerator that has not
    /// been uploaded.
    #[serde(default)]
    pub digest: String,
}

impl Accelerator {
    /// The identity of an accelerator: the digest or, if that is unknown, the name. An accelerator
    /// without a digest therefore never equals one with a digest: an uncertain match must not
    /// displace instances.
    pub fn key(&self) -> String {
        match self.digest.as_str() {
            "" => format!("name:{}", self.name),
            digest => digest.to_owned(),
        }
    }
}

/// Whether an accelerator with this `target` is built for a device: the target is a pattern of the
/// device's model or name. `None` if the target is empty, which means unknown.
pub fn is_target(target: &str, model: &str, name: &str) -> Option<bool> {
    if target.is_empty() {
        return None;
    }
    let pattern = Pattern::parse(target);
    Some(pattern.is_some_and(|p| p.matches(model, false) || p.matches(name, false)))
}

/// The properties of a device that a query uses.
pub trait Device {
    /// The value of a field; `None` for the accelerator, because a device may hold several.
    fn field(&self, field: Field) -> Option<&str>;

    /// A label's value; empty if the label is missing.
    fn label(&self, key: &str) -> &str;
}

/// The name of a query's term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term<'a> {
    /// A field.
    Field(Field),
    /// A label, by its key.
    Label(&'a str),
}

impl fmt::Display for Term<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Term::Field(field) => write!(f, "{field}"),
            Term::Label(key) => write!(f, "{LABEL}{key}"),
        }
    }
}

/// A term that a device does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmet<'a> {
    /// The term.
    pub term: Term<'a>,
    /// The pattern.
    pub wanted: &'a Pattern,
    /// The device's value.
    pub found: &'a str,
}

/// Prefix of a label's key.
const LABEL: &str = "label.";

/// Why a text is not a query. Positions are byte offsets in the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// Longer than [`TEXT_BYTES_MAX`].
    #[error("the query has {0} bytes, at most {TEXT_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// A term without `=`.
    #[error("'{term}' at byte {at} has no '=': write field=value, as in vendor=Intel*")]
    NoValue {
        /// The term as written.
        term: String,
        /// Position of the term.
        at: usize,
    },
    /// An unknown field.
    #[error("unknown field '{field}' at byte {at}: use id, name, node, pool, vendor, platform, profile, model, regions, accelerator or label.KEY")]
    UnknownField {
        /// The field as written.
        field: String,
        /// Position of the field.
        at: usize,
    },
    /// A field with two terms.
    #[error("duplicate field '{field}' at byte {at}: write one pattern per field")]
    Twice {
        /// The field.
        field: String,
        /// Position of the second one.
        at: usize,
    },
    /// A value that is invalid or too long.
    #[error("'{field}' at byte {at}: {reason}")]
    BadValue {
        /// The field.
        field: String,
        /// Position of the term.
        at: usize,
        /// The reason.
        reason: &'static str,
    },
    /// An unpaired quote or backslash.
    #[error("{0}")]
    Unfinished(&'static str),
}

/// Conditions on devices: all terms must match, with at most one per field. Empty: every device
/// matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Query {
    terms: BTreeMap<Field, Pattern>,
    labels: BTreeMap<String, Pattern>,
}

impl Query {
    /// Matches every device.
    pub fn any() -> Query {
        Query::default()
    }

    /// Matches no device and no accelerator. Its text is for display only: parsed, it is another
    /// query.
    pub fn none() -> Query {
        let fields = [Field::Id, Field::Accelerator];
        Query {
            terms: fields.map(|field| (field, Pattern::nothing())).into(),
            labels: BTreeMap::new(),
        }
    }

    /// This query with one more term.
    ///
    /// # Errors
    /// The value is empty or too long, or the field has a term already.
    pub fn with(mut self, field: Field, value: &str) -> Result<Query, QueryError> {
        self.insert(field.name(), value, 0)?;
        Ok(self)
    }

    /// This query with one more label term.
    ///
    /// # Errors
    /// As for [`Query::with`], and for an empty key or one with characters other than letters,
    /// digits and `._-/`.
    pub fn with_label(mut self, key: &str, value: &str) -> Result<Query, QueryError> {
        self.insert(&format!("{LABEL}{key}"), value, 0)?;
        Ok(self)
    }

    /// This query, completed with the terms of the other one for fields and labels without a term.
    pub fn with_terms_of(mut self, other: &Query) -> Query {
        for (field, pattern) in &other.terms {
            self.terms.entry(*field).or_insert_with(|| pattern.clone());
        }
        for (key, pattern) in &other.labels {
            let term = self.labels.entry(key.clone());
            term.or_insert_with(|| pattern.clone());
        }
        self
    }

    /// This query with all terms of the other one; `None` if both have a term for the same field or
    /// label.
    pub fn joined(&self, other: &Query) -> Option<Query> {
        let fields = other.terms.keys().any(|f| self.terms.contains_key(f));
        let labels = other.labels.keys().any(|k| self.labels.contains_key(k));
        (!fields && !labels).then(|| self.clone().with_terms_of(other))
    }

    /// This query without a field's term.
    pub fn without(mut self, field: Field) -> Query {
        self.terms.remove(&field);
        self
    }

    fn insert(&mut self, name: &str, value: &str, at: usize) -> Result<(), QueryError> {
        let bad = |reason| QueryError::BadValue {
            field: name.to_owned(),
            at,
            reason,
        };
        let field = Field::ALL.into_iter().find(|f| f.name() == name);
        let label = name.strip_prefix(LABEL);
        if field.is_none() && label.is_none() {
            let field = name.to_owned();
            return Err(QueryError::UnknownField { field, at });
        }
        if value.is_empty() {
            return Err(bad("the value is empty; leave the field out to accept any"));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(bad("the value has more than 256 bytes"));
        }
        if value.chars().any(char::is_control) {
            return Err(bad("the value has a control character"));
        }
        let pattern = Pattern::parse(value)
            .ok_or_else(|| bad("a backslash at the end: write '\\\\' for a backslash"))?;
        let before = match (field, label) {
            (Some(field), _) => self.terms.insert(field, pattern),
            (None, key) => {
                let key = key.unwrap_or_default();
                let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
                if key.is_empty() || key.len() > VALUE_BYTES_MAX || !key.chars().all(plain) {
                    return Err(bad("a label's key may have letters, digits and ._-/ only"));
                }
                self.labels.insert(key.to_owned(), pattern)
            }
        };
        match before {
            Some(_) => Err(QueryError::Twice {
                field: name.to_owned(),
                at,
            }),
            None => Ok(()),
        }
    }

    /// The term of a field.
    pub fn term(&self, field: Field) -> Option<&Pattern> {
        self.terms.get(&field)
    }

    /// Whether it matches any device.
    pub fn is_any(&self) -> bool {
        self.terms.is_empty() && self.labels.is_empty()
    }

    /// The first term other than the accelerator's that a device does not match; `None`: the device
    /// can be used, possibly after a reconfiguration.
    pub fn unmet<'a>(&'a self, device: &'a impl Device) -> Option<Unmet<'a>> {
        let field = |(field, wanted): (&Field, &'a Pattern)| {
            let found = device.field(*field)?;
            (!wanted.matches(found, field.case_matters())).then_some(Unmet {
                term: Term::Field(*field),
                wanted,
                found,
            })
        };
        self.terms
            .iter()
            .find_map(field)
            .or_else(|| self.unmet_label(device))
    }

    fn unmet_label<'a>(&'a self, device: &'a impl Device) -> Option<Unmet<'a>> {
        self.labels.iter().find_map(|(key, wanted)| {
            let found = device.label(key);
            (!wanted.matches(found, true)).then_some(Unmet {
                term: Term::Label(key),
                wanted,
                found,
            })
        })
    }

    /// Whether a device matches all terms except id, node and accelerator, which select single
    /// devices rather than a kind.
    pub fn fits_kind(&self, device: &impl Device) -> bool {
        let fixed = |f: &Field| !matches!(f, Field::Id | Field::Node | Field::Accelerator);
        let mut fields = Field::ALL.into_iter().filter(fixed);
        fields.all(|f| self.accepts(f, device.field(f).unwrap_or_default()))
            && self.unmet_label(device).is_none()
    }

    /// Whether a field's term, if there is one, accepts a value.
    pub fn accepts(&self, field: Field, found: &str) -> bool {
        let pattern = self.terms.get(&field);
        pattern.is_none_or(|p| p.matches(found, field.case_matters()))
    }

    /// Whether an accelerator matches, by name or digest; any does without an accelerator term.
    pub fn accepts_accelerator(&self, accelerator: &Accelerator) -> bool {
        self.term(Field::Accelerator).is_none_or(|pattern| {
            pattern.matches(&accelerator.name, true)
                || (!accelerator.digest.is_empty()
                    && pattern.matches_digest(accelerator.digest.as_str()))
        })
    }
}

impl FromStr for Query {
    type Err = QueryError;

    fn from_str(text: &str) -> Result<Query, QueryError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(QueryError::TooLong(text.len()));
        }
        let mut query = Query::any();
        for (at, term) in pattern::terms(text)? {
            let Some((name, value)) = term.split_once('=') else {
                return Err(QueryError::NoValue { term, at });
            };
            query.insert(name.trim(), value, at)?;
        }
        Ok(query)
    }
}

/// Formats the text that [`Query::from_str`] parses.
impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.terms.iter().map(|(f, p)| (Term::Field(*f), p));
        let labels = self.labels.iter().map(|(k, p)| (Term::Label(k), p));
        for (n, (term, pattern)) in fields.chain(labels).enumerate() {
            let comma = if n > 0 { "," } else { "" };
            write!(f, "{comma}{term}={}", pattern::quoted(pattern))?;
        }
        Ok(())
    }
}

impl Serialize for Query {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Query {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Query, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(Shape)
        } else {
            deserializer.deserialize_str(Shape)
        }
    }
}

/// Deserializes a text or a map.
struct Shape;

impl<'de> Visitor<'de> for Shape {
    type Value = Query;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a device query: 'vendor=…,accelerator=…' or a map of those fields")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Query, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Query, A::Error> {
        use serde::de::Error;
        let mut query = Query::any();
        while let Some((name, value)) = map.next_entry::<String, String>()? {
            query.insert(&name, &value, 0).map_err(A::Error::custom)?;
        }
        Ok(query)
    }
}
