//! Arrays as JSON text.

use crate::manifest::JsonForm;
use crate::types::{Scalar, Type};
use std::io::Write;

/// Appends an array as JSON. Infinities and NaN become strings, since JSON has no numbers for them.
/// The error: text that is not UTF-8.
pub(crate) fn write(
    out: &mut Vec<u8>,
    kind: Type,
    form: JsonForm,
    shape: &[u64],
    bytes: &[u8],
) -> Result<(), &'static str> {
    match (shape, form) {
        ([], _) => element(out, kind, bytes),
        ([_], JsonForm::Text) => {
            let text = std::str::from_utf8(bytes).map_err(|_| "the bytes are not UTF-8")?;
            serde_json::to_writer(&mut *out, text).map_err(|_| "cannot serialize the text")?;
        }
        ([_], JsonForm::Hex) => {
            out.push(b'"');
            bytes
                .iter()
                .for_each(|byte| drop(write!(out, "{byte:02x}")));
            out.push(b'"');
        }
        ([size, inner @ ..], _) => {
            let step = bytes.len() / (*size).max(1) as usize;
            out.push(b'[');
            for index in 0..*size as usize {
                if index > 0 {
                    out.push(b',');
                }
                write(
                    out,
                    kind,
                    form,
                    inner,
                    &bytes[index * step..(index + 1) * step],
                )?;
            }
            out.push(b']');
        }
    }
    Ok(())
}

/// Upper bound of the length of an array's JSON.
pub(crate) fn bytes_max(kind: Type, form: JsonForm, shape: &[u64]) -> u64 {
    let width = match kind {
        Type::U8 => 3,
        Type::I8 => 4,
        Type::U16 => 5,
        Type::I16 => 6,
        Type::U32 => 10,
        Type::I32 => 11,
        Type::U64 | Type::I64 => 20,
        Type::F32 => 16,
        Type::F64 => 25,
    };
    let element = match (form, shape) {
        (_, []) | (JsonForm::Array, _) => width + 1,
        (JsonForm::Hex, _) => 2,
        // A control character takes six bytes.
        (JsonForm::Text, _) => 6,
    };
    // Each level adds brackets or quotes, and a comma.
    let (mut arrays, mut bytes) = (1u64, 0u64);
    for size in shape {
        bytes = bytes.saturating_add(arrays.saturating_mul(3));
        arrays = arrays.saturating_mul(*size);
    }
    bytes.saturating_add(arrays.saturating_mul(element))
}

fn element(out: &mut Vec<u8>, kind: Type, bytes: &[u8]) {
    // Writing to memory does not fail.
    let _ = match Scalar::from_bytes(kind, bytes) {
        Some(Scalar::F32(value)) if value.is_finite() => {
            serde_json::to_writer(&mut *out, &value).map_err(Into::into)
        }
        Some(Scalar::F64(value)) if value.is_finite() => {
            serde_json::to_writer(&mut *out, &value).map_err(Into::into)
        }
        Some(Scalar::F32(value)) => write!(out, "\"{}\"", odd_float(value.into())),
        Some(Scalar::F64(value)) => write!(out, "\"{}\"", odd_float(value)),
        Some(whole) => write!(out, "{}", whole.integer().unwrap_or_default()),
        None => Ok(()),
    };
}

fn odd_float(value: f64) -> &'static str {
    match value {
        value if value.is_nan() => "NaN",
        value if value > 0.0 => "Infinity",
        _ => "-Infinity",
    }
}
