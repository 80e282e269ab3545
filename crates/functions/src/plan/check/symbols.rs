//! Checks of symbols: their sources and bounds, and the batching dimension.

use super::{names, Checked, ARRAYS_MAX};
use crate::error::ManifestError;
use crate::expression::Expression;
use crate::manifest::{Manifest, Source};
use crate::plan::{Plan, Variable};

/// Collects symbols of inputs' shapes, integer inputs, entries of `symbols`, and the batching
/// dimension.
pub(super) fn variables(manifest: &Manifest) -> Checked<Vec<Variable>> {
    let mut variables: Vec<Variable> = Vec::new();
    let mut add = |name: &str| {
        if variables.iter().all(|variable| variable.name != name) {
            let bounds = manifest.symbols.get(name);
            variables.push(Variable {
                name: name.to_owned(),
                min: bounds.map_or(0, |bounds| bounds.min.into()),
                max: bounds.map_or(u32::MAX.into(), |bounds| bounds.max.into()),
                default: bounds.and_then(|bounds| bounds.default).map(i128::from),
                input: None,
            });
        }
    };
    for input in manifest
        .inputs
        .iter()
        .filter(|input| input.from != Source::Constant)
    {
        input
            .shape
            .iter()
            .filter(|dimension| names::is_identifier(&dimension.0))
            .for_each(|dimension| add(&dimension.0));
    }
    manifest.symbols.keys().for_each(|name| add(name));
    if let Some(name) = manifest
        .batching
        .as_ref()
        .and_then(|batching| batching.dimension.as_ref())
    {
        add(name);
    }
    for (name, bounds) in &manifest.symbols {
        let inside = bounds
            .default
            .is_none_or(|default| (bounds.min..=bounds.max).contains(&default));
        if bounds.min > bounds.max || !inside {
            return Err(ManifestError::at(
                format!("symbols.{name}"),
                "min, default and max must be in ascending order",
            ));
        }
    }
    for (index, input) in manifest.inputs.iter().enumerate() {
        let Some((least, most)) = input.kind.range().filter(|_| input.shape.is_empty()) else {
            continue;
        };
        match variables
            .iter_mut()
            .find(|variable| variable.name == input.name)
        {
            // The number and the dimension are the same variable.
            Some(variable) => variable.input = Some(index),
            None => variables.push(Variable {
                name: input.name.clone(),
                min: least,
                max: most,
                default: None,
                input: Some(index),
            }),
        }
    }
    if variables.len() > 2 * ARRAYS_MAX {
        return Err(ManifestError::at(
            "inputs",
            format!("more than {} symbols", 2 * ARRAYS_MAX),
        ));
    }
    Ok(variables)
}

impl Plan {
    /// The batching dimension must lead every array of the request and every output.
    pub(super) fn batching(&self, manifest: &Manifest) -> Checked<Option<usize>> {
        let Some(batching) = &manifest.batching else {
            return Ok(None);
        };
        if !(1..=4096).contains(&batching.max) {
            return Err(ManifestError::at(
                "batching.max",
                "must be between 1 and 4096",
            ));
        }
        if batching.wait_us > 1_000_000 {
            return Err(ManifestError::at(
                "batching.wait_us",
                "must be at most 1000000 (a second)",
            ));
        }
        let Some(name) = &batching.dimension else {
            return Ok(None);
        };
        let at = |reason: String| ManifestError::at("batching.dimension", reason);
        let variable = self
            .variable(name)
            .ok_or_else(|| at(format!("'{name}' is not a symbol")))?;
        if self.variables[variable].input.is_some() {
            return Err(at(format!(
                "'{name}' is an input: use a symbol for the batch"
            )));
        }
        let leads = |shape: &[Expression]| {
            let first = shape.first().and_then(|dimension| dimension.variable()) == Some(variable);
            first
                && shape[1..]
                    .iter()
                    .all(|dimension| dimension.variables().all(|v| v != variable))
        };
        let inputs = self
            .inputs
            .iter()
            .filter(|input| input.from != Source::Constant && !input.is_scalar());
        if let Some(input) = inputs.clone().find(|input| !leads(&input.shape)) {
            return Err(at(format!(
                "'{name}' must be the first dimension, and no other, of the input '{}'",
                input.name
            )));
        }
        if let Some(output) = self
            .outputs
            .iter()
            .find(|output| !leads(&output.shape) || output.length.is_some())
        {
            return Err(at(format!(
                "'{name}' must be the first dimension, and no other, of the output '{}'",
                output.name
            )));
        }
        Ok(Some(variable))
    }
}
