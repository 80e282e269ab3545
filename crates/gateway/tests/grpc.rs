//! Tests of the gRPC listener with peers that announce long messages, send little, or lack a key.
//! `crates/tests` uses the real clients.

mod support;

use baltra_gateway::options::KeyOptions;
use baltra_gateway::proto::model_infer_request::InferInputTensor;
use baltra_gateway::proto::{
    ModelConfigRequest, ModelConfigResponse, ModelInferRequest, ModelInferResponse,
    ModelReadyRequest, ModelReadyResponse, ModelStatisticsRequest, ModelStatisticsResponse,
};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use support::{sha256, until, Gateway, SCALE, UPPERCASE};
use tokio::sync::mpsc;

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

/// gRPC's status codes.
const INVALID_ARGUMENT: u32 = 3;
const DEADLINE_EXCEEDED: u32 = 4;
const NOT_FOUND: u32 = 5;
const RESOURCE_EXHAUSTED: u32 = 8;
const UNAVAILABLE: u32 = 14;
const UNAUTHENTICATED: u32 = 16;

/// A body whose frames the test sends; it ends when the sender is dropped.
struct ChannelBody(mpsc::UnboundedReceiver<Bytes>);

impl hyper::body::Body for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.poll_recv(context);
        next.map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
    }
}

struct Answer {
    status: u32,
    message: String,
    body: Bytes,
}

/// Sends the pieces of a body, ends it if `ends` is set, and waits for the response.
async fn send(
    gateway: &Gateway,
    path: &str,
    key: Option<&str>,
    pieces: Vec<Bytes>,
    ends: bool,
) -> Answer {
    let address = gateway.service.grpc_address().unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let (feed, receiver) = mpsc::unbounded_channel();
    for piece in pieces {
        feed.send(piece).unwrap();
    }
    let feed = (!ends).then_some(feed);
    let mut request = http::Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(key) = key {
        request = request.header("x-api-key", key);
    }
    let request = request.body(ChannelBody(receiver)).unwrap();
    let answered = async {
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        // A rejected stream is reset after its response.
        let collected = body.collect().await.ok();
        let trailers = collected.as_ref().and_then(|c| c.trailers().cloned());
        let field = |name: &str| {
            let trailer = trailers.as_ref().and_then(|t| t.get(name));
            let value = head.headers.get(name).or(trailer)?;
            Some(value.to_str().unwrap().to_owned())
        };
        Answer {
            status: field("grpc-status").expect("a status").parse().unwrap(),
            message: field("grpc-message").unwrap_or_default(),
            body: collected.map_or_else(Bytes::new, |c| c.to_bytes()),
        }
    };
    let answer = tokio::time::timeout(support::PATIENCE, answered).await;
    drop(feed);
    answer.expect("an answer without the rest of the body")
}

/// A message with its prefix, or the beginning of one.
fn framed(length: usize, message: &[u8]) -> Bytes {
    let length = u32::try_from(length).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat().into()
}

async fn call<T: Message, U: Message + Default>(gateway: &Gateway, method: &str, request: &T) -> U {
    let path = format!("/inference.GRPCInferenceService/{method}");
    let message = request.encode_to_vec();
    let body = vec![framed(message.len(), &message)];
    let answer = send(gateway, &path, None, body, true).await;
    assert_eq!(answer.status, 0, "{}", answer.message);
    U::decode(&answer.body[5..]).unwrap()
}

fn infer(model: &str, raw: Vec<u8>) -> Vec<u8> {
    let request = ModelInferRequest {
        model_name: model.into(),
        inputs: vec![InferInputTensor {
            name: "text".into(),
            datatype: "UINT8".into(),
            shape: vec![raw.len() as i64],
            ..Default::default()
        }],
        raw_input_contents: vec![raw.into()],
        ..Default::default()
    };
    request.encode_to_vec()
}

fn held(gateway: &Gateway) -> String {
    let metrics = gateway.get("/metrics").text();
    let line = metrics
        .lines()
        .find(|line| line.starts_with("baltra_gateway_memory_held_bytes "));
    line.unwrap().to_owned()
}

fn is_free(gateway: &Gateway) -> bool {
    held(gateway).trim_end_matches(".0").ends_with(" 0")
}

fn guarded() -> Gateway {
    Gateway::start_with(|options| {
        options.keys = vec![KeyOptions {
            tenant: "red".into(),
            sha256: sha256("red-key"),
            calls_per_s: 0,
            burst: 0,
        }];
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_a_key_is_refused_before_it_comes() {
    let gateway = tokio::task::block_in_place(guarded);
    for path in [
        INFER,
        "/inference.GRPCInferenceService/ModelMetadata",
        "/inference.GRPCInferenceService/SystemSharedMemoryStatus",
        "/nowhere.Service/Method",
    ] {
        let announced = vec![framed(150 << 20, b"")];
        let answer = send(&gateway, path, None, announced, false).await;
        assert_eq!(answer.status, UNAUTHENTICATED, "{path}: {}", answer.message);
    }
    for path in ["ServerLive", "ServerReady", "ServerMetadata"] {
        let path = format!("/inference.GRPCInferenceService/{path}");
        let answer = send(&gateway, &path, None, vec![framed(0, b"")], true).await;
        assert_eq!(answer.status, 0, "{path}: {}", answer.message);
        let large = vec![framed(100 << 10, b"")];
        let answer = send(&gateway, &path, None, large, false).await;
        assert_eq!(
            answer.status, RESOURCE_EXHAUSTED,
            "{path}: {}",
            answer.message
        );
    }
    tokio::task::block_in_place(|| drop(gateway));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_as_long_as_its_function_takes() {
    let gateway = tokio::task::block_in_place(|| {
        let gateway = Gateway::start();
        gateway.deploy(UPPERCASE);
        gateway
    });
    // The length and the model's name suffice for the decision.
    let head = &infer("uppercase", vec![0; 100])[..40];
    let answer = send(&gateway, INFER, None, vec![framed(150 << 20, head)], false).await;
    assert_eq!(answer.status, RESOURCE_EXHAUSTED, "{}", answer.message);
    let head = &infer("nothing", vec![0; 100])[..40];
    let answer = send(&gateway, INFER, None, vec![framed(150 << 20, head)], false).await;
    assert_eq!(answer.status, NOT_FOUND, "{}", answer.message);
    // A long unknown field in front of the name.
    let hidden = [&b"\x3a\x80\x80\x40"[..], &[0; 8192]].concat();
    let answer = send(&gateway, INFER, None, vec![framed(2 << 20, &hidden)], false).await;
    assert_eq!(answer.status, INVALID_ARGUMENT, "{}", answer.message);
    let longest = infer("uppercase", vec![b'a'; 1 << 20]);
    let body = vec![framed(longest.len(), &longest)];
    let answer = send(&gateway, INFER, None, body, true).await;
    assert_eq!(answer.status, 0, "{}", answer.message);
    let answer = ModelInferResponse::decode(&answer.body[5..]).unwrap();
    assert_eq!(answer.raw_output_contents[0], vec![b'A'; 1 << 20]);
    until("nothing is held", || is_free(&gateway));
    tokio::task::block_in_place(|| drop(gateway));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_stops_is_given_up_in_time() {
    let gateway = tokio::task::block_in_place(|| {
        let gateway = Gateway::start_with(|options| {
            options.limits.body_timeout_ms = 300;
            options.limits.memory_bytes_max = 1 << 20;
        });
        gateway.deploy(UPPERCASE);
        gateway
    });
    let whole = infer("uppercase", vec![b'a'; 1 << 20]);
    let half = vec![framed(whole.len(), &whole[..400 << 10])];
    let answer = send(&gateway, INFER, None, half, false).await;
    assert_eq!(answer.status, DEADLINE_EXCEEDED, "{}", answer.message);
    until("nothing is held", || is_free(&gateway));
    // The maximum that all requests together may hold.
    let body = vec![framed(whole.len(), &whole)];
    let answer = send(&gateway, INFER, None, body, true).await;
    assert_eq!(answer.status, UNAVAILABLE, "{}", answer.message);
    assert!(
        answer.message.contains("memory_bytes_max"),
        "{}",
        answer.message
    );
    until("nothing is held", || is_free(&gateway));
    tokio::task::block_in_place(|| drop(gateway));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_many_tensors_is_refused_undecoded() {
    let gateway = tokio::task::block_in_place(|| {
        let gateway = Gateway::start();
        gateway.deploy(UPPERCASE);
        gateway
    });
    let name = ModelInferRequest {
        model_name: "uppercase".into(),
        ..Default::default()
    };
    for field in [b"\x2a\x00", b"\x32\x00", b"\x3a\x00", b"\x22\x00"] {
        let message = [&name.encode_to_vec()[..], &field.repeat(1 << 20)].concat();
        let body = vec![framed(message.len(), &message)];
        let answer = send(&gateway, INFER, None, body, true).await;
        assert_eq!(answer.status, INVALID_ARGUMENT, "{}", answer.message);
        assert!(answer.message.contains("more"), "{}", answer.message);
    }
    tokio::task::block_in_place(|| drop(gateway));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_s_configuration_and_statistics_are_those_of_its_calls() {
    let gateway = tokio::task::block_in_place(|| {
        let gateway = Gateway::start();
        gateway.deploy(SCALE);
        gateway.deploy(UPPERCASE);
        assert_eq!(gateway.post("/function/uppercase", b"a").status, 200);
        assert_eq!(gateway.post("/function/uppercase?x=1", b"a").status, 400);
        gateway
    });
    let request = ModelConfigRequest {
        name: "scale".into(),
        version: String::new(),
    };
    let config: ModelConfigResponse = call(&gateway, "ModelConfig", &request).await;
    let config = config.config.unwrap();
    let factor = config
        .input
        .iter()
        .find(|input| input.name == "factor")
        .unwrap();
    assert!(factor.optional);
    assert_eq!(factor.data_type().as_str_name(), "TYPE_FP32");
    let request = ModelReadyRequest {
        name: "scale".into(),
        version: String::new(),
    };
    let ready: ModelReadyResponse = call(&gateway, "ModelReady", &request).await;
    assert!(ready.ready);
    let all = ModelStatisticsRequest::default();
    let all: ModelStatisticsResponse = call(&gateway, "ModelStatistics", &all).await;
    let own = all
        .model_stats
        .iter()
        .find(|model| model.name == "uppercase")
        .unwrap();
    let parts = own.inference_stats.unwrap();
    assert_eq!((own.inference_count, own.execution_count), (1, 1));
    assert_eq!(
        (parts.success.unwrap().count, parts.fail.unwrap().count),
        (1, 1)
    );
    assert!(own.last_inference > 0);
    tokio::task::block_in_place(|| drop(gateway));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_describes_itself() {
    let gateway = tokio::task::block_in_place(Gateway::start);
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        // The reflection request `list_services`.
        let body = vec![framed(3, b"\x3a\x01\x2a")];
        let answer = send(&gateway, &path, None, body, true).await;
        let text = String::from_utf8_lossy(&answer.body);
        assert!(
            text.contains("inference.GRPCInferenceService"),
            "{version}: {text}"
        );
        // The reflection request `file_containing_symbol`: contents have the protocol's type, not
        // bytes.
        let symbol = b"inference.GRPCInferenceService";
        let request = [&[0x22, symbol.len() as u8][..], symbol].concat();
        let body = vec![framed(request.len(), &request)];
        let answer = send(&gateway, &path, None, body, true).await;
        let text = String::from_utf8_lossy(&answer.body);
        assert!(text.contains(".inference.InferTensorContents"), "{version}");
    }
    tokio::task::block_in_place(|| drop(gateway));
}
