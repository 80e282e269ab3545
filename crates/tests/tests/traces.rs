//! A call's spans, from the caller's `traceparent` to the device, as a collector receives them.
//!
//! One test only, because the collector's variables apply to the whole process.

use baltra_testkit::{until, Daemon, Options, Service};
use baltra_tests::baltra;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

const MANIFEST: &str = "name: next
inputs: [{name: a, type: u8, shape: [n]}]
outputs: [{name: b, type: u8, shape: [n]}]
implementations: [{opencl: {source: next.cl, kernel: next, global: [n]}}]
";
const KERNEL: &str = "kernel void next(global const uchar *a, global uchar *b) {
    b[get_global_id(0)] = a[get_global_id(0)] + 1;
}
";

/// Spans with the service that exported them.
type CollectedSpans = Arc<Mutex<Vec<(String, Span)>>>;

fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|a| a.key == key);
    match found.and_then(|a| a.value.clone()).and_then(|v| v.value) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?}"),
    }
}

/// Collects exported spans of all services.
fn collect(collector: TcpListener) -> CollectedSpans {
    let collected = CollectedSpans::default();
    let all = collected.clone();
    std::thread::spawn(move || {
        for stream in collector.incoming() {
            take(stream.unwrap(), &all);
        }
    });
    collected
}

fn take(stream: TcpStream, collected: &CollectedSpans) {
    let mut stream = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(text) = line.strip_prefix("content-length: ") {
            length = text.parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    let message = ExportTraceServiceRequest::decode(&body[..]).unwrap();
    for of_service in message.resource_spans {
        let service = text(&of_service.resource.unwrap().attributes, "service.name");
        let spans = of_service.scope_spans.into_iter().flat_map(|s| s.spans);
        let spans = spans.map(|span| (service.clone(), span));
        collected.lock().unwrap().extend(spans);
    }
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    stream.get_mut().write_all(answer.as_bytes()).unwrap();
}

/// Makes one call; returns the whole response.
fn call(gateway: &Service, traceparent: &str) -> String {
    let address = gateway.url().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /function/next HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n\
         Traceparent: {traceparent}\r\nContent-Length: 3\r\nConnection: close\r\n\r\nHAL"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nIBM"), "{answer}");
    answer
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_nanos() as u64
}

#[test]
fn a_call_s_spans_lead_from_the_caller_to_the_device() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    std::env::set_var("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    std::env::set_var("OTEL_BSP_SCHEDULE_DELAY", "50");
    let collected = collect(collector);
    let daemon = Daemon::start_with(baltra(), &Options::default()).unwrap();
    let options = Options {
        set: vec![format!(
            "gateway.engine.endpoints=[\"{}\"]",
            daemon.endpoint()
        )],
        ..Options::default()
    };
    let gateway = Service::start(baltra(), "gateway", &options).unwrap();
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("function.yaml"), MANIFEST).unwrap();
    std::fs::write(files.path().join("next.cl"), KERNEL).unwrap();
    let directory = files.path().to_str().unwrap();
    let deploy = ["function", "deploy", directory, "--gateway", gateway.url()];
    gateway.text(&deploy).unwrap();

    // A caller's decision not to sample is respected.
    call(
        &gateway,
        "00-11111111111111111111111111111111-2222222222222222-00",
    );
    let answer = call(
        &gateway,
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    );
    let trace = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes();
    let of_trace = || -> Vec<(String, Span)> {
        let collected = collected.lock().unwrap();
        let own = collected.iter().filter(|(_, span)| span.trace_id == trace);
        own.cloned().collect()
    };
    until("both daemons have exported their spans", || {
        of_trace().len() >= 6
    })
    .unwrap();
    let spans = of_trace();
    let one = |service: &str, name: &str| -> Span {
        let mut found = spans
            .iter()
            .filter(|(s, span)| s == service && span.name == name);
        let span = found
            .next()
            .unwrap_or_else(|| panic!("no {name} of {service}: {spans:?}"));
        assert!(found.next().is_none(), "{name} of {service} twice");
        span.1.clone()
    };
    let whole = one("baltra-gateway", "call next");
    let (queue, device) = (
        one("baltra-gateway", "queue"),
        one("baltra-gateway", "device"),
    );
    let task = one("baltra-manager", "task");
    let (gate, work) = (
        one("baltra-manager", "gate"),
        one("baltra-manager", "device"),
    );
    assert_eq!(spans.len(), 6, "{spans:?}");

    let caller = 0xb7ad_6b71_6920_3331_u64.to_be_bytes();
    for (span, parent) in [
        (&whole, &caller[..]),
        (&queue, &whole.span_id),
        (&device, &whole.span_id),
        (&task, &device.span_id),
        (&gate, &task.span_id),
        (&work, &task.span_id),
    ] {
        assert_eq!(span.parent_span_id, parent, "of {}", span.name);
        let (began, ended) = (span.start_time_unix_nano, span.end_time_unix_nano);
        assert!(began <= ended, "{}", span.name);
        // Wall-clock time, with a minute of tolerance.
        assert!(began.abs_diff(now_ns()) < 60_000_000_000, "{}", span.name);
    }
    assert_eq!(queue.end_time_unix_nano, device.start_time_unix_nano);
    assert_eq!(gate.end_time_unix_nano, work.start_time_unix_nano);
    assert_eq!(task.start_time_unix_nano, gate.start_time_unix_nano);
    assert_eq!(task.end_time_unix_nano, work.end_time_unix_nano);
    assert_eq!(text(&whole.attributes, "baltra.function"), "next");
    assert!(!text(&task.attributes, "baltra.tenant").is_empty());
    // The response contains the span id of the gateway.
    let id: String = whole.span_id.iter().map(|b| format!("{b:02x}")).collect();
    assert!(answer.contains(&format!("-{id}-01\r\n")), "{answer}");

    let unsampled = [0x11; 16];
    let collected = collected.lock().unwrap();
    assert!(collected.iter().all(|(_, span)| span.trace_id != unsampled));
}
