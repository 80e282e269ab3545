//! More calls than a device can run: tenants take turns, and calls that would be late are refused.

use super::{bind, engine, function, options, Engine, SLOW, SLOW_SOURCE};
use baltra_engine::{CallError, Caller, Options, Reply, Shed, Trace};
use baltra_functions::Function;
use baltra_tests::daemon;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A call of some milliseconds by a tenant.
async fn call(
    engine: &Engine,
    function: &Arc<Function>,
    tenant: usize,
    time: Duration,
) -> Result<Reply, CallError> {
    let caller = Caller {
        tenant,
        account: None,
    };
    let call = bind(function, "rounds=5", Vec::new());
    let (deadline, trace) = (Instant::now() + time, Trace::default());
    engine
        .call_for(function, call, deadline, &trace, caller)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_floods_delays_others_by_a_few_calls_and_late_calls_are_refused() {
    const FLOOD: usize = 200;
    let long = Duration::from_secs(600);
    let daemon = daemon();
    let options = Options {
        tenants: 2,
        ..options(&[&daemon])
    };
    let engine = engine(options);
    let function = function(SLOW, &[("slow.cl", SLOW_SOURCE)]);
    engine.deploy(&function, 1).await;
    call(&engine, &function, 0, long).await.unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    let flood: Vec<_> = (0..FLOOD)
        .map(|_| {
            let (engine, function, ended) = (engine.clone(), function.clone(), ended.clone());
            tokio::spawn(async move {
                let reply = call(&engine, &function, 0, long).await;
                ended.fetch_add(1, SeqCst);
                reply
            })
        })
        .collect();
    // The rate is known after some calls.
    while ended.load(SeqCst) < 20 || engine.drain_time(&function).is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut most = 0;
    for _ in 0..5 {
        let before = ended.load(SeqCst);
        call(&engine, &function, 1, long).await.unwrap();
        most = most.max(ended.load(SeqCst) - before);
    }
    println!("a call of the other tenant waited for {most} of {FLOOD} calls");
    assert!(
        most <= 8,
        "{most} calls were served before one of the other tenant"
    );
    // A call that the flood leaves no time for is refused at once, and one with time is not.
    let begun = ended.load(SeqCst);
    assert!(begun < FLOOD / 2, "{begun} calls have ended already");
    let drain = engine.drain_time(&function).unwrap();
    match call(&engine, &function, 0, drain / 4).await {
        Err(CallError::Overload {
            reason: Shed::Deadline,
            retry_after,
        }) => assert!(retry_after > Duration::ZERO && retry_after <= 2 * drain),
        other => panic!("{other:?}"),
    }
    for reply in flood {
        reply.await.unwrap().unwrap();
    }
    let stats = engine.status(&function).unwrap().stats;
    assert_eq!((stats.overload, stats.deadline), (1, 0), "{stats:?}");
    // No refused call has run.
    assert_eq!(stats.requests_ran, stats.done, "{stats:?}");
}
