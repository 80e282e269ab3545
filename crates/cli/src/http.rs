//! The gateway's client: one connection per request, HTTP/1.1, over TLS for https addresses.

use crate::args::Door;
use crate::daemons::Daemon;
use anyhow::{anyhow, bail, Context, Result};
use baltra_manager::options::PathOptions;
use base64::Engine as _;
use bytes::Bytes;
use http::header::{
    HeaderName, HeaderValue, ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT,
};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, Error as TlsError, RootCertStore};
use tokio_rustls::TlsConnector;

/// Timeout of connecting to a gateway.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The gateway's default address.
const DEFAULT: &str = "http://127.0.0.1:8080";

/// A gateway.
pub struct Gateway {
    runtime: tokio::runtime::Runtime,
    url: Uri,
    ca: Option<PathBuf>,
    admin: Option<HeaderValue>,
    key: Option<HeaderValue>,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Call {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Call {
    /// A request without a body; `path` includes the query.
    pub fn new(method: Method, path: impl Into<String>) -> Call {
        Call {
            method,
            path: path.into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    /// Adds a header.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Call {
        self.headers.append(name, value);
        self
    }

    /// Sets a body with its type.
    pub fn body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> Call {
        self.body = body.into();
        self.header(CONTENT_TYPE, HeaderValue::from_static(content_type))
    }

    /// Sets a body.
    pub fn bytes(mut self, body: impl Into<Bytes>) -> Call {
        self.body = body.into();
        self
    }
}

/// A response whose body has not been received yet.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    connection: tokio::task::JoinHandle<()>,
}

/// The role of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// Deploys and removes functions.
    Admin,
    /// Calls functions.
    Caller,
}

impl Gateway {
    /// The gateway in the arguments, or this host's.
    pub fn new(door: &Door, paths: &PathOptions) -> Result<Gateway> {
        let url = match &door.gateway {
            Some(url) => url.clone(),
            None => match Daemon::Gateway.announcement(paths) {
                Some(announcement) => announcement.url,
                None => DEFAULT.to_owned(),
            },
        };
        let parsed: Uri = url
            .parse()
            .ok()
            .filter(|u: &Uri| {
                matches!(u.scheme_str(), Some("http" | "https")) && u.host().is_some()
            })
            .ok_or_else(|| {
                anyhow!("invalid address of the gateway '{url}': expected a URL such as {DEFAULT}")
            })?;
        let secret = |text: String| -> Result<HeaderValue> {
            let mut value = HeaderValue::from_str(&text).map_err(|_| {
                anyhow!(
                    "the gateway's password or key has characters that are not allowed in a header"
                )
            })?;
            value.set_sensitive(true);
            Ok(value)
        };
        let admin = door.admin.as_ref().map(|pair| {
            secret(format!(
                "Basic {}",
                base64::engine::general_purpose::STANDARD.encode(pair)
            ))
        });
        let key = door.key.as_ref().map(|key| secret(format!("Bearer {key}")));
        Ok(Gateway {
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
            url: parsed,
            ca: door.ca.clone(),
            admin: admin.transpose()?,
            key: key.transpose()?,
        })
    }

    /// The path of a function.
    pub fn function(&self, name: &str) -> String {
        let base = self.url.to_string();
        format!("{}/function/{}", base.trim_end_matches('/'), escaped(name))
    }

    /// Sends a request; returns the head of the response.
    pub fn send(&self, who: As, call: Call) -> Result<Answer> {
        self.runtime.block_on(self.open(who, call))
    }

    /// Sends a request; returns the whole body, or an error with the gateway's message.
    pub fn ask(&self, who: As, call: Call) -> Result<Bytes> {
        let answer = self.send(who, call)?;
        let status = answer.status;
        let body = self.collect(answer)?;
        if status.is_success() {
            Ok(body)
        } else {
            Err(refusal(status, &body))
        }
    }

    /// Like [`Gateway::ask`], for a JSON response.
    pub fn json(&self, who: As, call: Call) -> Result<serde_json::Value> {
        let call = call.header(ACCEPT, HeaderValue::from_static("application/json"));
        let body = self.ask(who, call)?;
        serde_json::from_slice(&body).context("the response is not JSON: is this a gateway?")
    }

    /// Receives the rest of a response.
    pub fn collect(&self, answer: Answer) -> Result<Bytes> {
        let body = self.runtime.block_on(answer.body.collect())?.to_bytes();
        answer.connection.abort();
        Ok(body)
    }

    /// Forwards a response's body as it arrives.
    pub fn stream(&self, answer: Answer, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut body = answer.body;
        loop {
            let frame = self.runtime.block_on(body.frame());
            let Some(frame) = frame else { break };
            if let Ok(data) = frame.context("the response was cut off")?.into_data() {
                sink(&data)?;
            }
        }
        answer.connection.abort();
        Ok(())
    }

    async fn open(&self, who: As, call: Call) -> Result<Answer> {
        let host = self.url.host().unwrap_or_default();
        let tls = self.url.scheme_str() == Some("https");
        let port = self.url.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let bare = host.trim_matches(['[', ']']);
        let connected = tokio::time::timeout(CONNECT_MAX, TcpStream::connect((bare, port))).await;
        let stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => bail!(
                "cannot reach a gateway at {host}:{port} ({error}): start one with `baltra up`, or set its address with --gateway"
            ),
            Err(_) => bail!("cannot reach a gateway at {host}:{port}"),
        };
        let _ = stream.set_nodelay(true);
        let request = self.request(who, call, host, port)?;
        if !tls {
            return exchange(TokioIo::new(stream), request).await;
        }
        let name = ServerName::try_from(bare.to_owned())?;
        let stream = self.connector()?.connect(name, stream).await;
        let stream = stream.map_err(|error| {
            let inner = error
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<TlsError>());
            let reason = inner.map_or_else(|| error.to_string(), baltra_session::tls_reason);
            anyhow!("TLS handshake with the gateway at {host}:{port} failed: {reason}")
        })?;
        exchange(TokioIo::new(stream), request).await
    }

    fn request(&self, who: As, call: Call, host: &str, port: u16) -> Result<Request<Full<Bytes>>> {
        let base = self.url.path().trim_end_matches('/');
        let mut request = Request::builder()
            .method(call.method)
            .uri(format!("{base}{}", call.path))
            .body(Full::new(call.body))?;
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_str(&format!("{host}:{port}"))?);
        let agent = concat!("baltra/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        let secret = match who {
            As::Admin => &self.admin,
            As::Caller => &self.key,
        };
        if let Some(secret) = secret {
            headers.insert(AUTHORIZATION, secret.clone());
        }
        headers.extend(call.headers);
        Ok(request)
    }

    fn connector(&self) -> Result<TlsConnector> {
        let mut roots = RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        if let Some(path) = &self.ca {
            let read = || format!("cannot read certificates from {}", path.display());
            for certificate in CertificateDer::pem_file_iter(path).with_context(read)? {
                roots.add(certificate.with_context(read)?)?;
            }
        }
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

async fn exchange<I>(io: I, request: Request<Full<Bytes>>) -> Result<Answer>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    let connection = tokio::spawn(async move {
        // Errors appear in the response.
        let _ = connection.await;
    });
    let response = sender
        .send_request(request)
        .await
        .context("the gateway closed the connection without a response")?;
    let (head, body) = response.into_parts();
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body,
        connection,
    })
}

/// The error of a gateway's response: its text, or the text in its JSON.
pub fn refusal(status: StatusCode, body: &[u8]) -> anyhow::Error {
    let text = String::from_utf8_lossy(body);
    let announcement = serde_json::from_slice::<serde_json::Value>(body).ok();
    let of = |key: &str| Some(announcement.as_ref()?.get(key)?.as_str()?.to_owned());
    let words = of("detail")
        .or_else(|| of("error"))
        .or_else(|| of("message"));
    let words = words.unwrap_or_else(|| text.trim().chars().take(2000).collect());
    if words.is_empty() {
        anyhow!("the gateway responded with {status}")
    } else {
        anyhow!("{words} ({})", status.as_u16())
    }
}

/// A text, percent-encoded as one part of a path or query.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(byte as char);
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_said_in_the_gateways_words() {
        let said = |body: &str| refusal(StatusCode::NOT_FOUND, body.as_bytes()).to_string();
        assert_eq!(said("no such function\n"), "no such function (404)");
        assert_eq!(said("{\"error\": \"no\"}"), "no (404)");
        assert_eq!(said(""), "the gateway responded with 404 Not Found");
    }

    #[test]
    fn texts_become_parts_of_a_path() {
        assert_eq!(escaped("a-b_c.d~1"), "a-b_c.d~1");
        assert_eq!(escaped("a b/ü"), "a%20b%2F%C3%BC");
    }
}
