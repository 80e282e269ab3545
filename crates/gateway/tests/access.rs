//! Tests of keys, rates, management's password and TLS.

mod support;

use baltra_gateway::options::KeyOptions;
use rustls::pki_types::pem::PemObject;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use support::{archive, sha256, Gateway, UPPERCASE};

fn key(tenant: &str, key: &str, calls_per_s: u32) -> KeyOptions {
    KeyOptions {
        tenant: tenant.into(),
        sha256: sha256(key),
        calls_per_s,
        burst: 0,
    }
}

/// `Basic` of `admin:secret`.
const ADMIN: (&str, &str) = ("authorization", "Basic YWRtaW46c2VjcmV0");
const TAR: (&str, &str) = ("content-type", "application/x-tar");

fn guarded() -> Gateway {
    let gateway = Gateway::start_with(|options| {
        options.keys = vec![key("red", "red-key", 0), key("blue", "blue-key", 2)];
        options.admin.password_sha256 = sha256("secret");
    });
    let answer = gateway.send(
        "POST",
        "/system/functions",
        &[ADMIN, TAR],
        &archive(UPPERCASE),
    );
    assert_eq!(answer.status, 201, "{}", answer.text());
    gateway
}

#[test]
fn calls_want_a_key_and_are_booked_to_its_tenant() {
    let gateway = guarded();
    let call =
        |headers: &[(&str, &str)]| gateway.send("POST", "/function/uppercase", headers, b"a");
    let refused = call(&[]);
    assert_eq!(refused.status, 401);
    assert!(refused.header("www-authenticate").starts_with("Bearer"));
    assert_eq!(call(&[("x-api-key", "green-key")]).status, 401);
    assert_eq!(call(&[("authorization", "Bearer red-key")]).status, 200);
    assert_eq!(call(&[("x-api-key", "red-key")]).status, 200);
    assert_eq!(call(&[("x-api-key", "blue-key")]).status, 200);
    for path in [
        "/v2/models/uppercase",
        "/v2/models/uppercase/ready",
        "/v2/systemsharedmemory/status",
    ] {
        assert_eq!(gateway.get(path).status, 401, "{path}");
        assert_eq!(
            gateway
                .send("GET", path, &[("x-api-key", "red-key")], b"")
                .status,
            200
        );
    }
    for path in ["/healthz", "/readyz", "/v2/health/live", "/openapi.json"] {
        assert_eq!(gateway.get(path).status, 200, "{path}");
    }
    let usage = gateway.send("GET", "/system/usage", &[ADMIN], b"").json();
    let calls = |tenant: &str| {
        let lines = usage.as_array().unwrap().iter();
        lines.clone().find(|l| l["tenant"] == tenant).unwrap()["calls"]
            .as_u64()
            .unwrap()
    };
    assert_eq!((calls("red"), calls("blue")), (2, 1));
}

#[test]
fn another_site_s_page_does_not_manage_with_a_stored_password() {
    let gateway = guarded();
    let path = "/system/scale-function/uppercase";
    let scale = |site: &[(&str, &str)]| {
        let headers = [&[ADMIN, ("content-type", "application/json")], site].concat();
        gateway.send("POST", path, &headers, br#"{"replicas": 1}"#)
    };
    let refused = scale(&[("sec-fetch-site", "cross-site")]);
    assert_eq!(refused.status, 403, "{}", refused.text());
    for site in [&[][..], &[("sec-fetch-site", "same-origin")]] {
        let scaled = scale(site);
        assert_eq!(scaled.status, 202, "{}", scaled.text());
    }
    // A link to the console.
    let linked = [ADMIN, ("sec-fetch-site", "cross-site")];
    assert_eq!(
        gateway
            .send("GET", "/system/functions", &linked, b"")
            .status,
        200
    );
}

#[test]
fn a_tenant_s_rate_is_its_own() {
    let gateway = guarded();
    let call = |key: &str| gateway.send("POST", "/function/uppercase", &[("x-api-key", key)], b"a");
    let refused = (0..100).map(|_| call("blue-key")).find(|a| a.status != 200);
    let refused = refused.expect("two calls a second are not a hundred at once");
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    for _ in 0..20 {
        assert_eq!(call("red-key").status, 200);
    }
}

#[test]
fn management_wants_its_password() {
    let gateway = guarded();
    for path in [
        "/system/functions",
        "/system/usage",
        "/metrics",
        "/ui/",
        "/system/logs?name=uppercase",
    ] {
        let refused = gateway.get(path);
        assert_eq!(refused.status, 401, "{path}");
        assert!(
            refused.header("www-authenticate").starts_with("Basic"),
            "{path}"
        );
        let key = [("x-api-key", "red-key")];
        assert_eq!(gateway.send("GET", path, &key, b"").status, 401, "{path}");
        assert_eq!(
            gateway.send("GET", path, &[ADMIN], b"").status,
            200,
            "{path}"
        );
    }
    let wrong = [("authorization", "Basic YWRtaW46c2VjcmVU")];
    assert_eq!(
        gateway
            .send("DELETE", "/system/functions", &wrong, b"{}")
            .status,
        401
    );
}

#[test]
fn metrics_come_in_the_form_that_a_scraper_accepts() {
    let gateway = Gateway::start();
    let page = |accept: &str| gateway.send("GET", "/metrics", &[("accept", accept)], b"");
    let text = page("text/plain; version=0.0.4");
    assert!(text
        .header("content-type")
        .starts_with("text/plain; version=0.0.4"));
    let body = text.text();
    assert!(
        body.contains("\n# TYPE baltra_gateway_calls_total counter\n"),
        "{body}"
    );
    assert!(
        !body.contains("# EOF") && !body.contains("# UNIT"),
        "{body}"
    );
    let open = page("application/openmetrics-text; version=1.0.0");
    assert!(open
        .header("content-type")
        .starts_with("application/openmetrics-text"));
    assert!(open.text().ends_with("# EOF\n"));
    assert!(open
        .text()
        .contains("\n# TYPE baltra_gateway_calls counter\n"));
}

#[test]
fn without_a_password_pages_of_other_sites_manage_nothing() {
    let gateway = Gateway::start();
    let cross = [("sec-fetch-site", "cross-site")];
    assert_eq!(
        gateway.send("GET", "/system/functions", &cross, b"").status,
        403
    );
    let mut client = support::Client::connect(gateway.address());
    client.raw(b"GET /system/functions HTTP/1.1\r\nhost: rebound.example\r\n\r\n");
    assert_eq!(client.receive().unwrap().status, 403);
}

#[test]
fn an_open_address_without_keys_does_not_start() {
    let home = tempfile::tempdir().unwrap();
    let mut options = support::options(home.path());
    options.address = "0.0.0.0:0".parse().unwrap();
    let error = baltra_gateway::Service::start(options)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("gateway.address") && error.contains("gateway.key"),
        "{error}"
    );
}

#[test]
fn both_doors_speak_tls() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let home = tempfile::tempdir().unwrap();
    let (cert, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let gateway = Gateway::start_with(|options| {
        options.tls_cert = Some(cert.clone());
        options.tls_key = Some(key);
        options.limits.head_timeout_ms = 500;
    });
    let mut roots = rustls::RootCertStore::empty();
    let certificate = rustls::pki_types::CertificateDer::from_pem_file(&cert).unwrap();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    for (address, protocol, hello, answered) in [
        (
            gateway.address(),
            &b"http/1.1"[..],
            &b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"[..],
            &b"HTTP/1.1 200"[..],
        ),
        (
            gateway.service.grpc_address().unwrap(),
            b"h2",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
            // A SETTINGS frame of stream 0.
            b"",
        ),
    ] {
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = "localhost".try_into().unwrap();
        let client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(support::PATIENCE)).unwrap();
        let mut stream = rustls::StreamOwned::new(client, socket);
        stream.write_all(hello).unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        assert_eq!(stream.conn.alpn_protocol(), Some(protocol));
        match answered {
            b"" => assert_eq!((start[3], &start[5..9]), (4, &[0u8; 4][..])),
            _ => assert_eq!(&start, answered),
        }
    }
    // A client that never starts the TLS handshake is disconnected.
    let mut silent = TcpStream::connect(gateway.address()).unwrap();
    silent.set_read_timeout(Some(support::PATIENCE)).unwrap();
    assert_eq!(silent.read(&mut [0; 16]).unwrap_or(0), 0);
    // Plain HTTP is not a TLS handshake.
    let mut plain = TcpStream::connect(gateway.address()).unwrap();
    plain.set_read_timeout(Some(support::PATIENCE)).unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP"));
}
