//! The Open Inference Protocol, version 2: a function is a model, its arrays are tensors.
//!
//! | module | what |
//! |---|---|
//! | [`http`] | paths |
//! | [`message`] | JSON and the binary tensor extension |
//! | [`grpc`] | the same over gRPC |
//! | [`memory`] | the system shared memory extension |

pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod memory;
pub(crate) mod message;

use crate::engine::{Timing, Trace};
use crate::http::call::{problem_of, Metered};
use crate::http::gateway::{blocking, Gateway};
use crate::http::keys::TenantIndex;
use crate::http::meters::Ending;
use crate::http::problem::Problem;
use crate::http::spans::{self, Called};
use crate::http::table::Deployed;
use ::http::{HeaderMap, StatusCode};
use baltra_functions::{Body, Call, Tensor, Type};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the server can, as its metadata lists it.
pub(crate) const EXTENSIONS: [&str; 3] = [
    "binary_tensor_data",
    "system_shared_memory",
    "model_repository",
];

/// What the server calls itself.
pub(crate) const SERVER_NAME: &str = "baltra";

/// Tensors in one request.
const TENSORS_MAX: usize = 256;

/// Bytes in a region of shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub region: String,
    pub offset: u64,
    pub bytes: u64,
}

/// An input before its elements are looked at.
#[derive(Debug)]
pub(crate) struct Input {
    pub name: String,
    pub kind: Type,
    pub shape: Vec<u64>,
    pub data: Data,
}

/// Where an input's elements are.
#[derive(Debug)]
pub(crate) enum Data {
    Bytes(Body),
    Shared(Span),
}

/// An output that is asked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub name: String,
    pub shared: Option<Span>,
}

/// One inference, whichever way it came.
#[derive(Debug)]
pub(crate) struct Inference {
    pub inputs: Vec<Input>,
    /// Empty: all.
    pub wanted: Vec<Wanted>,
}

/// The function of a model's name and version, and who asks for it.
pub(crate) fn model(
    gateway: &Gateway,
    headers: &HeaderMap,
    name: &str,
    version: &str,
) -> Result<(Arc<Deployed>, TenantIndex), Problem> {
    let caller = gateway.keys.caller(headers)?;
    let found = gateway.table.find(name);
    let deployed = found.ok_or_else(|| Problem::unknown_function(name))?;
    let own = &deployed.function.manifest.version;
    if !version.is_empty() && version != own {
        let detail = format!("'{}' has one version, '{own}'", deployed.name());
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    }
    Ok((deployed, caller))
}

/// The elements' type of a protocol's name.
pub(crate) fn kind(input: &str, datatype: &str) -> Result<Type, Problem> {
    Type::from_datatype(datatype).ok_or_else(|| {
        let names: Vec<&str> = Type::ALL.iter().map(|t| t.datatype()).collect();
        let datatype: String = datatype.chars().take(32).collect();
        Problem::bad_request(format!(
            "input '{input}': the datatype '{datatype}' is not one of {}",
            names.join(", ")
        ))
    })
}

/// A shape as it came: no dimension is negative, and the bytes can be counted.
pub(crate) fn shape(input: &str, kind: Type, shape: &[i64]) -> Result<(Vec<u64>, u64), Problem> {
    let wrong =
        || Problem::bad_request(format!("input '{input}': the shape {shape:?} is no shape"));
    if shape.len() > 16 {
        return Err(Problem::bad_request(format!(
            "input '{input}' has more than 16 dimensions"
        )));
    }
    let dimensions = shape.iter().map(|d| u64::try_from(*d).map_err(|_| wrong()));
    let dimensions = dimensions.collect::<Result<Vec<u64>, Problem>>()?;
    let bytes = dimensions
        .iter()
        .try_fold(kind.size(), |all, d| all.checked_mul(*d))
        .ok_or_else(wrong)?;
    Ok((dimensions, bytes))
}

impl Gateway {
    /// Carries one inference out; outputs in the order in which they were wanted. Those that go
    /// to shared memory lie there already.
    pub(crate) async fn infer(
        self: &Arc<Self>,
        deployed: &Arc<Deployed>,
        caller: TenantIndex,
        inference: Inference,
        trace: &Trace,
    ) -> Result<(Vec<Tensor>, Timing), Problem> {
        self.keys.admit(caller)?;
        let _slot = self.slot()?;
        let began = Instant::now();
        let meter = deployed.meter(caller, &self.keys, &self.meters);
        let bytes_in = inference.inputs.iter().map(|i| match &i.data {
            Data::Bytes(body) => body.len(),
            Data::Shared(span) => span.bytes,
        });
        let mut metered = Metered::begin(meter, began, bytes_in.sum());
        let result = self
            .infer_bound(deployed, caller, inference, trace, began)
            .await;
        match &result {
            Ok((tensors, timing)) => {
                metered.timing = *timing;
                metered.bytes_out = tensors.iter().map(|t| t.data.len()).sum();
                metered.ending = Ending::Done;
            }
            Err(problem) => {
                metered.ending = Ending::of(problem.status);
            }
        }
        let timing = metered.timing;
        let now = metered.end();
        let problem = result.as_ref().err();
        spans::tell(
            &self.spans,
            &Called {
                trace,
                function: deployed.name(),
                tenant: self.keys.name(caller),
                began,
                ended: now,
                timing,
                status: problem.map_or(200, |problem| problem.status.as_u16()),
                error: problem.map(|problem| problem.detail.as_str()),
                place: None,
                asked: "device",
            },
        );
        deployed.log.call(now, || {
            let took = (now - began).as_secs_f64() * 1e3;
            let status = result.as_ref().map_or_else(|p| p.status.as_u16(), |_| 200);
            let mut text = format!(
                "infer {status} in {took:.3} ms traceparent={}",
                crate::http::trace::header(trace)
            );
            if let Err(problem) = &result {
                text += ": ";
                text += &problem.detail;
            }
            ("gateway".to_owned(), text)
        });
        result
    }

    async fn infer_bound(
        self: &Arc<Self>,
        deployed: &Arc<Deployed>,
        caller: TenantIndex,
        inference: Inference,
        trace: &Trace,
        began: Instant,
    ) -> Result<(Vec<Tensor>, Timing), Problem> {
        let Inference { inputs, wanted } = inference;
        if inputs.len() > TENSORS_MAX || wanted.len() > TENSORS_MAX {
            let detail = format!("more than {TENSORS_MAX} tensors");
            return Err(Problem::unprocessable(detail));
        }
        let call = self.bind_inputs(deployed, caller, inputs).await?;
        let deadline = began + deployed.timeout;
        let meter = deployed.meter(caller, &self.keys, &self.meters);
        let kept = call.clone();
        let called = self
            .engine
            .call_for(
                &deployed.function,
                call,
                deadline,
                trace,
                Some(meter.clone()),
            )
            .await;
        let reply = called.map_err(problem_of)?;
        let names: Vec<&str> = wanted.iter().map(|w| w.name.as_str()).collect();
        let tensors = deployed
            .function
            .answer_tensors(&kept, reply.outputs, &names)?;
        if wanted.iter().all(|w| w.shared.is_none()) {
            return Ok((tensors, reply.timing));
        }
        let (gateway, timing) = (self.clone(), reply.timing);
        let written = blocking(move || {
            for (tensor, wanted) in tensors.iter().zip(&wanted) {
                if let Some(span) = &wanted.shared {
                    gateway.regions.write(caller, span, &tensor.data)?;
                }
            }
            Ok::<_, Problem>(tensors)
        });
        Ok((written.await??, timing))
    }

    async fn bind_inputs(
        self: &Arc<Self>,
        deployed: &Arc<Deployed>,
        caller: TenantIndex,
        inputs: Vec<Input>,
    ) -> Result<Call, Problem> {
        let bytes_max = deployed.body_bytes_max;
        let shared: u64 = inputs
            .iter()
            .map(|input| match &input.data {
                Data::Bytes(_) => 0,
                Data::Shared(span) => span.bytes,
            })
            .fold(0, u64::saturating_add);
        if shared > bytes_max {
            return Err(Problem::too_large("what lies in shared memory", bytes_max));
        }
        let (gateway, function) = (self.clone(), deployed.function.clone());
        let bind = move || {
            let mut tensors = Vec::with_capacity(inputs.len());
            for input in inputs {
                let data = match input.data {
                    Data::Bytes(body) => body,
                    Data::Shared(span) => gateway.regions.read(caller, &span)?.into(),
                };
                tensors.push(Tensor {
                    name: input.name,
                    kind: input.kind,
                    shape: input.shape,
                    data,
                });
            }
            Ok(function.bind_tensors(tensors)?)
        };
        match shared > 0 {
            true => blocking(bind).await?,
            false => bind(),
        }
    }

    /// One of the calls that the whole gateway may carry out at a time.
    fn slot(self: &Arc<Self>) -> Result<Slot, Problem> {
        let before = self.inferences.fetch_add(1, Relaxed);
        let slot = Slot(self.clone());
        match before < self.options.limits.calls_max {
            true => Ok(slot),
            false => Err(Problem::overload(
                "the gateway carries out as many calls as it may ('gateway.limits.calls_max')",
                Duration::from_secs(1),
            )),
        }
    }
}

struct Slot(Arc<Gateway>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.inferences.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_counted_without_overflow() {
        assert_eq!(shape("a", Type::F32, &[2, 3]).unwrap(), (vec![2, 3], 24));
        assert_eq!(shape("a", Type::U8, &[]).unwrap(), (vec![], 1));
        assert_eq!(shape("a", Type::U8, &[0, 5]).unwrap().1, 0);
        for wrong in [&[-1][..], &[i64::MAX, i64::MAX], &[1; 17]] {
            assert_eq!(shape("a", Type::F64, wrong).unwrap_err().status, 400);
        }
    }

    #[test]
    fn unknown_datatypes_are_named_with_the_known_ones() {
        assert_eq!(kind("a", "FP32").unwrap(), Type::F32);
        let problem = kind("a", "BYTES").unwrap_err();
        assert!(problem.detail.contains("BYTES") && problem.detail.contains("UINT8"));
    }
}
