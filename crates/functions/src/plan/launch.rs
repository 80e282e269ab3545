//! Converts values to a call: shapes, sizes and arguments of every implementation.

use super::{ArgumentPlan, BufferPlan, Plan, StepPlan};
use crate::call::{Argument, Body, Buffer, Call, Launch, OutputShape, Step};
use crate::error::BindError;
use crate::expression::Expression;
use crate::types::Scalar;
use std::sync::Arc;

/// Checked values of a request.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Bodies by input; `None` for numbers and constants.
    pub bodies: Vec<Option<Body>>,
    /// Scalars by input; `None` for arrays.
    pub scalars: Vec<Option<Scalar>>,
    /// Values by variable.
    pub values: Vec<i128>,
}

impl Plan {
    /// The call for bound values.
    pub fn launch(self: &Arc<Plan>, mut bound: Bound) -> Result<Call, BindError> {
        let values = &bound.values;
        let mut memory = 0u64;
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for output in &self.outputs {
            let (shape, bytes) = self.shape(&output.name, output.kind, &output.shape, values)?;
            memory = memory.saturating_add(bytes);
            outputs.push(OutputShape {
                bytes,
                kind: output.kind,
                shape,
            });
        }
        let mut buffers = Vec::with_capacity(self.buffers.len());
        for buffer in &self.buffers {
            buffers.push(match *buffer {
                BufferPlan::Output(output) => Buffer::Output(output),
                BufferPlan::Constant(constant) => Buffer::Constant(constant),
                BufferPlan::Input(input) | BufferPlan::InOut(input, _) => {
                    let plan = &self.inputs[input];
                    let (_, bytes) = self.shape(&plan.name, plan.kind, &plan.shape, values)?;
                    memory = memory.saturating_add(bytes);
                    let body = bound.bodies[input].take().unwrap_or_default();
                    if body.len() != bytes {
                        let (name, length) = (&plan.name, body.len());
                        return Err(BindError::Unprocessable(format!(
                            "'{name}' has {length} bytes; its shape has {bytes}"
                        )));
                    }
                    match *buffer {
                        BufferPlan::InOut(_, output) => Buffer::InOut(body, output),
                        _ => Buffer::Input(body),
                    }
                }
            });
        }
        let mut launches = Vec::with_capacity(self.implementations.len());
        for implementation in &self.implementations {
            let mut launch = Launch {
                steps: Vec::with_capacity(implementation.steps.len()),
                scratch: Vec::new(),
            };
            let mut memory = memory;
            for scratch in &implementation.scratch {
                let (_, bytes) = self.shape(&scratch.name, scratch.kind, &scratch.shape, values)?;
                memory = memory.saturating_add(bytes);
                launch.scratch.push(bytes);
            }
            if memory > self.memory_bytes {
                let limit = self.memory_bytes;
                return Err(BindError::TooLarge(format!(
                    "the call needs {memory} bytes; the function may use {limit}"
                )));
            }
            for step in &implementation.steps {
                launch.steps.push(self.step(step, &bound)?);
            }
            launches.push(launch);
        }
        let Bound {
            scalars, values, ..
        } = bound;
        Ok(Call {
            buffers,
            launches,
            outputs,
            items: 1,
            parts: Vec::new(),
            values,
            scalars,
            plan: self.clone(),
        })
    }

    fn step(&self, step: &StepPlan, bound: &Bound) -> Result<Step, BindError> {
        let what = &step.kernel;
        let mut arguments = Vec::with_capacity(step.arguments.len());
        for argument in &step.arguments {
            arguments.push(match argument {
                ArgumentPlan::Buffer(index) => Argument::Buffer(*index),
                ArgumentPlan::Scratch(index) => Argument::Scratch(*index),
                ArgumentPlan::Fixed(scalar) => Argument::Scalar(*scalar),
                ArgumentPlan::Input(index) => match bound.scalars[*index] {
                    Some(scalar) => Argument::Scalar(scalar),
                    None => {
                        return Err(BindError::BadRequest(format!(
                            "'{}' is missing",
                            self.inputs[*index].name
                        )))
                    }
                },
                ArgumentPlan::Computed(kind, expression) => {
                    let value = self.computed(what, expression, &bound.values)?;
                    let scalar = Scalar::from_integer(*kind, value).ok_or_else(|| {
                        BindError::Unprocessable(format!(
                            "{what}: {} is {value}, not a valid {kind}",
                            expression.text
                        ))
                    })?;
                    Argument::Scalar(scalar)
                }
                ArgumentPlan::Local(expression) => {
                    Argument::Local(self.size(what, expression, &bound.values)?)
                }
            });
        }
        let sizes = |expressions: &[Expression]| {
            let mut sizes = [1; 3];
            for (size, expression) in sizes.iter_mut().zip(expressions) {
                *size = self.size(what, expression, &bound.values)?;
            }
            Ok(sizes)
        };
        let global: [u64; 3] = sizes(&step.global)?;
        let local = if step.local.is_empty() {
            None
        } else {
            Some(sizes(&step.local)?)
        };
        if let Some(local) = local {
            if let Some(axis) =
                (0..3).find(|axis| local[*axis] == 0 || !global[*axis].is_multiple_of(local[*axis]))
            {
                let (global, local) = (global[axis], local[axis]);
                let reason = format!("{what}: {global} work-items are not a multiple of the group's {local}: use align()");
                return Err(BindError::Unprocessable(reason));
            }
        }
        Ok(Step {
            kernel: step.kernel.clone(),
            arguments,
            global,
            local,
            dimensions: step.global.len() as u8,
        })
    }

    /// The value of an integer expression, of any sign.
    fn computed(
        &self,
        what: &str,
        expression: &Expression,
        values: &[i128],
    ) -> Result<i128, BindError> {
        let text = &expression.text;
        match expression.value(&|index| values.get(index).copied()) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(BindError::Unprocessable(format!(
                "{what}: {text} has no value"
            ))),
            Err(reason) => Err(BindError::Unprocessable(format!(
                "{what}: {text} is {reason}"
            ))),
        }
    }
}
