//! Checks of names: their syntax, and that they are unique.

use super::{Checked, ARRAYS_MAX};
use crate::error::ManifestError;
use crate::expression::WORDS;
use crate::manifest::{Implementation, Manifest};
use crate::types::Type;
use std::collections::BTreeSet;

/// Letters, digits and underscores, not beginning with a digit.
pub(super) fn is_identifier(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    (1..=63).contains(&name.len())
        && name.bytes().all(plain)
        && !name.as_bytes()[0].is_ascii_digit()
}

pub(super) fn check(manifest: &Manifest) -> Checked<()> {
    if !is_function_name(&manifest.name) {
        let reason = format!(
            "invalid function name '{}': use up to 63 lower-case letters, digits and dashes, with a letter or digit at both ends",
            manifest.name
        );
        return Err(ManifestError::at("name", reason));
    }
    let version = manifest.version.as_bytes();
    if !(1..=63).contains(&version.len())
        || !version
            .iter()
            .all(|c| c.is_ascii_alphanumeric() || b".-_".contains(c))
    {
        return Err(ManifestError::at(
            "version",
            "must be letters, digits, dots and dashes",
        ));
    }
    if manifest
        .tenant
        .as_ref()
        .is_some_and(|tenant| !is_function_name(tenant))
    {
        return Err(ManifestError::at(
            "tenant",
            "must be lower-case letters, digits and dashes",
        ));
    }
    if manifest.inputs.len() > ARRAYS_MAX || manifest.outputs.len() > ARRAYS_MAX {
        return Err(ManifestError::at(
            "inputs",
            format!("more than {ARRAYS_MAX} inputs or outputs"),
        ));
    }
    if manifest.implementations.is_empty() {
        return Err(ManifestError::at(
            "implementations",
            "must have at least one",
        ));
    }
    arrays(manifest)?;
    // An array and a symbol of the same name would make arguments ambiguous.
    let arrays = manifest
        .inputs
        .iter()
        .filter(|input| !input.shape.is_empty())
        .map(|input| &input.name);
    let names: BTreeSet<&String> = arrays
        .chain(manifest.outputs.iter().map(|output| &output.name))
        .collect();
    symbols(manifest, &names)?;
    scratch(manifest, &names)
}

/// Inputs and outputs have names of their own.
fn arrays(manifest: &Manifest) -> Checked<()> {
    let mut seen = BTreeSet::new();
    let inputs = manifest
        .inputs
        .iter()
        .enumerate()
        .map(|(i, input)| (format!("inputs[{i}].name"), &input.name));
    let outputs = manifest
        .outputs
        .iter()
        .enumerate()
        .map(|(i, output)| (format!("outputs[{i}].name"), &output.name));
    for (entry, name) in inputs.chain(outputs) {
        variable_name(&entry, name)?;
        if !seen.insert(name) {
            return Err(ManifestError::at(
                entry,
                format!("'{name}' is the name of another input or output"),
            ));
        }
    }
    Ok(())
}

/// Dimensions and symbols do not have the name of an array.
fn symbols(manifest: &Manifest, arrays: &BTreeSet<&String>) -> Checked<()> {
    for (index, input) in manifest.inputs.iter().enumerate() {
        for (position, dimension) in input.shape.iter().enumerate() {
            let entry = format!("inputs[{index}].shape[{position}]");
            if arrays.contains(&dimension.0) {
                return Err(ManifestError::at(
                    entry,
                    format!("'{}' is an array, not a symbol", dimension.0),
                ));
            }
            if is_identifier(&dimension.0) {
                variable_name(&entry, &dimension.0)?;
            }
        }
    }
    for name in manifest.symbols.keys() {
        let entry = format!("symbols.{name}");
        variable_name(&entry, name)?;
        if arrays.contains(name) {
            return Err(ManifestError::at(
                entry,
                format!("'{name}' is an array, not a symbol"),
            ));
        }
    }
    Ok(())
}

/// Scratch buffers have names of their own.
fn scratch(manifest: &Manifest, arrays: &BTreeSet<&String>) -> Checked<()> {
    for (index, implementation) in manifest.implementations.iter().enumerate() {
        let Implementation::Opencl(opencl) = implementation else {
            continue;
        };
        let mut seen = BTreeSet::new();
        for (position, scratch) in opencl.scratch.iter().enumerate() {
            let entry = format!("implementations[{index}].opencl.scratch[{position}].name");
            variable_name(&entry, &scratch.name)?;
            if arrays.contains(&scratch.name) || !seen.insert(&scratch.name) {
                return Err(ManifestError::at(
                    entry,
                    format!("'{}' is the name of another array", scratch.name),
                ));
            }
        }
    }
    Ok(())
}

fn variable_name(entry: &str, name: &str) -> Checked<()> {
    if !is_identifier(name) {
        return Err(ManifestError::at(
            entry,
            format!("'{name}' must be letters, digits and underscores, no digit first"),
        ));
    }
    if WORDS.contains(&name) || name == "local" || Type::from_name(name).is_some() {
        return Err(ManifestError::at(
            entry,
            format!("'{name}' is a reserved word of expressions and arguments"),
        ));
    }
    Ok(())
}

fn is_function_name(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = name.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|c| plain(*c) || *c == b'-')
        && plain(bytes[0])
        && plain(bytes[bytes.len() - 1])
}
