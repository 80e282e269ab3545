//! Binding: converts a request to a [`Call`].

mod body;
mod query;
mod text;

use crate::call::{Body, Call};
use crate::codec::picture;
use crate::error::BindError;
use crate::expression::Expression;
use crate::manifest::{Codec, Source};
use crate::plan::{Bound, Plan};
use crate::request::Request;
use crate::types::Scalar;
use std::sync::Arc;

pub(crate) use query::shown;

type Bind<T> = Result<T, BindError>;

/// A partially bound request.
pub(crate) struct Binding<'p> {
    pub plan: &'p Plan,
    /// Values by variable.
    pub values: Vec<Option<i128>>,
    /// Scalars by input.
    scalars: Vec<Option<Scalar>>,
    /// Bodies by input.
    bodies: Vec<Option<Body>>,
}

/// Binds an HTTP request.
pub(crate) fn request(plan: &Arc<Plan>, request: &Request<'_>, body: Body) -> Bind<Call> {
    if !plan.methods.contains(request.method) {
        return Err(BindError::MethodNotAllowed {
            allow: plan.allow.clone(),
        });
    }
    if body.len() > plan.body_bytes {
        let (length, limit) = (body.len(), plan.body_bytes);
        return Err(BindError::TooLarge(format!(
            "the body has {length} bytes; the function accepts at most {limit}"
        )));
    }
    let mut binding = Binding::new(plan);
    binding.path(request.path)?;
    binding.query(request.query)?;
    binding.headers(request)?;
    binding.body(request, body)?;
    plan.launch(binding.finish()?)
}

/// Memory needed for unpacking a body, in addition to the body.
pub(crate) fn unpacked_bytes(plan: &Plan, request: &Request<'_>, body: &Body) -> u64 {
    if plan.body_codecs == [Codec::Raw] || body.is_empty() {
        return 0;
    }
    let binding = Binding::new(plan);
    let content_type = body::content_type(request).ok().flatten();
    let Ok(codec) = binding.codec(content_type.as_deref(), body) else {
        return 0;
    };
    let length = body.len();
    match codec {
        Codec::Raw | Codec::Npy => 0,
        // A copy in one piece, and one with special floats quoted. The shortest element is "0,",
        // which becomes up to 8 bytes in a list that grows by doubling.
        Codec::Json => {
            let elements = length.saturating_mul(8);
            let elements = elements.min(plan.body_bytes.saturating_mul(2));
            elements.saturating_add(length.saturating_mul(3))
        }
        Codec::Png | Codec::Jpeg => {
            let pixels = picture::pixel_bytes(codec, &body.to_bytes());
            // The decoded pixels, their conversion, and the little-endian bytes.
            let pixels = pixels.min(plan.body_bytes).saturating_mul(4);
            pixels.saturating_add(length)
        }
    }
}

impl<'p> Binding<'p> {
    pub(crate) fn new(plan: &'p Plan) -> Binding<'p> {
        Binding {
            plan,
            values: vec![None; plan.variables.len()],
            scalars: vec![None; plan.inputs.len()],
            bodies: vec![None; plan.inputs.len()],
        }
    }

    /// Sets a variable's value; all sources must agree on it.
    pub(crate) fn set_variable(&mut self, variable: usize, value: i128, what: &str) -> Bind<()> {
        let about = &self.plan.variables[variable];
        let name = &about.name;
        if value < about.min || value > about.max {
            let (min, max) = (about.min, about.max);
            return Err(BindError::Unprocessable(format!(
                "{what}: '{name}' is {value}, must be {min} to {max}"
            )));
        }
        match self.values[variable].replace(value) {
            Some(before) if before != value => Err(BindError::Unprocessable(format!(
                "{what}: '{name}' is {value} here and {before} elsewhere"
            ))),
            _ => Ok(()),
        }
    }

    /// Sets a scalar's value.
    pub(crate) fn set_scalar(&mut self, input: usize, scalar: Scalar) -> Bind<()> {
        let plan = &self.plan.inputs[input];
        let name = &plan.name;
        let float = match scalar {
            Scalar::F32(v) => f64::from(v),
            Scalar::F64(v) => v,
            whole => whole.integer().unwrap_or_default() as f64,
        };
        // Written so that NaN is outside all bounds.
        let low = plan.min.is_none_or(|min| float >= min);
        let high = plan.max.is_none_or(|max| float <= max);
        if !low || !high {
            let min = plan
                .min
                .map_or(String::new(), |min| format!(", at least {min}"));
            let max = plan
                .max
                .map_or(String::new(), |max| format!(", at most {max}"));
            return Err(BindError::Unprocessable(format!(
                "'{name}' is {float}, must be a number{min}{max}"
            )));
        }
        if let (Some(variable), Some(value)) = (plan.variable, scalar.integer()) {
            self.set_variable(variable, value, name)?;
        }
        self.scalars[input] = Some(scalar);
        Ok(())
    }

    /// Sets an array of a known shape. A leading batch dimension of 1 may be omitted.
    pub(crate) fn set_array(&mut self, input: usize, shape: &[u64], body: Body) -> Bind<()> {
        let plan = &self.plan.inputs[input];
        let name = &plan.name;
        if plan.is_scalar() {
            let one = shape.iter().all(|size| *size == 1);
            let scalar = one
                .then(|| Scalar::from_bytes(plan.kind, &body.to_bytes()))
                .flatten();
            return match scalar {
                Some(scalar) => self.set_scalar(input, scalar),
                None => Err(BindError::Unprocessable(format!(
                    "'{name}' is one {}, not an array",
                    plan.kind
                ))),
            };
        }
        let mut wanted = plan.shape.as_slice();
        let leads = |dimension: &Expression| {
            self.plan.batch.is_some() && dimension.variable() == self.plan.batch
        };
        if wanted.len() == shape.len() + 1 && leads(&wanted[0]) {
            self.set_variable(self.plan.batch.unwrap_or_default(), 1, name)?;
            wanted = &wanted[1..];
        }
        if wanted.len() != shape.len() {
            let reason = format!(
                "'{name}' has the shape {shape:?}, must have {}",
                describe(&plan.shape)
            );
            return Err(BindError::Unprocessable(reason));
        }
        for (dimension, size) in wanted.iter().zip(shape) {
            let size = i128::from(*size);
            match (dimension.variable(), dimension.constant()) {
                (Some(variable), _) => self.set_variable(variable, size, &format!("'{name}'"))?,
                (None, Some(constant)) if constant == size => {}
                _ => {
                    let reason = format!(
                        "'{name}' has the shape {shape:?}, must have {}",
                        describe(&plan.shape)
                    );
                    return Err(BindError::Unprocessable(reason));
                }
            }
        }
        self.bodies[input] = Some(body);
        Ok(())
    }

    /// Derives values from shapes and defaults, and checks that none is missing.
    pub(crate) fn finish(mut self) -> Bind<Bound> {
        let plan = self.plan;
        for (index, input) in plan
            .inputs
            .iter()
            .enumerate()
            .filter(|(_, input)| input.is_scalar())
        {
            if self.scalars[index].is_some() {
                continue;
            }
            let known = input.variable.and_then(|variable| self.values[variable]);
            let scalar = match known {
                Some(value) => Some(Scalar::from_integer(input.kind, value).ok_or_else(|| {
                    BindError::Unprocessable(format!(
                        "'{}' is {value}, not a valid {}",
                        input.name, input.kind
                    ))
                })?),
                None => input.default,
            };
            match scalar {
                Some(scalar) => self.set_scalar(index, scalar)?,
                None => return Err(missing(input.from, &input.name)),
            }
        }
        for (index, input) in plan.inputs.iter().enumerate() {
            if input.from != Source::Constant && !input.is_scalar() && self.bodies[index].is_none()
            {
                return Err(missing(input.from, &input.name));
            }
        }
        for (index, variable) in plan.variables.iter().enumerate() {
            if self.values[index].is_none() {
                let value = variable
                    .default
                    .or((plan.batch == Some(index)).then_some(1));
                match value {
                    Some(value) => self.set_variable(index, value, "its default")?,
                    None => return Err(missing(Source::Query, &variable.name)),
                }
            }
        }
        let values = self
            .values
            .into_iter()
            .map(Option::unwrap_or_default)
            .collect();
        Ok(Bound {
            bodies: self.bodies,
            scalars: self.scalars,
            values,
        })
    }
}

/// A shape in the manifest's notation.
pub(crate) fn describe(shape: &[Expression]) -> String {
    let dimensions: Vec<&str> = shape.iter().map(|dimension| &*dimension.text).collect();
    format!("[{}]", dimensions.join(", "))
}

fn missing(from: Source, name: &str) -> BindError {
    let place = match from {
        Source::Header => "header",
        Source::Body => "part of the body",
        _ => "parameter",
    };
    BindError::BadRequest(format!("the {place} '{name}' is missing"))
}

#[cfg(test)]
mod tests;
