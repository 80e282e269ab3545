//! Tests of calls over HTTP: forwarded data, and headers of every response.

mod support;

use support::{Client, Gateway, EMPTY, NAP, SCALE, UPPERCASE};

#[test]
fn a_function_is_called_and_its_answer_has_every_header() {
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("traceparent", trace), ("x-request-id", "my-id")];
    let answer = gateway.send("POST", "/function/uppercase", &headers, b"hello");
    assert_eq!((answer.status, answer.text().as_str()), (200, "HELLO"));
    assert_eq!(answer.header("content-type"), "application/octet-stream");
    assert_eq!(answer.header("x-request-id"), "my-id");
    assert_eq!(answer.header("traceparent")[..35], trace[..35]);
    for part in ["queue;dur=", "cold;dur=", "device;dur=", "total;dur="] {
        assert!(answer.header("server-timing").contains(part), "{answer:?}");
    }
    // Responses to other requests have them too.
    for path in ["/healthz", "/nowhere", "/function/nothing"] {
        let answer = gateway.get(path);
        assert_eq!(answer.header("x-request-id").len(), 32, "{path}");
        assert!(
            answer.header("server-timing").contains("total;dur="),
            "{path}"
        );
    }
}

#[test]
fn many_calls_share_a_connection_pipelined_or_not() {
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    gateway.deploy(EMPTY);
    let mut client = Client::connect(gateway.address());
    for i in 0..50 {
        let text = format!("text {i}");
        client.send("POST", "/function/uppercase", &[], text.as_bytes());
        assert_eq!(client.receive().unwrap().text(), text.to_uppercase());
    }
    for i in 0..50 {
        client.send(
            "POST",
            "/function/uppercase",
            &[],
            format!("a{i}").as_bytes(),
        );
        client.send("GET", "/function/empty", &[], b"");
    }
    for i in 0..50 {
        assert_eq!(client.receive().unwrap().text(), format!("A{i}"));
        let empty = client.receive().unwrap();
        assert!(empty.status < 300 && empty.body.is_empty());
    }
}

#[test]
fn chunked_bodies_are_bodies() {
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    let mut client = Client::connect(gateway.address());
    for _ in 0..3 {
        client.raw(
            b"POST /function/uppercase HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
              3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n",
        );
        assert_eq!(client.receive().unwrap().text(), "ABCDEFG");
    }
}

#[test]
fn encoded_bodies_are_decoded_or_refused() {
    use std::io::Write;
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    let text = b"hello ".repeat(1000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&text).unwrap();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    zlib.write_all(&text).unwrap();
    let fastest = ruzstd::encoding::CompressionLevel::Fastest;
    let zstd = ruzstd::encoding::compress_to_vec(&text[..], fastest);
    let (gzip, zlib) = (gzip.finish().unwrap(), zlib.finish().unwrap());
    let call = |path: &str, coding: &str, body: &[u8]| {
        gateway.send("POST", path, &[("content-encoding", coding)], body)
    };
    let path = "/function/uppercase";
    for (coding, body) in [
        ("gzip", &gzip),
        ("deflate", &zlib),
        ("zstd", &zstd),
        ("identity", &text),
    ] {
        let answer = call(path, coding, body);
        assert_eq!(answer.body, text.to_ascii_uppercase(), "{coding}");
        let accepted = call("/async-function/uppercase", coding, body);
        assert_eq!(accepted.status, 202, "{coding}");
    }
    assert_eq!(call(path, "gzip", &zlib).status, 400);
    let unknown = call(path, "br", &text);
    assert_eq!(unknown.status, 415, "{}", unknown.text());
    assert_eq!(unknown.header("accept-encoding"), "gzip, deflate, zstd");
    // The decoded body exceeds the function's limit.
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&vec![b'a'; 2 << 20]).unwrap();
    assert_eq!(call(path, "gzip", &bomb.finish().unwrap()).status, 413);
}

#[test]
fn query_parameters_and_codecs_are_the_function_s() {
    let gateway = Gateway::start();
    gateway.deploy(SCALE);
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json"),
    ];
    let answer = gateway.send("POST", "/function/scale?factor=1.5", &headers, b"[1, 2, 4]");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(
        answer.json(),
        serde_json::json!({"scaled": [1.5, 3.0, 6.0]})
    );
    let wrong = gateway.send("POST", "/function/scale?factor=x", &headers, b"[1]");
    assert_eq!(wrong.status, 400, "{}", wrong.text());
    let unknown = gateway.send("POST", "/function/scale?fact=1", &headers, b"[1]");
    assert_eq!(unknown.status, 400, "{}", unknown.text());
}

#[test]
fn what_is_wrong_has_its_status_and_its_reason() {
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    gateway.deploy(SCALE);
    let problem = |answer: &support::Answer, status: u16| {
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(answer.header("content-type"), "application/problem+json");
        assert_eq!(answer.json()["status"], status);
        assert!(!answer.json()["detail"].as_str().unwrap().is_empty());
    };
    problem(&gateway.post("/function/nothing", b"x"), 404);
    problem(&gateway.post("/nothing", b"x"), 404);
    let wrong_method = gateway.send("DELETE", "/function/uppercase", &[], b"");
    problem(&wrong_method, 405);
    assert_eq!(wrong_method.header("allow"), "POST");
    let management = gateway.send("PATCH", "/system/functions", &[], b"");
    problem(&management, 405);
    assert!(
        management.header("allow").contains("POST"),
        "{management:?}"
    );
    problem(
        &gateway.post("/function/uppercase", &vec![b'x'; (1 << 20) + 1]),
        413,
    );
    let typed = [("content-type", "image/png")];
    problem(
        &gateway.send("POST", "/function/uppercase", &typed, b"x"),
        415,
    );
    let json = [("content-type", "application/json")];
    problem(
        &gateway.send("POST", "/function/scale", &json, b"[1, [2]]"),
        422,
    );
    problem(&gateway.send("POST", "/function/scale", &[], b"123"), 422);
}

#[test]
fn a_large_body_that_is_announced_is_refused_before_it_is_sent() {
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    let mut client = Client::connect(gateway.address());
    client.raw(
        b"POST /function/uppercase HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999\r\n\
          expect: 100-continue\r\n\r\n",
    );
    assert_eq!(client.receive().unwrap().status, 413);
    assert!(client.is_closed());
}

#[test]
fn a_call_beyond_its_deadline_is_504_and_a_failed_one_says_why() {
    let gateway = Gateway::start();
    // Long enough for the next call's worker to start on a busy machine.
    gateway.deploy(&NAP.replace("500", "5000"));
    let failed = gateway.post("/function/nap?ms=0", b"");
    assert_eq!(failed.status, 500, "{}", failed.text());
    assert!(
        failed.text().contains("too short a nap"),
        "{}",
        failed.text()
    );
    let late = gateway.post("/function/nap?ms=60000", b"");
    assert_eq!(late.status, 504, "{}", late.text());
    // The next call is unaffected.
    let answer = gateway.post("/function/nap?ms=1", b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn more_calls_than_may_run_are_503_with_retry_after() {
    let gateway = Gateway::start_with(|options| {
        options.workers = 1;
        options.limits.calls_max = 2;
    });
    gateway.deploy(&NAP.replace("500", "60000"));
    // Loaded first, so that the calls below run concurrently.
    assert_eq!(gateway.post("/function/nap?ms=1", b"").status, 200);
    let mut clients: Vec<Client> = (0..2).map(|_| Client::connect(gateway.address())).collect();
    for client in &mut clients {
        client.send("POST", "/function/nap?ms=2000", &[], b"");
    }
    support::until("two calls run", || {
        let status = gateway.get("/system/function/nap").json();
        status["running"] == 2
    });
    let refused = gateway.post("/function/nap?ms=1", b"");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    for client in &mut clients {
        assert_eq!(client.receive().unwrap().status, 200);
    }
    assert_eq!(gateway.post("/function/nap?ms=1", b"").status, 200);
}

#[test]
fn a_function_that_floods_leaves_places_for_others() {
    let gateway = Gateway::start_with(|options| {
        options.workers = 1;
        options.limits.calls_max = 8;
    });
    gateway.deploy(&NAP.replace("500", "60000"));
    gateway.deploy(UPPERCASE);
    assert_eq!(gateway.post("/function/nap?ms=1", b"").status, 200);
    let mut clients: Vec<Client> = (0..8).map(|_| Client::connect(gateway.address())).collect();
    for client in &mut clients {
        client.send("POST", "/function/nap?ms=3000", &[], b"");
    }
    let metric = |line: &str| {
        let metrics = gateway.get("/metrics").text();
        let value = metrics.lines().find_map(|l| l.strip_prefix(line));
        value.unwrap_or_default().trim().parse().unwrap_or(0)
    };
    let labels = "{function=\"nap\",tenant=\"default\",reason=\"places\"}";
    let shed = format!("baltra_gateway_calls_shed_total{labels}");
    support::until("two calls are refused", || metric(&shed) == 2);
    // Two places are left, of which one call takes one.
    assert_eq!(gateway.post("/function/uppercase", b"a").status, 200);
    let mut statuses = Vec::new();
    for client in &mut clients {
        let answer = client.receive().unwrap();
        if answer.status == 503 {
            assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
        }
        statuses.push(answer.status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 503, 503]);
    assert_eq!(metric(&shed), 2);
}

#[test]
fn usage_is_counted_by_function_and_kept_over_a_restart() {
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    for _ in 0..3 {
        assert_eq!(gateway.post("/function/uppercase", b"abcd").status, 200);
    }
    let gateway = gateway.restart();
    assert_eq!(gateway.post("/function/uppercase", b"abcd").status, 200);
    let usage = gateway.get("/system/usage").json();
    let line = &usage[0];
    assert_eq!(line["function"], "uppercase");
    assert_eq!(line["tenant"], "default");
    assert_eq!(
        (&line["calls"], &line["bytes_in"], &line["bytes_out"]),
        (&4.into(), &16.into(), &16.into())
    );
    let csv = gateway.get("/system/usage?format=csv");
    assert_eq!(
        csv.header("content-type").split(';').next(),
        Some("text/csv")
    );
    assert!(
        csv.text().contains("\ndefault,uppercase,4,0,"),
        "{}",
        csv.text()
    );
    let metrics = gateway.get("/metrics").text();
    let line =
        "baltra_gateway_calls_total{function=\"uppercase\",tenant=\"default\",ending=\"done\"} 1";
    assert!(metrics.contains(line), "{metrics}");
    let replicas = "baltra_gateway_replicas{function=\"uppercase\",state=\"loaded\"} 1";
    assert!(metrics.contains(replicas), "{metrics}");
    assert!(
        metrics.contains("baltra_gateway_batch_count{function=\"uppercase\"} 1"),
        "{metrics}"
    );
}
