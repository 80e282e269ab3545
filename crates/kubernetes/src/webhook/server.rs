//! HTTPS: `POST /mutate` and `POST /validate`, each with a review as request and response; `GET
//! /apis/…`, the scaling signals.

use super::certificate::Keeper;
use super::review::Reviewer;
use super::scaling;
use crate::health::Durations;
use anyhow::{Context, Result};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::core::admission::{AdmissionRequest, AdmissionReview};
use kube::core::DynamicObject;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// Limit of a review, which contains an object, its previous version and the user: the cluster
/// limits an object to 1.5 MiB.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Most concurrent connections. The API server has a few.
const CONNECTIONS_MAX: usize = 1_024;
/// Time limit of a TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Serves until the runtime ends.
pub(super) async fn serve(
    address: SocketAddr,
    certificate: Arc<Keeper>,
    reviewer: Arc<Reviewer>,
    took: Arc<Durations>,
) -> Result<()> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} (--listen)"))?;
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = room.clone().acquire_owned().await?;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (acceptor, reviewer, took) = (acceptor.clone(), reviewer.clone(), took.clone());
        tokio::spawn(async move {
            let _place = place;
            let handshake = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream));
            let Ok(Ok(stream)) = handshake.await else {
                return;
            };
            let service = service_fn(move |request| {
                let (reviewer, took) = (reviewer.clone(), took.clone());
                async move {
                    let began = Instant::now();
                    let admits = request.uri().path() == "/mutate";
                    let answer = answer(&reviewer, request).await;
                    if admits {
                        took.count(began.elapsed());
                    }
                    Ok::<_, Infallible>(answer)
                }
            });
            let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let stream = TokioIo::new(stream);
            let _ = if h2 {
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                http.serve_connection(stream, service).await
            } else {
                let http = hyper::server::conn::http1::Builder::new();
                http.serve_connection(stream, service).await
            };
        });
    }
}

async fn answer(reviewer: &Reviewer, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let mutate = match (request.method(), request.uri().path()) {
        (&Method::POST, "/mutate") => true,
        (&Method::POST, "/validate") => false,
        (&Method::GET, path) if path.starts_with("/apis/") => {
            return scale(reviewer, path, request.uri().query()).await;
        }
        (&Method::GET, "/healthz") => return text(StatusCode::OK, "ok\n"),
        _ => return text(StatusCode::NOT_FOUND, "POST /mutate or /validate\n"),
    };
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    let Ok(body) = body.await else {
        return text(StatusCode::PAYLOAD_TOO_LARGE, "the review exceeds 8 MiB\n");
    };
    let review: AdmissionReview<DynamicObject> = match serde_json::from_slice(&body.to_bytes()) {
        Ok(review) => review,
        Err(error) => {
            return text(
                StatusCode::BAD_REQUEST,
                &format!("not an AdmissionReview: {error}\n"),
            )
        }
    };
    // The request's version is repeated in the response.
    let request: AdmissionRequest<DynamicObject> = match review.try_into() {
        Ok(request) => request,
        Err(_) => {
            return text(
                StatusCode::BAD_REQUEST,
                "the AdmissionReview has no request\n",
            )
        }
    };
    let answer = if mutate {
        reviewer.mutate(&request).await
    } else {
        reviewer.validate(&request)
    };
    json(&answer.into_review())
}

async fn scale(reviewer: &Reviewer, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    match scaling::answer(&reviewer.registry, path, query).await {
        Ok(answer) => json(&answer),
        Err(scaling::Refused(status, why)) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND);
            text(status, &format!("{why}\n"))
        }
    }
}

fn json(answer: &impl serde::Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(answer) {
        Ok(bytes) => {
            let mut response = Response::new(Full::new(Bytes::from(bytes)));
            let kind = http::HeaderValue::from_static("application/json");
            response.headers_mut().insert("content-type", kind);
            response
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
    }
}

fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = status;
    response
}
