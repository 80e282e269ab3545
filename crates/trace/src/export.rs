//! The export task: batches of spans as OTLP messages.

use crate::collector::{Collector, Failure};
use crate::options::Options;
use crate::{Inner, Kind, Span, Value, BATCH_MAX};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as Outcome;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Message, Status};
use prost::Message as _;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Exports queued spans until the queue is closed and empty.
pub(crate) async fn run(inner: Arc<Inner>, options: Options, collector: Collector) {
    let mut closing = inner.closing.subscribe();
    let mut failed = false;
    loop {
        tokio::select! {
            () = tokio::time::sleep(options.delay) => {}
            () = inner.many.notified() => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
        let last = *closing.borrow();
        loop {
            let batch: Vec<Span> = std::iter::from_fn(|| inner.queue.pop())
                .take(BATCH_MAX)
                .collect();
            if batch.is_empty() {
                break;
            }
            let count = batch.len() as u64;
            let message = message(&options, batch).encode_to_vec();
            let sent = tokio::time::timeout(options.timeout, collector.send(message)).await;
            let refused = match sent {
                Ok(Ok(rejected)) => {
                    if std::mem::take(&mut failed) {
                        tracing::info!(endpoint = %options.endpoint, "the collector accepts spans again");
                    }
                    rejected.min(count)
                }
                other => {
                    let reason = other.map_or_else(|_| "no response in time".into(), error_of);
                    // Logged once per outage.
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!(endpoint = %options.endpoint, reason, "export failed: spans are dropped");
                    }
                    count
                }
            };
            inner.exported.fetch_add(count - refused, Relaxed);
            inner.dropped.fetch_add(refused, Relaxed);
        }
        if last {
            inner.closed.send_replace(true);
            return;
        }
    }
}

fn error_of(sent: Result<u64, Failure>) -> String {
    sent.map_or_else(|error| error.to_string(), |_| String::new())
}

fn message(options: &Options, batch: Vec<Span>) -> ExportTraceServiceRequest {
    let attributes = options.resource.iter();
    let attributes = attributes.map(|(key, value)| pair(key, Value::Text(value.clone())));
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: attributes.collect(),
                ..Resource::default()
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(InstrumentationScope {
                    name: "baltra".into(),
                    version: env!("CARGO_PKG_VERSION").into(),
                    ..InstrumentationScope::default()
                }),
                spans: batch.into_iter().map(encode).collect(),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    }
}

fn encode(span: Span) -> Message {
    let kind = match span.kind {
        Kind::Internal => SpanKind::Internal,
        Kind::Server => SpanKind::Server,
        Kind::Client => SpanKind::Client,
    };
    let attributes = span.attributes.into_iter();
    Message {
        trace_id: span.trace.to_vec(),
        span_id: span.id.to_vec(),
        parent_span_id: match span.parent {
            [0, 0, 0, 0, 0, 0, 0, 0] => Vec::new(),
            parent => parent.to_vec(),
        },
        // The flag `sampled`.
        flags: 1,
        name: span.name,
        kind: kind.into(),
        start_time_unix_nano: span.time.began_ns,
        end_time_unix_nano: span.time.ended_ns.max(span.time.began_ns),
        attributes: attributes.map(|(key, value)| pair(key, value)).collect(),
        status: span.error.map(|message| Status {
            message,
            code: Outcome::Error.into(),
        }),
        ..Message::default()
    }
}

fn pair(key: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => Any::StringValue(text),
        Value::Number(number) => Any::IntValue(number),
    };
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
