//! The manifest, checked and compiled: names resolved, expressions parsed, arguments bound.

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
    /// What each buffer of a call is.
    pub buffers: Vec<BufferPlan>,
    pub implementations: Vec<ImplementationPlan>,
    /// Inputs from the body, in order.
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
    /// The whole-number input of the same name.
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
    /// Numbers only.
    pub default: Option<Scalar>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// Whole numbers only: what expressions call it.
    pub variable: Option<usize>,
    /// Arrays only.
    pub buffer: Option<usize>,
}

impl InputPlan {
    /// Whether it is one number.
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
    /// The output that holds the first dimension's real size.
    pub length: Option<usize>,
    /// Whether it is the length of another output, and not sent.
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
    /// 1 to 3.
    pub global: Vec<Expression>,
    /// As many, or none.
    pub local: Vec<Expression>,
}

#[derive(Debug)]
pub(crate) enum ArgumentPlan {
    Buffer(usize),
    Scratch(usize),
    /// The number of an input.
    Input(usize),
    Fixed(Scalar),
    Computed(Type, Expression),
    Local(Expression),
}

impl Plan {
    /// The variable of a name.
    pub fn variable(&self, name: &str) -> Option<usize> {
        self.variables
            .iter()
            .position(|variable| variable.name == name)
    }

    /// Shape and bytes of an array whose variables all have values. `what` names it in messages.
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

    /// A size whose variables all have values.
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
