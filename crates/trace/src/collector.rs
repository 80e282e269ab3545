//! A collector: OTLP in an HTTP/1 request or a gRPC call, over TCP or TLS; one connection per batch.

use crate::options::{
    invalid, Invalid, Options, Protocol, TlsFiles, CERTIFICATE, CLIENT_CERTIFICATE,
};
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, CONTENT_TYPE, HOST, TE};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::Response;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Longest response of a collector; longer ones are errors.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The path of the gRPC method.
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// A gRPC message begins with a flag and its length.
const PREFIX_BYTES: usize = 5;

/// Longest shown message of a gRPC status, characters.
const STATUS_CHARS_MAX: usize = 200;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The collector of the configuration.
pub(crate) struct Collector {
    endpoint: Uri,
    protocol: Protocol,
    headers: HeaderMap,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Collector {
    /// Reads the files for TLS.
    pub fn new(options: &Options) -> Result<Collector, Invalid> {
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            // The options are checked.
            if let (Ok(name), Ok(value)) =
                (HeaderName::try_from(name), HeaderValue::try_from(value))
            {
                headers.insert(name, value);
            }
        }
        let tls = match options.endpoint.scheme_str() {
            Some("https") => Some((
                connector(&options.tls, options.protocol)?,
                server_name(&options.endpoint)?,
            )),
            _ => None,
        };
        Ok(Collector {
            endpoint: options.endpoint.clone(),
            protocol: options.protocol,
            headers,
            tls,
        })
    }

    /// Exports one message. Returns the number of spans that the collector rejected.
    pub async fn send(&self, message: Vec<u8>) -> Result<u64, Failure> {
        let default = if self.tls.is_some() { 443 } else { 80 };
        let port = self.endpoint.port_u16().unwrap_or(default);
        let stream = TcpStream::connect((host(&self.endpoint), port)).await?;
        let answer = match &self.tls {
            Some((tls, name)) => {
                let stream = tls.connect(name.clone(), stream).await?;
                self.exchange(stream, message).await?
            }
            None => self.exchange(stream, message).await?,
        };
        let answer = ExportTraceServiceResponse::decode(answer)?;
        let partly = answer.partial_success.unwrap_or_default();
        Ok(u64::try_from(partly.rejected_spans).unwrap_or(0))
    }

    async fn exchange<S>(&self, stream: S, message: Vec<u8>) -> Result<Bytes, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match self.protocol {
            Protocol::Http => self.post(stream, message).await,
            Protocol::Grpc => self.call(stream, message).await,
        }
    }

    /// Protobuf in an HTTP/1 request.
    async fn post<S>(&self, stream: S, message: Vec<u8>) -> Result<Bytes, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let path = self.endpoint.path_and_query().map_or("/", |p| p.as_str());
        let mut request = Request::post(path).body(Full::new(Bytes::from(message)))?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        let authority = self.endpoint.authority().map_or("", |a| a.as_str());
        headers.insert(HOST, HeaderValue::try_from(authority)?);
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        headers.insert(CONTENT_TYPE, protobuf);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let answered = async { body(sender.send_request(request).await?).await };
        let mut answered = std::pin::pin!(answered);
        // The connection is driven only until the response is complete.
        let (answer, _) = tokio::select! {
            answer = &mut answered => answer?,
            _ = connection => answered.await?,
        };
        Ok(answer)
    }

    /// A gRPC call.
    async fn call<S>(&self, stream: S, message: Vec<u8>) -> Result<Bytes, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut uri = self.endpoint.clone().into_parts();
        uri.path_and_query = Some(METHOD.parse()?);
        let mut request =
            Request::post(Uri::from_parts(uri)?).body(Full::new(framed(&message)?))?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await?;
        let answered = async {
            let response = sender.send_request(request).await?;
            let head = response.headers().clone();
            let (answer, trailers) = body(response).await?;
            // A response without a message has the status in its head.
            check_status(if head.contains_key("grpc-status") {
                &head
            } else {
                &trailers
            })?;
            unframed(answer)
        };
        let mut answered = std::pin::pin!(answered);
        tokio::select! {
            answer = &mut answered => answer,
            _ = connection => answered.await,
        }
    }
}

fn host(endpoint: &Uri) -> &str {
    endpoint.host().unwrap_or_default().trim_matches(['[', ']'])
}

/// The bounded body of a successful response, and its trailers.
async fn body(response: Response<Incoming>) -> Result<(Bytes, HeaderMap), Failure> {
    let status = response.status();
    if status != StatusCode::OK {
        return Err(format!("the collector responded with {status}").into());
    }
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    Ok((body.to_bytes(), trailers))
}

fn framed(message: &[u8]) -> Result<Bytes, Failure> {
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    // Not compressed.
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len())?);
    bytes.put_slice(message);
    Ok(bytes.freeze())
}

/// The message of a response; an empty response has none.
fn unframed(mut answer: Bytes) -> Result<Bytes, Failure> {
    if answer.is_empty() {
        return Ok(answer);
    }
    let wrong = || Failure::from("the collector's response is not one gRPC message");
    let prefix: [u8; PREFIX_BYTES] = answer
        .get(..PREFIX_BYTES)
        .and_then(|prefix| prefix.try_into().ok())
        .ok_or_else(wrong)?;
    let [flag, length @ ..] = prefix;
    let message = answer.split_off(PREFIX_BYTES);
    if flag != 0 || message.len() != u32::from_be_bytes(length) as usize {
        return Err(wrong());
    }
    Ok(message)
}

/// Checks a gRPC status.
fn check_status(headers: &HeaderMap) -> Result<(), Failure> {
    let text = |name| {
        let value: Option<&HeaderValue> = headers.get(name);
        value.and_then(|v| v.to_str().ok()).unwrap_or_default()
    };
    match text("grpc-status") {
        "0" => Ok(()),
        "" => Err("the collector's response has no gRPC status: set the protocol to http/protobuf for a collector's port 4318".into()),
        code => {
            let message: String = text("grpc-message").chars().take(STATUS_CHARS_MAX).collect();
            Err(format!("the collector responded with gRPC status {code}: {message}").into())
        }
    }
}

fn server_name(endpoint: &Uri) -> Result<ServerName<'static>, Invalid> {
    let name = ServerName::try_from(host(endpoint).to_owned());
    name.map_err(|e| {
        let reason = format!("its host cannot be that of a certificate: {e}");
        invalid("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint.to_string(), reason)
    })
}

fn connector(files: &TlsFiles, protocol: Protocol) -> Result<TlsConnector, Invalid> {
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| invalid("OTEL_EXPORTER_OTLP_ENDPOINT", "https", e.to_string()))?
            .with_root_certificates(authorities(files.authorities.as_deref())?);
    let mut config = match &files.client {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let wrong =
                |reason: String| invalid(CLIENT_CERTIFICATE[1], &chain.to_string_lossy(), reason);
            let certificates = certificates(chain).map_err(wrong)?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|e| wrong(format!("cannot read its key {}: {e}", key.display())))?;
            builder
                .with_client_auth_cert(certificates, key)
                .map_err(|e| wrong(e.to_string()))?
        }
    };
    config.alpn_protocols = vec![match protocol {
        Protocol::Http => b"http/1.1".to_vec(),
        Protocol::Grpc => b"h2".to_vec(),
    }];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The authorities of a file, or those of Mozilla.
fn authorities(file: Option<&Path>) -> Result<RootCertStore, Invalid> {
    let mut roots = RootCertStore::empty();
    let Some(path) = file else {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        return Ok(roots);
    };
    let wrong = |reason: String| invalid(CERTIFICATE[1], &path.to_string_lossy(), reason);
    for certificate in certificates(path).map_err(wrong)? {
        roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
    }
    Ok(roots)
}

/// The certificates of a PEM file; at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).map_err(|e| format!("cannot read it: {e}"))?;
    let all: Result<Vec<_>, _> = read.collect();
    let all = all.map_err(|e| format!("it is not a PEM file of certificates: {e}"))?;
    if all.is_empty() {
        return Err("it has no certificate".into());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_messages_are_refused() {
        let message = framed(b"abc").unwrap();
        assert_eq!(unframed(message.clone()).unwrap(), &b"abc"[..]);
        assert_eq!(unframed(Bytes::new()).unwrap(), &b""[..]);
        let compressed = [&[1][..], &message[1..]].concat();
        let two = [&message[..], &message[..]].concat();
        for wrong in [&message[..4], &message[..7], &compressed, &two] {
            assert!(
                unframed(Bytes::copy_from_slice(wrong)).is_err(),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn a_status_other_than_zero_is_a_failure() {
        let check = |status: &str, message: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", status.parse().unwrap());
            headers.insert("grpc-message", message.parse().unwrap());
            check_status(&headers).map_err(|e| e.to_string())
        };
        check("0", "").unwrap();
        let failed = check("16", "no token").unwrap_err();
        assert!(
            failed.contains("16") && failed.contains("no token"),
            "{failed}"
        );
        assert!(check("3", &"x".repeat(5_000)).unwrap_err().len() < 300);
        assert!(check_status(&HeaderMap::new()).is_err());
    }
}
