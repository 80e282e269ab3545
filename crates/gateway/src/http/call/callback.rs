//! Callbacks: HTTP requests at the end of asynchronous calls.

use crate::http::admission::body::Body;
use crate::http::problem::{Problem, PROBLEM_JSON};
use crate::http::telemetry::trace;
use crate::http::transport::tls;
use baltra_engine::Trace;
use baltra_functions::Answer;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pauses before the second and the third attempt.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// The target of a callback.
#[derive(Debug)]
pub(crate) struct Callback {
    url: Uri,
    /// Allowed addresses of this host and its links.
    local: Local,
}

/// Addresses of this host and its links that the configuration allows.
#[derive(Clone, Debug, Default)]
struct Local {
    addresses: Vec<IpAddr>,
    loopback: bool,
}

impl Local {
    fn of(hosts: &[String]) -> Local {
        let addresses = hosts.iter().filter_map(|host| bare(host).parse().ok());
        Local {
            addresses: addresses.collect(),
            loopback: hosts
                .iter()
                .any(|host| host.eq_ignore_ascii_case("localhost")),
        }
    }

    /// Whether an address may be called: an address beyond this host and its links, or an allowed
    /// one.
    fn allows(&self, address: IpAddr) -> bool {
        let address = unwrapped(address);
        let own_link = match address {
            IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast() || ip.octets()[0] == 0,
            IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_unspecified(),
        };
        let loopback = address.is_loopback();
        if !own_link && !loopback && !address.is_multicast() {
            return true;
        }
        self.addresses.contains(&address) || loopback && self.loopback
    }
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, translated (NAT64), or
/// relayed (6to4).
fn unwrapped(address: IpAddr) -> IpAddr {
    let IpAddr::V6(ip) = address else {
        return address;
    };
    let [a, b, c, d, e, f, g, h] = ip.segments();
    let inner = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => inner(g, h),
        [0, 0, 0, 0, 0, 0] if (g, h) != (0, 0) && (g, h) != (0, 1) => inner(g, h),
        [0x2002, high, low, ..] => inner(high, low),
        _ => address,
    }
}

/// A host without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_matches(['[', ']'])
}

/// The content of a callback.
#[derive(Debug)]
pub(crate) struct Outcome<'a> {
    pub call_id: &'a str,
    pub function: &'a str,
    pub took: Duration,
    pub trace: &'a Trace,
    pub result: Result<&'a Answer, &'a Problem>,
}

impl Callback {
    /// Parses the URL; its host must be one that the configuration allows.
    pub fn new(url: &HeaderValue, hosts: &[String]) -> Result<Callback, Problem> {
        let wrong = || {
            Problem::bad_request(
                "invalid X-Callback-Url: expected a URL such as http://127.0.0.1:9000/done",
            )
        };
        let text = url.to_str().map_err(|_| wrong())?;
        let url: Uri = text.parse().map_err(|_| wrong())?;
        let is_http = matches!(url.scheme_str(), Some("http" | "https"));
        let plain = url.authority().is_some_and(|a| !a.as_str().contains('@'));
        let host = url
            .host()
            .filter(|h| !h.is_empty() && is_http && plain)
            .ok_or_else(wrong)?;
        let allowed = |allowed: &String| allowed == "*" || allowed.eq_ignore_ascii_case(host);
        if !hosts.iter().any(allowed) {
            return Err(Problem::bad_request(format!(
                "callbacks to '{}' are not allowed: add it to 'gateway.callback_hosts'",
                host.chars().take(100).collect::<String>()
            )));
        }
        let local = Local::of(hosts);
        // The addresses of a name are checked after its resolution.
        if bare(host)
            .parse()
            .is_ok_and(|address| !local.allows(address))
        {
            return Err(Problem::bad_request(format!(
                "callbacks to '{host}' are not allowed: it is a loopback or link-local address (list the address itself in 'gateway.callback_hosts')"
            )));
        }
        Ok(Callback { url, local })
    }

    /// The target host.
    pub fn host(&self) -> &str {
        self.url.host().unwrap_or_default()
    }

    /// Connects to an allowed address of the host.
    async fn connect(&self, host: &str, port: u16) -> anyhow::Result<TcpStream> {
        let mut refused = None;
        let mut failed = None;
        for address in tokio::net::lookup_host((host, port)).await? {
            if !self.local.allows(address.ip()) {
                refused = Some(address.ip());
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = Some(error),
            }
        }
        match (failed, refused) {
            (Some(error), _) => Err(error.into()),
            (None, Some(address)) => Err(anyhow::anyhow!(
                "'{host}' resolves to {address}, a loopback or link-local address (list the address itself in 'gateway.callback_hosts')"
            )),
            (None, None) => Err(anyhow::anyhow!("'{host}' has no address")),
        }
    }

    /// Sends the callback, with at most three attempts. Returns the status or the error.
    pub async fn send(&self, outcome: &Outcome<'_>) -> Result<u16, String> {
        let mut pauses = PAUSES.iter();
        loop {
            let attempt = tokio::time::timeout(ATTEMPT_TIMEOUT, self.attempt(outcome)).await;
            let error = match attempt {
                Ok(Ok(status)) if status.is_redirection() => {
                    return Err(format!(
                        "responded with {status}: redirects are not followed"
                    ));
                }
                Ok(Ok(status)) if !status.is_server_error() => return Ok(status.as_u16()),
                Ok(Ok(status)) => format!("answered {status}"),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no response in time".to_owned(),
            };
            match pauses.next() {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => return Err(error),
            }
        }
    }

    async fn attempt(&self, outcome: &Outcome<'_>) -> anyhow::Result<StatusCode> {
        let secure = self.url.scheme_str() == Some("https");
        let bare = bare(self.host());
        let port = self.url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let stream = self.connect(bare, port).await?;
        let _ = stream.set_nodelay(true);
        let request = self.request(outcome)?;
        if !secure {
            return send(stream, request).await;
        }
        let connector = tokio_rustls::TlsConnector::from(tls::client()?);
        let name = ServerName::try_from(bare.to_owned())?;
        send(connector.connect(name, stream).await?, request).await
    }

    fn request(&self, outcome: &Outcome<'_>) -> anyhow::Result<Request<Body>> {
        let path = self.url.path_and_query().map_or("/", |p| p.as_str());
        let authority = self.url.authority().map_or("", |a| a.as_str());
        let (status, content_type, body) = match &outcome.result {
            Ok(answer) => (
                200,
                answer.content_type,
                Body::frames(answer.body.0.clone()),
            ),
            Err(problem) => (
                problem.status.as_u16(),
                PROBLEM_JSON,
                Body::from(problem.json()),
            ),
        };
        let request = Request::post(path)
            .header(HOST, authority)
            .header(CONTENT_TYPE, content_type)
            .header(super::queue::X_CALL_ID, outcome.call_id)
            .header("x-function-name", outcome.function)
            .header("x-function-status", status)
            .header(
                "x-duration-seconds",
                format!("{:.6}", outcome.took.as_secs_f64()),
            )
            .header(trace::TRACEPARENT, trace::header(outcome.trace));
        Ok(request.body(body)?)
    }
}

async fn send<S>(stream: S, request: Request<Body>) -> anyhow::Result<StatusCode>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut answered = std::pin::pin!(sender.send_request(request));
    // The connection is driven only until the head of the response has arrived.
    tokio::select! {
        answer = &mut answered => return Ok(answer?.status()),
        ended = connection => ended?,
    }
    // The connection may have ended directly after the response.
    Ok(answered.await?.status())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(url: &str, hosts: &[&str]) -> Result<Callback, Problem> {
        let hosts: Vec<String> = hosts.iter().map(|h| (*h).to_owned()).collect();
        Callback::new(&HeaderValue::from_str(url).unwrap(), &hosts)
    }

    #[test]
    fn only_named_hosts_are_called_back() {
        assert!(new("http://127.0.0.1:9/x?y=1", &["127.0.0.1"]).is_ok());
        assert!(new("https://Example.org/", &["example.org"]).is_ok());
        assert!(new("http://[::1]:9/", &["[::1]"]).is_ok());
        assert!(new("http://anything.example/", &["*"]).is_ok());
        for url in [
            "http://169.254.169.254/latest",
            "http://127.0.0.1@evil.example/",
            "http://evil.example@127.0.0.1/",
            "ftp://127.0.0.1/",
            "127.0.0.1",
            "/x",
            "",
            "http://",
        ] {
            let problem = new(url, &["127.0.0.1"]).unwrap_err();
            assert_eq!(problem.status, 400, "{url}");
        }
    }

    #[test]
    fn addresses_of_this_host_and_link_must_be_named_themselves() {
        for url in [
            "http://127.0.0.1/",
            "http://[::1]/",
            "http://169.254.169.254/",
            "http://[fe80::1]/",
            "http://0.0.0.0/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::7f00:1]/",
            "http://[64:ff9b::169.254.169.254]/",
            "http://[2002:7f00:1::]/",
            "http://224.0.0.1/",
        ] {
            let problem = new(url, &["*"]).unwrap_err();
            assert_eq!(problem.status, 400, "{url}");
        }
        for url in [
            "http://10.0.0.1/",
            "http://[2001:db8::1]/",
            "http://8.8.8.8/",
        ] {
            new(url, &["*"]).unwrap();
        }
        new("http://127.0.0.1/", &["127.0.0.1"]).unwrap();
        new("http://127.0.0.1/", &["*", "localhost"]).unwrap();
        assert!(new("http://169.254.1.1/", &["*", "localhost"]).is_err());
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_this_host_is_not_enough() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let refused = new("http://localhost/", &["*"]).unwrap();
        let error = refused.connect("localhost", port).await.unwrap_err();
        assert!(error.to_string().contains("callback_hosts"), "{error}");
        let allowed = new("http://localhost/", &["localhost"]).unwrap();
        allowed.connect("localhost", port).await.unwrap();
    }
}
