//! The Open Inference Protocol's view of a function: named tensors.

use crate::answer;
use crate::bind::Binding;
use crate::call::{Body, Call};
use crate::codec::json;
use crate::error::BindError;
use crate::expression::Expression;
use crate::function::Function;
use crate::manifest::{JsonForm, Source};
use crate::types::Type;
use bytes::Bytes;
use serde::Serialize;

/// A named array.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The input's or output's name.
    pub name: String,
    /// The type of an element.
    pub kind: Type,
    /// Row major; `[1]` for a scalar.
    pub shape: Vec<u64>,
    /// Little endian elements, row major.
    pub data: Body,
}

impl Tensor {
    /// Parses elements from the protocol's JSON `data`: numbers, flat or nested. `limit` bounds
    /// their bytes.
    pub fn data_from_json(kind: Type, json: &[u8], limit: u64) -> Result<Body, BindError> {
        json::flat(json, kind, limit)
            .map(Body::from)
            .map_err(BindError::Unprocessable)
    }

    /// Upper bound of the length of the elements as JSON.
    pub fn json_bytes_max(&self) -> u64 {
        let count = self.data.len() / self.kind.size();
        json::bytes_max(self.kind, JsonForm::Array, &[count])
    }

    /// Appends the elements as the protocol's JSON `data`: a flat array.
    pub fn data_to_json(&self, out: &mut Vec<u8>) {
        let data = self.data.to_bytes();
        let count = data.len() as u64 / self.kind.size();
        // Only text can fail to be written, and this form writes numbers.
        let _ = json::write(out, self.kind, JsonForm::Array, &[count], &data);
    }
}

/// The response to `GET /v2/models/NAME`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metadata {
    /// The function's name.
    pub name: String,
    /// Its only version.
    pub versions: Vec<String>,
    /// Always `baltra`.
    pub platform: &'static str,
    /// Its inputs.
    pub inputs: Vec<TensorMetadata>,
    /// Its outputs.
    pub outputs: Vec<TensorMetadata>,
}

/// One input or output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorMetadata {
    /// Its name.
    pub name: String,
    /// The protocol's name of its type.
    pub datatype: &'static str,
    /// The shape; -1 for a size that depends on the call.
    pub shape: Vec<i64>,
}

fn describe(name: &str, kind: Type, shape: &[Expression], open: bool) -> TensorMetadata {
    let size = |expression: &Expression| {
        expression
            .constant()
            .and_then(|size| size.try_into().ok())
            .unwrap_or(-1)
    };
    let mut shape: Vec<i64> = if shape.is_empty() {
        vec![1]
    } else {
        shape.iter().map(size).collect()
    };
    if open {
        shape[0] = -1;
    }
    TensorMetadata {
        name: name.to_owned(),
        datatype: kind.datatype(),
        shape,
    }
}

impl Function {
    /// The function's inputs and outputs.
    pub fn metadata(&self) -> Metadata {
        let inputs = self
            .plan
            .inputs
            .iter()
            .filter(|input| input.from != Source::Constant);
        let outputs = self.plan.outputs.iter().filter(|output| !output.hidden);
        Metadata {
            name: self.manifest.name.clone(),
            versions: vec![self.manifest.version.clone()],
            platform: "baltra",
            inputs: inputs
                .map(|input| describe(&input.name, input.kind, &input.shape, false))
                .collect(),
            outputs: outputs
                .map(|o| describe(&o.name, o.kind, &o.shape, o.length.is_some()))
                .collect(),
        }
    }

    /// Binds named tensors. Missing ones must have defaults; unknown ones are rejected.
    pub fn bind_tensors(&self, tensors: Vec<Tensor>) -> Result<Call, BindError> {
        let plan = &self.plan;
        let total = tensors.iter().fold(0u64, |total, tensor| {
            total.saturating_add(tensor.data.len())
        });
        if total > plan.body_bytes {
            let limit = plan.body_bytes;
            return Err(BindError::TooLarge(format!(
                "the tensors have {total} bytes; the function accepts at most {limit}"
            )));
        }
        let mut binding = Binding::new(plan);
        let mut seen = vec![false; plan.inputs.len()];
        for tensor in tensors {
            let known = |input: &crate::plan::InputPlan| {
                input.name == tensor.name && input.from != Source::Constant
            };
            let Some(index) = plan.inputs.iter().position(known) else {
                let name = crate::bind::shown(&tensor.name);
                return Err(BindError::BadRequest(format!(
                    "the function has no input '{name}'"
                )));
            };
            let (name, kind) = (&plan.inputs[index].name, plan.inputs[index].kind);
            if std::mem::replace(&mut seen[index], true) {
                return Err(BindError::BadRequest(format!("duplicate input '{name}'")));
            }
            if tensor.kind != kind {
                let (got, wanted) = (tensor.kind.datatype(), kind.datatype());
                return Err(BindError::Unprocessable(format!(
                    "'{name}' is {got}, must be {wanted}"
                )));
            }
            let bytes = tensor
                .shape
                .iter()
                .try_fold(kind.size(), |bytes, size| bytes.checked_mul(*size));
            if bytes != Some(tensor.data.len()) {
                let (length, shape) = (tensor.data.len(), &tensor.shape);
                let reason =
                    format!("'{name}' has {length} bytes, which do not match {kind}{shape:?}");
                return Err(BindError::Unprocessable(reason));
            }
            binding.set_array(index, &tensor.shape, tensor.data)?;
        }
        plan.launch(binding.finish()?)
    }

    /// Names the outputs; `wanted` has the requested names in order, empty for all.
    pub fn answer_tensors(
        &self,
        call: &Call,
        outputs: Vec<Bytes>,
        wanted: &[&str],
    ) -> Result<Vec<Tensor>, BindError> {
        let shown = answer::shown(&self.plan, call, outputs)?;
        let tensor = |output: &answer::Shown| {
            let about = &self.plan.outputs[output.index];
            let shape = if output.shape.is_empty() {
                vec![1]
            } else {
                output.shape.clone()
            };
            Tensor {
                name: about.name.clone(),
                kind: about.kind,
                shape,
                data: Body::from_bytes(output.bytes.clone()),
            }
        };
        if wanted.is_empty() {
            return Ok(shown.iter().map(tensor).collect());
        }
        let find = |name: &&str| {
            let output = shown
                .iter()
                .find(|output| self.plan.outputs[output.index].name == *name);
            output.map(tensor).ok_or_else(|| {
                BindError::BadRequest(format!(
                    "the function has no output '{}'",
                    crate::bind::shown(name)
                ))
            })
        };
        wanted.iter().map(find).collect()
    }
}
