//! Executors, managers and nodes that are killed while functions are called.

use super::*;
use baltra_testkit::until;
use baltra_tests::{kill, suspend};
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_is_killed_costs_a_clear_error_or_nothing() {
    let daemon = daemon();
    let engine = engine(options(&[&daemon]));
    let function = add();
    engine.deploy(&function, 1).await;
    assert_eq!(
        bytes(&engine, &function, "by=1", &ints([1])).await,
        ints([2])
    );
    let answered = Arc::new(AtomicUsize::new(0));
    let callers = (0..8).map(|n| {
        let (engine, function, answered) = (engine.clone(), function.clone(), answered.clone());
        tokio::spawn(async move {
            for i in 0..200 {
                let call = bind(&function, &format!("by={n}"), ints([i]));
                match run(&engine, &function, call).await {
                    Ok(reply) => {
                        assert_eq!(reply.outputs[0], ints([i + n]));
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(CallError::Failed(text) | CallError::Unavailable(text)) => {
                        assert!(!text.is_empty());
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    // During calls; calls that arrive while the device is unavailable fail immediately.
    while answered.load(Ordering::Relaxed) < 8 && callers.iter().any(|c| !c.is_finished()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for executor in daemon.children() {
        kill(executor);
    }
    for caller in callers {
        caller.await.unwrap();
    }
    // The device becomes available again.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let call = bind(&function, "by=5", ints([1]));
        match run(&engine, &function, call).await {
            Ok(reply) => break assert_eq!(reply.outputs[0], ints([6])),
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_leave_a_node_that_stops_answering_and_its_spare_session() {
    let (stops, other) = (daemon(), daemon());
    let engine = engine(options(&[&stops, &other]));
    let function = add();
    engine.deploy(&function, 1).await;
    let call = bind(&function, "by=1", ints([1]));
    run(&engine, &function, call).await.unwrap();
    let sessions = || stops.text(&["sessions", "--json"]).unwrap();
    let opened = || sessions().matches("\"instance\"").count();
    until("the spare session is open", || opened() == 2).unwrap();
    let mut processes = stops.children();
    processes.push(stops.pid());
    let _suspended = suspend(processes);
    let end = Instant::now() + PATIENCE;
    let after = loop {
        let call = bind(&function, "by=1", ints([1]));
        // Longer than the engine waits for the end of work past its deadline: each of the sessions is
        // found to be dead by calls of its own.
        let deadline = Instant::now() + Duration::from_secs(2);
        let trace = Trace::default();
        match engine.call(&function, call, deadline, &trace).await {
            Ok(reply) => break reply,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    };
    assert_eq!(after.outputs[0], ints([2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_run_on_without_the_manager() {
    let mut daemon = daemon();
    let engine = engine(options(&[&daemon]));
    let function = add();
    engine.deploy(&function, 1).await;
    assert_eq!(
        bytes(&engine, &function, "by=1", &ints([1])).await,
        ints([2])
    );
    daemon.kill().unwrap();
    for i in 0..100 {
        let answer = bytes(&engine, &function, "by=2", &ints([i])).await;
        assert_eq!(answer, ints([i + 2]));
    }
}

/// A call that is on the device when its manager dies gets one response: the correct bytes, or a
/// clear error.
async fn killed_in_a_call(mut daemon: Daemon, options: Options) {
    let engine = engine(options);
    let manifest = ADD.replace("kernel: add", "kernel: slow");
    let source: &[u8] = b"
kernel void slow(global const int *a, global int *b, int by) {
    uint x = a[0];
    for (uint i = 0; i < (uint)by; i++) x = x * 1664525u + 1013904223u;
    b[get_global_id(0)] = x;
}";
    let function = function(&manifest, &[("add.cl", source)]);
    engine.deploy(&function, 1).await;
    let expected = |steps: u32| {
        let step = |x: u32, _| x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ints([(0..steps).fold(7, step) as i32])
    };
    assert_eq!(
        bytes(&engine, &function, "by=3", &ints([7])).await,
        expected(3)
    );
    let steps = 400_000_000;
    let busy_ns = |daemon: &Daemon| -> u64 {
        let usage = daemon.text(&["tenant", "usage", "--json"]).unwrap();
        let usage: Vec<serde_json::Value> = serde_json::from_str(&usage).unwrap();
        let used = usage.iter().filter_map(|u| u["busy_ns"].as_u64());
        used.sum()
    };
    let before = busy_ns(&daemon);
    let call = bind(&function, &format!("by={steps}"), ints([7]));
    let (caller, called) = (engine.clone(), function.clone());
    let call = tokio::spawn(async move { run(&caller, &called, call).await });
    while busy_ns(&daemon) < before + 20_000_000 {
        assert!(!call.is_finished(), "it was over before anybody could look");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    daemon.kill().unwrap();
    assert!(!call.is_finished(), "the call was over before the manager");
    match call.await.unwrap() {
        Ok(reply) => assert_eq!(reply.outputs[0], expected(steps)),
        Err(CallError::Failed(text) | CallError::Unavailable(text)) => assert!(!text.is_empty()),
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_killed_in_a_call_costs_a_clear_error_or_nothing() {
    let daemon = daemon();
    let options = options(&[&daemon]);
    killed_in_a_call(daemon, options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_manager_killed_in_a_call_costs_a_clear_error_or_nothing() {
    let (daemon, options) = remote();
    killed_in_a_call(daemon, options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_gone_is_replaced_by_another() {
    let mut first = daemon();
    let second = daemon();
    let engine = engine(options(&[&first, &second]));
    let function = add();
    engine.deploy(&function, 2).await;
    assert_eq!(
        bytes(&engine, &function, "by=1", &ints([1])).await,
        ints([2])
    );
    for executor in first.children() {
        kill(executor);
    }
    first.kill().unwrap();
    // Kernels may run twice, so callers see no failure.
    for i in 0..200 {
        let answer = bytes(&engine, &function, "by=3", &ints([i])).await;
        assert_eq!(answer, ints([i + 3]));
    }
    let loaded = engine.status(&function).unwrap().replicas;
    assert!(loaded.iter().any(|replica| replica.loaded), "{loaded:?}");
}
