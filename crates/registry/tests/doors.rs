//! Tests of access control, rejections and listings: tokens, health, reflection, metrics,
//! functions.

mod support;

use baltra_api::registry::{
    AllocateRequest, CordonRequest, DeviceDescription, DrainRequest, Function, FunctionGetRequest,
    FunctionPutRequest, FunctionRemoveRequest, FunctionsRequest, Pool, PoolRemoveRequest,
    SignalsRequest, StatusRequest, UncordonRequest,
};
use baltra_registry::options::TokenOptions;
use baltra_registry::{Options, Service};
use support::{
    board, busy, digest, given, gpu, id, options, page, start, start_with, until, Clients,
};
use tokio::io::AsyncWriteExt;
use tonic::Code;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::HealthCheckRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::ServerReflectionRequest;

#[tokio::test]
async fn a_token_is_wanted_where_one_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start_with(Options {
        token: "secret".into(),
        ..options(dir.path())
    })
    .await;
    c.operators.status(StatusRequest {}).await.unwrap();
    for token in ["", "Secret", "secrets"] {
        let mut stranger = Clients::new(&handle.url(), token);
        let status = stranger
            .operators
            .status(StatusRequest {})
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{token}");
        assert!(status.message().contains("registry.token"), "{status}");
        let status = stranger.register("n1", Vec::new()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
        let request = AllocateRequest::default();
        let status = stranger.instances.allocate(request).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
        let request = FunctionsRequest::default();
        let status = stranger.functions.functions(request).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
    }
    assert!(c.devices().await.is_empty());
    handle.stop().await;
}

#[tokio::test]
async fn a_token_lets_its_role_in_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, _) = start_with(Options {
        tokens: TokenOptions {
            operator: "o".into(),
            node: "n".into(),
            application: "a".into(),
            ..TokenOptions::default()
        },
        ..options(dir.path())
    })
    .await;
    let of = |token| Clients::new(&handle.url(), token);
    let (mut operator, mut node, mut application) = (of("o"), of("n"), of("a"));
    let denied = |status: tonic::Status, whose: &str| {
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        assert!(status.message().contains(whose), "{status}");
    };

    node.join("n1", vec![gpu("a", 0.0)]).await;
    let status = application.register("n2", Vec::new()).await.unwrap_err();
    denied(status, "tokens.node");
    given(application.allocate("app", "").await);
    let request = AllocateRequest::default();
    let status = node.instances.allocate(request).await.unwrap_err();
    denied(status, "tokens.application");

    let device = "n1/a".to_owned();
    let pool = Pool {
        name: "p".into(),
        ..Pool::default()
    };
    let put = FunctionPutRequest {
        function: Some(Function {
            name: "f".into(),
            ..Function::default()
        }),
        content: Vec::new(),
    };
    for other in [&mut application, &mut node] {
        let (cordon, uncordon, drain) = (
            CordonRequest {
                device: device.clone(),
            },
            UncordonRequest {
                device: device.clone(),
            },
            DrainRequest {
                device: device.clone(),
            },
        );
        let denied = |status| denied(status, "tokens.operator");
        let removed = PoolRemoveRequest { name: "p".into() };
        let forgotten = FunctionRemoveRequest { name: "f".into() };
        let o = &mut other.operators;
        denied(o.cordon(cordon).await.unwrap_err());
        denied(o.uncordon(uncordon).await.unwrap_err());
        denied(o.drain(drain).await.unwrap_err());
        denied(o.pool_put(pool.clone()).await.unwrap_err());
        denied(o.pool_remove(removed).await.unwrap_err());
        let f = &mut other.functions;
        denied(f.function_put(put.clone()).await.unwrap_err());
        denied(f.function_remove(forgotten).await.unwrap_err());
        // All roles may read.
        other.operators.status(StatusRequest {}).await.unwrap();
        let all = FunctionsRequest::default();
        other.functions.functions(all).await.unwrap();
        assert!(!other.device("n1", "a").await.cordoned);
    }

    // The operator may do what the other roles may.
    let cordon = CordonRequest { device };
    assert!(
        operator
            .operators
            .cordon(cordon)
            .await
            .unwrap()
            .into_inner()
            .cordoned
    );
    operator.functions.function_put(put).await.unwrap();
    operator.register("n3", Vec::new()).await.unwrap();
    let status = of("x")
        .operators
        .status(StatusRequest {})
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    handle.stop().await;
}

#[tokio::test]
async fn the_connection_may_be_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, own.cert.pem()).unwrap();
    std::fs::write(&key, own.signing_key.serialize_pem()).unwrap();
    let handle = Service::start(Options {
        tls_cert: Some(cert.clone()),
        tls_key: Some(key),
        ..options(&dir.path().join("state"))
    })
    .await
    .unwrap();
    let to = |url: String, ca| baltra_api::client::Options {
        url,
        token: String::new(),
        ca,
    };
    assert!(handle.url().starts_with("https://"));
    let mut client = baltra_api::client::operators(&to(handle.url(), Some(cert))).unwrap();
    client.status(StatusRequest {}).await.unwrap();
    let plain = handle.url().replace("https", "http");
    let mut client = baltra_api::client::operators(&to(plain, None)).unwrap();
    client.status(StatusRequest {}).await.unwrap_err();
    handle.stop().await;
}

#[tokio::test]
async fn health_and_reflection_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, _) = start(dir.path()).await;
    let channel = tonic::transport::Endpoint::from_shared(handle.url())
        .unwrap()
        .connect_lazy();
    let mut health = HealthClient::new(channel.clone());
    for service in [
        "",
        "baltra.registry.v1.Nodes",
        "baltra.registry.v1.Operators",
    ] {
        let request = HealthCheckRequest {
            service: service.into(),
        };
        let status = health.check(request).await.unwrap().into_inner().status;
        assert_eq!(status, 1, "{service}");
    }
    let mut reflection = ServerReflectionClient::new(channel);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let answers = reflection
        .server_reflection_info(tokio_stream::once(request))
        .await;
    let answer = answers
        .unwrap()
        .into_inner()
        .message()
        .await
        .unwrap()
        .unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("{answer:?}");
    };
    let names: Vec<String> = list.service.into_iter().map(|s| s.name).collect();
    for service in ["Nodes", "Instances", "Functions", "Operators"] {
        assert!(
            names.contains(&format!("baltra.registry.v1.{service}")),
            "{names:?}"
        );
    }
    handle.stop().await;
}

#[tokio::test]
async fn a_second_registry_on_the_same_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, _) = start(dir.path()).await;
    let error = Service::new(options(dir.path())).unwrap_err();
    let text = format!("{error:#}");
    assert!(
        text.contains(&format!("process {}", std::process::id())),
        "{text}"
    );
    assert!(text.contains("registry.state"), "{text}");
    handle.stop().await;
    Service::new(options(dir.path())).unwrap();
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, _) = start(&dir.path().join("one")).await;
    let error = Service::new(Options {
        address: handle.address(),
        ..options(&dir.path().join("two"))
    });
    let text = format!("{:#}", error.unwrap_err());
    assert!(text.contains("registry.address"), "{text}");
    handle.stop().await;
}

/// A request that stores the function `sobel` with this content.
fn put(content: &[u8]) -> FunctionPutRequest {
    let function = Function {
        name: "sobel".into(),
        tenant: "red".into(),
        query: "vendor=Shader*".into(),
        replicas_min: 1,
        replicas_max: 8,
        ..Function::default()
    };
    FunctionPutRequest {
        function: Some(function),
        content: content.to_vec(),
    }
}

#[tokio::test]
async fn functions_are_kept_with_their_contents() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    let first = c
        .functions
        .function_put(put(b"one"))
        .await
        .unwrap()
        .into_inner();
    let same = c
        .functions
        .function_put(put(b"one"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(first, same);
    let before = c
        .functions
        .functions(FunctionsRequest::default())
        .await
        .unwrap()
        .into_inner();
    let big = vec![7u8; 1 << 20];
    let second = c
        .functions
        .function_put(put(&big))
        .await
        .unwrap()
        .into_inner();
    assert_ne!(first.digest, second.digest);
    assert!(second.revision > first.revision);
    let after = c
        .functions
        .functions(FunctionsRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_ne!(before.revision, after.revision);
    let get = || FunctionGetRequest {
        name: "sobel".into(),
    };
    let got = c.functions.function_get(get()).await.unwrap().into_inner();
    assert_eq!(got.content, big);
    assert_eq!(got.function.unwrap(), second);

    let mut other = put(b"x");
    other.function.as_mut().unwrap().tenant = "blue".into();
    let status = c.functions.function_put(other).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists);
    let status = c
        .functions
        .function_put(put(&vec![0; (16 << 20) + 1]))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);

    // The function's settings apply to its instances.
    c.join("n1", vec![board("a", None), gpu("b", 0.0)]).await;
    let request = AllocateRequest {
        function: "sobel".into(),
        tenant: "red".into(),
        ..AllocateRequest::default()
    };
    assert_eq!(support::places(&given(c.ask(request).await)), ["n1/b"]);
    handle.stop().await;
}

#[tokio::test]
async fn functions_outlive_the_registry_until_they_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    let content = vec![7u8; 1 << 20];
    c.functions.function_put(put(&content)).await.unwrap();
    handle.stop().await;

    let (handle, mut c) = start(dir.path()).await;
    let get = || FunctionGetRequest {
        name: "sobel".into(),
    };
    let got = c.functions.function_get(get()).await.unwrap().into_inner();
    assert_eq!(got.content, content);
    let remove = || FunctionRemoveRequest {
        name: "sobel".into(),
    };
    assert!(
        c.functions
            .function_remove(remove())
            .await
            .unwrap()
            .into_inner()
            .removed
    );
    assert!(
        !c.functions
            .function_remove(remove())
            .await
            .unwrap()
            .into_inner()
            .removed
    );
    let status = c.functions.function_get(get()).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let request = AllocateRequest {
        function: "sobel".into(),
        ..AllocateRequest::default()
    };
    let status = c.instances.allocate(request).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    handle.stop().await;
}

#[tokio::test]
async fn signals_and_metrics_say_how_many_replicas_are_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 100.0)]).await;
    let function = Function {
        name: "sobel".into(),
        replicas_min: 1,
        ..Function::default()
    };
    let put = FunctionPutRequest {
        function: Some(function),
        content: Vec::new(),
    };
    c.functions.function_put(put).await.unwrap();
    let request = AllocateRequest {
        function: "sobel".into(),
        ..AllocateRequest::default()
    };
    given(c.ask(request).await);
    c.allocate("refused", "vendor=None").await.refusal.unwrap();
    let signals = c
        .operators
        .signals(SignalsRequest {})
        .await
        .unwrap()
        .into_inner()
        .signals;
    assert_eq!((signals[0].replicas, signals[0].desired), (1, 2));
    assert_eq!(signals[0].reason, "utilization");

    let page = page(handle.metrics().unwrap()).await;
    for line in [
        "baltra_registry_devices{state=\"ready\"} 1",
        "baltra_registry_nodes{state=\"ready\"} 1",
        "baltra_registry_device_utilization_ratio{node=\"n1\",device=\"a\"} 1",
        "baltra_registry_device_instances{node=\"n1\",device=\"a\"} 1",
        "baltra_registry_instances{state=\"assigned\"} 1",
        "baltra_registry_allocations_total 1",
        "baltra_registry_refusals_total{filter=\"query\"} 1",
        "baltra_registry_function_replicas{function=\"sobel\"} 1",
        "baltra_registry_function_replicas_desired{function=\"sobel\"} 2",
        "baltra_registry_store_up 1",
    ] {
        let found = page
            .lines()
            .any(|l| l.strip_suffix(".0").unwrap_or(l) == line);
        assert!(found, "{line} is not in\n{page}");
    }
    assert!(page.contains("\r\ncontent-type: application/openmetrics-text; version=1.0.0"));
    assert!(page.ends_with("# EOF\n"));
    let page = support::page_as(handle.metrics().unwrap(), "*/*").await;
    assert!(
        page.contains("\r\ncontent-type: text/plain; version=0.0.4"),
        "{page}"
    );
    assert!(page.contains("\n# TYPE baltra_registry_allocations_total counter\n"));
    assert!(!page.contains("# EOF"));
    handle.stop().await;
}

#[tokio::test]
async fn what_is_too_long_or_malformed_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    let long = "x".repeat(300);
    let named = |name: &str| DeviceDescription {
        name: name.into(),
        ..DeviceDescription::default()
    };
    for (node, secret, devices) in [
        ("", id("n"), vec![]),
        ("a/b", id("n"), vec![]),
        (long.as_str(), id("n"), vec![]),
        ("n", "short".into(), vec![]),
        ("n", id("n"), vec![named("")]),
        ("n", id("n"), vec![named("a"), named("a")]),
        ("n", id("n"), vec![named("a"); 257]),
        (
            "n",
            id("n"),
            vec![DeviceDescription {
                vendor: long.clone(),
                ..named("a")
            }],
        ),
        (
            "n",
            id("n"),
            vec![DeviceDescription {
                regions: u32::MAX,
                ..named("a")
            }],
        ),
    ] {
        let status = c.register_as(node, &secret, devices).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{node}: {status}");
        assert!(!status.message().is_empty() && status.message().len() < 1_000);
    }
    assert!(c.devices().await.is_empty());
    c.join("n1", vec![gpu("a", 0.0)]).await;
    for request in [
        AllocateRequest {
            instance: "a b".into(),
            ..AllocateRequest::default()
        },
        AllocateRequest {
            query: "vendor".into(),
            ..AllocateRequest::default()
        },
        AllocateRequest {
            query: format!("vendor={}", "x".repeat(9_000)),
            ..AllocateRequest::default()
        },
        AllocateRequest {
            count: 100_000,
            ..AllocateRequest::default()
        },
        AllocateRequest {
            hostname: "a\nb".into(),
            ..AllocateRequest::default()
        },
    ] {
        let status = c.instances.allocate(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
    let many = vec![busy("a", 0.0, Vec::new()); 257];
    let status = c.heartbeat("n1", many).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    for utilization in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
        c.heartbeat("n1", vec![busy("a", utilization, Vec::new())])
            .await
            .unwrap();
        let known = c.device("n1", "a").await.utilization;
        assert!((0.0..=100.0).contains(&known), "{utilization}: {known}");
    }
    let pool = |name: &str, query: &str| Pool {
        name: name.into(),
        query: query.into(),
        devices: Vec::new(),
    };
    for pool in [pool("", ""), pool("p", "pool=q"), pool("p", "=")] {
        let status = c.operators.pool_put(pool).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
    let accelerator = Function {
        name: "f".into(),
        accelerator: digest('x'),
        ..Function::default()
    };
    let put = FunctionPutRequest {
        function: Some(accelerator),
        content: Vec::new(),
    };
    let status = c.functions.function_put(put).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    handle.stop().await;
}

#[tokio::test]
async fn it_holds_no_more_than_it_may() {
    let dir = tempfile::tempdir().unwrap();
    let mut limited = options(dir.path());
    limited.limits.nodes = 1;
    limited.limits.instances = 1;
    limited.limits.functions = 1;
    limited.limits.pools = 1;
    let (handle, mut c) = start_with(limited).await;
    c.join("n1", vec![gpu("a", 0.0)]).await;
    let status = c.register("n2", Vec::new()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(
        status.message().contains("registry.limits.nodes"),
        "{status}"
    );
    given(c.allocate("one", "").await);
    let request = AllocateRequest {
        instance: "two".into(),
        ..AllocateRequest::default()
    };
    let status = c.instances.allocate(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    for (name, fits) in [("one", true), ("two", false)] {
        let function = Function {
            name: name.into(),
            ..Function::default()
        };
        let put = FunctionPutRequest {
            function: Some(function),
            content: Vec::new(),
        };
        assert_eq!(c.functions.function_put(put).await.is_ok(), fits);
        let pool = Pool {
            name: name.into(),
            ..Pool::default()
        };
        assert_eq!(c.operators.pool_put(pool).await.is_ok(), fits);
    }
    handle.stop().await;
}

#[tokio::test]
async fn bytes_that_are_no_grpc_and_connections_that_say_nothing_disturb_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mut limited = options(dir.path());
    limited.limits.connections = 64;
    let (handle, mut c) = start_with(limited).await;
    c.join("n1", vec![gpu("a", 0.0)]).await;
    let mut silent = Vec::new();
    for n in 0..32u8 {
        let mut stream = tokio::net::TcpStream::connect(handle.address())
            .await
            .unwrap();
        match n % 4 {
            0 => {}
            1 => stream.write_all(&[n; 4096]).await.unwrap(),
            2 => stream
                .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                .await
                .unwrap(),
            _ => {
                // A preface, then random frames.
                let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
                bytes.extend([0, 0xFF, 0xFF, n, n, 0x7F, 0xFF, 0xFF, 0xFF]);
                bytes.extend([n; 512]);
                stream.write_all(&bytes).await.unwrap();
            }
        }
        silent.push(stream);
    }
    assert_eq!(c.device("n1", "a").await.state, "ready");
    let mut fresh = Clients::new(&handle.url(), "");
    until("it answers newcomers", || {
        let mut fresh = fresh.clone();
        async move { fresh.operators.status(StatusRequest {}).await.is_ok() }
    })
    .await;
    fresh.operators.status(StatusRequest {}).await.unwrap();
    drop(silent);
    handle.stop().await;
}

#[tokio::test]
async fn clients_find_a_registry_again_that_was_away() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 0.0)]).await;
    let address = handle.address();
    handle.stop().await;
    let status = c.operators.status(StatusRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let handle = Service::start(Options {
        address,
        ..options(dir.path())
    })
    .await
    .unwrap();
    until("the same client is answered", || {
        let mut c = c.clone();
        async move { c.operators.status(StatusRequest {}).await.is_ok() }
    })
    .await;
    assert_eq!(c.device("n1", "a").await.state, "unconfirmed");
    handle.stop().await;
}
