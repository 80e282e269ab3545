mod grpc;

use super::*;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use prost::Message as _;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

fn options(collector: &TcpListener, more: &[(&str, &str)]) -> Options {
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let options = Options::read("baltra-test", |name| {
        let found = more.iter().find(|(key, _)| *key == name);
        match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(endpoint.clone()),
            _ => found.map(|(_, value)| (*value).to_owned()),
        }
    });
    options.unwrap().unwrap()
}

/// Receives one message and responds with `status`.
async fn take(collector: &TcpListener, status: &str) -> (Vec<String>, ExportTraceServiceRequest) {
    let (stream, _) = collector.accept().await.unwrap();
    take_from(stream, status).await
}

async fn take_from<S>(stream: S, status: &str) -> (Vec<String>, ExportTraceServiceRequest)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_ascii_lowercase()),
        }
    }
    let length = head.iter().find_map(|l| l.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    (head, ExportTraceServiceRequest::decode(&body[..]).unwrap())
}

async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn span(name: &str) -> Span {
    Span {
        trace: trace_id(),
        id: span_id(),
        name: name.to_owned(),
        time: Clock::now().time(Instant::now(), Instant::now()),
        ..Span::default()
    }
}

#[tokio::test]
async fn the_collector_receives_the_spans() {
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let key = ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b");
    let spans = Spans::start(options(&collector, &[key])).unwrap();
    let span = Span {
        parent: [7; 8],
        kind: Kind::Client,
        time: Time {
            began_ns: 5,
            ended_ns: 9,
        },
        attributes: vec![("text", "a".into()), ("number", 3.into())],
        error: Some("broken".into()),
        ..span("one")
    };
    spans.export(span.clone());
    let closing = tokio::spawn({
        let spans = spans.clone();
        async move { spans.close(Duration::from_secs(60)).await }
    });
    let (head, message) = take(&collector, "200 OK").await;
    closing.await.unwrap();
    assert_eq!(head[0], "post /v1/traces http/1.1");
    assert!(head.contains(&"x-key: a b".to_owned()), "{head:?}");
    assert!(head.contains(&"content-type: application/x-protobuf".to_owned()));
    let of_service = &message.resource_spans[0];
    let resource = &of_service.resource.as_ref().unwrap().attributes;
    let service = resource.iter().find(|a| a.key == "service.name").unwrap();
    let service = service.value.clone().unwrap().value;
    assert_eq!(service, Some(Any::StringValue("baltra-test".into())));
    let [got] = &of_service.scope_spans[0].spans[..] else {
        panic!("{message:?}");
    };
    assert_eq!(got.trace_id, span.trace);
    assert_eq!(
        (&got.span_id[..], &got.parent_span_id[..]),
        (&span.id[..], &[7; 8][..])
    );
    assert_eq!((got.name.as_str(), got.kind), ("one", 3));
    assert_eq!((got.start_time_unix_nano, got.end_time_unix_nano), (5, 9));
    let status = got.status.as_ref().unwrap();
    assert_eq!((status.message.as_str(), status.code), ("broken", 2));
    let number = got.attributes[1].value.clone().unwrap().value;
    assert_eq!(number, Some(Any::IntValue(3)));
    let counts = spans.counts().unwrap();
    assert_eq!((counts.exported, counts.dropped), (1, 0));
}

#[tokio::test]
async fn rejected_spans_are_counted() {
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let few = ("OTEL_BSP_MAX_QUEUE_SIZE", "2");
    let spans = Spans::start(options(&collector, &[few])).unwrap();
    // The export task does not run meanwhile: the queue is full after two.
    for _ in 0..5 {
        spans.export(span("many"));
    }
    assert_eq!(spans.counts().unwrap().dropped, 3);
    let (_, message) = take(&collector, "503 Service Unavailable").await;
    assert_eq!(message.resource_spans[0].scope_spans[0].spans.len(), 2);
    until(|| spans.counts().unwrap().dropped == 5).await;
    // Export resumes when the collector is back.
    spans.export(span("again"));
    take(&collector, "200 OK").await;
    until(|| spans.counts().unwrap().exported == 1).await;
}

#[tokio::test]
async fn nothing_is_exported_by_default() {
    let spans = Spans::default();
    assert!(!spans.is_on() && !spans.takes(&[1; 16], Some(true)));
    spans.export(span("none"));
    spans.close(Duration::from_secs(60)).await;
    assert_eq!(spans.counts(), None);
}

#[test]
fn instants_before_and_after_the_sample_keep_their_order() {
    let before = Instant::now();
    let clock = Clock::now();
    let after = clock.at + Duration::from_nanos(5);
    let time = clock.time(before, after);
    assert!(time.began_ns <= clock.unix_ns);
    assert_eq!(time.ended_ns, clock.unix_ns + 5);
}
