//! The Open Inference Protocol over gRPC.

use super::datatype::{self, Datatype, Output};
use super::memory::Description;
use super::{guard, message, protocol, wire};
use super::{model, shape, Data, Inference, Inferred, Input, RequestedOutput, Span};
use super::{EXTENSIONS, SERVER_NAME};
use crate::http::gateway::{Gateway, Readiness};
use crate::http::problem::Problem;
use crate::http::telemetry::trace;
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
use baltra_engine::Timing;
use baltra_functions::{Body, Type};
use bytes::Bytes;
use http::HeaderMap;
use prost::Message as _;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};

/// The service's description, for reflection.
const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inference.bin"));

/// The service over a gateway, and its reflection.
pub(crate) fn routes(gateway: &Arc<Gateway>) -> anyhow::Result<tonic::service::Routes> {
    // The guard enforces each function's own limit.
    let bytes_max = gateway.options.limits.body_bytes_max;
    let bytes_max = bytes_max.saturating_add(guard::FIELDS_BYTES);
    let service = GrpcInferenceServiceServer::new(Service(gateway.clone()))
        .max_decoding_message_size(usize::try_from(bytes_max).unwrap_or(usize::MAX))
        .max_encoding_message_size(usize::MAX);
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
    };
    Ok(tonic::service::Routes::new(service)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?))
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
        Some(_) => Err(Status::invalid_argument(format!("'{name}' is not a size"))),
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
                "'shared_memory_region' must be a string",
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
            "'shared_memory_region' and 'shared_memory_byte_size' must be set together",
        )),
    }
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
        let name = &input.name;
        let datatype = Datatype::of(name, &input.datatype)?;
        let (shape, bytes) = shape(name, datatype, &input.shape)?;
        let wrong = |why: &str| Status::invalid_argument(format!("input '{name}': {why}"));
        let too_large = || Problem::too_large("the inputs' data", input_bytes_max);
        if bytes.is_some_and(|bytes| bytes > left) {
            return Err(too_large().into());
        }
        check_parameters(&input.parameters, &SHARED_MEMORY)?;
        let given = Some(&input.contents).filter(|given| !given.is_empty());
        let data = match (span(&input.parameters)?, given) {
            (Some(span), None) => Data::Shared(span),
            (None, Some(given)) if !is_raw => {
                Data::Bytes(typed(name, datatype, given, bytes.unwrap_or(left))?)
            }
            (None, None) if is_raw => {
                let raw = raw.next().ok_or_else(|| wrong("no raw contents"))?;
                Data::Bytes(Body::from_bytes(raw))
            }
            (None, None) if bytes == Some(0) => Data::Bytes(Body::default()),
            _ => {
                let why = "set exactly one of contents, raw contents and shared memory";
                return Err(wrong(why));
            }
        };
        let held = match &data {
            Data::Bytes(data) => data.len(),
            Data::Shared(span) => bytes.unwrap_or(span.bytes),
        };
        if bytes.is_some_and(|bytes| held != bytes) {
            let why = format!("{held} bytes do not match shape {shape:?}");
            return Err(wrong(&why));
        }
        left = left.checked_sub(held).ok_or_else(too_large)?;
        read.push(Input {
            name: input.name,
            datatype,
            shape,
            data,
        });
    }
    match raw.next() {
        None => Ok(read),
        Some(_) => Err(Status::invalid_argument("more raw contents than inputs")),
    }
}

/// Converts elements from the field of their datatype.
fn typed(name: &str, datatype: Datatype, given: &[u8], bytes: u64) -> Result<Body, Status> {
    let kind = match datatype {
        Datatype::Own(kind) => kind,
        Datatype::Bool => Type::U8,
        Datatype::Bytes => {
            let given = InferTensorContents::decode(given)
                .map_err(|error| Status::invalid_argument(format!("input '{name}': {error}")))?;
            return match &given.bytes_contents[..] {
                [one] => Ok(datatype::element(one.to_vec())),
                _ => Err(Status::invalid_argument(format!(
                    "input '{name}': BYTES must have one element"
                ))),
            };
        }
        Datatype::Fp16 | Datatype::Bf16 => {
            let own = datatype.name();
            let text = format!("input '{name}': {own} has no typed contents: send raw contents");
            return Err(Status::invalid_argument(text));
        }
    };
    wire::contents(name, datatype.name(), kind, given, bytes).map(Body::from)
}

/// Parameters of a tensor in shared memory.
const SHARED_MEMORY: [&str; 3] = [
    "shared_memory_region",
    "shared_memory_offset",
    "shared_memory_byte_size",
];

/// Parameters of an output.
const OUTPUT: [&str; 4] = [
    "classification",
    "shared_memory_region",
    "shared_memory_offset",
    "shared_memory_byte_size",
];

/// Parameters are supported or refused, never ignored.
fn check_parameters(parameters: &Parameters, supported: &[&str]) -> Result<(), Status> {
    match parameters
        .keys()
        .find(|name| !supported.contains(&name.as_str()))
    {
        None => Ok(()),
        Some(name) => {
            let name: String = name.chars().take(64).collect();
            Err(Status::invalid_argument(format!(
                "parameter '{name}' is not supported"
            )))
        }
    }
}

/// The caller's time limit; sequences and priorities are rejected.
fn timeout(parameters: &Parameters) -> Result<Option<Duration>, Status> {
    let is_sequence = |name: &String| name.starts_with("sequence_");
    if parameters.keys().any(is_sequence) {
        return Err(message::sequences().into());
    }
    check_parameters(parameters, &["timeout", "priority"])?;
    let (us, priority) = (
        number(parameters, "timeout")?,
        number(parameters, "priority")?,
    );
    Ok(message::timeout(us, priority)?)
}

fn write_output(output: &Output, shared: Option<&Span>) -> (InferOutputTensor, Bytes) {
    let tensor = &output.tensor;
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
        datatype: output.datatype.to_owned(),
        shape: tensor.shape.iter().map(|d| *d as i64).collect(),
        parameters,
        contents: None,
    };
    (output, raw)
}

/// Adds the headers that HTTP responses have.
fn with_metadata<T>(message: T, timing: &Timing, trace: &baltra_engine::Trace) -> Response<T> {
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
                let ready = self.0.readiness(&deployed) == Readiness::Ready;
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
        let timeout = timeout(&request.parameters)?;
        let bytes_max = deployed.body_bytes_max;
        let inputs = read_inputs(request.inputs, request.raw_input_contents, bytes_max)?;
        let mut wanted = Vec::with_capacity(request.outputs.len());
        for output in request.outputs {
            if number(&output.parameters, "classification")?.is_some_and(|n| n > 0) {
                return Err(Status::invalid_argument("classification is not supported"));
            }
            check_parameters(&output.parameters, &OUTPUT)?;
            wanted.push(RequestedOutput {
                shared: span(&output.parameters)?,
                name: output.name,
            });
        }
        let spans: Vec<Option<Span>> = wanted.iter().map(|w| w.shared.clone()).collect();
        let inference = Inference {
            inputs,
            wanted,
            timeout,
        };
        let held = self.0.hold(Some(caller));
        let inferred = self.0.infer(&deployed, caller, inference, held, &trace);
        let Inferred {
            tensors,
            timing,
            held,
        } = inferred.await?;
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
        let mut response = with_metadata(response, &timing, &trace);
        if let Some(held) = held.if_counted() {
            response.extensions_mut().insert(Arc::new(held));
        }
        Ok(response)
    }

    async fn repository_index(
        &self,
        request: Request<RepositoryIndexRequest>,
    ) -> Result<Response<RepositoryIndexResponse>, Status> {
        self.0.keys.caller(&headers(request.metadata()))?;
        let only_ready = request.into_inner().ready;
        let all = self.0.table.list();
        let models = all.iter().filter_map(|deployed| {
            let (state, reason) = protocol::state(self.0.readiness(deployed));
            let shown = !only_ready || state == "READY";
            shown.then(|| ModelIndex {
                name: deployed.name().to_owned(),
                version: deployed.function.manifest.version.clone(),
                state: state.to_owned(),
                reason,
            })
        });
        let models = models.collect();
        Ok(Response::new(RepositoryIndexResponse { models }))
    }

    async fn model_config(
        &self,
        request: Request<ModelConfigRequest>,
    ) -> Result<Response<ModelConfigResponse>, Status> {
        let headers = headers(request.metadata());
        let at = request.into_inner();
        let (deployed, _) = model(&self.0, &headers, &at.name, &at.version)?;
        let config = Some(protocol::config(&deployed));
        Ok(Response::new(ModelConfigResponse { config }))
    }

    async fn model_statistics(
        &self,
        request: Request<ModelStatisticsRequest>,
    ) -> Result<Response<ModelStatisticsResponse>, Status> {
        let headers = headers(request.metadata());
        self.0.keys.caller(&headers)?;
        let at = request.into_inner();
        let functions = match at.name.as_str() {
            "" => self.0.table.list(),
            name => vec![model(&self.0, &headers, name, &at.version)?.0],
        };
        let model_stats = protocol::statistics(&self.0, &functions);
        Ok(Response::new(ModelStatisticsResponse { model_stats }))
    }

    async fn repository_model_load(
        &self,
        request: Request<RepositoryModelLoadRequest>,
    ) -> Result<Response<RepositoryModelLoadResponse>, Status> {
        let request = request.into_inner();
        let parameters: Vec<String> = request.parameters.into_keys().collect();
        protocol::load(&self.0, &request.model_name, &parameters).await?;
        Ok(Response::new(RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<RepositoryModelUnloadRequest>,
    ) -> Result<Response<RepositoryModelUnloadResponse>, Status> {
        let request = request.into_inner();
        let parameters: Vec<String> = request.parameters.into_keys().collect();
        protocol::unload(&self.0, &request.model_name, &parameters).await?;
        Ok(Response::new(RepositoryModelUnloadResponse {}))
    }

    async fn trace_setting(
        &self,
        request: Request<TraceSettingRequest>,
    ) -> Result<Response<TraceSettingResponse>, Status> {
        if !request.into_inner().settings.is_empty() {
            return Err(protocol::fixed_trace().into());
        }
        let settings = protocol::trace_settings(&self.0);
        let settings = settings.into_iter().map(|(name, value)| {
            let value = trace_setting_response::SettingValue { value: vec![value] };
            (name.to_owned(), value)
        });
        let settings = settings.collect();
        Ok(Response::new(TraceSettingResponse { settings }))
    }

    async fn log_settings(
        &self,
        request: Request<LogSettingsRequest>,
    ) -> Result<Response<LogSettingsResponse>, Status> {
        use log_settings_response::setting_value::ParameterChoice;
        if !request.into_inner().settings.is_empty() {
            return Err(protocol::fixed_log().into());
        }
        let settings = protocol::log_settings().into_iter().map(|(name, value)| {
            let choice = match value {
                serde_json::Value::Bool(on) => ParameterChoice::BoolParam(on),
                serde_json::Value::String(text) => ParameterChoice::StringParam(text),
                number => {
                    let number = number.as_u64().and_then(|n| n.try_into().ok());
                    ParameterChoice::Uint32Param(number.unwrap_or_default())
                }
            };
            let value = log_settings_response::SettingValue {
                parameter_choice: Some(choice),
            };
            (name.to_owned(), value)
        });
        let settings = settings.collect();
        Ok(Response::new(LogSettingsResponse { settings }))
    }

    async fn cuda_shared_memory_status(
        &self,
        request: Request<CudaSharedMemoryStatusRequest>,
    ) -> Result<Response<CudaSharedMemoryStatusResponse>, Status> {
        if request.into_inner().name.is_empty() {
            Ok(Response::new(CudaSharedMemoryStatusResponse::default()))
        } else {
            Err(protocol::no_cuda().into())
        }
    }

    async fn cuda_shared_memory_register(
        &self,
        _: Request<CudaSharedMemoryRegisterRequest>,
    ) -> Result<Response<CudaSharedMemoryRegisterResponse>, Status> {
        Err(protocol::no_cuda().into())
    }

    async fn cuda_shared_memory_unregister(
        &self,
        _: Request<CudaSharedMemoryUnregisterRequest>,
    ) -> Result<Response<CudaSharedMemoryUnregisterResponse>, Status> {
        Ok(Response::new(CudaSharedMemoryUnregisterResponse {}))
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
        let request = request.into_inner();
        let region = Description {
            name: request.name,
            key: request.key,
            offset: request.offset,
            byte_size: request.byte_size,
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
            contents: contents.map_or_else(Bytes::new, |c| c.encode_to_vec().into()),
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
        let json = Datatype::Own(Type::I16)
            .parse_json("a", "[-1, 2]", 100)
            .unwrap();
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
            (input("BYTES", &[2], None), raw(b"xy")),
            (input("COMPLEX", &[1], None), raw(b"xy")),
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
