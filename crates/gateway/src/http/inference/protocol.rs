//! Requests of Triton's clients other than inference: a model's configuration and statistics,
//! loading and unloading, settings. Shared by HTTP and gRPC.

use crate::http::failure::Failure;
use crate::http::function::table::Deployed;
use crate::http::gateway::{DeployRequest, Gateway, Readiness};
use crate::http::problem::Problem;
use crate::http::telemetry::meters::Ending;
use crate::proto::{
    DataType, InferStatistics, ModelConfig, ModelInput, ModelOutput, ModelStatistics,
    StatisticDuration,
};
use baltra_functions::TensorMetadata;
use serde_json::{json, Value};
use std::sync::Arc;
use tracing::{enabled, Level};

/// A parameter of unloading that changes nothing here: no function depends on another.
pub(crate) const UNLOAD_DEPENDENTS: &str = "unload_dependents";

fn data_type(datatype: &str) -> DataType {
    let name = format!("TYPE_{datatype}");
    DataType::from_str_name(&name).unwrap_or(DataType::TypeInvalid)
}

/// A function as a model configuration.
pub(crate) fn config(deployed: &Deployed) -> ModelConfig {
    let function = &deployed.function;
    let metadata = function.metadata();
    let optional = |tensor: &TensorMetadata| {
        let mut inputs = function.manifest.inputs.iter();
        inputs.any(|input| input.name == tensor.name && input.default.is_some())
    };
    let inputs = metadata.inputs.iter().map(|tensor| ModelInput {
        name: tensor.name.clone(),
        data_type: data_type(tensor.datatype).into(),
        dims: tensor.shape.clone(),
        optional: optional(tensor),
    });
    let outputs = metadata.outputs.iter().map(|tensor| ModelOutput {
        name: tensor.name.clone(),
        data_type: data_type(tensor.datatype).into(),
        dims: tensor.shape.clone(),
    });
    ModelConfig {
        name: deployed.name().to_owned(),
        platform: metadata.platform.to_owned(),
        backend: metadata.platform.to_owned(),
        // The batching dimension, if any, is part of a tensor's shape.
        max_batch_size: 0,
        input: inputs.collect(),
        output: outputs.collect(),
    }
}

/// The same as JSON.
pub(crate) fn config_json(deployed: &Deployed) -> Value {
    let config = config(deployed);
    let inputs = config.input.iter().map(|input| {
        json!({
            "name": input.name,
            "data_type": input.data_type().as_str_name(),
            "dims": input.dims,
            "optional": input.optional,
        })
    });
    let outputs = config.output.iter().map(|output| {
        json!({
            "name": output.name,
            "data_type": output.data_type().as_str_name(),
            "dims": output.dims,
        })
    });
    json!({
        "name": config.name,
        "platform": config.platform,
        "backend": config.backend,
        "max_batch_size": config.max_batch_size,
        "input": inputs.collect::<Vec<Value>>(),
        "output": outputs.collect::<Vec<Value>>(),
    })
}

/// Statistics of calls of some functions, over all tenants.
pub(crate) fn statistics(gateway: &Gateway, functions: &[Arc<Deployed>]) -> Vec<ModelStatistics> {
    let functions = functions.iter().map(|deployed| {
        let counts = gateway.meters.read_function(deployed.name());
        let engine = gateway.engine.status(&deployed.function);
        let done = counts.of(Ending::Done);
        let part = |count, ns| Some(StatisticDuration { count, ns });
        ModelStatistics {
            name: deployed.name().to_owned(),
            version: deployed.function.manifest.version.clone(),
            last_inference: counts.last_ms,
            inference_count: done,
            execution_count: engine.map_or(done, |e| e.stats.batches.iter().sum()),
            inference_stats: Some(InferStatistics {
                success: part(done, counts.sum_ns - counts.failed_ns),
                fail: part(counts.ended() - done, counts.failed_ns),
                queue: part(done, counts.queue_ns),
                // Copies are part of the device's time.
                compute_input: part(0, 0),
                compute_infer: part(done, counts.device_ns),
                compute_output: part(0, 0),
                cache_hit: part(0, 0),
                cache_miss: part(0, 0),
            }),
        }
    });
    functions.collect()
}

/// The same as JSON.
pub(crate) fn statistics_json(statistics: &[ModelStatistics]) -> Value {
    let part = |part: &Option<StatisticDuration>| {
        let part = part.unwrap_or_default();
        json!({"count": part.count, "ns": part.ns})
    };
    let models = statistics.iter().map(|model| {
        let parts = model.inference_stats.unwrap_or_default();
        json!({
            "name": model.name,
            "version": model.version,
            "last_inference": model.last_inference,
            "inference_count": model.inference_count,
            "execution_count": model.execution_count,
            "inference_stats": {
                "success": part(&parts.success),
                "fail": part(&parts.fail),
                "queue": part(&parts.queue),
                "compute_input": part(&parts.compute_input),
                "compute_infer": part(&parts.compute_infer),
                "compute_output": part(&parts.compute_output),
                "cache_hit": part(&parts.cache_hit),
                "cache_miss": part(&parts.cache_miss),
            },
            "batch_stats": [],
        })
    });
    json!({"model_stats": models.collect::<Vec<Value>>()})
}

/// Deploys a stored function under its own name, in place of one with the same name.
pub(crate) async fn load(
    gateway: &Arc<Gateway>,
    name: &str,
    parameters: &[String],
) -> Result<(), Problem> {
    if let Some(parameter) = parameters.first() {
        let parameter: String = parameter.chars().take(64).collect();
        return Err(Problem::bad_request(format!(
            "parameter '{parameter}' is not supported: a function is configured by its manifest; upload it ('baltra function deploy')"
        )));
    }
    let before = gateway.table.find(name);
    let (labels, annotations) = before.map_or_else(Default::default, |before| {
        let deployment = &before.deployment;
        (deployment.labels.clone(), deployment.annotations.clone())
    });
    let request = DeployRequest {
        name: name.to_owned(),
        image: name.to_owned(),
        labels,
        annotations,
    };
    gateway.deploy(request).await.map(|_| ())
}

/// Undeploys a function; it remains stored.
pub(crate) async fn unload(
    gateway: &Arc<Gateway>,
    name: &str,
    parameters: &[String],
) -> Result<(), Problem> {
    if let Some(parameter) = parameters.iter().find(|p| *p != UNLOAD_DEPENDENTS) {
        let parameter: String = parameter.chars().take(64).collect();
        return Err(Problem::bad_request(format!(
            "parameter '{parameter}' is not supported"
        )));
    }
    if gateway.remove(name).await? {
        Ok(())
    } else {
        Err(Problem::unknown_function(name))
    }
}

/// A model's state and its reason, for the repository's index.
pub(crate) fn state(readiness: Readiness) -> (&'static str, String) {
    match readiness {
        Readiness::Ready => ("READY", String::new()),
        Readiness::Building(why) => ("LOADING", why),
        Readiness::Failed(why) => ("UNAVAILABLE", why),
    }
}

/// Trace settings.
pub(crate) fn trace_settings(gateway: &Gateway) -> [(&'static str, String); 6] {
    let level = if gateway.spans.is_on() {
        "TIMESTAMPS"
    } else {
        "OFF"
    };
    [
        ("trace_file", String::new()),
        ("trace_level", level.to_owned()),
        ("trace_rate", "1".to_owned()),
        ("trace_count", "-1".to_owned()),
        ("log_frequency", "0".to_owned()),
        ("trace_mode", "opentelemetry".to_owned()),
    ]
}

/// The log settings.
pub(crate) fn log_settings() -> [(&'static str, Value); 6] {
    [
        ("log_file", json!("")),
        ("log_info", json!(enabled!(Level::INFO))),
        ("log_warning", json!(enabled!(Level::WARN))),
        ("log_error", json!(enabled!(Level::ERROR))),
        ("log_verbose_level", json!(u8::from(enabled!(Level::DEBUG)))),
        ("log_format", json!("default")),
    ]
}

/// The error for a change of trace settings.
pub(crate) fn fixed_trace() -> Problem {
    fixed("tracing is configured in the gateway's environment (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER)")
}

/// The error for a change of log settings.
pub(crate) fn fixed_log() -> Problem {
    fixed("logging is configured in the gateway's environment (RUST_LOG)")
}

/// The error for a registration of GPU memory.
pub(crate) fn no_cuda() -> Problem {
    fixed("CUDA shared memory is not supported: use system shared memory, or send the data")
}

fn fixed(why: &str) -> Problem {
    Problem::new(Failure::BadRequest, why)
}
