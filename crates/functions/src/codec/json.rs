//! Arrays in JSON, parsed directly into elements without an intermediate tree.

mod write;

pub(crate) use write::{bytes_max, write};

use crate::error::BindError;
use crate::manifest::JsonForm;
use crate::plan::InputPlan;
use crate::types::{Scalar, Type};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// Most levels of nesting.
const DEPTH_MAX: usize = 32;
/// A dimension that no array has determined yet.
const UNKNOWN: u64 = u64::MAX;

/// An array: its shape and its elements, little endian.
pub(crate) type Array = (Vec<u64>, Vec<u8>);

/// Parses the arrays of a body: an object with the inputs' names, or the only input's value. `None`
/// for a missing input; `limit` bounds the total bytes of the elements.
pub(crate) fn body(
    text: &[u8],
    inputs: &[&InputPlan],
    limit: u64,
) -> Result<Vec<Option<Array>>, BindError> {
    let mut top = Top {
        inputs,
        arrays: vec![None; inputs.len()],
        left: limit,
        overflow: false,
        at: None,
    };
    let text = quote_odd_floats(text);
    let mut from = serde_json::Deserializer::from_slice(&text);
    let result = top.deserialize(&mut from).and_then(|()| from.end());
    let at = top.at.map_or("the body", |input| &inputs[input].name);
    match result {
        Ok(()) => Ok(top.arrays),
        Err(_) if top.overflow => Err(BindError::TooLarge(format!(
            "the arrays have more than {limit} bytes"
        ))),
        Err(error) if error.is_data() => Err(BindError::Unprocessable(format!("{at}: {error}"))),
        Err(error) => Err(BindError::BadRequest(format!(
            "the body is not JSON: {error}"
        ))),
    }
}

/// Parses the elements of an array in any nesting, as in the Open Inference Protocol's `data`.
pub(crate) fn flat(text: &[u8], kind: Type, limit: u64) -> Result<Vec<u8>, String> {
    let mut array = Reader::new(kind, JsonForm::Array, limit);
    array.any_shape = true;
    let mut from = serde_json::Deserializer::from_slice(text);
    let result = Level {
        array: &mut array,
        depth: 0,
    }
    .deserialize(&mut from)
    .and_then(|()| from.end());
    result
        .map(|()| array.out)
        .map_err(|error| error.to_string())
}

/// Replaces `NaN`, `Infinity` and `-Infinity`, which Python writes although JSON lacks them, with
/// the strings that represent them here. Strings are unchanged.
pub fn quote_odd_floats(text: &[u8]) -> Cow<'_, [u8]> {
    const ODD: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    let mut quoted = Vec::new();
    let (mut at, mut kept, mut in_text) = (0, 0, false);
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' if in_text => at += 1,
            b'"' => in_text = !in_text,
            b'N' | b'I' | b'-' if !in_text => {
                let odd = ODD.iter().find(|odd| text[at..].starts_with(odd));
                if let Some(odd) = odd {
                    quoted.extend_from_slice(&text[kept..at]);
                    quoted.push(b'"');
                    quoted.extend_from_slice(odd);
                    quoted.push(b'"');
                    kept = at + odd.len();
                    at = kept;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    match kept {
        0 => Cow::Borrowed(text),
        _ => {
            quoted.extend_from_slice(&text[kept..]);
            Cow::Owned(quoted)
        }
    }
}

struct Top<'a> {
    inputs: &'a [&'a InputPlan],
    arrays: Vec<Option<Array>>,
    left: u64,
    overflow: bool,
    /// The input whose value is being read.
    at: Option<usize>,
}

impl Top<'_> {
    fn deserialize<'de, D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }

    fn read<E: Error>(
        &mut self,
        input: usize,
        read: impl FnOnce(Level<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let plan = self.inputs[input];
        let mut array = Reader::new(plan.kind, plan.json, self.left);
        self.at = Some(input);
        let result = read(Level {
            array: &mut array,
            depth: 0,
        });
        self.overflow |= array.overflow;
        result?;
        self.at = None;
        self.left -= array.out.len() as u64;
        // An empty array does not determine its inner dimensions.
        while array.out.is_empty() && array.shape.len() < plan.shape.len() {
            let size = plan.shape[array.shape.len()]
                .constant()
                .and_then(|size| size.try_into().ok());
            array.shape.push(size.unwrap_or(0));
        }
        self.arrays[input] = Some((array.shape, array.out));
        Ok(())
    }

    fn only<E: Error>(&mut self, read: impl FnOnce(Level<'_>) -> Result<(), E>) -> Result<(), E> {
        match self.inputs.len() {
            1 => self.read(0, read),
            _ => Err(E::custom("expected an object with the inputs' names")),
        }
    }
}

impl<'de> Visitor<'de> for &mut Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the inputs' names, or the only input's value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(name) = entries.next_key::<String>()? {
            let shown = crate::bind::shown(&name);
            let Some(input) = self.inputs.iter().position(|input| input.name == name) else {
                return Err(A::Error::custom(format_args!(
                    "the function has no input '{shown}' in its body"
                )));
            };
            if self.arrays[input].is_some() {
                return Err(A::Error::custom(format_args!("duplicate '{shown}'")));
            }
            self.read(input, |level| entries.next_value_seed(level))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        self.only(|level| level.visit_seq(items))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.only(|level| level.visit_u64(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.only(|level| level.visit_i64(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.only(|level| level.visit_f64(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.only(|level| level.visit_str(value))
    }
}

/// An array during parsing.
struct Reader {
    kind: Type,
    form: JsonForm,
    out: Vec<u8>,
    left: u64,
    overflow: bool,
    shape: Vec<u64>,
    /// The depth of the elements, after the first one.
    leaf: Option<usize>,
    any_shape: bool,
}

impl Reader {
    fn new(kind: Type, form: JsonForm, limit: u64) -> Reader {
        Reader {
            kind,
            form,
            out: Vec::new(),
            left: limit,
            overflow: false,
            shape: Vec::new(),
            leaf: None,
            any_shape: false,
        }
    }

    fn room<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        match self.left.checked_sub(bytes as u64) {
            Some(left) => self.left = left,
            None => {
                self.overflow = true;
                return Err(E::custom("too many elements"));
            }
        }
        Ok(())
    }

    /// An integer literal: exact in the array's type, or rejected.
    fn integer<E: Error>(&mut self, depth: usize, value: i128) -> Result<(), E> {
        let scalar = Scalar::from_integer(self.kind, value).filter(|scalar| match scalar {
            Scalar::F32(float) => *float as i128 == value,
            Scalar::F64(float) => *float as i128 == value,
            _ => true,
        });
        self.element(depth, scalar, format_args!("{value}"))
    }

    fn element<E: Error>(
        &mut self,
        depth: usize,
        scalar: Option<Scalar>,
        shown: fmt::Arguments<'_>,
    ) -> Result<(), E> {
        let Some(scalar) = scalar else {
            return Err(E::custom(format_args!(
                "{shown} is not a valid {}",
                self.kind
            )));
        };
        if *self.leaf.get_or_insert(depth) != depth && !self.any_shape {
            return Err(E::custom("numbers and arrays are mixed"));
        }
        self.room(self.kind.size() as usize)?;
        scalar.append_to(&mut self.out);
        Ok(())
    }

    fn close<E: Error>(&mut self, depth: usize, count: u64) -> Result<(), E> {
        if self.any_shape {
            return Ok(());
        }
        if self.shape.len() <= depth {
            self.shape.resize(depth + 1, UNKNOWN);
        }
        match self.shape[depth] {
            UNKNOWN => self.shape[depth] = count,
            size if size == count => {}
            size => {
                return Err(E::custom(format_args!(
                    "arrays of {size} and of {count} elements are mixed"
                )))
            }
        }
        if self.leaf.is_some_and(|leaf| leaf <= depth) {
            return Err(E::custom("numbers and arrays are mixed"));
        }
        Ok(())
    }
}

/// One level of nesting of an array.
struct Level<'a> {
    array: &'a mut Reader,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} or an array of them", self.array.kind)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.array.integer(self.depth, value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.array.integer(self.depth, value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        let kind = self.array.kind;
        let scalar = match kind {
            Type::F64 => Some(Scalar::F64(value)),
            Type::F32 => Some(value as f32)
                .filter(|value| value.is_finite())
                .map(Scalar::F32),
            // From 2^53 on, the value may differ from the literal.
            _ if value.fract() == 0.0 && value.abs() < (1u64 << 53) as f64 => {
                Scalar::from_integer(kind, value as i128)
            }
            _ => None,
        };
        self.array
            .element(self.depth, scalar, format_args!("{value}"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        let array = self.array;
        let float = match text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        };
        if let Some(scalar) = float.and_then(|value| Scalar::from_float(array.kind, value)) {
            return array.element(self.depth, Some(scalar), format_args!(""));
        }
        let before = array.out.len();
        match array.form {
            JsonForm::Array => {
                return Err(E::custom(format_args!(
                    "a string is not a valid {}",
                    array.kind
                )))
            }
            JsonForm::Text => {
                array.room(text.len())?;
                array.out.extend_from_slice(text.as_bytes());
            }
            JsonForm::Hex => {
                array.room(text.len() / 2)?;
                let digit = |c: &u8| (*c as char).to_digit(16).map(|d| d as u8);
                let odd = || E::custom("hexadecimal text must have two digits per byte");
                for pair in text.as_bytes().chunks(2) {
                    let [high, low] = pair else { return Err(odd()) };
                    array
                        .out
                        .push(digit(high).ok_or_else(odd)? * 16 + digit(low).ok_or_else(odd)?);
                }
            }
        }
        if *array.leaf.get_or_insert(self.depth + 1) != self.depth + 1 {
            return Err(E::custom("text and numbers are mixed"));
        }
        let count = (array.out.len() - before) as u64;
        array.close(self.depth, count)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if self.depth >= DEPTH_MAX {
            return Err(A::Error::custom("arrays are nested too deeply"));
        }
        let mut count = 0;
        while items
            .next_element_seed(Level {
                array: self.array,
                depth: self.depth + 1,
            })?
            .is_some()
        {
            count += 1;
        }
        self.array.close(self.depth, count)
    }
}

#[cfg(test)]
mod tests;
