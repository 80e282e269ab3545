//! Values that may be written in more than one way.

use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// A dimension: a number, a symbol or an expression, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dimension(pub String);

impl<'de> Deserialize<'de> for Dimension {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Dimension, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Dimension;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a symbol or an expression")
            }
            fn visit_u64<E: Error>(self, v: u64) -> Result<Dimension, E> {
                Ok(Dimension(v.to_string()))
            }
            fn visit_i64<E: Error>(self, v: i64) -> Result<Dimension, E> {
                u64::try_from(v)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(v), &self))
                    .and_then(|v| self.visit_u64(v))
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<Dimension, E> {
                Ok(Dimension(v.to_owned()))
            }
        }
        from.deserialize_any(Text)
    }
}

impl Serialize for Dimension {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.parse::<u64>() {
            Ok(number) => to.serialize_u64(number),
            Err(_) => to.serialize_str(&self.0),
        }
    }
}

impl JsonSchema for Dimension {
    fn schema_name() -> Cow<'static, str> {
        "Dimension".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number, a symbol, or an expression of + - * / % ( ) min max ceil_div align over symbols and whole-number inputs.",
            "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "minLength": 1, "maxLength": 256 }]
        })
    }
}

/// Bytes: a number, or a number with KiB, MiB or GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

impl Size {
    fn parse(text: &str) -> Option<Size> {
        let (digits, factor) = UNITS
            .iter()
            .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?.trim_end(), *factor)))
            .unwrap_or((text, 1));
        digits.parse::<u64>().ok()?.checked_mul(factor).map(Size)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes: a number, or one with KiB, MiB or GiB")
            }
            fn visit_u64<E: Error>(self, v: u64) -> Result<Size, E> {
                Ok(Size(v))
            }
            fn visit_i64<E: Error>(self, v: i64) -> Result<Size, E> {
                u64::try_from(v)
                    .map(Size)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(v), &self))
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<Size, E> {
                Size::parse(v).ok_or_else(|| E::invalid_value(Unexpected::Str(v), &self))
            }
        }
        from.deserialize_any(Bytes)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match UNITS
            .iter()
            .rev()
            .find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor))
        {
            Some((unit, factor)) => to.collect_str(&format_args!("{}{unit}", self.0 / factor)),
            None => to.serialize_u64(self.0),
        }
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Bytes: a number, or one with KiB, MiB or GiB.",
            "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": "^[0-9]+ *(KiB|MiB|GiB)?$" }]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn sizes_are_numbers_with_or_without_a_unit() {
        assert_eq!(Size::parse("12"), Some(Size(12)));
        assert_eq!(Size::parse("3 KiB"), Some(Size(3072)));
        assert_eq!(Size::parse("2GiB"), Some(Size(2 << 30)));
        assert_eq!(Size::parse("99999999999GiB"), None);
        assert_eq!(Size::parse("MiB"), None);
        assert_eq!(Size::parse("-1"), None);
        assert_eq!(serde_json::to_string(&Size(64 << 20)).unwrap(), "\"64MiB\"");
        assert_eq!(serde_json::to_string(&Size(1025)).unwrap(), "1025");
    }
}
