//! Checks of the manifest, entry by entry. Each error names its entry, from which its line is
//! determined.

mod fields;
mod implementations;
mod names;
mod symbols;

use super::constants::{number, Taken};
use super::{BufferPlan, InputPlan, OutputPlan, Plan};
use crate::error::ManifestError;
use crate::expression::Expression;
use crate::files::Files;
use crate::manifest::{Constant, Dimension, Input, JsonForm, Manifest, Output, Source};
use crate::types::Type;
use fields::{header, input_codecs, input_source, limits, methods, output_codecs, scale};
use symbols::variables;

/// Most dimensions of an array.
const DIMENSIONS_MAX: usize = 8;
/// Most inputs, and most outputs, of a function.
const ARRAYS_MAX: usize = 64;

type Checked<T> = Result<T, ManifestError>;

impl Plan {
    /// Checks a manifest and reads the files that it names.
    pub(crate) fn compile(manifest: &Manifest, files: &mut Files) -> Checked<Plan> {
        names::check(manifest)?;
        let (methods, allow) = methods(&manifest.methods)?;
        let mut plan = Plan {
            methods,
            allow,
            variables: variables(manifest)?,
            inputs: Vec::new(),
            outputs: Vec::new(),
            constants: Vec::new(),
            buffers: Vec::new(),
            implementations: Vec::new(),
            body: Vec::new(),
            body_codecs: Vec::new(),
            answer_codecs: Vec::new(),
            batch: None,
            body_bytes: manifest.limits.body_bytes.0,
            memory_bytes: manifest.limits.memory_bytes.0,
        };
        plan.add_inputs(&manifest.inputs, files)?;
        plan.add_outputs(&manifest.outputs)?;
        plan.batch = plan.batching(manifest)?;
        plan.add_implementations(manifest, files)?;
        limits(manifest)?;
        scale(manifest)?;
        Ok(plan)
    }

    fn add_inputs(&mut self, inputs: &[Input], files: &mut Files) -> Checked<()> {
        let mut taken = Taken::default();
        for (index, input) in inputs.iter().enumerate() {
            let entry = format!("inputs[{index}]");
            let at =
                |field: &str, reason: String| ManifestError::at(format!("{entry}.{field}"), reason);
            let shape = self.shape_of(&input.shape, &format!("{entry}.shape"))?;
            for (position, (dimension, text)) in shape.iter().zip(&input.shape).enumerate() {
                if dimension.constant().is_none() && dimension.variable().is_none() {
                    let reason = format!(
                        "'{}' must be a number or a symbol: only outputs have expressions",
                        text.0
                    );
                    return Err(ManifestError::at(
                        format!("{entry}.shape[{position}]"),
                        reason,
                    ));
                }
            }
            input_source(input, &entry)?;
            let scalar = shape.is_empty();
            let mut plan = InputPlan {
                name: input.name.clone(),
                kind: input.kind,
                from: input.from,
                header: header(input).map_err(|reason| at("header", reason))?,
                json: input.json,
                default: input
                    .default
                    .map(|value| number(input.kind, value))
                    .transpose()
                    .map_err(|r| at("default", r))?,
                min: input.min,
                max: input.max,
                variable: (scalar && input.kind.is_integer())
                    .then(|| self.variable(&input.name))
                    .flatten(),
                buffer: None,
                shape,
            };
            match &input.constant {
                Some(Constant::Value(value)) if scalar => {
                    plan.default =
                        Some(number(input.kind, *value).map_err(|reason| at("constant", reason))?);
                }
                Some(constant) => {
                    let fixed: Option<Vec<u64>> = plan
                        .shape
                        .iter()
                        .map(|d| d.constant().and_then(|size| size.try_into().ok()))
                        .collect();
                    let fixed = fixed.filter(|shape| !shape.is_empty());
                    let sizes = fixed.ok_or_else(|| {
                        at("shape", "a constant array's dimensions are numbers".into())
                    })?;
                    let constant = taken
                        .array(constant, input.kind, &sizes, files)
                        .map_err(|r| at("constant", r))?;
                    plan.buffer = Some(self.add_buffer(BufferPlan::Constant(self.constants.len())));
                    self.constants.push(constant);
                }
                None if !scalar => plan.buffer = Some(self.add_buffer(BufferPlan::Input(index))),
                None => {}
            }
            if input.from == Source::Body {
                let codecs = input_codecs(input, &entry)?;
                if self.body.is_empty() {
                    self.body_codecs = codecs;
                } else {
                    // Several pictures in one body have no common format.
                    self.body_codecs
                        .retain(|codec| codecs.contains(codec) && !codec.is_picture());
                }
                self.body.push(index);
                if self.body_codecs.is_empty() {
                    return Err(at(
                        "codecs",
                        "the inputs from the body have no common codec".into(),
                    ));
                }
            }
            self.inputs.push(plan);
        }
        Ok(())
    }

    fn add_outputs(&mut self, outputs: &[Output]) -> Checked<()> {
        for (index, output) in outputs.iter().enumerate() {
            let entry = format!("outputs[{index}]");
            let at =
                |field: &str, reason: String| ManifestError::at(format!("{entry}.{field}"), reason);
            let shape = self.shape_of(&output.shape, &format!("{entry}.shape"))?;
            if let Some(name) = &output.inout {
                let input = self.inputs.iter().position(|input| input.name == *name);
                let buffer =
                    input.and_then(|input| self.inputs[input].buffer.map(|buffer| (input, buffer)));
                let (input, buffer) = buffer
                    .filter(|(_, buffer)| matches!(self.buffers[*buffer], BufferPlan::Input(_)))
                    .ok_or_else(|| at("inout", format!("'{name}' is not an array from the request, or is used by another output")))?;
                let same =
                    self.inputs[input].kind == output.kind && self.inputs[input].shape == shape;
                if !same {
                    return Err(at(
                        "inout",
                        format!("type and shape must be those of the input '{name}'"),
                    ));
                }
                self.buffers[buffer] = BufferPlan::InOut(input, index);
            } else {
                self.add_buffer(BufferPlan::Output(index));
            }
            if output.json != JsonForm::Array && output.kind != Type::U8 {
                return Err(at("json", "hex and text are for arrays of u8".into()));
            }
            self.outputs.push(OutputPlan {
                name: output.name.clone(),
                kind: output.kind,
                shape,
                json: output.json,
                length: None,
                hidden: false,
            });
        }
        for (index, output) in outputs.iter().enumerate() {
            let Some(name) = &output.length else { continue };
            let at = |reason: &str| ManifestError::at(format!("outputs[{index}].length"), reason);
            let length = outputs
                .iter()
                .position(|o| o.name == *name)
                .ok_or_else(|| at("unknown output"))?;
            let suits = matches!(outputs[length].kind, Type::U32 | Type::U64)
                && outputs[length].shape.is_empty()
                && outputs[length].inout.is_none();
            if !suits || length == index || outputs[index].shape.is_empty() {
                return Err(at(
                    "a length must be an output of one u32 or u64, and its array an output with a shape",
                ));
            }
            self.outputs[index].length = Some(length);
            self.outputs[length].hidden = true;
        }
        let shown: Vec<usize> = (0..outputs.len())
            .filter(|index| !self.outputs[*index].hidden)
            .collect();
        for index in &shown {
            let codecs = output_codecs(&outputs[*index], &format!("outputs[{index}]"))?;
            if *index == shown[0] {
                self.answer_codecs = codecs;
            } else {
                self.answer_codecs.retain(|codec| codecs.contains(codec));
            }
        }
        if shown.len() > 1 {
            self.answer_codecs.retain(|codec| !codec.is_picture());
            if self.answer_codecs.is_empty() {
                return Err(ManifestError::at(
                    "outputs",
                    "the outputs have no common codec (raw, json, npy)",
                ));
            }
        }
        Ok(())
    }

    fn add_buffer(&mut self, buffer: BufferPlan) -> usize {
        self.buffers.push(buffer);
        self.buffers.len() - 1
    }

    fn shape_of(&self, shape: &[Dimension], entry: &str) -> Checked<Vec<Expression>> {
        if shape.len() > DIMENSIONS_MAX {
            return Err(ManifestError::at(
                entry,
                format!("more than {DIMENSIONS_MAX} dimensions"),
            ));
        }
        self.expressions(shape, entry)
    }

    fn expressions(&self, texts: &[Dimension], entry: &str) -> Checked<Vec<Expression>> {
        let parse = |(index, text): (usize, &Dimension)| {
            let expression = Expression::parse(&text.0, &|name| self.variable(name));
            let expression = expression
                .map_err(|reason| ManifestError::at(format!("{entry}[{index}]"), reason))?;
            match expression.constant() {
                Some(value) if value < 0 => Err(ManifestError::at(
                    format!("{entry}[{index}]"),
                    format!("'{}' is negative", text.0),
                )),
                _ => Ok(expression),
            }
        };
        texts.iter().enumerate().map(parse).collect()
    }
}
