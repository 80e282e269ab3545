//! Work that does not end, and drivers that do not recover: which sessions end, and which continue.

use baltra_engine::{CallError, Engine, Options, Trace};
use baltra_functions::{Body, Call, Files, Function, Request};
use baltra_testkit::{until, Daemon};
use baltra_tests::{
    baltra, compile, compile_driver, daemon, daemon_with, ended, executor_of, executors, json,
    tenants, through, Answer, Running,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The value of `CL_DEVICE_NOT_AVAILABLE`.
const NOT_AVAILABLE: i64 = -2;
/// Longer than any step takes; a wait that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(120);

fn working(daemon: &Daemon, tenant: &str) -> Running {
    let mut command = through(daemon, tenant, compile("work"));
    command.arg("0");
    let mut running = Running::start(command);
    running.wait_line("round");
    running
}

fn works_again(daemon: &Daemon, tenant: &str) {
    let mut command = through(daemon, tenant, compile("work"));
    command.arg("5");
    Running::run(command).ok();
}

fn harm(daemon: &Daemon, tenant: &str, arguments: &[&str]) -> Answer {
    let mut command = through(daemon, tenant, compile("harm"));
    command.args(arguments);
    Running::run(command).ok()
}

/// Starts an endless kernel and kills its client.
fn orphan(daemon: &Daemon, tenant: &str) {
    let mut command = through(daemon, tenant, compile("harm"));
    command.arg("endless");
    let mut running = Running::start(command);
    running.wait_line("ready");
    // Time for the kernel to be launched; earlier is harmless.
    std::thread::sleep(Duration::from_millis(500));
    drop(running);
}

/// Executors ended by a tenant's work (empty: any tenant's).
fn faults(daemon: &Daemon, tenant: &str, cause: &str) -> u64 {
    let devices = json(daemon, &["devices"]);
    let devices = devices.as_array().into_iter().flatten();
    let all = devices.flat_map(|device| device["faults"].as_array().into_iter().flatten());
    let own = all.filter(|f| f["cause"] == cause && (tenant.is_empty() || f["tenant"] == tenant));
    own.filter_map(|f| f["count"].as_u64()).sum()
}

#[test]
fn an_orphans_endless_kernel_ends_although_its_tenant_has_other_sessions() {
    let daemon = daemon();
    tenants(&daemon, &["red", "blue"]);
    let mut neighbor = working(&daemon, "blue");
    let sibling = working(&daemon, "red");
    let shared = executor_of(&daemon, "red");
    orphan(&daemon, "red");
    until("the executor has ended", || ended(shared)).unwrap();
    let sibling = sibling.finish();
    assert_eq!(sibling.number("error"), Some(NOT_AVAILABLE), "{sibling:?}");
    neighbor.wait_progress();
    works_again(&daemon, "red");
    until("it is counted", || faults(&daemon, "red", "overdue") == 1).unwrap();
}

#[test]
fn with_device_isolation_an_orphans_endless_kernel_costs_others_one_session() {
    let daemon = daemon_with(&["device.isolation=device"]);
    tenants(&daemon, &["red", "blue"]);
    let neighbor = working(&daemon, "blue");
    orphan(&daemon, "red");
    let neighbor = neighbor.finish();
    assert_eq!(
        neighbor.number("error"),
        Some(NOT_AVAILABLE),
        "{neighbor:?}"
    );
    works_again(&daemon, "blue");
    works_again(&daemon, "red");
    assert_eq!(faults(&daemon, "red", "overdue"), 1);
    assert_eq!(faults(&daemon, "blue", "overdue"), 0);
}

#[test]
fn with_device_isolation_who_faults_again_is_set_apart() {
    let daemon = daemon_with(&["device.isolation=device", "device.orphan_ms=300"]);
    tenants(&daemon, &["red", "blue"]);
    for count in 1..=2 {
        works_again(&daemon, "blue");
        let neighbor = working(&daemon, "blue");
        orphan(&daemon, "red");
        let neighbor = neighbor.finish();
        assert_eq!(neighbor.number("error"), Some(NOT_AVAILABLE));
        until("it is counted", || {
            faults(&daemon, "red", "overdue") == count
        })
        .unwrap();
    }
    let mut neighbor = working(&daemon, "blue");
    let shared = executor_of(&daemon, "blue");
    let mut culprit = working(&daemon, "red");
    let own = executor_of(&daemon, "red");
    assert_ne!(own, shared, "{:?}", executors(&daemon));
    culprit.wait_progress();
    orphan(&daemon, "red");
    until("its own executor has ended", || ended(own)).unwrap();
    neighbor.wait_progress();
    assert!(!ended(shared));
}

#[test]
fn an_open_programs_endless_kernel_does_not_keep_an_accelerator_from_other_tenants() {
    let driver = compile_driver("accelerator_driver");
    let daemon = daemon_with(&[
        &format!("device.driver={}", driver.display()),
        "device.contended_ms=1000",
    ]);
    tenants(&daemon, &["red", "blue"]);
    let mut command = through(&daemon, "red", compile("harm"));
    command.arg("endless");
    let mut running = Running::start(command);
    running.wait_line("ready");
    until("the kernel holds the device", || {
        works_again(&daemon, "blue");
        faults(&daemon, "red", "task_limit") == 1
    })
    .unwrap();
    let ended = running.finish().ok();
    assert_eq!(ended.number("finish"), Some(NOT_AVAILABLE), "{ended:?}");
    works_again(&daemon, "red");
}

fn sticky(isolation: &str) -> Daemon {
    let driver = compile_driver("sticky_driver");
    daemon_with(&[
        &format!("device.driver={}", driver.display()),
        &format!("device.isolation={isolation}"),
    ])
}

#[test]
fn a_load_that_never_ends_does_not_keep_the_device() {
    let driver = compile_driver("stuck_driver");
    let daemon = daemon_with(&[
        &format!("device.driver={}", driver.display()),
        "device.image=exclusive",
        "device.load_ms=200",
    ]);
    tenants(&daemon, &["red"]);
    let image = daemon.state_dir().join("image");
    std::fs::write(&image, b"stuck").unwrap();
    let image = image.to_str().unwrap();
    daemon
        .text(&["accelerator", "push", image, "--name", "stuck"])
        .unwrap();
    let load = ["accelerator", "load", "stuck", "--device", "device0"];
    let refused = daemon.text(&load).unwrap_err().to_string();
    assert!(refused.contains("'device.load_ms'"), "{refused}");
    // The operator's executor has ended, and the device's tenants continue.
    works_again(&daemon, "red");
    let devices = daemon.text(&["devices", "--json"]).unwrap();
    assert!(devices.contains("\"reconfigurations\": 1"), "{devices}");
}

/// Every call after the fault returns that the device is gone; the driver's codes are not visible.
fn is_lost(answer: &Answer) {
    for call in ["finish", "read"] {
        assert_eq!(answer.number(call), Some(NOT_AVAILABLE), "{answer:?}");
    }
}

#[test]
fn a_lost_context_ends_its_tenants_sessions_and_new_ones_work() {
    let daemon = sticky("tenant");
    tenants(&daemon, &["red", "blue"]);
    let mut neighbor = working(&daemon, "blue");
    let sibling = working(&daemon, "red");
    let shared = executor_of(&daemon, "red");
    is_lost(&harm(&daemon, "red", &["fault"]));
    until("the executor has ended", || ended(shared)).unwrap();
    let sibling = sibling.finish();
    assert_eq!(sibling.number("error"), Some(NOT_AVAILABLE), "{sibling:?}");
    neighbor.wait_progress();
    works_again(&daemon, "red");
    assert_eq!(faults(&daemon, "red", "context_lost"), 1);
}

#[test]
fn with_session_isolation_a_lost_context_ends_one_session() {
    let daemon = sticky("session");
    tenants(&daemon, &["red"]);
    let mut sibling = working(&daemon, "red");
    is_lost(&harm(&daemon, "red", &["fault"]));
    sibling.wait_progress();
    works_again(&daemon, "red");
}

#[test]
fn with_device_isolation_a_lost_context_costs_others_one_session() {
    let daemon = sticky("device");
    tenants(&daemon, &["red", "blue"]);
    let neighbor = working(&daemon, "blue");
    is_lost(&harm(&daemon, "red", &["fault"]));
    let neighbor = neighbor.finish();
    assert_eq!(
        neighbor.number("error"),
        Some(NOT_AVAILABLE),
        "{neighbor:?}"
    );
    works_again(&daemon, "blue");
    works_again(&daemon, "red");
    // The session whose thread detects the fault first is random; the fault is counted once.
    let both = faults(&daemon, "red", "context_lost") + faults(&daemon, "blue", "context_lost");
    assert_eq!(both, 1);
}

fn function(manifest: &str, files: &[(&str, &[u8])]) -> Arc<Function> {
    let contents: BTreeMap<String, Bytes> = files
        .iter()
        .map(|(name, bytes)| (name.to_string(), Bytes::copy_from_slice(bytes)))
        .collect();
    let files = Files::from_contents(contents);
    Arc::new(Function::from_files(manifest, files).unwrap_or_else(|e| panic!("{e}")))
}

fn bind(function: &Function, words: &[u32]) -> Call {
    let body: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let headers = http::HeaderMap::new();
    let request = Request {
        method: &http::Method::POST,
        path: "",
        query: "",
        headers: &headers,
    };
    let call = function.bind(&request, Body::from(body));
    call.unwrap_or_else(|e| panic!("{e}"))
}

fn manifest(name: &str, kernel: &str) -> String {
    format!(
        "name: {name}
inputs: [{{name: a, type: u32, shape: [n]}}]
outputs: [{{name: b, type: u32, shape: [n]}}]
implementations: [{{opencl: {{source: k.cl, kernel: {kernel}, global: [n]}}}}]
"
    )
}

/// `copy` copies; `spin` also copies, and never ends if the first word is 7.
const KERNELS: &[u8] = b"
kernel void copy(global const uint *a, global uint *b) {
  size_t i = get_global_id(0);
  b[i] = a[i];
}
kernel void spin(global const uint *a, global uint *b) {
  size_t i = get_global_id(0);
  volatile uint x = a[i];
  while (a[0] == 7) { x++; b[i] = x; }
  b[i] = x;
}";

const FAULT: &[u8] = b"
kernel void fault(global const uint *a, global uint *b) {
  size_t i = get_global_id(0);
  b[i] = a[i];
}";

fn engine(endpoint: &str) -> Engine {
    let options = Options {
        endpoints: vec![endpoint.to_owned()],
        native_program: baltra(),
        ..Options::default()
    };
    Engine::new(options).expect("an engine")
}

async fn call(
    engine: &Engine,
    function: &Arc<Function>,
    words: &[u32],
    time: Duration,
) -> Result<Vec<Bytes>, CallError> {
    let deadline = Instant::now() + time;
    let call = bind(function, words);
    let reply = engine
        .call(function, call, deadline, &Trace::default())
        .await;
    reply.map(|reply| reply.outputs)
}

async fn answers(engine: &Engine, function: &Arc<Function>, words: &[u32]) {
    let outputs = call(engine, function, words, PATIENCE).await.unwrap();
    let expected: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    assert_eq!(outputs[0], expected);
}

/// Two calls never end; other calls of the same tenant on the same executor continue.
async fn endless_calls_do_not_stop_others(engine: Engine) {
    let copy = function(&manifest("copy", "copy"), &[("k.cl", KERNELS)]);
    let spin = function(&manifest("spin", "spin"), &[("k.cl", KERNELS)]);
    engine.deploy(&copy, 1).await;
    engine.deploy(&spin, 1).await;
    answers(&engine, &copy, &[1, 2, 3]).await;
    answers(&engine, &spin, &[1, 2, 3]).await;
    let endless = |time: Duration| {
        let (engine, spin) = (engine.clone(), spin.clone());
        tokio::spawn(async move { call(&engine, &spin, &[7; 64], time).await })
    };
    // PoCL compiles a kernel for each work-group size, which takes time.
    let time = Duration::from_secs(4);
    let both = [endless(time), endless(time)];
    // A call in flight on the same executor, with time left when the executor ends.
    let innocent = {
        let (engine, copy) = (engine.clone(), copy.clone());
        tokio::spawn(async move { answers(&engine, &copy, &[5; 32]).await })
    };
    for one in both {
        assert_eq!(one.await.unwrap().unwrap_err(), CallError::Deadline);
    }
    innocent.await.unwrap();
    let patience = Instant::now() + PATIENCE;
    while engine.status(&spin).unwrap().stats.overruns == 0 {
        assert!(Instant::now() < patience, "{:?}", engine.status(&spin));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(engine.status(&copy).unwrap().stats.overruns, 0);
    answers(&engine, &copy, &[9; 16]).await;
    // After the hold-off time, other inputs of the same function are accepted as before.
    let patience = Instant::now() + PATIENCE;
    while engine.why_not_ready(&spin).is_some() {
        assert!(
            Instant::now() < patience,
            "{:?}",
            engine.why_not_ready(&spin)
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    answers(&engine, &spin, &[2; 16]).await;
    assert_eq!(engine.overdue(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_endless_calls_do_not_stop_other_functions() {
    let daemon = daemon();
    endless_calls_do_not_stop_others(engine(&daemon.endpoint())).await;
    let executor_faults = faults(&daemon, "", "overdue");
    assert!(executor_faults >= 1, "{executor_faults}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_device_isolation_two_endless_calls_do_not_stop_other_functions() {
    let daemon = daemon_with(&["device.isolation=device"]);
    endless_calls_do_not_stop_others(engine(&daemon.endpoint())).await;
}

/// Calls of `copy` fail while another session's kernel holds the device, and succeed once that
/// session has ended, without an action of its owner.
async fn calls_outlast_a_kernel(engine: &Engine, copy: &Arc<Function>) {
    let time = Duration::from_secs(2);
    let patience = Instant::now() + PATIENCE;
    while call(engine, copy, &[4], time).await.is_ok() {
        assert!(Instant::now() < patience, "the kernel never runs");
    }
    let patience = Instant::now() + PATIENCE;
    while call(engine, copy, &[5], time).await.is_err() {
        assert!(Instant::now() < patience, "the device is stuck");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_programs_endless_kernel_does_not_stop_functions_of_its_tenant() {
    let daemon = daemon_with(&["device.contended_ms=1000"]);
    let engine = engine(&daemon.endpoint());
    let copy = function(&manifest("copy", "copy"), &[("k.cl", KERNELS)]);
    engine.deploy(&copy, 1).await;
    answers(&engine, &copy, &[1, 2, 3]).await;
    let mut command = through(&daemon, "", compile("harm"));
    // Enough groups for all threads of the device.
    command.args(["endless", "64", "4096"]);
    let mut running = Running::start(command);
    running.wait_line("ready");
    calls_outlast_a_kernel(&engine, &copy).await;
    let ended = running.finish().ok();
    assert_eq!(ended.number("finish"), Some(NOT_AVAILABLE), "{ended:?}");
    assert!(faults(&daemon, "", "overdue") >= 1);
    answers(&engine, &copy, &[6; 8]).await;
}

/// An endless call with a long time limit ends, because calls of another function wait. These begin
/// `head_start` later.
async fn an_endless_call_ends(head_start: Duration) {
    let daemon = daemon_with(&["device.contended_ms=1000"]);
    let engine = engine(&daemon.endpoint());
    let copy = function(&manifest("copy", "copy"), &[("k.cl", KERNELS)]);
    let spin = function(&manifest("spin", "spin"), &[("k.cl", KERNELS)]);
    for function in [&copy, &spin] {
        engine.deploy(function, 1).await;
        answers(&engine, function, &[1, 2, 3]).await;
    }
    let endless = {
        let (engine, spin) = (engine.clone(), spin.clone());
        let time = Duration::from_secs(24 * 3600);
        // Enough groups for all threads of the device.
        tokio::spawn(async move { call(&engine, &spin, &vec![7; 1 << 18], time).await })
    };
    tokio::time::sleep(head_start).await;
    calls_outlast_a_kernel(&engine, &copy).await;
    // Tried again once, and ended again.
    let patience = Instant::now() + PATIENCE;
    while !endless.is_finished() {
        assert!(Instant::now() < patience, "the call has not ended");
        let _ = call(&engine, &copy, &[8], Duration::from_secs(2)).await;
    }
    assert!(matches!(
        endless.await.unwrap(),
        Err(CallError::Failed(_)) | Err(CallError::Unavailable(_))
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_call_with_a_long_time_limit_does_not_stop_other_functions() {
    an_endless_call_ends(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_arrive_long_after_an_endless_call_do_not_wait_for_its_limit() {
    an_endless_call_ends(Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_whose_calls_never_end_is_held_off() {
    let daemon = daemon();
    let engine = engine(&daemon.endpoint());
    let spin = function(&manifest("spin", "spin"), &[("k.cl", KERNELS)]);
    engine.deploy(&spin, 1).await;
    answers(&engine, &spin, &[1]).await;
    is_held_off(&engine, &spin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_is_handled_after_the_work_was_ended_is_no_failure_of_the_device() {
    let daemon = daemon();
    let engine = engine(&daemon.endpoint());
    let spin = function(&manifest("spin", "spin"), &[("k.cl", KERNELS)]);
    engine.deploy(&spin, 1).await;
    answers(&engine, &spin, &[1]).await;
    // Its time limit ends while nothing polls the call, as on a busy host.
    let mut late = Box::pin(call(&engine, &spin, &[7], Duration::from_secs(3)));
    let begun = tokio::time::timeout(Duration::ZERO, &mut late).await;
    assert!(begun.is_err(), "it has not ended");
    let patience = Instant::now() + PATIENCE;
    while engine.overdue().is_empty() && engine.status(&spin).unwrap().stats.overruns == 0 {
        assert!(Instant::now() < patience, "{:?}", engine.status(&spin));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(late.await.unwrap_err(), CallError::Deadline);
    is_held_off(&engine, &spin).await;
}

/// Endless calls reach their deadlines until the function is held off.
async fn is_held_off(engine: &Engine, spin: &Arc<Function>) {
    let patience = Instant::now() + PATIENCE;
    loop {
        let ended = call(engine, spin, &[7], Duration::from_secs(3)).await;
        match ended.unwrap_err() {
            CallError::Deadline => assert!(Instant::now() < patience, "never held off"),
            CallError::HeldOff { retry_after } => {
                assert!(retry_after > Duration::ZERO);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    let why = engine.why_not_ready(spin).expect("it is not ready");
    assert!(why.contains("ran past their deadlines"), "{why}");
    assert!(engine.status(spin).unwrap().held_ms.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_leaves_and_a_removed_function_leave_nothing_behind() {
    let daemon = daemon();
    let engine = engine(&daemon.endpoint());
    let copy = function(&manifest("copy", "copy"), &[("k.cl", KERNELS)]);
    let spin = function(&manifest("spin", "spin"), &[("k.cl", KERNELS)]);
    engine.deploy(&copy, 1).await;
    engine.deploy(&spin, 1).await;
    answers(&engine, &copy, &[1]).await;
    answers(&engine, &spin, &[1]).await;
    let leaves = {
        let (engine, spin) = (engine.clone(), spin.clone());
        tokio::spawn(async move { call(&engine, &spin, &[7], PATIENCE).await })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    leaves.abort();
    engine.remove(&spin);
    // Well before the call's own deadline.
    answers(&engine, &copy, &[2; 8]).await;
    assert!(Path::new(&daemon.runtime_dir()).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_context_is_retried_once_and_others_go_on() {
    let daemon = sticky("tenant");
    let engine = engine(&daemon.endpoint());
    let copy = function(&manifest("copy", "copy"), &[("k.cl", KERNELS)]);
    let bad = function(&manifest("bad", "fault"), &[("k.cl", FAULT)]);
    engine.deploy(&copy, 1).await;
    engine.deploy(&bad, 1).await;
    answers(&engine, &copy, &[1, 2]).await;
    let error = call(&engine, &bad, &[1, 2], PATIENCE).await.unwrap_err();
    assert!(matches!(error, CallError::Failed(_)), "{error:?}");
    assert_eq!(engine.status(&bad).unwrap().stats.retries, 1);
    answers(&engine, &copy, &[3, 4]).await;
}
