//! Clients of a registry.
//!
//! A client connects at its first use and reconnects after a loss of the connection, so it can be
//! created before the registry runs and kept indefinitely; clones share the connection. While the
//! registry is unreachable, calls fail at once with `UNAVAILABLE`; the caller keeps its last state
//! and retries after a pause ([`Backoff`]).

use crate::registry::functions_client::FunctionsClient;
use crate::registry::instances_client::InstancesClient;
use crate::registry::nodes_client::NodesClient;
use crate::registry::operators_client::OperatorsClient;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::service::Interceptor;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

/// Timeout of connecting.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// Timeout of a response.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Timeout of a response with a function's content.
const CONTENT_TIME_MAX: Duration = Duration::from_secs(300);
/// Size limit of a response, bytes: 100,000 instances, or a function with its content.
const ANSWER_BYTES_MAX: usize = 128 << 20;

/// The service for managers.
pub type Nodes = NodesClient<Connection>;
/// The service for applications.
pub type Instances = InstancesClient<Connection>;
/// The service for clients that deploy functions.
pub type Functions = FunctionsClient<Connection>;
/// The service for operators.
pub type Operators = OperatorsClient<Connection>;
/// A connection to a registry, with the token.
pub type Connection = InterceptedService<Channel, Bearer>;

/// A registry's address and credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// `http://host:port` or `https://host:port`.
    pub url: String,
    /// The token; empty if the registry needs none.
    pub token: String,
    /// For `https`: root certificates for the registry's certificate, PEM.
    pub ca: Option<PathBuf>,
}

/// Why options are invalid.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is invalid.
    #[error("invalid address of the registry '{0}': expected a URL such as http://127.0.0.1:7480")]
    Url(String),
    /// The token contains characters that a header cannot contain.
    #[error("the registry's token must be visible ASCII characters without spaces")]
    Token,
    /// `https` without certificates, or certificates without `https`.
    #[error("the registry's certificates: {0}")]
    Certificates(String),
}

/// Adds the token to every call.
#[derive(Clone, Debug)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(header) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", header.clone());
        }
        Ok(request)
    }
}

/// A connection that is established at the first call. Must be called within a runtime.
///
/// # Errors
/// The options are invalid. An unreachable registry makes calls fail instead.
pub fn connect(options: &Options) -> Result<Connection, Error> {
    connect_for(options, ANSWER_TIME_MAX)
}

fn connect_for(options: &Options, answer_time_max: Duration) -> Result<Connection, Error> {
    let url = || Error::Url(options.url.clone());
    let endpoint = Endpoint::from_shared(options.url.clone()).map_err(|_| url())?;
    let mut endpoint = endpoint
        .connect_timeout(CONNECT_TIME_MAX)
        .timeout(answer_time_max)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(5))
        .keep_alive_while_idle(true);
    match (endpoint.uri().scheme_str(), &options.ca) {
        (_, _) if endpoint.uri().host().is_none() => return Err(url()),
        (Some("http"), None) => {}
        (Some("http"), Some(_)) => {
            let reason = "they require an https:// address";
            return Err(Error::Certificates(reason.into()));
        }
        (Some("https"), Some(path)) => {
            let pem = std::fs::read(path).map_err(|error| {
                Error::Certificates(format!("cannot read {} ({error})", path.display()))
            })?;
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
            endpoint = endpoint
                .tls_config(tls)
                .map_err(|error| Error::Certificates(error.to_string()))?;
        }
        (Some("https"), None) => {
            let reason = "set the CA file that signed the registry's certificate";
            return Err(Error::Certificates(reason.into()));
        }
        _ => return Err(url()),
    }
    let header = match options.token.as_str() {
        "" => None,
        token => Some(
            format!("Bearer {token}")
                .parse()
                .map_err(|_| Error::Token)?,
        ),
    };
    Ok(InterceptedService::new(
        endpoint.connect_lazy(),
        Bearer(header),
    ))
}

/// The client for managers; see [`connect`].
///
/// # Errors
/// As for [`connect`].
pub fn nodes(options: &Options) -> Result<Nodes, Error> {
    Ok(NodesClient::new(connect(options)?).max_decoding_message_size(ANSWER_BYTES_MAX))
}

/// The client for applications; see [`connect`].
///
/// # Errors
/// As for [`connect`].
pub fn instances(options: &Options) -> Result<Instances, Error> {
    Ok(InstancesClient::new(connect(options)?).max_decoding_message_size(ANSWER_BYTES_MAX))
}

/// The client for deploying functions; see [`connect`].
///
/// # Errors
/// As for [`connect`].
pub fn functions(options: &Options) -> Result<Functions, Error> {
    let client = FunctionsClient::new(connect_for(options, CONTENT_TIME_MAX)?);
    Ok(client.max_decoding_message_size(ANSWER_BYTES_MAX))
}

/// The client for operators; see [`connect`].
///
/// # Errors
/// As for [`connect`].
pub fn operators(options: &Options) -> Result<Operators, Error> {
    let client = OperatorsClient::new(connect(options)?);
    Ok(client.max_decoding_message_size(ANSWER_BYTES_MAX))
}

/// Pauses between retries: exponential up to a limit, with a random part, so that a thousand nodes
/// do not reconnect at the same time.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    first: Duration,
    last: Duration,
}

impl Backoff {
    /// Pauses from `first` to `last`.
    pub fn new(first: Duration, last: Duration) -> Backoff {
        Backoff {
            next: first,
            first,
            last,
        }
    }

    /// Records a success: the next pause is the first one.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// The pause before the next retry.
    pub fn pause(&mut self) -> Duration {
        let whole = self.next.min(self.last);
        self.next = (whole * 2).min(self.last);
        let mut random = [0u8; 1];
        // Without random numbers, the pause has its full length; only the spreading is lost.
        let _ = getrandom::fill(&mut random);
        whole - whole.mul_f64(f64::from(random[0]) / 1024.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> Options {
        Options {
            url: url.into(),
            ..Options::default()
        }
    }

    #[tokio::test]
    async fn options_that_cannot_work_are_refused() {
        for url in ["", "nowhere", "ftp://x", "127.0.0.1:7480", "http://"] {
            let error = connect(&options(url)).unwrap_err();
            assert!(matches!(error, Error::Url(_)), "{url}: {error}");
        }
        let error = connect(&options("https://localhost:1")).unwrap_err();
        assert!(matches!(error, Error::Certificates(_)), "{error}");
        let token = Options {
            token: "new\nline".into(),
            ..options("http://localhost:1")
        };
        assert!(matches!(connect(&token), Err(Error::Token)));
    }

    #[tokio::test]
    async fn a_registry_that_is_away_is_unavailable() {
        let address = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let mut operators = operators(&options(&format!("http://{address}"))).unwrap();
        let status = operators
            .status(crate::registry::StatusRequest {})
            .await
            .unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable);
    }

    #[test]
    fn pauses_grow_to_their_bound() {
        let (first, last) = (Duration::from_millis(100), Duration::from_millis(450));
        let mut backoff = Backoff::new(first, last);
        for whole in [100, 200, 400, 450, 450] {
            let pause = backoff.pause().as_millis();
            assert!(
                (whole * 3 / 4 - 1..=whole).contains(&pause),
                "{pause} of {whole}"
            );
        }
        backoff.reset();
        assert!(backoff.pause() <= first);
    }
}
