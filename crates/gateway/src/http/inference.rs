//! The Open Inference Protocol, version 2: a function is a model, its arrays are tensors.
//!
//! | module | content |
//! |---|---|
//! | [`http`] | paths |
//! | [`message`] | JSON and the binary tensor extension |
//! | [`datatype`] | conversions of datatypes that functions lack |
//! | [`grpc`] | the same over gRPC |
//! | [`guard`] | keys, limits and deadlines of gRPC, before a message is read |
//! | [`wire`] | checks of a gRPC message before it is decoded |
//! | [`protocol`] | configuration, statistics, loading, settings |
//! | [`memory`] | the system shared memory extension |

pub(crate) mod datatype;
pub(crate) mod grpc;
pub(crate) mod guard;
pub(crate) mod http;
pub(crate) mod memory;
pub(crate) mod message;
pub(crate) mod protocol;
pub(crate) mod wire;

use crate::http::admission::budget::Held;
use crate::http::admission::keys::TenantIndex;
use crate::http::admission::places::CallPermit;
use crate::http::call::invocation::{from, problem_of, Metered};
use crate::http::failure::Failure;
use crate::http::function::table::Deployed;
use crate::http::gateway::{Gateway, TOO_MANY};
use crate::http::problem::Problem;
use crate::http::task::blocking;
use crate::http::telemetry::meters::{Ending, Meter};
use crate::http::telemetry::spans::{self, Called};
use ::http::HeaderMap;
use baltra_engine::{Timing, Trace};
use baltra_functions::{Body, Call};
use datatype::{Datatype, Output};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Supported extensions, as in the server's metadata.
pub(crate) const EXTENSIONS: [&str; 5] = [
    "binary_tensor_data",
    "system_shared_memory",
    "model_repository",
    "model_configuration",
    "statistics",
];

/// The server's name in its metadata.
pub(crate) const SERVER_NAME: &str = "baltra";

/// Tensors in one request.
pub(crate) const TENSORS_MAX: usize = 256;
/// Dimensions of one tensor.
pub(crate) const DIMENSIONS_MAX: usize = 16;

/// Bytes in a region of shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub region: String,
    pub offset: u64,
    pub bytes: u64,
}

/// An input whose elements are not checked yet.
#[derive(Debug)]
pub(crate) struct Input {
    pub name: String,
    pub datatype: Datatype,
    pub shape: Vec<u64>,
    pub data: Data,
}

/// CallPermit of an input's elements.
#[derive(Debug)]
pub(crate) enum Data {
    Bytes(Body),
    Shared(Span),
}

/// A requested output.
#[derive(Debug)]
pub(crate) struct RequestedOutput {
    pub name: String,
    pub shared: Option<Span>,
}

/// One inference request, independent of the protocol.
#[derive(Debug)]
pub(crate) struct Inference {
    pub inputs: Vec<Input>,
    /// Requested outputs; empty: all.
    pub wanted: Vec<RequestedOutput>,
    /// The caller's time limit, if it sent one.
    pub timeout: Option<Duration>,
}

/// The result of an inference.
pub(crate) struct Inferred {
    pub tensors: Vec<Output>,
    pub timing: Timing,
    /// Memory held by the request and its response.
    pub held: Held,
}

/// Resolves a model's name and version, and the caller's tenant.
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
        let detail = format!(
            "unknown version: '{}' has only version '{own}'",
            deployed.name()
        );
        return Err(Problem::new(Failure::NotFound, detail));
    }
    Ok((deployed, caller))
}

/// Checks a shape: no dimension is negative. Returns it with the bytes of its elements; `None` if
/// elements have their own lengths.
pub(crate) fn shape(
    input: &str,
    datatype: Datatype,
    shape: &[i64],
) -> Result<(Vec<u64>, Option<u64>), Problem> {
    let wrong = || Problem::bad_request(format!("input '{input}': invalid shape {shape:?}"));
    if shape.len() > DIMENSIONS_MAX {
        return Err(Problem::bad_request(format!(
            "input '{input}': more than {DIMENSIONS_MAX} dimensions"
        )));
    }
    let dimensions = shape.iter().map(|d| u64::try_from(*d).map_err(|_| wrong()));
    let dimensions = dimensions.collect::<Result<Vec<u64>, Problem>>()?;
    let count = |size: u64| {
        let mut dimensions = dimensions.iter();
        let bytes = dimensions.try_fold(size, |all, d| all.checked_mul(*d));
        bytes.ok_or_else(wrong)
    };
    let bytes = match datatype.size() {
        Some(size) => Some(count(size)?),
        None if count(1)? == 1 => None,
        None => {
            let detail =
                format!("input '{input}': BYTES must have one element, not shape {shape:?}");
            return Err(Problem::unprocessable(detail));
        }
    };
    Ok((dimensions, bytes))
}

impl Gateway {
    /// Runs an inference. Returns the outputs in the requested order; those for shared memory have
    /// been written there.
    pub(crate) async fn infer(
        self: &Arc<Self>,
        deployed: &Arc<Deployed>,
        caller: TenantIndex,
        inference: Inference,
        mut held: Held,
        trace: &Trace,
    ) -> Result<Inferred, Problem> {
        let began = Instant::now();
        let meter = deployed.meter(caller, &self.keys, &self.meters);
        let bytes_in = inference.inputs.iter().map(|i| match &i.data {
            Data::Bytes(body) => body.len(),
            Data::Shared(span) => span.bytes,
        });
        let place = self.share(deployed, meter);
        let mut metered = Metered::begin(meter, began, bytes_in.sum());
        let result = match &place {
            Ok(_) => {
                self.infer_bound(deployed, caller, inference, (&mut held, trace, began))
                    .await
            }
            Err(problem) => Err(problem.clone()),
        };
        match &result {
            Ok((tensors, timing)) => {
                metered.timing = *timing;
                metered.bytes_out = tensors.iter().map(|t| t.tensor.data.len()).sum();
                metered.ending = Ending::Done;
            }
            Err(problem) => {
                metered.ending = Ending::of(problem.status);
                meter.note(problem);
            }
        }
        let timing = metered.timing;
        let now = metered.end();
        let problem = result.as_ref().err();
        spans::export(
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
                crate::http::telemetry::trace::header(trace)
            );
            if let Err(problem) = &result {
                text += ": ";
                text += &problem.detail;
            }
            ("gateway".to_owned(), text)
        });
        let (tensors, timing) = result?;
        Ok(Inferred {
            tensors,
            timing,
            held,
        })
    }

    async fn infer_bound(
        self: &Arc<Self>,
        deployed: &Arc<Deployed>,
        caller: TenantIndex,
        inference: Inference,
        (held, trace, began): (&mut Held, &Trace, Instant),
    ) -> Result<(Vec<Output>, Timing), Problem> {
        let Inference {
            inputs,
            wanted,
            timeout,
        } = inference;
        if inputs.len() > TENSORS_MAX || wanted.len() > TENSORS_MAX {
            let detail = format!("too many tensors: at most {TENSORS_MAX}");
            return Err(Problem::unprocessable(detail));
        }
        let texts = inputs.iter().any(|i| i.datatype == Datatype::Bytes);
        let call = self.bind_inputs(deployed, caller, inputs).await?;
        let outputs = call.outputs.iter().map(|output| output.bytes);
        // Accounted twice: the tensors, and their encoding in the response.
        let outputs = outputs.fold(0, u64::saturating_add).saturating_mul(2);
        held.grow(outputs)?;
        let timeout = timeout.map_or(deployed.timeout, |own| own.min(deployed.timeout));
        let deadline = began + timeout;
        let meter = deployed.meter(caller, &self.keys, &self.meters);
        let kept = call.clone();
        let called = self
            .engine
            .call_for(
                &deployed.function,
                call,
                deadline,
                trace,
                from(caller, meter),
            )
            .await;
        let reply = called.map_err(problem_of)?;
        let names: Vec<&str> = wanted.iter().map(|w| w.name.as_str()).collect();
        let tensors = deployed
            .function
            .answer_tensors(&kept, reply.outputs, &names)?;
        let outputs = tensors.into_iter();
        let outputs = outputs.map(|tensor| Output::of(deployed, tensor, texts));
        let tensors: Vec<Output> = outputs.collect();
        if wanted.iter().all(|w| w.shared.is_none()) {
            return Ok((tensors, reply.timing));
        }
        let (gateway, timing) = (self.clone(), reply.timing);
        let written = blocking(move || {
            for (tensor, wanted) in tensors.iter().zip(&wanted) {
                if let Some(span) = &wanted.shared {
                    gateway.regions.write(caller, span, &tensor.tensor.data)?;
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
            return Err(Problem::too_large("the data in shared memory", bytes_max));
        }
        let (gateway, function) = (self.clone(), deployed.function.clone());
        let bind = move || {
            let mut tensors = Vec::with_capacity(inputs.len());
            for input in inputs {
                let data = match input.data {
                    Data::Bytes(body) => body,
                    Data::Shared(span) => gateway.regions.read(caller, &span)?.into(),
                };
                let manifest = function.manifest.inputs.iter();
                let wanted = manifest
                    .clone()
                    .find(|i| i.name == input.name)
                    .map(|i| i.kind);
                let (datatype, shape) = (input.datatype, input.shape);
                tensors.push(datatype.bind(input.name, shape, data, wanted)?);
            }
            Ok(function.bind_tensors(tensors)?)
        };
        if shared > 0 {
            blocking(bind).await?
        } else {
            bind()
        }
    }

    /// Takes one of the gateway's call slots, before the body is read.
    pub(crate) fn slot(self: &Arc<Self>) -> Result<Slot, Problem> {
        let before = self.inferences.fetch_add(1, Relaxed);
        let slot = Slot(self.clone());
        if before < self.options.limits.calls_max {
            Ok(slot)
        } else {
            Err(Problem::overload(TOO_MANY, Duration::from_secs(1)))
        }
    }

    /// Counts an inference, which has a slot, among those of its function and tenant.
    fn share<'a>(&self, deployed: &Deployed, meter: &'a Meter) -> Result<CallPermit<'a>, Problem> {
        let taken = self.inferences.load(Relaxed);
        let max = self.options.limits.calls_max;
        let place = CallPermit::share(taken, meter.inferences(), max, self.is_shared());
        place.ok_or_else(|| self.no_place(deployed))
    }
}

/// A call slot, released when dropped.
pub(crate) struct Slot(Arc<Gateway>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.inferences.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_functions::Type;

    #[test]
    fn shapes_are_counted_without_overflow() {
        let of = |kind, sizes: &[i64]| shape("a", Datatype::Own(kind), sizes);
        assert_eq!(of(Type::F32, &[2, 3]).unwrap(), (vec![2, 3], Some(24)));
        assert_eq!(of(Type::U8, &[]).unwrap(), (vec![], Some(1)));
        assert_eq!(of(Type::U8, &[0, 5]).unwrap().1, Some(0));
        assert_eq!(shape("a", Datatype::Bytes, &[1, 1]).unwrap().1, None);
        assert!(shape("a", Datatype::Bytes, &[2]).is_err());
        for wrong in [&[-1][..], &[i64::MAX, i64::MAX], &[1; 17]] {
            assert_eq!(of(Type::F64, wrong).unwrap_err().status, 400);
        }
    }

    #[test]
    fn unknown_datatypes_are_named_with_the_known_ones() {
        assert_eq!(Datatype::of("a", "FP32").unwrap(), Datatype::Own(Type::F32));
        let problem = Datatype::of("a", "COMPLEX").unwrap_err();
        assert!(problem.detail.contains("COMPLEX") && problem.detail.contains("UINT8"));
    }
}
