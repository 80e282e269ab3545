//! The gateway's engine, without HTTP: functions on a real device through a real manager, and
//! native ones in their sandboxed process.

mod killed;
mod overload;
mod scale;
mod turns;

use baltra_engine::{CallError, Engine, Options, Reply, Trace};
use baltra_functions::{Body, Call, Files, Function, Request};
use baltra_testkit::Daemon;
use baltra_tests::{baltra, daemon, daemon_with, free_port, root};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Long enough for compiling a kernel on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn options(daemons: &[&Daemon]) -> Options {
    Options {
        endpoints: daemons.iter().map(|d| d.endpoint()).collect(),
        native_program: baltra(),
        ..Options::default()
    }
}

fn engine(options: Options) -> Engine {
    Engine::new(options).expect("an engine")
}

/// A function from a manifest's text and its files.
fn function(manifest: &str, files: &[(&str, &[u8])]) -> Arc<Function> {
    let contents: BTreeMap<String, Bytes> = files
        .iter()
        .map(|(name, bytes)| (name.to_string(), Bytes::copy_from_slice(bytes)))
        .collect();
    let files = Files::from_contents(contents);
    Arc::new(Function::from_files(manifest, files).unwrap_or_else(|e| panic!("{e}")))
}

/// An example of `apps/functions`, without its native library or with only that.
fn example(name: &str, kind: &str) -> Arc<Function> {
    let dir = root().join("apps/functions").join(name);
    let text = std::fs::read_to_string(dir.join("function.yaml")).unwrap();
    let (head, rest) = text.split_once("implementations:\n").unwrap();
    let all: Vec<&str> = rest.lines().collect();
    let end = all
        .iter()
        .position(|line| !line.starts_with(' '))
        .unwrap_or(all.len());
    let (inside, tail) = all.split_at(end);
    let mut kept = Vec::new();
    let mut keeps = false;
    for line in inside {
        if let Some(entry) = line.strip_prefix("  - ") {
            keeps = entry.starts_with(kind);
        }
        if keeps {
            kept.push(*line);
        }
    }
    let manifest = format!(
        "{head}implementations:\n{}\n{}",
        kept.join("\n"),
        tail.join("\n")
    );
    let source = std::fs::read(dir.join(format!("{name}.cl"))).unwrap();
    let library = match kind {
        "native" => std::fs::read(compiled(&dir.join(format!("{name}.c"))).1).unwrap(),
        _ => Vec::new(),
    };
    let files: [(&str, &[u8]); 2] = [
        (&format!("{name}.cl"), &source),
        (&format!("{name}.so"), &library),
    ];
    function(&manifest, &files)
}

/// Compiles a shared library from C.
fn compiled(source: &Path) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("library.so");
    let status = std::process::Command::new("cc")
        .args(["-O1", "-std=gnu11", "-shared", "-fPIC", "-I"])
        .arg(root().join("crates/native/include"))
        .arg("-o")
        .args([&library, source])
        .status()
        .unwrap();
    assert!(status.success(), "{} compiles", source.display());
    (dir, library)
}

fn library_of(source: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("function.c");
    std::fs::write(&path, source).unwrap();
    std::fs::read(compiled(&path).1).unwrap()
}

fn bind(function: &Function, query: &str, body: impl Into<Vec<u8>>) -> Call {
    let headers = http::HeaderMap::new();
    let request = Request {
        method: &http::Method::POST,
        path: "",
        query,
        headers: &headers,
    };
    let call = function.bind(&request, Body::from(body.into()));
    call.unwrap_or_else(|e| panic!("{e}"))
}

async fn run(engine: &Engine, function: &Arc<Function>, call: Call) -> Result<Reply, CallError> {
    let deadline = Instant::now() + PATIENCE;
    engine
        .call(function, call, deadline, &Trace::default())
        .await
}

async fn bytes(engine: &Engine, function: &Arc<Function>, query: &str, body: &[u8]) -> Bytes {
    let reply = run(engine, function, bind(function, query, body)).await;
    reply.unwrap_or_else(|e| panic!("{e}")).outputs[0].clone()
}

const ADD: &str = r#"
name: add
inputs:
  - {name: a, type: i32, shape: [n]}
  - {name: by, type: i32, from: query}
  - {name: group, type: i32, from: query, default: 1}
outputs:
  - {name: b, type: i32, shape: [n]}
implementations:
  - opencl:
      source: add.cl
      kernel: add
      args: [a, b, i32(by)]
      global: ["align(n, group)"]
      local: [group]
"#;

const ADD_SOURCE: &[u8] = b"
kernel void add(global const int *a, global int *b, int by) {
    size_t i = get_global_id(0);
    b[i] = a[i] + by;
}";

fn add() -> Arc<Function> {
    function(ADD, &[("add.cl", ADD_SOURCE)])
}

fn ints(of: impl IntoIterator<Item = i32>) -> Vec<u8> {
    of.into_iter().flat_map(i32::to_le_bytes).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_function_gives_the_same_bytes_on_a_device_and_natively() {
    let daemon = daemon();
    let engine = engine(options(&[&daemon]));
    for (name, body) in [
        (
            "uppercase",
            b"A function, anywhere: \xc3\xa9 stays.".to_vec(),
        ),
        ("sha256", vec![7; 100_000]),
    ] {
        let mut answers = Vec::new();
        for kind in ["opencl", "native"] {
            let function = example(name, kind);
            engine.deploy(&function, 1).await;
            let reply = run(&engine, &function, bind(&function, "", body.clone())).await;
            let reply = reply.unwrap_or_else(|e| panic!("{name}, {kind}: {e}"));
            assert_eq!(reply.implementation, kind);
            answers.push(reply.outputs);
        }
        assert_eq!(answers[0], answers[1], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_at_once_get_each_their_own_answer() {
    let daemon = daemon();
    for kind in ["opencl", "native"] {
        let engine = engine(options(&[&daemon]));
        let function = example("uppercase", kind);
        engine.deploy(&function, 1).await;
        let callers = (0..48usize).map(|caller| {
            let (engine, function) = (engine.clone(), function.clone());
            tokio::spawn(async move {
                for round in 0..20 {
                    let text = format!("caller {caller}, round {round} ").repeat(caller % 7 + 1);
                    let answer = bytes(&engine, &function, "", text.as_bytes()).await;
                    assert_eq!(answer, text.to_uppercase().as_bytes());
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        let stats = engine.status(&function).unwrap().stats;
        assert_eq!((stats.done, stats.waiting), (48 * 20, 0));
        assert_eq!(stats.requests_ran, 48 * 20);
        assert_eq!(stats.latency.iter().sum::<u64>(), 48 * 20);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_come_while_the_device_is_busy_become_one() {
    let daemon = daemon();
    let engine = engine(options(&[&daemon]));
    let function = example("uppercase", "opencl");
    engine.deploy(&function, 1).await;
    let deadline = Instant::now() + PATIENCE;
    // The number of merged calls depends on the machine: repeat until some were.
    loop {
        let callers = (0..64).map(|n| {
            let (engine, function) = (engine.clone(), function.clone());
            tokio::spawn(async move {
                let text = format!("text number {n}");
                let call = bind(&function, "", text.clone());
                let reply = run(&engine, &function, call).await.unwrap();
                assert_eq!(reply.outputs[0], text.to_uppercase().as_bytes());
                reply.batch
            })
        });
        let mut most = 0;
        for caller in callers.collect::<Vec<_>>() {
            most = most.max(caller.await.unwrap());
        }
        if most > 1 {
            assert!(most <= 256);
            return;
        }
        assert!(Instant::now() < deadline, "no two calls ever met");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_launch_is_reported_to_its_caller_only() {
    let daemon = daemon();
    let engine = engine(options(&[&daemon]));
    let function = add();
    engine.deploy(&function, 1).await;
    let callers = (0..64i32).map(|n| {
        let (engine, function) = (engine.clone(), function.clone());
        tokio::spawn(async move {
            for round in 0..5 {
                // No device supports work-groups of a billion work-items.
                let (count, group) = match n % 8 {
                    3 => (1_000_000_000, 1_000_000_000),
                    _ => (4, 1),
                };
                let query = format!("by={n}&group={group}");
                let count = if count > 4 { 1 } else { count };
                let call = bind(&function, &query, ints((0..count).map(|i| i * round)));
                let reply = run(&engine, &function, call).await;
                match (n % 8, reply) {
                    (3, Err(CallError::Failed(text))) => {
                        assert!(text.contains("CL_INVALID_WORK"), "{text}");
                    }
                    (3, other) => panic!("{other:?}"),
                    (_, reply) => {
                        let expected = ints((0..count).map(|i| i * round + n));
                        assert_eq!(reply.unwrap().outputs[0], expected);
                    }
                }
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let stats = engine.status(&function).unwrap().stats;
    assert_eq!((stats.done, stats.failed), (56 * 5, 8 * 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_kernel_is_said() {
    let daemon = daemon();
    let engine = engine(options(&[&daemon]));
    let broken = function(
        ADD,
        &[(
            "add.cl",
            b"kernel void add(global int *a) { a[0] = nonsense; }",
        )],
    );
    let misnamed = function(
        ADD,
        &[("add.cl", b"kernel void subtract(global int *a) {}")],
    );
    let short = function(ADD, &[("add.cl", b"kernel void add(global int *a) {}")]);
    for (function, says) in [
        (broken, vec!["cannot build add.cl", "nonsense"]),
        (misnamed, vec!["no kernel 'add'", "subtract"]),
        (short, vec!["takes 1 arguments", "lists 3"]),
    ] {
        engine.deploy(&function, 1).await;
        for _ in 0..2 {
            let call = bind(&function, "by=1", ints([1]));
            match run(&engine, &function, call).await {
                Err(CallError::Failed(text)) => {
                    let all = says.iter().all(|part| text.contains(part));
                    assert!(all, "{says:?} in: {text}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_share_scratch_memory_and_constants() {
    let manifest = r#"
name: steps
inputs:
  - {name: a, type: i32, shape: [n]}
  - {name: table, type: i32, shape: [4], from: constant, constant: {values: [10, 20, 30, 40]}}
outputs:
  - {name: b, type: i32, shape: [n]}
implementations:
  - opencl:
      source: steps.cl
      scratch: [{name: between, type: i32, shape: [n]}]
      steps:
        - {kernel: look_up, args: [a, table, between], global: [n]}
        - {kernel: negate, args: [between, b], global: [n]}
"#;
    let source = b"
kernel void look_up(global const int *a, global const int *table, global int *c) {
    size_t i = get_global_id(0);
    c[i] = table[a[i] & 3] + a[i];
}
kernel void negate(global const int *c, global int *b) {
    b[get_global_id(0)] = -c[get_global_id(0)];
}";
    let daemon = daemon();
    let engine = engine(options(&[&daemon]));
    let function = function(manifest, &[("steps.cl", source)]);
    engine.deploy(&function, 1).await;
    for count in [1, 5, 3, 4000, 2] {
        let answer = bytes(&engine, &function, "", &ints(0..count)).await;
        let expected = (0..count).map(|i| -([10, 20, 30, 40][i as usize & 3] + i));
        assert_eq!(answer, ints(expected), "{count}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_arrive_whole() {
    let daemon = daemon();
    let engine = engine(options(&[&daemon]));
    for kind in ["opencl", "native"] {
        let function = example("uppercase", kind);
        engine.deploy(&function, 1).await;
        let callers = (0..4u8).map(|n| {
            let (engine, function) = (engine.clone(), function.clone());
            tokio::spawn(async move {
                let len = 5_000_000 + usize::from(n) * 1_234_567;
                let body: Vec<u8> = (0..len)
                    .map(|i| b'a' + ((i * 31 + usize::from(n)) % 26) as u8)
                    .collect();
                let answer = bytes(&engine, &function, "", &body).await;
                assert!(answer == body.to_ascii_uppercase(), "{kind}, caller {n}");
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
    }
}

/// Concurrent small and large calls of changing sizes: each gets its own result.
async fn mixed_calls(engine: &Engine, function: &Arc<Function>) {
    let callers = (0..16i32).map(|n| {
        let (engine, function) = (engine.clone(), function.clone());
        tokio::spawn(async move {
            for round in 0..12 {
                let count = [1, 300, 7, 70_000, 0, 5000][((n + round) % 6) as usize];
                let answer = bytes(&engine, &function, &format!("by={n}"), &ints(0..count)).await;
                assert!(answer == ints(n..n + count), "caller {n}, round {round}");
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_with_memory_of_its_own_gives_the_same() {
    for set in [&[][..], &["device.host_memory=false"]] {
        let daemon = daemon_with(set);
        let engine = engine(options(&[&daemon]));
        let function = add();
        engine.deploy(&function, 1).await;
        mixed_calls(&engine, &function).await;
        let upper = example("uppercase", "opencl");
        engine.deploy(&upper, 1).await;
        assert_eq!(bytes(&engine, &upper, "", b"hello").await, &b"HELLO"[..]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_over_tcp_gives_the_same() {
    let (_daemon, options) = remote();
    let engine = engine(options);
    let function = add();
    engine.deploy(&function, 1).await;
    mixed_calls(&engine, &function).await;
}

/// A daemon, and options for reaching it over TCP.
fn remote() -> (Daemon, Options) {
    let port = free_port();
    let daemon = daemon_with(&[&format!("listen.tcp=127.0.0.1:{port}")]);
    daemon.text(&["tenant", "add", "red"]).unwrap();
    let token = daemon.text(&["tenant", "token", "red"]).unwrap();
    let options = Options {
        endpoints: vec![format!("tcp://127.0.0.1:{port}")],
        token: token.trim().into(),
        ..options(&[])
    };
    (daemon, options)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_function_is_unloaded_and_comes_back() {
    let daemon = daemon();
    let engine = engine(options(&[&daemon]));
    let manifest = format!("{ADD}idle_s: 1\n");
    let function = function(&manifest, &[("add.cl", ADD_SOURCE)]);
    engine.deploy(&function, 0).await;
    assert!(!engine.status(&function).unwrap().replicas[0].loaded);
    assert_eq!(
        bytes(&engine, &function, "by=1", &ints([1])).await,
        ints([2])
    );
    let deadline = Instant::now() + PATIENCE;
    while engine.status(&function).unwrap().replicas[0].loaded {
        assert!(Instant::now() < deadline, "it stays loaded");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(
        bytes(&engine, &function, "by=1", &ints([2])).await,
        ints([3])
    );
    let status = engine.status(&function).unwrap();
    assert!(status.stats.cold_starts >= 2, "{:?}", status.stats);
    assert!(status.replicas[0].cold.unwrap().program_us > 0);
    // The first call's time is recorded after its response.
    let first = || {
        engine.status(&function).unwrap().replicas[0]
            .cold
            .unwrap()
            .first_call_us
    };
    while first() == 0 {
        assert!(Instant::now() < deadline, "nobody took its time");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

const SLOW: &str = r#"
name: slow
inputs:
  - {name: rounds, type: i32, from: query}
outputs:
  - {name: b, type: i32, shape: [1]}
implementations:
  - opencl: {source: slow.cl, kernel: slow, args: [b, i32(rounds)], global: [1]}
limits: {concurrency: 1}
"#;

const SLOW_SOURCE: &[u8] = b"
kernel void slow(global volatile int *b, int rounds) {
    b[0] = 0;
    for (int i = 0; i < rounds; i++)
        for (int j = 0; j < 1000000; j++)
            b[0] = b[0] + 1;
}";

#[tokio::test(flavor = "multi_thread")]
async fn full_queues_refuse_and_late_calls_are_not_run() {
    let daemon = daemon();
    let options = Options {
        queue_calls_max: 1,
        ..options(&[&daemon])
    };
    let engine = engine(options);
    let function = function(SLOW, &[("slow.cl", SLOW_SOURCE)]);
    engine.deploy(&function, 1).await;
    assert_eq!(
        bytes(&engine, &function, "rounds=1", b"").await,
        ints([1_000_000])
    );
    // It takes longer than the second call's deadline on any machine.
    let slow = |deadline: Duration| {
        let (engine, function) = (engine.clone(), function.clone());
        tokio::spawn(async move {
            let call = bind(&function, "rounds=2000", Vec::new());
            let deadline = Instant::now() + deadline;
            engine
                .call(&function, call, deadline, &Trace::default())
                .await
        })
    };
    let waiting = |count: u64| {
        let (engine, function) = (engine.clone(), function.clone());
        async move {
            let deadline = Instant::now() + PATIENCE;
            while engine.status(&function).unwrap().stats.waiting != count {
                assert!(Instant::now() < deadline, "never {count} calls");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let running = slow(PATIENCE);
    waiting(1).await;
    // One call runs, one waits, the third is rejected.
    let queued = slow(Duration::from_millis(200));
    waiting(2).await;
    match run(&engine, &function, bind(&function, "rounds=1", Vec::new())).await {
        Err(CallError::Overload { retry_after, .. }) => assert!(retry_after > Duration::ZERO),
        // The second call was late already and has made room.
        Ok(reply) => assert_eq!(reply.outputs[0], ints([1_000_000])),
        other => panic!("{other:?}"),
    }
    assert_eq!(queued.await.unwrap().unwrap_err(), CallError::Deadline);
    assert_eq!(
        running.await.unwrap().unwrap().outputs[0],
        ints([2_000_000_000])
    );
    let stats = engine.status(&function).unwrap().stats;
    // The late call was answered without having run.
    assert_eq!(stats.requests_ran, stats.done, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_leaves_takes_its_waiting_call_along() {
    let daemon = daemon();
    let engine = engine(options(&[&daemon]));
    let function = function(SLOW, &[("slow.cl", SLOW_SOURCE)]);
    engine.deploy(&function, 1).await;
    assert_eq!(
        bytes(&engine, &function, "rounds=1", b"").await,
        ints([1_000_000])
    );
    let start = |rounds: u32| {
        let (engine, function) = (engine.clone(), function.clone());
        let call = bind(&function, &format!("rounds={rounds}"), Vec::new());
        tokio::spawn(async move { run(&engine, &function, call).await })
    };
    let running = start(400);
    let deadline = Instant::now() + PATIENCE;
    while engine.status(&function).unwrap().stats.waiting < 1 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let leaving = start(100);
    while engine.status(&function).unwrap().stats.waiting < 2 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    leaving.abort();
    running.await.unwrap().unwrap();
    assert_eq!(
        bytes(&engine, &function, "rounds=2", b"").await,
        ints([2_000_000])
    );
    let stats = engine.status(&function).unwrap().stats;
    assert_eq!((stats.done, stats.abandoned), (3, 1));
    assert_eq!(
        stats.requests_ran, 3,
        "the call of the one that left was not run"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kernels_print_is_in_the_log() {
    let daemon = daemon();
    let engine = engine(options(&[&daemon]));
    let source = b"
kernel void add(global const int *a, global int *b, int by) {
    b[get_global_id(0)] = by;
    printf(\"adding %d\\n\", by);
}";
    let function = function(ADD, &[("add.cl", source)]);
    engine.deploy(&function, 1).await;
    bytes(&engine, &function, "by=42", &ints([1])).await;
    let log = engine.log(&function).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !log.since(0).iter().any(|line| line.text == "adding 42") {
        assert!(Instant::now() < deadline, "{:?}", log.since(0));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const MOODY: &str = r#"
name: moody
inputs:
  - {name: mood, type: u8, shape: [n]}
outputs:
  - {name: answer, type: u8, shape: [n]}
implementations:
  - native: {library: moody.so, symbol: moody}
limits: {timeout_ms: 500}
"#;

const MOODY_SOURCE: &str = r#"
#include <baltra_function.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
int32_t moody(const baltra_argument *a, uint32_t count, char *error, uint64_t error_bytes) {
    const char *mood = a[0].data;
    switch (mood[0]) {
    case 'c': *(volatile int *)0 = 1; break;
    case 'r': snprintf(error, error_bytes, "not today"); return 1;
    case 'h': for (;;) pause();
    case 'e': _exit(3);
    case 'p': fprintf(stderr, "said so\n"); break;
    case 'n': if (socket(AF_INET, SOCK_STREAM, 0) < 0) { memcpy(a[1].data, "x", 1); return 0; }
    }
    memcpy(a[1].data, a[0].data, a[0].bytes);
    return 0;
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn native_code_that_breaks_breaks_its_own_process_only() {
    let engine = engine(options(&[]));
    let library = library_of(MOODY_SOURCE);
    let function = function(MOODY, &[("moody.so", &library)]);
    engine.deploy(&function, 1).await;
    let call = |mood: &'static [u8]| run(&engine, &function, bind(&function, "", mood));
    assert_eq!(call(b"good").await.unwrap().outputs[0], &b"good"[..]);
    for (mood, says) in [
        (&b"crash"[..], "SIGSEGV"),
        (b"refuse", "not today"),
        (b"exit", "code 3"),
        (b"hang", "time limit"),
    ] {
        match call(mood).await {
            Err(CallError::Failed(text)) => assert!(text.contains(says), "{says}: {text}"),
            other => panic!("{says}: {other:?}"),
        }
        // The next call gets a new process.
        assert_eq!(call(b"good").await.unwrap().outputs[0], &b"good"[..]);
    }
    // The process has no access to the network.
    assert_eq!(call(b"net").await.unwrap().outputs[0], &b"x\0\0"[..]);
    call(b"print").await.unwrap();
    let log = engine.log(&function).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !log.since(0).iter().any(|line| line.text == "said so") {
        assert!(Instant::now() < deadline, "{:?}", log.since(0));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn native_code_stands_in_where_there_is_no_device() {
    let options = Options {
        endpoints: vec!["unix:/nonexistent/baltra.sock".into()],
        ..options(&[])
    };
    let engine = engine(options);
    let dir = root().join("apps/functions/uppercase");
    let manifest = std::fs::read_to_string(dir.join("function.yaml")).unwrap();
    let source = std::fs::read(dir.join("uppercase.cl")).unwrap();
    let library = std::fs::read(compiled(&dir.join("uppercase.c")).1).unwrap();
    let files: [(&str, &[u8]); 2] = [("uppercase.cl", &source), ("uppercase.so", &library)];
    let function = function(&manifest, &files);
    engine.deploy(&function, 1).await;
    let reply = run(&engine, &function, bind(&function, "", *b"hello"))
        .await
        .unwrap();
    assert_eq!(reply.implementation, "native");
    assert_eq!(reply.outputs[0], &b"HELLO"[..]);
    let lonely = add();
    engine.deploy(&lonely, 1).await;
    match run(&engine, &lonely, bind(&lonely, "by=1", ints([1]))).await {
        Err(CallError::Unavailable(text)) => assert!(text.contains("baltra up"), "{text}"),
        other => panic!("{other:?}"),
    }
}
