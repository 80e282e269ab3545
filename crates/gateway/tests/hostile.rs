//! Tests with hostile peers: slow, many, disconnecting, or with requests that parsers
//! misunderstand.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::{until, Client, Gateway, EMPTY, NAP, UPPERCASE};

#[test]
fn smuggling_shapes_are_refused_on_the_wire() {
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    let head = "POST /function/uppercase HTTP/1.1\r\nhost: a\r\n";
    // Each is followed by bytes that a confused parser would take for a request.
    let inner = "GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
    let shapes = [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n",
        "content-length: 4\r\ncontent-length: 5\r\n\r\nabcd",
        "content-length: 4\r\ncontent-length: 4\r\n\r\nabcd",
        "content-length: 4, 4\r\n\r\nabcd",
        "content-length: +4\r\n\r\nabcd",
        "content-length : 4\r\n\r\nabcd",
        "content-length: 4\r\n folded\r\n\r\nabcd",
        "x: y\r\n\tcontent-length: 4\r\n\r\nabcd",
        "content-length: 4\n\r\nabcd",
        "content-length: 4\r\n\nabcd",
        "x: a\rcontent-length: 4\r\n\r\nabcd",
        "transfer-encoding: chunked, identity\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
        "transfer-encoding: xchunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
        "transfer-encoding : chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
        "transfer-encoding:\x0bchunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n4\nabcd\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n0x4\r\nabcd\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n4;\nx\r\nabcd\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nabcd",
    ];
    for shape in shapes {
        let mut client = Client::connect(gateway.address());
        client.raw(format!("{head}{shape}{inner}").as_bytes());
        let answer = client.receive();
        let status = answer.as_ref().map_or(400, |a| a.status);
        assert!((400..500).contains(&status), "{shape:?}: {answer:?}");
        assert!(
            client.is_closed(),
            "{shape:?}: the rest was read as a request"
        );
    }
    let old = "POST /function/uppercase HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n";
    let mut client = Client::connect(gateway.address());
    client.raw(old.as_bytes());
    assert_eq!(client.receive().map_or(400, |a| a.status), 400);
    assert!(client.is_closed());
    assert_eq!(gateway.post("/function/uppercase", b"a").text(), "A");
}

#[test]
fn a_request_names_one_host() {
    let gateway = Gateway::start();
    let status = |head: &str| {
        let mut client = Client::connect(gateway.address());
        client.raw(format!("GET /healthz {head}\r\n\r\n").as_bytes());
        let status = client.receive().map_or(400, |answer| answer.status);
        (status, status == 400 && client.is_closed())
    };
    for head in [
        "HTTP/1.1",
        "HTTP/1.1\r\nhost: a\r\nhost: a",
        "HTTP/1.1\r\nHost: a\r\nhOST: b",
        "HTTP/1.0\r\nhost: a\r\nhost: b",
        "HTTP/1.1\r\nhost: a b",
        "HTTP/1.1\r\nhost: a/b",
        "HTTP/1.1\r\nhost: user@a",
        "HTTP/1.1\r\nhost: a:b",
    ] {
        assert_eq!(status(head), (400, true), "{head}");
    }
    for head in [
        "HTTP/1.0",
        "HTTP/1.1\r\nhost: a",
        "HTTP/1.1\r\nhost:",
        "HTTP/1.1\r\nhost: [::1]:80",
    ] {
        assert_eq!(status(head).0, 200, "{head}");
    }
}

#[test]
fn an_array_of_nothing_is_not_made_of_brackets() {
    let gateway = Gateway::start();
    gateway.deploy(
        "name: grid
inputs:
  - {name: text, type: u8, shape: [rows, cols], codecs: [raw, json]}
outputs:
  - {name: upper, type: u8, shape: [rows, cols], codecs: [json, npy, raw]}
args: [text, upper, u64(rows * cols)]
implementations:
  - native: {library: test.so, symbol: uppercase}
",
    );
    let refused = gateway.post("/function/grid?rows=100000000&cols=0", b"");
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(
        refused.text().contains("application/x-npy"),
        "{}",
        refused.text()
    );
    let few = gateway.post("/function/grid?rows=3&cols=0", b"");
    assert_eq!(few.text(), "{\"upper\":[[],[],[]]}\n");
    let raw = [("accept", "application/x-npy")];
    let path = "/function/grid?rows=100000000&cols=0";
    assert_eq!(gateway.send("POST", path, &raw, b"").status, 200);
}

#[test]
fn what_requests_hold_is_counted_bounded_and_given_back() {
    let gateway = Gateway::start_with(|options| options.limits.memory_bytes_max = 4 << 20);
    gateway.deploy(&UPPERCASE.replace("1MiB", "64MiB"));
    let held = || {
        let metrics = gateway.get("/metrics").text();
        let name = "baltra_gateway_memory_held_bytes ";
        let line = metrics.lines().find_map(|l| l.strip_prefix(name));
        line.unwrap().parse::<f64>().unwrap()
    };
    // A body of one-byte chunks is accounted with its bytes, not with its chunks.
    let mut drip = Client::connect(gateway.address());
    drip.raw(b"POST /function/uppercase HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    drip.raw(&b"1\r\na\r\n".repeat(200 << 10));
    let expected = ((200 << 10) - (64 << 10)) as f64;
    until("the chunks are counted", || held() == expected);
    let large = gateway.post("/function/uppercase", &vec![b'a'; 5 << 20]);
    assert_eq!(large.status, 503, "{}", large.text());
    assert!(
        large.text().contains("memory_bytes_max"),
        "{}",
        large.text()
    );
    assert_eq!(large.header("retry-after"), "1");
    assert_eq!(gateway.post("/function/uppercase", b"a").text(), "A");
    drip.raw(b"0\r\n\r\n");
    let answer = drip.receive().unwrap();
    assert_eq!(answer.body, vec![b'A'; 200 << 10]);
    until("everything is given back", || held() == 0.0);
}

#[test]
fn a_head_that_is_too_large_is_431() {
    let gateway = Gateway::start();
    let mut client = Client::connect(gateway.address());
    client.raw(format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(20_000)).as_bytes());
    assert_eq!(client.receive().unwrap().status, 431);
    assert!(client.is_closed());
}

#[test]
fn a_head_or_a_body_that_drips_ends_the_connection_and_holds_nobody_up() {
    let gateway = Gateway::start_with(|options| {
        options.workers = 1;
        options.limits.head_timeout_ms = 300;
        options.limits.body_timeout_ms = 300;
        options.limits.idle_timeout_ms = 300;
    });
    gateway.deploy(UPPERCASE);
    let head = b"POST /function/uppercase HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n";
    let silent = Client::connect(gateway.address());
    let mut drips: Vec<(Client, &[u8])> = vec![
        (Client::connect(gateway.address()), b"x"),
        (Client::connect(gateway.address()), b"y"),
        (Client::connect(gateway.address()), b"z"),
    ];
    drips[0].0.raw(b"GET /healthz HTTP/1.1\r\nx: ");
    drips[1].0.raw(head);
    drips[2]
        .0
        .raw(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\nGET /healthz HTTP/1.1\r\nx: ");
    let ended = |client: &mut Client, byte: &[u8]| {
        // Occasional bytes do not keep a connection open.
        let sent = client.stream.write_all(byte);
        client.stream.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4096];
        let read = loop {
            match client.stream.read(&mut buffer) {
                Ok(n) if n > 0 => {}
                other => break other,
            }
        };
        client.stream.set_nonblocking(false).unwrap();
        let waits = |e: &std::io::Error| e.kind() == std::io::ErrorKind::WouldBlock;
        sent.is_err() || !read.as_ref().is_err_and(waits)
    };
    let deadline = Instant::now() + support::PATIENCE;
    while !drips.is_empty() {
        assert!(
            Instant::now() < deadline,
            "{} connections live on",
            drips.len()
        );
        drips.retain_mut(|(client, byte)| !ended(client, byte));
        assert_eq!(gateway.post("/function/uppercase", b"a").text(), "A");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut silent = silent;
    assert!(silent.is_closed());
}

#[test]
fn who_does_not_take_its_answer_is_let_go() {
    let gateway = Gateway::start_with(|options| options.limits.write_timeout_ms = 300);
    gateway.deploy(&UPPERCASE.replace("1MiB", "64MiB"));
    let mut client = Client::connect(gateway.address());
    let body = vec![b'a'; 32 << 20];
    client.send("POST", "/function/uppercase", &[], &body);
    // The client reads nothing: the kernel's buffers fill long before the end.
    until("only the asking connection is open", || {
        let metrics = gateway.get("/metrics").text();
        metrics.contains("baltra_gateway_connections 1.0\n")
            || metrics.contains("baltra_gateway_connections 1\n")
    });
}

#[test]
fn a_client_that_vanishes_leaves_no_call_behind() {
    let gateway = Gateway::start();
    gateway.deploy(&NAP.replace("500", "60000"));
    assert_eq!(gateway.post("/function/nap?ms=1", b"").status, 200);
    for _ in 0..10 {
        let mut client = Client::connect(gateway.address());
        client.send("POST", "/function/nap?ms=500", &[], b"");
    }
    until("all calls have ended", || {
        let status = gateway.get("/system/function/nap").json();
        status["running"] == 0 && status["calls"]["done"].as_u64().unwrap() >= 1
    });
    assert_eq!(gateway.post("/function/nap?ms=1", b"").status, 200);
}

#[test]
fn a_vanished_caller_is_counted_as_such_and_pays_for_its_device_time() {
    let gateway = Gateway::start();
    gateway.deploy(&NAP.replace("500", "60000"));
    assert_eq!(gateway.post("/function/nap?ms=1", b"").status, 200);
    let usage = || {
        let lines = gateway.get("/system/usage").json();
        let own = lines.as_array().into_iter().flatten();
        let mut own = own.filter(|line| line["function"] == "nap");
        own.next().cloned().unwrap_or_default()
    };
    let before = usage()["device_ns"].as_u64().unwrap_or(0);
    let mut client = Client::connect(gateway.address());
    client.send("POST", "/function/nap?ms=300", &[], b"");
    // The call must run, because a waiting call is dropped when its caller disconnects.
    until("the call runs", || {
        gateway.get("/system/function/nap").json()["running"] == 1
    });
    std::thread::sleep(std::time::Duration::from_millis(100));
    drop(client);
    until("it is charged", || {
        let after = usage()["device_ns"].as_u64().unwrap_or(0);
        after.saturating_sub(before) >= 250_000_000
    });
    let calls = gateway.get("/system/function/nap").json()["calls"].clone();
    assert_eq!(
        (&calls["abandoned"], &calls["refused"]),
        (&1.into(), &0.into())
    );
}

#[test]
fn one_connection_too_many_is_refused_politely() {
    let gateway = Gateway::start_with(|options| options.limits.connections_max = 3);
    let mut open: Vec<Client> = (0..3).map(|_| Client::connect(gateway.address())).collect();
    for client in &mut open {
        client.send("GET", "/healthz", &[], b"");
        assert_eq!(client.receive().unwrap().status, 200);
    }
    let mut refused = Client::connect(gateway.address());
    let answer = refused.receive().unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (503, "1"));
    assert!(refused.is_closed());
    drop(open);
    until("there is room again", || {
        let mut client = Client::connect(gateway.address());
        client.send("GET", "/healthz", &[], b"");
        client.receive().is_some_and(|answer| answer.status == 200)
    });
}

/// Both ends of each connection are in this process: as many as its descriptors allow, up to
/// 10,000.
#[test]
fn ten_thousand_idle_connections_leave_room_for_calls() {
    let (soft, hard) = {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        (limit.current.unwrap_or(u64::MAX), limit.maximum)
    };
    let raised = rustix::process::Rlimit {
        current: hard,
        maximum: hard,
    };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
    let files = hard.unwrap_or(u64::MAX).max(soft);
    let count = ((files.saturating_sub(500)) / 2).min(10_000) as usize;
    let gateway = Gateway::start();
    gateway.deploy(EMPTY);
    let memory = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let before = memory();
    let mut idle: Vec<TcpStream> = Vec::with_capacity(count);
    for i in 0..count {
        let mut stream = TcpStream::connect(gateway.address()).unwrap();
        if i % 10 == 0 {
            // Some connections have been used.
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
                .unwrap();
        }
        idle.push(stream);
    }
    until("all are accepted", || {
        let metrics = gateway.get("/metrics").text();
        let line = metrics
            .lines()
            .find(|l| l.starts_with("baltra_gateway_connections "));
        let open = line.and_then(|l| l.split(' ').nth(1)?.parse::<f64>().ok());
        open.is_some_and(|open| open as usize > count)
    });
    let each = memory().saturating_sub(before) / count as u64;
    assert!(each < 64 << 10, "{each} bytes for each idle connection");
    for _ in 0..20 {
        assert!(gateway.get("/function/empty").status < 300);
    }
    // The connections still work.
    let last = idle.last_mut().unwrap();
    last.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    let mut answer = [0; 12];
    last.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn running_calls_end_before_the_gateway_does() {
    let gateway = Gateway::start();
    gateway.deploy(&NAP.replace("500", "60000"));
    assert_eq!(gateway.post("/function/nap?ms=1", b"").status, 200);
    let mut busy = Client::connect(gateway.address());
    let mut idle = Client::connect(gateway.address());
    busy.send("POST", "/function/nap?ms=700", &[], b"");
    until("it runs", || {
        gateway.get("/system/function/nap").json()["running"] == 1
    });
    let address = gateway.address();
    let stopping = std::thread::spawn(move || drop(gateway));
    let answer = busy.receive().unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("connection"), "close");
    assert!(busy.is_closed() && idle.is_closed());
    stopping.join().unwrap();
    assert!(TcpStream::connect(address).is_err());
}

/// Random bytes: the gateway responds or disconnects, and serves the next client.
#[test]
fn random_requests_are_survived() {
    let gateway = Gateway::start();
    gateway.deploy(UPPERCASE);
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let pieces: [&[u8]; 14] = [
        b"POST ",
        b"GET ",
        b"/function/uppercase",
        b"/system/functions",
        b"/v2/models/uppercase/infer",
        b" HTTP/1.1\r\n",
        b"host: a\r\n",
        b"content-length: 5\r\n",
        b"transfer-encoding: chunked\r\n",
        b"content-type: application/json\r\n",
        b"\r\n",
        b"hello",
        b"{\"inputs\": [",
        b"\x00\xff\x80",
    ];
    for _ in 0..300 {
        let mut client = Client::connect(gateway.address());
        for _ in 0..random() % 20 {
            client.raw(pieces[(random() % pieces.len() as u64) as usize]);
        }
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
        let text = String::from_utf8_lossy(&rest);
        assert!(!text.contains("HTTP/1.1 5"), "{text}");
    }
    assert_eq!(gateway.post("/function/uppercase", b"a").text(), "A");
}
