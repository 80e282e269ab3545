//! Export to a real gRPC server, with and without TLS.

use super::*;
use crate::options::CERTIFICATE;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A collector that wants a token, and rejects one span of each batch.
#[derive(Clone, Default)]
struct Collecting(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

impl NamedService for Collecting {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl UnaryService<ExportTraceServiceRequest> for Collecting {
    type Response = ExportTraceServiceResponse;
    type Future = Pending<Result<Response<ExportTraceServiceResponse>, Status>>;

    fn call(&mut self, request: Request<ExportTraceServiceRequest>) -> Self::Future {
        let token = request.metadata().get("authorization").cloned();
        let collected = self.0.clone();
        Box::pin(async move {
            if token.is_none_or(|token| token != "Bearer x") {
                return Err(Status::unauthenticated("the token is missing"));
            }
            collected.lock().unwrap().push(request.into_inner());
            Ok(Response::new(ExportTraceServiceResponse {
                partial_success: Some(ExportTracePartialSuccess {
                    rejected_spans: 1,
                    ..ExportTracePartialSuccess::default()
                }),
            }))
        })
    }
}

impl tower_service::Service<http::Request<tonic::body::Body>> for Collecting {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pending<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::default());
            Ok(grpc.unary(service, request).await)
        })
    }
}

/// Serves a collector; returns its port.
async fn serve(collecting: Collecting, identity: Option<Identity>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut server = Server::builder();
    if let Some(identity) = identity {
        server = server
            .tls_config(ServerTlsConfig::new().identity(identity))
            .unwrap();
    }
    let incoming = TcpListenerStream::new(listener);
    let service = server.add_service(collecting);
    tokio::spawn(async move { service.serve_with_incoming(incoming).await });
    port
}

fn options_of(pairs: &[(&str, &str)]) -> Options {
    let options = Options::read("baltra-test", |name| {
        let found = pairs.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    });
    options.unwrap().unwrap()
}

const GRPC: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
const TOKEN: (&str, &str) = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x");
const URL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Exports two spans; returns the counts once both have ended.
async fn export_two(pairs: &[(&str, &str)]) -> Counts {
    let spans = Spans::start(options_of(pairs)).unwrap();
    spans.export(span("one"));
    spans.export(span("two"));
    spans.close(Duration::from_secs(600)).await;
    spans.counts().unwrap()
}

#[tokio::test]
async fn a_grpc_collector_receives_the_spans() {
    let collecting = Collecting::default();
    let port = serve(collecting.clone(), None).await;
    let url = format!("http://127.0.0.1:{port}");
    let counts = export_two(&[(URL, &url), GRPC, TOKEN]).await;
    assert_eq!(
        (counts.exported, counts.dropped),
        (1, 1),
        "one was rejected"
    );
    let messages = std::mem::take(&mut *collecting.0.lock().unwrap());
    let names: Vec<&str> = messages
        .iter()
        .flat_map(|m| &m.resource_spans[0].scope_spans[0].spans)
        .map(|span| span.name.as_str())
        .collect();
    assert_eq!(names, ["one", "two"]);
    // A status other than OK drops the spans.
    let counts = export_two(&[(URL, &url), GRPC]).await;
    assert_eq!((counts.exported, counts.dropped), (0, 2));
    assert!(collecting.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_collector_s_certificate_is_checked() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let identity = Identity::from_pem(made.cert.pem(), made.signing_key.serialize_pem());
    let collecting = Collecting::default();
    let port = serve(collecting.clone(), Some(identity)).await;
    let url = format!("https://localhost:{port}");
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let own = file("own.pem", &made.cert.pem());
    let trusted = export_two(&[(URL, &url), GRPC, TOKEN, (CERTIFICATE[1], &own)]).await;
    assert_eq!((trusted.exported, trusted.dropped), (1, 1));
    // Another authority's certificate is refused, and so is a name that the certificate lacks.
    let foreign = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let foreign = file("foreign.pem", &foreign.cert.pem());
    let address = format!("https://127.0.0.1:{port}");
    for (url, authorities) in [(&url, &foreign), (&address, &own)] {
        let counts = export_two(&[(URL, url), GRPC, TOKEN, (CERTIFICATE[1], authorities)]).await;
        assert_eq!((counts.exported, counts.dropped), (0, 2), "{url}");
    }
    assert_eq!(collecting.0.lock().unwrap().len(), 1);
    // Files are read at the start.
    let empty = file("empty.pem", "");
    for (path, reason) in [("/no/such.pem", "cannot read"), (&empty, "no certificate")] {
        let options = options_of(&[(URL, &url), GRPC, (CERTIFICATE[1], path)]);
        let error = Spans::start(options).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains(path), "{error}");
    }
}

/// The same certificate, with protobuf in an HTTP/1 request.
#[tokio::test]
async fn http_with_tls_reaches_the_collector() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = tempfile::tempdir().unwrap();
    let authority = files.path().join("ca.pem");
    std::fs::write(&authority, made.cert.pem()).unwrap();
    let chain = vec![made.cert.der().clone()];
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let served = tokio::spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let (stream, _) = listener.accept().await.unwrap();
        let stream = acceptor.accept(stream).await.unwrap();
        take_from(stream, "200 OK").await
    });
    let authority = authority.to_str().unwrap();
    let counts = export_two(&[(URL, &url), (CERTIFICATE[1], authority)]).await;
    assert_eq!((counts.exported, counts.dropped), (2, 0));
    let (head, message) = served.await.unwrap();
    assert_eq!(head[0], "post /v1/traces http/1.1");
    assert_eq!(message.resource_spans[0].scope_spans[0].spans.len(), 2);
}
