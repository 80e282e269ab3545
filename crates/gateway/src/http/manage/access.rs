//! Access to the management of functions.

use crate::http::failure::Failure;
use crate::http::gateway::Gateway;
use crate::http::problem::Problem;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{HeaderName, HOST};
use http::{HeaderMap, Uri};
use std::sync::Arc;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Allows management with a password, or without one from this host only.
pub(crate) async fn guard(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let checked = gateway.keys.check_admin(headers).and_then(|()| {
        if !gateway.keys.has_password() {
            check_local(headers, request.uri())
        } else if request.method().is_safe() {
            Ok(())
        } else {
            check_site(headers)
        }
    });
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// A page of another site must not manage functions with the password that the browser has stored.
fn check_site(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get(SEC_FETCH_SITE).map(|v| v.as_bytes()) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => {
            let detail = "the request comes from another site's page: use the gateway's console or a program";
            Err(Problem::new(Failure::Forbidden, detail))
        }
    }
}

/// Without a password, a page in a browser on this host must not be able to manage functions,
/// neither by a cross-site request nor through a DNS name that resolves to this host (DNS
/// rebinding).
fn check_local(headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let refused = |why: &str| {
        let detail =
            format!("management without a password is limited to programs on this host: {why} (set 'gateway.admin.password_sha256')");
        Err(Problem::new(Failure::Forbidden, detail))
    };
    check_site(headers)?;
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = uri.host().or(host).unwrap_or("localhost");
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_matches(['[', ']']);
    let address = bare.parse::<std::net::IpAddr>();
    let local = address.map_or(bare.eq_ignore_ascii_case("localhost"), |a| a.is_loopback());
    if local {
        Ok(())
    } else {
        refused("it names another host")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(list: &[(HeaderName, &'static str)]) -> HeaderMap {
        let pairs = list
            .iter()
            .map(|(n, v)| (n.clone(), HeaderValue::from_static(v)));
        pairs.collect()
    }

    #[test]
    fn without_a_password_only_this_host_manages() {
        let uri = Uri::from_static("/system/info");
        for host in [
            "localhost",
            "localhost:8080",
            "127.0.0.1:8080",
            "[::1]:8080",
            "127.3.2.1",
        ] {
            check_local(&headers(&[(HOST, host)]), &uri).unwrap();
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "10.0.0.1",
            "localhost.evil.example",
        ] {
            let problem = check_local(&headers(&[(HOST, host)]), &uri).unwrap_err();
            assert_eq!(problem.status, 403, "{host}");
        }
        let cross = [(HOST, "localhost"), (SEC_FETCH_SITE, "cross-site")];
        assert!(check_local(&headers(&cross), &uri).is_err());
        let own = [(HOST, "localhost"), (SEC_FETCH_SITE, "same-origin")];
        check_local(&headers(&own), &uri).unwrap();
    }

    #[test]
    fn pages_of_other_sites_do_not_manage() {
        for site in ["cross-site", "same-site"] {
            let problem = check_site(&headers(&[(SEC_FETCH_SITE, site)])).unwrap_err();
            assert_eq!(problem.status, 403, "{site}");
        }
        check_site(&headers(&[(SEC_FETCH_SITE, "same-origin")])).unwrap();
        check_site(&headers(&[])).unwrap();
    }
}
