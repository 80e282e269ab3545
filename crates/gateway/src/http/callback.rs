//! Tells an asynchronous call's end to whoever asked for it.

use crate::engine::Trace;
use crate::http::body::Body;
use crate::http::problem::{Problem, PROBLEM_JSON};
use crate::http::{tls, trace};
use baltra_functions::Answer;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// One attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Before the second attempt, and before the third.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// Where to tell it.
#[derive(Debug)]
pub(crate) struct Callback {
    url: Uri,
}

/// What is told.
#[derive(Debug)]
pub(crate) struct Outcome<'a> {
    pub call_id: &'a str,
    pub function: &'a str,
    pub took: Duration,
    pub trace: &'a Trace,
    pub result: Result<Answer, Problem>,
}

impl Callback {
    /// An URL of a host that the configuration allows.
    pub fn new(url: &HeaderValue, hosts: &[String]) -> Result<Callback, Problem> {
        let wrong =
            || Problem::bad_request("X-Callback-Url is no URL such as http://127.0.0.1:9000/done");
        let text = url.to_str().map_err(|_| wrong())?;
        let url: Uri = text.parse().map_err(|_| wrong())?;
        let known = matches!(url.scheme_str(), Some("http" | "https"));
        let plain = url.authority().is_some_and(|a| !a.as_str().contains('@'));
        let host = url
            .host()
            .filter(|h| !h.is_empty() && known && plain)
            .ok_or_else(wrong)?;
        let allowed = |allowed: &String| allowed == "*" || allowed.eq_ignore_ascii_case(host);
        if !hosts.iter().any(allowed) {
            return Err(Problem::bad_request(format!(
                "callbacks to '{}' are not allowed: 'gateway.callback_hosts' does not name it",
                host.chars().take(100).collect::<String>()
            )));
        }
        Ok(Callback { url })
    }

    /// Until it was taken, three times at most. The status, or what was wrong.
    pub async fn tell(&self, outcome: &Outcome<'_>) -> Result<u16, String> {
        let mut pauses = PAUSES.iter();
        loop {
            let attempt = tokio::time::timeout(ATTEMPT_TIMEOUT, self.attempt(outcome)).await;
            let error = match attempt {
                Ok(Ok(status)) if !status.is_server_error() => return Ok(status.as_u16()),
                Ok(Ok(status)) => format!("answered {status}"),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            match pauses.next() {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => return Err(error),
            }
        }
    }

    async fn attempt(&self, outcome: &Outcome<'_>) -> anyhow::Result<StatusCode> {
        let secure = self.url.scheme_str() == Some("https");
        let host = self.url.host().unwrap_or_default();
        let bare = host.trim_matches(['[', ']']);
        let port = self.url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let stream = TcpStream::connect((bare, port)).await?;
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
    // The connection is driven as long as the answer's head is waited for, and no longer.
    tokio::select! {
        answer = &mut answered => return Ok(answer?.status()),
        ended = connection => ended?,
    }
    // It may have ended right behind the answer.
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
}
