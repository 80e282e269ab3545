//! The same over gRPC.

use super::memory::Description;
use super::{kind, model, shape, Data, Inference, Input, Span, Wanted};
use super::{EXTENSIONS, SERVER_NAME};
use crate::engine::Timing;
use crate::http::gateway::Gateway;
use crate::http::problem::Problem;
use crate::http::trace;
use crate::proto::grpc_inference_service_server::{
    GrpcInferenceService, GrpcInferenceServiceServer,
};
use crate::proto::infer_parameter::ParameterChoice;
use crate::proto::model_infer_request::InferInputTensor;
use crate::proto::model_infer_response::InferOutputTensor;
use crate::proto::model_metadata_response::TensorMetadata;
use crate::proto::repository_index_response::ModelIndex;
use crate::proto::system_shared_memory_status_response::RegionStatus;
use crate::proto::*;
use baltra_functions::{Body, Tensor, Type};
use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use std::collections::HashMap;
use std::sync::Arc;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};

/// Room for a message's own fields beside its tensors.
const FIELDS_BYTES: usize = 1 << 20;

/// The service over a gateway.
pub(crate) fn routes(gateway: &Arc<Gateway>) -> tonic::service::Routes {
    let bytes_max = usize::try_from(gateway.options.limits.body_bytes_max).unwrap_or(usize::MAX);
    let service = GrpcInferenceServiceServer::new(Service(gateway.clone()))
        .max_decoding_message_size(bytes_max.saturating_add(FIELDS_BYTES))
        .max_encoding_message_size(usize::MAX);
    tonic::service::Routes::new(service)
}

struct Service(Arc<Gateway>);

impl From<Problem> for Status {
    fn from(problem: Problem) -> Status {
        let code = match problem.status.as_u16() {
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::NotFound,
            413 | 429 | 507 => Code::ResourceExhausted,
            503 => Code::Unavailable,
            504 => Code::DeadlineExceeded,
            500.. => Code::Internal,
            _ => Code::InvalidArgument,
        };
        Status::new(code, problem.detail)
    }
}

fn headers(metadata: &MetadataMap) -> HeaderMap {
    metadata.clone().into_headers()
}

type Parameters = HashMap<String, InferParameter>;

fn number(parameters: &Parameters, name: &str) -> Result<Option<u64>, Status> {
    match parameters
        .get(name)
        .and_then(|p| p.parameter_choice.as_ref())
    {
        None => Ok(None),
        Some(ParameterChoice::Int64Param(n)) if *n >= 0 => Ok(Some(*n as u64)),
        Some(ParameterChoice::Uint64Param(n)) => Ok(Some(*n)),
        Some(_) => Err(Status::invalid_argument(format!("'{name}' is no size"))),
    }
}

fn span(parameters: &Parameters) -> Result<Option<Span>, Status> {
    let region = match parameters
        .get("shared_memory_region")
        .and_then(|p| p.parameter_choice.as_ref())
    {
        None => None,
        Some(ParameterChoice::StringParam(region)) => Some(region.clone()),
        Some(_) => {
            return Err(Status::invalid_argument(
                "'shared_memory_region' is no name",
            ))
        }
    };
    let bytes = number(parameters, "shared_memory_byte_size")?;
    let offset = number(parameters, "shared_memory_offset")?.unwrap_or(0);
    match (region, bytes) {
        (None, None) => Ok(None),
        (Some(region), Some(bytes)) => Ok(Some(Span {
            region,
            offset,
            bytes,
        })),
        _ => Err(Status::invalid_argument(
            "'shared_memory_region' and 'shared_memory_byte_size' go together",
        )),
    }
}

/// Elements in the field of their type.
fn contents(input: &str, kind: Type, contents: &InferTensorContents) -> Result<Bytes, Status> {
    let mut bytes = BytesMut::new();
    let wrong = || {
        Status::invalid_argument(format!(
            "input '{input}': an element is no {}",
            kind.datatype()
        ))
    };
    macro_rules! narrowed {
        ($from:expr, $type:ty) => {{
            for value in &$from {
                let narrow = <$type>::try_from(*value).map_err(|_| wrong())?;
                bytes.put_slice(&narrow.to_le_bytes());
            }
        }};
    }
    match kind {
        Type::U8 => narrowed!(contents.uint_contents, u8),
        Type::U16 => narrowed!(contents.uint_contents, u16),
        Type::U32 => narrowed!(contents.uint_contents, u32),
        Type::I8 => narrowed!(contents.int_contents, i8),
        Type::I16 => narrowed!(contents.int_contents, i16),
        Type::I32 => narrowed!(contents.int_contents, i32),
        Type::U64 => narrowed!(contents.uint64_contents, u64),
        Type::I64 => narrowed!(contents.int64_contents, i64),
        Type::F32 => contents
            .fp32_contents
            .iter()
            .for_each(|v| bytes.put_f32_le(*v)),
        Type::F64 => contents
            .fp64_contents
            .iter()
            .for_each(|v| bytes.put_f64_le(*v)),
    }
    Ok(bytes.freeze())
}

fn read_inputs(
    inputs: Vec<InferInputTensor>,
    raw: Vec<Bytes>,
    input_bytes_max: u64,
) -> Result<Vec<Input>, Status> {
    let mut raw = raw.into_iter();
    let is_raw = raw.len() > 0;
    let mut left = input_bytes_max;
    let mut read = Vec::with_capacity(inputs.len());
    for input in inputs {
        let kind = kind(&input.name, &input.datatype)?;
        let (shape, bytes) = shape(&input.name, kind, &input.shape)?;
        let wrong = |why: &str| Status::invalid_argument(format!("input '{}': {why}", input.name));
        left = left
            .checked_sub(bytes)
            .ok_or_else(|| Problem::too_large("what the inputs hold", input_bytes_max))?;
        let data = match (span(&input.parameters)?, &input.contents) {
            (Some(span), None) => Data::Shared(span),
            (None, Some(given)) if !is_raw => {
                Data::Bytes(Body::from_bytes(contents(&input.name, kind, given)?))
            }
            (None, None) if is_raw => {
                let raw = raw.next().ok_or_else(|| wrong("has no raw contents"))?;
                Data::Bytes(Body::from_bytes(raw))
            }
            (None, None) if bytes == 0 => Data::Bytes(Body::default()),
            _ => {
                let why =
                    "exactly one of contents, raw contents and shared memory has its elements";
                return Err(wrong(why));
            }
        };
        if let Data::Bytes(data) = &data {
            if data.len() != bytes {
                let why = format!("{} bytes are not of the shape {shape:?}", data.len());
                return Err(wrong(&why));
            }
        }
        read.push(Input {
            name: input.name,
            kind,
            shape,
            data,
        });
    }
    match raw.next() {
        None => Ok(read),
        Some(_) => Err(Status::invalid_argument("more raw contents than inputs")),
    }
}

fn write_output(tensor: &Tensor, shared: Option<&Span>) -> (InferOutputTensor, Bytes) {
    let mut parameters = Parameters::new();
    let mut raw = Bytes::new();
    match shared {
        None => raw = tensor.data.to_bytes(),
        Some(span) => {
            for (name, value) in [
                (
                    "shared_memory_region",
                    ParameterChoice::StringParam(span.region.clone()),
                ),
                (
                    "shared_memory_offset",
                    ParameterChoice::Int64Param(span.offset as i64),
                ),
                (
                    "shared_memory_byte_size",
                    ParameterChoice::Int64Param(tensor.data.len() as i64),
                ),
            ] {
                let value = InferParameter {
                    parameter_choice: Some(value),
                };
                parameters.insert(name.to_owned(), value);
            }
        }
    }
    let output = InferOutputTensor {
        name: tensor.name.clone(),
        datatype: tensor.kind.datatype().to_owned(),
        shape: tensor.shape.iter().map(|d| *d as i64).collect(),
        parameters,
        contents: None,
    };
    (output, raw)
}

/// The headers that answers over HTTP have too.
fn with_metadata<T>(message: T, timing: &Timing, trace: &crate::engine::Trace) -> Response<T> {
    let ms = |ns: u64| ns as f64 / 1e6;
    let timing = format!(
        "queue;dur={:.3}, cold;dur={:.3}, device;dur={:.3}",
        ms(timing.queue_ns),
        ms(timing.cold_ns),
        ms(timing.device_ns)
    );
    let mut response = Response::new(message);
    for (name, value) in [
        ("server-timing", timing),
        ("traceparent", trace::header(trace)),
    ] {
        if let Ok(value) = value.parse() {
            response.metadata_mut().insert(name, value);
        }
    }
    response
}

#[tonic::async_trait]
impl GrpcInferenceService for Service {
    async fn server_live(
        &self,
        _: Request<ServerLiveRequest>,
    ) -> Result<Response<ServerLiveResponse>, Status> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(
        &self,
        _: Request<ServerReadyRequest>,
    ) -> Result<Response<ServerReadyResponse>, Status> {
        let ready = self.0.why_not_ready().is_none();
        Ok(Response::new(ServerReadyResponse { ready }))
    }

    async fn model_ready(
        &self,
        request: Request<ModelReadyRequest>,
    ) -> Result<Response<ModelReadyResponse>, Status> {
        let headers = headers(request.metadata());
        let at = request.into_inner();
        let found = model(&self.0, &headers, &at.name, &at.version);
        match found {
            Ok((deployed, _)) => {
                let ready = self.0.engine.why_not_ready(&deployed.function).is_none();
                Ok(Response::new(ModelReadyResponse { ready }))
            }
            Err(problem) if problem.status == 404 => {
                Ok(Response::new(ModelReadyResponse { ready: false }))
            }
            Err(problem) => Err(problem.into()),
        }
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        Ok(Response::new(ServerMetadataResponse {
            name: SERVER_NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: EXTENSIONS.map(str::to_owned).into(),
        }))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let headers = headers(request.metadata());
        let at = request.into_inner();
        let (deployed, _) = model(&self.0, &headers, &at.name, &at.version)?;
        let metadata = deployed.function.metadata();
        let tensors = |all: Vec<baltra_functions::TensorMetadata>| {
            let tensors = all.into_iter().map(|t| TensorMetadata {
                name: t.name,
                datatype: t.datatype.to_owned(),
                shape: t.shape,
            });
            tensors.collect()
        };
        Ok(Response::new(ModelMetadataResponse {
            name: deployed.name().to_owned(),
            versions: metadata.versions,
            platform: metadata.platform.to_owned(),
            inputs: tensors(metadata.inputs),
            outputs: tensors(metadata.outputs),
        }))
    }

    async fn model_infer(
        &self,
        request: Request<ModelInferRequest>,
    ) -> Result<Response<ModelInferResponse>, Status> {
        let headers = headers(request.metadata());
        let trace = trace::of(&headers, &self.0.spans);
        let request = request.into_inner();
        let name = &request.model_name;
        let (deployed, caller) = model(&self.0, &headers, name, &request.model_version)?;
        let bytes_max = deployed.body_bytes_max;
        let inputs = read_inputs(request.inputs, request.raw_input_contents, bytes_max)?;
        let mut wanted = Vec::with_capacity(request.outputs.len());
        for output in request.outputs {
            if number(&output.parameters, "classification")?.is_some_and(|n| n > 0) {
                return Err(Status::invalid_argument(
                    "classification is not offered here",
                ));
            }
            wanted.push(Wanted {
                shared: span(&output.parameters)?,
                name: output.name,
            });
        }
        let spans: Vec<Option<Span>> = wanted.iter().map(|w| w.shared.clone()).collect();
        let inference = Inference { inputs, wanted };
        let (tensors, timing) = self.0.infer(&deployed, caller, inference, &trace).await?;
        let written = tensors
            .iter()
            .enumerate()
            .map(|(i, tensor)| write_output(tensor, spans.get(i).and_then(Option::as_ref)));
        let (outputs, raw_output_contents) = written.unzip();
        let response = ModelInferResponse {
            model_name: deployed.name().to_owned(),
            model_version: deployed.function.manifest.version.clone(),
            id: request.id,
            parameters: Parameters::new(),
            outputs,
            raw_output_contents,
        };
        Ok(with_metadata(response, &timing, &trace))
    }

    async fn repository_index(
        &self,
        request: Request<RepositoryIndexRequest>,
    ) -> Result<Response<RepositoryIndexResponse>, Status> {
        self.0.keys.caller(&headers(request.metadata()))?;
        let all = self.0.table.list();
        let models = all.iter().map(|deployed| ModelIndex {
            name: deployed.name().to_owned(),
            version: deployed.function.manifest.version.clone(),
            state: "READY".to_owned(),
            reason: String::new(),
        });
        let models = models.collect();
        Ok(Response::new(RepositoryIndexResponse { models }))
    }

    async fn system_shared_memory_status(
        &self,
        request: Request<SystemSharedMemoryStatusRequest>,
    ) -> Result<Response<SystemSharedMemoryStatusResponse>, Status> {
        let caller = self.0.keys.caller(&headers(request.metadata()))?;
        let name = request.into_inner().name;
        let name = Some(name.as_str()).filter(|n| !n.is_empty());
        let regions = self
            .0
            .regions
            .status(caller, name)?
            .into_iter()
            .map(|region| {
                let status = RegionStatus {
                    name: region.name.clone(),
                    key: region.key,
                    offset: region.offset,
                    byte_size: region.byte_size,
                };
                (region.name, status)
            });
        let regions = regions.collect();
        Ok(Response::new(SystemSharedMemoryStatusResponse { regions }))
    }

    async fn system_shared_memory_register(
        &self,
        request: Request<SystemSharedMemoryRegisterRequest>,
    ) -> Result<Response<SystemSharedMemoryRegisterResponse>, Status> {
        let caller = self.0.keys.caller(&headers(request.metadata()))?;
        let asked = request.into_inner();
        let region = Description {
            name: asked.name,
            key: asked.key,
            offset: asked.offset,
            byte_size: asked.byte_size,
        };
        self.0.regions.register(caller, region)?;
        Ok(Response::new(SystemSharedMemoryRegisterResponse {}))
    }

    async fn system_shared_memory_unregister(
        &self,
        request: Request<SystemSharedMemoryUnregisterRequest>,
    ) -> Result<Response<SystemSharedMemoryUnregisterResponse>, Status> {
        let caller = self.0.keys.caller(&headers(request.metadata()))?;
        let name = request.into_inner().name;
        let name = Some(name.as_str()).filter(|n| !n.is_empty());
        self.0.regions.unregister(caller, name)?;
        Ok(Response::new(SystemSharedMemoryUnregisterResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(
        datatype: &str,
        shape: &[i64],
        contents: Option<InferTensorContents>,
    ) -> InferInputTensor {
        InferInputTensor {
            name: "a".into(),
            datatype: datatype.into(),
            shape: shape.into(),
            parameters: Parameters::new(),
            contents,
        }
    }

    fn bytes_of(inputs: &[Input]) -> Bytes {
        match &inputs[0].data {
            Data::Bytes(body) => body.to_bytes(),
            Data::Shared(span) => panic!("{span:?}"),
        }
    }

    #[test]
    fn typed_and_raw_contents_are_the_same_bytes() {
        let typed = InferTensorContents {
            int_contents: vec![-1, 2],
            ..Default::default()
        };
        let one = read_inputs(vec![input("INT16", &[2], Some(typed))], vec![], 100).unwrap();
        let raw = vec![Bytes::from_static(&[255, 255, 2, 0])];
        let other = read_inputs(vec![input("INT16", &[2], None)], raw, 100).unwrap();
        assert_eq!(bytes_of(&one), bytes_of(&other));
        let json = Tensor::data_from_json(Type::I16, b"[-1, 2]", 100).unwrap();
        assert_eq!(bytes_of(&one), json.to_bytes());
    }

    #[test]
    fn what_does_not_add_up_is_an_invalid_argument() {
        let typed = |values: &[u32]| InferTensorContents {
            uint_contents: values.into(),
            ..Default::default()
        };
        let raw = |text: &'static [u8]| vec![Bytes::from_static(text)];
        let cases = [
            (input("UINT8", &[2], Some(typed(&[1]))), vec![]),
            (input("UINT8", &[1], Some(typed(&[256]))), vec![]),
            (input("UINT8", &[1], Some(typed(&[1]))), raw(b"x")),
            (input("UINT8", &[1], None), vec![]),
            (input("UINT8", &[1], None), raw(b"xy")),
            (input("UINT8", &[-1], None), raw(b"xy")),
            (input("BYTES", &[1], None), raw(b"xy")),
        ];
        for (input, raw) in cases {
            let text = format!("{input:?}");
            let status = read_inputs(vec![input], raw, 100).map(|_| ()).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{text}");
        }
        let two = vec![Bytes::from_static(b"x"); 2];
        assert!(read_inputs(vec![input("UINT8", &[1], None)], two, 100).is_err());
        let large = read_inputs(vec![input("UINT8", &[101], None)], raw(b""), 100);
        assert_eq!(
            large.map(|_| ()).unwrap_err().code(),
            Code::ResourceExhausted
        );
    }
}
