//! Tests of deployment, listing, scaling, logs and asynchronous calls, as operators and faas-cli
//! use them.

mod support;

use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use support::{archive, archive_of, until, Client, Gateway, EMPTY, LIBRARY, NAP, UPPERCASE};

const TAR: (&str, &str) = ("content-type", "application/vnd.baltra.function+tar");
const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn a_deployment_is_honored_or_refused_with_the_field_s_name() {
    let gateway = Gateway::start();
    let path = "/system/functions?deploy=false";
    let stored = gateway.send("POST", path, &[TAR], &archive(UPPERCASE));
    assert_eq!(stored.status, 201, "{}", stored.text());
    let deploy = |more: serde_json::Value| {
        let mut body = json!({"service": "loud", "image": "uppercase"});
        let fields = body.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        gateway.send(
            "POST",
            "/system/functions",
            &[JSON],
            body.to_string().as_bytes(),
        )
    };
    for (more, named) in [
        (json!({"envVars": {"a": "b"}}), "'envVars'"),
        (json!({"limits": {"memory": "1Gi"}}), "'limits'"),
        (json!({"secrets": ["key"]}), "'secrets'"),
        (
            json!({"readOnlyRootFilesystem": true}),
            "'readOnlyRootFilesystem'",
        ),
        (
            json!({"labels": {"com.openfaas.scale.max": "9"}}),
            "'com.openfaas.scale.max'",
        ),
        (
            json!({"labels": {"com.openfaas.scale.min": "many"}}),
            "'com.openfaas.scale.min'",
        ),
        (
            json!({"annotations": {"baltra.io/device": "vendor=x"}}),
            "'baltra.io/device'",
        ),
        (
            json!({"annotations": {"blastfunction.io/query": "x"}}),
            "'blastfunction.io/query'",
        ),
    ] {
        let refused = deploy(more);
        assert_eq!(refused.status, 400, "{named}: {}", refused.text());
        assert!(refused.text().contains(named), "{}", refused.text());
    }
    assert_eq!(gateway.get("/system/functions").json(), json!([]));
    // As faas-cli sends them: fields without a request.
    let empty = json!({
        "envProcess": "", "envVars": {}, "constraints": [], "secrets": null, "limits": null,
        "requests": {"memory": "", "cpu": ""}, "readOnlyRootFilesystem": false,
        "labels": {"com.openfaas.scale.min": "3", "team": "a"},
    });
    let deployed = deploy(empty);
    assert_eq!(deployed.status, 202, "{}", deployed.text());
    assert_eq!(gateway.get("/system/function/loud").json()["replicas"], 3);
}

#[test]
fn a_function_is_uploaded_deployed_by_another_name_scaled_and_removed() {
    let gateway = Gateway::start();
    let stored = gateway.send(
        "POST",
        "/system/functions?deploy=false",
        &[TAR],
        &archive(UPPERCASE),
    );
    assert_eq!(stored.status, 201, "{}", stored.text());
    assert_eq!(stored.json()["deployed"], false);
    assert_eq!(gateway.get("/system/store").json(), json!(["uppercase"]));
    assert_eq!(gateway.get("/system/functions").json(), json!([]));
    let deploy = |method, service: &str, image: &str| {
        let body = json!({"service": service, "image": image, "labels": {"team": "a"}});
        gateway.send(
            method,
            "/system/functions",
            &[JSON],
            body.to_string().as_bytes(),
        )
    };
    assert_eq!(deploy("PUT", "loud", "uppercase").status, 404);
    assert_eq!(deploy("POST", "loud", "uppercase").status, 202);
    assert_eq!(deploy("PUT", "loud", "baltra/uppercase:latest").status, 202);
    assert_eq!(gateway.post("/function/loud", b"a").text(), "A");
    assert_eq!(gateway.post("/function/loud/elsewhere", b"a").status, 404);
    assert_eq!(
        gateway.post("/function/loud.openfaas-fn/", b"b").text(),
        "B"
    );
    let list = gateway.get("/system/functions").json();
    assert_eq!(list[0]["name"], "loud");
    assert_eq!(list[0]["image"], "uppercase");
    assert_eq!(list[0]["labels"], json!({"team": "a"}));
    assert_eq!(list[0]["availableReplicas"], 1);
    let scaled = gateway.send(
        "POST",
        "/system/scale-function/loud",
        &[JSON],
        b"{\"replicas\": 0}",
    );
    assert_eq!(scaled.status, 202, "{}", scaled.text());
    assert_eq!(gateway.get("/system/function/loud").json()["replicas"], 0);
    assert_eq!(
        gateway.get("/system/function/loud").json()["availableReplicas"],
        0
    );
    // The function is loaded again on demand.
    assert_eq!(gateway.post("/function/loud", b"c").text(), "C");
    let used = gateway.send("DELETE", "/system/store/uppercase", &[], b"");
    assert_eq!(used.status, 409, "{}", used.text());
    let remove = |name: &str| {
        let body = json!({"functionName": name}).to_string();
        gateway
            .send("DELETE", "/system/functions", &[JSON], body.as_bytes())
            .status
    };
    assert_eq!((remove("loud"), remove("loud")), (202, 404));
    assert_eq!(gateway.post("/function/loud", b"a").status, 404);
    assert_eq!(
        gateway
            .send("DELETE", "/system/store/uppercase", &[], b"")
            .status,
        204
    );
    assert_eq!(gateway.get("/system/store").json(), json!([]));
}

#[test]
fn deployments_and_functions_outlive_the_gateway() {
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    gateway.deploy(EMPTY);
    let body = json!({"functionName": "empty"}).to_string();
    gateway.send("DELETE", "/system/functions", &[JSON], body.as_bytes());
    let before = gateway.get("/system/function/uppercase").json();
    let gateway = gateway.restart();
    assert_eq!(gateway.post("/function/uppercase", b"a").text(), "A");
    assert_eq!(gateway.get("/function/empty").status, 404);
    let after = gateway.get("/system/function/uppercase").json();
    assert_eq!(before["createdAt"], after["createdAt"]);
    assert_eq!(before["digest"], after["digest"]);
}

#[test]
fn an_upload_replaces_a_function_whole_or_not_at_all() {
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    let wrong = UPPERCASE.replace("inputs:", "imputs:");
    let refused = gateway.send("POST", "/system/functions", &[TAR], &archive(&wrong));
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(
        refused.json()["detail"].as_str().unwrap().contains("line"),
        "{}",
        refused.text()
    );
    let missing = archive_of(&[("function.yaml", UPPERCASE.as_bytes())]);
    assert_eq!(
        gateway
            .send("POST", "/system/functions", &[TAR], &missing)
            .status,
        422
    );
    let escaping = archive_of(&[
        ("function.yaml", UPPERCASE.as_bytes()),
        ("lib..so", &LIBRARY),
    ]);
    assert_eq!(
        gateway
            .send("POST", "/system/functions", &[TAR], &escaping)
            .status,
        422
    );
    for (kind, body) in [
        (TAR, &b"no archive"[..]),
        (("content-type", "application/gzip"), b"no archive"),
        (JSON, b"{"),
    ] {
        let refused = gateway.send("POST", "/system/functions", &[kind], body);
        assert!((400..500).contains(&refused.status), "{}", refused.text());
    }
    let other = gateway.send(
        "POST",
        "/system/functions",
        &[("content-type", "text/html")],
        b"x",
    );
    assert_eq!(other.status, 415);
    assert_eq!(gateway.post("/function/uppercase", b"a").text(), "A");
    // Another function with the same name.
    gateway.deploy(&EMPTY.replace("name: empty", "name: uppercase"));
    assert_eq!(gateway.post("/function/uppercase", b"").text(), "");
    let left = std::fs::read_dir(gateway.home.path().join("state/functions")).unwrap();
    assert_eq!(left.count(), 1);
}

#[test]
fn container_images_are_refused_clearly() {
    let gateway = Gateway::start();
    for image in ["ghcr.io/openfaas/nodeinfo:latest", "alpine:3.20", "nothing"] {
        let body = json!({"service": "x", "image": image}).to_string();
        let refused = gateway.send("POST", "/system/functions", &[JSON], body.as_bytes());
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.text().contains("store"), "{}", refused.text());
    }
}

#[test]
fn a_full_disk_is_507_and_leaves_the_gateway_serving() {
    // A file system of 256 KiB, if this user may mount one.
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
        .arg(&state)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no file system can be mounted here");
        return;
    }
    struct Mounted(std::path::PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg(&self.0).status();
        }
    }
    let mounted = Mounted(state.clone());
    let gateway = Gateway::start_with(|options| options.state = state.clone());
    gateway.deploy(UPPERCASE);
    let mut random = vec![0u8; 512 << 10];
    random
        .iter_mut()
        .enumerate()
        .for_each(|(i, b)| *b = (i * i) as u8);
    let large = archive_of(&[
        ("function.yaml", EMPTY.as_bytes()),
        ("test.so", &LIBRARY),
        ("large.bin", &random),
    ]);
    let refused = gateway.send("POST", "/system/functions", &[TAR], &large);
    assert_eq!(refused.status, 507, "{}", refused.text());
    assert!(refused.text().contains("full"), "{}", refused.text());
    assert_eq!(gateway.post("/function/uppercase", b"a").text(), "A");
    assert_eq!(gateway.get("/system/store").json(), json!(["uppercase"]));
    drop(gateway);
    drop(mounted);
}

#[test]
fn logs_are_lines_of_json_and_can_be_followed() {
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    gateway.post("/function/uppercase", b"a");
    let logs = gateway.get("/system/logs?name=uppercase&tail=-1&follow=false");
    assert_eq!(logs.header("content-type"), "application/x-ndjson");
    let lines: Vec<serde_json::Value> = logs
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines
        .iter()
        .any(|l| l["text"].as_str().unwrap().starts_with("deployed")));
    let call = lines
        .iter()
        .find(|l| l["text"].as_str().unwrap().contains(" 200 in "));
    assert!(call.unwrap()["text"]
        .as_str()
        .unwrap()
        .contains("traceparent=00-"));
    assert_eq!(
        gateway
            .get("/system/logs?name=uppercase&tail=1")
            .text()
            .lines()
            .count(),
        1
    );
    assert_eq!(gateway.get("/system/logs?name=nothing").status, 404);
    assert_eq!(gateway.get("/system/logs").status, 400);
    assert_eq!(
        gateway.get("/system/logs?name=uppercase&since=x").status,
        422
    );
    let future = gateway.get("/system/logs?name=uppercase&since=2099-01-01T00:00:00Z");
    assert_eq!(future.text(), "");

    let mut client = Client::connect(gateway.address());
    client.send(
        "GET",
        "/system/logs?name=uppercase&tail=1&follow=true",
        &[],
        b"",
    );
    assert_eq!(client.head(), 200);
    client.chunk().unwrap();
    gateway.send(
        "POST",
        "/function/uppercase",
        &[("content-type", "image/png")],
        b"x",
    );
    let mut seen = String::new();
    until("the refused call is reported", || {
        seen += &String::from_utf8_lossy(&client.chunk().unwrap_or_default());
        seen.contains(" 415 in ")
    });
    // Removal ends the log.
    let body = json!({"functionName": "uppercase"}).to_string();
    gateway.send("DELETE", "/system/functions", &[JSON], body.as_bytes());
    while client.chunk().is_some() {}
}

/// Responds to one request with 200; returns the request.
fn receive_one(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).unwrap();
        text += &String::from_utf8_lossy(&buffer[..n]);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|l| l.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |l| l.parse().unwrap()) || n == 0 {
            break;
        }
    }
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        .unwrap();
    text
}

#[test]
fn an_asynchronous_call_has_an_id_a_status_and_a_callback() {
    let gateway = Gateway::start_with(|options| {
        options.callback_hosts = vec!["127.0.0.1".into()];
    });
    gateway.deploy(UPPERCASE);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/done?x=1", listener.local_addr().unwrap());
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("x-callback-url", url.as_str()), ("traceparent", trace)];
    let accepted = gateway.send("POST", "/async-function/uppercase", &headers, b"later");
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let id = accepted.header("x-call-id").to_owned();
    assert_eq!(accepted.header("location"), format!("/system/async/{id}"));
    let callback = receive_one(&listener);
    assert!(
        callback.starts_with("POST /done?x=1 HTTP/1.1\r\n"),
        "{callback}"
    );
    assert!(callback.ends_with("\r\n\r\nLATER"), "{callback}");
    assert!(
        callback.contains(&format!("x-call-id: {id}\r\n")),
        "{callback}"
    );
    assert!(
        callback.contains("x-function-status: 200\r\n")
            && callback.contains("x-function-name: uppercase\r\n")
    );
    assert!(callback.contains(&trace[..35]), "{callback}");
    let path = format!("/system/async/{id}");
    until("the callback's status is known", || {
        let status = gateway.get(&path).json();
        status["state"] == "done" && status["callback"] == "200"
    });
    assert_eq!(gateway.get("/system/async/nothing").status, 404);
}

#[test]
fn an_asynchronous_call_that_fails_says_so() {
    let gateway = Gateway::start_with(|options| options.limits.async_max = 2);
    gateway.deploy(NAP);
    let accepted = gateway.post("/async-function/nap?ms=0", b"");
    assert_eq!(accepted.status, 202);
    let path = format!("/system/async/{}", accepted.header("x-call-id"));
    until("it has failed", || {
        gateway.get(&path).json()["state"] == "failed"
    });
    let status = gateway.get(&path).json();
    assert_eq!(status["status"], 500);
    assert!(status["detail"]
        .as_str()
        .unwrap()
        .contains("too short a nap"));
    assert_eq!(gateway.post("/async-function/nothing", b"").status, 404);
    let evil = [("x-callback-url", "http://169.254.169.254/")];
    assert_eq!(
        gateway
            .send("POST", "/async-function/nap?ms=1", &evil, b"")
            .status,
        400
    );
    let statuses: Vec<u16> = (0..3)
        .map(|_| gateway.post("/async-function/nap?ms=400", b"").status)
        .collect();
    assert_eq!(statuses, [202, 202, 503]);
}

#[test]
fn callbacks_that_nobody_answers_hold_up_no_calls() {
    let gateway = Gateway::start_with(|options| {
        options.limits.async_max = 1;
        options.limits.callbacks_max = 20;
        options.callback_hosts = vec!["127.0.0.1".into(), "localhost".into()];
    });
    gateway.deploy(UPPERCASE);
    // A host that accepts and never responds.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let call = |host: &str| {
        let url = format!("http://{host}:{port}/");
        let headers = [("x-callback-url", url.as_str())];
        gateway.send("POST", "/async-function/uppercase", &headers, b"a")
    };
    let accepted = |what: &str, call: &dyn Fn() -> support::Answer| {
        let mut answer = call();
        until(what, || {
            let done = answer.status == 202;
            if !done {
                answer = call();
            }
            done
        });
        let path = format!("/system/async/{}", answer.header("x-call-id"));
        until("it is done", || {
            gateway.get(&path).json()["state"] == "done"
        });
    };
    // The lane has two places, a tenth of the limit: two callbacks occupy them, and a third is
    // rejected.
    accepted("the first is accepted", &|| call("127.0.0.1"));
    accepted("its place in the queue is free", &|| call("127.0.0.1"));
    until("the host's lane is full", || {
        call("127.0.0.1").status == 503
    });
    let full = call("127.0.0.1");
    assert!(full.text().contains("callbacks_max"), "{}", full.text());
    accepted("another host's is not", &|| call("localhost"));
    accepted("nor is a call without one", &|| {
        gateway.post("/async-function/uppercase", b"a")
    });
}

#[test]
fn callbacks_go_only_where_the_operator_says() {
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    let call = |gateway: &Gateway, url: &str| {
        let headers = [("x-callback-url", url)];
        gateway.send("POST", "/async-function/uppercase", &headers, b"a")
    };
    let refused = call(&gateway, "http://127.0.0.1:9/");
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(
        refused.text().contains("callback_hosts"),
        "{}",
        refused.text()
    );
    let gateway = Gateway::start_with(|options| options.callback_hosts = vec!["*".into()]);
    gateway.deploy(UPPERCASE);
    assert_eq!(call(&gateway, "http://169.254.169.254/").status, 400);
    // A forbidden address behind a name is detected at the connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!(
        "http://localhost:{}/",
        listener.local_addr().unwrap().port()
    );
    let accepted = call(&gateway, &url);
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let path = format!("/system/async/{}", accepted.header("x-call-id"));
    let mut callback = String::new();
    until("the callback was refused", || {
        callback = gateway.get(&path).json()["callback"].to_string();
        callback.contains("callback_hosts")
    });
    assert!(listener.accept().is_err());
}

#[test]
fn a_redirect_leads_nowhere() {
    let gateway = Gateway::start_with(|options| {
        options.callback_hosts = vec!["127.0.0.1".into()];
    });
    gateway.deploy(UPPERCASE);
    let (first, second) = (
        TcpListener::bind("127.0.0.1:0").unwrap(),
        TcpListener::bind("127.0.0.1:0").unwrap(),
    );
    second.set_nonblocking(true).unwrap();
    let to = second.local_addr().unwrap();
    let url = format!("http://{}/", first.local_addr().unwrap());
    let headers = [("x-callback-url", url.as_str())];
    let accepted = gateway.send("POST", "/async-function/uppercase", &headers, b"a");
    let (mut stream, _) = first.accept().unwrap();
    let mut start = [0; 16];
    stream.read_exact(&mut start).unwrap();
    let moved =
        format!("HTTP/1.1 307 Moved\r\nlocation: http://{to}/\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(moved.as_bytes()).unwrap();
    let path = format!("/system/async/{}", accepted.header("x-call-id"));
    until("the redirect is reported", || {
        let callback = gateway.get(&path).json()["callback"].to_string();
        callback.contains("redirects are not followed")
    });
    assert!(second.accept().is_err());
}

#[test]
fn what_cannot_be_loaded_is_not_deployed() {
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    let wrong = UPPERCASE.replace("symbol: uppercase", "symbol: lowercase");
    let refused = gateway.send("POST", "/system/functions", &[TAR], &archive(&wrong));
    assert_eq!(refused.status, 422, "{}", refused.text());
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("lowercase"), "{detail}");
    let home = gateway.home.path().display().to_string();
    assert!(
        !detail.contains(&home) && !detail.contains("/tmp"),
        "{detail}"
    );
    // The earlier function still works, also after a restart.
    assert_eq!(gateway.post("/function/uppercase", b"a").text(), "A");
    let gateway = gateway.restart();
    assert_eq!(gateway.post("/function/uppercase", b"a").text(), "A");
    let refused = gateway.send(
        "POST",
        "/system/functions",
        &[TAR],
        &archive(&wrong.replace("name: uppercase", "name: other")),
    );
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert_eq!(gateway.get("/system/store").json(), json!(["uppercase"]));
    assert_eq!(gateway.get("/v2/models/other/ready").status, 404);
}

#[test]
fn a_function_without_a_device_is_deployed_and_not_ready() {
    let gateway = Gateway::start();
    let manifest = "name: copy
inputs: [{name: a, type: u8, shape: [n]}]
outputs: [{name: b, type: u8, shape: [n]}]
implementations: [{opencl: {source: copy.cl, kernel: copy, global: [n]}}]
";
    let files = [
        ("function.yaml", manifest.as_bytes()),
        (
            "copy.cl",
            b"kernel void copy(global uchar *a, global uchar *b) {}",
        ),
    ];
    let uploaded = gateway.send("POST", "/system/functions", &[TAR], &archive_of(&files));
    assert_eq!(uploaded.status, 201, "{}", uploaded.text());
    assert_eq!(uploaded.json()["ready"], false);
    let ready = gateway.get("/v2/models/copy/ready");
    assert_eq!(ready.status, 503, "{}", ready.text());
    let error = ready.json()["error"].as_str().unwrap().to_owned();
    let home = gateway.home.path().display().to_string();
    assert!(!error.contains(&home), "{error}");
    let index = gateway.post("/v2/repository/index", b"").json();
    assert_eq!(index[0]["state"], "LOADING");
    let ready_ones = gateway.post("/v2/repository/index", b"{\"ready\": true}");
    assert_eq!(ready_ones.json(), json!([]));
}

#[test]
fn uploads_and_deletions_at_once_are_carried_out_or_refused_with_the_reason() {
    let gateway = Gateway::start();
    let removal = json!({"functionName": "uppercase"}).to_string();
    let archive = archive(UPPERCASE);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let answer = gateway.send("POST", "/system/functions", &[TAR], &archive);
                    assert_eq!(answer.status, 201, "{}", answer.text());
                    let path = "/system/functions?deploy=false";
                    let answer = gateway.send("POST", path, &[TAR], &archive);
                    assert_eq!(answer.status, 201, "{}", answer.text());
                }
            });
            scope.spawn(|| {
                for _ in 0..30 {
                    let path = "/system/functions";
                    let answer = gateway.send("DELETE", path, &[JSON], removal.as_bytes());
                    assert!([202, 404].contains(&answer.status), "{}", answer.text());
                    let answer = gateway.send("DELETE", "/system/store/uppercase", &[], b"");
                    let known = [204, 404, 409];
                    assert!(known.contains(&answer.status), "{}", answer.text());
                }
            });
        }
    });
    gateway.deploy(UPPERCASE);
    assert_eq!(gateway.post("/function/uppercase", b"a").text(), "A");
    let left = std::fs::read_dir(gateway.home.path().join("state/functions")).unwrap();
    assert_eq!(left.count(), 1);
}

#[test]
fn a_name_that_is_a_file_and_a_directory_is_refused() {
    let gateway = Gateway::start();
    let files = [
        ("function.yaml", UPPERCASE.as_bytes()),
        ("test.so", &LIBRARY[..]),
        ("lib", b"a"),
        ("lib/x", b"b"),
    ];
    let refused = gateway.send("POST", "/system/functions", &[TAR], &archive_of(&files));
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(
        refused.text().contains("'lib' is both"),
        "{}",
        refused.text()
    );
}
