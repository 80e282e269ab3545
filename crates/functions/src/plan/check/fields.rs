//! Checks of single fields of the manifest.

use super::Checked;
use crate::error::ManifestError;
use crate::manifest::{Codec, Dimension, Input, JsonForm, Manifest, Output, Source};
use crate::types::Type;
use http::{HeaderName, Method};

pub(super) fn methods(names: &[String]) -> Checked<(Vec<Method>, String)> {
    const KNOWN: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];
    if names.is_empty() {
        return Err(ManifestError::at(
            "methods",
            "must have at least one, such as POST",
        ));
    }
    let mut methods: Vec<Method> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let known = KNOWN
            .contains(&name.as_str())
            .then(|| name.parse().ok())
            .flatten();
        match known.filter(|method| !methods.contains(method)) {
            Some(method) => methods.push(method),
            None => {
                let reason = format!(
                    "'{name}' is a duplicate, or not one of {}",
                    KNOWN.join(", ")
                );
                return Err(ManifestError::at(format!("methods[{index}]"), reason));
            }
        }
    }
    Ok((methods, names.join(", ")))
}

pub(super) fn header(input: &Input) -> Result<Option<HeaderName>, String> {
    if input.from != Source::Header {
        return match input.header {
            Some(_) => Err("only with 'from: header'".into()),
            None => Ok(None),
        };
    }
    let name = input
        .header
        .clone()
        .unwrap_or_else(|| format!("x-{}", input.name.replace('_', "-")));
    HeaderName::try_from(name.to_ascii_lowercase())
        .map(Some)
        .map_err(|_| format!("'{name}' is not a valid header name"))
}

/// The types that each source can provide.
pub(super) fn input_source(input: &Input, entry: &str) -> Checked<()> {
    let at = |field: &str, reason: &str| Err(ManifestError::at(format!("{entry}.{field}"), reason));
    let scalar = input.shape.is_empty();
    match input.from {
        Source::Constant if input.constant.is_none() => {
            return at("from", "a constant needs 'constant:'")
        }
        Source::Constant => {}
        _ if input.constant.is_some() => return at("constant", "only with 'from: constant'"),
        Source::Path | Source::Method if input.kind != Type::U8 || input.shape.len() != 1 => {
            return at("from", "text must be an array of u8 with one dimension");
        }
        Source::Query | Source::Header if input.shape.len() > 1 => {
            return at(
                "shape",
                "an array in a query parameter or header must have one dimension",
            );
        }
        _ => {}
    }
    if !scalar && (input.default.is_some() || input.min.is_some() || input.max.is_some()) {
        return at(
            "shape",
            "default, min and max are for numbers, which have no shape",
        );
    }
    if input.from != Source::Body && !input.codecs.is_empty() {
        return at("codecs", "only with 'from: body'");
    }
    if input.json != JsonForm::Array && (input.kind != Type::U8 || scalar) {
        return at("json", "hex and text are for arrays of u8");
    }
    if let (Some(min), Some(max)) = (input.min, input.max) {
        // NaN is not a valid bound.
        if min.partial_cmp(&max).is_none_or(|order| order.is_gt()) {
            return at("min", "above max");
        }
    }
    if let Some(value) = input.default {
        if input.min.is_some_and(|min| value < min) || input.max.is_some_and(|max| value > max) {
            return at("default", "outside of min and max");
        }
    }
    Ok(())
}

/// The listed codecs, or raw, JSON and NPY.
pub(super) fn input_codecs(input: &Input, entry: &str) -> Checked<Vec<Codec>> {
    codecs(&input.codecs, input.kind, &input.shape, entry)
}

pub(super) fn output_codecs(output: &Output, entry: &str) -> Checked<Vec<Codec>> {
    codecs(&output.codecs, output.kind, &output.shape, entry)
}

fn codecs(listed: &[Codec], kind: Type, shape: &[Dimension], entry: &str) -> Checked<Vec<Codec>> {
    if listed.is_empty() {
        return Ok(vec![Codec::Raw, Codec::Json, Codec::Npy]);
    }
    for (index, codec) in listed.iter().enumerate() {
        let at = |reason: &str| {
            Err(ManifestError::at(
                format!("{entry}.codecs[{index}]"),
                reason,
            ))
        };
        if listed[..index].contains(codec) {
            return at("named twice");
        }
        let channels = shape
            .get(2)
            .map_or(Some(1), |dimension| dimension.0.parse::<u64>().ok());
        match codec {
            Codec::Png if !matches!(kind, Type::U8 | Type::U16) => {
                return at("a PNG must be of u8 or u16")
            }
            Codec::Jpeg if kind != Type::U8 => return at("a JPEG must be of u8"),
            Codec::Png | Codec::Jpeg if !(2..=3).contains(&shape.len()) => {
                return at(
                    "a picture's shape must be [height, width] or [height, width, channels]",
                );
            }
            Codec::Png if !matches!(channels, Some(1..=4)) => {
                return at("a PNG has 1 to 4 channels: write the number")
            }
            Codec::Jpeg if !matches!(channels, Some(1 | 3)) => {
                return at("a JPEG has 1 or 3 channels: write the number")
            }
            _ => {}
        }
    }
    Ok(listed.to_vec())
}

pub(super) fn limits(manifest: &Manifest) -> Checked<()> {
    let limits = &manifest.limits;
    if limits.timeout_ms == 0 || limits.timeout_ms > 86_400_000 {
        return Err(ManifestError::at(
            "limits.timeout_ms",
            "must be between 1 and 86400000 (a day)",
        ));
    }
    if limits.body_bytes.0 > 1 << 32 {
        return Err(ManifestError::at(
            "limits.body_bytes",
            "must be at most 4GiB",
        ));
    }
    if limits.memory_bytes.0 == 0 || limits.memory_bytes.0 > 1 << 40 {
        return Err(ManifestError::at(
            "limits.memory_bytes",
            "must be between 1 and 1024GiB",
        ));
    }
    Ok(())
}

/// Checks the scaling.
pub(super) fn scale(manifest: &Manifest) -> Checked<()> {
    let Some(scale) = manifest.scale else {
        return Ok(());
    };
    if !manifest.wants_devices() {
        let reason = "needs an implementation on a device: native code runs in one process";
        return Err(ManifestError::at("scale", reason));
    }
    let checked = scale.check(manifest.idle_s);
    checked.map_err(|(field, reason)| ManifestError::at(format!("scale.{field}"), reason))
}
