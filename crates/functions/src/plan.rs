//! The checked and compiled manifest: names are resolved, expressions parsed, arguments bound.

mod arguments;
mod check;
mod constants;
mod launch;

pub(crate) use constants::ConstantPlan;
pub(crate) use launch::Bound;

use crate::error::BindError;
use crate::expression::Expression;
use crate::manifest::{Codec, JsonForm, Source};
use crate::types::{Scalar, Type};
use http::{HeaderName, Method};
use std::sync::Arc;

/// A checked manifest.
#[derive(Debug)]
pub(crate) struct Plan {
    pub methods: Vec<Method>,
    pub allow: String,
    pub variables: Vec<Variable>,
    pub inputs: Vec<InputPlan>,
    pub outputs: Vec<OutputPlan>,
    pub constants: Vec<ConstantPlan>,
    /// The kind of each buffer of a call.
    pub buffers: Vec<BufferPlan>,
    pub implementations: Vec<ImplementationPlan>,
    /// Indices of the inputs from the body, in order.
    pub body: Vec<usize>,
    /// Codecs for the body: those that all of its inputs support.
    pub body_codecs: Vec<Codec>,
    /// Codecs for the response: those that all shown outputs support.
    pub answer_codecs: Vec<Codec>,
    /// The batching dimension's variable.
    pub batch: Option<usize>,
    pub body_bytes: u64,
    pub memory_bytes: u64,
}

/// A variable of expressions.
#[derive(Debug)]
pub(crate) struct Variable {
    pub name: String,
    pub min: i128,
    pub max: i128,
    pub default: Option<i128>,
    /// The integer input of the same name.
    pub input: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct InputPlan {
    pub name: String,
    pub kind: Type,
    /// Each dimension is a number or one variable.
    pub shape: Vec<Expression>,
    pub from: Source,
    pub header: Option<HeaderName>,
    pub json: JsonForm,
    /// The default of a scalar.
    pub default: Option<Scalar>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// The expressions' variable of an integer.
    pub variable: Option<usize>,
    /// The buffer of an array.
    pub buffer: Option<usize>,
}

impl InputPlan {
    /// Whether it is a scalar.
    pub fn is_scalar(&self) -> bool {
        self.shape.is_empty()
    }
}

#[derive(Debug)]
pub(crate) struct OutputPlan {
    pub name: String,
    pub kind: Type,
    pub shape: Vec<Expression>,
    pub json: JsonForm,
    /// The output with the actual size of the first dimension.
    pub length: Option<usize>,
    /// Whether it is the length of another output, and therefore not sent.
    pub hidden: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum BufferPlan {
    Input(usize),
    InOut(usize, usize),
    Constant(usize),
    Output(usize),
}

#[derive(Debug, Default)]
pub(crate) struct ImplementationPlan {
    pub scratch: Vec<ScratchPlan>,
    pub steps: Vec<StepPlan>,
}

#[derive(Debug)]
pub(crate) struct ScratchPlan {
    pub name: String,
    pub kind: Type,
    pub shape: Vec<Expression>,
}

#[derive(Debug)]
pub(crate) struct StepPlan {
    pub kernel: Arc<str>,
    pub arguments: Vec<ArgumentPlan>,
    /// Work-items, in 1 to 3 dimensions.
    pub global: Vec<Expression>,
    /// Work-items per group, in as many dimensions; empty: the driver chooses.
    pub local: Vec<Expression>,
}

#[derive(Debug)]
pub(crate) enum ArgumentPlan {
    Buffer(usize),
    Scratch(usize),
    /// The index of an input.
    Input(usize),
    Fixed(Scalar),
    Computed(Type, Expression),
    Local(Expression),
}

impl Plan {
    /// Resolves a variable's name.
    pub fn variable(&self, name: &str) -> Option<usize> {
        self.variables
            .iter()
            .position(|variable| variable.name == name)
    }

    /// Shape and size of an array whose variables all have values. `what` is its name for messages.
    pub fn shape(
        &self,
        what: &str,
        kind: Type,
        shape: &[Expression],
        values: &[i128],
    ) -> Result<(Vec<u64>, u64), BindError> {
        let mut dimensions = Vec::with_capacity(shape.len());
        let mut bytes = kind.size();
        for dimension in shape {
            let size = self.size(what, dimension, values)?;
            dimensions.push(size);
            bytes = bytes.saturating_mul(size);
        }
        if bytes > self.memory_bytes {
            let limit = self.memory_bytes;
            return Err(BindError::TooLarge(format!(
                "{what} would take {bytes} bytes; the function may use {limit}"
            )));
        }
        Ok((dimensions, bytes))
    }

    /// The value of a size whose variables all have values.
    pub fn size(
        &self,
        what: &str,
        expression: &Expression,
        values: &[i128],
    ) -> Result<u64, BindError> {
        let text = &expression.text;
        match expression.value(&|index| values.get(index).copied()) {
            Ok(Some(value)) => u64::try_from(value).map_err(|_| {
                BindError::Unprocessable(format!("{what}: {text} is {value}, not a valid size"))
            }),
            Ok(None) => Err(BindError::Unprocessable(format!(
                "{what}: {text} has no value"
            ))),
            Err(reason) => Err(BindError::Unprocessable(format!(
                "{what}: {text} is {reason}"
            ))),
        }
    }
}
